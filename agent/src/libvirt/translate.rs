//! libvirt's numbers and QEMU's JSON as events and states of ours. Pure: no call is made here.

use std::ffi::c_int;

use serde::Deserialize;
use virt_sys as sys;

use crate::ports::{DomainEvent, DomainState, EventKind, JobEnd};
use crate::spec::{DiskTarget, DomainUuid};

/// A domain's state from state and reason.
pub(super) fn state(state: c_int, reason: c_int) -> DomainState {
    // The constants are unsigned in the bindings; no valid number is negative.
    let (Ok(state), Ok(reason)) = (u32::try_from(state), u32::try_from(reason)) else {
        return DomainState::Other;
    };
    match state {
        sys::VIR_DOMAIN_RUNNING | sys::VIR_DOMAIN_BLOCKED => DomainState::Running,
        sys::VIR_DOMAIN_PAUSED => match reason {
            sys::VIR_DOMAIN_PAUSED_IOERROR => DomainState::PausedOnIoError,
            sys::VIR_DOMAIN_PAUSED_STARTING_UP => DomainState::Starting,
            sys::VIR_DOMAIN_PAUSED_CRASHED => DomainState::Crashed,
            sys::VIR_DOMAIN_PAUSED_SHUTTING_DOWN => DomainState::ShuttingDown,
            _ => DomainState::Paused,
        },
        sys::VIR_DOMAIN_SHUTDOWN => DomainState::ShuttingDown,
        sys::VIR_DOMAIN_SHUTOFF => DomainState::ShutOff,
        sys::VIR_DOMAIN_CRASHED => DomainState::Crashed,
        _ => DomainState::Other,
    }
}

/// A block job event; none for other jobs than copies.
pub(super) fn block_job(
    domain: &str,
    disk: &str,
    kind: c_int,
    status: c_int,
) -> Option<DomainEvent> {
    if u32::try_from(kind) != Ok(sys::VIR_DOMAIN_BLOCK_JOB_TYPE_COPY) {
        return None;
    }
    let kind = match u32::try_from(status).ok()? {
        sys::VIR_DOMAIN_BLOCK_JOB_READY => EventKind::JobReady,
        sys::VIR_DOMAIN_BLOCK_JOB_COMPLETED => EventKind::JobEnded(JobEnd::Completed),
        sys::VIR_DOMAIN_BLOCK_JOB_FAILED => EventKind::JobEnded(JobEnd::Failed),
        sys::VIR_DOMAIN_BLOCK_JOB_CANCELED => EventKind::JobEnded(JobEnd::Cancelled),
        _ => return None,
    };
    Some(DomainEvent {
        domain: DomainUuid::new(domain).ok(),
        target: DiskTarget::new(disk).ok(),
        kind,
    })
}

/// A life cycle event that matters here.
pub(super) fn lifecycle(domain: &str, event: c_int, detail: c_int) -> Option<DomainEvent> {
    let (event, detail) = (u32::try_from(event).ok()?, u32::try_from(detail).ok()?);
    let kind = match event {
        sys::VIR_DOMAIN_EVENT_STOPPED => EventKind::DomainStopped { reason: stopped(detail) },
        sys::VIR_DOMAIN_EVENT_CRASHED => EventKind::DomainStopped { reason: "crashed" },
        sys::VIR_DOMAIN_EVENT_SUSPENDED if detail == sys::VIR_DOMAIN_EVENT_SUSPENDED_IOERROR => {
            EventKind::PausedOnIoError
        }
        _ => return None,
    };
    Some(DomainEvent { domain: DomainUuid::new(domain).ok(), target: None, kind })
}

fn stopped(detail: u32) -> &'static str {
    match detail {
        sys::VIR_DOMAIN_EVENT_STOPPED_SHUTDOWN => "shut down",
        sys::VIR_DOMAIN_EVENT_STOPPED_DESTROYED => "destroyed",
        sys::VIR_DOMAIN_EVENT_STOPPED_CRASHED => "crashed",
        sys::VIR_DOMAIN_EVENT_STOPPED_MIGRATED => "migrated",
        sys::VIR_DOMAIN_EVENT_STOPPED_SAVED => "saved",
        sys::VIR_DOMAIN_EVENT_STOPPED_FAILED => "failed",
        sys::VIR_DOMAIN_EVENT_STOPPED_FROM_SNAPSHOT => "stopped from a snapshot",
        _ => "stopped",
    }
}

