//! Starting copies, asking after them, and what is refused meanwhile.

use volferry_agent::ports::{ErrorClass, EventKind, JobEnd, JobInfo};
use volferry_agent::spec::{BytesPerSecond, CopyFlag, DiskTarget};

use crate::stage::{
    Kind, SLOW, Stage, class, copy, ended, is_on, made, make, next, observe, ready, slow_copy, vda,
};

async fn job(stage: &dyn Stage, guest: &crate::stage::Guest) -> Option<JobInfo> {
    stage.ports().jobs.info(&guest.uuid, &vda()).await.expect("QEMU answers")
}

pub async fn a_second_copy_on_a_disk_is_busy(stage: &dyn Stage) {
    let guest = stage.guest(Kind::File, true);
    let (one, other) = (made(stage, Kind::Rbd).await, made(stage, Kind::Rbd).await);
    let jobs = &stage.ports().jobs;
    jobs.start_copy(&slow_copy(&guest, &one)).await.expect("the copy starts");
    class(jobs.start_copy(&slow_copy(&guest, &one)).await, ErrorClass::Busy);
    class(jobs.start_copy(&slow_copy(&guest, &other)).await, ErrorClass::Busy);
    jobs.abort(&guest.uuid, &vda()).await.expect("the first one goes on");
    is_on(stage, &guest, &guest.volume).await;
}

pub async fn a_pivot_before_ready_changes_nothing(stage: &dyn Stage) {
    let guest = stage.guest(Kind::Rbd, true);
    let to = made(stage, Kind::File).await;
    let jobs = &stage.ports().jobs;
    jobs.start_copy(&slow_copy(&guest, &to)).await.expect("the copy starts");
    class(jobs.pivot(&guest.uuid, &vda()).await, ErrorClass::NotReady);
    assert!(job(stage, &guest).await.is_some(), "the copy goes on");
    let xml = observe(stage, &guest).await.live_xml;
    assert!(xml.contains("<mirror") && xml.contains("job='copy'"), "{xml}");
    assert!(!xml.contains("ready="), "{xml}");
    assert!(crate::stage::qemu_uses(stage, &guest, &guest.volume).await);
    jobs.abort(&guest.uuid, &vda()).await.expect("it can be ended");
}

pub async fn without_a_job_there_is_nothing_to_end(stage: &dyn Stage) {
    let guest = stage.guest(Kind::Rbd, true);
    let jobs = &stage.ports().jobs;
    assert_eq!(job(stage, &guest).await, None);
    class(jobs.abort(&guest.uuid, &vda()).await, ErrorClass::NotFound);
    class(jobs.pivot(&guest.uuid, &vda()).await, ErrorClass::NotFound);
    class(jobs.set_bandwidth(&guest.uuid, &vda(), None).await, ErrorClass::NotFound);
}

pub async fn a_persistent_domain_needs_the_flag_of_a_transient_job(stage: &dyn Stage) {
    let guest = stage.guest(Kind::Rbd, true);
    let to = made(stage, Kind::File).await;
    let mut request = slow_copy(&guest, &to);
    request.flags.remove(&CopyFlag::TransientJob);
    let refused = stage.ports().jobs.start_copy(&request).await.expect_err("it is refused");
    assert_eq!(refused.class, ErrorClass::Other, "{refused}");
    assert!(refused.message.contains("domain is not transient"), "{refused}");
    is_on(stage, &guest, &guest.volume).await;
}

pub async fn a_transient_domain_is_copied_with_and_without_that_flag(stage: &dyn Stage) {
    let guest = stage.guest(Kind::Rbd, false);
    let to = made(stage, Kind::File).await;
    for flag in [true, false] {
        let mut request = slow_copy(&guest, &to);
        if !flag {
            request.flags.remove(&CopyFlag::TransientJob);
        }
        stage.ports().jobs.start_copy(&request).await.expect("the copy starts");
        stage.ports().jobs.abort(&guest.uuid, &vda()).await.expect("it ends");
    }
    assert_eq!(observe(stage, &guest).await.inactive_xml, None);
}

