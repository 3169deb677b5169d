//! The release binaries as a user runs them: a daemon of the test's own and the `volferry` command against it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::lab::{Lab, LabError, at};

/// How long the daemon may take from its start to its socket.
const START: Duration = Duration::from_secs(20);

/// A running `volferryd` with a state folder and socket of its own.
#[derive(Debug)]
pub struct Agent {
    folder: PathBuf,
    lab: Lab,
    program: PathBuf,
    pools: String,
    setup: Setup,
    child: Option<Child>,
    environment: Vec<(String, String)>,
}

/// What a daemon is configured with besides the lab's pools.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Keys of the top level, a line each.
    pub keys: String,
    /// Keys of `[limits]`, a line each.
    pub limits: String,
    /// More tables, whole.
    pub tables: String,
    /// The state folder; none for one beside the socket.
    pub state: Option<PathBuf>,
}

impl Default for Setup {
    /// Nothing waits for a turn but what a test makes wait.
    fn default() -> Self {
        let limits = "operations_per_host = 64\noperations_per_pool = 64\n".to_owned();
        Self { keys: String::new(), limits, tables: String::new(), state: None }
    }
}

/// What a command said.
#[derive(Debug)]
pub struct Answer {
    /// Its exit status.
    pub code: i32,
    /// Every JSON document of its standard output, in order.
    pub documents: Vec<Value>,
    /// Its standard error.
    pub stderr: String,
}

impl Answer {
    /// The last JSON document; null when there was none.
    #[must_use]
    pub fn last(&self) -> &Value {
        self.documents.last().unwrap_or(&Value::Null)
    }

    /// The operation of the last document.
    #[must_use]
    pub fn operation(&self) -> &Value {
        match self.last() {
            document if document.get("operation").is_some() => &document["operation"],
            document => document,
        }
    }
}

/// A release binary: in the folder `$VOLFERRY_BIN_DIR`, or where `cargo build --release` leaves it.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    let folder = match std::env::var_os("VOLFERRY_BIN_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release"),
    };
    folder.join(name)
}

impl Agent {
    /// Starts a daemon called `name` against a libvirt of the lab, with empty state.
    ///
    /// # Errors
    /// When it does not listen in time; its log is named.
    pub fn start(lab: &Lab, name: &str) -> Result<Agent, LabError> {
        Agent::start_with(lab, name, Setup::default())
    }

