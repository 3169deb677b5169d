//! QEMU as its own user, as distributions run it, with libvirt changing owners and without: one leg of each file
//! route, with a stop and a start after it.

mod common;

use std::os::unix::fs::MetadataExt;

use common::{Outcome, guest_on_files, lab, move_disk, prove, stop_prove_start};
use volferry_tests::agent::Agent;
use volferry_tests::guest::Disk;

fn both_file_routes(daemon: &str, mode: &str, seed: u64) -> Outcome {
    let lab = lab(daemon).with_libvirtd(daemon, mode)?;
    let agent = Agent::start(&lab, daemon)?;
    let mut guest = guest_on_files(&lab, daemon, true)?;
    guest.start(seed)?;
    guest.wait_for_acks(100)?;
    move_disk(&lab, &agent, &mut guest, Disk::VDB, "ceph-a")?;
    stop_prove_start(&mut guest, seed + 1)?;
    move_disk(&lab, &agent, &mut guest, Disk::VDB, "smp")?;
    let file = lab.pool("smp")?.join(format!("{daemon}-data.qcow2"));
    let owner = std::fs::metadata(&file).expect("the destination is there").uid();
    assert_ne!(owner, 0, "QEMU's user owns the destination, not the agent's");
    stop_prove_start(&mut guest, seed + 2)?;
    guest.destroy()?;
    prove(&mut guest)?;
    guest.undefine()?;
    lab.control(&["libvirtd-stop", daemon]).map(drop)
}

#[test]
fn libvirt_changes_the_owner_of_files() -> Outcome {
    both_file_routes("dynamic", "qemu", 400)
}

#[test]
fn libvirt_leaves_the_owner_of_files_alone() -> Outcome {
    both_file_routes("static", "qemu-static", 410)
}
