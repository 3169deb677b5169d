//! The journal is lost while copies run, or a call has its effect after everybody gave up on it: what is left is found,
//! and removed only when it is ours and nobody's.

use std::time::Duration;

use volferry_agent::engine::doctor::{Orphan, OrphanError};
use volferry_agent::fake::domain::Pace;
use volferry_agent::fake::faults::{Fault, Method};
use volferry_agent::fake::scene::Home;
use volferry_agent::fake::{Agent, Stage};
use volferry_agent::operation::State;
use volferry_agent::ports::ErrorClass;
use volferry_agent::spec::MigrateSpec;

const PAIRS: [(Home, &str); 3] =
    [(Home::Rbd, "ceph-ssd"), (Home::Rbd, "nfs-1"), (Home::File, "ceph-hdd")];

/// An agent whose journal was lost, when its operation was in `state`.
async fn lost(home: Home, pool: &str, state: State) -> (Stage, MigrateSpec, Agent) {
    let stage = Stage::new(home, true).await;
    let pace = Pace { copy: 64 << 20, ..Pace::default() };
    stage.world.pace(&stage.guest.uuid, "vda", pace);
    let mut request = stage.guest.request(pool);
    request.manual_pivot = true;
    if state == State::Preparing {
        for method in [Method::RenameFile, Method::RenameImage] {
            stage.world.fault(method, 1, Fault::Hang);
        }
    }
    stage.begin(&request).await;
    stage.reaches(&request, state).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    stage.agent.engine.stop().await;
    stage.world.clear_script();
    let next = Agent::start(&stage.scene, &stage.folder().join("another.db")).await;
    (stage, request, next)
}

async fn only(agent: &Agent) -> Orphan {
    let orphans = agent.engine.orphans().await.expect("a readable journal");
    assert!(orphans.unread.is_empty(), "{orphans:#?}");
    let [orphan] = &orphans.found[..] else { panic!("not one orphan: {orphans:#?}") };
    orphan.clone()
}

