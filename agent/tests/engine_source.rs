//! What becomes of the source after the move: kept, renamed, its snapshots deleted, removed, or left with a reason.

use volferry_agent::fake::Stage;
use volferry_agent::fake::faults::{Fault, Method};
use volferry_agent::fake::scene::Home;
use volferry_agent::operation::{OperationView, SourceFate, State};
use volferry_agent::ports::ErrorClass;
use volferry_agent::spec::VolumeLocation;

fn fate(view: &OperationView) -> &SourceFate {
    assert_eq!(view.state, State::Succeeded, "{view:#?}");
    &view.result.as_ref().expect("a result").source
}

fn left(view: &OperationView) -> (&VolumeLocation, &str) {
    match fate(view) {
        SourceFate::LeftBehind { location, reason } => (location, reason),
        other => panic!("{other:?}: {view:#?}"),
    }
}

fn warned(view: &OperationView, text: &str) -> bool {
    view.warnings.iter().any(|warning| warning.contains(text))
}

#[tokio::test(start_paused = true)]
async fn a_source_keeps_its_very_name_when_asked_and_the_plan_warns() {
    for (home, pool) in [(Home::Rbd, "nfs-1"), (Home::File, "ceph-ssd")] {
        let stage = Stage::new(home, true).await;
        let mut request = stage.guest.request(pool);
        request.keep_source_name = true;
        let plan = stage.agent.engine.plan(request.clone()).await.expect("a plan");
        assert!(plan.warnings.iter().any(|text| text.contains("can still boot its old data")));
        assert!(!plan.steps.iter().any(|step| step.kind().as_str().ends_with("-source")));
        let view = stage.run(&request).await;
        assert_eq!(fate(&view), &SourceFate::Kept { location: stage.guest.volume.clone() });
        assert!(warned(&view, "can still boot its old data"));
    }
}

#[tokio::test(start_paused = true)]
async fn snapshots_are_deleted_only_when_asked_and_then_the_source_goes() {
    for asked in [false, true] {
        let stage = Stage::new(Home::Rbd, true).await;
        stage.source_image(|image| image.snapshots = vec!["daily".to_owned(), "weekly".to_owned()]);
        let mut request = stage.guest.request("nfs-1");
        request.delete_source_snapshots = asked;
        let view = stage.run(&request).await;
        assert!(warned(&view, "daily, weekly"), "{view:#?}");
        if asked {
            assert_eq!(fate(&view), &SourceFate::Removed);
        } else {
            let (location, reason) = left(&view);
            assert_eq!(location.name(), format!("web-root.moved-{}", request.operation));
            assert!(reason.contains("daily, weekly"), "{reason}");
            assert!(!stage.world.calls().contains(&Method::RemoveSnapshot));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn snapshots_below_a_clone_are_never_deleted() {
    let stage = Stage::new(Home::Rbd, true).await;
    stage.source_image(|image| {
        image.snapshots = vec!["daily".to_owned()];
        image.children = vec!["hdd/clone".to_owned()];
    });
    let mut request = stage.guest.request("nfs-1");
    request.delete_source_snapshots = true;
    let view = stage.run(&request).await;
    assert!(left(&view).1.contains("hdd/clone"));
    assert!(warned(&view, "hdd/clone") && !stage.world.calls().contains(&Method::RemoveSnapshot));
    stage.source_image(|image| assert_eq!(image.snapshots, ["daily"]));
}

#[tokio::test(start_paused = true)]
async fn a_clone_that_appears_meanwhile_keeps_source_and_snapshots() {
    let stage = Stage::new(Home::Rbd, true).await;
    stage.source_image(|image| image.snapshots = vec!["daily".to_owned()]);
    stage.world.before(Method::RemoveSnapshot, 1, |world| {
        world.with(|state| {
            for image in state.clusters[0].pools.values_mut().flat_map(|p| p.images.values_mut()) {
                image.children = vec!["hdd/clone-of-now".to_owned()];
            }
        });
    });
    let mut request = stage.guest.request("nfs-1");
    request.delete_source_snapshots = true;
    let view = stage.run(&request).await;
    assert!(left(&view).1.contains("hdd/clone-of-now"), "{view:#?}");
    stage.source_image(|image| assert_eq!(image.snapshots, ["daily"]));
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_made_meanwhile_is_not_deleted() {
    let stage = Stage::new(Home::Rbd, true).await;
    stage.source_image(|image| image.snapshots = vec!["daily".to_owned()]);
    stage.world.before(Method::RenameImage, 1, |world| {
        world.with(|state| {
            for image in state.clusters[0].pools.values_mut().flat_map(|p| p.images.values_mut()) {
                image.snapshots.push("of-now".to_owned());
            }
        });
    });
    let mut request = stage.guest.request("nfs-1");
    request.delete_source_snapshots = true;
    let view = stage.run(&request).await;
    assert!(left(&view).1.contains("of-now"), "{view:#?}");
    stage.source_image(|image| assert_eq!(image.snapshots, ["of-now"]));
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_cannot_be_deleted_leaves_the_source() {
    let stage = Stage::new(Home::Rbd, true).await;
    stage.source_image(|image| image.snapshots = vec!["daily".to_owned()]);
    let refusal = Fault::Refuse(ErrorClass::PermissionDenied, "Operation not permitted");
    stage.world.fault(Method::RemoveSnapshot, 1, refusal);
    let mut request = stage.guest.request("nfs-1");
    request.delete_source_snapshots = true;
    let view = stage.run(&request).await;
    assert!(left(&view).1.contains("Operation not permitted"), "{view:#?}");
    assert!(warned(&view, "snapshots could not be deleted"));
}
