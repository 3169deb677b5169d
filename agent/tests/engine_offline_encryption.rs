//! Encrypted volumes that nobody uses: copied from behind one header to behind another, with the passphrases of the
//! request; what does not open is refused before anything is made.

#[path = "support/unspoken.rs"]
mod unspoken;

use std::collections::BTreeMap;
use std::time::Duration;

use unspoken::nothing_tells;
use volferry_agent::fake::Stage;
use volferry_agent::fake::faults::{Fault, Method};
use volferry_agent::fake::scene::{DISK_SIZE, Home, SOURCE_SECRET};
use volferry_agent::fake::secret::{Header, Secret};
use volferry_agent::operation::{FailureCause, Side, State};
use volferry_agent::plan::{RefusalCode, StepKind};
use volferry_agent::ports::ErrorClass;
use volferry_agent::spec::{
    Bytes, BytesPerSecond, EncryptionScheme, HeaderKind, MigrateSpec, Passphrase, Subject,
    VolumeLocation,
};

const OLD: &[u8] = b"open sesame";
const NEW: &[u8] = b"close sesame";
const POOLS: [&str; 4] = ["ceph-hdd", "ceph-ssd", "nfs-1", "smp-1"];

fn passphrase(bytes: &[u8]) -> Option<Passphrase> {
    (!bytes.is_empty()).then(|| Passphrase::new(bytes.to_vec()).expect("a passphrase"))
}

/// A guest that was shut down, with its disk behind this header.
async fn stopped(home: Home, header: HeaderKind) -> Stage {
    let stage = Stage::new(home, true).await;
    stage.scene.encrypt(&stage.guest, header, OLD);
    stage.world.shut_down(&stage.guest.uuid);
    stage
}

/// A volume of no domain behind this header.
async fn lone(pool: &str, name: &str, header: Option<HeaderKind>) -> Stage {
    let mut stage = Stage::new(Home::Rbd, true).await;
    stage.guest = stage.scene.volume(pool, name);
    if let Some(header) = header {
        stage.scene.encrypt_volume(&stage.guest, header, OLD);
    }
    stage.before = stage.world.volumes();
    stage
}

fn with(spec: MigrateSpec, source: &[u8], destination: &[u8]) -> MigrateSpec {
    spec.with_passphrases(passphrase(source), passphrase(destination))
}

fn request(stage: &Stage, pool: &str) -> MigrateSpec {
    with(stage.guest.request(pool), OLD, b"")
}

/// The request for a volume of no domain, and what it says of its header.
fn volume_request(stage: &Stage, pool: &str, header: Option<HeaderKind>) -> MigrateSpec {
    let mut spec = with(stage.guest.volume_request(pool), OLD, b"");
    if let Subject::Volume { volume_encryption, .. } = &mut spec.subject {
        *volume_encryption = header;
    }
    spec
}

fn header(stage: &Stage, place: &VolumeLocation) -> Option<Header> {
    stage.world.with(|state| state.volume(place).expect("the volume").header)
}

fn content(stage: &Stage, place: &VolumeLocation) -> u64 {
    stage.world.with(|state| {
        let volume = state.volume(place).expect("a volume");
        state.content(&volume.identity)
    })
}

fn stored(stage: &Stage) -> String {
    let stored = stage.world.with(|state| state.domains[&stage.guest.uuid].inactive_xml.clone());
    stored.expect("a stored definition")
}

/// libvirt's secrets of volumes.
fn secrets(stage: &Stage) -> BTreeMap<String, Secret> {
    stage.world.with(|state| state.volume_secrets.clone())
}

/// Changes both texts of the stopped domain.
fn edit(stage: &Stage, change: impl Fn(&str) -> String) {
    stage.world.with(|state| {
        let domain = state.domains.get_mut(&stage.guest.uuid).expect("the domain");
        for text in [Some(&mut domain.live_xml), domain.inactive_xml.as_mut()].into_iter().flatten()
        {
            *text = change(text);
        }
    });
}

