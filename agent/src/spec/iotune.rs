//! Limits of a disk's input and output (`<iotune>`), under libvirt's names.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::quantity::Bytes;

/// The largest value libvirt takes for QEMU.
const LARGEST: u64 = 1_000_000_000_000_000;

macro_rules! limits {
    ($($(#[$doc:meta])* $variant:ident = $text:literal, $is_bytes:literal;)*) => {
        /// What can be limited.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum IoLimit {
            $($(#[$doc])* $variant,)*
        }

        impl IoLimit {
            /// Every one, in libvirt's order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// libvirt's name, the same in its XML and in its calls.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// Counted in bytes per second; else in requests per second, seconds, or bytes of a request.
            const fn is_rate_of_bytes(self) -> bool {
                match self { $(Self::$variant => $is_bytes,)* }
            }
        }
    };
}

limits! {
    /// Bytes per second, reads and writes together.
    TotalBytesSec = "total_bytes_sec", true;
    /// Bytes read per second.
    ReadBytesSec = "read_bytes_sec", true;
    /// Bytes written per second.
    WriteBytesSec = "write_bytes_sec", true;
    /// Requests per second, reads and writes together.
    TotalIopsSec = "total_iops_sec", false;
    /// Reads per second.
    ReadIopsSec = "read_iops_sec", false;
    /// Writes per second.
    WriteIopsSec = "write_iops_sec", false;
    /// Bytes per second in a burst, reads and writes together.
    TotalBytesSecMax = "total_bytes_sec_max", true;
    /// Bytes read per second in a burst.
    ReadBytesSecMax = "read_bytes_sec_max", true;
    /// Bytes written per second in a burst.
    WriteBytesSecMax = "write_bytes_sec_max", true;
    /// Requests per second in a burst, reads and writes together.
    TotalIopsSecMax = "total_iops_sec_max", false;
    /// Reads per second in a burst.
    ReadIopsSecMax = "read_iops_sec_max", false;
    /// Writes per second in a burst.
    WriteIopsSecMax = "write_iops_sec_max", false;
    /// Bytes that count as one request.
    SizeIopsSec = "size_iops_sec", false;
    /// Seconds such a burst may last.
    TotalBytesSecMaxLength = "total_bytes_sec_max_length", false;
    /// Seconds such a burst may last.
    ReadBytesSecMaxLength = "read_bytes_sec_max_length", false;
    /// Seconds such a burst may last.
    WriteBytesSecMaxLength = "write_bytes_sec_max_length", false;
    /// Seconds such a burst may last.
    TotalIopsSecMaxLength = "total_iops_sec_max_length", false;
    /// Seconds such a burst may last.
    ReadIopsSecMaxLength = "read_iops_sec_max_length", false;
    /// Seconds such a burst may last.
    WriteIopsSecMaxLength = "write_iops_sec_max_length", false;
}

/// Limits that QEMU would take together; zero lifts one. What is not named stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<IoLimit, u64>", into = "BTreeMap<IoLimit, u64>")]
pub struct IoTune(BTreeMap<IoLimit, u64>);

/// Limits that QEMU would not take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidIoTune {
    /// Nothing in it.
    #[error("it limits nothing")]
    Empty,
    /// Not `NAME=VALUE`.
    #[error("{0:?} is not NAME=VALUE, such as total_bytes_sec=100MiB or total_iops_sec=500")]
    NotAPair(String),
    /// No such limit.
    #[error("there is no limit {0:?}; there are: {all}", all = names())]
    Unknown(String),
    /// Said twice.
    #[error("{0} is given twice")]
    Twice(IoLimit),
    /// No number.
    #[error("{0} is {1:?}, which is no whole number")]
    NotANumber(IoLimit, String),
    /// Too large for libvirt.
    #[error("{0} is more than 1000000000000000")]
    TooLarge(IoLimit),
    /// A total beside its parts.
    #[error("{0} and {1} exclude each other")]
    Exclusive(IoLimit, IoLimit),
    /// A burst without the rate it bursts out of, a length without a burst, a size without a rate.
    #[error("{0} needs {1}")]
    Needs(IoLimit, &'static str),
    /// A burst slower than the usual rate.
    #[error("{0} is less than {1}")]
    Less(IoLimit, IoLimit),
}

fn names() -> String {
    IoLimit::ALL.iter().map(|limit| limit.as_str()).collect::<Vec<_>>().join(", ")
}

impl IoTune {
    /// Errors: nothing is limited, or QEMU would not take the limits together.
    pub fn new(limits: BTreeMap<IoLimit, u64>) -> Result<Self, InvalidIoTune> {
        if limits.is_empty() {
            return Err(InvalidIoTune::Empty);
        }
        if let Some((limit, _)) = limits.iter().find(|(_, value)| **value > LARGEST) {
            return Err(InvalidIoTune::TooLarge(*limit));
        }
        let tune = Self(limits);
        tune.check_totals()?;
        tune.check_bursts()?;
        Ok(tune)
    }

    /// Errors: a name libvirt does not know, and as [`Self::new`].
    pub fn from_names(
        limits: impl IntoIterator<Item = (String, u64)>,
    ) -> Result<Self, InvalidIoTune> {
        let known = |(name, value): (String, u64)| Ok((name.parse()?, value));
        Self::new(limits.into_iter().map(known).collect::<Result<_, InvalidIoTune>>()?)
    }

    /// Every limit with its value.
    pub fn iter(&self) -> impl Iterator<Item = (IoLimit, u64)> {
        self.0.iter().map(|(limit, value)| (*limit, *value))
    }

    fn get(&self, limit: IoLimit) -> u64 {
        self.0.get(&limit).copied().unwrap_or(0)
    }

    fn check_totals(&self) -> Result<(), InvalidIoTune> {
        use IoLimit as L;
        for (total, parts) in [
            (L::TotalBytesSec, [L::ReadBytesSec, L::WriteBytesSec]),
            (L::TotalIopsSec, [L::ReadIopsSec, L::WriteIopsSec]),
            (L::TotalBytesSecMax, [L::ReadBytesSecMax, L::WriteBytesSecMax]),
            (L::TotalIopsSecMax, [L::ReadIopsSecMax, L::WriteIopsSecMax]),
        ] {
            if let Some(part) = parts.into_iter().find(|part| self.get(*part) > 0)
                && self.get(total) > 0
            {
                return Err(InvalidIoTune::Exclusive(total, part));
            }
        }
        Ok(())
    }

    fn check_bursts(&self) -> Result<(), InvalidIoTune> {
        use IoLimit as L;
        for (rate, burst, length) in [
            (L::TotalBytesSec, L::TotalBytesSecMax, L::TotalBytesSecMaxLength),
            (L::ReadBytesSec, L::ReadBytesSecMax, L::ReadBytesSecMaxLength),
            (L::WriteBytesSec, L::WriteBytesSecMax, L::WriteBytesSecMaxLength),
            (L::TotalIopsSec, L::TotalIopsSecMax, L::TotalIopsSecMaxLength),
            (L::ReadIopsSec, L::ReadIopsSecMax, L::ReadIopsSecMaxLength),
            (L::WriteIopsSec, L::WriteIopsSecMax, L::WriteIopsSecMaxLength),
        ] {
            if self.get(burst) > 0 && self.get(rate) == 0 {
                return Err(InvalidIoTune::Needs(burst, rate.as_str()));
            }
            if self.get(burst) > 0 && self.get(burst) < self.get(rate) {
                return Err(InvalidIoTune::Less(burst, rate));
            }
            if self.get(length) > 0 && self.get(burst) == 0 {
                return Err(InvalidIoTune::Needs(length, burst.as_str()));
            }
        }
        let requests = [L::TotalIopsSec, L::ReadIopsSec, L::WriteIopsSec];
        if self.get(L::SizeIopsSec) > 0 && requests.iter().all(|limit| self.get(*limit) == 0) {
            return Err(InvalidIoTune::Needs(L::SizeIopsSec, "a limit of requests per second"));
        }
        Ok(())
    }
}

impl TryFrom<BTreeMap<IoLimit, u64>> for IoTune {
    type Error = InvalidIoTune;

    fn try_from(limits: BTreeMap<IoLimit, u64>) -> Result<Self, InvalidIoTune> {
        Self::new(limits)
    }
}

impl From<IoTune> for BTreeMap<IoLimit, u64> {
    fn from(tune: IoTune) -> Self {
        tune.0
    }
}

impl fmt::Display for IoLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for IoLimit {
    type Err = InvalidIoTune;

    fn from_str(name: &str) -> Result<Self, InvalidIoTune> {
        let found = Self::ALL.iter().find(|limit| limit.as_str() == name);
        found.copied().ok_or_else(|| InvalidIoTune::Unknown(name.to_owned()))
    }
}

impl fmt::Display for IoTune {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (limit, value)) in self.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(f, "{separator}{limit}={value}")?;
        }
        Ok(())
    }
}

