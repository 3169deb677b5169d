//! Measures an offline copy by the agent against `qemu-img convert` run by hand with its default options, of the same
//! volumes and interleaved: 4 GiB with 1 GiB of data. Of the agent's move everything counts: the command's start,
//! planning, the destination, the copy, the names. The comparison, which is on unless it is refused, is on a line of its
//! own. Inside one Ceph cluster the volume is usable before it is independent of its source: that has a bound of its own.
//! The lab must be up.
//!
//! usage: lab-offline [PAIRS]     (default 3)

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use volferry_tests::agent::Agent;
use volferry_tests::lab::{Lab, LabError, Volume, output};

const NAME: &str = "offline";
const SIZE_GIB: u64 = 4;
/// Of every 256 MiB the first 64 are written.
const PIECES: u64 = 16;
/// The bounds of the design: any pair, and between two pools of one cluster.
const RATIO: f64 = 1.0;
const RATIO_IN_CLUSTER: f64 = 0.7;
/// Until the volume can be used, between two pools of one cluster.
const RATIO_USABLE: f64 = 0.1;

/// A pool as the configuration and as the tools call it.
struct Pool {
    name: &'static str,
    ceph: Option<&'static str>,
}

const CEPH_A: Pool = Pool { name: "ceph-a", ceph: Some("vf-a") };
const CEPH_B: Pool = Pool { name: "ceph-b", ceph: Some("vf-b") };
const NFS: Pool = Pool { name: "nfs", ceph: None };
const SMP: Pool = Pool { name: "smp", ceph: None };

