//! Files and folders.

use std::path::Path;

use async_trait::async_trait;

use crate::fake::World;
use crate::fake::faults::Method;
use crate::fake::secret::Header;
use crate::ports::{
    ErrorClass, FileObservation, FileOwner, Files, FolderAccess, FolderModes, FolderObservation,
    PortError,
};
use crate::spec::{Bytes, HeaderKind, Identity, Passphrase, VolumeFormat, VolumeLocation};

#[async_trait]
impl Files for World {
    async fn identity(&self, path: &Path) -> Result<Option<Identity>, PortError> {
        let what = format!("look at {}", path.display());
        self.call(Method::FileIdentity, what, |state| Ok(state.file_identity(path))).await
    }

    async fn observe(
        &self,
        path: &Path,
        format: VolumeFormat,
    ) -> Result<Option<FileObservation>, PortError> {
        let what = format!("look at {}", path.display());
        self.call(Method::ObserveFile, what, |state| {
            let Some(identity) = state.file_identity(path) else { return Ok(None) };
            Ok(state.files.get(path).map(|file| FileObservation {
                link: file.link,
                identity,
                length: Bytes(match file.format {
                    VolumeFormat::Raw => file.size,
                    VolumeFormat::Qcow2 => file.allocated,
                }),
                allocated: Bytes(file.allocated),
                owner: file.owner,
                internal_snapshots: file.snapshots.clone(),
                header: (format == VolumeFormat::Qcow2 && file.format == VolumeFormat::Qcow2)
                    .then(|| file.header()),
            }))
        })
        .await
    }

    async fn backing_file(&self, path: &Path) -> Result<Option<String>, PortError> {
        let what = format!("read the header of {}", path.display());
        self.call(Method::BackingFile, what, |state| {
            Ok(state.files.get(path).and_then(|file| file.backing.clone()))
        })
        .await
    }

    async fn users(&self, path: &Path) -> Result<Vec<String>, PortError> {
        let what = format!("look who uses {}", path.display());
        self.call(Method::FileUsers, what, |state| {
            Ok(state.file_identity(path).map_or_else(Vec::new, |id| state.file_users(&id)))
        })
        .await
    }

    async fn folder(&self, path: &Path) -> Result<FolderObservation, PortError> {
        let what = format!("look at folder {}", path.display());
        self.call(Method::ObserveFolder, what.clone(), |state| match state.folders.get(path) {
            Some(folder) => Ok(FolderObservation {
                available: Bytes(folder.available),
                total: Bytes(folder.total),
                mounted: folder.mounted,
            }),
            None => Err(PortError::new(ErrorClass::NotFound, what, "No such file or directory")),
        })
        .await
    }

    async fn access(
        &self,
        path: &Path,
        user: Option<FileOwner>,
    ) -> Result<FolderAccess, PortError> {
        let what = format!("try to create a file in {}", path.display());
        self.call(Method::FolderAccess, what.clone(), |state| {
            let Some(folder) = state.folders.get(path) else {
                let text = "No such file or directory";
                return Err(PortError::new(ErrorClass::NotFound, what, text));
            };
            // Where files can be tried without a name; a server shows it only at the creation.
            if folder.probed
                && let Some(user) = user
            {
                state.may_give(path, user)?;
            }
            let own = FolderModes { path: path.to_owned(), owner: folder.owner, has_acl: false };
            Ok(FolderAccess { folders: vec![own], groups: vec![], confinement: state.confinement })
        })
        .await
    }

    async fn create(
        &self,
        path: &Path,
        format: VolumeFormat,
        size: Bytes,
        owner: Option<FileOwner>,
    ) -> Result<Identity, PortError> {
        let what = format!("create {}", path.display());
        self.call(Method::CreateFile, what, |state| state.create_file(path, format, size.0, owner))
            .await
    }

    async fn create_encrypted(
        &self,
        path: &Path,
        size: Bytes,
        owner: Option<FileOwner>,
        passphrase: &Passphrase,
    ) -> Result<Identity, PortError> {
        let what = format!("create encrypted {}", path.display());
        self.call(Method::CreateEncrypted, what, |state| {
            let identity = state.create_file(path, VolumeFormat::Qcow2, size.0, owner)?;
            let kind = HeaderKind::QemuLuks1;
            let header = Header { kind, passphrase: passphrase.expose().to_vec() };
            state.set_header(&VolumeLocation::File { path: path.to_owned() }, Some(header));
            Ok(identity)
        })
        .await
    }

    async fn open_encrypted(
        &self,
        path: &Path,
        _: VolumeFormat,
        passphrase: &Passphrase,
    ) -> Result<Bytes, PortError> {
        let what = format!("open the header of {}", path.display());
        let place = VolumeLocation::File { path: path.to_owned() };
        self.call(Method::OpenEncrypted, what.clone(), |state| {
            state.open_header(&place, HeaderKind::QemuLuks1, passphrase.expose(), &what)
        })
        .await
    }

    async fn rename(&self, from: &Path, to: &Path) -> Result<(), PortError> {
        let what = format!("rename {} to {}", from.display(), to.display());
        self.call(Method::RenameFile, what, |state| state.rename_file(from, to)).await
    }

    async fn trash(&self, from: &Path, to: &Path) -> Result<(), PortError> {
        let what = format!("move {} to {}", from.display(), to.display());
        self.call(Method::TrashFile, what, |state| state.trash_file(from, to)).await
    }

    async fn remove(&self, path: &Path, identity: &Identity) -> Result<(), PortError> {
        let what = format!("remove {}", path.display());
        self.call(Method::RemoveFile, what, |state| state.remove_file(path, identity)).await
    }

    async fn seal(&self, path: &Path, identity: &Identity) -> Result<(), PortError> {
        let what = format!("seal {}", path.display());
        self.call(Method::SealFile, what, |state| state.seal_file(path, identity)).await
    }
}
