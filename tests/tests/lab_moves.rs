//! A writing guest's disks go from qcow2 to RBD, to another RBD pool and back to qcow2, with a stop and a start after
//! every leg: a wrong format, name or stored definition shows only then.

mod common;

use common::{Outcome, guest_on_files, lab, move_disk, prove, stop_prove_start, volumes_of};
use volferry_tests::agent::Agent;
use volferry_tests::guest::Disk;
use volferry_tests::lab::Lab;

fn three_legs(lab: &Lab, name: &str, persistent: bool, seed: u64) -> Outcome {
    let agent = Agent::start(lab, name)?;
    let mut guest = guest_on_files(lab, name, persistent)?;
    guest.start(seed)?;
    guest.wait_for_acks(100)?;
    for (leg, to) in (1..).zip(["ceph-a", "ceph-b", "smp"]) {
        for disk in [Disk::VDA, Disk::VDB] {
            move_disk(lab, &agent, &mut guest, disk, to)?;
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
