//! Sources that can be restored for a time after their move.

use std::time::Duration;

use volferry_agent::engine::Retried;
use volferry_agent::fake::Stage;
use volferry_agent::fake::faults::{Fault, Method};
use volferry_agent::fake::scene::{Home, SOURCE_SECRET};
use volferry_agent::operation::{Leftover, LeftoverKind, OperationView, SourceFate, State};
use volferry_agent::ports::ErrorClass;
use volferry_agent::spec::{HeaderKind, Identity, VolumeLocation};

const DAY: Duration = Duration::from_secs(86_400);

fn trashed(view: &OperationView) -> (VolumeLocation, Identity, std::time::SystemTime) {
    assert_eq!(view.state, State::Succeeded, "{view:#?}");
    match view.result.as_ref().map(|result| &result.source) {
        Some(SourceFate::Trashed { location, identity, until }) => {
            (location.clone(), identity.clone(), *until)
        }
        other => panic!("{other:?}"),
    }
}

async fn left(stage: &Stage) -> Vec<Leftover> {
    stage.agent.engine.leftovers().await.expect("a readable journal")
}

#[tokio::test(start_paused = true)]
async fn an_image_goes_to_the_trash_of_its_pool_for_the_time() {
    let stage = Stage::with_retention(Home::Rbd, true, DAY).await;
    let request = stage.guest.request("nfs-1");
    let plan = stage.agent.engine.plan(request.clone()).await.expect("a plan");
    assert_eq!(plan.steps.last().map(|step| step.kind().as_str()), Some("trash-source"));
    let view = stage.run(&request).await;
    let (location, identity, until) = trashed(&view);
    assert_eq!(location.name(), format!("web-root.moved-{}", request.operation));
    let accepted = view.accepted().expect("a time");
    let kept = until.duration_since(accepted).expect("later");
    assert!(kept >= DAY && kept < DAY + Duration::from_secs(600), "{kept:?}");
    let Identity::Rbd { image_id } = identity else { panic!("no image") };
    let way_back = view.result.as_ref().and_then(|result| result.source.way_back());
    assert_eq!(way_back, Some(format!("rbd trash restore --pool hdd {image_id}")));
    assert_eq!(left(&stage).await, [], "the cluster empties its trash");
}

#[tokio::test(start_paused = true)]
async fn a_file_lies_in_the_trash_folder_until_it_is_due() {
    let stage = Stage::with_retention(Home::File, true, DAY).await;
    let request = stage.guest.request("ceph-ssd");
    let view = stage.run(&request).await;
    let (location, identity, until) = trashed(&view);
    let name = format!("/mnt/nfs-1/.volferry-trash/web-root.qcow2.moved-{}", request.operation);
    assert_eq!(location.to_string(), name);
    let records = left(&stage).await;
    assert_eq!((records.len(), records[0].kind), (1, LeftoverKind::Trash));
    assert_eq!((records[0].due, &records[0].location), (Some(until), &location));
    // Nobody removes it before, not even when asked, and a restart forgets nothing.
    let asked = stage.agent.engine.retry_leftover(&records[0].id).await.expect("a record");
    assert!(matches!(asked, Retried::Stays(_)), "{asked:?}");
    tokio::time::sleep(DAY / 2).await;
    let stage = stage.restart().await;
    tokio::time::sleep(DAY / 3).await;
    assert_eq!(stage.world.volumes().get(&name), Some(&identity));
    tokio::time::sleep(DAY / 3).await;
    assert!(!stage.world.volumes().contains_key(&name));
    assert_eq!(left(&stage).await, []);
}

