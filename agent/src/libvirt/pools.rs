//! The storage pools port over libvirt: reads only, no refresh.

use async_trait::async_trait;
use virt::connect::Connect;
use virt::error::{Error, ErrorNumber, ErrorNumberEnum};
use virt_sys as sys;
use volferry_xml::StoragePoolXml;

use super::LibvirtPorts;
use super::error::port_error;
use crate::plan::libvirt_pool::{to_pool, usage_to_look_up};
use crate::ports::{ErrorClass, PortError, StoragePools};
use crate::spec::{Pool, PoolName};

#[async_trait]
impl StoragePools for LibvirtPorts {
    async fn find(&self, name: &PoolName) -> Result<Option<Pool>, PortError> {
        let operation = format!("look for storage pool {name}");
        let (name, words) = (name.clone(), operation.clone());
        self.reads
            .run(&operation, self.timeouts.read, move |connection| find(connection, &name, &words))
            .await
    }

    async fn active(&self) -> Result<Vec<Pool>, PortError> {
        const OPERATION: &str = "list the storage pools";
        self.reads
            .run(OPERATION, self.timeouts.read, |connection| active(connection, OPERATION))
            .await
    }
}

fn find(connection: &Connect, name: &PoolName, operation: &str) -> Result<Option<Pool>, PortError> {
    let told = |error: Error| port_error(operation, &error);
    let found = match connection.lookup_storage_pool_by_name(name.as_str()) {
        Ok(found) => found,
        // A libvirt without the storage driver has no pools.
        Err(error) if is(&error, &[ErrorNumber::NoStoragePool, ErrorNumber::NoSupport]) => {
            return Ok(None);
        }
        Err(error) => return Err(told(error)),
    };
    if !found.is_active().map_err(told)? {
        let text = "libvirt has the pool, but it is not active: start it with `virsh pool-start`";
        return Err(PortError::new(ErrorClass::Unavailable, operation, text));
    }
    let unusable =
        |error: &dyn std::fmt::Display| PortError::new(ErrorClass::Unsupported, operation, error);
    let xml = StoragePoolXml::parse(&found.xml_desc(0).map_err(told)?)
        .map_err(|error| unusable(&error))?;
    let secret = usage_to_look_up(&xml).map(|usage| secret_uuid(connection, usage)).transpose();
    let secret = secret.map_err(told)?;
    to_pool(name, &xml, secret).map(Some).map_err(|error| unusable(&error))
}

fn active(connection: &Connect, operation: &str) -> Result<Vec<Pool>, PortError> {
    let names = match connection.list_storage_pools() {
        Ok(names) => names,
        // A libvirt without the storage driver has no pools.
        Err(error) if is(&error, &[ErrorNumber::NoSupport]) => Vec::new(),
        Err(error) => return Err(port_error(operation, &error)),
    };
    let mut pools = Vec::new();
    // A name that breaks our rules cannot be asked for either.
    for name in names.into_iter().filter_map(|name| PoolName::new(name).ok()) {
        match find(connection, &name, operation) {
            Ok(pool) => pools.extend(pool),
            // No destination, or stopped meanwhile.
            Err(error) if error.class != ErrorClass::Other => {
                tracing::debug!(pool = %name, %error, "a pool of libvirt is left out");
            }
            Err(error) => return Err(error),
        }
    }
    pools.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(pools)
}

fn secret_uuid(connection: &Connect, usage: &str) -> Result<String, Error> {
    let kind = i32::try_from(sys::VIR_SECRET_USAGE_TYPE_CEPH).unwrap_or_default();
    connection.lookup_secret_by_usage(kind, usage)?.uuid_string()
}

fn is(error: &Error, numbers: &[ErrorNumber]) -> bool {
    numbers.iter().any(|number| error.code() == ErrorNumberEnum::Known(*number))
}
