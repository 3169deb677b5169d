//! Ceph names, monitor lists and QEMU `rbd:` strings as checked values; RBD images on librbd.
//!
//! The text modules ([`monitors`], [`names`], [`qemu`]) are pure: no files, no network, no C library.
//! The feature `native` adds `cluster` and `images`, blocking calls on librados and librbd.
//! Nothing here knows libvirt, virtual machines, policies or an async runtime.
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

#[cfg(feature = "native")]
pub mod cluster;
#[cfg(feature = "native")]
pub mod errno;
#[cfg(feature = "native")]
#[allow(unsafe_code, reason = "the one place that calls C libraries")]
mod ffi;
#[cfg(feature = "native")]
pub mod images;
pub mod monitors;
pub mod names;
pub mod qemu;
