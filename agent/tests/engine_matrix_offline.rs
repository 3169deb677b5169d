//! The crash matrix of encrypted volumes that nobody uses: the agent killed at every point of every plan, once and
//! once more. Its passphrases die with it, so an operation ends well only where it had nothing more to read; otherwise
//! nothing of it is left, and the same request, sent again with its passphrases, goes to its end.
//!
//! `VOLFERRY_SEEDS`, when it is more than 1, runs everything that may happen in between with every plan; without it
//! each plan has its own.

#[path = "support/moment.rs"]
mod moment;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use volferry_agent::fake::Stage;
use volferry_agent::fake::scene::{Guest, Home};
use volferry_agent::operation::{FailureCause, OperationView, State};
use volferry_agent::ports::DomainState;
use volferry_agent::spec::{
    EncryptionScheme, HeaderKind, MigrateSpec, OperationId, Passphrase, Subject, VolumeLocation,
};

use moment::{MOMENTS, moment};

const OLD: &[u8] = b"open sesame";
const NEW: &[u8] = b"close sesame";

/// What is moved.
#[derive(Debug, Clone, Copy)]
enum Moved {
    /// The disk of a stopped domain.
    Disk(Home),
    /// A volume of no domain: its pool and name.
    Volume(&'static str, &'static str),
}

/// How, from which header on.
#[derive(Debug, Clone, Copy)]
struct Cell {
    moved: Moved,
    from: Option<HeaderKind>,
    pool: &'static str,
    rekey: bool,
    decrypt: bool,
    between: Between,
}

/// What happens between the kill and the next start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Between {
    Nothing,
    /// The next one is killed too, so many points after its start.
    SecondKill(usize),
    TenMinutes,
    GuestStarted,
    LibvirtAway,
}

const BETWEENS: [Between; 6] = [
    Between::Nothing,
    Between::SecondKill(3),
    Between::SecondKill(11),
    Between::TenMinutes,
    Between::GuestStarted,
    Between::LibvirtAway,
];

fn cells() -> impl Iterator<Item = Cell> {
    let disk = |home, from, pool| Cell {
        moved: Moved::Disk(home),
        from,
        pool,
        rekey: false,
        decrypt: false,
        between: Between::Nothing,
    };
    let (qemu, librbd) = (Some(HeaderKind::QemuLuks1), Some(HeaderKind::LibrbdLuks2));
    let volume = |pool, name, from, to| Cell {
        moved: Moved::Volume(pool, name),
        ..disk(Home::Rbd, from, to)
    };
    let plans = [
        disk(Home::Rbd, qemu, "nfs-1"),
        Cell { rekey: true, ..disk(Home::File, qemu, "smp-1") },
        disk(Home::Rbd, librbd, "ceph-ssd"),
        Cell { rekey: true, ..disk(Home::File, None, "ceph-ssd") },
        Cell { decrypt: true, ..disk(Home::Rbd, librbd, "smp-1") },
        volume("ceph-hdd", "v", librbd, "nfs-1"),
        Cell { rekey: true, ..volume("nfs-1", "v.qcow2", None, "ceph-ssd") },
    ];
    let all = std::env::var("VOLFERRY_SEEDS").is_ok_and(|seeds| seeds != "1");
    plans.into_iter().enumerate().flat_map(move |(number, plan)| {
        let own = BETWEENS[1 + number % (BETWEENS.len() - 1)];
        // Only a domain is started.
        let possible = move |between: &Between| {
            (all || [Between::Nothing, own].contains(between))
                && (matches!(plan.moved, Moved::Disk(_)) || *between != Between::GuestStarted)
        };
        BETWEENS.into_iter().filter(possible).map(move |between| Cell { between, ..plan })
    })
}

