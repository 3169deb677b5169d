//! Block copies: how they progress in virtual time, become ready, fail, end, and what a pivot changes.

use std::time::Duration;

use tokio::time::Instant;
use volferry_xml::Disk;

use super::domain::{Node, QemuDisk};
use super::state::{State, Write};
use super::{World, xml};
use crate::ports::{CopyRequest, ErrorClass, EventKind, JobEnd, JobInfo, PortError};
use crate::spec::{Bytes, BytesPerSecond, CopyFlag, DiskTarget, DomainUuid, VolumeLocation};

/// The longest time between two looks at the room left at a destination.
const LOOK: Duration = Duration::from_millis(200);
/// How long QEMU takes to notice that two images differ in size.
const STARTUP: Duration = Duration::from_millis(20);

/// A running copy.
#[derive(Debug)]
pub struct Job {
    /// A number of its own.
    pub number: u64,
    /// What is written.
    pub destination: Node,
    /// The destination as libvirt was told.
    pub copy: Disk,
    /// The limit in force.
    pub limit: Option<BytesPerSecond>,
    /// In step with the source.
    pub ready: bool,
    /// Copied so far.
    pub copied: f64,
    /// Still to copy.
    pub remaining: f64,
    /// Writes to the destination wait for room.
    pub hangs: bool,
    clearing_until: Instant,
    updated: Instant,
    doom: Option<&'static str>,
    source_allocated: u64,
}

/// When a job is to be looked at again.
enum Next {
    At(Instant),
    WhenChanged,
    Gone,
}

impl Job {
    /// QEMU's name of the job.
    pub fn device(&self, target: &str) -> String {
        format!("copy-{target}-libvirt-{}-format", self.number)
    }

    fn speed(&self, disk_pace: u64) -> f64 {
        let limit = self.limit.map_or(u64::MAX, BytesPerSecond::get);
        disk_pace.min(limit) as f64
    }

    /// libvirt's numbers: never equal before READY.
    fn info(&self) -> JobInfo {
        let (mut current, mut end) = (self.copied as u64, (self.copied + self.remaining) as u64);
        if !self.ready && current == end {
            end = end.max(1);
            current = end - 1;
        }
        JobInfo { is_copy: true, current: Bytes(current), end: Bytes(end), bandwidth: self.limit }
    }
}

fn refused(class: ErrorClass, what: &str, text: &str) -> PortError {
    PortError::new(class, what, text)
}

impl State {
    /// Starts a copy.
    pub(super) fn start_copy(
        &mut self,
        request: &CopyRequest,
        what: &str,
    ) -> Result<u64, PortError> {
        let target = request.target.as_str();
        let number = self.number();
        let domain = self.running(&request.domain, what)?;
        let persistent = domain.persistent;
        let Some(disk) = domain.disk(target) else {
            return Err(refused(ErrorClass::NotFound, what, "invalid path"));
        };
        if disk.job.is_some() {
            let text = format!("disk '{target}' already in active block job");
            return Err(refused(ErrorClass::Busy, what, &text));
        }
        if persistent && !request.flags.contains(&CopyFlag::TransientJob) {
            return Err(refused(ErrorClass::Other, what, "domain is not transient"));
        }
        if !request.flags.contains(&CopyFlag::ReuseExt) {
            let text = "this world's libvirt makes no destinations";
            return Err(refused(ErrorClass::Unsupported, what, text));
        }
        let (source, capacity) = (disk.node.clone(), disk.capacity);
        let malformed = || refused(ErrorClass::Other, what, "XML error");
        let copy = xml::lone_disk(&request.destination_xml).ok_or_else(malformed)?;
        let user = copy.auth().and_then(|auth| auth.username.clone());
        let place = xml::volume(self, &copy.source, user.as_deref()).ok_or_else(malformed)?;
        let found = self.volume(&place).ok_or_else(|| {
            refused(ErrorClass::Other, what, "Could not open: No such file or directory")
        })?;
        let seen = self.opens(&copy, &found, what)?;
        let doom = (seen != capacity).then_some("Source and target image have different sizes");
        // Behind a header around a raw image, zeroes are content too.
        let dense = copy.encryption.is_some() && matches!(place, VolumeLocation::Rbd { .. });
        let source_allocated = match self.volume_of(&source) {
            Some(volume) if !dense => volume.allocated,
            _ => capacity,
        };
        let format = copy.driver.format.clone().unwrap_or_else(|| "raw".to_owned());
        let destination = Node { volume: place, identity: found.identity, format };
        let now = Instant::now();
        let domain = self.running(&request.domain, what)?;
        domain.live_xml = xml::with_mirror(&domain.live_xml, target, &copy, false);
        if let Some(disk) = domain.disk_mut(target) {
            disk.job = Some(Job {
                number,
                destination,
                copy,
                limit: request.bandwidth,
                ready: false,
                copied: 0.0,
                remaining: disk.capacity as f64,
                hangs: false,
                clearing_until: now + disk.pace.zeroing,
                updated: now,
                doom,
                source_allocated,
            });
        }
        Ok(number)
    }

