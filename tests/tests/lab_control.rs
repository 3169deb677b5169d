//! Steering an operation while it runs, on a writing guest: cancel, the word to pivot, the limit, the same request
//! again, a busy disk, refusals.

mod common;

use common::management::{Management, OPERATOR, WATCHER};
use common::{Outcome, assert_moved, expected, guest_on_files, lab, prove, stem_of, volumes_of};
use volferry_tests::agent::{Agent, Setup};
use volferry_tests::guest::Disk;
use volferry_tests::lab::{Guest, Lab, LabError};

const SLOW: [&str; 2] = ["--bandwidth", "4MiB/s"];

fn begin(name: &str, seed: u64) -> Result<(Lab, Agent, Guest), LabError> {
    begin_with(lab(name), name, seed, Setup::default())
}

fn begin_with(
    lab: Lab,
    name: &str,
    seed: u64,
    setup: Setup,
) -> Result<(Lab, Agent, Guest), LabError> {
    let agent = Agent::start_with(&lab, name, setup)?;
    let mut guest = guest_on_files(&lab, name, true)?;
    guest.start(seed)?;
    guest.wait_for_acks(50)?;
    Ok((lab, agent, guest))
}

fn end(lab: &Lab, mut guest: Guest, left: &[String]) -> Outcome {
    guest.wait_for_acks(50)?;
    guest.destroy()?;
    prove(&mut guest)?;
    guest.undefine()?;
    assert_eq!(volumes_of(lab, guest.name())?, left);
    Ok(())
}

fn untouched(name: &str) -> Vec<String> {
    vec![format!("nfs/{name}-data.qcow2"), format!("nfs/{name}-root.qcow2")]
}

#[test]
fn a_cancelled_copy_leaves_nothing_and_the_guest_writing() -> Outcome {
    let (lab, agent, guest) = begin("cancel-copying", 500)?;
    let id = agent.begin(guest.name(), "vdb", "ceph-a", &SLOW)?;
    agent.until(&id, "copying", |operation| {
        operation["progress"]["copied_bytes"].as_u64() > Some(0)
    })?;
    assert_eq!(agent.volferry(&["ops", "cancel", &id])?.code, 0);
    let operation = agent.wait(&id)?;
    assert_eq!(operation["state"], "cancelled", "{operation:#}");
    assert_eq!(operation["place"], "source");
    end(&lab, guest, &untouched("cancel-copying"))
}

#[test]
fn a_manual_pivot_waits_for_the_word_and_can_still_be_cancelled() -> Outcome {
    let (lab, agent, guest) = begin("manual", 510)?;
    let waits = |operation: &serde_json::Value| operation["waits_for_pivot"] == true;
    let id = agent.begin(guest.name(), "vdb", "ceph-a", &["--manual-pivot"])?;
    agent.until(&id, "waiting", waits)?;
    assert_eq!(agent.volferry(&["ops", "cancel", &id])?.code, 0);
    assert_eq!(agent.wait(&id)?["state"], "cancelled");

    let id = agent.begin(guest.name(), "vdb", "ceph-a", &["--manual-pivot"])?;
    agent.until(&id, "waiting", waits)?;
    guest.wait_for_acks(50)?;
    assert_eq!(agent.operation(&id)?["state"], "ready");
    assert_eq!(agent.volferry(&["ops", "pivot", &id])?.code, 0);
    let operation = agent.wait(&id)?;
    assert_eq!(operation["state"], "succeeded", "{operation:#}");
    let left = [format!("nfs/{}-root.qcow2", guest.name()), format!("vf-a/{}-data", guest.name())];
    end(&lab, guest, &left)
}

#[test]
fn the_limit_of_a_running_copy_changes() -> Outcome {
    let lab = lab("limit");
    let management = Management::new(&lab, "limit")?;
    let setup = Setup { tables: management.tables(), ..Setup::default() };
    let (lab, agent, mut guest) = begin_with(lab, "limit", 520, setup)?;
    let id = agent.begin(guest.name(), "vdb", "ceph-a", &["--bandwidth", "1MiB/s"])?;
    agent.until(&id, "copying", |operation| {
        operation["progress"]["copied_bytes"].as_u64() > Some(0)
    })?;
    let answer = agent.volferry(&["ops", "set-bandwidth", &id, "500MiB/s"])?;
    assert_eq!(answer.code, 0, "{}", answer.stderr);
    // At the old limit the disk would take minutes.
    let operation = agent.wait(&id)?;
    assert_eq!(operation["state"], "succeeded", "{operation:#}");
    let stem = stem_of(&guest.volume(Disk::VDB)?);
    guest.set_volume(Disk::VDB, expected(&lab, "ceph-a", &stem)?);
    moved_on_by_a_management_server(&agent, &management, &mut guest)?;
    guest.set_volume(Disk::VDB, expected(&lab, "ceph-b", &stem)?);
    let left = [format!("nfs/{}-root.qcow2", guest.name()), format!("vf-b/{}-data", guest.name())];
    end(&lab, guest, &left)
}

