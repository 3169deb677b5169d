//! Encrypted volumes nobody uses, on real storage: every ordered pair of two Ceph pools and two file pools from behind
//! one header to behind another; what does not open is refused; a stopped domain opens what its disk became; an agent
//! that is killed leaves nothing. Everywhere: nothing tells a passphrase.

mod common;

use std::path::Path;

use common::pairs::{POOLS, WAY, asked, identical, identical_behind, reference, volume};
use common::secrets::{Secrets, talkative};
use common::stand::{assert_refused, copied};
use common::{Outcome, assert_moved, lab, secrets_of_volumes, volumes_of};
use volferry_tests::agent::{Agent, Answer};
use volferry_tests::lab::{Lab, LabError};

const SIZE_MIB: u64 = 32;
const WRITTEN_MIB: u64 = 4;
/// The stem of the volumes that go from pool to pool.
const PAIRS: &str = "ciphers";

/// An agent that logs all it can.
fn agent(lab: &Lab, name: &str) -> Result<Agent, LabError> {
    let mut agent = Agent::start(lab, name)?;
    talkative(&mut agent)?;
    Ok(agent)
}

/// A volume on its way, as the next request has to name it.
struct Traveller {
    pool: usize,
    stem: String,
    scheme: Option<&'static str>,
    passphrase: usize,
}

impl Traveller {
    /// The words of a request to another pool, its passphrase apart.
    fn words(&self, to: &str, stem: &str) -> Vec<String> {
        let (source, format) = asked(self.pool, &self.stem);
        let mut words = vec!["migrate", "--volume", &source, "--format", format, "--to", to];
        words.extend(["--destination-volume", stem]);
        // Inside qcow2 only one header is possible.
        if let (Some(scheme), "raw") = (self.scheme, format) {
            words.extend(["--volume-encryption", scheme]);
        }
        words.into_iter().map(str::to_owned).collect()
    }
}

fn run(agent: &Agent, secrets: &Secrets, words: &[String]) -> Result<Answer, LabError> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Ok(secrets.silent(agent.volferry(&words)?))
}

#[test]
fn an_encrypted_volume_goes_every_ordered_pair_of_pools_and_stays_what_it_was() -> Outcome {
    const NAME: &str = PAIRS;
    let lab = lab(NAME);
    let agent = agent(&lab, NAME)?;
    let secrets = Secrets::watch(&lab, NAME)?;
    let plain = volume(&lab, 2, "ciphers-plain")?;
    let reference = reference(&lab, NAME, &plain, SIZE_MIB, WRITTEN_MIB)?;
    let mut now = Traveller { pool: 2, stem: "ciphers-plain".into(), scheme: None, passphrase: 0 };
    // It is encrypted on the way to where the way begins.
    for (leg, to) in WAY.into_iter().enumerate() {
        let stem = format!("ciphers-{leg}");
        let mut words = now.words(POOLS[to], &stem);
        if now.scheme.is_some() {
            words.extend(["--passphrase-file".into(), secrets.file(now.passphrase)]);
        }
        // Another one now and then, and at first.
        let passphrase = if leg % 3 == 2 { 1 - now.passphrase } else { now.passphrase };
        if now.scheme.is_none() || passphrase != now.passphrase {
            words.extend(["--dest-passphrase-file".into(), secrets.file(passphrase)]);
        }
        // librbd's keys take long to derive: from and to behind its header twice, QEMU's otherwise.
        let scheme = if matches!(leg, 1 | 8) { "luks2-librbd" } else { "luks1-qemu" };
        words.extend(["--accept-encryption".into(), scheme.into()]);
        // Compared by the agent as long as that is new, and by this test always.
        if leg > 2 {
            words.push("--no-compare".into());
        }
        let answer = run(&agent, &secrets, &words)?;
        assert_moved(&answer);
        let operation = answer.operation();
        assert_eq!(operation["result"]["source"]["fate"], "removed", "{operation:#}");
        now = Traveller { pool: to, stem: stem.clone(), scheme: Some(scheme), passphrase };
        let place = volume(&lab, to, &stem)?;
        identical_behind(&lab, &place, scheme, &secrets.file(passphrase), &reference)?;
        println!("leg {leg} to {}: identical behind {scheme}", POOLS[to]);
        let left = volumes_of(&lab, NAME)?;
        assert_eq!(left.len(), 1, "{left:?}");
    }
    refusals(&lab, &agent, &secrets, &now)?;
    let mut words = now.words("smp", "ciphers-end");
    words.extend(["--passphrase-file".into(), secrets.file(now.passphrase), "--decrypt".into()]);
    assert_moved(&run(&agent, &secrets, &words)?);
    let end = volume(&lab, 3, "ciphers-end")?;
    identical(&lab, &end, &reference)?;
    assert_eq!(secrets_of_volumes(&lab)?, 0, "no definition names any of them");
    assert!(secrets.end(&agent) > 0, "no copy was seen running");
    lab.remove(&end)?;
    std::fs::remove_file(&reference).expect("it was made here");
    Ok(())
}

