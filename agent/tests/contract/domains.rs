//! Domains: found or not, running or not, and what each answers then.

use volferry_agent::ports::{DomainState, ErrorClass, EventKind};
use volferry_agent::spec::{DiskTarget, DomainReference, DomainUuid, IoTune};

use crate::stage::{Guest, Kind, Stage, class, copy, is_on, made, next, observe, slow_copy, vda};

/// Everything that needs a running QEMU is told that there is none.
async fn nothing_runs(stage: &dyn Stage, guest: &Guest) {
    let to = stage.place(Kind::File);
    let (jobs, uuid) = (&stage.ports().jobs, &guest.uuid);
    class(jobs.info(uuid, &vda()).await, ErrorClass::NotFound);
    class(jobs.abort(uuid, &vda()).await, ErrorClass::NotFound);
    class(jobs.pivot(uuid, &vda()).await, ErrorClass::NotFound);
    class(jobs.set_bandwidth(uuid, &vda(), None).await, ErrorClass::NotFound);
    class(jobs.start_copy(&copy(guest, &to)).await, ErrorClass::NotFound);
    class(stage.ports().domains.qemu_devices(uuid).await, ErrorClass::NotFound);
}

pub async fn a_domain_that_is_off_has_no_job_and_no_devices(stage: &dyn Stage) {
    let guest = stage.guest(Kind::File, true);
    let mut events = stage.ports().events.subscribe();
    stage.destroy(&guest);
    let reason = "destroyed";
    assert_eq!(next(&mut events, &guest).await, EventKind::DomainStopped { reason });
    nothing_runs(stage, &guest).await;
    let seen = observe(stage, &guest).await;
    assert_eq!((seen.state, seen.persistent), (DomainState::ShutOff, true));
    // Of a domain that is off, both are the stored definition.
    assert!(seen.live_xml.contains(&guest.volume.name()), "{}", seen.live_xml);
}

pub async fn a_killed_qemu_takes_its_job_along(stage: &dyn Stage) {
    let guest = stage.guest(Kind::File, true);
    let to = made(stage, Kind::File).await;
    let mut events = stage.ports().events.subscribe();
    stage.ports().jobs.start_copy(&slow_copy(&guest, &to)).await.expect("the copy starts");
    stage.kill(&guest);
    let reason = "failed";
    assert_eq!(next(&mut events, &guest).await, EventKind::DomainStopped { reason });
    nothing_runs(stage, &guest).await;
    let seen = observe(stage, &guest).await;
    assert_eq!(seen.state, DomainState::ShutOff);
    for xml in [Some(seen.live_xml), seen.inactive_xml].into_iter().flatten() {
        assert!(xml.contains(&guest.volume.name()) && !xml.contains(&to.name()), "{xml}");
        assert!(!xml.contains("<mirror"), "{xml}");
    }
}

pub async fn a_transient_domain_is_gone_when_it_stops(stage: &dyn Stage) {
    let guest = stage.guest(Kind::File, false);
    let mut events = stage.ports().events.subscribe();
    stage.destroy(&guest);
    let reason = "destroyed";
    assert_eq!(next(&mut events, &guest).await, EventKind::DomainStopped { reason });
    nothing_runs(stage, &guest).await;
    let reference = DomainReference::from(guest.uuid.clone());
    class(stage.ports().domains.observe(&reference).await, ErrorClass::NotFound);
    let listed = stage.ports().domains.list().await.expect("an answer");
    assert!(listed.iter().all(|summary| summary.uuid != guest.uuid));
}

pub async fn a_domain_is_found_by_name_and_uuid_or_not_at_all(stage: &dyn Stage) {
    let guest = stage.guest(Kind::File, true);
    let domains = &stage.ports().domains;
    for word in [guest.name.as_str(), guest.uuid.as_str()] {
        let reference = DomainReference::new(word).expect("a plain name");
        let seen = domains.observe(&reference).await.expect("it is found");
        assert_eq!((&seen.name, &seen.uuid), (&guest.name, &guest.uuid));
        assert_eq!((seen.state, seen.persistent), (DomainState::Running, true));
        assert!(seen.snapshots.snapshots.is_empty() && seen.snapshots.checkpoints.is_empty());
    }
    let listed = domains.list().await.expect("an answer");
    let ours = listed.iter().find(|summary| summary.uuid == guest.uuid).expect("it is listed");
    assert_eq!((&ours.name, ours.state), (&guest.name, DomainState::Running));
    let unknown = DomainUuid::new("00000000-0000-4000-8000-000000000000").expect("a uuid");
    class(domains.observe(&DomainReference::from(unknown.clone())).await, ErrorClass::NotFound);
    class(domains.define(&unknown, &defined_as(&guest, &unknown)).await, ErrorClass::NotFound);
    class(domains.qemu_devices(&unknown).await, ErrorClass::NotFound);
    class(stage.ports().jobs.info(&unknown, &vda()).await, ErrorClass::NotFound);
}

