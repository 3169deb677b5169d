//! The exits of an operation that needs an operator: the evidence, the decision, and what it refuses.

use std::time::Duration;

use volferry_agent::engine::{Decision, Retried};
use volferry_agent::fake::Stage;
use volferry_agent::fake::faults::{Fault, Method};
use volferry_agent::fake::scene::{Home, SOURCE_SECRET};
use volferry_agent::journal::What;
use volferry_agent::operation::{FailureCause, Kept, LeftoverKind, SourceFate, State};
use volferry_agent::ports::{EventKind, JobEnd};
use volferry_agent::spec::{EncryptionScheme, HeaderKind, MigrateSpec, Passphrase};

const PAIRS: [(Home, &str); 3] =
    [(Home::Rbd, "ceph-ssd"), (Home::Rbd, "nfs-1"), (Home::File, "ceph-hdd")];
const BOTH: [Kept; 2] = [Kept::Source, Kept::Destination];

/// QEMU is killed within the pivot, no event arrives, and nobody can tell whether it took effect.
async fn undecided(home: Home, pool: &str, effect: bool) -> (Stage, MigrateSpec) {
    let stage = Stage::new(home, true).await;
    let request = stage.guest.request(pool);
    undecided_on(stage, request, effect).await
}

async fn undecided_on(stage: Stage, request: MigrateSpec, effect: bool) -> (Stage, MigrateSpec) {
    stage.world.lose_event(|kind| matches!(kind, EventKind::QemuJobCompleted { .. }));
    stage.world.lose_event(|kind| matches!(kind, EventKind::JobEnded(JobEnd::Completed)));
    stage.world.fault(Method::Pivot, 1, Fault::NoAnswer { effect });
    // Equal volumes would be proof.
    let place = stage.guest.volume.clone();
    stage.world.before(Method::CompareImages, 1, move |world| {
        world.with(|state| {
            let identity = state.volume(&place).expect("the source").identity;
            state.scribble(&identity);
        });
    });
    stage.begin(&request).await;
    stage.reaches(&request, State::Pivoting).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    stage.world.kill_qemu(&stage.guest.uuid);
    let view = stage.end(&request).await;
    assert_eq!(view.state, State::NeedsOperator, "{view:#?}");
    (stage, request)
}

fn decision(keep: Kept, remove_other: bool) -> Decision {
    Decision { keep, remove_other, by: "uid 0".to_owned() }
}

fn stored_names(stage: &Stage, name: &str) -> bool {
    stage.world.with(|state| {
        let stored = state.domains[&stage.guest.uuid].inactive_xml.clone();
        stored.expect("a stored definition").contains(name)
    })
}

