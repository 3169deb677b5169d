//! The real ports over a real libvirtd, QEMU and Ceph: the laboratory of `tests/lab`.
//!
//! Needs the settings that `lab-up.sh` writes (`set -a; . "$VOLFERRY_LAB_DIR/env"`); without them every test says
//! that it was skipped. No guest runs an operating system here; QEMU's own `qemu-io` writes where writes are needed.

#[path = "real_ports/events.rs"]
mod events;
#[path = "real_ports/faults.rs"]
mod faults;
#[path = "real_ports/images.rs"]
mod images;
#[path = "real_ports/jobs.rs"]
mod jobs;
#[path = "real_ports/lab.rs"]
mod lab;
#[path = "real_ports/pools.rs"]
mod pools;
