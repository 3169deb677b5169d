//! What there is of one guest in the pools of the lab, and its removal.

use super::{Lab, LabError, Volume, at};

/// The folder of a pool that keeps sources for a time.
const TRASH: &str = ".volferry-trash";

impl Lab {
    /// Names of everything in the lab's pools that belongs to the guest of this name, the agent's own included, as
    /// `POOL/NAME`, sorted.
    ///
    /// # Errors
    /// When a pool cannot be read.
    pub fn volumes_of(&self, name: &str) -> Result<Vec<String>, LabError> {
        let ours = |volume: &str| {
            volume.starts_with(&format!("{name}-")) || volume.starts_with(".volferry-")
        };
        let mut found = Vec::new();
        for pool in ["vf-a", "vf-b"] {
            let names = self.rbd(&["ls", pool])?;
            found.extend(names.lines().filter(|n| ours(n)).map(|n| format!("{pool}/{n}")));
        }
        for pool in ["nfs", "smp", "local", "small"] {
            let Ok(folder) = self.pool(pool) else { continue };
            for entry in std::fs::read_dir(folder).map_err(at(folder))? {
                let entry = entry.map_err(at(folder))?.file_name();
                let entry = entry.to_string_lossy();
                if ours(&entry) && entry != TRASH {
                    found.push(format!("{pool}/{entry}"));
                }
            }
            for entry in std::fs::read_dir(folder.join(TRASH)).into_iter().flatten().flatten() {
                found.push(format!("{pool}/{TRASH}/{}", entry.file_name().to_string_lossy()));
            }
        }
        found.sort();
        Ok(found)
    }

    /// The uuids of libvirt's secrets for volumes whose name begins with the guest's.
    ///
    /// # Errors
    /// When libvirt does not answer.
    pub fn secrets_of(&self, name: &str) -> Result<Vec<String>, LabError> {
        let list = self.virsh(&["secret-list"])?;
        let ours = |line: &&str| line.contains(" volume ") && line.contains(&format!("/{name}-"));
        let uuid = |line: &str| line.split_whitespace().next().map(str::to_owned);
        Ok(list.lines().filter(ours).filter_map(uuid).collect())
    }

    /// Removes a guest, every volume whose name begins with its own, and their secrets.
    ///
    /// # Errors
    /// When a volume cannot be removed.
    pub fn sweep(&self, name: &str) -> Result<(), LabError> {
        // Both fail when there is nothing to end, which is what is wanted.
        self.virsh(&["destroy", name]).ok();
        self.virsh(&["undefine", name]).ok();
        for secret in self.secrets_of(name)? {
            self.virsh(&["secret-undefine", &secret])?;
        }
        for volume in self.volumes_of(name)? {
            let Some((pool, volume)) = volume.split_once('/') else { continue };
            if pool.starts_with("vf-") {
                self.rbd(&["snap", "unprotect", &format!("{pool}/{volume}@base")]).ok();
                self.rbd(&["snap", "purge", "--no-progress", &format!("{pool}/{volume}")])?;
                self.remove(&Volume::rbd(pool, volume))?;
            } else {
                self.remove(&Volume::qcow2(self.pool(pool)?.join(volume)))?;
            }
        }
        Ok(())
    }
}
