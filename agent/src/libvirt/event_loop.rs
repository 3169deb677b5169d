//! The one thread that runs libvirt's event loop, shared by everything in the process that uses libvirt.
//!
//! It must run before a connection opens: keepalive, events and the notice of a closed connection need it.
//! Nothing else runs on it but the callbacks of `ffi`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use virt::event::{self, EventTimeoutWatch};

use crate::ports::{ErrorClass, PortError};

const OPERATION: &str = "start libvirt's event loop";

/// Keeps the loop running while it lives; the last one to go stops it.
#[derive(Debug)]
pub(super) struct EventLoop(());

struct State {
    users: usize,
    registered: bool,
    running: Option<Running>,
}

struct Running {
    stop: Arc<AtomicBool>,
    /// Wakes the loop when it shall end; otherwise never due.
    timer: EventTimeoutWatch,
    thread: JoinHandle<()>,
}

static STATE: Mutex<State> = Mutex::new(State { users: 0, registered: false, running: None });

impl EventLoop {
    /// Joins the loop, starting it for the first user.
    pub(super) fn join() -> Result<Self, PortError> {
        let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        if state.running.is_none() {
            state.start()?;
        }
        state.users += 1;
        Ok(Self(()))
    }
}

impl Drop for EventLoop {
    fn drop(&mut self) {
        let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        state.users -= 1;
        if state.users > 0 {
            return;
        }
        if let Some(running) = state.running.take() {
            running.stop.store(true, Ordering::Release);
            running.timer.event_update_timeout(0);
            if running.thread.join().is_err() {
                tracing::error!("libvirt's event loop ended with a panic");
            }
            let _ = running.timer.event_remove_timeout();
        }
    }
}

impl State {
    fn start(&mut self) -> Result<(), PortError> {
        if !self.registered {
            // Errors are returned by every call; libvirt would print them as well.
            virt::error::clear_error_callback();
            event::event_register_default_impl()
                .map_err(|error| super::error::port_error(OPERATION, &error))?;
            self.registered = true;
        }
        // The crate mishandles a failure here; with the default loop registered only memory can be its cause.
        let timer = event::event_add_timeout(-1, |_, _| {}, std::ptr::null_mut())
            .map_err(|error| super::error::port_error(OPERATION, &error))?;
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("libvirt-events".to_owned())
            .spawn(move || run(&seen))
            .map_err(|error| PortError::new(ErrorClass::Other, OPERATION, error))?;
        self.running = Some(Running { stop, timer, thread });
        Ok(())
    }
}

fn run(stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        if let Err(error) = event::event_run_default_impl() {
            tracing::error!(%error, "libvirt's event loop failed, trying again");
            // Nobody unparks this thread; a pause keeps a lasting failure from using a whole processor.
            std::thread::park_timeout(Duration::from_millis(200));
        }
    }
}
