//! Logging, filtered by `VOLFERRY_LOG`: fields for systemd's journal where standard error leads there, text on standard
//! error otherwise. Nothing else is set up here.

mod journal;

use std::env;
use std::io::{self, IsTerminal};

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;

/// The variable with the filter, in the form of `tracing_subscriber`'s `EnvFilter`; `info` without it.
pub const FILTER_VARIABLE: &str = "VOLFERRY_LOG";

/// A filter that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The variable's value is no filter.
    #[error("{FILTER_VARIABLE} is no log filter, such as `info` or `volferry_agent=debug`")]
    Filter(#[from] tracing_subscriber::filter::FromEnvError),
    /// Logging was set up before.
    #[error("logging cannot be set up")]
    SetUp(#[from] tracing_subscriber::util::TryInitError),
}

/// Sets up logging for the process; call once. Under systemd the journal has the time already.
pub fn init() -> Result<(), TelemetryError> {
    use tracing_subscriber::util::SubscriberInitExt as _;

    let filter = EnvFilter::builder()
        .with_default_directive(tracing::Level::INFO.into())
        .with_env_var(FILTER_VARIABLE)
        .from_env()?
        // Whatever else is silenced, what was commanded is on record.
        .add_directive("volferry::audit=info".parse().expect("a plain directive"));
    if leads_to_the_journal()
        && let Ok(journal) = journal::Journal::connect(Path::new(journal::SOCKET))
    {
        tracing_subscriber::registry().with(filter).with(journal).try_init()?;
        return Ok(());
    }
    let plain = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none())
        .with_env_filter(filter);
    plain.finish().try_init()?;
    Ok(())
}

/// Whether systemd connected standard error to its journal: it says which device and inode that was, for a process may
/// have been given another standard error since.
fn leads_to_the_journal() -> bool {
    let Ok(told) = env::var("JOURNAL_STREAM") else { return false };
    std::fs::metadata("/proc/self/fd/2")
        .is_ok_and(|found| told == format!("{}:{}", found.dev(), found.ino()))
}
