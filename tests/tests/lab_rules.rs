//! What goes wrong before the pivot, on a writing guest: full, deleted and replaced destinations, deadlines, denials,
//! guests that stop. After each the guest writes on from its source, nothing is left, and the answer says why.

mod common;

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use common::stand::{SLOW, Stand, assert_refused, copied};
use common::{Outcome, assert_moved, lab, prove, volumes_of};
use volferry_tests::lab::{Lab, LabError};

/// A file that takes all the room of the pool `small` until it is dropped.
struct Filler(PathBuf);

impl Filler {
    fn fill(lab: &Lab) -> Result<Filler, LabError> {
        let filler = Filler(lab.pool("small")?.join("filler"));
        let mut file = fs::File::create(&filler.0).expect("the small pool can be written");
        for size in [1 << 20, 4096] {
            let block = vec![0x55; size];
            let full = loop {
                if let Err(error) = file.write_all(&block) {
                    break error;
                }
            };
            assert_eq!(full.kind(), ErrorKind::StorageFull, "{full}");
        }
        Ok(filler)
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_file_pool_that_fills_up_is_told_in_qemus_words() -> Outcome {
    let stand = Stand::new("fills-up", 700)?;
    assert_moved(&stand.agent.migrate(&stand.name, "vda", "ceph-b", &[])?);
    let volumes = ["vf-a/fills-up-data".to_owned(), "vf-b/fills-up-root".to_owned()];
    let full = Filler::fill(&stand.lab)?;
    assert_refused(&stand.agent.migrate(&stand.name, "vda", "small", &[])?, "no-space");
    stand.goes_on_with(&volumes)?;
    drop(full);
    // At the very beginning, and when half of it is copied.
    for share in [0.0, 0.5] {
        let id = stand.agent.begin(&stand.name, "vda", "small", &["--bandwidth", "16MiB/s"])?;
        stand.agent.until(&id, "so far", |operation| {
            let total = operation["progress"]["total_bytes"].as_u64().unwrap_or(0);
            let part = total as f64 * share;
            operation["state"] == "copying" && total > 0 && copied(operation) as f64 >= part
        })?;
        let full = Filler::fill(&stand.lab)?;
        assert_eq!(stand.fails(&id, "destination-full")?, "No space left on device");
        drop(full);
        stand.goes_on_with(&volumes)?;
    }
    stand.end()
}

/// What a pool of Ceph holds, as its quota counts it.
fn stored(stand: &Stand, pool: &str) -> Result<u64, LabError> {
    let text = stand.ceph(&["df", "--format", "json"])?;
    let df: serde_json::Value = serde_json::from_str(&text).expect("it was asked for JSON");
    let mut pools = df["pools"].as_array().expect("a list of pools").iter();
    let found = pools.find(|found| found["name"] == pool).expect("the lab has the pool");
    Ok(found["stats"]["stored"].as_u64().expect("a number of bytes"))
}

/// Lifts the quota of `vf-b` whatever happens.
struct Quota<'a>(&'a Stand);

impl Drop for Quota<'_> {
    fn drop(&mut self) {
        let _ = self.0.ceph(&["osd", "pool", "set-quota", "vf-b", "max_bytes", "0"]);
    }
}

#[test]
fn a_ceph_pool_about_to_fill_up_stops_the_copy_and_not_the_guest() -> Outcome {
    let stand = Stand::new("quota", 710)?;
    // At the very beginning, and when half of it is copied.
    for share in [0.0, 0.5] {
        let id = stand.agent.begin(&stand.name, "vdb", "ceph-b", &["--bandwidth", "16MiB/s"])?;
        let so_far = |operation: &serde_json::Value| {
            let total = operation["progress"]["total_bytes"].as_u64().unwrap_or(0) as f64;
            if total > 0.0 { copied(operation) as f64 / total } else { -1.0 }
        };
        stand.agent.until(&id, "so far", |operation| {
            operation["state"] == "copying" && so_far(operation) >= share
        })?;
        let quota = Quota(&stand);
        // More than there is so far, less than the disk and the reserve: the agent looks at the pool while it copies,
        // and ends the copy before writes to it hang.
        let room = (stored(&stand, "vf-b")? + (400 << 20)).to_string();
        stand.ceph(&["osd", "pool", "set-quota", "vf-b", "max_bytes", &room])?;
        let ends = |operation: &serde_json::Value| {
            operation["state"] == "rolling-back" || operation["state"] == "failed"
        };
        let ended = stand.agent.until(&id, "it ends the copy", ends)?;
        assert!((share..1.0).contains(&so_far(&ended)), "it was not copied whole: {ended:#}");
        eprintln!(
            "full at {:.0} % of the copy, ended at {:.0} %",
            share * 100.0,
            so_far(&ended) * 100.0
        );
        stand.guest.wait_for_acks(50)?;
        assert_refused(&stand.agent.migrate(&stand.name, "vda", "ceph-b", &[])?, "no-space");
        drop(quota);
        let operation = stand.agent.wait(&id)?;
        assert_eq!(operation["state"], "failed", "{operation:#}");
        assert_eq!(operation["failure"]["cause"], "destination-full", "{operation:#}");
        assert_eq!(operation["failure"]["side"], "destination", "{operation:#}");
        stand.goes_on_with(&stand.untouched())?;
    }
    stand.end()
}

