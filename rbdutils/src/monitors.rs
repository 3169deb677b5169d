//! Monitor lists: one parser for what people paste, three outputs (ceph.conf, QEMU, libvirt).
//!
//! Here live the list as a whole, its outputs and the comparison of two lists. How one entry is
//! read is in `entry`, addresses and ports are in `address`, splitting is in `split`.
//! No name is resolved and no cluster is asked: that belongs to the native part.

mod address;
mod entry;
mod error;
mod split;

use std::fmt;

pub use address::MonitorAddress;
use entry::Endpoint;
pub use entry::{MonitorEntry, Protocol, ProtocolAddress};
pub use error::{EntryRule, MonitorError};

/// The monitors of one cluster, in the order they were given, each checked.
///
/// Ceph reads many malformed lists without a complaint: a port above 65535 wraps around, an IPv6
/// address swallows a port glued to it, a shell quote becomes part of a name. What would be misread
/// is an error here; what remains is written so that Ceph, QEMU and libvirt read the same.
///
/// ```
/// use rbdutils::monitors::MonitorList;
///
/// let list = MonitorList::parse("192.0.2.11, 2001:db8::12 mon3.example.com:3300", 6789)?;
/// assert_eq!(list.to_ceph_conf(), "192.0.2.11:6789,[2001:db8::12]:6789,mon3.example.com:3300");
///
/// // Port 0 leaves the choice to Ceph, which tries 3300 (msgr v2) and 6789 (msgr v1).
/// assert_eq!(MonitorList::parse("192.0.2.11", 0)?.to_ceph_conf(), "192.0.2.11");
///
/// // This IS an IPv6 address, no address with a port: it is bracketed whole.
/// assert_eq!(MonitorList::parse("2001:db8::1:6789", 3300)?.to_ceph_conf(), "[2001:db8::1:6789]:3300");
///
/// // Ceph would wrap this port to 34463.
/// assert!(MonitorList::parse("192.0.2.11:99999", 6789).is_err());
/// # Ok::<(), rbdutils::monitors::MonitorError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MonitorList {
    entries: Vec<MonitorEntry>,
}

/// One `<host>` of a libvirt disk or storage pool.
///
/// `Display` writes `name`, a tab and the port; without a port the name alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MonitorHost {
    /// Host name or address; IPv6 without brackets, because QEMU adds them itself.
    pub name: String,
    /// TCP port; `None` leaves it to Ceph (libvirt then hands port 0 to QEMU).
    pub port: Option<u16>,
}

impl fmt::Display for MonitorHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}\t{port}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl MonitorList {
    /// Reads a list as people write it: entries separated by commas, semicolons, spaces, tabs or
    /// line ends, but never inside a `[...]` vector.
    ///
    /// `default_port` goes to each plain entry that names none; 0 leaves the port to Ceph. Entries
    /// with a messenger prefix (`v1:`, `v2:`, `any:`) and vectors never get it. An entry's own port
    /// 0 also means "leave it to Ceph". A nonce of 0 (`:6789/0`, as `ceph mon dump` prints) is
    /// dropped: a monitor's nonce is always 0.
    ///
    /// # Errors
    /// [`MonitorError`] names the entry and the rule it breaks; an empty list is an error because
    /// Ceph would silently fall back to DNS SRV records or the host's ceph.conf.
    ///
    /// ```
    /// use rbdutils::monitors::MonitorList;
    ///
    /// // A vector is one monitor; the comma inside separates its addresses, not monitors.
    /// let list = MonitorList::parse("[v2:192.0.2.11:3300/0,v1:192.0.2.11:6789/0] 192.0.2.12", 0)?;
    /// assert_eq!(list.to_ceph_conf(), "[v2:192.0.2.11:3300,v1:192.0.2.11:6789],192.0.2.12");
    ///
    /// let error = MonitorList::parse("f=192.0.2.11:6789", 0).unwrap_err();
    /// assert!(error.to_string().contains("f=192.0.2.11:6789"));
    /// # Ok::<(), rbdutils::monitors::MonitorError>(())
    /// ```
    pub fn parse(text: &str, default_port: u32) -> Result<Self, MonitorError> {
        Self::from_texts([text].into_iter(), default_port)
    }

