//! Kills the agent, libvirtd or QEMU at a named point of a move of a writing guest's disk, lets things go on, and holds
//! the end against what a move promises. The points are those the agent itself reports, never a list written by hand.

mod gaps;
mod ground;
mod kill;
mod schedule;
mod tally;
mod verdict;

pub use ground::{Ground, Home};
pub use kill::{Kill, Victim};
pub use schedule::Schedule;
pub use tally::Tally;
pub use verdict::{Ended, Verdict};
