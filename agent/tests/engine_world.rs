//! What others and the host do to a disk while it is being moved: each has its own cause, and none its volume's life.

use std::time::Duration;

use tokio::time::Instant;
use volferry_agent::fake::Stage;
use volferry_agent::fake::domain::Pace;
use volferry_agent::fake::faults::{Fault, Method};
use volferry_agent::fake::scene::Home;
use volferry_agent::operation::{FailureCause, OperationView, State};
use volferry_agent::ports::{CopyRequest, EventKind};
use volferry_agent::spec::{BytesPerSecond, MigrateSpec};

const PAIRS: [(Home, &str); 3] =
    [(Home::Rbd, "ceph-ssd"), (Home::Rbd, "nfs-1"), (Home::File, "ceph-hdd")];
const LONG: Duration = Duration::from_secs(3600);

fn slow(stage: &Stage) {
    let pace = Pace { copy: 1 << 20, ..Pace::default() };
    stage.world.pace(&stage.guest.uuid, "vda", pace);
}

fn cause(view: &OperationView) -> Option<FailureCause> {
    view.failure.as_ref().map(|failure| failure.cause)
}

/// A stage with a running copy, or one that is ready and waits.
async fn at(home: Home, pool: &str, persistent: bool, state: State) -> (Stage, MigrateSpec) {
    let stage = Stage::new(home, persistent).await;
    let mut request = stage.guest.request(pool);
    match state {
        State::Copying => slow(&stage),
        _ => request.manual_pivot = true,
    }
    stage.begin(&request).await;
    stage.reaches(&request, state).await;
    (stage, request)
}

