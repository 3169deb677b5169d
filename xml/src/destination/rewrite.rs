//! One `<disk>` element into another, by splices over the original bytes.

use std::ops::Range;

use super::driver::{edit_driver, new_driver};
use super::source::{disk_type, source_element};
use super::{DestinationEncryption, DestinationFormat, DestinationSource};
use crate::disk::Disk;
use crate::document::{Document, ElementId};
use crate::domain::DomainXml;
use crate::splice::Splices;

/// What the new element is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A fragment of its own, handed to a block copy.
    BlockCopy,
    /// A disk that stays in its configuration.
    Configuration,
}

/// All there is to know about the new volume.
#[derive(Debug, Clone, Copy)]
pub(super) struct Destination<'a> {
    pub(super) source: &'a DestinationSource,
    pub(super) format: DestinationFormat,
    pub(super) encryption: Option<&'a DestinationEncryption>,
}

/// Children that describe the old volume or a job on it.
const OF_THE_OLD_VOLUME: [&str; 5] =
    ["backingStore", "mirror", "auth", "encryption", "privateData"];
/// Children a fragment for a copy must not have: names and numbers of the running device, and ways
/// of sharing or protecting the old volume.
const OF_THE_RUNNING_DISK: [&str; 5] = ["alias", "acpi", "shareable", "transient", "readonly"];

/// The element of `disk`, rewritten for `destination`.
pub(super) fn rewrite(
    domain: &DomainXml,
    disk: &Disk,
    destination: &Destination<'_>,
    purpose: Purpose,
) -> String {
    assert!(domain.disks().contains(disk), "a disk is rewritten in the domain it was read from");
    let document = domain.document();
    let id = disk.element;
    let mut splices = Splices::default();
    set_attribute(document, id, "type", disk_type(destination.source), &mut splices);
    for child in OF_THE_OLD_VOLUME {
        remove_children(document, id, child, &mut splices);
    }
    if purpose == Purpose::BlockCopy {
        for child in OF_THE_RUNNING_DISK {
            remove_children(document, id, child, &mut splices);
        }
        make_independent(document, id, &mut splices);
    }
    write_driver_and_source(document, id, destination, &mut splices);
    splices.apply(document.text(), document.element(id).span.clone())
}

/// Driver and source: edited where they stand, written at the front where they are missing.
fn write_driver_and_source(
    document: &Document,
    id: ElementId,
    destination: &Destination<'_>,
    splices: &mut Splices,
) {
    let content = document.element(id).content.start;
    let indentation = child_indentation(document, id);
    let mut missing = String::new();
    let mut source_position = content;
    match document.child(id, "driver") {
        Some(driver) => {
            edit_driver(document, driver, destination.format, splices);
            source_position = document.element(driver).span.end;
        }
        None => missing = format!("{indentation}{}", new_driver(destination.format)),
    }
    match document.child(id, "source") {
        Some(source) => {
            let span = document.element(source).span.clone();
            let indentation = line_indentation(document, span.start);
            splices.replace(span, source_element(destination, indentation));
        }
        None if source_position == content => {
            missing += &format!("{indentation}{}", source_element(destination, indentation));
        }
        None => {
            let source = format!("{indentation}{}", source_element(destination, indentation));
            splices.insert(source_position, source);
        }
    }
    for repeated in ["driver", "source"] {
        for child in document.children(id, repeated).skip(1) {
            remove_element(document, child, splices);
        }
    }
    insert_at_front(document, id, &missing, splices);
}

/// Puts new children before all others; `<disk/>` becomes a pair of tags for that.
fn insert_at_front(document: &Document, id: ElementId, children: &str, splices: &mut Splices) {
    let element = document.element(id);
    if children.is_empty() {
        return;
    }
    if document.text()[element.start_tag.clone()].ends_with("/>") {
        let end = element.start_tag.end;
        splices.replace(end - 2..end, format!(">{children}</disk>"));
    } else {
        splices.insert(element.content.start, children);
    }
}

/// Makes the element stand on its own: no comments, and every prefix declared on it.
fn make_independent(document: &Document, id: ElementId, splices: &mut Splices) {
    let element = document.element(id);
    for aside in document.asides_in(&element.span) {
        // White space next to other text is part of a value and stays.
        let in_text = aside.parent.is_some_and(|parent| document.has_text(parent));
        let span = aside.span.clone();
        splices.remove(if in_text { span } else { with_leading_whitespace(document, span) });
    }
    for (prefix, uri) in document.inherited_namespaces(id) {
        // The URI is copied as written; between double quotes only a double quote could end it.
        let uri = uri.replace('"', "&quot;");
        splices.insert(element.name.end, format!(" xmlns:{prefix}=\"{uri}\""));
    }
}

/// Gives an attribute a value that needs no escaping, keeping its quotes and place.
pub(super) fn set_attribute(
    document: &Document,
    id: ElementId,
    name: &str,
    value: &str,
    splices: &mut Splices,
) {
    match document.attribute(id, name) {
        Some(attribute) => splices.replace(attribute.value.clone(), value),
        None => splices.insert(document.element(id).name.end, format!(" {name}='{value}'")),
    }
}

/// Removes an attribute and the white space before it.
pub(super) fn remove_attribute(
    document: &Document,
    id: ElementId,
    name: &str,
    splices: &mut Splices,
) {
    if let Some(attribute) = document.attribute(id, name) {
        splices.remove(with_leading_whitespace(document, attribute.span()));
    }
}

/// Removes every libvirt child `name` of `id`.
fn remove_children(document: &Document, id: ElementId, name: &str, splices: &mut Splices) {
    for child in document.children(id, name) {
        remove_element(document, child, splices);
    }
}

/// Removes an element and the white space before it.
pub(super) fn remove_element(document: &Document, id: ElementId, splices: &mut Splices) {
    let span = document.element(id).span.clone();
    splices.remove(with_leading_whitespace(document, span));
}

fn with_leading_whitespace(document: &Document, range: Range<usize>) -> Range<usize> {
    range.start - document.whitespace_before(range.start).len()..range.end
}

/// White space before the first child of `id`.
fn child_indentation(document: &Document, id: ElementId) -> &str {
    match document.element(id).children.first() {
        Some(first) => line_indentation(document, document.element(*first).span.start),
        None => "",
    }
}

/// The last line end before `at` with the blanks after it; empty when `at` does not start a line.
fn line_indentation(document: &Document, at: usize) -> &str {
    let whitespace = document.whitespace_before(at);
    match whitespace.rfind('\n') {
        Some(line) if whitespace[..line].ends_with('\r') => &whitespace[line - 1..],
        Some(line) => &whitespace[line..],
        None => "",
    }
}
