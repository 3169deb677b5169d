//! The disks of a writing guest become encrypted, move on encrypted, get another passphrase and are plain again. It is
//! started from every place they were at, and in the end every acknowledged write is there. What is wrong with a secret,
//! a passphrase or a header ends a move with its own code and leaves nothing behind.

mod common;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::secrets::{Secrets, talkative};
use common::stand::{SLOW, Stand, assert_refused, warnings};
use common::{Outcome, assert_moved, prove, volumes_of};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use volferry_tests::agent::Answer;
use volferry_tests::lab::{LabError, output};

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

fn unlimited(stand: &Stand, id: &str) -> Outcome {
    assert_eq!(stand.agent.volferry(&["ops", "set-bandwidth", id, "none"])?.code, 0);
    Ok(())
}

#[test]
fn a_writing_guest_moves_encrypted_and_starts_from_every_place() -> Outcome {
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

    // Plain to encrypted: image to file, and file to image.
    let first = ["--dest-passphrase-file", one.as_str(), ACCEPT[0], ACCEPT[1]];
    let same = ["--passphrase-file", one.as_str(), ACCEPT[0], ACCEPT[1]];
    let other = ["--passphrase-file", one.as_str(), "--dest-passphrase-file", two.as_str()];
    moves(&stand, &secrets, "vdb", "nfs", &first)?;
    assert_eq!(encryption(&stand, "vdb")?.as_deref(), Some("luks"));
    let answer = moves(&stand, &secrets, "vda", "ceph-b", &first)?;
    assert!(warnings(answer.operation()).contains("occupy all"), "{:#}", answer.last());
    stand.stop_start(901)?;

    // Encrypted to encrypted: file to image, and image to image with another passphrase.
    moves(&stand, &secrets, "vdb", "ceph-b", &same)?;
    moves(&stand, &secrets, "vda", "ceph-a", &[&other[..], &ACCEPT[..]].concat())?;
    assert_eq!(stand.lab.secrets_of(&stand.name)?.len(), 2, "one for each disk");
    stand.guest.wait_for_acks(50)?;
    stand.guest.destroy()?;
    boots_as_defined(&stand)?;
    stand.lab.virsh(&["destroy", &stand.name])?;
    stand.guest.start(902)?;

    // Image to file while libvirtd dies and comes back; and plain again, image to image.
    let slow = ["--passphrase-file", two.as_str(), SLOW[0], SLOW[1]];
    let id = stand.copying("vda", "smp", &slow)?;
    let (daemon, mode) = (stand.lab.daemon().to_owned(), stand.lab.mode().to_owned());
    stand.lab.control(&["libvirtd-kill9", &daemon])?;
    stand.lab.control(&["libvirtd-start", &daemon, &mode])?;
    unlimited(&stand, &id)?;
    let operation = stand.agent.wait(&id)?;
    assert_eq!(operation["state"], "succeeded", "{operation:#}");
    assert_eq!(encryption(&stand, "vda")?.as_deref(), Some("luks"));
    moves(&stand, &secrets, "vdb", "ceph-a", &["--passphrase-file", one.as_str(), "--decrypt"])?;
    assert_eq!(encryption(&stand, "vdb")?, None);
    stand.stop_start(903)?;

    // And file to image.
    moves(&stand, &secrets, "vda", "ceph-b", &["--passphrase-file", two.as_str(), "--decrypt"])?;
    assert_eq!(encryption(&stand, "vda")?, None);
    assert_eq!(stand.lab.secrets_of(&stand.name)?, [""; 0], "the secrets went with their volumes");
    stand.stop_start(904)?;
    stand.guest.destroy()?;
    prove(&mut stand.guest)?;
    let left = ["vf-a/encrypted-data", "vf-b/encrypted-root"];
    assert_eq!(volumes_of(&stand.lab, &stand.name)?, left);

    secrets.end(&stand.agent);
    stand.guest.undefine()
}

/// Where a qcow2 header has the size, in bytes.
const QCOW2_SIZE: u64 = 24;

/// Begins a move to the pool `nfs` and changes something right after the new file got its content, while the agent
/// stands still: it has made the file and its secret, and has not opened the file again.
fn begin_and_change(
    stand: &Stand,
    more: &[&str],
    change: impl FnOnce(&Path, u64) -> Outcome + Send,
) -> Result<String, LabError> {
    let folder = stand.lab.pool("nfs")?.to_owned();
    let agent = i32::try_from(stand.agent.pid().expect("it runs")).expect("a process id");
    let agent = Pid::from_raw(agent);
    std::thread::scope(|scope| {
        let changed = scope.spawn(move || {
            let (file, size) = new_file(&folder);
            kill(agent, Signal::SIGSTOP).expect("it is ours");
            let changed = change(&file, size);
            kill(agent, Signal::SIGCONT).expect("it is ours");
            changed
        });
        let begun = stand.agent.begin(&stand.name, "vdb", "nfs", more);
        changed.join().expect("no panic")?;
        begun
    })
}

