//! Carries plans out: one owner task per operation, every effect journaled before and after.
pub mod inventory;

pub use inventory::{DiskListing, HostListing, PoolListing};
