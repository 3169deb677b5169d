//! Encrypted moves in the programmable world: headers, passphrases and secrets, and what is refused.

#[path = "support/unspoken.rs"]
mod unspoken;

use unspoken::nothing_tells;
use volferry_agent::engine::Retried;
use volferry_agent::fake::faults::{Fault, Method};
use volferry_agent::fake::scene::{DISK_SIZE, Home, SOURCE_SECRET};
use volferry_agent::fake::secret::{Header, Secret};
use volferry_agent::fake::state::State as WorldState;
use volferry_agent::fake::{Stage, World};
use volferry_agent::operation::{FailureCause, Leftover, LeftoverKind, SourceFate, State};
use volferry_agent::plan::{RefusalCode, StepKind, encryption};
use volferry_agent::ports::ErrorClass;
use volferry_agent::spec::{EncryptionScheme, HeaderKind, MigrateSpec, Passphrase, VolumeLocation};

const OLD: &[u8] = b"open sesame";
const NEW: &[u8] = b"close sesame";

fn passphrase(bytes: &[u8]) -> Option<Passphrase> {
    Some(Passphrase::new(bytes.to_vec()).expect("a passphrase"))
}

/// A guest whose disk QEMU encrypts.
async fn encrypted(home: Home) -> Stage {
    let stage = Stage::new(home, true).await;
    stage.scene.encrypt(&stage.guest, HeaderKind::QemuLuks1, OLD);
    stage
}

/// The request for `pool` that accepts what QEMU does.
fn request(stage: &Stage, pool: &str, source: &[u8], destination: Option<&[u8]>) -> MigrateSpec {
    let source = (!source.is_empty()).then(|| passphrase(source)).flatten();
    let destination = destination.and_then(passphrase);
    let mut request = stage.guest.request(pool).with_passphrases(source, destination);
    request.encryption.accept = [EncryptionScheme::Luks1Qemu].into();
    request
}

async fn refused(stage: &Stage, spec: &MigrateSpec, code: RefusalCode, word: &str) {
    let secrets = stage.world.with(|state| state.volume_secrets.clone());
    let refusal = stage.agent.engine.migrate(spec.clone()).await.expect_err("it is refused");
    assert_eq!(refusal.code, code, "{refusal}");
    assert!(refusal.message.contains(word), "{refusal}");
    assert!(!refusal.message.contains("sesame"), "{refusal}");
    assert_eq!(stage.world.volumes(), stage.before);
    assert_eq!(stage.world.with(|state| state.volume_secrets.clone()), secrets);
}

