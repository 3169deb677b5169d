//! The world breaks while a disk of a writing guest is copied: libvirtd goes and comes back, storage stands still, a
//! stranger ends the job or edits the definition, the host loses its power. Every move ends as if nothing had happened
//! or is cleanly undone, and the agent goes on answering.

mod common;

use std::process::Command;
use std::time::{Duration, Instant};

use common::stand::{SLOW, Stand, assert_refused, copied};
use common::{Outcome, guest_on_files, lab, prove, volumes_of};
use serde_json::Value;
use volferry_tests::agent::Setup;
use volferry_tests::guest::Disk;
use volferry_tests::lab::{Base, Lab, LabError, Served, Volume, output};

/// The bound of an answer while something else hangs.
const AT_ONCE: Duration = Duration::from_secs(1);

fn moved(operation: &Value) {
    assert_eq!(operation["state"], "succeeded", "{operation:#}");
    assert_eq!(operation["place"], "destination", "{operation:#}");
}

/// The agent answers about the operation within its bound.
fn answers(stand: &Stand, id: &str) -> Result<Value, LabError> {
    let begun = Instant::now();
    let operation = stand.agent.operation(id)?;
    let took = begun.elapsed();
    assert!(took < AT_ONCE, "an answer took {took:?}");
    Ok(operation)
}

fn unlimited(stand: &Stand, id: &str) -> Outcome {
    assert_eq!(stand.agent.volferry(&["ops", "set-bandwidth", id, "none"])?.code, 0);
    Ok(())
}

#[test]
fn a_libvirtd_that_goes_and_comes_back_fails_no_move() -> Outcome {
    let stand = Stand::new("away", 900)?;
    let (daemon, mode) = (stand.lab.daemon().to_owned(), stand.lab.mode().to_owned());
    let id = stand.copying("vda", "ceph-b", &SLOW)?;
    stand.lab.control(&["libvirtd-kill9", &daemon])?;
    assert_eq!(answers(&stand, &id)?["state"], "copying");
    stand.lab.control(&["libvirtd-start", &daemon, &mode])?;
    unlimited(&stand, &id)?;
    moved(&stand.agent.wait(&id)?);
    stand.goes_on_with(&["vf-a/away-data".into(), "vf-b/away-root".into()])?;

    // READY while libvirtd is away: nobody tells, so it is found by reading.
    let mut monitor = stand.guest.monitor()?;
    let id = stand.copying("vdb", "smp", &["--manual-pivot", "--bandwidth", "48MiB/s"])?;
    stand.lab.control(&["libvirtd-kill9", &daemon])?;
    let until = Instant::now() + Duration::from_secs(120);
    while !monitor.execute("query-block-jobs")?[0]["ready"].as_bool().unwrap_or(false) {
        assert!(Instant::now() < until, "the copy never became ready");
    }
    stand.lab.control(&["libvirtd-start", &daemon, &mode])?;
    stand.agent.until(&id, "ready", |operation| operation["waits_for_pivot"] == true)?;
    assert_eq!(stand.agent.volferry(&["ops", "pivot", &id])?.code, 0);
    moved(&stand.agent.wait(&id)?);
    stand.goes_on_with(&["smp/away-data.qcow2".into(), "vf-b/away-root".into()])?;
    stand.end()
}

/// A file system that stands still until it is dropped.
struct Frozen(String);

impl Frozen {
    fn new(lab: &Lab, pool: &str) -> Result<Frozen, LabError> {
        let folder = lab.pool(pool)?.display().to_string();
        output(Command::new("fsfreeze").args(["-f", &folder]))?;
        Ok(Frozen(folder))
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let thawed = output(Command::new("fsfreeze").args(["-u", &self.0]));
        if let Err(error) = thawed {
            eprintln!("{error}");
        }
    }
}

