//! RBD images: names, identities, and who keeps whom from being removed.

use tokio::sync::watch;
use volferry_agent::ports::{ErrorClass, ParentSnapshot};
use volferry_agent::spec::{Bytes, RbdPoolAddress};

use crate::stage::{Kind, Stage, class, image, is_on, made, qemu_uses};

async fn id(stage: &dyn Stage, pool: &RbdPoolAddress, name: &str) -> Option<String> {
    stage.ports().images.image_id(pool, name).await.expect("an answer")
}

pub async fn an_open_image_is_renamed_and_not_removed(stage: &dyn Stage) {
    let guest = stage.guest(Kind::Rbd, true);
    let images = &stage.ports().images;
    let (pool, name) = image(&guest.volume);
    let seen = images.observe(&pool, &name).await.expect("an answer").expect("the image");
    assert_eq!(seen.size.0, stage.size());
    assert_eq!(seen.watchers.len(), 1, "{seen:?}");
    assert!(seen.snapshots.is_empty() && seen.children.is_empty(), "{seen:?}");
    assert!(images.allocated(&pool, &name).await.expect("an answer").0 > 0);
    let (_, other) = image(&guest.volume.renamed(&format!("{name}-other")));
    images.rename(&pool, &name, &other).await.expect("an open image can be renamed");
    assert_eq!(id(stage, &pool, &other).await, Some(seen.image_id.clone()));
    assert_eq!(id(stage, &pool, &name).await, None);
    // QEMU and libvirt know it by the name it was opened by.
    is_on(stage, &guest, &guest.volume).await;
    let renamed = images.observe(&pool, &other).await.expect("an answer").expect("the image");
    assert_eq!(renamed.watchers, seen.watchers);
    class(images.remove(&pool, &other, &seen.image_id).await, ErrorClass::Busy);
    stage.destroy(&guest);
    images.remove(&pool, &other, &seen.image_id).await.expect("nobody uses it");
}

pub async fn an_image_gets_no_name_that_is_taken(stage: &dyn Stage) {
    let images = &stage.ports().images;
    let (pool, one) = image(&made(stage, Kind::Rbd).await);
    let (_, other) = image(&made(stage, Kind::Rbd).await);
    let (first, second) = (id(stage, &pool, &one).await, id(stage, &pool, &other).await);
    assert!(first.is_some() && first != second);
    class(images.create(&pool, &one, Bytes::mib(8)).await, ErrorClass::Exists);
    class(images.rename(&pool, &one, &other).await, ErrorClass::Exists);
    assert_eq!((id(stage, &pool, &one).await, id(stage, &pool, &other).await), (first, second));
    class(images.rename(&pool, "nobody-has-this", "nor-this").await, ErrorClass::NotFound);
    class(images.rename(&pool, "nobody-has-this", &other).await, ErrorClass::NotFound);
}

pub async fn an_image_is_removed_by_its_id_only(stage: &dyn Stage) {
    let images = &stage.ports().images;
    let (pool, name) = image(&made(stage, Kind::Rbd).await);
    let own = id(stage, &pool, &name).await.expect("the image");
    class(images.remove(&pool, &name, "somebody-elses").await, ErrorClass::Replaced);
    assert_eq!(id(stage, &pool, &name).await.as_ref(), Some(&own));
    images.remove(&pool, &name, &own).await.expect("it is removed");
    class(images.remove(&pool, &name, &own).await, ErrorClass::NotFound);
    class(images.allocated(&pool, &name).await, ErrorClass::NotFound);
    assert_eq!(images.observe(&pool, &name).await.expect("an answer"), None);
}

pub async fn a_name_is_free_after_the_trash_and_may_be_anothers(stage: &dyn Stage) {
    let guest = stage.guest(Kind::Rbd, true);
    let images = &stage.ports().images;
    let (pool, name) = image(&guest.volume);
    let own = id(stage, &pool, &name).await.expect("the image");
    stage.trash(&guest.volume);
    assert_eq!(id(stage, &pool, &name).await, None);
    assert_eq!(images.observe(&pool, &name).await.expect("an answer"), None);
    class(images.remove(&pool, &name, &own).await, ErrorClass::NotFound);
    let stranger = images.create(&pool, &name, Bytes::mib(8)).await.expect("the name is free");
    assert_ne!(stranger, own);
    class(images.remove(&pool, &name, &own).await, ErrorClass::Replaced);
    // The guest goes on, on what it has open; the stranger has no user.
    assert!(qemu_uses(stage, &guest, &guest.volume).await);
    let seen = images.observe(&pool, &name).await.expect("an answer").expect("the stranger");
    assert_eq!((seen.image_id.as_str(), seen.watchers.len()), (stranger.as_str(), 0));
}

