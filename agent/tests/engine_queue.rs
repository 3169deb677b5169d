//! Operations that wait for their turn: their order, what they say, and what becomes of them while they wait.

use std::sync::Arc;
use std::time::Duration;

use volferry_agent::fake::Stage;
use volferry_agent::fake::domain::Pace;
use volferry_agent::fake::faults::Method;
use volferry_agent::fake::scene::{DISK_SIZE, Guest, Home, Scene, put};
use volferry_agent::operation::{FailureCause, OperationView, Side, State};
use volferry_agent::plan::RefusalCode;
use volferry_agent::spec::{MigrateSpec, OperationId};

fn one_at_a_time(scene: &mut Scene) {
    scene.host.limits.operations_per_host = 1;
}

/// A stage whose guest is slowly moved, and two more guests whose requests wait.
struct Queue {
    stage: Stage,
    guests: [Guest; 2],
    requests: [MigrateSpec; 3],
}

impl Queue {
    async fn new(prepare: impl FnOnce(&mut Scene)) -> Self {
        let stage = Stage::prepared(Home::Rbd, true, prepare).await;
        let pace = Pace { copy: 1 << 20, ..Pace::default() };
        stage.world.pace(&stage.guest.uuid, "vda", pace);
        let guests = ["b", "c"].map(|name| stage.scene.guest(name, Home::Rbd, true));
        let requests = [&stage.guest, &guests[0], &guests[1]].map(|guest| guest.request("nfs-1"));
        stage.begin(&requests[0]).await;
        stage.reaches(&requests[0], State::Copying).await;
        for request in &requests[1..] {
            stage.begin(request).await;
        }
        Self { stage, guests, requests }
    }

    async fn view(&self, number: usize) -> Arc<OperationView> {
        let id = &self.requests[number].operation;
        self.stage.agent.engine.operation(id).await.expect("it is known")
    }

    async fn end(&self, number: usize) -> Arc<OperationView> {
        self.stage.agent.end(&self.requests[number].operation).await
    }

    async fn waits(&self, number: usize, words: &str) {
        let id = &self.requests[number].operation;
        let here = |view: &OperationView| {
            let detail = view.detail.as_deref().unwrap_or_default();
            view.state == State::Queued && detail.contains(words)
        };
        self.stage.agent.until(id, here).await;
    }

    async fn cancel(&self, number: usize) {
        let id = &self.requests[number].operation;
        self.stage.agent.engine.cancel(id).await.expect("it may be cancelled");
    }
}

/// When it entered a state, since the clock began.
fn entered(view: &OperationView, state: State) -> std::time::SystemTime {
    let span = view.phases.iter().find(|span| span.state == state);
    span.unwrap_or_else(|| panic!("never {state}: {view:#?}")).entered
}

