//! Sizes and rates with their units, and their text form.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A number of bytes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// A rate in bytes per second; never zero (zero would mean "unlimited" to libvirt).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct BytesPerSecond(u64);

/// Text that is no size or rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidQuantity {
    /// Not `NUMBER[UNIT]`.
    #[error(
        "{0:?} is not a size: expected a whole number and one of B, KiB, MiB, GiB, TiB, kB, MB, GB, TB"
    )]
    NotASize(String),
    /// Beyond what libvirt takes.
    #[error("{0:?} is too large")]
    TooLarge(String),
    /// Zero where a positive number is needed.
    #[error("the rate must not be zero; leave it out for no limit")]
    ZeroRate,
}

impl Bytes {
    /// `count` mebibytes.
    pub const fn mib(count: u64) -> Self {
        Self(count * 1024 * 1024)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 4] =
            [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        for (unit, size) in UNITS {
            if self.0 >= size {
                let tenths = u128::from(self.0) * 10 / u128::from(size);
                return match tenths % 10 {
                    0 => write!(f, "{} {unit}", tenths / 10),
                    tenth => write!(f, "{}.{tenth} {unit}", tenths / 10),
                };
            }
        }
        write!(f, "{} B", self.0)
    }
}

impl FromStr for Bytes {
    type Err = InvalidQuantity;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        let factor: u64 = match unit.trim() {
            "" | "B" => 1,
            "KiB" | "K" | "k" => 1 << 10,
            "MiB" | "M" => 1 << 20,
            "GiB" | "G" => 1 << 30,
            "TiB" | "T" => 1 << 40,
            "kB" | "KB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "TB" => 1_000_000_000_000,
            _ => return Err(InvalidQuantity::NotASize(text.to_owned())),
        };
        if number.is_empty() {
            return Err(InvalidQuantity::NotASize(text.to_owned()));
        }
        let count: u64 = number.parse().map_err(|_| InvalidQuantity::TooLarge(text.to_owned()))?;
        count
            .checked_mul(factor)
            .map(Self)
            .ok_or_else(|| InvalidQuantity::TooLarge(text.to_owned()))
    }
}

impl BytesPerSecond {
    /// The largest limit that every libvirt accepts (2^52 bytes per second).
    pub const MAX: u64 = 1 << 52;

    /// Errors: zero, or more than [`Self::MAX`].
    pub fn new(rate: u64) -> Result<Self, InvalidQuantity> {
        match rate {
            0 => Err(InvalidQuantity::ZeroRate),
            rate if rate > Self::MAX => Err(InvalidQuantity::TooLarge(rate.to_string())),
            rate => Ok(Self(rate)),
        }
    }

    /// The rate in bytes per second.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl TryFrom<u64> for BytesPerSecond {
    type Error = InvalidQuantity;

    fn try_from(rate: u64) -> Result<Self, Self::Error> {
        Self::new(rate)
    }
}

impl From<BytesPerSecond> for u64 {
    fn from(rate: BytesPerSecond) -> Self {
        rate.0
    }
}

impl fmt::Display for BytesPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", Bytes(self.0))
    }
}

impl FromStr for BytesPerSecond {
    type Err = InvalidQuantity;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let trimmed = text.trim();
        let size = trimmed.strip_suffix("/s").unwrap_or(trimmed);
        Self::new(size.parse::<Bytes>()?.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        assert_eq!("200MiB".parse(), Ok(Bytes::mib(200)));
        assert_eq!("1 GB".parse(), Ok(Bytes(1_000_000_000)));
        assert_eq!("512".parse(), Ok(Bytes(512)));
        assert!("".parse::<Bytes>().is_err());
        assert!("-1".parse::<Bytes>().is_err());
        assert!("1.5GiB".parse::<Bytes>().is_err());
        assert!("99999999999TiB".parse::<Bytes>().is_err());
        assert!("99999999999999999999999".parse::<Bytes>().is_err());
    }

    #[test]
    fn rates_are_bounded_and_never_zero() {
        assert_eq!("200MiB/s".parse::<BytesPerSecond>().map(BytesPerSecond::get), Ok(200 << 20));
        assert_eq!("0".parse::<BytesPerSecond>(), Err(InvalidQuantity::ZeroRate));
        assert!("8192TiB/s".parse::<BytesPerSecond>().is_err());
    }

    #[test]
    fn sizes_print_in_the_largest_unit() {
        assert_eq!(Bytes(0).to_string(), "0 B");
        assert_eq!(Bytes::mib(256).to_string(), "256 MiB");
        assert_eq!(Bytes((3 << 30) / 2).to_string(), "1.5 GiB");
        assert_eq!(Bytes(u64::MAX).to_string(), "16777215.9 TiB");
    }
}