#[derive(Deserialize)]
struct JobData {
    device: String,
    operation: Option<String>,
    error: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
}

/// QEMU's `BLOCK_JOB_ERROR` or `BLOCK_JOB_COMPLETED`; none for other jobs than mirrors or unreadable data.
pub(super) fn qemu(domain: &str, event: &str, data: &str) -> Option<DomainEvent> {
    let data: JobData = serde_json::from_str(data).ok()?;
    let target = target_of_job(&data.device);
    let kind = match event {
        // This event carries no job type; a copy is told by its name.
        "BLOCK_JOB_ERROR" if data.device.starts_with("copy-") => {
            EventKind::QemuJobError { device: data.device, operation: data.operation? }
        }
        "BLOCK_JOB_COMPLETED" if data.kind.as_deref() == Some("mirror") => {
            EventKind::QemuJobCompleted { device: data.device, error: data.error }
        }
        _ => return None,
    };
    Some(DomainEvent { domain: DomainUuid::new(domain).ok(), target, kind })
}

/// `copy-vda-libvirt-4-format` is the copy of `vda` onto the node `libvirt-4-format`.
fn target_of_job(device: &str) -> Option<DiskTarget> {
    let (target, _node) = device.strip_prefix("copy-")?.split_once("-libvirt-")?;
    DiskTarget::new(target).ok()
}

/// libvirt's packed version as text.
pub(super) fn version(packed: u32) -> String {
    format!("{}.{}.{}", packed / 1_000_000, packed / 1_000 % 1_000, packed % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "70000000-0000-4000-8000-000000000001";

    #[test]
    fn qemu_says_why_and_on_which_side_a_copy_failed() {
        let data =
            r#"{"device":"copy-vda-libvirt-4-format","operation":"write","action":"report"}"#;
        let event = qemu(UUID, "BLOCK_JOB_ERROR", data);
        let target = event.as_ref().and_then(|event| event.target.as_ref());
        assert_eq!(target.map(DiskTarget::as_str), Some("vda"));
        let kind = event.map(|event| event.kind);
        let device = "copy-vda-libvirt-4-format".to_owned();
        let operation = "write".to_owned();
        assert_eq!(kind, Some(EventKind::QemuJobError { device: device.clone(), operation }));

        let data = r#"{"device":"copy-vda-libvirt-4-format","len":2147483648,"offset":32505856,
            "speed":0,"type":"mirror","error":"No space left on device"}"#;
        let kind = qemu(UUID, "BLOCK_JOB_COMPLETED", data).map(|event| event.kind);
        let error = Some("No space left on device".to_owned());
        assert_eq!(kind, Some(EventKind::QemuJobCompleted { device, error }));
    }

    #[test]
    fn other_jobs_and_broken_data_are_no_events() {
        let commit =
            r#"{"device":"commit-vda-libvirt-1-format","len":1,"offset":1,"type":"commit"}"#;
        assert_eq!(qemu(UUID, "BLOCK_JOB_COMPLETED", commit), None);
        assert_eq!(qemu(UUID, "BLOCK_JOB_ERROR", "{"), None);
        assert_eq!(block_job(UUID, "vda", 4, 3), None);
    }

    #[test]
    fn a_pause_is_told_by_its_reason() {
        assert_eq!(state(3, 1), DomainState::Paused);
        assert_eq!(state(3, 5), DomainState::PausedOnIoError);
        assert_eq!(state(3, 11), DomainState::Starting);
        assert_eq!(state(-1, -1), DomainState::Other);
    }

    #[test]
    fn versions_are_unpacked() {
        assert_eq!(version(9_000_000), "9.0.0");
        assert_eq!(version(7_002_022), "7.2.22");
    }
}
