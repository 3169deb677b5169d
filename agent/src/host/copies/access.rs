//! How qemu-img opens two images: options, a ceph.conf and a key for each cluster, in a folder of their own that only
//! this process can read and that goes with the value. Nothing secret is on the command line.

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
use crate::ports::{CopySide, Image, ImageCopy, PortError};
use crate::spec::{RbdPoolAddress, VolumeLocation};

/// A monitor that does not answer ends the work instead of letting it wait for ever.
const CONNECT_SECONDS: u32 = 30;

/// Both images, ready to be named on a command line.
#[derive(Debug)]
pub(super) struct Access {
    from: String,
    to: String,
    objects: Vec<String>,
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
        let mut objects = Vec::new();
        let mut sides = Vec::new();
        for (side, word, image) in
            [(CopySide::Source, "from", &copy.from), (CopySide::Destination, "to", &copy.to)]
        {
            let options = match &image.location {
                VolumeLocation::File { path } => file_options(image, path).map_err(io),
                VolumeLocation::Rbd { address, image: name } => {
                    let key = key(keys, address, operation).await.map_err(|error| (side, error))?;
                    rbd_options(folder.path(), word, address, name, key.as_ref(), &mut objects)
                        .map_err(io)
                }
            };
            sides.push(options.map_err(|error| (side, error))?);
        }
        let [from, to] = <[String; 2]>::try_from(sides)
            .map_err(|_| (CopySide::Unknown, io(io::ErrorKind::InvalidInput.into())))?;
        Ok(Self { from, to, objects, _folder: folder })
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

fn file_options(image: &Image, path: &Path) -> io::Result<String> {
    let path = text_of(path)?;
    Ok(format!("driver={},file.driver=file,file.filename={}", driver(image.format), escaped(path)))
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
        "driver=raw,file.driver=rbd,file.pool={},file.image={},file.conf={}",
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
    use crate::spec::{Bytes, OperationId, VolumeFormat};

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
            },
            to: Image {
                location: VolumeLocation::File { path: "/srv/a, b.qcow2".into() },
                format: VolumeFormat::Qcow2,
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
}