#[test]
fn a_destination_that_lost_its_name_is_never_pivoted_to() -> Outcome {
    let mut stand = Stand::new("replaced", 720)?;
    let file = stand.lab.pool("smp")?.join("replaced-data.qcow2");
    for stranger in [None, Some("somebody else's")] {
        let id = stand.at_ready("vdb", "smp")?;
        fs::remove_file(&file).expect("the destination is there");
        if let Some(text) = stranger {
            fs::write(&file, text).expect("the pool can be written");
        }
        assert_eq!(stand.agent.volferry(&["ops", "pivot", &id])?.code, 0);
        stand.fails(&id, "destination-replaced")?;
        assert_eq!(fs::read_to_string(&file).ok().as_deref(), stranger, "the stranger's file");
        stand.guest.wait_for_acks(50)?;
    }
    fs::remove_file(&file).expect("the stranger's file is there");

    let image = "vf-b/replaced-root";
    let id = stand.at_ready("vda", "ceph-b")?;
    stand.lab.rbd(&["trash", "mv", image])?;
    stand.lab.rbd(&["create", image, "--size", "1M"])?;
    let before = stand.lab.rbd(&["info", image])?;
    assert_eq!(stand.agent.volferry(&["ops", "pivot", &id])?.code, 0);
    let text = stand.fails(&id, "destination-replaced")?;
    assert!(text.contains(image), "{text}");
    assert_eq!(stand.lab.rbd(&["info", image])?, before, "the stranger's image");
    let mut all = stand.untouched();
    all.push(image.to_owned());
    stand.goes_on_with(&all)?;
    assert_eq!(stand.place(volferry_tests::guest::Disk::VDB)?, "rbd:vf-a/replaced-data");
    stand.lab.rbd(&["rm", "--no-progress", image])?;
    for line in stand.lab.rbd(&["trash", "ls", "vf-b"])?.lines() {
        if let Some((id, "replaced-root")) = line.split_once(' ') {
            stand.lab.rbd(&["trash", "rm", "--no-progress", &format!("vf-b/{id}")])?;
        }
    }
    stand.end()
}

#[test]
fn a_deadline_ends_a_copy_that_is_not_done() -> Outcome {
    let stand = Stand::new("deadline", 730)?;
    let words = ["--bandwidth", "1MiB/s", "--deadline", "2s"];
    let answer = stand.agent.migrate(&stand.name, "vdb", "ceph-b", &words)?;
    assert_eq!(answer.code, 1, "{}", answer.stderr);
    let id = answer.operation()["id"].as_str().expect("an id").to_owned();
    stand.fails(&id, "deadline")?;
    stand.goes_on_with(&stand.untouched())?;
    stand.end()
}

#[test]
fn a_folder_qemu_may_not_enter_is_told_as_such() -> Outcome {
    let lab = lab("denied").with_libvirtd("denied", "qemu-static")?;
    let stand = Stand::on(lab, "denied", 740)?;
    let folder = stand.lab.pool("smp")?.to_owned();
    let mode = fs::metadata(&folder).expect("the pool is there").permissions();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("it is ours");
    let answer = stand.agent.migrate(&stand.name, "vdb", "smp", &[]);
    fs::set_permissions(&folder, mode).expect("it is ours");
    let answer = answer?;
    // An agent that looks before refuses; one that finds out from QEMU fails and undoes.
    match answer.code {
        3 => assert_refused(&answer, "permission-denied"),
        1 => {
            let failure = &answer.operation()["failure"];
            assert_eq!(failure["cause"], "destination-write-error", "{failure:#}");
            assert!(failure["text"].to_string().contains("Permission denied"), "{failure:#}");
        }
        _ => panic!("{} {:#}", answer.stderr, answer.last()),
    }
    stand.goes_on_with(&stand.untouched())?;
    let lab = stand.lab.clone();
    stand.end()?;
    lab.control(&["libvirtd-stop", "denied"]).map(drop)
}

#[test]
fn a_guest_that_stops_while_its_disk_is_copied_keeps_its_source() -> Outcome {
    let mut stand = Stand::new("stops", 750)?;
    let id = stand.copying("vda", "ceph-b", &SLOW)?;
    stand.guest.destroy()?;
    stand.fails(&id, "guest-gone")?;
    assert_eq!(volumes_of(&stand.lab, &stand.name)?, stand.untouched());
    prove(&mut stand.guest)?;
    stand.guest.start(751)?;

    // The watch of a killed QEMU keeps the destination for half a minute; then it goes too.
    let id = stand.copying("vda", "ceph-b", &SLOW)?;
    stand.guest.wait_for_acks(50)?;
    stand.guest.kill()?;
    let operation = stand.agent.wait(&id)?;
    assert_eq!(operation["failure"]["cause"], "guest-gone", "{operation:#}");
    assert_eq!(operation["place"], "source");
    assert_eq!(operation["warnings"], serde_json::json!([]), "{operation:#}");
    assert_eq!(volumes_of(&stand.lab, &stand.name)?, stand.untouched());
    prove(&mut stand.guest)?;
    stand.guest.start(752)?;
    stand.guest.wait_for_acks(50)?;
    stand.end()
}
