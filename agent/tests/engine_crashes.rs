//! The agent killed at every point of every move: before and after every effect and every write to its journal.
//! After a restart the operation must come to one end, with one current volume and nothing left over.

use std::time::{Duration, Instant};

use volferry_agent::fake::Stage;
use volferry_agent::fake::scene::Home;
use volferry_agent::journal::What;
use volferry_agent::operation::{FailureCause, SourceFate, State};
use volferry_agent::plan::StepKind;
use volferry_agent::spec::{EncryptionScheme, HeaderKind, MigrateSpec, Passphrase, VolumeLocation};

const PAIRS: [(Home, &str); 3] =
    [(Home::Rbd, "ceph-ssd"), (Home::Rbd, "nfs-1"), (Home::File, "ceph-hdd")];

/// What becomes of an operation: run to its end, cancelled on the way, or failed on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Through,
    CancelledWhileCopying,
    DestinationFull,
    SnapshotsDeleted,
    SourceInTrash,
    /// An encrypted disk, to a destination with the same passphrase.
    Encrypted,
    /// A plain disk, to an image that librbd encrypts, which is tried first.
    EncryptedByLibrbd,
}

/// What happens between the kill and the next start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Between {
    Nothing,
    TenMinutes,
    QemuKilled,
    GuestStartedAgain,
    LibvirtAway,
}

async fn drive(stage: &Stage, request: &MigrateSpec, way: Way) {
    let engine = &stage.agent.engine;
    engine.migrate(request.clone()).await.expect("an accepted request");
    if way == Way::CancelledWhileCopying {
        let cancels = |view: &volferry_agent::operation::OperationView| {
            view.state == State::Copying || view.state.is_final()
        };
        stage.agent.until(&request.operation, cancels).await;
        // An agent may have died after it was asked; the client asks the next one again.
        drop(engine.cancel(&request.operation).await);
    }
    stage.agent.end(&request.operation).await;
}

