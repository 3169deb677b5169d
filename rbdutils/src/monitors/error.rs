//! Why a monitor list is refused: the list's errors and the rules an entry can break.
//! Wording only; the checks are where the text is read.

/// Why a monitor list cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MonitorError {
    /// No entry at all: Ceph would fall back to DNS SRV records or the host's ceph.conf.
    #[error("the monitor list is empty")]
    Empty,
    /// The port for entries without one is no TCP port.
    #[error("the default monitor port {0} is above 65535")]
    DefaultPort(u32),
    /// A bracket without its partner; where the entry ends cannot be told.
    #[error("unbalanced brackets in the monitor list at {text:?}")]
    UnbalancedBrackets {
        /// The text from the beginning of the entry in question.
        text: String,
    },
    /// One entry breaks a rule.
    #[error("monitor {entry:?}: {rule}")]
    Entry {
        /// The entry as it was given.
        entry: String,
        /// The rule it breaks.
        rule: EntryRule,
    },
    /// The entry is right for Ceph but has no libvirt form.
    #[error(
        "monitor {entry:?} cannot be a libvirt host: libvirt knows no messenger prefix, and without \
         one only the ports 3300 (v2) and 6789 (v1) mean the same; name the v2 port as host:port"
    )]
    NotALibvirtHost {
        /// The entry, normalised.
        entry: String,
    },
}

/// The rule of Ceph's `mon_host` that an entry breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryRule {
    /// Control characters, or letters outside ASCII (Ceph does not translate those names).
    #[error("only printable ASCII characters can be part of a monitor")]
    Character,
    /// A quote of a shell, a template or JSON.
    #[error("quotes are not part of a monitor list")]
    Quote,
    /// A backslash: the text is already escaped for QEMU; escaped twice, Ceph refuses it.
    #[error("a backslash: give the list as it is, not escaped")]
    Escaped,
    /// `name=address` or a pasted `key = value`.
    #[error("an equals sign: give addresses only, no names or keys before them")]
    Assignment,
    /// An IPv6 zone.
    #[error("ceph does not understand zone ids (%)")]
    Zone,
    /// The path of a CephFS device string.
    #[error("a path after the address is not part of a monitor")]
    Path,
    /// A nonce that is not 0.
    #[error("the text after the slash must be the nonce 0, as every monitor has it")]
    Nonce,
    /// Not decimal digits, or nothing at all.
    #[error("the port is not a number")]
    Port,
    /// Above 65535.
    #[error("the port is above 65535")]
    PortRange,
    /// An address that already had a port got another.
    #[error("two ports")]
    TwoPorts,
    /// Two or more colons, but no IPv6 address.
    #[error("not an IPv6 address; write an IPv6 address with a port as [address]:port")]
    Ipv6,
    /// `::ffff:192.0.2.1` and its kind.
    #[error("an IPv6 address with an embedded IPv4 address; write the IPv4 address itself")]
    EmbeddedIpv4,
    /// `::` or `0.0.0.0`.
    #[error("the unspecified address is no monitor")]
    Unspecified,
    /// Brackets nested, doubled, or around something that takes none.
    #[error("brackets go around an IPv6 address or a list of v1: and v2: addresses")]
    Brackets,
    /// Text behind a closing bracket that is no port.
    #[error("unexpected text after the closing bracket")]
    AfterBracket,
    /// A name that no resolver accepts.
    #[error("neither an address nor a host name")]
    Name,
    /// `999.1.1.1`, `192.0.2.011`, `192.0.2`: Ceph reads octal and shortened forms, or resolves it.
    #[error("not an IPv4 address: four decimal numbers from 0 to 255 without leading zeros")]
    Ipv4,
    /// A name where Ceph takes addresses only.
    #[error("behind v1:, v2: and any: only an address can stand, no host name")]
    NameBehindPrefix,
    /// A name in a list that also has prefixes: Ceph then fails to read the whole list.
    #[error("a host name cannot stand in one list with v1:, v2: or any: addresses")]
    NameBesidePrefix,
    /// A member of a vector without its prefix.
    #[error("each address of a vector needs the prefix v1: or v2:")]
    VectorMember,
    /// Ceph takes port 0 literally in a vector of several addresses.
    #[error("each address of a vector needs its port: ceph fills in none there")]
    VectorPort,
    /// Two members with the same protocol and address family.
    #[error("a vector holds the addresses of one monitor: one v1 and one v2 for IPv4 and for IPv6")]
    SeveralMonitors,
    /// A vector with an address that an earlier entry has: the Ceph library aborts the process.
    #[error("repeats an address of an earlier entry, which makes a ceph client abort")]
    RepeatsAnAddress,
}
