//! Refusals and failures that need a world made odd on purpose, each with its code.

use std::time::Duration;

use volferry_agent::fake::Stage;
use volferry_agent::fake::faults::{Fault, Method};
use volferry_agent::fake::scene::{DISK_SIZE, Home};
use volferry_agent::fake::state::State as Everything;
use volferry_agent::operation::{FailureCause, Side, State};
use volferry_agent::plan::{Refusal, RefusalCode};
use volferry_agent::ports::{DomainState, ErrorClass};
use volferry_agent::spec::{Method as CopyMethod, MigrateSpec};

/// The refusal of a move after `change`; nothing of the world was changed by it.
async fn refused(home: Home, pool: &str, change: impl FnOnce(&mut Everything)) -> Refusal {
    let stage = Stage::new(home, true).await;
    stage.world.with(change);
    let request = stage.guest.request(pool);
    let refusal = stage.agent.engine.migrate(request).await.expect_err("it is refused");
    assert!(!stage.world.calls().iter().any(|method| method.is_effect()));
    assert_eq!(stage.world.volumes(), stage.before);
    refusal
}

#[tokio::test(start_paused = true)]
async fn snapshots_a_copy_would_lose_are_refused_by_name() {
    let of_libvirt = refused(Home::Rbd, "nfs-1", |state| {
        for domain in state.domains.values_mut() {
            domain.snapshots.snapshots.push("before-upgrade".to_owned());
        }
    });
    let checkpoint = refused(Home::Rbd, "nfs-1", |state| {
        for domain in state.domains.values_mut() {
            domain.snapshots.checkpoints.push("backup-7".to_owned());
        }
    });
    let internal = refused(Home::File, "ceph-ssd", |state| {
        for file in state.files.values_mut() {
            file.snapshots.push("monday".to_owned());
        }
    });
    let cases = [
        (of_libvirt.await, "before-upgrade"),
        (checkpoint.await, "backup-7"),
        (internal.await, "monday"),
    ];
    for (refusal, name) in cases {
        assert_eq!(refusal.code, RefusalCode::HasSnapshots, "{refusal}");
        assert!(refusal.message.contains(name), "{refusal}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_of_no_whole_sectors_is_refused() {
    for size in [0, DISK_SIZE + 1, 511] {
        let refusal = refused(Home::Rbd, "nfs-1", |state| {
            for domain in state.domains.values_mut() {
                domain.disk_mut("vda").expect("it runs").capacity = size;
            }
        });
        let refusal = refusal.await;
        assert_eq!(refusal.code, RefusalCode::SizeMismatch, "{refusal}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_host_may_not_do_cannot_do_or_does_not_answer_is_told_apart() {
    let cases = [
        (Method::ObserveDomain, ErrorClass::PermissionDenied, RefusalCode::NotAllowed),
        (Method::BlockInfo, ErrorClass::Unsupported, RefusalCode::HostUnsupported),
        (Method::QemuDevices, ErrorClass::NoAnswer, RefusalCode::Busy),
        (Method::ObserveFolder, ErrorClass::PermissionDenied, RefusalCode::PermissionDenied),
        (Method::ObserveFolder, ErrorClass::NoAnswer, RefusalCode::PoolUnavailable),
    ];
    for (method, class, code) in cases {
        let stage = Stage::new(Home::Rbd, true).await;
        // More than once: the agent looks through its pools when it starts, before or after this request.
        for nth in 1..=3 {
            stage.world.fault(method, nth, Fault::Refuse(class, "it says no"));
        }
        let request = stage.guest.request("nfs-1");
        let refusal = stage.agent.engine.migrate(request).await.expect_err("it is refused");
        assert_eq!(refusal.code, code, "{refusal}");
        assert!(refusal.message.contains("it says no"), "{refusal}");
        assert_eq!(stage.world.volumes(), stage.before);
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_was_switched_right_before_its_copy_is_not_copied() {
    let stage = Stage::new(Home::Rbd, true).await;
    let other = stage.scene.place("ceph-hdd", "of-somebody");
    stage.world.before(Method::StartCopy, 1, |_| panic!("another image would be mirrored"));
    stage.world.before(Method::QemuDevices, 2, move |world| {
        world.with(|state| {
            for domain in state.domains.values_mut() {
                domain.disk_mut("vda").expect("it runs").node.volume = other.clone();
            }
        });
    });
    let request = stage.guest.request("ceph-ssd");
    stage.begin(&request).await;
    let view = stage.agent.end(&request.operation).await;
    let failure = view.failure.clone().expect("a failure");
    assert_eq!((view.state, failure.cause), (State::Failed, FailureCause::VolumeInUse));
    assert_eq!(failure.side, Side::Source);
    assert_eq!(stage.world.volumes(), stage.before);
}

#[tokio::test(start_paused = true)]
async fn a_copy_libvirt_is_never_there_to_start_ends_at_its_deadline() {
    let stage = Stage::new(Home::Rbd, true).await;
    for nth in 1..200 {
        let away = Fault::Refuse(ErrorClass::Unavailable, "libvirt is away");
        stage.world.fault(Method::StartCopy, nth, away);
    }
    let mut request = stage.guest.request("ceph-ssd");
    request.deadline = Some(Duration::from_secs(600));
    let view = stage.run(&request).await;
    let failure = view.failure.clone().expect("a failure");
    assert_eq!((view.state, failure.cause), (State::Failed, FailureCause::LibvirtGone));
    assert_eq!(failure.side, Side::Host);
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_takes_nothing_before_the_pivot_is_the_agents_own_fault() {
    let mut told = 0;
    for nth in 1..12 {
        let stage = Stage::new(Home::Rbd, true).await;
        let request = stage.guest.request("nfs-1");
        stage.begin(&request).await;
        stage.world.fail_journal(nth..nth + 1);
        let view = stage.end(&request).await;
        if let Some(failure) = &view.failure {
            assert_eq!((view.state, failure.cause), (State::Failed, FailureCause::Internal));
            assert_eq!(failure.side, Side::Host, "{failure}");
            told += 1;
        }
    }
    assert!(told > 2, "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_method_this_agent_has_not_is_refused() {
    let stage = Stage::new(Home::Rbd, true).await;
    let request = |method| MigrateSpec { method, ..stage.guest.request("nfs-1") };
    let refusal = stage.agent.engine.migrate(request(CopyMethod::Handover)).await;
    let refusal = refusal.expect_err("nothing here can do it");
    assert_eq!(refusal.code, RefusalCode::MethodUnavailable, "{refusal}");
    assert!(refusal.message.contains("leave --method out"), "{refusal}");
    assert_eq!(stage.world.volumes(), stage.before);
    assert_eq!(stage.run(&request(CopyMethod::Mirror)).await.state, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_is_paused_on_an_error_after_the_pivot_is_told() {
    let stage = Stage::new(Home::Rbd, true).await;
    let guest = stage.guest.uuid.clone();
    // QEMU pauses it around the switch, before the move is verified.
    stage.world.before(Method::Pivot, 1, move |world| {
        world.with(|state| {
            let domain = state.domains.get_mut(&guest).expect("the guest");
            domain.state = DomainState::PausedOnIoError;
        });
    });
    let view = stage.run(&stage.guest.request("nfs-1")).await;
    assert_eq!(view.state, State::Succeeded, "{view:#?}");
    let told = view.warnings.iter().any(|text| text.contains("paused on an I/O error"));
    assert!(told, "{:?}", view.warnings);
}
