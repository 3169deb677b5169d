//! How much at a time and how fast, on writing guests: the order of the queue, and the rate that was asked for.

mod common;

use std::time::Instant;

use common::stand::{SLOW, Stand, copied};
use common::{Outcome, assert_moved, guest_on, lab, prove, volumes_of};
use serde_json::Value;
use volferry_tests::agent::Setup;
use volferry_tests::lab::{Base, LabError, Volume};

/// The instant an operation entered a state, as text that sorts by time.
fn entered(operation: &Value, state: &str) -> String {
    let phases = operation["phases"].as_array().expect("phases");
    let found = phases.iter().find(|phase| phase["state"] == state);
    let found = found.unwrap_or_else(|| panic!("never {state}: {operation:#}"));
    found["entered"].as_str().expect("a time").to_owned()
}

#[test]
fn operations_wait_and_run_in_their_order() -> Outcome {
    let setup = Setup { limits: "operations_per_host = 1\n".to_owned(), ..Setup::default() };
    let stand = Stand::with(lab("queue"), "queue", 900, setup)?;
    let lab = stand.lab.clone();
    lab.sweep("queued")?;
    let root = lab.create(Base::Root, &Volume::rbd("vf-b", "queued-root"))?;
    let data = lab.create(Base::Data, &Volume::rbd("vf-a", "queued-data"))?;
    let mut other = guest_on(&lab, "queued", root, data, true)?;
    other.start(901)?;

    let first = stand.copying("vda", "ceph-b", &SLOW)?;
    let second = stand.agent.begin("queue", "vdb", "ceph-b", &[])?;
    let third = stand.agent.begin("queued", "vdb", "smp", &[])?;
    for (id, place) in [(&second, "place 1"), (&third, "place 2")] {
        let queued = stand.agent.operation(id)?;
        assert_eq!(queued["state"], "queued", "{queued:#}");
        let detail = queued["detail"].as_str().unwrap_or_default();
        assert!(detail.contains("takes 1 at a time") && detail.contains(place), "{detail}");
    }
    let listed = stand.agent.volferry(&["ops", "list", "--running"])?;
    assert_eq!(
        listed.last()["operations"].as_array().map(Vec::len),
        Some(3),
        "{:#}",
        listed.last()
    );
    // What waits has changed nothing, and its disk is taken all the same.
    assert!(!volumes_of(&lab, "queued")?.contains(&"smp/queued-data.qcow2".to_owned()));
    let again = stand.agent.migrate("queue", "vdb", "smp", &[])?;
    assert!(again.code == 3 && again.stderr.contains(&second), "{}", again.stderr);

    assert_eq!(stand.agent.volferry(&["ops", "set-bandwidth", &first, "none"])?.code, 0);
    let ended = [&first, &second, &third].map(|id| stand.agent.wait(id));
    let ended: Vec<Value> = ended.into_iter().collect::<Result<_, LabError>>()?;
    for operation in &ended {
        assert_eq!(operation["state"], "succeeded", "{operation:#}");
    }
    for pair in ended.windows(2) {
        let (before, after) = (entered(&pair[0], "succeeded"), entered(&pair[1], "planned"));
        assert!(before <= after, "{before} {after}");
    }
    other.wait_for_acks(50)?;
    other.destroy()?;
    prove(&mut other)?;
    other.undefine()?;
    lab.sweep("queued")?;
    stand.goes_on_with(&["vf-b/queue-data".into(), "vf-b/queue-root".into()])?;
    stand.end()
}

/// So many looks of the agent are one measurement.
const LOOKS: usize = 5;

/// Bytes copied per second by the clock of the test, once the limit is in force: the middle one of some looks, for a run
/// of zeroes passes at once, whatever the limit is.
fn rate(stand: &Stand, id: &str, limit: u64) -> Result<(f64, Value), LabError> {
    let far = |from: u64| move |operation: &Value| copied(operation) > from;
    let in_force = |operation: &Value| operation["bandwidth_bytes_per_second"] == limit;
    let from = copied(&stand.agent.until(id, "the limit", in_force)?);
    // What was copied before belongs to the limit before.
    let from = copied(&stand.agent.until(id, "a look", far(from))?);
    // From one look of the agent to another.
    let mut last = stand.agent.until(id, "a look", far(from))?;
    let mut clock = Instant::now();
    let mut rates = Vec::new();
    for _ in 0..LOOKS {
        let before = copied(&last);
        last = stand.agent.until(id, "another look", far(before))?;
        rates.push((copied(&last) - before) as f64 / clock.elapsed().as_secs_f64());
        clock = Instant::now();
    }
    rates.sort_by(f64::total_cmp);
    Ok((rates[LOOKS / 2], last))
}

#[test]
fn a_changed_limit_is_seen_in_the_rate() -> Outcome {
    let stand = Stand::new("rate", 910)?;
    let id = stand.copying("vdb", "ceph-b", &["--bandwidth", "4MiB/s"])?;
    for (limit, mib) in [(None, 4u32), (Some("16MiB/s"), 16), (Some("2MiB/s"), 2)] {
        if let Some(limit) = limit {
            let answer = stand.agent.volferry(&["ops", "set-bandwidth", &id, limit])?;
            assert_eq!(answer.code, 0, "{}", answer.stderr);
        }
        let (seen, operation) = rate(&stand, &id, u64::from(mib) << 20)?;
        let asked = f64::from(mib * (1 << 20));
        println!("limit {mib} MiB/s: {:.1} MiB/s seen", seen / f64::from(1u32 << 20));
        assert!((0.6..1.6).contains(&(seen / asked)), "{seen} of {asked}: {operation:#}");
        assert_eq!(operation["bandwidth_bytes_per_second"], u64::from(mib) << 20, "{operation:#}");
        let told = operation["progress"]["rate_bytes_per_second"].as_f64().unwrap_or_default();
        assert!((0.5..2.0).contains(&(told / asked)), "it says {told}: {operation:#}");
    }
    assert_eq!(stand.agent.volferry(&["ops", "set-bandwidth", &id, "none"])?.code, 0);
    let moved = stand.agent.volferry(&["ops", "watch", &id])?;
    assert_moved(&moved);
    stand.goes_on_with(&["nfs/rate-root.qcow2".into(), "vf-b/rate-data".into()])?;
    stand.end()
}
