//! A Ceph key out of a file, as `ceph auth get-key` or `ceph auth get` writes it.

use std::fs::File;
use std::io::{self, Error, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use secrecy::SecretString;
use secrecy::zeroize::Zeroizing;

/// Far more than a keyring of one user takes.
const MOST_BYTES: u64 = 16 * 1024;

/// Reads the key. Errors: not there, readable by everybody, or not the key of one user. Errors never show content.
pub(in crate::host) fn read(path: &Path) -> io::Result<SecretString> {
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.mode() & 0o007 != 0 {
        let text = "the key file is accessible to every user of this host (chmod 600)";
        return Err(Error::new(ErrorKind::PermissionDenied, text));
    }
    if metadata.mode() & 0o070 != 0 {
        tracing::warn!(path = %path.display(), "the key file is accessible to its group");
    }
    if metadata.len() > MOST_BYTES {
        return Err(Error::new(ErrorKind::InvalidData, "the file is too long for a key"));
    }
    // Room for all of it, so that no smaller buffer with part of the key is left behind.
    let mut content = Zeroizing::new(String::with_capacity(MOST_BYTES as usize + 1));
    Read::by_ref(&mut file).take(MOST_BYTES).read_to_string(&mut content)?;
    match find(&content) {
        Some(key) => Ok(SecretString::from(key)),
        None => Err(Error::new(ErrorKind::InvalidData, "the file is not the key of one user")),
    }
}

/// The key itself, or the one `key = ..` of a keyring.
fn find(content: &str) -> Option<&str> {
    let mut lines = content.lines().map(str::trim).filter(|line| !line.is_empty());
    if !content.contains('[') {
        let key = lines.next()?;
        return (lines.next().is_none() && !key.contains(char::is_whitespace)).then_some(key);
    }
    let mut keys = lines
        .filter_map(|line| line.strip_prefix("key"))
        .filter_map(|rest| rest.trim_start().strip_prefix('='));
    let key = keys.next()?.trim();
    keys.next().is_none().then_some(key)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use secrecy::ExposeSecret;

    use super::*;

    #[test]
    fn a_bare_key_and_a_keyring_are_read() {
        assert_eq!(find("AQB/x==\n"), Some("AQB/x=="));
        assert_eq!(
            find("[client.a]\n\tkey = AQB/x==\n\tcaps mon = \"allow r\"\n"),
            Some("AQB/x==")
        );
        assert_eq!(find("[client.a]\nkey=AQ\n[client.b]\nkey=AR\n"), None);
        assert_eq!(find(""), None);
        assert_eq!(find("two words"), None);
    }

    #[test]
    fn a_file_for_everybody_is_refused() -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new()?;
        file.write_all(b"AQB/x==\n")?;
        assert_eq!(read(file.path())?.expose_secret(), "AQB/x==");
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
        let refused = read(file.path()).err().map(|error| error.kind());
        assert_eq!(refused, Some(ErrorKind::PermissionDenied));
        Ok(())
    }
}
