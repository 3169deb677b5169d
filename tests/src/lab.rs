//! The running laboratory as tests see it: its settings, its volumes, its guests.
//!
//! ```no_run
//! use volferry_tests::lab::{Base, Guest, Lab, Spec, Volume};
//!
//! # fn main() -> Result<(), volferry_tests::lab::LabError> {
//! let lab = Lab::from_env()?;
//! let root = lab.create(Base::Root, &Volume::qcow2(lab.pool("nfs")?.join("one-root.qcow2")))?;
//! let data = lab.create(Base::Data, &Volume::rbd("vf-a", "one-data"))?;
//! let mut guest = Guest::create(&lab, Spec::new("one", root, data))?;
//! guest.start(7)?;
//! guest.wait_for_acks(200)?;
//! // ... move a disk ...
//! guest.destroy()?;
//! assert!(guest.verify()?.is_good());
//! # Ok(())
//! # }
//! ```

mod guest;
mod monitor;
pub(crate) mod process;
mod served;
mod sweep;
mod volume;
pub mod watchdog;
mod xml;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::guest::Disk;

pub use guest::{Guest, Spec};
pub use monitor::Monitor;
pub use process::output;
pub use served::Served;
pub use volume::{Base, Encryption, Format, Place, Volume};

/// What goes wrong in the laboratory, in words for the person who runs it.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The lab is not up, or lacks a setting.
    #[error("the lab is not up: {0}; run tests/lab/lab-up.sh")]
    NotUp(String),
    /// A command of the lab failed.
    #[error("{command}: {text}")]
    Command {
        /// What was run.
        command: String,
        /// What it said.
        text: String,
    },
    /// Something awaited did not happen.
    #[error("waited {seconds} s in vain for {what}")]
    Timeout {
        /// For how long.
        seconds: u64,
        /// For what.
        what: String,
    },
    /// The guest reported a fault or ended.
    #[error("guest {name}: {text}")]
    Guest {
        /// The guest.
        name: String,
        /// What it said.
        text: String,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// What an error of the system was about.
pub fn at(path: &Path) -> impl FnOnce(std::io::Error) -> LabError + '_ {
    move |source| LabError::File { path: path.to_owned(), source }
}

/// The running laboratory.
#[derive(Debug, Clone)]
pub struct Lab {
    settings: BTreeMap<String, String>,
    daemon: String,
    uri: String,
    mode: String,
    rooted: bool,
}

