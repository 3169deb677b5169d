//! What becomes of the source, and what else a request may wish, on a writing guest: kept for a time, kept under its
//! name, its snapshots deleted; a pool of libvirt's; new limits for the disk.

mod common;

use std::fs;

use common::stand::{Stand, assert_refused, warnings};
use common::{Outcome, TRASH, assert_moved, lab};
use serde_json::Value;
use volferry_tests::agent::{Answer, Setup};
use volferry_tests::guest::Disk;

fn source(answer: &Answer) -> &Value {
    &answer.operation()["result"]["source"]
}

fn id(answer: &Answer) -> &str {
    answer.operation()["id"].as_str().expect("an id")
}

#[test]
fn a_source_in_the_trash_is_restored_or_goes_when_it_is_due() -> Outcome {
    let setup = Setup { keys: "source_retention = \"20s\"\n".to_owned(), ..Setup::default() };
    let mut stand = Stand::with(lab("trash"), "trash", 920, setup)?;
    let nfs = stand.lab.pool("nfs")?.to_owned();

    // A file: beside its pool's others, out of reach of an old definition, and back by the words of the answer.
    let old = stand.lab.virsh(&["dumpxml", "--inactive", "trash"])?;
    let moved = stand.agent.migrate("trash", "vda", "ceph-b", &[])?;
    assert_moved(&moved);
    assert_eq!(source(&moved)["fate"], "trashed", "{:#}", moved.last());
    assert!(source(&moved)["until"].is_string(), "{:#}", moved.last());
    let kept = format!("trash-root.qcow2.moved-{}", id(&moved));
    let in_trash = format!("nfs/{TRASH}/{kept}");
    stand.goes_on_with(&[in_trash.clone(), "vf-a/trash-data".into(), "vf-b/trash-root".into()])?;
    stand.old_definition_does_not_start(&old, 921)?;
    let way_back = source(&moved)["reason"].as_str().unwrap_or_default();
    assert!(way_back.contains("mv ") && way_back.contains(&kept), "{way_back}");
    let listed = stand.agent.volferry(&["leftovers", "list"])?;
    assert!(listed.last().to_string().contains(&kept), "{:#}", listed.last());

    // An image: in the trash of its pool, from where the cluster gives it back.
    let second = stand.agent.migrate("trash", "vdb", "ceph-b", &[])?;
    assert_moved(&second);
    assert_eq!(source(&second)["fate"], "trashed", "{:#}", second.last());
    let name = format!("trash-data.moved-{}", id(&second));
    let trash = stand.lab.rbd(&["trash", "ls", "vf-a"])?;
    let line = trash.lines().find(|line| line.ends_with(&name));
    let (image, _) = line.and_then(|line| line.split_once(' ')).expect("it is in the trash");
    let refused = stand.lab.rbd(&["trash", "rm", "--no-progress", &format!("vf-a/{image}")]);
    assert!(refused.is_err(), "it is kept for a time");
    let way_back = source(&second)["reason"].as_str().unwrap_or_default();
    assert!(way_back.contains("rbd trash restore") && way_back.contains(image), "{way_back}");
    stand.lab.rbd(&["trash", "restore", "--pool", "vf-a", image])?;
    let restored = format!("vf-a/{name}");
    stand.goes_on_with(&[
        in_trash.clone(),
        restored.clone(),
        "vf-b/trash-data".into(),
        "vf-b/trash-root".into(),
    ])?;
    stand.lab.rbd(&["rm", "--no-progress", &restored])?;

    // What is due goes by itself, at the latest when the agent starts again; nothing else does.
    stand.guest.wait_for_acks(50)?;
    let due = |stand: &Stand| {
        let early = stand.agent.volferry(&["leftovers", "list"])?;
        Ok::<_, volferry_tests::lab::LabError>(!early.last().to_string().contains(&kept))
    };
    assert!(nfs.join(TRASH).join(&kept).exists() && !due(&stand)?, "not before its time");
    #[allow(clippy::disallowed_methods, reason = "the retention passes in real time, unannounced")]
    std::thread::sleep(std::time::Duration::from_secs(20));
    stand.agent.kill();
    stand.agent.run()?;
    for _ in 0..200 {
        if due(&stand)? {
            break;
        }
    }
    assert!(!nfs.join(TRASH).join(&kept).exists(), "it was due");
    stand.goes_on_with(&["vf-b/trash-data".into(), "vf-b/trash-root".into()])?;
    let _ = fs::remove_dir(nfs.join(TRASH));
    stand.end()
}

