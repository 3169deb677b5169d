//! Copies the image into the destination just made, while nobody uses the source.
//!
//! Begun before: the destination is made anew and the copy starts over. What an earlier life wrote may be older than
//! the source is now, and a copy leaves out what it takes to be zero.

use tokio::sync::watch;

use super::{create_destination, offline};
use crate::engine::owner::{Owner, Stop};
use crate::journal::{StepOutcome, What};
use crate::operation::{Event, Phase, State};
use crate::plan::{PlannedCopy, StepKind};
use crate::spec::{Bytes, BytesPerSecond};

const STEP: StepKind = StepKind::CopyImage;

/// Copies.
pub async fn run(
    owner: &mut Owner,
    copy: &PlannedCopy,
    bandwidth: Option<BytesPerSecond>,
) -> Result<(), Stop> {
    owner.check_cancel()?;
    let request = offline::request(owner, copy, bandwidth)?;
    offline::check_unused(owner).await?;
    if owner.was_intended(STEP) {
        owner.say(Some("the copy starts over".to_owned()));
        create_destination::again(owner).await?;
    }
    owner.remember_intent(STEP);
    if owner.view.state == State::Preparing {
        owner.advance(Event::CopyStarted, vec![What::Intent { step: STEP }]).await?;
    } else {
        owner.intend(STEP).await?;
    }
    let copies = owner.context.ports.copies.clone();
    let (done, progress) = watch::channel(Bytes(0));
    let work = async move { copies.copy(&request, &done).await };
    offline::supervise(owner, Phase::Copying, progress, work).await?;
    owner.done(STEP, StepOutcome::Nothing).await
}
