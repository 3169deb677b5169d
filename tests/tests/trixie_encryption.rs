//! Images that librbd encrypts (LUKS2), on a libvirt and a QEMU of Debian 13 that can copy into them: the disks of a
//! writing guest go in, move on from there, and come out again, and the guest is started from every place they were at.
//! The agent runs in the same root, with its librbd and its qemu-img.

mod common;

use common::stand::Stand;
use common::{Outcome, assert_moved, lab_of, passphrase_file, prove, volumes_of};
use serde_json::Value;
use volferry_tests::guest::Disk;
use volferry_tests::lab::LabError;

const NAME: &str = "trixie";

/// Moves both disks at once; each with the pool it goes to and what the request says besides.
fn move_both(stand: &Stand, moves: [(Disk, &str, &[&str]); 2]) -> Result<[Value; 2], LabError> {
    let begin = |(disk, to, more): (Disk, &str, &[&str])| {
        stand.agent.begin(&stand.name, &disk.to_string(), to, more)
    };
    let [first, second] = moves.map(begin);
    let ended = [stand.agent.wait(&first?)?, stand.agent.wait(&second?)?];
    for operation in &ended {
        assert_eq!(operation["state"], "succeeded", "{operation:#}");
        assert_eq!(operation["result"]["source"]["fate"], "removed", "{operation:#}");
    }
    stand.guest.wait_for_acks(20)?;
    Ok(ended)
}

/// The live XML encrypts the disk with this format and engine, and the answer says the same.
fn is(stand: &mut Stand, disk: Disk, operation: &Value, scheme: &str) -> Outcome {
    assert_eq!(operation["result"]["encryption"], scheme, "{operation:#}");
    let found = stand.guest.volume(disk)?.encryption.expect("it is encrypted");
    let wanted = match scheme {
        "luks2-librbd" => ("luks2", "librbd"),
        _ => ("luks", "qemu"),
    };
    assert_eq!((found.format.as_str(), found.engine.as_deref().unwrap_or("qemu")), wanted);
    stand.lab.virsh(&["secret-dumpxml", &found.secret]).map(drop)
}

#[test]
fn a_writing_guest_moves_into_librbds_encryption_and_starts_from_there() -> Outcome {
    let lab = lab_of("trixie", NAME)?;
    let one = passphrase_file(&lab, "sesame-open-4711")?;
    let two = passphrase_file(&lab, "sesame-shut-4712")?;
    let mut stand = Stand::on(lab, NAME, 950)?;
    let (a, b) = (Disk::VDA, Disk::VDB);
    let fresh = ["--dest-passphrase-file", one.as_str()];
    let same = ["--passphrase-file", one.as_str()];

    // A file into librbd's encryption, which needs no word of acceptance where it works; an image into a file, which
    // QEMU encrypts.
    let [on_a, on_b] = move_both(&stand, [(a, "ceph-b", &fresh), (b, "smp", &fresh)])?;
    is(&mut stand, a, &on_a, "luks2-librbd")?;
    is(&mut stand, b, &on_b, "luks1-qemu")?;
    let host = stand.agent.volferry(&["host"])?;
    assert_eq!(host.last()["luks2_librbd"], "works", "{:#}", host.last());
    stand.stop_start(951)?;

    // To another image of its kind; and from QEMU's encryption to librbd's, with another passphrase.
    let rekeyed = ["--passphrase-file", one.as_str(), "--dest-passphrase-file", two.as_str()];
    let [on_a, on_b] = move_both(&stand, [(a, "ceph-a", &same), (b, "ceph-b", &rekeyed)])?;
    is(&mut stand, a, &on_a, "luks2-librbd")?;
    is(&mut stand, b, &on_b, "luks2-librbd")?;
    stand.stop_start(952)?;

    // From librbd's to QEMU's, and to none at all.
    let plain = ["--passphrase-file", two.as_str(), "--decrypt"];
    let [on_a, _] = move_both(&stand, [(a, "nfs", &same), (b, "ceph-a", &plain)])?;
    is(&mut stand, a, &on_a, "luks1-qemu")?;
    assert_eq!(stand.guest.volume(b)?.encryption, None);
    stand.stop_start(953)?;

    // The other one is plain again too: every acknowledged write of every boot is there.
    let plain = ["--passphrase-file", one.as_str(), "--decrypt"];
    assert_moved(&stand.agent.migrate(NAME, "vda", "ceph-b", &plain)?);
    stand.stop_start(954)?;
    stand.guest.destroy()?;
    prove(&mut stand.guest)?;
    let left = [format!("vf-a/{NAME}-data"), format!("vf-b/{NAME}-root")];
    assert_eq!(volumes_of(&stand.lab, NAME)?, left);
    assert_eq!(stand.lab.secrets_of(NAME)?, [""; 0]);
    stand.guest.undefine()
}
