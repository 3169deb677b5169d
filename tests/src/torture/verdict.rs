//! Was a promise broken? Pure: what was seen goes in, the broken promises come out, in words.

use std::time::Duration;

use serde_json::Value;

use super::{Kill, Victim};
use crate::lab::{Lab, LabError, Place, Volume};

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The disk moved.
    Moved,
    /// Everything is as it was.
    RolledBack,
    /// Everything is as it was, and the guest is gone because its QEMU was killed.
    GuestGone,
    /// An operator must decide.
    NeedsOperator,
}

impl Ended {
    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Ended::Moved => "moved",
            Ended::RolledBack => "rolled back",
            Ended::GuestGone => "rolled back, guest killed",
            Ended::NeedsOperator => "needs an operator",
        }
    }
}

/// What came of one kill.
#[derive(Debug)]
pub struct Verdict {
    /// The end.
    pub ended: Ended,
    /// Broken promises, in words.
    pub violations: Vec<String>,
    /// From the restart (of the agent, of libvirtd) or the kill (of QEMU) until the end was decided and shown.
    pub decided: Duration,
    /// From the kill until nothing was left over.
    pub cleaned: Duration,
    /// Longest time without an acknowledgement of the guest.
    pub gap: Duration,
}

/// What everybody said after the end.
#[derive(Debug)]
pub(super) struct Seen {
    pub operation: Value,
    pub source: String,
    pub destination: String,
    /// QEMU's own word; none when it does not run.
    pub qemu: Option<String>,
    pub live: Option<String>,
    pub inactive: Option<String>,
    /// A block job on the disk.
    pub job: Option<String>,
    /// QEMU was stopped at some time.
    pub stopped: bool,
    pub qemu_was_killed: bool,
    /// libvirt came back and could not read its notes on the guest, whose QEMU runs on.
    pub lost_by_libvirt: bool,
    pub agent_ended: bool,
    /// The volumes before the move.
    pub before: Vec<String>,
}

impl Seen {
    pub fn ended(&self) -> Ended {
        match self.operation["state"].as_str() {
            Some("succeeded") => Ended::Moved,
            Some("needs-operator") => Ended::NeedsOperator,
            _ if self.qemu.is_none() => Ended::GuestGone,
            _ => Ended::RolledBack,
        }
    }

    /// The volumes there should be in the end.
    pub fn expected_volumes(&self, lab: &Lab) -> Result<Vec<String>, LabError> {
        let source = listed(lab, &self.source)?;
        let destination = listed(lab, &self.destination)?;
        let mut volumes = self.before.clone();
        match self.ended() {
            Ended::Moved => {
                volumes.retain(|volume| *volume != source);
                volumes.push(destination);
            }
            Ended::NeedsOperator => {
                // Until it is decided, a file says whose it is.
                let id = self.operation["id"].as_str().unwrap_or_default();
                let pool = destination.split('/').next().unwrap_or_default();
                if self.destination.starts_with('/') {
                    volumes.push(format!("{pool}/.volferry-{id}.mark"));
                }
                volumes.push(destination);
            }
            Ended::RolledBack | Ended::GuestGone => {}
        }
        volumes.sort();
        Ok(volumes)
    }
}

/// `POOL/NAME`, as the lab lists a volume.
fn listed(lab: &Lab, spec: &str) -> Result<String, LabError> {
    let place = Volume::parse(spec, "raw").map(|volume| volume.place);
    match place {
        Some(Place::Rbd { pool, image }) => Ok(format!("{pool}/{image}")),
        Some(Place::File(path)) => {
            let mut pools = ["nfs", "smp", "local", "small"].into_iter();
            let pool = pools.find(|pool| lab.pool(pool).is_ok_and(|dir| path.starts_with(dir)));
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Ok(format!("{}/{name}", pool.unwrap_or("?")))
        }
        None => Ok(spec.to_owned()),
    }
}

