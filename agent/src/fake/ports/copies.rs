//! Copies of images, in virtual time.

use std::time::Duration;

use async_trait::async_trait;

use crate::fake::World;
use crate::fake::copy::Process;
use crate::fake::faults::Method;
use crate::fake::state::Write;
use crate::ports::{Comparison, CopyError, CopySide, Done, ImageCopies, ImageCopy, PortError};
use crate::spec::{Bytes, BytesPerSecond};

/// The longest time between two looks at the room left at the destination.
const LOOK: Duration = Duration::from_millis(200);

fn unknown(error: PortError) -> CopyError {
    CopyError { side: CopySide::Unknown, error }
}

impl World {
    /// Lets `size` bytes pass at the pace of copies, telling how many are done.
    pub(super) async fn pass<E>(
        &self,
        size: u64,
        limit: Option<BytesPerSecond>,
        done: &Done,
        mut each: impl FnMut(f64) -> Result<Write, E> + Send,
    ) -> Result<(), E> {
        let mut passed = 0.0;
        while passed < size as f64 {
            tokio::time::sleep(LOOK).await;
            self.live().await;
            let pace = self.with(|state| state.copy_pace);
            let pace = pace.min(limit.map_or(u64::MAX, BytesPerSecond::get)) as f64;
            let next = (passed + pace * LOOK.as_secs_f64()).min(size as f64);
            // A full pool lets a write wait without a word.
            if each(next / (size as f64).max(1.0))? == Write::Done {
                passed = next;
                done.send_replace(Bytes(passed as u64));
            }
        }
        Ok(())
    }
}

#[async_trait]
impl ImageCopies for World {
    async fn copy(&self, copy: &ImageCopy, done: &Done) -> Result<(), CopyError> {
        let what = format!("copy {} to {}", copy.from.location, copy.to.location);
        let opened = self.call(Method::CopyImage, what.clone(), |state| {
            Ok(state.open_both(copy, &what).map(|running| {
                // From here on it ends with the agent.
                (state.content(&running.from), Process::new(self, running))
            }))
        });
        let (content, process) = opened.await.map_err(unknown)??;
        self.pass(copy.size.0, copy.bandwidth, done, |share| {
            let written = self.with(|state| state.write_share(copy, &process.copy, share));
            written.map_err(|(side, class, text)| CopyError {
                side,
                error: PortError::new(class, what.clone(), text),
            })
        })
        .await?;
        self.point("before the copy is whole".to_owned()).await;
        self.with(|state| state.copied(&process.copy, content));
        self.point("after the copy is whole".to_owned()).await;
        Ok(())
    }

    async fn compare(&self, copy: &ImageCopy, done: &Done) -> Result<Comparison, CopyError> {
        let what = format!("compare {} with {}", copy.to.location, copy.from.location);
        let opened = self.call(Method::CompareImages, what.clone(), |state| {
            Ok(state.open_both(copy, &what).map(|running| Process::new(self, running)))
        });
        let process = opened.await.map_err(unknown)??;
        self.pass(copy.size.0, None, done, |_| Ok::<_, CopyError>(Write::Done)).await?;
        let same =
            self.with(|state| state.content(&process.copy.from) == state.content(&process.copy.to));
        Ok(match same {
            true => Comparison::Identical,
            false => Comparison::Different("Content mismatch at offset 0!".to_owned()),
        })
    }
}