#[tokio::test(start_paused = true)]
async fn copies_that_outlived_the_journal_are_found_ended_and_removed() {
    for (home, pool) in PAIRS {
        for state in [State::Preparing, State::Copying, State::Ready] {
            let (stage, request, agent) = lost(home, pool, state).await;
            let orphan = only(&agent).await;
            assert_eq!(orphan.volume.operation, request.operation);
            assert_eq!(orphan.volume.host.as_deref(), Some("host-a"));
            assert_eq!(orphan.pool.as_str(), pool);
            assert_eq!(orphan.kept, None, "{orphan:#?}");
            let copied = orphan.job.as_ref().map(|job| job.target.as_str());
            assert_eq!(copied, (state != State::Preparing).then_some("vda"));
            assert_eq!(orphan.volume.private, state == State::Preparing);
            let removed = agent.engine.remove_orphan(&request.operation).await;
            assert_eq!(removed.expect("it is ours and nobody's").len(), 1);
            assert_eq!(stage.world.volumes(), stage.before);
            let found = agent.engine.orphans().await.expect("a readable journal");
            assert!(found.found.is_empty());
            let again = agent.engine.remove_orphan(&request.operation).await;
            assert!(matches!(again, Err(OrphanError::Unknown(_))), "{again:?}");
            // The disk is free for the next operation.
            let mut next = request.clone();
            next.manual_pivot = false;
            agent.engine.migrate(next.clone()).await.expect("nothing is in the way");
            assert_eq!(agent.end(&next.operation).await.state, State::Succeeded);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_the_guest_moved_to_is_never_removed() {
    for (home, pool) in PAIRS {
        // Somebody pivots, and libvirtd does not live to write it down: both XMLs are wrong.
        for in_libvirt in [true, false] {
            let (stage, request, agent) = lost(home, pool, State::Ready).await;
            let uuid = stage.guest.uuid.clone();
            stage
                .world
                .with(|state| match in_libvirt {
                    true => state.pivot(&uuid, "vda", "pivot"),
                    false => {
                        let moved = state.pivot_in_qemu(&uuid, "vda", "pivot").map(drop);
                        state.forget_mirror(&uuid, "vda");
                        moved
                    }
                })
                .expect("a ready job");
            let orphan = only(&agent).await;
            let kept = orphan.kept.clone().unwrap_or_default();
            assert!(kept.contains("domain web uses it"), "{orphan:#?}");
            let volumes = stage.world.volumes();
            let refused = agent.engine.remove_orphan(&request.operation).await;
            assert!(matches!(refused, Err(OrphanError::Kept { .. })), "{refused:?}");
            assert_eq!(stage.world.volumes(), volumes);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_another_host_made_and_what_cannot_be_looked_at_stays() {
    let (stage, request, agent) = lost(Home::Rbd, "nfs-1", State::Copying).await;
    stage.world.libvirt_away();
    let orphan = only(&agent).await;
    assert!(orphan.kept.is_some_and(|why| why.contains("cannot be told")));
    stage.world.libvirt_back();
    stage.world.with(|state| {
        for mark in state.marks.values_mut() {
            mark.host = "host-b".to_owned();
        }
        state.clusters[0].reachable = false;
    });
    let orphans = agent.engine.orphans().await.expect("a readable journal");
    let why = orphans.found[0].kept.clone().unwrap_or_default();
    assert!(why.contains("host host-b made it"), "{orphans:#?}");
    assert_eq!(orphans.unread.len(), 1);
    assert!(agent.engine.remove_orphan(&request.operation).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn what_an_operation_knows_is_no_orphan() {
    for (home, pool) in PAIRS {
        let stage = Stage::new(home, true).await;
        let mut request = stage.guest.request(pool);
        request.manual_pivot = true;
        stage.begin(&request).await;
        stage.reaches(&request, State::Ready).await;
        let none = || async {
            let orphans = stage.agent.engine.orphans().await.expect("a readable journal");
            assert!(orphans.found.is_empty(), "{orphans:#?}");
        };
        none().await;
        stage.agent.engine.complete(&request.operation).await.expect("it waits for the word");
        assert_eq!(stage.end(&request).await.state, State::Succeeded);
        none().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_appears_after_its_operation_ended_is_swept_at_the_next_start() {
    for (home, pool) in PAIRS {
        let stage = Stage::new(home, true).await;
        let create = if pool == "nfs-1" { Method::CreateFile } else { Method::CreateImage };
        stage.world.fault(create, 1, Fault::Refuse(ErrorClass::NoAnswer, "no answer"));
        let request = stage.guest.request(pool);
        stage.begin(&request).await;
        let view = stage.end(&request).await;
        assert_eq!(view.state, State::Failed, "{view:#?}");
        // The call that was given up has its effect now.
        let mut stage = stage;
        let late = view.destination.renamed(&request.operation.private_volume_name());
        let unknown = view.destination.renamed(".volferry-of-another-host");
        stage.stranger(&late);
        stage.before.remove(&late.to_string());
        stage.stranger(&unknown);
        let stage = stage.restart().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(stage.world.volumes(), stage.before, "only what is its own is swept");
    }
}

#[tokio::test(start_paused = true)]
async fn a_mark_that_cannot_be_made_or_taken_away_fails_nothing() {
    for method in [Method::SetMark, Method::ClearMark] {
        let stage = Stage::new(Home::Rbd, true).await;
        let refused = Fault::Refuse(ErrorClass::PermissionDenied, "it says no");
        stage.world.fault(method, 1, refused);
        let request = stage.guest.request("nfs-1");
        stage.begin(&request).await;
        assert_eq!(stage.agent.end(&request.operation).await.state, State::Succeeded);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_copy_has_moved_to_is_no_orphan_once_its_source_may_go() {
    // The copy gets its name by the first renaming, the source its own by the second.
    let mut stage = Stage::new(Home::Rbd, true).await;
    stage.guest = stage.scene.volume("ceph-hdd", "v");
    stage.before = stage.world.volumes();
    stage.world.fault(Method::RenameImage, 2, Fault::Hang);
    let request = stage.guest.volume_request("ceph-ssd");
    stage.begin(&request).await;
    stage.reaches(&request, State::Cleaning).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    stage.agent.engine.stop().await;
    stage.world.clear_script();
    let next = Agent::start(&stage.scene, &stage.folder().join("another.db")).await;
    let orphans = next.engine.orphans().await.expect("a readable journal");
    assert!(orphans.found.is_empty(), "{orphans:#?}");
    let refused = next.engine.remove_orphan(&request.operation).await;
    assert!(matches!(refused, Err(OrphanError::Unknown(_))), "{refused:#?}");
}
