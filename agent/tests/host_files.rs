//! The files port on a real file system, with the real qemu-img where it is installed.

use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use volferry_agent::host::HostFiles;
use volferry_agent::ports::{ErrorClass, FileOwner, Files, PortError};
use volferry_agent::spec::{Bytes, Identity, VolumeFormat};

struct Folder {
    root: tempfile::TempDir,
    files: HostFiles,
}

fn folder() -> Folder {
    let root = tempfile::tempdir().expect("a temporary folder can be made");
    Folder { root, files: HostFiles::default() }
}

impl Folder {
    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.root.path()).expect("the folder is there");
        let name = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        let mut names: Vec<_> = entries.map(|entry| name(entry.expect("readable"))).collect();
        names.sort();
        names
    }
}

fn qemu_img(test: &str) -> bool {
    let there = Command::new("qemu-img").arg("--version").output().is_ok();
    if !there {
        eprintln!("SKIPPED {test}: qemu-img is not installed");
    }
    there
}

fn class<T>(result: Result<T, PortError>) -> Option<ErrorClass> {
    result.err().map(|error| error.class)
}

#[tokio::test]
async fn a_raw_file_has_the_exact_size_and_takes_no_space() {
    let folder = folder();
    let path = folder.path(".volferry-1");
    let size = Bytes(10 * 1024 * 1024 + 512);
    let made = folder.files.create(&path, VolumeFormat::Raw, size, None).await.expect("created");
    let seen = folder.files.observe(&path, VolumeFormat::Raw).await.expect("seen").expect("there");
    assert_eq!(seen.identity, made);
    assert_eq!(seen.length, size);
    assert!(seen.allocated.0 <= 4096, "{}", seen.allocated);
    assert_eq!(seen.owner.mode, 0o600);
}

#[tokio::test]
async fn a_qcow2_file_shows_its_size_to_guests_and_its_snapshots_to_us() {
    if !qemu_img("a_qcow2_file") {
        return;
    }
    let folder = folder();
    // A name that would be a protocol, an option or a format if it were not an absolute path.
    let path = folder.path("nbd:a,b=c --json:{} ü.qcow2");
    let owner = FileOwner { uid: nix_uid(), gid: nix_gid(), mode: 0o640 };
    let size = Bytes::mib(64);
    let made = folder.files.create(&path, VolumeFormat::Qcow2, size, Some(owner)).await;
    let made = made.expect("created");
    assert_eq!(folder.names().len(), 1);
    let info = Command::new("qemu-img").args(["info", "--output=json"]).arg(&path).output();
    let info = String::from_utf8(info.expect("it runs").stdout).expect("JSON");
    assert!(info.contains("\"virtual-size\": 67108864"), "{info}");
    assert!(info.contains("\"format\": \"qcow2\""), "{info}");
    for name in ["first", "a longer name"] {
        let done = Command::new("qemu-img").args(["snapshot", "-c", name]).arg(&path).status();
        assert!(done.is_ok_and(|status| status.success()));
    }
    let seen = folder.files.observe(&path, VolumeFormat::Qcow2).await.expect("seen");
    let seen = seen.expect("there");
    assert_eq!(seen.identity, made);
    assert_eq!(seen.internal_snapshots, ["first", "a longer name"]);
    assert_eq!(seen.owner.mode, 0o640);
}

#[tokio::test]
async fn a_strangers_file_is_never_overwritten() {
    let folder = folder();
    let path = folder.path("taken");
    std::fs::write(&path, "precious").expect("written");
    for format in [VolumeFormat::Raw, VolumeFormat::Qcow2] {
        let made = folder.files.create(&path, format, Bytes::mib(1), None).await;
        assert_eq!(class(made), Some(ErrorClass::Exists));
    }
    let link = folder.path("link");
    std::os::unix::fs::symlink(folder.path("nowhere"), &link).expect("linked");
    let made = folder.files.create(&link, VolumeFormat::Raw, Bytes::mib(1), None).await;
    assert_eq!(class(made), Some(ErrorClass::Exists));
    let other = folder.path("other");
    std::fs::write(&other, "mine").expect("written");
    assert_eq!(class(folder.files.rename(&other, &path).await), Some(ErrorClass::Exists));
    assert_eq!(std::fs::read_to_string(&path).ok().as_deref(), Some("precious"));
    assert_eq!(folder.names(), ["link", "other", "taken"]);
}

