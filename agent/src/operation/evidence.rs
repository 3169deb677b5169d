//! PURE: what is known about the two volumes of an undecided operation, and which of them may be kept.

use std::fmt;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::spec::{Identity, VolumeLocation};

/// One of the two volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kept {
    /// The source.
    Source,
    /// The destination.
    Destination,
}

/// How an undecided operation was decided after all. Written down with the end it leads to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolution {
    /// The volume that is the disk's from then on.
    pub kept: Kept,
    /// Who said so: `uid 0`, or `proof` when the world did.
    pub by: String,
    /// When.
    pub at: SystemTime,
    /// The evidence at that moment, a line each.
    pub found: Vec<String>,
}

/// What has the name of a volume now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The volume itself.
    Itself,
    /// The name is taken, and what the volume was is not recorded.
    Something(Identity),
    /// Another volume.
    Another(Identity),
    /// Nothing.
    Nothing,
    /// It cannot be looked at; why.
    Unknown(String),
}

/// Which volume somebody names or uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Names {
    /// One of the two.
    One(Kept),
    /// Neither.
    Neither,
    /// There is no such thing: no QEMU, no stored definition, no such disk in it.
    Absent,
    /// It cannot be told at the moment; why.
    Unknown(String),
}

/// Everything that can be said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// Where the source is.
    pub source: VolumeLocation,
    /// What has its name.
    pub source_found: Found,
    /// Where the destination is.
    pub destination: VolumeLocation,
    /// What has its name.
    pub destination_found: Found,
    /// What QEMU, asked, uses.
    pub qemu: Names,
    /// Whether it is still the QEMU that was asked to pivot.
    pub same_run: bool,
    /// A block job works on the disk.
    pub job: bool,
    /// What libvirt's live XML names.
    pub live: Names,
    /// What the stored definition names.
    pub stored: Names,
    /// What the journal holds for a pivot, in words.
    pub proofs: Vec<String>,
    /// Whether both volumes hold the same, or why it is not known; none where it was not asked.
    pub equal: Option<Result<bool, String>>,
}

