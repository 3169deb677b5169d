//! A guest of the lab: defined, started with a new seed each time, watched by its serial log,
//! destroyed, and its disks verified against every boot's promises.
//!
//! Its records (`disk`, `boot` lines) are in `$VOLFERRY_LAB_DIR/guests/NAME/record`, so that another
//! process can go on with it: see `lab-guest`.

use std::fs::{self, File};
use std::io::{BufReader, Write as _};
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::process::wait_for;
use super::{Base, Lab, LabError, Monitor, Volume, at, xml};
use crate::guest::Disk;
use crate::guest::acks::Acks;
use crate::guest::verify::{Boot, Report, verify_disk};

/// What a guest shall be.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Name of the domain.
    pub name: String,
    /// Root disk (`vda`).
    pub root: Volume,
    /// Data disk (`vdb`).
    pub data: Volume,
    /// A third disk (`vdc`), which the guest leaves alone.
    pub third: Option<Volume>,
    /// Defined in libvirt, or gone when it stops.
    pub persistent: bool,
    /// Most operations a second on each disk; 0 for no limit.
    pub rate: u32,
    /// Memory.
    pub memory_mib: u32,
    /// With a QEMU monitor beside libvirt's own, where QEMU runs as root: see [`Guest::monitor`].
    pub monitored: bool,
}

impl Spec {
    /// A persistent guest that does 100 operations a second, some 20 MB, on each disk: a copy keeps up with
    /// that. Without a limit it does over 1000.
    #[must_use]
    pub fn new(name: &str, root: Volume, data: Volume) -> Spec {
        Spec {
            name: name.into(),
            root,
            data,
            third: None,
            persistent: true,
            rate: 100,
            memory_mib: 160,
            monitored: false,
        }
    }

    /// The same, with a third disk.
    #[must_use]
    pub fn third(self, volume: Volume) -> Spec {
        Spec { third: Some(volume), ..self }
    }

    /// The same, with a QEMU monitor beside libvirt's own.
    #[must_use]
    pub fn monitored(self) -> Spec {
        Spec { monitored: true, ..self }
    }

    /// The same, transient.
    #[must_use]
    pub fn transient(self) -> Spec {
        Spec { persistent: false, ..self }
    }

    /// The same, with a bound on its writing.
    #[must_use]
    pub fn rate(self, rate: u32) -> Spec {
        Spec { rate, ..self }
    }
}

/// A guest.
#[derive(Debug)]
pub struct Guest {
    lab: Lab,
    name: String,
    dir: PathBuf,
    persistent: bool,
    rate: u32,
    memory_mib: u32,
    monitored: bool,
    /// What a stopped transient guest is started from.
    volumes: Vec<(Disk, Volume)>,
    boots: Vec<(u64, PathBuf, bool)>,
}

const BASES: [(Disk, Base); 2] = [(Disk::VDA, Base::Root), (Disk::VDB, Base::Data)];