async fn stage(cell: &Cell) -> (Stage, MigrateSpec) {
    let mut stage = match cell.moved {
        Moved::Disk(home) => Stage::new(home, true).await,
        Moved::Volume(..) => Stage::new(Home::Rbd, true).await,
    };
    stage.world.with(|state| state.librbd_copies = true);
    match (cell.moved, cell.from) {
        (Moved::Disk(_), from) => {
            if let Some(header) = from {
                stage.scene.encrypt(&stage.guest, header, OLD);
            }
            stage.world.shut_down(&stage.guest.uuid);
        }
        (Moved::Volume(pool, name), from) => {
            stage.guest = stage.scene.volume(pool, name);
            if let Some(header) = from {
                stage.scene.encrypt_volume(&stage.guest, header, OLD);
            }
            stage.before = stage.world.volumes();
        }
    }
    let request = request(cell, &stage.guest);
    (stage, request)
}

fn request(cell: &Cell, guest: &Guest) -> MigrateSpec {
    let mut spec = match cell.moved {
        Moved::Disk(_) => guest.request(cell.pool),
        Moved::Volume(..) => guest.volume_request(cell.pool),
    };
    if let Subject::Volume { volume_encryption, .. } = &mut spec.subject {
        *volume_encryption = cell.from;
    }
    let passphrase = |bytes: &[u8]| Passphrase::new(bytes.to_vec()).expect("a passphrase");
    let source = cell.from.map(|_| passphrase(OLD));
    let mut spec = spec.with_passphrases(source, cell.rekey.then(|| passphrase(NEW)));
    spec.encryption.decrypt = cell.decrypt;
    if cell.pool.starts_with("ceph") && cell.rekey {
        spec.encryption.accept = [EncryptionScheme::Luks1Qemu].into();
    }
    spec
}

/// The stored definition still names the source.
fn names_source(stage: &Stage) -> bool {
    let name = match &stage.guest.volume {
        VolumeLocation::File { path } => path.display().to_string(),
        VolumeLocation::Rbd { address, image } => address.image_path(image),
    };
    stage.world.with(|state| {
        let domain = state.domains.get(&stage.guest.uuid);
        let stored = domain.and_then(|domain| domain.inactive_xml.as_deref());
        stored.is_some_and(|stored| stored.contains(&format!("'{name}'")))
    })
}

