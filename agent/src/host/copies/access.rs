//! How qemu-img opens two images: options, a ceph.conf and a key for each cluster, in a folder of their own that only
//! this process can read and that goes with the value; a passphrase in a file in memory. Nothing secret is on the
//! command line.

use std::fs::{OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rbdutils::monitors::MonitorList;
use secrecy::{ExposeSecret, SecretString};
use tempfile::TempDir;

use super::{driver, text_of};
use crate::host::images::read_key_file;
use crate::host::keys::KeySource;
use crate::host::secret_file::SecretFile;
use crate::ports::{CopySide, Image, ImageCopy, PortError};
use crate::spec::{HeaderKind, RbdPoolAddress, VolumeFormat, VolumeLocation};

/// A monitor that does not answer ends the work instead of letting it wait for ever.
const CONNECT_SECONDS: u32 = 30;

/// Both images, ready to be named on a command line.
#[derive(Debug)]
pub(super) struct Access {
    from: String,
    to: String,
    objects: Vec<String>,
    /// Gone when this is dropped.
    _passphrases: Vec<SecretFile>,
    /// Removed, with all in it, when this is dropped.
    _folder: TempDir,
}

impl Access {
    /// Prepares both sides.
    ///
    /// Errors: the side, and why.
    pub(super) async fn new(
        folder: &Path,
        keys: &dyn KeySource,
        copy: &ImageCopy,
        operation: &str,
    ) -> Result<Self, (CopySide, PortError)> {
        let io = |error: io::Error| PortError::from((operation.to_owned(), error));
        let folder = tempfile::Builder::new()
            .prefix("copy-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(folder)
            .map_err(|error| (CopySide::Unknown, io(error)))?;
        let (mut objects, mut passphrases, mut sides) = (Vec::new(), Vec::new(), Vec::new());
        for (side, word, image) in
            [(CopySide::Source, "from", &copy.from), (CopySide::Destination, "to", &copy.to)]
        {
            let of_side = |error| (side, io(error));
            let place = match &image.location {
                VolumeLocation::File { path } => file_options(path).map_err(of_side)?,
                VolumeLocation::Rbd { address, image: name } => {
                    let key = key(keys, address, operation).await.map_err(|error| (side, error))?;
                    rbd_options(folder.path(), word, address, name, key.as_ref(), &mut objects)
                        .map_err(of_side)?
                }
            };
            if let Some(key) = &image.key {
                let file = SecretFile::new(key.passphrase.expose()).map_err(of_side)?;
                let path = escaped(text_of(file.path()).map_err(of_side)?);
                objects.push(format!("secret,id={word}-pass,file={path}"));
                passphrases.push(file);
            }
            sides.push(image_options(word, image, &place).map_err(of_side)?);
        }
        let [from, to] = <[String; 2]>::try_from(sides)
            .map_err(|_| (CopySide::Unknown, io(io::ErrorKind::InvalidInput.into())))?;
        Ok(Self { from, to, objects, _passphrases: passphrases, _folder: folder })
    }

    /// The source's options.
    pub(super) fn from(&self) -> &str {
        &self.from
    }

    /// The destination's options.
    pub(super) fn to(&self) -> &str {
        &self.to
    }

    /// The secrets, as words of a command line.
    pub(super) fn objects(&self) -> impl Iterator<Item = &str> {
        self.objects.iter().flat_map(|object| ["--object", object.as_str()])
    }

    /// A text of qemu-img without the options in it, which say nothing to people.
    pub(super) fn without_options(&self, text: &str) -> String {
        text.replace(&self.from, "the source").replace(&self.to, "the destination")
    }
}

async fn key(
    keys: &dyn KeySource,
    address: &RbdPoolAddress,
    operation: &str,
) -> Result<Option<SecretString>, PortError> {
    match (&address.key_file, &address.secret_uuid) {
        (Some(path), _) => read_key_file(path).map(Some).map_err(|error| {
            (format!("{operation}: read key file {}", path.display()), error).into()
        }),
        (None, Some(uuid)) => keys.ceph_key(uuid).await.map(Some),
        (None, None) => Ok(None),
    }
}

/// An image at `place`, with its header where it has one: inside qcow2 or around a raw image by QEMU, or below it by
/// librbd.
///
/// Errors: a header that nobody writes there.
fn image_options(word: &str, image: &Image, place: &str) -> io::Result<String> {
    let format = driver(image.format);
    let Some(key) = &image.key else { return Ok(format!("driver={format},{place}")) };
    let secret = format!("key-secret={word}-pass");
    let is_rbd = matches!(image.location, VolumeLocation::Rbd { .. });
    match (key.header, image.format, is_rbd) {
        (HeaderKind::QemuLuks1, VolumeFormat::Qcow2, _) => {
            Ok(format!("driver=qcow2,encrypt.format=luks,encrypt.{secret},{place}"))
        }
        (HeaderKind::QemuLuks1, VolumeFormat::Raw, _) => {
            Ok(format!("driver=luks,{secret},{place}"))
        }
        (HeaderKind::LibrbdLuks1, VolumeFormat::Raw, true) => {
            Ok(format!("driver=raw,{place},file.encrypt.format=luks,file.encrypt.{secret}"))
        }
        (HeaderKind::LibrbdLuks2, VolumeFormat::Raw, true) => {
            Ok(format!("driver=raw,{place},file.encrypt.format=luks2,file.encrypt.{secret}"))
        }
        (header, format, _) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("{} is {format} and cannot be encrypted with {header}", image.location),
        )),
    }
}