impl Guest {
    /// A new guest of that name; an older one's records are dropped, and it must not run any more.
    ///
    /// # Errors
    /// When one of that name runs, or its folder cannot be written.
    pub fn create(lab: &Lab, spec: Spec) -> Result<Guest, LabError> {
        let dir = lab.guest_dir(&spec.name)?;
        fs::remove_dir_all(&dir).map_err(at(&dir))?;
        let dir = lab.guest_dir(&spec.name)?;
        for (disk, base) in BASES {
            // A link: a later build makes new files and leaves these.
            let (from, to) = (lab.built(base.file())?, dir.join(format!("initial-{disk}.raw")));
            fs::hard_link(&from, &to).map_err(at(&from))?;
        }
        let mut volumes = vec![(Disk::VDA, spec.root), (Disk::VDB, spec.data)];
        volumes.extend(spec.third.map(|volume| (Disk::VDC, volume)));
        let guest = Guest {
            lab: lab.clone(),
            name: spec.name,
            dir,
            persistent: spec.persistent,
            rate: spec.rate,
            memory_mib: spec.memory_mib,
            monitored: spec.monitored,
            volumes,
            boots: Vec::new(),
        };
        if guest.is_defined() {
            lab.virsh(&["undefine", &guest.name])?;
        }
        Ok(guest)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Starts it in mode `write`. Each boot needs a seed of its own.
    ///
    /// # Errors
    /// When libvirt refuses or it does not come up.
    pub fn start(&mut self, seed: u64) -> Result<(), LabError> {
        self.start_in_mode(seed, "write")
    }

    /// Starts it to show that it boots and that both disks can be read from end to end.
    ///
    /// # Errors
    /// When it does not boot.
    pub fn start_to_verify_boot(&mut self, seed: u64) -> Result<(), LabError> {
        self.start_in_mode(seed, "verify-boot")?;
        self.wait_for_line(120, "BOOT-OK")
    }

    fn start_in_mode(&mut self, seed: u64, mode: &str) -> Result<(), LabError> {
        let known = self.boots.iter().any(|(old, ..)| *old == seed);
        if known {
            return Err(self.fault(format!("seed {seed} was used by an earlier boot")));
        }
        self.refresh_volumes()?;
        let log = self.dir.join(format!("serial-{seed}.log"));
        File::create(&log).map_err(at(&log))?;
        self.lab.give_to_qemu(&log)?;
        let uuid = uuid_of(&self.name);
        // Another user's QEMU may not make a socket there.
        let monitored = self.monitored && self.lab.mode() == "root";
        let monitor = monitored.then(|| self.monitor_socket());
        let parts = xml::Parts {
            name: &self.name,
            uuid: &uuid,
            memory_mib: self.memory_mib,
            command_line: &format!("vf.seed={seed} vf.mode={mode} vf.rate={}", self.rate),
            serial_log: &log.to_string_lossy(),
            disks: &self.volumes,
            monitor: monitor.as_deref(),
        };
        let file = self.dir.join("domain.xml");
        fs::write(&file, xml::domain(&self.lab, &parts)?).map_err(at(&file))?;
        let file = file.to_string_lossy().into_owned();
        if self.persistent {
            self.lab.virsh(&["define", &file])?;
            self.lab.virsh(&["start", &self.name])?;
        } else {
            self.lab.virsh(&["create", &file])?;
        }
        self.boots.push((seed, log, false));
        self.wait_for_line(60, "BOOTED")
    }

    /// Where its disks are now: from the live XML, else from the persistent one, else as last known.
    fn refresh_volumes(&mut self) -> Result<(), LabError> {
        let text = match self.lab.virsh(&["dumpxml", &self.name]) {
            Ok(text) => text,
            Err(error) if self.is_defined() => return Err(error),
            Err(_) => return Ok(()),
        };
        for (disk, volume) in &mut self.volumes {
            if let Some(found) = xml::volume_of(&text, *disk) {
                *volume = found;
            }
        }
        Ok(())
    }

    /// The volume a disk uses, as libvirt says (a stopped transient guest: as last set).
    ///
    /// # Errors
    /// When libvirt does not answer or the disk is unknown.
    pub fn volume(&mut self, disk: Disk) -> Result<Volume, LabError> {
        self.refresh_volumes()?;
        let found = self.volumes.iter().find(|(known, _)| *known == disk);
        found
            .map(|(_, volume)| volume.clone())
            .ok_or_else(|| self.fault(format!("has no disk {disk}")))
    }

    /// Tells where a stopped transient guest's disk is now.
    pub fn set_volume(&mut self, disk: Disk, volume: Volume) {
        self.volumes.retain(|(known, _)| *known != disk);
        self.volumes.push((disk, volume));
        self.volumes.sort_by_key(|(disk, _)| *disk);
    }

    fn is_defined(&self) -> bool {
        self.lab.virsh(&["domstate", &self.name]).is_ok()
    }

    /// The serial log of the current boot.
    #[must_use]
    pub fn serial_log(&self) -> Option<&Path> {
        self.boots.last().map(|(_, log, _)| log.as_path())
    }

    /// What the guest was promised in its current boot so far.
    ///
    /// # Errors
    /// When the log cannot be read or is not of one boot.
    pub fn acks(&self) -> Result<Acks, LabError> {
        let log = self.serial_log().ok_or_else(|| self.fault("has not been started".into()))?;
        Acks::parse(&fs::read(log).map_err(at(log))?).map_err(|e| self.fault(e.to_string()))
    }

    fn monitor_socket(&self) -> PathBuf {
        self.dir.join("monitor.sock")
    }

    /// Connects to the monitor of a running guest that was made with [`Spec::monitored`].
    ///
    /// # Errors
    /// When QEMU does not answer.
    pub fn monitor(&self) -> Result<Monitor, LabError> {
        Monitor::connect(&self.monitor_socket())
    }

    /// Waits until the current boot has at least `more` acknowledgements more than now.
    ///
    /// # Errors
    /// After 120 s, or when the guest reports a fault or ends.
    pub fn wait_for_acks(&self, more: u64) -> Result<Acks, LabError> {
        let goal = self.acks()?.total() + more;
        wait_for(120, &format!("{goal} acknowledgements of {}", self.name), || {
            self.check_alive()?;
            let acks = self.acks()?;
            Ok((acks.total() >= goal).then_some(acks))
        })
    }

    fn wait_for_line(&self, seconds: u64, word: &str) -> Result<(), LabError> {
        wait_for(seconds, &format!("{word} of {}", self.name), || {
            self.check_alive()?;
            Ok(self.log_text()?.contains(word).then_some(()))
        })
    }

    fn log_text(&self) -> Result<String, LabError> {
        let log = self.serial_log().ok_or_else(|| self.fault("has not been started".into()))?;
        Ok(String::from_utf8_lossy(&fs::read(log).map_err(at(log))?).into_owned())
    }

    fn check_alive(&self) -> Result<(), LabError> {
        let text = self.log_text()?;
        if let Some(line) = text.lines().find(|line| line.contains("FATAL")) {
            return Err(self.fault(line.to_owned()));
        }
        match self.lab.virsh(&["domstate", &self.name]) {
            Ok(state) if state.trim() == "running" => Ok(()),
            Ok(state) => {
                Err(self.fault(format!("is {}; its console ends: {}", state.trim(), tail(&text))))
            }
            Err(_) => Err(self.fault(format!("is gone; its console ends: {}", tail(&text)))),
        }
    }

    fn fault(&self, text: String) -> LabError {
        LabError::Guest { name: self.name.clone(), text }
    }

    /// Ends it: QEMU closes its images in order, however long a busy machine takes for that. Without `--graceful`
    /// libvirt kills what has not ended after some seconds, and writes no flush covered are lost.
    ///
    /// # Errors
    /// When libvirt refuses, or QEMU does not end.
    pub fn destroy(&mut self) -> Result<(), LabError> {
        self.refresh_volumes()?;
        wait_for(120, &format!("the end of {}", self.name), || {
            match self.lab.virsh(&["destroy", "--graceful", &self.name]) {
                Ok(_) => Ok(Some(())),
                Err(LabError::Command { text, .. }) if text.contains("Failed to terminate") => {
                    Ok(None)
                }
                Err(error) => Err(error),
            }
        })
    }

    /// Kills its QEMU with SIGKILL: a crash. The verifier then demands of this boot only what a flush covered,
    /// for an image format may have held metadata in memory.
    ///
    /// # Errors
    /// When it does not run, or does not end.
    pub fn kill(&mut self) -> Result<(), LabError> {
        self.refresh_volumes()?;
        let pid =
            self.lab.qemu_pid(&self.name)?.ok_or_else(|| self.fault("does not run".into()))?;
        kill(Pid::from_raw(pid), Signal::SIGKILL).map_err(|e| self.fault(e.to_string()))?;
        self.note_killed();
        wait_for(30, &format!("the end of {}", self.name), || {
            let state = self.lab.virsh(&["domstate", &self.name]);
            Ok(state.map_or(true, |state| state.trim() == "shut off").then_some(()))
        })
    }

    /// Notes that QEMU of the current boot was killed by somebody else: see [`Guest::kill`].
    pub fn note_killed(&mut self) {
        if let Some(boot) = self.boots.last_mut() {
            boot.2 = true;
        }
    }

    /// Removes it from libvirt; its records and volumes stay.
    ///
    /// # Errors
    /// When libvirt refuses.
    pub fn undefine(&mut self) -> Result<(), LabError> {
        if self.lab.virsh(&["domstate", &self.name]).is_ok_and(|state| state.trim() != "shut off") {
            self.destroy()?;
        }
        if self.is_defined() {
            self.lab.virsh(&["undefine", &self.name])?;
        }
        Ok(())
    }

    /// Verifies both disks of the stopped guest where they are now.
    ///
    /// # Errors
    /// When a volume cannot be read; faults found are in the report.
    pub fn verify(&mut self) -> Result<Report, LabError> {
        let boots = self.boots_read()?;
        let mut report = Report::default();
        for (disk, _) in BASES {
            let volume = self.volume(disk)?;
            let out = self.dir.join(format!("final-{disk}.raw"));
            self.lab.to_raw(&volume, &out)?;
            report.add(self.verify_raw(disk, &out, &boots)?);
            fs::remove_file(&out).map_err(at(&out))?;
        }
        Ok(report)
    }

    fn boots_read(&self) -> Result<Vec<Boot>, LabError> {
        let read = |(seed, log, killed): &(u64, PathBuf, bool)| {
            let acks = Acks::parse(&fs::read(log).map_err(at(log))?);
            let acks = acks.map_err(|e| self.fault(e.to_string()))?;
            Ok(Boot { seed: *seed, acks, killed: *killed })
        };
        self.boots.iter().map(read).collect()
    }

    fn verify_raw(&self, disk: Disk, out: &Path, boots: &[Boot]) -> Result<Report, LabError> {
        let initial = self.dir.join(format!("initial-{disk}.raw"));
        let before = File::open(&initial).map_err(at(&initial))?;
        let size = before.metadata().map_err(at(&initial))?.len();
        let after = File::open(out).map_err(at(out))?;
        verify_disk(disk, size, BufReader::new(before), BufReader::new(after), boots)
            .map_err(at(out))
    }

    /// Writes the records, for [`Guest::open`] in another process.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn save(&self) -> Result<(), LabError> {
        let path = self.dir.join("record");
        let mut text = format!("guest {} {} {}\n", self.persistent, self.rate, self.memory_mib);
        for (disk, volume) in &self.volumes {
            text += &format!("disk {disk} {} {}\n", volume.format.name(), volume.spec());
        }
        for (seed, log, killed) in &self.boots {
            text += &format!("boot {seed} {killed} {}\n", log.display());
        }
        let mut file = File::create(&path).map_err(at(&path))?;
        file.write_all(text.as_bytes()).map_err(at(&path))
    }

