//! Compares the copy with its source before anything names the copy.
//!
//! Begun before: both are compared again.

use tokio::sync::watch;

use super::offline;
use crate::engine::owner::{Owner, Stop};
use crate::journal::StepOutcome;
use crate::operation::{Failure, FailureCause, Phase, Side};
use crate::plan::{PlannedCopy, StepKind};
use crate::ports::Comparison;
use crate::spec::Bytes;

const STEP: StepKind = StepKind::CompareImages;

/// Compares.
pub async fn run(owner: &mut Owner, copy: &PlannedCopy) -> Result<(), Stop> {
    owner.check_cancel()?;
    let request = offline::request(owner, copy, None)?;
    owner.intend(STEP).await?;
    let copies = owner.context.ports.copies.clone();
    let (done, progress) = watch::channel(Bytes(0));
    let work = async move { copies.compare(&request, &done).await };
    match offline::supervise(owner, Phase::Comparing, progress, work).await? {
        Comparison::Identical => owner.done(STEP, StepOutcome::Nothing).await,
        Comparison::Different(what) => {
            let PlannedCopy { from, to, .. } = copy;
            // Whoever wrote meanwhile explains it.
            offline::check_unused(owner).await?;
            let text = format!("the copy {to} is not what the source {from} holds: {what}");
            Err(Stop::Failed(Failure::new(FailureCause::VerifyMismatch, Side::Destination, text)))
        }
    }
}