/// The moment of a kill and how the operation ended; none when the point was never reached.
async fn killed_at(cell: &Cell, point: usize) -> Option<((String, &'static str), State)> {
    let (mut stage, request) = stage(cell).await;
    stage.world.kill_agent_at(point);
    let drive = async {
        stage.agent.engine.migrate(request.clone()).await.expect("accepted");
        stage.agent.end(&request.operation).await
    };
    let points = tokio::select! {
        _ = drive => return None,
        () = stage.world.agent_died() => stage.world.points(),
    };
    let is_disk = matches!(cell.moved, Moved::Disk(_));
    let on_source = is_disk && names_source(&stage);
    match cell.between {
        Between::Nothing | Between::SecondKill(_) => {}
        Between::TenMinutes => tokio::time::sleep(Duration::from_secs(600)).await,
        Between::GuestStarted => {
            stage.world.with(|state| state.start_again(&stage.guest.uuid));
        }
        Between::LibvirtAway => stage.world.libvirt_away(),
    }
    stage = stage.restart().await;
    match cell.between {
        Between::SecondKill(offset) => {
            stage.world.kill_agent_at(offset);
            tokio::select! {
                () = stage.world.agent_died() => {}
                () = tokio::time::sleep(Duration::from_secs(3)) => {}
            }
            stage = stage.restart().await;
        }
        Between::LibvirtAway => {
            tokio::time::sleep(Duration::from_secs(30)).await;
            stage.world.libvirt_back();
        }
        _ => {}
    }
    let at = format!("{cell:?}, killed at {point} {:?}", points.last());
    let known = stage.agent.engine.operation(&request.operation).await.is_ok();
    if !known {
        if cell.between == Between::GuestStarted {
            return Some((moment(&points), State::Failed));
        }
        stage.begin(&request).await;
    }
    let view = stage.agent.end(&request.operation).await;
    judge(&stage, &view, &at).await;
    let cause = view.failure.as_ref().map(|failure| failure.cause);
    let right = match (view.state, cell.between) {
        // What had still to be read could not be.
        (State::Succeeded, _) => !known || !on_source,
        (_, Between::GuestStarted) if cause == Some(FailureCause::VolumeInUse) => true,
        _ => cause == Some(FailureCause::SecretNeeded) && known,
    };
    assert!(right, "{at}: {view:#?}");
    let state = view.state;
    if state == State::Failed && point.is_multiple_of(3) {
        again(&stage, cell, &request, &at).await;
    }
    // Or its tasks would go on beside those of all the runs to come.
    stage.agent.engine.stop().await;
    Some((moment(&points), state))
}

async fn judge(stage: &Stage, view: &OperationView, at: &str) {
    if let Err(broken) = stage.world.audit(&stage.guest, view, &stage.before) {
        panic!("{at}: {broken}\n{view:#?}");
    }
    assert!(stage.world.with(|state| state.copies.is_empty()), "{at}: a process is left");
    let mut left = stage.agent.engine.leftovers().await.expect("a readable journal");
    // A volume of no domain stays if nobody can tell any more that it was not written to while the agent was away.
    left.retain(|left| {
        let unproved = left.reason.contains("passphrases are kept in memory only");
        !(view.state == State::Succeeded && left.domain.is_none() && unproved)
    });
    assert_eq!(left, [], "{at}");
}

/// The same request under another id goes to its end, once nobody runs on the source.
async fn again(stage: &Stage, cell: &Cell, request: &MigrateSpec, at: &str) {
    let state =
        stage.world.with(|state| state.domains.get(&stage.guest.uuid).map(|domain| domain.state));
    if state == Some(DomainState::Running) {
        return;
    }
    let request = MigrateSpec { operation: OperationId::random(), ..request.clone() };
    stage.begin(&request).await;
    let view = stage.agent.end(&request.operation).await;
    assert_eq!(view.state, State::Succeeded, "{at}, sent again: {view:#?}");
    judge(stage, &view, at).await;
    let header =
        stage.world.with(|state| state.volume(&view.destination).expect("the destination").header);
    let expected = if cell.rekey { NEW } else { OLD };
    let opens = header.is_some_and(|header| header.passphrase == expected);
    assert_eq!(opens, !cell.decrypt, "{at}");
}

#[tokio::test(start_paused = true)]
async fn the_agent_killed_at_every_point_of_an_encrypted_copy_leaves_a_whole_volume_or_nothing() {
    let began = Instant::now();
    let (mut tally, mut ends, mut count) = (BTreeMap::new(), BTreeMap::new(), 0);
    for cell in cells() {
        for point in 0.. {
            let Some((at, state)) = killed_at(&cell, point).await else {
                assert!(point > 25, "only {point} points: {cell:?}");
                break;
            };
            *tally.entry(at).or_insert(0) += 1;
            *ends.entry(state.as_str()).or_insert(0) += 1;
        }
        count += 1;
    }
    let points: usize = tally.values().sum();
    println!(
        "crash matrix, encrypted and offline: {points} crash points in {count} cells, 0 violations, {:.1} s; ends \
         {ends:?}",
        began.elapsed().as_secs_f64()
    );
    for ((step, moment), count) in &tally {
        println!("  {step:<22} {moment:<14} {count}");
    }
    for step in [
        "set-secret",
        "create-destination",
        "copy-image",
        "compare-images",
        "publish-destination",
        "switch",
        "retire-source",
        "remove-source",
        "remove-source-secret",
    ] {
        for moment in MOMENTS {
            let count = tally.get(&(step.to_owned(), moment)).copied().unwrap_or(0);
            assert!(count > 0, "{step} was never cut {moment}");
        }
    }
}