#[tokio::test(start_paused = true)]
async fn operations_wait_in_order_and_run_one_after_the_other() {
    let queue = Queue::new(one_at_a_time).await;
    queue.waits(1, "this host, which takes 1 at a time; place 1").await;
    queue.waits(2, "place 2").await;
    let listed = queue.stage.agent.engine.operations();
    assert_eq!(listed.iter().filter(|view| view.state == State::Queued).count(), 2);
    let first = queue.end(0).await;
    queue.waits(2, "place 1").await;
    let (second, third) = (queue.end(1).await, queue.end(2).await);
    for (before, after) in [(&first, &second), (&second, &third)] {
        assert_eq!(after.state, State::Succeeded, "{after:#?}");
        assert!(entered(before, State::Succeeded) <= entered(after, State::Planned));
    }
    assert_eq!(third.detail, None);
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_waits_has_its_disk() {
    let queue = Queue::new(one_at_a_time).await;
    let another = queue.guests[0].request("ceph-ssd");
    let refusal = queue.stage.agent.engine.migrate(another).await.expect_err("the disk is taken");
    assert_eq!(refusal.code, RefusalCode::Busy);
    assert!(refusal.message.contains(queue.requests[1].operation.as_str()), "{refusal}");
    let same = queue.stage.agent.engine.migrate(queue.requests[1].clone()).await;
    assert_eq!(same.expect("the same operation").state, State::Queued);
}

#[tokio::test(start_paused = true)]
async fn a_full_pool_holds_up_nobody_else() {
    let stage = Stage::prepared(Home::Rbd, true, |scene| {
        let ssd = scene.host.pools.iter_mut().find(|pool| pool.name.as_str() == "ceph-ssd");
        ssd.expect("a pool of the scene").operations = Some(1);
    })
    .await;
    stage.world.pace(&stage.guest.uuid, "vda", Pace { copy: 1 << 20, ..Pace::default() });
    let [b, c] = ["b", "c"].map(|name| stage.scene.guest(name, Home::Rbd, true));
    let [first, waiting, passing] =
        [stage.guest.request("ceph-ssd"), b.request("ceph-ssd"), c.request("nfs-1")];
    for request in [&first, &waiting, &passing] {
        stage.begin(request).await;
    }
    assert_eq!(stage.agent.end(&passing.operation).await.state, State::Succeeded);
    let view = stage.agent.engine.operation(&waiting.operation).await.expect("it is known");
    let detail = "waits for pool ceph-ssd, which takes 1 at a time; place 1 in the queue";
    assert_eq!((view.state, view.detail.as_deref()), (State::Queued, Some(detail)));
    stage.agent.engine.cancel(&first.operation).await.expect("it copies");
    assert_eq!(stage.agent.end(&waiting.operation).await.state, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_in_the_queue_changes_nothing_and_lets_the_next_one_up() {
    let queue = Queue::new(one_at_a_time).await;
    let creations = |queue: &Queue| {
        queue.stage.world.calls().iter().filter(|call| **call == Method::CreateFile).count()
    };
    assert_eq!(creations(&queue), 1);
    queue.cancel(1).await;
    let view = queue.end(1).await;
    assert_eq!((view.state, view.failure.as_ref()), (State::Cancelled, None));
    assert_eq!((creations(&queue), view.phases.len()), (1, 3));
    queue.waits(2, "place 1").await;
    queue.cancel(0).await;
    assert_eq!(queue.end(2).await.state, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn the_queue_survives_a_restart_in_its_order() {
    let mut queue = Queue::new(one_at_a_time).await;
    queue.stage = queue.stage.restart().await;
    queue.waits(1, "place 1").await;
    queue.waits(2, "place 2").await;
    assert_eq!(queue.view(0).await.state, State::Copying);
    let ends = [queue.end(0).await, queue.end(1).await, queue.end(2).await];
    for pair in ends.windows(2) {
        assert_eq!((pair[0].state, pair[1].state), (State::Succeeded, State::Succeeded));
        assert!(entered(&pair[0], State::Succeeded) <= entered(&pair[1], State::Planned));
    }
}

#[tokio::test(start_paused = true)]
async fn a_wish_to_cancel_in_the_queue_survives_a_restart() {
    let mut queue = Queue::new(one_at_a_time).await;
    queue.stage.world.fail_journal(2..3);
    queue.cancel(2).await;
    queue.stage = queue.stage.restart().await;
    assert_eq!(queue.end(2).await.state, State::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn what_no_longer_holds_when_the_turn_comes_is_a_failure_that_changed_nothing() {
    type Change = fn(&Queue);
    let cases: [(Change, FailureCause, Side, &str); 4] = [
        (
            |queue| queue.stage.world.shut_down(&queue.guests[0].uuid),
            FailureCause::GuestGone,
            Side::Guest,
            "not-running",
        ),
        (
            |queue| {
                let taken = queue.stage.scene.place("nfs-1", "b-root.qcow2");
                queue.stage.world.with(|state| put(state, &taken, DISK_SIZE, 1));
            },
            FailureCause::DestinationReplaced,
            Side::Destination,
            "destination-exists",
        ),
        (
            |queue| {
                queue.stage.world.with(|state| {
                    state.folders.values_mut().for_each(|folder| folder.available = 100 << 20);
                });
            },
            FailureCause::DestinationFull,
            Side::Destination,
            "no-space",
        ),
        (
            |queue| {
                let volume = &queue.guests[0].volume;
                queue.stage.world.with(|state| put(state, volume, DISK_SIZE, 1));
            },
            FailureCause::VolumeInUse,
            Side::Source,
            "was image id",
        ),
    ];
    for (change, cause, side, words) in cases {
        let queue = Queue::new(one_at_a_time).await;
        change(&queue);
        let before = queue.stage.world.volumes();
        queue.cancel(0).await;
        queue.end(0).await;
        let view = queue.end(1).await;
        let failure = view.failure.clone().unwrap_or_else(|| panic!("no failure: {view:#?}"));
        assert_eq!((view.state, failure.cause, failure.side), (State::Failed, cause, side));
        assert!(failure.text.contains(words), "{failure}");
        assert!(view.phases.iter().all(|span| span.state != State::Preparing), "{view:#?}");
        let kept = queue.stage.world.volumes();
        for volume in before.keys().filter(|name| name.contains("/b-root")) {
            assert_eq!(kept.get(volume), before.get(volume));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_was_started_again_in_the_meantime_is_moved() {
    let queue = Queue::new(one_at_a_time).await;
    let uuid = &queue.guests[0].uuid;
    queue.stage.world.shut_down(uuid);
    queue.stage.world.with(|state| state.start_again(uuid));
    queue.cancel(0).await;
    assert_eq!(queue.end(1).await.state, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_also_counts_in_the_queue() {
    let queue = Queue::new(one_at_a_time).await;
    let guest = queue.stage.scene.guest("d", Home::Rbd, true);
    let mut request = guest.request("nfs-1");
    request.deadline = Some(Duration::from_secs(60));
    let began = tokio::time::Instant::now();
    queue.stage.begin(&request).await;
    let id: &OperationId = &request.operation;
    let view = queue.stage.agent.end(id).await;
    let cause = view.failure.as_ref().map(|failure| failure.cause);
    assert_eq!((view.state, cause), (State::Failed, Some(FailureCause::Deadline)));
    assert!(began.elapsed() < Duration::from_secs(62));
}

#[tokio::test(start_paused = true)]
async fn more_places_let_more_run_and_fewer_stop_nobody() {
    let queue = Queue::new(one_at_a_time).await;
    queue.waits(2, "place 2").await;
    let engine = &queue.stage.agent.engine;
    let mut host = queue.stage.scene.host.clone();
    host.limits.operations_per_host = 2;
    engine.configure(host.clone());
    queue.stage.reaches(&queue.requests[1], State::Copying).await;
    assert_eq!(queue.view(0).await.state, State::Copying);
    queue.waits(2, "takes 2 at a time; place 1").await;
    host.limits.operations_per_host = 1;
    engine.configure(host);
    queue.waits(2, "takes 1 at a time; place 1").await;
    for number in 0..3 {
        assert_eq!(queue.end(number).await.state, State::Succeeded);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_taken_out_lets_its_copy_end_and_takes_no_other() {
    let queue = Queue::new(one_at_a_time).await;
    let engine = &queue.stage.agent.engine;
    let mut host = queue.stage.scene.host.clone();
    host.pools.retain(|pool| pool.name.as_str() != "nfs-1");
    // More than there is: a copy that runs keeps the reserve it began with.
    host.limits.reserve.at_least = volferry_agent::spec::Bytes(u64::MAX);
    engine.configure(host);
    let refusal = engine.migrate(queue.guests[0].request("nfs-1")).await.expect_err("it is gone");
    assert!(matches!(refusal.code, RefusalCode::PoolUnknown | RefusalCode::Busy), "{refusal}");
    assert_eq!(queue.end(0).await.state, State::Succeeded);
    let failed = queue.end(1).await;
    assert_eq!(failed.state, State::Failed);
    let failure = failed.failure.as_ref().expect("its cause");
    assert!(failure.text.contains("nfs-1"), "{failure:?}");
    engine.configure(queue.stage.scene.host.clone());
    let again = queue.guests[0].request("nfs-1");
    queue.stage.begin(&again).await;
    assert_eq!(queue.stage.agent.end(&again.operation).await.state, State::Succeeded);
}
