//! Whole moves through the engine in the programmable world: every pair, and what clients may ask for on the way.

use std::time::Duration;

use volferry_agent::fake::Stage;
use volferry_agent::fake::domain::Pace;
use volferry_agent::fake::scene::{DISK_ALLOCATED, DISK_SIZE, Home};
use volferry_agent::journal::{What, Wish};
use volferry_agent::operation::{Event, Phase, SourceFate, State};
use volferry_agent::plan::{RefusalCode, StepKind};
use volferry_agent::ports::EventKind;
use volferry_agent::spec::{Bytes, BytesPerSecond, CopyFlag, OperationId, VolumeFormat};

const PAIRS: [(Home, &str); 3] =
    [(Home::Rbd, "ceph-ssd"), (Home::Rbd, "nfs-1"), (Home::File, "ceph-hdd")];

#[tokio::test(start_paused = true)]
async fn every_pair_moves_on_persistent_and_transient_domains() {
    for (home, pool) in PAIRS {
        for persistent in [true, false] {
            let stage = Stage::new(home, persistent).await;
            let request = stage.guest.request(pool);
            let plan = stage.agent.engine.plan(request.clone()).await.expect("a plan");
            assert_eq!(plan.flags.contains(&CopyFlag::TransientJob), persistent);
            assert_eq!(plan.flags.contains(&CopyFlag::Shallow), pool == "ceph-ssd");
            assert!(plan.flags.contains(&CopyFlag::ReuseExt));
            let view = stage.run(&request).await;
            assert_eq!(view.state, State::Succeeded, "{view:#?}");
            assert_eq!(view.warnings, Vec::<String>::new());
            let result = view.result.as_ref().expect("a result");
            assert_eq!(result.source, SourceFate::Removed);
            assert_eq!(result.virtual_size, Bytes(DISK_SIZE));
            assert_eq!(result.allocated, Some(Bytes(DISK_ALLOCATED)));
            assert!(result.ready_to_pivot_us.is_some(), "READY came as an event");
            let (format, volume) = match pool {
                "nfs-1" => (VolumeFormat::Qcow2, "web-root.qcow2"),
                _ => (VolumeFormat::Raw, "web-root"),
            };
            assert_eq!((result.format, result.volume.as_str()), (format, volume));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_effect_stands_between_its_intent_and_its_result() {
    let stage = Stage::new(Home::Rbd, true).await;
    let request = stage.guest.request("nfs-1");
    stage.run(&request).await;
    let history = stage.history(&request).await;
    let position = |test: &dyn Fn(&What) -> bool| history.iter().position(test);
    for step in [
        StepKind::CreateDestination,
        StepKind::PublishDestination,
        StepKind::StartCopy,
        StepKind::Pivot,
        StepKind::VerifyMove,
        StepKind::RetireSource,
        StepKind::RemoveSource,
    ] {
        let intent = position(&|what| matches!(what, What::Intent { step: of } if *of == step));
        let done = position(&|what| matches!(what, What::Done { step: of, .. } if *of == step));
        assert!(intent.is_some() && intent < done, "{step:?}: {history:#?}");
    }
    // A mark belongs to the step that makes it.
    let mut points = stage.world.points();
    points.retain(|point| !point.contains("Mark"));
    for (index, point) in points.iter().enumerate() {
        let write = ["before append", "before create"].iter().any(|kind| point.starts_with(kind));
        if point.starts_with("before ") && !write {
            let is = |index, begins: &str| {
                points.get(index).is_some_and(|p: &String| p.starts_with(begins))
            };
            assert!(is(index.wrapping_sub(1), "after append"), "{point}: {points:#?}");
            assert!(is(index + 2, "before append"), "{point}: {points:#?}");
        }
    }
    let proved = position(&|what| matches!(what, What::Proved { .. }));
    let moved = position(&|what| *what == What::Transition { event: Event::PivotProved });
    assert!(proved > moved && moved.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_lost_ready_event_is_found_by_reading() {
    let stage = Stage::new(Home::Rbd, true).await;
    stage.world.lose_event(|kind| *kind == EventKind::JobReady);
    let view = stage.run(&stage.guest.request("ceph-ssd")).await;
    assert_eq!(view.state, State::Succeeded);
    assert_eq!(view.result.as_ref().and_then(|result| result.ready_to_pivot_us), None);
}

#[tokio::test(start_paused = true)]
async fn events_that_come_twice_do_no_harm() {
    let events: [fn(&EventKind) -> bool; 3] = [
        |kind| *kind == EventKind::JobReady,
        |kind| matches!(kind, EventKind::JobEnded(_)),
        |kind| matches!(kind, EventKind::QemuJobCompleted { .. }),
    ];
    for event in events {
        let stage = Stage::new(Home::File, true).await;
        stage.world.duplicate_event(event);
        let view = stage.run(&stage.guest.request("ceph-ssd")).await;
        assert_eq!((view.state, view.warnings.len()), (State::Succeeded, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_manual_pivot_waits_for_the_word() {
    let stage = Stage::new(Home::Rbd, true).await;
    let mut request = stage.guest.request("ceph-ssd");
    request.manual_pivot = true;
    stage.begin(&request).await;
    let view = stage.agent.until(&request.operation, |view| view.waits_for_pivot).await;
    assert_eq!(view.state, State::Ready);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let view = stage.agent.engine.operation(&request.operation).await.expect("it is known");
    assert_eq!((view.state, view.progress.phase), (State::Ready, Phase::InStep));
    stage.agent.engine.complete(&request.operation).await.expect("it waits for the word");
    assert_eq!(stage.end(&request).await.state, State::Succeeded);
    let wished = What::Wished { wish: Wish::Pivot };
    assert!(stage.history(&request).await.contains(&wished));
    let late = stage.agent.engine.complete(&request.operation).await;
    assert!(late.is_err(), "it has ended");
}

#[tokio::test(start_paused = true)]
async fn the_word_to_pivot_may_come_before_the_copy_is_ready() {
    let stage = Stage::new(Home::Rbd, true).await;
    let mut request = stage.guest.request("ceph-ssd");
    request.manual_pivot = true;
    stage.begin(&request).await;
    stage.reaches(&request, State::Copying).await;
    stage.agent.engine.complete(&request.operation).await.expect("it will wait for the word");
    assert_eq!(stage.end(&request).await.state, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_limit_can_be_set_changed_and_lifted() {
    let stage = Stage::new(Home::Rbd, true).await;
    let rate = |mib: u64| BytesPerSecond::new(mib << 20).expect("a positive rate");
    let mut request = stage.guest.request("ceph-ssd");
    request.bandwidth = Some(rate(1));
    stage.begin(&request).await;
    let began = tokio::time::Instant::now();
    stage.agent.until(&request.operation, |view| view.progress.copied > Bytes::mib(4)).await;
    assert!(began.elapsed() >= Duration::from_secs(4));
    stage.agent.engine.set_bandwidth(&request.operation, Some(rate(2))).await.expect("it copies");
    stage.agent.until(&request.operation, |view| view.bandwidth == Some(rate(2))).await;
    let slow = began.elapsed();
    stage.agent.engine.set_bandwidth(&request.operation, None).await.expect("it copies");
    assert_eq!(stage.end(&request).await.state, State::Succeeded);
    assert!(began.elapsed() < slow + Duration::from_secs(30), "without a limit it took seconds");
    let late = stage.agent.engine.set_bandwidth(&request.operation, None).await;
    assert!(late.is_err(), "nothing is copied any more");
}

#[tokio::test(start_paused = true)]
async fn progress_shows_the_clearing_of_the_destination_and_an_estimate() {
    let stage = Stage::new(Home::Rbd, true).await;
    let pace = Pace { copy: 16 << 20, dirty: 1 << 20, zeroing: Duration::from_secs(5) };
    stage.world.pace(&stage.guest.uuid, "vda", pace);
    let request = stage.guest.request("ceph-ssd");
    stage.begin(&request).await;
    let id = &request.operation;
    stage.agent.until(id, |view| view.progress.phase == Phase::Zeroing).await;
    let view = stage.agent.until(id, |view| view.progress.estimate.is_some()).await;
    assert_eq!(view.progress.phase, Phase::Copying);
    assert!(view.progress.rate > Bytes::mib(1));
    assert_eq!(stage.end(&request).await.state, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_source_is_kept_when_asked_under_its_retired_name() {
    let stage = Stage::new(Home::File, true).await;
    let mut request = stage.guest.request("ceph-ssd");
    request.keep_source = true;
    let view = stage.run(&request).await;
    let Some(SourceFate::Kept { location }) = view.result.as_ref().map(|result| &result.source)
    else {
        panic!("{view:#?}")
    };
    assert_eq!(location.name(), format!("web-root.qcow2.moved-{}", request.operation));
}

#[tokio::test(start_paused = true)]
async fn the_same_request_is_the_same_operation_during_and_after() {
    let stage = Stage::new(Home::Rbd, true).await;
    let request = stage.guest.request("ceph-ssd");
    stage.begin(&request).await;
    stage.begin(&request).await;
    stage.reaches(&request, State::Copying).await;
    stage.begin(&request).await;
    assert_eq!(stage.end(&request).await.state, State::Succeeded);
    let again = stage.agent.engine.migrate(request.clone()).await.expect("the same operation");
    assert_eq!(again.state, State::Succeeded);
    let stage = stage.restart().await;
    let again = stage.agent.engine.migrate(request.clone()).await.expect("the same operation");
    assert_eq!(again.state, State::Succeeded);
    assert_eq!(stage.agent.engine.operations().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_id_that_meant_something_else_is_refused() {
    let stage = Stage::new(Home::Rbd, true).await;
    let request = stage.guest.request("ceph-ssd");
    stage.begin(&request).await;
    let mut other = request.clone();
    other.to = stage.guest.request("nfs-1").to;
    for _ in 0..2 {
        let refusal = stage.agent.engine.migrate(other.clone()).await.expect_err("the id is taken");
        assert_eq!(refusal.code, RefusalCode::InvalidName, "waiting would not help: {refusal}");
        assert!(refusal.message.contains("belongs to another request"), "{refusal}");
        stage.end(&request).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_is_being_moved_is_busy_and_the_refusal_names_the_operation() {
    let stage = Stage::new(Home::Rbd, true).await;
    let request = stage.guest.request("ceph-ssd");
    stage.begin(&request).await;
    // Whatever state it is in at once, and then surely while it copies, which lasts.
    for wanted in [None, Some(State::Copying)] {
        stage
            .agent
            .until(&request.operation, |view| wanted.is_none_or(|state| view.state == state))
            .await;
        let mut other = stage.guest.request("nfs-1");
        other.operation = OperationId::random();
        let refusal = stage.agent.engine.migrate(other).await.expect_err("the disk is busy");
        assert_eq!(refusal.code, RefusalCode::Busy, "{refusal}");
        assert!(refusal.message.contains(request.operation.as_str()), "{refusal}");
    }
    assert_eq!(stage.end(&request).await.state, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn two_requests_for_one_disk_at_once_begin_one_operation() {
    let stage = Stage::new(Home::Rbd, true).await;
    let requests = [stage.guest.request("ceph-ssd"), stage.guest.request("nfs-1")];
    let [one, other] = requests.clone().map(|request| stage.agent.engine.migrate(request));
    let answers = tokio::join!(one, other);
    let refusals: Vec<_> = [answers.0.err(), answers.1.err()].into_iter().flatten().collect();
    assert_eq!(refusals.len(), 1);
    assert_eq!(refusals[0].code, RefusalCode::Busy);
    assert_eq!(stage.agent.engine.operations().len(), 1);
    let id = stage.agent.engine.operations()[0].spec.clone();
    assert_eq!(stage.end(&id).await.state, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_moved_disk_can_be_moved_on() {
    let mut stage = Stage::new(Home::Rbd, true).await;
    for pool in ["ceph-ssd", "nfs-1", "ceph-hdd"] {
        let request = stage.guest.request(pool);
        let view = stage.run(&request).await;
        assert_eq!(view.state, State::Succeeded, "{view:#?}");
        stage.guest.volume = view.destination.clone();
        stage.before = stage.world.volumes();
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_answered_to_a_client_survives_a_kill() {
    for wish in ["cancel", "pivot", "limit"] {
        let stage = Stage::new(Home::Rbd, true).await;
        let pace = Pace { copy: 16 << 20, ..Pace::default() };
        stage.world.pace(&stage.guest.uuid, "vda", pace);
        let mut request = stage.guest.request("ceph-ssd");
        request.manual_pivot = wish == "pivot";
        stage.begin(&request).await;
        stage.reaches(&request, State::Copying).await;
        let limit = BytesPerSecond::new(1 << 20).ok();
        let engine = &stage.agent.engine;
        let answer = match wish {
            "cancel" => engine.cancel(&request.operation).await,
            "pivot" => engine.complete(&request.operation).await,
            _ => engine.set_bandwidth(&request.operation, limit).await,
        };
        answer.expect("the wish is taken");
        // The owner has not run since.
        let stage = stage.restart().await;
        if wish == "limit" {
            stage.agent.until(&request.operation, |view| view.bandwidth == limit).await;
        }
        let expected = if wish == "cancel" { State::Cancelled } else { State::Succeeded };
        assert_eq!(stage.end(&request).await.state, expected, "{wish}");
    }
}
