//! Hosts and ports of monitor entries: what is an address, a name, a port. No lists, no brackets.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::error::EntryRule;

/// Where a monitor listens: an address or a name that Ceph resolves when it connects.
///
/// `Display` writes IPv6 bare; [`MonitorAddress::bracketed`] is the form beside a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MonitorAddress {
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 address, in the spelling it was given.
    V6 {
        /// The spelling, without brackets.
        text: String,
        /// Its value.
        value: Ipv6Addr,
    },
    /// A host name, in the spelling it was given.
    Name(String),
}

impl MonitorAddress {
    /// Reads the text of a host without brackets and port.
    pub(super) fn parse(text: &str) -> Result<Self, EntryRule> {
        if text.contains(':') {
            return parse_ipv6(text);
        }
        if let Ok(value) = text.parse::<Ipv4Addr>() {
            return if value.is_unspecified() {
                Err(EntryRule::Unspecified)
            } else {
                Ok(Self::V4(value))
            };
        }
        check_name(text)?;
        Ok(Self::Name(text.to_owned()))
    }

    /// The address with brackets around IPv6, as Ceph and QEMU want it beside a port.
    pub fn bracketed(&self) -> String {
        match self {
            Self::V6 { text, .. } => format!("[{text}]"),
            other => other.to_string(),
        }
    }

    /// Whether both are the same address by value, or the same name.
    pub fn is_same_host_as(&self, other: &Self) -> bool {
        match (self.ip(), other.ip()) {
            (Some(ours), Some(theirs)) => ours == theirs,
            (None, None) => {
                let name = |a: &Self| a.to_string().trim_end_matches('.').to_ascii_lowercase();
                name(self) == name(other)
            }
            _ => false,
        }
    }

    /// The value of an address in its canonical form; `None` for a name.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::V4(value) => Some(IpAddr::V4(*value)),
            Self::V6 { value, .. } => Some(IpAddr::V6(*value).to_canonical()),
            Self::Name(_) => None,
        }
    }
}

impl fmt::Display for MonitorAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(value) => write!(f, "{value}"),
            Self::V6 { text, .. } | Self::Name(text) => f.write_str(text),
        }
    }
}

/// Reads a port as Ceph ought to: decimal digits, at most 65535. 0 is "leave it to Ceph".
pub(super) fn parse_port(text: &str) -> Result<Option<u16>, EntryRule> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(EntryRule::Port);
    }
    let port: u16 = text.parse().map_err(|_| EntryRule::PortRange)?;
    Ok((port != 0).then_some(port))
}

fn parse_ipv6(text: &str) -> Result<MonitorAddress, EntryRule> {
    let value: Ipv6Addr = text.parse().map_err(|_| EntryRule::Ipv6)?;
    // Ceph's parser rejects ::ffff:192.0.2.1 and ::192.0.2.1 but takes other dotted forms.
    if text.contains('.') || value.to_ipv4_mapped().is_some() {
        return Err(EntryRule::EmbeddedIpv4);
    }
    if value.is_unspecified() {
        return Err(EntryRule::Unspecified);
    }
    Ok(MonitorAddress::V6 { text: text.to_owned(), value })
}

/// Host names as resolvers accept them: labels of letters, digits, `-` and `_` (which many internal
/// zones use), at most 63 and 253 characters, optionally a final dot. A name that ends in a number
/// is meant as an IPv4 address: the C library would read `192.0.2` or `0x7f.1` as one.
fn check_name(text: &str) -> Result<(), EntryRule> {
    let name = text.strip_suffix('.').unwrap_or(text);
    let last = name.rsplit('.').next().unwrap_or(name);
    if !last.is_empty() && is_c_number(last) {
        return Err(EntryRule::Ipv4);
    }
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    if name.len() > 253 || !name.split('.').all(label) {
        return Err(EntryRule::Name);
    }
    if matches!(name, "v1" | "v2" | "any") {
        return Err(EntryRule::NameBehindPrefix); // with a port it would read as a prefix
    }
    Ok(())
}

fn is_c_number(text: &str) -> bool {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    match hex {
        Some(digits) => digits.bytes().all(|b| b.is_ascii_hexdigit()),
        None => text.bytes().all(|b| b.is_ascii_digit()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_plain_decimal_numbers() {
        assert_eq!(parse_port("6789"), Ok(Some(6789)));
        assert_eq!(parse_port("0"), Ok(None));
        assert_eq!(parse_port("65536"), Err(EntryRule::PortRange));
        assert_eq!(parse_port("99999999999999999999"), Err(EntryRule::PortRange));
        for text in ["", "+1", "-1", " 1", "1x", "0x1"] {
            assert_eq!(parse_port(text), Err(EntryRule::Port), "{text}");
        }
    }

    #[test]
    fn numbers_that_the_c_library_reads_in_its_own_way_are_refused() {
        for text in ["999.1.1.1", "192.0.2", "192.0.2.011", "2130706433", "0x7f.1", "1.2.3.4.5"] {
            assert_eq!(MonitorAddress::parse(text), Err(EntryRule::Ipv4), "{text}");
        }
    }

    #[test]
    fn names_follow_the_resolver() {
        for text in ["mon1", "ceph_mon", "1and1.example.com", "mon-a.example.com.", "3com", "xn--a"]
        {
            assert!(MonitorAddress::parse(text).is_ok(), "{text}");
        }
        for text in ["", ".", "a..b", "-a", "a-", "a*", "a@b", &"a".repeat(64)] {
            assert_eq!(MonitorAddress::parse(text), Err(EntryRule::Name), "{text}");
        }
    }

    #[test]
    fn addresses_compare_by_value() {
        let address = |text| MonitorAddress::parse(text).unwrap();
        assert!(address("2001:DB8:0:0::1").is_same_host_as(&address("2001:db8::1")));
        assert!(address("Mon1.").is_same_host_as(&address("mon1")));
        assert!(!address("mon1").is_same_host_as(&address("192.0.2.1")));
    }
}
