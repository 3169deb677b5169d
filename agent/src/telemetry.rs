//! Logging: text on standard error, filtered by `VOLFERRY_LOG`. Nothing else is set up here.

use std::env;
use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

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
    let plain = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none())
        .with_env_filter(filter);
    if env::var_os("JOURNAL_STREAM").is_some() {
        plain.without_time().finish().try_init()?;
    } else {
        plain.finish().try_init()?;
    }
    Ok(())
}
