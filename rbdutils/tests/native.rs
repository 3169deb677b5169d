//! Images on a real cluster, by the crate's own calls alone. What a QEMU beside them does to an image
//! is tested in `native_qemu`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/lab.rs"]
#[macro_use]
mod lab;

use std::time::{Duration, Instant, SystemTime};

use lab::{Lab, MIB};
use rbdutils::cluster::{Cluster, ConnectOptions, Timeouts};
use rbdutils::errno::ErrorClass;
use rbdutils::images::{CreateOptions, Features, ImageError, ImageId, LuksVersion};
use rbdutils::monitors::{MonitorEntry, MonitorList};
use rbdutils::names::{ImageName, PoolName, SnapshotName};

#[test]
fn an_image_from_its_creation_to_its_end() {
    let lab = lab!("an_image_from_its_creation_to_its_end");
    let (web, id) = lab.create("web", 64 * MIB);
    assert!(matches!(lab.pool.create(&web, MIB), Err(ImageError::Exists { .. })));
    assert_eq!(lab.pool.image_id(&web).unwrap().as_ref(), Some(&id));
    assert_eq!(lab.pool.image_id(&lab.name("none")).unwrap(), None);

    let facts = lab.pool.describe(&web).unwrap();
    assert_eq!((&facts.id, facts.size_bytes, facts.object_size_bytes), (&id, 64 * MIB, 4 * MIB));
    assert!(facts.features.contains(Features::FAST_DIFF.union(Features::EXCLUSIVE_LOCK)));
    assert_eq!(facts.children, Some(vec![]));
    assert_eq!(facts.watchers, vec![], "looking at an image must not be seen as a use of it");
    assert_eq!(facts.parent, None);
    assert_eq!(lab.pool.allocated_bytes(&web).unwrap(), 0);

    assert_eq!(lab.pool.get_metadata(&web, "volferry").unwrap(), None);
    lab.pool.set_metadata(&web, "volferry", &"x".repeat(5000)).unwrap();
    assert_eq!(lab.pool.get_metadata(&web, "volferry").unwrap().unwrap().len(), 5000);

    let other = ImageId::new("0123456789ab");
    let error = lab.pool.remove(&web, &other).unwrap_err();
    assert!(matches!(&error, ImageError::IdMismatch { found, .. } if *found == id), "{error}");
    let mut progress = 0;
    lab.pool.remove_with_progress(&web, &id, &mut |_, _| progress += 1).unwrap();
    assert!(progress > 0);
    assert_eq!(lab.pool.remove(&web, &id).unwrap_err().class(), ErrorClass::NotFound);
    assert_eq!(lab.pool.describe(&web).unwrap_err().class(), ErrorClass::NotFound);
}

#[test]
fn options_of_a_new_image() {
    let lab = lab!("options_of_a_new_image");
    let name = lab.name("options");
    let options = CreateOptions {
        features: Some(Features::LAYERING),
        object_size_bytes: Some(MIB),
        data_pool: None,
    };
    let id = lab.pool.create_with(&name, 10 * MIB, &options).unwrap();
    let facts = lab.pool.describe(&name).unwrap();
    assert_eq!((facts.features, facts.object_size_bytes), (Features::LAYERING, MIB));
    lab.pool.remove(&name, &id).unwrap();
    let options = CreateOptions { object_size_bytes: Some(3 * MIB), ..CreateOptions::default() };
    assert!(lab.pool.create_with(&name, MIB, &options).is_err());
}

#[test]
fn a_rename_never_replaces() {
    let lab = lab!("a_rename_never_replaces");
    let ((a, a_id), (b, b_id)) = (lab.create("a", MIB), lab.create("b", MIB));
    let error = lab.pool.rename_no_replace(&a, &b).unwrap_err();
    assert!(matches!(error, ImageError::Exists { .. }), "{error}");
    assert_eq!(lab.pool.image_id(&a).unwrap().as_ref(), Some(&a_id));
    assert_eq!(lab.pool.image_id(&b).unwrap().as_ref(), Some(&b_id));

    let c = lab.name("c");
    lab.pool.rename_no_replace(&a, &c).unwrap();
    assert_eq!(lab.pool.image_id(&a).unwrap(), None);
    assert_eq!(lab.pool.image_id(&c).unwrap().as_ref(), Some(&a_id));
    assert_eq!(lab.pool.rename_no_replace(&a, &b).unwrap_err().class(), ErrorClass::NotFound);

    // Of several renames to one name at the same time exactly one wins.
    let target = lab.name("target");
    let sources: Vec<_> = (0..4).map(|n| lab.create(&format!("race{n}"), MIB)).collect();
    let race = |name: &ImageName| lab.pool.rename_no_replace(name, &target).is_ok();
    let won: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = sources.iter().map(|(name, _)| scope.spawn(|| race(name))).collect();
        threads.into_iter().map(|thread| usize::from(thread.join().unwrap())).sum()
    });
    assert_eq!(won, 1);
    let winner = lab.pool.image_id(&target).unwrap().unwrap();
    lab.pool.remove(&target, &winner).unwrap();
    for (name, id) in
        sources.into_iter().filter(|(_, id)| *id != winner).chain([(b, b_id), (c, a_id)])
    {
        lab.pool.remove(&name, &id).unwrap();
    }
}

