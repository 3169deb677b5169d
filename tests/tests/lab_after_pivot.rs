//! What goes wrong after the pivot, on a writing guest: the move has succeeded, whatever becomes of the source, and
//! says what stays and why. An old definition never starts old data.

mod common;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use common::faults::{Immutable, ReadOnly, StateDisk, Watcher};
use common::stand::{Stand, disk_of, warnings};
use common::{Outcome, assert_moved, lab};
use serde_json::Value;
use volferry_tests::agent::Setup;
use volferry_tests::guest::Disk;
use volferry_tests::lab::{Base, LabError, Volume};

fn moved_name(volume: &str, answer: &volferry_tests::agent::Answer) -> String {
    format!("{volume}.moved-{}", answer.operation()["id"].as_str().expect("an id"))
}

#[test]
fn an_old_definition_never_starts_old_data() -> Outcome {
    let mut stand = Stand::new("old", 800)?;
    let old = stand.lab.virsh(&["dumpxml", "--inactive", "old"])?;
    // Kept under another name, it is still not what the old definition finds.
    let root = stand.agent.migrate("old", "vda", "ceph-b", &["--keep-source"])?;
    assert_moved(&root);
    assert_eq!(root.operation()["result"]["source"]["fate"], "kept", "{:#}", root.last());
    let kept = moved_name("nfs/old-root.qcow2", &root);
    stand.goes_on_with(&[kept.clone(), "vf-a/old-data".into(), "vf-b/old-root".into()])?;
    stand.old_definition_does_not_start(&old, 801)?;
    // Removed, as is usual.
    let old = stand.lab.virsh(&["dumpxml", "--inactive", "old"])?;
    assert_moved(&stand.agent.migrate("old", "vdb", "smp", &[])?);
    stand.goes_on_with(&[kept.clone(), "smp/old-data.qcow2".into(), "vf-b/old-root".into()])?;
    stand.old_definition_does_not_start(&old, 802)?;
    let (pool, name) = kept.split_once('/').expect("pool and name");
    std::fs::remove_file(stand.lab.pool(pool)?.join(name)).expect("the kept source is there");
    stand.end()
}

#[test]
fn a_source_with_a_snapshot_or_a_clone_stays_under_its_retired_name() -> Outcome {
    let mut stand = Stand::new("held", 810)?;
    stand.lab.rbd(&["snap", "create", "--no-progress", "vf-a/held-data@daily"])?;
    let first = stand.agent.migrate("held", "vdb", "ceph-b", &[])?;
    assert_moved(&first);
    assert!(warnings(first.operation()).contains("daily"), "{:#}", first.operation());
    let retired = moved_name("vf-a/held-data", &first);
    let nfs = "nfs/held-root.qcow2".to_owned();
    stand.goes_on_with(&[nfs.clone(), retired.clone(), "vf-b/held-data".into()])?;
    assert!(stand.lab.rbd(&["snap", "ls", &retired])?.contains("daily"), "the snapshot is there");
    stand.lab.rbd(&["snap", "purge", "--no-progress", &retired])?;
    stand.lab.rbd(&["rm", "--no-progress", &retired])?;

    stand.lab.rbd(&["snap", "create", "--no-progress", "vf-b/held-data@base"])?;
    stand.lab.rbd(&["snap", "protect", "vf-b/held-data@base"])?;
    stand.lab.rbd(&["clone", "vf-b/held-data@base", "vf-a/held-child"])?;
    let second = stand.agent.migrate("held", "vdb", "smp", &[])?;
    assert_moved(&second);
    assert!(warnings(second.operation()).contains("held-child"), "{:#}", second.operation());
    let retired = moved_name("vf-b/held-data", &second);
    let data = "smp/held-data.qcow2".to_owned();
    stand.goes_on_with(&[nfs, data, "vf-a/held-child".into(), retired.clone()])?;
    let child = stand.lab.rbd(&["info", "vf-a/held-child"])?;
    assert!(child.contains(&format!("parent: {retired}@base")), "{child}");
    stand.lab.rbd(&["rm", "--no-progress", "vf-a/held-child"])?;
    stand.lab.rbd(&["snap", "unprotect", &format!("{retired}@base")])?;
    stand.lab.rbd(&["snap", "purge", "--no-progress", &retired])?;
    stand.lab.rbd(&["rm", "--no-progress", &retired])?;
    assert_eq!(stand.place(Disk::VDA)?.rsplit('/').next(), Some("held-root.qcow2"));
    stand.end()
}

