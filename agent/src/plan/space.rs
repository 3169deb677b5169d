//! PURE: whether the disk fits into the pool, its reserve left free.

use super::refusal::{Refusal, RefusalCode};
use super::route::Route;
use crate::facts::{DestinationFacts, WorldFacts};
use crate::operation::space::{Room, little_room, room};
use crate::spec::{Reserve, VolumeLocation};

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
    let needed = if full { world.block.capacity } else { world.block.allocation };
    let refuse = |why: String| {
        let way_out = "free space there or choose another pool";
        Err(Refusal::new(RefusalCode::NoSpace, format!("{why}: {way_out}")))
    };
    match &world.destination {
        DestinationFacts::Rbd { space, .. } => match room(pool, space, reserve, needed) {
            Room::Short(why) => refuse(why),
            Room::Enough | Room::Unknown if space.near_full => {
                refuse(format!("pool {pool} is on a cluster that is nearly full"))
            }
            Room::Enough => Ok(None),
            Room::Unknown => Ok(Some(format!(
                "the Ceph user of pool {pool} may not ask how much room there is: should the pool become full, \
                 the copy hangs"
            ))),
        },
        DestinationFacts::File { folder, .. } if folder.available < needed => refuse(format!(
            "pool {pool} has {} left and disk {} occupies {needed}",
            folder.available, route.target
        )),
        DestinationFacts::File { folder, .. } => Ok(little_room(pool, folder, reserve, needed)),
    }
}
