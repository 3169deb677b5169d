//! One daemon per state folder: two would both believe the journal is theirs.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// Why the state folder is not ours.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another daemon has it.
    #[error("another volferryd uses the state folder {0}")]
    Held(PathBuf),
    /// It cannot be made or opened.
    #[error("state folder {folder}")]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// The lock; held as long as the value lives, and released by the kernel with the process.
#[derive(Debug)]
pub struct StateLock {
    _lock: Flock<File>,
}

impl StateLock {
    /// Makes the folder, if need be, and takes its lock without waiting.
    pub fn acquire(folder: &Path) -> Result<Self, LockError> {
        let failed = |source| LockError::Folder { folder: folder.to_owned(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(folder.join("lock"))
            .map_err(failed)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Self { _lock: lock }),
            Err((_, Errno::EWOULDBLOCK)) => Err(LockError::Held(folder.to_owned())),
            Err((_, errno)) => Err(failed(errno.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_owner_at_a_time() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("state");
        let lock = StateLock::acquire(&folder).expect("the first");
        let held = StateLock::acquire(&folder).expect_err("the second");
        assert!(matches!(held, LockError::Held(_)), "{held}");
        drop(lock);
        StateLock::acquire(&folder).expect("the next");
    }
}
