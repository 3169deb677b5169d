//! Which other domain of this host uses a volume: asked before a move and before the source gets another name.

use volferry_xml::DomainXml;

use crate::plan::source::Named;
use crate::ports::{ErrorClass, PortError, Ports};
use crate::spec::DomainUuid;

/// A domain other than `own`, running or not, that has an image for which `is_it` holds as a disk, below a disk or
/// as the target of a block job. Looks at the live and the stored XML.
pub async fn other_user(
    ports: &Ports,
    own: &DomainUuid,
    is_it: impl Fn(&Named) -> bool,
) -> Result<Option<String>, PortError> {
    for other in ports.domains.list().await? {
        if other.uuid == *own {
            continue;
        }
        let domain = match ports.domains.observe(&other.uuid.clone().into()).await {
            Ok(domain) => domain,
            // A domain that went away meanwhile uses nothing.
            Err(error) if error.class == ErrorClass::NotFound => continue,
            Err(error) => return Err(error),
        };
        let texts = [Some(domain.live_xml), domain.inactive_xml];
        if texts.into_iter().flatten().any(|xml| uses(&xml, &is_it)) {
            return Ok(Some(other.name));
        }
    }
    Ok(None)
}

fn uses(xml: &str, is_it: impl Fn(&Named) -> bool) -> bool {
    // What cannot be read may name anything.
    let Ok(xml) = DomainXml::parse(xml) else { return true };
    xml.disks().iter().any(|disk| {
        std::iter::once(&disk.source)
            .chain(disk.backing_chain.iter().map(|layer| &layer.source))
            .chain(disk.mirror.iter().map(|mirror| &mirror.source))
            .filter_map(Named::of)
            .any(|image| is_it(&image))
    })
}
