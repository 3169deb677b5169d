//! Storage pools of the world's libvirt.

use volferry_xml::StoragePoolXml;

use super::state::State;
use crate::plan::libvirt_pool::{to_pool, usage_to_look_up};
use crate::ports::{ErrorClass, PortError};
use crate::spec::{Pool, PoolName};

/// One pool.
#[derive(Debug, Clone)]
pub struct StoragePool {
    /// Whether it is active.
    pub active: bool,
    /// Its XML.
    pub xml: String,
}

impl State {
    /// Those that are active and could be destinations.
    pub(super) fn active_storage_pools(&self) -> Vec<Pool> {
        let names = self.storage_pools.keys().filter_map(|name| PoolName::new(name.as_str()).ok());
        names.filter_map(|name| self.storage_pool(&name).ok().flatten()).collect()
    }

    /// As libvirt answers a lookup, a look and, where it is needed, a lookup of a secret.
    pub(super) fn storage_pool(&self, name: &PoolName) -> Result<Option<Pool>, PortError> {
        let error = |class, text: String| {
            PortError::new(class, format!("look for storage pool {name}"), text)
        };
        let Some(found) = self.storage_pools.get(name.as_str()) else { return Ok(None) };
        if !found.active {
            return Err(error(ErrorClass::Unavailable, "it is not active".to_owned()));
        }
        let unusable = |text: String| error(ErrorClass::Unsupported, text);
        let xml = StoragePoolXml::parse(&found.xml).map_err(|error| unusable(error.to_string()))?;
        let secret = match usage_to_look_up(&xml) {
            None => None,
            Some(usage) => Some(self.secret_usages.get(usage).cloned().ok_or_else(|| {
                let text = format!("Secret not found: no secret with matching usage '{usage}'");
                error(ErrorClass::NotFound, text)
            })?),
        };
        to_pool(name, &xml, secret).map(Some).map_err(|error| unusable(error.to_string()))
    }
}