/// One life that ends at `point`, and the lives after it. Returns none when the point was never reached.
async fn killed_at(
    home: Home,
    pool: &str,
    persistent: bool,
    way: Way,
    between: Between,
    point: usize,
) -> Option<State> {
    let retention = match way {
        Way::SourceInTrash => Duration::from_secs(86_400),
        _ => Duration::ZERO,
    };
    let mut stage = Stage::with_retention(home, persistent, retention).await;
    let mut request = stage.guest.request(pool);
    if way == Way::Encrypted {
        stage.scene.encrypt(&stage.guest, HeaderKind::QemuLuks1, b"open sesame");
        let passphrase = Passphrase::new(b"open sesame".to_vec()).expect("a passphrase");
        request = request.with_passphrases(Some(passphrase), None);
        request.encryption.accept = [EncryptionScheme::Luks1Qemu].into();
    }
    if way == Way::EncryptedByLibrbd {
        stage.world.with(|state| state.librbd_copies = true);
        let passphrase = Passphrase::new(b"open sesame".to_vec()).expect("a passphrase");
        request = request.with_passphrases(None, Some(passphrase));
    }
    if way == Way::SnapshotsDeleted {
        request.delete_source_snapshots = true;
        stage.source_image(|image| image.snapshots = vec!["one".to_owned(), "two".to_owned()]);
    }
    if way == Way::DestinationFull {
        // Full only once the plan has seen enough room.
        stage.world.before(volferry_agent::fake::faults::Method::StartCopy, 1, |world| {
            world.with(|state| {
                for folder in state.folders.values_mut() {
                    folder.available = 300 << 20;
                }
            });
        });
    }
    stage.world.kill_agent_at(point);
    let name = tokio::select! {
        () = drive(&stage, &request, way) => return None,
        () = stage.world.agent_died() => stage.world.points().last().cloned().unwrap_or_default(),
    };
    match between {
        Between::Nothing => {}
        Between::TenMinutes => tokio::time::sleep(Duration::from_secs(600)).await,
        Between::QemuKilled => stage.world.kill_qemu(&stage.guest.uuid),
        Between::GuestStartedAgain => {
            stage.world.kill_qemu(&stage.guest.uuid);
            stage.world.with(|state| state.start_again(&stage.guest.uuid));
        }
        Between::LibvirtAway => stage.world.libvirt_away(),
    }
    stage = stage.restart().await;
    if between == Between::LibvirtAway {
        tokio::time::sleep(Duration::from_secs(40)).await;
        stage.world.libvirt_back();
    }
    let known = stage.agent.engine.operation(&request.operation).await.is_ok();
    if known {
        drive_on(&stage, &request, way).await;
    } else if between == Between::QemuKilled {
        // It never began, and the guest is gone.
        return Some(State::Failed);
    } else {
        drive(&stage, &request, way).await;
    }
    let view = stage.agent.end(&request.operation).await;
    if let Err(broken) = stage.world.audit(&stage.guest, &view, &stage.before) {
        panic!(
            "{home:?} to {pool}, {way:?}, {between:?}, killed at {point} {name}: {broken}\n{view:#?}"
        );
    }
    let left = stage.agent.engine.leftovers().await.expect("a readable journal");
    let stays = matches!(
        view.result.as_ref().map(|result| &result.source),
        Some(
            SourceFate::LeftBehind { .. }
                | SourceFate::Trashed { location: VolumeLocation::File { .. }, .. }
        )
    );
    assert_eq!(left.len(), usize::from(stays), "killed at {point} {name}: {left:#?}\n{view:#?}");
    if (way, view.state) == (Way::SnapshotsDeleted, State::Succeeded) {
        let fate = view.result.as_ref().map(|result| result.source.as_str());
        assert_eq!(fate, Some("removed"), "killed at {point} {name}: {view:#?}");
    }
    if (way, view.state) == (Way::SourceInTrash, State::Succeeded) {
        let fate = view.result.as_ref().map(|result| result.source.as_str());
        assert_eq!(fate, Some("trashed"), "killed at {point} {name}: {view:#?}");
    }
    let right = match (between, way) {
        (Between::QemuKilled | Between::GuestStartedAgain, _) => view.state.is_final(),
        (_, Way::Through | Way::SnapshotsDeleted | Way::SourceInTrash) => {
            view.state == State::Succeeded
        }
        (_, Way::CancelledWhileCopying) => {
            matches!(view.state, State::Succeeded | State::Cancelled)
        }
        (_, Way::DestinationFull) => view.state == State::Failed,
        // A destination that is not made needs the passphrase, which died with the agent.
        (_, Way::Encrypted | Way::EncryptedByLibrbd) => match &view.failure {
            None => view.state == State::Succeeded,
            Some(failure) => {
                let history = stage.history(&request).await;
                let made = |what: &What| {
                    matches!(what, What::Done { step: StepKind::CreateDestination, .. })
                };
                failure.cause == FailureCause::SecretNeeded && !history.iter().any(made)
            }
        },
    };
    assert!(right, "{home:?} to {pool}, {way:?}, {between:?}, killed at {point} {name}: {view:#?}");
    Some(view.state)
}

async fn drive_on(stage: &Stage, request: &MigrateSpec, way: Way) {
    if way == Way::CancelledWhileCopying {
        drop(stage.agent.engine.cancel(&request.operation).await);
    }
}

async fn matrix(home: Home, pool: &str, persistent: bool, way: Way, between: Between) -> usize {
    let mut point = 0;
    let mut ends = std::collections::BTreeMap::new();
    while let Some(end) = killed_at(home, pool, persistent, way, between, point).await {
        *ends.entry(end.as_str()).or_insert(0) += 1;
        point += 1;
    }
    println!("{home:?} to {pool}, persistent {persistent}, {way:?}, {between:?}: {ends:?}");
    assert!(point > 30, "only {point} points");
    point
}

