//! The configuration: one TOML file, typed once (`raw`), checked and resolved once ([`Config`]).
//!
//! Unknown keys are errors, and every error names the file, the pool and the rule. Nothing is looked up: whether a
//! pool can be used is seen when it is used. Secrets are never in the file, only their libvirt uuid or a path.

pub mod access;
mod limits;
pub mod pool;
pub(crate) mod raw;
mod rules;

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use access::{Client, Role, Tls};
pub use pool::PoolError;
use raw::RawConfig;
pub use rules::InvalidValue;

use crate::facts::HostFacts;
use crate::spec::{Limits, Pool, PoolName, RequestPools};

/// Where the configuration is when nothing else is said.
pub const DEFAULT_PATH: &str = "/etc/volferry/volferry.toml";
/// Where the daemon listens when nothing else is said.
pub const DEFAULT_SOCKET: &str = "/run/volferry/volferry.sock";
/// Where metrics are scraped, on loopback, when nothing else is said.
const METRICS_PORT: u16 = 9856;
const DEFAULT_STATE_DIR: &str = "/var/lib/volferry";
const DEFAULT_LIBVIRT_URI: &str = "qemu:///system";

/// A configuration whose every value was checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// The name of this host, to which local pools belong.
    pub host_name: String,
    /// The file it was read from; none: a text.
    pub file: Option<PathBuf>,
    /// The unix socket the daemon listens on.
    pub socket: PathBuf,
    /// Whose group may connect to it; none: the daemon's own.
    pub socket_group: Option<String>,
    /// What whoever connects to it may do.
    pub socket_role: Role,
    /// The listener on the network; none: there is none.
    pub tls: Option<Tls>,
    /// Who may connect there.
    pub clients: Vec<Client>,
    /// The folder of the journal.
    pub state_dir: PathBuf,
    /// The libvirt connection.
    pub libvirt_uri: String,
    /// How much is done at a time, and what stays free.
    pub limits: Limits,
    /// How long a source can be restored after its move; zero: it is removed at once.
    pub source_retention: Duration,
    /// The pools, in the order of the file.
    pub pools: Vec<Pool>,
    /// Which whole pools requests may bring along.
    pub request_pools: RequestPools,
    /// Where metrics are scraped; none: nowhere.
    pub metrics: Option<SocketAddr>,
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("configuration {file}")]
pub struct ConfigError {
    /// The file, or what stands for it.
    pub file: String,
    /// The rule it breaks.
    #[source]
    pub rule: ConfigRule,
}

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigRule {
    /// It cannot be read.
    #[error("cannot be read")]
    Read(#[source] io::Error),
    /// It is no TOML, has unknown keys, or lacks needed ones.
    #[error("{}", .0.to_string().trim_end())]
    Shape(toml::de::Error),
    /// A value of the top level.
    #[error("{key}: {rule}")]
    Value {
        /// Its key.
        key: &'static str,
        /// What is wrong with it.
        rule: InvalidValue,
    },
    /// The clients and the listener they come to.
    #[error(transparent)]
    Access(#[from] access::AccessRule),
    /// Two pools have one name.
    #[error("pool {0:?} is defined twice")]
    PoolTwice(String),
    /// A pool.
    #[error("pool {name:?}: {rule}")]
    Pool {
        /// Its name, as written.
        name: String,
        /// What is wrong with it.
        rule: PoolError,
    },
}

impl Config {
    /// Reads and checks a file.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let named = |rule| ConfigError { file: path.display().to_string(), rule };
        let text = fs::read_to_string(path).map_err(|error| named(ConfigRule::Read(error)))?;
        let config = Self::resolve(&text).map_err(named)?;
        Ok(Self { file: Some(path.to_owned()), ..config })
    }

    /// Checks a text.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        Self::resolve(text).map_err(|rule| ConfigError { file: "text".to_owned(), rule })
    }

    /// The pool of that name.
    pub fn pool(&self, name: &PoolName) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.name == *name)
    }

    /// What the engine is told of it.
    pub fn host_facts(&self) -> HostFacts {
        HostFacts {
            host_name: self.host_name.clone(),
            pools: self.pools.clone(),
            limits: self.limits,
            source_retention: self.source_retention,
            request_pools: self.request_pools.clone(),
        }
    }

    fn resolve(text: &str) -> Result<Self, ConfigRule> {
        let raw: RawConfig = toml::from_str(text).map_err(ConfigRule::Shape)?;
        let value = |key| move |rule| ConfigRule::Value { key, rule };
        let state_dir = raw.state_dir.as_deref().unwrap_or(DEFAULT_STATE_DIR);
        let (tls, clients) = access::resolve(raw.tls, raw.clients)?;
        Ok(Self {
            file: None,
            socket_group: raw
                .socket_group
                .map(rules::word)
                .transpose()
                .map_err(value("socket_group"))?,
            socket_role: raw.socket_role.unwrap_or(Role::Admin),
            tls,
            clients,
            host_name: rules::word(raw.host_name).map_err(value("host_name"))?,
            socket: rules::listen(raw.listen.as_deref()).map_err(value("listen"))?,
            state_dir: rules::absolute(state_dir).map_err(value("state_dir"))?,
            libvirt_uri: rules::word(
                raw.libvirt_uri.unwrap_or_else(|| DEFAULT_LIBVIRT_URI.to_owned()),
            )
            .map_err(value("libvirt_uri"))?,
            limits: limits::resolve(raw.limits)
                .map_err(|(key, rule)| ConfigRule::Value { key, rule })?,
            source_retention: rules::retention(raw.source_retention.as_deref())
                .map_err(value("source_retention"))?,
            pools: pools(raw.pools)?,
            request_pools: rules::request_pools(raw.pools_in_requests)
                .map_err(value("pools_in_requests.paths"))?,
            metrics: rules::metrics(raw.metrics).map_err(value("metrics.listen"))?,
        })
    }
}

fn pools(raw: Vec<raw::RawPool>) -> Result<Vec<Pool>, ConfigRule> {
    let mut pools: Vec<Pool> = Vec::with_capacity(raw.len());
    for raw in raw {
        let name = raw.name.clone();
        let pool =
            pool::resolve(raw).map_err(|rule| ConfigRule::Pool { name: name.clone(), rule })?;
        if pools.iter().any(|other| other.name == pool.name) {
            return Err(ConfigRule::PoolTwice(name));
        }
        pools.push(pool);
    }
    Ok(pools)
}

#[cfg(test)]
mod tests;
