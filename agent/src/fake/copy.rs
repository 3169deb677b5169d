//! Copies of images nobody uses: how they progress in virtual time, and what becomes of contents.

use super::World;
use super::secret::HEADER;
use super::state::{State, Volume, Write};
use crate::ports::{CopyError, CopySide, ErrorClass, Image, ImageCopy, PortError};
use crate::spec::{Identity, VolumeFormat};

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
    ) -> Result<RunningCopy, CopyError> {
        let side = |side, error| CopyError { side, error };
        let from = self.open_image(&copy.from, what);
        let (from, from_size) = from.map_err(|error| side(CopySide::Source, error))?;
        let to = self.open_image(&copy.to, what);
        let (to, to_size) = to.map_err(|error| side(CopySide::Destination, error))?;
        if from_size != to_size {
            let error = PortError::new(ErrorClass::Other, what, "the images differ in size");
            return Err(side(CopySide::Unknown, error));
        }
        let running = RunningCopy { number: self.number(), from: from.identity, to: to.identity };
        self.copies.push(running.clone());
        Ok(running)
    }

    /// Opens one image with its key, or without one.
    fn open_image(&self, image: &Image, what: &str) -> Result<(Volume, u64), PortError> {
        let missing = || PortError::new(ErrorClass::NotFound, what, "No such file or directory");
        let volume = self.volume(&image.location).ok_or_else(missing)?;
        let size = match (&image.key, &volume.header) {
            (Some(key), _) => {
                let passphrase = key.passphrase.expose();
                self.open_header(&image.location, key.header, passphrase, what)?.0
            }
            (None, None) => volume.size,
            (None, Some(_)) if image.format == VolumeFormat::Qcow2 => {
                let text = "Parameter 'encrypt.key-secret' is required for cipher";
                return Err(PortError::new(ErrorClass::Other, what, text));
            }
            // Nothing says that what is read is encrypted.
            (None, Some(_)) => volume.size + HEADER,
        };
        Ok((volume, size))
    }

    /// Writes the first `share` of what the source occupies; all of it where zeros cannot be left out.
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
        let whole = if copy.to.begins_as_zeros() { from.allocated } else { from.size };
        let allocated = (whole as f64 * share) as u64;
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
