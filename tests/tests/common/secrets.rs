//! What must stay secret, looked for wherever it could have gone while a test runs: command lines and environments of
//! every process, the agent's folder with its journal and its log, files that appear in places for temporary ones, and
//! what the agent answers. In each of these places something else is planted, or known to be, which must be found: a search
//! that finds nothing anywhere proves nothing.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use volferry_tests::agent::{Agent, Answer};
use volferry_tests::lab::{Lab, LabError};

/// How deep places for temporary files are looked through, and up to which size of a file.
const DEPTH: usize = 3;
const LONGEST: u64 = 16 << 20;

/// Starts an agent again that logs all it can.
pub fn talkative(agent: &mut Agent) -> Result<(), LabError> {
    agent.kill();
    agent.set_for_next_run("VOLFERRY_LOG", "trace");
    agent.run()
}

/// The secrets of one test, and a thread that looks for them.
pub struct Secrets {
    forms: Arc<Vec<String>>,
    folder: PathBuf,
    since: SystemTime,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
    /// What the journal and the log of the agent are full of.
    written: String,
    decoy: Decoy,
}

/// A word that is no secret, planted where secrets are looked for.
struct Decoy {
    word: String,
    files: Vec<PathBuf>,
    /// One has it in its command line, the other in its environment.
    processes: [Child; 2],
}

impl Decoy {
    fn plant() -> Decoy {
        let word = format!("decoy-{}", std::process::id());
        let plant = |folder: &PathBuf| {
            let file = folder.join(format!("volferry-test-{}", std::process::id()));
            fs::write(&file, &word).expect("a place for temporary files");
            file
        };
        let waiting = |command: &mut Command| {
            // Ends with the pipe of its input, also when the test dies.
            command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cat is installed")
        };
        let processes = [
            waiting(
                Command::new("cat").args(["-", &format!("/dev/null/{word}")]).stderr(Stdio::null()),
            ),
            waiting(Command::new("cat").env("VOLFERRY_TEST_DECOY", &word)),
        ];
        Decoy { files: temporary().iter().map(plant).collect(), word, processes }
    }
}

impl Drop for Decoy {
    fn drop(&mut self) {
        for file in &self.files {
            let _ = fs::remove_file(file);
        }
        for process in &mut self.processes {
            drop(process.stdin.take());
            let _ = process.wait();
        }
    }
}

/// Where programs put what is to last a while.
fn temporary() -> [PathBuf; 4] {
    [std::env::temp_dir(), "/dev/shm".into(), "/var/tmp".into(), "/run".into()]
}

/// What the thread saw.
#[derive(Default)]
struct Seen {
    looks: usize,
    copies: usize,
    told: BTreeSet<String>,
    /// The decoy in a command line, and in an environment.
    decoys: [bool; 2],
}

impl Secrets {
    /// Two passphrases that nothing else on this host has, in files of their own, and the key of the lab's Ceph user.
    pub fn watch(lab: &Lab, name: &str) -> Result<Secrets, LabError> {
        let folder = lab.dir()?.join(format!("passphrases-{name}"));
        fs::create_dir_all(&folder).expect("the lab's folder can be written");
        let words = ["open", "shut"].map(|word| format!("sesame-{word}-{}", std::process::id()));
        for (number, word) in words.iter().enumerate() {
            let file = folder.join(number.to_string());
            fs::write(&file, word).expect("the folder was just made");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
        }
        let key = key(lab)?;
        let forms: Vec<_> = words.iter().chain([&key]).flat_map(|word| forms(word)).collect();
        let forms = Arc::new(forms);
        let stop = Arc::new(AtomicBool::new(false));
        // File systems take the time from a clock of coarse steps, which may be a little behind.
        let since = SystemTime::now() - Duration::from_secs(1);
        let decoy = Decoy::plant();
        let (wanted, over) = (Arc::clone(&forms), Arc::clone(&stop));
        let planted = [decoy.word.clone()];
        let thread = std::thread::spawn(move || sample(&wanted, &planted, &over));
        let written = name.to_owned();
        let secrets = Secrets { forms, folder, since, stop, thread, written, decoy };
        assert!(secrets.are_in(words[1].as_bytes()), "a secret is not found in itself");
        Ok(secrets)
    }

