//! The unix socket: made for its group only, taken over from a dead daemon and never from a living one.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixSocket, UnixStream};

/// Who may connect: the owner and the group.
const MODE: u32 = 0o660;
const BACKLOG: u32 = 128;

/// Why the socket could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// A daemon answers there.
    #[error("another daemon answers on {0}")]
    InUse(PathBuf),
    /// Something else has the name.
    #[error("{0} exists and is not a socket")]
    NotASocket(PathBuf),
    /// Nobody could be let in.
    #[error("{path}: there is no group {group:?} on this host")]
    NoGroup {
        /// Where.
        path: PathBuf,
        /// The group, by name or number.
        group: String,
    },
    /// The system refused.
    #[error("cannot listen on {path}")]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A listening socket; its file goes with it.
#[derive(Debug)]
pub struct Socket {
    /// Accepts connections.
    pub listener: UnixListener,
    /// Removes the file when dropped.
    pub file: SocketFile,
}

/// The file of a listening socket.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Socket {
    /// Makes the socket for the daemon's own group. A stale one, that nobody answers on, is replaced.
    pub async fn bind(path: &Path) -> Result<Self, SocketError> {
        Self::bind_for(path, None).await
    }

    /// Makes it for a group, by name or number.
    pub async fn bind_for(path: &Path, group: Option<&str>) -> Result<Self, SocketError> {
        let failed = |source| SocketError::Io { path: path.to_owned(), source };
        let group = group.map(|group| group_of(path, group)).transpose()?;
        clear(path).await?;
        let socket = UnixSocket::new_stream().map_err(failed)?;
        socket.bind(path).map_err(failed)?;
        // Nobody can connect before `listen`, so no wider mode is ever usable, whatever the umask.
        std::os::unix::fs::lchown(path, None, group).map_err(failed)?;
        fs::set_permissions(path, fs::Permissions::from_mode(MODE)).map_err(failed)?;
        let inode = fs::symlink_metadata(path).map_err(failed)?.ino();
        let listener = socket.listen(BACKLOG).map_err(failed)?;
        Ok(Self { listener, file: SocketFile { path: path.to_owned(), inode } })
    }
}

fn group_of(path: &Path, group: &str) -> Result<u32, SocketError> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    let failed =
        |error: nix::Error| SocketError::Io { path: path.to_owned(), source: error.into() };
    let found = nix::unistd::Group::from_name(group).map_err(failed)?;
    let found = found.map(|found| found.gid.as_raw());
    found.ok_or_else(|| SocketError::NoGroup { path: path.to_owned(), group: group.to_owned() })
}

async fn clear(path: &Path) -> Result<(), SocketError> {
    let failed = |source| SocketError::Io { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(SocketError::NotASocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path).await {
        Ok(_) => Err(SocketError::InUse(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|file| file.ino() == self.inode);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the socket");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_owner_and_group_may_connect_and_the_file_goes_with_the_socket() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s");
        let socket = Socket::bind(&path).await.expect("a socket");
        let mode = fs::metadata(&path).expect("its file").permissions().mode();
        assert_eq!(mode & 0o777, 0o660);
        let refused = Socket::bind(&path).await.expect_err("a living daemon");
        assert!(matches!(refused, SocketError::InUse(_)), "{refused}");
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_group_may_be_let_in_and_must_be_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s");
        let refused = Socket::bind_for(&path, Some("nobody-has-this-group")).await;
        let refused = refused.expect_err("no such group").to_string();
        assert!(refused.ends_with("there is no group \"nobody-has-this-group\" on this host"));
        assert!(!path.exists());
        let own = nix::unistd::getegid();
        let name = nix::unistd::Group::from_gid(own).expect("the groups").expect("our own").name;
        for group in [name, own.to_string()] {
            let _socket = Socket::bind_for(&path, Some(&group)).await.expect("a socket");
            assert_eq!(fs::metadata(&path).expect("its file").gid(), own.as_raw(), "{group}");
        }
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_file_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s");
        drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket left behind"));
        Socket::bind(&path).await.expect("the stale one is replaced");
        let file = folder.path().join("f");
        fs::write(&file, "precious").expect("a file");
        let refused = Socket::bind(&file).await.expect_err("no socket");
        assert!(matches!(refused, SocketError::NotASocket(_)), "{refused}");
        assert_eq!(fs::read(&file).expect("still there"), b"precious");
    }
}
