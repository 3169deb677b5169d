//! Ends that are not success: cancels, deadlines, full pools, strangers, guests that stop. Each leaves the disk on
//! its source and nothing of the destination.

use std::time::Duration;

use volferry_agent::fake::Stage;
use volferry_agent::fake::domain::Pace;
use volferry_agent::fake::faults::{Fault, Method};
use volferry_agent::fake::scene::Home;
use volferry_agent::operation::{FailureCause, Side, SourceFate, State};
use volferry_agent::plan::RefusalCode;
use volferry_agent::ports::{DomainState, ErrorClass, EventKind};
use volferry_agent::spec::{BytesPerSecond, MigrateSpec};

const PAIRS: [(Home, &str); 3] =
    [(Home::Rbd, "ceph-ssd"), (Home::Rbd, "nfs-1"), (Home::File, "ceph-hdd")];

fn slow(stage: &Stage) {
    let pace = Pace { copy: 1 << 20, ..Pace::default() };
    stage.world.pace(&stage.guest.uuid, "vda", pace);
}

fn create(home: Home, pool: &str) -> Method {
    match (home, pool) {
        (_, "nfs-1") => Method::CreateFile,
        _ => Method::CreateImage,
    }
}

async fn fails(stage: &Stage, request: &MigrateSpec, cause: FailureCause, side: Side) -> String {
    let view = stage.end(request).await;
    let failure = view.failure.clone().unwrap_or_else(|| panic!("no failure: {view:#?}"));
    assert_eq!(
        (view.state, failure.cause, failure.side),
        (State::Failed, cause, side),
        "{view:#?}"
    );
    failure.text
}