/// What does not open, or is not what it is said to be, is refused, and nothing is left of the request.
fn refusals(lab: &Lab, agent: &Agent, secrets: &Secrets, now: &Traveller) -> Outcome {
    let before = volumes_of(lab, PAIRS)?;
    let right = ["--passphrase-file".to_owned(), secrets.file(now.passphrase)];
    let wrong = ["--passphrase-file".to_owned(), secrets.file(1 - now.passphrase)];
    let none = ["--dest-passphrase-file".to_owned(), secrets.file(0)];
    let size = |bytes: u64| vec!["--expect-size".to_owned(), bytes.to_string()];
    let sized = |bytes| [&right[..], &size(bytes)].concat();
    let whole = SIZE_MIB << 20;
    let accept = ["--accept-encryption".to_owned(), "luks1-qemu".to_owned()];
    for (more, code) in [
        (wrong.to_vec(), "wrong-passphrase"),
        (none.to_vec(), "secret-missing"),
        (sized(whole - 512), "size-mismatch"),
        (sized(whole + 512), "size-mismatch"),
    ] {
        let words = [&now.words("ceph-b", "ciphers-refused")[..], &more, &accept].concat();
        assert_refused(&run(agent, secrets, &words)?, code);
    }
    // Another header than it has, and one where there is none.
    let other = Traveller { stem: now.stem.clone(), scheme: Some("luks2-librbd"), ..*now };
    let words = [&other.words("ceph-b", "ciphers-refused")[..], &right, &accept].concat();
    assert_refused(&run(agent, secrets, &words)?, "state-mismatch");
    let unsaid = Traveller { stem: now.stem.clone(), scheme: None, ..*now };
    let words = [&unsaid.words("ceph-b", "ciphers-refused")[..], &right, &accept].concat();
    assert_refused(&run(agent, secrets, &words)?, "encryption-unsupported");
    assert_eq!(volumes_of(lab, PAIRS)?, before, "nothing is left");
    Ok(())
}

/// A domain that is only defined, with one disk.
fn define(lab: &Lab, name: &str, disk: &Path) -> Outcome {
    let xml = format!(
        "<domain type='qemu'><name>{name}</name><memory unit='MiB'>32</memory><vcpu>1</vcpu>\
         <os><type arch='x86_64'>hvm</type></os><devices><disk type='file' device='disk'>\
         <driver name='qemu' type='qcow2'/><source file='{}'/><target dev='vda' bus='virtio'/></disk>\
         </devices></domain>",
        disk.display()
    );
    let file = lab.dir()?.join(format!("{name}.xml"));
    std::fs::write(&file, xml).expect("the lab's folder can be written");
    lab.virsh(&["define", &file.display().to_string()])?;
    std::fs::remove_file(&file).expect("it was just written");
    Ok(())
}

/// libvirt and QEMU open the disk by what the stored definition says of it.
fn starts(lab: &Lab, name: &str) -> Outcome {
    lab.virsh(&["start", "--paused", name])?;
    lab.virsh(&["destroy", name])?;
    Ok(())
}