/// The worked client of the guide, in Python, over mutual TLS: it moves the disk on, and whoever may not, cannot.
fn moved_on_by_a_management_server(
    agent: &Agent,
    management: &Management,
    guest: &mut Guest,
) -> Outcome {
    let refused = management.refused()?;
    let words = ["--domain", guest.name(), "--disk", "vdb", "--to", "ceph-b"];
    let watcher = management.migrate(WATCHER, &["--operation-id", "python-0"], &words)?;
    assert_eq!(watcher.0, 3, "{}", watcher.2);
    assert!(
        watcher.2.contains("refused: not-allowed: client watcher.lab has the role observe"),
        "{}",
        watcher.2
    );
    let (code, operation, told) =
        management.migrate(OPERATOR, &["--operation-id", "python-1"], &words)?;
    println!("{told}");
    assert_eq!(code, 0, "{told}");
    assert_eq!(operation["state"], "STATE_SUCCEEDED", "{operation:#}");
    assert_eq!(operation["result"]["pool"], "ceph-b");
    assert!(told.contains("STATE_SUCCEEDED"), "{told}");
    // The same request finds the same operation, finished, and moves nothing.
    let (code, again, told) =
        management.migrate(OPERATOR, &["--operation-id", "python-1"], &words)?;
    assert_eq!(
        (code, &again["id"], &again["state"]),
        (0, &operation["id"], &operation["state"]),
        "{told}"
    );
    for (what, mut child) in refused {
        let code = child.wait().expect("our own child").code();
        assert_eq!(code, Some(5), "{what}");
    }
    let log = std::fs::read_to_string(agent.log()).expect("the log");
    for part in [
        "why=\"peer sent no certificates\"",
        "why=\"invalid peer certificate: certificate expired",
        "why=\"invalid peer certificate: UnknownIssuer\"",
        "call=\"Migrate\" outcome=\"not-allowed\" client=\"watcher.lab\"",
        "call=\"Migrate\" outcome=\"ok\" client=\"operator.lab\"",
    ] {
        assert!(log.contains(part), "{log}\nlacks {part}");
    }
    Ok(())
}

#[test]
fn the_same_request_is_the_same_operation_and_another_is_refused() -> Outcome {
    let (lab, agent, guest) = begin("again", 530)?;
    let request = ["--operation-id", "again-1", "--bandwidth", "4MiB/s"];
    let id = agent.begin(guest.name(), "vdb", "ceph-a", &request)?;
    assert_eq!(id, "again-1");
    assert_eq!(agent.begin(guest.name(), "vdb", "ceph-a", &request)?, id);
    let other = agent.migrate(guest.name(), "vdb", "ceph-b", &["--detach"])?;
    assert_eq!(other.code, 3, "{}", other.stderr);
    assert!(other.stderr.contains("busy") && other.stderr.contains(&id), "{}", other.stderr);
    assert_eq!(agent.volferry(&["ops", "cancel", &id])?.code, 0);
    assert_eq!(agent.wait(&id)?["state"], "cancelled");
    let again = agent.migrate(guest.name(), "vdb", "ceph-a", &request)?;
    assert_eq!(again.code, 4, "the operation that was cancelled, not a new one: {}", again.stderr);
    end(&lab, guest, &untouched("again"))
}

#[test]
fn refusals_name_their_code_and_change_nothing() -> Outcome {
    let (lab, agent, mut guest) = begin("refusals", 540)?;
    let name = guest.name().to_owned();
    let stem = stem_of(&guest.volume(Disk::VDB)?);
    lab.rbd(&["create", &format!("vf-b/{stem}"), "--size", "1M"])?;
    for (domain, disk, to, code) in [
        ("nobody", "vda", "ceph-a", "domain-not-found"),
        (name.as_str(), "vdz", "ceph-a", "disk-not-found"),
        (name.as_str(), "vdb", "nowhere", "pool-unknown"),
        (name.as_str(), "vdb", "smp", "file-to-file"),
        (name.as_str(), "vdb", "ceph-b", "destination-exists"),
    ] {
        let answer = agent.migrate(domain, disk, to, &[])?;
        assert_eq!(answer.code, 3, "{code}: {}", answer.stderr);
        assert!(answer.stderr.contains(code), "{code}: {}", answer.stderr);
        let plan = agent.volferry(&["plan", domain, disk, "--to", to])?;
        assert_eq!(plan.code, 3, "{code}: {}", plan.stderr);
        assert_eq!(plan.last()["refusal"]["code"], code, "{:#}", plan.last());
    }
    lab.rbd(&["rm", "--no-progress", &format!("vf-b/{stem}")])?;
    lab.virsh(&["suspend", &name])?;
    let paused = agent.migrate(&name, "vdb", "ceph-a", &[])?;
    assert!(paused.code == 3 && paused.stderr.contains("not-running"), "{}", paused.stderr);
    lab.virsh(&["resume", &name])?;
    let plan = agent.volferry(&["plan", &name, "vdb", "--to", "ceph-a"])?;
    assert_eq!(plan.code, 0, "{}", plan.stderr);
    assert_eq!(plan.last()["flags"], serde_json::json!(["REUSE_EXT", "TRANSIENT_JOB"]));
    end(&lab, guest, &untouched("refusals"))
}

#[test]
fn a_killed_agent_takes_its_copy_up_again() -> Outcome {
    let (lab, mut agent, guest) = begin("reborn", 550)?;
    let id = agent.begin(guest.name(), "vdb", "ceph-a", &SLOW)?;
    agent.until(&id, "copying", |operation| {
        operation["progress"]["copied_bytes"].as_u64() > Some(0)
    })?;
    agent.kill();
    agent.run()?;
    let answer = agent.volferry(&["ops", "set-bandwidth", &id, "500MiB/s"])?;
    assert_eq!(answer.code, 0, "{}", answer.stderr);
    let answer = agent.volferry(&["ops", "watch", &id])?;
    assert_moved(&answer);
    let left = [format!("nfs/{}-root.qcow2", guest.name()), format!("vf-a/{}-data", guest.name())];
    end(&lab, guest, &left)
}