#[test]
fn a_destination_that_stands_still_holds_up_nobody_else_and_goes_on() -> Outcome {
    let stand = Stand::new("frozen", 910)?;
    stand.lab.sweep("frozen-not")?;
    moved(stand.agent.migrate(&stand.name, "vda", "ceph-b", &[])?.operation());
    // Another guest: QEMU lets no disk of a guest pivot while writes of another of its disks stand still.
    let mut other = guest_on_files(&stand.lab, "frozen-not", true)?;
    other.start(911)?;
    let id = stand.copying("vda", "small", &SLOW)?;
    let frozen = Frozen::new(&stand.lab, "small")?;
    moved(stand.agent.migrate("frozen-not", "vdb", "ceph-b", &[])?.operation());
    let standing = answers(&stand, &id)?;
    assert_eq!(standing["state"], "copying", "{standing:#}");
    drop(frozen);
    let before = copied(&standing);
    stand.agent.until(&id, "it copies on", |operation| copied(operation) > before)?;
    unlimited(&stand, &id)?;
    moved(&stand.agent.wait(&id)?);
    other.destroy()?;
    prove(&mut other)?;
    stand.lab.sweep("frozen-not")?;
    stand.goes_on_with(&["small/frozen-root.qcow2".into(), "vf-a/frozen-data".into()])?;
    let lab = stand.lab.clone();
    stand.end()?;
    // The small pool is for one guest at a time.
    lab.sweep("frozen")
}

#[test]
fn a_path_that_hangs_is_told_and_holds_up_nobody_else() -> Outcome {
    let lab = lab("served");
    let served = Served::new(&lab)?;
    // A daemon of its own, which sees what was mounted before it started.
    let lab = lab.with_libvirtd("served", "root")?;
    let defaults = Setup::default();
    let pool =
        format!("[[pool]]\nname = \"served\"\ntype = \"nfs\"\npath = \"{}\"\n", served.folder());
    let setup = Setup { limits: format!("{}{pool}", defaults.limits), ..defaults };
    let stand = Stand::with(lab.clone(), "served", 930, setup)?;
    lab.create(Base::Data, &Volume::rbd("vf-a", "served-alone"))?;

    // Half way through a copy: QEMU's writes hang, and so does every look at the folder.
    let id = stand.copying("vdb", "served", &SLOW)?;
    served.stop();
    let alone = ["migrate", "--volume", "ceph-a/served-alone", "--format", "raw", "--to", "ceph-b"];
    moved(stand.agent.volferry(&alone)?.operation());
    let standing = stand.agent.until(&id, "it is told", |operation| {
        operation["detail"].as_str().is_some_and(|detail| detail.contains("pool-stalled"))
    })?;
    assert_eq!(standing["state"], "copying", "{standing:#}");
    // A new request is told so in time, whatever hangs.
    let again = ["migrate", "--volume", "ceph-b/served-alone", "--format", "raw", "--to", "served"];
    let refused = stand.agent.volferry(&again)?;
    assert_refused(&refused, "pool-unavailable");
    answers(&stand, &id)?;

    served.go_on();
    unlimited(&stand, &id)?;
    moved(&stand.agent.wait(&id)?);
    stand.goes_on_with(&["nfs/served-root.qcow2".into(), "vf-b/served-alone".into()])?;
    // Back from there, so that the guest outlives the file system.
    moved(stand.agent.migrate(&stand.name, "vdb", "ceph-a", &[])?.operation());
    stand.end()?;
    lab.sweep("served")?;
    lab.control(&["libvirtd-stop", "served"]).map(drop)
}

/// An OSD that is stopped until it is dropped.
struct Stopped(Lab);

impl Drop for Stopped {
    fn drop(&mut self) {
        if let Err(error) = self.0.control(&["osd-thaw"]) {
            eprintln!("{error}");
        }
    }
}

