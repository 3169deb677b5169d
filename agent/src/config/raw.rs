//! The file as it is written, before any rule is applied. Unknown keys stop here.

use serde::Deserialize;

use super::access::Role;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawConfig {
    pub host_name: String,
    pub listen: Option<String>,
    pub socket_group: Option<String>,
    pub socket_role: Option<Role>,
    pub state_dir: Option<String>,
    pub libvirt_uri: Option<String>,
    #[serde(default)]
    pub limits: RawLimits,
    pub source_retention: Option<String>,
    #[serde(default)]
    pub pools_in_requests: RawRequestPools,
    pub metrics: Option<RawMetrics>,
    pub tls: Option<RawTls>,
    #[serde(default, rename = "client")]
    pub clients: Vec<RawClient>,
    #[serde(default, rename = "pool")]
    pub pools: Vec<RawPool>,
}

/// `[metrics]`: there is a listener when there is the table.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawMetrics {
    pub listen: Option<String>,
}

/// `[tls]`: there is a listener on the network when there is the table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawTls {
    pub listen: String,
    pub certificate: String,
    pub key: String,
    pub client_ca: String,
}

/// One `[[client]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawClient {
    pub name: String,
    pub role: Role,
}

/// `[pools_in_requests]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRequestPools {
    #[serde(default)]
    pub paths: Vec<String>,
    #[serde(default)]
    pub rbd: bool,
}

/// A file with the one pool of a request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawPoolFile {
    pub pool: Vec<RawPool>,
}

/// `[limits]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawLimits {
    pub operations_per_host: Option<u32>,
    pub operations_per_pool: Option<u32>,
    pub reserve_percent: Option<u32>,
    pub reserve_bytes: Option<String>,
}

/// One `[[pool]]`: the keys of every type, sorted out later.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawPool {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: RawKind,
    pub monitors: Option<Vec<String>>,
    pub port: Option<u32>,
    pub pool: Option<String>,
    pub namespace: Option<String>,
    pub user: Option<String>,
    pub secret_uuid: Option<String>,
    pub key_file: Option<String>,
    pub path: Option<String>,
    pub host: Option<String>,
    pub must_be_mounted: Option<bool>,
    pub operations: Option<u32>,
}

/// The type of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RawKind {
    Rbd,
    Nfs,
    SharedMountPoint,
    Local,
}
