//! Names as newtypes, each with one fallible constructor.
//!
//! No control character passes, so none of them can break a path, a log line, XML or libvirt's C strings.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A name that breaks a rule; the message names the thing and the rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {kind} {value:?}: {rule}")]
pub struct InvalidName {
    /// What the name was meant for.
    pub kind: &'static str,
    /// The name, as given.
    pub value: String,
    /// The rule it breaks.
    pub rule: &'static str,
}

fn check(kind: &'static str, value: &str, longest: usize) -> Result<(), InvalidName> {
    let fail = |rule| Err(InvalidName { kind, value: value.chars().take(80).collect(), rule });
    if value.is_empty() {
        return fail("it is empty");
    }
    if value.len() > longest {
        return fail("it is too long");
    }
    if value.chars().any(char::is_control) {
        return fail("it contains a control character");
    }
    Ok(())
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $kind:literal, $longest:literal, $extra:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// Errors: the name breaks a rule of its kind.
            pub fn new(value: impl Into<String>) -> Result<Self, InvalidName> {
                let value = value.into();
                check($kind, &value, $longest)?;
                let extra: fn(&str) -> Option<&'static str> = $extra;
                match extra(&value) {
                    Some(rule) => Err(InvalidName { kind: $kind, value, rule }),
                    None => Ok(Self(value)),
                }
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $type {
            type Err = InvalidName;

            fn from_str(value: &str) -> Result<Self, InvalidName> {
                Self::new(value)
            }
        }

        impl TryFrom<String> for $type {
            type Error = InvalidName;

            fn try_from(value: String) -> Result<Self, InvalidName> {
                Self::new(value)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0
            }
        }
    };
}

name!(
    /// The identity of an operation, chosen by the client or made by the agent. It becomes part of file and
    /// image names, so only letters, digits and `-` are allowed.
    OperationId, "operation id", 64, |value| {
        let plain = value.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        (!plain || value.starts_with('-')).then_some(
            "only ASCII letters, digits and '-' are allowed, and it must not begin with '-'")
    }
);

name!(
    /// The identity of a leftover record: its operation's id and what is left, `OPERATION-source`.
    LeftoverId, "leftover id", 80, |value| {
        let plain = value.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        (!plain || value.starts_with('-')).then_some(
            "only ASCII letters, digits and '-' are allowed, and it must not begin with '-'")
    }
);

name!(
    /// The uuid of a domain in its canonical lower-case form.
    DomainUuid, "domain uuid", 36, |value| {
        let canonical = uuid::Uuid::try_parse(value)
            .is_ok_and(|uuid| uuid.as_hyphenated().to_string() == value);
        (!canonical).then_some("it is not a uuid in the form 8-4-4-4-12, lower case")
    }
);

name!(
    /// A domain as the caller names it: its name or its uuid.
    DomainReference, "domain", 255, |value| {
        value.contains('/').then_some("a domain name has no '/'")
    }
);

name!(
    /// A disk as the caller names it: its target (`vda`) or its exact source (`pool/image`, a path).
    DiskReference, "disk", 4096, |_| None
);

name!(
    /// The target of a disk inside its domain, `vda`.
    DiskTarget, "disk target", 32, |value| {
        value.contains('/').then_some("a disk target has no '/'")
    }
);

name!(
    /// The name of a storage pool of the configuration.
    PoolName, "pool", 255, |value| {
        value.contains('/').then_some("a pool name has no '/'")
    }
);

name!(
    /// The name of a checkpoint of a domain.
    CheckpointName, "checkpoint", 255, |value| {
        value.contains('/').then_some("a checkpoint name has no '/'")
    }
);

name!(
    /// The name of a volume: one component, usable as a file name and as an RBD image name.
    VolumeName, "volume name", 200, |value| {
        if value == "." || value == ".." {
            Some("'.' and '..' are folders")
        } else if value.contains('/') {
            Some("it contains '/', which would lead out of the pool")
        } else if value.contains('@') {
            Some("it contains '@', which separates a snapshot in Ceph")
        } else if value.starts_with(".volferry-") {
            Some("names beginning with '.volferry-' are the agent's own")
        } else {
            None
        }
    }
);

impl OperationId {
    /// A fresh id.
    pub fn random() -> Self {
        Self(uuid::Uuid::new_v4().to_string())
    }

    /// The id of the record of what this operation left: `ID-WORD`. At most [`LeftoverId`]'s length, for the word is
    /// one of a few short ones.
    pub fn leftover(&self, word: &'static str) -> LeftoverId {
        LeftoverId(format!("{}-{word}", self.0))
    }

    /// What every operation's private names begin with.
    pub const PRIVATE_PREFIX: &'static str = ".volferry-";

    /// The name only this operation uses for a volume that is not yet published.
    pub fn private_volume_name(&self) -> String {
        format!("{}{}", Self::PRIVATE_PREFIX, self.0)
    }
}

impl DomainReference {
    /// The reference as a uuid, when it has the form of one.
    pub fn as_uuid(&self) -> Option<DomainUuid> {
        uuid::Uuid::try_parse(&self.0).ok().map(|uuid| DomainUuid(uuid.as_hyphenated().to_string()))
    }
}

impl DomainUuid {
    /// The nil uuid, which no domain has: an operation on a volume that belongs to none.
    pub fn none() -> Self {
        Self(uuid::Uuid::nil().as_hyphenated().to_string())
    }

    /// Whether it stands for no domain.
    pub fn is_none(&self) -> bool {
        *self == Self::none()
    }
}

impl From<DiskTarget> for DiskReference {
    fn from(target: DiskTarget) -> Self {
        Self(target.0)
    }
}

impl DiskTarget {
    /// What stands for the disk of a volume that no domain uses.
    pub fn of_volume() -> Self {
        Self("volume".to_owned())
    }
}

impl From<DomainUuid> for DomainReference {
    fn from(uuid: DomainUuid) -> Self {
        Self(uuid.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_escape_are_refused() {
        for bad in ["", ".", "..", "a/b", "a@b", "a\0b", "a\nb", ".volferry-x"] {
            assert!(VolumeName::new(bad).is_err(), "{bad:?}");
        }
        for good in ["vol-1", "web.v2", "Söhne & Co", "a b", "..x"] {
            assert!(VolumeName::new(good).is_ok(), "{good:?}");
        }
        assert!(OperationId::new("../x").is_err());
        assert!(OperationId::new("-x").is_err());
        assert!(OperationId::new("job-17").is_ok());
    }

    #[test]
    fn an_error_names_the_thing_and_the_rule() {
        let error = VolumeName::new("a/b").err().map(|error| error.to_string());
        assert_eq!(
            error.as_deref(),
            Some("invalid volume name \"a/b\": it contains '/', which would lead out of the pool")
        );
    }

    #[test]
    fn a_domain_reference_knows_a_uuid_in_any_case() {
        let reference = DomainReference::new("70000000-0000-4000-8000-0000000000AB").ok();
        let uuid = reference.and_then(|reference| reference.as_uuid());
        assert_eq!(
            uuid.as_ref().map(DomainUuid::as_str),
            Some("70000000-0000-4000-8000-0000000000ab")
        );
    }
}
