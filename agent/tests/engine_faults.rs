//! Faults of the agent itself: an owner that panics, a journal that takes nothing, one that cannot be read.

use std::fs;
use std::path::Path;
use std::time::Duration;

use volferry_agent::fake::Stage;
use volferry_agent::fake::faults::Method;
use volferry_agent::fake::scene::Home;
use volferry_agent::journal::{Journal, JournalError};
use volferry_agent::operation::{FailureCause, State};

const EFFECTS: [Method; 8] = [
    Method::CreateFile,
    Method::RenameFile,
    Method::StartCopy,
    Method::JobInfo,
    Method::Pivot,
    Method::ImageId,
    Method::RenameImage,
    Method::RemoveImage,
];

#[tokio::test(start_paused = true)]
async fn an_owner_that_panics_is_followed_by_another_one() {
    for method in EFFECTS {
        for times in 1..=2 {
            let stage = Stage::new(Home::Rbd, true).await;
            for nth in 1..=times {
                stage.world.before(method, nth, |_| panic!("on purpose"));
            }
            let request = stage.guest.request("nfs-1");
            stage.begin(&request).await;
            let mut followed = stage.agent.engine.watch(&request.operation).await.expect("known");
            let view = stage.end(&request).await;
            assert_eq!(view.state, State::Succeeded, "{method:?} {times}: {view:#?}");
            // Whoever followed the first owner sees the end of the last one.
            let seen = followed.wait_for(|view| view.state.is_final()).await.expect("no gap");
            assert_eq!(**seen, *view);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_operation_no_owner_can_carry_on_is_undone() {
    for method in [Method::CreateFile, Method::RenameFile, Method::StartCopy, Method::JobInfo] {
        let stage = Stage::new(Home::Rbd, true).await;
        for nth in 1..=3 {
            stage.world.before(method, nth, |_| panic!("on purpose"));
        }
        let view = stage.run(&stage.guest.request("nfs-1")).await;
        let cause = view.failure.as_ref().map(|failure| failure.cause);
        assert_eq!((view.state, cause), (State::Failed, Some(FailureCause::Internal)));
    }
}

#[tokio::test(start_paused = true)]
async fn an_operation_no_owner_can_undo_needs_an_operator_and_keeps_both_volumes() {
    let stage = Stage::new(Home::Rbd, true).await;
    for nth in 1..=3 {
        stage.world.before(Method::JobInfo, nth, |_| panic!("on purpose"));
    }
    stage.world.before(Method::Abort, 1, |_| panic!("on purpose"));
    let request = stage.guest.request("nfs-1");
    stage.begin(&request).await;
    let view = stage.agent.end(&request.operation).await;
    let failure = view.failure.clone().expect("a failure");
    assert_eq!((view.state, failure.cause), (State::NeedsOperator, FailureCause::Internal));
    let volumes = stage.world.volumes();
    for place in [&view.source, &view.destination] {
        assert!(volumes.contains_key(&place.to_string()), "{place}");
        assert!(failure.text.contains(&place.to_string()), "{failure}");
    }
    // The copy still runs, and is in the way until somebody ends it.
    let refused = stage.agent.engine.settle(&request.operation).await.expect_err("a block job");
    assert!(refused.to_string().contains("block job"), "{refused}");
    let uuid = stage.guest.uuid.clone();
    stage.world.with(|state| state.abort_job(&uuid, "vda", "abort")).expect("a job");
    let settled = stage.agent.engine.settle(&request.operation).await.expect("QEMU can tell");
    assert_eq!(settled.view.state, State::Failed);
}

#[tokio::test(start_paused = true)]
async fn a_move_no_owner_can_clean_up_after_has_succeeded() {
    let stage = Stage::new(Home::Rbd, true).await;
    for nth in 1..=4 {
        stage.world.before(Method::RenameImage, nth, |_| panic!("on purpose"));
    }
    let view = stage.run(&stage.guest.request("nfs-1")).await;
    assert_eq!(view.state, State::Succeeded);
    assert!(view.warnings.iter().any(|text| text.contains("fault of the agent")), "{view:#?}");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_an_operation_that_was_given_up_is_written_down_once_the_journal_takes_it() {
    for (method, times, end) in
        [(Method::StartCopy, 3, State::Failed), (Method::RenameImage, 3, State::Succeeded)]
    {
        let stage = Stage::new(Home::Rbd, true).await;
        for nth in 1..times {
            stage.world.before(method, nth, |_| panic!("on purpose"));
        }
        stage.world.before(method, times, |world| {
            world.fail_journal(1..usize::MAX);
            panic!("on purpose")
        });
        let request = stage.guest.request("nfs-1");
        assert_eq!(stage.run(&request).await.state, end);
        assert_ne!(stage.journaled_state(&request).await, end);
        stage.world.fail_journal(0..0);
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(stage.journaled_state(&request).await, end, "without another life");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wish_reaches_the_owner_that_follows_a_lost_one() {
    let stage = Stage::new(Home::Rbd, true).await;
    let mut request = stage.guest.request("nfs-1");
    request.manual_pivot = true;
    stage.begin(&request).await;
    stage.reaches(&request, State::Ready).await;
    stage.world.before(Method::ObserveDomain, 1, |_| panic!("on purpose"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    stage.agent.engine.complete(&request.operation).await.expect("it waits for the word");
    assert_eq!(stage.end(&request).await.state, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_of_the_agent_for_a_while_changes_no_end() {
    for first in 1..14 {
        for lasts in [1, 3, 8] {
            let stage = Stage::new(Home::Rbd, true).await;
            let request = stage.guest.request("nfs-1");
            stage.begin(&request).await;
            stage.world.fail_journal(first..first + lasts);
            let view = stage.end(&request).await;
            let right = matches!(view.state, State::Succeeded | State::Failed);
            assert!(right, "writes {first} to {}: {view:#?}", first + lasts);
        }
    }
}

/// A journal with one finished operation, closed.
async fn written(folder: &Path) -> std::path::PathBuf {
    let stage = Stage::new(Home::Rbd, true).await;
    stage.run(&stage.guest.request("nfs-1")).await;
    stage.agent.engine.stop().await;
    let path = folder.join("journal.db");
    let from = rusqlite::Connection::open(stage.folder().join("journal.db")).expect("a journal");
    from.execute("VACUUM INTO ?1", [path.to_str().expect("UTF-8")]).expect("a copy");
    path
}

fn refused(path: &Path) -> JournalError {
    let before = fs::read(path).expect("a file");
    let error = Journal::open(path).expect_err("it is refused");
    assert!(fs::read(path).expect("a file") == before, "it was written to: {error}");
    error
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_is_torn_corrupt_newer_or_no_journal_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = written(folder.path()).await;
    let whole = fs::read(&path).expect("a file");
    assert!(Journal::open(&path).is_ok());
    fs::write(&path, &whole).expect("a file");

    let change = |sql: &str| {
        fs::write(&path, &whole).expect("a file");
        rusqlite::Connection::open(&path).and_then(|db| db.execute_batch(sql)).expect("changed");
    };
    change("PRAGMA user_version = 99");
    let newer = refused(&path);
    assert!(matches!(newer, JournalError::Newer { found: 99, .. }), "{newer}");
    assert!(newer.to_string().contains("start the newer agent"), "{newer}");

    // Torn in the middle of a page, in the middle of the file, and in its header.
    for length in [whole.len() - 1000, whole.len() / 2, 4096, 50] {
        fs::write(&path, &whole[..length]).expect("a file");
        let torn = volferry_agent::report::chain(&refused(&path));
        assert!(torn.contains("journal"), "{torn}");
    }
    // Every page overwritten in turn. What lies in the middle of a long text is seen only when it is read.
    let mut noticed = 0;
    for page in 0..whole.len() / 4096 {
        let mut corrupt = whole.clone();
        corrupt[page * 4096 + 8..page * 4096 + 2048].fill(0xa5);
        fs::write(&path, &corrupt).expect("a file");
        if Journal::open(&path).is_err() {
            assert!(fs::read(&path).expect("a file") == corrupt, "it was written to");
            noticed += 1;
        }
    }
    assert!(noticed > 2, "{noticed}");
    fs::write(&path, b"this is no journal, but somebody's notes").expect("a file");
    refused(&path);
    // A database of somebody else.
    fs::remove_file(&path).expect("a file");
    rusqlite::Connection::open(&path)
        .and_then(|db| db.execute_batch("CREATE TABLE notes (text TEXT)"))
        .expect("a database");
    let strange = refused(&path);
    assert!(strange.to_string().contains("damaged"), "{strange}");
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_is_gone_from_beside_its_log_is_refused_and_the_log_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = written(folder.path()).await;
    // A log of what came after the file.
    let beside = folder.path().join("journal.db-wal");
    let open = rusqlite::Connection::open(&path).expect("a journal");
    open.execute_batch("PRAGMA journal_mode = WAL; UPDATE operations SET accepted = 1")
        .expect("written");
    let (whole, log) = (fs::read(&path).expect("a file"), fs::read(&beside).expect("a log"));
    drop(open);
    assert!(!log.is_empty());
    for rest in [Some(&whole[..5000]), Some(&[][..]), None] {
        fs::write(&beside, &log).expect("a log");
        match rest {
            Some(rest) => {
                fs::write(&path, rest).expect("a file");
                refused(&path);
            }
            None => {
                fs::remove_file(&path).expect("a file");
                Journal::open(&path).expect_err("it is refused");
                assert!(!path.exists(), "a new one was made");
            }
        }
        assert!(fs::read(&beside).expect("a log") == log, "the log was touched");
    }
    fs::remove_file(&beside).expect("a log");
    fs::write(&path, b"").expect("a file");
    let empty = refused(&path);
    assert!(empty.to_string().contains("damaged"), "{empty}");
    // What a killed agent leaves is taken up, log and all.
    fs::write(&beside, &log).expect("a log");
    fs::write(&path, &whole).expect("a file");
    assert!(Journal::open(&path).is_ok());
}