#[tokio::test(start_paused = true)]
async fn a_cancel_is_honoured_in_every_state_before_the_pivot() {
    let states = [State::Queued, State::Planned, State::Preparing, State::Copying, State::Ready];
    for (home, pool) in PAIRS {
        for state in states {
            let stage = Stage::new(home, true).await;
            let mut request = stage.guest.request(pool);
            request.manual_pivot = true;
            match state {
                // Before the journal takes the intent of the first effect.
                State::Planned => stage.world.hold_agent_at(4),
                State::Preparing => stage.world.fault(create(home, pool), 1, Fault::Hang),
                _ => {}
            }
            stage.begin(&request).await;
            if state != State::Queued {
                stage.reaches(&request, state).await;
            }
            let cancelled = stage.agent.engine.cancel(&request.operation).await;
            assert!(cancelled.expect("it may be cancelled").state.can_cancel());
            if matches!(state, State::Planned | State::Preparing) {
                tokio::time::sleep(Duration::from_secs(1)).await;
                stage.world.release();
            }
            let view = stage.end(&request).await;
            assert_eq!(view.state, State::Cancelled, "{view:#?}");
            assert_eq!((view.failure.as_ref(), view.warnings.len()), (None, 0));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_needs_no_journal() {
    let stage = Stage::new(Home::Rbd, true).await;
    let mut request = stage.guest.request("nfs-1");
    request.bandwidth = BytesPerSecond::new(1 << 20).ok();
    stage.begin(&request).await;
    stage.reaches(&request, State::Copying).await;
    stage.world.fail_journal(1..usize::MAX);
    let faster = stage.agent.engine.set_bandwidth(&request.operation, None).await;
    assert!(faster.is_err(), "a limit that is forgotten with the agent is not promised");
    stage.agent.engine.cancel(&request.operation).await.expect("it may be cancelled");
    assert_eq!(stage.end(&request).await.state, State::Cancelled);
    // The next life makes the same end of it.
    let stage = stage.restart().await;
    stage.world.fail_journal(0..0);
    assert!(matches!(stage.end(&request).await.state, State::Cancelled | State::Failed));
}

#[tokio::test(start_paused = true)]
async fn a_cancel_is_refused_from_the_pivot_on() {
    for (method, state) in
        [(Method::Pivot, State::Pivoting), (Method::RemoveImage, State::Cleaning)]
    {
        let stage = Stage::new(Home::Rbd, true).await;
        let request = stage.guest.request("nfs-1");
        stage.world.fault(method, 1, Fault::Hang);
        stage.begin(&request).await;
        stage.reaches(&request, state).await;
        let refused = stage.agent.engine.cancel(&request.operation).await.expect_err("too late");
        assert!(refused.to_string().contains(state.as_str()), "{refused}");
        stage.world.release();
        assert_eq!(stage.end(&request).await.state, State::Succeeded);
        assert!(stage.agent.engine.cancel(&request.operation).await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn the_deadline_ends_a_copy_that_never_converges() {
    let stage = Stage::new(Home::Rbd, true).await;
    let pace = Pace { copy: 16 << 20, dirty: 16 << 20, ..Pace::default() };
    stage.world.pace(&stage.guest.uuid, "vda", pace);
    let mut request = stage.guest.request("ceph-ssd");
    request.deadline = Some(Duration::from_secs(3600));
    let began = tokio::time::Instant::now();
    stage.begin(&request).await;
    fails(&stage, &request, FailureCause::Deadline, Side::Host).await;
    assert!(began.elapsed() < Duration::from_secs(3610));
}

#[tokio::test(start_paused = true)]
async fn the_deadline_counts_from_the_request_also_over_restarts() {
    let stage = Stage::new(Home::Rbd, true).await;
    slow(&stage);
    let mut request = stage.guest.request("ceph-ssd");
    request.deadline = Some(Duration::from_secs(600));
    let began = tokio::time::Instant::now();
    stage.begin(&request).await;
    tokio::time::sleep(Duration::from_secs(400)).await;
    let stage = stage.restart().await;
    fails(&stage, &request, FailureCause::Deadline, Side::Host).await;
    assert!(began.elapsed() < Duration::from_secs(610), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_deadline_also_ends_a_wait_for_the_word_to_pivot() {
    let stage = Stage::new(Home::Rbd, true).await;
    let mut request = stage.guest.request("ceph-ssd");
    (request.manual_pivot, request.deadline) = (true, Some(Duration::from_secs(600)));
    stage.begin(&request).await;
    fails(&stage, &request, FailureCause::Deadline, Side::Host).await;
}

#[tokio::test(start_paused = true)]
async fn a_full_destination_is_told_in_qemus_words() {
    for percent in [0, 50, 99] {
        let stage = Stage::new(Home::Rbd, true).await;
        let place = stage.guest.volume.clone();
        stage.world.before(Method::StartCopy, 1, move |world| {
            world.with(|state| {
                let whole = state.volume(&place).expect("the source").allocated;
                let room = whole / 100 * percent;
                state.folders.values_mut().for_each(|folder| folder.available = room);
            });
        });
        let request = stage.guest.request("nfs-1");
        stage.begin(&request).await;
        let text = fails(&stage, &request, FailureCause::DestinationFull, Side::Destination).await;
        assert_eq!(text, "No space left on device", "at {percent} %");
    }
}

#[tokio::test(start_paused = true)]
async fn a_destination_of_another_size_is_told_in_qemus_words() {
    let stage = Stage::new(Home::File, true).await;
    stage.world.before(Method::StartCopy, 1, |world| {
        world.with(|state| {
            for image in state.clusters[1].pools.values_mut().flat_map(|p| p.images.values_mut()) {
                image.size += 4096;
            }
        });
    });
    let request = stage.guest.request("ceph-ssd");
    stage.begin(&request).await;
    let text = fails(&stage, &request, FailureCause::SizeMismatch, Side::Destination).await;
    assert_eq!(text, "Source and target image have different sizes");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_cannot_be_read_is_blamed_and_not_the_destination() {
    let stage = Stage::new(Home::Rbd, true).await;
    slow(&stage);
    let request = stage.guest.request("ceph-ssd");
    stage.begin(&request).await;
    stage.reaches(&request, State::Copying).await;
    let uuid = stage.guest.uuid.clone();
    stage.world.with(|state| state.fail_job(&uuid, "vda", Some("read"), "Input/output error"));
    fails(&stage, &request, FailureCause::SourceReadError, Side::Source).await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_job_without_any_event_is_found_by_reading() {
    let stage = Stage::new(Home::Rbd, true).await;
    slow(&stage);
    let request = stage.guest.request("ceph-ssd");
    stage.begin(&request).await;
    stage.reaches(&request, State::Copying).await;
    stage.world.lose_event(|kind| matches!(kind, EventKind::JobEnded(_)));
    stage.world.lose_event(|kind| matches!(kind, EventKind::QemuJobCompleted { .. }));
    let uuid = stage.guest.uuid.clone();
    stage.world.with(|state| state.fail_job(&uuid, "vda", None, "Input/output error"));
    fails(&stage, &request, FailureCause::JobLost, Side::Host).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_somebody_else_ends_is_stolen() {
    for manual in [false, true] {
        let stage = Stage::new(Home::Rbd, true).await;
        slow(&stage);
        let mut request = stage.guest.request("ceph-ssd");
        request.manual_pivot = manual;
        stage.begin(&request).await;
        stage.reaches(&request, if manual { State::Ready } else { State::Copying }).await;
        let uuid = stage.guest.uuid.clone();
        stage.world.with(|state| state.abort_job(&uuid, "vda", "abort")).expect("a job");
        fails(&stage, &request, FailureCause::JobStolen, Side::Host).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_stops_while_its_disk_is_copied_keeps_its_source() {
    for persistent in [true, false] {
        for killed in [true, false] {
            for lost in [true, false] {
                let stage = Stage::new(Home::Rbd, persistent).await;
                slow(&stage);
                let request = stage.guest.request("nfs-1");
                stage.begin(&request).await;
                stage.reaches(&request, State::Copying).await;
                if lost {
                    stage.world.lose_event(|kind| matches!(kind, EventKind::DomainStopped { .. }));
                }
                match killed {
                    true => stage.world.kill_qemu(&stage.guest.uuid),
                    false => stage.world.shut_down(&stage.guest.uuid),
                }
                fails(&stage, &request, FailureCause::GuestGone, Side::Guest).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_stops_before_the_copy_begins_is_no_fault_of_the_destination() {
    let moments = [(Method::CreateImage, 1), (Method::QemuDevices, 2), (Method::StartCopy, 1)];
    for (method, nth) in moments {
        let stage = Stage::new(Home::File, true).await;
        let uuid = stage.guest.uuid.clone();
        stage.world.before(method, nth, move |world| world.shut_down(&uuid));
        let request = stage.guest.request("ceph-ssd");
        stage.begin(&request).await;
        fails(&stage, &request, FailureCause::GuestGone, Side::Guest).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_destination_replaced_before_the_pivot_is_never_pivoted_to() {
    for (home, pool) in PAIRS {
        let mut stage = Stage::new(home, true).await;
        let mut request = stage.guest.request(pool);
        request.manual_pivot = true;
        stage.begin(&request).await;
        let view = stage.reaches(&request, State::Ready).await;
        stage.stranger(&view.destination);
        stage.agent.engine.complete(&request.operation).await.expect("it waits for the word");
        let replaced = FailureCause::DestinationReplaced;
        fails(&stage, &request, replaced, Side::Destination).await;
        assert!(!stage.world.calls().contains(&Method::Pivot));
        let view = stage.agent.engine.operation(&request.operation).await.expect("it is known");
        assert!(view.warnings[0].contains("lost its name"), "{:?}", view.warnings);
    }
}

#[tokio::test(start_paused = true)]
async fn a_destination_deleted_before_the_pivot_is_never_pivoted_to() {
    let stage = Stage::new(Home::Rbd, true).await;
    let mut request = stage.guest.request("nfs-1");
    request.manual_pivot = true;
    stage.begin(&request).await;
    stage.reaches(&request, State::Ready).await;
    stage.world.with(|state| state.files.clear());
    stage.agent.engine.complete(&request.operation).await.expect("it waits for the word");
    fails(&stage, &request, FailureCause::DestinationReplaced, Side::Destination).await;
}

#[tokio::test(start_paused = true)]
async fn a_stranger_who_takes_the_final_name_keeps_his_volume() {
    for (home, pool) in PAIRS {
        let mut stage = Stage::new(home, true).await;
        let request = stage.guest.request(pool);
        stage.world.fault(create(home, pool), 1, Fault::Hang);
        stage.begin(&request).await;
        let view = stage.reaches(&request, State::Preparing).await;
        stage.stranger(&view.destination);
        tokio::time::sleep(Duration::from_secs(1)).await;
        stage.world.release();
        fails(&stage, &request, FailureCause::DestinationReplaced, Side::Destination).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_somebody_still_has_open_stays_and_the_move_succeeds() {
    let stage = Stage::new(Home::Rbd, true).await;
    stage.world.with(|state| {
        for image in state.clusters[0].pools.values_mut().flat_map(|p| p.images.values_mut()) {
            image.watchers.push("192.0.2.99:0/1".to_owned());
        }
    });
    let view = stage.run(&stage.guest.request("ceph-ssd")).await;
    assert_eq!(view.state, State::Succeeded);
    let fate = view.result.as_ref().map(|result| &result.source);
    assert!(matches!(fate, Some(SourceFate::LeftBehind { .. })), "{fate:?}");
    assert!(view.warnings.iter().any(|text| text.contains("192.0.2.99")), "{:?}", view.warnings);
}

#[tokio::test(start_paused = true)]
async fn a_source_with_snapshots_or_clones_is_moved_and_stays_under_its_retired_name() {
    let stage = Stage::new(Home::Rbd, true).await;
    stage.world.with(|state| {
        for image in state.clusters[0].pools.values_mut().flat_map(|p| p.images.values_mut()) {
            image.snapshots.push("daily".to_owned());
            image.children.push("hdd/clone".to_owned());
        }
    });
    let view = stage.run(&stage.guest.request("nfs-1")).await;
    assert_eq!(view.state, State::Succeeded);
    assert!(view.warnings.iter().any(|text| text.contains("daily") && text.contains("hdd/clone")));
}

#[tokio::test(start_paused = true)]
async fn a_source_that_another_domain_takes_meanwhile_keeps_its_name() {
    let stage = Stage::new(Home::Rbd, true).await;
    let other = stage.scene.guest("other", Home::File, true);
    let web = stage.guest.uuid.clone();
    let mut request = stage.guest.request("nfs-1");
    request.manual_pivot = true;
    stage.begin(&request).await;
    stage.agent.until(&request.operation, |view| view.waits_for_pivot).await;
    stage.world.with(|state| {
        let text = state.domains[&web].inactive_xml.clone().expect("a stored definition");
        let other = state.domains.get_mut(&other.uuid).expect("the other guest");
        other.inactive_xml = Some(text);
    });
    stage.agent.engine.complete(&request.operation).await.expect("it waits for the word");
    let view = stage.agent.end(&request.operation).await;
    assert_eq!(view.state, State::Succeeded);
    assert!(stage.world.volumes().contains_key(&stage.guest.volume.to_string()));
    assert!(view.warnings.iter().any(|text| text.contains("other")), "{:?}", view.warnings);
}

#[tokio::test(start_paused = true)]
async fn a_stored_definition_that_names_something_else_is_repaired() {
    let stage = Stage::new(Home::Rbd, true).await;
    stage.world.with(|state| {
        let domain = state.domains.get_mut(&stage.guest.uuid).expect("the guest");
        let stored = domain.inactive_xml.take().expect("a stored definition");
        domain.inactive_xml = Some(stored.replace("hdd/web-root", "hdd/of-last-year"));
    });
    let view = stage.run(&stage.guest.request("ceph-ssd")).await;
    assert_eq!(view.state, State::Succeeded);
    assert!(view.warnings.iter().any(|text| text.contains("stored definition")));
}

#[tokio::test(start_paused = true)]
async fn a_device_that_is_not_on_what_the_xml_names_is_not_touched() {
    let stage = Stage::new(Home::Rbd, true).await;
    stage.world.with(|state| {
        let domain = state.domains.get_mut(&stage.guest.uuid).expect("the guest");
        domain.live_xml = domain.live_xml.replace("hdd/web-root", "hdd/of-last-year");
    });
    let request = stage.guest.request("ceph-ssd");
    let refusal = stage.agent.engine.migrate(request).await.expect_err("libvirt lost track");
    assert_eq!(refusal.code, RefusalCode::StateMismatch, "{refusal}");
    assert!(refusal.message.contains("web-root") && refusal.message.contains("of-last-year"));
    assert_eq!(stage.world.volumes(), stage.before);
}

#[tokio::test(start_paused = true)]
async fn the_world_refuses_with_its_own_codes() {
    type Change = fn(&mut volferry_agent::fake::state::State);
    let cases: [(&str, Change, RefusalCode); 9] = [
        ("ceph-ssd", |s| s.clusters[1].reachable = false, RefusalCode::PoolUnavailable),
        ("ceph-ssd", |s| s.clusters[1].key_accepted = false, RefusalCode::PoolAuthFailed),
        ("ceph-ssd", |s| s.clusters[1].pools.clear(), RefusalCode::PoolUnavailable),
        ("ceph-ssd", |s| s.secrets.clear(), RefusalCode::SecretMissing),
        (
            "ceph-ssd",
            |s| s.clusters[1].pools.values_mut().for_each(|p| p.full = true),
            RefusalCode::NoSpace,
        ),
        ("nfs-1", |s| s.folders.values_mut().for_each(|f| f.available = 1), RefusalCode::NoSpace),
        ("nfs-1", |s| s.folders.clear(), RefusalCode::PoolUnavailable),
        ("nfs-1", |s| s.domains.clear(), RefusalCode::DomainNotFound),
        (
            "nfs-1",
            |s| s.domains.values_mut().for_each(|d| d.state = DomainState::Paused),
            RefusalCode::NotRunning,
        ),
    ];
    for (pool, change, code) in cases {
        let stage = Stage::new(Home::Rbd, true).await;
        let request = stage.guest.request(pool);
        stage.world.with(change);
        let refusal = stage.agent.engine.migrate(request).await.expect_err("a refusal");
        assert_eq!(refusal.code, code, "{refusal}");
        assert!(!stage.world.calls().iter().any(|method| method.is_effect()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_effect_before_the_pivot_is_undone() {
    // The second one is the destination's mark, on which nothing depends.
    for nth in [1, 3, 4] {
        for class in [ErrorClass::PermissionDenied, ErrorClass::NoSpace, ErrorClass::Other] {
            let stage = Stage::new(Home::Rbd, true).await;
            stage.world.fault_effect(nth, Fault::Refuse(class, "it says no"));
            let request = stage.guest.request("ceph-ssd");
            let view = stage.run(&request).await;
            assert_eq!(view.state, State::Failed, "{view:#?}");
            let text = view.failure.clone().map(|failure| failure.text).unwrap_or_default();
            assert!(text.contains("it says no"), "{text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_libvirt_refuses_is_a_warning() {
    let stage = Stage::new(Home::Rbd, true).await;
    slow(&stage);
    let request = stage.guest.request("ceph-ssd");
    stage.begin(&request).await;
    stage.reaches(&request, State::Copying).await;
    stage.world.fault(Method::SetBandwidth, 1, Fault::Refuse(ErrorClass::Other, "it says no"));
    let limit = BytesPerSecond::new(1 << 30).ok();
    stage.agent.engine.set_bandwidth(&request.operation, limit).await.expect("it copies");
    let view = stage.end(&request).await;
    assert_eq!((view.state, view.bandwidth), (State::Succeeded, None));
    assert!(view.warnings.iter().any(|text| text.contains("it says no")));
}

#[tokio::test(start_paused = true)]
async fn a_copy_into_a_full_ceph_pool_is_not_removed_while_it_hangs() {
    let stage = Stage::new(Home::File, true).await;
    slow(&stage);
    let request = stage.guest.request("ceph-ssd");
    stage.begin(&request).await;
    let copying = stage.reaches(&request, State::Copying).await;
    let full = |full| {
        stage.world.with(|state| {
            state.clusters[1].pools.values_mut().for_each(|pool| pool.full = full);
        });
    };
    tokio::time::sleep(Duration::from_secs(10)).await;
    full(true);
    tokio::time::sleep(Duration::from_secs(600)).await;
    let waiting = stage.agent.engine.operation(&request.operation).await.expect("it is known");
    assert_eq!(waiting.state, State::RollingBack);
    let detail = waiting.detail.clone().unwrap_or_default();
    assert!(detail.contains("no answer") && detail.contains("pool-stalled"), "{waiting:#?}");
    assert!(stage.world.volumes().contains_key(&copying.destination.to_string()));
    full(false);
    let text = fails(&stage, &request, FailureCause::DestinationFull, Side::Destination).await;
    assert!(text.contains("pool ceph-ssd or its cluster is full"), "{text}");
}
