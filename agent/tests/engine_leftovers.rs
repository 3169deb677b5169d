//! What goes wrong once the disk has moved: the operation succeeds all the same, and what is left is recorded, tried
//! again and forgotten without changing it.

use std::time::Duration;

use volferry_agent::engine::{LeftoverError, Retried};
use volferry_agent::fake::Stage;
use volferry_agent::fake::faults::{Fault, Method};
use volferry_agent::fake::scene::Home;
use volferry_agent::operation::{Leftover, LeftoverKind, OperationView, SourceFate, State};
use volferry_agent::ports::ErrorClass;
use volferry_agent::spec::{Identity, LeftoverId, MigrateSpec, PoolKind};

const WATCHER: &str = "192.0.2.99:0/7";

/// One thing that goes wrong after the pivot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    Gone,
    Watched,
    ReadOnlyMount,
    NoPermission,
    JournalFull,
}

impl Trouble {
    fn arm(self, stage: &Stage, home: Home) {
        let (rename, remove) = match home {
            Home::Rbd => (Method::RenameImage, Method::RemoveImage),
            Home::File => (Method::RenameFile, Method::RemoveFile),
        };
        let refuse = |text| Fault::Refuse(ErrorClass::PermissionDenied, text);
        let source = stage.guest.volume.clone();
        match self {
            Self::Gone => stage.world.before(rename, 1, move |world| {
                let id = world.volumes().remove(&source.to_string());
                world.with(|state| {
                    for cluster in &mut state.clusters {
                        for pool in cluster.pools.values_mut() {
                            pool.images.retain(|_, image| {
                                id != Some(Identity::Rbd { image_id: image.id.clone() })
                            });
                        }
                    }
                    state.files.retain(|path, _| path.to_string_lossy() != source.to_string());
                });
            }),
            Self::Watched => {
                stage.source_image(|image| image.watchers.push(WATCHER.to_owned()));
            }
            Self::ReadOnlyMount => stage.world.fault(remove, 1, refuse("Read-only file system")),
            Self::NoPermission => stage.world.fault(rename, 1, refuse("Operation not permitted")),
            Self::JournalFull => stage.world.before(Method::Pivot, 1, |world| {
                world.fail_journal(1..usize::MAX);
            }),
        }
    }

    const fn warning(self) -> &'static str {
        match self {
            Self::Gone => "was gone already",
            Self::Watched => WATCHER,
            Self::ReadOnlyMount => "Read-only file system",
            Self::NoPermission => "Operation not permitted",
            Self::JournalFull => "journal could not be written",
        }
    }
}

async fn run_with(troubles: &[Trouble], home: Home, pool: &str) -> (Stage, MigrateSpec) {
    let stage = Stage::new(home, true).await;
    for trouble in troubles {
        trouble.arm(&stage, home);
    }
    let request = stage.guest.request(pool);
    // The world is judged at the end: QEMU and both XMLs on the destination, which is the volume of the result.
    let view = stage.run(&request).await;
    assert_eq!(view.state, State::Succeeded, "{troubles:?}: {view:#?}");
    (stage, request)
}

fn warned(view: &OperationView, text: &str) -> bool {
    view.warnings.iter().any(|warning| warning.contains(text))
}

async fn view(stage: &Stage, request: &MigrateSpec) -> OperationView {
    let view = stage.agent.engine.operation(&request.operation).await;
    OperationView::clone(&view.expect("it is known"))
}

async fn all(stage: &Stage) -> Vec<Leftover> {
    stage.agent.engine.leftovers().await.expect("a readable journal")
}

async fn only(stage: &Stage) -> Leftover {
    let mut left = all(stage).await;
    assert_eq!(left.len(), 1, "{left:#?}");
    left.remove(0)
}

async fn retry(stage: &Stage, id: &LeftoverId) -> Retried {
    stage.agent.engine.retry_leftover(id).await.expect("a record")
}

async fn stays(stage: &Stage, id: &LeftoverId) -> String {
    match retry(stage, id).await {
        Retried::Stays(leftover) => leftover.reason,
        other => panic!("{other:#?}"),
    }
}

async fn removed(stage: &Stage, id: &LeftoverId) {
    let retried = retry(stage, id).await;
    assert!(matches!(retried, Retried::Removed(_)), "{retried:#?}");
    assert_eq!(all(stage).await, []);
}

