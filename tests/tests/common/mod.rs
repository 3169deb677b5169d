//! What the lab tests share: a guest of one's own, a move that must succeed, and the proof afterwards.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod cloudstack;
pub mod faults;
pub mod management;
pub mod pairs;
pub mod secrets;
pub mod stand;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;
use volferry_tests::agent::{Agent, Answer};
use volferry_tests::guest::Disk;
use volferry_tests::lab::{Base, Guest, Lab, LabError, Place, Spec, Volume, watchdog};

pub type Outcome = Result<(), LabError>;

/// The lab, which these tests cannot do without, without anything an earlier run left of `name`.
pub fn lab(name: &str) -> Lab {
    clean(Lab::from_env().expect("the lab is up: `make test-lab` brings it up"), name)
}

/// The same with the libvirt and QEMU of another release.
pub fn lab_of(release: &str, name: &str) -> Result<Lab, LabError> {
    Ok(clean(Lab::from_env()?.of_release(release)?, name))
}

fn clean(lab: Lab, name: &str) -> Lab {
    watchdog::begin(&lab, name);
    lab.build_images().expect("the guest's images can be built");
    lab.sweep(name).expect("what an earlier run left can be removed");
    lab
}

/// The path of a file with this passphrase, which nobody else may read.
pub fn passphrase_file(lab: &Lab, word: &str) -> Result<String, LabError> {
    let folder = lab.dir()?.join("passphrases");
    fs::create_dir_all(&folder).expect("the lab's folder can be written");
    // The end tells them apart and is no secret.
    let file = folder.join(&word[word.len() - 4..]);
    fs::write(&file, word).expect("the folder was just made");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
    Ok(file.display().to_string())
}

/// A guest whose two disks start as qcow2 files of the pool `nfs`.
pub fn guest_on_files(lab: &Lab, name: &str, persistent: bool) -> Result<Guest, LabError> {
    let nfs = lab.pool("nfs")?.to_owned();
    let root = lab.create(Base::Root, &Volume::qcow2(nfs.join(format!("{name}-root.qcow2"))))?;
    let data = lab.create(Base::Data, &Volume::qcow2(nfs.join(format!("{name}-data.qcow2"))))?;
    guest_on(lab, name, root, data, persistent)
}

/// A guest on these volumes.
pub fn guest_on(
    lab: &Lab,
    name: &str,
    root: Volume,
    data: Volume,
    persistent: bool,
) -> Result<Guest, LabError> {
    let spec = Spec::new(name, root, data).monitored();
    Guest::create(lab, if persistent { spec } else { spec.transient() })
}

/// The volume a pool of the lab's configuration gives a moved disk.
pub fn expected(lab: &Lab, pool: &str, stem: &str) -> Result<Volume, LabError> {
    Ok(match pool {
        "ceph-a" => Volume::rbd("vf-a", stem),
        "ceph-b" => Volume::rbd("vf-b", stem),
        folder => Volume::qcow2(lab.pool(folder)?.join(format!("{stem}.qcow2"))),
    })
}

/// The folder of a pool that keeps sources for a time.
pub const TRASH: &str = ".volferry-trash";

/// How many secrets of volumes libvirt has.
pub fn secrets_of_volumes(lab: &Lab) -> Result<usize, LabError> {
    let list = lab.virsh(&["secret-list"])?;
    Ok(list.lines().filter(|line| line.contains(" volume ")).count())
}

/// Names of everything in the lab's pools that belongs to the guest of this name, the agent's own included.
pub fn volumes_of(lab: &Lab, name: &str) -> Result<Vec<String>, LabError> {
    lab.volumes_of(name)
}

/// Moves a disk and holds the answer against what a move promises.
pub fn move_disk(
    lab: &Lab,
    agent: &Agent,
    guest: &mut Guest,
    disk: Disk,
    to: &str,
) -> Result<Answer, LabError> {
    let before = guest.volume(disk)?;
    let stem = stem_of(&before);
    let answer = agent.migrate(guest.name(), &disk.to_string(), to, &[])?;
    assert_moved(&answer);
    let operation = answer.operation();
    let now = expected(lab, to, &stem)?;
    assert_eq!(guest.volume(disk)?.spec(), now.spec(), "libvirt names the destination");
    assert_eq!(operation["result"]["source"]["fate"], "removed", "{operation:#}");
    assert!(!lab.exists(&before)?, "the source {} is gone", before.spec());
    assert_eq!(operation["place"], "destination");
    assert_eq!(operation["warnings"], Value::Array(vec![]), "{operation:#}");
    guest.set_volume(disk, now);
    Ok(answer)
}

/// The answer of a move that succeeded.
pub fn assert_moved(answer: &Answer) {
    assert_eq!(answer.code, 0, "{} {:#}", answer.stderr, answer.last());
    assert_eq!(answer.operation()["state"], "succeeded", "{:#}", answer.last());
}

/// The name of a volume without its image suffix.
pub fn stem_of(volume: &Volume) -> String {
    let name = match &volume.place {
        Place::File(path) => path.file_name().expect("a file name").to_string_lossy().into_owned(),
        Place::Rbd { image, .. } => image.clone(),
    };
    name.trim_end_matches(".qcow2").to_owned()
}

/// Stops the guest, proves that every acknowledged write is where its disks now are, and starts it from there.
pub fn stop_prove_start(guest: &mut Guest, seed: u64) -> Outcome {
    guest.wait_for_acks(100)?;
    guest.destroy()?;
    prove(guest)?;
    guest.start(seed)?;
    guest.wait_for_acks(100)?;
    Ok(())
}

/// Every acknowledged write of the stopped guest is on its disks, and nothing else changed.
pub fn prove(guest: &mut Guest) -> Outcome {
    let report = guest.verify()?;
    println!(
        "{}: {} acknowledged writes, {} sectors checked, {} missing, {} unexpected",
        guest.name(),
        report.acknowledged,
        report.checked,
        report.missing,
        report.unexpected
    );
    assert!(report.is_good() && report.acknowledged > 0, "{report:#?}");
    Ok(())
}

/// Asks again while the watch of the guest's last QEMU, or what is left of its end, lasts.
pub fn patiently<T>(mut ask: impl FnMut() -> Result<T, String>) -> T {
    let mut last = String::new();
    for _ in 0..45 {
        match ask() {
            Ok(answer) => return answer,
            Err(text) if text.contains("volume-in-use") => last = text,
            Err(text) => panic!("{text}"),
        }
        #[allow(
            clippy::disallowed_methods,
            reason = "a watch ends unannounced; the wait is bounded"
        )]
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    panic!("it stays in use: {last}");
}
