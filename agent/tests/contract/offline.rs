//! Copies of images nobody uses, and who uses an image.

use std::time::Duration;

use tokio::sync::watch;
use volferry_agent::ports::{Comparison, CopySide, ErrorClass, Image, ImageCopy, ImageKey};
use volferry_agent::spec::{
    Bytes, BytesPerSecond, EncryptionScheme, OperationId, VolumeFormat, VolumeLocation,
};

use crate::headers::{BOTH, make_with, passphrase};
use crate::stage::{Kind, Stage, image, made, make, path};

fn side(location: &VolumeLocation) -> Image {
    let format = match location {
        VolumeLocation::Rbd { .. } => VolumeFormat::Raw,
        VolumeLocation::File { .. } => VolumeFormat::Qcow2,
    };
    Image { location: location.clone(), format, key: None }
}

/// The same behind a header.
fn behind(location: &VolumeLocation, scheme: EncryptionScheme, text: &str) -> Image {
    let key = ImageKey { header: scheme.header(), passphrase: passphrase(text) };
    Image { key: Some(key), ..side(location) }
}

fn copy(stage: &dyn Stage, from: &VolumeLocation, to: &VolumeLocation) -> ImageCopy {
    ImageCopy {
        operation: OperationId::random(),
        from: side(from),
        to: side(to),
        size: Bytes(stage.size()),
        bandwidth: None,
    }
}

pub async fn a_copy_holds_what_its_source_holds(stage: &dyn Stage) {
    let copies = &stage.ports().copies;
    for from in [Kind::Rbd, Kind::File] {
        let guest = stage.guest(from, true);
        stage.destroy(&guest);
        for to in [Kind::Rbd, Kind::File] {
            let to = made(stage, to).await;
            let copy = copy(stage, &guest.volume, &to);
            let (done, told) = watch::channel(Bytes(0));
            let before = copies.compare(&copy, &done).await.expect("both can be read");
            assert!(matches!(before, Comparison::Different(_)), "{before:?}");
            copies.copy(&copy, &done).await.expect("it is copied");
            assert_eq!(*told.borrow(), Bytes(stage.size()), "progress comes to its end");
            let after = copies.compare(&copy, &done).await.expect("both can be read");
            assert_eq!(after, Comparison::Identical);
        }
    }
}

/// Through every kind of header and back to none, each from where the last one ended.
const WAY: [(Kind, Option<EncryptionScheme>); 4] = [
    (Kind::Rbd, Some(EncryptionScheme::Luks2Librbd)),
    (Kind::File, Some(EncryptionScheme::Luks1Qemu)),
    (Kind::Rbd, Some(EncryptionScheme::Luks1Qemu)),
    (Kind::File, None),
];

pub async fn an_encrypted_copy_holds_what_its_source_holds(stage: &dyn Stage) {
    let copies = &stage.ports().copies;
    let guest = stage.guest(Kind::File, true);
    stage.destroy(&guest);
    let mut from = side(&guest.volume);
    let (done, told) = watch::channel(Bytes(0));
    // Each another passphrase than the one before, so that neither opens the other.
    for ((kind, scheme), text) in WAY.into_iter().zip(["one", "two", "three", ""]) {
        let at = stage.place(kind);
        let to = match scheme {
            Some(scheme) => {
                let made = make_with(stage, &at, scheme, stage.size(), text).await;
                made.expect("a free name");
                behind(&at, scheme, text)
            }
            None => {
                make(stage, &at, stage.size()).await.expect("a free name");
                side(&at)
            }
        };
        let copy = ImageCopy { from, to: to.clone(), ..copy(stage, &guest.volume, &at) };
        copies.copy(&copy, &done).await.expect("it is copied");
        assert_eq!(*told.borrow(), Bytes(stage.size()), "progress comes to its end");
        from = to;
    }
    let both = ImageCopy { from, ..copy(stage, &guest.volume, &guest.volume) };
    let same = copies.compare(&both, &done).await.expect("both can be read");
    assert_eq!(same, Comparison::Identical, "from one end to the other");
}

