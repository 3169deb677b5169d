//! Which security module confines QEMU beyond owner and mode, as far as the kernel shows it.

use std::fs;
use std::path::Path;

/// In words, for hints; none where none is active.
pub(super) fn seen() -> Option<&'static str> {
    let first = |path: &str| fs::read(path).ok().and_then(|text| text.first().copied());
    name(
        first("/sys/module/apparmor/parameters/enabled") == Some(b'Y')
            || Path::new("/sys/kernel/security/apparmor").is_dir(),
        first("/sys/fs/selinux/enforce") == Some(b'1'),
    )
}

fn name(apparmor: bool, selinux: bool) -> Option<&'static str> {
    match (apparmor, selinux) {
        (_, true) => Some(
            "SELinux is enforcing: look for denials with `ausearch -m avc` (files need the type virt_image_t, NFS the \
             boolean virt_use_nfs)",
        ),
        (true, false) => Some(
            "AppArmor is active: look for `apparmor=\"DENIED\"` of libvirt's profiles in the kernel's log",
        ),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_that_is_active_is_named() {
        assert!(name(true, false).is_some_and(|text| text.starts_with("AppArmor")));
        assert!(name(false, true).is_some_and(|text| text.starts_with("SELinux")));
        assert_eq!(name(false, false), None);
    }
}