/// The promises that were broken.
pub(super) fn judge(kill: &Kill, seen: &Seen) -> Vec<String> {
    let mut broken = Vec::new();
    let mut demand = |holds: bool, text: &str| {
        if !holds {
            broken.push(text.to_owned());
        }
    };
    let ended = seen.ended();
    demand(!seen.stopped, "QEMU was stopped");
    demand(!seen.agent_ended, "the agent ended by itself");
    demand(seen.job.is_none(), "a block job is left");
    demand(seen.qemu_was_killed || seen.qemu.is_some(), "the guest is gone");
    if seen.lost_by_libvirt {
        // What libvirt tells of it is wrong, and no move can be finished or undone without it.
        demand(
            ended == Ended::NeedsOperator,
            "libvirt lost the guest, and the end does not say so",
        );
        demand(kill.may_stay_open(), "an operator is asked without need");
        return broken;
    }
    let current = match ended {
        Ended::Moved => Some(&seen.destination),
        Ended::RolledBack | Ended::GuestGone => Some(&seen.source),
        Ended::NeedsOperator => seen.qemu.as_ref(),
    };
    if let Some(current) = current {
        demand(seen.inactive.as_ref() == Some(current), "the inactive XML names another volume");
        if seen.qemu.is_some() {
            demand(seen.qemu.as_ref() == Some(current), "QEMU uses another volume");
            let live = ended == Ended::NeedsOperator || seen.live.as_ref() == Some(current);
            demand(live, "the live XML names another volume");
        }
    }
    let place = seen.operation["place"].as_str();
    match ended {
        Ended::Moved => demand(place == Some("destination"), "the answer names another place"),
        Ended::RolledBack | Ended::GuestGone => {
            let refused = seen.operation["state"] == "refused";
            demand(refused || place == Some("source"), "the answer names another place");
        }
        Ended::NeedsOperator => demand(kill.may_stay_open(), "an operator is asked without need"),
    }
    if ended == Ended::RolledBack {
        let agent = kill.victim == Victim::Agent;
        demand(!agent, "a kill of the agent alone must not fail a move");
        demand(kill.victim != Victim::Libvirtd, "a kill of libvirtd alone must not fail a move");
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kill(victim: Victim) -> Kill {
        let point = "after append intent pivot".to_owned();
        Kill { victim, point, count: 1, delay: None, away: Duration::ZERO }
    }

    fn moved() -> Seen {
        let (source, destination) = ("rbd:vf-a/x".to_owned(), "rbd:vf-b/x".to_owned());
        Seen {
            operation: serde_json::json!({ "state": "succeeded", "place": "destination" }),
            source,
            qemu: Some(destination.clone()),
            live: Some(destination.clone()),
            inactive: Some(destination.clone()),
            destination,
            job: None,
            stopped: false,
            qemu_was_killed: false,
            lost_by_libvirt: false,
            agent_ended: false,
            before: vec![],
        }
    }

    #[test]
    fn a_good_end_breaks_nothing_and_every_broken_promise_is_told() {
        let agent = kill(Victim::Agent);
        assert_eq!(judge(&agent, &moved()), Vec::<String>::new());
        let wrong = |change: fn(&mut Seen)| {
            let mut seen = moved();
            change(&mut seen);
            judge(&agent, &seen)
        };
        assert_eq!(wrong(|s| s.qemu = Some(s.source.clone())), ["QEMU uses another volume"]);
        assert_eq!(wrong(|s| s.live = None), ["the live XML names another volume"]);
        assert_eq!(wrong(|s| s.inactive = None), ["the inactive XML names another volume"]);
        assert_eq!(wrong(|s| s.stopped = true), ["QEMU was stopped"]);
        assert_eq!(wrong(|s| s.qemu = None), ["the guest is gone"]);
        assert_eq!(wrong(|s| s.job = Some("copy".into())), ["a block job is left"]);
        let says = |state, place| serde_json::json!({ "state": state, "place": place });
        let mut seen = moved();
        seen.operation = says("succeeded", "source");
        assert_eq!(judge(&agent, &seen), ["the answer names another place"]);
        seen.operation = says("needs-operator", "unknown");
        assert_eq!(judge(&agent, &seen), ["an operator is asked without need"]);
        assert_eq!(judge(&kill(Victim::Libvirtd), &seen), Vec::<String>::new());
        let mut lost = moved();
        (lost.lost_by_libvirt, lost.live) = (true, None);
        assert_eq!(judge(&kill(Victim::Libvirtd), &lost).len(), 1);
        lost.operation = says("needs-operator", "unknown");
        assert_eq!(judge(&kill(Victim::Libvirtd), &lost), Vec::<String>::new());
    }

    #[test]
    fn an_end_as_if_nothing_had_happened_is_no_end_for_a_kill_of_the_agent() {
        let mut seen = moved();
        seen.operation = serde_json::json!({ "state": "failed", "place": "source" });
        seen.qemu = Some(seen.source.clone());
        (seen.live, seen.inactive) = (seen.qemu.clone(), seen.qemu.clone());
        assert_eq!(judge(&kill(Victim::Qemu), &seen), Vec::<String>::new());
        assert_eq!(judge(&kill(Victim::Agent), &seen).len(), 1);
        assert_eq!(judge(&kill(Victim::Libvirtd), &seen).len(), 1);
    }
}