fn file_options(path: &Path) -> io::Result<String> {
    Ok(format!("file.driver=file,file.filename={}", escaped(text_of(path)?)))
}

fn rbd_options(
    folder: &Path,
    word: &str,
    address: &RbdPoolAddress,
    image: &str,
    key: Option<&SecretString>,
    objects: &mut Vec<String>,
) -> io::Result<String> {
    let conf = folder.join(format!("{word}.conf"));
    private_file(&conf, ceph_conf(address, key.is_some())?.as_bytes())?;
    let mut options = format!(
        "file.driver=rbd,file.pool={},file.image={},file.conf={}",
        escaped(&address.pool),
        escaped(image),
        escaped(text_of(&conf)?)
    );
    if let Some(namespace) = &address.namespace {
        options += &format!(",file.namespace={}", escaped(namespace));
    }
    if let Some(user) = &address.user {
        options += &format!(",file.user={}", escaped(user));
    }
    if let Some(key) = key {
        let file = folder.join(format!("{word}.key"));
        private_file(&file, key.expose_secret().as_bytes())?;
        let file = escaped(text_of(&file)?);
        objects.push(format!("secret,id={word}-key,format=base64,file={file}"));
        options += &format!(",file.key-secret={word}-key");
    }
    Ok(options)
}

/// The cluster's monitors and nothing of this host's own ceph.conf.
fn ceph_conf(address: &RbdPoolAddress, has_key: bool) -> io::Result<String> {
    let monitors = MonitorList::parse(&address.monitors, 0)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
    let authentication = if has_key { "cephx" } else { "none" };
    Ok(format!(
        "[global]\nmon_host = {}\nauth_client_required = {authentication}\n\
         client_mount_timeout = {CONNECT_SECONDS}\nkeyring = /dev/null\n",
        monitors.to_ceph_conf()
    ))
}

fn private_file(path: &Path, content: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(content)
}

