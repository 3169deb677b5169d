//! The longest time the guest acknowledged nothing, from the growth of its console's file.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Watches a file until it is asked.
#[derive(Debug)]
pub(super) struct Gaps {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Gaps {
    pub(super) fn watch(file: &Path) -> Gaps {
        let stop = Arc::new(AtomicBool::new(false));
        let (file, stopped) = (file.to_owned(), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let (mut length, mut since, mut longest) = (None, Instant::now(), Duration::ZERO);
            while !stopped.load(Ordering::Relaxed) {
                let now = std::fs::metadata(&file).map(|m| m.len()).ok();
                longest = longest.max(since.elapsed());
                if now != length {
                    (length, since) = (now, Instant::now());
                }
                #[allow(
                    clippy::disallowed_methods,
                    reason = "a measuring clock: the file is looked at in even steps"
                )]
                std::thread::sleep(Duration::from_millis(2));
            }
            longest
        });
        Gaps { stop, thread }
    }

    /// The longest gap so far; the end of the watch.
    pub(super) fn longest(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}
