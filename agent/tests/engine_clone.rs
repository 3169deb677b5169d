//! A volume that nobody uses, moved inside one Ceph cluster: a clone, usable at once, that becomes independent of its
//! source after the switch; and what is copied instead.

#[path = "support/moment.rs"]
mod moment;

use std::collections::BTreeMap;
use std::time::Duration;

use volferry_agent::engine::Retried;
use volferry_agent::fake::Stage;
use volferry_agent::fake::faults::{Fault, Method};
use volferry_agent::fake::scene::Home;
use volferry_agent::operation::{
    FailureCause, LeftoverKind, OperationView, Phase, SourceFate, State,
};
use volferry_agent::plan::{Step, StepKind, render};
use volferry_agent::ports::{DomainState, ErrorClass};
use volferry_agent::spec::{
    BytesPerSecond, EncryptionScheme, HeaderKind, Identity, MigrateSpec, OperationId, Passphrase,
    Subject, VolumeLocation,
};

use moment::{MOMENTS, moment};

/// The disk of a stopped domain, to get another name in its own pool.
async fn disk() -> (Stage, MigrateSpec) {
    let stage = Stage::new(Home::Rbd, true).await;
    stage.world.shut_down(&stage.guest.uuid);
    let request = named(stage.guest.request("ceph-hdd"));
    (stage, request)
}

/// A volume that no domain uses.
async fn volume() -> (Stage, MigrateSpec) {
    let mut stage = Stage::new(Home::Rbd, true).await;
    stage.guest = stage.scene.volume("ceph-hdd", "v");
    stage.before = stage.world.volumes();
    let request = named(stage.guest.volume_request("ceph-hdd"));
    (stage, request)
}

fn named(request: MigrateSpec) -> MigrateSpec {
    MigrateSpec { destination_volume: "other".parse().ok(), ..request }
}

fn start(stage: &Stage) {
    stage.world.with(|state| state.start_again(&stage.guest.uuid));
}

async fn steps(stage: &Stage, request: &MigrateSpec) -> Vec<Step> {
    stage.agent.engine.plan(request.clone()).await.expect("accepted").steps
}

fn flattening(view: &OperationView) -> bool {
    view.progress.phase == Phase::Flattening && view.progress.copied.0 > 0
}

async fn left(stage: &Stage) -> Vec<LeftoverKind> {
    let left = stage.agent.engine.leftovers().await.expect("a readable journal");
    left.iter().map(|leftover| leftover.kind).collect()
}

