//! Volumes nobody uses, on real storage: every ordered pair of two Ceph pools and two file pools, a stopped guest that
//! starts from where its disk went, and one that is started while its disk is copied.

mod common;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::stand::{Stand, assert_refused, copied};
use common::{Outcome, assert_moved, lab, prove, volumes_of};
use volferry_tests::agent::{Agent, Answer};
use volferry_tests::guest::Disk;
use volferry_tests::lab::{Lab, LabError, Volume, output};

/// As the configuration calls them; the first two are Ceph's `vf-a` and `vf-b`.
const POOLS: [&str; 4] = ["ceph-a", "ceph-b", "nfs", "smp"];
/// A way along which every ordered pair of pools is gone once.
const WAY: [usize; 17] = [0, 0, 1, 1, 2, 2, 3, 3, 0, 2, 0, 3, 1, 3, 2, 1, 0];
const MIB: u64 = 1 << 20;
const WRITTEN_MIB: u64 = 40;

/// A volume of this stem.
fn volume(lab: &Lab, pool: usize, stem: &str) -> Result<Volume, LabError> {
    Ok(match pool {
        0 => Volume::rbd("vf-a", stem),
        1 => Volume::rbd("vf-b", stem),
        folder => Volume::qcow2(lab.pool(POOLS[folder])?.join(format!("{stem}.qcow2"))),
    })
}

/// The name and format a request has.
fn asked(pool: usize, stem: &str) -> (String, &'static str) {
    match pool {
        0 | 1 => (format!("{}/{stem}", POOLS[pool]), "raw"),
        _ => (format!("{}/{stem}.qcow2", POOLS[pool]), "qcow2"),
    }
}

/// A volume as the tools open it.
fn opened(lab: &Lab, volume: &Volume) -> Result<String, LabError> {
    let conf = lab.setting("VOLFERRY_LAB_CEPH_CONF")?;
    let spec = volume.spec();
    Ok(match spec.starts_with("rbd:") {
        true => format!("{spec}:id=volferry:conf={conf}"),
        false => spec,
    })
}

/// A raw file with data at its beginning and at its very end, and the volume with the same content.
fn reference(lab: &Lab, to: &Volume) -> Result<std::path::PathBuf, LabError> {
    let file = lab.dir()?.join("pairs-reference.raw");
    output(Command::new("qemu-img").args(["create", "-q", "-f", "raw"]).arg(&file).arg("256M"))?;
    let first = format!("write -q -P 0x5a 8M {}M", WRITTEN_MIB - 1);
    for write in [first.as_str(), "write -q -P 0x77 255M 1M"] {
        output(Command::new("qemu-io").args(["-f", "raw", "-c", write]).arg(&file))?;
    }
    let mut convert = Command::new("qemu-img");
    convert.args(["convert", "-f", "raw", "-O", to.format.name()]).arg(&file);
    output(convert.arg(opened(lab, to)?))?;
    Ok(file)
}

fn identical(lab: &Lab, volume: &Volume, reference: &Path) -> Outcome {
    let mut command = Command::new("qemu-img");
    command.args(["compare", "-f", volume.format.name(), "-F", "raw", &opened(lab, volume)?]);
    output(command.arg(reference)).map(drop)
}

/// Bytes a volume occupies.
fn allocated(lab: &Lab, volume: &Volume) -> Result<u64, LabError> {
    let spec = volume.spec();
    if let Some(name) = spec.strip_prefix("rbd:") {
        let text = lab.rbd(&["du", "--format", "json", name])?;
        let seen: serde_json::Value = serde_json::from_str(&text).expect("rbd prints JSON");
        return Ok(seen["images"][0]["used_size"].as_u64().expect("a number"));
    }
    let blocks = output(Command::new("stat").args(["--format", "%b", &spec]))?;
    Ok(blocks.trim().parse::<u64>().expect("a number of blocks") * 512)
}

fn key(lab: &Lab) -> Result<String, LabError> {
    let key = std::fs::read_to_string(lab.setting("VOLFERRY_LAB_KEY_FILE")?).expect("the key");
    Ok(key.trim().to_owned())
}

/// Nothing secret and no half-made volume is left of the copies of an agent.
fn no_trace(lab: &Lab, agent: &Agent, name: &str) -> Outcome {
    let folder = agent.log().with_file_name("state").join("copies");
    let left = std::fs::read_dir(&folder).expect("the folder of copies").count();
    assert_eq!(left, 0, "{}", folder.display());
    let log = std::fs::read_to_string(agent.log()).expect("a log");
    assert!(!log.contains(&key(lab)?), "the key is in the log");
    let left = volumes_of(lab, name)?;
    assert!(left.iter().all(|volume| !volume.contains(".volferry-")), "{left:?}");
    Ok(())
}

/// The words of every process, again and again: is the key among them?
struct Watch {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<(usize, bool)>,
}

impl Watch {
    fn new(key: String) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut copies, mut told) = (0, false);
            while !stopped.load(Ordering::Relaxed) {
                for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
                    let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                    let words = String::from_utf8_lossy(&words).into_owned();
                    copies += usize::from(words.contains("qemu-img\0convert"));
                    told |= words.contains(&key);
                }
                #[allow(clippy::disallowed_methods, reason = "samples are taken in even steps")]
                std::thread::sleep(Duration::from_millis(10));
            }
            (copies, told)
        });
        Self { stop, thread }
    }

    /// How often a copy was seen, and whether the key was.
    fn end(self) -> (usize, bool) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("no panic")
    }
}