/// Waits for a new file of the agent's in a folder to have its content, and returns its size as the guest sees it.
fn new_file(folder: &Path) -> (PathBuf, u64) {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        for entry in fs::read_dir(folder).expect("the pool is there").flatten() {
            let ours = entry.file_name().to_string_lossy().starts_with(".volferry-");
            let Ok(file) = fs::File::open(entry.path()) else { continue };
            let mut head = [0; 32];
            if !ours || file.read_exact_at(&mut head, 0).is_err() || &head[..4] != b"QFI\xfb" {
                continue;
            }
            let size = u64::from_be_bytes(head[24..].try_into().expect("eight bytes"));
            return (entry.path(), size);
        }
        assert!(Instant::now() < until, "no new file in {}", folder.display());
        #[allow(clippy::disallowed_methods, reason = "a folder is polled, with a bound")]
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_is_wrong_with_secrets_passphrases_and_sizes_is_told_and_leaves_nothing() -> Outcome {
    let mut stand = Stand::new("sealed", 910)?;
    let secrets = Secrets::watch(&stand.lab, &stand.name)?;
    let (one, two) = (secrets.file(0), secrets.file(1));
    let first = ["--dest-passphrase-file", one.as_str()];
    let nothing_left = |stand: &Stand| -> Outcome {
        stand.goes_on_with(&stand.untouched())?;
        assert_eq!(stand.lab.secrets_of(&stand.name)?, [""; 0]);
        Ok(())
    };

    // A destination that holds a sector more or less behind its header than the guest sees is not pivoted to.
    for sectors in [1_i64, -1] {
        let id = begin_and_change(&stand, &first, |path, size| {
            let size = size.checked_add_signed(512 * sectors).expect("a size");
            let file = fs::File::options().write(true).open(path).expect("it is there");
            file.write_all_at(&size.to_be_bytes(), QCOW2_SIZE).expect("it can be written");
            Ok(())
        })?;
        let text = stand.fails(&id, "size-mismatch")?;
        println!("{sectors} sectors: {text}");
        nothing_left(&stand)?;
    }

    // The destination's secret is deleted before the copy starts.
    let id = begin_and_change(&stand, &first, |_, _| {
        for uuid in stand.lab.secrets_of(&stand.name)? {
            stand.lab.virsh(&["secret-undefine", &uuid])?;
        }
        Ok(())
    })?;
    let text = stand.fails(&id, "secret-needed")?;
    println!("secret deleted: {text}");
    nothing_left(&stand)?;

    // Deleted while the copy runs, it is missed at the guest's next start only, which is told.
    let id = stand.copying("vdb", "nfs", &[&first[..], &SLOW[..]].concat())?;
    let [secret] = &stand.lab.secrets_of(&stand.name)?[..] else { panic!("one secret") };
    stand.lab.virsh(&["secret-undefine", secret])?;
    unlimited(&stand, &id)?;
    let operation = stand.agent.wait(&id)?;
    assert_eq!(operation["state"], "succeeded", "{operation:#}");
    assert!(warnings(&operation).contains("does not start again"), "{operation:#}");

    // The next move has its passphrase from the request and makes a secret of its own.
    let moved = ["nfs/sealed-root.qcow2".to_owned(), "vf-b/sealed-data".to_owned()];
    moves(
        &stand,
        &secrets,
        "vdb",
        "ceph-b",
        &["--passphrase-file", one.as_str(), ACCEPT[0], ACCEPT[1]],
    )?;
    stand.goes_on_with(&moved)?;
    stand.stop_start(911)?;

    // A passphrase that does not open the source.
    let wrong = ["--passphrase-file", two.as_str(), ACCEPT[0], ACCEPT[1]];
    let refused = stand.agent.migrate(&stand.name, "vdb", "ceph-a", &wrong)?;
    assert_refused(&secrets.silent(refused), "wrong-passphrase");
    // A source that holds a sector more behind its header than the guest sees.
    let right = ["--passphrase-file", one.as_str(), ACCEPT[0], ACCEPT[1]];
    let length = image_length(&stand, "vf-b/sealed-data")?;
    resize(&stand, "vf-b/sealed-data", length + 512)?;
    let refused = stand.agent.migrate(&stand.name, "vdb", "ceph-a", &right)?;
    assert_refused(&secrets.silent(refused), "size-mismatch");
    resize(&stand, "vf-b/sealed-data", length)?;
    stand.goes_on_with(&moved)?;
    assert_eq!(stand.lab.secrets_of(&stand.name)?.len(), 1);

    moves(&stand, &secrets, "vdb", "ceph-a", &["--passphrase-file", one.as_str(), "--decrypt"])?;
    nothing_left(&stand)?;
    secrets.end(&stand.agent);
    stand.end()
}

fn image_length(stand: &Stand, image: &str) -> Result<u64, LabError> {
    let info = stand.lab.rbd(&["info", "--format", "json", image])?;
    let info: serde_json::Value = serde_json::from_str(&info).expect("rbd prints JSON");
    Ok(info["size"].as_u64().expect("an image has a size"))
}

/// The guest's QEMU does it for us: it has the image's lock.
fn resize(stand: &Stand, image: &str, length: u64) -> Outcome {
    let conf = stand.lab.setting("VOLFERRY_LAB_CEPH_CONF")?;
    let mut command = std::process::Command::new("rbd");
    command.args(["-c", conf, "--id", "volferry", "resize", "--no-progress", "--allow-shrink"]);
    output(command.args(["--size", &format!("{length}B"), image])).map(drop)
}
