//! Who has a file open: processes of this host, loop devices, and locks of QEMU, which show those of other hosts too.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;

/// QEMU locks one byte for each thing it does to an image, from 100 on, and one for each it lets nobody else do, from
/// 200 on. What is read without forbidding anybody anything, as the agent's own copies are, locks only the first byte.
const LOCKED_BYTES: [(i64, i64); 2] = [(101, 7), (200, 8)];

/// Users of the file, in words.
pub(super) fn of(path: &Path) -> io::Result<Vec<String>> {
    // Should the name have gone to a pipe, opening must not wait for its writer.
    let opened = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path);
    let file = match opened {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(vec![]),
        opened => opened?,
    };
    let seen = file.metadata()?;
    let mut users = processes(seen.dev(), seen.ino())?;
    users.extend(loop_devices(path)?);
    if users.is_empty() && is_locked(&file)? {
        users.push("a lock of QEMU, on this host or another".to_owned());
    }
    Ok(users)
}

/// Processes that have it open, this one and its children left out.
fn processes(device: u64, inode: u64) -> io::Result<Vec<String>> {
    let own = std::process::id();
    let mut users = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process may end at any moment, and then uses nothing.
        if pid != own && opens(&entry.path(), device, inode) {
            let Some((name, parent)) = name_and_parent(&entry.path()) else { continue };
            if parent != own {
                users.push(format!("{name} (pid {pid})"));
            }
        }
    }
    Ok(users)
}

fn opens(process: &Path, device: u64, inode: u64) -> bool {
    let Ok(open) = std::fs::read_dir(process.join("fd")) else { return false };
    open.flatten().any(|entry| {
        // Most of what is open has no path: sockets, pipes, events.
        if !std::fs::read_link(entry.path()).is_ok_and(|link| link.is_absolute()) {
            return false;
        }
        // Asking about an open file of a mount that hangs would hang; its inode is told without that.
        let told = std::fs::read_to_string(process.join("fdinfo").join(entry.file_name()));
        let told = told.ok().as_deref().and_then(inode_told);
        if told.is_some_and(|told| told != inode) {
            return false;
        }
        std::fs::metadata(entry.path())
            .is_ok_and(|seen| (seen.dev(), seen.ino()) == (device, inode))
    })
}

fn inode_told(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("ino:"))?.trim().parse().ok()
}

/// From `/proc/PID/stat`: `PID (NAME) STATE PARENT ..`; the name may hold anything.
fn name_and_parent(process: &Path) -> Option<(String, u32)> {
    let text = std::fs::read_to_string(process.join("stat")).ok()?;
    let (head, rest) = text.rsplit_once(')')?;
    let name = head.split_once('(')?.1.to_owned();
    Some((name, rest.split_whitespace().nth(1)?.parse().ok()?))
}

fn loop_devices(path: &Path) -> io::Result<Vec<String>> {
    let mut users = Vec::new();
    let canonical = path.canonicalize()?;
    for entry in std::fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let Ok(backing) = std::fs::read_to_string(entry.path().join("loop/backing_file")) else {
            continue;
        };
        if Path::new(backing.trim_end_matches('\n')) == canonical {
            users.push(format!("loop device {}", entry.file_name().to_string_lossy()));
        }
    }
    Ok(users)
}

/// Whether anybody holds one of QEMU's locks. A file system without locks has none to tell of.
fn is_locked(file: &File) -> io::Result<bool> {
    for (first, count) in LOCKED_BYTES {
        let mut lock = libc::flock {
            l_type: libc::F_WRLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: first,
            l_len: count,
            l_pid: 0,
        };
        match fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock)) {
            Ok(_) if lock.l_type != libc::F_UNLCK as libc::c_short => return Ok(true),
            Ok(_) => {}
            Err(nix::errno::Errno::ENOLCK | nix::errno::Errno::EOPNOTSUPP) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn another_process_is_named_and_this_one_and_its_children_are_not() -> io::Result<()> {
        let file = tempfile::NamedTempFile::new()?;
        assert_eq!(of(file.path())?, Vec::<String>::new());
        let child = |script: &str| {
            Command::new("sh")
                .args(["-c", script])
                .stdin(file.reopen()?)
                .stdout(Stdio::piped())
                .spawn()
        };
        let mut own = child("echo; exec sleep 60")?;
        // A grandchild whose parent waits for it and says who it is.
        // A shell takes the standard input away from what it starts in the background, not the third.
        let mut other = child("exec 3<&0; sleep 60 & echo $!; wait")?;
        let mut said = Vec::new();
        for child in [&mut own, &mut other] {
            let mut line = String::new();
            BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line)?;
            said.push(line);
        }
        let users = of(file.path())?;
        own.kill()?;
        let grandchild: i32 = said[1].trim().parse().expect("a process");
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(grandchild), nix::sys::signal::SIGKILL)?;
        other.wait()?;
        own.wait()?;
        let named = format!("(pid {grandchild})");
        assert!(users.len() == 1 && users[0].ends_with(&named), "{users:?}");
        Ok(())
    }

    #[test]
    fn a_lock_of_qemu_is_seen() -> io::Result<()> {
        let file = tempfile::NamedTempFile::new()?;
        let other = file.reopen()?;
        assert!(!is_locked(file.as_file())?);
        let lock = |first| libc::flock {
            l_type: libc::F_RDLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: first,
            l_len: 1,
            l_pid: 0,
        };
        // A reader that lets everybody do everything.
        fcntl(&other, FcntlArg::F_OFD_SETLK(&lock(100)))?;
        assert!(!is_locked(file.as_file())?);
        fcntl(&other, FcntlArg::F_OFD_SETLK(&lock(201)))?;
        assert!(is_locked(file.as_file())?);
        Ok(())
    }
}
