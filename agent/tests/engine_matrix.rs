//! The crash matrix: for every step of every plan, the agent killed before the intent is written, after it, after the
//! effect and after the result, with whatever else may happen to the host meanwhile. The points are taken from runs of
//! the plan itself, none is listed here; what varies beside them comes from a seed, printed with every violation.
//!
//! `VOLFERRY_SEEDS=N` runs N seeds a cell, one more where there is a stored definition.

#[path = "support/moment.rs"]
mod moment;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use volferry_agent::engine::Tuning;
use volferry_agent::fake::Stage;
use volferry_agent::fake::domain::Pace;
use volferry_agent::fake::scene::Home;
use volferry_agent::operation::{OperationView, SourceFate, State};
use volferry_agent::plan::StepKind;
use volferry_agent::ports::{EventKind, JobEnd};
use volferry_agent::spec::{MigrateSpec, VolumeLocation};

use moment::{MOMENTS, moment};

const PAIRS: [(Home, &str); 5] = [
    (Home::Rbd, "ceph-ssd"),
    (Home::Rbd, "nfs-1"),
    (Home::Rbd, "smp-1"),
    (Home::File, "ceph-hdd"),
    (Home::File, "ceph-ssd"),
];

/// What happens between the kill and the next start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Between {
    Nothing,
    TenMinutes,
    QemuKilled,
    GuestStartedAgain,
    /// libvirt is away at the next start and comes back so many seconds after it.
    LibvirtAway(u64),
    /// The whole host goes down; libvirt is back so many seconds after the agent, or before it.
    HostLost(Option<u64>),
}

use Between as B;

/// libvirtd and the guest live on.
const ALONE: [Between; 3] = [B::Nothing, B::TenMinutes, B::LibvirtAway(120)];
/// The guest does not.
const TOGETHER: [Between; 2] = [B::QemuKilled, B::GuestStartedAgain];
const HOST: [Between; 3] = [B::HostLost(None), B::HostLost(Some(5)), B::HostLost(Some(600))];

/// A small generator of numbers: the same ones for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

#[derive(Debug, Clone, Copy)]
struct Cell {
    home: Home,
    pool: &'static str,
    persistent: bool,
    between: Between,
    seed: u64,
    /// A step whose intent is not written down.
    broken: Option<StepKind>,
}

/// What varies with the seed, the same for every point of a cell.
#[derive(Debug)]
struct Variant {
    cancel: bool,
    retention: Duration,
    request: fn(&mut MigrateSpec),
    pace: Pace,
    second_kill: Option<usize>,
    event: Option<(bool, Which)>,
}

/// Picks events.
type Which = fn(&EventKind) -> bool;

impl Variant {
    fn of(cell: &Cell) -> Self {
        let mut random = Random(cell.seed);
        let requests: [fn(&mut MigrateSpec); 4] = [
            |_| (),
            |request| request.keep_source = true,
            |request| request.keep_source_name = true,
            |request| request.write_blocking = true,
        ];
        let events: [fn(&EventKind) -> bool; 4] = [
            |kind| matches!(kind, EventKind::JobReady),
            |kind| matches!(kind, EventKind::JobEnded(JobEnd::Completed)),
            |kind| matches!(kind, EventKind::JobEnded(_)),
            |kind| matches!(kind, EventKind::DomainStopped { .. }),
        ];
        let mib = 1 << 20;
        // The first seed is the plain move.
        let plain = cell.seed == 0;
        let request = requests[random.below(4) as usize];
        Self {
            cancel: !plain && random.below(4) == 0,
            retention: Duration::from_secs(if !plain && random.below(4) == 0 { 86_400 } else { 0 }),
            request: if plain { requests[0] } else { request },
            pace: Pace {
                copy: (64 + random.below(960)) * mib,
                dirty: random.below(48) * mib,
                zeroing: Duration::from_millis(random.below(2) * 700),
            },
            second_kill: (!plain && random.below(3) == 0).then(|| random.below(20) as usize),
            event: (!plain && random.below(2) == 0)
                .then(|| (random.below(2) == 0, events[random.below(4) as usize])),
        }
    }
}

async fn stage(cell: &Cell, variant: &Variant) -> (Stage, MigrateSpec) {
    let tuning = Tuning { without_intent: cell.broken, ..Tuning::default() };
    let retention = variant.retention;
    let prepare = |scene: &mut volferry_agent::fake::Scene| scene.host.source_retention = retention;
    let stage = Stage::tuned(cell.home, cell.persistent, tuning, prepare).await;
    stage.world.pace(&stage.guest.uuid, "vda", variant.pace);
    match variant.event {
        Some((true, test)) => stage.world.lose_event(test),
        Some((false, test)) => stage.world.duplicate_event(test),
        None => {}
    }
    let mut request = stage.guest.request(cell.pool);
    (variant.request)(&mut request);
    (stage, request)
}

