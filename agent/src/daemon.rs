//! The daemon's life: one instance, the engine recovered, the socket listening, READY told, a signal, the end.
//!
//! Stopping the daemon stops no copy: QEMU goes on, and the next start takes the operations up again. Nothing about
//! moves is known here; what an engine is made of is in `build_engine`.

#[cfg(feature = "testing")]
mod kill_point;
mod lock;
mod pulse;
pub mod reload;

use std::io;
#[cfg(feature = "fake")]
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

pub use lock::{LockError, StateLock};
use reload::Reloader;

use crate::api::access::{Access, Rules};
use crate::api::server::Doors;
use crate::api::socket::{Socket, SocketError};
use crate::api::tls::{TlsError, TlsListenError, TlsListener};
use crate::api::{Agent, server};
use crate::config::{self, Config, ConfigError};
use crate::engine::{Engine, Tuning};
#[cfg(feature = "fake")]
use crate::fake::world_file::WorldFileError;
use crate::host::copies::HostCopies;
use crate::host::files::HostFiles;
use crate::host::images::{HostImages, ImageTimeouts};
use crate::host::marks::HostMarks;
use crate::journal::{Journal, JournalError};
use crate::libvirt::{LibvirtPorts, Timeouts};
use crate::metrics::listener::{ListenError, Listener};
use crate::ports::clock::SystemClock;
use crate::ports::{PortError, Ports};
use crate::{report, telemetry};

/// The journal's file inside the state folder.
const JOURNAL: &str = "journal.sqlite";
/// The folder inside it for what copies need while they run.
const COPIES: &str = "copies";

/// Moves the disks of this host's running virtual machines between storage pools.
#[derive(Debug, Parser)]
#[command(name = "volferryd", version)]
pub struct DaemonArguments {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = config::DEFAULT_PATH)]
    config: PathBuf,

    /// Check the configuration file and exit
    #[arg(long)]
    check_config: bool,

    /// Serve an imaginary host instead of this one: the pools of the configuration, and the domains and faults of FILE
    #[cfg(feature = "fake")]
    #[arg(long, value_name = "FILE")]
    fake: Option<PathBuf>,
}

