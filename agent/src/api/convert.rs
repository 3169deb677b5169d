//! Protobuf and domain types, one into the other.
//!
//! [`request`] validates what comes in: no unchecked string gets past it. [`operation`], [`plan`] and [`inventory`]
//! describe what goes out, [`words`] turns closed lists into enums. Nothing is decided and nothing is looked up here.

mod history;
pub mod inventory;
pub mod leftover;
pub mod operation;
pub mod orphans;
pub mod plan;
pub mod request;
pub mod words;

pub use request::InvalidRequest;
