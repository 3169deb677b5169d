//! QEMUs that do not answer (stopped with SIGSTOP) must not keep the agent from answering about others, nor about
//! them.

mod common;

use std::time::{Duration, Instant};

use common::{Outcome, guest_on_files, lab, prove};
use volferry_tests::agent::{Agent, Answer};
use volferry_tests::lab::{Guest, Lab, LabError, Volume, output};

/// Bare QEMUs without a guest system: they are only there to hang.
struct Silent {
    lab: Lab,
    names: Vec<String>,
}

const COUNT: usize = 10;
const BOUND: Duration = Duration::from_secs(1);

impl Silent {
    fn start(lab: &Lab) -> Result<Silent, LabError> {
        let silent =
            Silent { lab: lab.clone(), names: (0..COUNT).map(|n| format!("silent-{n}")).collect() };
        for name in &silent.names {
            lab.remove(&Volume::rbd("vf-a", name))?;
            let image = lab.pool("nfs")?.join(format!("{name}.qcow2"));
            let path = image.display().to_string();
            let create = ["create", "-q", "-f", "qcow2", &path, "256M"];
            output(std::process::Command::new("qemu-img").args(create))?;
            // Data to copy: an empty disk would be done before anything can be stopped.
            let write = ["-f", "qcow2", "-c", "write -q -P 7 0 200M", &path];
            output(std::process::Command::new("qemu-io").args(write))?;
            let xml = format!(
                "<domain type='qemu'><name>{name}</name><memory unit='MiB'>32</memory>\
                 <os><type arch='x86_64' machine='pc'>hvm</type></os><devices>\
                 <disk type='file' device='disk'><driver name='qemu' type='qcow2' cache='none'/>\
                 <source file='{path}'/><target dev='vda' bus='virtio'/></disk></devices></domain>"
            );
            let file = lab.dir()?.join(format!("{name}.xml"));
            std::fs::write(&file, xml).expect("the lab's folder can be written");
            lab.virsh(&["create", &file.display().to_string()])?;
        }
        Ok(silent)
    }

    fn signal(&self, signal: &str) -> Outcome {
        for line in self.lab.control(&["libvirtd-qemus", "main"])?.lines() {
            if let Some((pid, name)) = line.split_once(' ')
                && self.names.iter().any(|own| own == name)
            {
                output(std::process::Command::new("kill").args([signal, pid]))?;
            }
        }
        Ok(())
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let _ = self.signal("-CONT");
        for name in &self.names {
            let _ = self.lab.virsh(&["destroy", name]);
            if let Ok(folder) = self.lab.pool("nfs") {
                let _ = std::fs::remove_file(folder.join(format!("{name}.qcow2")));
            }
        }
    }
}

fn within_bound(
    what: &str,
    ask: impl FnOnce() -> Result<Answer, LabError>,
) -> Result<Answer, LabError> {
    let begun = Instant::now();
    let answer = ask()?;
    let took = begun.elapsed();
    println!("{what}: {} ms", took.as_millis());
    assert!(took < BOUND, "{what} took {took:?}");
    Ok(answer)
}

#[test]
fn ten_silent_qemus_keep_nobody_waiting() -> Outcome {
    let lab = lab("hung");
    let agent = Agent::start(&lab, "hung")?;
    let mut guest: Guest = guest_on_files(&lab, "hung", true)?;
    guest.start(600)?;
    guest.wait_for_acks(50)?;
    let silent = Silent::start(&lab)?;
    let mut ids = Vec::new();
    for name in &silent.names {
        ids.push(agent.begin(name, "vda", "ceph-a", &["--bandwidth", "1MiB/s"])?);
    }
    for id in &ids {
        agent.until(id, "copying", |operation| operation["state"] == "copying")?;
    }
    silent.signal("-STOP")?;

    let list = within_bound("list", || agent.volferry(&["ops", "list"]))?;
    assert_eq!(list.code, 0, "{}", list.stderr);
    for id in &ids {
        let answer = within_bound("cancel", || agent.volferry(&["ops", "cancel", id]))?;
        assert_eq!(answer.code, 0, "{}", answer.stderr);
    }
    let begun = within_bound("a new migration", || {
        agent.migrate(guest.name(), "vdb", "ceph-b", &["--detach"])
    })?;
    assert_eq!(begun.code, 0, "{}", begun.stderr);
    let id = begun.operation()["id"].as_str().expect("an id").to_owned();
    let moved = agent.wait(&id)?;
    assert_eq!(moved["state"], "succeeded", "{moved:#}");
    within_bound("list again", || agent.volferry(&["ops", "list"]))?;

    silent.signal("-CONT")?;
    for id in &ids {
        let operation = agent.wait(id)?;
        assert_eq!(operation["state"], "cancelled", "{operation:#}");
    }
    drop(silent);
    guest.destroy()?;
    prove(&mut guest)?;
    guest.undefine()
}
