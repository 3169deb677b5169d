//! Answers that do not come: the pivot's, any effect's, all of libvirt's; and libvirt or QEMU dying around them.
//! What is true is found out by asking QEMU, never guessed.

use std::time::Duration;

use volferry_agent::fake::faults::{Fault, Method};
use volferry_agent::fake::scene::Home;
use volferry_agent::fake::{CALL_BOUND, Stage};
use volferry_agent::journal::{Proof, What};
use volferry_agent::operation::{Event, FailureCause, State};
use volferry_agent::ports::{ErrorClass, EventKind};
use volferry_agent::spec::MigrateSpec;

const PAIRS: [(Home, &str); 3] =
    [(Home::Rbd, "ceph-ssd"), (Home::Rbd, "nfs-1"), (Home::File, "ceph-hdd")];

async fn proof(stage: &Stage, request: &MigrateSpec) -> Option<Proof> {
    stage.history(request).await.iter().find_map(|what| match what {
        What::Proved { proof } => Some(*proof),
        _ => None,
    })
}

fn lose_ends(stage: &Stage) {
    stage.world.lose_event(|kind| matches!(kind, EventKind::JobEnded(_)));
    stage.world.lose_event(|kind| matches!(kind, EventKind::QemuJobCompleted { .. }));
}

/// Before anybody compares the volumes, somebody writes to one of them.
fn differ_at_the_end(stage: &Stage) {
    let place = stage.guest.volume.clone();
    stage.world.before(Method::CompareImages, 1, move |world| {
        world.with(|state| {
            let identity = state.volume(&place).expect("the source").identity;
            state.scribble(&identity);
        });
    });
}

