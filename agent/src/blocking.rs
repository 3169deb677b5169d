//! Calls that may hang (a mount, a cluster, a daemon), each on a thread of its own, bounded in time and number.
//!
//! A C call cannot be cancelled: one that outlives its bound is answered with `NoAnswer`, and its thread stays
//! behind until it returns. A cap for each thing called keeps hung calls from piling up. Not tokio's blocking pool:
//! hung calls would fill it, and a runtime waits for it when it ends. No port lives here.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::ports::{ErrorClass, PortError};

/// Calls on one thing, so many at a time.
#[derive(Debug, Clone)]
pub(crate) struct Capped {
    what: Arc<str>,
    cap: usize,
    permits: Arc<Semaphore>,
}

impl Capped {
    /// At most `cap` calls on `what` at a time.
    pub(crate) fn new(what: impl Into<Arc<str>>, cap: usize) -> Self {
        Self { what: what.into(), cap, permits: Arc::new(Semaphore::new(cap)) }
    }

    /// Whether a call is running or has not returned.
    pub(crate) fn in_use(&self) -> bool {
        self.permits.available_permits() < self.cap
    }

    /// Runs `call` on a thread of its own and waits at most `bound` for it, queueing included.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        operation: &str,
        bound: Duration,
        call: impl FnOnce() -> Result<T, PortError> + Send + 'static,
    ) -> Result<T, PortError> {
        let deadline = Instant::now() + bound;
        let no_answer = |text| PortError::new(ErrorClass::NoAnswer, operation, text);
        let permit = match timeout_at(deadline, Arc::clone(&self.permits).acquire_owned()).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) | Err(_) => {
                let (cap, what) = (self.cap, &self.what);
                return Err(no_answer(format!("{cap} earlier calls on {what} have not returned")));
            }
        };
        let answer = detached("blocking-call", move || {
            let _permit = permit;
            call()
        });
        match timeout_at(deadline, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(PortError::new(
                ErrorClass::Other,
                operation,
                "the thread of the call could not start or ended early",
            )),
            Err(_) => Err(no_answer(format!("no answer from {} for {bound:?}", self.what))),
        }
    }
}

/// Runs `call` on a thread of its own that nobody waits for at the end of the process. The receiver fails when the
/// thread cannot be made or `call` panics.
pub(crate) fn detached<T: Send + 'static>(
    name: &str,
    call: impl FnOnce() -> T + Send + 'static,
) -> oneshot::Receiver<T> {
    let (sender, receiver) = oneshot::channel();
    let body = move || {
        // Nobody may be waiting any more.
        let _ = sender.send(call());
    };
    if let Err(error) = std::thread::Builder::new().name(name.to_owned()).spawn(body) {
        tracing::error!(%error, name, "cannot start a thread");
    }
    receiver
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const SHORT: Duration = Duration::from_millis(30);

    #[tokio::test]
    async fn a_hung_call_is_answered_in_time_and_keeps_its_place_until_it_returns() {
        let calls = Capped::new("folder /x", 1);
        let (release, gate) = mpsc::channel::<()>();
        let hung = calls.run("look", SHORT, move || Ok(gate.recv().is_ok())).await;
        assert_eq!(hung.map_err(|error| error.class), Err(ErrorClass::NoAnswer));
        let next = calls.run("look", SHORT, || Ok(())).await;
        let text = next.err().map(|error| error.to_string());
        assert_eq!(text.as_deref(), Some("look: 1 earlier calls on folder /x have not returned"));
        release.send(()).ok();
        let after = calls.run("look", Duration::from_secs(5), || Ok(7)).await;
        assert_eq!(after.ok(), Some(7));
    }

    #[tokio::test]
    async fn a_panic_in_a_call_is_an_error_of_that_call() {
        let calls = Capped::new("x", 1);
        let bound = Duration::from_secs(5);
        let error = calls.run::<()>("look", bound, || panic!("on purpose")).await.err();
        assert_eq!(error.map(|error| error.class), Some(ErrorClass::Other));
        assert_eq!(calls.run("look", bound, || Ok(1)).await.ok(), Some(1));
    }
}
