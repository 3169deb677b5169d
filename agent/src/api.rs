//! The gRPC edge: the `volferry.v1` service, its listener, and the only place where protobuf meets domain types.
//!
//! [`convert`] validates what comes in and describes what goes out, [`status`] is the one table from refusals to
//! status and exit codes, [`access`] knows who may call what, [`service`] forwards calls to an [`Agent`], [`server`] serves it. No decision about a
//! move is made here, and no protobuf type travels further in.

pub mod access;
pub mod agent;
pub mod convert;
pub mod server;
pub mod service;
pub mod socket;
pub mod status;
pub mod tls;
mod watch;

pub use agent::Agent;

/// Generated from `proto/volferry/v1/volferry.proto`, which documents it.
#[allow(missing_docs, missing_debug_implementations, clippy::all)]
pub mod pb {
    tonic::include_proto!("volferry.v1");

    /// The descriptors of the contract, for reflection.
    pub const DESCRIPTORS: &[u8] = tonic::include_file_descriptor_set!("volferry.v1");
}
