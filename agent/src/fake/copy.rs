//! Copies of images nobody uses: how they progress in virtual time, and what becomes of contents.

use super::World;
use super::state::{State, Write};
use crate::ports::{CopySide, ErrorClass, ImageCopy, PortError};
use crate::spec::Identity;

/// A process that copies or compares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningCopy {
    /// A number of its own.
    pub number: u64,
    /// What it reads.
    pub from: Identity,
    /// What it writes or compares.
    pub to: Identity,
}

/// Ends its process when dropped.
#[derive(Debug)]
pub(super) struct Process {
    world: World,
    pub(super) copy: RunningCopy,
}

impl Drop for Process {
    fn drop(&mut self) {
        let number = self.copy.number;
        self.world.with(|state| state.copies.retain(|other| other.number != number));
    }
}

impl Process {
    pub(super) fn new(world: &World, copy: RunningCopy) -> Self {
        Self { world: world.clone(), copy }
    }
}

/// Which side failed, and how.
pub(super) type Failed = (CopySide, ErrorClass, &'static str);

impl State {
    /// What a volume holds.
    pub fn content(&self, identity: &Identity) -> u64 {
        self.contents.get(&identity.to_string()).copied().unwrap_or_default()
    }

    /// Somebody writes to a volume.
    pub fn scribble(&mut self, identity: &Identity) {
        let number = self.number();
        self.contents.insert(identity.to_string(), number);
    }

    /// Begins to read one image and to write, or read, the other.
    pub(super) fn open_both(
        &mut self,
        copy: &ImageCopy,
        what: &str,
    ) -> Result<RunningCopy, PortError> {
        let missing = || PortError::new(ErrorClass::NotFound, what, "No such file or directory");
        let from = self.volume(&copy.from.location).ok_or_else(missing)?;
        let to = self.volume(&copy.to.location).ok_or_else(missing)?;
        if from.size != to.size {
            return Err(PortError::new(ErrorClass::Other, what, "the images differ in size"));
        }
        let running = RunningCopy { number: self.number(), from: from.identity, to: to.identity };
        self.copies.push(running.clone());
        Ok(running)
    }

    /// Writes the first `share` of what the source occupies.
    pub(super) fn write_share(
        &mut self,
        copy: &ImageCopy,
        running: &RunningCopy,
        share: f64,
    ) -> Result<Write, Failed> {
        let found = self.volume(&copy.from.location);
        let Some(from) = found.filter(|from| from.identity == running.from) else {
            return Err((CopySide::Source, ErrorClass::Other, "error while reading: I/O error"));
        };
        let allocated = (from.allocated as f64 * share) as u64;
        match self.write(&copy.to.location, &running.to, allocated) {
            Write::NoSpace => {
                Err((CopySide::Destination, ErrorClass::NoSpace, "No space left on device"))
            }
            written => Ok(written),
        }
    }

    /// The destination holds what the source held at the beginning; where somebody wrote meanwhile, neither.
    pub(super) fn copied(&mut self, running: &RunningCopy, content_before: u64) {
        let content = match self.content(&running.from) == content_before {
            true => content_before,
            false => self.number(),
        };
        self.contents.insert(running.to.to_string(), content);
    }

    /// Who has the file open or locked: guests of this host. The agent's own processes do not count.
    pub(super) fn file_users(&self, identity: &Identity) -> Vec<String> {
        let guests = self.domains.values().filter(|domain| domain.opens(identity));
        guests.map(|domain| format!("qemu-system-x86_64 of {}", domain.name)).collect()
    }

    /// How many processes of the agent read this volume.
    pub(super) fn readers(&self, identity: &Identity) -> usize {
        self.copies.iter().filter(|copy| copy.from == *identity || copy.to == *identity).count()
    }
}