#[tokio::test(start_paused = true)]
async fn trouble_after_the_pivot_is_a_warning_one_at_a_time() {
    use Trouble as T;
    for (home, pool, trouble) in [
        (Home::Rbd, "nfs-1", T::Gone),
        (Home::File, "ceph-ssd", T::Gone),
        (Home::Rbd, "ceph-ssd", T::Watched),
        (Home::File, "ceph-hdd", T::ReadOnlyMount),
        (Home::File, "ceph-hdd", T::NoPermission),
        (Home::Rbd, "nfs-1", T::NoPermission),
        (Home::Rbd, "nfs-1", T::JournalFull),
    ] {
        let (stage, request) = run_with(&[trouble], home, pool).await;
        let view = view(&stage, &request).await;
        assert!(warned(&view, trouble.warning()), "{trouble:?}: {:#?}", view.warnings);
        // A journal that takes nothing does not take the record of what stays either.
        let told = !matches!(trouble, T::Gone | T::JournalFull);
        assert_eq!(all(&stage).await.len(), usize::from(told), "{trouble:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn trouble_after_the_pivot_is_a_warning_all_together() {
    use Trouble as T;
    let sets: [(Home, &str, &[Trouble]); 4] = [
        (Home::Rbd, "nfs-1", &[T::Watched, T::NoPermission, T::ReadOnlyMount, T::JournalFull]),
        (Home::Rbd, "nfs-1", &[T::Watched, T::JournalFull]),
        (Home::File, "ceph-ssd", &[T::ReadOnlyMount, T::JournalFull]),
        (Home::File, "ceph-ssd", &[T::Gone, T::JournalFull]),
    ];
    for (home, pool, troubles) in sets {
        let (stage, request) = run_with(troubles, home, pool).await;
        let seen = view(&stage, &request).await;
        assert!(warned(&seen, Trouble::JournalFull.warning()), "{troubles:?}");
        // Once the journal takes writes again, the next life ends it the same way and records what is left.
        let stage = stage.restart().await;
        stage.world.clear_script();
        let ended = stage.end(&request).await;
        assert_eq!(ended.state, State::Succeeded, "{troubles:?}: {ended:#?}");
        let left = matches!(
            ended.result.as_ref().map(|result| &result.source),
            Some(SourceFate::LeftBehind { .. })
        );
        assert_eq!(all(&stage).await.len(), usize::from(left), "{troubles:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_taken_away_while_the_move_is_not_on_record() {
    for (home, pool) in [(Home::Rbd, "nfs-1"), (Home::File, "ceph-ssd")] {
        let (stage, request) = run_with(&[Trouble::JournalFull], home, pool).await;
        let ended = view(&stage, &request).await;
        let retired = format!("{}.moved-{}", stage.guest.volume.name(), request.operation);
        match ended.result.as_ref().map(|result| &result.source) {
            // Out of reach of an old definition, and still there.
            Some(SourceFate::LeftBehind { location, reason }) => {
                assert_eq!(location.name(), retired, "{reason}");
                assert!(reason.contains("journal takes no writes"), "{reason}");
                assert!(stage.world.volumes().contains_key(&location.to_string()));
            }
            fate => panic!("{fate:?}"),
        }
        // The end is written down as soon as that is possible, without another life.
        assert_ne!(stage.journaled_state(&request).await, State::Succeeded);
        stage.world.fail_journal(0..0);
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(stage.journaled_state(&request).await, State::Succeeded);
        assert_eq!(view(&stage, &request).await, ended, "what was said does not change");
        let left = only(&stage).await;
        removed(&stage, &left.id).await;
        assert!(!stage.world.volumes().keys().any(|name| name.ends_with(&retired)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_watched_source_is_listed_and_goes_when_its_watcher_has_gone() {
    let (stage, request) = run_with(&[Trouble::Watched], Home::Rbd, "nfs-1").await;
    let before = view(&stage, &request).await;
    let left = only(&stage).await;
    assert_eq!((left.kind, left.tries, left.last_try), (LeftoverKind::Source, 0, None));
    assert_eq!(left.id.as_str(), format!("{}-source", request.operation));
    assert_eq!(left.location.name(), format!("web-root.moved-{}", request.operation));
    assert!(left.reason.contains(WATCHER), "{}", left.reason);
    let stage = stage.restart().await;
    assert!(stays(&stage, &left.id).await.contains(WATCHER));
    assert_eq!(only(&stage).await.tries, 1);
    assert!(only(&stage).await.last_try.is_some());
    stage.source_image(|image| image.watchers.clear());
    removed(&stage, &left.id).await;
    assert!(!stage.world.volumes().contains_key(&left.location.to_string()));
    assert_eq!(view(&stage, &request).await, before, "the finished operation does not change");
    let unknown = stage.agent.engine.retry_leftover(&left.id).await;
    assert!(matches!(unknown, Err(LeftoverError::Unknown(_))), "{unknown:?}");
}

#[tokio::test(start_paused = true)]
async fn forgetting_touches_nothing() {
    let (stage, _) = run_with(&[Trouble::Watched], Home::Rbd, "nfs-1").await;
    let left = only(&stage).await;
    let volumes = stage.world.volumes();
    stage.world.clear_script();
    let forgotten = stage.agent.engine.forget_leftover(&left.id).await.expect("a record");
    assert_eq!(forgotten, left);
    assert_eq!((all(&stage).await, stage.world.volumes()), (vec![], volumes));
    assert_eq!(stage.world.calls(), []);
    let again = stage.agent.engine.forget_leftover(&left.id).await;
    assert!(matches!(again, Err(LeftoverError::Unknown(_))), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn another_volume_of_the_name_is_left_alone() {
    let (mut stage, _) = run_with(&[Trouble::Watched], Home::Rbd, "nfs-1").await;
    let left = only(&stage).await;
    stage.stranger(&left.location);
    let volumes = stage.world.volumes();
    assert!(stays(&stage, &left.id).await.contains("another volume by now"));
    assert_eq!(stage.world.volumes(), volumes);
}

#[tokio::test(start_paused = true)]
async fn a_volume_a_domain_uses_stays_until_it_does_not() {
    let stage = Stage::new(Home::Rbd, true).await;
    let other = stage.scene.guest("other", Home::File, true);
    let web = stage.guest.uuid.clone();
    let mut request = stage.guest.request("nfs-1");
    request.manual_pivot = true;
    stage.begin(&request).await;
    stage.agent.until(&request.operation, |view| view.waits_for_pivot).await;
    // Not before the plan was made: it would have been refused.
    stage.world.with(|state| {
        let text = state.domains[&web].inactive_xml.clone();
        state.domains.get_mut(&other.uuid).expect("the other guest").inactive_xml = text;
    });
    stage.agent.engine.complete(&request.operation).await.expect("it waits for the word");
    stage.agent.end(&request.operation).await;
    let left = only(&stage).await;
    assert_eq!(left.location, stage.guest.volume);
    assert!(stays(&stage, &left.id).await.contains("domain other uses it"));
    assert!(stage.world.volumes().contains_key(&stage.guest.volume.to_string()));
    stage.world.with(|state| state.domains.remove(&other.uuid));
    stage.world.clear_script();
    removed(&stage, &left.id).await;
    let calls = stage.world.calls();
    let place = |method| calls.iter().position(|call| *call == method);
    assert!(place(Method::RenameImage) < place(Method::RemoveImage), "{calls:?}");
    assert!(place(Method::RenameImage).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_file_that_qemu_still_has_open_under_its_old_name_stays() {
    let (stage, _) = run_with(&[Trouble::ReadOnlyMount], Home::File, "ceph-ssd").await;
    let left = only(&stage).await;
    let node = stage.world.with(|state| {
        let domain = state.domains.get_mut(&stage.guest.uuid).expect("the guest");
        let disk = domain.disk_mut("vda").expect("its disk");
        std::mem::replace(&mut disk.node.volume, stage.guest.volume.clone())
    });
    assert!(stays(&stage, &left.id).await.contains("may still use it"));
    stage.world.with(|state| {
        let domain = state.domains.get_mut(&stage.guest.uuid).expect("the guest");
        domain.disk_mut("vda").expect("its disk").node.volume = node;
    });
    removed(&stage, &left.id).await;
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_free_where_nothing_is_mounted_proves_nothing() {
    let (stage, _) = run_with(&[Trouble::ReadOnlyMount], Home::File, "ceph-ssd").await;
    let left = only(&stage).await;
    let mounted = |mounted| {
        stage.world.with(|state| {
            state.folders.values_mut().for_each(|folder| folder.mounted = mounted);
        });
    };
    stage.world.with(|state| state.files.clear());
    mounted(false);
    assert!(stays(&stage, &left.id).await.contains("its mount is missing"));
    mounted(true);
    let gone = retry(&stage, &left.id).await;
    assert!(matches!(gone, Retried::AlreadyGone(_)), "{gone:?}");
    assert_eq!(all(&stage).await, []);
}

#[tokio::test(start_paused = true)]
async fn the_record_knows_the_mount_of_a_pool_that_is_in_no_configuration_any_more() {
    let (mut stage, _) = run_with(&[Trouble::ReadOnlyMount], Home::File, "ceph-ssd").await;
    stage.scene.host.pools.retain(|pool| matches!(pool.kind, PoolKind::Rbd(_)));
    let stage = stage.restart().await;
    let left = only(&stage).await;
    stage.world.with(|state| {
        state.files.clear();
        state.folders.values_mut().for_each(|folder| folder.mounted = false);
    });
    assert!(stays(&stage, &left.id).await.contains("its mount is missing"));
}

#[tokio::test(start_paused = true)]
async fn a_source_that_keeps_its_name_is_said_to_boot_still() {
    for (trouble, told) in [(Trouble::NoPermission, true), (Trouble::Watched, false)] {
        let (stage, request) = run_with(&[trouble], Home::Rbd, "nfs-1").await;
        let seen = view(&stage, &request).await;
        assert_eq!(warned(&seen, "an old record can still boot"), told, "{:#?}", seen.warnings);
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_that_keeps_its_name_is_sealed_and_goes_all_the_same_later() {
    let (stage, request) = run_with(&[Trouble::NoPermission], Home::File, "ceph-ssd").await;
    let seen = view(&stage, &request).await;
    assert!(warned(&seen, "no old record boots it"), "{:#?}", seen.warnings);
    assert!(!warned(&seen, "can still boot"), "{:#?}", seen.warnings);
    assert_eq!(stage.world.with(|state| state.files.values().filter(|f| f.sealed).count()), 1);
    let left = only(&stage).await;
    removed(&stage, &left.id).await;
    assert_eq!(stage.world.with(|state| state.files.values().filter(|f| f.sealed).count()), 0);
}

#[tokio::test(start_paused = true)]
async fn a_file_whose_users_cannot_be_told_is_not_sealed() {
    // The name is refused, and then nobody answers who uses the file; or that was never known.
    for (method, nth) in [(Method::RenameFile, 1), (Method::FileUsers, 0)] {
        let stage = Stage::new(Home::File, true).await;
        let refuse = || Fault::Refuse(ErrorClass::PermissionDenied, "Operation not permitted");
        stage.world.before(Method::Pivot, 1, move |world| {
            world.fault(method, nth.max(1), refuse());
            world.fault(Method::FileUsers, 1, refuse());
            if nth == 0 {
                world.fault(Method::RenameFile, 1, refuse());
            }
        });
        let request = stage.guest.request("ceph-ssd");
        let view = stage.run(&request).await;
        assert_eq!(view.state, State::Succeeded, "{view:#?}");
        let sealed = stage.world.with(|state| state.files.values().filter(|f| f.sealed).count());
        assert_eq!(sealed, 0, "{:#?}", view.warnings);
        assert!(warned(&view, "can still boot"), "{:#?}", view.warnings);
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_of_which_libvirt_cannot_tell_the_users_is_neither_renamed_nor_sealed() {
    let stage = Stage::new(Home::File, true).await;
    stage.world.before(Method::RenameFile, 1, |_| ());
    stage.world.before(Method::Pivot, 1, |world| {
        let hung = || Fault::Refuse(ErrorClass::PermissionDenied, "it does not say");
        for nth in 1..400 {
            world.fault(Method::ListDomains, nth, hung());
        }
    });
    let request = stage.guest.request("ceph-ssd");
    let view = stage.run(&request).await;
    assert_eq!(view.state, State::Succeeded, "{view:#?}");
    assert!(warned(&view, "it was not touched"), "{:#?}", view.warnings);
    assert_eq!(stage.world.with(|state| state.files.values().filter(|f| f.sealed).count()), 0);
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_cannot_be_removed_is_recorded_when_it_is_rolled_back() {
    let stage = Stage::new(Home::File, true).await;
    let mut request = stage.guest.request("ceph-ssd");
    request.manual_pivot = true;
    stage.begin(&request).await;
    let ready = stage.reaches(&request, State::Ready).await;
    stage.world.with(|state| {
        let images = state.clusters[1].pools.values_mut().flat_map(|p| p.images.values_mut());
        images.for_each(|image| image.watchers.push(WATCHER.to_owned()));
    });
    stage.agent.engine.cancel(&request.operation).await.expect("it may be cancelled");
    let view = stage.agent.end(&request.operation).await;
    assert_eq!(view.state, State::Cancelled);
    assert!(warned(&view, WATCHER), "{:#?}", view.warnings);
    let left = only(&stage).await;
    assert_eq!((left.kind, &left.location), (LeftoverKind::Destination, &ready.destination));
    stage.world.with(|state| {
        let images = state.clusters[1].pools.values_mut().flat_map(|p| p.images.values_mut());
        images.for_each(|image| image.watchers.clear());
    });
    removed(&stage, &left.id).await;
    assert_eq!(stage.world.volumes(), stage.before);
}

#[tokio::test(start_paused = true)]
async fn a_private_volume_that_cannot_be_removed_is_recorded() {
    let stage = Stage::new(Home::File, true).await;
    let request = stage.guest.request("ceph-ssd");
    stage.world.fault(Method::RenameImage, 1, Fault::Refuse(ErrorClass::Other, "it says no"));
    stage.world.before(Method::RenameImage, 1, |world| {
        world.with(|state| {
            let images = state.clusters[1].pools.values_mut().flat_map(|p| p.images.values_mut());
            images.for_each(|image| image.watchers.push(WATCHER.to_owned()));
        });
    });
    stage.begin(&request).await;
    assert_eq!(stage.agent.end(&request.operation).await.state, State::Failed);
    let left = only(&stage).await;
    assert_eq!(left.kind, LeftoverKind::Private);
    assert!(stays(&stage, &left.id).await.contains(WATCHER));
    stage.world.with(|state| {
        let images = state.clusters[1].pools.values_mut().flat_map(|p| p.images.values_mut());
        images.for_each(|image| image.watchers.clear());
    });
    removed(&stage, &left.id).await;
    assert_eq!(stage.world.volumes(), stage.before);
}

#[tokio::test(start_paused = true)]
async fn a_retry_deletes_the_snapshots_that_were_to_go() {
    let stage = Stage::new(Home::Rbd, true).await;
    stage.source_image(|image| image.snapshots = vec!["one".to_owned(), "two".to_owned()]);
    let refusal = Fault::Refuse(ErrorClass::PermissionDenied, "Operation not permitted");
    stage.world.fault(Method::RemoveSnapshot, 2, refusal);
    let mut request = stage.guest.request("nfs-1");
    request.delete_source_snapshots = true;
    stage.run(&request).await;
    let left = only(&stage).await;
    stage.source_image(|image| assert_eq!(image.snapshots, ["two"]));
    removed(&stage, &left.id).await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_killed_anywhere_in_a_retry_can_try_again() {
    let mut point = 0;
    loop {
        let (stage, _) = run_with(&[Trouble::NoPermission], Home::Rbd, "nfs-1").await;
        let left = only(&stage).await;
        assert_eq!(left.location, stage.guest.volume);
        stage.world.kill_agent_at(point);
        let ended = tokio::select! {
            retried = retry(&stage, &left.id) => Some(retried),
            () = stage.world.agent_died() => None,
        };
        let stage = stage.restart().await;
        for left in all(&stage).await {
            let retried = retry(&stage, &left.id).await;
            assert!(!matches!(retried, Retried::Stays(_)), "killed at {point}: {retried:#?}");
        }
        assert_eq!(all(&stage).await, []);
        let volumes = stage.world.volumes();
        assert!(!volumes.keys().any(|name| name.contains("hdd/web-root")), "{volumes:#?}");
        if let Some(ended) = ended {
            assert!(matches!(ended, Retried::Removed(_)), "{ended:#?}");
            break;
        }
        point += 1;
    }
    assert!(point >= 8, "only {point} points");
}