#[test]
fn a_cluster_that_stands_still_and_comes_back_fails_no_move() -> Outcome {
    let stand = Stand::new("laggy", 920)?;
    let id = stand.copying("vda", "ceph-b", &SLOW)?;
    stand.lab.control(&["osd-freeze"])?;
    let stopped = Stopped(stand.lab.clone());
    for _ in 0..3 {
        assert_eq!(answers(&stand, &id)?["state"], "copying");
    }
    let begun = Instant::now();
    assert_eq!(stand.agent.volferry(&["ops", "list"])?.code, 0);
    assert!(begun.elapsed() < AT_ONCE, "the list took {:?}", begun.elapsed());
    drop(stopped);
    unlimited(&stand, &id)?;
    moved(&stand.agent.wait(&id)?);
    stand.goes_on_with(&["vf-a/laggy-data".into(), "vf-b/laggy-root".into()])?;
    stand.end()
}

#[test]
fn what_strangers_do_to_the_disk_is_told_and_undone() -> Outcome {
    let mut stand = Stand::new("stranger", 930)?;
    // The job ended by somebody else.
    let id = stand.copying("vda", "ceph-b", &SLOW)?;
    stand.lab.virsh(&["blockjob", "stranger", "vda", "--abort"])?;
    stand.fails(&id, "job-stolen")?;
    stand.goes_on_with(&stand.untouched())?;

    // What libvirt keeps strangers from while the job runs, and the move goes on.
    let id = stand.copying("vda", "ceph-b", &SLOW)?;
    for words in [
        &["detach-disk", "stranger", "vda", "--live"][..],
        &[
            "snapshot-create-as",
            "stranger",
            "s1",
            "--disk-only",
            "--diskspec",
            "vda,snapshot=external",
        ],
        &["blockcopy", "stranger", "vda", "/nonexistent/x", "--wait", "--pivot"],
    ] {
        assert!(stand.lab.virsh(words).is_err(), "libvirt let a stranger in: {words:?}");
    }
    // Somebody describes the domain anew, and somebody else takes its definition away.
    let xml = stand.lab.virsh(&["dumpxml", "--inactive", "stranger"])?;
    let edited = xml.replace("<memory ", "<description>edited</description>\n  <memory ");
    let file = stand.lab.dir()?.join("stranger-edited.xml");
    std::fs::write(&file, edited).expect("the lab's folder can be written");
    stand.lab.virsh(&["define", &file.display().to_string()])?;
    unlimited(&stand, &id)?;
    moved(&stand.agent.wait(&id)?);
    let inactive = stand.lab.virsh(&["dumpxml", "--inactive", "stranger"])?;
    assert!(inactive.contains("<description>edited</description>"), "the edit is lost: {inactive}");
    assert_eq!(stand.lab.disk_in(&inactive, Disk::VDA).as_deref(), Some("rbd:vf-b/stranger-root"));

    let id = stand.copying("vdb", "smp", &SLOW)?;
    stand.lab.virsh(&["undefine", "stranger"])?;
    unlimited(&stand, &id)?;
    moved(&stand.agent.wait(&id)?);
    stand.goes_on_with(&["smp/stranger-data.qcow2".into(), "vf-b/stranger-root".into()])?;
    assert_eq!(stand.place(Disk::VDA)?, "rbd:vf-b/stranger-root");
    assert!(stand.place(Disk::VDB)?.ends_with("/stranger-data.qcow2"));
    // Nobody remembers the domain once it ends; its disks are where the answers said.
    stand.guest.wait_for_acks(50)?;
    let volumes = [stand.guest.volume(Disk::VDA)?, stand.guest.volume(Disk::VDB)?];
    stand.guest.destroy()?;
    for (disk, volume) in [Disk::VDA, Disk::VDB].into_iter().zip(volumes) {
        stand.guest.set_volume(disk, volume);
    }
    prove(&mut stand.guest)
}

/// What `volferry doctor --orphans` says of an operation.
fn orphan(stand: &Stand, id: &str) -> Result<Value, LabError> {
    let listed = stand.agent.volferry(&["doctor", "--orphans"])?;
    assert_eq!(listed.code, 0, "{}", listed.stderr);
    let orphans = listed.last()["orphans"].as_array().cloned().unwrap_or_default();
    Ok(orphans.into_iter().find(|orphan| orphan["operation_id"] == id).unwrap_or_default())
}

