//! Passphrases of encrypted volumes: bytes that no log, journal, answer or `Debug` output ever shows.

use std::fmt;
use std::sync::Arc;

use secrecy::zeroize::Zeroize;
use secrecy::{ExposeSecret, SecretSlice};

/// The longest passphrase that is taken; far more than anything that opens a volume.
const LONGEST: usize = 4096;

/// The passphrase of a volume, every byte of it: a line end at the end is part of it. Wiped when the last copy goes.
#[derive(Clone)]
pub struct Passphrase(Arc<SecretSlice<u8>>);

/// Bytes that are no passphrase. Says nothing of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPassphrase {
    /// None at all.
    #[error("the passphrase is empty")]
    Empty,
    /// Beyond what is taken.
    #[error("the passphrase is longer than {LONGEST} bytes")]
    TooLong,
}

impl Passphrase {
    /// Takes the bytes over.
    ///
    /// Errors: none, or more than 4096 of them.
    pub fn new(mut bytes: Vec<u8>) -> Result<Self, InvalidPassphrase> {
        let invalid = match bytes.len() {
            0 => Some(InvalidPassphrase::Empty),
            1..=LONGEST => None,
            _ => Some(InvalidPassphrase::TooLong),
        };
        if let Some(invalid) = invalid {
            bytes.zeroize();
            return Err(invalid);
        }
        // A vector with room to spare would be copied by the conversion, and the original not be wiped.
        let exact: Box<[u8]> = Box::from(bytes.as_slice());
        bytes.zeroize();
        Ok(Self(Arc::new(SecretSlice::from(exact))))
    }

    /// The bytes, for the one call that needs them.
    pub fn expose(&self) -> &[u8] {
        self.0.expose_secret()
    }

    /// Whether QEMU's own encryption takes it: QEMU reads passphrases as text that ends at the first NUL.
    pub fn is_text(&self) -> bool {
        let bytes = self.expose();
        !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok()
    }
}

impl PartialEq for Passphrase {
    /// Compares in a time that does not depend on where they differ.
    fn eq(&self, other: &Self) -> bool {
        let (one, other) = (self.expose(), other.expose());
        let differences = one.iter().zip(other).fold(0, |found, (a, b)| found | (a ^ b));
        one.len() == other.len() && differences == 0
    }
}

impl Eq for Passphrase {}

impl fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passphrase(..)")
    }
}

/// The passphrases of a request. They travel beside what is written down, never in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Passphrases {
    /// Opens the source.
    pub source: Option<Passphrase>,
    /// For the destination, where it is to have another one than the source.
    pub destination: Option<Passphrase>,
}

impl Passphrases {
    /// What the destination gets: its own, else the source's.
    pub fn for_destination(&self) -> Option<&Passphrase> {
        self.destination.as_ref().or(self.source.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passphrase(bytes: &[u8]) -> Passphrase {
        Passphrase::new(bytes.to_vec()).expect("a passphrase")
    }

    #[test]
    fn nothing_of_it_is_shown() {
        let passphrases =
            Passphrases { source: Some(passphrase(b"open sesame")), destination: None };
        let shown = format!("{passphrases:?} {passphrases:#?}");
        assert!(!shown.contains("sesame") && !shown.contains("111, 112"), "{shown}");
    }

    #[test]
    fn every_byte_counts() {
        assert_eq!(passphrase(b"a\n"), passphrase(b"a\n"));
        for other in [&b"a"[..], b"b\n", b"a\n\n"] {
            assert_ne!(passphrase(b"a\n"), passphrase(other));
        }
        assert_eq!(Passphrase::new(vec![]), Err(InvalidPassphrase::Empty));
        assert_eq!(Passphrase::new(vec![1; 4097]), Err(InvalidPassphrase::TooLong));
        assert!(Passphrase::new(vec![0; 4096]).is_ok());
    }

    #[test]
    fn text_is_told_from_bytes() {
        assert!(passphrase("grün".as_bytes()).is_text());
        assert!(!passphrase(&[0xff, 0xfe]).is_text());
        assert!(!passphrase(b"a\0b").is_text());
    }

    #[test]
    fn the_destination_has_its_own_or_the_sources() {
        let mut both = Passphrases { source: Some(passphrase(b"one")), destination: None };
        assert_eq!(both.for_destination(), Some(&passphrase(b"one")));
        both.destination = Some(passphrase(b"two"));
        assert_eq!(both.for_destination(), Some(&passphrase(b"two")));
    }
}
