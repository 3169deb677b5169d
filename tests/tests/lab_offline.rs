//! Volumes nobody uses, on real storage: every ordered pair of two Ceph pools and two file pools, a stopped guest that
//! starts from where its disk went, and one that is started while its disk is copied.

mod common;

use std::process::Command;

use common::pairs::{MIB, POOLS, WAY, asked, identical, reference, volume};
use common::secrets::Secrets;
use common::stand::{Stand, assert_refused, copied};
use common::{Outcome, assert_moved, cloudstack, lab, patiently, prove, volumes_of};
use volferry_tests::agent::{Agent, Answer};
use volferry_tests::guest::Disk;
use volferry_tests::lab::{Lab, LabError, Volume, output};

/// What is written of the volume that goes every way.
const WRITTEN_MIB: u64 = 40;

/// Bytes a volume occupies.
fn allocated(lab: &Lab, volume: &Volume) -> Result<u64, LabError> {
    let spec = volume.spec();
    if let Some(name) = spec.strip_prefix("rbd:") {
        let text = lab.rbd(&["du", "--format", "json", name])?;
        let seen: serde_json::Value = serde_json::from_str(&text).expect("rbd prints JSON");
        return Ok(seen["images"][0]["used_size"].as_u64().expect("a number"));
    }
    let blocks = output(Command::new("stat").args(["--format", "%b", &spec]))?;
    Ok(blocks.trim().parse::<u64>().expect("a number of blocks") * 512)
}

/// No file for a copy and no half-made volume is left of an agent.
fn no_trace(lab: &Lab, agent: &Agent, name: &str) -> Outcome {
    let folder = agent.log().with_file_name("state").join("copies");
    let left = std::fs::read_dir(&folder).expect("the folder of copies").count();
    assert_eq!(left, 0, "{}", folder.display());
    let left = volumes_of(lab, name)?;
    assert!(left.iter().all(|volume| !volume.contains(".volferry-")), "{left:?}");
    Ok(())
}

#[test]
fn a_volume_goes_every_ordered_pair_of_pools_and_stays_what_it_was() -> Outcome {
    const NAME: &str = "pairs";
    let lab = lab(NAME);
    let agent = Agent::start(&lab, NAME)?;
    let mut now = volume(&lab, WAY[0], "pairs-0")?;
    let reference = reference(&lab, NAME, &now, 256, WRITTEN_MIB)?;
    let secrets = Secrets::watch(&lab, NAME)?;
    for (leg, pair) in WAY.windows(2).enumerate() {
        let (stem, next) = (format!("pairs-{leg}"), format!("pairs-{}", leg + 1));
        let (source, format) = asked(pair[0], &stem);
        let to = POOLS[pair[1]];
        let request = ["migrate", "--volume", &source, "--format", format, "--to", to];
        let named: Vec<&str> = [&request[..], &["--destination-volume", &next]].concat();
        let answer = secrets.silent(agent.volferry(&named)?);
        assert_moved(&answer);
        let operation = answer.operation();
        assert_eq!(operation["result"]["source"]["fate"], "removed", "{operation:#}");
        assert_eq!(operation["warnings"], serde_json::json!([]), "{operation:#}");
        assert!(operation["domain"].is_null(), "{operation:#}");
        assert!(!lab.exists(&now)?, "the source is gone");
        now = volume(&lab, pair[1], &next)?;
        identical(&lab, &now, &reference)?;
        let occupies = allocated(&lab, &now)?;
        println!("{} to {to}: identical, {occupies} bytes occupied", POOLS[pair[0]]);
        // Thin stays thin: what is written, in whole objects, and the header.
        assert!(occupies <= (WRITTEN_MIB + 16) * MIB, "{occupies}");
    }
    copied_by_cloudstack(&lab, &agent, &now, &reference)?;
    assert!(secrets.end(&agent) > 0, "no copy was seen running");
    no_trace(&lab, &agent, NAME)?;
    lab.remove(&now)?;
    std::fs::remove_file(&reference).expect("it was made here");
    Ok(())
}

/// A management server of CloudStack has a new volume made of it, and removes the old one itself.
fn copied_by_cloudstack(
    lab: &Lab,
    agent: &Agent,
    source: &Volume,
    reference: &std::path::Path,
) -> Outcome {
    let name = source.spec().rsplit_once('/').expect("an image").1.to_owned();
    let from = cloudstack::volume(lab, "ceph-a", Some(&name), "RAW")?;
    let command = cloudstack::copy(from, cloudstack::volume(lab, "nfs", None, "RAW")?);
    let (exit, answer) = cloudstack::run(lab, agent, &command)?;
    assert_eq!((exit, answer["result"].as_bool()), (0, Some(true)), "{answer:#}");
    let new = &answer["newData"]["org.apache.cloudstack.storage.to.VolumeObjectTO"];
    let path = new["path"].as_str().expect("a path");
    assert_eq!(new["format"], "QCOW2", "{answer:#}");
    assert!(lab.exists(source)?, "the source is the management server's to remove");
    let now = Volume::qcow2(lab.pool("nfs")?.join(path));
    identical(lab, &now, reference)?;
    lab.remove(&now)?;
    Ok(())
}

