//! Images that a real QEMU has open: what we see of it, what it hinders, what goes on beside it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/lab.rs"]
#[macro_use]
mod lab;
#[path = "support/tools.rs"]
mod tools;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lab::{Lab, MIB};
use rbdutils::errno::ErrorClass;
use rbdutils::images::{ImageError, Pool};
use rbdutils::names::{ImageName, ImageSpec, SnapshotName};
use rbdutils::qemu::{Authentication, RbdString};
use secrecy::ExposeSecret;

/// A qemu-io with the image open for writing, waiting for commands.
struct Writer {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Writer {
    fn open(mut command: Command, lab: &Lab, image: &ImageName) -> Self {
        let spec = ImageSpec::new(lab.pool.name().clone(), image.clone());
        let rbd = RbdString::new(spec)
            .with_user(lab.options.user.clone().unwrap())
            .with_conf("/dev/null")
            .with_monitors(lab.options.monitors.clone())
            .with_authentication(Authentication::Cephx)
            .with_option("keyfile", &lab.key_file);
        let mut child = command
            .args(["-f", "raw", rbd.to_secret_string().expose_secret()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// Writes from the beginning and waits until QEMU says it is done.
    fn write(&mut self, mib: u64) {
        let input = self.child.stdin.as_mut().unwrap();
        writeln!(input, "write -P 0xab 0 {mib}M\nflush").unwrap();
        input.flush().unwrap();
        let mut line = String::new();
        while !line.contains("ops;") {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "qemu-io has ended");
        }
    }

    fn close(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn image(pool: &Pool, name: ImageName) -> (ImageName, rbdutils::images::ImageId) {
    let id = pool.create(&name, 64 * MIB).unwrap();
    (name, id)
}

#[test]
fn an_image_in_use() {
    let lab = lab!("an_image_in_use");
    let Some(qemu_io) = tools::tool("an_image_in_use", "qemu-io") else { return };
    let (web, id) = image(&lab.pool, lab.name("used"));
    let mut writer = Writer::open(qemu_io, &lab, &web);
    writer.write(10);

    let facts = lab.pool.describe(&web).unwrap();
    assert_eq!(facts.watchers.len(), 1, "{:?}", facts.watchers);
    assert!(facts.watchers[0].address.starts_with("127.0.0.1:"), "{:?}", facts.watchers);
    assert_eq!(lab.pool.allocated_bytes(&web).unwrap(), 12 * MIB, "whole objects of 4 MiB");
    match lab.pool.remove(&web, &id).unwrap_err() {
        ImageError::Busy { watchers, .. } => assert_eq!(watchers, facts.watchers),
        other => panic!("{other}"),
    }

    // The writer goes on under another name, with a snapshot made and metadata set beside it.
    let moved = lab.name("moved");
    lab.pool.rename_no_replace(&web, &moved).unwrap();
    writer.write(20);
    let snapshot = SnapshotName::new("beside").unwrap();
    lab.pool.snapshot_create(&moved, &snapshot).unwrap();
    lab.pool.set_metadata(&moved, "volferry", "1").unwrap();
    writer.write(20);
    assert_eq!(lab.pool.image_id(&web).unwrap(), None);
    assert_eq!(lab.pool.allocated_bytes(&moved).unwrap(), 20 * MIB);
    lab.pool.snapshot_remove(&moved, &snapshot).unwrap();
    writer.close();
    lab.pool.remove(&moved, &id).unwrap();
}

/// QEMU removed from the name by the trash: the destination is replaced under a running copy.
#[test]
fn a_name_replaced_while_the_image_is_in_use() {
    let lab = lab!("a_name_replaced_while_the_image_is_in_use");
    let Some(qemu_io) = tools::tool("a_name_replaced", "qemu-io") else { return };
    let (web, id) = image(&lab.pool, lab.name("replaced"));
    let mut writer = Writer::open(qemu_io, &lab, &web);
    writer.write(1);
    lab.pool.trash_move(&web, Duration::ZERO).unwrap();
    writer.write(2);
    let new = lab.pool.create(&web, MIB).unwrap();
    assert_eq!(lab.pool.remove(&web, &id).unwrap_err().class(), ErrorClass::Replaced);
    lab.pool.remove(&web, &new).unwrap();
    writer.close();
}

/// Every separator of the rbd: string, and what shells and JSON know, inside of an image's name.
#[test]
fn qemu_reads_the_name_we_mean() {
    let lab = lab!("qemu_reads_the_name_we_mean");
    for (number, odd) in
        [r"a:b=c;d,e\f", r"end\", "sp ace", "größe", "#%?&\"'", ":conf=x"].iter().enumerate()
    {
        let Some(qemu_io) = tools::tool("qemu_reads_the_name_we_mean", "qemu-io") else { return };
        let (name, id) = image(&lab.pool, lab.name(&format!("{number}{odd}")));
        let mut writer = Writer::open(qemu_io, &lab, &name);
        writer.write(1);
        assert_eq!(lab.pool.describe(&name).unwrap().watchers.len(), 1, "{name}");
        writer.close();
        lab.pool.remove(&name, &id).unwrap();
    }
}
