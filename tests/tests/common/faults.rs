//! What tests do to the host around a move: another client of an image, folders nothing can be changed in, a full disk
//! below the agent's journal. Each ends when it is dropped.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use volferry_tests::lab::{Lab, LabError, output};

use super::Outcome;
use super::stand::Stand;

/// Another client that has an image open, until it is dropped.
pub struct Watcher(Child);

impl Watcher {
    /// Watches an image.
    pub fn of(lab: &Lab, image: &str) -> Result<Watcher, LabError> {
        let conf = lab.setting("VOLFERRY_LAB_CEPH_CONF")?;
        let child = Command::new("rbd")
            .args(["-c", conf, "--id", "volferry", "watch", image])
            .stdout(Stdio::null())
            // It would end with its standard input.
            .stdin(Stdio::piped())
            .spawn()
            .expect("rbd is installed");
        let watcher = Watcher(child);
        for _ in 0..100 {
            // Each look takes its time, a tenth of a second and more.
            if lab.rbd(&["status", image])?.matches("watcher=").count() > 1 {
                return Ok(watcher);
            }
        }
        panic!("{image} has no second watcher")
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // It takes its watch back, which it would leave for half a minute when killed.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A folder that is read-only for whoever opens something from now on, libvirt and its QEMUs too.
pub struct ReadOnly {
    path: PathBuf,
    /// The same folder elsewhere, read-only there: what is mounted from it is so from its first moment, and in every
    /// mount namespace that gets to see it. A flag that is changed later stays in the one it is changed in.
    aside: PathBuf,
}

impl ReadOnly {
    /// From now on.
    pub fn mount(path: &Path) -> Result<ReadOnly, LabError> {
        let aside = path.with_extension("read-only");
        fs::create_dir_all(&aside).expect("the lab's folder can be written");
        let mount = ReadOnly { path: path.to_owned(), aside };
        output(Command::new("mount").arg("--bind").args([&mount.path, &mount.aside]))?;
        output(Command::new("mount").args(["-o", "remount,bind,ro"]).arg(&mount.aside))?;
        output(Command::new("mount").arg("--bind").args([&mount.aside, &mount.path]))?;
        Ok(mount)
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        for mounted in [&self.path, &self.aside] {
            let _ = Command::new("umount").arg(mounted).status();
        }
        let _ = fs::remove_dir(&self.aside);
    }
}

/// A folder in which nothing is made, renamed or removed; what is open in it goes on.
pub struct Immutable(PathBuf);

impl Immutable {
    /// From now on.
    pub fn folder(path: &Path) -> Result<Immutable, LabError> {
        output(Command::new("chattr").arg("+i").arg(path))?;
        Ok(Immutable(path.to_owned()))
    }
}

impl Drop for Immutable {
    fn drop(&mut self) {
        let _ = Command::new("chattr").arg("-i").arg(&self.0).status();
    }
}

/// A file system of its own for the agent's state; unmounted when it is dropped.
pub struct StateDisk(PathBuf);

impl StateDisk {
    /// Mounted, empty.
    pub fn mount(lab: &Lab, name: &str) -> Result<StateDisk, LabError> {
        let folder = lab.dir()?.join(format!("{name}-state"));
        // What an earlier run left mounted.
        let _ = Command::new("umount").arg(&folder).output();
        fs::create_dir_all(&folder).expect("the lab's folder can be written");
        let image = folder.with_extension("img");
        output(Command::new("truncate").args(["-s", "0"]).arg(&image))?;
        output(Command::new("truncate").args(["-s", "8M"]).arg(&image))?;
        let words = ["-q", "-t", "ext4", "-m", "0", "-O", "^has_journal", "-b", "4096"];
        output(Command::new("mke2fs").args(words).arg(&image))?;
        output(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&folder))?;
        fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .expect("it is ours");
        Ok(StateDisk(folder))
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Takes all the room but so many blocks of 4 KiB.
    pub fn fill(&self, but: usize) {
        let gap = self.0.join("gap");
        let block = [0x55; 4096];
        fs::write(&gap, block.repeat(but)).expect("so much room there is");
        let mut file = fs::File::create(self.0.join("filler")).expect("it can be written");
        let full = loop {
            if let Err(error) = file.write_all(&block) {
                break error;
            }
        };
        assert_eq!(full.kind(), ErrorKind::StorageFull, "{full}");
        fs::remove_file(gap).expect("it was written");
    }

    /// Gives the room back.
    pub fn free(&self) {
        fs::remove_file(self.0.join("filler")).expect("it was written");
    }

    /// Starts the agent again with an empty journal.
    pub fn forget(&self, stand: &mut Stand) -> Outcome {
        stand.agent.kill();
        for entry in fs::read_dir(&self.0).expect("it is mounted").flatten() {
            if entry.file_name().to_string_lossy().contains("journal") {
                fs::remove_file(entry.path()).expect("nobody else has it");
            }
        }
        stand.agent.run()
    }
}

impl Drop for StateDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).output();
    }
}
