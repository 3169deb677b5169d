//! A QEMU monitor of the tester's own, beside libvirt's: what QEMU itself says of its disks and of being stopped, also
//! while libvirt is away. Only reads.

use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::{LabError, at};
use crate::guest::Disk;

/// How long QEMU may take for an answer.
const ANSWER: Duration = Duration::from_secs(20);

/// A connected monitor.
#[derive(Debug)]
pub struct Monitor {
    path: PathBuf,
    stream: UnixStream,
    replies: Receiver<Value>,
    events: Arc<Mutex<Vec<String>>>,
}

impl Monitor {
    /// Connects and takes note of every event from now on.
    pub(crate) fn connect(path: &Path) -> Result<Monitor, LabError> {
        let stream = UnixStream::connect(path).map_err(at(path))?;
        let reader = BufReader::new(stream.try_clone().map_err(at(path))?);
        let (sender, replies) = channel();
        let events = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&events);
        // Ends with QEMU, or when the monitor is dropped and the stream shut down.
        std::thread::spawn(move || {
            for line in reader.lines().map_while(Result::ok) {
                let value: Value = serde_json::from_str(&line).unwrap_or_default();
                match value["event"].as_str() {
                    Some(event) => {
                        noted.lock().unwrap_or_else(PoisonError::into_inner).push(event.to_owned());
                    }
                    None if value.get("QMP").is_some() => {}
                    None => {
                        if sender.send(value).is_err() {
                            break;
                        }
                    }
                }
            }
        });
        let mut monitor = Monitor { path: path.to_owned(), stream, replies, events };
        monitor.execute("qmp_capabilities")?;
        Ok(monitor)
    }

    /// Runs a command without arguments and returns its answer.
    ///
    /// # Errors
    /// When QEMU refuses, is gone, or does not answer in time.
    pub fn execute(&mut self, command: &str) -> Result<Value, LabError> {
        let failed = |text: String| LabError::Command { command: command.to_owned(), text };
        writeln!(self.stream, "{}", json!({ "execute": command })).map_err(at(&self.path))?;
        let reply = self.replies.recv_timeout(ANSWER).map_err(|e| failed(e.to_string()))?;
        match reply.get("return") {
            Some(value) => Ok(value.clone()),
            None => Err(failed(reply.to_string())),
        }
    }

    /// The names of the events seen so far.
    #[must_use]
    pub fn events(&self) -> Vec<String> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The volume QEMU uses for a disk, written as [`super::Volume::spec`] does.
    ///
    /// # Errors
    /// When QEMU does not answer or has no such disk.
    pub fn current(&mut self, disk: Disk) -> Result<String, LabError> {
        let blocks = self.execute("query-block")?;
        let device = format!("virtio-disk{}/", disk.letter() - b'a');
        let blocks = blocks.as_array().map(Vec::as_slice).unwrap_or_default();
        let name = blocks
            .iter()
            .find(|block| block["qdev"].as_str().is_some_and(|path| path.contains(&device)))
            .and_then(|block| block["inserted"]["image"]["filename"].as_str());
        name.and_then(volume_of).ok_or_else(|| LabError::Command {
            command: "query-block".into(),
            text: format!("no volume of {disk}: {name:?}"),
        })
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // Lets the reading thread end; a peer that is gone is no fault.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// What a QEMU file name names: a path, an `rbd:` name, or a `json:` description of either.
fn volume_of(name: &str) -> Option<String> {
    if let Some(text) = name.strip_prefix("json:") {
        return in_description(&serde_json::from_str(text).ok()?);
    }
    Some(name.split(':').take(2).collect::<Vec<_>>().join(":"))
}

fn in_description(node: &Value) -> Option<String> {
    if let (Some(pool), Some(image)) = (node["pool"].as_str(), node["image"].as_str()) {
        return Some(format!("rbd:{pool}/{image}"));
    }
    match node["filename"].as_str() {
        Some(path) => Some(path.to_owned()),
        None => in_description(node.get("file")?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_name_is_understood() {
        assert_eq!(volume_of("/a/b.qcow2").as_deref(), Some("/a/b.qcow2"));
        assert_eq!(volume_of("rbd:p/i:conf=x").as_deref(), Some("rbd:p/i"));
        let json = r#"json:{"driver":"raw","file":{"driver":"rbd","pool":"p","image":"i"}}"#;
        assert_eq!(volume_of(json).as_deref(), Some("rbd:p/i"));
        assert_eq!(volume_of(r#"json:{"file":{"filename":"/x"}}"#).as_deref(), Some("/x"));
        assert_eq!(volume_of("json:{}"), None);
    }
}
