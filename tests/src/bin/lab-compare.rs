//! Measures a move by the agent against `virsh blockcopy --wait --pivot` of the same disk, interleaved, and what the
//! agent occupies while idle. Of the agent's move everything counts but the removal of the source: the command's start,
//! planning, the destination, the copy, the pivot and its verification. The lab must be up.
//!
//! usage: lab-compare [PAIRS]     (default 10)

use std::fs;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use volferry_tests::agent::Agent;
use volferry_tests::lab::{Lab, LabError, output};

const NAME: &str = "compare";
const SIZE_MIB: u32 = 256;
/// The bounds of the design.
const RATIO: f64 = 0.75;
const IDLE_KIB: u64 = 25 * 1024;

fn main() -> ExitCode {
    let pairs = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(10);
    match run(pairs) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("lab-compare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(pairs: usize) -> Result<bool, LabError> {
    let lab = Lab::from_env()?;
    clean(&lab)?;
    define(&lab)?;
    let agent = Agent::start(&lab, NAME)?;
    let idle = anonymous_kib(&agent)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..pairs {
        ours.push(by_agent(&agent)?);
        theirs.push(by_virsh(&lab)?);
    }
    let busy = anonymous_kib(&agent)?;
    clean(&lab)?;
    let mut ratios: Vec<f64> = ours
        .iter()
        .zip(&theirs)
        .map(|(one, other)| one.as_secs_f64() / other.as_secs_f64())
        .collect();
    ratios.sort_by(f64::total_cmp);
    let ratio = ratios.get(ratios.len() / 2).copied().unwrap_or(f64::INFINITY);
    println!(
        "{SIZE_MIB} MiB RBD to RBD, {pairs} pairs, interleaved: agent {} ms, virsh {} ms (medians), \
         paired ratio median {ratio:.2}, {:.2} to {:.2} (bound: at most {RATIO})",
        median(&mut ours).as_millis(),
        median(&mut theirs).as_millis(),
        ratios.first().copied().unwrap_or_default(),
        ratios.last().copied().unwrap_or_default(),
    );
    println!(
        "agent's anonymous memory: {} MiB idle, {} MiB after {pairs} moves (bound: idle under {} MiB)",
        idle / 1024,
        busy / 1024,
        IDLE_KIB / 1024
    );
    Ok(ratio <= RATIO && idle < IDLE_KIB)
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn clean(lab: &Lab) -> Result<(), LabError> {
    // It fails when no earlier run left one.
    lab.virsh(&["destroy", NAME]).ok();
    for pool in ["vf-a", "vf-b"] {
        lab.remove(&volferry_tests::lab::Volume::rbd(pool, NAME))?;
    }
    Ok(())
}

/// A bare QEMU: what is measured is the copy, not a guest's writes.
fn define(lab: &Lab) -> Result<(), LabError> {
    let image = format!("vf-a/{NAME}");
    lab.rbd(&["create", &image, "--size", &format!("{SIZE_MIB}M")])?;
    let conf = lab.setting("VOLFERRY_LAB_CEPH_CONF")?;
    let rbd = format!("rbd:{image}:id=volferry:conf={conf}");
    output(Command::new("qemu-io").args(["-f", "raw", "-c", "write -q -P 9 0 200M", &rbd]))?;
    let xml = format!(
        "<domain type='qemu'><name>{NAME}</name><memory unit='MiB'>32</memory>\
         <os><type arch='x86_64' machine='pc'>hvm</type></os><devices>{}</devices></domain>",
        disk(lab, "vf-a")?
    );
    let file = lab.dir()?.join("compare.xml");
    fs::write(&file, xml).map_err(|source| LabError::File { path: file.clone(), source })?;
    lab.virsh(&["create", &file.display().to_string()]).map(drop)
}

fn disk(lab: &Lab, pool: &str) -> Result<String, LabError> {
    Ok(format!(
        "<disk type='network' device='disk'><driver name='qemu' type='raw'/>\
         <auth username='{}'><secret type='ceph' uuid='{}'/></auth>\
         <source protocol='rbd' name='{pool}/{NAME}'><host name='{}' port='{}'/></source>\
         <target dev='vda' bus='virtio'/></disk>",
        lab.setting("VOLFERRY_LAB_RBD_USER")?,
        lab.setting("VOLFERRY_LAB_SECRET_UUID")?,
        lab.setting("VOLFERRY_LAB_MON_HOST")?,
        lab.setting("VOLFERRY_LAB_MON_PORT")?,
    ))
}

/// From pool a to pool b.
fn by_agent(agent: &Agent) -> Result<Duration, LabError> {
    let begun = Instant::now();
    let answer = agent.migrate(NAME, "vda", "ceph-b", &[])?;
    let took = begun.elapsed();
    let operation = answer.operation();
    if answer.code != 0 {
        let text = format!("{} {operation:#}", answer.stderr);
        return Err(LabError::Command { command: "volferry migrate".into(), text });
    }
    let cleaning = operation["phases"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|phase| phase["state"] == "cleaning")
        .filter_map(|phase| phase["seconds"].as_f64())
        .sum();
    Ok(took.saturating_sub(Duration::from_secs_f64(cleaning)))
}

/// From pool b back to pool a.
fn by_virsh(lab: &Lab) -> Result<Duration, LabError> {
    let file = lab.dir()?.join("compare-disk.xml");
    fs::write(&file, disk(lab, "vf-a")?)
        .map_err(|source| LabError::File { path: file.clone(), source })?;
    let file = file.display().to_string();
    let begun = Instant::now();
    lab.virsh(&["blockcopy", NAME, "vda", "--xml", &file, "--transient-job", "--wait", "--pivot"])?;
    let took = begun.elapsed();
    lab.rbd(&["rm", "--no-progress", &format!("vf-b/{NAME}")])?;
    Ok(took)
}

fn anonymous_kib(agent: &Agent) -> Result<u64, LabError> {
    let path =
        std::path::PathBuf::from(format!("/proc/{}/status", agent.pid().unwrap_or_default()));
    let text = fs::read_to_string(&path)
        .map_err(|source| LabError::File { path: path.clone(), source })?;
    text.lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse().ok())
        .ok_or_else(|| LabError::Command { command: path.display().to_string(), text })
}
