//! The disks of a writing guest become encrypted, move on encrypted, get another passphrase and are plain again. It is
//! started from what it was moved to while both are encrypted, and in the end every acknowledged write is there.

mod common;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::secrets::{Secrets, talkative};
use common::stand::{Stand, assert_refused};
use common::{Outcome, assert_moved, prove, secrets_of_volumes, volumes_of};
use volferry_tests::agent::Answer;
use volferry_tests::lab::LabError;

const ACCEPT: [&str; 2] = ["--accept-encryption", "luks1-qemu"];

fn moves(
    stand: &Stand,
    secrets: &Secrets,
    disk: &str,
    to: &str,
    more: &[&str],
) -> Result<Answer, LabError> {
    let answer = secrets.silent(stand.agent.migrate(&stand.name, disk, to, more)?);
    assert_moved(&answer);
    assert_eq!(answer.operation()["result"]["source"]["fate"], "removed");
    stand.guest.wait_for_acks(20)?;
    Ok(answer)
}

/// How a disk is encrypted by the live XML, and that libvirt has the secret it names.
fn encryption(stand: &Stand, target: &str) -> Result<Option<String>, LabError> {
    let xml = stand.lab.virsh(&["dumpxml", &stand.name])?;
    let wanted = format!("<target dev='{target}'");
    let disk = xml.split("<disk ").find(|part| part.contains(&wanted)).unwrap_or_default();
    let Some((_, rest)) = disk.split_once("<encryption format='") else { return Ok(None) };
    let (_, secret) = rest.split_once("uuid='").expect("it names its secret");
    let uuid = secret.split('\'').next().unwrap_or_default();
    stand.lab.virsh(&["secret-dumpxml", uuid])?;
    Ok(rest.split('\'').next().map(str::to_owned))
}

/// Starts the guest from its stored definition, to read both disks from end to end. The console of the boot before
/// holds what the guest was promised, so this one has a file of its own.
fn boots_as_defined(stand: &Stand) -> Outcome {
    let stored = stand.lab.virsh(&["dumpxml", "--inactive", &stand.name])?;
    let again =
        stored.replace("/serial-", "/again-").replace("vf.mode=write", "vf.mode=verify-boot");
    let (_, rest) = again.split_once("<source path='").expect("it has a console");
    let console = PathBuf::from(rest.split('\'').next().unwrap_or_default());
    let file = stand.lab.dir()?.join(format!("{}-again.xml", stand.name));
    fs::write(&file, &again).expect("the lab's folder can be written");
    stand.lab.virsh(&["define", &file.display().to_string()])?;
    fs::remove_file(&file).expect("it was just written");
    stand.lab.virsh(&["start", &stand.name])?;
    let until = Instant::now() + Duration::from_secs(180);
    while !fs::read_to_string(&console).is_ok_and(|text| text.contains("BOOT-OK")) {
        assert!(Instant::now() < until, "it does not boot: {}", console.display());
        #[allow(
            clippy::disallowed_methods,
            reason = "the guest's console is polled, with a bound"
        )]
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

#[test]
fn a_writing_guest_moves_encrypted_and_starts_from_there() -> Outcome {
    let mut stand = Stand::new("encrypted", 900)?;
    let secrets = Secrets::watch(&stand.lab, &stand.name)?;
    talkative(&mut stand.agent)?;
    let (one, two) = (secrets.file(0), secrets.file(1));

    // On Ceph, librbd's LUKS2 is the default: where it cannot be copied into, that is said in words.
    let by_itself = ["--dest-passphrase-file", one.as_str()];
    let asked = stand.agent.migrate(&stand.name, "vda", "ceph-b", &by_itself)?;
    assert_refused(&secrets.silent(asked), "encryption-unsupported");
    let host = stand.agent.volferry(&["host"])?;
    let librbd = host.last()["luks2_librbd"].as_str().unwrap_or_default().to_owned();
    assert!(librbd.starts_with("fails: "), "{librbd}");

    let first = ["--dest-passphrase-file", one.as_str(), ACCEPT[0], ACCEPT[1]];
    let same = ["--passphrase-file", one.as_str(), ACCEPT[0], ACCEPT[1]];
    let other = ["--passphrase-file", one.as_str(), "--dest-passphrase-file", two.as_str()];
    moves(&stand, &secrets, "vdb", "nfs", &first)?;
    assert_eq!(encryption(&stand, "vdb")?.as_deref(), Some("luks"));
    let wrong = ["--passphrase-file", two.as_str(), ACCEPT[0], ACCEPT[1]];
    let refused = stand.agent.migrate(&stand.name, "vdb", "ceph-b", &wrong)?;
    assert_refused(&secrets.silent(refused), "wrong-passphrase");
    let answer = moves(&stand, &secrets, "vdb", "ceph-b", &same)?;
    let warnings = answer.operation()["warnings"].to_string();
    assert!(warnings.contains("occupy all"), "{warnings}");
    moves(&stand, &secrets, "vdb", "ceph-a", &[&other[..], &ACCEPT[..]].concat())?;
    moves(&stand, &secrets, "vda", "ceph-b", &first)?;
    assert_eq!(secrets_of_volumes(&stand.lab)?, 2, "one for each disk");

    stand.guest.wait_for_acks(50)?;
    stand.guest.destroy()?;
    boots_as_defined(&stand)?;
    for (disk, file) in [("vdb", &two), ("vda", &one)] {
        let plain = ["--passphrase-file", file.as_str(), "--decrypt"];
        let answer = stand.agent.migrate(&stand.name, disk, "smp", &plain)?;
        assert_moved(&answer);
        assert_eq!(encryption(&stand, disk)?, None);
    }
    assert_eq!(secrets_of_volumes(&stand.lab)?, 0, "the secrets went with their volumes");
    stand.lab.virsh(&["destroy", &stand.name])?;
    prove(&mut stand.guest)?;
    let left = ["smp/encrypted-data.qcow2", "smp/encrypted-root.qcow2"];
    assert_eq!(volumes_of(&stand.lab, &stand.name)?, left);

    secrets.end(&stand.agent);
    stand.guest.undefine()
}