#[tokio::test(start_paused = true)]
async fn an_undecided_end_names_both_volumes_the_evidence_and_the_exit() {
    for (home, pool) in PAIRS {
        let (stage, request) = undecided(home, pool, true).await;
        let view = stage.agent.engine.operation(&request.operation).await.expect("it is known");
        let text = view.failure.as_ref().map(|failure| failure.text.clone()).unwrap_or_default();
        let (source, destination) = (view.source.to_string(), view.destination.to_string());
        assert!(text.contains(&source) && text.contains(&destination), "{text}");
        for part in ["Evidence: ", "QEMU does not run", "the stored definition names", "no proof"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let hint = view.hint().unwrap_or_default();
        assert!(hint.contains(&format!("volferry ops resolve {}", request.operation)), "{hint}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_repairs_the_definition_and_leaves_the_other_volume_as_a_record() {
    for (home, pool) in PAIRS {
        for keep in BOTH {
            for effect in [true, false] {
                let (stage, request) = undecided(home, pool, effect).await;
                let engine = &stage.agent.engine;
                let before = stage.world.volumes();
                let decided = engine.resolve(&request.operation, decision(keep, false)).await;
                let decided = decided.unwrap_or_else(|error| panic!("{keep}: {error}"));
                let (state, place) = match keep {
                    Kept::Source => (State::Failed, decided.view.source.clone()),
                    Kept::Destination => (State::Succeeded, decided.view.destination.clone()),
                };
                assert_eq!(decided.view.state, state, "{:#?}", decided.view);
                assert_eq!(decided.view.volume_is_at(), Some(&place));
                let resolution = decided.view.resolution.clone().expect("it was decided");
                assert_eq!((resolution.kept, resolution.by.as_str()), (keep, "uid 0"));
                assert!(stored_names(&stage, &place.name()), "{place}");
                assert_eq!(stage.world.volumes(), before, "nothing is removed unless told");
                let left = engine.leftovers().await.expect("a readable journal");
                let kind = match keep {
                    Kept::Source => LeftoverKind::Destination,
                    Kept::Destination => LeftoverKind::Source,
                };
                assert_eq!(left.iter().map(|left| left.kind).collect::<Vec<_>>(), [kind]);
                // The end is the end: for everybody, also after a restart, and for a second decision.
                let stage = stage.restart().await;
                let again = stage.agent.engine.operation(&request.operation).await;
                assert_eq!(*again.expect("it is known"), *decided.view);
                let twice = stage.agent.engine.resolve(&request.operation, decision(keep, false));
                let twice = twice.await.expect_err("it needs no operator any more");
                assert!(twice.to_string().contains("needs no operator"), "{twice}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_is_written_down_before_its_effect_and_can_be_repeated() {
    // The stored definition names the source. The agent dies right before it is changed.
    let (stage, request) = undecided(Home::Rbd, "nfs-1", false).await;
    let keep = Kept::Destination;
    // Before and after the intent, then before the definition.
    stage.world.kill_agent_at(2);
    tokio::select! {
        _ = stage.agent.engine.resolve(&request.operation, decision(keep, true)) => panic!("alive"),
        () = stage.world.agent_died() => {}
    }
    assert_eq!(stage.world.points().last().map(String::as_str), Some("before Define"));
    let stage = stage.restart().await;
    let view = stage.agent.engine.operation(&request.operation).await.expect("it is known");
    assert_eq!(view.state, State::NeedsOperator);
    let decided = stage.agent.engine.resolve(&request.operation, decision(keep, true)).await;
    decided.expect("QEMU is gone");
    let history = stage.history(&request).await;
    let intent = What::Resolving { keep, by: "uid 0".to_owned(), remove_other: true };
    let (intent_at, end_at) =
        (history.iter().position(|what| *what == intent).expect("the intent"), history.len() - 1);
    assert!(matches!(history[end_at], What::Transition { .. }) && intent_at < end_at);
    let calls = stage.world.calls();
    assert!(calls.contains(&Method::Define), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn the_other_volume_is_removed_when_told() {
    for (home, pool) in PAIRS {
        for keep in BOTH {
            let (stage, request) = undecided(home, pool, false).await;
            // A dead client's watch lasts 30 s.
            tokio::time::sleep(Duration::from_secs(31)).await;
            let engine = &stage.agent.engine;
            let decided = engine.resolve(&request.operation, decision(keep, true)).await;
            let decided = decided.expect("QEMU is gone");
            assert!(matches!(decided.removal, Some(Retried::Removed(_))), "{decided:#?}");
            let (kept, gone) = match keep {
                Kept::Source => (&decided.view.source, &decided.view.destination),
                Kept::Destination => (&decided.view.destination, &decided.view.source),
            };
            let volumes = stage.world.volumes();
            assert!(volumes.contains_key(&kept.to_string()), "{volumes:#?}");
            assert!(!volumes.contains_key(&gone.to_string()), "{volumes:#?}");
            assert!(engine.leftovers().await.expect("a readable journal").is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_encrypted_disk_is_put_on_either_volume_and_the_other_ones_secret_goes_with_it() {
    let passphrase = || Some(Passphrase::new(b"open sesame".to_vec()).expect("a passphrase"));
    for (home, pool) in [(Home::Rbd, "nfs-1"), (Home::File, "ceph-hdd")] {
        for keep in BOTH {
            for effect in [true, false] {
                let stage = Stage::new(home, true).await;
                stage.scene.encrypt(&stage.guest, HeaderKind::QemuLuks1, b"open sesame");
                let mut request = stage.guest.request(pool).with_passphrases(passphrase(), None);
                request.encryption.accept = [EncryptionScheme::Luks1Qemu].into();
                let (stage, request) = undecided_on(stage, request, effect).await;
                let uuids = || {
                    stage
                        .world
                        .with(|state| state.volume_secrets.keys().cloned().collect::<Vec<String>>())
                };
                assert_eq!(uuids().len(), 2, "nothing is removed before it is decided");
                tokio::time::sleep(Duration::from_secs(31)).await;
                let engine = &stage.agent.engine;
                let decided = engine.resolve(&request.operation, decision(keep, true)).await;
                let decided = decided.unwrap_or_else(|error| panic!("{keep}: {error}"));
                assert!(matches!(decided.removal, Some(Retried::Removed(_))), "{decided:#?}");
                let [left] = &uuids()[..] else { panic!("one secret: {:?}", uuids()) };
                assert_eq!(left == SOURCE_SECRET, keep == Kept::Source, "{keep}: {left}");
                assert!(stored_names(&stage, left), "the definition names the secret");
                assert!(stored_names(&stage, "<encryption format='luks'"));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_against_what_qemu_uses_is_refused() {
    let (stage, request) = undecided(Home::Rbd, "nfs-1", false).await;
    // The stored definition still names the source, from which somebody starts the guest.
    stage.world.with(|state| state.start_again(&stage.guest.uuid));
    let before = stage.world.volumes();
    let engine = &stage.agent.engine;
    let refused = engine.resolve(&request.operation, decision(Kept::Destination, true)).await;
    let text = refused.expect_err("QEMU uses the source").to_string();
    assert!(text.contains("QEMU uses the source") && text.contains("stop the guest"), "{text}");
    assert_eq!(stage.world.volumes(), before);
    let state = engine.operation(&request.operation).await.expect("it is known").state;
    assert_eq!(state, State::NeedsOperator);
    let kept = engine.resolve(&request.operation, decision(Kept::Source, false)).await;
    assert_eq!(kept.expect("QEMU uses it").view.state, State::Failed);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_gone_or_another_by_now_is_not_kept() {
    let (mut stage, request) = undecided(Home::Rbd, "nfs-1", true).await;
    let view = stage.agent.engine.operation(&request.operation).await.expect("it is known");
    stage.stranger(&view.destination);
    let engine = &stage.agent.engine;
    let refused = engine.resolve(&request.operation, decision(Kept::Destination, false)).await;
    let text = refused.expect_err("another volume has the name").to_string();
    assert!(text.contains("another volume"), "{text}");
    stage.world.with(|state| state.files.clear());
    let refused = engine.resolve(&request.operation, decision(Kept::Destination, false)).await;
    assert!(refused.expect_err("it is gone").to_string().contains("is gone"));
}

#[tokio::test(start_paused = true)]
async fn a_decision_waits_for_libvirt_and_for_an_operation_on_the_disk() {
    let (stage, request) = undecided(Home::Rbd, "nfs-1", true).await;
    let engine = &stage.agent.engine;
    stage.world.libvirt_away();
    let refused = engine.resolve(&request.operation, decision(Kept::Source, false)).await;
    assert!(refused.expect_err("libvirt is away").to_string().contains("cannot be told"));
    stage.world.libvirt_back();
    engine.resolve(&request.operation, decision(Kept::Source, false)).await.expect("it is back");

    let (stage, first) = undecided(Home::Rbd, "nfs-1", false).await;
    stage.world.with(|state| state.start_again(&stage.guest.uuid));
    let mut second = stage.guest.request("ceph-ssd");
    second.operation = volferry_agent::spec::OperationId::new("another").expect("a plain id");
    second.manual_pivot = true;
    stage.begin(&second).await;
    stage.reaches(&second, State::Ready).await;
    let engine = &stage.agent.engine;
    let refused = engine.resolve(&first.operation, decision(Kept::Source, false)).await;
    let text = refused.expect_err("the disk is being moved").to_string();
    assert!(text.contains("operation another works on the disk"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_names_neither_volume_is_left_alone() {
    let (stage, request) = undecided(Home::Rbd, "nfs-1", false).await;
    stage.world.with(|state| {
        let domain = state.domains.get_mut(&stage.guest.uuid).expect("the guest");
        let stored = domain.inactive_xml.take().expect("a stored definition");
        domain.inactive_xml = Some(stored.replace("hdd/web-root", "hdd/of-today"));
    });
    let decided = stage.agent.engine.resolve(&request.operation, decision(Kept::Source, false));
    let decided = decided.await.expect("QEMU is gone");
    assert!(decided.view.warnings.iter().any(|text| text.contains("names neither")));
    assert!(stored_names(&stage, "hdd/of-today"));
}

#[tokio::test(start_paused = true)]
async fn settle_ends_an_operation_as_soon_as_qemu_can_tell() {
    // Somebody put an overlay on the disk, and takes it away again later.
    for on in BOTH {
        let stage = Stage::new(Home::Rbd, true).await;
        let mut request = stage.guest.request("nfs-1");
        request.manual_pivot = true;
        stage.begin(&request).await;
        let ready = stage.reaches(&request, State::Ready).await;
        stage.agent.engine.stop().await;
        let uuid = stage.guest.uuid.clone();
        let node = |name: &'static str| {
            let uuid = uuid.clone();
            move |state: &mut volferry_agent::fake::state::State| {
                let qemu = state.domains.get_mut(&uuid).and_then(|domain| domain.qemu.as_mut());
                let disk = qemu.and_then(|qemu| qemu.disks.get_mut("vda")).expect("a disk");
                disk.node.volume = disk.node.volume.renamed(name);
            }
        };
        let name = match on {
            Kept::Source => {
                stage.world.with(|state| state.abort_job(&uuid, "vda", "abort")).expect("a job");
                "web-root"
            }
            Kept::Destination => {
                stage.world.with(|state| state.pivot(&uuid, "vda", "pivot")).expect("a ready job");
                "web-root.qcow2"
            }
        };
        stage.world.with(node("overlay"));
        let stage = stage.restart().await;
        let view = stage.agent.end(&request.operation).await;
        assert_eq!(view.state, State::NeedsOperator, "{view:#?}");
        let engine = &stage.agent.engine;
        let refused = engine.settle(&request.operation).await.expect_err("an overlay");
        assert!(refused.to_string().contains("QEMU uses neither volume"), "{refused}");
        stage.world.with(node(name));
        let settled = engine.settle(&request.operation).await.expect("QEMU can tell");
        let resolution = settled.view.resolution.clone().expect("it was decided");
        assert_eq!((resolution.kept, resolution.by.as_str()), (on, "proof"));
        assert!(stage.world.volumes().contains_key(&ready.destination.to_string()));
        if on == Kept::Destination {
            let fate = settled.view.result.as_ref().map(|result| &result.source);
            assert!(matches!(fate, Some(SourceFate::LeftBehind { .. })), "{fate:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_started_again_proves_nothing() {
    let (stage, request) = undecided(Home::Rbd, "nfs-1", false).await;
    stage.world.with(|state| state.start_again(&stage.guest.uuid));
    let refused = stage.agent.engine.settle(&request.operation).await;
    let text = refused.expect_err("it boots whatever the definition names").to_string();
    assert!(text.contains("started again meanwhile"), "{text}");
    let examined = stage.agent.engine.examine(&request.operation).await.expect("it is known");
    assert_eq!(examined.view.state, State::NeedsOperator);
    assert_eq!(examined.evidence.allows(Kept::Source), Ok(()));
    assert!(examined.evidence.allows(Kept::Destination).is_err());
}

#[tokio::test(start_paused = true)]
async fn an_end_without_proof_repairs_the_definition_to_what_a_new_qemu_uses() {
    let stage = Stage::new(Home::Rbd, true).await;
    let mut request = stage.guest.request("nfs-1");
    request.manual_pivot = true;
    stage.begin(&request).await;
    stage.reaches(&request, State::Ready).await;
    stage.agent.engine.stop().await;
    stage.world.kill_qemu(&stage.guest.uuid);
    stage.world.with(|state| {
        state.start_again(&stage.guest.uuid);
        let domain = state.domains.get_mut(&stage.guest.uuid).expect("the guest");
        let stored = domain.inactive_xml.take().expect("a stored definition");
        domain.inactive_xml = Some(stored.replace("hdd/web-root", "hdd/of-last-year"));
    });
    let stage = stage.restart().await;
    let view = stage.agent.end(&request.operation).await;
    assert_eq!(view.state, State::NeedsOperator, "{view:#?}");
    assert!(stored_names(&stage, "hdd/web-root"), "{view:#?}");
    assert!(view.warnings.iter().any(|text| text.contains("stopping and starting")), "{view:#?}");
}

/// Moved, and libvirtd did not live to write it down: both definitions name the source.
async fn disputed(home: Home, pool: &str) -> (Stage, MigrateSpec) {
    let stage = Stage::new(home, true).await;
    stage.world.fault(Method::QemuDevices, 3, Fault::Hang);
    let request = stage.guest.request(pool);
    let before = stage.world.with(|state| {
        let domain = &state.domains[&stage.guest.uuid];
        (domain.live_xml.clone(), domain.inactive_xml.clone())
    });
    stage.begin(&request).await;
    stage.reaches(&request, State::Moved).await;
    stage.world.with(|state| {
        let domain = state.domains.get_mut(&stage.guest.uuid).expect("the guest");
        (domain.live_xml, domain.inactive_xml) = before;
    });
    stage.world.release();
    (stage, request)
}

#[tokio::test(start_paused = true)]
async fn a_move_that_libvirts_live_xml_denies_needs_a_stop_and_a_start() {
    for (home, pool) in PAIRS {
        let (stage, request) = disputed(home, pool).await;
        let view = stage.end(&request).await;
        assert_eq!(view.state, State::NeedsOperator, "{view:#?}");
        assert_eq!(view.volume_is_at(), Some(&view.destination));
        let cause = view.failure.as_ref().map(|failure| failure.cause);
        assert_eq!(cause, Some(FailureCause::LibvirtGone));
        let hint = view.hint().expect("a way out");
        assert!(hint.contains("stop and start the guest"), "{hint}");
        assert!(stored_names(&stage, &view.destination.name()), "the next start is right");
        let volumes = stage.world.volumes();
        assert!(volumes.contains_key(&view.source.to_string()), "{volumes:?}");
        let engine = &stage.agent.engine;
        let early = engine.settle(&request.operation).await.expect_err("nothing has changed yet");
        assert!(early.to_string().contains("libvirt's live XML names the source"), "{early}");
        stage.world.shut_down(&stage.guest.uuid);
        stage.world.with(|state| state.start_again(&stage.guest.uuid));
        let settled = engine.settle(&request.operation).await.expect("all agree now");
        assert_eq!(settled.view.state, State::Succeeded);
        assert_eq!(stage.world.volumes(), volumes, "nothing is removed unless told");
    }
}

#[tokio::test(start_paused = true)]
async fn a_disputed_move_is_disputed_for_the_next_life_too() {
    let (stage, request) = disputed(Home::Rbd, "nfs-1").await;
    // Its end is not written down before the agent dies.
    let stage = stage.restart().await;
    let view = stage.end(&request).await;
    assert_eq!(view.state, State::NeedsOperator, "{view:#?}");
    assert_eq!(view.volume_is_at(), Some(&view.destination));
}