impl Lab {
    /// The lab described by `$VOLFERRY_LAB_DIR/env`; without the variable that of this repository.
    ///
    /// # Errors
    /// When the lab is not up.
    pub fn from_env() -> Result<Lab, LabError> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("lab/env.sh");
        let text = output(
            Command::new("bash")
                .args(["-c", "source \"$1\" && cat \"$LAB/env\"", "env"])
                .arg(script),
        )
        .map_err(|e| LabError::NotUp(e.to_string()))?;
        let settings: BTreeMap<_, _> = text
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        let value = |key: &str| {
            settings.get(key).cloned().ok_or_else(|| LabError::NotUp(format!("{key} is not set")))
        };
        Ok(Lab {
            daemon: "main".into(),
            uri: value("VOLFERRY_LAB_URI")?,
            mode: value("VOLFERRY_LAB_LIBVIRT_MODE")?,
            rooted: false,
            settings,
        })
    }

    /// The same lab with another libvirt daemon, started if need be. Modes: `root`, `qemu`, `qemu-static`.
    ///
    /// # Errors
    /// When it does not start.
    pub fn with_libvirtd(&self, name: &str, mode: &str) -> Result<Lab, LabError> {
        self.control(&["libvirtd-start", name, mode])?;
        let uri = self.control(&["libvirtd-uri", name])?.trim().to_owned();
        let settings = self.settings.clone();
        Ok(Lab { daemon: name.to_owned(), uri, mode: mode.to_owned(), rooted: false, settings })
    }

    /// The same lab with a libvirt daemon that somebody else runs, as root, on this kernel and with the lab's folder.
    #[must_use]
    pub fn with_uri(&self, uri: &str) -> Lab {
        Lab { uri: uri.to_owned(), mode: "root".to_owned(), ..self.clone() }
    }

    /// The same lab with the libvirt daemon of a newer Debian release, which `lab-up.sh RELEASE` makes: its programs
    /// and its libraries are that release's too, see [`Lab::command`].
    ///
    /// # Errors
    /// When there is no root of the release, or the daemon does not start.
    pub fn of_release(&self, release: &str) -> Result<Lab, LabError> {
        Ok(Lab { rooted: true, ..self.with_libvirtd(release, "root")? })
    }

    /// A program as it runs on this lab's host: where the daemon has a root of its own, in that root, with the
    /// libraries and programs that are there. The program's file must be below the lab's folder then.
    ///
    /// # Errors
    /// When a setting is missing.
    pub fn command(&self, program: &Path) -> Result<Command, LabError> {
        if !self.rooted {
            return Ok(Command::new(program));
        }
        let mut command = Command::new(self.script("ctl.sh")?);
        command.env("VOLFERRY_LAB_DIR", self.dir()?);
        command.args(["libvirtd-inside", &self.daemon]).arg(program);
        Ok(command)
    }

    /// Do programs run in a root of their own?
    #[must_use]
    pub fn is_rooted(&self) -> bool {
        self.rooted
    }

    /// Runs one action of `tests/lab/ctl.sh`.
    ///
    /// # Errors
    /// When it fails.
    pub fn control(&self, words: &[&str]) -> Result<String, LabError> {
        output(
            Command::new(self.script("ctl.sh")?).args(words).env("VOLFERRY_LAB_DIR", self.dir()?),
        )
    }

    /// A setting of the lab's `env` file; an empty one counts as missing.
    ///
    /// # Errors
    /// When it is missing.
    pub fn setting(&self, key: &str) -> Result<&str, LabError> {
        match self.settings.get(key).map(String::as_str) {
            None | Some("") => Err(LabError::NotUp(format!("{key} is not set"))),
            Some(value) => Ok(value),
        }
    }

    /// The lab's folder.
    ///
    /// # Errors
    /// When the setting is missing.
    pub fn dir(&self) -> Result<&Path, LabError> {
        self.setting("VOLFERRY_LAB_DIR").map(Path::new)
    }

    /// The name of this lab's libvirt daemon.
    #[must_use]
    pub fn daemon(&self) -> &str {
        &self.daemon
    }

    /// The process of a guest's QEMU, if it runs.
    ///
    /// # Errors
    /// When the lab's scripts fail.
    pub fn qemu_pid(&self, guest: &str) -> Result<Option<i32>, LabError> {
        let lines = self.control(&["libvirtd-qemus", &self.daemon])?;
        let mut pairs = lines.lines().filter_map(|line| line.split_once(' '));
        Ok(pairs.find(|(_, name)| *name == guest).and_then(|(pid, _)| pid.parse().ok()))
    }

    /// The process of this lab's libvirt daemon, if it runs.
    ///
    /// # Errors
    /// When its pid file cannot be read.
    pub fn libvirtd_pid(&self) -> Result<Option<i32>, LabError> {
        let file = self.dir()?.join("libvirt").join(&self.daemon).join("libvirtd.pid");
        let text = fs::read_to_string(&file).map_err(at(&file))?;
        let pid = text.trim().parse().ok();
        Ok(pid.filter(|pid: &i32| Path::new(&format!("/proc/{pid}")).exists()))
    }

    /// What libvirt says of a block job on a disk; none when there is none.
    ///
    /// # Errors
    /// When libvirt does not answer.
    pub fn block_job(&self, guest: &str, disk: Disk) -> Result<Option<String>, LabError> {
        let said = self.virsh(&["blockjob", guest, &disk.to_string(), "--info"])?;
        let said = said.trim();
        let none = said.is_empty() || said.starts_with("No current block job");
        Ok((!none).then(|| said.to_owned()))
    }

    /// The volume a disk uses by a domain's XML, written as [`Volume::spec`] does.
    #[must_use]
    pub fn disk_in(&self, xml: &str, disk: Disk) -> Option<String> {
        xml::volume_of(xml, disk).map(|volume| volume.spec())
    }

    /// The libvirt URI of this lab's daemon.
    #[must_use]
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// How that daemon runs QEMU: `root`, `qemu` or `qemu-static`.
    #[must_use]
    pub fn mode(&self) -> &str {
        &self.mode
    }

    /// The folder of a file pool: `nfs`, `smp`, `local` or `small`.
    ///
    /// # Errors
    /// When this machine has none (no loop device for `small`).
    pub fn pool(&self, name: &str) -> Result<&Path, LabError> {
        self.setting(&format!("VOLFERRY_LAB_POOL_{}", name.to_uppercase())).map(Path::new)
    }

    /// Builds the images guests boot from, if they are missing or out of date. `$VOLFERRY_LAB_IMAGES_BUILT` tells that
    /// they were built for this run.
    ///
    /// # Errors
    /// When the build fails.
    pub fn build_images(&self) -> Result<(), LabError> {
        if std::env::var_os("VOLFERRY_LAB_IMAGES_BUILT").is_some() {
            return Ok(());
        }
        output(Command::new(self.script("guest.sh")?).env("VOLFERRY_LAB_DIR", self.dir()?))
            .map(drop)
    }

    /// Runs `virsh` against this lab's daemon.
    ///
    /// # Errors
    /// When it fails.
    pub fn virsh(&self, words: &[&str]) -> Result<String, LabError> {
        output(Command::new("virsh").args(["-q", "-c", &self.uri]).args(words))
    }

    /// Runs `rbd` as the lab's user.
    ///
    /// # Errors
    /// When it fails.
    pub fn rbd(&self, words: &[&str]) -> Result<String, LabError> {
        let conf = self.setting("VOLFERRY_LAB_CEPH_CONF")?;
        output(Command::new("rbd").args(["-c", conf, "--id", "volferry"]).args(words))
    }

    pub(crate) fn script(&self, name: &str) -> Result<PathBuf, LabError> {
        Ok(Path::new(self.setting("VOLFERRY_LAB_SCRIPTS")?).join(name))
    }

    /// A file of the built images.
    pub(crate) fn built(&self, name: &str) -> Result<PathBuf, LabError> {
        Ok(self.dir()?.join("guest").join(name))
    }

    /// A folder for one guest's records.
    pub(crate) fn guest_dir(&self, name: &str) -> Result<PathBuf, LabError> {
        let dir = self.dir()?.join("guests").join(name);
        fs::create_dir_all(&dir).map_err(at(&dir))?;
        Ok(dir)
    }
}