    /// The volume a node has open, under whatever name it has now.
    fn volume_of(&self, node: &Node) -> Option<super::state::Volume> {
        let found = self.volume(&node.volume)?;
        (found.identity == node.identity).then_some(found)
    }

    /// Brings every job's numbers up to now.
    pub(super) fn advance_jobs(&mut self) {
        let jobs: Vec<(DomainUuid, String, u64)> = self
            .domains
            .iter()
            .flat_map(|(uuid, domain)| {
                let disks = domain.qemu.iter().flat_map(|qemu| qemu.disks.iter());
                disks.filter_map(|(target, disk)| {
                    Some((uuid.clone(), target.clone(), disk.job.as_ref()?.number))
                })
            })
            .collect();
        for (uuid, target, number) in jobs {
            self.step(&uuid, &target, number);
        }
    }

    fn job_disk(&mut self, uuid: &DomainUuid, target: &str) -> Option<&mut QemuDisk> {
        self.domains.get_mut(uuid)?.disk_mut(target).filter(|disk| disk.job.is_some())
    }

    /// Brings one job up to now and says when to look again.
    fn step(&mut self, uuid: &DomainUuid, target: &str, number: u64) -> Next {
        let now = Instant::now();
        let Some(disk) = self.job_disk(uuid, target) else { return Next::Gone };
        let pace = disk.pace;
        let Some(job) = disk.job.as_mut().filter(|job| job.number == number) else {
            return Next::Gone;
        };
        if let Some(text) = job.doom {
            if now < job.updated + STARTUP {
                return Next::At(job.updated + STARTUP);
            }
            self.fail_job(uuid, target, None, text);
            return Next::Gone;
        }
        if now < job.clearing_until {
            job.updated = now;
            return Next::At(job.clearing_until);
        }
        let seconds = (now - job.updated.max(job.clearing_until)).as_secs_f64();
        job.updated = now;
        if job.ready {
            job.copied += pace.dirty as f64 * seconds;
            return Next::WhenChanged;
        }
        let speed = job.speed(pace.copy);
        let (copied, dirtied) = (speed * seconds, pace.dirty as f64 * seconds);
        let done = copied.min(job.remaining + dirtied);
        let shares = (job.copied + done, (job.remaining + dirtied - done).max(0.0));
        let share = shares.0 / (shares.0 + shares.1).max(1.0);
        let allocated = (job.source_allocated as f64 * share) as u64;
        let (place, identity) = (job.destination.volume.clone(), job.destination.identity.clone());
        let written = self.write(&place, &identity, allocated);
        let Some(job) = self.job_disk(uuid, target).and_then(|disk| disk.job.as_mut()) else {
            return Next::Gone;
        };
        match written {
            Write::NoSpace => {
                self.fail_job(uuid, target, Some("write"), "No space left on device");
                return Next::Gone;
            }
            Write::Hangs => {
                job.hangs = true;
                return Next::At(now + LOOK);
            }
            Write::Done => {
                job.hangs = job.hangs && copied == 0.0;
                (job.copied, job.remaining) = shares;
            }
        }
        if job.remaining < 1.0 {
            self.ready_job(uuid, target);
            return Next::WhenChanged;
        }
        let shrinks = speed - pace.dirty as f64;
        let left = if shrinks > 0.0 { job.remaining / shrinks } else { f64::INFINITY };
        let soon = left.min(LOOK.as_secs_f64());
        Next::At(now + Duration::from_secs_f64(soon) + Duration::from_millis(1))
    }

    fn ready_job(&mut self, uuid: &DomainUuid, target: &str) {
        let Some(domain) = self.domains.get_mut(uuid) else { return };
        let Some(disk) = domain.disk_mut(target) else { return };
        let from = disk.node.identity.clone();
        let Some(job) = disk.job.as_mut() else { return };
        job.ready = true;
        job.remaining = 0.0;
        let copy = job.copy.clone();
        let to = job.destination.identity.clone();
        domain.live_xml = xml::with_mirror(&domain.live_xml, target, &copy, true);
        self.mirrored(&from, &to);
        self.report(uuid, Some(target), EventKind::JobReady);
    }

    /// Ends a copy with an error, QEMU's words first.
    pub fn fail_job(
        &mut self,
        uuid: &DomainUuid,
        target: &str,
        operation: Option<&str>,
        text: &str,
    ) {
        let Some(job) = self.take_job(uuid, target) else { return };
        let device = job.device(target);
        if let Some(operation) = operation {
            let kind =
                EventKind::QemuJobError { device: device.clone(), operation: operation.to_owned() };
            self.report(uuid, Some(target), kind);
        }
        let error = Some(text.to_owned());
        self.report(uuid, Some(target), EventKind::QemuJobCompleted { device, error });
        self.report(uuid, Some(target), EventKind::JobEnded(JobEnd::Failed));
    }

