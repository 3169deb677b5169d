//! Opening connections with keepalive, and a place for one that is shared and opened again when it broke.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use virt::connect::Connect;
use virt::error::{ErrorNumber, ErrorNumberEnum};

use super::error::port_error;
use crate::blocking::{Capped, detached};
use crate::ports::PortError;

const KEEPALIVE_INTERVAL_SECONDS: i32 = 5;
const KEEPALIVE_COUNT: u32 = 3;
/// libvirt serves five outstanding calls of a client and lets the sixth wait; one stays free for keepalive.
const CALLS_PER_CONNECTION: usize = 4;

/// Opens a connection whose death is noticed within some twenty seconds. May block as long as the daemon hangs.
pub(super) fn open(uri: &str) -> Result<Connect, PortError> {
    let operation = || format!("connect to {uri}");
    let connection = Connect::open(Some(uri)).map_err(|error| port_error(&operation(), &error))?;
    match connection.set_keep_alive(KEEPALIVE_INTERVAL_SECONDS, KEEPALIVE_COUNT) {
        Ok(()) => Ok(connection),
        // A driver inside this process has no daemon to lose.
        Err(error) if error.code() == ErrorNumberEnum::Known(ErrorNumber::NoSupport) => {
            Ok(connection)
        }
        Err(error) => Err(port_error(&operation(), &error)),
    }
}

/// The connection for calls that stay inside libvirt and do not reach a QEMU.
#[derive(Debug)]
pub(super) struct Reads {
    uri: Arc<str>,
    slot: Arc<Mutex<Option<Connect>>>,
    calls: Capped,
}

impl Reads {
    /// Opens nothing yet.
    pub(super) fn new(uri: Arc<str>) -> Self {
        let calls = Capped::new("libvirt", CALLS_PER_CONNECTION);
        Self { uri, slot: Arc::default(), calls }
    }

    /// Runs `call` on the connection, opening it first where needed.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        operation: &str,
        bound: Duration,
        call: impl FnOnce(&Connect) -> Result<T, PortError> + Send + 'static,
    ) -> Result<T, PortError> {
        let (uri, slot) = (Arc::clone(&self.uri), Arc::clone(&self.slot));
        self.calls.run(operation, bound, move || call(&current(&uri, &slot)?)).await
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        // Closing says good-bye to the daemon and waits for its answer, as does who may hold the lock right now.
        let slot = Arc::clone(&self.slot);
        drop(detached("libvirt-close", move || {
            drop(slot.lock().unwrap_or_else(PoisonError::into_inner).take());
        }));
    }
}

fn current(uri: &str, slot: &Mutex<Option<Connect>>) -> Result<Connect, PortError> {
    let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(connection) = slot.as_ref() {
        if connection.is_alive().unwrap_or(false) {
            return Ok(connection.clone());
        }
        *slot = None;
    }
    let connection = open(uri)?;
    *slot = Some(connection.clone());
    Ok(connection)
}
