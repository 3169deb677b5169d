//! A file system whose server is a process: when that is stopped, every look at the file system hangs.

use std::path::Path;
use std::process::{Child, Command};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::process::wait_for;
use super::{Lab, LabError, at, output};

/// A file system whose server is a process, and hangs while that is stopped. Unmounted when it is dropped.
#[derive(Debug)]
pub struct Served {
    folder: String,
    server: Child,
}

impl Served {
    /// Mounts it.
    ///
    /// # Errors
    /// When it is not mounted in time.
    pub fn new(lab: &Lab) -> Result<Served, LabError> {
        let (behind, folder) = (lab.dir()?.join("served-behind"), lab.dir()?.join("served"));
        for folder in [&behind, &folder] {
            std::fs::create_dir_all(folder).map_err(at(folder))?;
        }
        let words = ["-f", "-o", "allow_other"];
        let server = Command::new("bindfs").args(words).arg(&behind).arg(&folder).spawn();
        let server = server.map_err(at(Path::new("bindfs")))?;
        let served = Served { folder: folder.display().to_string(), server };
        wait_for(10, "the file system to be served", || {
            let mounts = std::fs::read_to_string("/proc/mounts").map_err(at(&folder))?;
            Ok(mounts.contains(&served.folder).then_some(()))
        })?;
        Ok(served)
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &str {
        &self.folder
    }

    /// Every look at it hangs from now on.
    pub fn stop(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// What hangs goes on.
    pub fn go_on(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.server.id()).expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("our own child");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.signal(Signal::SIGCONT);
        if let Err(error) = output(Command::new("umount").args(["-l", &self.folder])) {
            eprintln!("{error}");
        }
        self.signal(Signal::SIGKILL);
        let _ = self.server.wait();
    }
}