    /// The same with another configuration.
    ///
    /// # Errors
    /// When it does not listen in time; its log is named.
    pub fn start_with(lab: &Lab, name: &str, setup: Setup) -> Result<Agent, LabError> {
        let folder = lab.dir()?.join("agents").join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(at(&folder))?;
        }
        fs::create_dir_all(&folder).map_err(at(&folder))?;
        let pools = Path::new(lab.setting("VOLFERRY_LAB_CONFIG")?);
        let pools = fs::read_to_string(pools).map_err(at(pools))?;
        let mut program = binary("volferryd");
        if lab.is_rooted() {
            let inside = folder.join("volferryd");
            fs::copy(&program, &inside).map_err(at(&program))?;
            program = inside;
        }
        let mut agent = Agent {
            folder,
            lab: lab.clone(),
            program,
            pools,
            setup,
            child: None,
            environment: Vec::new(),
        };
        agent.run()?;
        Ok(agent)
    }

    /// Starts the daemon again on the state it left.
    ///
    /// # Errors
    /// When it does not listen in time.
    pub fn run(&mut self) -> Result<(), LabError> {
        let config = self.folder.join("volferry.toml");
        let state = self.setup.state.clone().unwrap_or_else(|| self.folder.join("state"));
        // Top-level keys must stand before the first table.
        let text = format!(
            "listen = \"unix:{}\"\nstate_dir = \"{}\"\nlibvirt_uri = \"{}\"\n{}\n{}\n[limits]\n{}\n{}",
            self.socket().display(),
            state.display(),
            self.lab.uri(),
            self.setup.keys,
            self.pools,
            self.setup.limits,
            self.setup.tables
        );
        fs::write(&config, text).map_err(at(&config))?;
        fs::create_dir_all(&state).map_err(at(&state))?;
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.log())
            .map_err(at(&self.folder))?;
        let mut child = self
            .lab
            .command(&self.program)?
            .arg("--config")
            .arg(&config)
            .envs(std::mem::take(&mut self.environment))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(at(Path::new("volferryd")))?;
        let until = Instant::now() + START;
        while self.volferry(&["ops", "list"])?.code != 0 {
            let ended = child.try_wait().map_err(at(&self.folder))?;
            if ended.is_some() || Instant::now() > until {
                let _ = child.kill();
                let what = format!("volferryd to listen; see {}", self.log().display());
                return Err(LabError::Timeout { seconds: START.as_secs(), what });
            }
        }
        self.child = Some(child);
        Ok(())
    }

    /// A variable of the environment for the next life of the daemon only.
    pub fn set_for_next_run(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// How the daemon ended, if it did.
    ///
    /// # Errors
    /// When the system cannot say.
    pub fn ended(&mut self) -> Result<Option<std::process::ExitStatus>, LabError> {
        match &mut self.child {
            Some(child) => child.try_wait().map_err(at(&self.folder)),
            None => Ok(None),
        }
    }

    /// The daemon's log.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// The daemon's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    /// The daemon's process id.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Kills the daemon with SIGKILL and waits for its end.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The `volferry` command with these words, ready to run.
    #[must_use]
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(binary("volferry"));
        command.arg("--socket").arg(self.socket()).args(words).stdin(Stdio::null());
        command
    }

    /// Runs `volferry` with `--output json` and waits for its end.
    ///
    /// # Errors
    /// When it cannot be started, or prints what is not JSON.
    pub fn volferry(&self, words: &[&str]) -> Result<Answer, LabError> {
        let mut command = self.command(words);
        command.args(["--output", "json"]);
        answer(words, command.output().map_err(at(Path::new("volferry")))?)
    }

    /// Moves a disk and waits for the end.
    ///
    /// # Errors
    /// As [`Agent::volferry`].
    pub fn migrate(
        &self,
        domain: &str,
        disk: &str,
        to: &str,
        more: &[&str],
    ) -> Result<Answer, LabError> {
        let words: Vec<&str> =
            ["migrate", domain, disk, "--to", to].iter().chain(more).copied().collect();
        self.volferry(&words)
    }

    /// Begins a move and returns its operation id at once.
    ///
    /// # Errors
    /// When it is refused.
    pub fn begin(
        &self,
        domain: &str,
        disk: &str,
        to: &str,
        more: &[&str],
    ) -> Result<String, LabError> {
        let more: Vec<&str> = more.iter().copied().chain(["--detach"]).collect();
        let answer = self.migrate(domain, disk, to, &more)?;
        match (answer.code, answer.operation()["id"].as_str()) {
            (0, Some(id)) => Ok(id.to_owned()),
            _ => Err(LabError::Command { command: "volferry migrate".into(), text: answer.stderr }),
        }
    }

    /// Follows an operation until `wanted` holds for it.
    ///
    /// # Errors
    /// When it ends before, or its stream does.
    pub fn until(
        &self,
        id: &str,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value, LabError> {
        let mut command = self.command(&["ops", "watch", id, "--output", "json"]);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(at(Path::new("volferry")))?;
        let mut found = None;
        if let Some(stdout) = child.stdout.take() {
            for line in BufReader::new(stdout).lines() {
                let line = line.map_err(at(Path::new("volferry")))?;
                let document: Value = serde_json::from_str(&line).unwrap_or_default();
                if wanted(&document["operation"]) {
                    found = Some(document["operation"].clone());
                    break;
                }
            }
        }
        let _ = child.kill();
        let _ = child.wait();
        found.ok_or_else(|| LabError::Command {
            command: format!("volferry ops watch {id}"),
            text: format!("it ended before {what}"),
        })
    }

    /// Waits for an operation's end and returns it.
    ///
    /// # Errors
    /// When it cannot be followed.
    pub fn wait(&self, id: &str) -> Result<Value, LabError> {
        self.volferry(&["ops", "watch", id]).map(|answer| answer.operation().clone())
    }

    /// One operation as it is now.
    ///
    /// # Errors
    /// When there is none.
    pub fn operation(&self, id: &str) -> Result<Value, LabError> {
        self.volferry(&["ops", "show", id]).map(|answer| answer.operation().clone())
    }
}

fn answer(words: &[&str], output: Output) -> Result<Answer, LabError> {
    let command = || format!("volferry {}", words.join(" "));
    let documents = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(serde_json::from_str)
        .collect::<Result<Vec<Value>, _>>()
        .map_err(|error| LabError::Command { command: command(), text: error.to_string() })?;
    Ok(Answer {
        code: output.status.code().unwrap_or(-1),
        documents,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.kill();
    }
}