#[test]
fn a_stopped_domain_opens_what_its_disk_became() -> Outcome {
    const NAME: &str = "cipherdom";
    let lab = lab(NAME);
    let agent = agent(&lab, NAME)?;
    let secrets = Secrets::watch(&lab, NAME)?;
    let root = volume(&lab, 2, "cipherdom-root")?;
    let reference = reference(&lab, NAME, &root, SIZE_MIB, WRITTEN_MIB)?;
    define(&lab, NAME, Path::new(&root.spec()))?;
    let (one, two) = (secrets.file(0), secrets.file(1));
    let open = ["--passphrase-file", one.as_str()];
    let rekey = [&open[..], &["--dest-passphrase-file", &two]].concat();
    let plain = ["--passphrase-file", two.as_str(), "--decrypt"];
    let legs: [(&str, &[&str], Option<&str>); 4] = [
        ("smp", &["--dest-passphrase-file", &one], Some("luks")),
        // What librbd encrypts is the default on Ceph.
        ("ceph-b", &open, Some("luks2")),
        ("nfs", &rekey, Some("luks")),
        ("smp", &plain, None),
    ];
    for (to, more, format) in legs {
        // The watch of the last start may take a moment to go.
        let answer =
            secrets.silent(common::patiently(|| match agent.migrate(NAME, "vda", to, more) {
                Ok(answer) if answer.code == 3 => Err(answer.stderr),
                answer => answer.map_err(|error| error.to_string()),
            }));
        assert_moved(&answer);
        let stored = lab.virsh(&["dumpxml", "--inactive", NAME])?;
        let element = stored.split_once("<encryption format='").map(|(_, rest)| rest);
        assert_eq!(element.and_then(|rest| rest.split('\'').next()), format, "{stored}");
        assert_eq!(
            secrets_of_volumes(&lab)?,
            usize::from(format.is_some()),
            "its own and no other"
        );
        starts(&lab, NAME)?;
        println!("to {to}: {format:?}, and it starts");
    }
    identical(&lab, &volume(&lab, 3, "cipherdom-root")?, &reference)?;
    assert!(secrets.end(&agent) > 0, "no copy was seen running");
    std::fs::remove_file(&reference).expect("it was made here");
    lab.sweep(NAME)
}

#[test]
fn an_agent_killed_in_the_middle_of_an_encrypted_copy_takes_it_back() -> Outcome {
    const NAME: &str = "cipherkill";
    let lab = lab(NAME);
    let mut agent = agent(&lab, NAME)?;
    let secrets = Secrets::watch(&lab, NAME)?;
    let root = volume(&lab, 2, "cipherkill-root")?;
    let reference = reference(&lab, NAME, &root, SIZE_MIB, WRITTEN_MIB)?;
    define(&lab, NAME, Path::new(&root.spec()))?;
    let stored = lab.virsh(&["dumpxml", "--inactive", NAME])?;
    let (before, one) = (volumes_of(&lab, NAME)?, secrets.file(0));
    let slow = ["--dest-passphrase-file", one.as_str(), "--bandwidth", "1MiB/s"];
    let id = agent.begin(NAME, "vda", "smp", &slow)?;
    agent.until(&id, "copying", |operation| copied(operation) > 0)?;
    talkative(&mut agent)?;
    let operation = agent.wait(&id)?;
    assert_eq!(operation["failure"]["cause"], "secret-needed", "{operation:#}");
    assert_eq!((&operation["state"], &operation["place"]), (&"failed".into(), &"source".into()));
    assert_eq!(volumes_of(&lab, NAME)?, before);
    assert_eq!(secrets_of_volumes(&lab)?, 0);
    assert_eq!(lab.virsh(&["dumpxml", "--inactive", NAME])?, stored);
    identical(&lab, &root, &reference)?;
    secrets.end(&agent);
    std::fs::remove_file(&reference).expect("it was made here");
    lab.sweep(NAME)
}
