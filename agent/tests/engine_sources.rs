//! What a source must be before it is moved: nobody else's, not the destination, without what a copy would lose.

use volferry_agent::fake::Stage;
use volferry_agent::fake::scene::Home;
use volferry_agent::operation::State;
use volferry_agent::plan::{Refusal, RefusalCode};
use volferry_agent::ports::Snapshots;
use volferry_agent::spec::{CheckpointName, MigrateSpec, Pool, PoolKind, PoolName};

/// Plan and move must refuse alike, and leave nothing.
async fn refused(stage: &Stage, request: &MigrateSpec) -> Refusal {
    let before = stage.world.volumes();
    let engine = &stage.agent.engine;
    let planned = engine.plan(request.clone()).await.expect_err("refused");
    let refusal = engine.migrate(request.clone()).await.expect_err("refused");
    assert_eq!(planned, refusal);
    assert_eq!(stage.world.volumes(), before, "nothing was made");
    assert!(engine.operations().is_empty());
    refusal
}

/// A pool of the configuration by another name, through a monitor the first one does not list.
async fn with_alias(mut stage: Stage) -> Stage {
    let hdd = |pool: &&Pool| pool.name.as_str() == "ceph-hdd";
    let mut alias = stage.scene.host.pools.iter().find(hdd).expect("a pool of the scene").clone();
    alias.name = PoolName::new("alias").expect("a plain name");
    let PoolKind::Rbd(rbd) = &mut alias.kind else { panic!("an RBD pool") };
    let also = rbdutils::monitors::MonitorList::parse("192.0.2.12", 6789).expect("a monitor");
    rbd.address.monitors = also.to_ceph_conf();
    stage.world.with(|state| {
        let both = "192.0.2.11,192.0.2.12";
        state.clusters[0].monitors =
            rbdutils::monitors::MonitorList::parse(both, 6789).expect("monitors");
    });
    rbd.monitors = also;
    stage.scene.host.pools.push(alias);
    stage.restart().await
}

