//! The disks of a writing guest become encrypted, move on encrypted, get another passphrase and are plain again. It is
//! started from what it was moved to while both are encrypted, and in the end every acknowledged write is there.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::stand::{Stand, assert_refused};
use common::{Outcome, assert_moved, prove, volumes_of};
use volferry_tests::agent::Answer;
use volferry_tests::lab::{Lab, LabError};

/// Words that must be nowhere but in the files of the passphrases.
const WORDS: [&str; 2] = ["sesame-open-4711", "sesame-shut-4712"];
const ACCEPT: [&str; 2] = ["--accept-encryption", "luks1-qemu"];

/// A file with each of the passphrases.
fn files(lab: &Lab) -> Result<[String; 2], LabError> {
    let folder = lab.dir()?.join("passphrases");
    fs::create_dir_all(&folder).expect("the lab's folder can be written");
    Ok(WORDS.map(|word| {
        let file = folder.join(word.len().to_string() + &word[7..11]);
        fs::write(&file, word).expect("the folder was just made");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
        file.display().to_string()
    }))
}

/// Looks at every command line of the host until it is stopped.
struct Watch {
    stop: Arc<AtomicBool>,
    found: JoinHandle<(usize, BTreeSet<String>)>,
}

impl Watch {
    fn start() -> Watch {
        let stop = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&stop);
        let found = std::thread::spawn(move || {
            let (mut looks, mut found) = (0, BTreeSet::new());
            while !over.load(Ordering::Relaxed) {
                for entry in fs::read_dir("/proc").expect("Linux has it").flatten() {
                    let Ok(line) = fs::read(entry.path().join("cmdline")) else { continue };
                    if WORDS.iter().any(|word| holds(&line, word)) {
                        found.insert(String::from_utf8_lossy(&line).into_owned());
                    }
                }
                looks += 1;
                #[allow(clippy::disallowed_methods, reason = "samples are taken in even steps")]
                std::thread::sleep(Duration::from_millis(20));
            }
            (looks, found)
        });
        Watch { stop, found }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let (looks, found) = self.found.join().expect("no panic");
        assert!(looks > 10, "only {looks} looks");
        assert!(found.is_empty(), "{found:?}");
    }
}

fn holds(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|window| window == word.as_bytes())
}

/// Files below a folder that hold a passphrase or the key of the lab's Ceph user.
fn leaks(folder: &Path, key: &str, found: &mut Vec<PathBuf>, seen: &mut usize) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            leaks(&path, key, found, seen);
        } else if let Ok(bytes) = fs::read(&path) {
            *seen += 1;
            if WORDS.into_iter().chain([key]).any(|word| holds(&bytes, word)) {
                found.push(path);
            }
        }
    }
}

fn moves(stand: &Stand, disk: &str, to: &str, more: &[&str]) -> Result<Answer, LabError> {
    let answer = stand.agent.migrate(&stand.name, disk, to, more)?;
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

/// Secrets of volumes in libvirt.
fn secrets(stand: &Stand) -> Result<usize, LabError> {
    let list = stand.lab.virsh(&["secret-list"])?;
    Ok(list.lines().filter(|line| line.contains(" volume ")).count())
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
    let [one, two] = files(&stand.lab)?;
    let watch = Watch::start();

    // On Ceph, librbd's LUKS2 is the default: where it cannot be copied into, that is said in words.
    let by_itself = ["--dest-passphrase-file", one.as_str()];
    let asked = stand.agent.migrate(&stand.name, "vda", "ceph-b", &by_itself)?;
    assert_refused(&asked, "encryption-unsupported");
    let host = stand.agent.volferry(&["host"])?;
    let librbd = host.last()["luks2_librbd"].as_str().unwrap_or_default().to_owned();
    assert!(librbd.starts_with("fails: "), "{librbd}");

    let first = ["--dest-passphrase-file", one.as_str(), ACCEPT[0], ACCEPT[1]];
    let same = ["--passphrase-file", one.as_str(), ACCEPT[0], ACCEPT[1]];
    let other = ["--passphrase-file", one.as_str(), "--dest-passphrase-file", two.as_str()];
    moves(&stand, "vdb", "nfs", &first)?;
    assert_eq!(encryption(&stand, "vdb")?.as_deref(), Some("luks"));
    let wrong = ["--passphrase-file", two.as_str(), ACCEPT[0], ACCEPT[1]];
    let refused = stand.agent.migrate(&stand.name, "vdb", "ceph-b", &wrong)?;
    assert_refused(&refused, "wrong-passphrase");
    let answer = moves(&stand, "vdb", "ceph-b", &same)?;
    let warnings = answer.operation()["warnings"].to_string();
    assert!(warnings.contains("occupy all"), "{warnings}");
    moves(&stand, "vdb", "ceph-a", &[&other[..], &ACCEPT[..]].concat())?;
    moves(&stand, "vda", "ceph-b", &first)?;
    assert_eq!(secrets(&stand)?, 2, "one for each disk");

    stand.guest.wait_for_acks(50)?;
    stand.guest.destroy()?;
    boots_as_defined(&stand)?;
    for (disk, file) in [("vdb", &two), ("vda", &one)] {
        let plain = ["--passphrase-file", file.as_str(), "--decrypt"];
        let answer = stand.agent.migrate(&stand.name, disk, "smp", &plain)?;
        assert_moved(&answer);
        assert_eq!(encryption(&stand, disk)?, None);
    }
    assert_eq!(secrets(&stand)?, 0, "the secrets went with their volumes");
    watch.end();

    stand.lab.virsh(&["destroy", &stand.name])?;
    prove(&mut stand.guest)?;
    let left = ["smp/encrypted-data.qcow2", "smp/encrypted-root.qcow2"];
    assert_eq!(volumes_of(&stand.lab, &stand.name)?, left);

    let key = fs::read_to_string(stand.lab.setting("VOLFERRY_LAB_KEY_FILE")?).expect("a key");
    let (mut found, mut seen) = (Vec::new(), 0);
    let folder = stand.lab.dir()?.join("agents").join(&stand.name);
    leaks(&folder, key.trim(), &mut found, &mut seen);
    assert!(seen > 2, "only {seen} files below {}", folder.display());
    assert!(found.is_empty(), "{found:?}");
    stand.guest.undefine()
}