pub async fn a_snapshot_keeps_an_image(stage: &dyn Stage) {
    let images = &stage.ports().images;
    let volume = made(stage, Kind::Rbd).await;
    let (pool, name) = image(&volume);
    let own = id(stage, &pool, &name).await.expect("the image");
    stage.snapshot(&volume, "daily");
    let seen = images.observe(&pool, &name).await.expect("an answer").expect("the image");
    assert_eq!(seen.snapshots, ["daily"]);
    let refused = images.remove(&pool, &name, &own).await.expect_err("it is kept");
    assert_eq!(refused.class, ErrorClass::Busy, "{refused}");
    assert!(refused.message.contains("daily"), "{refused}");
    assert_eq!(id(stage, &pool, &name).await, Some(own));
}

pub async fn a_clone_depends_on_its_snapshot_until_it_is_flattened(stage: &dyn Stage) {
    let images = &stage.ports().images;
    let volume = made(stage, Kind::Rbd).await;
    let (pool, name) = image(&volume);
    let own = id(stage, &pool, &name).await.expect("the image");
    stage.snapshot(&volume, "theirs");
    class(images.create_snapshot(&pool, &name, "another", "ours").await, ErrorClass::Replaced);
    class(images.create_snapshot(&pool, "nobody", &own, "ours").await, ErrorClass::NotFound);
    images.create_snapshot(&pool, &name, &own, "ours").await.expect("a snapshot");
    class(images.create_snapshot(&pool, &name, &own, "ours").await, ErrorClass::Exists);
    let (_, clone) = image(&stage.place(Kind::Rbd));
    let parent = ParentSnapshot {
        pool: pool.pool.clone(),
        namespace: None,
        image: name.clone(),
        snapshot: "ours".to_owned(),
    };
    let wrong = ParentSnapshot { snapshot: "nobodys".to_owned(), ..parent.clone() };
    class(images.clone_image(&wrong, &pool, &clone).await, ErrorClass::NotFound);
    let made = images.clone_image(&parent, &pool, &clone).await.expect("a clone");
    assert_eq!(id(stage, &pool, &clone).await.as_ref(), Some(&made));
    class(images.clone_image(&parent, &pool, &clone).await, ErrorClass::Exists);
    let seen = images.observe(&pool, &name).await.expect("an answer").expect("the image");
    assert!(seen.clonable && seen.children == [pool.image_path(&clone)], "{seen:?}");
    let seen = images.observe(&pool, &clone).await.expect("an answer").expect("the clone");
    assert_eq!((seen.size.0, seen.snapshots.len()), (stage.size(), 0));
    // That snapshot is kept, another one is not.
    let kept = images.drop_snapshot(&pool, &name, &own, "ours").await.expect_err("it is kept");
    assert!(kept.class == ErrorClass::Busy && kept.message.contains(&clone), "{kept}");
    images.drop_snapshot(&pool, &name, &own, "theirs").await.expect("nothing depends on it");
    class(images.drop_snapshot(&pool, &name, &own, "theirs").await, ErrorClass::NotFound);
    class(images.remove(&pool, &name, &own).await, ErrorClass::Busy);
    let (done, told) = watch::channel(Bytes(0));
    let size = Bytes(stage.size());
    class(images.flatten(&pool, &clone, &own, size, &done).await, ErrorClass::Replaced);
    class(images.flatten(&pool, "nobody", &made, size, &done).await, ErrorClass::NotFound);
    images.flatten(&pool, &clone, &made, size, &done).await.expect("it becomes independent");
    assert!(told.borrow().0 > 0, "no progress was told");
    images.flatten(&pool, &clone, &made, size, &done).await.expect("it is so already");
    class(images.drop_snapshot(&pool, &name, "another", "ours").await, ErrorClass::Replaced);
    images.drop_snapshot(&pool, &name, &own, "ours").await.expect("nothing depends on it");
    images.remove(&pool, &name, &own).await.expect("nothing keeps it");
    images.remove(&pool, &clone, &made).await.expect("nothing keeps it");
}

pub async fn a_pool_or_cluster_that_is_not_there_is_told_apart(stage: &dyn Stage) {
    let images = &stage.ports().images;
    let (good, _) = image(&stage.place(Kind::Rbd));
    images.prepare(&good).await.expect("the pool is there");
    let space = images.space(&good).await.expect("an answer");
    assert!(space.available.is_some_and(|room| room > Bytes::mib(1)) && !space.full, "{space:?}");
    let pool = RbdPoolAddress { pool: "no-such-pool".to_owned(), ..good.clone() };
    class(images.prepare(&pool).await, ErrorClass::NotFound);
    let pool = RbdPoolAddress { monitors: stage.nobody_listens(), ..good };
    class(images.prepare(&pool).await, ErrorClass::Unavailable);
}
