//! Why a copy failed: libvirt does not pass QEMU's words on, QEMU's own events carry them.

use crate::operation::{Failure, FailureCause, Side};
use crate::ports::{EventKind, JobEnd, TimedEvent};
use crate::spec::{DiskTarget, DomainUuid};

/// What QEMU said about our job so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Words {
    /// `BLOCK_JOB_COMPLETED`'s error.
    pub error: Option<String>,
    /// The last `BLOCK_JOB_ERROR`'s operation, `read` or `write`.
    pub operation: Option<String>,
    /// `BLOCK_JOB_COMPLETED` without an error was seen: a pivot, or a copy ended in step with its source.
    ended_well: bool,
    /// libvirt's own word for the end.
    end: Option<JobEnd>,
    /// Something may have been said that was not heard.
    missed: bool,
}

/// True for QEMU's name of a copy of this disk, `copy-<target>-<node>`.
fn is_ours(device: &str, target: &DiskTarget) -> bool {
    device
        .strip_prefix("copy-")
        .and_then(|rest| rest.strip_prefix(target.as_str()))
        .is_some_and(|rest| rest.starts_with('-'))
}

impl Words {
    /// Takes an event in, if it is about this disk's copy.
    pub fn hear(&mut self, event: &TimedEvent, domain: &DomainUuid, target: &DiskTarget) {
        if matches!(event.event.kind, EventKind::ConnectionLost | EventKind::ConnectionRestored) {
            self.missed = true;
        }
        if event.event.domain.as_ref() != Some(domain) {
            return;
        }
        match &event.event.kind {
            EventKind::QemuJobError { device, operation } if is_ours(device, target) => {
                self.operation = Some(operation.clone());
            }
            EventKind::QemuJobCompleted { device, error } if is_ours(device, target) => {
                self.ended_well = error.is_none();
                self.error.clone_from(error);
            }
            EventKind::JobEnded(end) if event.event.target.as_ref() == Some(target) => {
                self.end = Some(*end);
            }
            _ => {}
        }
    }

    /// Events may have come that were not heard.
    pub fn miss(&mut self) {
        self.missed = true;
    }

    /// Whether events may have come that were not heard.
    pub fn missed(&self) -> bool {
        self.missed
    }

    /// Forgets how a job ended.
    pub fn forget_end(&mut self) {
        (self.ended_well, self.end) = (false, None);
    }

    /// libvirt says that the disk was switched to the copy.
    pub fn pivoted(&self) -> bool {
        self.end == Some(JobEnd::Completed)
    }

    /// QEMU ended the job well, and libvirt does not say that it was without a pivot.
    pub fn completed(&self) -> bool {
        self.pivoted() || (self.ended_well && self.end.is_none())
    }

    /// The cause these words give.
    pub fn failure(&self) -> Failure {
        let text = self.error.clone().unwrap_or_else(|| {
            "libvirt reported the block job as failed; QEMU's own words did not arrive".to_owned()
        });
        let says = |part: &str| text.to_lowercase().contains(part);
        let reading = self.operation.as_deref() == Some("read");
        if says("different sizes") {
            Failure::new(FailureCause::SizeMismatch, Side::Destination, text)
        } else if reading {
            Failure::new(FailureCause::SourceReadError, Side::Source, text)
        } else if says("no space left") || says("disk quota exceeded") {
            Failure::new(FailureCause::DestinationFull, Side::Destination, text)
        } else if self.operation.is_some() {
            Failure::new(FailureCause::DestinationWriteError, Side::Destination, text)
        } else {
            Failure::new(FailureCause::JobLost, Side::Host, text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(operation: Option<&str>, error: Option<&str>) -> FailureCause {
        let words = Words {
            error: error.map(str::to_owned),
            operation: operation.map(str::to_owned),
            ..Words::default()
        };
        words.failure().cause
    }

    #[test]
    fn qemus_words_name_the_cause_and_the_side() {
        let full = Some("No space left on device");
        assert_eq!(words(Some("write"), full), FailureCause::DestinationFull);
        assert_eq!(words(Some("read"), full), FailureCause::SourceReadError);
        let sizes = Some("Source and target image have different sizes");
        assert_eq!(words(None, sizes), FailureCause::SizeMismatch);
        let eio = Some("Input/output error");
        assert_eq!(words(Some("write"), eio), FailureCause::DestinationWriteError);
        assert_eq!(words(None, None), FailureCause::JobLost);
    }

    #[test]
    fn another_disks_job_is_not_ours() {
        let target = DiskTarget::new("vda").expect("a target");
        assert!(is_ours("copy-vda-libvirt-4-format", &target));
        assert!(!is_ours("copy-vdaa-libvirt-4-format", &target));
        assert!(!is_ours("commit-vda-libvirt-4-format", &target));
    }
}