#[test]
fn what_keeps_an_image_from_being_removed_is_named() {
    let lab = lab!("what_keeps_an_image_from_being_removed_is_named");
    let (base, id) = lab.create("base", 8 * MIB);
    let golden = SnapshotName::new("golden").unwrap();
    lab.pool.snapshot_create(&base, &golden).unwrap();
    assert_eq!(lab.pool.snapshot_create(&base, &golden).unwrap_err().class(), ErrorClass::Exists);
    let error = lab.pool.remove(&base, &id).unwrap_err();
    assert!(
        matches!(&error, ImageError::HasSnapshots { snapshots, .. } if *snapshots == ["golden"])
    );

    let clone = lab.name("clone");
    let clone_id = lab.pool.clone_from((&lab.pool, &base, &golden), &clone).unwrap();
    let facts = lab.pool.describe(&clone).unwrap();
    let parent = facts.parent.unwrap();
    assert_eq!((parent.image.id, parent.snapshot.as_str()), (id.clone(), "golden"));
    assert_eq!(parent.image.pool, lab.pool.name().as_str());
    match lab.pool.remove(&base, &id).unwrap_err() {
        ImageError::HasChildren { children, .. } => {
            assert_eq!(children.len(), 1);
            assert_eq!((&children[0].id, &children[0].image), (&clone_id, &clone.to_string()));
        }
        // A user of one pool may not look for clones in the others.
        ImageError::HasSnapshots { .. } => {
            assert_eq!(lab.pool.describe(&base).unwrap().children, None);
        }
        other => panic!("{other}"),
    }
    lab.pool.remove(&clone, &clone_id).unwrap();
    lab.pool.snapshot_remove(&base, &golden).unwrap();
    lab.pool.remove(&base, &id).unwrap();
}

#[test]
fn many_snapshots_are_all_listed() {
    let lab = lab!("many_snapshots_are_all_listed");
    let (image, id) = lab.create("snapshots", MIB);
    let names: Vec<String> = (0..5).map(|n| format!("s{n}")).collect();
    for name in &names {
        lab.pool.snapshot_create(&image, &SnapshotName::new(name).unwrap()).unwrap();
    }
    let snapshots = lab.pool.describe(&image).unwrap().snapshots;
    assert!(snapshots.iter().all(|s| s.by_user && s.size_bytes == MIB));
    assert_eq!(snapshots.into_iter().map(|s| s.name).collect::<Vec<_>>(), names);
    for name in &names {
        lab.pool.snapshot_remove(&image, &SnapshotName::new(name).unwrap()).unwrap();
    }
    lab.pool.remove(&image, &id).unwrap();
}

#[test]
fn snapshots_are_deleted_unless_a_clone_depends_on_the_image() {
    let lab = lab!("snapshots_are_deleted_unless_a_clone_depends_on_the_image");
    let (image, id) = lab.create("snapshots-to-delete", MIB);
    let names = ["plain", "protected"].map(|name| SnapshotName::new(name).unwrap());
    for name in &names {
        lab.pool.snapshot_create(&image, name).unwrap();
    }
    lab.pool.snapshot_protect(&image, &names[1]).unwrap();
    let error = lab.pool.snapshot_remove(&image, &names[1]).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Busy, "{error}");

    let clone = lab.name("clone-in-the-way");
    let clone_id = lab.pool.clone_from((&lab.pool, &image, &names[0]), &clone).unwrap();
    for name in &names {
        let error = lab.pool.snapshot_delete(&image, &id, name).unwrap_err();
        assert!(matches!(error, ImageError::HasChildren { .. }), "{error}");
    }
    assert_eq!(lab.pool.describe(&image).unwrap().snapshots.len(), 2);
    lab.pool.remove(&clone, &clone_id).unwrap();

    let other = ImageId::new("ffffffffffff");
    let error = lab.pool.snapshot_delete(&image, &other, &names[0]).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Replaced, "{error}");
    for name in &names {
        lab.pool.snapshot_delete(&image, &id, name).unwrap();
        let error = lab.pool.snapshot_delete(&image, &id, name).unwrap_err();
        assert_eq!(error.class(), ErrorClass::NotFound, "{error}");
    }
    lab.pool.remove(&image, &id).unwrap();
}

#[test]
fn a_trashed_name_is_free_again() {
    let lab = lab!("a_trashed_name_is_free_again");
    let (image, old) = lab.create("trash", MIB);
    lab.pool.trash_move_expected(&image, &old, Duration::from_secs(3600)).unwrap();
    let entry = lab.pool.trash_entry(&image, &old).unwrap().expect("it is in the trash");
    assert_eq!(entry.name, image.as_str());
    let left = entry.deferred_until.duration_since(SystemTime::now()).unwrap();
    assert!(left > Duration::from_secs(3000) && left <= Duration::from_secs(3600), "{left:?}");
    assert_eq!(lab.pool.image_id(&image).unwrap(), None);
    let new = lab.pool.create(&image, MIB).unwrap();
    assert_ne!(old, new);
    assert!(matches!(lab.pool.remove(&image, &old), Err(ImageError::IdMismatch { .. })));
    lab.pool.remove(&image, &new).unwrap();
}

