//! What systemd is told: READY once the operations of an earlier life were looked at, and with every beat of the engine
//! that it lives and what it does.
//!
//! No timer pings the watchdog: a ping follows a look along the engine's whole way ([`Engine::pulse`]), and an engine
//! that does not get on sends none.
//!
//! [`Engine::pulse`]: crate::engine::Engine::pulse

use std::fmt::Write as _;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::warn;

use crate::engine::{Health, Pulse};
use crate::operation::State;

/// How often the engine is looked at when no watchdog wants it oftener.
const SELDOM: Duration = Duration::from_secs(10);
/// How long READY waits for operations of an earlier life: while libvirt is away they cannot be looked at, and whoever
/// started the agent is not to wait for libvirt.
const LOOKED_AT: Duration = Duration::from_secs(30);

/// Tells READY once every operation of an earlier life was looked at again; without libvirt after half a minute.
pub async fn tell_ready(mut health: watch::Receiver<Health>, tell: impl Fn(&[NotifyState<'_>])) {
    if health.borrow().recovering {
        tell(&[NotifyState::Status("looking at the operations of an earlier life")]);
    }
    let recovered = health.wait_for(|health| !health.recovering);
    match timeout(LOOKED_AT, recovered).await {
        Ok(Ok(_)) => {}
        // The engine has stopped before it was ready.
        Ok(Err(_)) => return,
        Err(_) => warn!("ready, and operations of an earlier life could not all be looked at yet"),
    }
    tell(&[NotifyState::Ready]);
}

/// Looks at the engine again and again, and tells systemd after each look. `watchdog` is the time after which systemd
/// takes the agent for hung.
pub async fn beat<F: Future<Output = Pulse>>(
    watchdog: Option<Duration>,
    look: impl Fn() -> F,
    tell: impl Fn(&[NotifyState<'_>]),
) {
    let mut beats = interval(watchdog.map_or(SELDOM, |limit| SELDOM.min(limit / 3)));
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beats.tick().await;
        let status = words(&look().await);
        tell(&[NotifyState::Watchdog, NotifyState::Status(&status)]);
    }
}

/// One line for `systemctl status`.
fn words(pulse: &Pulse) -> String {
    let mut line = match &pulse.states {
        Ok(states) => operations(states),
        Err(error) => format!("journal unreadable: {error}"),
    };
    line.push_str(if pulse.libvirt_up { "; libvirt up" } else { "; libvirt away" });
    line
}

/// What is under way, and what waits for an operator.
fn operations(states: &[(State, u64)]) -> String {
    let count = |state: State| {
        let of_state = states.iter().filter(|(known, _)| *known == state);
        of_state.map(|(_, count)| count).sum::<u64>()
    };
    let told = State::ALL.into_iter().filter(|s| !s.is_final() || *s == State::NeedsOperator);
    let told: Vec<(State, u64)> =
        told.map(|state| (state, count(state))).filter(|(_, count)| *count > 0).collect();
    let running: u64 =
        told.iter().filter(|(state, _)| !state.is_final()).map(|(_, count)| count).sum();
    let mut line = match running {
        1 => "1 operation".to_owned(),
        several => format!("{several} operations"),
    };
    for (at, (state, count)) in told.iter().enumerate() {
        let separator = if at == 0 { ": " } else { ", " };
        // Writing into a String cannot fail.
        let _ = write!(line, "{separator}{count} {state}");
    }
    line
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const WATCHDOG: Duration = Duration::from_secs(30);

    fn pulse(states: &[(State, u64)], libvirt_up: bool) -> Pulse {
        Pulse { states: Ok(states.to_vec()), libvirt_up }
    }

    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>);

    impl Heard {
        fn tell(&self, states: &[NotifyState<'_>]) {
            let mut heard = self.0.lock().expect("no test panics with it");
            heard.extend(states.iter().map(ToString::to_string));
        }

        fn count(&self, line: &str) -> usize {
            let heard = self.0.lock().expect("no test panics with it");
            heard.iter().filter(|told| *told == line).count()
        }
    }

    #[test]
    fn the_status_counts_what_is_under_way_and_what_waits_for_people() {
        let line = |states: &[(State, u64)], up| words(&pulse(states, up));
        assert_eq!(line(&[], true), "0 operations; libvirt up");
        assert_eq!(line(&[(State::Succeeded, 9)], false), "0 operations; libvirt away");
        let busy = [(State::Failed, 4), (State::Copying, 2), (State::Queued, 1)];
        assert_eq!(line(&busy, true), "3 operations: 1 queued, 2 copying; libvirt up");
        let undecided = [(State::NeedsOperator, 1), (State::Copying, 1)];
        let text = line(&undecided, true);
        assert_eq!(text, "1 operation: 1 copying, 1 needs-operator; libvirt up");
        let unreadable = Pulse { states: Err("disk I/O error".to_owned()), libvirt_up: true };
        assert_eq!(words(&unreadable), "journal unreadable: disk I/O error; libvirt up");
    }

    #[tokio::test(start_paused = true)]
    async fn each_look_that_ends_is_a_ping_also_without_libvirt_and_with_a_broken_journal() {
        let heard = Heard::default();
        let broken = || async { Pulse { states: Err("broken".to_owned()), libvirt_up: false } };
        let beating = beat(Some(WATCHDOG), broken, |states| heard.tell(states));
        assert!(timeout(Duration::from_secs(60), beating).await.is_err(), "it goes on");
        // At 0, 10, .. 60 seconds; whether the last one comes before the test ends is left open.
        assert!((6..=7).contains(&heard.count("WATCHDOG=1")), "{:?}", heard.0);
        assert!(heard.count("STATUS=journal unreadable: broken; libvirt away") >= 6);
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_hangs_is_no_ping() {
        let heard = Heard::default();
        let hung = AtomicBool::new(false);
        let look = || async {
            if hung.swap(true, Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            pulse(&[], true)
        };
        let beating = beat(Some(WATCHDOG), look, |states| heard.tell(states));
        assert!(timeout(Duration::from_secs(3600), beating).await.is_err());
        assert_eq!(heard.count("WATCHDOG=1"), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn ready_waits_for_what_is_to_be_looked_at_but_not_for_ever() {
        let (health, told) = watch::channel(Health { libvirt_away: true, recovering: true });
        let heard = Heard::default();
        let telling = tell_ready(told.clone(), |states| heard.tell(states));
        tokio::pin!(telling);
        assert!(timeout(LOOKED_AT / 2, &mut telling).await.is_err());
        assert_eq!(heard.count("READY=1"), 0);
        health.send_modify(|health| health.recovering = false);
        telling.await;
        assert_eq!(heard.count("READY=1"), 1);

        health.send_modify(|health| health.recovering = true);
        let began = tokio::time::Instant::now();
        tell_ready(told, |states| heard.tell(states)).await;
        assert_eq!((began.elapsed(), heard.count("READY=1")), (LOOKED_AT, 2));
    }
}
