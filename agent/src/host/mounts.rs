//! Whether a folder is the root of a mount, from the kernel's own list. Looks at no mounted file system.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Whether something is mounted exactly at `path`, which must be canonical. Bind mounts count.
pub(super) fn is_mount_point(path: &Path) -> io::Result<bool> {
    let list = std::fs::read("/proc/self/mountinfo")?;
    Ok(mount_points(&list).any(|point| point == path.as_os_str().as_bytes()))
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
    fn the_root_is_a_mount_and_a_plain_folder_is_not() {
        assert_eq!(is_mount_point(Path::new("/proc")).ok(), Some(true));
        assert_eq!(is_mount_point(Path::new("/proc/self")).ok(), Some(false));
    }
}