    /// The same for a list that comes in pieces, such as an array of a configuration file. Each
    /// piece may hold several entries; a bracket must close in the piece that opened it.
    ///
    /// # Errors
    /// As [`MonitorList::parse`].
    pub fn from_entries(entries: &[String], default_port: u32) -> Result<Self, MonitorError> {
        Self::from_texts(entries.iter().map(String::as_str), default_port)
    }

    fn from_texts<'a>(
        texts: impl Iterator<Item = &'a str>,
        default_port: u32,
    ) -> Result<Self, MonitorError> {
        let default_port =
            u16::try_from(default_port).map_err(|_| MonitorError::DefaultPort(default_port))?;
        let default_port = (default_port != 0).then_some(default_port);
        let mut entries = Vec::new();
        for text in texts {
            for token in split::split(text)? {
                let entry = entry::parse(token, default_port)
                    .map_err(|rule| MonitorError::Entry { entry: token.to_owned(), rule })?;
                push_entry(&mut entries, entry)?;
            }
        }
        check_names(&entries)?;
        if entries.is_empty() { Err(MonitorError::Empty) } else { Ok(Self { entries }) }
    }

    /// The monitors in the order they were given.
    pub fn entries(&self) -> &[MonitorEntry] {
        &self.entries
    }

    /// The value of `mon_host` for a ceph.conf file or `rados_conf_set`: joined with commas,
    /// because a semicolon starts a comment in a ceph.conf file.
    pub fn to_ceph_conf(&self) -> String {
        self.join(",", MonitorEntry::to_string)
    }

    /// The value of `mon_host=` inside QEMU's `rbd:` string: each monitor escaped, joined by `\;`.
    ///
    /// IPv6 is always bracketed: libvirt's own reader of such strings takes the first colon of a
    /// bare address for the start of a port.
    ///
    /// ```
    /// use rbdutils::monitors::MonitorList;
    ///
    /// let list = MonitorList::parse("192.0.2.11,2001:db8::12", 6789)?;
    /// assert_eq!(list.to_qemu_mon_host(), r"192.0.2.11\:6789\;[2001\:db8\:\:12]\:6789");
    /// # Ok::<(), rbdutils::monitors::MonitorError>(())
    /// ```
    pub fn to_qemu_mon_host(&self) -> String {
        self.join(r"\;", |entry| crate::qemu::escape(&entry.to_string()))
    }

    /// The `<host>` elements of a libvirt disk: bare names and numeric ports.
    ///
    /// libvirt cannot express a messenger prefix or a vector. Where the ports are Ceph's own (3300
    /// for v2, 6789 for v1) the bare name without a port says the same, once per address.
    ///
    /// # Errors
    /// [`MonitorError::NotALibvirtHost`] for a prefixed entry or vector on other ports.
    ///
    /// ```
    /// use rbdutils::monitors::MonitorList;
    ///
    /// let hosts = MonitorList::parse("[2001:db8::11]:3300,mon2", 6789)?.to_libvirt_hosts()?;
    /// assert_eq!((hosts[0].name.as_str(), hosts[0].port), ("2001:db8::11", Some(3300)));
    /// assert_eq!((hosts[1].name.as_str(), hosts[1].port), ("mon2", Some(6789)));
    ///
    /// let vector = MonitorList::parse("[v2:192.0.2.11:3300,v1:192.0.2.11:6789]", 6789)?;
    /// assert_eq!(vector.to_libvirt_hosts()?[0].to_string(), "192.0.2.11");
    /// # Ok::<(), rbdutils::monitors::MonitorError>(())
    /// ```
    pub fn to_libvirt_hosts(&self) -> Result<Vec<MonitorHost>, MonitorError> {
        let mut hosts = Vec::new();
        for entry in &self.entries {
            match entry {
                MonitorEntry::Plain { address, port } => {
                    hosts.push(MonitorHost { name: address.to_string(), port: *port });
                }
                MonitorEntry::Prefixed(member) => push_bare_host(&mut hosts, entry, member)?,
                MonitorEntry::Vector(members) => {
                    for member in members {
                        push_bare_host(&mut hosts, entry, member)?;
                    }
                }
            }
        }
        Ok(hosts)
    }

    /// Whether both lists name a monitor in common, and so the same cluster.
    ///
    /// Addresses are compared by value (IPv6 in any spelling, an IPv4-mapped address as IPv4), names
    /// without regard to case or a final dot; nothing is resolved, so a name never equals an address.
    /// Two entries on one host are the same monitor when
    /// - one of them leaves the port to Ceph, or
    /// - they have a port in common, or
    /// - both use Ceph's own ports: 3300 (msgr v2) and 6789 (msgr v1) are two doors of one monitor.
    ///
    /// Two different ports of one's own choosing on one host are two monitors: clusters that share a
    /// machine look like that. No monitor in common does not prove different clusters; only equal
    /// cluster ids (fsid) do prove the same one.
    ///
    /// ```
    /// use rbdutils::monitors::MonitorList;
    ///
    /// let list = |text| MonitorList::parse(text, 0).unwrap();
    /// assert!(list("mon1:3300,mon2:3300").shares_a_monitor_with(&list("MON2.:6789")));
    /// assert!(list("2001:db8::1").shares_a_monitor_with(&list("[2001:DB8:0::1]:40001")));
    /// assert!(!list("127.0.0.1:40001").shares_a_monitor_with(&list("127.0.0.1:40002")));
    /// ```
    pub fn shares_a_monitor_with(&self, other: &MonitorList) -> bool {
        let theirs: Vec<Endpoint<'_>> = other.entries.iter().flat_map(|e| e.endpoints()).collect();
        self.entries
            .iter()
            .flat_map(|e| e.endpoints())
            .any(|ours| theirs.iter().any(|theirs| ours.is_of_the_same_monitor_as(theirs)))
    }

    /// The monitors that a client tries as v2 and v1, for one of them only; `None` if there are none.
    #[cfg(feature = "native")]
    pub(crate) fn limited_to(&self, protocol: Protocol) -> Option<Self> {
        let entries: Vec<_> = self.entries.iter().filter_map(|e| e.limited_to(protocol)).collect();
        (!entries.is_empty()).then_some(Self { entries })
    }

    fn join(&self, separator: &str, write: impl Fn(&MonitorEntry) -> String) -> String {
        self.entries.iter().map(write).collect::<Vec<_>>().join(separator)
    }
}

