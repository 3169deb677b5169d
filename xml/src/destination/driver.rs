//! `<driver>` of the destination: the old one with another format, minus what only the old format
//! knows.

use super::DestinationFormat;
use super::rewrite::{remove_attribute, remove_element, set_attribute};
use crate::document::{Document, ElementId};
use crate::splice::Splices;

/// Attributes libvirt accepts only together with `type='qcow2'`.
const QCOW2_ATTRIBUTES: [&str; 1] = ["discard_no_unref"];
/// Children libvirt accepts only together with `type='qcow2'`.
const QCOW2_CHILDREN: [&str; 1] = ["metadata_cache"];
/// The only driver name libvirt's QEMU driver accepts.
const DRIVER_NAME: &str = "qemu";

/// The element for a disk that has no `<driver>`.
pub(super) fn new_driver(format: DestinationFormat) -> String {
    format!("<driver name='{DRIVER_NAME}' type='{}'/>", format.as_str())
}

/// Turns the existing `<driver>` into that of the destination.
pub(super) fn edit_driver(
    document: &Document,
    driver: ElementId,
    format: DestinationFormat,
    splices: &mut Splices,
) {
    set_attribute(document, driver, "name", DRIVER_NAME, splices);
    set_attribute(document, driver, "type", format.as_str(), splices);
    if format == DestinationFormat::Qcow2 {
        return;
    }
    for name in QCOW2_ATTRIBUTES {
        remove_attribute(document, driver, name, splices);
    }
    for name in QCOW2_CHILDREN {
        for child in document.children(driver, name) {
            remove_element(document, child, splices);
        }
    }
}