#[tokio::test(start_paused = true)]
async fn one_image_by_two_monitors_is_the_same_volume() {
    let stage = with_alias(Stage::new(Home::Rbd, true).await).await;
    let refusal = refused(&stage, &stage.guest.request("alias")).await;
    assert_eq!(refusal.code, RefusalCode::SameVolume);
    for part in ["192.0.2.11:6789 and 192.0.2.12:6789 are of one cluster", "rbd:hdd/web-root"] {
        assert!(refusal.message.contains(part), "{refusal}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_name_in_the_same_cluster_is_another_volume() {
    let stage = with_alias(Stage::new(Home::Rbd, true).await).await;
    let mut request = stage.guest.request("alias");
    request.destination_volume = Some("other".parse().expect("a plain name"));
    let plan = stage.agent.engine.plan(request).await.expect("a plan");
    assert_eq!(plan.destination.to_string(), "rbd:hdd/other");
}

fn checkpoints(stage: &Stage, names: &[&str]) {
    let checkpoints = names.iter().map(|name| (*name).to_owned()).collect();
    stage.world.with(|state| {
        let domain = state.domains.get_mut(&stage.guest.uuid).expect("the guest");
        domain.snapshots = Snapshots { snapshots: vec![], checkpoints };
    });
}

#[tokio::test(start_paused = true)]
async fn checkpoints_are_lost_only_by_name() {
    let stage = Stage::new(Home::Rbd, true).await;
    checkpoints(&stage, &["monday", "tuesday"]);
    let mut request = stage.guest.request("nfs-1");
    request.allow_checkpoint_loss = [CheckpointName::new("monday").expect("a name")].into();
    let refusal = refused(&stage, &request).await;
    assert_eq!(refusal.code, RefusalCode::HasSnapshots);
    assert!(refusal.message.contains("(tuesday)"), "only what is not allowed: {refusal}");
    assert!(refusal.message.contains("--allow-checkpoint-loss"), "{refusal}");
    request.allow_checkpoint_loss.insert(CheckpointName::new("tuesday").expect("a name"));
    let view = stage.run(&request).await;
    assert_eq!(view.state, State::Succeeded);
    let warned = view.warnings.iter().any(|text| text.contains("monday, tuesday"));
    assert!(warned, "{:?}", view.warnings);
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_that_is_not_there_cannot_be_lost() {
    for (there, words) in [(&["monday"][..], "it has: monday"), (&[], "it has none")] {
        let stage = Stage::new(Home::Rbd, true).await;
        checkpoints(&stage, there);
        let mut request = stage.guest.request("nfs-1");
        let named = ["monday", "sunday"].map(|name| CheckpointName::new(name).expect("a name"));
        request.allow_checkpoint_loss = named.into();
        if there.is_empty() {
            request.allow_checkpoint_loss.pop_first();
        }
        let refusal = refused(&stage, &request).await;
        assert_eq!(refusal.code, RefusalCode::InvalidName, "{refusal}");
        assert!(refusal.message.contains("no checkpoint sunday"), "{refusal}");
        assert!(refusal.message.contains(words), "{refusal}");
    }
}

#[tokio::test(start_paused = true)]
async fn snapshots_are_never_lost() {
    let stage = Stage::new(Home::Rbd, true).await;
    stage.world.with(|state| {
        let domain = state.domains.get_mut(&stage.guest.uuid).expect("the guest");
        domain.snapshots.snapshots = vec!["before-upgrade".to_owned()];
    });
    let mut request = stage.guest.request("nfs-1");
    request.allow_checkpoint_loss = [CheckpointName::new("before-upgrade").expect("a name")].into();
    let refusal = refused(&stage, &request).await;
    assert_eq!(refusal.code, RefusalCode::HasSnapshots);
    assert!(refusal.message.contains("before-upgrade"), "{refusal}");
}

/// Another guest that uses the volume of the stage's guest too: as its disk, or below it.
fn second_guest(stage: &Stage, home: Home, below: bool, running: bool) {
    let other = stage.scene.guest("db", home, true);
    stage.world.with(|state| {
        let domain = state.domains.get_mut(&other.uuid).expect("the guest");
        let edit = |xml: &str| match below {
            false => xml.replace("db-root", "web-root"),
            true => xml.replace(
                "<target dev='vda'",
                "<backingStore type='file'><format type='qcow2'/>\
                 <source file='/mnt/nfs-1/web-root.qcow2'/></backingStore><target dev='vda'",
            ),
        };
        domain.inactive_xml = domain.inactive_xml.as_deref().map(edit);
        if running {
            domain.live_xml = edit(&domain.live_xml);
        }
    });
}

#[tokio::test(start_paused = true)]
async fn a_source_another_domain_uses_is_refused_with_its_name() {
    for (home, below, running, to) in [
        (Home::Rbd, false, true, "nfs-1"),
        (Home::Rbd, false, false, "ceph-ssd"),
        (Home::File, false, false, "ceph-ssd"),
        (Home::File, true, true, "ceph-ssd"),
        (Home::File, true, false, "ceph-hdd"),
    ] {
        let stage = Stage::new(home, true).await;
        second_guest(&stage, home, below, running);
        let refusal = refused(&stage, &stage.guest.request(to)).await;
        assert_eq!(refusal.code, RefusalCode::VolumeInUse, "{home:?} {below} {running}");
        assert!(refusal.message.contains("domain db"), "{refusal}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_image_of_that_name_in_another_cluster_is_nobodys_business() {
    let stage = Stage::new(Home::Rbd, true).await;
    let other = stage.scene.guest("db", Home::Rbd, true);
    stage.world.with(|state| {
        let domain = state.domains.get_mut(&other.uuid).expect("the guest");
        let edit =
            |xml: &str| xml.replace("db-root", "web-root").replace("192.0.2.11", "203.0.113.9");
        domain.inactive_xml = domain.inactive_xml.as_deref().map(edit);
    });
    assert!(stage.agent.engine.plan(stage.guest.request("nfs-1")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn watchers_besides_qemu_are_told_beforehand() {
    let stage = Stage::new(Home::Rbd, true).await;
    let plan = stage.agent.engine.plan(stage.guest.request("nfs-1")).await.expect("a plan");
    assert_eq!(plan.warnings, Vec::<String>::new(), "QEMU's own watch is none of them");
    stage.world.with(|state| {
        for image in state.clusters[0].pools.values_mut().flat_map(|p| p.images.values_mut()) {
            image.watchers.push("192.0.2.99:0/1".to_owned());
        }
    });
    let plan = stage.agent.engine.plan(stage.guest.request("nfs-1")).await.expect("a plan");
    let [warning] = plan.warnings.as_slice() else { panic!("{:?}", plan.warnings) };
    assert!(warning.contains("192.0.2.99:0/1") && warning.contains("stays behind"), "{warning}");
}
