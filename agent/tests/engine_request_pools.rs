//! Pools that travel with a request: refused unless the configuration lets them, and then held to its paths.

use std::path::PathBuf;

use volferry_agent::engine::Retried;
use volferry_agent::fake::Stage;
use volferry_agent::fake::faults::{Fault, Method};
use volferry_agent::fake::scene::{Home, Scene};
use volferry_agent::operation::State;
use volferry_agent::plan::{Refusal, RefusalCode};
use volferry_agent::ports::ErrorClass;
use volferry_agent::spec::{
    FilePoolKind, MigrateSpec, PoolKind, PoolName, RequestPool, RequestPools,
};

/// The scene without its second folder and second Ceph pool, and what requests may bring along.
async fn stage(home: Home, paths: &[&str], rbd: bool) -> Stage {
    Stage::prepared(home, true, |scene: &mut Scene| {
        let paths = paths.iter().map(PathBuf::from).collect();
        scene.host.request_pools = RequestPools { paths, rbd };
    })
    .await
}

fn folder(path: &str) -> RequestPool {
    let kind = FilePoolKind::SharedMountPoint;
    RequestPool::Folder { kind, path: path.into(), host: None, must_be_mounted: true }
}

/// The Ceph pool of that name in the configuration, as a request would describe it.
fn ceph(stage: &Stage, name: &str) -> RequestPool {
    let found = stage.scene.host.pools.iter().find(|pool| pool.name.as_str() == name);
    RequestPool::from(found.expect("a pool of the scene").clone())
}

fn request(stage: &Stage, name: &str, pool: RequestPool) -> MigrateSpec {
    let to = PoolName::new(name).expect("a plain name");
    MigrateSpec { to, pool: Some(pool), ..stage.guest.request("nfs-1") }
}

async fn refused(stage: &Stage, request: MigrateSpec) -> Refusal {
    let planned = stage.agent.engine.plan(request.clone()).await.expect_err("refused");
    let refusal = stage.agent.engine.migrate(request).await.expect_err("refused");
    assert_eq!(planned, refusal);
    assert_eq!(stage.world.volumes(), stage.before, "nothing was made");
    assert_eq!(refusal.code, RefusalCode::NotAllowed, "{refusal}");
    refusal
}

#[tokio::test(start_paused = true)]
async fn a_pool_in_a_request_is_not_allowed_unless_the_configuration_says_so() {
    let stage = stage(Home::Rbd, &[], false).await;
    let refusal = refused(&stage, request(&stage, "brought", folder("/srv/smp-1"))).await;
    assert!(refusal.message.contains("pools_in_requests.paths"), "{refusal}");
    let refusal = refused(&stage, request(&stage, "brought", ceph(&stage, "ceph-ssd"))).await;
    assert!(refusal.message.contains("pools_in_requests.rbd"), "{refusal}");
}

#[tokio::test(start_paused = true)]
async fn a_folder_in_a_request_lies_below_one_that_is_allowed() {
    let stage = stage(Home::Rbd, &["/srv/elsewhere", "/srv/smp-1"], true).await;
    for path in ["/srv", "/srv/smp-10", "/mnt/nfs-1"] {
        let refusal = refused(&stage, request(&stage, "brought", folder(path))).await;
        assert!(refusal.message.contains("/srv/elsewhere, /srv/smp-1"), "{refusal}");
    }
    let known = refused(&stage, request(&stage, "nfs-1", folder("/srv/smp-1"))).await;
    assert!(known.message.contains("is in the configuration"), "{known}");
    let request = request(&stage, "brought", folder("/srv/smp-1"));
    let plan = stage.agent.engine.plan(request.clone()).await.expect("a plan");
    assert!(!plan.destination_pool_of_libvirt);
    let view = stage.run(&request).await;
    assert_eq!(view.state, State::Succeeded, "{view:#?}");
    assert_eq!(view.destination.to_string(), "/srv/smp-1/web-root.qcow2");
}

#[tokio::test(start_paused = true)]
async fn what_is_left_in_a_folder_of_a_request_is_not_gone_while_its_mount_is() {
    let stage = stage(Home::Rbd, &["/srv/smp-1"], false).await;
    let request =
        MigrateSpec { manual_pivot: true, ..request(&stage, "brought", folder("/srv/smp-1")) };
    stage.begin(&request).await;
    stage.reaches(&request, State::Ready).await;
    for nth in 1..100 {
        let refused = Fault::Refuse(ErrorClass::PermissionDenied, "Operation not permitted");
        stage.world.fault(Method::RemoveFile, nth, refused);
    }
    stage.agent.engine.cancel(&request.operation).await.expect("it may be cancelled");
    stage.agent.end(&request.operation).await;
    stage.world.clear_script();
    let left = stage.agent.engine.leftovers().await.expect("a readable journal");
    let [left] = left.as_slice() else { panic!("{left:#?}") };
    let mounted = |mounted| {
        stage.world.with(|state| {
            state.files.retain(|path, _| !path.starts_with("/srv/smp-1"));
            state.folders.values_mut().for_each(|folder| folder.mounted = mounted);
        });
    };
    mounted(false);
    let retried = stage.agent.engine.retry_leftover(&left.id).await.expect("a record");
    let Retried::Stays(stays) = retried else { panic!("{retried:?}") };
    assert!(stays.reason.contains("its mount is missing"), "{}", stays.reason);
    mounted(true);
    let retried = stage.agent.engine.retry_leftover(&left.id).await.expect("a record");
    assert!(matches!(retried, Retried::AlreadyGone(_)), "{retried:?}");
}

#[tokio::test(start_paused = true)]
async fn a_ceph_pool_in_a_request_is_reached_by_a_secret_of_the_host() {
    let mut stage = stage(Home::File, &[], true).await;
    let pool = ceph(&stage, "ceph-ssd");
    stage.scene.host.pools.retain(|pool| pool.name.as_str() != "ceph-ssd");
    // What was accepted is still understood in the next life.
    let request = MigrateSpec { manual_pivot: true, ..request(&stage, "brought", pool) };
    let stage = stage.restart().await;
    stage.begin(&request).await;
    stage.reaches(&request, State::Ready).await;
    let stage = stage.restart().await;
    stage.agent.engine.complete(&request.operation).await.expect("it waits for the word");
    let view = stage.end(&request).await;
    assert_eq!(view.state, State::Succeeded, "{view:#?}");
    let result = view.result.as_ref().expect("a result");
    assert_eq!(result.pool.as_str(), "brought");
}

#[tokio::test(start_paused = true)]
async fn a_local_pool_in_a_request_is_the_hosts_own_or_refused() {
    let stage = stage(Home::Rbd, &["/srv"], false).await;
    for (owner, code) in [(None, None), (Some("host-b"), Some(RefusalCode::OtherHostsLocalPool))] {
        let pool = RequestPool::Folder {
            kind: FilePoolKind::Local,
            path: "/srv/smp-1".into(),
            host: owner.map(str::to_owned),
            must_be_mounted: false,
        };
        let named = PoolName::new("brought").expect("a plain name");
        let resolved = pool.to_pool(&named, "host-a").expect("a folder");
        let PoolKind::File(folder) = resolved.kind else { panic!("a folder") };
        assert_eq!(folder.host.as_deref(), Some(owner.unwrap_or("host-a")));
        let answer = stage.agent.engine.plan(request(&stage, "brought", pool)).await;
        assert_eq!(answer.err().map(|refusal| refusal.code), code);
    }
}
