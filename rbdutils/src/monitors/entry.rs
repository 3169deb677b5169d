//! One entry of a monitor list: plain, with a messenger prefix, or a vector. Reading and writing it,
//! and the endpoints it stands for. The list around it is not known here.

use std::fmt;

use super::address::{MonitorAddress, parse_port};
use super::error::EntryRule;

const V2_PORT: u16 = 3300;
const V1_PORT: u16 = 6789;

/// A messenger prefix of Ceph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// `v1:`, port 6789 unless named.
    V1,
    /// `v2:`, port 3300 unless named.
    V2,
    /// `any:`, read like an address without a prefix.
    Any,
}

/// An address behind a messenger prefix. Never a name: Ceph resolves none there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProtocolAddress {
    /// The prefix.
    pub protocol: Protocol,
    /// The address.
    pub address: MonitorAddress,
    /// The port; `None` is the protocol's own.
    pub port: Option<u16>,
}

/// One monitor as it was given. `Display` writes the form Ceph reads, IPv6 in brackets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MonitorEntry {
    /// `host`, `host:port`, `[ipv6]:port`.
    Plain {
        /// Address or name.
        address: MonitorAddress,
        /// The entry's own port or the list's default; `None` leaves it to Ceph.
        port: Option<u16>,
    },
    /// `v2:192.0.2.11:3300`.
    Prefixed(ProtocolAddress),
    /// `[v2:192.0.2.11:3300,v1:192.0.2.11:6789]`: all addresses of one monitor.
    Vector(Vec<ProtocolAddress>),
}

/// One door of a monitor. `port` is `None` when both of Ceph's own ports are tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Endpoint<'a> {
    address: &'a MonitorAddress,
    protocol: Protocol,
    port: Option<u16>,
}

/// Reads one entry; a plain one without a port gets `default_port`.
pub(super) fn parse(text: &str, default_port: Option<u16>) -> Result<MonitorEntry, EntryRule> {
    check_characters(text)?;
    let inner = text.strip_prefix('[').map(str::trim_start);
    if let Some(inner) = inner.filter(|inner| strip_protocol(inner).is_some()) {
        return parse_vector(inner);
    }
    if let Some((protocol, rest)) = strip_protocol(text) {
        return parse_prefixed(protocol, rest).map(MonitorEntry::Prefixed);
    }
    let (address, port) = parse_host_and_port(text)?;
    // An own port of 0 is a port named: the default does not replace it.
    Ok(MonitorEntry::Plain { address, port: port.unwrap_or(default_port) })
}

/// Faults that are visible without knowing the kind of entry, the more telling ones first.
fn check_characters(text: &str) -> Result<(), EntryRule> {
    let has = |c: char| text.contains(c);
    if has('"') || has('\'') || has('`') {
        return Err(EntryRule::Quote);
    }
    if has('\\') {
        return Err(EntryRule::Escaped);
    }
    if has('=') {
        return Err(EntryRule::Assignment);
    }
    if has('%') {
        return Err(EntryRule::Zone);
    }
    let space = |c: char| matches!(c, ' ' | '\t' | '\n' | '\r'); // only inside of brackets by now
    if !text.chars().all(|c| c.is_ascii_graphic() || space(c)) {
        return Err(EntryRule::Character);
    }
    Ok(())
}

fn strip_protocol(text: &str) -> Option<(Protocol, &str)> {
    [("v2:", Protocol::V2), ("v1:", Protocol::V1), ("any:", Protocol::Any)]
        .into_iter()
        .find_map(|(prefix, protocol)| Some((protocol, text.strip_prefix(prefix)?)))
}

