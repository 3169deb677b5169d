//! From the element of a disk to its facts.

use super::source::read_source;
use super::{
    Auth, BackingLayer, DeviceKind, Disk, Driver, Encryption, IothreadMapping, Mirror, Placement,
    Source,
};
use crate::document::{Document, ElementId};

/// Old configurations write the target as `ioemu:hda`; libvirt cuts this off.
const OLD_TARGET_PREFIX: &str = "ioemu:";

/// Reads one `<disk>` element.
pub(crate) fn read_disk(document: &Document, id: ElementId) -> Disk {
    let source = document.child(id, "source");
    let in_source = |name| source.is_some_and(|source| document.child(source, name).is_some());
    let source_value = |name| source.and_then(|source| document.attribute_value(source, name));
    let present = |name| document.child(id, name).is_some();
    let text = |name| document.child(id, name).map(|child| document.string_value(child));
    let child_value = |child, attribute| child_attribute(document, id, child, attribute);
    let target = child_value("target", "dev").unwrap_or_default();
    let (backing_chain, backing_complete) = read_backing_chain(document, id);
    Disk {
        target: target.strip_prefix(OLD_TARGET_PREFIX).unwrap_or(&target).to_owned(),
        bus: child_value("target", "bus"),
        device: read_device(document, id),
        source: read_source(document, id),
        driver: read_driver(document, id),
        backing_chain,
        backing_known: present("backingStore"),
        backing_complete,
        mirror: document.child(id, "mirror").map(|mirror| read_mirror(document, mirror)),
        encryption: read_encryption(document, id, source),
        auths: read_auths(document, Some(id), source),
        shareable: present("shareable"),
        transient: present("transient"),
        readonly: present("readonly"),
        serial: text("serial"),
        wwn: text("wwn"),
        alias: child_value("alias", "name"),
        snapshot: document.attribute_value(id, "snapshot"),
        boot_order: child_value("boot", "order"),
        iothreads: read_iothreads(document, id),
        source_index: source_value("index"),
        slices: in_source("slices"),
        reservations: in_source("reservations"),
        data_store: in_source("dataStore"),
        fd_group: source_value("fdgroup"),
        element: id,
    }
}

fn child_attribute(
    document: &Document,
    id: ElementId,
    child: &str,
    attribute: &str,
) -> Option<String> {
    document.child(id, child).and_then(|child| document.attribute_value(child, attribute))
}

fn read_device(document: &Document, id: ElementId) -> DeviceKind {
    match document.attribute_value(id, "device").as_deref() {
        None | Some("disk") => DeviceKind::Disk,
        Some("cdrom") => DeviceKind::Cdrom,
        Some("floppy") => DeviceKind::Floppy,
        Some("lun") => DeviceKind::Lun,
        Some(other) => DeviceKind::Other(other.to_owned()),
    }
}

fn read_driver(document: &Document, id: ElementId) -> Driver {
    let Some(element) = document.child(id, "driver") else { return Driver::default() };
    let value = |name| document.attribute_value(element, name);
    let attributes = document.element(element).attributes.iter().map(|attribute| {
        let name = document.text()[attribute.name.clone()].to_owned();
        (name, document.decoded_value(attribute))
    });
    Driver {
        name: value("name"),
        format: value("type"),
        cache: value("cache"),
        io: value("io"),
        discard: value("discard"),
        detect_zeroes: value("detect_zeroes"),
        error_policy: value("error_policy"),
        rerror_policy: value("rerror_policy"),
        iothread: value("iothread"),
        queues: value("queues"),
        attributes: attributes.collect(),
    }
}

fn read_iothreads(document: &Document, id: ElementId) -> Vec<IothreadMapping> {
    let list = document.child(id, "driver").and_then(|driver| document.child(driver, "iothreads"));
    let Some(list) = list else { return Vec::new() };
    let number = |id| document.attribute_value(id, "id");
    let mapping = |thread| {
        let queues = document.children(thread, "queue").filter_map(number).collect();
        IothreadMapping { id: number(thread).unwrap_or_default(), queues }
    };
    document.children(list, "iothread").map(mapping).collect()
}

/// The named layers, and whether the chain is closed by an empty `<backingStore/>`.
fn read_backing_chain(document: &Document, disk: ElementId) -> (Vec<BackingLayer>, bool) {
    let mut layers = Vec::new();
    let mut next = document.child(disk, "backingStore");
    while let Some(layer) = next {
        // libvirt takes an element without a type for the end of the chain.
        if document.attribute(layer, "type").is_none() {
            return (layers, true);
        }
        let source = document.child(layer, "source");
        layers.push(BackingLayer {
            format: child_attribute(document, layer, "format", "type"),
            source: read_source(document, layer),
            encrypted: source.is_some_and(|source| document.child(source, "encryption").is_some()),
        });
        next = document.child(layer, "backingStore");
    }
    (layers, false)
}

fn read_mirror(document: &Document, mirror: ElementId) -> Mirror {
    let value = |name| document.attribute_value(mirror, name);
    // libvirt before 1.2.6 wrote the destination into attributes of <mirror>.
    let source = match (read_source(document, mirror), value("file")) {
        (Source::None, Some(path)) => Source::File { path, has_data_store: false },
        (source, _) => source,
    };
    Mirror {
        job: value("job"),
        ready: value("ready"),
        format: child_attribute(document, mirror, "format", "type").or_else(|| value("format")),
        source,
    }
}

fn read_encryption(
    document: &Document,
    disk: ElementId,
    source: Option<ElementId>,
) -> Option<Encryption> {
    let places = [(Some(disk), Placement::Disk), (source, Placement::Source)];
    places.into_iter().find_map(|(owner, place)| {
        let element = document.child(owner?, "encryption")?;
        Some(Encryption {
            format: document.attribute_value(element, "format"),
            engine: document.attribute_value(element, "engine"),
            secret_uuid: child_attribute(document, element, "secret", "uuid"),
            secret_usage: child_attribute(document, element, "secret", "usage"),
            place,
        })
    })
}

/// The `<auth>` elements directly under a disk and under its source.
pub(crate) fn read_auths(
    document: &Document,
    disk: Option<ElementId>,
    source: Option<ElementId>,
) -> Vec<Auth> {
    let mut auths = Vec::new();
    for (owner, place) in [(disk, Placement::Disk), (source, Placement::Source)] {
        let Some(owner) = owner else { continue };
        auths.extend(document.children(owner, "auth").map(|auth| {
            let secret = |attribute| child_attribute(document, auth, "secret", attribute);
            Auth {
                place,
                username: document.attribute_value(auth, "username"),
                secret_type: secret("type"),
                uuid: secret("uuid"),
                usage: secret("usage"),
            }
        }));
    }
    auths
}
