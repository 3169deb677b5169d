//! Kills the agent, libvirtd and QEMU at every point of moves of a writing guest's disks, and counts broken promises.
//! The lab must be up, and the daemon built with its test points (feature `testing`).
//!
//! usage: lab-torture [--agent N] [--libvirtd N] [--qemu N] [--seed N]     (default 200, 50, 30, by the clock)

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use volferry_tests::guest::Disk;
use volferry_tests::lab::LabError;
use volferry_tests::torture::{Ground, Home, Kill, Schedule, Tally, Victim};

const NAME: &str = "torture";
const PAIRS: [(Home, Home); 3] =
    [(Home::CephA, Home::CephB), (Home::Nfs, Home::CephB), (Home::CephA, Home::Nfs)];

struct Wanted {
    agent: u32,
    libvirtd: u32,
    qemu: u32,
    seed: u64,
}

fn main() -> ExitCode {
    let Some(wanted) = arguments() else {
        eprintln!("usage: lab-torture [--agent N] [--libvirtd N] [--qemu N] [--seed N]");
        return ExitCode::from(2);
    };
    match run(&wanted) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("lab-torture: {error}");
            ExitCode::FAILURE
        }
    }
}

fn arguments() -> Option<Wanted> {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut wanted = Wanted { agent: 200, libvirtd: 50, qemu: 30, seed: clock.as_secs() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value: u64 = words.next()?.parse().ok()?;
        match word.as_str() {
            "--agent" => wanted.agent = u32::try_from(value).ok()?,
            "--libvirtd" => wanted.libvirtd = u32::try_from(value).ok()?,
            "--qemu" => wanted.qemu = u32::try_from(value).ok()?,
            "--seed" => wanted.seed = value,
            _ => return None,
        }
    }
    Some(wanted)
}

fn run(wanted: &Wanted) -> Result<bool, LabError> {
    println!("seed {}", wanted.seed);
    let mut ground = Ground::new(NAME, wanted.seed)?;
    let mut points = Vec::new();
    for (from, to) in PAIRS {
        ground.boot(from, from)?;
        let passed = ground.points(to)?;
        println!("{} to {}: {} points", from.pool(), to.pool(), passed.len());
        points.push(passed);
        ground.prove()?;
    }
    let mut tally = Tally::default();
    let order = [
        (Victim::Agent, wanted.agent),
        (Victim::Libvirtd, wanted.libvirtd),
        (Victim::Qemu, wanted.qemu),
    ];
    let mut good = true;
    for (victim, count) in order {
        let mut schedule = Schedule::new(victim, &points, wanted.seed);
        // A point that is missed again and again must not keep this from ending.
        let mut boots = 0;
        while tally.reached(victim) < count && boots < 2 * count {
            boots += 1;
            one_boot(&mut ground, victim, &mut schedule, &mut tally)?;
        }
        good &= tally.reached(victim) >= count;
    }
    print!("{tally}");
    println!("violations: {}", tally.violations());
    Ok(good && tally.violations() == 0)
}

/// One guest: both its disks are moved, each once, so that no later move can hide what an earlier one lost.
fn one_boot(
    ground: &mut Ground,
    victim: Victim,
    schedule: &mut Schedule,
    tally: &mut Tally,
) -> Result<(), LabError> {
    let (first, second) = (schedule.next(), schedule.next());
    let homes = [&first, &second].map(|(pair, _)| PAIRS[*pair].0);
    ground.boot(homes[0], homes[1])?;
    for (disk, (pair, kill)) in [(Disk::VDA, first), (Disk::VDB, second)] {
        one_kill(ground, &kill, disk, PAIRS[pair], tally)?;
        if victim == Victim::Qemu {
            break;
        }
    }
    for broken in ground.prove()? {
        println!("VIOLATION: {broken}");
        tally.broken(victim);
    }
    Ok(())
}

fn one_kill(
    ground: &mut Ground,
    kill: &Kill,
    disk: Disk,
    (from, to): (Home, Home),
    tally: &mut Tally,
) -> Result<(), LabError> {
    let moving = format!("{} to {}: {kill}", from.pool(), to.pool());
    let Some(verdict) = ground.trial(kill, disk, to)? else {
        println!("{moving}: missed");
        tally.missed(kill.victim);
        return Ok(());
    };
    let time = |time: Duration| time.as_millis();
    println!(
        "{moving}: {}, decided after {} ms, clean after {} ms, longest gap {} ms",
        verdict.ended.name(),
        time(verdict.decided),
        time(verdict.cleaned),
        time(verdict.gap)
    );
    for broken in &verdict.violations {
        println!("VIOLATION: {broken}");
    }
    tally.add(kill.victim, &verdict);
    Ok(())
}