#[test]
fn what_a_request_wishes_beside_the_move_is_done() -> Outcome {
    let stand = Stand::new("wishes", 930)?;
    // A checkpoint nobody has is no permission.
    let mistaken =
        stand.agent.migrate("wishes", "vdb", "ceph-b", &["--allow-checkpoint-loss", "weekly"])?;
    assert_refused(&mistaken, "invalid-name");

    // Its snapshots deleted, the source goes too; the limits are those of the running and of the stored disk.
    for name in ["daily", "weekly"] {
        let snapshot = format!("vf-a/wishes-data@{name}");
        stand.lab.rbd(&["snap", "create", "--no-progress", &snapshot])?;
    }
    let limits = ["--iotune", "total_iops_sec=5000,total_bytes_sec=200MiB"];
    let words = ["--delete-source-snapshots", limits[0], limits[1]];
    let planned = stand
        .agent
        .volferry(&[&["plan", "wishes", "vdb", "--to", "ceph-b"], &words[..]].concat())?;
    let steps = planned.last()["steps"].to_string();
    assert!(steps.contains("daily, weekly") && steps.contains("total_iops_sec=5000"), "{steps}");
    let moved = stand.agent.migrate("wishes", "vdb", "ceph-b", &words)?;
    assert_moved(&moved);
    assert_eq!(source(&moved)["fate"], "removed", "{:#}", moved.last());
    for which in [&["dumpxml", "wishes"][..], &["dumpxml", "--inactive", "wishes"]] {
        let xml = stand.lab.virsh(which)?;
        for limit in [
            "<total_iops_sec>5000</total_iops_sec>",
            "<total_bytes_sec>209715200</total_bytes_sec>",
        ] {
            assert!(xml.contains(limit), "{limit}: {xml}");
        }
    }
    stand.goes_on_with(&["nfs/wishes-root.qcow2".into(), "vf-b/wishes-data".into()])?;

    // Under its very name, as was wished, and said to be so.
    let kept = stand.agent.migrate("wishes", "vda", "ceph-b", &["--keep-source-name"])?;
    assert_moved(&kept);
    assert_eq!(source(&kept)["fate"], "kept", "{:#}", kept.last());
    assert!(warnings(kept.operation()).contains("old record can still boot"), "{:#}", kept.last());
    let nfs = "nfs/wishes-root.qcow2".to_owned();
    let root = "vf-b/wishes-root".to_owned();
    stand.goes_on_with(&[nfs.clone(), "vf-b/wishes-data".into(), root.clone()])?;
    fs::remove_file(stand.lab.pool("nfs")?.join("wishes-root.qcow2")).expect("it is there");
    stand.goes_on_with(&["vf-b/wishes-data".into(), root])?;
    stand.end()
}

#[test]
fn an_active_pool_of_libvirt_is_a_destination_and_a_source() -> Outcome {
    let mut stand = Stand::new("of-libvirt", 940)?;
    let folder = stand.lab.dir()?.join("pools").join("of-libvirt");
    // What an earlier run left.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the lab's folder can be written");
    let target = folder.display().to_string();
    let pools = stand.lab.virsh(&["pool-list", "--name"])?;
    if !pools.lines().any(|name| name.trim() == "of-libvirt") {
        stand.lab.virsh(&["pool-create-as", "of-libvirt", "dir", "--target", &target])?;
    }
    let listed = stand.agent.volferry(&["pools"])?;
    let listed = listed.last()["pools"].as_array().cloned().unwrap_or_default();
    let ours = listed.iter().find(|pool| pool["name"] == "of-libvirt").expect("it is listed");
    assert_eq!((&ours["of_libvirt"], &ours["problem"]), (&Value::Bool(true), &Value::Null));

    let moved = stand.agent.migrate("of-libvirt", "vdb", "of-libvirt", &["--keep-source"])?;
    assert_moved(&moved);
    let file = folder.join("of-libvirt-data.qcow2");
    // What is thin stays thin, against what the source occupied at the end.
    let kept = format!("vf-a/of-libvirt-data.moved-{}", id(&moved));
    let du = stand.lab.rbd(&["du", "--format", "json", &kept])?;
    let du: Value = serde_json::from_str(&du).unwrap_or_default();
    let used = du["images"][0]["used_size"].as_u64().expect("what the source occupies");
    let allocated = moved.operation()["result"]["allocated_bytes"].as_u64().expect("a size");
    println!("{used} bytes of the source, {allocated} of the destination");
    assert!(allocated <= used + used / 20 + (8 << 20), "{allocated} of {used}");
    stand.lab.rbd(&["rm", "--no-progress", &kept])?;
    assert_eq!(stand.place(Disk::VDB)?, file.display().to_string());
    stand.guest.wait_for_acks(50)?;
    let disks = stand.agent.volferry(&["disks", "of-libvirt"])?;
    assert!(disks.last().to_string().contains("\"pool\":\"of-libvirt\""), "{:#}", disks.last());
    assert_refused(&stand.agent.migrate("of-libvirt", "vdb", "smp", &[])?, "file-to-file");

    // And back, out of a folder that no pool of the configuration has.
    assert_moved(&stand.agent.migrate("of-libvirt", "vdb", "ceph-b", &[])?);
    assert!(!file.exists(), "the source is gone");
    stand.goes_on_with(&["nfs/of-libvirt-root.qcow2".into(), "vf-b/of-libvirt-data".into()])?;
    stand.lab.virsh(&["pool-destroy", "of-libvirt"])?;
    assert_refused(&stand.agent.migrate("of-libvirt", "vdb", "of-libvirt", &[])?, "pool-unknown");
    fs::remove_dir_all(&folder).expect("nothing is left in it");
    stand.end()
}
