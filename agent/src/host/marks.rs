//! Marks on real storage. An RBD image carries its own in its metadata; a file has a small one beside it, because
//! extended attributes are not kept by every file system a pool may lie on.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use rbdutils::images::Pool;
use rbdutils::names::ImageName;
use serde::{Deserialize, Serialize};

use super::files::{HostFiles, disk};
use super::images::{Failure, HostImages, Pace};
use crate::ports::{ErrorClass, Mark, MarkedVolume, Marks, PortError, Search};
use crate::spec::{Identity, OperationId, PoolKind, RbdPoolAddress, VolumeLocation};

/// The key in an image's metadata.
const KEY: &str = "volferry";
/// The longest mark that is read: longer ones are not ours.
const LONGEST: u64 = 64 * 1024;
const SUFFIX: &str = ".mark";

/// What is written. Only additions are allowed: later agents read it.
#[derive(Debug, Serialize, Deserialize)]
struct Written {
    host: String,
    operation: String,
    /// The image's or file's own name, once it is published.
    volume: String,
    /// The image's id, or the file's inode.
    identity: String,
    /// The volume is nobody's destination any more.
    #[serde(default)]
    done: bool,
}

impl Written {
    fn of(mark: &Mark) -> Self {
        Self {
            host: mark.host.clone(),
            operation: mark.operation.to_string(),
            volume: mark.volume.name(),
            identity: told(&mark.identity),
            done: false,
        }
    }
}

/// A file's device number may change with every mount.
fn told(identity: &Identity) -> String {
    match identity {
        Identity::Rbd { image_id } => image_id.clone(),
        Identity::File { inode, .. } => inode.to_string(),
    }
}

/// Marks of this host's pools.
#[derive(Debug)]
pub struct HostMarks {
    images: Arc<HostImages>,
    files: Arc<HostFiles>,
}

impl HostMarks {
    /// Marks on images and files that are reached through these.
    pub fn new(images: Arc<HostImages>, files: Arc<HostFiles>) -> Self {
        Self { images, files }
    }

    async fn note(
        &self,
        address: &RbdPoolAddress,
        image: &str,
        written: Written,
    ) -> Result<(), PortError> {
        let operation = format!("mark image {}", address.image_path(image));
        let failed =
            |error: &dyn std::fmt::Display| PortError::new(ErrorClass::Other, &operation, error);
        let name = ImageName::new(image).map_err(|error| failed(&error))?;
        let text = serde_json::to_string(&written).map_err(|error| failed(&error))?;
        let call = move |pool: &Pool| Ok(pool.set_metadata(&name, KEY, &text)?);
        self.images.run(address, operation.clone(), Pace::Quick, call).await
    }
}

/// The mark beside the files of a folder.
fn beside(path: &Path, operation: &OperationId) -> PathBuf {
    path.with_file_name(format!("{}{SUFFIX}", operation.private_volume_name()))
}

#[async_trait]
impl Marks for HostMarks {
    async fn set(&self, at: &VolumeLocation, mark: &Mark) -> Result<(), PortError> {
        let written = Written::of(mark);
        match at {
            VolumeLocation::Rbd { address, image } => self.note(address, image, written).await,
            VolumeLocation::File { path } => {
                let operation = format!("mark {}", path.display());
                let folder = super::files::parent(path, &operation)?;
                let target = beside(path, &mark.operation);
                self.files.run(folder, operation, move || write(&target, &written)).await
            }
        }
    }

    async fn clear(&self, at: &VolumeLocation, operation: &OperationId) -> Result<(), PortError> {
        match at {
            VolumeLocation::Rbd { address, image } => {
                // Written over: where it came from may be read for ever.
                let written = Written {
                    host: String::new(),
                    operation: operation.to_string(),
                    volume: image.clone(),
                    identity: String::new(),
                    done: true,
                };
                match self.note(address, image, written).await {
                    Err(error) if error.class == ErrorClass::NotFound => Ok(()),
                    other => other,
                }
            }
            VolumeLocation::File { path } => {
                let words = format!("take the mark of {} away", path.display());
                let folder = super::files::parent(path, &words)?;
                let target = beside(path, operation);
                self.files
                    .run(folder, words, move || {
                        remove_if_there(&half(&target))?;
                        remove_if_there(&target)
                    })
                    .await
            }
        }
    }

