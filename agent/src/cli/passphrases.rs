//! Passphrases out of files. They go to the agent over its socket and nowhere else.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use super::arguments::RequestOptions;
use super::failure::Failure;
use super::output;
use crate::api::pb;
use crate::api::status::Exit;
use crate::spec::Passphrase;

/// One more than the longest passphrase: what is too long is seen without being read whole.
const MOST_BYTES: u64 = 4097;

/// Puts the passphrases the options name, and the other wishes of encryption, into the request.
pub fn fill(request: &mut pb::MigrateRequest, options: &RequestOptions) -> Result<(), Failure> {
    if let Some(path) = &options.passphrase_file {
        request.passphrase = read(path)?;
    }
    if let Some(path) = &options.dest_passphrase_file {
        request.destination_passphrase = read(path)?;
    }
    request.accept_encryption = options.accept_encryption.iter().map(ToString::to_string).collect();
    request.decrypt = options.decrypt;
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let wrong = |text: String| Failure::new(Exit::Usage, format!("{}: {text}", path.display()));
    let bytes = bytes_of(path).map_err(|error| wrong(error.to_string()))?;
    if bytes.ends_with(b"\n") {
        output::note(&format!(
            "{} ends with a line end, which is part of the passphrase",
            path.display()
        ));
    }
    // Judged here as the agent does, to name the file.
    let passphrase = Passphrase::new(bytes).map_err(|invalid| wrong(invalid.to_string()))?;
    Ok(passphrase.expose().to_vec())
}

/// Every byte of the file, whose name may be that of a pipe.
fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    let kind = metadata.file_type();
    if !kind.is_fifo() && !kind.is_char_device() && metadata.mode() & 0o007 != 0 {
        let text = "the file is accessible to every user of this host (chmod 600)";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    let mut bytes = Vec::with_capacity(MOST_BYTES as usize);
    Read::by_ref(&mut file).take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn every_byte_is_read_and_a_file_for_everybody_is_refused() -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new()?;
        file.write_all(b"\x00grandm\xc3\xa9\n")?;
        assert_eq!(read(file.path()).ok(), Some(b"\x00grandm\xc3\xa9\n".to_vec()));
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
        let refused = read(file.path()).err().map(|failure| failure.exit);
        assert_eq!(refused, Some(Exit::Usage));
        Ok(())
    }

    #[test]
    fn what_cannot_be_a_passphrase_is_told_by_its_file() -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new()?;
        let told = |path: &Path| {
            read(path).err().map(|failure| failure.message().to_owned()).unwrap_or_default()
        };
        assert!(told(file.path()).ends_with("the passphrase is empty"));
        file.write_all(&[7; 5000])?;
        assert!(told(file.path()).ends_with("longer than 4096 bytes"));
        assert!(told(Path::new("/nonexistent/x")).starts_with("/nonexistent/x: "));
        Ok(())
    }
}
