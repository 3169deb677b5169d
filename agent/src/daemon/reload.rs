//! SIGHUP: the configuration and the certificates read anew, swapped as a whole or left as they were.
//!
//! Operations that run are not touched: what they began with, they end with.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::signal::unix::Signal;
use tracing::{error, info, warn};

use super::notify;
use crate::api::Agent;
use crate::api::access::{Access, Rules};
use crate::api::tls::TlsError;
use crate::config::{Config, ConfigError};
use crate::facts::HostFacts;
use crate::report;

/// Why everything stays as it was.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The certificates.
    #[error("tls")]
    Tls(#[from] TlsError),
    /// Reading them.
    #[error("the files could not be read")]
    Reading(#[from] tokio::task::JoinError),
}

/// Reads the configuration anew for one agent.
#[derive(Debug)]
pub struct Reloader<A> {
    file: PathBuf,
    /// As the daemon was started: what cannot change.
    started: Config,
    agent: Arc<A>,
    access: Arc<Access>,
}

impl<A: Agent> Reloader<A> {
    /// Of a daemon that was started with a file; of one that was not, there is nothing to be read.
    pub fn new(started: &Config, agent: Arc<A>, access: Arc<Access>) -> Option<Self> {
        let file = started.file.clone()?;
        Some(Self { file, started: started.clone(), agent, access })
    }

    /// Reads at every signal, and tells systemd.
    pub async fn run(self, mut hangups: Signal) {
        while hangups.recv().await.is_some() {
            info!(file = %self.file.display(), "SIGHUP: reading the configuration anew");
            let mut begins = vec![sd_notify::NotifyState::Reloading];
            match sd_notify::NotifyState::monotonic_usec_now() {
                Ok(now) => begins.push(now),
                Err(error) => warn!(%error, "the clock cannot be read"),
            }
            notify(&begins);
            let status = match self.reload().await {
                Ok(()) => "serving".to_owned(),
                Err(error) => {
                    let why = report::chain(&error);
                    error!(error = why, "nothing was changed");
                    format!("serving; the last reload changed nothing: {why}")
                }
            };
            notify(&[sd_notify::NotifyState::Ready, sd_notify::NotifyState::Status(&status)]);
        }
    }

    /// Reads once.
    ///
    /// Errors: the configuration or a file it names cannot be used; nothing was changed.
    pub async fn reload(&self) -> Result<(), ReloadError> {
        let file = self.file.clone();
        let read = tokio::task::spawn_blocking(move || {
            let config = Config::load(&file)?;
            let rules = Rules::read(&config)?;
            Ok::<_, ReloadError>((config, rules))
        });
        let (config, rules) = read.await??;
        for key in self.fixed(&config) {
            warn!(key, "changed in the file, and takes a restart of the daemon");
        }
        let pools = config.pools.len();
        self.agent.configure(HostFacts {
            host_name: self.started.host_name.clone(),
            ..config.host_facts()
        });
        let clients = rules.clients.len();
        self.access.change(rules);
        info!(pools, clients, "the configuration was read anew");
        Ok(())
    }

    /// The keys that have another value in `new`, and keep the one the daemon was started with.
    fn fixed(&self, new: &Config) -> Vec<&'static str> {
        let old = &self.started;
        let listen = |config: &Config| config.tls.as_ref().map(|tls| tls.listen);
        let keys = [
            ("host_name", old.host_name != new.host_name),
            ("listen", old.socket != new.socket),
            ("socket_group", old.socket_group != new.socket_group),
            ("state_dir", old.state_dir != new.state_dir),
            ("libvirt_uri", old.libvirt_uri != new.libvirt_uri),
            ("metrics.listen", old.metrics != new.metrics),
            ("tls.listen", listen(old) != listen(new)),
        ];
        keys.into_iter().filter_map(|(key, changed)| changed.then_some(key)).collect()
    }
}
