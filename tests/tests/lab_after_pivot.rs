//! What goes wrong after the pivot, on a writing guest: the move has succeeded, whatever becomes of the source, and
//! says what stays and why. An old definition never starts old data.

mod common;

use std::process::{Child, Command, Stdio};

use common::stand::{Stand, warnings};
use common::{Outcome, assert_moved, volumes_of};
use volferry_tests::guest::Disk;
use volferry_tests::lab::{Lab, LabError, output};

fn moved_name(volume: &str, answer: &volferry_tests::agent::Answer) -> String {
    format!("{volume}.moved-{}", answer.operation()["id"].as_str().expect("an id"))
}

#[test]
fn an_old_definition_never_starts_old_data() -> Outcome {
    let mut stand = Stand::new("old", 800)?;
    let old = stand.lab.virsh(&["dumpxml", "--inactive", "old"])?;
    // Kept under another name, it is still not what the old definition finds.
    let root = stand.agent.migrate("old", "vda", "ceph-b", &["--keep-source"])?;
    assert_moved(&root);
    assert_eq!(root.operation()["result"]["source"]["fate"], "kept", "{:#}", root.last());
    let kept = moved_name("nfs/old-root.qcow2", &root);
    stand.goes_on_with(&[kept.clone(), "vf-a/old-data".into(), "vf-b/old-root".into()])?;
    stand.old_definition_does_not_start(&old, 801)?;
    // Removed, as is usual.
    let old = stand.lab.virsh(&["dumpxml", "--inactive", "old"])?;
    assert_moved(&stand.agent.migrate("old", "vdb", "smp", &[])?);
    stand.goes_on_with(&[kept.clone(), "smp/old-data.qcow2".into(), "vf-b/old-root".into()])?;
    stand.old_definition_does_not_start(&old, 802)?;
    let (pool, name) = kept.split_once('/').expect("pool and name");
    std::fs::remove_file(stand.lab.pool(pool)?.join(name)).expect("the kept source is there");
    stand.end()
}

#[test]
fn a_source_with_a_snapshot_or_a_clone_stays_under_its_retired_name() -> Outcome {
    let mut stand = Stand::new("held", 810)?;
    stand.lab.rbd(&["snap", "create", "--no-progress", "vf-a/held-data@daily"])?;
    let first = stand.agent.migrate("held", "vdb", "ceph-b", &[])?;
    assert_moved(&first);
    assert!(warnings(first.operation()).contains("daily"), "{:#}", first.operation());
    let retired = moved_name("vf-a/held-data", &first);
    let nfs = "nfs/held-root.qcow2".to_owned();
    stand.goes_on_with(&[nfs.clone(), retired.clone(), "vf-b/held-data".into()])?;
    assert!(stand.lab.rbd(&["snap", "ls", &retired])?.contains("daily"), "the snapshot is there");
    stand.lab.rbd(&["snap", "purge", "--no-progress", &retired])?;
    stand.lab.rbd(&["rm", "--no-progress", &retired])?;

    stand.lab.rbd(&["snap", "create", "--no-progress", "vf-b/held-data@base"])?;
    stand.lab.rbd(&["snap", "protect", "vf-b/held-data@base"])?;
    stand.lab.rbd(&["clone", "vf-b/held-data@base", "vf-a/held-child"])?;
    let second = stand.agent.migrate("held", "vdb", "smp", &[])?;
    assert_moved(&second);
    assert!(warnings(second.operation()).contains("held-child"), "{:#}", second.operation());
    let retired = moved_name("vf-b/held-data", &second);
    let data = "smp/held-data.qcow2".to_owned();
    stand.goes_on_with(&[nfs, data, "vf-a/held-child".into(), retired.clone()])?;
    let child = stand.lab.rbd(&["info", "vf-a/held-child"])?;
    assert!(child.contains(&format!("parent: {retired}@base")), "{child}");
    stand.lab.rbd(&["rm", "--no-progress", "vf-a/held-child"])?;
    stand.lab.rbd(&["snap", "unprotect", &format!("{retired}@base")])?;
    stand.lab.rbd(&["snap", "purge", "--no-progress", &retired])?;
    stand.lab.rbd(&["rm", "--no-progress", &retired])?;
    assert_eq!(stand.place(Disk::VDA)?.rsplit('/').next(), Some("held-root.qcow2"));
    stand.end()
}

