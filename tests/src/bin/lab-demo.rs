//! The demonstration: both disks of a writing guest go from qcow2 files to Ceph, to another Ceph pool and back, with
//! the progress bars of `volferry migrate`; then every acknowledged write is looked for on the final volumes, and the
//! guest is started again from them. The lab must be up.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::Value;
use volferry_tests::agent::Agent;
use volferry_tests::guest::Disk;
use volferry_tests::lab::{Base, Guest, Lab, LabError, Spec, Volume};

const NAME: &str = "demo";
const LEGS: [(&str, &str); 3] = [
    ("ceph-a", "qcow2 file to Ceph"),
    ("ceph-b", "Ceph pool to Ceph pool"),
    ("smp", "Ceph to qcow2 file"),
];
/// Slow enough to watch, as a limit an operator might set.
const LIMIT: &str = "48MiB/s";

struct Row {
    disk: Disk,
    leg: &'static str,
    took: Duration,
    ready_to_pivot_us: Option<u64>,
    allocated: Option<u64>,
    source: String,
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool, LabError> {
    let begun = Instant::now();
    let lab = Lab::from_env()?;
    let mut guest = fresh_guest(&lab)?;
    let agent = Agent::start(&lab, NAME)?;
    say("a guest boots from a qcow2 file and writes to both its disks, root and data");
    guest.start(1)?;
    guest.wait_for_acks(300)?;
    let mut rows = Vec::new();
    for (to, leg) in LEGS {
        for disk in [Disk::VDA, Disk::VDB] {
            say(&format!("{disk}: {leg} (pool {to})"));
            rows.push(move_disk(&agent, &mut guest, disk, to, leg)?);
        }
    }
    guest.wait_for_acks(300)?;
    say("the guest is destroyed, and every write it was promised is looked for");
    guest.destroy()?;
    let acknowledged = guest.acks()?.total();
    let report = guest.verify()?;
    say("it starts again from where its disks now are, and writes on");
    guest.start(2)?;
    guest.wait_for_acks(300)?;
    guest.destroy()?;
    let again = guest.verify()?;
    summary(&rows, begun.elapsed());
    println!(
        "\nacknowledged writes found on the final volumes: {} of {} ({} sectors compared, {} missing, {} unexpected)",
        report.acknowledged, acknowledged, report.checked, report.missing, report.unexpected
    );
    println!("after the restart: {} acknowledged, {} missing", again.acknowledged, again.missing);
    let good = report.is_good() && again.is_good() && report.acknowledged == acknowledged;
    for fault in report.faults.iter().chain(&again.faults) {
        println!("  {fault}");
    }
    println!("{}", if good { "demo: all is where it should be" } else { "demo: FAILED" });
    guest.undefine()?;
    Ok(good)
}

fn say(text: &str) {
    println!("\n== {text}");
}

fn fresh_guest(lab: &Lab) -> Result<Guest, LabError> {
    // Both fail when no earlier run left a guest.
    lab.virsh(&["destroy", NAME]).ok();
    lab.virsh(&["undefine", NAME]).ok();
    for (disk, stem) in [("root", "demo-root"), ("data", "demo-data")] {
        lab.remove(&Volume::rbd("vf-a", stem))?;
        lab.remove(&Volume::rbd("vf-b", stem))?;
        lab.remove(&Volume::qcow2(lab.pool("smp")?.join(format!("{NAME}-{disk}.qcow2"))))?;
    }
    let file = |disk: &str| -> Result<Volume, LabError> {
        Ok(Volume::qcow2(lab.pool("nfs")?.join(format!("{NAME}-{disk}.qcow2"))))
    };
    let root = lab.create(Base::Root, &file("root")?)?;
    let data = lab.create(Base::Data, &file("data")?)?;
    Guest::create(lab, Spec::new(NAME, root, data))
}

fn move_disk(
    agent: &Agent,
    guest: &mut Guest,
    disk: Disk,
    to: &str,
    leg: &'static str,
) -> Result<Row, LabError> {
    let id = format!("demo-{to}-{disk}");
    let target = disk.to_string();
    let words =
        ["migrate", guest.name(), &target, "--to", to, "--bandwidth", LIMIT, "--operation-id", &id];
    println!("$ volferry {}", words.join(" "));
    let begun = Instant::now();
    let status = agent.command(&words).status().map_err(|error| LabError::Command {
        command: "volferry migrate".into(),
        text: error.to_string(),
    })?;
    let took = begun.elapsed();
    if !status.success() {
        let text = format!("{status}; see {}", agent.log().display());
        return Err(LabError::Command { command: format!("volferry migrate {target}"), text });
    }
    let operation = agent.operation(&id)?;
    let result = &operation["result"];
    // Asked of libvirt, not of the agent: this is what the verifier will read.
    let now = guest.volume(disk)?;
    guest.set_volume(disk, now);
    Ok(Row {
        disk,
        leg,
        took,
        ready_to_pivot_us: result["ready_to_pivot_us"].as_u64(),
        allocated: result["allocated_bytes"].as_u64(),
        source: text(&result["source"]["fate"]),
    })
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("?").to_owned()
}

fn summary(rows: &[Row], took: Duration) {
    println!("\ndisk  move                     took     READY to pivot  allocated  source");
    for row in rows {
        let pivot = row
            .ready_to_pivot_us
            .map_or_else(|| "-".to_owned(), |us| format!("{}.{} ms", us / 1000, us % 1000 / 100));
        let allocated =
            row.allocated.map_or_else(|| "-".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
        println!(
            "{:<5} {:<24} {:>5.1} s  {:>14}  {:>9}  {}",
            row.disk.to_string(),
            row.leg,
            row.took.as_secs_f64(),
            pivot,
            allocated,
            row.source
        );
    }
    println!("{} moves; {:.0} s for everything", rows.len(), took.as_secs_f64());
}