/// Reads a vector without its opening bracket.
fn parse_vector(text: &str) -> Result<MonitorEntry, EntryRule> {
    let inner = text.strip_suffix(']').ok_or(EntryRule::AfterBracket)?;
    let mut members: Vec<ProtocolAddress> = Vec::new();
    for member in inner.split(',') {
        let (protocol, rest) = strip_protocol(member.trim()).ok_or(EntryRule::VectorMember)?;
        let member = parse_prefixed(protocol, rest)?;
        let twin = |m: &ProtocolAddress| {
            m.protocol == member.protocol && m.address.is_ipv4() == member.address.is_ipv4()
        };
        if members.iter().any(twin) {
            return Err(EntryRule::SeveralMonitors);
        }
        members.push(member);
    }
    if members.len() > 1 && members.iter().any(|m| m.port.is_none()) {
        return Err(EntryRule::VectorPort);
    }
    Ok(MonitorEntry::Vector(members))
}

fn parse_prefixed(protocol: Protocol, text: &str) -> Result<ProtocolAddress, EntryRule> {
    let (address, port) = parse_host_and_port(text)?;
    if address.ip().is_none() {
        return Err(EntryRule::NameBehindPrefix);
    }
    Ok(ProtocolAddress { protocol, address, port: port.flatten() })
}

/// Reads `host[:port][/0]`. The outer option tells whether a port was named, the inner is the port.
fn parse_host_and_port(text: &str) -> Result<(MonitorAddress, Option<Option<u16>>), EntryRule> {
    let text = strip_nonce(text)?;
    if let Some(inner) = text.strip_prefix('[') {
        let (inside, after) = inner.split_once(']').ok_or(EntryRule::Brackets)?;
        let address = parse_bracketed(inside)?;
        return match after.strip_prefix(':') {
            Some(port) if port.contains(':') => Err(EntryRule::TwoPorts),
            Some(port) => Ok((address, Some(parse_port(port)?))),
            None if after.is_empty() => Ok((address, None)),
            None => Err(EntryRule::AfterBracket),
        };
    }
    if text.contains(['[', ']']) {
        return Err(EntryRule::Brackets);
    }
    match text.split_once(':') {
        None => Ok((MonitorAddress::parse(text)?, None)),
        Some((host, port)) if !port.contains(':') => {
            Ok((MonitorAddress::parse(host)?, Some(parse_port(port)?)))
        }
        Some((host, rest)) => match MonitorAddress::parse(text) {
            Ok(address) => Ok((address, None)),
            Err(EntryRule::Ipv6) if is_two_ports(host, rest) => Err(EntryRule::TwoPorts),
            Err(rule) => Err(rule),
        },
    }
}

/// What stands between brackets: IPv6, and IPv4 because Ceph reads `[192.0.2.11]:6789` too.
fn parse_bracketed(inside: &str) -> Result<MonitorAddress, EntryRule> {
    if inside.contains([',', '[']) {
        return Err(EntryRule::Brackets);
    }
    match MonitorAddress::parse(inside) {
        Ok(address) if address.ip().is_some() => Ok(address),
        Ok(_) | Err(EntryRule::Name) => Err(EntryRule::Brackets),
        Err(rule) => Err(rule),
    }
}

fn is_two_ports(host: &str, rest: &str) -> bool {
    MonitorAddress::parse(host).is_ok() && rest.split(':').all(|port| parse_port(port).is_ok())
}

fn strip_nonce(text: &str) -> Result<&str, EntryRule> {
    match text.split_once('/') {
        None => Ok(text),
        Some((_, nonce)) if nonce.is_empty() || !nonce.bytes().all(|b| b.is_ascii_digit()) => {
            Err(EntryRule::Path)
        }
        Some((address, nonce)) if nonce.bytes().all(|b| b == b'0') => Ok(address),
        Some(_) => Err(EntryRule::Nonce),
    }
}

impl MonitorAddress {
    fn is_ipv4(&self) -> bool {
        matches!(self, Self::V4(_))
    }
}

