//! The file system of the agent's journal gets full, on a writing guest: before the pivot nothing has happened, after
//! it the move has succeeded, and wherever in between the answer is true.

mod common;

use common::faults::StateDisk;
use common::stand::{Stand, warnings};
use common::{Outcome, lab, volumes_of};
use serde_json::Value;
use volferry_tests::agent::Setup;
use volferry_tests::guest::Disk;
use volferry_tests::lab::LabError;

/// The words the agent has for a journal that takes nothing.
const TOLD: &str = "journal could not be written";

fn other(pool: &str) -> &'static str {
    if pool == "a" { "b" } else { "a" }
}

/// What became of a pivot for which the journal had so much room.
#[derive(Debug, Default)]
struct Seen {
    not_taken: u32,
    failed: u32,
    not_on_record: u32,
    succeeded: u32,
}

#[test]
fn wherever_the_journal_gets_full_the_answer_is_true() -> Outcome {
    let lab = lab("full-journal");
    let disk = StateDisk::mount(&lab, "full-journal")?;
    let setup = Setup { state: Some(disk.path().to_owned()), ..Setup::default() };
    let mut stand = Stand::with(lab, "full-journal", 950, setup)?;
    let old = stand.lab.virsh(&["dumpxml", "--inactive", "full-journal"])?;
    let (mut at, mut seen) = ("a", Seen::default());
    for room in [0, 6, 12, 16, 20, 24, 28, 32, 36, 40, 48] {
        // A journal without history grows with every write.
        disk.forget(&mut stand)?;
        let to = other(at);
        if trial(&mut stand, &disk, at, to, room, &mut seen)? {
            at = to;
        }
        if seen.not_on_record > 0 && seen.succeeded > 0 {
            break;
        }
    }
    println!("{seen:?}");
    assert!(seen.not_taken > 0 && seen.failed > 0 && seen.not_on_record > 0, "{seen:?}");
    if at == "b" {
        stand.old_definition_does_not_start(&old, 951)?;
    }
    // The next life tells the same.
    stand.agent.kill();
    stand.agent.run()?;
    let listed = stand.agent.volferry(&["ops", "list", "--running"])?;
    assert_eq!(listed.last()["operations"], serde_json::json!([]), "{:#}", listed.last());
    stand.end()
}

/// Gives the word to pivot while the journal has room for so many blocks; true when the disk has moved.
fn trial(
    stand: &mut Stand,
    disk: &StateDisk,
    at: &str,
    to: &str,
    room: usize,
    seen: &mut Seen,
) -> Result<bool, LabError> {
    let from = format!("rbd:vf-{at}/full-journal-data");
    let before = volumes_of(&stand.lab, "full-journal")?;
    let id = stand.at_ready("vdb", &format!("ceph-{to}"))?;
    disk.fill(room);
    if stand.agent.volferry(&["ops", "pivot", &id])?.code != 0 {
        // The word was not taken: nothing has changed, and a cancel needs no journal.
        seen.not_taken += 1;
        assert_eq!(stand.agent.operation(&id)?["waits_for_pivot"], true);
        assert_eq!(stand.place(Disk::VDB)?, from);
        assert_eq!(stand.agent.volferry(&["ops", "cancel", &id])?.code, 0);
        let ended = stand.agent.wait(&id)?;
        assert_eq!((&ended["state"], &ended["place"]), (&"cancelled".into(), &"source".into()));
        disk.free();
        stand.goes_on_with(&before)?;
        return Ok(false);
    }
    let over = |operation: &Value| {
        let state = operation["state"].as_str().unwrap_or_default();
        ["cleaning", "succeeded", "failed"].contains(&state)
    };
    let on_the_way = stand.agent.until(&id, "its end or the pivot", over)?;
    // The first one that is not on record is left without room to its end.
    let to_the_end = seen.not_on_record == 0 && on_the_way["state"] != "failed";
    if !to_the_end {
        disk.free();
    }
    let ended = stand.agent.wait(&id)?;
    println!("room {room}: {} {}", ended["state"], warnings(&ended));
    if ended["state"] == "failed" {
        seen.failed += 1;
        assert_eq!(ended["failure"]["cause"], "internal", "{ended:#}");
        assert_eq!(stand.place(Disk::VDB)?, from);
        stand.goes_on_with(&before)?;
        return Ok(false);
    }
    assert_eq!(ended["state"], "succeeded", "{ended:#}");
    assert_eq!(stand.place(Disk::VDB)?, format!("rbd:vf-{to}/full-journal-data"));
    let told = warnings(&ended).contains(TOLD);
    if to_the_end {
        disk.free();
    }
    if told && ended["result"]["source"]["fate"] == "left-behind" {
        seen.not_on_record += 1;
        removed_later(stand, &id)?;
    } else {
        seen.succeeded += 1;
        assert_eq!(ended["result"]["source"]["fate"], "removed", "{ended:#}");
    }
    let data = format!("vf-{to}/full-journal-data");
    stand.goes_on_with(&["nfs/full-journal-root.qcow2".to_owned(), data])?;
    Ok(true)
}

/// The end is written down as soon as that is possible, with the record of what is left.
fn removed_later(stand: &Stand, id: &str) -> Outcome {
    let leftover = format!("{id}-source");
    let listed = (0..200).any(|_| {
        let listed = stand.agent.volferry(&["leftovers", "list"]);
        listed.is_ok_and(|listed| listed.last().to_string().contains(&leftover))
    });
    assert!(listed, "the record of {leftover}");
    let gone = stand.agent.volferry(&["leftovers", "retry", &leftover])?;
    assert_eq!(gone.code, 0, "{}", gone.stderr);
    Ok(())
}