fn moved(stand: &Stand, disk: &str, to: &str) -> Answer {
    patiently(|| match stand.agent.migrate(&stand.name, disk, to, &[]) {
        Ok(answer) if answer.code == 3 => Err(answer.stderr),
        answer => answer.map_err(|error| error.to_string()),
    })
}

/// Begins a copy that takes long enough to be looked at.
fn begun(stand: &Stand, disk: &str, to: &str) -> String {
    let more = ["--bandwidth", "8MiB/s"];
    patiently(|| stand.agent.begin(&stand.name, disk, to, &more).map_err(|error| error.to_string()))
}

#[test]
fn a_stopped_guests_disks_move_offline_and_it_starts_from_there() -> Outcome {
    let mut stand = Stand::new("stopped", 900)?;
    let legs = [(Disk::VDA, "smp"), (Disk::VDB, "ceph-b"), (Disk::VDA, "ceph-a")];
    for (seed, (disk, to)) in (901..).zip(legs) {
        stand.guest.wait_for_acks(50)?;
        stand.guest.destroy()?;
        let target = disk.to_string();
        assert_refused(&stand.agent.migrate("stopped", &target, to, &["--live"])?, "not-running");
        let before = stand.guest.volume(disk)?;
        assert_moved(&moved(&stand, &target, to));
        assert!(!stand.lab.exists(&before)?, "the source {} is gone", before.spec());
        let now = stand.guest.volume(disk)?;
        assert_ne!(now.spec(), before.spec(), "the stored definition names the destination");
        stand.guest.set_volume(disk, now);
        prove(&mut stand.guest)?;
        stand.guest.start(seed)?;
    }
    starts_before_it_is_flat(&mut stand, 904)?;
    no_trace(&stand.lab, &stand.agent, "stopped")?;
    stand.end()
}

/// Within one cluster the guest starts as soon as its disk has moved, and writes while it is made independent.
fn starts_before_it_is_flat(stand: &mut Stand, seed: u64) -> Outcome {
    stand.guest.wait_for_acks(50)?;
    stand.guest.destroy()?;
    let before = stand.guest.volume(Disk::VDB)?;
    let id = patiently(|| {
        stand.agent.begin(&stand.name, "vdb", "ceph-a", &[]).map_err(|error| error.to_string())
    });
    let moved = ["moved", "cleaning", "succeeded"];
    let view = stand.agent.until(&id, "moved", |operation| {
        operation["state"].as_str().is_some_and(|state| moved.contains(&state))
    })?;
    println!("started as {}, depends on {}", view["state"], view["result"]["depends_on"]);
    let now = stand.guest.volume(Disk::VDB)?;
    stand.guest.set_volume(Disk::VDB, now.clone());
    stand.guest.start(seed)?;
    stand.guest.wait_for_acks(50)?;
    let operation = stand.agent.wait(&id)?;
    assert_eq!(operation["state"], "succeeded", "{operation:#}");
    assert_eq!(operation["warnings"], serde_json::json!([]), "{operation:#}");
    assert!(operation["result"]["depends_on"].is_null(), "{operation:#}");
    assert!(!stand.lab.exists(&before)?, "the source {} is gone", before.spec());
    let spec = now.spec();
    let name = spec.strip_prefix("rbd:").expect("an image");
    let text = stand.lab.rbd(&["info", "--format", "json", name])?;
    let info: serde_json::Value = serde_json::from_str(&text).expect("rbd prints JSON");
    assert!(info["parent"].is_null(), "{info}");
    stand.guest.destroy()?;
    prove(&mut stand.guest)?;
    stand.guest.start(seed + 1)?;
    Ok(())
}

#[test]
fn a_guest_started_at_half_of_the_copy_keeps_its_volume() -> Outcome {
    let mut stand = Stand::new("started", 950)?;
    let untouched = stand.untouched();
    for (seed, disk) in (951..).zip([Disk::VDA, Disk::VDB]) {
        stand.guest.wait_for_acks(50)?;
        stand.guest.destroy()?;
        let id = begun(&stand, &disk.to_string(), "smp");
        stand.agent.until(&id, "half of the copy", |operation| {
            let total = operation["progress"]["total_bytes"].as_u64().unwrap_or(0);
            total > 0 && copied(operation) * 2 >= total
        })?;
        stand.guest.start(seed)?;
        let text = stand.fails(&id, "volume-in-use")?;
        assert!(text.contains("started"), "{text}");
        stand.goes_on_with(&untouched)?;
    }
    no_trace(&stand.lab, &stand.agent, "started")?;
    stand.end()
}

#[test]
fn an_agent_killed_in_the_middle_of_a_copy_starts_it_over() -> Outcome {
    let mut stand = Stand::new("again", 980)?;
    stand.guest.wait_for_acks(50)?;
    stand.guest.destroy()?;
    let id = begun(&stand, "vda", "ceph-b");
    stand.agent.until(&id, "copying", |operation| copied(operation) > 0)?;
    stand.agent.kill();
    stand.agent.run()?;
    let operation = stand.agent.wait(&id)?;
    assert_eq!(operation["state"], "succeeded", "{operation:#}");
    let now = stand.guest.volume(Disk::VDA)?;
    stand.guest.set_volume(Disk::VDA, now);
    prove(&mut stand.guest)?;
    stand.guest.start(981)?;
    no_trace(&stand.lab, &stand.agent, "again")?;
    stand.end()
}
