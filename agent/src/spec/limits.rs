//! How much an agent does at a time, and how full it makes a pool.

use super::quantity::Bytes;

/// Limits of the whole agent; a pool may have a limit of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Operations at a time on this host.
    pub operations_per_host: usize,
    /// Operations at a time into or out of one pool.
    pub operations_per_pool: usize,
    /// What stays free in a pool.
    pub reserve: Reserve,
}

/// Room that a copy must leave: a full Ceph pool gives no error, it lets every write wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserve {
    /// Hundredths of what the pool may hold.
    pub percent: u8,
    /// And never less than this in a Ceph pool.
    pub at_least: Bytes,
}

impl Default for Limits {
    fn default() -> Self {
        Self { operations_per_host: 8, operations_per_pool: 4, reserve: Reserve::default() }
    }
}

impl Default for Reserve {
    fn default() -> Self {
        Self { percent: 5, at_least: Bytes::mib(1024) }
    }
}

impl Reserve {
    /// The share of something that may hold `whole`.
    pub fn share(&self, whole: Bytes) -> Bytes {
        let share = u128::from(whole.0) * u128::from(self.percent) / 100;
        Bytes(u64::try_from(share).unwrap_or(u64::MAX))
    }

    /// What stays free in a Ceph pool that may hold `whole`, where that is known.
    pub fn of_ceph_pool(&self, whole: Option<Bytes>) -> Bytes {
        whole.map_or(self.at_least, |whole| self.share(whole).max(self.at_least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_of_share_and_floor_stays_free() {
        let reserve = Reserve { percent: 5, at_least: Bytes::mib(1024) };
        assert_eq!(reserve.of_ceph_pool(None), Bytes::mib(1024));
        assert_eq!(reserve.of_ceph_pool(Some(Bytes::mib(10_240))), Bytes::mib(1024));
        assert_eq!(reserve.of_ceph_pool(Some(Bytes::mib(102_400))), Bytes::mib(5120));
        assert_eq!(reserve.share(Bytes(u64::MAX)), Bytes(u64::MAX / 20));
    }
}
