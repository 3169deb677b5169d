//! How copies end: pivots and aborts, and what QEMU, libvirt and the XMLs say afterwards.

use volferry_agent::ports::{EventKind, JobEnd};
use volferry_agent::spec::VolumeLocation;

use crate::stage::{
    Kind, Stage, ended, image, is_on, made, make, next, observe, path, qemu_uses, ready, slow_copy,
    vda,
};

const ROUTES: [(Kind, Kind); 3] =
    [(Kind::Rbd, Kind::File), (Kind::File, Kind::Rbd), (Kind::Rbd, Kind::Rbd)];

pub async fn a_pivot_moves_qemu_and_both_xmls(stage: &dyn Stage) {
    for (from, to) in ROUTES {
        for persistent in [true, false] {
            let guest = stage.guest(from, persistent);
            let to = made(stage, to).await;
            let mut events = ready(stage, &guest, &to).await;
            stage.ports().jobs.pivot(&guest.uuid, &vda()).await.expect("the pivot succeeds");
            ended(&mut events, &guest, None, JobEnd::Completed).await;
            is_on(stage, &guest, &to).await;
            assert!(!qemu_uses(stage, &guest, &guest.volume).await);
            let seen = observe(stage, &guest).await;
            assert_eq!(seen.inactive_xml.is_some(), persistent);
            for xml in [Some(seen.live_xml), seen.inactive_xml].into_iter().flatten() {
                assert!(!xml.contains(&guest.volume.name()), "{xml}");
            }
            let job = stage.ports().jobs.info(&guest.uuid, &vda()).await.expect("QEMU answers");
            assert_eq!(job, None);
            stage.destroy(&guest);
        }
    }
}

pub async fn an_abort_before_ready_leaves_the_source(stage: &dyn Stage) {
    let guest = stage.guest(Kind::File, true);
    let to = made(stage, Kind::Rbd).await;
    let mut events = stage.ports().events.subscribe();
    stage.ports().jobs.start_copy(&slow_copy(&guest, &to)).await.expect("the copy starts");
    stage.ports().jobs.abort(&guest.uuid, &vda()).await.expect("it ends");
    // It has ended when the call returns.
    is_on(stage, &guest, &guest.volume).await;
    let job = stage.ports().jobs.info(&guest.uuid, &vda()).await.expect("QEMU answers");
    assert_eq!(job, None);
    assert_eq!(next(&mut events, &guest).await, EventKind::JobEnded(JobEnd::Cancelled));
    let (pool, name) = image(&to);
    let images = &stage.ports().images;
    let id =
        images.image_id(&pool, &name).await.expect("an answer").expect("libvirt removes nothing");
    images.remove(&pool, &name, &id).await.expect("QEMU has closed it");
}

pub async fn an_abort_in_step_is_completed_for_qemu_and_cancelled_for_libvirt(stage: &dyn Stage) {
    let guest = stage.guest(Kind::Rbd, true);
    let to = made(stage, Kind::File).await;
    let mut events = ready(stage, &guest, &to).await;
    stage.ports().jobs.abort(&guest.uuid, &vda()).await.expect("it ends");
    ended(&mut events, &guest, None, JobEnd::Cancelled).await;
    is_on(stage, &guest, &guest.volume).await;
}

pub async fn a_stored_definition_with_another_source_is_not_rewritten(stage: &dyn Stage) {
    let guest = stage.guest(Kind::File, true);
    let to = made(stage, Kind::Rbd).await;
    let stored = observe(stage, &guest).await.inactive_xml.expect("a stored definition");
    let other = stored.replace(&guest.volume.name(), "of-last-year.qcow2");
    stage.ports().domains.define(&guest.uuid, &other).await.expect("it is stored");
    ready(stage, &guest, &to).await;
    stage.ports().jobs.pivot(&guest.uuid, &vda()).await.expect("the pivot succeeds");
    assert!(qemu_uses(stage, &guest, &to).await);
    let seen = observe(stage, &guest).await;
    assert!(seen.live_xml.contains(&to.name()), "{}", seen.live_xml);
    let stored = seen.inactive_xml.expect("a stored definition");
    assert!(stored.contains("of-last-year.qcow2") && !stored.contains(&to.name()), "{stored}");
}

pub async fn a_pivot_to_an_unlinked_file_succeeds(stage: &dyn Stage) {
    let guest = stage.guest(Kind::Rbd, true);
    let to = made(stage, Kind::File).await;
    let mut events = ready(stage, &guest, &to).await;
    stage.unlink(path(&to));
    let found = stage.ports().files.identity(path(&to)).await.expect("an answer");
    assert_eq!(found, None);
    stage.ports().jobs.pivot(&guest.uuid, &vda()).await.expect("libvirt sees nothing");
    ended(&mut events, &guest, None, JobEnd::Completed).await;
    is_on(stage, &guest, &to).await;
}

pub async fn a_pivot_to_an_image_that_lost_its_name_succeeds(stage: &dyn Stage) {
    let guest = stage.guest(Kind::File, true);
    let to = made(stage, Kind::Rbd).await;
    let mut events = ready(stage, &guest, &to).await;
    stage.trash(&to);
    let stranger = make(stage, &to, stage.size()).await.expect("the name is free");
    stage.ports().jobs.pivot(&guest.uuid, &vda()).await.expect("libvirt sees nothing");
    ended(&mut events, &guest, None, JobEnd::Completed).await;
    is_on(stage, &guest, &to).await;
    // What has the name is not what the guest writes to: nobody watches it.
    let (VolumeLocation::Rbd { .. }, volferry_agent::spec::Identity::Rbd { image_id }) =
        (&to, &stranger)
    else {
        panic!("an image has an image's identity")
    };
    let (pool, name) = image(&to);
    stage.ports().images.remove(&pool, &name, image_id).await.expect("nobody uses it");
}

pub async fn a_disk_can_be_copied_again_after_a_pivot_and_an_abort(stage: &dyn Stage) {
    let guest = stage.guest(Kind::Rbd, true);
    let (first, second) = (made(stage, Kind::File).await, made(stage, Kind::Rbd).await);
    ready(stage, &guest, &first).await;
    stage.ports().jobs.abort(&guest.uuid, &vda()).await.expect("it ends");
    // The same destination once more: what is in it is overwritten.
    ready(stage, &guest, &first).await;
    stage.ports().jobs.pivot(&guest.uuid, &vda()).await.expect("the pivot succeeds");
    ready(stage, &guest, &second).await;
    stage.ports().jobs.pivot(&guest.uuid, &vda()).await.expect("the pivot succeeds");
    is_on(stage, &guest, &second).await;
}