/// A value in QEMU's comma-separated options.
fn escaped(value: &str) -> String {
    value.replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use async_trait::async_trait;

    use super::*;
    use crate::ports::ImageKey;
    use crate::spec::{Bytes, OperationId, Passphrase};

    #[derive(Debug)]
    struct OneKey;

    #[async_trait]
    impl KeySource for OneKey {
        async fn ceph_key(&self, _: &str) -> Result<SecretString, PortError> {
            Ok(SecretString::from("AQB/sgxrkUDYHRAAAAAAAAAAAAAAAAAAAAAAAA=="))
        }
    }

    fn copy() -> ImageCopy {
        let address = RbdPoolAddress {
            monitors: "192.0.2.11:6789,[2001:db8::12]:6789".into(),
            user: Some("lib,virt".into()),
            secret_uuid: Some("u".into()),
            key_file: None,
            pool: "vms".into(),
            namespace: None,
        };
        ImageCopy {
            operation: OperationId::random(),
            from: Image {
                location: VolumeLocation::Rbd { address, image: "a,b".into() },
                format: VolumeFormat::Raw,
                key: None,
            },
            to: Image {
                location: VolumeLocation::File { path: "/srv/a, b.qcow2".into() },
                format: VolumeFormat::Qcow2,
                key: None,
            },
            size: Bytes::mib(1),
            bandwidth: None,
        }
    }

    #[tokio::test]
    async fn the_key_is_in_a_private_file_and_nowhere_else() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let access = Access::new(folder.path(), &OneKey, &copy(), "copy").await.expect("prepared");
        let words: Vec<&str> = access.objects().chain([access.from(), access.to()]).collect();
        assert!(words.iter().all(|word| !word.contains("AQB/")), "{words:?}");
        assert!(!format!("{access:?}").contains("AQB/"));
        let (mut files, mut conf) = (0, String::new());
        for entry in std::fs::read_dir(access._folder.path())? {
            let path = entry?.path();
            assert_eq!(path.metadata()?.permissions().mode() & 0o777, 0o600, "{path:?}");
            if path.extension().is_some_and(|suffix| suffix == "conf") {
                conf = std::fs::read_to_string(&path)?;
            }
            files += 1;
        }
        assert_eq!(files, 2);
        assert!(conf.contains("mon_host = 192.0.2.11:6789,[2001:db8::12]:6789\n"), "{conf}");
        assert_eq!(access._folder.path().metadata()?.permissions().mode() & 0o777, 0o700);
        drop(access);
        assert_eq!(std::fs::read_dir(folder.path())?.count(), 0, "nothing is left");
        Ok(())
    }

    #[tokio::test]
    async fn a_comma_stays_part_of_its_value() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let access = Access::new(folder.path(), &OneKey, &copy(), "copy").await.expect("prepared");
        assert_eq!(access.to(), "driver=qcow2,file.driver=file,file.filename=/srv/a,, b.qcow2");
        assert!(access.from().contains(",file.image=a,,b,"), "{}", access.from());
        assert!(access.from().contains(",file.user=lib,,virt"), "{}", access.from());
        let text = format!("qemu-img: Could not open '{}': No", access.from());
        assert_eq!(access.without_options(&text), "qemu-img: Could not open 'the source': No");
        Ok(())
    }

    fn key(header: HeaderKind) -> Option<ImageKey> {
        let passphrase = Passphrase::new(b"open sesame".to_vec()).expect("a passphrase");
        Some(ImageKey { header, passphrase })
    }

    #[tokio::test]
    async fn a_passphrase_is_in_memory_alone_and_opens_the_image_it_is_for() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let mut copy = copy();
        copy.to.key = key(HeaderKind::QemuLuks1);
        for (header, words) in [
            (HeaderKind::QemuLuks1, "driver=luks,key-secret=from-pass,file.driver=rbd"),
            (HeaderKind::LibrbdLuks1, "file.encrypt.format=luks,file.encrypt.key-secret=from-pass"),
            (
                HeaderKind::LibrbdLuks2,
                "file.encrypt.format=luks2,file.encrypt.key-secret=from-pass",
            ),
        ] {
            copy.from.key = key(header);
            let access = Access::new(folder.path(), &OneKey, &copy, "copy").await.expect("ready");
            assert!(access.from().contains(words), "{}", access.from());
            let to = "driver=qcow2,encrypt.format=luks,encrypt.key-secret=to-pass,file.driver=file";
            assert!(access.to().starts_with(to), "{}", access.to());
            let all: Vec<&str> = access.objects().chain([access.from(), access.to()]).collect();
            let shown = format!("{access:?} {all:?}");
            assert!(!shown.contains("sesame"), "{shown}");
            for word in ["from", "to"] {
                let object = format!("secret,id={word}-pass,file=/proc/");
                assert!(access.objects().any(|word| word.starts_with(&object)), "{shown}");
            }
            for entry in std::fs::read_dir(access._folder.path())? {
                assert!(!std::fs::read_to_string(entry?.path())?.contains("sesame"));
            }
        }
        // Nobody but QEMU encrypts a file.
        copy.to.key = key(HeaderKind::LibrbdLuks2);
        let refused = Access::new(folder.path(), &OneKey, &copy, "copy").await.err();
        assert_eq!(refused.map(|(side, _)| side), Some(CopySide::Destination));
        Ok(())
    }
}