/// The form of [`MonitorList::to_ceph_conf`].
impl fmt::Display for MonitorList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_ceph_conf())
    }
}

/// Appends an entry; repeated plain entries stay (Ceph merges them), a repeated vector is dropped.
///
/// A Ceph client aborts its whole process (assertion in `MonMap::add`) when a vector of several
/// addresses repeats an address of an earlier entry: that client may be QEMU with a guest in it.
fn push_entry(entries: &mut Vec<MonitorEntry>, entry: MonitorEntry) -> Result<(), MonitorError> {
    if matches!(&entry, MonitorEntry::Vector(members) if members.len() > 1) {
        if entries.contains(&entry) {
            return Ok(());
        }
        let known = |endpoint: &Endpoint<'_>| {
            entries.iter().flat_map(|e| e.endpoints()).any(|e| e.collides_with(endpoint))
        };
        if entry.endpoints().iter().any(known) {
            let rule = EntryRule::RepeatsAnAddress;
            return Err(MonitorError::Entry { entry: entry.to_string(), rule });
        }
    }
    entries.push(entry);
    Ok(())
}

/// Ceph resolves either a list of names and plain addresses or none: with a single prefix in it, it
/// takes the whole text for names.
fn check_names(entries: &[MonitorEntry]) -> Result<(), MonitorError> {
    let is_plain = |entry: &MonitorEntry| matches!(entry, MonitorEntry::Plain { .. });
    let is_name = |entry: &&MonitorEntry| {
        matches!(entry, MonitorEntry::Plain { address: MonitorAddress::Name(_), .. })
    };
    match entries.iter().find(is_name) {
        Some(name) if !entries.iter().all(is_plain) => {
            Err(MonitorError::Entry { entry: name.to_string(), rule: EntryRule::NameBesidePrefix })
        }
        _ => Ok(()),
    }
}

fn push_bare_host(
    hosts: &mut Vec<MonitorHost>,
    entry: &MonitorEntry,
    member: &ProtocolAddress,
) -> Result<(), MonitorError> {
    if !member.is_on_default_port() {
        return Err(MonitorError::NotALibvirtHost { entry: entry.to_string() });
    }
    let host = MonitorHost { name: member.address.to_string(), port: None };
    if !hosts.contains(&host) {
        hosts.push(host);
    }
    Ok(())
}
