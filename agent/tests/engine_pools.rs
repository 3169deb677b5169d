//! What a destination pool must be before anything is made there: mounted, usable by QEMU, another volume.

use std::path::Path;

use volferry_agent::fake::Stage;
use volferry_agent::fake::faults::{Fault, Method};
use volferry_agent::fake::scene::Home;
use volferry_agent::fake::state::State as Content;
use volferry_agent::fake::storage_pool::StoragePool;
use volferry_agent::operation::{FailureCause, Side, State};
use volferry_agent::plan::{Refusal, RefusalCode};
use volferry_agent::ports::{ErrorClass, FileOwner};
use volferry_agent::spec::{MigrateSpec, PoolKind};

const NFS: &str = "/mnt/nfs-1";

fn folder(stage: &Stage, change: impl FnOnce(&mut volferry_agent::fake::folder::Folder)) {
    stage.world.with(|state| change(state.folders.get_mut(Path::new(NFS)).expect("the folder")));
}

/// Plan and move must refuse alike, and leave nothing.
async fn refused(stage: &Stage, request: &MigrateSpec) -> Refusal {
    let engine = &stage.agent.engine;
    let planned = engine.plan(request.clone()).await.expect_err("refused");
    let refusal = engine.migrate(request.clone()).await.expect_err("refused");
    assert_eq!(planned, refusal);
    assert_eq!(stage.world.volumes(), stage.before, "nothing was made");
    assert!(engine.operations().is_empty());
    refusal
}

#[tokio::test(start_paused = true)]
async fn a_folder_without_its_mount_is_refused() {
    let stage = Stage::new(Home::Rbd, true).await;
    folder(&stage, |folder| folder.mounted = false);
    let refusal = refused(&stage, &stage.guest.request("nfs-1")).await;
    assert_eq!(refusal.code, RefusalCode::NotMounted);
    for part in ["/mnt/nfs-1/web-root.qcow2", "mount it", "must_be_mounted = false"] {
        assert!(refusal.message.contains(part), "{refusal}");
    }
    assert!(!stage.world.calls().contains(&Method::FolderAccess), "nothing is tried there");
}