    async fn find(&self, pool: &PoolKind, search: Search) -> Result<Vec<MarkedVolume>, PortError> {
        match pool {
            PoolKind::Rbd(rbd) => {
                let address = rbd.address.clone();
                let words = format!("search Ceph pool {}", address.pool);
                let pace = Pace::Slow;
                let call = move |pool: &Pool| images(pool, &address, search);
                self.images.run(&rbd.address, words, pace, call).await
            }
            PoolKind::File(folder) => {
                let words = format!("search folder {}", folder.path.display());
                let path = folder.path.clone();
                self.files.run(&folder.path, words, move || in_folder(&path)).await
            }
        }
    }
}

/// The operation whose private name this is.
fn private(name: &str) -> Option<OperationId> {
    let id = name.strip_prefix(OperationId::PRIVATE_PREFIX)?;
    OperationId::new(id).ok()
}

fn images(
    pool: &Pool,
    address: &RbdPoolAddress,
    search: Search,
) -> Result<Vec<MarkedVolume>, Failure> {
    let mut found = Vec::new();
    for image in pool.list()? {
        let by_name = private(image.as_str());
        let mark = match search {
            Search::Names if by_name.is_none() => continue,
            Search::Names => None,
            Search::Marks => match pool.get_metadata(&image, KEY) {
                Ok(text) => text.and_then(|text| serde_json::from_str::<Written>(&text).ok()),
                // Removed since it was listed.
                Err(error) if error.class() == rbdutils::errno::ErrorClass::NotFound => continue,
                Err(error) => return Err(error.into()),
            },
        };
        let Some(id) = pool.image_id(&image)? else { continue };
        let mark = mark.filter(|mark| !mark.done && mark.identity == id.as_str());
        let by_mark = mark.as_ref().and_then(|mark| OperationId::new(mark.operation.as_str()).ok());
        let private = by_name.is_some();
        let Some(operation) = by_mark.or(by_name) else { continue };
        found.push(MarkedVolume {
            location: VolumeLocation::Rbd {
                address: address.clone(),
                image: image.as_str().to_owned(),
            },
            identity: Identity::Rbd { image_id: id.as_str().to_owned() },
            operation,
            host: mark.map(|mark| mark.host),
            private,
        });
    }
    Ok(found)
}

fn in_folder(folder: &Path) -> io::Result<Vec<MarkedVolume>> {
    let (mut found, mut marks): (Vec<MarkedVolume>, Vec<Written>) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_type()?.is_file() {
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with(OperationId::PRIVATE_PREFIX) {
            continue;
        }
        if let Some(id) = name.strip_suffix(SUFFIX).and_then(private) {
            // What is no mark of ours says nothing.
            let mark = read(&entry.path()).ok().flatten();
            marks.extend(mark.filter(|mark| mark.operation == id.as_str()));
            continue;
        }
        let (Some(operation), Some(identity)) = (private(&name), disk::identity(&entry.path())?)
        else {
            continue;
        };
        let location = VolumeLocation::File { path: entry.path() };
        found.push(MarkedVolume { location, identity, operation, host: None, private: true });
    }
    for mark in marks {
        let Ok(operation) = OperationId::new(mark.operation.as_str()) else { continue };
        if let Some(known) = found.iter_mut().find(|volume| volume.operation == operation) {
            known.host = Some(mark.host);
            continue;
        }
        // A name with a path in it leads out of the pool.
        if Path::new(&mark.volume).components().count() != 1 {
            continue;
        }
        let path = folder.join(&mark.volume);
        let Some(identity) = disk::identity(&path)? else { continue };
        if told(&identity) == mark.identity {
            let location = VolumeLocation::File { path };
            let host = Some(mark.host);
            found.push(MarkedVolume { location, identity, operation, host, private: false });
        }
    }
    Ok(found)
}

