//! The files port: the local file system, with qemu-img where a format has to be written.
//!
//! Each call runs on a thread of its own, bounded in time and, for each folder, in number, since a mount may hang.
//! What is done to a file is in `disk`; nothing is decided here.

mod access;
mod create;
pub(super) mod disk;
mod users;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use self::create::Content;
use super::luks;
use super::qemu_img::QemuImg;
use crate::blocking::Capped;
use crate::ports::{
    ErrorClass, FileObservation, FileOwner, Files, FolderAccess, FolderObservation, PortError,
};
use crate::spec::{Bytes, Identity, Passphrase, VolumeFormat};

/// Calls into one folder at a time; more wait.
const CALLS_PER_FOLDER: usize = 8;
/// Folders remembered before those without a call are forgotten.
const FOLDERS: usize = 256;

/// The image files of this host.
#[derive(Debug)]
pub struct HostFiles {
    qemu_img: QemuImg,
    bound: Duration,
    folders: Mutex<HashMap<PathBuf, Capped>>,
}

impl Default for HostFiles {
    fn default() -> Self {
        Self::new("qemu-img", Duration::from_secs(10))
    }
}

impl HostFiles {
    /// Files made with the program `qemu_img`; every call is answered within `bound`.
    pub fn new(qemu_img: impl Into<PathBuf>, bound: Duration) -> Self {
        Self { qemu_img: QemuImg::new(qemu_img), bound, folders: Mutex::default() }
    }

    /// Runs `call` among the calls into `folder`.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        folder: &Path,
        operation: String,
        call: impl FnOnce() -> Result<T, std::io::Error> + Send + 'static,
    ) -> Result<T, PortError> {
        let words = operation.clone();
        self.calls(folder)
            .run(&operation, self.bound, move || {
                call().map_err(|error| PortError::from((words, error)))
            })
            .await
    }

    fn calls(&self, folder: &Path) -> Capped {
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(calls) = folders.get(folder) {
            return calls.clone();
        }
        if folders.len() >= FOLDERS {
            folders.retain(|_, calls| calls.in_use());
        }
        let calls = Capped::new(folder.display().to_string(), CALLS_PER_FOLDER);
        folders.insert(folder.to_owned(), calls.clone());
        calls
    }
}

/// The folder a path lies in; libvirt and plans give absolute paths only.
pub(super) fn parent<'a>(path: &'a Path, operation: &str) -> Result<&'a Path, PortError> {
    match path.parent() {
        Some(parent) if path.is_absolute() && path.file_name().is_some() => Ok(parent),
        _ => {
            let text = format!("{} is no absolute path of a file", path.display());
            Err(PortError::new(ErrorClass::Other, operation, text))
        }
    }
}

#[async_trait]
impl Files for HostFiles {
    async fn identity(&self, path: &Path) -> Result<Option<Identity>, PortError> {
        let operation = format!("look at {}", path.display());
        let (folder, path) = (parent(path, &operation)?, path.to_owned());
        self.run(folder, operation, move || disk::identity(&path)).await
    }

    async fn observe(
        &self,
        path: &Path,
        format: VolumeFormat,
    ) -> Result<Option<FileObservation>, PortError> {
        let operation = format!("look into {}", path.display());
        let (folder, path) = (parent(path, &operation)?, path.to_owned());
        self.run(folder, operation, move || disk::observe(&path, format)).await
    }

    async fn backing_file(&self, path: &Path) -> Result<Option<String>, PortError> {
        let operation = format!("read the header of {}", path.display());
        let (folder, path) = (parent(path, &operation)?, path.to_owned());
        self.run(folder, operation, move || disk::backing_file(&path)).await
    }

    async fn users(&self, path: &Path) -> Result<Vec<String>, PortError> {
        let operation = format!("look who uses {}", path.display());
        let (folder, path) = (parent(path, &operation)?, path.to_owned());
        self.run(folder, operation, move || users::of(&path)).await
    }

    async fn folder(&self, path: &Path) -> Result<FolderObservation, PortError> {
        let operation = format!("look at folder {}", path.display());
        let folder = path.to_owned();
        self.run(path, operation, move || disk::folder(&folder)).await
    }

    async fn access(
        &self,
        path: &Path,
        user: Option<FileOwner>,
    ) -> Result<FolderAccess, PortError> {
        let operation = format!("try to create a file in {}", path.display());
        let folder = path.to_owned();
        self.run(path, operation, move || access::look(&folder, user)).await
    }

    async fn create(
        &self,
        path: &Path,
        format: VolumeFormat,
        size: Bytes,
        owner: Option<FileOwner>,
    ) -> Result<Identity, PortError> {
        create::create(self, path, Content::Plain(format), size, owner).await
    }

    async fn create_encrypted(
        &self,
        path: &Path,
        size: Bytes,
        owner: Option<FileOwner>,
        passphrase: &Passphrase,
    ) -> Result<Identity, PortError> {
        create::create(self, path, Content::Encrypted(passphrase), size, owner).await
    }

    async fn open_encrypted(
        &self,
        path: &Path,
        format: VolumeFormat,
        passphrase: &Passphrase,
    ) -> Result<Bytes, PortError> {
        let operation = format!("open the encryption header of {}", path.display());
        parent(path, &operation)?;
        match format {
            VolumeFormat::Qcow2 => {
                luks::open_qcow2(&self.qemu_img, path, passphrase, &operation).await
            }
            VolumeFormat::Raw => luks::open_raw(&self.qemu_img, path, passphrase, &operation).await,
        }
    }

    async fn rename(&self, from: &Path, to: &Path) -> Result<(), PortError> {
        let operation = format!("rename {} to {}", from.display(), to.display());
        parent(to, &operation)?;
        let folder = parent(from, &operation)?;
        let (from, to) = (from.to_owned(), to.to_owned());
        self.run(folder, operation, move || disk::rename(&from, &to)).await
    }

    async fn trash(&self, from: &Path, to: &Path) -> Result<(), PortError> {
        let operation = format!("move {} to {}", from.display(), to.display());
        parent(to, &operation)?;
        let folder = parent(from, &operation)?;
        let (from, to) = (from.to_owned(), to.to_owned());
        self.run(folder, operation, move || disk::trash(&from, &to)).await
    }

    async fn remove(&self, path: &Path, identity: &Identity) -> Result<(), PortError> {
        let operation = format!("remove {}", path.display());
        let (folder, path, expected) =
            (parent(path, &operation)?, path.to_owned(), identity.clone());
        let removed =
            self.run(folder, operation.clone(), move || disk::remove(&path, &expected)).await?;
        removed.map_err(|found| replaced(&found, identity, operation))
    }

    async fn seal(&self, path: &Path, identity: &Identity) -> Result<(), PortError> {
        let operation = format!("seal {}", path.display());
        let (folder, path, expected) =
            (parent(path, &operation)?, path.to_owned(), identity.clone());
        let sealed =
            self.run(folder, operation.clone(), move || disk::seal(&path, &expected)).await?;
        sealed.map_err(|found| replaced(&found, identity, operation))
    }
}

fn replaced(found: &Identity, meant: &Identity, operation: String) -> PortError {
    let text = format!("the file has {found}, not {meant}: it was replaced");
    PortError::new(ErrorClass::Replaced, operation, text)
}
