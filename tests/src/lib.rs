//! The laboratory's Rust half: what the guest writes, how it is verified afterwards, and guests
//! on the lab's libvirt for the tests to start, move and destroy.
//!
//! The shell half below `tests/lab/` builds the ground (Ceph, libvirtd, pools, images).

pub mod guest;
pub mod lab;
