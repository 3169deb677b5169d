//! The stream behind WatchOperation: the operation now, then every change, until a final state.

use futures::Stream;
use futures::stream::unfold;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::pb;
use crate::engine::ViewReceiver;

struct Follower {
    views: ViewReceiver,
    stop: CancellationToken,
    first: bool,
    ended: bool,
}

/// Changes that come faster than the client reads are passed over; the last one never is.
/// When the agent stops, the stream says so with `UNAVAILABLE`: the operation itself goes on.
pub fn stream(
    views: ViewReceiver,
    stop: CancellationToken,
) -> impl Stream<Item = Result<pb::Operation, Status>> {
    unfold(Follower { views, stop, first: true, ended: false }, |mut follower| async move {
        if follower.ended {
            return None;
        }
        let item = follower.next().await;
        Some((item, follower))
    })
}

impl Follower {
    async fn next(&mut self) -> Result<pb::Operation, Status> {
        if !self.first && !self.changed().await {
            self.ended = true;
            return Err(Status::unavailable("the agent is stopping; the operation goes on"));
        }
        self.first = false;
        let view = self.views.borrow_and_update().clone();
        self.ended = view.state.is_final();
        Ok(pb::Operation::from(&*view))
    }

    async fn changed(&mut self) -> bool {
        tokio::select! {
            biased;
            changed = self.views.changed() => changed.is_ok(),
            () = self.stop.cancelled() => false,
        }
    }
}
