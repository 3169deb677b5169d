//! The laboratory's Rust half: what the guest writes, how it is verified afterwards, guests on the lab's libvirt for
//! the tests to start, move and destroy, and the agent as a user runs it.
//!
//! The shell half below `tests/lab/` builds the ground (Ceph, libvirtd, pools, images).

pub mod agent;
pub mod guest;
pub mod lab;
pub mod torture;
