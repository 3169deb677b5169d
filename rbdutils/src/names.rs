//! Names of Ceph pools, namespaces, images and snapshots: checked once, trusted afterwards.
//!
//! Only what a name may contain is decided here; whether it exists, or is ours, is not.
//!
//! Refused, with the reason:
//! - empty names, and NUL or other control characters: C strings and line-based tools cut them;
//! - `/` and `@`: they separate pool, namespace, image and snapshot in every textual form
//!   (librbd itself accepts them, and such an image can be named by no other tool afterwards);
//! - `.` and `..`: an image name becomes a file name when the volume moves to a file pool;
//! - blanks at either end: nobody can tell them from a typing error in a plan or a log. Blanks
//!   inside are legal in RBD and stay;
//! - more than [`MAX_NAME_BYTES`] bytes.

mod spec;

use std::fmt;
use std::str::FromStr;

pub use spec::{ImageSpec, SpecError};

/// The longest accepted name in bytes.
///
/// librbd sets no limit of its own (`RBD_MAX_IMAGE_NAME_SIZE`, 96, bounds a deprecated field only);
/// an OSD takes object names up to 2048 bytes. 255 is the limit of a file name, which an image name
/// becomes in a file pool, and of the kernel's RBD client.
pub const MAX_NAME_BYTES: usize = 255;

/// Why a text is no name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing at all.
    #[error("the {kind} name is empty")]
    Empty {
        /// What was to be named: pool, namespace, image or snapshot.
        kind: &'static str,
    },
    /// Longer than [`MAX_NAME_BYTES`].
    #[error("the {kind} name of {length} bytes is longer than {MAX_NAME_BYTES}")]
    TooLong {
        /// What was to be named.
        kind: &'static str,
        /// Its length in bytes.
        length: usize,
    },
    /// NUL, a line end or another control character, `/` or `@`.
    #[error("the {kind} name {name:?} contains {character:?}")]
    Character {
        /// What was to be named.
        kind: &'static str,
        /// The text.
        name: String,
        /// The character that is not allowed.
        character: char,
    },
    /// `.` or `..`.
    #[error("the {kind} name {name:?} is a directory reference")]
    Dots {
        /// What was to be named.
        kind: &'static str,
        /// The text.
        name: String,
    },
    /// White space at the beginning or the end.
    #[error("the {kind} name {name:?} begins or ends with a blank")]
    Blank {
        /// What was to be named.
        kind: &'static str,
        /// The text.
        name: String,
    },
}

fn check(kind: &'static str, name: String) -> Result<String, NameError> {
    if name.is_empty() {
        return Err(NameError::Empty { kind });
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(NameError::TooLong { kind, length: name.len() });
    }
    if let Some(character) = name.chars().find(|c| c.is_control() || matches!(c, '/' | '@')) {
        return Err(NameError::Character { kind, name, character });
    }
    if name == "." || name == ".." {
        return Err(NameError::Dots { kind, name });
    }
    if name.trim() != name {
        return Err(NameError::Blank { kind, name });
    }
    Ok(name)
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Checks and wraps a name.
            ///
            /// # Errors
            /// [`NameError`] with the rule of [this module](self) that is broken.
            pub fn new(name: impl Into<String>) -> Result<Self, NameError> {
                check($kind, name.into()).map(Self)
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(name: &str) -> Result<Self, NameError> {
                Self::new(name)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

name_type!(
    /// The name of a Ceph pool.
    PoolName,
    "pool"
);
name_type!(
    /// The name of an RBD namespace inside a pool. The default namespace has none.
    NamespaceName,
    "namespace"
);
name_type!(
    /// The name of an RBD image.
    ///
    /// ```
    /// use rbdutils::names::ImageName;
    ///
    /// assert_eq!(ImageName::new("web 1.v2")?.as_str(), "web 1.v2");
    /// assert!(ImageName::new("pool/web").is_err());
    /// assert!(ImageName::new("web@daily").is_err());
    /// assert!(ImageName::new("web\n").is_err());
    /// # Ok::<(), rbdutils::names::NameError>(())
    /// ```
    ImageName,
    "image"
);
name_type!(
    /// The name of a snapshot of an RBD image.
    SnapshotName,
    "snapshot"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_its_error() {
        assert!(matches!(ImageName::new(""), Err(NameError::Empty { kind: "image" })));
        assert!(matches!(PoolName::new("a\0b"), Err(NameError::Character { character: '\0', .. })));
        assert!(matches!(PoolName::new("a\u{85}b"), Err(NameError::Character { .. })));
        assert!(matches!(ImageName::new(".."), Err(NameError::Dots { .. })));
        assert!(matches!(ImageName::new(" a"), Err(NameError::Blank { .. })));
        assert!(matches!(SnapshotName::new("a\u{a0}"), Err(NameError::Blank { .. })));
        assert!(matches!(
            NamespaceName::new("x".repeat(256)),
            Err(NameError::TooLong { length: 256, .. })
        ));
    }

    #[test]
    fn unusual_but_legal_names_stay() {
        for name in ["a b", "a:b", r"a\b", "a=b;c,d", "größe", ".mgr", &"x".repeat(255)] {
            assert_eq!(ImageName::new(name).unwrap().to_string(), name);
        }
    }
}
