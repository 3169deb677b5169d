//! PURE: whether QEMU's user can reach and open a file, by owner, group and mode. Where more than these decides (access
//! control lists, root's rights, a security module), nothing is refused.

use volferry_xml::DomainXml;

use super::refusal::{Refusal, RefusalCode};
use crate::ports::{FileOwner, FolderAccess, FolderModes};

/// Mode of a file that only its owner may use.
const PRIVATE_MODE: u32 = 0o600;
/// Permission to pass a folder.
const PASS: u32 = 0o1;
/// Permission to read and write a file.
const READ_AND_WRITE: u32 = 0o6;

/// The user and group QEMU runs as, with the mode its files have; none when the XML does not say it in numbers.
pub fn qemu_user(domain: &DomainXml) -> Option<FileOwner> {
    let (uid, gid) = domain.dac_label()?.split_once(':')?;
    let number = |text: &str| text.trim_start_matches('+').parse().ok();
    Some(FileOwner { uid: number(uid)?, gid: number(gid)?, mode: PRIVATE_MODE })
}

/// Whether owner and mode of a file or folder give `user` the permission `wanted` (a digit of the mode). The first of
/// owner, group and others that fits decides alone.
fn permits(thing: FileOwner, user: FileOwner, groups: &[u32], wanted: u32) -> bool {
    // What root may not is up to capabilities and servers, and is seen when it is tried.
    if user.uid == 0 {
        return true;
    }
    let shift = if thing.uid == user.uid {
        6
    } else if thing.gid == user.gid || groups.contains(&thing.gid) {
        3
    } else {
        0
    };
    thing.mode >> shift & wanted == wanted
}

/// The first folder on the way that `user` cannot pass.
pub fn barrier(access: &FolderAccess, user: FileOwner) -> Option<&FolderModes> {
    let passes =
        |folder: &FolderModes| folder.has_acl || permits(folder.owner, user, &access.groups, PASS);
    access.folders.iter().find(|folder| !passes(folder))
}

/// Whether `user` may read and write a file, by its owner and mode alone.
pub fn can_use(file: FileOwner, user: FileOwner) -> bool {
    permits(file, user, &[], READ_AND_WRITE)
}

/// Refuses a folder whose files QEMU's user could not open.
pub fn check(pool: &str, access: &FolderAccess, user: Option<FileOwner>) -> Result<(), Refusal> {
    let Some(user) = user else { return Ok(()) };
    let Some(folder) = barrier(access, user) else { return Ok(()) };
    let FileOwner { uid, gid, mode } = folder.owner;
    let confined = access.confinement.map_or(String::new(), |name| format!("; {name}"));
    Err(Refusal::new(
        RefusalCode::PermissionDenied,
        format!(
            "pool {pool}: QEMU runs as {}:{} and cannot pass the folder {} (owner {uid}:{gid}, mode {mode:04o}): \
             allow it with chmod or setfacl{confined}",
            user.uid,
            user.gid,
            folder.path.display()
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const QEMU: FileOwner = FileOwner { uid: 64055, gid: 108, mode: PRIVATE_MODE };

    fn owner(uid: u32, gid: u32, mode: u32) -> FileOwner {
        FileOwner { uid, gid, mode }
    }

    fn folder(path: &str, owner: FileOwner) -> FolderModes {
        FolderModes { path: path.into(), owner, has_acl: false }
    }

    #[test]
    fn the_first_class_that_fits_decides_alone() {
        for (thing, passes) in [
            (owner(0, 0, 0o755), true),
            (owner(0, 0, 0o750), false),
            (owner(0, 108, 0o750), true),
            (owner(0, 36, 0o710), true),
            (owner(64055, 0, 0o700), true),
            // The owner's own bits count, even where others may.
            (owner(64055, 0, 0o077), false),
            (owner(0, 108, 0o707), false),
        ] {
            assert_eq!(permits(thing, QEMU, &[108, 36], PASS), passes, "{thing:?}");
        }
        assert!(permits(owner(1, 1, 0), owner(0, 0, 0), &[], PASS), "root is not judged");
    }

    #[test]
    fn the_first_barrier_on_the_way_is_named() {
        let mut access = FolderAccess {
            folders: vec![
                folder("/", owner(0, 0, 0o755)),
                folder("/srv", owner(0, 0, 0o700)),
                folder("/srv/vms", owner(0, 0, 0o700)),
            ],
            groups: vec![108],
            confinement: Some("AppArmor is active"),
        };
        let refusal = check("p", &access, Some(QEMU)).expect_err("a barrier");
        assert_eq!(refusal.code, RefusalCode::PermissionDenied);
        assert_eq!(
            refusal.message,
            "pool p: QEMU runs as 64055:108 and cannot pass the folder /srv (owner 0:0, mode 0700): allow it with \
             chmod or setfacl; AppArmor is active"
        );
        assert!(check("p", &access, None).is_ok(), "nothing is known of the user");
        access.folders[1].has_acl = true;
        access.folders[2].owner.mode = 0o711;
        assert!(check("p", &access, Some(QEMU)).is_ok());
    }

    #[test]
    fn a_file_is_used_by_whom_its_mode_lets_read_and_write() {
        assert!(can_use(owner(64055, 108, 0o600), QEMU));
        assert!(can_use(owner(0, 108, 0o660), QEMU));
        assert!(!can_use(owner(0, 0, 0o600), QEMU));
        assert!(!can_use(owner(0, 0, 0o644), QEMU));
    }

    #[test]
    fn the_user_is_read_from_the_live_label() {
        let user = |label: &str| {
            let xml = format!(
                "<domain><seclabel type='dynamic' model='dac'><label>{label}</label></seclabel></domain>"
            );
            qemu_user(&DomainXml::parse(&xml).expect("well formed"))
        };
        assert_eq!(user("+64055:+108"), Some(QEMU));
        assert_eq!(user("64055:108"), Some(QEMU));
        assert_eq!(user("qemu:qemu"), None);
    }
}
