//! Log lines for systemd's journal, with what they are about as fields of their own: `journalctl VOLFERRY_OPERATION=ID`
//! finds everything of one operation. The line itself is the text that a terminal would get.
//!
//! The protocol is systemd's documented native one: a datagram of `KEY=value` lines. A value with a line break, which
//! could forge a field, is sent with its length.

use std::fmt::{Debug, Write as _};
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Where systemd listens.
pub const SOCKET: &str = "/run/systemd/journal/socket";
/// A datagram of more is refused by the kernel where its buffers are as small as they may be.
const LONGEST: usize = 96 * 1024;

/// Sends what is logged.
#[derive(Debug)]
pub struct Journal(UnixDatagram);

impl Journal {
    /// Sends to this socket.
    ///
    /// # Errors
    /// When nobody listens there.
    pub fn connect(path: &Path) -> io::Result<Journal> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        Ok(Journal(socket))
    }
}

/// The parts of one line.
#[derive(Debug, Default)]
struct Line {
    message: String,
    fields: Vec<(&'static str, String)>,
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.take(field, format!("{value:?}"));
    }
}

impl Line {
    fn take(&mut self, field: &Field, value: String) {
        match field.name() {
            "message" => self.message = value,
            name => self.fields.push((name, value)),
        }
    }

    /// The datagram.
    fn datagram(&self, level: Level, target: &str) -> Vec<u8> {
        let mut text = self.message.clone();
        for (name, value) in &self.fields {
            // Writing to a string does not fail.
            let _ = write!(text, " {name}={value}");
        }
        let priority = match level {
            Level::ERROR => "3",
            Level::WARN => "4",
            Level::INFO => "6",
            _ => "7",
        };
        let mut bytes = Vec::new();
        put(&mut bytes, "PRIORITY", priority);
        put(&mut bytes, "SYSLOG_IDENTIFIER", "volferryd");
        put(&mut bytes, "TARGET", target);
        put(&mut bytes, "MESSAGE", &text);
        for (name, value) in &self.fields {
            put(&mut bytes, &key(name), value);
        }
        bytes
    }
}

/// The name a field has in the journal: capitals, digits and underscores only.
fn key(name: &str) -> String {
    let plain = |letter: char| match letter.is_ascii_alphanumeric() {
        true => letter.to_ascii_uppercase(),
        false => '_',
    };
    format!("VOLFERRY_{}", name.chars().map(plain).collect::<String>())
}

fn put(bytes: &mut Vec<u8>, key: &str, value: &str) {
    bytes.extend(key.as_bytes());
    if value.contains('\n') {
        bytes.push(b'\n');
        bytes.extend((value.len() as u64).to_le_bytes());
    } else {
        bytes.push(b'=');
    }
    bytes.extend(value.as_bytes());
    bytes.push(b'\n');
}

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut line = Line::default();
        event.record(&mut line);
        let metadata = event.metadata();
        let mut datagram = line.datagram(*metadata.level(), metadata.target());
        if datagram.len() > LONGEST {
            line.fields.clear();
            // At most four bytes a character.
            line.message = line.message.chars().take(LONGEST / 8).collect();
            datagram = line.datagram(*metadata.level(), metadata.target());
        }
        if let Err(error) = self.0.send(&datagram) {
            // Standard error leads to the same journal, by another way.
            crate::report::to_stderr(&format!(
                "{} (not sent to the journal: {error})",
                line.message
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn a_line_has_its_fields_and_no_value_forges_one() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("socket");
        let journal = UnixDatagram::bind(&path).expect("a socket");
        let layer = Journal::connect(&path).expect("somebody listens");
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(operation = %"op-1", disk = "vda\nPRIORITY=0", retries = 3, "it goes on");
        });
        let mut buffer = vec![0; 4096];
        let length = journal.recv(&mut buffer).expect("a datagram");
        let value = "vda\nPRIORITY=0";
        let mut expected = b"PRIORITY=4\nSYSLOG_IDENTIFIER=volferryd\n".to_vec();
        put(&mut expected, "TARGET", module_path!());
        put(&mut expected, "MESSAGE", &format!("it goes on operation=op-1 disk={value} retries=3"));
        put(&mut expected, "VOLFERRY_OPERATION", "op-1");
        put(&mut expected, "VOLFERRY_DISK", value);
        put(&mut expected, "VOLFERRY_RETRIES", "3");
        assert_eq!(
            buffer[..length],
            expected[..],
            "{}",
            String::from_utf8_lossy(&buffer[..length])
        );
        let framed =
            [b"VOLFERRY_DISK\n".as_slice(), &14_u64.to_le_bytes(), value.as_bytes()].concat();
        assert!(expected.windows(framed.len()).any(|part| part == framed));
    }

    #[test]
    fn what_is_too_long_is_cut_and_sent() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("socket");
        let journal = UnixDatagram::bind(&path).expect("a socket");
        let layer = Journal::connect(&path).expect("somebody listens");
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!("{}", "ü".repeat(LONGEST));
        });
        let mut buffer = vec![0; 2 * LONGEST];
        let length = journal.recv(&mut buffer).expect("a datagram");
        assert!(length < LONGEST && length > LONGEST / 8, "{length}");
    }
}
