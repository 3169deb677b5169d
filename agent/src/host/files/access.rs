//! Who may use the files of a folder, and whether this process may make some. Leaves nothing behind.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{AccessFlags, Gid, Uid, User, access, getgrouplist};

use super::create::give_to;
use crate::host::confinement;
use crate::ports::{FileOwner, FolderAccess, FolderModes};

/// Attributes that hold access control lists.
const LISTS: [&str; 2] = ["system.posix_acl_access", "system.nfs4_acl"];

/// Looks at every folder on the way, and tries to make a file for `user`.
pub(super) fn look(folder: &Path, user: Option<FileOwner>) -> io::Result<FolderAccess> {
    let canonical = folder.canonicalize()?;
    let mut folders = Vec::new();
    for path in canonical.ancestors() {
        folders.push(modes(path)?);
    }
    folders.reverse();
    try_to_create(&canonical, user)?;
    let groups = user.map_or_else(Vec::new, groups);
    Ok(FolderAccess { folders, groups, confinement: confinement::seen() })
}

fn modes(path: &Path) -> io::Result<FolderModes> {
    let seen = std::fs::metadata(path)?;
    let owner = FileOwner { uid: seen.uid(), gid: seen.gid(), mode: seen.mode() & 0o7777 };
    // NFS shows a list for every folder; one that only repeats the mode does no harm here.
    let has_acl = LISTS.iter().any(|name| has_attribute(path, name));
    Ok(FolderModes { path: path.to_owned(), owner, has_acl })
}

fn has_attribute(path: &Path, name: &str) -> bool {
    let mut nothing: [u8; 0] = [];
    rustix::fs::getxattr(path, name, &mut nothing).is_ok_and(|length| length > 0)
}

/// A server that maps root to nobody answers the question of access itself. Where files without a name can be made,
/// one is, and is given away: it goes when it is closed.
fn try_to_create(folder: &Path, user: Option<FileOwner>) -> io::Result<()> {
    access(folder, AccessFlags::W_OK | AccessFlags::X_OK)?;
    let made = OpenOptions::new()
        .write(true)
        .mode(0o600)
        .custom_flags(OFlag::O_TMPFILE.bits())
        .open(folder);
    let file = match made {
        Err(error) if is_unsupported(&error) => return Ok(()),
        made => made?,
    };
    user.map_or(Ok(()), |user| give_to(&file, user))
}

fn is_unsupported(error: &io::Error) -> bool {
    let known = [Errno::EOPNOTSUPP, Errno::EISDIR, Errno::EINVAL, Errno::ENOSYS];
    error.raw_os_error().is_some_and(|code| known.contains(&Errno::from_raw(code)))
}

/// The groups libvirt gives QEMU: those of its user, where the host knows it.
fn groups(user: FileOwner) -> Vec<u32> {
    let known = User::from_uid(Uid::from_raw(user.uid)).ok().flatten();
    let name = known.and_then(|known| std::ffi::CString::new(known.name).ok());
    let groups = name.and_then(|name| getgrouplist(&name, Gid::from_raw(user.gid)).ok());
    groups.map_or_else(|| vec![user.gid], |groups| groups.into_iter().map(Gid::as_raw).collect())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use nix::unistd::{getuid, setfsuid};

    use super::*;

    /// What a server does that maps root to nobody: this thread's rights on files are nobody's.
    fn as_nobody(folder: &Path, user: FileOwner) -> io::Result<()> {
        std::thread::scope(|scope| {
            let call = scope.spawn(|| {
                if getuid().is_root() {
                    setfsuid(Uid::from_raw(65_534));
                }
                try_to_create(folder, Some(user))
            });
            call.join().expect("no panic")
        })
    }

    #[test]
    fn a_server_that_squashes_root_is_found_out() {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let path = folder.path();
        let user = FileOwner { uid: 64_055, gid: 108, mode: 0o600 };
        let set = |mode| std::fs::set_permissions(path, Permissions::from_mode(mode));
        set(0o555).expect("set");
        let error = as_nobody(path, user).expect_err("no file can be made");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        set(0o777).expect("set");
        let error = as_nobody(path, user).expect_err("no file can be given away");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("cannot be given to 64055:108"), "{error}");
        assert_eq!(std::fs::read_dir(path).expect("readable").count(), 0);
    }
}
