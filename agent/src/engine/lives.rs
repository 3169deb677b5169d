//! The lives of one operation's owner. One that panics is lost like one whose agent was killed: the next one takes up
//! what the journal says. After some of them the operation is undone, and if that is lost too, nothing is tried any more.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use tokio::sync::watch;

use super::backoff::Backoff;
use super::context::Context;
use super::owner::{Owner, link_again};
use super::recovery;
use super::wishes::Wishes;
use crate::metrics::Recovery;
use crate::operation::OperationView;
use crate::report::chain;

/// How many owners an operation may lose.
const MOST_LOST: usize = 3;

/// Runs an operation to its end, with as many owners as it takes.
///
/// None when no owner could end it; it then stays as it is until the next start of the agent.
pub async fn run(context: &Arc<Context>, first: Owner) -> Option<Arc<OperationView>> {
    let (publisher, wishes) = first.lines();
    let id = first.id().clone();
    let mut owner = first;
    let mut backoff = Backoff::unbounded(&context.tuning);
    for lost in 1..=MOST_LOST + 2 {
        let life = async move {
            let text = format!("{} tries ended in a fault of the agent", lost - 1);
            match lost {
                ..=MOST_LOST => owner.run().await,
                _ => owner.give_up(text, lost > MOST_LOST + 1).await,
            }
        };
        // What a lost owner left half done is in the journal or was not done; the owner itself is dropped.
        match AssertUnwindSafe(life).catch_unwind().await {
            Ok(view) => return Some(view),
            Err(panic) => tracing::error!(
                operation = %id, lost, panic = words(&*panic), "the owner of an operation was lost"
            ),
        }
        backoff.wait().await;
        owner = again(context, &publisher, &wishes, &id).await?;
    }
    None
}

async fn again(
    context: &Arc<Context>,
    publisher: &watch::Sender<Arc<OperationView>>,
    wishes: &watch::Receiver<Wishes>,
    id: &crate::spec::OperationId,
) -> Option<Owner> {
    let mut backoff = Backoff::unbounded(&context.tuning);
    loop {
        let events = context.ports.events.subscribe();
        match context.journal.stored(id).await {
            Ok(Some(stored)) => {
                context.metrics.recovered(Recovery::Fault);
                let links = link_again(wishes.clone(), events, publisher.clone());
                let why = "taken up again after a fault of the agent";
                return Some(recovery::rebuild(Arc::clone(context), stored, links, why));
            }
            Ok(None) => {
                tracing::error!(operation = %id, "the journal does not know the operation");
                return None;
            }
            Err(error) => {
                tracing::error!(operation = %id, error = %chain(&error), "the journal cannot be read");
                backoff.wait().await;
            }
        }
    }
}

fn words(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no words")
}