impl ProtocolAddress {
    /// Whether a bare name without a port means the same to Ceph.
    pub(super) fn is_on_default_port(&self) -> bool {
        match self.protocol {
            Protocol::V1 => matches!(self.port, None | Some(V1_PORT)),
            Protocol::V2 => matches!(self.port, None | Some(V2_PORT)),
            Protocol::Any => matches!(self.port, None | Some(V1_PORT | V2_PORT)),
        }
    }

    fn endpoint(&self) -> Endpoint<'_> {
        let port = match self.protocol {
            Protocol::V1 => self.port.or(Some(V1_PORT)),
            Protocol::V2 => self.port.or(Some(V2_PORT)),
            Protocol::Any => self.port,
        };
        Endpoint { address: &self.address, protocol: self.protocol, port }
    }
}

impl MonitorEntry {
    pub(super) fn endpoints(&self) -> Vec<Endpoint<'_>> {
        match self {
            Self::Plain { address, port } => {
                vec![Endpoint { address, protocol: Protocol::Any, port: *port }]
            }
            Self::Prefixed(member) => vec![member.endpoint()],
            Self::Vector(members) => members.iter().map(ProtocolAddress::endpoint).collect(),
        }
    }
}

#[cfg(feature = "native")]
impl MonitorEntry {
    /// An entry that a client tries as v2 and v1, for one of them only; `None` for other entries.
    pub(super) fn limited_to(&self, protocol: Protocol) -> Option<Self> {
        match self {
            Self::Plain { port: Some(V1_PORT | V2_PORT), .. } => None,
            Self::Plain { address, port } if address.ip().is_some() => {
                let (address, port) = (address.clone(), *port);
                Some(Self::Prefixed(ProtocolAddress { protocol, address, port }))
            }
            _ => None,
        }
    }
}

impl Endpoint<'_> {
    /// The rule of [`super::MonitorList::shares_a_monitor_with`] for two endpoints.
    pub(super) fn is_of_the_same_monitor_as(&self, other: &Endpoint<'_>) -> bool {
        let own = |port| matches!(port, V1_PORT | V2_PORT);
        self.address.is_same_host_as(other.address)
            && match (self.port, other.port) {
                (Some(ours), Some(theirs)) => ours == theirs || (own(ours) && own(theirs)),
                _ => true,
            }
    }

    /// Whether Ceph's monitor map would hold the same protocol, address and port twice.
    pub(super) fn collides_with(&self, other: &Endpoint<'_>) -> bool {
        let doors = other.doors();
        self.address.is_same_host_as(other.address)
            && self.doors().iter().any(|d| doors.contains(d))
    }

    /// What a Ceph client makes of it: without a prefix 6789 is v1, 3300 is v2, any other port is
    /// tried as both, and without a port it is one of each.
    fn doors(&self) -> Vec<(Protocol, u16)> {
        match (self.protocol, self.port) {
            (Protocol::Any, None) => vec![(Protocol::V2, V2_PORT), (Protocol::V1, V1_PORT)],
            (Protocol::Any, Some(V1_PORT)) => vec![(Protocol::V1, V1_PORT)],
            (Protocol::Any, Some(V2_PORT)) => vec![(Protocol::V2, V2_PORT)],
            (Protocol::Any, Some(port)) => vec![(Protocol::V2, port), (Protocol::V1, port)],
            (protocol, Some(port)) => vec![(protocol, port)],
            (protocol, None) => {
                vec![(protocol, if protocol == Protocol::V1 { V1_PORT } else { V2_PORT })]
            }
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
            Self::Any => "any",
        })
    }
}

impl fmt::Display for ProtocolAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.protocol, self.address.bracketed())?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl fmt::Display for MonitorEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain { address, port } => {
                f.write_str(&address.bracketed())?;
                port.map_or(Ok(()), |port| write!(f, ":{port}"))
            }
            Self::Prefixed(member) => write!(f, "{member}"),
            Self::Vector(members) => {
                let members: Vec<String> = members.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", members.join(","))
            }
        }
    }
}
