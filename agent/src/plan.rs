//! PURE: from a request and what was observed to a plan or a refusal. No clock, no files, no runtime.
//!
//! Two halves, because what to look at depends on the route: [`route::choose`] decides from the domain's XML and
//! the configuration alone (the offline form of `volferry plan` ends here), [`complete::complete`] judges what was
//! then seen of the world and writes down the steps with every value they need.

pub mod access;
pub mod clone;
pub mod complete;
pub mod encryption;
pub mod libvirt_pool;
pub mod lone_volume;
pub mod naming;
pub mod offline;
pub mod policy;
pub mod qemu_view;
pub mod refusal;
pub mod render;
pub mod request_pool;
pub mod route;
pub mod same_volume;
pub mod snapshots;
pub mod source;
pub mod source_steps;
mod space;
pub mod stale;
pub mod steps;

pub use complete::complete;
pub use refusal::{Refusal, RefusalCode, being_made};
pub use route::{Destination, Route, SourceVolume};
pub use steps::{
    Plan, PlannedCopy, PlannedEncryption, SourceCipher, SourceEncryption, Step, StepKind,
};