#[tokio::test(start_paused = true)]
async fn an_encrypted_disk_is_moved_with_its_passphrase_and_its_old_secret_goes() {
    for (home, pool) in [(Home::Rbd, "ceph-ssd"), (Home::Rbd, "nfs-1"), (Home::File, "ceph-hdd")] {
        let stage = encrypted(home).await;
        let spec = request(&stage, pool, OLD, None);
        let view = stage.run(&spec).await;
        assert_eq!(view.state, State::Succeeded, "{view:#?}");
        let result = view.result.as_ref().expect("a result");
        assert_eq!(result.encryption, Some(EncryptionScheme::Luks1Qemu));
        let full = view.warnings.iter().any(|warning| warning.contains("occupy all"));
        assert_eq!(full, pool.starts_with("ceph"), "{:?}", view.warnings);
        if full {
            assert_eq!(result.allocated.map(|bytes| bytes.0), Some(DISK_SIZE));
        }
        stage.world.with(|state| {
            assert!(!state.volume_secrets.contains_key(SOURCE_SECRET), "the source's is gone");
            assert_eq!(state.volume_secrets.len(), 1);
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_is_encrypted_rekeyed_and_decrypted_on_its_way() {
    let header = |stage: &Stage, place: &VolumeLocation| {
        stage.world.with(|state| state.volume(place).expect("the volume").header)
    };
    let stage = Stage::new(Home::Rbd, true).await;
    let view = stage.run(&request(&stage, "nfs-1", b"", Some(NEW))).await;
    assert_eq!(view.state, State::Succeeded, "{view:#?}");
    let passphrase = header(&stage, &view.destination).map(|header| header.passphrase);
    assert_eq!(passphrase.as_deref(), Some(NEW));

    for old in [OLD, b""] {
        let stage = encrypted(Home::File).await;
        let view = stage.run(&request(&stage, "ceph-hdd", old, Some(NEW))).await;
        assert_eq!(view.state, State::Succeeded, "{view:#?}");
        let passphrase = header(&stage, &view.destination).map(|header| header.passphrase);
        assert_eq!(passphrase.as_deref(), Some(NEW));
    }

    let stage = encrypted(Home::Rbd).await;
    let mut spec = stage.guest.request("nfs-1");
    spec.encryption.decrypt = true;
    let view = stage.run(&spec).await;
    assert_eq!(view.state, State::Succeeded, "{view:#?}");
    assert_eq!(header(&stage, &view.destination), None);
    assert!(stage.world.with(|state| state.volume_secrets.is_empty()), "nobody needs it");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_fit_the_disk_is_refused() {
    let unsupported = RefusalCode::EncryptionUnsupported;
    let stage = encrypted(Home::Rbd).await;
    refused(&stage, &stage.guest.request("nfs-1"), unsupported, "plain text").await;
    let mut only_librbd = request(&stage, "nfs-1", OLD, None);
    only_librbd.encryption.accept = [EncryptionScheme::Luks2Librbd].into();
    refused(&stage, &only_librbd, unsupported, "luks1-qemu").await;
    let bytes = request(&stage, "nfs-1", OLD, Some(&[0xff, 0xfe]));
    refused(&stage, &bytes, unsupported, "UTF-8").await;

    let stage = Stage::new(Home::Rbd, true).await;
    refused(&stage, &request(&stage, "nfs-1", OLD, None), unsupported, "is not encrypted").await;
    let mut decrypt = stage.guest.request("nfs-1");
    decrypt.encryption.decrypt = true;
    refused(&stage, &decrypt, unsupported, "nothing to decrypt").await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_does_not_open_is_refused_before_anything_is_made() {
    let stage = encrypted(Home::Rbd).await;
    let wrong = request(&stage, "nfs-1", b"sesame, open", None);
    refused(&stage, &wrong, RefusalCode::WrongPassphrase, "does not open").await;
    let right = request(&stage, "nfs-1", OLD, None);
    let header = Header { kind: HeaderKind::LibrbdLuks2, passphrase: OLD.to_vec() };
    for header in [None, Some(header)] {
        stage.world.with(|state| state.set_header(&stage.guest.volume, header));
        refused(&stage, &right, RefusalCode::StateMismatch, "header says otherwise").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_of_another_usable_size_is_refused() {
    for size in [DISK_SIZE - 512, DISK_SIZE + 512] {
        let stage = encrypted(Home::Rbd).await;
        stage.source_image(|image| image.size = size);
        let spec = request(&stage, "nfs-1", OLD, None);
        refused(&stage, &spec, RefusalCode::SizeMismatch, "behind its encryption header").await;
    }
}

/// The new volume of an operation, under its private name.
fn resize_new(state: &mut WorldState, size: u64) {
    let files = state.files.iter_mut().filter(|(path, _)| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".volferry-"))
    });
    files.for_each(|(_, file)| file.size = size);
    for pool in state.clusters.iter_mut().flat_map(|cluster| cluster.pools.values_mut()) {
        let images = pool.images.iter_mut().filter(|(name, _)| name.starts_with(".volferry-"));
        images.for_each(|(_, image)| image.size = size);
    }
}

#[tokio::test(start_paused = true)]
async fn a_destination_of_another_usable_size_is_never_copied_into() {
    for pool in ["nfs-1", "ceph-ssd"] {
        for size in [DISK_SIZE - 512, DISK_SIZE + 512] {
            let stage = encrypted(Home::Rbd).await;
            // The first look opens the source.
            stage.world.before(Method::OpenEncrypted, 2, move |world| {
                world.with(|state| resize_new(state, size));
            });
            let view = stage.run(&request(&stage, pool, OLD, None)).await;
            let cause = view.failure.as_ref().map(|failure| failure.cause);
            assert_eq!(cause, Some(FailureCause::SizeMismatch), "{view:#?}");
            assert!(!stage.world.calls().contains(&Method::StartCopy));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_destination_without_its_header_is_never_copied_into() {
    for (class, cause) in [
        (ErrorClass::NoHeader, FailureCause::DestinationWriteError),
        (ErrorClass::WrongPassphrase, FailureCause::SecretNeeded),
    ] {
        let stage = encrypted(Home::Rbd).await;
        stage.world.fault(Method::OpenEncrypted, 2, Fault::Refuse(class, "as qemu-img says it"));
        let view = stage.run(&request(&stage, "nfs-1", OLD, None)).await;
        assert_eq!(view.failure.as_ref().map(|failure| failure.cause), Some(cause), "{view:#?}");
        assert!(!stage.world.calls().contains(&Method::StartCopy));
    }
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_taken_away_or_changed_stops_the_copy_from_starting() {
    type Change = fn(&mut WorldState);
    let removed: Change = |state| state.volume_secrets.retain(|uuid, _| uuid == SOURCE_SECRET);
    let changed: Change = |state| {
        let others = state.volume_secrets.iter_mut().filter(|(uuid, _)| *uuid != SOURCE_SECRET);
        others.for_each(|(_, secret)| secret.value = Some(b"another".to_vec()));
    };
    for change in [removed, changed] {
        let stage = encrypted(Home::Rbd).await;
        stage.world.before(Method::StartCopy, 1, move |world| world.with(change));
        let view = stage.run(&request(&stage, "nfs-1", OLD, None)).await;
        let cause = view.failure.as_ref().map(|failure| failure.cause);
        assert_eq!(cause, Some(FailureCause::SecretNeeded), "{view:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_was_there_is_reused_and_survives_a_rollback() {
    let uuid = "30000000-0000-4000-8000-0000000000cc";
    let usage = "/mnt/nfs-1/web-root.qcow2";
    for fails in [false, true] {
        let stage = encrypted(Home::Rbd).await;
        let secret = Secret {
            usage: usage.to_owned(),
            description: Some("the cloud's own".to_owned()),
            ephemeral: true,
            value: None,
        };
        stage.world.with(|state| state.volume_secrets.insert(uuid.to_owned(), secret));
        if fails {
            let refuse = Fault::Refuse(ErrorClass::Other, "no copy today");
            stage.world.fault(Method::StartCopy, 1, refuse);
        }
        let view = stage.run(&request(&stage, "nfs-1", OLD, None)).await;
        assert_eq!(view.state, if fails { State::Failed } else { State::Succeeded });
        stage.world.with(|state| {
            let secret = state.volume_secrets.get(uuid).expect("it is still there");
            assert_eq!(secret.description.as_deref(), Some("the cloud's own"));
            assert_eq!(secret.value.as_deref(), Some(OLD));
        });
    }
    // Without one, the uuid follows from the volume.
    let stage = encrypted(Home::Rbd).await;
    stage.run(&request(&stage, "nfs-1", OLD, None)).await;
    let uuid = encryption::secret_uuid(usage);
    assert!(stage.world.with(|state| state.volume_secrets.contains_key(&uuid)));
    assert_eq!(uuid, encryption::secret_uuid(usage), "every host finds the same");
}

async fn only_leftover(stage: &Stage) -> Leftover {
    let mut left = stage.agent.engine.leftovers().await.expect("a readable journal");
    assert_eq!(left.len(), 1, "{left:#?}");
    left.remove(0)
}

async fn retried(stage: &Stage) -> Retried {
    let left = only_leftover(stage).await;
    stage.agent.engine.retry_leftover(&left.id).await.expect("a record")
}

fn has_secret(stage: &Stage, uuid: &str) -> bool {
    stage.world.with(|state| state.volume_secrets.contains_key(uuid))
}

const REFUSED: Fault = Fault::Refuse(ErrorClass::PermissionDenied, "Operation not permitted");

/// The next so many tries to remove a secret are refused.
fn refuse_secrets(stage: &Stage, tries: usize) {
    for nth in 1..=tries {
        stage.world.fault(Method::UndefineSecret, nth, REFUSED);
    }
}

#[tokio::test(start_paused = true)]
async fn a_sources_secret_that_cannot_be_removed_is_a_leftover() {
    let stage = encrypted(Home::Rbd).await;
    refuse_secrets(&stage, 1000);
    let view = stage.run(&request(&stage, "nfs-1", OLD, None)).await;
    assert_eq!(view.state, State::Succeeded, "{view:#?}");
    let told = view.warnings.iter().any(|text| text.contains(SOURCE_SECRET));
    assert!(told, "{:?}", view.warnings);
    let left = only_leftover(&stage).await;
    assert_eq!((left.kind, left.secret.as_deref()), (LeftoverKind::Secret, Some(SOURCE_SECRET)));
    assert!(left.reason.contains("Operation not permitted"), "{}", left.reason);
    // Still refused, and still there after the next start.
    let stage = stage.restart().await;
    let Retried::Stays(stays) = retried(&stage).await else { panic!("it is refused") };
    assert!(stays.reason.contains(SOURCE_SECRET), "{}", stays.reason);
    assert!(has_secret(&stage, SOURCE_SECRET));
    stage.world.clear_script();
    let gone = retried(&stage).await;
    assert!(matches!(gone, Retried::Removed(_)), "{gone:?}");
    assert!(!has_secret(&stage, SOURCE_SECRET));
}

#[tokio::test(start_paused = true)]
async fn the_secret_of_a_source_that_stays_goes_with_it_later() {
    let stage = encrypted(Home::Rbd).await;
    stage.source_image(|image| image.watchers.push("192.0.2.99:0/7".to_owned()));
    let view = stage.run(&request(&stage, "nfs-1", OLD, None)).await;
    let fate = view.result.as_ref().map(|result| result.source.clone());
    assert!(matches!(fate, Some(SourceFate::LeftBehind { .. })), "{fate:?}");
    assert!(has_secret(&stage, SOURCE_SECRET), "whoever opens what stays needs it");
    let left = only_leftover(&stage).await;
    assert_eq!((left.kind, left.secret.as_deref()), (LeftoverKind::Source, Some(SOURCE_SECRET)));
    stage.source_image(|image| image.watchers.clear());
    refuse_secrets(&stage, 1);
    // The volume goes, the secret not yet: the record says so.
    let Retried::Stays(stays) = retried(&stage).await else { panic!("the secret stays") };
    assert!(stays.reason.contains(SOURCE_SECRET), "{}", stays.reason);
    assert!(!stage.world.volumes().contains_key(&left.location.to_string()));
    assert!(matches!(retried(&stage).await, Retried::AlreadyGone(_)));
    assert!(!has_secret(&stage, SOURCE_SECRET));
    assert_eq!(stage.agent.engine.leftovers().await.expect("a journal"), []);
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_left_is_not_removed_while_another_operation_needs_it() {
    let stage = Stage::new(Home::Rbd, true).await;
    stage.world.fault(Method::StartCopy, 1, Fault::Refuse(ErrorClass::Other, "no copy today"));
    refuse_secrets(&stage, 1000);
    let first = request(&stage, "nfs-1", b"", Some(NEW));
    stage.begin(&first).await;
    let view = stage.agent.end(&first.operation).await;
    assert_eq!(view.state, State::Failed, "{view:#?}");
    stage.world.clear_script();
    let uuid = only_leftover(&stage).await.secret.expect("the destination's");
    // The next one finds the secret of its volume, and has not come to its copy yet.
    let again = request(&stage, "nfs-1", b"", Some(NEW));
    stage.world.fault(Method::CreateEncrypted, 1, Fault::Hang);
    stage.begin(&again).await;
    stage.reaches(&again, State::Preparing).await;
    let Retried::Stays(stays) = retried(&stage).await else { panic!("it is needed") };
    assert!(stays.reason.contains(again.operation.as_str()), "{}", stays.reason);
    assert!(has_secret(&stage, &uuid));
}

/// The stored definition of the domain `db` comes to name the secret of this uuid.
fn name_secret(world: &World, uuid: &str) {
    let element = format!(
        "<encryption format='luks'><secret type='passphrase' uuid='{uuid}'/></encryption><target dev"
    );
    world.with(|state| {
        let other = state.domains.values_mut().find(|domain| domain.name == "db").expect("db");
        let stored = other.inactive_xml.as_mut().expect("a stored definition");
        *stored = stored.replacen("<target dev", &element, 1);
    });
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_another_domain_names_gets_no_other_value() {
    let uuid = "30000000-0000-4000-8000-0000000000cc";
    let there = |stage: &mut Stage| {
        stage.scene.guest("db", Home::Rbd, true);
        stage.before = stage.world.volumes();
        let secret = Secret {
            usage: "/mnt/nfs-1/web-root.qcow2".to_owned(),
            description: None,
            ephemeral: false,
            value: Some(NEW.to_vec()),
        };
        stage.world.with(|state| state.volume_secrets.insert(uuid.to_owned(), secret));
    };
    let mut stage = encrypted(Home::Rbd).await;
    there(&mut stage);
    name_secret(&stage.world, uuid);
    let spec = request(&stage, "nfs-1", OLD, None);
    refused(&stage, &spec, RefusalCode::VolumeInUse, "domain db names the secret").await;

    // Named after the plan was made, and before the step.
    let mut stage = encrypted(Home::Rbd).await;
    there(&mut stage);
    let spec = request(&stage, "nfs-1", OLD, None);
    stage.agent.engine.plan(spec.clone()).await.expect("a plan");
    let lists = |stage: &Stage| {
        stage.world.calls().iter().filter(|call| **call == Method::ListDomains).count()
    };
    let planning = lists(&stage);
    stage.world.before(Method::ListDomains, planning + 1, move |world| name_secret(world, uuid));
    let view = stage.run(&spec).await;
    assert_eq!(view.state, State::Failed, "{view:#?}");
    let cause = view.failure.as_ref().map(|failure| failure.cause);
    assert_eq!(cause, Some(FailureCause::VolumeInUse), "{view:#?}");
    let value = stage.world.with(|state| state.volume_secrets[uuid].value.clone());
    assert_eq!(value.as_deref(), Some(NEW), "it is as it was");
    assert_eq!(stage.world.volumes(), stage.before);
}

#[tokio::test(start_paused = true)]
async fn what_librbd_encrypts_is_copied_to_where_a_try_says_that_it_works() {
    let unsupported = RefusalCode::EncryptionUnsupported;
    let stage = Stage::new(Home::Rbd, true).await;
    let spec = stage.guest.request("ceph-ssd").with_passphrases(None, passphrase(NEW));
    assert_eq!(stage.agent.engine.host().await.librbd, None, "nobody asked yet");
    refused(&stage, &spec, unsupported, "No secret with id").await;
    assert!(stage.agent.engine.host().await.librbd.is_some());
    // Tried once for these versions.
    refused(&stage, &spec, unsupported, "luks1-qemu").await;
    let tries = stage.world.calls().iter().filter(|call| **call == Method::StartPaused).count();
    assert_eq!(tries, 1);
    // What is accepted beside it is taken instead.
    let mut both = spec.clone();
    both.encryption.accept = EncryptionScheme::ALL.into();
    let view = stage.run(&both).await;
    let result = view.result.as_ref().expect("a result");
    assert_eq!(result.encryption, Some(EncryptionScheme::Luks1Qemu));

    let stage = Stage::new(Home::Rbd, true).await;
    stage.world.with(|state| state.librbd_copies = true);
    let mut spec = stage.guest.request("ceph-ssd").with_passphrases(None, passphrase(&[0, 0xff]));
    spec.encryption.accept = EncryptionScheme::ALL.into();
    let view = stage.run(&spec).await;
    let result = view.result.as_ref().expect("a result");
    assert_eq!(result.encryption, Some(EncryptionScheme::Luks2Librbd));
}

#[tokio::test(start_paused = true)]
async fn after_the_destination_is_made_a_copy_needs_no_passphrase() {
    let mut stage = encrypted(Home::File).await;
    let spec = request(&stage, "ceph-hdd", OLD, None);
    stage.begin(&spec).await;
    stage.reaches(&spec, State::Copying).await;
    stage = stage.restart().await;
    stage.world.libvirt_restarts();
    let view = stage.end(&spec).await;
    assert_eq!(view.state, State::Succeeded, "{view:#?}");
}

#[tokio::test(start_paused = true)]
async fn an_operation_whose_passphrase_died_with_the_agent_asks_for_it_again() {
    let mut stage = encrypted(Home::File).await;
    let spec = request(&stage, "ceph-hdd", OLD, None);
    let hang = stage.world.clone();
    stage.world.fault(Method::CreateEncrypted, 1, Fault::Hang);
    stage.begin(&spec).await;
    stage.reaches(&spec, State::Preparing).await;
    stage = stage.restart().await;
    hang.clear_script();
    let view = stage.end(&spec).await;
    let failure = view.failure.as_ref().expect("a failure");
    assert_eq!(failure.cause, FailureCause::SecretNeeded, "{view:#?}");
    let sent_again = request(&stage, "ceph-hdd", OLD, None);
    assert_eq!(stage.run(&sent_again).await.state, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn no_passphrase_is_in_the_journal_a_plan_or_a_view() {
    let stage = encrypted(Home::File).await;
    let spec = request(&stage, "ceph-hdd", OLD, Some(NEW));
    let plan = stage.agent.engine.plan(spec.clone()).await.expect("a plan");
    assert!(plan.steps.iter().any(|step| step.kind() == StepKind::SetSecret));
    let view = stage.run(&spec).await;
    assert_eq!(view.state, State::Succeeded, "{view:#?}");
    let json = serde_json::to_string(&plan).expect("a plan is written down");
    let shown = format!("{spec:?} {view:?} {plan:?} {json}");
    nothing_tells(&stage, &shown, "sesame");
}