impl Kept {
    /// The stable word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Destination => "destination",
        }
    }

    /// The other one.
    pub const fn other(self) -> Self {
        match self {
            Self::Source => Self::Destination,
            Self::Destination => Self::Source,
        }
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Names {
    fn text(&self) -> String {
        match self {
            Self::One(kept) => format!("the {kept}"),
            Self::Neither => "neither volume".to_owned(),
            Self::Absent => "nothing".to_owned(),
            Self::Unknown(why) => format!("not known ({why})"),
        }
    }
}

impl Found {
    fn text(&self) -> String {
        match self {
            Self::Itself => "is there".to_owned(),
            Self::Something(identity) => format!("there is {identity}; it was never recorded"),
            Self::Another(identity) => format!("is another volume by now ({identity})"),
            Self::Nothing => "is gone".to_owned(),
            Self::Unknown(why) => format!("cannot be looked at: {why}"),
        }
    }
}

impl Evidence {
    /// The evidence, a line each.
    pub fn lines(&self) -> Vec<String> {
        let qemu = match &self.qemu {
            Names::Absent => "QEMU does not run, or not with this disk".to_owned(),
            names if self.same_run => format!("QEMU uses {}", names.text()),
            names => format!("QEMU uses {}, but was started again meanwhile", names.text()),
        };
        let job = if self.job { "a block job works on the disk" } else { "no block job runs" };
        let stored = match &self.stored {
            Names::Absent => "there is no stored definition with this disk".to_owned(),
            names => format!("the stored definition names {}", names.text()),
        };
        let mut lines = vec![
            format!("source {}: {}", self.source, self.source_found.text()),
            format!("destination {}: {}", self.destination, self.destination_found.text()),
            qemu,
            job.to_owned(),
        ];
        if self.live != Names::Absent {
            lines.push(format!("libvirt's live XML names {}", self.live.text()));
        }
        lines.push(stored);
        match self.proofs.as_slice() {
            [] => lines.push("the journal holds no proof of a pivot".to_owned()),
            proofs => lines.extend(proofs.iter().map(|proof| format!("journal: {proof}"))),
        }
        lines.extend(self.equal.as_ref().map(|equal| match equal {
            Ok(true) => "both volumes hold the same".to_owned(),
            Ok(false) => "the volumes differ".to_owned(),
            Err(why) => format!("the volumes could not be compared: {why}"),
        }));
        lines
    }

    fn found(&self, kept: Kept) -> &Found {
        match kept {
            Kept::Source => &self.source_found,
            Kept::Destination => &self.destination_found,
        }
    }

    /// Where one of the two is.
    pub fn location(&self, kept: Kept) -> &VolumeLocation {
        match kept {
            Kept::Source => &self.source,
            Kept::Destination => &self.destination,
        }
    }

    /// Whether this one may be kept.
    ///
    /// Errors: why not, and the way out.
    pub fn allows(&self, keep: Kept) -> Result<(), String> {
        let place = self.location(keep);
        if self.job {
            return Err("a block job works on the disk: wait for it, or end it first".to_owned());
        }
        match &self.qemu {
            Names::One(used) if *used == keep => {}
            Names::Absent => {}
            Names::One(used) => {
                return Err(format!(
                    "QEMU uses the {used} {} now: keep that one, or stop the guest first",
                    self.location(*used)
                ));
            }
            Names::Neither => {
                return Err(
                    "QEMU uses neither volume on top of the disk, and the other one may be below what it uses: \
                     merge the layers or stop the guest first"
                        .to_owned(),
                );
            }
            Names::Unknown(why) => {
                return Err(format!("what QEMU uses cannot be told at the moment: {why}"));
            }
        }
        match self.found(keep) {
            Found::Itself => Ok(()),
            Found::Unknown(why) => Err(format!("{place} cannot be looked at: {why}")),
            other => Err(format!("{place} {}: there is nothing to keep", other.text())),
        }
    }

    /// The volume that is proved to be the disk's: no job runs, and a living QEMU uses it that libvirt's live XML does
    /// not contradict. A QEMU of another run proves only what the journal has proof of. Without a QEMU, volumes that
    /// hold the same may each be the disk's, and the destination is.
    pub fn proved(&self) -> Option<Kept> {
        let Names::One(used) = self.qemu else {
            let same = self.qemu == Names::Absent && !self.job && self.equal == Some(Ok(true));
            return same.then_some(Kept::Destination);
        };
        let known = self.same_run || used == Kept::Destination && !self.proofs.is_empty();
        let contradicted = self.live == Names::One(used.other());
        (known && !self.job && !contradicted).then_some(used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(qemu: Names) -> Evidence {
        let file = |name: &str| VolumeLocation::File { path: format!("/mnt/{name}").into() };
        Evidence {
            source: file("a.qcow2"),
            source_found: Found::Itself,
            destination: file("b.qcow2"),
            destination_found: Found::Itself,
            qemu,
            same_run: true,
            job: false,
            live: Names::Absent,
            stored: Names::One(Kept::Source),
            proofs: vec![],
            equal: None,
        }
    }

    #[test]
    fn what_qemu_uses_may_be_kept_and_nothing_else_beside_it() {
        for used in [Kept::Source, Kept::Destination] {
            let evidence = evidence(Names::One(used));
            assert_eq!(evidence.allows(used), Ok(()));
            let refused = evidence.allows(used.other()).expect_err("QEMU uses the other");
            assert!(refused.contains(&format!("QEMU uses the {used} /mnt/")), "{refused}");
            assert_eq!(evidence.proved(), Some(used));
            let contradicted = Evidence { live: Names::One(used.other()), ..evidence };
            assert_eq!(contradicted.proved(), None);
        }
    }

    #[test]
    fn with_qemu_gone_either_may_be_kept_if_it_is_still_itself() {
        for keep in [Kept::Source, Kept::Destination] {
            let mut evidence = evidence(Names::Absent);
            assert_eq!(evidence.allows(keep), Ok(()));
            assert_eq!(evidence.proved(), None);
            let other = Identity::File { device: 1, inode: 2 };
            for found in [
                Found::Nothing,
                Found::Another(other.clone()),
                Found::Something(other),
                Found::Unknown("it hangs".to_owned()),
            ] {
                (evidence.source_found, evidence.destination_found) = (found.clone(), found);
                assert!(evidence.allows(keep).is_err(), "{evidence:?}");
            }
        }
    }

    #[test]
    fn a_job_an_overlay_and_silence_are_refused() {
        for names in [Names::Neither, Names::Unknown("no answer".to_owned())] {
            assert!(evidence(names).allows(Kept::Source).is_err());
        }
        let working = Evidence { job: true, ..evidence(Names::One(Kept::Source)) };
        assert!(working.allows(Kept::Source).is_err());
        assert_eq!(working.proved(), None);
        let again = Evidence { same_run: false, ..evidence(Names::One(Kept::Source)) };
        assert_eq!((again.proved(), again.allows(Kept::Source)), (None, Ok(())));
        assert!(again.lines().iter().any(|line| line.contains("started again")));
        let equal = Evidence { equal: Some(Ok(true)), ..evidence(Names::Absent) };
        assert_eq!(equal.proved(), Some(Kept::Destination));
        for equal in [Some(Ok(false)), Some(Err("no answer".to_owned())), None] {
            assert_eq!(Evidence { equal, ..evidence(Names::Absent) }.proved(), None);
        }
        for (used, proved) in [(Kept::Source, None), (Kept::Destination, Some(Kept::Destination))] {
            let proofs = vec!["the pivot call returned success".to_owned()];
            let known = Evidence { same_run: false, proofs, ..evidence(Names::One(used)) };
            assert_eq!(known.proved(), proved);
        }
    }
}