pub async fn a_copy_begins_only_with_what_opens_both_sides(stage: &dyn Stage) {
    let copies = &stage.ports().copies;
    let guest = stage.guest(Kind::File, true);
    stage.destroy(&guest);
    let open = side(&guest.volume);
    let (done, _told) = watch::channel(Bytes(0));
    for (kind, scheme) in BOTH {
        let at = stage.place(kind);
        make_with(stage, &at, scheme, stage.size(), "open sesame").await.expect("a free name");
        let plain = made(stage, kind).await;
        for (closed, class) in [
            (behind(&at, scheme, "sesame, open"), ErrorClass::WrongPassphrase),
            (behind(&plain, scheme, "open sesame"), ErrorClass::NoHeader),
        ] {
            let base = copy(stage, &guest.volume, &at);
            let there = ImageCopy { from: open.clone(), to: closed.clone(), ..base.clone() };
            let refused = copies.copy(&there, &done).await.expect_err("it does not open");
            assert_eq!((refused.error.class, refused.side), (class, CopySide::Destination));
            let back = ImageCopy { from: closed, to: open.clone(), ..base };
            let again = copies.compare(&back, &done).await.expect_err("nor here");
            assert_eq!((again.error.class, again.side), (class, CopySide::Source));
            let told = format!("{refused:?} {again:?} {there:?}");
            assert!(!told.contains("sesame"), "{told}");
        }
    }
}

pub async fn a_running_guest_is_a_user_of_its_volume(stage: &dyn Stage) {
    let file = stage.guest(Kind::File, true);
    let files = &stage.ports().files;
    let users = files.users(path(&file.volume)).await.expect("an answer");
    assert_eq!(users.len(), 1, "{users:?}");
    assert!(users[0].starts_with("qemu-system"), "{users:?}");
    stage.destroy(&file);
    assert_eq!(files.users(path(&file.volume)).await.expect("an answer"), Vec::<String>::new());
    let nothing = stage.place(Kind::File);
    assert_eq!(files.users(path(&nothing)).await.expect("an answer"), Vec::<String>::new());
}

pub async fn a_copy_that_is_given_up_lets_go_of_both_images(stage: &dyn Stage) {
    let guest = stage.guest(Kind::Rbd, true);
    stage.destroy(&guest);
    let to = made(stage, Kind::File).await;
    let limit = BytesPerSecond::new(1 << 20).ok();
    let slow = ImageCopy { bandwidth: limit, ..copy(stage, &guest.volume, &to) };
    let (pool, name) = image(&guest.volume);
    let watchers = async || {
        let seen = stage.ports().images.observe(&pool, &name).await.expect("an answer");
        seen.expect("the image").watchers.len()
    };
    let (done, _told) = watch::channel(Bytes(0));
    let work = stage.ports().copies.copy(&slow, &done);
    tokio::select! {
        ended = work => panic!("it is slow: {ended:?}"),
        () = tokio::time::sleep(Duration::from_secs(3)) => {}
    }
    // A client that was killed is watched for until its time is over.
    for _ in 0..60 {
        if watchers().await == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(watchers().await, 0);
    assert_eq!(
        stage.ports().files.users(path(&to)).await.expect("an answer"),
        Vec::<String>::new()
    );
}

pub async fn a_header_says_what_a_guest_sees(stage: &dyn Stage) {
    let file = made(stage, Kind::File).await;
    let seen = stage.ports().files.observe(path(&file), VolumeFormat::Qcow2).await;
    let header = seen.expect("an answer").expect("the file").header.expect("a header");
    assert_eq!(header.virtual_size, Bytes(stage.size()));
    assert!(header.backing.is_none() && !header.has_data_file && !header.is_encrypted);
    let seen = stage.ports().files.observe(path(&file), VolumeFormat::Raw).await;
    assert_eq!(seen.expect("an answer").expect("the file").header, None);
}
