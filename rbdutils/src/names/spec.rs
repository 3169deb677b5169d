//! The address of an image or snapshot inside a cluster: `pool/[namespace/]image[@snapshot]`.

use std::fmt;
use std::str::FromStr;

use super::{ImageName, NameError, NamespaceName, PoolName, SnapshotName};

/// An image, or a snapshot of it, in the notation of the `rbd` command.
///
/// The pool is always named: the notation's default pool depends on a configuration file.
///
/// ```
/// use rbdutils::names::ImageSpec;
///
/// let spec: ImageSpec = "fast/tenant-a/web.v2@daily".parse()?;
/// assert_eq!(spec.namespace.as_ref().map(|n| n.as_str()), Some("tenant-a"));
/// assert_eq!(spec.to_string(), "fast/tenant-a/web.v2@daily");
/// assert!("web.v2".parse::<ImageSpec>().is_err());
/// # Ok::<(), rbdutils::names::SpecError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageSpec {
    /// The pool.
    pub pool: PoolName,
    /// The namespace; `None` is the default namespace.
    pub namespace: Option<NamespaceName>,
    /// The image.
    pub image: ImageName,
    /// The snapshot; `None` is the image itself.
    pub snapshot: Option<SnapshotName>,
}

/// Why a text is no image specification.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Not two or three parts.
    #[error("{text:?} is not pool/image or pool/namespace/image")]
    Parts {
        /// The text.
        text: String,
    },
    /// A part is no name.
    #[error("{text:?} is no image specification")]
    Name {
        /// The text.
        text: String,
        /// The rule that is broken.
        #[source]
        source: NameError,
    },
}

impl ImageSpec {
    /// An image of the default namespace.
    pub fn new(pool: PoolName, image: ImageName) -> Self {
        Self { pool, namespace: None, image, snapshot: None }
    }
}

impl fmt::Display for ImageSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.pool)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        write!(f, "{}", self.image)?;
        self.snapshot.as_ref().map_or(Ok(()), |snapshot| write!(f, "@{snapshot}"))
    }
}

impl FromStr for ImageSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (image, snapshot) = match text.split_once('@') {
            Some((image, snapshot)) => (image, Some(snapshot)),
            None => (text, None),
        };
        let parts: Vec<&str> = image.split('/').collect();
        let (pool, namespace, image) = match parts[..] {
            [pool, image] => (pool, None, image),
            [pool, namespace, image] => (pool, Some(namespace), image),
            _ => return Err(SpecError::Parts { text: text.to_owned() }),
        };
        let name = |source| SpecError::Name { text: text.to_owned(), source };
        Ok(Self {
            pool: PoolName::new(pool).map_err(name)?,
            namespace: namespace.map(NamespaceName::new).transpose().map_err(name)?,
            image: ImageName::new(image).map_err(name)?,
            snapshot: snapshot.map(SnapshotName::new).transpose().map_err(name)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_value_are_one() {
        for text in ["p/i", "p/n/i", "p/i@s", "p/n/i@s", "p p/i:i@s=s"] {
            assert_eq!(text.parse::<ImageSpec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_specification() {
        for text in ["", "i", "p/", "/i", "p//i", "p/n/i/x", "p/i@", "p/i@a@b", "p/i@a/b"] {
            assert!(text.parse::<ImageSpec>().is_err(), "{text}");
        }
    }
}
