//! PURE: commands of Apache CloudStack's KVM agent, as its management server serialises them, and their answers.
//!
//! `command` reads what a command says, `request` turns it into a request of ours, `answer` writes what the management
//! server waits for. No connection, no files, no clock; nothing about moves is decided here. `docs/cloudstack.md` has
//! the table.

pub mod answer;
pub mod command;
mod fields;
pub mod request;

pub use answer::{Answer, Moved};
pub use command::{Command, Kind, Store, StoreKind, Volume, read};
pub use request::{Place, migrate_request};
