//! Where the data of a disk, a backing layer or a mirror are: `type=` and `<source>` together.

use crate::document::{Document, ElementId};

/// The place named by `type=` and `<source>`.
///
/// `type=` alone decides which attributes of `<source>` count; without it libvirt assumes a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// No medium: no `<source>`, or one without the attribute its type needs.
    None,
    /// `type='file'`.
    File {
        /// `file=`.
        path: String,
        /// `<dataStore>`: the file holds only qcow2 metadata, the data are elsewhere.
        has_data_store: bool,
    },
    /// `type='block'`.
    Block {
        /// `dev=`.
        dev: String,
    },
    /// `type='dir'`.
    Dir {
        /// `dir=`.
        path: String,
    },
    /// `type='network'`.
    Network {
        /// `protocol=`: `rbd`, `nbd`, `gluster`, `iscsi`, `https`, ...
        protocol: String,
        /// `name=`; for RBD pool, namespace if any, and image.
        name: Option<String>,
        /// `<host>` elements in order.
        hosts: Vec<Host>,
        /// `<config file=>`: a ceph.conf of its own.
        config: Option<String>,
        /// `<snapshot name=>`: the disk is a snapshot of the image.
        snapshot: Option<String>,
        /// `query=` of HTTP sources.
        query: Option<String>,
    },
    /// `type='volume'`: a volume of a libvirt storage pool.
    Volume {
        /// `pool=`.
        pool: String,
        /// `volume=`.
        volume: String,
    },
    /// `type='nvme'`: a namespace of a host device.
    Nvme,
    /// `type='vhostuser'`: the data are with another process.
    Vhostuser,
    /// `type='vhostvdpa'`.
    VhostVdpa,
    /// A type this crate does not know.
    Other(String),
}

/// One `<host>` of a network source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Host {
    /// `name=`: a host name or a bare address.
    pub name: Option<String>,
    /// `port=`.
    pub port: Option<String>,
    /// `transport=`: `tcp`, `rdma` or `unix`.
    pub transport: Option<String>,
    /// `socket=`, with transport `unix`.
    pub socket: Option<String>,
}

impl Source {
    /// The source in a few words, for messages.
    pub fn describe(&self) -> String {
        match self {
            Source::None => "no source".to_owned(),
            Source::File { path, has_data_store: false } => format!("file {path}"),
            Source::File { path, has_data_store: true } => {
                format!("file {path} with a separate data store")
            }
            Source::Block { dev } => format!("block device {dev}"),
            Source::Dir { path } => format!("directory {path}"),
            Source::Network { protocol, name, snapshot, .. } => {
                let name = name.as_deref().unwrap_or("without a name");
                match (protocol.as_str(), snapshot) {
                    ("rbd", None) => format!("rbd image {name}"),
                    ("rbd", Some(snapshot)) => format!("snapshot {snapshot} of rbd image {name}"),
                    _ => format!("{protocol} network source {name}"),
                }
            }
            Source::Volume { pool, volume } => {
                format!("volume {volume} of libvirt storage pool {pool}")
            }
            Source::Nvme => "host nvme namespace".to_owned(),
            Source::Vhostuser => "vhost-user backend".to_owned(),
            Source::VhostVdpa => "vhost-vdpa device".to_owned(),
            Source::Other(kind) => format!("source of unknown type {kind}"),
        }
    }

    /// The name an operator can find a disk by: path, device, image, or pool and volume.
    pub fn reference(&self) -> Option<String> {
        match self {
            Source::File { path, .. } | Source::Dir { path } => Some(path.clone()),
            Source::Block { dev } => Some(dev.clone()),
            Source::Network { name, .. } => name.clone(),
            Source::Volume { pool, volume } => Some(format!("{pool}/{volume}")),
            _ => None,
        }
    }
}

/// Reads `type=` and the first `<source>` of `owner` (a disk, a backing store or a mirror).
pub(super) fn read_source(document: &Document, owner: ElementId) -> Source {
    let kind = document.attribute_value(owner, "type").unwrap_or_else(|| "file".to_owned());
    match kind.as_str() {
        "nvme" => return Source::Nvme,
        "vhostuser" => return Source::Vhostuser,
        "vhostvdpa" => return Source::VhostVdpa,
        "file" | "block" | "dir" | "network" | "volume" => {}
        _ => return Source::Other(kind),
    }
    let Some(element) = document.child(owner, "source") else { return Source::None };
    let value = |name| document.attribute_value(element, name);
    // libvirt takes an empty path for none (`virDomainStorageSourceParse`).
    let path = |name| value(name).filter(|path| !path.is_empty());
    let read = match kind.as_str() {
        "file" => path("file").map(|path| Source::File {
            path,
            has_data_store: document.child(element, "dataStore").is_some(),
        }),
        "block" => path("dev").map(|dev| Source::Block { dev }),
        "dir" => path("dir").map(|path| Source::Dir { path }),
        "volume" => {
            value("pool").zip(value("volume")).map(|(pool, volume)| Source::Volume { pool, volume })
        }
        _ => value("protocol").map(|protocol| read_network(document, element, protocol)),
    };
    read.unwrap_or(Source::None)
}

/// The `<host>` elements of a `<source>`.
pub(crate) fn read_hosts(document: &Document, source: ElementId) -> Vec<Host> {
    let hosts = document.children(source, "host").map(|host| {
        let value = |name| document.attribute_value(host, name);
        Host {
            name: value("name"),
            port: value("port"),
            transport: value("transport"),
            socket: value("socket"),
        }
    });
    hosts.collect()
}

fn read_network(document: &Document, element: ElementId, protocol: String) -> Source {
    let child_value = |child, attribute| {
        document.child(element, child).and_then(|id| document.attribute_value(id, attribute))
    };
    Source::Network {
        protocol,
        name: document.attribute_value(element, "name").filter(|name| !name.is_empty()),
        hosts: read_hosts(document, element),
        config: child_value("config", "file"),
        snapshot: child_value("snapshot", "name"),
        query: document.attribute_value(element, "query"),
    }
}
