//! The storage pools port over libvirt: two reads, no refresh.

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

fn secret_uuid(connection: &Connect, usage: &str) -> Result<String, Error> {
    let kind = i32::try_from(sys::VIR_SECRET_USAGE_TYPE_CEPH).unwrap_or_default();
    connection.lookup_secret_by_usage(kind, usage)?.uuid_string()
}

fn is(error: &Error, numbers: &[ErrorNumber]) -> bool {
    numbers.iter().any(|number| error.code() == ErrorNumberEnum::Known(*number))
}
