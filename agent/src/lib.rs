//! volferry, a host agent that moves the disks of running virtual machines between storage pools.
//!
//! The way of a request: `api` turns protobuf into a [`spec`]; [`facts`] is one look at the world through [`ports`];
//! [`plan`] and [`operation`] are pure; [`engine`] carries a plan out and journals every effect; `libvirt` and `host`
//! are the real ports, `fake` a programmable one.

pub mod api;
mod blocking;
pub mod cli;
pub mod cloudstack;
pub mod config;
pub mod daemon;
pub mod engine;
pub mod facts;
#[cfg(feature = "fake")]
pub mod fake;
pub mod host;
pub mod journal;
pub mod libvirt;
pub mod metrics;
pub mod operation;
pub mod plan;
pub mod ports;
pub mod report;
pub mod spec;
pub mod telemetry;
