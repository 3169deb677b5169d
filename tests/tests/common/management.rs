//! A management server's side: certificates by a CA of the test's own, and the worked client of the guide in Python.

#[path = "../../../agent/tests/support/certificates.rs"]
mod certificates;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use certificates::{Ca, Pair};
use serde_json::Value;
use volferry_tests::lab::{Lab, LabError, at};

/// The client that may move volumes.
pub const OPERATOR: &str = "operator.lab";
/// The client that may only look.
pub const WATCHER: &str = "watcher.lab";

/// Debian's own, which has the packages; another one may come first in the path.
const PYTHON: &str = "/usr/bin/python3";
const WITHOUT_CERTIFICATE: &str = "import grpc, sys
trusted = grpc.ssl_channel_credentials(open(sys.argv[2], 'rb').read())
try:
    grpc.channel_ready_future(grpc.secure_channel(sys.argv[1], trusted)).result(timeout=2)
except grpc.FutureTimeoutError:
    sys.exit(5)
";

/// Certificates, a port, and the stubs of the contract.
pub struct Management {
    folder: PathBuf,
    ca: Ca,
    tls: String,
    address: String,
}

impl Management {
    /// With a folder of its own.
    pub fn new(lab: &Lab, name: &str) -> Result<Self, LabError> {
        let folder = lab.dir()?.join("management").join(name);
        std::fs::create_dir_all(folder.join("stubs")).map_err(at(&folder))?;
        // Free at this moment; nothing else on loopback asks for ports here.
        let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let free = free.map_err(at(Path::new("a port")))?;
        let ca = Ca::new("ours");
        let tls = certificates::write_site(&folder, &free.to_string(), &ca);
        let management = Self { folder, ca, tls, address: format!("localhost:{}", free.port()) };
        management.make_stubs()?;
        Ok(management)
    }

    fn make_stubs(&self) -> Result<(), LabError> {
        let (stubs, proto) = (self.folder.join("stubs"), repository().join("agent/proto"));
        let mut protoc = Command::new("protoc");
        protoc.arg("-I").arg(proto).args(["-I", "/usr/include"]);
        for kind in ["python", "grpc_python"] {
            protoc.arg(format!("--{kind}_out={}", stubs.display()));
        }
        protoc.arg("--plugin=protoc-gen-grpc_python=/usr/bin/grpc_python_plugin");
        protoc.arg("volferry/v1/volferry.proto");
        let done = protoc.status().map_err(at(Path::new("protoc")))?;
        assert!(done.success(), "{protoc:?}: {done}");
        Ok(())
    }

    /// What an agent's configuration says about it.
    pub fn tables(&self) -> String {
        format!(
            "{}[[client]]\nname = \"{OPERATOR}\"\nrole = \"operate\"\n\
             [[client]]\nname = \"{WATCHER}\"\nrole = \"observe\"\n",
            self.tls
        )
    }

    /// The client with this certificate, ready to run.
    fn client(&self, file: &str, shows: &Pair, words: &[&str]) -> Command {
        let (certificate, key) = certificates::write(&self.folder, file, shows);
        let mut command = Command::new(PYTHON);
        command.arg(repository().join("docs/examples/migrate_volume.py"));
        command.args(["--agent", &self.address, "--ca"]).arg(self.folder.join("ca.crt"));
        command.arg("--cert").arg(certificate).arg("--key").arg(key).args(words);
        command.env("PYTHONPATH", self.folder.join("stubs")).stdin(Stdio::null());
        command
    }

    /// Moves something as that client: the exit code, the operation, and what was told on the way.
    pub fn migrate(
        &self,
        name: &str,
        id: &[&str],
        words: &[&str],
    ) -> Result<(i32, Value, String), LabError> {
        let words = [id, words].concat();
        let output = self.client(name, &self.ca.client(&[name]), &words).output();
        let output = output.map_err(at(Path::new(PYTHON)))?;
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        let operation = serde_json::from_slice(&output.stdout).unwrap_or_default();
        Ok((output.status.code().unwrap_or(-1), operation, told))
    }

    /// Clients that no agent of this CA lets in, each started: without a certificate, with an expired one, with a
    /// foreign one.
    pub fn refused(&self) -> Result<Vec<(&'static str, Child)>, LabError> {
        let words = ["--patience", "2", "--operation-id", "no", "--volume", "a/b", "--to", "c"];
        let mut without = Command::new(PYTHON);
        without.args(["-c", WITHOUT_CERTIFICATE, &self.address]).arg(self.folder.join("ca.crt"));
        let expired = self.client("expired", &self.ca.expired(OPERATOR), &words);
        let foreign = self.client("foreign", &Ca::new("theirs").client(&[OPERATOR]), &words);
        [("without", without), ("expired", expired), ("foreign", foreign)]
            .into_iter()
            .map(|(what, mut command)| {
                // What it says of each try is said in the agent's log too.
                command.env("GRPC_VERBOSITY", "NONE");
                Ok((what, command.spawn().map_err(at(Path::new(PYTHON)))?))
            })
            .collect()
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
