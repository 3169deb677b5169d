//! Volumes that nobody uses: copied while their domain is stopped or without any, and never while somebody writes.

use std::time::Duration;

use volferry_agent::engine::CommandError;
use volferry_agent::fake::faults::{Fault, Method};
use volferry_agent::fake::scene::{Guest, Home};
use volferry_agent::fake::{Stage, World};
use volferry_agent::operation::{FailureCause, OperationView, Phase, SourceFate, State};
use volferry_agent::plan::{Plan, RefusalCode, StepKind};
use volferry_agent::ports::{DomainState, ErrorClass};
use volferry_agent::spec::{Bytes, BytesPerSecond, MigrateSpec, VolumeFormat, VolumeLocation};

const POOLS: [&str; 4] = ["ceph-hdd", "ceph-ssd", "nfs-1", "smp-1"];

/// A guest that was shut down.
async fn stopped(home: Home) -> Stage {
    let stage = Stage::new(home, true).await;
    stage.world.shut_down(&stage.guest.uuid);
    stage
}

/// A volume that no domain uses, beside a guest that has nothing to do with it.
async fn lone(pool: &str, name: &str) -> Stage {
    let mut stage = Stage::new(Home::Rbd, true).await;
    stage.guest = stage.scene.volume(pool, name);
    stage.before = stage.world.volumes();
    stage
}

fn content(world: &World, place: &VolumeLocation) -> u64 {
    world.with(|state| {
        let volume = state.volume(place).expect("a volume");
        state.content(&volume.identity)
    })
}

fn start(world: &World, guest: &Guest) {
    world.with(|state| state.start_again(&guest.uuid));
}

async fn refused(stage: &Stage, spec: &MigrateSpec, code: RefusalCode) -> String {
    let refusal = stage.agent.engine.plan(spec.clone()).await.expect_err("it is refused");
    assert_eq!(refusal.code, code, "{refusal}");
    let again = stage.agent.engine.migrate(spec.clone()).await.expect_err("it is refused");
    assert_eq!(again.code, code);
    assert_eq!(stage.world.volumes(), stage.before);
    refusal.message
}

async fn fails(stage: &Stage, spec: &MigrateSpec, cause: FailureCause) -> String {
    let view = stage.end(spec).await;
    assert_eq!(view.state, State::Failed, "{view:#?}");
    let failure = view.failure.clone().expect("a cause");
    assert_eq!(failure.cause, cause, "{failure}");
    failure.text
}

/// Half of the copy is done.
async fn half_way(stage: &Stage, spec: &MigrateSpec) {
    let half = |view: &OperationView| {
        view.progress.phase == Phase::Copying && view.progress.copied.0 * 2 >= view.progress.total.0
    };
    stage.agent.until(&spec.operation, half).await;
}

fn steps(plan: &Plan) -> Vec<StepKind> {
    plan.steps.iter().map(volferry_agent::plan::Step::kind).collect()
}