fn main() -> ExitCode {
    let pairs = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(3);
    match run(pairs) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("lab-offline: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(pairs: usize) -> Result<bool, LabError> {
    let lab = Lab::from_env()?;
    let agent = Agent::start(&lab, NAME)?;
    for pool in [&NFS, &CEPH_A] {
        lab.remove(&volume(&lab, pool, "offline-source")?)?;
    }
    make(&lab)?;
    let mut all_good = true;
    for (from, to, bound) in [
        (&NFS, &SMP, RATIO),
        (&NFS, &CEPH_B, RATIO),
        (&CEPH_A, &SMP, RATIO),
        (&CEPH_A, &CEPH_B, RATIO_IN_CLUSTER),
    ] {
        let (mut ours, mut usable, mut theirs, mut compared) = (vec![], vec![], vec![], vec![]);
        for _ in 0..pairs {
            theirs.push(by_hand(&lab, from, to)?);
            let took = by_agent(&lab, &agent, from, to, &["--no-compare"])?;
            ours.push(took.whole);
            usable.push(took.usable);
            compared.push(by_agent(&lab, &agent, from, to, &[])?.whole);
        }
        let route = format!(
            "{} to {}, {SIZE_GIB} GiB with 1 GiB of data, {pairs} pairs",
            from.name, to.name
        );
        if from.ceph.is_some() && to.ceph.is_some() {
            let ratio = report(&format!("{route}, usable"), &mut usable, &theirs, RATIO_USABLE);
            all_good &= ratio <= RATIO_USABLE;
        }
        all_good &= report(&route, &mut ours, &theirs, bound) <= bound;
        println!("{route}: with the comparison {} ms (median)", median(&mut compared).as_millis());
    }
    for pool in [&NFS, &CEPH_A] {
        lab.remove(&volume(&lab, pool, "offline-source")?)?;
    }
    Ok(all_good)
}

/// Prints one line and returns the median of the paired ratios.
fn report(route: &str, ours: &mut [Duration], theirs: &[Duration], bound: f64) -> f64 {
    let pairs = ours.iter().zip(theirs);
    let mut ratios: Vec<f64> =
        pairs.map(|(one, other)| one.as_secs_f64() / other.as_secs_f64()).collect();
    ratios.sort_by(f64::total_cmp);
    let ratio = ratios.get(ratios.len() / 2).copied().unwrap_or(f64::INFINITY);
    println!(
        "{route}, interleaved: agent {} ms, qemu-img {} ms (medians), paired ratio median {ratio:.2}, {:.2} to {:.2} \
         (bound: at most {bound})",
        median(ours).as_millis(),
        median(&mut theirs.to_vec()).as_millis(),
        ratios.first().copied().unwrap_or_default(),
        ratios.last().copied().unwrap_or_default(),
    );
    ratio
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn volume(lab: &Lab, pool: &Pool, stem: &str) -> Result<Volume, LabError> {
    Ok(match pool.ceph {
        Some(ceph) => Volume::rbd(ceph, stem),
        None => Volume::qcow2(lab.pool(pool.name)?.join(format!("{stem}.qcow2"))),
    })
}

fn opened(lab: &Lab, volume: &Volume) -> Result<String, LabError> {
    let spec = volume.spec();
    Ok(match spec.starts_with("rbd:") {
        true => format!("{spec}:id=volferry:conf={}", lab.setting("VOLFERRY_LAB_CEPH_CONF")?),
        false => spec,
    })
}

/// The same content in a file pool and in a Ceph pool: random, so that nothing of it is left out as zero.
fn make(lab: &Lab) -> Result<(), LabError> {
    let raw = lab.dir()?.join("offline-source.raw");
    output(Command::new("qemu-img").args(["create", "-q", "-f", "raw"]).arg(&raw).arg("4G"))?;
    for piece in 0..PIECES {
        let target = format!("of={}", raw.display());
        let seek = format!("seek={}", piece * 256);
        output(Command::new("dd").args([
            "if=/dev/urandom",
            &target,
            "bs=1M",
            "count=64",
            &seek,
            "conv=notrunc",
            "status=none",
        ]))?;
    }
    for pool in [&NFS, &CEPH_A] {
        let to = volume(lab, pool, "offline-source")?;
        convert(lab, &raw, "raw", &to)?;
    }
    std::fs::remove_file(&raw).map_err(|source| LabError::File { path: raw.clone(), source })
}

fn convert(lab: &Lab, from: &Path, format: &str, to: &Volume) -> Result<(), LabError> {
    let mut command = Command::new("qemu-img");
    command.args(["convert", "-f", format, "-O", to.format.name()]).arg(from);
    output(command.arg(opened(lab, to)?)).map(drop)
}

fn by_hand(lab: &Lab, from: &Pool, to: &Pool) -> Result<Duration, LabError> {
    let (source, target) = (volume(lab, from, "offline-source")?, volume(lab, to, "offline-hand")?);
    let source_name = opened(lab, &source)?;
    let begun = Instant::now();
    convert(lab, Path::new(&source_name), source.format.name(), &target)?;
    let took = begun.elapsed();
    lab.remove(&target)?;
    Ok(took)
}

/// How long a move took.
struct Took {
    /// All but the removal of the source, which is not asked for.
    whole: Duration,
    /// Until the volume had moved.
    usable: Duration,
}

fn by_agent(
    lab: &Lab,
    agent: &Agent,
    from: &Pool,
    to: &Pool,
    more: &[&str],
) -> Result<Took, LabError> {
    let source = volume(lab, from, "offline-source")?;
    let suffix = if from.ceph.is_some() { "" } else { ".qcow2" };
    let name = format!("{}/offline-source{suffix}", from.name);
    let words = [
        &["migrate", "--volume", &name, "--format", source.format.name(), "--to", to.name][..],
        &["--destination-volume", "offline-agent", "--keep-source-name"],
        more,
    ]
    .concat();
    let begun = Instant::now();
    let answer = agent.volferry(&words)?;
    let took = begun.elapsed();
    if answer.code != 0 {
        let text = format!("{} {:#}", answer.stderr, answer.operation());
        return Err(LabError::Command { command: "volferry migrate".into(), text });
    }
    lab.remove(&volume(lab, to, "offline-agent")?)?;
    // What the command itself takes counts.
    let operation = answer.operation();
    let after = operation["phases"].as_array().into_iter().flatten().filter_map(|phase| {
        let moved = matches!(phase["state"].as_str(), Some("moved" | "cleaning"));
        phase["seconds"].as_f64().filter(|_| moved)
    });
    Ok(Took { whole: took, usable: took.saturating_sub(Duration::from_secs_f64(after.sum())) })
}
