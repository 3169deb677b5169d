//! Following several operations at once: a bar or lines for each, every end told, the worst of them as exit code.

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::{Reporter, follow, reporters};
use crate::api::pb;
use crate::api::status::Exit;
use crate::cli::client::Client;
use crate::cli::failure::Failure;
use crate::cli::output::Output;
use crate::cli::render::operation;

/// What one of them tells while it runs.
enum Told {
    Change(Box<pb::Operation>),
    Note(String),
}

/// Passes on what it is told, with whose it is.
struct Forwarder {
    whose: usize,
    to: UnboundedSender<(usize, Told)>,
}

impl Forwarder {
    fn pass(&self, told: Told) {
        // The one who listens outlives everybody who tells.
        let _ = self.to.send((self.whose, told));
    }
}

impl Reporter for Forwarder {
    fn change(&mut self, operation: &pb::Operation, _output: &mut Output) {
        self.pass(Told::Change(Box::new(operation.clone())));
    }

    fn note(&mut self, text: &str, _output: &mut Output) {
        self.pass(Told::Note(text.to_owned()));
    }
}

/// Follows all of them to their ends. What cannot be followed is reported, and the others are followed all the same.
pub async fn many(client: &Client, ids: &[String], output: &mut Output) -> Result<Exit, Failure> {
    let mut shown = reporters(output, ids.len());
    let (to, mut told) = unbounded_channel();
    let mut running: FuturesUnordered<_> = ids
        .iter()
        .enumerate()
        .map(|(whose, id)| {
            let (mut client, mut forwarder) = (client.clone(), Forwarder { whose, to: to.clone() });
            // Nothing is written to it: what it would be is passed on.
            let mut nowhere = output.another();
            async move {
                let ended = follow(&mut client, id, &mut forwarder, &mut nowhere, None).await;
                (whose, ended)
            }
        })
        .collect();
    let mut ends: Vec<Option<Result<pb::Operation, Failure>>> = ids.iter().map(|_| None).collect();
    loop {
        tokio::select! {
            biased;
            Some((whose, told)) = told.recv() => match told {
                Told::Change(operation) => shown[whose].change(&operation, output),
                Told::Note(text) => shown[whose].note(&text, output),
            },
            ended = running.next() => match ended {
                Some((whose, ended)) => ends[whose] = Some(ended),
                None => break,
            },
        }
    }
    // Bars go before the ends are written below them.
    drop(shown);
    let mut worst = Exit::Done;
    for ended in ends.into_iter().flatten() {
        let exit = match ended {
            Ok(ended) => operation::ending(&ended, output)?,
            Err(failure) => {
                failure.report(output);
                failure.exit
            }
        };
        worst = worse(worst, exit);
    }
    Ok(worst)
}

/// The one an operator has to know of first.
fn worse(one: Exit, other: Exit) -> Exit {
    let weight = |exit| match exit {
        Exit::Done => 0,
        Exit::Cancelled => 1,
        Exit::Usage | Exit::Refused => 2,
        Exit::Failed => 3,
        Exit::Unreachable => 4,
        Exit::NeedsOperator => 5,
    };
    if weight(other) > weight(one) { other } else { one }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_end_is_the_exit_code() {
        let of = |ends: &[Exit]| ends.iter().copied().fold(Exit::Done, worse);
        assert_eq!(of(&[]), Exit::Done);
        assert_eq!(of(&[Exit::Done, Exit::Cancelled, Exit::Done]), Exit::Cancelled);
        assert_eq!(of(&[Exit::Failed, Exit::Cancelled]), Exit::Failed);
        assert_eq!(
            of(&[Exit::NeedsOperator, Exit::Failed, Exit::Unreachable]),
            Exit::NeedsOperator
        );
    }
}
