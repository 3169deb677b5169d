//! Measures the time from the READY callback to the pivot call, identity check and journal flush included, over many
//! real migrations of a writing guest's data disk between two RBD pools and a file pool. The lab must be up.
//!
//! usage: lab-latency [MIGRATIONS]     (default 200)

use std::process::ExitCode;

use volferry_tests::agent::Agent;
use volferry_tests::lab::{Base, Guest, Lab, LabError, Spec, Volume};

const NAME: &str = "latency";
/// The bound of the design, microseconds.
const BOUND_US: u64 = 20_000;

fn main() -> ExitCode {
    let count = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(200);
    match run(count) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("lab-latency: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(count: usize) -> Result<bool, LabError> {
    let lab = Lab::from_env()?;
    lab.virsh(&["destroy", NAME]).ok();
    lab.virsh(&["undefine", NAME]).ok();
    for pool in ["vf-a", "vf-b"] {
        lab.remove(&Volume::rbd(pool, "latency-data"))?;
    }
    lab.remove(&Volume::qcow2(lab.pool("smp")?.join("latency-data.qcow2")))?;
    let root =
        lab.create(Base::Root, &Volume::qcow2(lab.pool("nfs")?.join("latency-root.qcow2")))?;
    let data = lab.create(Base::Data, &Volume::rbd("vf-a", "latency-data"))?;
    let mut guest = Guest::create(&lab, Spec::new(NAME, root, data).rate(20))?;
    let agent = Agent::start(&lab, NAME)?;
    guest.start(9)?;
    guest.wait_for_acks(20)?;
    let mut times = Vec::new();
    let mut by_reading = 0;
    let pools = ["ceph-b", "smp", "ceph-a"];
    for index in 0..count {
        let answer = agent.migrate(NAME, "vdb", pools[index % pools.len()], &[])?;
        if answer.code != 0 {
            let text = format!("migration {index}: {} {:#}", answer.stderr, answer.last());
            return Err(LabError::Command { command: "volferry migrate".into(), text });
        }
        match answer.operation()["result"]["ready_to_pivot_us"].as_u64() {
            Some(us) => times.push(us),
            None => by_reading += 1,
        }
    }
    let disk = volferry_tests::guest::Disk::VDB;
    let now = guest.volume(disk)?;
    guest.destroy()?;
    guest.set_volume(disk, now.clone());
    let report = guest.verify()?;
    guest.undefine()?;
    lab.remove(&now)?;
    times.sort_unstable();
    let at =
        |share: usize| times.get(times.len() * share / 100).or(times.last()).copied().unwrap_or(0);
    let (p50, p99, max) = (at(50), at(99), times.last().copied().unwrap_or(0));
    println!(
        "READY callback entered to pivot call, {} migrations ({} more found by reading): \
         p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms (bound: p99 under {} ms)",
        times.len(),
        by_reading,
        ms(p50),
        ms(p99),
        ms(max),
        BOUND_US / 1000
    );
    println!(
        "the guest wrote all the while: {} acknowledged writes, {} missing, {} unexpected",
        report.acknowledged, report.missing, report.unexpected
    );
    Ok(times.len() >= count.min(200) && p99 < BOUND_US && report.is_good())
}

#[allow(clippy::cast_precision_loss, reason = "for people")]
fn ms(us: u64) -> f64 {
    us as f64 / 1000.0
}