#[tokio::test]
async fn a_failed_creation_leaves_nothing() {
    let root = tempfile::tempdir().expect("a temporary folder can be made");
    let files = HostFiles::new("/nonexistent/qemu-img", Duration::from_secs(10));
    let path = root.path().join("x.qcow2");
    let made = files.create(&path, VolumeFormat::Qcow2, Bytes::mib(1), None).await;
    assert_eq!(class(made), Some(ErrorClass::Unsupported));
    assert!(!path.exists());
    let files = HostFiles::new("false", Duration::from_secs(10));
    let made = files.create(&path, VolumeFormat::Qcow2, Bytes::mib(1), None).await;
    assert_eq!(class(made), Some(ErrorClass::Other));
    assert!(!path.exists());
}

#[tokio::test]
async fn a_program_that_hangs_is_given_up_in_time() {
    let root = tempfile::tempdir().expect("a temporary folder can be made");
    let script = root.path().join("slow");
    std::fs::write(&script, "#!/bin/sh\nexec sleep 60\n").expect("written");
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("executable");
    let files = HostFiles::new(&script, Duration::from_millis(300));
    let path = root.path().join("x.qcow2");
    let begun = std::time::Instant::now();
    let made = files.create(&path, VolumeFormat::Qcow2, Bytes::mib(1), None).await;
    assert_eq!(class(made), Some(ErrorClass::NoAnswer));
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn only_the_file_that_is_meant_is_removed() {
    let folder = folder();
    let path = folder.path("x");
    let made = folder.files.create(&path, VolumeFormat::Raw, Bytes(0), None).await;
    let made = made.expect("created");
    std::fs::write(folder.path("y"), "another").expect("written");
    std::fs::rename(folder.path("y"), &path).expect("replaced");
    assert_eq!(class(folder.files.remove(&path, &made).await), Some(ErrorClass::Replaced));
    assert!(path.exists());
    let now = folder.files.identity(&path).await.expect("seen").expect("there");
    let link = folder.path("link");
    std::os::unix::fs::symlink(&path, &link).expect("linked");
    assert_eq!(class(folder.files.remove(&link, &now).await), Some(ErrorClass::Replaced));
    folder.files.remove(&path, &now).await.expect("removed");
    assert_eq!(class(folder.files.remove(&path, &now).await), Some(ErrorClass::NotFound));
    assert_eq!(folder.files.identity(&path).await.expect("seen"), None);
    let image = Identity::Rbd { image_id: "1".to_owned() };
    assert!(folder.files.remove(&link, &image).await.is_err());
}

#[tokio::test]
async fn a_rename_keeps_the_identity() {
    let folder = folder();
    let (from, to) = (folder.path(".volferry-1"), folder.path("vol.qcow2"));
    let made = folder.files.create(&from, VolumeFormat::Raw, Bytes(512), None).await;
    folder.files.rename(&from, &to).await.expect("renamed");
    assert_eq!(folder.files.identity(&to).await.ok(), Some(made.ok()));
    assert_eq!(class(folder.files.rename(&from, &to).await), Some(ErrorClass::NotFound));
    assert_eq!(folder.names(), ["vol.qcow2"]);
}

#[tokio::test]
async fn what_is_no_image_is_an_error_and_does_not_hang() {
    let folder = folder();
    let pipe = folder.path("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("made");
    assert!(std::fs::metadata(&pipe).is_ok_and(|pipe| pipe.file_type().is_fifo()));
    for path in [pipe, folder.root.path().to_owned()] {
        let seen = folder.files.observe(&path, VolumeFormat::Qcow2).await;
        assert_eq!(class(seen), Some(ErrorClass::Unsupported));
    }
    let text = folder.path("text");
    let mut file = std::fs::File::create(&text).expect("made");
    file.seek(SeekFrom::Start(1 << 20)).expect("sought");
    file.write_all(b"x").expect("written");
    let seen = folder.files.observe(&text, VolumeFormat::Qcow2).await.expect("seen");
    assert_eq!(seen.expect("there").header, None, "it has no header of qcow2");
    assert!(folder.files.observe(&text, VolumeFormat::Raw).await.is_ok());
    assert!(folder.files.identity(Path::new("relative")).await.is_err());
}

#[tokio::test]
async fn a_folder_tells_its_space_and_whether_it_is_mounted() {
    let folder = folder();
    let seen = folder.files.folder(folder.root.path()).await.expect("seen");
    assert!(seen.available.0 > 0 && seen.total >= seen.available);
    let root = folder.files.folder(Path::new("/")).await.expect("seen");
    assert!(!root.mounted);
    let proc = folder.files.folder(Path::new("/proc")).await.expect("seen");
    assert!(proc.mounted);
    let missing = folder.files.folder(&folder.path("no")).await;
    assert_eq!(class(missing), Some(ErrorClass::NotFound));
}

#[tokio::test]
async fn who_may_use_a_folder_is_seen_without_leaving_anything() {
    let folder = folder();
    let pool = folder.path("pool");
    std::fs::create_dir(&pool).expect("made");
    std::fs::set_permissions(&pool, std::fs::Permissions::from_mode(0o710)).expect("set");
    std::os::unix::fs::symlink(&pool, folder.path("link")).expect("linked");
    let user = FileOwner { uid: nix_uid(), gid: nix_gid(), mode: 0o600 };
    let seen = folder.files.access(&folder.path("link"), Some(user)).await.expect("allowed");
    let first = seen.folders.first().expect("the root");
    assert_eq!(first.path, Path::new("/"));
    let last = seen.folders.last().expect("the folder itself");
    assert_eq!(last.path, pool.canonicalize().expect("it exists"));
    assert_eq!(last.owner, FileOwner { mode: 0o710, ..user });
    assert!(!last.has_acl);
    assert!(seen.groups.contains(&user.gid));
    assert_eq!(std::fs::read_dir(&pool).expect("readable").count(), 0);
    let missing = folder.files.access(&folder.path("no"), Some(user)).await;
    assert_eq!(class(missing), Some(ErrorClass::NotFound));
}

fn nix_uid() -> u32 {
    std::fs::metadata("/proc/self").map(|own| own.uid()).unwrap_or_default()
}

fn nix_gid() -> u32 {
    std::fs::metadata("/proc/self").map(|own| own.gid()).unwrap_or_default()
}

#[tokio::test]
async fn the_trash_folder_is_made_once_for_the_agent_alone_and_is_no_link() {
    let folder = folder();
    let trash = folder.path(".volferry-trash");
    for name in ["a", "b"] {
        std::fs::write(folder.path(name), name).expect("written");
        folder.files.trash(&folder.path(name), &trash.join(name)).await.expect("moved");
        assert_eq!(std::fs::read_to_string(trash.join(name)).expect("there"), name);
    }
    assert_eq!(folder.names(), [".volferry-trash"]);
    let mode = std::fs::metadata(&trash).expect("there").mode() & 0o7777;
    assert_eq!(mode, 0o700);
    std::fs::write(folder.path("a"), "another").expect("written");
    let taken = folder.files.trash(&folder.path("a"), &trash.join("a")).await;
    assert_eq!(class(taken), Some(ErrorClass::Exists));
    let link = folder.path("link");
    std::os::unix::fs::symlink(&trash, &link).expect("a link");
    let linked = folder.files.trash(&folder.path("a"), &link.join("c")).await;
    assert!(linked.is_err(), "a link could lead anywhere");
    assert_eq!(std::fs::read_to_string(folder.path("a")).expect("there"), "another");
}

#[tokio::test]
async fn a_file_with_a_second_name_is_not_sealed() {
    let folder = folder();
    let path = folder.path("a.qcow2");
    let made = folder.files.create(&path, VolumeFormat::Qcow2, Bytes::mib(1), None).await;
    let identity = made.expect("a free name");
    std::fs::hard_link(&path, folder.path("b.qcow2")).expect("linked");
    let before = std::fs::read(&path).expect("readable");
    assert_eq!(class(folder.files.seal(&path, &identity).await), Some(ErrorClass::Unsupported));
    assert_eq!(std::fs::read(&path).expect("readable"), before);
    std::fs::remove_file(folder.path("b.qcow2")).expect("it is there");
    folder.files.seal(&path, &identity).await.expect("one name is left");
    assert_ne!(std::fs::read(&path).expect("readable"), before);
}
