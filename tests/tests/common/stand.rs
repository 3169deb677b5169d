//! A writing guest with one disk as qcow2 file and one on RBD, an agent, and the three questions after every trial:
//! does the guest go on, is nothing left behind, was the answer true.

use serde_json::Value;
use volferry_tests::agent::{Agent, Answer, Setup};
use volferry_tests::guest::Disk;
use volferry_tests::lab::{Base, Guest, Lab, LabError, Spec, Volume, output};

use super::{Outcome, lab, prove, volumes_of};

/// Slower than the guest writes: such a copy is never done.
pub const SLOW: [&str; 2] = ["--bandwidth", "4MiB/s"];

/// The guest, its agent, and what its disks are.
pub struct Stand {
    pub lab: Lab,
    pub agent: Agent,
    pub guest: Guest,
    pub name: String,
}

impl Stand {
    /// A guest that writes: `vda` a file of pool `nfs`, `vdb` an image of `ceph-a`.
    pub fn new(name: &str, seed: u64) -> Result<Stand, LabError> {
        Stand::on(lab(name), name, seed)
    }

    /// The same on a libvirt daemon of the caller's.
    pub fn on(lab: Lab, name: &str, seed: u64) -> Result<Stand, LabError> {
        Stand::with(lab, name, seed, Setup::default())
    }

    /// The same with an agent of another configuration.
    pub fn with(lab: Lab, name: &str, seed: u64, setup: Setup) -> Result<Stand, LabError> {
        Stand::with_spec(lab, name, seed, setup, |spec| spec)
    }

    /// The same with more to the guest.
    pub fn with_spec(
        lab: Lab,
        name: &str,
        seed: u64,
        setup: Setup,
        more: impl FnOnce(Spec) -> Spec,
    ) -> Result<Stand, LabError> {
        let agent = Agent::start_with(&lab, name, setup)?;
        let root = Volume::qcow2(lab.pool("nfs")?.join(format!("{name}-root.qcow2")));
        let root = lab.create(Base::Root, &root)?;
        let data = lab.create(Base::Data, &Volume::rbd("vf-a", &format!("{name}-data")))?;
        let mut guest = Guest::create(&lab, more(Spec::new(name, root, data).monitored()))?;
        guest.start(seed)?;
        guest.wait_for_acks(50)?;
        Ok(Stand { lab, agent, guest, name: name.to_owned() })
    }

    /// The two volumes it began with.
    pub fn untouched(&self) -> Vec<String> {
        vec![format!("nfs/{}-root.qcow2", self.name), format!("vf-a/{}-data", self.name)]
    }

    /// The guest writes on, and these are all the volumes there are.
    pub fn goes_on_with(&self, volumes: &[String]) -> Outcome {
        self.guest.wait_for_acks(50)?;
        assert_eq!(volumes_of(&self.lab, &self.name)?, volumes);
        Ok(())
    }

    /// Begins a move and waits until some of it is copied.
    pub fn copying(&self, disk: &str, to: &str, more: &[&str]) -> Result<String, LabError> {
        let id = self.agent.begin(&self.name, disk, to, more)?;
        self.agent.until(&id, "copying", |operation| copied(operation) > 0)?;
        Ok(id)
    }

    /// Begins a move and waits until it waits for the word to pivot.
    pub fn at_ready(&self, disk: &str, to: &str) -> Result<String, LabError> {
        let id = self.agent.begin(&self.name, disk, to, &["--manual-pivot"])?;
        self.agent.until(&id, "ready", |operation| operation["waits_for_pivot"] == true)?;
        Ok(id)
    }

    /// The operation ends as failed, rolled back, with this cause; returns the system's own text.
    pub fn fails(&self, id: &str, cause: &str) -> Result<String, LabError> {
        let operation = self.agent.wait(id)?;
        assert_eq!(operation["state"], "failed", "{operation:#}");
        assert_eq!(operation["failure"]["cause"], cause, "{operation:#}");
        assert_eq!(operation["place"], "source");
        Ok(operation["failure"]["text"].as_str().unwrap_or_default().to_owned())
    }

    /// Where a disk is, by libvirt's word.
    pub fn place(&mut self, disk: Disk) -> Result<String, LabError> {
        self.guest.volume(disk).map(|volume| volume.spec())
    }

    /// Stops the guest and starts it from what its stored definition names.
    pub fn stop_start(&mut self, seed: u64) -> Outcome {
        self.guest.wait_for_acks(50)?;
        self.guest.destroy()?;
        self.guest.start(seed)?;
        self.guest.wait_for_acks(50).map(drop)
    }

