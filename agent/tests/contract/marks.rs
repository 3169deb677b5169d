//! Marks of destinations: found by what they say and by private names, until they are taken away.

use rbdutils::monitors::MonitorList;
use volferry_agent::ports::{Mark, MarkedVolume, Search};
use volferry_agent::spec::{
    FilePool, FilePoolKind, Identity, OperationId, PoolKind, RbdPool, VolumeLocation,
};

use crate::stage::{Kind, Stage, make};

const KINDS: [Kind; 2] = [Kind::Rbd, Kind::File];

fn pool_of(place: &VolumeLocation) -> PoolKind {
    match place {
        VolumeLocation::Rbd { address, .. } => PoolKind::Rbd(RbdPool {
            monitors: MonitorList::parse(&address.monitors, 0).expect("monitors"),
            address: address.clone(),
        }),
        VolumeLocation::File { path } => PoolKind::File(FilePool {
            kind: FilePoolKind::Nfs,
            path: path.parent().expect("a folder").to_owned(),
            host: None,
            must_be_mounted: false,
        }),
    }
}

/// What is found of this operation.
async fn found(
    stage: &dyn Stage,
    place: &VolumeLocation,
    search: Search,
    operation: &OperationId,
) -> Vec<MarkedVolume> {
    let found = stage.ports().marks.find(&pool_of(place), search).await.expect("an answer");
    found.into_iter().filter(|volume| volume.operation == *operation).collect()
}

async fn rename(stage: &dyn Stage, from: &VolumeLocation, to: &VolumeLocation) {
    let ports = stage.ports();
    match (from, to) {
        (VolumeLocation::Rbd { address, image }, VolumeLocation::Rbd { image: to, .. }) => {
            ports.images.rename(address, image, to).await.expect("a free name");
        }
        (VolumeLocation::File { path }, VolumeLocation::File { path: to }) => {
            ports.files.rename(path, to).await.expect("a free name");
        }
        _ => unreachable!("both are of one kind"),
    }
}

async fn remove(stage: &dyn Stage, at: &VolumeLocation, identity: &Identity) {
    let ports = stage.ports();
    match (at, identity) {
        (VolumeLocation::Rbd { address, image }, Identity::Rbd { image_id }) => {
            ports.images.remove(address, image, image_id).await.expect("nobody uses it");
        }
        (VolumeLocation::File { path }, identity) => {
            ports.files.remove(path, identity).await.expect("it is there");
        }
        _ => unreachable!("both are of one kind"),
    }
}

pub async fn a_mark_is_found_under_every_name_until_it_is_taken_away(stage: &dyn Stage) {
    for kind in KINDS {
        let operation = OperationId::random();
        let public = stage.place(kind);
        let private = public.renamed(&operation.private_volume_name());
        let identity = make(stage, &private, stage.size()).await.expect("a free name");
        let mark = Mark {
            host: "host-a".to_owned(),
            operation: operation.clone(),
            volume: public.clone(),
            identity: identity.clone(),
        };
        let marks = &stage.ports().marks;
        marks.set(&private, &mark).await.expect("it is there");
        marks.set(&private, &mark).await.expect("marked twice");
        let seen = found(stage, &public, Search::Marks, &operation).await;
        let told = |location: &VolumeLocation, private| MarkedVolume {
            location: location.clone(),
            identity: identity.clone(),
            operation: operation.clone(),
            host: Some("host-a".to_owned()),
            private,
        };
        assert_eq!(seen, [told(&private, true)]);
        rename(stage, &private, &public).await;
        assert_eq!(found(stage, &public, Search::Marks, &operation).await, [told(&public, false)]);
        marks.clear(&public, &operation).await.expect("it is taken away");
        marks.clear(&public, &operation).await.expect("it was taken away");
        assert_eq!(found(stage, &public, Search::Marks, &operation).await, []);
        remove(stage, &public, &identity).await;
        marks.clear(&public, &operation).await.expect("the volume is gone");
    }
}

pub async fn a_private_name_is_found_without_a_mark(stage: &dyn Stage) {
    for kind in KINDS {
        let operation = OperationId::random();
        let private = stage.place(kind).renamed(&operation.private_volume_name());
        let identity = make(stage, &private, stage.size()).await.expect("a free name");
        for search in [Search::Names, Search::Marks] {
            let seen = found(stage, &private, search, &operation).await;
            assert_eq!(seen.len(), 1, "{seen:?}");
            assert_eq!(
                (&seen[0].identity, &seen[0].host, seen[0].private),
                (&identity, &None, true)
            );
        }
        remove(stage, &private, &identity).await;
        assert_eq!(found(stage, &private, Search::Names, &operation).await, []);
    }
}
