//! Copies and the room in their pools: refused when they do not fit, ended while that is still possible. And what
//! a running copy says about itself.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use volferry_agent::fake::Stage;
use volferry_agent::fake::domain::Pace;
use volferry_agent::fake::faults::{Fault, Method};
use volferry_agent::fake::rbd::CephPool;
use volferry_agent::fake::scene::{DISK_ALLOCATED, Guest, Home};
use volferry_agent::operation::{Converges, FailureCause, Phase, Side, State};
use volferry_agent::plan::RefusalCode;
use volferry_agent::spec::{Bytes, MigrateSpec, Reserve, VolumeName};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

fn pace(stage: &Stage, copy: u64, dirty: u64) {
    let pace = Pace { copy: copy * MIB, dirty: dirty * MIB, ..Pace::default() };
    stage.world.pace(&stage.guest.uuid, "vda", pace);
}

fn ssd(stage: &Stage, change: impl Fn(&mut CephPool)) {
    stage.world.with(|state| state.clusters[1].pools.values_mut().for_each(&change));
}

async fn destination_full(stage: &Stage, request: &MigrateSpec) -> String {
    let view = stage.end(request).await;
    let failure = view.failure.clone().unwrap_or_else(|| panic!("no failure: {view:#?}"));
    assert_eq!(view.state, State::Failed);
    assert_eq!(
        (failure.cause, failure.side),
        (FailureCause::DestinationFull, Side::Destination),
        "{failure}"
    );
    failure.text
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_would_take_the_reserve_is_refused() {
    let fits = GIB + DISK_ALLOCATED;
    let cases: [(u64, Option<u64>, bool); 4] = [
        (fits, None, true),
        (fits - 1, None, false),
        (100 * GIB, Some(fits), true),
        (100 * GIB, Some(fits - 1), false),
    ];
    for (available, quota, accepted) in cases {
        let stage = Stage::new(Home::File, true).await;
        ssd(&stage, |pool| (pool.available, pool.quota) = (available, quota));
        let answer = stage.agent.engine.plan(stage.guest.request("ceph-ssd")).await;
        match answer {
            Ok(_) => assert!(accepted, "{available} {quota:?}"),
            Err(refusal) => {
                assert!(!accepted, "{available} {quota:?}: {refusal}");
                assert_eq!(refusal.code, RefusalCode::NoSpace, "{refusal}");
                assert!(refusal.message.contains("1 GiB must stay free"), "{refusal}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_nearly_full_takes_nothing_more() {
    let stage = Stage::new(Home::File, true).await;
    ssd(&stage, |pool| pool.near_full = true);
    let refusal = stage.agent.engine.migrate(stage.guest.request("ceph-ssd")).await;
    let refusal = refusal.expect_err("nearly full");
    assert_eq!(refusal.code, RefusalCode::NoSpace);
    assert!(refusal.message.contains("nearly full"), "{refusal}");
}

#[tokio::test(start_paused = true)]
async fn a_copy_whose_pool_fills_up_half_way_is_ended_while_it_can_be() {
    let stage = Stage::prepared(Home::File, true, |scene| {
        scene.host.limits.reserve = Reserve { percent: 0, at_least: Bytes::mib(64) };
    })
    .await;
    pace(&stage, 8, 0);
    let request = stage.guest.request("ceph-ssd");
    stage.begin(&request).await;
    stage.agent.until(&request.operation, |view| view.progress.copied.0 > GIB / 2).await;
    let filled = Instant::now();
    ssd(&stage, |pool| pool.quota = Some(pool.used() + 60 * MIB));
    let text = destination_full(&stage, &request).await;
    assert!(filled.elapsed() <= Duration::from_secs(2), "{:?}", filled.elapsed());
    assert!(text.contains("of its quota of") && text.contains("64 MiB must stay free"), "{text}");
    assert!(!stage.world.calls().contains(&Method::Pivot));
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_can_no_longer_fit_is_ended_long_before_the_pool_is_full() {
    let stage = Stage::new(Home::File, true).await;
    pace(&stage, 1, 0);
    let request = stage.guest.request("ceph-ssd");
    stage.begin(&request).await;
    stage.agent.until(&request.operation, |view| view.progress.copied.0 > 10 * MIB).await;
    ssd(&stage, |pool| pool.available = GIB + 300 * MIB);
    let text = destination_full(&stage, &request).await;
    assert!(text.contains("has 1.2 GiB left") && text.contains("are needed"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_is_in_step_is_ended_too_when_its_pool_fills_up() {
    let stage = Stage::new(Home::File, true).await;
    let mut request = stage.guest.request("ceph-ssd");
    request.manual_pivot = true;
    stage.begin(&request).await;
    stage.reaches(&request, State::Ready).await;
    ssd(&stage, |pool| pool.available = GIB - 1);
    let text = destination_full(&stage, &request).await;
    assert!(text.contains("1023.9 MiB left; 0 B are needed and 1 GiB must stay free"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_question_about_room_that_hangs_is_in_nobodys_way() {
    let stage = Stage::new(Home::File, true).await;
    stage.world.fault(Method::RbdSpace, 2, Fault::Hang);
    let began = Instant::now();
    let view = stage.run(&stage.guest.request("ceph-ssd")).await;
    assert_eq!(view.state, State::Succeeded);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(stage.world.calls().iter().filter(|call| **call == Method::RbdSpace).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn room_is_asked_for_every_two_seconds_while_a_copy_runs() {
    let stage = Stage::new(Home::File, true).await;
    pace(&stage, 16, 0);
    stage.run(&stage.guest.request("ceph-ssd")).await;
    let asked = stage.world.calls().iter().filter(|call| **call == Method::RbdSpace).count();
    assert!((33..=35).contains(&asked), "{asked} times in 64 seconds");
}

#[tokio::test(start_paused = true)]
async fn room_that_cannot_be_read_is_said_and_ends_nothing() {
    let stage = Stage::new(Home::File, true).await;
    pace(&stage, 8, 0);
    let request = stage.guest.request("ceph-ssd");
    stage.begin(&request).await;
    for nth in 1..=5 {
        let fault = Fault::Refuse(volferry_agent::ports::ErrorClass::Unavailable, "it is away");
        stage.world.fault(Method::RbdSpace, nth, fault);
    }
    let said = |detail: &Option<String>| {
        detail.as_deref().is_some_and(|text| text.contains("room in pool ceph-ssd cannot be read"))
    };
    stage.agent.until(&request.operation, |view| said(&view.detail)).await;
    stage.agent.until(&request.operation, |view| !said(&view.detail)).await;
    assert_eq!(stage.end(&request).await.state, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_file_pool_with_little_room_is_warned_about_once() {
    let stage = Stage::new(Home::Rbd, true).await;
    pace(&stage, 16, 0);
    let request = stage.guest.request("nfs-1");
    stage.begin(&request).await;
    stage.reaches(&request, State::Copying).await;
    stage.world.with(|state| {
        state.folders.values_mut().for_each(|folder| folder.available = 2 * GIB);
    });
    let view = stage.end(&request).await;
    assert_eq!(view.state, State::Succeeded);
    let about_room = view.warnings.iter().filter(|text| text.contains("10 GiB should stay free"));
    assert_eq!(about_room.count(), 1, "{:?}", view.warnings);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_outruns_its_copy_is_told_and_how_to_stop_that() {
    let stage = Stage::new(Home::File, true).await;
    pace(&stage, 16, 20);
    let request = stage.guest.request("ceph-ssd");
    let began = Instant::now();
    stage.begin(&request).await;
    let id = &request.operation;
    let view = stage.agent.until(id, |view| view.progress.converges == Converges::No).await;
    assert_eq!((view.progress.estimate, view.detail.as_deref()), (None, None));
    let dirty = view.progress.dirty_rate.0.div_ceil(MIB);
    assert!((19..=21).contains(&dirty), "{dirty}");
    let hint = |detail: &Option<String>| {
        detail.as_deref().is_some_and(|text| text.contains("--write-blocking"))
    };
    stage.agent.until(id, |view| hint(&view.detail)).await;
    assert!((10..20).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    pace(&stage, 64, 20);
    stage.agent.until(id, |view| view.progress.converges == Converges::Yes).await;
    let view = stage.end(&request).await;
    assert_eq!((view.state, view.detail.as_deref()), (State::Succeeded, None));
}

#[tokio::test(start_paused = true)]
async fn zeroing_is_a_phase_of_its_own_and_says_nothing_about_rates() {
    let stage = Stage::new(Home::File, true).await;
    let slow = Pace { copy: 64 * MIB, zeroing: Duration::from_secs(3600), ..Pace::default() };
    stage.world.pace(&stage.guest.uuid, "vda", slow);
    let request = stage.guest.request("ceph-ssd");
    stage.begin(&request).await;
    let id = &request.operation;
    let view = stage.agent.until(id, |view| view.progress.phase == Phase::Zeroing).await;
    assert_eq!((view.progress.rate, view.progress.converges), (Bytes(0), Converges::Unknown));
    let view = stage.agent.until(id, |view| view.progress.phase == Phase::Copying).await;
    assert_eq!(view.progress.dirty_rate, Bytes(0));
    assert_eq!(stage.end(&request).await.state, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn near_ready_nothing_is_asked_about_the_job() {
    let stage = Stage::new(Home::File, true).await;
    pace(&stage, 64, 0);
    let looks = Arc::new(Mutex::new(Vec::new()));
    for nth in 1..=30 {
        let looks = Arc::clone(&looks);
        let note = move |_: &_| looks.lock().expect("no panic").push(Instant::now());
        stage.world.before(Method::JobInfo, nth, note);
    }
    let view = stage.run(&stage.guest.request("ceph-ssd")).await;
    assert_eq!(view.state, State::Succeeded);
    let looks = looks.lock().expect("no panic");
    let last = looks.last().expect("a look");
    assert!(looks.len() >= 12, "{} looks in 16 seconds", looks.len());
    assert!(last.elapsed() >= Duration::from_secs(2), "{:?} before the end", last.elapsed());
}

/// A second guest whose disk is like the first one's.
fn neighbour(stage: &Stage) -> Guest {
    stage.scene.guest("db", Home::File, true)
}

#[tokio::test(start_paused = true)]
async fn what_running_copies_will_still_write_is_not_free_for_others() {
    let stage = Stage::new(Home::File, true).await;
    let other = neighbour(&stage);
    // Room for one and a half of them.
    ssd(&stage, |pool| pool.available = GIB + DISK_ALLOCATED * 3 / 2);
    pace(&stage, 8, 0);
    let (first, second) = (stage.guest.request("ceph-ssd"), other.request("ceph-ssd"));
    assert!(stage.agent.engine.plan(second.clone()).await.is_ok(), "alone it fits");
    stage.begin(&first).await;
    stage.reaches(&first, State::Copying).await;
    let refusal = stage.agent.engine.migrate(second.clone()).await.expect_err("no room for both");
    assert_eq!(refusal.code, RefusalCode::NoSpace, "{refusal}");
    assert!(refusal.message.contains("by copies that run already"), "{refusal}");
    // Another pool's copies are no matter.
    assert!(stage.agent.engine.plan(other.request("ceph-hdd")).await.is_ok());
    // What is copied is seen as taken, and needed no more.
    let state = stage.agent.end(&first.operation).await.state;
    assert_eq!(state, State::Succeeded);
    ssd(&stage, |pool| pool.available = 10 * GIB);
    assert!(stage.agent.engine.plan(second).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn of_two_copies_that_no_longer_fit_together_the_later_one_ends() {
    let stage = Stage::new(Home::File, true).await;
    let other = neighbour(&stage);
    let slow = Pace { copy: MIB, ..Pace::default() };
    stage.world.pace(&stage.guest.uuid, "vda", slow);
    stage.world.pace(&other.uuid, "vda", slow);
    let (first, second) = (stage.guest.request("ceph-ssd"), other.request("ceph-ssd"));
    stage.begin(&first).await;
    stage.begin(&second).await;
    stage.reaches(&first, State::Copying).await;
    stage.reaches(&second, State::Copying).await;
    ssd(&stage, |pool| pool.available = GIB + DISK_ALLOCATED + 64 * MIB);
    let ended = stage.agent.end(&second.operation).await;
    let failure = ended.failure.clone().expect("a failure");
    assert_eq!((ended.state, failure.cause), (State::Failed, FailureCause::DestinationFull));
    stage.world.pace(&stage.guest.uuid, "vda", Pace::default());
    let ended = stage.agent.end(&first.operation).await;
    assert_eq!(ended.state, State::Succeeded, "{ended:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_name_somebody_is_moving_to_is_taken() {
    let stage = Stage::new(Home::File, true).await;
    let other = neighbour(&stage);
    let request = |guest: &Guest| MigrateSpec {
        manual_pivot: true,
        destination_volume: VolumeName::new("shared").ok(),
        ..guest.request("ceph-ssd")
    };
    // Both at once, before either has made anything; and again when the first one's volume is there.
    let (one, two) = (request(&stage.guest), request(&other));
    let engine = &stage.agent.engine;
    let answers = tokio::join!(engine.migrate(one.clone()), engine.migrate(two.clone()));
    let (winner, loser, refusal) = match answers {
        (Ok(_), Err(refusal)) => (one, two, refusal),
        (Err(refusal), Ok(_)) => (two, one, refusal),
        both => panic!("{both:?}"),
    };
    stage.reaches(&winner, State::Ready).await;
    let later = engine.migrate(loser.clone()).await.expect_err("the name is taken");
    let planned = engine.plan(loser.clone()).await.expect_err("the name is taken");
    for refusal in [refusal, later, planned] {
        assert_eq!(refusal.code, RefusalCode::Busy, "{refusal}");
        assert!(refusal.message.contains(winner.operation.as_str()), "{refusal}");
    }
    engine.cancel(&winner.operation).await.expect("it may be cancelled");
    stage.agent.end(&winner.operation).await;
    assert!(engine.migrate(loser).await.is_ok(), "the name is free again");
}

/// A running copy whose cluster goes away, and comes back when it is told.
async fn silent(request: impl FnOnce(&mut MigrateSpec)) -> (Stage, MigrateSpec) {
    let stage = Stage::new(Home::File, true).await;
    pace(&stage, 1, 0);
    let mut spec = stage.guest.request("ceph-ssd");
    request(&mut spec);
    stage.begin(&spec).await;
    stage.reaches(&spec, State::Copying).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    stage.world.with(|state| state.clusters[1].reachable = false);
    (stage, spec)
}

async fn detail(stage: &Stage, spec: &MigrateSpec) -> (State, String) {
    let view = stage.agent.engine.operation(&spec.operation).await.expect("it is known");
    (view.state, view.detail.clone().unwrap_or_default())
}

#[tokio::test(start_paused = true)]
async fn a_copy_whose_pool_does_not_answer_is_shown_as_stalled_and_goes_on_afterwards() {
    let (stage, spec) = silent(|_| ()).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let (state, text) = detail(&stage, &spec).await;
    assert_eq!(state, State::Copying);
    assert!(text.starts_with("pool-stalled: nothing was copied for 5"), "{text}");
    assert!(text.contains("pool ceph-ssd does not answer"), "{text}");
    stage.world.with(|state| state.clusters[1].reachable = true);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (state, text) = detail(&stage, &spec).await;
    assert_eq!((state, text.as_str()), (State::Copying, ""));
    assert_eq!(stage.end(&spec).await.state, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_of_a_stalled_copy_says_what_it_waits_for_and_removes_nothing_meanwhile() {
    let (stage, spec) = silent(|_| ()).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    stage.agent.engine.cancel(&spec.operation).await.expect("it copies");
    tokio::time::sleep(Duration::from_secs(600)).await;
    let (state, text) = detail(&stage, &spec).await;
    assert_eq!(state, State::RollingBack);
    assert!(text.contains("no answer within 30 s (pool-stalled: pool ceph-ssd does not"), "{text}");
    assert!(!stage.world.calls().contains(&Method::RemoveImage));
    stage.world.with(|state| state.clusters[1].reachable = true);
    let view = stage.end(&spec).await;
    assert_eq!((view.state, view.failure.as_ref()), (State::Cancelled, None));
}

#[tokio::test(start_paused = true)]
async fn the_deadline_of_a_stalled_copy_is_its_pools_fault() {
    let (stage, spec) = silent(|spec| spec.deadline = Some(Duration::from_secs(900))).await;
    tokio::time::sleep(Duration::from_secs(1800)).await;
    assert_eq!(detail(&stage, &spec).await.0, State::RollingBack);
    stage.world.with(|state| state.clusters[1].reachable = true);
    let view = stage.end(&spec).await;
    let failure = view.failure.clone().expect("a failure");
    assert_eq!((view.state, failure.cause), (State::Failed, FailureCause::PoolStalled));
    assert_eq!(failure.side, Side::Destination);
    assert!(failure.text.contains("the deadline passed: pool-stalled"), "{failure}");
}
