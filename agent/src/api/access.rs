//! Who may call what. The one layer in front of every service of the API: it finds out who calls, holds that against
//! the one table of rights, and writes the audit.
//!
//! Everything is judged at each request by what is configured then: a client that is taken out of the configuration, or
//! whose certificate expires, is refused on the connection it has.

pub mod audit;
mod caller;
mod layer;
pub mod rights;

use std::sync::{Arc, PoisonError, RwLock};

pub use audit::{About, Entry};
pub use caller::{Call, Caller, Who};
pub use layer::Guard;

use super::tls::Identity;
use crate::config::Config;
use crate::config::access::{Client, Role};

/// The target of every line of the audit in the log.
pub const AUDIT: &str = "volferry::audit";

/// What decides about callers; swapped as a whole.
#[derive(Debug)]
pub struct Access {
    rules: RwLock<Arc<Rules>>,
}

/// One reading of the configuration and the files it names.
#[derive(Debug, Clone)]
pub struct Rules {
    /// What whoever reaches the socket may do.
    pub socket_role: Role,
    /// Who may come over the network.
    pub clients: Vec<Client>,
    /// The certificates; none without a listener.
    pub identity: Option<Identity>,
}

impl Default for Rules {
    /// The file system alone decides who may do everything.
    fn default() -> Self {
        Self { socket_role: Role::Admin, clients: Vec::new(), identity: None }
    }
}

impl Rules {
    /// What a configuration says.
    ///
    /// Errors: a file of `[tls]` cannot be used.
    pub fn read(config: &Config) -> Result<Self, super::tls::TlsError> {
        Ok(Self {
            socket_role: config.socket_role,
            clients: config.clients.clone(),
            identity: config.tls.as_ref().map(Identity::load).transpose()?,
        })
    }
}

impl Access {
    /// By these rules.
    pub fn new(rules: Rules) -> Self {
        Self { rules: RwLock::new(Arc::new(rules)) }
    }

    /// By other rules from now on.
    pub fn change(&self, rules: Rules) {
        // Only whole values are written, so that a panic elsewhere leaves none half-written.
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
    }

    /// The rules now.
    pub fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The certificates now.
    pub fn identity(&self) -> Option<Identity> {
        self.rules().identity.clone()
    }
}

impl Default for Access {
    fn default() -> Self {
        Self::new(Rules::default())
    }
}