#[tokio::test(start_paused = true)]
async fn a_pivot_whose_answer_is_lost_is_proved_by_its_event_or_by_qemu() {
    for (home, pool) in PAIRS {
        for events in [true, false] {
            let stage = Stage::new(home, true).await;
            stage.world.fault(Method::Pivot, 1, Fault::NoAnswer { effect: true });
            if !events {
                lose_ends(&stage);
            }
            let request = stage.guest.request(pool);
            let view = stage.run(&request).await;
            assert_eq!((view.state, view.warnings.len()), (State::Succeeded, 0), "{view:#?}");
            let expected = if events { Proof::JobCompleted } else { Proof::QemuUsesDestination };
            assert_eq!(proof(&stage, &request).await, Some(expected));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pivot_that_did_not_happen_is_tried_again() {
    let faults: [fn() -> Fault; 3] = [
        || Fault::NoAnswer { effect: false },
        || Fault::Refuse(ErrorClass::NotReady, "block job not ready for pivot yet"),
        || Fault::Refuse(ErrorClass::Busy, "cannot acquire state change lock"),
    ];
    for fault in faults {
        let stage = Stage::new(Home::Rbd, true).await;
        stage.world.fault(Method::Pivot, 1, fault());
        let request = stage.guest.request("ceph-ssd");
        let view = stage.run(&request).await;
        assert_eq!(view.state, State::Succeeded, "{view:#?}");
        let history = stage.history(&request).await;
        assert!(history.contains(&What::Transition { event: Event::PivotNotDone }));
        let pivots = stage.world.calls().iter().filter(|call| **call == Method::Pivot).count();
        assert_eq!(pivots, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pivot_that_happens_long_after_its_call_was_given_up_still_counts() {
    let stage = Stage::new(Home::File, true).await;
    stage.world.fault(Method::Pivot, 1, Fault::NoAnswer { effect: false });
    // QEMU answers nothing for a while after that, as it does when storage hangs.
    for nth in 1..=3 {
        let hangs = Fault::NoAnswer { effect: false };
        stage.world.fault(Method::QemuDevices, nth + 2, hangs);
    }
    let request = stage.guest.request("ceph-ssd");
    stage.begin(&request).await;
    stage.reaches(&request, State::Pivoting).await;
    tokio::time::sleep(CALL_BOUND * 2 + Duration::from_secs(5)).await;
    let view = stage.agent.engine.operation(&request.operation).await.expect("it is known");
    assert_eq!(view.state, State::Pivoting);
    assert!(view.detail.as_ref().is_some_and(|text| text.contains("not known")), "{view:#?}");
    assert!(view.volume_is_at().is_none(), "nobody knows at this moment");
    let uuid = stage.guest.uuid.clone();
    stage.world.with(|state| state.pivot(&uuid, "vda", "pivot")).expect("a ready job");
    assert_eq!(stage.end(&request).await.state, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn qemu_killed_within_the_pivot_without_proof_needs_an_operator() {
    for effect in [true, false] {
        let stage = Stage::new(Home::Rbd, true).await;
        lose_ends(&stage);
        differ_at_the_end(&stage);
        stage.world.fault(Method::Pivot, 1, Fault::NoAnswer { effect });
        let request = stage.guest.request("nfs-1");
        stage.begin(&request).await;
        stage.reaches(&request, State::Pivoting).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        stage.world.kill_qemu(&stage.guest.uuid);
        let view = stage.end(&request).await;
        assert_eq!(view.state, State::NeedsOperator, "{view:#?}");
        assert!(view.volume_is_at().is_none());
        let text = view.failure.as_ref().map(|failure| failure.text.clone()).unwrap_or_default();
        assert!(text.contains("web-root.qcow2") && text.contains("hdd/web-root"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn qemu_killed_within_the_pivot_with_equal_volumes_has_moved() {
    for (home, pool) in PAIRS {
        for comparable in [true, false] {
            let stage = Stage::new(home, true).await;
            lose_ends(&stage);
            stage.world.fault(Method::Pivot, 1, Fault::NoAnswer { effect: false });
            if !comparable {
                stage.world.with(|state| state.copy_pace = 1 << 20);
            }
            let request = stage.guest.request(pool);
            stage.begin(&request).await;
            stage.reaches(&request, State::Pivoting).await;
            stage.world.kill_qemu(&stage.guest.uuid);
            if comparable {
                let view = stage.end(&request).await;
                assert_eq!(view.state, State::Succeeded, "{view:#?}");
                assert_eq!(proof(&stage, &request).await, Some(Proof::VolumesEqual));
                continue;
            }
            let view = stage.end(&request).await;
            assert_eq!(view.state, State::NeedsOperator, "{view:#?}");
            let text = view.failure.as_ref().expect("undecided").text.clone();
            assert!(text.contains("could not be compared within 60s"), "{text}");
            // Settling has all the time it needs.
            let before = tokio::time::Instant::now();
            let settled = stage.agent.engine.settle(&request.operation).await.expect("equal");
            assert_eq!(settled.view.state, State::Succeeded);
            assert!(before.elapsed() > Duration::from_secs(60), "{:?}", before.elapsed());
            let found = settled.view.resolution.clone().expect("it was decided").found;
            assert!(found.iter().any(|line| line == "both volumes hold the same"), "{found:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_qemu_that_libvirt_lost_sight_of_is_not_taken_for_a_dead_one() {
    for (home, pool) in PAIRS {
        for effect in [true, false] {
            let stage = Stage::new(home, true).await;
            lose_ends(&stage);
            stage.world.fault(Method::Pivot, 1, Fault::NoAnswer { effect });
            let request = stage.guest.request(pool);
            stage.begin(&request).await;
            stage.reaches(&request, State::Pivoting).await;
            stage.world.lose_sight(&stage.guest.uuid);
            let view = stage.agent.end(&request.operation).await;
            assert_eq!(view.state, State::NeedsOperator, "{view:#?}");
            let text = view.failure.as_ref().expect("undecided").text.clone();
            assert!(text.contains("libvirt has lost sight of the QEMU"), "{text}");
            let cause = view.failure.as_ref().map(|failure| failure.cause);
            assert_eq!(cause, Some(FailureCause::PivotFailed));
            let engine = &stage.agent.engine;
            let early = engine.settle(&request.operation).await.expect_err("it still writes");
            assert!(early.to_string().contains("lost sight"), "{early}");
            // From inside, the guest shuts down: what it wrote last tells.
            stage.world.kill_qemu(&stage.guest.uuid);
            let settled = engine.settle(&request.operation).await;
            assert_eq!(settled.is_ok(), !effect, "{settled:#?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_qemu_lost_sight_of_after_the_pivot_disputes_the_move() {
    let stage = Stage::new(Home::Rbd, true).await;
    stage.world.fault(Method::QemuDevices, 3, Fault::Hang);
    let request = stage.guest.request("nfs-1");
    stage.begin(&request).await;
    stage.reaches(&request, State::Moved).await;
    stage.world.lose_sight(&stage.guest.uuid);
    stage.world.release();
    let view = stage.agent.end(&request.operation).await;
    assert_eq!(view.state, State::NeedsOperator, "{view:#?}");
    assert_eq!(view.volume_is_at(), Some(&view.destination));
    assert!(stage.world.volumes().contains_key(&view.source.to_string()));
}

#[tokio::test(start_paused = true)]
async fn qemu_killed_within_the_pivot_after_it_said_completed_is_proof() {
    let stage = Stage::new(Home::Rbd, true).await;
    stage.world.fault(Method::Pivot, 1, Fault::NoAnswer { effect: true });
    let request = stage.guest.request("nfs-1");
    stage.begin(&request).await;
    stage.reaches(&request, State::Pivoting).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    stage.world.kill_qemu(&stage.guest.uuid);
    let view = stage.end(&request).await;
    assert_eq!(view.state, State::Succeeded, "{view:#?}");
    assert_eq!(proof(&stage, &request).await, Some(Proof::JobCompleted));
}

#[tokio::test(start_paused = true)]
async fn a_job_somebody_ended_right_before_the_pivot_is_no_proof_of_it() {
    // QEMU reports a copy that is ended in step in the words it has for a pivot.
    let stage = Stage::new(Home::Rbd, true).await;
    let uuid = stage.guest.uuid.clone();
    stage.world.before(Method::Pivot, 1, move |world| {
        world.with(|state| state.abort_job(&uuid, "vda", "abort")).expect("a job");
    });
    let request = stage.guest.request("nfs-1");
    let view = stage.run(&request).await;
    assert_eq!(view.state, State::Failed, "{view:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_job_ended_by_somebody_before_qemu_dies_is_no_proof_either() {
    let stage = Stage::new(Home::Rbd, true).await;
    differ_at_the_end(&stage);
    let uuid = stage.guest.uuid.clone();
    stage.world.before(Method::Pivot, 1, move |world| {
        world.with(|state| state.abort_job(&uuid, "vda", "abort")).expect("a job");
        world.kill_qemu(&uuid);
    });
    let request = stage.guest.request("nfs-1");
    let view = stage.run(&request).await;
    // libvirt had nobody to ask: what QEMU said before it died was about the other end.
    assert_eq!(view.state, State::Failed, "{view:#?}");
    let cause = view.failure.as_ref().map(|failure| failure.cause);
    assert_eq!(cause, Some(FailureCause::GuestGone));
}

#[tokio::test(start_paused = true)]
async fn libvirt_that_dies_within_the_pivot_leaves_xml_that_is_not_believed() {
    // QEMU has switched; libvirt died before it wrote that down and keeps the old source in both XMLs.
    for (lost, killed) in [(false, false), (false, true), (true, false)] {
        let stage = Stage::new(Home::Rbd, true).await;
        let uuid = stage.guest.uuid.clone();
        if lost {
            lose_ends(&stage);
        }
        stage.world.before(Method::Pivot, 1, move |world| {
            world.with(|state| state.pivot_in_qemu(&uuid, "vda", "pivot")).expect("a ready job");
            world.with(|state| state.forget_mirror(&uuid, "vda"));
            world.libvirt_away();
        });
        let request = stage.guest.request("nfs-1");
        stage.begin(&request).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        if killed {
            stage.world.kill_qemu(&stage.guest.uuid);
        }
        stage.world.libvirt_back();
        let view = stage.agent.end(&request.operation).await;
        // As long as it runs, what libvirt tells of it is wrong.
        let state = if killed { State::Succeeded } else { State::NeedsOperator };
        assert_eq!(view.state, state, "{view:#?}");
        assert_eq!(view.volume_is_at(), Some(&view.destination));
        let volumes = stage.world.volumes();
        assert!(volumes.contains_key(&view.destination.to_string()));
        let stored =
            stage.world.with(|state| state.domains[&stage.guest.uuid].inactive_xml.clone());
        assert!(stored.is_some_and(|xml| xml.contains("web-root.qcow2")), "repaired");
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_started_again_after_a_pivot_nobody_saw_is_not_taken_for_the_old_one() {
    // The new QEMU is on the source because the stored XML still names it; what the old one had done is unknown.
    let stage = Stage::new(Home::Rbd, true).await;
    let uuid = stage.guest.uuid.clone();
    lose_ends(&stage);
    stage.world.before(Method::Pivot, 1, move |world| {
        world.with(|state| state.pivot_in_qemu(&uuid, "vda", "pivot")).expect("a ready job");
        world.with(|state| state.forget_mirror(&uuid, "vda"));
        world.libvirt_away();
        world.kill_qemu(&uuid);
        world.with(|state| state.start_again(&uuid));
    });
    let request = stage.guest.request("nfs-1");
    stage.begin(&request).await;
    stage.reaches(&request, State::Pivoting).await;
    stage.world.libvirt_back();
    let view = stage.agent.end(&request.operation).await;
    assert_eq!(view.state, State::NeedsOperator, "{view:#?}");
    let volumes = stage.world.volumes();
    assert!(volumes.contains_key(&view.destination.to_string()));
    assert!(volumes.contains_key(&view.source.to_string()));
}

#[tokio::test(start_paused = true)]
async fn a_failed_pivot_ends_on_the_source_with_qemus_words() {
    let stage = Stage::new(Home::Rbd, true).await;
    let uuid = stage.guest.uuid.clone();
    stage.world.before(Method::Pivot, 1, move |world| {
        world.with(|state| state.fail_job(&uuid, "vda", Some("write"), "Input/output error"));
    });
    let request = stage.guest.request("ceph-ssd");
    let view = stage.run(&request).await;
    let failure = view.failure.clone().expect("a failure");
    assert_eq!(
        (view.state, failure.cause),
        (State::Failed, FailureCause::PivotFailed),
        "{view:#?}"
    );
    assert_eq!(failure.text, "Input/output error");
}

#[tokio::test(start_paused = true)]
async fn an_effect_without_an_answer_ends_well_whether_it_happened_or_not() {
    for (home, pool) in PAIRS {
        for happens in [true, false] {
            let mut nth = 1;
            loop {
                let stage = Stage::new(home, true).await;
                stage.world.fault_effect(nth, Fault::NoAnswer { effect: happens });
                let request = stage.guest.request(pool);
                let view = stage.run(&request).await;
                let effects = stage.world.calls().iter().filter(|call| call.is_effect()).count();
                let right = match nth {
                    // What was made without an answer is not relied on.
                    1 => matches!(view.state, State::Succeeded | State::Failed),
                    _ => view.state == State::Succeeded,
                };
                assert!(right, "effect {nth}, happens {happens}: {view:#?}");
                if nth > effects {
                    break;
                }
                nth += 1;
            }
            assert!(nth > 5);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn libvirt_away_at_any_moment_is_waited_for() {
    for (home, pool) in PAIRS {
        let mut nth = 1;
        loop {
            let stage = Stage::new(home, true).await;
            let request = stage.guest.request(pool);
            // Counted from the end of planning: before that the request is refused as busy.
            stage.begin(&request).await;
            let away = move |world: &volferry_agent::fake::World| {
                world.libvirt_away();
                let world = world.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_secs(20)).await;
                    world.libvirt_back();
                });
            };
            let planned = stage.world.calls().len();
            stage.world.fault_call(nth, Fault::Do(Box::new(away)));
            let view = stage.end(&request).await;
            assert_eq!(view.state, State::Succeeded, "call {nth}: {view:#?}");
            if nth > stage.world.calls().len() - planned {
                break;
            }
            nth += 1;
        }
        assert!(nth > 20, "{nth}");
    }
}

#[tokio::test(start_paused = true)]
async fn libvirt_away_while_a_request_is_planned_refuses_it_for_later() {
    let stage = Stage::new(Home::Rbd, true).await;
    stage.world.libvirt_away();
    let request = stage.guest.request("nfs-1");
    let refusal = stage.agent.engine.migrate(request.clone()).await.expect_err("libvirt is away");
    assert_eq!(refusal.code.as_str(), "busy");
    stage.world.libvirt_back();
    assert_eq!(stage.run(&request).await.state, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn any_single_refusal_leaves_a_right_end() {
    let classes = [
        ErrorClass::Busy,
        ErrorClass::Unavailable,
        ErrorClass::PermissionDenied,
        ErrorClass::Other,
    ];
    for (home, pool) in PAIRS {
        for class in classes {
            let mut nth = 1;
            loop {
                let stage = Stage::new(home, true).await;
                let request = stage.guest.request(pool);
                stage.begin(&request).await;
                let planned = stage.world.calls().len();
                stage.world.fault_call(nth, Fault::Refuse(class, "it says no"));
                stage.end(&request).await;
                if nth > stage.world.calls().len() - planned {
                    break;
                }
                nth += 1;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_repair_without_an_answer_is_made_again() {
    for effect in [true, false] {
        let stage = Stage::new(Home::Rbd, true).await;
        stage.world.with(|state| {
            let domain = state.domains.get_mut(&stage.guest.uuid).expect("the guest");
            let stored = domain.inactive_xml.take().expect("a stored definition");
            domain.inactive_xml = Some(stored.replace("hdd/web-root", "hdd/of-last-year"));
        });
        stage.world.fault(Method::Define, 1, Fault::NoAnswer { effect });
        let view = stage.run(&stage.guest.request("ceph-ssd")).await;
        assert_eq!(view.state, State::Succeeded);
        assert_eq!(view.result.as_ref().map(|result| result.source.as_str()), Some("removed"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_away_for_a_moment_after_the_pivot_costs_no_source() {
    let stage = Stage::new(Home::Rbd, true).await;
    stage.world.before(Method::Pivot, 1, |world| {
        for (nth, method) in [(1, Method::FileIdentity), (1, Method::ImageId)] {
            let away = Fault::Refuse(ErrorClass::Unavailable, "Connection timed out");
            world.fault(method, nth, away);
        }
    });
    let view = stage.run(&stage.guest.request("nfs-1")).await;
    assert_eq!((view.state, view.warnings.len()), (State::Succeeded, 0), "{view:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_takes_nothing_for_a_moment_makes_no_end_wrong() {
    for length in [1, 3] {
        let mut nth = 1;
        loop {
            let stage = Stage::new(Home::Rbd, true).await;
            let request = stage.guest.request("nfs-1");
            stage.begin(&request).await;
            stage.world.fail_journal(nth..nth + length);
            let view = stage.end(&request).await;
            let writes = stage.world.journal_writes();
            // The next life reads the same story, also after the guest has stopped.
            stage.world.shut_down(&stage.guest.uuid);
            let stage = stage.restart().await;
            let again = stage.end(&request).await;
            assert_eq!(again.state, view.state, "write {nth}: {again:#?}");
            if nth > writes {
                break;
            }
            nth += 1;
        }
        assert!(nth > 15, "{nth}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_proof_the_journal_did_not_take_at_once_is_written_down_later() {
    let mut cleaned = 0;
    for nth in 1..25 {
        let stage = Stage::new(Home::Rbd, true).await;
        let request = stage.guest.request("nfs-1");
        stage.begin(&request).await;
        stage.world.fail_journal(nth..nth + 1);
        stage.world.fault(Method::RemoveImage, 1, Fault::Hang);
        tokio::time::sleep(Duration::from_secs(20)).await;
        let view = stage.agent.engine.operation(&request.operation).await.expect("it is known");
        // The agent is killed while it waits, and QEMU can no longer be asked when it comes back.
        stage.world.shut_down(&stage.guest.uuid);
        let stage = stage.restart().await;
        let again = stage.end(&request).await;
        if view.state == State::Cleaning {
            cleaned += 1;
            assert_eq!(again.state, State::Succeeded, "write {nth}: {again:#?}");
        }
    }
    assert!(cleaned > 10, "{cleaned}");
}