async fn all(way: Way, between: Between, pairs: &[(Home, &str)]) {
    let began = Instant::now();
    let mut points = 0;
    for (home, pool) in pairs {
        for persistent in [true, false] {
            points += matrix(*home, pool, persistent, way, between).await;
        }
    }
    println!("{points} points in {:.1} s", began.elapsed().as_secs_f64());
}

#[tokio::test(start_paused = true)]
async fn killed_anywhere_a_move_still_succeeds() {
    all(Way::Through, Between::Nothing, &PAIRS).await;
}

#[tokio::test(start_paused = true)]
async fn killed_anywhere_and_started_late_a_move_still_succeeds() {
    for (home, pool) in PAIRS {
        matrix(home, pool, true, Way::Through, Between::TenMinutes).await;
    }
}

#[tokio::test(start_paused = true)]
async fn killed_anywhere_a_source_with_snapshots_is_moved_and_removed() {
    let pairs = &PAIRS[..2];
    all(Way::SnapshotsDeleted, Between::Nothing, pairs).await;
    for (home, pool) in pairs {
        matrix(*home, pool, true, Way::SnapshotsDeleted, Between::TenMinutes).await;
    }
}

#[tokio::test(start_paused = true)]
async fn killed_anywhere_a_source_is_kept_in_the_trash() {
    for (home, pool) in PAIRS {
        for between in [Between::Nothing, Between::TenMinutes] {
            matrix(home, pool, true, Way::SourceInTrash, between).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn killed_anywhere_a_cancel_leaves_nothing() {
    all(Way::CancelledWhileCopying, Between::Nothing, &PAIRS).await;
}

#[tokio::test(start_paused = true)]
async fn killed_anywhere_a_failure_leaves_nothing() {
    all(Way::DestinationFull, Between::Nothing, &PAIRS[1..2]).await;
}

#[tokio::test(start_paused = true)]
async fn killed_anywhere_an_encrypted_move_succeeds_or_needs_its_passphrase_again() {
    for (home, pool) in PAIRS {
        for between in [Between::Nothing, Between::LibvirtAway] {
            matrix(home, pool, true, Way::Encrypted, between).await;
        }
    }
    matrix(Home::Rbd, "ceph-ssd", true, Way::EncryptedByLibrbd, Between::Nothing).await;
}

#[tokio::test(start_paused = true)]
async fn killed_anywhere_together_with_qemu_nothing_is_guessed() {
    all(Way::Through, Between::QemuKilled, &PAIRS).await;
}

#[tokio::test(start_paused = true)]
async fn killed_anywhere_and_the_guest_started_again_nothing_is_guessed() {
    for (home, pool) in PAIRS {
        matrix(home, pool, true, Way::Through, Between::GuestStartedAgain).await;
    }
}

#[tokio::test(start_paused = true)]
async fn killed_anywhere_and_libvirt_away_at_the_start_a_move_still_succeeds() {
    for (home, pool) in PAIRS {
        matrix(home, pool, true, Way::Through, Between::LibvirtAway).await;
    }
}

#[tokio::test(start_paused = true)]
async fn killed_twice_a_move_still_succeeds() {
    let (mut pairs, mut first) = (0, 0);
    loop {
        let mut second = first % 5;
        loop {
            let mut stage = Stage::new(Home::Rbd, true).await;
            let request = stage.guest.request("nfs-1");
            stage.world.kill_agent_at(first);
            tokio::select! {
                () = drive(&stage, &request, Way::Through) => {
                    println!("{pairs} pairs of points");
                    return assert!(pairs > 200);
                }
                () = stage.world.agent_died() => {}
            }
            stage = stage.restart().await;
            stage.world.kill_agent_at(second);
            tokio::select! {
                () = drive(&stage, &request, Way::Through) => break,
                () = stage.world.agent_died() => {}
            }
            stage = stage.restart().await;
            drive(&stage, &request, Way::Through).await;
            assert_eq!(stage.end(&request).await.state, State::Succeeded, "{first}, {second}");
            pairs += 1;
            second += 5;
        }
        first += 1;
    }
}