#[tokio::test(start_paused = true)]
async fn a_folder_that_need_not_be_mounted_is_used_as_it_is() {
    let mut stage = Stage::new(Home::Rbd, true).await;
    for pool in &mut stage.scene.host.pools {
        if let PoolKind::File(folder) = &mut pool.kind {
            folder.must_be_mounted = false;
        }
    }
    folder(&stage, |folder| folder.mounted = false);
    let stage = stage.restart().await;
    assert_eq!(stage.run(&stage.guest.request("nfs-1")).await.state, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_mount_that_goes_after_the_plan_is_noticed_before_anything_is_made() {
    let stage = Stage::new(Home::Rbd, true).await;
    stage.world.before(Method::ObserveFolder, 2, |world| {
        world.with(|state| {
            state.folders.get_mut(Path::new(NFS)).expect("the folder").mounted = false;
        });
    });
    let view = stage.run(&stage.guest.request("nfs-1")).await;
    let failure = view.failure.as_ref().expect("a failure");
    assert_eq!((view.state, failure.cause), (State::Failed, FailureCause::DestinationWriteError));
    assert!(failure.text.contains("its mount is missing"), "{failure}");
    assert!(!stage.world.calls().contains(&Method::CreateFile), "nothing was made meanwhile");
}

#[tokio::test(start_paused = true)]
async fn a_folder_qemus_user_cannot_pass_is_refused() {
    let stage = Stage::new(Home::Rbd, true).await;
    folder(&stage, |folder| folder.owner.mode = 0o750);
    let refusal = refused(&stage, &stage.guest.request("nfs-1")).await;
    assert_eq!(refusal.code, RefusalCode::PermissionDenied);
    assert!(refusal.message.contains("64055:108 and cannot pass the folder /mnt/nfs-1"));
    folder(&stage, |folder| folder.owner = FileOwner { uid: 0, gid: 108, mode: 0o750 });
    assert_eq!(stage.run(&stage.guest.request("nfs-1")).await.state, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_squashes_root_is_refused_where_it_shows() {
    let stage = Stage::new(Home::Rbd, true).await;
    folder(&stage, |folder| folder.root_is_root = false);
    let refusal = refused(&stage, &stage.guest.request("nfs-1")).await;
    assert_eq!(refusal.code, RefusalCode::PermissionDenied);
    assert!(refusal.message.contains("no_root_squash"), "{refusal}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_squashes_root_fails_the_creation_where_it_did_not_show() {
    let stage = Stage::new(Home::Rbd, true).await;
    folder(&stage, |folder| (folder.root_is_root, folder.probed) = (false, false));
    let view = stage.run(&stage.guest.request("nfs-1")).await;
    let failure = view.failure.as_ref().expect("a failure");
    assert_eq!(view.state, State::Failed);
    assert_eq!(
        (failure.cause, failure.side),
        (FailureCause::DestinationWriteError, Side::Destination)
    );
    assert!(failure.text.contains("cannot be given to 64055:108"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn a_file_system_that_ignores_owners_fails_before_the_copy() {
    let stage = Stage::new(Home::Rbd, true).await;
    folder(&stage, |folder| folder.forces_owner = Some(FileOwner { uid: 0, gid: 0, mode: 0o644 }));
    let view = stage.run(&stage.guest.request("nfs-1")).await;
    let failure = view.failure.as_ref().expect("a failure");
    assert_eq!((view.state, failure.cause), (State::Failed, FailureCause::DestinationWriteError));
    assert!(failure.text.contains("its owner is 0:0 and its mode 0644"), "{failure}");
    assert!(!stage.world.calls().contains(&Method::StartCopy));
}

const CEPH_POOL: &str = "<pool type='rbd'><name>of-libvirt</name><source>\
    <host name='198.51.100.21' port='6789'/><name>ssd</name>\
    <auth type='ceph' username='volferry'><secret usage='ceph of volferry'/></auth></source></pool>";

/// A pool libvirt has and the configuration has not.
fn define(stage: &Stage, name: &str, active: bool, xml: &str) {
    stage.world.with(|state| {
        let pool = StoragePool { active, xml: xml.to_owned() };
        state.storage_pools.insert(name.to_owned(), pool);
    });
}

fn secret_with_usage(stage: &Stage) {
    stage.world.with(|state| {
        let uuid = state.secrets.first().cloned().expect("the secret of the scene");
        state.secret_usages.insert("ceph of volferry".to_owned(), uuid);
    });
}

#[tokio::test(start_paused = true)]
async fn an_active_pool_of_libvirt_is_a_destination() {
    let stage = Stage::new(Home::Rbd, true).await;
    define(&stage, "of-libvirt", true, CEPH_POOL);
    secret_with_usage(&stage);
    let request = stage.guest.request("of-libvirt");
    let plan = stage.agent.engine.plan(request.clone()).await.expect("a plan");
    assert!(plan.destination_pool_of_libvirt);
    assert!(plan.destination_xml.contains("10000000-0000-4000-8000-0000000000aa"), "by its usage");
    let view = stage.run(&request).await;
    assert_eq!(view.state, State::Succeeded);
    let result = view.result.as_ref().expect("a result");
    assert_eq!(
        (result.pool.as_str(), result.location.to_string().as_str()),
        ("of-libvirt", "rbd:ssd/web-root")
    );
}

#[tokio::test(start_paused = true)]
async fn a_folder_of_libvirt_is_mounted_where_libvirt_mounts_it() {
    let stage = Stage::new(Home::Rbd, true).await;
    let xml = |kind: &str| {
        format!("<pool type='{kind}'><name>x</name><target><path>{NFS}</path></target></pool>")
    };
    folder(&stage, |folder| folder.mounted = false);
    define(&stage, "netfs", true, &xml("netfs"));
    let refusal = refused(&stage, &stage.guest.request("netfs")).await;
    assert_eq!(refusal.code, RefusalCode::NotMounted);
    define(&stage, "dir", true, &xml("dir"));
    let view = stage.run(&stage.guest.request("dir")).await;
    assert_eq!(view.state, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn the_configuration_comes_first() {
    let stage = Stage::new(Home::Rbd, true).await;
    define(&stage, "ceph-ssd", true, "<pool type='dir'><name>ceph-ssd</name></pool>");
    let plan = stage.agent.engine.plan(stage.guest.request("ceph-ssd")).await.expect("a plan");
    assert!(!plan.destination_pool_of_libvirt);
    assert!(!stage.world.calls().contains(&Method::FindPool), "libvirt is not even asked");
}

#[tokio::test(start_paused = true)]
async fn a_pool_of_libvirt_that_cannot_be_used_says_why() {
    let stage = Stage::new(Home::Rbd, true).await;
    define(&stage, "stopped", false, CEPH_POOL);
    define(&stage, "no-secret", true, CEPH_POOL);
    define(&stage, "lvm", true, "<pool type='logical'><name>lvm</name></pool>");
    for (pool, code, part) in [
        ("stopped", RefusalCode::PoolUnavailable, "not active"),
        ("no-secret", RefusalCode::SecretMissing, "ceph of volferry"),
        ("lvm", RefusalCode::HostUnsupported, "only dir, netfs and rbd"),
        ("nowhere", RefusalCode::PoolUnknown, "ceph-hdd, ceph-ssd, nfs-1, smp-1"),
    ] {
        let refusal = refused(&stage, &stage.guest.request(pool)).await;
        assert_eq!(refusal.code, code, "{refusal}");
        assert!(refusal.message.contains(pool) && refusal.message.contains(part), "{refusal}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_module_that_confines_qemu_is_named_where_permission_is_denied() {
    let stage = Stage::new(Home::Rbd, true).await;
    stage.world.with(|state| state.confinement = Some("AppArmor is active"));
    let denied = Fault::Refuse(ErrorClass::PermissionDenied, "Could not open: Permission denied");
    stage.world.fault(Method::StartCopy, 1, denied);
    let view = stage.run(&stage.guest.request("nfs-1")).await;
    let failure = view.failure.as_ref().expect("a failure");
    assert_eq!((view.state, failure.cause), (State::Failed, FailureCause::DestinationWriteError));
    assert!(failure.text.ends_with("Permission denied; AppArmor is active"), "{failure}");
}

/// What is wrong with one of the two clusters, and the code that says so.
fn spoilt(state: &mut Content, cluster: usize, how: usize) -> RefusalCode {
    match how {
        0 => {
            state.clusters[cluster].reachable = false;
            RefusalCode::PoolUnavailable
        }
        1 => {
            state.clusters[cluster].key_accepted = false;
            RefusalCode::PoolAuthFailed
        }
        _ => {
            state.secrets.clear();
            RefusalCode::SecretMissing
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_away_a_wrong_key_and_a_missing_secret_are_told_apart() {
    for (home, to, cluster) in
        [(Home::File, "ceph-ssd", 1), (Home::Rbd, "ceph-ssd", 1), (Home::Rbd, "nfs-1", 0)]
    {
        for how in 0..3 {
            let stage = Stage::new(home, true).await;
            let code = stage.world.with(|state| spoilt(state, cluster, how));
            let refusal = refused(&stage, &stage.guest.request(to)).await;
            assert_eq!(refusal.code, code, "{home:?} {to}: {refusal}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_in_an_active_folder_of_libvirt_is_moved_and_in_no_other() {
    const FOLDER: &str =
        "<pool type='dir'><name>vms</name><target><path>/mnt/nfs-1</path></target></pool>";
    for (active, code) in [(true, None), (false, Some(RefusalCode::UnsupportedSource))] {
        let mut stage = Stage::new(Home::File, true).await;
        // The folder of the guest's disk is in the configuration no more.
        stage.scene.host.pools.retain(|pool| pool.name.as_str() != "nfs-1");
        define(&stage, "vms", active, FOLDER);
        let stage = stage.restart().await;
        let request = stage.guest.request("ceph-ssd");
        let disks =
            stage.agent.engine.disks(&stage.guest.uuid.clone().into()).await.expect("disks");
        let pool = disks[0].pool.as_ref().map(|pool| pool.as_str());
        assert_eq!((pool, disks[0].immovable.is_none()), (active.then_some("vms"), active));
        match code {
            Some(code) => assert_eq!(refused(&stage, &request).await.code, code),
            None => {
                let plan = stage.agent.engine.plan(request.clone()).await.expect("a plan");
                assert_eq!(plan.source_pool.as_ref().map(|pool| pool.as_str()), Some("vms"));
                assert_eq!(stage.run(&request).await.state, State::Succeeded);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn pools_are_listed_with_libvirts_and_those_that_take_nothing_say_so() {
    let stage = Stage::new(Home::Rbd, true).await;
    define(&stage, "of-libvirt", true, CEPH_POOL);
    define(&stage, "stopped", false, CEPH_POOL);
    define(&stage, "nfs-1", true, CEPH_POOL);
    secret_with_usage(&stage);
    folder(&stage, |folder| folder.mounted = false);
    stage.world.with(|state| {
        let ssd = state.clusters[1].pools.get_mut("ssd").expect("a pool of the scene");
        ssd.quota = Some(ssd.used());
        let hdd = state.clusters[0].pools.values_mut().next().expect("a pool of the scene");
        hdd.near_full = true;
    });
    let listed = stage.agent.engine.pools().await;
    let of_libvirt: Vec<&str> =
        listed.iter().filter(|pool| pool.of_libvirt).map(|pool| pool.name.as_str()).collect();
    assert_eq!(of_libvirt, ["of-libvirt"], "active, and under no name of the configuration");
    let problem = |name: &str| {
        let found = listed.iter().find(|pool| pool.name.as_str() == name).expect("it is listed");
        found.problem.clone().unwrap_or_default()
    };
    for (pool, words) in [
        ("ceph-ssd", "is full"),
        ("of-libvirt", "is full"),
        ("ceph-hdd", "nearly full"),
        ("nfs-1", "its mount is missing"),
    ] {
        assert!(problem(pool).contains(words), "{pool}: {}", problem(pool));
    }
    assert_eq!(problem("smp-1"), "");
}
