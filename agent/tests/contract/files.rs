//! Files: names, identities, and that no user of a file keeps it from being renamed or removed.

use std::path::Path;

use volferry_agent::ports::{ErrorClass, FileOwner};
use volferry_agent::spec::{Bytes, Identity, VolumeFormat};

use crate::stage::{Kind, Stage, class, made, path, qemu_uses};

async fn identity(stage: &dyn Stage, path: &Path) -> Option<Identity> {
    stage.ports().files.identity(path).await.expect("an answer")
}

pub async fn a_file_gets_no_name_that_is_taken(stage: &dyn Stage) {
    let files = &stage.ports().files;
    let (one, other) = (made(stage, Kind::File).await, made(stage, Kind::File).await);
    let (one, other) = (path(&one), path(&other));
    let before = (identity(stage, one).await, identity(stage, other).await);
    assert!(before.0.is_some() && before.0 != before.1);
    let again = files.create(one, VolumeFormat::Qcow2, Bytes::mib(8), None).await;
    class(again, ErrorClass::Exists);
    class(files.rename(one, other).await, ErrorClass::Exists);
    class(files.rename(&one.with_file_name("nobody-has-this"), other).await, ErrorClass::NotFound);
    assert_eq!((identity(stage, one).await, identity(stage, other).await), before);
}

pub async fn a_file_is_removed_by_its_identity_only(stage: &dyn Stage) {
    let files = &stage.ports().files;
    let (one, other) = (made(stage, Kind::File).await, made(stage, Kind::File).await);
    let (one, other) = (path(&one), path(&other));
    let own = identity(stage, one).await.expect("the file");
    let wrong = identity(stage, other).await.expect("the file");
    class(files.remove(one, &wrong).await, ErrorClass::Replaced);
    assert_eq!(identity(stage, one).await.as_ref(), Some(&own));
    files.remove(one, &own).await.expect("it is removed");
    class(files.remove(one, &own).await, ErrorClass::NotFound);
    class(files.rename(one, &one.with_file_name("nobody-has-this")).await, ErrorClass::NotFound);
}

pub async fn an_open_file_is_renamed_and_removed(stage: &dyn Stage) {
    let guest = stage.guest(Kind::File, true);
    let files = &stage.ports().files;
    let old = path(&guest.volume);
    let own = identity(stage, old).await.expect("the file");
    let renamed = guest.volume.renamed(&format!("{}-other.qcow2", guest.name));
    let new = path(&renamed);
    files.rename(old, new).await.expect("an open file can be renamed");
    assert_eq!((identity(stage, old).await, identity(stage, new).await), (None, Some(own.clone())));
    assert!(qemu_uses(stage, &guest, &guest.volume).await);
    files.remove(new, &own).await.expect("nothing tells that it is open");
    assert!(qemu_uses(stage, &guest, &guest.volume).await);
}

pub async fn what_is_not_there_is_told_as_such(stage: &dyn Stage) {
    let files = &stage.ports().files;
    let place = stage.place(Kind::File);
    let nowhere = path(&place).with_extension("folder").join("x.qcow2");
    let folder = nowhere.parent().expect("it has one");
    assert_eq!(identity(stage, path(&place)).await, None);
    assert_eq!(identity(stage, &nowhere).await, None);
    let seen = files.observe(path(&place), VolumeFormat::Qcow2).await.expect("an answer");
    assert_eq!(seen, None);
    class(files.folder(folder).await, ErrorClass::NotFound);
    let made = files.create(&nowhere, VolumeFormat::Qcow2, Bytes::mib(8), None).await;
    class(made, ErrorClass::NotFound);
    let room = files.folder(path(&place).parent().expect("it has one")).await.expect("an answer");
    assert!(room.available.0 > 0 && room.available <= room.total, "{room:?}");

    let owner = FileOwner { uid: 12_345, gid: 54_321, mode: 0o640 };
    let created = files.create(path(&place), VolumeFormat::Qcow2, Bytes::mib(8), Some(owner)).await;
    let seen = files.observe(path(&place), VolumeFormat::Qcow2).await.expect("an answer");
    let seen = seen.expect("the file");
    assert_eq!(created.expect("a free name"), seen.identity);
    assert_eq!(seen.owner, owner);
    assert!(seen.internal_snapshots.is_empty() && seen.length.0 > 0, "{seen:?}");
    assert!(seen.allocated < Bytes::mib(2), "it is sparse: {seen:?}");
}

pub async fn a_file_is_sealed_by_its_identity_and_stays_as_it_is(stage: &dyn Stage) {
    let files = &stage.ports().files;
    let (one, other) = (made(stage, Kind::File).await, made(stage, Kind::File).await);
    let (one, other) = (path(&one), path(&other));
    let own = identity(stage, one).await.expect("the file");
    let wrong = identity(stage, other).await.expect("the file");
    class(files.seal(one, &wrong).await, ErrorClass::Replaced);
    class(files.seal(&one.with_file_name("nobody-has-this"), &own).await, ErrorClass::NotFound);
    let look = async || {
        let seen = files.observe(one, VolumeFormat::Qcow2).await.expect("an answer");
        seen.expect("the file")
    };
    let before = look().await;
    assert!(!before.header.as_ref().expect("a header").is_sealed);
    for _ in 0..2 {
        files.seal(one, &own).await.expect("it is sealed");
        let mut after = look().await;
        assert!(std::mem::take(&mut after.header.as_mut().expect("a header").is_sealed));
        assert_eq!(after, before);
    }
    let raw = one.with_file_name("sealed.raw");
    let made = files.create(&raw, VolumeFormat::Raw, Bytes::mib(1), None).await;
    let made = made.expect("a free name");
    class(files.seal(&raw, &made).await, ErrorClass::Unsupported);
    files.remove(&raw, &made).await.expect("it is removed");
}