#[tokio::test(start_paused = true)]
async fn the_secret_of_an_encrypted_source_stays_as_long_as_the_source_can_be_restored() {
    let secret =
        |stage: &Stage| stage.world.with(|state| state.volume_secrets.contains_key(SOURCE_SECRET));
    for (home, pool) in [(Home::File, "ceph-ssd"), (Home::Rbd, "nfs-1")] {
        let stage = Stage::with_retention(home, true, DAY).await;
        stage.scene.encrypt(&stage.guest, HeaderKind::QemuLuks1, b"open sesame");
        let mut request = stage.guest.request(pool);
        request.encryption.decrypt = true;
        let view = stage.run(&request).await;
        trashed(&view);
        assert!(secret(&stage), "it opens what can be restored");
        // The cluster empties its trash without a word, so what is left to do is said beforehand.
        let told = view.warnings.iter().any(|warning| warning.contains("secret-undefine"));
        assert_eq!(told, home == Home::Rbd, "{:?}", view.warnings);
        tokio::time::sleep(2 * DAY).await;
        assert_eq!(secret(&stage), home == Home::Rbd);
        assert_eq!(left(&stage).await, []);
    }
}

#[tokio::test(start_paused = true)]
async fn what_came_due_while_the_agent_was_away_goes_at_its_start() {
    let stage = Stage::with_retention(Home::File, true, DAY).await;
    let view = stage.run(&stage.guest.request("ceph-ssd")).await;
    stage.agent.engine.stop().await;
    tokio::time::sleep(2 * DAY).await;
    let (location, ..) = trashed(&view);
    assert!(stage.world.volumes().contains_key(&location.to_string()));
    let stage = stage.restart().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!stage.world.volumes().contains_key(&location.to_string()));
}

#[tokio::test(start_paused = true)]
async fn a_file_that_was_restored_is_not_touched() {
    let stage = Stage::with_retention(Home::File, true, DAY).await;
    let view = stage.run(&stage.guest.request("ceph-ssd")).await;
    let (location, identity, _) = trashed(&view);
    let (VolumeLocation::File { path: from }, VolumeLocation::File { path: to }) =
        (location, stage.guest.volume.clone())
    else {
        panic!("no files")
    };
    stage.world.with(|state| {
        let file = state.files.remove(&from).expect("it is in the trash");
        state.files.insert(to, file);
    });
    tokio::time::sleep(2 * DAY).await;
    assert_eq!(stage.world.volumes().get(&stage.guest.volume.to_string()), Some(&identity));
    assert_eq!(left(&stage).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_purge_that_is_refused_is_tried_again() {
    let stage = Stage::with_retention(Home::File, true, DAY).await;
    let view = stage.run(&stage.guest.request("ceph-ssd")).await;
    let (location, ..) = trashed(&view);
    let refuse = Fault::Refuse(ErrorClass::PermissionDenied, "Read-only file system");
    stage.world.fault(Method::RemoveFile, 1, refuse);
    tokio::time::sleep(DAY + Duration::from_secs(601)).await;
    let records = left(&stage).await;
    assert_eq!((records.len(), records[0].tries), (1, 1));
    assert!(records[0].reason.contains("Read-only file system"));
    tokio::time::sleep(Duration::from_secs(601)).await;
    assert!(!stage.world.volumes().contains_key(&location.to_string()));
}

#[tokio::test(start_paused = true)]
async fn a_source_the_trash_does_not_take_stays_with_the_reason() {
    for (home, pool, method) in
        [(Home::Rbd, "nfs-1", Method::TrashImage), (Home::File, "ceph-ssd", Method::TrashFile)]
    {
        let stage = Stage::with_retention(home, true, DAY).await;
        let refuse = Fault::Refuse(ErrorClass::PermissionDenied, "it says no");
        stage.world.fault(method, 1, refuse);
        let view = stage.run(&stage.guest.request(pool)).await;
        assert_eq!(view.state, State::Succeeded);
        assert!(view.warnings.iter().any(|text| text.contains("it says no")), "{view:#?}");
        assert_eq!(left(&stage).await.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_is_looked_up() {
    for (home, pool, method) in
        [(Home::Rbd, "nfs-1", Method::TrashImage), (Home::File, "ceph-ssd", Method::TrashFile)]
    {
        for effect in [true, false] {
            let stage = Stage::with_retention(home, true, DAY).await;
            stage.world.fault(method, 1, Fault::NoAnswer { effect });
            let view = stage.run(&stage.guest.request(pool)).await;
            trashed(&view);
        }
    }
}
