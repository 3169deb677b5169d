//! PURE: whether the disk fits into the pool, its reserve left free.

use super::refusal::{Refusal, RefusalCode};
use super::route::Route;
use crate::facts::{DestinationFacts, WorldFacts};
use crate::operation::space::{Room, little_room, room, takes_nothing};
use crate::spec::{Bytes, Reserve, VolumeLocation};

/// Refuses a Ceph pool that the disk would fill, and a file system that has not even the room for it.
///
/// Returns what to know beforehand. Errors: `no-space`, with the numbers.
pub fn check(
    route: &Route,
    world: &WorldFacts,
    reserve: &Reserve,
) -> Result<Option<String>, Refusal> {
    let pool = &route.destination.pool;
    let full = world.encryption.is_some()
        && matches!(route.destination.location, VolumeLocation::Rbd { .. });
    let own = if full { world.block.capacity } else { world.block.allocation };
    let promised = world.promised;
    let needed = Bytes(own.0.saturating_add(promised.0));
    let refuse = |why: String| {
        let others = match promised {
            Bytes(0) => String::new(),
            promised => format!(", {promised} of it by copies that run already"),
        };
        let way_out = "free space there or choose another pool";
        Err(Refusal::new(RefusalCode::NoSpace, format!("{why}{others}: {way_out}")))
    };
    match &world.destination {
        DestinationFacts::Rbd { space, .. } => {
            let room = room(pool, space, reserve, needed);
            match (room, takes_nothing(pool, space, reserve)) {
                (Room::Short(why), _) | (_, Some(why)) => refuse(why),
                (Room::Enough, None) => Ok(None),
                (Room::Unknown, None) => Ok(Some(format!(
                    "the Ceph user of pool {pool} may not ask how much room there is: should the pool become full, \
                     the copy hangs"
                ))),
            }
        }
        DestinationFacts::File { folder, .. } if folder.available < needed => refuse(format!(
            "pool {pool} has {} left and {needed} are needed for disk {}",
            folder.available, route.target
        )),
        DestinationFacts::File { folder, .. } => Ok(little_room(pool, folder, reserve, needed)),
    }
}
