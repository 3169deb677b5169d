//! How volumes are encrypted, and what a request says about it. The passphrases themselves are in `passphrase`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A header format together with who encrypts: what a volume made by the agent can be encrypted with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EncryptionScheme {
    /// LUKS version 1 by QEMU: inside qcow2 in a file pool, around the raw image on RBD.
    #[serde(rename = "luks1-qemu")]
    Luks1Qemu,
    /// LUKS version 2 by librbd, on RBD only.
    #[serde(rename = "luks2-librbd")]
    Luks2Librbd,
}

/// The header of an encrypted volume, by who writes and reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HeaderKind {
    /// LUKS version 1 by QEMU.
    #[serde(rename = "luks1-qemu")]
    QemuLuks1,
    /// LUKS version 1 by librbd.
    #[serde(rename = "luks1-librbd")]
    LibrbdLuks1,
    /// LUKS version 2 by librbd.
    #[serde(rename = "luks2-librbd")]
    LibrbdLuks2,
}

impl HeaderKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::QemuLuks1, Self::LibrbdLuks1, Self::LibrbdLuks2];

    /// The stable word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QemuLuks1 => "luks1-qemu",
            Self::LibrbdLuks1 => "luks1-librbd",
            Self::LibrbdLuks2 => "luks2-librbd",
        }
    }

    /// Whether librbd reads it, below QEMU.
    pub const fn is_librbds(self) -> bool {
        matches!(self, Self::LibrbdLuks1 | Self::LibrbdLuks2)
    }
}

impl fmt::Display for HeaderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for HeaderKind {
    type Err = UnknownHeader;

    fn from_str(word: &str) -> Result<Self, UnknownHeader> {
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == word);
        found.ok_or_else(|| UnknownHeader(word.to_owned()))
    }
}

/// A word that names no header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no encryption; there are luks1-qemu, luks1-librbd and luks2-librbd")]
pub struct UnknownHeader(pub String);

/// A word that names no scheme.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no encryption; there are luks1-qemu and luks2-librbd")]
pub struct UnknownScheme(pub String);

impl EncryptionScheme {
    /// Every scheme.
    pub const ALL: [Self; 2] = [Self::Luks1Qemu, Self::Luks2Librbd];

    /// The stable word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Luks1Qemu => "luks1-qemu",
            Self::Luks2Librbd => "luks2-librbd",
        }
    }

    /// The header a volume of the scheme has.
    pub const fn header(self) -> HeaderKind {
        match self {
            Self::Luks1Qemu => HeaderKind::QemuLuks1,
            Self::Luks2Librbd => HeaderKind::LibrbdLuks2,
        }
    }

    /// The header format in libvirt's word: `luks` is version 1.
    pub const fn format(self) -> &'static str {
        match self {
            Self::Luks1Qemu => "luks",
            Self::Luks2Librbd => "luks2",
        }
    }

    /// Who encrypts, in libvirt's word.
    pub const fn engine(self) -> &'static str {
        match self {
            Self::Luks1Qemu => "qemu",
            Self::Luks2Librbd => "librbd",
        }
    }
}

impl fmt::Display for EncryptionScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for EncryptionScheme {
    type Err = UnknownScheme;

    fn from_str(word: &str) -> Result<Self, UnknownScheme> {
        let found = Self::ALL.into_iter().find(|scheme| scheme.as_str() == word);
        found.ok_or_else(|| UnknownScheme(word.to_owned()))
    }
}

/// What a request says about encryption, passphrases apart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncryptionWish {
    /// The passphrase of the source came with the request.
    pub source_passphrase: bool,
    /// One for the destination came with it: another one than the source's, or the first one of a volume that had none.
    pub destination_passphrase: bool,
    /// What the destination may be encrypted with; empty: what its pool has by itself (`luks1-qemu` in file pools,
    /// `luks2-librbd` on RBD).
    pub accept: BTreeSet<EncryptionScheme>,
    /// The destination of an encrypted source is to be plain.
    pub decrypt: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_are_read_as_they_are_written() {
        for scheme in EncryptionScheme::ALL {
            assert_eq!(scheme.as_str().parse(), Ok(scheme));
            let json = serde_json::to_string(&scheme).expect("a unit variant serialises");
            assert_eq!(json, format!("\"{scheme}\""));
        }
        assert!("luks2".parse::<EncryptionScheme>().is_err());
        for kind in HeaderKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
            let json = serde_json::to_string(&kind).expect("a unit variant serialises");
            assert_eq!(json, format!("\"{kind}\""));
        }
    }
}