    fn take_job(&mut self, uuid: &DomainUuid, target: &str) -> Option<Job> {
        let domain = self.domains.get_mut(uuid)?;
        let job = domain.disk_mut(target)?.job.take()?;
        domain.live_xml = xml::without_mirror(&domain.live_xml, target);
        Some(job)
    }

    /// What libvirt says of the job.
    pub(super) fn job_info(
        &mut self,
        uuid: &DomainUuid,
        target: &DiskTarget,
        what: &str,
    ) -> Result<Option<JobInfo>, PortError> {
        self.advance_jobs();
        let disk = self.running(uuid, what)?.disk(target.as_str());
        let found = disk.ok_or_else(|| refused(ErrorClass::NotFound, what, "invalid path"))?;
        Ok(found.job.as_ref().map(Job::info))
    }

    /// Changes the limit.
    pub(super) fn limit_job(
        &mut self,
        uuid: &DomainUuid,
        target: &DiskTarget,
        limit: Option<BytesPerSecond>,
        what: &str,
    ) -> Result<(), PortError> {
        self.advance_jobs();
        let disk = self.running(uuid, what)?.disk_mut(target.as_str());
        match disk.and_then(|disk| disk.job.as_mut()) {
            Some(job) => job.limit = limit,
            None => return Err(no_job(what)),
        }
        Ok(())
    }

    /// Ends the job without a pivot.
    ///
    /// Errors: no job.
    pub fn abort_job(
        &mut self,
        uuid: &DomainUuid,
        target: &str,
        what: &str,
    ) -> Result<(), PortError> {
        self.running(uuid, what)?;
        let Some(job) = self.take_job(uuid, target) else { return Err(no_job(what)) };
        if job.ready {
            // A copy in step is ended as a complete one, and QEMU says so in the words it has for a pivot.
            let kind = EventKind::QemuJobCompleted { device: job.device(target), error: None };
            self.report(uuid, Some(target), kind);
        }
        self.report(uuid, Some(target), EventKind::JobEnded(JobEnd::Cancelled));
        Ok(())
    }

    /// Whether ending the job would have to wait for writes that hang.
    pub(super) fn job_hangs(&mut self, uuid: &DomainUuid, target: &str) -> bool {
        self.advance_jobs();
        let job = self.job_disk(uuid, target).and_then(|disk| disk.job.as_ref());
        let Some(place) = job.filter(|job| job.hangs).map(|job| job.destination.volume.clone())
        else {
            return false;
        };
        self.is_full(&place)
    }

    /// Switches the disk to the copy, wherever its name may lead by now.
    ///
    /// Errors: no job, or not ready.
    pub fn pivot(&mut self, uuid: &DomainUuid, target: &str, what: &str) -> Result<(), PortError> {
        self.pivot_in_qemu(uuid, target, what)
            .map(|copy| self.pivot_in_libvirt(uuid, target, &copy))
    }

    /// The half that QEMU does; libvirt may die before the other one.
    ///
    /// Errors: no job, or not ready.
    pub fn pivot_in_qemu(
        &mut self,
        uuid: &DomainUuid,
        target: &str,
        what: &str,
    ) -> Result<Disk, PortError> {
        let domain = self.running(uuid, what)?;
        let Some(disk) = domain.disk_mut(target) else { return Err(no_job(what)) };
        let Some(job) = disk.job.take_if(|job| job.ready) else {
            return Err(match &disk.job {
                None => no_job(what),
                Some(job) => {
                    let text =
                        format!("block job '{}' not ready for pivot yet", job.device(target));
                    refused(ErrorClass::NotReady, what, &text)
                }
            });
        };
        let device = job.device(target);
        disk.node = job.destination;
        self.report(uuid, Some(target), EventKind::QemuJobCompleted { device, error: None });
        Ok(job.copy)
    }

    fn pivot_in_libvirt(&mut self, uuid: &DomainUuid, target: &str, copy: &Disk) {
        let Some(domain) = self.domains.get_mut(uuid) else { return };
        let old = xml::without_mirror(&domain.live_xml, target);
        domain.live_xml = xml::moved(&old, target, copy);
        if let Some(stored) = &mut domain.inactive_xml
            && xml::same_source(stored, &old, target)
        {
            *stored = xml::moved(stored, target, copy);
        }
        self.report(uuid, Some(target), EventKind::JobEnded(JobEnd::Completed));
    }
}

fn no_job(what: &str) -> PortError {
    refused(ErrorClass::NotFound, what, "disk does not have an active block job")
}

impl World {
    /// Drives one job until it is gone.
    pub(super) async fn drive(self, uuid: DomainUuid, target: String, number: u64) {
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.quietly(|state| state.step(&uuid, &target, number)) {
                Next::Gone => return,
                Next::WhenChanged => changed.await,
                Next::At(instant) => {
                    tokio::select! {
                        () = changed => {}
                        () = tokio::time::sleep_until(instant) => {}
                    }
                }
            }
        }
    }
}
