//! What is killed, and when.

use std::fmt;
use std::time::Duration;

/// The process that is killed with SIGKILL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Victim {
    /// The daemon of volferry.
    Agent,
    /// The libvirt daemon; it is started again after a while.
    Libvirtd,
    /// The guest's QEMU.
    Qemu,
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Victim::Agent => "agent",
            Victim::Libvirtd => "libvirtd",
            Victim::Qemu => "QEMU",
        })
    }
}

/// One kill: whose, at which point of the move, and how long after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kill {
    /// Whose.
    pub victim: Victim,
    /// The point of the agent's journal, such as `after append intent pivot`.
    pub point: String,
    /// Which time the point is reached, from 1.
    pub count: u32,
    /// For libvirtd and QEMU: the agent goes on for so long before the kill. None: it stands still until the kill.
    pub delay: Option<Duration>,
    /// For libvirtd: how long it stays away.
    pub away: Duration,
}

impl Kill {
    /// For the daemon's environment: it kills itself, or stands still, at the point.
    pub(super) fn order(&self) -> String {
        let what = if self.victim == Victim::Agent { "kill" } else { "stop" };
        format!("{what}:{}:{}", self.count, self.point)
    }

    /// May this kill leave open who is right? Only inside the pivot: from its intent until its outcome is written down.
    pub(super) fn may_stay_open(&self) -> bool {
        let proof = self.point.starts_with("before append") && self.point.contains("proved");
        let inside = asks_to_pivot(&self.point) || proof;
        let window = self.delay.unwrap_or_default() <= Duration::from_millis(50);
        self.victim != Victim::Agent && inside && window
    }
}

/// The point right before libvirt is asked to pivot.
pub(super) fn asks_to_pivot(point: &str) -> bool {
    point.starts_with("after append") && point.contains("intent pivot")
}

impl fmt::Display for Kill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} killed ", self.victim)?;
        if let Some(delay) = self.delay {
            write!(f, "{} ms after ", delay.as_millis())?;
        }
        write!(f, "\"{}\"", self.point)?;
        if self.count > 1 {
            write!(f, " (time {})", self.count)?;
        }
        if self.victim == Victim::Libvirtd {
            write!(f, ", away {} ms", self.away.as_millis())?;
        }
        Ok(())
    }
}