#[tokio::test(start_paused = true)]
async fn the_disk_of_a_stopped_domain_moves_to_any_pool() {
    for home in [Home::Rbd, Home::File] {
        for pool in POOLS {
            let stage = stopped(home).await;
            let own = if home == Home::Rbd { "ceph-hdd" } else { "nfs-1" };
            let mut request = stage.guest.request(pool);
            if pool == own {
                request.destination_volume = "other".parse().ok();
            }
            let before = content(&stage.world, &stage.guest.volume);
            let view = stage.run(&request).await;
            assert_eq!(view.state, State::Succeeded, "{home:?} to {pool}: {view:#?}");
            assert!(view.offline && view.warnings.is_empty(), "{view:#?}");
            assert_eq!(content(&stage.world, &view.destination), before);
            let result = view.result.clone().expect("a result");
            assert_eq!(
                (result.source, result.virtual_size),
                (SourceFate::Removed, Bytes::mib(1024))
            );
            // It starts from there.
            start(&stage.world, &stage.guest);
            stage.world.with(|state| {
                let disk = state.domains[&stage.guest.uuid].disk("vda").expect("it runs");
                assert_eq!(disk.node.volume.to_string(), view.destination.to_string());
            });
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_of_no_domain_moves_to_any_pool_by_its_stem() {
    let from = [("ceph-hdd", "v"), ("nfs-1", "v.qcow2"), ("smp-1", "v.raw")];
    for (pool, name) in from {
        for to in POOLS.into_iter().filter(|to| *to != pool) {
            let stage = lone(pool, name).await;
            let request = stage.guest.volume_request(to);
            let before = content(&stage.world, &stage.guest.volume);
            let view = stage.run(&request).await;
            assert_eq!(view.state, State::Succeeded, "{pool} to {to}: {view:#?}");
            let file = !to.starts_with("ceph");
            let result = view.result.clone().expect("a result");
            assert_eq!(result.volume, if file { "v.qcow2" } else { "v" });
            assert_eq!(result.format, if file { VolumeFormat::Qcow2 } else { VolumeFormat::Raw });
            assert_eq!(content(&stage.world, &view.destination), before);
            assert!(view.domain_uuid.is_none());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_plan_says_what_an_offline_copy_does() {
    use StepKind as S;
    let stage = stopped(Home::File).await;
    let request = stage.guest.request("smp-1");
    let plan = stage.agent.engine.plan(request.clone()).await.expect("accepted");
    let expected = [
        S::CreateDestination,
        S::CopyImage,
        S::CompareImages,
        S::PublishDestination,
        S::Switch,
        S::RetireSource,
        S::RemoveSource,
    ];
    assert_eq!(steps(&plan), expected);
    assert!(plan.is_offline() && plan.flags.is_empty());
    let unseen = MigrateSpec { no_compare: true, ..request };
    let plan = stage.agent.engine.plan(unseen).await.expect("accepted");
    assert!(!steps(&plan).contains(&S::CompareImages));
}

#[tokio::test(start_paused = true)]
async fn a_stopped_domain_is_refused_where_a_live_move_was_asked_for() {
    let stage = stopped(Home::Rbd).await;
    let live = MigrateSpec { live: true, ..stage.guest.request("nfs-1") };
    let text = refused(&stage, &live, RefusalCode::NotRunning).await;
    assert!(text.contains("shut off"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn whoever_uses_the_volume_refuses_its_copy() {
    // Another client of the image.
    let stage = stopped(Home::Rbd).await;
    stage.source_image(|image| image.watchers = vec!["203.0.113.9:0/1".to_owned()]);
    let text = refused(&stage, &stage.guest.request("nfs-1"), RefusalCode::VolumeInUse).await;
    assert!(text.contains("203.0.113.9:0/1"), "{text}");
    // A saved state, which names the volume.
    let stage = stopped(Home::File).await;
    stage.world.with(|state| {
        state.domains.get_mut(&stage.guest.uuid).expect("the domain").managed_save = true;
    });
    let text = refused(&stage, &stage.guest.request("ceph-hdd"), RefusalCode::VolumeInUse).await;
    assert!(text.contains("managedsave-remove"), "{text}");
    // A domain that runs on it, and one that only has it in its definition.
    for running in [true, false] {
        let mut stage = Stage::new(Home::File, true).await;
        let name = stage.guest.volume.name();
        let volume = Guest { name: format!("nfs-1/{name}"), ..stage.guest.clone() };
        if !running {
            stage.world.shut_down(&stage.guest.uuid);
        }
        stage.before = stage.world.volumes();
        let text = refused(&stage, &volume.volume_request("smp-1"), RefusalCode::VolumeInUse).await;
        assert!(text.contains("domain web"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_not_there_or_in_no_pool_is_told() {
    let stage = lone("nfs-1", "v.qcow2").await;
    let gone = Guest { name: "nfs-1/w.qcow2".to_owned(), ..stage.guest.clone() };
    refused(&stage, &gone.volume_request("smp-1"), RefusalCode::DiskNotFound).await;
    let nowhere = Guest { name: "no-pool/v.qcow2".to_owned(), ..stage.guest.clone() };
    refused(&stage, &nowhere.volume_request("smp-1"), RefusalCode::PoolUnknown).await;
    // Said to be qcow2, and it is not.
    let stage = lone("nfs-1", "v.raw").await;
    let mut wrong = stage.guest.volume_request("smp-1");
    if let volferry_agent::spec::Subject::Volume { volume_format, .. } = &mut wrong.subject {
        *volume_format = VolumeFormat::Qcow2;
    }
    let text = refused(&stage, &wrong, RefusalCode::UnsupportedSource).await;
    assert!(text.contains("no header of qcow2"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn what_a_header_names_is_read_only_inside_its_pool_and_in_a_format_that_is_said() {
    let cases = [
        (Some("/etc/shadow"), Some("raw"), Some("not a file of its pool")),
        (Some("../../etc/shadow"), Some("raw"), Some("not a file of its pool")),
        (Some("json:{}"), Some("raw"), Some("not a file of its pool")),
        (Some("base.img"), None, Some("does not say its format")),
        (Some("base.img"), Some("vmdk"), Some("has the format vmdk")),
        (Some("nobody.qcow2"), Some("qcow2"), Some("is not there")),
        (Some("base.img"), Some("raw"), None),
        (None, None, Some("lie in another file")),
    ];
    for (backing, format, refusal) in cases {
        let stage = lone("nfs-1", "v.qcow2").await;
        let VolumeLocation::File { path } = &stage.guest.volume else { panic!("a file") };
        stage.world.with(|state| {
            let file = state.files.get_mut(path).expect("the file");
            file.backing = backing.map(str::to_owned);
            file.backing_format = format.map(str::to_owned);
            file.data_file = backing.is_none();
        });
        let request = stage.guest.volume_request("smp-1");
        match refusal {
            Some(text) => {
                let message = refused(&stage, &request, RefusalCode::UnsupportedSource).await;
                assert!(message.contains(text), "{message}");
            }
            None => assert_eq!(stage.run(&request).await.state, State::Succeeded),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_domain_started_at_half_of_the_copy_ends_it_and_keeps_its_volume() {
    for home in [Home::Rbd, Home::File] {
        let stage = stopped(home).await;
        let request = stage.guest.request("smp-1");
        stage.begin(&request).await;
        half_way(&stage, &request).await;
        start(&stage.world, &stage.guest);
        let text = fails(&stage, &request, FailureCause::VolumeInUse).await;
        assert!(text.contains("web"), "{text}");
        assert!(stage.world.with(|state| state.copies.is_empty()), "nothing goes on copying");
    }
}

#[tokio::test(start_paused = true)]
async fn another_user_at_half_of_the_copy_ends_it() {
    let stage = stopped(Home::Rbd).await;
    let request = stage.guest.request("nfs-1");
    stage.begin(&request).await;
    half_way(&stage, &request).await;
    stage.source_image(|image| image.watchers = vec!["203.0.113.9:0/1".to_owned()]);
    let text = fails(&stage, &request, FailureCause::VolumeInUse).await;
    assert!(text.contains("203.0.113.9:0/1"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_domain_started_right_before_its_definition_changes_stays_on_the_source() {
    for home in [Home::Rbd, Home::File] {
        let stage = stopped(home).await;
        let request = stage.guest.request("smp-1");
        let guest = stage.guest.clone();
        stage.world.before(Method::Define, 1, move |world| start(world, &guest));
        stage.begin(&request).await;
        let text = fails(&stage, &request, FailureCause::VolumeInUse).await;
        assert!(text.contains("was started on it"), "{text}");
        let defined = stage.world.calls().iter().filter(|call| **call == Method::Define).count();
        assert_eq!(defined, 2, "changed and changed back");
    }
}

#[tokio::test(start_paused = true)]
async fn a_domain_started_right_after_its_definition_changed_has_moved() {
    let stage = stopped(Home::Rbd).await;
    let request = stage.guest.request("smp-1");
    let guest = stage.guest.clone();
    // The first look after the change.
    stage.world.before(Method::Define, 1, move |world| {
        let guest = guest.clone();
        world.before(Method::ObserveDomain, 1, move |world| start(world, &guest));
    });
    let view = stage.run(&request).await;
    assert_eq!(view.state, State::Succeeded, "{view:#?}");
    let runs = stage.world.with(|state| state.domains[&stage.guest.uuid].state);
    assert_eq!(runs, DomainState::Running);
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_cannot_be_changed_undoes_the_copy() {
    let stage = stopped(Home::File).await;
    let request = stage.guest.request("ceph-hdd");
    stage.world.fault(Method::Define, 1, Fault::Refuse(ErrorClass::Other, "unsupported"));
    stage.begin(&request).await;
    fails(&stage, &request, FailureCause::PivotFailed).await;
    // An answer that is lost is looked for.
    for effect in [true, false] {
        let stage = stopped(Home::File).await;
        let request = stage.guest.request("ceph-hdd");
        stage.world.fault(Method::Define, 1, Fault::NoAnswer { effect });
        assert_eq!(stage.run(&request).await.state, State::Succeeded);
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_differs_is_thrown_away_unless_nobody_looks() {
    for no_compare in [false, true] {
        let stage = stopped(Home::Rbd).await;
        let request = MigrateSpec { no_compare, ..stage.guest.request("nfs-1") };
        let source = stage.before[&stage.guest.volume.to_string()].clone();
        stage.begin(&request).await;
        half_way(&stage, &request).await;
        stage.world.with(|state| state.scribble(&source));
        if no_compare {
            assert_eq!(stage.end(&request).await.state, State::Succeeded);
        } else {
            let text = fails(&stage, &request, FailureCause::VerifyMismatch).await;
            assert!(text.contains("Content mismatch"), "{text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_cancelled_fails_and_expires_without_a_trace() {
    let stage = stopped(Home::Rbd).await;
    let request = stage.guest.request("nfs-1");
    stage.begin(&request).await;
    half_way(&stage, &request).await;
    stage.agent.engine.cancel(&request.operation).await.expect("it can be cancelled");
    assert_eq!(stage.end(&request).await.state, State::Cancelled);

    let stage = stopped(Home::Rbd).await;
    let request = stage.guest.request("nfs-1");
    stage.world.before(Method::CopyImage, 1, |world| {
        world.with(|state| {
            for folder in state.folders.values_mut() {
                folder.available = 300 << 20;
            }
        });
    });
    stage.begin(&request).await;
    fails(&stage, &request, FailureCause::DestinationFull).await;

    let stage = stopped(Home::Rbd).await;
    let slow = BytesPerSecond::new(1 << 20).ok();
    let deadline = Some(Duration::from_secs(60));
    let request = MigrateSpec { bandwidth: slow, deadline, ..stage.guest.request("nfs-1") };
    stage.begin(&request).await;
    stage.reaches(&request, State::Copying).await;
    let changed = stage.agent.engine.set_bandwidth(&request.operation, None).await;
    assert!(matches!(changed, Err(CommandError::NotAllowed { .. })), "{changed:?}");
    fails(&stage, &request, FailureCause::Deadline).await;
}

#[tokio::test(start_paused = true)]
async fn the_word_to_switch_is_waited_for_with_the_copy_complete() {
    let stage = stopped(Home::File).await;
    let request = MigrateSpec { manual_pivot: true, ..stage.guest.request("smp-1") };
    stage.begin(&request).await;
    let view = stage.agent.until(&request.operation, |view| view.waits_for_pivot).await;
    assert_eq!(view.state, State::Ready);
    let stage = stage.restart().await;
    stage.agent.until(&request.operation, |view| view.waits_for_pivot).await;
    stage.agent.engine.complete(&request.operation).await.expect("it waits for it");
    assert_eq!(stage.end(&request).await.state, State::Succeeded);
}

/// Writes to the source and leaves no other trace: a guest that was started and stopped where nobody looked.
fn write_unseen(stage: &Stage) {
    let source = stage.before[&stage.guest.volume.to_string()].clone();
    stage.world.with(|state| state.scribble(&source));
}

#[tokio::test(start_paused = true)]
async fn what_was_written_while_the_word_was_waited_for_is_not_lost() {
    for no_compare in [false, true] {
        for restarted in [false, true] {
            let mut stage = stopped(Home::File).await;
            let request =
                MigrateSpec { manual_pivot: true, no_compare, ..stage.guest.request("smp-1") };
            stage.begin(&request).await;
            stage.agent.until(&request.operation, |view| view.waits_for_pivot).await;
            write_unseen(&stage);
            if restarted {
                stage = stage.restart().await;
                stage.agent.until(&request.operation, |view| view.waits_for_pivot).await;
            }
            stage.agent.engine.complete(&request.operation).await.expect("it waits for it");
            let text = fails(&stage, &request, FailureCause::VerifyMismatch).await;
            assert!(text.contains("written to after it was copied"), "{text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_starts_while_the_word_is_waited_for_ends_the_move() {
    let stage = stopped(Home::File).await;
    let request = MigrateSpec { manual_pivot: true, ..stage.guest.request("smp-1") };
    stage.begin(&request).await;
    stage.agent.until(&request.operation, |view| view.waits_for_pivot).await;
    start(&stage.world, &stage.guest);
    let view = stage.end(&request).await;
    let cause = view.failure.as_ref().map(|failure| failure.cause);
    assert_eq!((view.state, cause), (State::Failed, Some(FailureCause::VolumeInUse)));
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_moved_by_one_operation_at_a_time() {
    let stage = lone("nfs-1", "v.qcow2").await;
    let first = stage.guest.volume_request("smp-1");
    stage.begin(&first).await;
    let second = stage.guest.volume_request("ceph-hdd");
    let refusal = stage.agent.engine.migrate(second).await.expect_err("it is busy");
    assert_eq!(refusal.code, RefusalCode::Busy);
    assert!(refusal.message.contains(first.operation.as_str()), "{refusal}");
    assert_eq!(stage.end(&first).await.state, State::Succeeded);
}

/// What happens between the kill and the next start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Between {
    Nothing,
    TenMinutes,
    GuestStarted,
    WroteUnseen,
    LibvirtAway,
}

/// The stored definition still names the source.
fn names_source(stage: &Stage) -> bool {
    stage.world.with(|state| {
        let domain = state.domains.get(&stage.guest.uuid);
        let stored = domain.and_then(|domain| domain.inactive_xml.clone()).unwrap_or_default();
        let name = match &stage.guest.volume {
            VolumeLocation::File { path } => path.display().to_string(),
            VolumeLocation::Rbd { address, image } => format!("{}/{image}", address.pool),
        };
        stored.contains(&format!("'{name}'"))
    })
}

/// Kills the agent at every point of an offline move, and lets the next one find the end.
async fn killed_anywhere(
    subject: &str,
    stage: impl AsyncFn() -> (Stage, MigrateSpec),
    between: Between,
) {
    let mut point = 0;
    let mut ends = std::collections::BTreeMap::new();
    loop {
        let (mut stage, request) = stage().await;
        stage.world.kill_agent_at(point);
        let drive = async {
            stage.agent.engine.migrate(request.clone()).await.expect("accepted");
            stage.agent.end(&request.operation).await
        };
        let name = tokio::select! {
            _ = drive => break,
            () = stage.world.agent_died() => stage.world.points().last().cloned(),
        };
        let mut written = None;
        match between {
            Between::Nothing => {}
            Between::TenMinutes => tokio::time::sleep(Duration::from_secs(600)).await,
            Between::GuestStarted => start(&stage.world, &stage.guest),
            // Once the definition names the copy, a guest writes there.
            Between::WroteUnseen if names_source(&stage) => {
                write_unseen(&stage);
                written = Some(content(&stage.world, &stage.guest.volume));
            }
            Between::WroteUnseen => {}
            Between::LibvirtAway => stage.world.libvirt_away(),
        }
        stage = stage.restart().await;
        if between == Between::LibvirtAway {
            tokio::time::sleep(Duration::from_secs(30)).await;
            stage.world.libvirt_back();
        }
        if stage.agent.engine.operation(&request.operation).await.is_err() {
            if between == Between::GuestStarted {
                point += 1;
                continue;
            }
            stage.begin(&request).await;
        }
        let view = stage.agent.end(&request.operation).await;
        let at = format!("{subject}, {between:?}, killed at {point} {name:?}");
        if let Err(broken) = stage.world.audit(&stage.guest, &view, &stage.before) {
            panic!("{at}: {broken}\n{view:#?}");
        }
        let cause = view.failure.as_ref().map(|failure| failure.cause);
        let right = match between {
            Between::GuestStarted => {
                view.state == State::Succeeded || cause == Some(FailureCause::VolumeInUse)
            }
            Between::WroteUnseen => {
                view.state == State::Succeeded || cause == Some(FailureCause::VerifyMismatch)
            }
            _ => view.state == State::Succeeded,
        };
        assert!(right, "{at}: {view:#?}");
        if let Some(written) = written {
            let current =
                if view.state == State::Succeeded { &view.destination } else { &view.source };
            assert_eq!(content(&stage.world, current), written, "{at}: what was written is lost");
        }
        assert!(stage.world.with(|state| state.copies.is_empty()), "{at}: a process is left");
        let left = stage.agent.engine.leftovers().await.expect("a readable journal");
        assert_eq!(left, [], "{at}");
        *ends.entry(view.state.as_str()).or_insert(0) += 1;
        point += 1;
    }
    println!("{subject}, {between:?}: {ends:?}");
    assert!(point > 25, "only {point} points");
}

#[tokio::test(start_paused = true)]
async fn killed_anywhere_a_stopped_domains_disk_still_moves() {
    for (home, pool) in [(Home::Rbd, "nfs-1"), (Home::File, "smp-1"), (Home::File, "ceph-ssd")] {
        for between in [Between::Nothing, Between::TenMinutes, Between::LibvirtAway] {
            let stage = async || {
                let stage = stopped(home).await;
                let request = stage.guest.request(pool);
                (stage, request)
            };
            killed_anywhere(&format!("{home:?} to {pool}"), stage, between).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn killed_anywhere_a_volume_of_no_domain_still_moves() {
    for (pool, name, to) in [("nfs-1", "v.raw", "ceph-ssd"), ("ceph-hdd", "v", "smp-1")] {
        let stage = async || {
            let stage = lone(pool, name).await;
            let request = stage.guest.volume_request(to);
            (stage, request)
        };
        killed_anywhere(&format!("{pool}/{name} to {to}"), stage, Between::Nothing).await;
    }
}

#[tokio::test(start_paused = true)]
async fn killed_anywhere_and_the_domain_started_nothing_is_lost() {
    for (home, pool) in [(Home::Rbd, "nfs-1"), (Home::File, "smp-1")] {
        let stage = async || {
            let stage = stopped(home).await;
            let request = stage.guest.request(pool);
            (stage, request)
        };
        killed_anywhere(&format!("{home:?} to {pool}"), stage, Between::GuestStarted).await;
    }
}

#[tokio::test(start_paused = true)]
async fn killed_anywhere_and_the_source_written_to_meanwhile_nothing_is_lost() {
    for (no_compare, pool) in [(false, "nfs-1"), (true, "smp-1")] {
        let stage = async || {
            let stage = stopped(Home::Rbd).await;
            let request = MigrateSpec { no_compare, ..stage.guest.request(pool) };
            (stage, request)
        };
        killed_anywhere(&format!("rbd to {pool}"), stage, Between::WroteUnseen).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_link_and_what_other_domains_build_on_are_no_volumes_to_be_moved() {
    for link in [true, false] {
        let mut stage = lone("nfs-1", "base.qcow2").await;
        let VolumeLocation::File { path } = stage.guest.volume.clone() else { panic!("a file") };
        let overlay = stage.scene.guest("overlay", Home::File, true);
        let VolumeLocation::File { path: top } = overlay.volume.clone() else { panic!("a file") };
        stage.world.shut_down(&overlay.uuid);
        stage.world.with(|state| {
            state.files.get_mut(&path).expect("the volume").link = link;
            let top = state.files.get_mut(&top).expect("its disk");
            top.backing = (!link).then(|| path.display().to_string());
        });
        stage.before = stage.world.volumes();
        let request = stage.guest.volume_request("ceph-hdd");
        let (code, says) = match link {
            true => (RefusalCode::UnsupportedSource, "symbolic link"),
            false => (RefusalCode::VolumeInUse, "used by domain overlay"),
        };
        let text = refused(&stage, &request, code).await;
        assert!(text.contains(says), "{text}");
    }
}