/// Refused with this code, and nothing is left of it.
async fn refused(stage: &Stage, spec: &MigrateSpec, code: RefusalCode, word: &str) {
    let before = secrets(stage);
    let refusal = stage.agent.engine.migrate(spec.clone()).await.expect_err("it is refused");
    assert_eq!(refusal.code, code, "{refusal}");
    assert!(refusal.message.contains(word), "{refusal}");
    assert!(!refusal.message.contains("sesame"), "{refusal}");
    assert_eq!(stage.world.volumes(), stage.before);
    assert_eq!(secrets(stage), before);
}

async fn fails(stage: &Stage, spec: &MigrateSpec, cause: FailureCause) -> Side {
    let before = secrets(stage);
    let view = stage.run(spec).await;
    assert_eq!(view.state, State::Failed, "{view:#?}");
    let failure = view.failure.clone().expect("a cause");
    assert_eq!(failure.cause, cause, "{failure}");
    assert_eq!(secrets(stage), before, "as before");
    failure.side
}

#[tokio::test(start_paused = true)]
async fn the_encrypted_disk_of_a_stopped_domain_moves_to_any_pool() {
    let sources = [
        (Home::Rbd, HeaderKind::LibrbdLuks2),
        (Home::Rbd, HeaderKind::QemuLuks1),
        (Home::Rbd, HeaderKind::LibrbdLuks1),
        (Home::File, HeaderKind::QemuLuks1),
    ];
    for (home, kind) in sources {
        for pool in POOLS {
            let stage = stopped(home, kind).await;
            stage.world.with(|state| state.librbd_copies = true);
            let mut spec = request(&stage, pool);
            spec.destination_volume = "other".parse().ok();
            let before = content(&stage, &stage.guest.volume);
            let view = stage.run(&spec).await;
            assert_eq!(view.state, State::Succeeded, "{kind} to {pool}: {view:#?}");
            assert_eq!(content(&stage, &view.destination), before);
            let on_rbd = pool.starts_with("ceph");
            let scheme = match on_rbd {
                true => EncryptionScheme::Luks2Librbd,
                false => EncryptionScheme::Luks1Qemu,
            };
            let made = Header { kind: scheme.header(), passphrase: OLD.to_vec() };
            assert_eq!(header(&stage, &view.destination), Some(made));
            let result = view.result.as_ref().expect("a result");
            assert_eq!(result.encryption, Some(scheme));
            if on_rbd {
                assert_eq!(result.allocated, Some(Bytes(DISK_SIZE)), "written from end to end");
            }
            let element = format!("<encryption format='{}'", scheme.format());
            assert!(stored(&stage).contains(&element), "{}", stored(&stage));
            stage.world.with(|state| {
                assert!(!state.volume_secrets.contains_key(SOURCE_SECRET), "the source's went");
                assert_eq!(state.volume_secrets.len(), 1);
                assert!(state.volume_secrets.values().all(|secret| !secret.ephemeral));
                // It starts from there.
                state.start_again(&stage.guest.uuid);
                let disk = state.domains[&stage.guest.uuid].disk("vda").expect("it runs");
                assert_eq!(disk.node.volume.to_string(), view.destination.to_string());
            });
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_disk_is_encrypted_rekeyed_and_decrypted() {
    let stage = Stage::new(Home::Rbd, true).await;
    stage.world.shut_down(&stage.guest.uuid);
    let view = stage.run(&with(stage.guest.request("nfs-1"), b"", NEW)).await;
    assert_eq!(view.state, State::Succeeded, "{view:#?}");
    assert_eq!(header(&stage, &view.destination).map(|made| made.passphrase), Some(NEW.to_vec()));

    let stage = stopped(Home::File, HeaderKind::QemuLuks1).await;
    let view = stage.run(&with(stage.guest.request("smp-1"), OLD, NEW)).await;
    assert_eq!(view.state, State::Succeeded, "{view:#?}");
    assert_eq!(header(&stage, &view.destination).map(|made| made.passphrase), Some(NEW.to_vec()));

    let stage = stopped(Home::Rbd, HeaderKind::LibrbdLuks2).await;
    let mut spec = request(&stage, "nfs-1");
    spec.encryption.decrypt = true;
    let view = stage.run(&spec).await;
    assert_eq!(view.state, State::Succeeded, "{view:#?}");
    assert_eq!(header(&stage, &view.destination), None);
    assert!(!stored(&stage).contains("<encryption"), "{}", stored(&stage));
    assert!(stage.world.with(|state| state.volume_secrets.is_empty()), "nobody needs it");
}

#[tokio::test(start_paused = true)]
async fn a_volume_of_no_domain_is_opened_by_what_the_request_says_and_libvirt_is_told_nothing() {
    let sources = [
        ("ceph-hdd", "v", Some(HeaderKind::LibrbdLuks2)),
        ("ceph-hdd", "v", Some(HeaderKind::QemuLuks1)),
        ("nfs-1", "v.qcow2", None),
        ("nfs-1", "v.raw", Some(HeaderKind::QemuLuks1)),
    ];
    for (pool, name, said) in sources {
        let kind = said.unwrap_or(HeaderKind::QemuLuks1);
        let stage = lone(pool, name, Some(kind)).await;
        let spec = volume_request(&stage, "ceph-ssd", said);
        let plan = stage.agent.engine.plan(spec.clone()).await.expect("accepted");
        assert!(plan.steps.iter().all(|step| {
            !matches!(step.kind(), StepKind::SetSecret | StepKind::RemoveSourceSecret)
        }));
        let before = content(&stage, &stage.guest.volume);
        let view = stage.run(&spec).await;
        assert_eq!(view.state, State::Succeeded, "{pool}/{name}: {view:#?}");
        assert_eq!(content(&stage, &view.destination), before);
        assert!(header(&stage, &view.destination).is_some());
        assert!(stage.world.with(|state| state.volume_secrets.is_empty()));
        assert!(!stage.world.calls().contains(&Method::DefineSecret));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_said_or_does_not_fit_is_refused() {
    let unsupported = RefusalCode::EncryptionUnsupported;
    let stage = lone("ceph-hdd", "v", Some(HeaderKind::LibrbdLuks2)).await;
    let unsaid = volume_request(&stage, "nfs-1", None);
    refused(&stage, &unsaid, unsupported, "--volume-encryption").await;
    let stage = lone("nfs-1", "v.qcow2", Some(HeaderKind::QemuLuks1)).await;
    let librbds = volume_request(&stage, "smp-1", Some(HeaderKind::LibrbdLuks2));
    refused(&stage, &librbds, unsupported, "only for raw images of Ceph").await;
    // Encrypted, and nobody says so.
    let silent = stage.guest.volume_request("smp-1");
    refused(&stage, &silent, unsupported, "does not say so").await;
    // An encrypted volume would become a plain one.
    let stage = stopped(Home::Rbd, HeaderKind::QemuLuks1).await;
    refused(&stage, &stage.guest.request("nfs-1"), unsupported, "plain text").await;
    // A plain one has nothing to open.
    let stage = lone("nfs-1", "v.qcow2", None).await;
    let plain = volume_request(&stage, "smp-1", None);
    refused(&stage, &plain, RefusalCode::StateMismatch, "header says otherwise").await;
    // A secret that is named by its use could not be written back.
    let stage = stopped(Home::Rbd, HeaderKind::QemuLuks1).await;
    let (uuid, usage) = (format!("uuid='{SOURCE_SECRET}'"), "usage='x'");
    edit(&stage, |text| text.replace(&uuid, usage));
    refused(&stage, &request(&stage, "nfs-1"), unsupported, "by its uuid").await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_does_not_open_is_refused_before_anything_is_made() {
    for (home, kind) in [(Home::File, HeaderKind::QemuLuks1), (Home::Rbd, HeaderKind::LibrbdLuks2)]
    {
        let stage = stopped(home, kind).await;
        let wrong = with(stage.guest.request("smp-1"), b"sesame, open", b"");
        refused(&stage, &wrong, RefusalCode::WrongPassphrase, "does not open").await;
        let none = with(stage.guest.request("smp-1"), b"", NEW);
        refused(&stage, &none, RefusalCode::SecretMissing, "--passphrase-file").await;
        let mut decrypt = stage.guest.request("smp-1");
        decrypt.encryption.decrypt = true;
        refused(&stage, &decrypt, RefusalCode::SecretMissing, "--passphrase-file").await;
        for size in [DISK_SIZE - 512, DISK_SIZE + 512] {
            let expected_size = Some(Bytes(size));
            let spec = MigrateSpec { expected_size, ..request(&stage, "smp-1") };
            refused(&stage, &spec, RefusalCode::SizeMismatch, "must be").await;
        }
        let other = match kind {
            HeaderKind::QemuLuks1 => HeaderKind::LibrbdLuks2,
            _ => HeaderKind::QemuLuks1,
        };
        let other = Header { kind: other, passphrase: OLD.to_vec() };
        for header in [None, Some(other)] {
            stage.world.with(|state| state.set_header(&stage.guest.volume, header));
            let spec = request(&stage, "smp-1");
            refused(&stage, &spec, RefusalCode::StateMismatch, "header says otherwise").await;
        }
    }
    // Exactly what is expected is moved.
    let stage = stopped(Home::Rbd, HeaderKind::LibrbdLuks2).await;
    let expected_size = Some(Bytes(DISK_SIZE));
    let spec = MigrateSpec { expected_size, ..request(&stage, "smp-1") };
    assert_eq!(stage.run(&spec).await.state, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_header_of_librbd_is_found_where_the_definition_leaves_it_open() {
    for kind in [HeaderKind::LibrbdLuks1, HeaderKind::LibrbdLuks2] {
        let stage = stopped(Home::Rbd, kind).await;
        edit(&stage, |text| {
            let text = text.replace("format='luks2'", "format='luks-any'");
            text.replace("format='luks' engine='librbd'", "format='luks-any' engine='librbd'")
        });
        let view = stage.run(&request(&stage, "nfs-1")).await;
        assert_eq!(view.state, State::Succeeded, "{kind}: {view:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_is_not_as_it_was_made_is_never_copied_into() {
    let cases = [
        (ErrorClass::NoHeader, FailureCause::DestinationWriteError),
        (ErrorClass::WrongPassphrase, FailureCause::SecretNeeded),
    ];
    for (class, cause) in cases {
        let stage = stopped(Home::Rbd, HeaderKind::QemuLuks1).await;
        // The first look opens the source.
        stage.world.fault(Method::OpenEncrypted, 2, Fault::Refuse(class, "as qemu-img says it"));
        let side = fails(&stage, &request(&stage, "nfs-1"), cause).await;
        assert_eq!(side, Side::Destination);
        assert!(!stage.world.calls().contains(&Method::CopyImage));
    }
    for size in [DISK_SIZE - 512, DISK_SIZE + 512] {
        let stage = stopped(Home::Rbd, HeaderKind::QemuLuks1).await;
        stage.world.before(Method::OpenEncrypted, 2, move |world| {
            world.with(|state| {
                let made = state
                    .files
                    .iter_mut()
                    .find(|(path, _)| path.to_string_lossy().contains("/.volferry-"));
                made.expect("the destination").1.size = size;
            });
        });
        fails(&stage, &request(&stage, "nfs-1"), FailureCause::SizeMismatch).await;
        assert!(!stage.world.calls().contains(&Method::CopyImage));
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_encrypted_anew_meanwhile_ends_the_copy() {
    let stage = stopped(Home::File, HeaderKind::QemuLuks1).await;
    let place = stage.guest.volume.clone();
    stage.world.before(Method::CopyImage, 1, move |world| {
        let other = Header { kind: HeaderKind::QemuLuks1, passphrase: b"another".to_vec() };
        world.with(|state| state.set_header(&place, Some(other)));
    });
    let spec = request(&stage, "ceph-hdd");
    stage.begin(&spec).await;
    let view = stage.agent.end(&spec.operation).await;
    let failure = view.failure.clone().expect("a failure");
    assert_eq!((failure.cause, failure.side), (FailureCause::SecretNeeded, Side::Source));
    assert_eq!(stage.world.volumes(), stage.before);
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_fails_leaves_the_definition_and_the_secrets_as_they_were() {
    let stage = stopped(Home::File, HeaderKind::QemuLuks1).await;
    let before = stored(&stage);
    stage.world.fault(Method::CompareImages, 1, Fault::Refuse(ErrorClass::Other, "no"));
    fails(&stage, &request(&stage, "smp-1"), FailureCause::JobLost).await;
    assert_eq!(stored(&stage), before);
    // The domain is started when its definition is already changed: it is changed back, encryption and all.
    let stage = stopped(Home::File, HeaderKind::QemuLuks1).await;
    let guest = stage.guest.clone();
    stage.world.before(Method::Define, 1, move |world| {
        world.with(|state| state.start_again(&guest.uuid));
    });
    fails(&stage, &request(&stage, "smp-1"), FailureCause::VolumeInUse).await;
    let defined = stage.world.calls().iter().filter(|call| **call == Method::Define).count();
    assert_eq!(defined, 2, "changed and changed back");
    assert!(stored(&stage).contains(SOURCE_SECRET), "{}", stored(&stage));
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_cancelled_and_expires_without_a_trace() {
    let slow = BytesPerSecond::new(1 << 20).ok();
    for deadline in [None, Some(Duration::from_secs(60))] {
        let stage = stopped(Home::Rbd, HeaderKind::LibrbdLuks2).await;
        let (before, secrets) = (stored(&stage), secrets(&stage));
        let spec = MigrateSpec { bandwidth: slow, deadline, ..request(&stage, "nfs-1") };
        stage.begin(&spec).await;
        stage.reaches(&spec, State::Copying).await;
        if deadline.is_none() {
            stage.agent.engine.cancel(&spec.operation).await.expect("it can be cancelled");
        }
        let view = stage.end(&spec).await;
        let cause = view.failure.as_ref().map(|failure| failure.cause);
        let expected = deadline.map(|_| FailureCause::Deadline);
        assert_eq!(cause, expected, "{view:#?}");
        assert_eq!((stored(&stage), self::secrets(&stage)), (before, secrets));
    }
}

#[tokio::test(start_paused = true)]
async fn the_word_to_switch_is_waited_for_with_the_passphrase_and_not_without_it() {
    for restarted in [false, true] {
        let mut stage = stopped(Home::File, HeaderKind::QemuLuks1).await;
        let spec = MigrateSpec { manual_pivot: true, ..request(&stage, "smp-1") };
        stage.begin(&spec).await;
        stage.agent.until(&spec.operation, |view| view.waits_for_pivot).await;
        if restarted {
            stage = stage.restart().await;
        } else {
            stage.agent.engine.complete(&spec.operation).await.expect("it waits for it");
        }
        let view = stage.end(&spec).await;
        let cause = view.failure.as_ref().map(|failure| failure.cause);
        match restarted {
            false => assert_eq!(view.state, State::Succeeded, "{view:#?}"),
            // It does not wait for a word that could only lead to this.
            true => assert_eq!(cause, Some(FailureCause::SecretNeeded), "{view:#?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_passphrase_is_in_the_journal_a_plan_or_a_view() {
    let stage = stopped(Home::Rbd, HeaderKind::LibrbdLuks2).await;
    let spec = with(stage.guest.request("nfs-1"), OLD, NEW);
    let plan = stage.agent.engine.plan(spec.clone()).await.expect("a plan");
    let view = stage.run(&spec).await;
    assert_eq!(view.state, State::Succeeded, "{view:#?}");
    let json = serde_json::to_string(&plan).expect("a plan is written down");
    let shown = format!("{spec:?} {view:?} {plan:?} {json}");
    nothing_tells(&stage, &shown, "sesame");
}
