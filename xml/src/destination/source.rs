//! Writing a new `<source>` element. Nothing of an old source is ever carried over.

use super::rewrite::Destination;
use super::{
    DestinationEncryption, DestinationHost, DestinationSource, EncryptionEngine, EncryptionFormat,
};
use crate::escape::push_attribute;

/// `type=` of the `<disk>` that has this source.
pub(super) fn disk_type(source: &DestinationSource) -> &'static str {
    match source {
        DestinationSource::Rbd { .. } => "network",
        DestinationSource::File { .. } => "file",
    }
}

/// The `<source>` element. `indentation` is the white space before it (a line end and blanks, or
/// nothing), which its children continue.
pub(super) fn source_element(destination: &Destination<'_>, indentation: &str) -> String {
    let mut start = String::from("<source");
    let mut children = Vec::new();
    match destination.source {
        DestinationSource::File { path } => push_attribute(&mut start, "file", path),
        DestinationSource::Rbd { name, hosts, user, secret_uuid } => {
            push_attribute(&mut start, "protocol", "rbd");
            push_attribute(&mut start, "name", name);
            children.extend(hosts.iter().map(host_element));
            if let Some(user) = user {
                children.push(auth_element(user, secret_uuid.as_deref()));
            }
        }
    }
    children.extend(destination.encryption.map(encryption_element));
    if children.is_empty() {
        return format!("{start}/>");
    }
    let child_indentation =
        if indentation.is_empty() { String::new() } else { format!("{indentation}  ") };
    let children: String =
        children.iter().map(|child| format!("{child_indentation}{child}")).collect();
    format!("{start}>{children}{indentation}</source>")
}

fn host_element(host: &DestinationHost) -> String {
    let mut element = String::from("<host");
    push_attribute(&mut element, "name", &host.name);
    if let Some(port) = host.port {
        push_attribute(&mut element, "port", &port.to_string());
    }
    element + "/>"
}

/// Under `<source>`, the place libvirt prefers since 3.9.
fn auth_element(user: &str, secret_uuid: Option<&str>) -> String {
    let mut element = String::from("<auth");
    push_attribute(&mut element, "username", user);
    match secret_uuid {
        Some(uuid) => {
            element.push_str("><secret type='ceph'");
            push_attribute(&mut element, "uuid", uuid);
            element + "/></auth>"
        }
        None => element + "/>",
    }
}

fn encryption_element(encryption: &DestinationEncryption) -> String {
    let mut element = String::from("<encryption");
    let format = match encryption.format {
        EncryptionFormat::Luks => "luks",
        EncryptionFormat::Luks2 => "luks2",
    };
    push_attribute(&mut element, "format", format);
    if encryption.engine == EncryptionEngine::Librbd {
        push_attribute(&mut element, "engine", "librbd");
    }
    element.push_str("><secret type='passphrase'");
    push_attribute(&mut element, "uuid", &encryption.secret_uuid);
    element + "/></encryption>"
}