fn defined_as(guest: &Guest, uuid: &DomainUuid) -> String {
    format!(
        "<domain type='qemu'><name>{}</name><uuid>{uuid}</uuid><memory unit='MiB'>32</memory>\
         <os><type arch='x86_64'>hvm</type></os></domain>",
        guest.name
    )
}

pub async fn a_running_disk_has_its_size_and_no_other_disk_exists(stage: &dyn Stage) {
    for kind in [Kind::Rbd, Kind::File] {
        let guest = stage.guest(kind, true);
        let domains = &stage.ports().domains;
        let sizes = domains.block_info(&guest.uuid, &vda()).await.expect("QEMU answers");
        assert_eq!(sizes.capacity.0, stage.size());
        assert!(sizes.allocation.0 > 0, "{sizes:?}");
        let other = DiskTarget::new("vdz").expect("a plain target");
        class(domains.block_info(&guest.uuid, &other).await, ErrorClass::NotFound);
        class(stage.ports().jobs.info(&guest.uuid, &other).await, ErrorClass::NotFound);
        let devices = domains.qemu_devices(&guest.uuid).await.expect("QEMU answers");
        let [device] = devices.as_slice() else { panic!("one disk: {devices:?}") };
        assert_eq!(device.qdev, "/machine/peripheral/virtio-disk0/virtio-backend");
        assert!(device.node_name.as_ref().is_some_and(|name| name.starts_with("libvirt-")));
        is_on(stage, &guest, &guest.volume).await;
    }
}

pub async fn a_definition_is_stored_beside_the_running_one(stage: &dyn Stage) {
    let guest = stage.guest(Kind::File, true);
    let domains = &stage.ports().domains;
    let before = observe(stage, &guest).await;
    let stored = before.inactive_xml.expect("a stored definition");
    let other = stored.replace(&guest.volume.name(), "of-last-year.qcow2");
    domains.define(&guest.uuid, &other).await.expect("it is stored");
    domains.define(&guest.uuid, &other).await.expect("twice is once");
    let after = observe(stage, &guest).await;
    assert_eq!(after.live_xml, before.live_xml);
    assert!(after.inactive_xml.is_some_and(|xml| xml.contains("of-last-year.qcow2")));
    class(domains.define(&guest.uuid, &defined_as(&guest, &another())).await, ErrorClass::Other);
    class(domains.define(&guest.uuid, "<domain>").await, ErrorClass::Other);
}

fn another() -> DomainUuid {
    DomainUuid::new("00000000-0000-4000-8000-000000000001").expect("a uuid")
}

pub async fn limits_are_set_on_the_running_disk_and_the_stored_one(stage: &dyn Stage) {
    let domains = &stage.ports().domains;
    let limits = |text: &str| text.parse::<IoTune>().expect("limits");
    let both = limits("total_bytes_sec=1048576,read_iops_sec=77");
    for (kind, persistent) in [(Kind::File, true), (Kind::Rbd, false)] {
        let guest = stage.guest(kind, persistent);
        domains.set_iotune(&guest.uuid, &vda(), &both).await.expect("they are set");
        domains.set_iotune(&guest.uuid, &vda(), &both).await.expect("twice is once");
        // What is not named stays, and zero lifts.
        let lift = limits("read_iops_sec=0");
        for (now, read) in [(both.clone(), true), (lift, false)] {
            domains.set_iotune(&guest.uuid, &vda(), &now).await.expect("they are set");
            let seen = observe(stage, &guest).await;
            assert_eq!(seen.inactive_xml.is_some(), persistent);
            for xml in [Some(seen.live_xml), seen.inactive_xml].into_iter().flatten() {
                assert!(xml.contains("<total_bytes_sec>1048576</total_bytes_sec>"), "{xml}");
                assert_eq!(xml.contains("<read_iops_sec>77</read_iops_sec>"), read, "{xml}");
            }
        }
        let other = DiskTarget::new("vdz").expect("a plain target");
        assert!(domains.set_iotune(&guest.uuid, &other, &both).await.is_err(), "no such disk");
        stage.destroy(&guest);
        let stopped = domains.set_iotune(&guest.uuid, &vda(), &limits("write_iops_sec=5")).await;
        assert_eq!(stopped.is_ok(), persistent, "{stopped:?}");
    }
}
