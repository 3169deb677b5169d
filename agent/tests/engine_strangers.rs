//! Somebody else pivots, snapshots or ends the copy, while the agent watches and while it is away. Whatever is not
//! certainly the source's is never removed.

use volferry_agent::fake::Stage;
use volferry_agent::fake::scene::Home;
use volferry_agent::operation::{FailureCause, State};
use volferry_agent::spec::{MigrateSpec, VolumeLocation};

const PAIRS: [(Home, &str); 3] =
    [(Home::Rbd, "ceph-ssd"), (Home::Rbd, "nfs-1"), (Home::File, "ceph-hdd")];

/// A stage whose copy is ready and waits for the word to pivot.
async fn ready(home: Home, pool: &str, persistent: bool) -> (Stage, MigrateSpec) {
    let stage = Stage::new(home, persistent).await;
    let mut request = stage.guest.request(pool);
    request.manual_pivot = true;
    stage.begin(&request).await;
    stage.reaches(&request, State::Ready).await;
    (stage, request)
}

fn pivot_by_somebody(stage: &Stage) {
    let uuid = stage.guest.uuid.clone();
    stage.world.with(|state| state.pivot(&uuid, "vda", "pivot")).expect("a ready job");
}

/// The destination is there, whatever the operation says.
async fn destination_exists(stage: &Stage, request: &MigrateSpec) -> bool {
    let view = stage.agent.engine.operation(&request.operation).await.expect("it is known");
    stage.world.volumes().contains_key(&view.destination.to_string())
}

#[tokio::test(start_paused = true)]
async fn a_pivot_by_somebody_else_is_a_move() {
    for (home, pool) in PAIRS {
        for persistent in [true, false] {
            let (stage, request) = ready(home, pool, persistent).await;
            pivot_by_somebody(&stage);
            let view = stage.end(&request).await;
            assert_eq!(view.state, State::Succeeded, "{view:#?}");
            assert!(view.warnings.iter().any(|text| text.contains("somebody else")), "{view:#?}");
            assert!(!view.waits_for_pivot);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pivot_by_somebody_else_right_before_the_guest_stops_is_a_move() {
    for (home, pool) in PAIRS {
        let (stage, request) = ready(home, pool, true).await;
        pivot_by_somebody(&stage);
        stage.world.kill_qemu(&stage.guest.uuid);
        let view = stage.end(&request).await;
        assert_eq!(view.state, State::Succeeded, "{view:#?}");
        assert!(destination_exists(&stage, &request).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pivot_by_somebody_else_while_the_agent_is_away_is_found() {
    for (home, pool) in PAIRS {
        for persistent in [true, false] {
            let (stage, request) = ready(home, pool, persistent).await;
            stage.agent.engine.stop().await;
            pivot_by_somebody(&stage);
            let stage = stage.restart().await;
            let view = stage.end(&request).await;
            assert_eq!(view.state, State::Succeeded, "{view:#?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pivot_by_somebody_else_and_a_stop_while_the_agent_is_away_keep_both_volumes() {
    for (home, pool) in PAIRS {
        for persistent in [true, false] {
            let (stage, request) = ready(home, pool, persistent).await;
            stage.agent.engine.stop().await;
            pivot_by_somebody(&stage);
            stage.world.kill_qemu(&stage.guest.uuid);
            let stage = stage.restart().await;
            let view = stage.end(&request).await;
            assert_eq!(view.state, State::NeedsOperator, "{view:#?}");
            assert!(destination_exists(&stage, &request).await, "the only current copy");
            assert!(stage.world.volumes().contains_key(&view.source.to_string()));
            assert_eq!(view.volume_is_at(), None);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_stops_while_the_agent_is_away_is_rolled_back_where_that_is_sure() {
    for (home, pool) in PAIRS {
        let (stage, request) = ready(home, pool, true).await;
        stage.agent.engine.stop().await;
        stage.world.kill_qemu(&stage.guest.uuid);
        let stage = stage.restart().await;
        let view = stage.end(&request).await;
        assert_eq!(view.state, State::Failed, "{view:#?}");
        assert_eq!(
            view.failure.as_ref().map(|failure| failure.cause),
            Some(FailureCause::GuestGone)
        );
        assert!(!destination_exists(&stage, &request).await);
    }
}

#[tokio::test(start_paused = true)]
async fn an_overlay_somebody_puts_on_the_destination_keeps_it() {
    let (stage, request) = ready(Home::Rbd, "nfs-1", true).await;
    stage.agent.engine.stop().await;
    pivot_by_somebody(&stage);
    let uuid = stage.guest.uuid.clone();
    stage.world.with(|state| {
        let qemu = state.domains.get_mut(&uuid).and_then(|domain| domain.qemu.as_mut());
        let disk = qemu.and_then(|qemu| qemu.disks.get_mut("vda")).expect("a running disk");
        disk.node.volume = disk.node.volume.renamed("overlay.qcow2");
    });
    let stage = stage.restart().await;
    let view = stage.end(&request).await;
    assert_eq!(view.state, State::NeedsOperator, "{view:#?}");
    assert!(destination_exists(&stage, &request).await, "it is below what QEMU uses");
}

#[tokio::test(start_paused = true)]
async fn a_source_below_the_overlay_of_a_stopped_domain_stays() {
    let stage = Stage::new(Home::File, true).await;
    let VolumeLocation::File { path: source } = stage.guest.volume.clone() else {
        panic!("the guest lives on a file")
    };
    let other = stage.scene.guest("other", Home::File, true);
    let VolumeLocation::File { path: overlay } = other.volume.clone() else {
        panic!("the other guest lives on a file")
    };
    let name = source.file_name().expect("a file name").to_string_lossy().into_owned();
    stage.world.kill_qemu(&other.uuid);
    stage.world.with(|state| {
        let file = state.files.get_mut(&overlay).expect("the other guest's file");
        file.backing = Some(format!("./{name}"));
    });
    let request = stage.guest.request("ceph-hdd");
    stage.begin(&request).await;
    let view = stage.agent.end(&request.operation).await;
    assert_eq!(view.state, State::Succeeded, "{view:#?}");
    assert!(stage.world.volumes().contains_key(&stage.guest.volume.to_string()), "it is needed");
    assert!(view.warnings.iter().any(|text| text.contains("domain other uses it")), "{view:#?}");
}