fn read(path: &Path) -> io::Result<Option<Written>> {
    if fs::symlink_metadata(path)?.len() > LONGEST {
        return Ok(None);
    }
    Ok(serde_json::from_slice(&fs::read(path)?).ok())
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The name a mark has while it is written.
fn half(path: &Path) -> PathBuf {
    path.with_extension("mark-new")
}

/// Written under another name first: a mark is whole or not there.
fn write(path: &Path, written: &Written) -> io::Result<()> {
    let half = half(path);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(nix::fcntl::OFlag::O_NOFOLLOW.bits())
        .open(&half)?;
    file.write_all(serde_json::to_string(written)?.as_bytes())?;
    file.sync_all()?;
    fs::rename(&half, path)?;
    disk::sync_folder_of(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{FilePool, FilePoolKind};

    fn marks() -> HostMarks {
        struct NoKeys;
        #[async_trait]
        impl crate::host::keys::KeySource for NoKeys {
            async fn ceph_key(&self, uuid: &str) -> Result<secrecy::SecretString, PortError> {
                Err(PortError::new(ErrorClass::NotFound, format!("read secret {uuid}"), "none"))
            }
        }
        let images =
            HostImages::new(Arc::new(NoKeys), crate::host::images::ImageTimeouts::default());
        HostMarks::new(Arc::new(images), Arc::new(HostFiles::default()))
    }

    fn pool(folder: &Path) -> PoolKind {
        PoolKind::File(FilePool {
            kind: FilePoolKind::Nfs,
            path: folder.to_owned(),
            host: None,
            must_be_mounted: false,
        })
    }

    #[tokio::test]
    async fn a_file_is_found_under_its_private_name_under_its_own_and_not_after_its_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let marks = marks();
        let operation = OperationId::new("op-1").expect("a plain id");
        let place = |name: &str| VolumeLocation::File { path: folder.path().join(name) };
        let private = place(&operation.private_volume_name());
        let pool = pool(folder.path());
        let search = || marks.find(&pool, Search::Marks);
        fs::write(folder.path().join(operation.private_volume_name()), "x").expect("a file");
        fs::write(folder.path().join("somebody.qcow2"), "x").expect("a file");
        fs::create_dir(folder.path().join(".volferry-trash")).expect("a folder");
        let found = search().await.expect("a readable folder");
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!((&found[0].operation, &found[0].host), (&operation, &None));
        let identity = found[0].identity.clone();
        let mark = Mark {
            host: "host-a".to_owned(),
            operation: operation.clone(),
            volume: place("root.qcow2"),
            identity: identity.clone(),
        };
        marks.set(&private, &mark).await.expect("a mark");
        let found = search().await.expect("a readable folder");
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(found[0].host.as_deref(), Some("host-a"));
        let (from, to) = (operation.private_volume_name(), "root.qcow2");
        fs::rename(folder.path().join(from), folder.path().join(to)).expect("a rename");
        let found = search().await.expect("a readable folder");
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!((&found[0].location, found[0].private), (&place("root.qcow2"), false));
        assert_eq!(found[0].identity, identity);
        // Another file under the name is not the one that was marked.
        fs::write(folder.path().join("new"), "y").expect("a file");
        fs::rename(folder.path().join("new"), folder.path().join(to)).expect("a rename");
        assert_eq!(search().await.expect("a readable folder"), vec![]);
        marks.clear(&place(to), &operation).await.expect("cleared");
        marks.clear(&place(to), &operation).await.expect("cleared twice");
        let names = fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(names, 3, "the two volumes and the trash");
    }

    #[tokio::test]
    async fn what_is_no_mark_of_ours_says_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            fs::write(folder.path().join(name), text).expect("a file");
        };
        fs::write(folder.path().join("victim"), "x").expect("a file");
        write(".volferry-a.mark", "{}");
        write(".volferry-b.mark", "not json");
        let up = r#"{"host":"h","operation":"c","volume":"../victim","identity":"1"}"#;
        write(".volferry-c.mark", up);
        let other = r#"{"host":"h","operation":"x","volume":"victim","identity":"1"}"#;
        write(".volferry-d.mark", other);
        let found = marks().find(&pool(folder.path()), Search::Marks).await;
        assert_eq!(found.expect("a readable folder"), vec![]);
    }
}