    /// Stops the guest and proves that every acknowledged write is where its disks now are.
    pub fn end(mut self) -> Outcome {
        self.guest.wait_for_acks(50)?;
        self.guest.destroy()?;
        prove(&mut self.guest)?;
        self.guest.undefine()
    }

    /// Runs `ceph` as the lab's administrator.
    pub fn ceph(&self, words: &[&str]) -> Result<String, LabError> {
        let conf = self.lab.setting("VOLFERRY_LAB_CEPH_CONF")?;
        output(std::process::Command::new("ceph").args(["-c", conf]).args(words))
    }

    /// A start from a definition taken before a move must fail: what it names is not there any more.
    pub fn old_definition_does_not_start(&mut self, old: &str, seed: u64) -> Outcome {
        let current = self.lab.virsh(&["dumpxml", "--inactive", &self.name])?;
        self.guest.wait_for_acks(50)?;
        self.guest.destroy()?;
        // QEMU empties the file of its console before it looks for its disks; the acknowledgements stay in theirs.
        self.define(&old.replace("/serial-", "/old-serial-"))?;
        let started = self.lab.virsh(&["start", &self.name]);
        assert!(started.is_err(), "old data was started");
        self.define(&current)?;
        prove(&mut self.guest)?;
        self.guest.start(seed)?;
        self.guest.wait_for_acks(50).map(drop)
    }

    /// The same with a single disk of an old definition in the present one, for each of them; the guest is stopped then,
    /// and every acknowledged write is where its disks now are.
    pub fn old_disks_do_not_start(&mut self, old: &[(&str, String)]) -> Outcome {
        let current = self.lab.virsh(&["dumpxml", "--inactive", &self.name])?;
        self.guest.wait_for_acks(50)?;
        self.guest.destroy()?;
        // QEMU empties the file of its console before it looks for its disks.
        let aside = current.replace("/serial-", "/old-serial-");
        for (target, disk) in old {
            self.define(&aside.replace(disk_of(&aside, target), disk))?;
            let started = self.lab.virsh(&["start", &self.name]);
            assert!(started.is_err(), "old data was started: {disk}");
        }
        self.define(&current)?;
        prove(&mut self.guest)
    }

    /// What is said when another domain is started with this disk alone, which must fail; the guest runs on beside.
    pub fn starting_with_only(&self, disk: &str) -> Result<String, LabError> {
        let place = disk.lines().filter(|line| !line.contains("<address")).collect::<String>();
        let name = format!("{}-beside", self.name);
        let xml = format!(
            "<domain type='qemu'><name>{name}</name><memory unit='MiB'>32</memory><os>\
             <type arch='x86_64' machine='pc'>hvm</type></os><devices>{place}</devices></domain>"
        );
        let file = self.lab.dir()?.join(format!("{name}.xml"));
        std::fs::write(&file, xml).expect("the lab's folder can be written");
        let started = self.lab.virsh(&["create", "--paused", &file.display().to_string()]);
        std::fs::remove_file(&file).expect("it was just written");
        match started {
            Err(error) => Ok(error.to_string()),
            Ok(_) => {
                self.lab.virsh(&["destroy", &name])?;
                panic!("old data was started: {disk}")
            }
        }
    }

    fn define(&self, xml: &str) -> Outcome {
        let file = self.lab.dir()?.join(format!("{}-old.xml", self.name));
        std::fs::write(&file, xml).expect("the lab's folder can be written");
        self.lab.virsh(&["define", &file.display().to_string()])?;
        std::fs::remove_file(&file).expect("it was just written");
        Ok(())
    }
}

/// Bytes copied so far.
pub fn copied(operation: &Value) -> u64 {
    operation["progress"]["copied_bytes"].as_u64().unwrap_or(0)
}

/// The warnings of an operation as one text.
pub fn warnings(operation: &Value) -> String {
    operation["warnings"].to_string()
}

/// A refused request: exit code 3 and this code.
pub fn assert_refused(answer: &Answer, code: &str) {
    assert_eq!(answer.code, 3, "{}", answer.stderr);
    assert!(answer.stderr.contains(code), "{code}: {}", answer.stderr);
}

/// The `<disk>` of a definition that has this target.
pub fn disk_of<'a>(xml: &'a str, target: &str) -> &'a str {
    let wanted = format!("<target dev='{target}'");
    let disks = xml.match_indices("<disk ").map(|(start, _)| {
        let end = xml[start..].find("</disk>").expect("it ends") + start;
        &xml[start..end + "</disk>".len()]
    });
    disks.into_iter().find(|disk| disk.contains(&wanted)).expect("the disk")
}
