//! What people and programs read: operations, plans, progress and tables.

pub mod json;
pub mod operation;
pub mod plan;
pub mod progress;
pub mod table;