#[test]
fn what_outlived_the_journal_is_found_ended_and_removed() -> Outcome {
    let lab = lab("amnesia");
    let state = lab.dir()?.join("amnesia-state");
    let setup = Setup { state: Some(state.clone()), ..Setup::default() };
    let mut stand = Stand::with(lab, "amnesia", 950, setup)?;
    let ids = [stand.copying("vda", "ceph-b", &SLOW)?, stand.at_ready("vdb", "smp")?];
    stand.agent.kill();
    std::fs::remove_dir_all(&state).expect("the agent's own folder");
    stand.agent.run()?;
    for (id, disk) in ids.iter().zip(["vda", "vdb"]) {
        let found = orphan(&stand, id)?;
        assert_eq!(found["copied_by"]["disk"], disk, "{found:#}");
        assert_eq!(found["made_by"], "lab", "{found:#}");
        assert_eq!(found["kept"], Value::Null, "{found:#}");
        let removed = stand.agent.volferry(&["doctor", "--orphans", "--remove", id])?;
        assert_eq!(removed.code, 0, "{}", removed.stderr);
        assert_eq!(orphan(&stand, id)?, Value::Null);
    }
    stand.goes_on_with(&stand.untouched())?;
    for disk in [Disk::VDA, Disk::VDB] {
        assert_eq!(stand.lab.block_job(&stand.name, disk)?, None);
    }
    // What is in use as a disk is nobody's orphan.
    let moved_id = stand.at_ready("vdb", "ceph-b")?;
    assert_eq!(stand.agent.volferry(&["ops", "pivot", &moved_id])?.code, 0);
    moved(&stand.agent.wait(&moved_id)?);
    stand.agent.kill();
    std::fs::remove_dir_all(&state).expect("the agent's own folder");
    stand.agent.run()?;
    assert_eq!(orphan(&stand, &moved_id)?, Value::Null);
    let refused = stand.agent.volferry(&["doctor", "--orphans", "--remove", &moved_id])?;
    assert_ne!(refused.code, 0, "{:#}", refused.last());
    stand.goes_on_with(&["nfs/amnesia-root.qcow2".into(), "vf-b/amnesia-data".into()])?;
    stand.end()
}

/// The power goes while a disk is copied; on the next boot the agent comes before or after libvirtd.
fn power_cut(stand: &mut Stand, id: &str, agent_first: bool, seed: u64) -> Outcome {
    let (daemon, mode) = (stand.lab.daemon().to_owned(), stand.lab.mode().to_owned());
    stand.guest.wait_for_acks(50)?;
    stand.agent.kill();
    stand.lab.control(&["libvirtd-lost", &daemon])?;
    stand.guest.note_killed();
    if agent_first {
        stand.agent.run()?;
        let waiting = answers(stand, id)?;
        let ended =
            ["failed", "cancelled", "succeeded"].iter().any(|state| waiting["state"] == *state);
        assert!(!ended, "decided without asking anybody: {waiting:#}");
        stand.lab.control(&["libvirtd-start", &daemon, &mode])?;
    } else {
        stand.lab.control(&["libvirtd-start", &daemon, &mode])?;
        stand.agent.run()?;
    }
    stand.fails(id, "guest-gone")?;
    assert_eq!(volumes_of(&stand.lab, &stand.name)?, stand.untouched());
    prove(&mut stand.guest)?;
    stand.guest.start(seed)?;
    stand.guest.wait_for_acks(50).map(drop)
}

#[test]
fn a_host_that_loses_its_power_boots_from_the_sources() -> Outcome {
    let lab = lab("power").with_libvirtd("power", "root")?;
    let mut stand = Stand::on(lab, "power", 940)?;
    let id = stand.copying("vda", "ceph-b", &SLOW)?;
    power_cut(&mut stand, &id, false, 941)?;
    let id = stand.at_ready("vdb", "smp")?;
    power_cut(&mut stand, &id, true, 942)?;
    let lab = stand.lab.clone();
    stand.end()?;
    lab.control(&["libvirtd-stop", "power"]).map(drop)
}
