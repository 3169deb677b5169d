//! Sources that stand on a template: a qcow2 overlay and an RBD clone. The move copies the whole disk, so that the
//! template can be deleted and the guest still starts.

mod common;

use common::{Outcome, guest_on, lab, move_disk, prove};
use volferry_tests::agent::Agent;
use volferry_tests::guest::Disk;
use volferry_tests::lab::{Base, Volume};

#[test]
fn an_overlay_moves_whole_and_its_template_can_go() -> Outcome {
    let lab = lab("overlay");
    let nfs = lab.pool("nfs")?.to_owned();
    let template = nfs.join("overlay-template.qcow2");
    let root = Volume::overlay(nfs.join("overlay-root.qcow2"), &template);
    let root = lab.create(Base::Root, &root)?;
    let data = lab.create(Base::Data, &Volume::rbd("vf-a", "overlay-data"))?;
    let agent = Agent::start(&lab, "overlay")?;
    let mut guest = guest_on(&lab, "overlay", root, data, true)?;
    guest.start(300)?;
    guest.wait_for_acks(100)?;
    move_disk(&lab, &agent, &mut guest, Disk::VDA, "ceph-b")?;
    assert!(template.exists(), "the template is not the agent's to remove");
    std::fs::remove_file(&template).expect("the template can be removed");
    guest.wait_for_acks(100)?;
    guest.destroy()?;
    prove(&mut guest)?;
    guest.start_to_verify_boot(301)?;
    guest.destroy()?;
    guest.undefine()
}

#[test]
fn a_clone_moves_whole_and_its_template_can_go() -> Outcome {
    let lab = lab("clone");
    let root = lab.create(Base::Root, &Volume::clone_of("vf-a", "clone-root", "clone-template"))?;
    let data = lab.create(Base::Data, &Volume::rbd("vf-a", "clone-data"))?;
    let agent = Agent::start(&lab, "clone")?;
    let mut guest = guest_on(&lab, "clone", root, data, true)?;
    guest.start(310)?;
    guest.wait_for_acks(100)?;
    move_disk(&lab, &agent, &mut guest, Disk::VDA, "ceph-b")?;
    // Succeeds only because nothing depends on the template any more.
    lab.rbd(&["snap", "unprotect", "vf-a/clone-template@base"]).ok();
    lab.rbd(&["snap", "purge", "--no-progress", "vf-a/clone-template"])?;
    lab.remove(&Volume::rbd("vf-a", "clone-template"))?;
    guest.wait_for_acks(100)?;
    guest.destroy()?;
    prove(&mut guest)?;
    guest.start_to_verify_boot(311)?;
    guest.destroy()?;
    guest.undefine()
}