#[test]
fn space_and_identity() {
    let lab = lab!("space_and_identity");
    let space = lab.pool.space().unwrap();
    assert!(space.max_avail_bytes > 0 && space.writable_bytes() > 0, "{space:?}");
    assert!(space.flags.is_some(), "profile rbd may read the flags");
    let cluster = Cluster::connect(&lab.options).unwrap();
    assert_eq!(cluster.fsid().unwrap().len(), 36);
    let error = cluster.pool(&PoolName::new("no-such-pool").unwrap(), None).unwrap_err();
    assert_eq!(error.class(), ErrorClass::NotFound);
}

#[test]
fn a_wrong_key_or_user_is_permission_denied() {
    let lab = lab!("a_wrong_key_or_user_is_permission_denied");
    let class = |options: &ConnectOptions| Cluster::connect(options).unwrap_err().class();
    let mut options = lab.options.clone();
    options.key = Some("AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA==".into());
    assert_eq!(class(&options), ErrorClass::PermissionDenied);
    // Each port without a prefix: a client tries it as v2 and as v1, and one of them never answers.
    let ports = options.monitors.entries().iter().flat_map(|entry| match entry {
        MonitorEntry::Vector(members) => members.iter().filter_map(|m| m.port).collect(),
        _ => Vec::new(),
    });
    for port in ports {
        let mut options = options.clone();
        options.monitors = MonitorList::parse("127.0.0.1", port.into()).unwrap();
        options.timeouts.connect = Duration::from_secs(2);
        assert_eq!(class(&options), ErrorClass::PermissionDenied, "port {port}");
    }
    options.key = Some("no key".into());
    assert_eq!(class(&options), ErrorClass::PermissionDenied);
    options.key = None;
    assert_eq!(class(&options), ErrorClass::PermissionDenied);
    options.user = Some("nobody".into());
    options.key = lab.options.key.clone();
    assert_eq!(class(&options), ErrorClass::PermissionDenied);
}

/// Needs no lab: nobody listens there.
#[test]
fn silent_monitors_are_unreachable_in_time() {
    let second = Duration::from_secs(1);
    let class = |monitors: &str| {
        let started = Instant::now();
        let error = Cluster::connect(&ConnectOptions {
            monitors: MonitorList::parse(monitors, 0).unwrap(),
            user: Some("volferry".to_owned()),
            key: Some("AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA==".into()),
            timeouts: Timeouts { connect: second, monitor: second, osd: second },
        })
        .unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
        println!("{error}: {}", error.errno().unwrap());
        error.class()
    };
    assert_eq!(class("127.0.0.1:9"), ErrorClass::Unreachable);
    assert_eq!(class("no-such-monitor.invalid"), ErrorClass::Unreachable);
}

/// The look before the pivot: one read. The bound is loose, a lab machine is slow.
#[test]
fn reading_an_id_is_quick() {
    let lab = lab!("reading_an_id_is_quick");
    let (image, id) = lab.create("quick", MIB);
    let mut times: Vec<Duration> = (0..200)
        .map(|_| {
            let started = Instant::now();
            assert_eq!(lab.pool.image_id(&image).unwrap().as_ref(), Some(&id));
            started.elapsed()
        })
        .collect();
    times.sort();
    println!("image_id: p50 {:?}, p99 {:?}", times[100], times[198]);
    assert!(times[100] < Duration::from_millis(20));
    lab.pool.remove(&image, &id).unwrap();
}

#[test]
fn an_encrypted_image_has_the_size_behind_its_header() {
    let lab = lab!("an_encrypted_image_has_the_size_behind_its_header");
    let name = lab.name("encrypted");
    let id = lab.pool.create_encrypted(&name, 8 * MIB, b"open\0sesame").unwrap();
    let usable = |passphrase: &[u8]| lab.pool.usable_bytes(&name, LuksVersion::Luks2, passphrase);
    assert_eq!(usable(b"open\0sesame").unwrap(), 8 * MIB);
    assert_eq!(usable(b"open").unwrap_err().class(), ErrorClass::WrongPassphrase);
    assert!(lab.pool.describe(&name).unwrap().size_bytes > 8 * MIB);
    let (head, size) = lab.pool.read_head(&name, 6).unwrap();
    assert_eq!(
        (&head[..], size),
        (&b"LUKS\xba\xbe"[..], lab.pool.describe(&name).unwrap().size_bytes)
    );
    lab.pool.remove(&name, &id).unwrap();

    let (plain, id) = lab.create("plain", MIB);
    let error = lab.pool.usable_bytes(&plain, LuksVersion::Luks2, b"open").unwrap_err();
    assert_eq!(error.class(), ErrorClass::NoHeader, "{error}");
    lab.pool.write_head(&plain, b"head").unwrap();
    assert_eq!(lab.pool.read_head(&plain, 4).unwrap(), (b"head".to_vec(), MIB));
    lab.pool.remove(&plain, &id).unwrap();
}
