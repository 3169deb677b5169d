//! PURE: whether a copy still fits into its pool. A full Ceph pool gives no error: the copy hangs in it, and so do
//! its abort and, with write-blocking, the guest. So a copy must end while there is room left.

use rbdutils::monitors::MonitorList;

use super::progress::Progress;
use crate::facts::may_be_one_cluster;
use crate::ports::{FolderObservation, RbdPoolSpace};
use crate::spec::{Bytes, PoolName, Reserve, VolumeLocation};

/// The room in a Ceph pool, against what a copy still needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Room {
    /// It fits and the reserve stays free.
    Enough,
    /// The pool's user may not ask.
    Unknown,
    /// It does not fit, in words with the numbers.
    Short(String),
}

/// Judges the room in a Ceph pool for `needed` more bytes.
pub fn room(pool: &PoolName, space: &RbdPoolSpace, reserve: &Reserve, needed: Bytes) -> Room {
    if space.full {
        return Room::Short(format!("pool {pool} or its cluster is full and takes no writes"));
    }
    let Some(available) = space.available else { return Room::Unknown };
    let whole = [space.quota, space.total].into_iter().flatten().min();
    let reserve = reserve.of_ceph_pool(whole);
    if available.0 >= reserve.0.saturating_add(needed.0) {
        return Room::Enough;
    }
    let quota = space.quota.map(|quota| format!(" of its quota of {quota}")).unwrap_or_default();
    Room::Short(format!(
        "pool {pool} has {available}{quota} left; {needed} are needed and {reserve} must stay free"
    ))
}

/// Why nothing at all may be put into a Ceph pool.
pub fn takes_nothing(pool: &PoolName, space: &RbdPoolSpace, reserve: &Reserve) -> Option<String> {
    match room(pool, space, reserve, Bytes(0)) {
        Room::Short(why) => Some(why),
        Room::Enough | Room::Unknown => {
            space.near_full.then(|| format!("pool {pool} is on a cluster that is nearly full"))
        }
    }
}

/// What is said of a file system with little room; its copies get an error when it is full.
pub fn little_room(
    pool: &PoolName,
    folder: &FolderObservation,
    reserve: &Reserve,
    needed: Bytes,
) -> Option<String> {
    let (available, reserve) = (folder.available, reserve.share(folder.total));
    let little = available.0 < reserve.0.saturating_add(needed.0);
    little.then(|| {
        format!(
            "pool {pool} has {available} left of {}; {needed} are needed and {reserve} should stay free",
            folder.total
        )
    })
}

/// What a copy will certainly still occupy: not more than is left to copy, nor than the source occupied and was not
/// copied yet. What is copied twice, or holds only zeros, occupies less.
pub fn still_needed(progress: &Progress, source_allocated: Option<Bytes>) -> Bytes {
    let allocated = source_allocated.unwrap_or_default();
    Bytes(progress.remaining.0.min(allocated.0.saturating_sub(progress.copied.0)))
}

/// Whether two volumes take their room from one place, as far as their names tell: a Ceph pool, a folder.
pub fn same_room(one: &VolumeLocation, other: &VolumeLocation) -> bool {
    match (one, other) {
        (VolumeLocation::File { path: one }, VolumeLocation::File { path: other }) => {
            one.parent() == other.parent()
        }
        (VolumeLocation::Rbd { address: one, .. }, VolumeLocation::Rbd { address: other, .. }) => {
            one.pool == other.pool && share_a_monitor(&one.monitors, &other.monitors)
        }
        _ => false,
    }
}

fn share_a_monitor(one: &str, other: &str) -> bool {
    let read = |list| MonitorList::parse(list, 0).ok();
    may_be_one_cluster(read(one).as_ref(), read(other).as_ref())
}

/// Whether writes to the pool wait for room.
pub fn is_full(space: &RbdPoolSpace) -> bool {
    space.full || space.available == Some(Bytes(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const RESERVE: Reserve = Reserve { percent: 5, at_least: Bytes(GIB) };

    fn pool() -> PoolName {
        PoolName::new("ceph").expect("a plain name")
    }

    fn space(available: u64, total: u64, quota: Option<u64>) -> RbdPoolSpace {
        RbdPoolSpace {
            available: Some(Bytes(available * GIB)),
            total: Some(Bytes(total * GIB)),
            quota: quota.map(|quota| Bytes(quota * GIB)),
            ..RbdPoolSpace::default()
        }
    }

    #[test]
    fn the_reserve_is_a_share_of_what_the_pool_may_hold() {
        let cases = [
            (space(50, 100, None), 45, true),
            (space(50, 100, None), 46, false),
            (space(5, 100, None), 0, true),
            (space(4, 100, None), 0, false),
            // The quota is what the pool may hold; one per cent and less is no less than the floor.
            (space(4, 1000, Some(10)), 3, true),
            (space(4, 1000, Some(10)), 4, false),
            (space(3, 1000, Some(60)), 0, true),
            (space(2, 1000, Some(60)), 0, false),
        ];
        for (space, needed, enough) in cases {
            let room = room(&pool(), &space, &RESERVE, Bytes(needed * GIB));
            assert_eq!(room == Room::Enough, enough, "{space:?} {needed}: {room:?}");
        }
    }

    #[test]
    fn a_full_pool_is_short_and_an_unknown_one_is_unknown() {
        let full = RbdPoolSpace { full: true, ..space(50, 100, None) };
        assert!(matches!(room(&pool(), &full, &RESERVE, Bytes(0)), Room::Short(_)));
        assert!(is_full(&full) && is_full(&space(0, 100, None)) && !is_full(&space(1, 100, None)));
        let unknown = RbdPoolSpace::default();
        assert_eq!(room(&pool(), &unknown, &RESERVE, Bytes(0)), Room::Unknown);
        assert!(!is_full(&unknown));
    }

    #[test]
    fn the_numbers_are_in_the_text() {
        let Room::Short(text) = room(&pool(), &space(3, 90, Some(40)), &RESERVE, Bytes(2 * GIB))
        else {
            panic!("it does not fit")
        };
        let expected = "pool ceph has 3 GiB of its quota of 40 GiB left; 2 GiB are needed and 2 GiB must stay free";
        assert_eq!(text, expected);
    }

    #[test]
    fn only_what_is_certain_is_needed() {
        let at = |remaining, copied| Progress {
            remaining: Bytes(remaining),
            copied: Bytes(copied),
            ..Progress::default()
        };
        // Left to copy, copied, occupied by the source: needed.
        for (remaining, copied, allocated, needed) in
            [(100, 0, 60, 60), (40, 0, 60, 40), (100, 50, 60, 10), (100, 70, 60, 0)]
        {
            let found = still_needed(&at(remaining, copied), Some(Bytes(allocated)));
            assert_eq!(found, Bytes(needed));
        }
        assert_eq!(still_needed(&at(100, 0), None), Bytes(0));
    }

    #[test]
    fn a_file_system_is_only_talked_about() {
        let folder = |available| FolderObservation {
            available: Bytes(available * GIB),
            total: Bytes(100 * GIB),
            mounted: true,
        };
        assert_eq!(little_room(&pool(), &folder(5), &RESERVE, Bytes(0)), None);
        let text = little_room(&pool(), &folder(6), &RESERVE, Bytes(2 * GIB)).unwrap_or_default();
        assert!(text.contains("6 GiB left of 100 GiB; 2 GiB are needed and 5 GiB"), "{text}");
    }
}
