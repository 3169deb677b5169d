//! A guest, an agent and a libvirt to kill: begins a move, kills, waits for the end, asks everybody where the disk is.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::gaps::Gaps;
use super::verdict::{self, Seen, Verdict};
use super::{Kill, Victim};
use crate::agent::Agent;
use crate::guest::Disk;
use crate::lab::process::wait_for;
use crate::lab::{Base, Guest, Lab, LabError, Monitor, Place, Spec, Volume, watchdog};

/// One kill with everything after it may take so long: the watch of a killed QEMU alone lasts 30 s.
const TRIAL: Duration = Duration::from_secs(240);
/// What may be left over must be gone after this time: the watch of a killed QEMU and a retry.
const CLEAN: u64 = 40;

/// Where a disk is, or goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// A pool of qcow2 files.
    Nfs,
    /// A Ceph pool.
    CephA,
    /// Another Ceph pool.
    CephB,
}

impl Home {
    /// Its name in the agent's configuration.
    #[must_use]
    pub fn pool(self) -> &'static str {
        match self {
            Home::Nfs => "nfs",
            Home::CephA => "ceph-a",
            Home::CephB => "ceph-b",
        }
    }

    fn volume(self, lab: &Lab, stem: &str) -> Result<Volume, LabError> {
        Ok(match self {
            Home::Nfs => Volume::qcow2(lab.pool("nfs")?.join(format!("{stem}.qcow2"))),
            Home::CephA => Volume::rbd("vf-a", stem),
            Home::CephB => Volume::rbd("vf-b", stem),
        })
    }
}

/// The ground of one kill after another.
#[derive(Debug)]
pub struct Ground {
    lab: Lab,
    name: String,
    agent: Agent,
    guest: Option<Guest>,
    seed: u64,
    moves: u32,
}

impl Ground {
    /// An agent of its own in the lab, and room for guests called `name`.
    ///
    /// # Errors
    /// When the lab is not up.
    pub fn new(name: &str, seed: u64) -> Result<Ground, LabError> {
        let lab = Lab::from_env()?;
        lab.build_images()?;
        lab.sweep(name)?;
        let agent = Agent::start(&lab, name)?;
        Ok(Ground { lab, name: name.to_owned(), agent, guest: None, seed, moves: 0 })
    }

