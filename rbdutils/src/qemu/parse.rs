//! Reads QEMU's `rbd:` string by the rules of QEMU's own reader (block/rbd.c).

use std::str::FromStr;

use super::escape::{cut, find, unescape};
use super::{QemuError, RbdString};
use crate::monitors::MonitorList;
use crate::names::{ImageName, ImageSpec, NamespaceName, PoolName, SnapshotName};

/// Reads the text as QEMU does: the pool ends at the first unescaped `/`; with an unescaped `@`
/// anywhere behind it the image ends there and the snapshot at the next `:`; a value ends at the
/// next `:` and may contain `=`.
///
/// ```
/// use rbdutils::qemu::RbdString;
///
/// let rbd: RbdString = r"rbd:volumes/web:id=admin:mon_host=192.0.2.11\:6789".parse()?;
/// assert_eq!(rbd.image.to_string(), "volumes/web");
/// assert_eq!(rbd.monitors.unwrap().to_ceph_conf(), "192.0.2.11:6789");
///
/// // The trap: an unescaped @ in the user's name moves the end of the image's name.
/// assert!("rbd:volumes/web:id=a@b".parse::<RbdString>().unwrap().user.is_none());
/// # Ok::<(), rbdutils::qemu::QemuError>(())
/// ```
impl FromStr for RbdString {
    type Err = QemuError;

    fn from_str(text: &str) -> Result<Self, QemuError> {
        let text = text.strip_prefix("rbd:").ok_or(QemuError::Prefix)?;
        let (pool, rest) = cut(text, '/');
        let rest = rest.ok_or(QemuError::NoPool)?;
        let (image, snapshot, options) = match find(rest, '@') {
            Some(_) => {
                let (image, rest) = cut(rest, '@');
                let (snapshot, options) = cut(rest.unwrap_or_default(), ':');
                (image, Some(snapshot), options)
            }
            None => {
                let (image, options) = cut(rest, ':');
                (image, None, options)
            }
        };
        let mut rbd = RbdString::new(parse_image(pool, image, snapshot)?);
        parse_options(&mut rbd, options)?;
        Ok(rbd)
    }
}

fn parse_image(pool: &str, image: &str, snapshot: Option<&str>) -> Result<ImageSpec, QemuError> {
    let (namespace, image) = match cut(image, '/') {
        (namespace, Some(image)) => (Some(namespace), image),
        (image, None) => (None, image),
    };
    let namespace = namespace.map(unescape).filter(|name| !name.is_empty());
    Ok(ImageSpec {
        pool: PoolName::new(unescape(pool)).map_err(QemuError::Name)?,
        namespace: namespace.map(NamespaceName::new).transpose().map_err(QemuError::Name)?,
        image: ImageName::new(unescape(image)).map_err(QemuError::Name)?,
        snapshot: snapshot
            .map(|name| SnapshotName::new(unescape(name)))
            .transpose()
            .map_err(QemuError::Name)?,
    })
}

fn parse_options(rbd: &mut RbdString, mut rest: Option<&str>) -> Result<(), QemuError> {
    let mut position = 0;
    while let Some(text) = rest {
        position += 1;
        let (name, value) = cut(text, '=');
        let (value, next) = cut(value.ok_or(QemuError::NoValue { position })?, ':');
        let (name, value) = (unescape(name), unescape(value));
        match name.as_str() {
            "id" => rbd.user = Some(value),
            "conf" => rbd.conf = Some(value),
            "key" => rbd.key = Some(value.into()),
            "mon_host" => {
                rbd.monitors = Some(MonitorList::parse(&value, 0).map_err(QemuError::Monitors)?);
            }
            _ => rbd.options.push((name, value)),
        }
        rest = next;
    }
    Ok(())
}