pub async fn a_copy_needs_a_destination_and_a_disk(stage: &dyn Stage) {
    let guest = stage.guest(Kind::Rbd, true);
    let nothing = stage.place(Kind::File);
    class(stage.ports().jobs.start_copy(&copy(&guest, &nothing)).await, ErrorClass::Other);
    let to = made(stage, Kind::File).await;
    let mut request = copy(&guest, &to);
    request.target = DiskTarget::new("vdz").expect("a plain target");
    class(stage.ports().jobs.start_copy(&request).await, ErrorClass::NotFound);
    assert_eq!(job(stage, &guest).await, None);
    is_on(stage, &guest, &guest.volume).await;
}

pub async fn the_numbers_are_never_equal_before_ready(stage: &dyn Stage) {
    let guest = stage.guest(Kind::File, true);
    let to = made(stage, Kind::Rbd).await;
    let mut events = stage.ports().events.subscribe();
    stage.ports().jobs.start_copy(&slow_copy(&guest, &to)).await.expect("the copy starts");
    let info = job(stage, &guest).await.expect("a job");
    assert!(info.is_copy && info.current < info.end, "{info:?}");
    let faster = stage.ports().jobs.set_bandwidth(&guest.uuid, &vda(), None).await;
    faster.expect("the limit is lifted");
    assert_eq!(next(&mut events, &guest).await, EventKind::JobReady);
    let info = job(stage, &guest).await.expect("a job");
    assert!(info.is_copy && info.current == info.end && info.end.0 > 0, "{info:?}");
    let xml = observe(stage, &guest).await.live_xml;
    assert!(xml.contains("job='copy' ready='yes'"), "{xml}");
    stage.ports().jobs.abort(&guest.uuid, &vda()).await.expect("it ends");
}

pub async fn a_limit_is_shown_changed_and_lifted(stage: &dyn Stage) {
    let guest = stage.guest(Kind::Rbd, true);
    let to = made(stage, Kind::Rbd).await;
    let jobs = &stage.ports().jobs;
    jobs.start_copy(&slow_copy(&guest, &to)).await.expect("the copy starts");
    let limit = |info: Option<JobInfo>| info.expect("a job").bandwidth.map(BytesPerSecond::get);
    assert_eq!(limit(job(stage, &guest).await), Some(SLOW));
    let faster = BytesPerSecond::new(2 * SLOW).ok();
    jobs.set_bandwidth(&guest.uuid, &vda(), faster).await.expect("it changes");
    assert_eq!(limit(job(stage, &guest).await), Some(2 * SLOW));
    jobs.set_bandwidth(&guest.uuid, &vda(), None).await.expect("it is lifted");
    assert_eq!(limit(job(stage, &guest).await), None);
    jobs.abort(&guest.uuid, &vda()).await.expect("it ends");
}

pub async fn a_destination_of_another_size_fails_a_little_later(stage: &dyn Stage) {
    let guest = stage.guest(Kind::Rbd, true);
    for (kind, size) in [(Kind::File, stage.size() - 512), (Kind::Rbd, stage.size() + (4 << 20))] {
        let to = stage.place(kind);
        make(stage, &to, size).await.expect("a free name");
        let mut events = stage.ports().events.subscribe();
        let started = stage.ports().jobs.start_copy(&copy(&guest, &to)).await;
        started.expect("libvirt does not look at sizes");
        let words = Some("Source and target image have different sizes");
        ended(&mut events, &guest, words, JobEnd::Failed).await;
        assert_eq!(job(stage, &guest).await, None);
        is_on(stage, &guest, &guest.volume).await;
    }
    // The disk is free for the next one.
    let to = made(stage, Kind::File).await;
    ready(stage, &guest, &to).await;
    stage.ports().jobs.abort(&guest.uuid, &vda()).await.expect("it ends");
}