    /// The file with the first or the second passphrase.
    pub fn file(&self, number: usize) -> String {
        self.folder.join(number.to_string()).display().to_string()
    }

    /// An answer, of which nothing is secret.
    pub fn silent(&self, answer: Answer) -> Answer {
        let text = format!("{} {:?}", answer.stderr, answer.documents);
        assert!(!self.are_in(text.as_bytes()), "the answer tells a secret");
        answer
    }

    /// Looks at everything that is left. Returns how often a copy was seen running.
    pub fn end(self, agent: &Agent) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        let own = agent.log().parent().expect("it lies in a folder").to_owned();
        let everywhere = |forms: &[String]| {
            let mut found = search(&own, &self.folder, usize::MAX, SystemTime::UNIX_EPOCH, forms);
            for place in temporary() {
                found.append(&mut search(&place, &self.folder, DEPTH, self.since, forms));
            }
            found
        };
        let found = everywhere(&self.forms);
        assert!(found.is_empty(), "secrets are in {found:?}");
        let planted = everywhere(std::slice::from_ref(&self.decoy.word));
        for file in &self.decoy.files {
            assert!(planted.contains(file), "nobody looked into {}", file.display());
        }
        let written = everywhere(std::slice::from_ref(&self.written));
        let in_journal = |path: &PathBuf| path.to_string_lossy().contains("journal");
        assert!(written.iter().any(in_journal), "nobody looked into the journal: {written:?}");
        assert!(
            written.contains(&agent.log().to_owned()),
            "nobody looked into the log: {written:?}"
        );
        let seen = self.thread.join().expect("no panic");
        assert!(seen.looks > 10, "only {} looks at the processes", seen.looks);
        assert!(seen.told.is_empty(), "secrets are told by {:?}", seen.told);
        assert_eq!(seen.decoys, [true; 2], "command lines and environments were not looked at");
        fs::remove_dir_all(&self.folder).expect("it was made here");
        seen.copies
    }

    fn are_in(&self, bytes: &[u8]) -> bool {
        holds(bytes, &self.forms)
    }
}

/// Files below `folder`, but not below `not_in`, that were written since and hold one of the forms.
fn search(
    folder: &Path,
    not_in: &Path,
    depth: usize,
    since: SystemTime,
    forms: &[String],
) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() && path != not_in && depth > 1 {
            found.append(&mut search(&path, not_in, depth - 1, since, forms));
        }
        let fresh = metadata.modified().is_ok_and(|modified| modified >= since);
        if metadata.is_file()
            && fresh
            && metadata.len() <= LONGEST
            && fs::read(&path).is_ok_and(|bytes| holds(&bytes, forms))
        {
            found.push(path);
        }
    }
    found
}

fn key(lab: &Lab) -> Result<String, LabError> {
    let key = fs::read_to_string(lab.setting("VOLFERRY_LAB_KEY_FILE")?).expect("the key");
    Ok(key.trim().to_owned())
}

/// A word as it is, and as lists of numbers print it.
fn forms(word: &str) -> [String; 3] {
    let numbers: Vec<String> = word.bytes().map(|byte| byte.to_string()).collect();
    [word.to_owned(), numbers.join(","), numbers.join(", ")]
}

/// All forms are plain ASCII, which what is no text around them does not hide.
fn holds(bytes: &[u8], forms: &[String]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    forms.iter().any(|form| text.contains(form.as_str()))
}

/// Command lines and environments of every process, until it is told to stop.
fn sample(forms: &[String], decoy: &[String], over: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    while !over.load(Ordering::Relaxed) {
        for entry in fs::read_dir("/proc").expect("Linux has it").flatten() {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            let text = String::from_utf8_lossy(&line).replace('\0', " ");
            seen.copies += usize::from(text.contains("qemu-img convert"));
            seen.decoys[0] |= holds(&line, decoy);
            seen.decoys[1] |= holds(&environment, decoy);
            if holds(&line, forms) || holds(&environment, forms) {
                seen.told.insert(text);
            }
        }
        seen.looks += 1;
        #[allow(clippy::disallowed_methods, reason = "samples are taken in even steps")]
        std::thread::sleep(Duration::from_millis(50));
    }
    seen
}