    /// A new guest with new disks at these places, writing.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn boot(&mut self, root: Home, data: Home) -> Result<(), LabError> {
        watchdog::begin_with(&self.lab, "a new guest", TRIAL);
        self.seed += 1;
        let stem = |disk: &str| format!("{}-{disk}", self.name);
        let root = self.lab.create(Base::Root, &root.volume(&self.lab, &stem("root"))?)?;
        let data = self.lab.create(Base::Data, &data.volume(&self.lab, &stem("data"))?)?;
        let mut guest = Guest::create(&self.lab, Spec::new(&self.name, root, data).monitored())?;
        guest.start(self.seed)?;
        guest.wait_for_acks(50)?;
        self.guest = Some(guest);
        Ok(())
    }

    /// Stops the guest and holds its disks against every write it was promised; what is wrong, in words. Then all of
    /// it is removed.
    ///
    /// # Errors
    /// When the lab fails.
    pub fn prove(&mut self) -> Result<Vec<String>, LabError> {
        watchdog::begin_with(&self.lab, "the proof of the guest's writes", TRIAL);
        let Some(mut guest) = self.guest.take() else { return Ok(Vec::new()) };
        if self.lab.qemu_pid(&self.name)?.is_some() {
            guest.destroy()?;
        }
        let report = guest.verify()?;
        self.lab.sweep(&self.name)?;
        let good = report.is_good() && report.acknowledged > 0;
        Ok(if good { Vec::new() } else { vec![format!("acknowledged writes: {report:#?}")] })
    }

    /// The points a move of `vda` to `to` passes, in order. The guest must be new.
    ///
    /// # Errors
    /// When the move fails.
    pub fn points(&mut self, to: Home) -> Result<Vec<String>, LabError> {
        watchdog::begin_with(&self.lab, "a move that is watched", TRIAL);
        let file = self.lab.dir()?.join(format!("{}-points", self.name));
        self.agent.kill();
        self.agent.set_for_next_run("VOLFERRY_POINTS_FILE", &file.display().to_string());
        self.agent.run()?;
        let answer = self.agent.migrate(&self.name, "vda", to.pool(), &[])?;
        let text = std::fs::read_to_string(&file).map_err(crate::lab::at(&file))?;
        if answer.code != 0 || text.is_empty() {
            let command = "a move that is watched".to_owned();
            return Err(LabError::Command { command, text: format!("{} {text}", answer.stderr) });
        }
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Moves a disk, kills at the point, and tells what came of it; none when the kill missed its point.
    ///
    /// # Errors
    /// When the lab fails.
    pub fn trial(
        &mut self,
        kill: &Kill,
        disk: Disk,
        to: Home,
    ) -> Result<Option<Verdict>, LabError> {
        watchdog::begin_with(&self.lab, &kill.to_string(), TRIAL);
        self.moves += 1;
        let id = format!("{}-{}-{}", self.name, self.seed, self.moves);
        let guest = self.guest.as_mut().expect("boot() came before");
        let from = guest.volume(disk)?;
        let monitor = guest.monitor()?;
        let gaps = Gaps::watch(guest.serial_log().expect("it was started"));
        let before = self.lab.volumes_of(&self.name)?;

        self.agent.kill();
        self.agent.set_for_next_run("VOLFERRY_POINT", &kill.order());
        self.agent.run()?;
        let mut client = self.begin(&id, disk, to)?;
        let hit = match kill.victim {
            Victim::Agent => self.agent_dies(&mut client)?.map(|died| (died, died)),
            Victim::Libvirtd | Victim::Qemu => self.kill_while_it_stands(kill, &mut client)?,
        };
        let Some((since, back)) = hit else {
            let ended = client.wait().map_err(crate::lab::at("volferry".as_ref()))?;
            // A move that was refused passed no point at all: the ground is not sound, and nothing is tried.
            if ended.code() == Some(3) {
                let text = self.end_of(&id, disk, to)?.to_string();
                return Err(LabError::Command { command: "volferry migrate".into(), text });
            }
            return Ok(None);
        };
        let mut decided = Duration::ZERO;
        if kill.victim == Victim::Agent {
            let restarted = Instant::now();
            self.agent.run()?;
            self.wait_decided(&id)?;
            decided = restarted.elapsed();
        }
        if kill.victim != Victim::Agent {
            self.wait_settled(&id)?;
            decided = back.elapsed();
        }
        client.wait().map_err(crate::lab::at("volferry".as_ref()))?;
        // The same request again: the same operation, whatever happened to the first answer.
        let operation = self.end_of(&id, disk, to)?;
        let gap = gaps.longest();
        let seen = self.look(kill, disk, &from, to, before, operation, monitor)?;
        let ended = seen.ended();
        let cleaned = self.wait_clean(&seen, since)?;
        let mut violations = verdict::judge(kill, &seen);
        let cleaned = cleaned.unwrap_or_else(|left| {
            violations.push(left);
            Duration::from_secs(CLEAN)
        });
        violations.extend(self.changes_after_restart(&id, &seen.operation)?);
        if seen.lost_by_libvirt {
            println!("libvirt lost its guest; it is shut down, and decided by what QEMU used");
            violations.extend(self.end_the_lost(&id, &seen)?);
        }
        if kill.victim == Victim::Qemu {
            self.guest.as_mut().expect("boot() came before").note_killed();
        }
        Ok(Some(Verdict { ended, violations, decided, cleaned, gap }))
    }

    fn begin(&self, id: &str, disk: Disk, to: Home) -> Result<Child, LabError> {
        let disk = disk.to_string();
        let words = ["migrate", &self.name, &disk, "--to", to.pool(), "--operation-id", id];
        let mut command = self.agent.command(&words);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map_err(crate::lab::at("volferry".as_ref()))
    }

    fn end_of(&self, id: &str, disk: Disk, to: Home) -> Result<Value, LabError> {
        let more = ["--operation-id", id];
        let answer = self.agent.migrate(&self.name, &disk.to_string(), to.pool(), &more)?;
        if answer.operation()["state"].is_string() {
            return Ok(answer.operation().clone());
        }
        // A guest that is gone lets a request that never began be refused; everything is as it was.
        let refused = serde_json::json!({ "state": "refused", "text": answer.stderr });
        if answer.code == 3 { Ok(refused) } else { self.agent.operation(id) }
    }

    /// When the daemon died by its own hand; none when the move ended before.
    fn agent_dies(&mut self, client: &mut Child) -> Result<Option<Instant>, LabError> {
        wait_for(120, "the agent to die", || {
            if let Some(status) = self.agent.ended()? {
                use std::os::unix::process::ExitStatusExt as _;
                let killed = status.signal() == Some(Signal::SIGKILL as i32);
                return if killed { Ok(Some(Some(Instant::now()))) } else { Err(died(status)) };
            }
            let ended = client.try_wait().map_err(crate::lab::at("volferry".as_ref()))?;
            // A client ends at once when its daemon dies, so the daemon is asked once more.
            Ok((ended.is_some_and(|status| status.code() != Some(5))).then_some(None))
        })
    }

    /// Kills libvirtd or QEMU while the agent stands at the point, or a while after it went on; when, and since when
    /// a killed libvirtd answers again.
    fn kill_while_it_stands(
        &mut self,
        order: &Kill,
        client: &mut Child,
    ) -> Result<Option<(Instant, Instant)>, LabError> {
        let pid = self.agent.pid().expect("it was started");
        let stands = wait_for(120, "the agent to stand still", || {
            let ended = client.try_wait().map_err(crate::lab::at("volferry".as_ref()))?;
            Ok(if is_stopped(pid) { Some(true) } else { ended.map(|_| false) })
        })?;
        if !stands {
            return Ok(None);
        }
        let qemu = self.lab.qemu_pid(&self.name)?;
        let libvirtd = self.lab.libvirtd_pid()?;
        let victim = if order.victim == Victim::Qemu { qemu } else { libvirtd };
        let victim = Pid::from_raw(victim.expect("it runs"));
        let agent = Pid::from_raw(i32::try_from(pid).expect("a process id"));
        if let Some(delay) = order.delay {
            signal(agent, Signal::SIGCONT)?;
            pause(delay);
            signal(victim, Signal::SIGKILL)?;
        } else {
            signal(victim, Signal::SIGKILL)?;
            signal(agent, Signal::SIGCONT)?;
        }
        let since = Instant::now();
        if order.victim == Victim::Libvirtd {
            // One that is still dying would be taken for one that runs.
            wait_for(30, "the end of libvirtd", || {
                Ok(self.lab.libvirtd_pid()?.is_none().then_some(()))
            })?;
            pause(order.away);
            self.lab.control(&["libvirtd-start", self.lab.daemon(), self.lab.mode()])?;
        }
        let back = if order.victim == Victim::Libvirtd { Instant::now() } else { since };
        // The move may have been over already.
        let over = client.try_wait().map_err(crate::lab::at("volferry".as_ref()))?.is_some();
        let hit = order.victim == Victim::Qemu || order.delay.is_none() || !over;
        Ok(hit.then_some((since, back)))
    }

    /// The restarted daemon shows the operation as ended, going on, or unknown because it never began.
    fn wait_decided(&self, id: &str) -> Result<(), LabError> {
        wait_for(60, "the operation to be decided", || {
            let answer = self.agent.volferry(&["ops", "show", id])?;
            let detail = answer.operation()["detail"].as_str().unwrap_or_default().to_owned();
            Ok((!detail.contains("taken up again")).then_some(()))
        })
    }

    /// The answer says what came of it: moved, being undone, ended, or going on after all.
    fn wait_settled(&self, id: &str) -> Result<(), LabError> {
        wait_for(120, "the operation to be decided", || {
            let answer = self.agent.volferry(&["ops", "show", id])?;
            let state = answer.operation()["state"].as_str().unwrap_or_default().to_owned();
            let open = ["queued", "planned", "preparing", "copying", "ready", "pivoting"];
            Ok((!open.contains(&state.as_str())).then_some(()))
        })
    }

    #[allow(clippy::too_many_arguments, reason = "everything one look needs, once")]
    fn look(
        &mut self,
        order: &Kill,
        disk: Disk,
        from: &Volume,
        to: Home,
        before: Vec<String>,
        operation: Value,
        mut monitor: Monitor,
    ) -> Result<Seen, LabError> {
        let stem = match &from.place {
            Place::File(path) => {
                path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
            }
            Place::Rbd { image, .. } => image.clone(),
        };
        let running = self.lab.qemu_pid(&self.name)?.is_some();
        let known = self.lab.virsh(&["domstate", &self.name])?.trim() != "shut off";
        let inactive = self.lab.virsh(&["dumpxml", "--inactive", &self.name])?;
        let live =
            if running && known { Some(self.lab.virsh(&["dumpxml", &self.name])?) } else { None };
        let job = if running && known { self.lab.block_job(&self.name, disk)? } else { None };
        Ok(Seen {
            operation,
            source: from.spec(),
            destination: to.volume(&self.lab, &stem)?.spec(),
            qemu: if running { Some(monitor.current(disk)?) } else { None },
            live: live.and_then(|xml| self.lab.disk_in(&xml, disk)),
            inactive: self.lab.disk_in(&inactive, disk),
            job,
            stopped: monitor.events().iter().any(|event| event == "STOP"),
            qemu_was_killed: order.victim == Victim::Qemu,
            lost_by_libvirt: running && !known,
            agent_ended: self.agent.ended()?.is_some(),
            before,
        })
    }

    /// Waits until there is nothing but what the end of the operation lets expect; how long it took, or what is left.
    fn wait_clean(
        &self,
        seen: &Seen,
        since: Instant,
    ) -> Result<Result<Duration, String>, LabError> {
        let wanted = seen.expected_volumes(&self.lab)?;
        let mut found = Vec::new();
        let clean = wait_for(CLEAN, "nothing left over", || {
            found = self.lab.volumes_of(&self.name)?;
            Ok((found == wanted).then_some(()))
        });
        match clean {
            Ok(()) => Ok(Ok(since.elapsed())),
            Err(LabError::Timeout { .. }) => {
                Ok(Err(format!("the volumes are {found:?}, not {wanted:?}")))
            }
            Err(error) => Err(error),
        }
    }

    /// The way out of a guest that libvirt lost: its QEMU ends, and the operator decides; what is wrong, in words.
    fn end_the_lost(&mut self, id: &str, seen: &Seen) -> Result<Option<String>, LabError> {
        let keep = if seen.qemu.as_ref() == Some(&seen.source) { "source" } else { "destination" };
        let resolve = ["ops", "resolve", id, "--keep", keep];
        if self.agent.volferry(&resolve)?.code == 0 {
            return Ok(Some("a decision was taken while the lost QEMU ran".to_owned()));
        }
        let pid = self.lab.qemu_pid(&self.name)?.expect("it runs");
        signal(Pid::from_raw(pid), Signal::SIGTERM)?;
        wait_for(60, "the lost QEMU to end", || {
            Ok(self.lab.qemu_pid(&self.name)?.is_none().then_some(()))
        })?;
        let answer = self.agent.volferry(&resolve)?;
        let state = answer.operation()["state"].clone();
        let wanted = if keep == "source" { "failed" } else { "succeeded" };
        Ok((state != wanted).then(|| format!("{keep} was to be kept: {state} {}", answer.stderr)))
    }

    fn changes_after_restart(
        &mut self,
        id: &str,
        operation: &Value,
    ) -> Result<Option<String>, LabError> {
        if operation["state"] == "refused" {
            return Ok(None);
        }
        self.agent.kill();
        self.agent.run()?;
        let again = self.agent.operation(id)?;
        let told = |operation: &Value| (operation["state"].clone(), operation["place"].clone());
        let (then, now) = (told(operation), told(&again));
        Ok((then != now).then(|| format!("its end changed from {then:?} to {now:?}")))
    }
}

fn died(status: std::process::ExitStatus) -> LabError {
    LabError::Command { command: "volferryd".into(), text: format!("it ended by itself: {status}") }
}

fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
}

fn signal(pid: Pid, signal: Signal) -> Result<(), LabError> {
    kill(pid, signal).map_err(|e| LabError::Command {
        command: format!("{signal} to {pid}"),
        text: e.to_string(),
    })
}

fn pause(time: Duration) {
    #[allow(clippy::disallowed_methods, reason = "the instant of the kill is what is tried")]
    std::thread::sleep(time);
}
