//! A secret as a file for a child process: in memory alone, under a name in `/proc` that only this process and its
//! children's user can open, gone with the value of this type and with the process, however it ends.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, memfd_create};

/// The file.
#[derive(Debug)]
pub struct SecretFile {
    file: File,
    path: PathBuf,
}

impl SecretFile {
    /// A file with these bytes.
    ///
    /// Errors: the kernel has no memory files, or no memory.
    pub fn new(bytes: &[u8]) -> io::Result<Self> {
        // Not inherited: a child opens it by its name, and no other child gets it by accident.
        let mut file = File::from(memfd_create("volferry", MemfdFlags::CLOEXEC)?);
        file.write_all(bytes)?;
        let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()));
        Ok(Self { file, path })
    }

    /// The name a child opens it by, as long as this value lives.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file itself.
    pub fn file(&self) -> &File {
        &self.file
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_reads_it_and_nothing_is_left() -> io::Result<()> {
        let secret = SecretFile::new(b"open\0sesame\n")?;
        let output = std::process::Command::new("cat").arg(secret.path()).output()?;
        assert_eq!(output.stdout, b"open\0sesame\n");
        let path = secret.path().to_owned();
        drop(secret);
        assert!(!std::fs::read_link(path).is_ok_and(|name| name.ends_with("volferry")));
        Ok(())
    }
}