/// Another client that has an image open, until it is dropped.
struct Watcher(Child);

impl Watcher {
    fn of(lab: &Lab, image: &str) -> Result<Watcher, LabError> {
        let conf = lab.setting("VOLFERRY_LAB_CEPH_CONF")?;
        let child = Command::new("rbd")
            .args(["-c", conf, "--id", "volferry", "watch", image])
            .stdout(Stdio::null())
            // It would end with its standard input.
            .stdin(Stdio::piped())
            .spawn()
            .expect("rbd is installed");
        let watcher = Watcher(child);
        for _ in 0..100 {
            // Each look takes its time, a tenth of a second and more.
            if lab.rbd(&["status", image])?.matches("watcher=").count() > 1 {
                return Ok(watcher);
            }
        }
        panic!("{image} has no second watcher")
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // It takes its watch back, which it would leave for half a minute when killed.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn a_source_that_another_client_watches_stays_and_the_move_succeeds() -> Outcome {
    let stand = Stand::new("watched", 820)?;
    let watcher = Watcher::of(&stand.lab, "vf-a/watched-data")?;
    let answer = stand.agent.migrate("watched", "vdb", "ceph-b", &[])?;
    assert_moved(&answer);
    let source = &answer.operation()["result"]["source"];
    assert_eq!(source["fate"], "left-behind", "{source:#}");
    let retired = moved_name("vf-a/watched-data", &answer);
    assert!(source["location"].to_string().contains(&retired), "{source:#}");
    assert!(warnings(answer.operation()).contains("in use by"), "{:#}", answer.operation());
    stand.goes_on_with(&[
        "nfs/watched-root.qcow2".into(),
        retired.clone(),
        "vf-b/watched-data".into(),
    ])?;
    drop(watcher);
    stand.lab.rbd(&["rm", "--no-progress", &retired])?;
    stand.end()
}

/// A folder that is read-only for whoever opens something from now on.
struct ReadOnly(String);

impl ReadOnly {
    fn mount(path: &std::path::Path) -> Result<ReadOnly, LabError> {
        let path = path.display().to_string();
        output(Command::new("mount").args(["--bind", &path, &path]))?;
        let mount = ReadOnly(path.clone());
        output(Command::new("mount").args(["-o", "remount,bind,ro", &path]))?;
        Ok(mount)
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_source_on_a_read_only_mount_stays_and_the_move_succeeds() -> Outcome {
    let mut stand = Stand::new("read-only", 830)?;
    let nfs = stand.lab.pool("nfs")?.to_owned();
    // QEMU has its file open already and writes on.
    let mount = ReadOnly::mount(&nfs)?;
    stand.guest.wait_for_acks(50)?;
    let answer = stand.agent.migrate("read-only", "vda", "ceph-b", &[]);
    drop(mount);
    let answer = answer?;
    assert_moved(&answer);
    let source = &answer.operation()["result"]["source"];
    assert_eq!(source["fate"], "left-behind", "{source:#}");
    assert!(warnings(answer.operation()).contains("ead-only file system"), "{:#}", answer.last());
    let stays = "nfs/read-only-root.qcow2".to_owned();
    stand.goes_on_with(&[stays, "vf-a/read-only-data".into(), "vf-b/read-only-root".into()])?;
    assert_eq!(stand.place(Disk::VDA)?, "rbd:vf-b/read-only-root");
    std::fs::remove_file(nfs.join("read-only-root.qcow2")).expect("the source is there");
    assert_eq!(volumes_of(&stand.lab, "read-only")?.len(), 2);
    stand.end()
}
