//! What QEMU and libvirt report by themselves: causes of failures, stops, and the connection's own end.

use volferry_agent::ports::{
    BlockJobs, DomainState, Domains, ErrorClass, EventKind, Events, JobEnd,
};
use volferry_agent::spec::DomainReference;

use crate::lab::{Guest, TempFile, class_is, connected, lab, var, vda, wait, wait_kind};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_destination_is_named_by_qemu() {
    let Some(lab) = lab("a_full_destination").await else { return };
    if var("VOLFERRY_LAB_POOL_SMALL").is_none() {
        eprintln!("SKIPPED a_full_destination: the lab has no small file system");
        return;
    }
    let ports = lab.ports().await;
    // Half of the disk is data: more than the small file system holds.
    let guest = Guest::start(&lab.uri, 512);
    let copy = TempFile::qcow2("VOLFERRY_LAB_POOL_SMALL", 512);
    let mut events = ports.subscribe();
    ports.start_copy(&guest.copy(&copy.xml(), None)).await.expect("the copy starts");
    let error =
        wait(&mut events, |event| matches!(event.event.kind, EventKind::QemuJobError { .. })).await;
    eprintln!("  {:?}", error.event);
    assert_eq!(error.event.target, Some(vda()));
    assert!(error.qemu_time_us.is_some());
    assert!(
        matches!(&error.event.kind, EventKind::QemuJobError { operation, .. } if operation == "write")
    );
    let completed = wait(&mut events, |event| {
        matches!(event.event.kind, EventKind::QemuJobCompleted { .. } | EventKind::JobEnded(_))
    })
    .await;
    eprintln!("  {:?}", completed.event);
    let EventKind::QemuJobCompleted { error, .. } = completed.event.kind else {
        panic!("libvirt's event came first: {:?}", completed.event)
    };
    assert_eq!(error.as_deref(), Some("No space left on device"));
    wait_kind(&mut events, EventKind::JobEnded(JobEnd::Failed)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_is_killed_comes_back_to_the_same_ports() {
    let Some(lab) = lab("a_daemon_that_is_killed").await else { return };
    let ports = lab.ports().await;
    let guest = Guest::start(&lab.uri, 32);
    let copy = TempFile::qcow2("VOLFERRY_LAB_POOL_LOCAL", 32);
    let reference = DomainReference::from(guest.uuid.clone());
    ports.start_copy(&guest.copy(&copy.xml(), Some(8 << 20))).await.expect("the copy starts");
    let mut events = ports.subscribe();

    lab.ctl(&["libvirtd-kill9", "main"]);
    wait_kind(&mut events, EventKind::ConnectionLost).await;
    assert!(!ports.connected());
    class_is(&ports.observe(&reference).await, ErrorClass::Unavailable);
    class_is(&ports.info(&guest.uuid, &vda()).await, ErrorClass::Unavailable);

    lab.restart_daemon();
    connected(&ports).await;
    let seen = ports.observe(&reference).await.expect("the guest is known again");
    assert_eq!(seen.state, DomainState::Running);
    assert!(ports.info(&guest.uuid, &vda()).await.expect("QEMU answers").is_some());
    // The callbacks are registered again: the end of the copy is heard.
    wait_kind(&mut events, EventKind::JobReady).await;
    ports.pivot(&guest.uuid, &vda()).await.expect("the pivot succeeds");
    wait_kind(&mut events, EventKind::JobEnded(JobEnd::Completed)).await;
}