impl FromStr for IoTune {
    type Err = InvalidIoTune;

    /// `NAME=VALUE,..`; rates of bytes may have a unit.
    fn from_str(text: &str) -> Result<Self, InvalidIoTune> {
        let mut limits = BTreeMap::new();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (name, value) =
                pair.split_once('=').ok_or_else(|| InvalidIoTune::NotAPair(pair.to_owned()))?;
            let limit: IoLimit = name.trim().parse()?;
            let number = || InvalidIoTune::NotANumber(limit, value.to_owned());
            let value = match limit.is_rate_of_bytes() {
                true => value.trim_end_matches("/s").parse::<Bytes>().map_err(|_| number())?.0,
                false => value.trim().parse().map_err(|_| number())?,
            };
            if limits.insert(limit, value).is_some() {
                return Err(InvalidIoTune::Twice(limit));
            }
        }
        Self::new(limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        match text.parse::<IoTune>() {
            Ok(tune) => panic!("{text} is {tune}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn limits_are_read_by_their_names_and_written_back() {
        let tune: IoTune = "total_iops_sec=500, total_bytes_sec=100MiB/s".parse().expect("limits");
        assert_eq!(tune.to_string(), "total_bytes_sec=104857600,total_iops_sec=500");
        assert_eq!(tune.to_string().parse(), Ok(tune.clone()));
        let json = serde_json::to_string(&tune).expect("it serialises");
        assert_eq!(json, r#"{"total_bytes_sec":104857600,"total_iops_sec":500}"#);
        assert_eq!(serde_json::from_str::<IoTune>(&json).ok(), Some(tune));
        assert!("total_bytes_sec=0".parse::<IoTune>().is_ok(), "zero lifts a limit");
        for limit in IoLimit::ALL {
            assert_eq!(serde_json::to_string(limit).ok(), Some(format!("\"{limit}\"")));
        }
    }

    #[test]
    fn limits_qemu_would_not_take_are_refused_with_the_rule() {
        for (text, rule) in [
            ("", "it limits nothing"),
            ("total_bytes_sec", "is not NAME=VALUE"),
            ("speed=1", "there is no limit \"speed\"; there are: total_bytes_sec, "),
            ("total_iops_sec=1,total_iops_sec=2", "given twice"),
            ("total_iops_sec=fast", "no whole number"),
            ("total_iops_sec=-1", "no whole number"),
            ("total_bytes_sec=1000001GB", "is more than"),
            ("total_bytes_sec=1,read_bytes_sec=1", "exclude each other"),
            ("total_iops_sec_max=9", "total_iops_sec_max needs total_iops_sec"),
            ("total_iops_sec=10,total_iops_sec_max=9", "is less than total_iops_sec"),
            ("read_iops_sec=1,read_iops_sec_max_length=5", "needs read_iops_sec_max"),
            ("size_iops_sec=4096", "needs a limit of requests"),
        ] {
            assert!(error(text).contains(rule), "{text}: {}", error(text));
        }
    }
}
