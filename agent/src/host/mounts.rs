//! Which mount a folder lies on, from the kernel's own list. Looks at no mounted file system.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Whether `path`, which must be canonical, lies on another mount than the root file system. Bind mounts count.
pub(super) fn is_mounted(path: &Path) -> io::Result<bool> {
    Ok(lies_on_a_mount(path, &std::fs::read("/proc/self/mountinfo")?))
}

fn lies_on_a_mount(path: &Path, list: &[u8]) -> bool {
    mount_points(list).any(|point| {
        let point = Path::new(OsStr::from_bytes(&point));
        point.parent().is_some() && path.starts_with(point)
    })
}

/// The fifth field of each line, with its octal escapes undone.
fn mount_points(list: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    list.split(|byte| *byte == b'\n')
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(4))
        .map(unescape)
}

fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let code = (first == b'\\').then(|| tail.get(..3)).flatten();
        let code = code.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = &tail[3..];
            }
            None => {
                plain.push(first);
                rest = tail;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_the_fifth_field_unescaped() {
        let list = b"36 35 98:0 /mnt1 /mnt/my\\040pool rw,noatime master:1 - nfs4 srv:/x rw\n\
            37 35 98:0 / /a\\134b rw - ext4 /dev/x rw\n";
        let points: Vec<_> = mount_points(list).collect();
        assert_eq!(points, [b"/mnt/my pool".to_vec(), b"/a\\b".to_vec()]);
    }

    #[test]
    fn only_what_lies_below_a_mount_is_mounted() {
        let list = b"1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:9 / /mnt/nfs-1 rw - nfs4 srv:/x rw\n";
        for (path, mounted) in [
            ("/mnt/nfs-1", true),
            ("/mnt/nfs-1/vms", true),
            ("/mnt/nfs-10", false),
            ("/mnt", false),
            ("/", false),
        ] {
            assert_eq!(lies_on_a_mount(Path::new(path), list), mounted, "{path}");
        }
        assert_eq!(is_mounted(Path::new("/proc/self")).ok(), Some(true));
    }
}
