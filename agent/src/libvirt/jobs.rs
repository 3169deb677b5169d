//! The block jobs port over libvirt; every call goes through its domain's lane.

use std::ffi::{CString, c_uint};
use std::time::Instant;

use async_trait::async_trait;
use virt_sys as sys;

use super::LibvirtPorts;
use super::error::{c_string, pivot_error, port_error};
use super::ffi::{self, RawJobInfo};
use super::lanes::Call;
use crate::ports::{BlockJobs, CopyRequest, ErrorClass, JobInfo, PivotAnswer, PortError};
use crate::spec::{Bytes, BytesPerSecond, CopyFlag, CopyFlags, DiskTarget, DomainUuid};

#[async_trait]
impl BlockJobs for LibvirtPorts {
    async fn start_copy(&self, request: &CopyRequest) -> Result<(), PortError> {
        let (domain, target) = (&request.domain, &request.target);
        let operation = format!("start the copy of disk {target} of domain {domain}");
        let disk = c_string(&operation, target.as_str())?;
        let xml = c_string(&operation, &request.destination_xml)?;
        let flags = flag_bits(&request.flags);
        let bandwidth = request.bandwidth.map(BytesPerSecond::get);
        let call = Call { operation, bound: self.timeouts.start, urgent: false };
        let operation = call.operation.clone();
        self.lanes
            .run(domain, call, move |domain| {
                ffi::block_copy(domain, &disk, &xml, bandwidth, flags)
                    .map_err(|error| port_error(&operation, &error))
            })
            .await
    }

    async fn info(
        &self,
        domain: &DomainUuid,
        target: &DiskTarget,
    ) -> Result<Option<JobInfo>, PortError> {
        let call = self.qemu_call(format!("job of disk {target} of domain {domain}"));
        let (operation, disk) = (call.operation.clone(), disk(&call, target)?);
        self.lanes
            .run(domain, call, move |domain| {
                let info = ffi::block_job_info(domain, &disk)
                    .map_err(|error| port_error(&operation, &error))?;
                Ok(info.map(job_info))
            })
            .await
    }

    async fn set_bandwidth(
        &self,
        domain: &DomainUuid,
        target: &DiskTarget,
        bandwidth: Option<BytesPerSecond>,
    ) -> Result<(), PortError> {
        let call = self.qemu_call(format!("limit of disk {target} of domain {domain}"));
        let (operation, disk) = (call.operation.clone(), disk(&call, target)?);
        let limit = bandwidth.map_or(0, BytesPerSecond::get);
        self.lanes
            .run(domain, call, move |domain| {
                ffi::block_job_set_speed(domain, &disk, limit)
                    .map_err(|error| port_error(&operation, &error))
            })
            .await
    }

    async fn abort(&self, domain: &DomainUuid, target: &DiskTarget) -> Result<(), PortError> {
        let operation = format!("abort the copy of disk {target} of domain {domain}");
        let call = Call { operation, bound: self.timeouts.abort, urgent: false };
        let (operation, disk) = (call.operation.clone(), disk(&call, target)?);
        self.lanes
            .run(domain, call, move |domain| {
                if ffi::block_job_info(domain, &disk).is_ok_and(|info| info.is_none()) {
                    let text = "the disk has no block job";
                    return Err(PortError::new(ErrorClass::NotFound, operation, text));
                }
                ffi::block_job_abort(domain, &disk, false)
                    .map_err(|error| port_error(&operation, &error))
            })
            .await
    }

    async fn pivot(
        &self,
        domain: &DomainUuid,
        target: &DiskTarget,
    ) -> Result<PivotAnswer, PortError> {
        let operation = format!("pivot disk {target} of domain {domain}");
        let call = Call { operation, bound: self.timeouts.pivot, urgent: true };
        let (operation, disk) = (call.operation.clone(), disk(&call, target)?);
        self.lanes
            .run(domain, call, move |domain| {
                let called_at = Instant::now();
                ffi::block_job_abort(domain, &disk, true)
                    .map(|()| PivotAnswer { called_at })
                    .map_err(|error| pivot_error(&operation, &error))
            })
            .await
    }
}

fn disk(call: &Call, target: &DiskTarget) -> Result<CString, PortError> {
    c_string(&call.operation, target.as_str())
}

fn flag_bits(flags: &CopyFlags) -> c_uint {
    flags.iter().fold(0, |bits, flag| {
        bits | match flag {
            CopyFlag::Shallow => sys::VIR_DOMAIN_BLOCK_COPY_SHALLOW,
            CopyFlag::ReuseExt => sys::VIR_DOMAIN_BLOCK_COPY_REUSE_EXT,
            CopyFlag::TransientJob => sys::VIR_DOMAIN_BLOCK_COPY_TRANSIENT_JOB,
            CopyFlag::SynchronousWrites => sys::VIR_DOMAIN_BLOCK_COPY_SYNCHRONOUS_WRITES,
        }
    })
}

fn job_info(raw: RawJobInfo) -> JobInfo {
    JobInfo {
        is_copy: u32::try_from(raw.kind) == Ok(sys::VIR_DOMAIN_BLOCK_JOB_TYPE_COPY),
        current: Bytes(raw.current),
        end: Bytes(raw.end),
        // Zero means no limit, and so does more than can be set.
        bandwidth: BytesPerSecond::new(raw.bandwidth).ok(),
    }
}
