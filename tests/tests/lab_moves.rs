//! A writing guest's disks go from qcow2 to RBD, to another RBD pool and back to qcow2, with a stop and a start after
//! every leg: a wrong format, name or stored definition shows only then.

mod common;

use common::{
    Outcome, cloudstack, expected, guest_on_files, lab, move_disk, prove, stem_of,
    stop_prove_start, volumes_of,
};
use volferry_tests::agent::Agent;
use volferry_tests::guest::Disk;
use volferry_tests::lab::{Guest, Lab};

/// The data disk goes by the word of a CloudStack management server, whose volume keeps its name.
fn moved_by_cloudstack(
    lab: &Lab,
    agent: &Agent,
    guest: &mut Guest,
    (from, to): (&str, &str),
) -> Outcome {
    let before = guest.volume(Disk::VDB)?;
    let (stem, file) = (stem_of(&before), !from.starts_with("ceph"));
    let (path, format) =
        if file { (format!("{stem}.qcow2"), "QCOW2") } else { (stem.clone(), "RAW") };
    let command = cloudstack::migrate(lab, guest.name(), (from, &path, format), to)?;
    let (exit, answer) = cloudstack::run(lab, agent, &command)?;
    assert_eq!((exit, answer["result"].as_bool()), (0, Some(true)), "{answer:#}");
    let name = if to.starts_with("ceph") { stem.clone() } else { format!("{stem}.qcow2") };
    assert_eq!(answer["volumePath"], name.as_str(), "{answer:#}");
    assert!(answer["details"].is_null(), "{answer:#}");
    let now = expected(lab, to, &stem)?;
    assert_eq!(guest.volume(Disk::VDB)?.spec(), now.spec(), "libvirt names the destination");
    assert!(!lab.exists(&before)?, "the source {} is gone", before.spec());
    guest.set_volume(Disk::VDB, now);
    // It is not there any more.
    let (exit, answer) = cloudstack::run(lab, agent, &command)?;
    assert_eq!((exit, answer["result"].as_bool()), (1, Some(false)), "{answer:#}");
    Ok(())
}

fn three_legs(lab: &Lab, name: &str, persistent: bool, seed: u64) -> Outcome {
    let agent = Agent::start(lab, name)?;
    let mut guest = guest_on_files(lab, name, persistent)?;
    guest.start(seed)?;
    guest.wait_for_acks(100)?;
    let way = ["nfs", "ceph-a", "ceph-b", "smp"];
    for (leg, pair) in (1..).zip(way.windows(2)) {
        let (from, to) = (pair[0], pair[1]);
        move_disk(lab, &agent, &mut guest, Disk::VDA, to)?;
        match persistent {
            true => drop(move_disk(lab, &agent, &mut guest, Disk::VDB, to)?),
            // Domains of CloudStack are transient.
            false => moved_by_cloudstack(lab, &agent, &mut guest, (from, to))?,
        }
        stop_prove_start(&mut guest, seed + leg)?;
    }
    guest.destroy()?;
    prove(&mut guest)?;
    guest.undefine()?;
    let left = volumes_of(lab, name)?;
    let expected = [format!("smp/{name}-data.qcow2"), format!("smp/{name}-root.qcow2")];
    assert_eq!(left, expected, "nothing but the two volumes is left");
    Ok(())
}

#[test]
fn a_persistent_guest_moves_through_all_three_pairs() -> Outcome {
    three_legs(&lab("persistent"), "persistent", true, 100)
}

#[test]
fn a_transient_guest_moves_through_all_three_pairs() -> Outcome {
    three_legs(&lab("transient"), "transient", false, 200)
}