    /// A guest whose records were saved.
    ///
    /// # Errors
    /// When there are none.
    pub fn open(lab: &Lab, name: &str) -> Result<Guest, LabError> {
        let dir = lab.guest_dir(name)?;
        let path = dir.join("record");
        let text = fs::read_to_string(&path).map_err(at(&path))?;
        let mut guest = Guest {
            lab: lab.clone(),
            name: name.to_owned(),
            dir,
            persistent: true,
            rate: 0,
            memory_mib: 160,
            monitored: false,
            volumes: Vec::new(),
            boots: Vec::new(),
        };
        for line in text.lines() {
            let words: Vec<_> = line.splitn(4, ' ').collect();
            let understood = guest.take(&words);
            understood
                .ok_or_else(|| guest.fault(format!("record line '{line}' is not understood")))?;
        }
        Ok(guest)
    }

    fn take(&mut self, words: &[&str]) -> Option<()> {
        match *words {
            ["guest", persistent, rate, memory] => {
                self.persistent = persistent.parse().ok()?;
                self.rate = rate.parse().ok()?;
                self.memory_mib = memory.parse().ok()?;
            }
            ["disk", disk, format, spec] => {
                self.volumes.push((Disk::parse(disk)?, Volume::parse(spec, format)?));
            }
            ["boot", seed, killed, log] => {
                self.boots.push((seed.parse().ok()?, log.into(), killed.parse().ok()?));
            }
            _ => return None,
        }
        Some(())
    }
}

fn tail(text: &str) -> String {
    text.lines().rev().take(3).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join(" | ")
}

/// A uuid that follows from the name: a transient guest keeps its identity over a restart.
fn uuid_of(name: &str) -> String {
    let high = name.bytes().fold(0x766f_6c66_6572_7279, |h, b| crate::guest::mix(h ^ u64::from(b)));
    let low = crate::guest::mix(high);
    format!(
        "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        low >> 48 & 0xfff,
        low & 0xffff_ffff_ffff
    )
}
