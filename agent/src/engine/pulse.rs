//! Whether the engine gets on: one look along the way every operation goes.

use super::Engine;
use crate::operation::State;
use crate::report::chain;

/// What a look along the engine's way found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulse {
    /// How many operations are in each state that the journal knows; or why it cannot be read.
    pub states: Result<Vec<(State, u64)>, String>,
    /// Whether libvirt can be reached.
    pub libvirt_up: bool,
}

impl Engine {
    /// Goes the way of every operation once: the registry, and the journal's connection and thread, behind whatever
    /// waits for them. Returns when all of them answered; of libvirt only what is known is told, nothing is asked.
    ///
    /// A journal that answers with an error has answered: a restart of the agent mends no disk.
    pub async fn pulse(&self) -> Pulse {
        // Waits for whoever holds it.
        drop(self.registry.views());
        let states = self.context.journal.states().await.map_err(|error| chain(&error));
        Pulse { states, libvirt_up: self.context.ports.events.connected() }
    }
}
