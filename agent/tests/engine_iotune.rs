//! New limits for the disk that has moved: set where the guest runs and where it is stored, and never the reason of a
//! failure.

use volferry_agent::fake::Stage;
use volferry_agent::fake::faults::{Fault, Method};
use volferry_agent::fake::scene::Home;
use volferry_agent::journal::What;
use volferry_agent::operation::{SourceFate, State};
use volferry_agent::plan::StepKind;
use volferry_agent::ports::ErrorClass;
use volferry_agent::spec::MigrateSpec;

const LIMIT: &str = "<total_iops_sec>500</total_iops_sec>";

fn request(stage: &Stage, pool: &str) -> MigrateSpec {
    let iotune = Some("total_iops_sec=500".parse().expect("limits"));
    MigrateSpec { iotune, ..stage.guest.request(pool) }
}

/// Whether the running and the stored XML have the limit.
fn limited(stage: &Stage) -> (bool, bool) {
    stage.world.with(|state| {
        let domain = &state.domains[&stage.guest.uuid];
        let stored = domain.inactive_xml.as_deref().unwrap_or_default();
        (domain.live_xml.contains(LIMIT), stored.contains(LIMIT))
    })
}

#[tokio::test(start_paused = true)]
async fn limits_are_set_after_the_move_is_verified_and_before_the_source_goes() {
    for (home, pool, persistent) in
        [(Home::Rbd, "nfs-1", true), (Home::File, "ceph-ssd", true), (Home::Rbd, "ceph-ssd", false)]
    {
        let stage = Stage::new(home, persistent).await;
        let request = request(&stage, pool);
        let view = stage.run(&request).await;
        assert_eq!(view.state, State::Succeeded, "{view:#?}");
        assert_eq!(view.warnings, Vec::<String>::new());
        assert_eq!(limited(&stage), (true, persistent));
        let history = stage.history(&request).await;
        let done = history.iter().filter_map(|what| match what {
            What::Done { step, .. } => Some(*step),
            _ => None,
        });
        let done: Vec<StepKind> = done.collect();
        let after = done.iter().position(|step| *step == StepKind::VerifyMove).expect("a step");
        let then = [StepKind::SetIotune, StepKind::RetireSource];
        assert_eq!(done.get(after + 1..after + 3), Some(then.as_slice()), "{done:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn limits_libvirt_does_not_take_are_a_warning() {
    let stage = Stage::new(Home::Rbd, true).await;
    let refused = Fault::Refuse(ErrorClass::Other, "the device has no limits");
    stage.world.fault(Method::SetIotune, 1, refused);
    let view = stage.run(&request(&stage, "nfs-1")).await;
    assert_eq!(view.state, State::Succeeded, "{view:#?}");
    let result = view.result.as_ref().expect("a result");
    assert_eq!(result.source, SourceFate::Removed);
    let [warning] = view.warnings.as_slice() else { panic!("one warning: {view:#?}") };
    assert!(warning.contains("total_iops_sec=500") && warning.contains("has no limits"));
    assert_eq!(limited(&stage), (false, false));
}

#[tokio::test(start_paused = true)]
async fn limits_are_tried_again_while_libvirt_is_away_and_after_a_crash() {
    let stage = Stage::new(Home::Rbd, true).await;
    for nth in [1, 2] {
        let away = Fault::Refuse(ErrorClass::Unavailable, "libvirt is away");
        stage.world.fault(Method::SetIotune, nth, away);
    }
    stage.world.fault(Method::SetIotune, 3, Fault::NoAnswer { effect: true });
    let request = request(&stage, "nfs-1");
    stage.begin(&request).await;
    stage
        .agent
        .until(&request.operation, |view| {
            view.detail.as_ref().is_some_and(|detail| detail.contains("limiting the disk"))
        })
        .await;
    let stage = stage.restart().await;
    let view = stage.end(&request).await;
    assert_eq!((view.state, view.warnings.len()), (State::Succeeded, 0), "{view:#?}");
    assert_eq!(limited(&stage), (true, true));
}