const ACCEPT: [&str; 2] = ["--accept-encryption", "luks1-qemu"];
/// The words the agent has for a journal that takes nothing.
const FULL: &str = "journal could not be written";
const SEALED: &str = "no old record boots it";
const NOT_SEALED: &str = "an old record can still boot";

/// A writing guest with a third disk beside, an agent whose journal has a small disk, and what the tests below look at.
struct Trials {
    stand: Stand,
    disk: StateDisk,
    /// Where the lab's libvirt keeps its secrets.
    secrets: PathBuf,
    passphrase: String,
    /// Where its metrics are scraped.
    metrics: SocketAddr,
    /// The `<disk>`s of definitions from before a move, each with the disk it is of.
    old_disks: Vec<(&'static str, String)>,
}

/// How a move ended although something went wrong after its pivot.
struct Ended {
    id: String,
    operation: Value,
}

impl Trials {
    fn new(name: &str, seed: u64) -> Result<Trials, LabError> {
        let lab = lab(name);
        let disk = StateDisk::mount(&lab, name)?;
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let metrics = free.local_addr().expect("an address");
        drop(free);
        let limits = format!("{}[metrics]\nlisten = \"{metrics}\"\n", Setup::default().limits);
        let setup = Setup { state: Some(disk.path().to_owned()), limits, ..Setup::default() };
        let secrets = lab.dir()?.join("libvirt").join(lab.daemon()).join("etc").join("secrets");
        let file = lab.dir()?.join(format!("{name}-passphrase"));
        fs::write(&file, "sesame-stays-4713").expect("the lab's folder can be written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
        let third = Volume::qcow2(lab.pool("smp")?.join(format!("{name}-third.qcow2")));
        let third = lab.create(Base::Data, &third)?;
        let stand = Stand::with_spec(lab, name, seed, setup, |spec| spec.third(third))?;
        let passphrase = file.display().to_string();
        Ok(Trials { stand, disk, secrets, passphrase, metrics, old_disks: Vec::new() })
    }

    /// Remembers how the stored definition names a disk before it is moved.
    fn remember(&mut self, target: &'static str) -> Outcome {
        let stored = self.stand.lab.virsh(&["dumpxml", "--inactive", &self.stand.name])?;
        self.old_disks.push((target, disk_of(&stored, target).to_owned()));
        Ok(())
    }

    fn moves(&mut self, target: &'static str, to: &str, more: &[&str]) -> Outcome {
        assert_moved(&self.stand.agent.migrate(&self.stand.name, target, to, more)?);
        Ok(())
    }

    /// Begins a move and waits until it waits for the word to pivot.
    fn ready(&mut self, target: &'static str, to: &str, more: &[&str]) -> Result<String, LabError> {
        self.remember(target)?;
        let words = [&["--manual-pivot"], more].concat();
        let id = self.stand.agent.begin(&self.stand.name, target, to, &words)?;
        self.stand.agent.until(&id, "ready", |operation| operation["waits_for_pivot"] == true)?;
        Ok(id)
    }

    fn pivot(&self, id: &str) -> Outcome {
        let answer = self.stand.agent.volferry(&["ops", "pivot", id])?;
        assert_eq!(answer.code, 0, "{}", answer.stderr);
        Ok(())
    }

    /// What was remembered last does not start, although its source has kept its name. A domain beside the guest with
    /// that disk alone: the guest runs on.
    fn last_old_disk_does_not_start(&self) -> Outcome {
        let (target, disk) = self.old_disks.last().expect("a move began");
        let error = self.stand.starting_with_only(disk)?;
        let told = ["cannot be opened read/write", "ead-only file system"];
        assert!(told.iter().any(|text| error.contains(text)), "{target}: {error}");
        Ok(())
    }

    /// It has moved, and its source is being removed in vain.
    fn removing(&self, id: &str) -> Outcome {
        let removing = |operation: &Value| {
            operation["detail"].as_str().is_some_and(|text| text.contains("removing the source"))
        };
        self.stand.agent.until(id, "its source is being removed", removing).map(drop)
    }

    /// The end: succeeded whatever went wrong, the disk on the destination by libvirt's word, and the guest writes on.
    fn ends(
        &mut self,
        id: &str,
        target: &str,
        fate: &str,
        told: &[&str],
    ) -> Result<Ended, LabError> {
        let operation = self.stand.agent.wait(id)?;
        assert_eq!(operation["state"], "succeeded", "{operation:#}");
        assert_eq!(operation["place"], "destination", "{operation:#}");
        assert_eq!(operation["result"]["source"]["fate"], fate, "{operation:#}");
        for text in told {
            assert!(warnings(&operation).contains(text), "{text}: {operation:#}");
        }
        let disk = Disk::parse(target).expect("a disk");
        let xml = self.stand.lab.virsh(&["dumpxml", &self.stand.name])?;
        let place = self.stand.lab.disk_in(&xml, disk).expect("the disk");
        let volume = operation["result"]["volume"].as_str().expect("a name");
        assert!(place.ends_with(volume), "{place} is not {volume}");
        self.stand.guest.wait_for_acks(20)?;
        Ok(Ended { id: id.to_owned(), operation })
    }

    fn leftovers(&self) -> Result<Vec<String>, LabError> {
        let listed = self.stand.agent.volferry(&["leftovers", "list"])?;
        let listed = listed.last()["leftovers"].as_array().cloned().unwrap_or_default();
        let id = |leftover: &Value| leftover["id"].as_str().unwrap_or_default().to_owned();
        Ok(listed.iter().map(id).collect())
    }

    /// There is this record. Where the journal was full it is written down with the end, as soon as that is possible.
    fn recorded(&self, leftover: &str) {
        let is_it = |all: Vec<String>| all.iter().any(|id| id == leftover);
        // Each look is a process of its own, some hundredths of a second and more.
        let listed = (0..400).any(|_| self.leftovers().is_ok_and(is_it));
        assert!(listed, "the record {leftover}: {:?}", self.leftovers());
    }

    /// There is this record; tried again, nothing of it is left.
    fn goes_later(&self, ended: &Ended, kind: &str) -> Outcome {
        let leftover = format!("{}-{kind}", ended.id);
        self.recorded(&leftover);
        let retried = self.stand.agent.volferry(&["leftovers", "retry", &leftover])?;
        assert_eq!(retried.code, 0, "{} {:#}", retried.stderr, retried.last());
        assert!(!self.leftovers()?.contains(&leftover));
        // The same without its history.
        let mut now = self.stand.agent.operation(&ended.id)?;
        let keys = now.as_object_mut().expect("an operation");
        let (history, to_do) = (keys.remove("history"), keys.remove("to_do"));
        assert!(history.is_some_and(|told| told.to_string().contains("is succeeded")));
        assert_eq!(to_do, Some(serde_json::json!([])), "nothing is left to do");
        assert_eq!(now, ended.operation, "the finished operation does not change");
        Ok(())
    }

    /// These are values of the daemon's metrics.
    fn counted(&self, samples: &[&str]) {
        let mut stream = TcpStream::connect(self.metrics).expect("it listens");
        let request = b"GET /metrics HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n";
        stream.write_all(request).expect("it reads");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("it answers");
        for sample in samples {
            assert!(page.lines().any(|line| line == *sample), "{sample}: {page}");
        }
    }

    fn volume_secrets(&self) -> Result<usize, LabError> {
        let list = self.stand.lab.virsh(&["secret-list"])?;
        Ok(list.lines().filter(|line| line.contains(" volume ")).count())
    }

    fn pool(&self, name: &str) -> Result<PathBuf, LabError> {
        self.stand.lab.pool(name).map(Path::to_owned)
    }
}

#[test]
fn whatever_fails_after_the_pivot_the_move_has_succeeded_and_says_what_stays() -> Outcome {
    let mut trials = Trials::new("after", 820)?;
    one_at_a_time(&mut trials)?;
    all_together(&mut trials)?;
    let Trials { mut stand, disk, old_disks, .. } = trials;
    // Whichever disk of an old definition: what it names is not there any more.
    stand.old_disks_do_not_start(&old_disks)?;
    stand.guest.start(821)?;
    stand.end()?;
    drop(disk);
    Ok(())
}

fn one_at_a_time(trials: &mut Trials) -> Outcome {
    let secret = trials.passphrase.clone();
    trials.moves("vdc", "ceph-b", &["--dest-passphrase-file", &secret, ACCEPT[0], ACCEPT[1]])?;

    // Two that are tried for a while, and meanwhile what is hopeless at once.
    let watcher = Watcher::of(&trials.stand.lab, "vf-a/after-data")?;
    let watched = trials.ready("vdb", "ceph-b", &[])?;
    let decrypt = ["--passphrase-file", &secret, "--decrypt"];
    let locked = trials.ready("vdc", "local", &decrypt)?;
    let no_removal = Immutable::folder(&trials.secrets)?;
    trials.pivot(&watched)?;
    trials.pivot(&locked)?;

    let nfs = trials.pool("nfs")?;
    let gone = trials.ready("vda", "ceph-b", &[])?;
    fs::remove_file(nfs.join("after-root.qcow2")).expect("the source is there");
    trials.pivot(&gone)?;
    trials.ends(&gone, "vda", "already-gone", &["was gone already"])?;
    assert_eq!(trials.leftovers()?, Vec::<String>::new());

    trials.moves("vda", "nfs", &[])?;
    let read_only = trials.ready("vda", "ceph-a", &[])?;
    let mount = ReadOnly::mount(&nfs)?;
    trials.pivot(&read_only)?;
    // Nothing of it can be changed, and QEMU cannot write to it either.
    let told = ["ead-only file system", NOT_SEALED];
    let read_only = trials.ends(&read_only, "vda", "left-behind", &told);
    trials.last_old_disk_does_not_start()?;
    drop(mount);
    trials.goes_later(&read_only?, "source")?;

    trials.moves("vda", "smp", &[])?;
    let forbidden = trials.ready("vda", "ceph-a", &[])?;
    let no_rename = Immutable::folder(&trials.pool("smp")?)?;
    trials.pivot(&forbidden)?;
    let told = ["peration not permitted", SEALED];
    let forbidden = trials.ends(&forbidden, "vda", "left-behind", &told);
    trials.last_old_disk_does_not_start()?;
    drop(no_rename);
    trials.goes_later(&forbidden?, "source")?;

    let watched = trials.ends(&watched, "vdb", "left-behind", &["in use by"])?;
    let retired = format!("after-data.moved-{}", watched.id);
    assert!(watched.operation["result"]["source"]["location"].to_string().contains(&retired));
    drop(watcher);
    trials.goes_later(&watched, "source")?;
    let locked = trials.ends(&locked, "vdc", "removed", &["the libvirt secret"])?;
    assert_eq!(trials.volume_secrets()?, 1, "it is still there");
    drop(no_removal);
    trials.goes_later(&locked, "secret")?;
    assert_eq!(trials.volume_secrets()?, 0);

    // The journal's disk gets full once the move is on record; the source goes all the same.
    trials.disk.forget(&mut trials.stand)?;
    let watcher = Watcher::of(&trials.stand.lab, "vf-b/after-data")?;
    let full = trials.ready("vdb", "ceph-a", &[])?;
    trials.pivot(&full)?;
    trials.removing(&full)?;
    trials.disk.fill(0);
    drop(watcher);
    let full = trials.ends(&full, "vdb", "removed", &[FULL]);
    trials.disk.free();
    full?;
    let volumes = ["local/after-third.qcow2", "vf-a/after-data", "vf-a/after-root"];
    trials.stand.goes_on_with(&volumes.map(str::to_owned))
}

fn all_together(trials: &mut Trials) -> Outcome {
    let secret = trials.passphrase.clone();
    trials.moves("vda", "nfs", &[])?;
    trials.moves("vdb", "ceph-b", &["--dest-passphrase-file", &secret, ACCEPT[0], ACCEPT[1]])?;
    trials.disk.forget(&mut trials.stand)?;

    // To names no earlier source had.
    let words = ["--passphrase-file", &secret, "--decrypt", "--destination-volume", "after-last"];
    let data = trials.ready("vdb", "ceph-a", &words)?;
    let root = trials.ready("vda", "ceph-b", &[])?;
    let third = trials.ready("vdc", "ceph-a", &[])?;
    let watcher = Watcher::of(&trials.stand.lab, "vf-b/after-data")?;
    let no_removal = Immutable::folder(&trials.secrets)?;
    let mount = ReadOnly::mount(&trials.pool("nfs")?)?;
    fs::remove_file(trials.pool("local")?.join("after-third.qcow2")).expect("it is there");
    for id in [&third, &root, &data] {
        trials.pivot(id)?;
    }
    trials.removing(&data)?;
    trials.ends(&third, "vdc", "already-gone", &["was gone already"])?;
    let root = trials.ends(&root, "vda", "left-behind", &["ead-only file system"])?;
    trials.disk.fill(0);
    let data = trials.ends(&data, "vdb", "left-behind", &["in use by", FULL]);
    trials.disk.free();
    let data = data?;
    let retired = format!("after-data.moved-{}", data.id);
    let mut volumes = vec![
        "nfs/after-root.qcow2".to_owned(),
        "vf-a/after-last".into(),
        "vf-a/after-third".into(),
        format!("vf-b/{retired}"),
        "vf-b/after-root".into(),
    ];
    volumes.sort();
    trials.stand.goes_on_with(&volumes)?;

    // Each goes once what held it has gone, the secret of what was watched after its volume.
    drop(mount);
    trials.goes_later(&root, "source")?;
    drop(watcher);
    let leftover = format!("{}-source", data.id);
    trials.recorded(&leftover);
    trials.counted(&[
        "volferry_operation_duration_seconds_count{outcome=\"succeeded\"} 3",
        "volferry_operation_duration_seconds_count{outcome=\"failed\"} 0",
        "volferry_leftovers{kind=\"source\"} 1",
        "volferry_libvirt_up 1",
    ]);
    let retried = trials.stand.agent.volferry(&["leftovers", "retry", &leftover])?;
    assert!(retried.last().to_string().contains("the libvirt secret"), "{:#}", retried.last());
    assert_eq!((retried.code, trials.volume_secrets()?), (1, 1), "{}", retried.stderr);
    drop(no_removal);
    trials.goes_later(&data, "source")?;
    assert_eq!((trials.volume_secrets()?, trials.leftovers()?), (0, vec![]));
    trials.counted(&[
        "volferry_leftovers{kind=\"source\"} 0",
        "volferry_leftover_retries_total{outcome=\"stays\"} 1",
        "volferry_operations{state=\"succeeded\"} 3",
    ]);
    let left = ["vf-a/after-last", "vf-a/after-third", "vf-b/after-root"];
    trials.stand.goes_on_with(&left.map(str::to_owned))
}
