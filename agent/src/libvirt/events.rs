//! The event connection: kept open, registered again after every loss, its events handed to all who listen.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{broadcast, watch};
use tokio_util::task::AbortOnDropHandle;
use virt::connect::Connect;

use super::connection;
use super::error::port_error;
use super::ffi::{Registration, Sink};
use super::translate;
use crate::blocking::detached;
use crate::ports::{DomainEvent, ErrorClass, EventKind, PortError, TimedEvent};

/// A listener this far behind is told that it lost events.
const BUFFER: usize = 4096;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How often a connection without notice of its end is looked at; a look asks nobody.
const LOOK: Duration = Duration::from_secs(5);

/// Where events arrive and listeners subscribe.
#[derive(Debug)]
pub(super) struct Hub {
    events: broadcast::Sender<TimedEvent>,
    connected: AtomicBool,
}

impl Hub {
    pub(super) fn new() -> Arc<Self> {
        let (events, _) = broadcast::channel(BUFFER);
        Arc::new(Self { events, connected: AtomicBool::new(false) })
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<TimedEvent> {
        self.events.subscribe()
    }

    pub(super) fn connected(&self) -> bool {
        self.connected.load(Ordering::Acquire)
    }

    fn send(&self, at: Instant, qemu_time_us: Option<u64>, event: Option<DomainEvent>) {
        if let Some(event) = event {
            // Without a listener there is nobody to tell.
            let _ = self.events.send(TimedEvent { at, qemu_time_us, event });
        }
    }

    fn set_connected(&self, connected: bool) {
        if self.connected.swap(connected, Ordering::AcqRel) != connected {
            let kind =
                if connected { EventKind::ConnectionRestored } else { EventKind::ConnectionLost };
            let event = DomainEvent { domain: None, target: None, kind };
            self.send(Instant::now(), None, Some(event));
        }
    }
}

/// One registered connection's way to the hub.
struct Session {
    hub: Arc<Hub>,
    closed: watch::Sender<bool>,
}

impl Sink for Session {
    fn block_job(&self, at: Instant, domain: &str, disk: &str, kind: c_int, status: c_int) {
        self.hub.send(at, None, translate::block_job(domain, disk, kind, status));
    }

    fn lifecycle(&self, at: Instant, domain: &str, event: c_int, detail: c_int) {
        self.hub.send(at, None, translate::lifecycle(domain, event, detail));
    }

    fn qemu(&self, at: Instant, domain: &str, event: &str, time_us: u64, data: &str) {
        self.hub.send(at, Some(time_us), translate::qemu(domain, event, data));
    }

    fn closed(&self, _reason: c_int) {
        self.closed.send_replace(true);
    }
}

/// Starts the task that keeps the hub connected; it ends with the handle. Must be called within a runtime.
pub(super) fn keep_connected(uri: Arc<str>, hub: Arc<Hub>) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut pause = FIRST_PAUSE;
        loop {
            match register(&uri, &hub).await {
                Ok(live) => {
                    pause = FIRST_PAUSE;
                    hub.set_connected(true);
                    live.until_closed().await;
                    hub.set_connected(false);
                    tracing::warn!(%uri, "the connection to libvirt is gone");
                }
                Err(error) if pause < LONGEST_PAUSE => tracing::warn!(%error, "libvirt is away"),
                Err(error) => tracing::debug!(%error, "libvirt is still away"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }))
}

/// A connection with its callbacks.
struct Live {
    /// Taken when dropped, never before.
    open: Option<(Registration, Connect)>,
    closed: watch::Receiver<bool>,
}

impl Drop for Live {
    fn drop(&mut self) {
        // Taking callbacks away and closing ask the daemon, which may hang; nobody waits for that.
        let open = self.open.take();
        drop(detached("libvirt-close", move || drop(open)));
    }
}

impl Live {
    fn is_alive(&self) -> bool {
        let connection = self.open.as_ref().map(|(_, connection)| connection);
        connection.is_some_and(|connection| connection.is_alive().unwrap_or(false))
    }

    async fn until_closed(&self) {
        let mut closed = self.closed.clone();
        loop {
            match tokio::time::timeout(LOOK, closed.wait_for(|closed| *closed)).await {
                Ok(_) => return,
                Err(_) if !self.is_alive() => return,
                Err(_) => {}
            }
        }
    }
}

async fn register(uri: &Arc<str>, hub: &Arc<Hub>) -> Result<Live, PortError> {
    let (uri, hub) = (Arc::clone(uri), Arc::clone(hub));
    // No bound: a daemon that hangs is asked once, not by one more thread each time.
    detached("libvirt-open", move || {
        let connection = connection::open(&uri)?;
        let (sender, closed) = watch::channel(false);
        let sink: Arc<dyn Sink> = Arc::new(Session { hub, closed: sender });
        let registration = Registration::new(&connection, &sink)
            .map_err(|error| port_error("register for libvirt's events", &error))?;
        if !registration.has_qemu_events() {
            tracing::warn!("no events of QEMU's monitor: causes of failed copies will be unknown");
        }
        Ok(Live { open: Some((registration, connection)), closed })
    })
    .await
    .unwrap_or_else(|_| {
        Err(PortError::new(ErrorClass::Other, "open the event connection", "its thread failed"))
    })
}