#[tokio::test(start_paused = true)]
async fn a_plan_says_which_way_it_takes_and_why() {
    use StepKind as S;
    let (stage, request) = disk().await;
    let plan = steps(&stage, &request).await;
    let kinds: Vec<StepKind> = plan.iter().map(Step::kind).collect();
    let expected = [
        S::CloneSource,
        S::CompareImages,
        S::PublishDestination,
        S::Switch,
        S::RetireSource,
        S::Flatten,
        S::RemoveSource,
    ];
    assert_eq!(kinds, expected);
    let text = plan.iter().map(render::describe).collect::<Vec<_>>().join("\n");
    assert!(text.contains("one cluster: the volume can be used before it is copied"), "{text}");
    assert!(text.contains("depends on its source no more"), "{text}");

    let limited = MigrateSpec { bandwidth: BytesPerSecond::new(1 << 20).ok(), ..request.clone() };
    let copied = |plan: &[Step]| {
        let copy = plan.iter().find(|step| step.kind() == S::CopyImage).expect("a copy");
        render::describe(copy)
    };
    let text = copied(&steps(&stage, &limited).await);
    assert!(text.contains("what follows a clone cannot be limited"), "{text}");
    // Between two clusters nobody expects a clone.
    let text = copied(&steps(&stage, &stage.guest.request("ceph-ssd")).await);
    assert!(!text.contains("cloned"), "{text}");
    stage.source_image(|image| image.no_layering = true);
    let text = copied(&steps(&stage, &request).await);
    assert!(text.contains("feature layering"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn only_what_keeps_its_header_and_its_passphrase_is_cloned() {
    let cases = [
        (HeaderKind::QemuLuks1, false, None),
        (HeaderKind::QemuLuks1, true, Some("another passphrase")),
        (HeaderKind::LibrbdLuks2, false, Some("librbd encrypts it")),
    ];
    for (header, rekey, why) in cases {
        let (mut stage, request) = volume().await;
        stage.world.with(|state| state.librbd_copies = true);
        stage.scene.encrypt_volume(&stage.guest, header, b"open sesame");
        stage.before = stage.world.volumes();
        let passphrase = |text: &[u8]| Passphrase::new(text.to_vec()).ok();
        let other = passphrase(b"close sesame").filter(|_| rekey);
        let mut request = request.with_passphrases(passphrase(b"open sesame"), other);
        if let Subject::Volume { volume_encryption, .. } = &mut request.subject {
            *volume_encryption = Some(header);
        }
        if header == HeaderKind::QemuLuks1 {
            request.encryption.accept = [EncryptionScheme::Luks1Qemu].into();
        }
        let plan = steps(&stage, &request).await;
        let text = plan.iter().map(render::describe).collect::<Vec<_>>().join("\n");
        match why {
            Some(why) => assert!(text.contains(why), "{text}"),
            None => assert!(plan.iter().any(|step| step.kind() == StepKind::CloneSource), "{text}"),
        }
        let view = stage.run(&request).await;
        assert_eq!(view.state, State::Succeeded, "{view:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_volume_is_used_while_it_still_depends_on_its_source() {
    let (stage, request) = disk().await;
    stage.begin(&request).await;
    let view = stage.agent.until(&request.operation, flattening).await;
    assert_eq!(view.state, State::Cleaning);
    let result = view.result.clone().expect("a result");
    let parent = result.depends_on.expect("it depends on its source");
    assert!(parent.contains(".moved-") && parent.contains("@.volferry-"), "{parent}");
    start(&stage);
    let refused = stage.agent.engine.cancel(&request.operation).await;
    assert!(refused.is_err(), "it has moved");
    let view = stage.end(&request).await;
    assert_eq!(view.state, State::Succeeded, "{view:#?}");
    assert!(view.warnings.is_empty(), "{view:#?}");
    let result = view.result.clone().expect("a result");
    assert_eq!((result.source, result.depends_on), (SourceFate::Removed, None));
    let runs = stage.world.with(|state| state.domains[&stage.guest.uuid].state);
    assert_eq!(runs, DomainState::Running);
    assert_eq!(left(&stage).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_kept_has_no_snapshot_of_ours() {
    let variants: [fn(&mut MigrateSpec); 3] = [
        |request| request.keep_source = true,
        |request| request.keep_source_name = true,
        |request| request.no_compare = true,
    ];
    for change in variants {
        let (stage, mut request) = volume().await;
        change(&mut request);
        assert_eq!(stage.run(&request).await.state, State::Succeeded);
    }
    // Of others' snapshots and clones nothing is taken away.
    let (stage, request) = disk().await;
    stage.source_image(|image| {
        image.snapshots = vec!["daily".to_owned()];
        image.children = vec!["hdd/theirs".to_owned()];
    });
    let view = stage.run(&request).await;
    assert_eq!(view.state, State::Succeeded, "{view:#?}");
    let fate = view.result.clone().expect("a result").source;
    assert!(matches!(&fate, SourceFate::LeftBehind { reason, .. } if reason.contains("daily")));
    stage.source_image(|image| assert_eq!(image.snapshots, ["daily"]));
    // And what is restored from the trash is the whole source.
    let stage = Stage::with_retention(Home::Rbd, true, Duration::from_secs(3600)).await;
    stage.world.shut_down(&stage.guest.uuid);
    let view = stage.run(&named(stage.guest.request("ceph-hdd"))).await;
    let fate = view.result.clone().expect("a result").source;
    assert!(matches!(fate, SourceFate::Trashed { .. }), "{view:#?}");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_flattened_is_told_and_tried_again_by_itself() {
    for keep in [false, true] {
        let (stage, request) = disk().await;
        let request = MigrateSpec { keep_source: keep, ..request };
        let fault = Fault::Refuse(ErrorClass::Other, "Input/output error");
        stage.world.fault(Method::FlattenImage, 1, fault);
        let view = stage.run(&request).await;
        assert_eq!(view.state, State::Succeeded, "{view:#?}");
        let result = view.result.clone().expect("a result");
        assert!(result.depends_on.is_some(), "{result:#?}");
        let warned = view.warnings.iter().any(|text| text.contains("must not be removed"));
        assert!(warned, "{:#?}", view.warnings);
        let mut kinds = left(&stage).await;
        kinds.sort_by_key(|kind| kind.as_str());
        match keep {
            true => assert_eq!(kinds, [LeftoverKind::Snapshot]),
            false => assert_eq!(kinds, [LeftoverKind::Snapshot, LeftoverKind::Source]),
        }
        // Also by an agent that was started again meanwhile.
        let stage = stage.restart().await;
        tokio::time::sleep(Duration::from_secs(2 * 24 * 3600)).await;
        assert_eq!(left(&stage).await, []);
        let source = stage.world.volumes().into_iter().find(|(name, _)| name.contains(".moved-"));
        assert_eq!(source.is_some(), keep, "{source:?}");
        stage.world.with(|state| {
            let image = state.volume(&view.destination).expect("the destination");
            let text = image.identity.to_string();
            let pools = state.clusters.iter().flat_map(|cluster| cluster.pools.values());
            let mut images = pools.flat_map(|pool| pool.images.values());
            assert!(
                images.all(|image| image.parent.is_none() && image.snapshots.is_empty()),
                "{text}"
            );
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_stays_keeps_the_source_and_says_so() {
    let (stage, request) = disk().await;
    let fault = Fault::Refuse(ErrorClass::Other, "Input/output error");
    stage.world.fault(Method::DropSnapshot, 1, fault);
    stage.begin(&request).await;
    let view = stage.agent.end(&request.operation).await;
    assert_eq!(view.state, State::Succeeded, "{view:#?}");
    let result = view.result.clone().expect("a result");
    assert_eq!(result.depends_on, None);
    let SourceFate::LeftBehind { reason, .. } = result.source else { panic!("{view:#?}") };
    assert!(reason.contains("still has the snapshot"), "{reason}");
    assert!(left(&stage).await.contains(&LeftoverKind::Snapshot));
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_becomes_full_ends_the_flattening_and_not_the_move() {
    let (stage, request) = disk().await;
    stage.begin(&request).await;
    stage.agent.until(&request.operation, flattening).await;
    stage.world.with(|state| {
        for pool in state.clusters.iter_mut().flat_map(|cluster| cluster.pools.values_mut()) {
            pool.available = 64 << 20;
        }
    });
    let view = stage.end(&request).await;
    assert_eq!(view.state, State::Succeeded, "{view:#?}");
    assert!(view.result.clone().expect("a result").depends_on.is_some());
    assert!(
        view.warnings.iter().any(|text| text.contains("takes no writes")),
        "{:#?}",
        view.warnings
    );
}

#[tokio::test(start_paused = true)]
async fn what_fails_or_is_cancelled_before_the_switch_leaves_neither_clone_nor_snapshot() {
    for method in [Method::CreateSnapshot, Method::CloneImage, Method::CompareImages] {
        let (stage, request) = disk().await;
        stage.world.fault(method, 1, Fault::Refuse(ErrorClass::Other, "Input/output error"));
        let view = stage.run(&request).await;
        assert_eq!(view.state, State::Failed, "{method:?}: {view:#?}");
    }
    for (method, effect) in [
        (Method::CreateSnapshot, true),
        (Method::CreateSnapshot, false),
        (Method::CloneImage, true),
        (Method::CloneImage, false),
    ] {
        let (stage, request) = disk().await;
        stage.world.fault(method, 1, Fault::NoAnswer { effect });
        let view = stage.run(&request).await;
        assert_eq!(view.state, State::Failed, "{method:?}: {view:#?}");
        assert_eq!(left(&stage).await, []);
    }
    let (stage, request) = disk().await;
    let request = MigrateSpec { manual_pivot: true, ..request };
    stage.begin(&request).await;
    stage.agent.until(&request.operation, |view| view.waits_for_pivot).await;
    stage.agent.engine.cancel(&request.operation).await.expect("it can be cancelled");
    assert_eq!(stage.end(&request).await.state, State::Cancelled);
}

/// What happens between the kill and the next start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Between {
    Nothing,
    SecondKill(usize),
    TenMinutes,
    GuestStarted,
    LibvirtAway,
}

/// Kills the agent at this point; the moment, or none when it is never reached.
async fn killed_at(
    make: impl AsyncFn() -> (Stage, MigrateSpec),
    between: Between,
    point: usize,
) -> Option<(String, &'static str)> {
    let (mut stage, request) = make().await;
    stage.world.kill_agent_at(point);
    let drive = async {
        stage.agent.engine.migrate(request.clone()).await.expect("accepted");
        stage.agent.end(&request.operation).await
    };
    let points = tokio::select! {
        _ = drive => return None,
        () = stage.world.agent_died() => stage.world.points(),
    };
    match between {
        Between::Nothing | Between::SecondKill(_) => {}
        Between::TenMinutes => tokio::time::sleep(Duration::from_secs(600)).await,
        Between::GuestStarted => start(&stage),
        Between::LibvirtAway => stage.world.libvirt_away(),
    }
    stage = stage.restart().await;
    if let Between::SecondKill(offset) = between {
        stage.world.kill_agent_at(offset);
        tokio::select! {
            () = stage.world.agent_died() => {}
            () = tokio::time::sleep(Duration::from_secs(3)) => {}
        }
        stage = stage.restart().await;
    }
    if between == Between::LibvirtAway {
        tokio::time::sleep(Duration::from_secs(30)).await;
        stage.world.libvirt_back();
    }
    let at = format!("{between:?}, killed at {point} {:?}", points.last());
    if stage.agent.engine.operation(&request.operation).await.is_err() {
        if between == Between::GuestStarted {
            return Some(moment(&points));
        }
        stage.begin(&request).await;
    }
    let view = stage.agent.end(&request.operation).await;
    if let Err(broken) = stage.world.audit(&stage.guest, &view, &stage.before) {
        panic!("{at}: {broken}\n{view:#?}");
    }
    let cause = view.failure.as_ref().map(|failure| failure.cause);
    let in_use = between == Between::GuestStarted && cause == Some(FailureCause::VolumeInUse);
    assert!(view.state == State::Succeeded || in_use, "{at}: {view:#?}");
    assert_eq!(left(&stage).await, [], "{at}");
    stage.agent.engine.stop().await;
    Some(moment(&points))
}

#[tokio::test(start_paused = true)]
async fn killed_anywhere_it_leaves_an_independent_volume_or_nothing() {
    let mut tally = BTreeMap::new();
    let betweens = [
        Between::Nothing,
        Between::SecondKill(5),
        Between::SecondKill(17),
        Between::TenMinutes,
        Between::GuestStarted,
        Between::LibvirtAway,
    ];
    for between in betweens {
        for point in 0.. {
            let Some(at) = killed_at(disk, between, point).await else { break };
            *tally.entry(at).or_insert(0) += 1;
        }
    }
    for keep in [false, true] {
        let make = async || {
            let (stage, request) = volume().await;
            (stage, MigrateSpec { keep_source_name: keep, ..request })
        };
        for point in 0.. {
            let Some(at) = killed_at(make, Between::Nothing, point).await else { break };
            *tally.entry(at).or_insert(0) += 1;
        }
    }
    let points: usize = tally.values().sum();
    println!("crash matrix, clones: {points} crash points, 0 violations");
    for step in [
        "clone-source",
        "compare-images",
        "publish-destination",
        "switch",
        "retire-source",
        "flatten",
        "remove-source",
    ] {
        for moment in MOMENTS {
            let count = tally.get(&(step.to_owned(), moment)).copied().unwrap_or(0);
            assert!(count > 0, "{step} was never cut {moment}: {tally:#?}");
        }
    }
}

/// A volume that was moved can be moved again at once, under another operation.
#[tokio::test(start_paused = true)]
async fn a_moved_volume_moves_again() {
    let (mut stage, request) = volume().await;
    let first = stage.run(&request).await;
    let VolumeLocation::Rbd { image, .. } = &first.destination else { panic!("an image") };
    stage.guest.volume = first.destination.clone();
    stage.guest.name = format!("ceph-hdd/{image}");
    stage.before = stage.world.volumes();
    let again = MigrateSpec {
        operation: OperationId::random(),
        destination_volume: "third".parse().ok(),
        ..stage.guest.volume_request("ceph-hdd")
    };
    assert_eq!(stage.run(&again).await.state, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_was_renamed_by_hand_does_not_hide_that_it_depends() {
    let (stage, request) = disk().await;
    stage.world.fault(
        Method::FlattenImage,
        1,
        Fault::Refuse(ErrorClass::Other, "Input/output error"),
    );
    let view = stage.run(&request).await;
    assert!(view.result.clone().expect("a result").depends_on.is_some(), "{view:#?}");
    let rename = |from: &'static str, to: &'static str| {
        stage.world.with(|state| {
            let pools = state.clusters.iter_mut().flat_map(|cluster| cluster.pools.values_mut());
            for pool in pools {
                if let Some(image) = pool.images.remove(from) {
                    pool.images.insert(to.to_owned(), image);
                }
            }
        });
    };
    let all = stage.agent.engine.leftovers().await.expect("a readable journal");
    let record = all.iter().find(|left| left.kind == LeftoverKind::Snapshot).expect("a record");
    rename("other", "by-hand");
    for tried in 0..2 {
        let retried = stage.agent.engine.retry_leftover(&record.id).await.expect("a record");
        match (tried, retried) {
            (0, Retried::Stays(left)) => assert!(left.reason.contains("by-hand"), "{left:#?}"),
            (1, Retried::Removed(_)) => {}
            (_, other) => panic!("{other:#?}"),
        }
        rename("by-hand", "other");
    }
}

/// Whether what was written to the source last is in a volume that is there.
fn is_somewhere(stage: &Stage, source: &Identity, written: u64) -> bool {
    let volumes = stage.world.volumes();
    let kept = stage.world.with(|state| {
        let images = state.clusters.iter().flat_map(|cluster| cluster.pools.values());
        let mut images = images.flat_map(|pool| pool.images.values());
        images.any(|image| Identity::Rbd { image_id: image.id.clone() } == *source)
    });
    let holds = |identity: &Identity| stage.world.with(|state| state.content(identity)) == written;
    kept || volumes.values().any(holds)
}

#[tokio::test(start_paused = true)]
async fn what_is_written_under_the_old_name_while_the_agent_is_away_is_never_removed() {
    let (mut points, mut after_the_move) = (0, 0);
    for no_compare in [false, true] {
        for point in 0.. {
            let (mut stage, request) = volume().await;
            let request = MigrateSpec { no_compare, ..request };
            let source = stage.before[&stage.guest.volume.to_string()].clone();
            stage.world.kill_agent_at(point);
            let drive = async {
                stage.agent.engine.migrate(request.clone()).await.expect("accepted");
                stage.agent.end(&request.operation).await
            };
            tokio::select! {
                _ = drive => break,
                () = stage.world.agent_died() => {}
            }
            let named = stage.world.volumes().get(&stage.guest.volume.to_string()) == Some(&source);
            let written = stage.world.with(|state| {
                if named {
                    state.scribble(&source);
                }
                state.content(&source)
            });
            stage = stage.restart().await;
            let Ok(_) = stage.agent.engine.operation(&request.operation).await else { continue };
            let view = stage.agent.end(&request.operation).await;
            if named {
                points += 1;
                after_the_move += usize::from(view.state == State::Succeeded);
                assert!(is_somewhere(&stage, &source, written), "killed at {point}: {view:#?}");
            }
        }
    }
    assert!(points > 20 && after_the_move > 0, "{points} {after_the_move}");
}

#[tokio::test(start_paused = true)]
async fn what_is_written_under_the_old_name_while_the_agent_is_held_up_is_never_removed() {
    for write in [true, false] {
        let (stage, request) = volume().await;
        let source = stage.before[&stage.guest.volume.to_string()].clone();
        // The second is that of the source.
        stage.world.fault(Method::RenameImage, 2, Fault::Hang);
        stage.begin(&request).await;
        stage.reaches(&request, State::Cleaning).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        if write {
            stage.world.with(|state| state.scribble(&source));
        }
        stage.world.release();
        let view = stage.agent.end(&request.operation).await;
        assert_eq!(view.state, State::Succeeded, "{view:#?}");
        let fate = &view.result.as_ref().expect("a result").source;
        match write {
            true => {
                let SourceFate::LeftBehind { reason, .. } = fate else { panic!("{view:#?}") };
                assert!(reason.contains("may have been written to"), "{reason}");
                assert_eq!(left(&stage).await, [LeftoverKind::Source]);
            }
            false => assert_eq!(*fate, SourceFate::Removed),
        }
    }
}