/// Sends the request, cancels if the variant says so, and waits for the end.
async fn drive(stage: &Stage, request: &MigrateSpec, cancel: bool) {
    let engine = &stage.agent.engine;
    if engine.migrate(request.clone()).await.is_err() {
        return;
    }
    if cancel {
        let copies = |view: &OperationView| view.state == State::Copying || view.state.is_final();
        stage.agent.until(&request.operation, copies).await;
        // An agent may die after it was asked; the client asks the next one again.
        drop(engine.cancel(&request.operation).await);
    }
    stage.agent.end(&request.operation).await;
}

/// How a run ended.
struct Ended {
    state: State,
    /// The step and the moment the agent was killed at.
    at: (String, &'static str),
}

/// One life that ends at `point`, and the lives after it. None when the point was never reached.
///
/// Errors: the rule that is broken.
async fn killed_at(cell: &Cell, point: usize) -> Option<Result<Ended, String>> {
    let variant = Variant::of(cell);
    let (stage, request) = stage(cell, &variant).await;
    let (stage, ended) = lives(cell, &variant, stage, &request, point).await;
    // Or its tasks would go on beside those of all the runs to come.
    stage.agent.engine.stop().await;
    ended
}

async fn lives(
    cell: &Cell,
    variant: &Variant,
    mut stage: Stage,
    request: &MigrateSpec,
    point: usize,
) -> (Stage, Option<Result<Ended, String>>) {
    stage.world.kill_agent_at(point);
    let points = tokio::select! {
        () = drive(&stage, request, variant.cancel) => return (stage, None),
        () = stage.world.agent_died() => stage.world.points(),
    };
    let guest = stage.guest.uuid.clone();
    match cell.between {
        B::Nothing => {}
        B::TenMinutes => tokio::time::sleep(Duration::from_secs(600)).await,
        B::QemuKilled => stage.world.kill_qemu(&guest),
        B::GuestStartedAgain => {
            stage.world.kill_qemu(&guest);
            stage.world.with(|state| state.start_again(&guest));
        }
        B::LibvirtAway(_) => stage.world.libvirt_away(),
        B::HostLost(back) => {
            stage.world.lose_host();
            if back.is_none() {
                stage.world.libvirt_back();
            }
        }
    }
    stage = stage.restart().await;
    if let Some(offset) = variant.second_kill {
        stage.world.kill_agent_at(offset);
        let waits = tokio::time::sleep(Duration::from_secs(3));
        tokio::select! {
            () = stage.world.agent_died() => {}
            () = waits => {}
        }
        stage = stage.restart().await;
    }
    if let B::LibvirtAway(back) | B::HostLost(Some(back)) = cell.between {
        tokio::time::sleep(Duration::from_secs(back)).await;
        stage.world.libvirt_back();
    }
    let back = tokio::time::Instant::now();
    let known = stage.agent.engine.operation(&request.operation).await.is_ok();
    if variant.cancel && known {
        drop(stage.agent.engine.cancel(&request.operation).await);
    }
    let at = moment(&points);
    if !known {
        drive(&stage, request, variant.cancel).await;
        if stage.agent.engine.operation(&request.operation).await.is_err() {
            // It never began, and the guest is gone.
            return (stage, Some(Ok(Ended { state: State::Failed, at })));
        }
    }
    let view = stage.agent.end(&request.operation).await;
    let lasted = back.elapsed();
    let judged = judge(&stage, cell, variant, &view, lasted).await;
    if let Err(broken) = judged {
        let name = points.last().cloned().unwrap_or_default();
        let text = format!("{cell:?}, {variant:?}, killed at {point} {name}: {broken}\n{view:#?}");
        return (stage, Some(Err(text)));
    }
    // The end is the end, also for the next life.
    tokio::time::sleep(Duration::from_secs(1200)).await;
    if point.is_multiple_of(4) {
        stage = stage.restart().await;
    }
    let later = stage.agent.engine.operation(&request.operation).await.expect("it is known");
    if later != view {
        let text = format!("{cell:?}, {point}: the end changed to {later:#?}");
        return (stage, Some(Err(text)));
    }
    (stage, Some(Ok(Ended { state: view.state, at })))
}

async fn judge(
    stage: &Stage,
    cell: &Cell,
    variant: &Variant,
    view: &OperationView,
    lasted: Duration,
) -> Result<(), String> {
    stage.world.audit(&stage.guest, view, &stage.before)?;
    let left = stage.agent.engine.leftovers().await.expect("a readable journal");
    let stays = matches!(
        view.result.as_ref().map(|result| &result.source),
        Some(
            SourceFate::LeftBehind { .. }
                | SourceFate::Trashed { location: VolumeLocation::File { .. }, .. }
        )
    );
    if left.len() != usize::from(stays) {
        return Err(format!("leftovers {left:#?}"));
    }
    let stopped = TOGETHER.contains(&cell.between) || HOST.contains(&cell.between);
    let right = match view.state {
        State::Succeeded => true,
        State::Cancelled => variant.cancel,
        State::Failed | State::NeedsOperator => stopped,
        _ => false,
    };
    if !right {
        return Err(format!("it ended as {}", view.state));
    }
    // A dead client's watch lasts 30 s.
    let undone = view.state != State::Succeeded;
    if stopped && undone && lasted > Duration::from_secs(40) {
        return Err(format!("it took {lasted:?} to end"));
    }
    Ok(())
}

/// Every point of one cell.
async fn whole(
    cell: &Cell,
    tally: &mut BTreeMap<(String, &'static str), usize>,
    ends: &mut BTreeMap<&'static str, usize>,
) -> Vec<String> {
    let mut violations = Vec::new();
    for point in 0.. {
        match killed_at(cell, point).await {
            None => {
                assert!(point > 20, "only {point} points: {cell:?}");
                break;
            }
            Some(Ok(ended)) => {
                *tally.entry(ended.at).or_default() += 1;
                *ends.entry(ended.state.as_str()).or_default() += 1;
            }
            Some(Err(violation)) => violations.push(violation),
        }
    }
    violations
}

fn seeds() -> u64 {
    let said = std::env::var("VOLFERRY_SEEDS").ok();
    said.map_or(1, |seeds| seeds.parse().expect("VOLFERRY_SEEDS is a number"))
}

async fn matrix(name: &str, betweens: &[Between]) {
    let began = Instant::now();
    let (mut tally, mut ends, mut cells) = (BTreeMap::new(), BTreeMap::new(), 0);
    for (index, between) in betweens.iter().enumerate() {
        for (number, (home, pool)) in PAIRS.into_iter().enumerate() {
            for persistent in [true, false] {
                // What has a stored definition has more to go wrong.
                for seed in 0..seeds() + u64::from(persistent) {
                    // Another seed in every cell, but for the plain move, which is in all.
                    let mixed =
                        seed * (1 + 2 * (index * 10 + number) as u64 + u64::from(persistent));
                    let cell = Cell {
                        home,
                        pool,
                        persistent,
                        between: *between,
                        seed: mixed,
                        broken: None,
                    };
                    let violations = whole(&cell, &mut tally, &mut ends).await;
                    assert!(
                        violations.is_empty(),
                        "{} violations\n{}",
                        violations.len(),
                        violations[0]
                    );
                    cells += 1;
                }
            }
        }
    }
    let points: usize = tally.values().sum();
    println!(
        "crash matrix, {name}: {points} crash points reached in {cells} cells, 0 violations, {:.1} s; ends {ends:?}",
        began.elapsed().as_secs_f64()
    );
    for ((step, moment), count) in &tally {
        println!("  {step:<22} {moment:<14} {count}");
    }
    assert!(points > cells * 20, "{points}");
    // Every step that has an effect was cut at all four moments.
    for step in [
        "create-destination",
        "publish-destination",
        "start-copy",
        "pivot",
        "verify-move",
        "retire-source",
        "remove-source",
    ] {
        for moment in MOMENTS {
            let count = tally.get(&(step.to_owned(), moment)).copied().unwrap_or(0);
            assert!(count > 0, "{step} was never cut {moment}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_agent_killed_alone_at_every_point_changes_no_end() {
    matrix("agent alone", &ALONE).await;
}

#[tokio::test(start_paused = true)]
async fn the_agent_killed_together_with_the_guest_at_every_point_loses_nothing() {
    matrix("agent and guest", &TOGETHER).await;
}

#[tokio::test(start_paused = true)]
async fn the_host_lost_at_every_point_loses_nothing() {
    matrix("host", &HOST).await;
}

#[tokio::test(start_paused = true)]
async fn a_step_that_does_not_write_its_intent_down_is_caught() {
    let cases = [
        (StepKind::CreateDestination, B::QemuKilled, false),
        (StepKind::StartCopy, B::Nothing, true),
    ];
    for (step, between, cancel) in cases {
        // The first seed whose variant cancels, or does not.
        let cell = |seed| Cell {
            home: Home::Rbd,
            pool: "nfs-1",
            persistent: true,
            between,
            seed,
            broken: Some(step),
        };
        let seed = (0..).find(|seed| {
            let variant = Variant::of(&cell(*seed));
            variant.cancel == cancel && variant.second_kill.is_none()
        });
        let cell = cell(seed.expect("numbers without end"));
        let caught = whole(&cell, &mut BTreeMap::new(), &mut BTreeMap::new()).await;
        assert!(!caught.is_empty(), "{step:?} without an intent went unnoticed");
        println!("{step:?}: {} points caught it, as {}", caught.len(), caught[0]);
        let whole_again = Cell { broken: None, ..cell };
        let none = whole(&whole_again, &mut BTreeMap::new(), &mut BTreeMap::new()).await;
        assert!(none.is_empty(), "{}", none[0]);
    }
}
