//! The ports of this world: each method is one call through the gate that counts, fails and kills.

mod copies;
mod files;
mod host;
mod images;
mod jobs;
mod marks;
mod secrets;

use std::sync::Arc;

use super::World;
use crate::ports::Ports;

pub(super) fn of(world: &World) -> Ports {
    Ports {
        domains: Arc::new(world.clone()),
        jobs: Arc::new(world.clone()),
        events: Arc::new(world.clone()),
        images: Arc::new(world.clone()),
        files: Arc::new(world.clone()),
        copies: Arc::new(world.clone()),
        marks: Arc::new(world.clone()),
        pools: Arc::new(world.clone()),
        secrets: Arc::new(world.clone()),
        clock: Arc::new(host::WallClock),
    }
}
