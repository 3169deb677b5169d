//! What an operator reads of an operation afterwards, and of the host beforehand.

use std::path::Path;

use volferry_agent::engine::checks::{Check, Verdict};
use volferry_agent::engine::history::History;
use volferry_agent::fake::Stage;
use volferry_agent::fake::faults::{Fault, Method};
use volferry_agent::fake::scene::Home;
use volferry_agent::operation::State;
use volferry_agent::ports::ErrorClass;
use volferry_agent::spec::{MigrateSpec, OperationId};

async fn history(stage: &Stage, request: &MigrateSpec) -> History {
    stage.agent.engine.history_of(&request.operation).await.expect("it is known")
}

/// These texts are in the history in this order, and no time runs backwards.
fn tells(history: &History, texts: &[&str]) {
    let mut entries = history.entries.iter();
    for text in texts {
        assert!(entries.any(|entry| entry.text.contains(text)), "{text}: {history:#?}");
    }
    assert!(history.entries.is_sorted_by_key(|entry| entry.at), "{history:#?}");
}

#[tokio::test(start_paused = true)]
async fn the_history_of_a_move_is_told_from_the_request_to_the_end() {
    let stage = Stage::new(Home::Rbd, true).await;
    let request = MigrateSpec { manual_pivot: true, ..stage.guest.request("nfs-1") };
    stage.begin(&request).await;
    stage.agent.until(&request.operation, |view| view.waits_for_pivot).await;
    let waiting = history(&stage, &request).await;
    assert!(waiting.to_do[0].contains("volferry ops pivot"), "{:#?}", waiting.to_do);
    // What is done is not to do, and what is not done is.
    let to_do = waiting.to_do.join("\n");
    assert!(to_do.contains("web-root.moved-") && !to_do.contains("create "), "{to_do}");
    stage.agent.engine.complete(&request.operation).await.expect("it waits for the word");
    stage.end(&request).await;
    // The next life tells the same.
    let stage = stage.restart().await;
    let told = history(&stage, &request).await;
    tells(
        &told,
        &[
            "accepted: ",
            "is preparing",
            "done: create-destination (",
            "is copying",
            "is ready",
            "asked for: pivot",
            "is pivoting",
            "is moved",
            "begins: ",
            "done: remove-source",
            "is succeeded",
        ],
    );
    tells(&told, &["is pivoting", "proof of the pivot: ", "is succeeded"]);
    assert_eq!((told.view.state, told.to_do), (State::Succeeded, vec![]));
    let unknown = OperationId::new("nobody").expect("a plain id");
    assert!(stage.agent.engine.history_of(&unknown).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_with_its_cause_and_what_stays_with_the_way_out() {
    let stage = Stage::new(Home::Rbd, true).await;
    stage.world.fault(Method::StartCopy, 1, Fault::Refuse(ErrorClass::Other, "no copy today"));
    let request = stage.guest.request("nfs-1");
    stage.run(&request).await;
    let told = history(&stage, &request).await;
    tells(
        &told,
        &["failed at start-copy: ", "undoing ", "undone: create-destination", "is failed"],
    );
    assert_eq!(told.to_do, [told.view.hint().expect("a hint")]);

    let refused = Fault::Refuse(ErrorClass::PermissionDenied, "Operation not permitted");
    stage.world.fault(Method::RenameImage, 1, refused);
    let request = stage.guest.request("nfs-1");
    stage.run(&request).await;
    let told = history(&stage, &request).await;
    let way = format!("volferry leftovers retry {}-source: ", request.operation);
    assert!(told.to_do.len() == 1 && told.to_do[0].starts_with(&way), "{:#?}", told.to_do);
    assert!(told.to_do[0].contains("Operation not permitted"), "{:#?}", told.to_do);
}

#[tokio::test(start_paused = true)]
async fn what_is_being_undone_is_left_to_do() {
    let stage = Stage::new(Home::Rbd, true).await;
    let request = MigrateSpec { manual_pivot: true, ..stage.guest.request("nfs-1") };
    stage.begin(&request).await;
    stage.reaches(&request, State::Ready).await;
    stage.world.fault(Method::Abort, 1, Fault::Hang);
    stage.agent.engine.cancel(&request.operation).await.expect("it may be cancelled");
    stage.reaches(&request, State::RollingBack).await;
    let told = history(&stage, &request).await;
    assert!(told.to_do.contains(&"undo create-destination".to_owned()), "{:#?}", told.to_do);
    stage.world.release();
    stage.end(&request).await;
    assert_eq!(history(&stage, &request).await.to_do, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_operation_whose_journal_cannot_be_read_is_shown_without_its_history() {
    let stage = Stage::new(Home::Rbd, true).await;
    let request = stage.guest.request("nfs-1");
    let view = stage.run(&request).await;
    let journal = rusqlite::Connection::open(stage.folder().join("journal.db")).expect("a journal");
    journal.execute_batch("DROP TABLE records").expect("it is gone");
    let told = history(&stage, &request).await;
    assert_eq!((told.view, told.entries), (view, vec![]));
    assert!(told.to_do[0].contains("mend the journal"), "{:#?}", told.to_do);
}

async fn checks(stage: &Stage) -> Vec<Check> {
    stage.agent.engine.checks().await
}

/// The one check that is bad.
async fn only_bad(stage: &Stage) -> Check {
    let mut bad = checks(stage).await;
    bad.retain(|check| check.verdict == Verdict::Bad);
    assert_eq!(bad.len(), 1, "{bad:#?}");
    bad.remove(0)
}

#[tokio::test(start_paused = true)]
async fn a_host_in_order_has_nothing_to_mend_and_nothing_is_changed_by_looking() {
    let stage = Stage::new(Home::Rbd, true).await;
    stage.world.clear_script();
    let found = checks(&stage).await;
    assert!(found.iter().all(|check| check.verdict == Verdict::Good), "{found:#?}");
    assert!(found.iter().all(|check| check.fix.is_none()), "{found:#?}");
    for pool in &stage.scene.host.pools {
        let what = format!("pool {}", pool.name);
        assert!(found.iter().any(|check| check.what == what), "{what}: {found:#?}");
    }
    for what in ["agent", "libvirt", "journal", "secret of pool ceph-ssd"] {
        assert!(found.iter().any(|check| check.what == what), "{what}: {found:#?}");
    }
    assert_eq!(stage.world.volumes(), stage.before);
    assert!(!stage.world.calls().iter().any(|call| call.is_effect()));
}

#[tokio::test(start_paused = true)]
async fn each_thing_in_the_way_is_told_with_what_to_do() {
    let stage = Stage::new(Home::Rbd, true).await;
    let nfs = Path::new("/mnt/nfs-1");
    let folder = |change: fn(&mut volferry_agent::fake::folder::Folder)| {
        stage.world.with(|state| change(state.folders.get_mut(nfs).expect("the folder")));
    };
    folder(|folder| folder.mounted = false);
    let bad = only_bad(&stage).await;
    assert!(bad.what == "pool nfs-1" && bad.found.contains("mount is missing"), "{bad:?}");
    assert!(bad.fix.is_some_and(|fix| fix.contains("must_be_mounted = false")));
    folder(|folder| folder.mounted = true);

    let refused = |class| Fault::Refuse(class, "as the cluster says it");
    for (class, fix) in [
        (ErrorClass::PermissionDenied, "caps"),
        (ErrorClass::NotFound, "pool's name"),
        (ErrorClass::NoAnswer, "network"),
    ] {
        stage.world.fault(Method::RbdSpace, 1, refused(class));
        let bad = only_bad(&stage).await;
        assert!(bad.found.contains("as the cluster says it"), "{bad:?}");
        assert!(bad.fix.clone().is_some_and(|text| text.contains(fix)), "{bad:?}");
    }

    stage.world.with(|state| state.secrets.clear());
    let found = checks(&stage).await;
    let secret = found.iter().find(|check| check.what == "secret of pool ceph-ssd");
    let secret = secret.expect("it is looked at");
    assert_eq!(secret.verdict, Verdict::Bad);
    assert!(secret.fix.as_ref().is_some_and(|fix| fix.contains("virsh secret-define")));

    let journal = rusqlite::Connection::open(stage.folder().join("journal.db")).expect("a journal");
    journal.execute_batch("DROP TABLE leftovers").expect("it is gone");
    let found = checks(&stage).await;
    let journal = found.iter().find(|check| check.what == "journal").expect("it is looked at");
    assert_eq!(journal.verdict, Verdict::Bad, "{journal:?}");
    assert!(journal.found.contains("cannot read the journal"), "{journal:?}");

    stage.world.libvirt_away();
    let found = checks(&stage).await;
    let libvirt = found.iter().find(|check| check.what == "libvirt").expect("it is looked at");
    assert_eq!(libvirt.verdict, Verdict::Bad, "{libvirt:?}");
    assert!(libvirt.fix.as_ref().is_some_and(|fix| fix.contains("start libvirtd")));
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_somebody_is_told_too() {
    let stage = Stage::new(Home::Rbd, true).await;
    let refused = Fault::Refuse(ErrorClass::PermissionDenied, "Operation not permitted");
    stage.world.fault(Method::RenameImage, 1, refused);
    stage.run(&stage.guest.request("nfs-1")).await;
    let found = checks(&stage).await;
    let left = found.iter().find(|check| check.what == "leftovers").expect("it is told");
    assert_eq!((left.verdict, left.found.as_str()), (Verdict::Note, "1 could not be removed yet"));
}