#[test]
fn a_volume_goes_every_ordered_pair_of_pools_and_stays_what_it_was() -> Outcome {
    const NAME: &str = "pairs";
    let lab = lab(NAME);
    let agent = Agent::start(&lab, NAME)?;
    let mut now = volume(&lab, WAY[0], "pairs-0")?;
    let reference = reference(&lab, &now)?;
    let watch = Watch::new(key(&lab)?);
    for (leg, pair) in WAY.windows(2).enumerate() {
        let (stem, next) = (format!("pairs-{leg}"), format!("pairs-{}", leg + 1));
        let (source, format) = asked(pair[0], &stem);
        let to = POOLS[pair[1]];
        let request = ["migrate", "--volume", &source, "--format", format, "--to", to];
        let named: Vec<&str> = [&request[..], &["--destination-volume", &next]].concat();
        let answer = agent.volferry(&named)?;
        assert_moved(&answer);
        let operation = answer.operation();
        assert_eq!(operation["result"]["source"]["fate"], "removed", "{operation:#}");
        assert_eq!(operation["warnings"], serde_json::json!([]), "{operation:#}");
        assert!(operation["domain"].is_null(), "{operation:#}");
        assert!(!lab.exists(&now)?, "the source is gone");
        now = volume(&lab, pair[1], &next)?;
        identical(&lab, &now, &reference)?;
        let occupies = allocated(&lab, &now)?;
        println!("{} to {to}: identical, {occupies} bytes occupied", POOLS[pair[0]]);
        // Thin stays thin: what is written, in whole objects, and the header.
        assert!(occupies <= (WRITTEN_MIB + 16) * MIB, "{occupies}");
    }
    let (copies, told) = watch.end();
    assert!(copies > 0 && !told, "{copies} looks at a copy; the key among its words: {told}");
    no_trace(&lab, &agent, NAME)?;
    lab.remove(&now)?;
    std::fs::remove_file(&reference).expect("it was made here");
    Ok(())
}

/// Asks again while the watch of the guest's last QEMU, or what is left of its end, lasts.
fn patiently<T>(mut ask: impl FnMut() -> Result<T, String>) -> T {
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
        std::thread::sleep(Duration::from_secs(1));
    }
    panic!("it stays in use: {last}");
}

fn moved(stand: &Stand, disk: &str, to: &str) -> Answer {
    patiently(|| match stand.agent.migrate(&stand.name, disk, to, &[]) {
        Ok(answer) if answer.code == 3 => Err(answer.stderr),
        answer => answer.map_err(|error| error.to_string()),
    })
}

/// Begins a copy that takes long enough to be looked at.
fn begun(stand: &Stand, disk: &str, to: &str) -> String {
    let more = ["--bandwidth", "8MiB/s"];
    patiently(|| stand.agent.begin(&stand.name, disk, to, &more).map_err(|error| error.to_string()))
}

#[test]
fn a_stopped_guests_disks_move_offline_and_it_starts_from_there() -> Outcome {
    let mut stand = Stand::new("stopped", 900)?;
    let legs =
        [(Disk::VDA, "smp"), (Disk::VDB, "ceph-b"), (Disk::VDA, "ceph-a"), (Disk::VDB, "nfs")];
    for (seed, (disk, to)) in (901..).zip(legs) {
        stand.guest.wait_for_acks(50)?;
        stand.guest.destroy()?;
        let target = disk.to_string();
        assert_refused(&stand.agent.migrate("stopped", &target, to, &["--live"])?, "not-running");
        let before = stand.guest.volume(disk)?;
        assert_moved(&moved(&stand, &target, to));
        assert!(!stand.lab.exists(&before)?, "the source {} is gone", before.spec());
        let now = stand.guest.volume(disk)?;
        assert_ne!(now.spec(), before.spec(), "the stored definition names the destination");
        stand.guest.set_volume(disk, now);
        prove(&mut stand.guest)?;
        stand.guest.start(seed)?;
    }
    no_trace(&stand.lab, &stand.agent, "stopped")?;
    stand.end()
}

#[test]
fn a_guest_started_at_half_of_the_copy_keeps_its_volume() -> Outcome {
    let mut stand = Stand::new("started", 950)?;
    let untouched = stand.untouched();
    for (seed, disk) in (951..).zip([Disk::VDA, Disk::VDB]) {
        stand.guest.wait_for_acks(50)?;
        stand.guest.destroy()?;
        let id = begun(&stand, &disk.to_string(), "smp");
        stand.agent.until(&id, "half of the copy", |operation| {
            let total = operation["progress"]["total_bytes"].as_u64().unwrap_or(0);
            total > 0 && copied(operation) * 2 >= total
        })?;
        stand.guest.start(seed)?;
        let text = stand.fails(&id, "volume-in-use")?;
        assert!(text.contains("started"), "{text}");
        stand.goes_on_with(&untouched)?;
    }
    no_trace(&stand.lab, &stand.agent, "started")?;
    stand.end()
}

#[test]
fn an_agent_killed_in_the_middle_of_a_copy_starts_it_over() -> Outcome {
    let mut stand = Stand::new("again", 980)?;
    stand.guest.wait_for_acks(50)?;
    stand.guest.destroy()?;
    let id = begun(&stand, "vda", "ceph-b");
    stand.agent.until(&id, "copying", |operation| copied(operation) > 0)?;
    stand.agent.kill();
    stand.agent.run()?;
    let operation = stand.agent.wait(&id)?;
    assert_eq!(operation["state"], "succeeded", "{operation:#}");
    let now = stand.guest.volume(Disk::VDA)?;
    stand.guest.set_volume(Disk::VDA, now);
    prove(&mut stand.guest)?;
    stand.guest.start(981)?;
    no_trace(&stand.lab, &stand.agent, "again")?;
    stand.end()
}