#[tokio::test(start_paused = true)]
async fn libvirt_away_for_hours_before_the_copy_is_waited_for() {
    let moments = [Method::CreateImage, Method::CreateFile, Method::RenameImage, Method::StartCopy];
    for (home, pool) in PAIRS {
        for method in moments {
            for nth in [1, 2] {
                let stage = Stage::new(home, true).await;
                let request = stage.guest.request(pool);
                stage.world.before(method, nth, |world| world.libvirt_away());
                stage.begin(&request).await;
                tokio::time::sleep(3 * LONG).await;
                let view = stage.agent.engine.operation(&request.operation).await;
                let view = view.expect("it is known");
                let gone = stage.world.with(|state| !state.connected);
                let waits = view.state.is_moved() || !view.state.is_final();
                assert!(!gone || waits, "{method:?}: {view:#?}");
                stage.world.libvirt_back();
                assert_eq!(stage.end(&request).await.state, State::Succeeded);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn libvirt_away_for_hours_at_the_start_of_the_agent_is_waited_for() {
    for state in [State::Queued, State::Preparing, State::Copying, State::Ready] {
        let stage = Stage::new(Home::Rbd, true).await;
        slow(&stage);
        let mut request = stage.guest.request("nfs-1");
        request.manual_pivot = state == State::Ready;
        if state == State::Preparing {
            stage.world.fault(Method::CreateFile, 1, Fault::Hang);
        }
        stage.begin(&request).await;
        if state != State::Queued {
            stage.reaches(&request, state).await;
        }
        stage.agent.engine.stop().await;
        stage.world.libvirt_away();
        let stage = stage.restart().await;
        tokio::time::sleep(LONG).await;
        let view = stage.agent.engine.operation(&request.operation).await.expect("it is known");
        assert!(!view.state.is_final(), "{view:#?}");
        stage.world.libvirt_back();
        if state == State::Ready {
            stage.agent.engine.complete(&request.operation).await.expect("it waits for the word");
        }
        assert_eq!(stage.end(&request).await.state, State::Succeeded);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_and_a_deadline_end_the_wait_for_libvirt() {
    for by_deadline in [false, true] {
        let stage = Stage::new(Home::Rbd, true).await;
        let mut request = stage.guest.request("nfs-1");
        request.deadline = by_deadline.then_some(LONG);
        stage.world.before(Method::StartCopy, 1, |world| world.libvirt_away());
        stage.begin(&request).await;
        tokio::time::sleep(LONG / 2).await;
        let view = stage.agent.engine.operation(&request.operation).await.expect("it is known");
        assert_eq!(view.state, State::Preparing);
        assert!(view.detail.as_ref().is_some_and(|text| text.contains("libvirt")), "{view:#?}");
        if by_deadline {
            tokio::time::sleep(LONG).await;
        } else {
            stage.agent.engine.cancel(&request.operation).await.expect("it may be cancelled");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // The way back has begun and waits for libvirt to say that no job runs.
        let view = stage.agent.engine.operation(&request.operation).await.expect("it is known");
        assert_eq!(view.state, State::RollingBack, "{view:#?}");
        stage.world.libvirt_back();
        let view = stage.end(&request).await;
        match by_deadline {
            true => {
                assert_eq!(view.state, State::Failed);
                assert_eq!(cause(&view), Some(FailureCause::LibvirtGone), "{view:#?}");
            }
            false => assert_eq!((view.state, cause(&view)), (State::Cancelled, None)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn libvirt_restarted_again_and_again_costs_no_operation() {
    for (home, pool) in PAIRS {
        for every in [3, 7, 20] {
            let stage = Stage::new(home, true).await;
            let pace = Pace { copy: 16 << 20, ..Pace::default() };
            stage.world.pace(&stage.guest.uuid, "vda", pace);
            let request = stage.guest.request(pool);
            stage.begin(&request).await;
            let world = stage.world.clone();
            let restarting = tokio::spawn(async move {
                for _ in 0..20 {
                    tokio::time::sleep(Duration::from_secs(every)).await;
                    world.libvirt_away();
                    tokio::time::sleep(Duration::from_secs(2)).await;
                    world.libvirt_back();
                }
            });
            let view = stage.end(&request).await;
            restarting.abort();
            assert_eq!(view.state, State::Succeeded, "{view:#?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn events_missed_while_libvirt_was_away_are_found_by_reading() {
    for (home, pool) in PAIRS {
        // READY.
        let stage = Stage::new(home, true).await;
        let request = stage.guest.request(pool);
        stage.begin(&request).await;
        stage.reaches(&request, State::Copying).await;
        stage.world.libvirt_away();
        tokio::time::sleep(LONG).await;
        stage.world.libvirt_back();
        let back = Instant::now();
        assert_eq!(stage.end(&request).await.state, State::Succeeded);
        assert!(back.elapsed() < Duration::from_secs(60), "{:?}", back.elapsed());
        // FAILED.
        let (stage, request) = at(home, pool, true, State::Copying).await;
        stage.world.libvirt_away();
        let uuid = stage.guest.uuid.clone();
        stage.world.with(|state| state.fail_job(&uuid, "vda", None, "Input/output error"));
        tokio::time::sleep(LONG).await;
        stage.world.libvirt_back();
        let view = stage.end(&request).await;
        assert_eq!((view.state, cause(&view)), (State::Failed, Some(FailureCause::JobLost)));
        // COMPLETED, of our own pivot.
        let stage = Stage::new(home, true).await;
        stage.world.fault(Method::Pivot, 1, Fault::NoAnswer { effect: true });
        stage.world.before(Method::Pivot, 1, |world| world.libvirt_away());
        let request = stage.guest.request(pool);
        stage.begin(&request).await;
        stage.reaches(&request, State::Pivoting).await;
        tokio::time::sleep(LONG).await;
        stage.world.libvirt_back();
        assert_eq!(stage.end(&request).await.state, State::Succeeded);
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_stops_has_its_own_cause_in_every_state() {
    type Stop = fn(&Stage);
    let stops: [(&str, Stop); 3] = [
        ("killed", |stage| stage.world.kill_qemu(&stage.guest.uuid)),
        ("shut down", |stage| stage.world.shut_down(&stage.guest.uuid)),
        ("destroyed", |stage| stage.world.destroy(&stage.guest.uuid)),
    ];
    for (home, pool) in PAIRS {
        for persistent in [true, false] {
            for state in [State::Copying, State::Ready] {
                for (how, stop) in stops {
                    let (stage, request) = at(home, pool, persistent, state).await;
                    stop(&stage);
                    let stopped = Instant::now();
                    let view = stage.end(&request).await;
                    let told = format!("{home:?} {pool} {state} {how}: {view:#?}");
                    assert_eq!(view.state, State::Failed, "{told}");
                    assert_eq!(cause(&view), Some(FailureCause::GuestGone), "{told}");
                    // A dead client's watch lasts 30 s; what it holds is removed soon after.
                    assert!(stopped.elapsed() < Duration::from_secs(40), "{told}");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_is_unplugged_is_told_as_such() {
    for (home, pool) in PAIRS {
        for state in [State::Copying, State::Ready] {
            let (stage, request) = at(home, pool, true, state).await;
            stage.world.unplug(&stage.guest.uuid, "vda");
            let view = stage.agent.end(&request.operation).await;
            assert_eq!(view.state, State::Failed, "{view:#?}");
            assert_eq!(cause(&view), Some(FailureCause::JobStolen), "{view:#?}");
            let text = view.failure.clone().map(|failure| failure.text).unwrap_or_default();
            assert!(text.contains("unplugged disk vda"), "{text}");
            assert_eq!(stage.world.volumes(), stage.before);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn another_job_in_place_of_ours_is_told_as_such() {
    for lost in [false, true] {
        let (stage, request) = at(Home::Rbd, "nfs-1", true, State::Copying).await;
        let copying = stage.agent.engine.operation(&request.operation).await.expect("known");
        let uuid = stage.guest.uuid.clone();
        if lost {
            stage.world.lose_event(|kind| matches!(kind, EventKind::JobEnded(_)));
        }
        stage.world.with(|state| state.abort_job(&uuid, "vda", "abort")).expect("a job");
        let plan = stage.agent.journal.stored(&request.operation).await.expect("readable");
        let plan = plan.expect("it is known").plan;
        let others = copying.destination.renamed("of-somebody.qcow2");
        let mut stage = stage;
        stage.stranger(&others);
        let xml = plan.destination_xml.replace("web-root.qcow2", "of-somebody.qcow2");
        stage.world.with(|state| {
            for file in state.files.values_mut() {
                file.size = 1 << 30;
            }
        });
        let theirs = CopyRequest {
            domain: uuid.clone(),
            target: plan.target.clone(),
            destination_xml: xml,
            flags: plan.flags.clone(),
            bandwidth: None,
        };
        stage.world.ports().jobs.start_copy(&theirs).await.expect("the disk is free");
        let view = stage.agent.end(&request.operation).await;
        assert_eq!((view.state, cause(&view)), (State::Failed, Some(FailureCause::JobStolen)));
        let volumes = stage.world.volumes();
        assert!(!volumes.contains_key(&copying.destination.to_string()));
        assert!(volumes.contains_key(&others.to_string()), "it is somebody else's");
    }
}

#[tokio::test(start_paused = true)]
async fn a_definition_undefined_or_edited_during_the_copy_is_no_reason_to_fail() {
    for (home, pool) in PAIRS {
        for undefined in [true, false] {
            let (stage, request) = at(home, pool, true, State::Ready).await;
            stage.world.with(|state| {
                let domain = state.domains.get_mut(&stage.guest.uuid).expect("the guest");
                if undefined {
                    (domain.persistent, domain.inactive_xml) = (false, None);
                } else {
                    let stored = domain.inactive_xml.take().expect("a stored definition");
                    domain.inactive_xml = Some(stored.replace("web-root", "of-last-year"));
                }
            });
            stage.agent.engine.complete(&request.operation).await.expect("it waits for the word");
            let view = stage.end(&request).await;
            assert_eq!(view.state, State::Succeeded, "{view:#?}");
            let repaired = view.warnings.iter().any(|text| text.contains("it now names"));
            assert_eq!(repaired, !undefined, "{view:#?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_definition_undefined_during_the_copy_and_a_guest_that_stops_keep_the_source() {
    let (stage, request) = at(Home::Rbd, "nfs-1", true, State::Copying).await;
    stage.world.with(|state| {
        let domain = state.domains.get_mut(&stage.guest.uuid).expect("the guest");
        (domain.persistent, domain.inactive_xml) = (false, None);
    });
    stage.world.shut_down(&stage.guest.uuid);
    let view = stage.end(&request).await;
    assert_eq!((view.state, cause(&view)), (State::Failed, Some(FailureCause::GuestGone)));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_stops_leaves_the_copy_running_and_the_next_one_goes_on() {
    for (home, pool) in PAIRS {
        let stage = Stage::new(home, true).await;
        let pace = Pace { copy: 64 << 20, ..Pace::default() };
        stage.world.pace(&stage.guest.uuid, "vda", pace);
        let mut request = stage.guest.request(pool);
        request.manual_pivot = true;
        stage.begin(&request).await;
        stage.reaches(&request, State::Copying).await;
        let limit = BytesPerSecond::new(32 << 20).ok();
        stage.agent.engine.set_bandwidth(&request.operation, limit).await.expect("it copies");
        tokio::time::sleep(Duration::from_secs(4)).await;
        stage.agent.engine.stop().await;
        let copied = |stage: &Stage| {
            stage.world.with(|state| {
                let disk = state.domains[&stage.guest.uuid].disk("vda");
                disk.and_then(|disk| disk.job.as_ref()).map(|job| (job.copied as u64, job.limit))
            })
        };
        let before = copied(&stage).expect("the copy runs on");
        tokio::time::sleep(Duration::from_secs(4)).await;
        let after = copied(&stage).expect("the copy runs on");
        assert!(after.0 > before.0 && after.1 == limit, "{before:?} {after:?}");
        let stage = stage.restart().await;
        let shown = stage.agent.until(&request.operation, |view| view.progress.copied.0 > 0).await;
        assert_eq!((shown.state, shown.bandwidth), (State::Copying, limit));
        assert!(shown.progress.copied.0 >= after.0, "{shown:#?}");
        let ready = stage.reaches(&request, State::Ready).await;
        assert!(ready.waits_for_pivot, "the wish for a word to pivot lives on");
        let calls = stage.world.calls();
        assert_eq!(calls.iter().filter(|method| **method == Method::StartCopy).count(), 1);
        assert!(!calls.contains(&Method::Abort), "{calls:?}");
        stage.agent.engine.complete(&request.operation).await.expect("it waits for the word");
        let view = stage.end(&request).await;
        assert_eq!(view.state, State::Succeeded);
        // A phase lasts from its beginning to the next one's, whichever life saw them.
        for pair in view.phases.windows(2) {
            let between = pair[1].entered.duration_since(pair[0].entered).expect("in order");
            let lasted = pair[0].lasted.expect("it is over");
            assert!(between.abs_diff(lasted) < Duration::from_millis(5), "{pair:#?}");
        }
    }
}