/// Why the daemon ended although nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Logging.
    #[error(transparent)]
    Telemetry(#[from] telemetry::TelemetryError),
    /// Another instance, or no state folder.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The certificates.
    #[error("tls")]
    Tls(#[from] TlsError),
    /// The listener on the network.
    #[error(transparent)]
    Listen(#[from] TlsListenError),
    /// The listener of the metrics.
    #[error(transparent)]
    Metrics(#[from] ListenError),
    /// Serving.
    #[error(transparent)]
    Serve(#[from] server::ServeError),
    /// libvirt.
    #[error(transparent)]
    Libvirt(#[from] PortError),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The imaginary host.
    #[cfg(feature = "fake")]
    #[error(transparent)]
    World(#[from] WorldFileError),
    /// The folder for an imaginary host's journal.
    #[cfg(feature = "fake")]
    #[error("no temporary folder can be made")]
    Temporary(#[source] io::Error),
    /// The folder of copies.
    #[error("the folder for copies cannot be made in the state folder")]
    Copies(#[source] io::Error),
    /// The runtime or its signals.
    #[error("the runtime cannot be started")]
    Runtime(#[source] io::Error),
}

/// `volferryd`: reads the command line and lives until told to stop.
pub fn main() -> ExitCode {
    match run(&DaemonArguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::to_stderr(&format!("volferryd: {}", report::chain(&error)));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &DaemonArguments) -> Result<(), DaemonError> {
    let config = Config::load(&arguments.config)?;
    if arguments.check_config {
        Rules::read(&config)?;
        let pools = config.pools.len();
        report::to_stdout(&format!("{}: valid, {pools} pools", arguments.config.display()));
        return Ok(());
    }
    telemetry::init()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(DaemonError::Runtime)?;
    runtime.block_on(async {
        let (stop, _signals) = stop_on_signal()?;
        #[cfg(feature = "fake")]
        if let Some(file) = &arguments.fake {
            return live_in_a_fake(&config, file, stop).await;
        }
        let _lock = StateLock::acquire(&config.state_dir)?;
        let engine = build_engine(&config).await?;
        live(&config, engine, stop).await
    })
}

/// An engine in an imaginary host. Its journal goes with it, as everything it tells of does.
#[cfg(feature = "fake")]
async fn live_in_a_fake(
    config: &Config,
    file: &Path,
    stop: CancellationToken,
) -> Result<(), DaemonError> {
    let world = crate::fake::world_file::load(file, &config.pools)?;
    let folder = tempfile::tempdir().map_err(DaemonError::Temporary)?;
    let journal = Journal::open(&folder.path().join(JOURNAL))?;
    warn!(world = %file.display(), "everything is imaginary: no libvirt, no volume, and a journal that goes at the end");
    let host = config.host_facts();
    // Times of day are those of the one who looks.
    let ports = Ports { clock: Arc::new(SystemClock), ..world.ports() };
    let engine = Engine::start(ports, journal, host, Tuning::default()).await?;
    live(config, engine, stop).await
}

/// Serves with an engine until told to stop, and tells systemd how it goes.
async fn live(config: &Config, engine: Engine, stop: CancellationToken) -> Result<(), DaemonError> {
    let pulse = engine.clone();
    let look = move || {
        let engine = pulse.clone();
        async move { engine.pulse().await }
    };
    let beating = pulse::beat(sd_notify::watchdog_enabled(), look, notify);
    let _beating = AbortOnDropHandle::new(tokio::spawn(beating));
    let served = serve(config, Arc::new(engine.clone()), stop).await;
    engine.stop().await;
    served
}

/// WIRING: the ports, the journal and the engine, recovered and ready to take requests.
///
/// This is the one place where the parts of an engine are put together.
async fn build_engine(config: &Config) -> Result<Engine, DaemonError> {
    let libvirt = LibvirtPorts::connect(&config.libvirt_uri, Timeouts::default())?;
    let copies = config.state_dir.join(COPIES);
    let images = Arc::new(HostImages::new(libvirt.clone(), ImageTimeouts::default()));
    let files = Arc::new(HostFiles::default());
    let ports = Ports {
        domains: libvirt.clone(),
        jobs: libvirt.clone(),
        events: libvirt.clone(),
        pools: libvirt.clone(),
        copies: Arc::new(HostCopies::new(libvirt.clone(), copies).map_err(DaemonError::Copies)?),
        secrets: libvirt,
        marks: Arc::new(HostMarks::new(Arc::clone(&images), Arc::clone(&files))),
        images,
        files,
        clock: Arc::new(SystemClock),
    };
    let journal = Journal::open(&config.state_dir.join(JOURNAL))?;
    #[cfg(feature = "testing")]
    let journal = kill_point::arm(journal);
    Ok(Engine::start(ports, journal, config.host_facts(), Tuning::default()).await?)
}

/// Listens, and serves until `stop`; says READY once the operations of an earlier life were looked at.
pub async fn serve<A: Agent>(
    config: &Config,
    agent: Arc<A>,
    stop: CancellationToken,
) -> Result<(), DaemonError> {
    // Taken before READY is told: until then, the signal ends the daemon.
    let hangups = signal(SignalKind::hangup()).map_err(DaemonError::Runtime)?;
    // Bound before READY is told, so that a taken address is seen at the start.
    let metrics = match config.metrics {
        Some(address) => Some(Listener::bind(address).await?),
        None => None,
    };
    let access = Arc::new(Access::new(Rules::read(config)?));
    let tls = match &config.tls {
        Some(tls) => Some(TlsListener::bind(tls.listen).await?),
        None => None,
    };
    let group = config.socket_group.as_deref();
    let Socket { listener, file: _file } = Socket::bind_for(&config.socket, group).await?;
    let _scrapes = metrics.map(|listener| {
        info!(address = %listener.address(), "listening for scrapes of the metrics");
        let (agent, stop) = (Arc::clone(&agent), stop.clone());
        let page = move || {
            let agent = Arc::clone(&agent);
            async move { agent.metrics().await }
        };
        AbortOnDropHandle::new(tokio::spawn(listener.serve(page, stop)))
    });
    if let Some(tls) = &tls {
        info!(address = %tls.address(), clients = config.clients.len(), "listening, mutual TLS only");
    }
    info!(socket = %config.socket.display(), pools = config.pools.len(), "listening");
    let reloader = Reloader::new(config, Arc::clone(&agent), Arc::clone(&access));
    let _reloading =
        reloader.map(|reloader| AbortOnDropHandle::new(tokio::spawn(reloader.run(hangups))));
    let ready = pulse::tell_ready(agent.health(), notify);
    let _ready = AbortOnDropHandle::new(tokio::spawn(ready));
    let doors = Doors { socket: listener, tls };
    let served = server::serve(agent, doors, access, stop).await;
    notify(&[sd_notify::NotifyState::Stopping]);
    info!("stopped; copies that run go on");
    Ok(served?)
}

/// A token that SIGTERM and SIGINT cancel. Taken before anything is begun, so that no signal is missed.
fn stop_on_signal() -> Result<(CancellationToken, AbortOnDropHandle<()>), DaemonError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(DaemonError::Runtime)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(DaemonError::Runtime)?;
    let stop = CancellationToken::new();
    let guard = stop.clone();
    let waiting = tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => info!("SIGTERM: stopping"),
            _ = interrupt.recv() => info!("SIGINT: stopping"),
        }
        guard.cancel();
    });
    Ok((stop, AbortOnDropHandle::new(waiting)))
}

/// Without systemd there is nobody to tell, and that is no error.
fn notify(states: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!(%error, "systemd was not told");
    }
}
