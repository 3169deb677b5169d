//! The copies port: `qemu-img convert` and `qemu-img compare`.
//!
//! What is needed to open an image, key and cluster, is in `access`, in files that only this process can read and that
//! go when the work ends; the process itself is in `process`. Nothing is decided here.

mod access;
mod process;

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use nix::fcntl::OFlag;

use self::access::Access;
use self::process::{Ended, run};
use super::keys::KeySource;
use super::qemu_img::class_of;
use crate::blocking::detached;
use crate::ports::{
    Comparison, CopyError, CopySide, Done, ErrorClass, Image, ImageCopies, ImageCopy, PortError,
};
use crate::spec::{VolumeFormat, VolumeLocation};

/// Copies by `qemu-img`.
#[derive(Debug)]
pub struct HostCopies {
    qemu_img: PathBuf,
    keys: Arc<dyn KeySource>,
    folder: PathBuf,
}

impl HostCopies {
    /// Copies with keys from `keys` or from key files. `folder` is this process's alone: what an earlier life left
    /// there is removed.
    ///
    /// Errors: the folder cannot be made.
    pub fn new(keys: Arc<dyn KeySource>, folder: PathBuf) -> io::Result<Self> {
        match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        std::fs::DirBuilder::new().mode(0o700).recursive(true).create(&folder)?;
        Ok(Self { qemu_img: PathBuf::from("qemu-img"), keys, folder })
    }

    async fn access(&self, copy: &ImageCopy, operation: &str) -> Result<Access, CopyError> {
        Access::new(&self.folder, &*self.keys, copy, operation)
            .await
            .map_err(|(side, error)| CopyError { side, error })
    }
}

#[async_trait]
impl ImageCopies for HostCopies {
    async fn copy(&self, copy: &ImageCopy, done: &Done) -> Result<(), CopyError> {
        let operation = format!("copy {} to {}", copy.from.location, copy.to.location);
        let access = self.access(copy, &operation).await?;
        let cache = cache_of(&copy.to).await;
        let mut words = vec!["convert", "-p", "-n", "-U"];
        if copy.to.begins_as_zeros() {
            words.push("--target-is-zero");
        }
        words.extend(parallel(&copy.from, &copy.to));
        words.extend(["-t", cache]);
        let rate = copy.bandwidth.map(|rate| rate.get().to_string());
        words.extend(rate.iter().flat_map(|rate| ["-r", rate.as_str()]));
        words.extend(access.objects());
        words.extend(["--image-opts", "--target-image-opts", access.from(), access.to()]);
        let ended = run(&self.qemu_img, &words, copy.size, done).await;
        let ended = ended.map_err(|error| unknown(&operation, ErrorClass::Unsupported, &error))?;
        if !ended.status.success() {
            return Err(failed(&operation, &access, &ended));
        }
        sync(copy, &operation).await
    }

    async fn compare(&self, copy: &ImageCopy, done: &Done) -> Result<Comparison, CopyError> {
        let operation = format!("compare {} with {}", copy.to.location, copy.from.location);
        let access = self.access(copy, &operation).await?;
        let cache = match (cache_of(&copy.from).await, cache_of(&copy.to).await) {
            (DIRECT, DIRECT) => DIRECT,
            _ => CACHED,
        };
        let mut words = vec!["compare", "-p", "-U", "-T", cache];
        words.extend(access.objects());
        words.extend(["--image-opts", access.from(), access.to()]);
        let ended = run(&self.qemu_img, &words, copy.size, done).await;
        let ended = ended.map_err(|error| unknown(&operation, ErrorClass::Unsupported, &error))?;
        match ended.status.code() {
            Some(0) => Ok(Comparison::Identical),
            Some(1) => Ok(Comparison::Different(ended.said)),
            _ => Err(failed(&operation, &access, &ended)),
        }
    }
}

const DIRECT: &str = "none";
const CACHED: &str = "writeback";

/// Past the page cache where the file system can do that: a write that fails is then told to the writer, what is
/// compared comes from storage, and the memory of the host stays its guests'. Images of Ceph can always.
async fn cache_of(image: &Image) -> &'static str {
    let VolumeLocation::File { path } = &image.location else { return DIRECT };
    let path = path.clone();
    let opened = detached("open-direct", move || {
        let flags = OFlag::O_DIRECT | OFlag::O_NONBLOCK;
        OpenOptions::new().read(true).custom_flags(flags.bits()).open(path).map(drop)
    });
    match opened.await {
        Ok(Err(error)) if error.raw_os_error() == Some(nix::libc::EINVAL) => CACHED,
        _ => DIRECT,
    }
}

/// Writes out of order keep more requests on their way, which pays where each one crosses a network; a qcow2 file
/// read in order is written best in order too.
fn parallel(from: &Image, to: &Image) -> Vec<&'static str> {
    let remote = |image: &Image| matches!(image.location, VolumeLocation::Rbd { .. });
    match (remote(from), remote(to)) {
        (false, false) => vec![],
        (true, false) => vec!["-W", "-m", "16"],
        (_, true) => vec!["-W"],
    }
}

/// Makes what was written to a file durable, its errors told.
async fn sync(copy: &ImageCopy, operation: &str) -> Result<(), CopyError> {
    let VolumeLocation::File { path } = &copy.to.location else { return Ok(()) };
    let path = path.clone();
    let synced = detached("sync-copy", move || {
        OpenOptions::new().write(true).open(path).and_then(|file| file.sync_all())
    });
    let error = match synced.await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => PortError::from((operation.to_owned(), error)),
        Err(_) => {
            PortError::new(ErrorClass::Other, operation, "the thread of the call ended early")
        }
    };
    Err(CopyError { side: CopySide::Destination, error })
}

fn unknown(operation: &str, class: ErrorClass, text: &dyn std::fmt::Display) -> CopyError {
    CopyError { side: CopySide::Unknown, error: PortError::new(class, operation, text) }
}

/// What qemu-img said, and on whose side it was.
fn failed(operation: &str, access: &Access, ended: &Ended) -> CopyError {
    let text = if ended.complained.is_empty() {
        format!("qemu-img ended with {}", ended.status)
    } else {
        access.without_options(&ended.complained)
    };
    let side = if ended.complained.contains("error while reading")
        || ended.complained.contains(access.from())
    {
        CopySide::Source
    } else if ended.complained.contains("error while writing")
        || ended.complained.contains(access.to())
    {
        CopySide::Destination
    } else {
        CopySide::Unknown
    };
    let class = class_of(&text);
    CopyError { side, error: PortError::new(class, operation, text) }
}

/// QEMU's name of a format.
fn driver(format: VolumeFormat) -> &'static str {
    format.as_str()
}

/// A path in the text form qemu-img takes.
fn text_of(path: &Path) -> io::Result<&str> {
    path.to_str().ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not UTF-8", path.display()))
    })
}
