//! What must stay secret, looked for wherever it could have gone while a test runs: command lines and environments of
//! every process, the agent's folder with its journal and its log, files that appear in places for temporary ones, and
//! what the agent answers.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
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
}

/// What the thread saw.
#[derive(Default)]
struct Seen {
    looks: usize,
    copies: usize,
    told: BTreeSet<String>,
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
        let (wanted, over) = (Arc::clone(&forms), Arc::clone(&stop));
        let thread = std::thread::spawn(move || sample(&wanted, &over));
        Ok(Secrets { forms, folder, since: SystemTime::now(), stop, thread })
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
        let (mut found, mut files) = (Vec::new(), 0);
        let own = agent.log().parent().expect("it lies in a folder").to_owned();
        self.search(&own, usize::MAX, SystemTime::UNIX_EPOCH, &mut found, &mut files);
        assert!(files > 2, "only {files} files below {}", own.display());
        for place in [std::env::temp_dir(), "/dev/shm".into(), "/var/tmp".into(), "/run".into()] {
            self.search(&place, DEPTH, self.since, &mut found, &mut files);
        }
        assert!(found.is_empty(), "secrets are in {found:?}");
        let seen = self.thread.join().expect("no panic");
        assert!(seen.looks > 10, "only {} looks at the processes", seen.looks);
        assert!(seen.told.is_empty(), "secrets are told by {:?}", seen.told);
        fs::remove_dir_all(&self.folder).expect("it was made here");
        seen.copies
    }

    fn search(
        &self,
        folder: &Path,
        depth: usize,
        since: SystemTime,
        found: &mut Vec<PathBuf>,
        files: &mut usize,
    ) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() && path != self.folder && depth > 1 {
                self.search(&path, depth - 1, since, found, files);
            }
            let fresh = metadata.modified().is_ok_and(|modified| modified >= since);
            if !metadata.is_file() || !fresh || metadata.len() > LONGEST {
                continue;
            }
            if let Ok(bytes) = fs::read(&path) {
                *files += 1;
                if self.are_in(&bytes) {
                    found.push(path);
                }
            }
        }
    }

    fn are_in(&self, bytes: &[u8]) -> bool {
        holds(bytes, &self.forms)
    }
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
fn sample(forms: &[String], over: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    while !over.load(Ordering::Relaxed) {
        for entry in fs::read_dir("/proc").expect("Linux has it").flatten() {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            let text = String::from_utf8_lossy(&line).replace('\0', " ");
            seen.copies += usize::from(text.contains("qemu-img convert"));
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
