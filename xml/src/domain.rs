//! A whole domain: its identity and its disks. Finding a disk lives in `domain/find.rs`, changing
//! the text in `domain/edit.rs`.

mod edit;
mod find;

use std::ops::Range;

pub use edit::EditError;
pub use find::FindDiskError;

use crate::disk::{Disk, read_disk};
use crate::document::{Document, ElementId};
use crate::malformed::{MalformedRule, MalformedXml};

/// The XML of one domain, live or inactive, with the facts read from it.
#[derive(Debug, Clone)]
pub struct DomainXml {
    document: Document,
    name: Option<String>,
    uuid: Option<String>,
    dac_label: Option<String>,
    disks: Vec<Disk>,
}

impl DomainXml {
    /// Parses the text and reads the facts.
    ///
    /// # Errors
    /// [`MalformedXml`] for every text [`Document::parse`] refuses, and when the root is not
    /// libvirt's `<domain>`.
    pub fn parse(text: &str) -> Result<DomainXml, MalformedXml> {
        let document = Document::parse(text)?;
        let root = document.root();
        if !document.is(root, "domain") {
            let start = document.element(root).span.start;
            let found = document.root_name().to_owned();
            let rule = MalformedRule::UnexpectedRoot { found, expected: "domain" };
            return Err(MalformedXml::at(text, start, rule));
        }
        let value = |name| document.child(root, name).map(|id| document.string_value(id));
        Ok(DomainXml {
            name: value("name"),
            uuid: value("uuid"),
            dac_label: read_dac_label(&document),
            disks: disk_elements(&document).map(|id| read_disk(&document, id)).collect(),
            document,
        })
    }

    /// `<name>`.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// `<uuid>`.
    pub fn uuid(&self) -> Option<&str> {
        self.uuid.as_deref()
    }

    /// `id=` of the root, which only the XML of a running domain has.
    pub fn id(&self) -> Option<String> {
        self.document.attribute_value(self.document.root(), "id")
    }

    /// `<label>` of `<seclabel model='dac'>`: user and group QEMU runs as (`+64055:+64055`).
    pub fn dac_label(&self) -> Option<&str> {
        self.dac_label.as_deref()
    }

    /// The disks of `<devices>`, in order. An element called disk anywhere else is none.
    pub fn disks(&self) -> &[Disk] {
        &self.disks
    }

    /// The text exactly as it was given.
    pub fn text(&self) -> &str {
        self.document.text()
    }

    pub(crate) fn document(&self) -> &Document {
        &self.document
    }

    pub(crate) fn element_text(&self, disk: &Disk) -> &str {
        let known = self.disks.iter().any(|own| own.element == disk.element);
        if known { &self.text()[self.span(disk)] } else { "" }
    }

    fn span(&self, disk: &Disk) -> Range<usize> {
        self.document.element(disk.element).span.clone()
    }
}

/// `domain/devices/disk` and nothing else.
fn disk_elements(document: &Document) -> impl Iterator<Item = ElementId> {
    let devices = document.children(document.root(), "devices");
    devices.flat_map(|devices| document.children(devices, "disk"))
}

fn read_dac_label(document: &Document) -> Option<String> {
    let labels = document.children(document.root(), "seclabel");
    labels
        .filter(|label| document.attribute_value(*label, "model").as_deref() == Some("dac"))
        .find_map(|label| document.child(label, "label"))
        .map(|label| document.string_value(label))
}
