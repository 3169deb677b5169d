//! Journals of every schema a version wrote: fixtures/journals/vN.sqlite is what the agent of schema N left behind, and
//! this agent opens it, tells every operation in it, and takes up what had not ended.
//!
//! When the schema is raised, `VOLFERRY_BLESS=1 cargo test --test journals` writes the fixture of the new one. An older
//! fixture is never written again: nobody can make the journals of an old version any more.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use volferry_agent::engine::{Engine, Tuning};
use volferry_agent::fake::Stage;
use volferry_agent::fake::faults::{Fault, Method};
use volferry_agent::fake::scene::Home;
use volferry_agent::journal::{Journal, SCHEMA_VERSION};
use volferry_agent::operation::State;
use volferry_agent::ports::ErrorClass;

/// What the operations of every fixture came to.
const STATES: [State; 4] = [State::Succeeded, State::Failed, State::Cancelled, State::Copying];

fn fixture(version: i64) -> PathBuf {
    let name = format!("../fixtures/journals/v{version}.sqlite");
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// One operation in each of [`STATES`], and a leftover, as this version writes them down.
async fn write_a_fixture() {
    let refused = |text| Fault::Refuse(ErrorClass::PermissionDenied, text);
    let stage = Stage::new(Home::Rbd, true).await;
    stage.world.fault(Method::StartCopy, 1, Fault::Refuse(ErrorClass::Other, "no copy today"));
    assert_eq!(stage.run(&stage.guest.request("nfs-1")).await.state, State::Failed);
    let cancelled = stage.guest.request("nfs-1");
    stage.begin(&cancelled).await;
    stage.reaches(&cancelled, State::Copying).await;
    stage.agent.engine.cancel(&cancelled.operation).await.expect("it copies");
    assert_eq!(stage.end(&cancelled).await.state, State::Cancelled);
    stage.world.fault(Method::RenameImage, 1, refused("Operation not permitted"));
    assert_eq!(stage.run(&stage.guest.request("nfs-1")).await.state, State::Succeeded);
    let copying = stage.guest.request("ceph-ssd");
    stage.begin(&copying).await;
    stage.reaches(&copying, State::Copying).await;
    let connection = Connection::open(stage.folder().join("journal.db")).expect("a journal");
    let file = fixture(SCHEMA_VERSION);
    connection.execute("VACUUM INTO ?1", [file.to_string_lossy()]).expect("written");
}

/// A copy of a fixture in a folder of its own.
fn copy_of(version: i64) -> (tempfile::TempDir, PathBuf) {
    let file = fixture(version);
    assert!(
        file.is_file(),
        "schema {version} has no {}: see the head of this file",
        file.display()
    );
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("journal.sqlite");
    fs::copy(&file, &copy).expect("copied");
    (folder, copy)
}

#[tokio::test(start_paused = true)]
async fn the_journal_of_every_version_is_read_whole_and_brought_up_to_date() {
    if std::env::var_os("VOLFERRY_BLESS").is_some() && !fixture(SCHEMA_VERSION).exists() {
        write_a_fixture().await;
    }
    for version in 1..=SCHEMA_VERSION {
        let (_folder, copy) = copy_of(version);
        let schema = |path: &Path| -> i64 {
            let connection = Connection::open(path).expect("it opens");
            let read = connection.pragma_query_value(None, "user_version", |row| row.get(0));
            read.expect("a version")
        };
        assert_eq!(schema(&copy), version, "the fixture is of another version");
        let journal = Journal::open(&copy).expect("it is opened");
        assert_eq!(schema(&copy), SCHEMA_VERSION);
        let mut states: Vec<(State, u64)> = journal.states().await.expect("states");
        states.sort_by_key(|(state, _)| STATES.iter().position(|wanted| wanted == state));
        assert_eq!(states, STATES.map(|state| (state, 1)), "v{version}");
        let finished = journal.finished(10).await.expect("the finished ones");
        assert_eq!(finished.len(), 3);
        for view in &finished {
            let stored = journal.stored(&view.spec.operation).await.expect("read");
            let stored = stored.expect("it is there");
            assert_eq!(stored.view.state, view.state);
            assert!(!stored.plan.steps.is_empty() && !stored.records.is_empty());
        }
        let unfinished = journal.unfinished().await.expect("the unfinished one");
        assert_eq!(unfinished.len(), 1);
        assert_eq!(unfinished[0].view.state, State::Copying);
        assert_eq!(journal.leftovers().await.expect("leftovers").len(), 1, "v{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_had_not_ended_under_an_older_version_is_taken_up_and_ends() {
    for version in 1..=SCHEMA_VERSION {
        let (_folder, copy) = copy_of(version);
        let journal = Journal::open(&copy).expect("it is opened");
        let [copying] = &journal.unfinished().await.expect("the unfinished one")[..] else {
            panic!("one operation copies")
        };
        let id = copying.view.spec.operation.clone();
        // In another world, whose guest has its disk on neither of the two volumes: that is for people to look at.
        let stage = Stage::new(Home::Rbd, true).await;
        let (ports, host) = (stage.scene.world.ports(), stage.scene.host.clone());
        let engine =
            Engine::start(ports, journal, host, Tuning::default()).await.expect("it starts");
        let mut views = engine.watch(&id).await.expect("it is known");
        let ended = views.wait_for(|view| view.state.is_final());
        let ended = tokio::time::timeout(Duration::from_secs(24 * 3600), ended).await;
        let state = ended.expect("it ends").expect("its end is told").state;
        assert_eq!(state, State::NeedsOperator, "v{version}");
        engine.stop().await;
    }
}
