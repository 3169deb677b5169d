//! A storage pool of libvirt: its kind and where it is. Nothing of what it contains.

use crate::disk::{Auth, Host, read_auths, read_hosts};
use crate::document::{Document, ElementId};
use crate::malformed::{MalformedRule, MalformedXml};

/// The XML of one storage pool, with the facts read from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoragePoolXml {
    /// `type=`: `dir`, `netfs`, `rbd`, ...
    pub kind: String,
    /// `<name>`.
    pub name: String,
    /// `<path>` of `<target>`.
    pub target_path: Option<String>,
    /// `<name>` of `<source>`: the Ceph pool of an RBD pool.
    pub source_name: Option<String>,
    /// `<host>` elements of `<source>`, in order.
    pub hosts: Vec<Host>,
    /// `<auth>` of `<source>`.
    pub auth: Option<Auth>,
}

impl StoragePoolXml {
    /// Parses the text and reads the facts.
    ///
    /// # Errors
    /// [`MalformedXml`] for every text [`Document::parse`] refuses, and when the root is not
    /// libvirt's `<pool>`.
    pub fn parse(text: &str) -> Result<Self, MalformedXml> {
        let document = Document::parse(text)?;
        let root = document.root();
        if !document.is(root, "pool") {
            let start = document.element(root).span.start;
            let found = document.root_name().to_owned();
            let rule = MalformedRule::UnexpectedRoot { found, expected: "pool" };
            return Err(MalformedXml::at(text, start, rule));
        }
        let value = |id: Option<ElementId>, name| {
            id.and_then(|id| document.child(id, name)).map(|child| document.string_value(child))
        };
        let source = document.child(root, "source");
        Ok(Self {
            kind: document.attribute_value(root, "type").unwrap_or_default(),
            name: value(Some(root), "name").unwrap_or_default(),
            target_path: value(document.child(root, "target"), "path"),
            source_name: value(source, "name"),
            hosts: source.map_or_else(Vec::new, |source| read_hosts(&document, source)),
            auth: read_auths(&document, None, source).into_iter().next(),
        })
    }
}
