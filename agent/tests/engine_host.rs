//! The host goes down in one instant: the agent, libvirtd and every QEMU, and `/run` is emptied. libvirt is back before
//! the agent, right after it, or ten minutes later.

use std::time::Duration;

use tokio::time::Instant;
use volferry_agent::fake::Stage;
use volferry_agent::fake::domain::Pace;
use volferry_agent::fake::faults::{Fault, Method};
use volferry_agent::fake::scene::Home;
use volferry_agent::operation::{FailureCause, OperationView, State};
use volferry_agent::ports::{EventKind, JobEnd};
use volferry_agent::spec::MigrateSpec;

const PAIRS: [(Home, &str); 3] =
    [(Home::Rbd, "ceph-ssd"), (Home::Rbd, "nfs-1"), (Home::File, "ceph-hdd")];
/// libvirt back before the agent, and so long after it.
const BACK: [Option<Duration>; 3] =
    [None, Some(Duration::from_secs(5)), Some(Duration::from_secs(600))];

/// Loses the host now and starts the agent again.
async fn lost(stage: Stage, back: Option<Duration>) -> (Stage, Instant) {
    stage.agent.engine.stop().await;
    stage.world.lose_host();
    if back.is_none() {
        stage.world.libvirt_back();
    }
    stage.world.clear_script();
    let stage = stage.restart().await;
    if let Some(back) = back {
        tokio::time::sleep(back).await;
        stage.world.libvirt_back();
    }
    (stage, Instant::now())
}

fn cause(view: &OperationView) -> Option<FailureCause> {
    view.failure.as_ref().map(|failure| failure.cause)
}

fn stored_names(stage: &Stage, view: &OperationView, moved: bool) -> bool {
    let place = if moved { &view.destination } else { &view.source };
    stage.world.with(|state| {
        let stored = state.domains[&stage.guest.uuid].inactive_xml.clone();
        stored.expect("a stored definition").contains(&place.name())
    })
}

async fn reach(home: Home, pool: &str, state: State) -> (Stage, MigrateSpec) {
    let stage = Stage::new(home, true).await;
    let mut request = stage.guest.request(pool);
    match state {
        State::Planned => stage.world.hold_agent_at(4),
        State::Preparing => {
            let create = if pool == "nfs-1" { Method::CreateFile } else { Method::CreateImage };
            stage.world.fault(create, 1, Fault::Hang);
        }
        State::Copying | State::RollingBack => {
            let pace = Pace { copy: 1 << 20, ..Pace::default() };
            stage.world.pace(&stage.guest.uuid, "vda", pace);
        }
        State::Ready => request.manual_pivot = true,
        _ => {}
    }
    stage.begin(&request).await;
    if state == State::RollingBack {
        stage.reaches(&request, State::Copying).await;
        stage.world.fault(Method::Abort, 1, Fault::Hang);
        stage.agent.engine.cancel(&request.operation).await.expect("it copies");
    }
    if state != State::Queued {
        stage.reaches(&request, state).await;
    }
    (stage, request)
}

#[tokio::test(start_paused = true)]
async fn a_host_lost_before_the_pivot_rolls_back_to_the_source() {
    let states = [
        State::Queued,
        State::Planned,
        State::Preparing,
        State::Copying,
        State::Ready,
        State::RollingBack,
    ];
    for (home, pool) in PAIRS {
        for state in states {
            for back in BACK {
                let (stage, request) = reach(home, pool, state).await;
                let (stage, since) = lost(stage, back).await;
                let view = stage.end(&request).await;
                let told = format!("{home:?} {pool} {state} {back:?}: {view:#?}");
                match state {
                    State::RollingBack => assert_eq!(view.state, State::Cancelled, "{told}"),
                    _ => {
                        assert_eq!(view.state, State::Failed, "{told}");
                        assert_eq!(cause(&view), Some(FailureCause::GuestGone), "{told}");
                    }
                }
                // A dead client's watch lasts 30 s.
                assert!(since.elapsed() < Duration::from_secs(40), "{told}");
                assert!(stored_names(&stage, &view, false), "{told}");
                assert_eq!(stage.world.volumes(), stage.before, "{told}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_lost_within_the_pivot_keeps_both_volumes_or_has_proof() {
    for (home, pool) in PAIRS {
        for (effect, equal) in [(true, false), (false, false), (false, true)] {
            for back in BACK {
                let stage = Stage::new(home, true).await;
                stage.world.lose_event(|kind| matches!(kind, EventKind::QemuJobCompleted { .. }));
                stage
                    .world
                    .lose_event(|kind| matches!(kind, EventKind::JobEnded(JobEnd::Completed)));
                stage.world.fault(Method::Pivot, 1, Fault::NoAnswer { effect });
                let request = stage.guest.request(pool);
                stage.begin(&request).await;
                stage.reaches(&request, State::Pivoting).await;
                if !equal {
                    // The last write came to one of them only.
                    let identity = stage.before[&stage.guest.volume.to_string()].clone();
                    stage.world.with(|state| state.scribble(&identity));
                }
                let (stage, since) = lost(stage, back).await;
                let view = stage.end(&request).await;
                let state = if equal { State::Succeeded } else { State::NeedsOperator };
                assert_eq!(view.state, state, "{view:#?}");
                assert_eq!(cause(&view), (!equal).then_some(FailureCause::PivotFailed));
                // Nothing has to be waited for; removing the source waits for a dead client's watch.
                let bound = Duration::from_secs(if equal { 40 } else { 6 });
                assert!(since.elapsed() < bound, "{:?}", since.elapsed());
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_lost_after_the_pivot_has_moved() {
    for (home, pool) in PAIRS {
        for stale in [false, true] {
            for back in BACK {
                let stage = Stage::new(home, true).await;
                // Moved, and not yet compared.
                stage.world.fault(Method::QemuDevices, 3, Fault::Hang);
                let request = stage.guest.request(pool);
                stage.begin(&request).await;
                stage.reaches(&request, State::Moved).await;
                if stale {
                    // libvirtd did not live to write the definition.
                    stage.world.with(|state| {
                        let domain = state.domains.get_mut(&stage.guest.uuid).expect("the guest");
                        let stored = domain.inactive_xml.take().expect("a stored definition");
                        domain.inactive_xml = Some(stored.replace("web-root", "of-last-year"));
                    });
                }
                let (stage, _) = lost(stage, back).await;
                let view = stage.end(&request).await;
                assert_eq!(view.state, State::Succeeded, "{view:#?}");
                assert!(stored_names(&stage, &view, true), "{view:#?}");
                let repaired = view.warnings.iter().any(|text| text.contains("it now names"));
                assert_eq!(repaired, stale, "{view:#?}");
            }
        }
    }
}
