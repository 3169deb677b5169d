//! Following an operation to its end, through interrupts and through an agent that goes and comes back.

mod bar;
mod interrupts;
mod json_lines;
mod lines;
mod many;

use std::io::{self, IsTerminal};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tonic::{Status, Streaming};

pub use interrupts::{Interrupts, Wish};
pub use many::many;

use super::client::Client;
use super::failure::{Failure, is_lost};
use super::output::Output;
use crate::api::convert::words::state_of;
use crate::api::pb;
use crate::api::status::Exit;

/// How long an agent may be away before the command gives up on it. Restarts take seconds.
pub const AWAY: Duration = Duration::from_secs(60);
/// How long to wait before an agent that is away is asked again.
pub const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Shows an operation while it runs.
pub trait Reporter {
    /// The operation changed.
    fn change(&mut self, operation: &pb::Operation, output: &mut Output);

    /// Something to know that is no change.
    fn note(&mut self, text: &str, output: &mut Output);
}

/// The reporter that suits the output.
pub fn reporter(output: &Output) -> Box<dyn Reporter> {
    reporters(output, 1).remove(0)
}

/// So many of them; bars are drawn below one another.
fn reporters(output: &Output, count: usize) -> Vec<Box<dyn Reporter>> {
    let bars = indicatif::MultiProgress::new();
    let one = |_| -> Box<dyn Reporter> {
        if output.is_json() {
            Box::new(json_lines::JsonLines::default())
        } else if io::stderr().is_terminal() {
            Box::new(bar::Bar::among(&bars))
        } else {
            Box::new(lines::Lines::default())
        }
    };
    (0..count).map(one).collect()
}

/// Follows the operation until it ends. Without `interrupts`, signals have their usual effect.
pub async fn follow(
    client: &mut Client,
    id: &str,
    reporter: &mut dyn Reporter,
    output: &mut Output,
    mut interrupts: Option<&mut Interrupts>,
) -> Result<pb::Operation, Failure> {
    let mut away: Option<Instant> = None;
    loop {
        let stretch = stretch(client, id, reporter, output, &mut interrupts, &mut away).await?;
        let lost = match stretch {
            Ok(ended) => return Ok(ended),
            Err(lost) if !is_lost(&lost) => return Err(lost.into()),
            Err(lost) => lost,
        };
        match away {
            None => reporter.note("the agent is away; it is asked again every second", output),
            Some(since) if since.elapsed() > AWAY => return Err(lost.into()),
            Some(_) => {}
        }
        away.get_or_insert_with(Instant::now);
        tokio::select! {
            () = sleep(ASK_AGAIN) => {}
            wish = wish(&mut interrupts) => {
                if wish == Wish::Cancel {
                    let failure = Failure::from(lost);
                    return Err(failure.hint("it cannot be cancelled while the agent is away"));
                }
                let told = obey(wish, client, id).await?;
                reporter.note(&told, output);
            }
        }
    }
}

/// Follows one stream: to the operation's end, or until the agent is lost.
async fn stretch(
    client: &mut Client,
    id: &str,
    reporter: &mut dyn Reporter,
    output: &mut Output,
    interrupts: &mut Option<&mut Interrupts>,
    away: &mut Option<Instant>,
) -> Result<Result<pb::Operation, Status>, Failure> {
    let mut changes = match client.watch(id).await {
        Ok(changes) => changes,
        Err(status) => return Ok(Err(status)),
    };
    loop {
        tokio::select! {
            change = next(&mut changes) => {
                let operation = match change {
                    Ok(operation) => operation,
                    Err(status) => return Ok(Err(status)),
                };
                *away = None;
                reporter.change(&operation, output);
                if state_of(operation.state()).is_some_and(|state| state.is_final()) {
                    return Ok(Ok(operation));
                }
            }
            wish = wish(interrupts) => {
                let told = obey(wish, client, id).await?;
                reporter.note(&told, output);
            }
        }
    }
}

/// The next change; a stream that ends before the operation does counts as a lost agent.
async fn next(changes: &mut Streaming<pb::Operation>) -> Result<pb::Operation, Status> {
    match changes.message().await? {
        Some(operation) => Ok(operation),
        None => Err(Status::unavailable("the agent ended the stream")),
    }
}

async fn wish(interrupts: &mut Option<&mut Interrupts>) -> Wish {
    match interrupts {
        Some(interrupts) => interrupts.next().await,
        None => std::future::pending().await,
    }
}

/// Carries out what a signal asked for; the answer is what to tell.
pub async fn obey(wish: Wish, client: &mut Client, id: &str) -> Result<String, Failure> {
    match wish {
        Wish::Ask => {
            Ok("cancel the migration? Ctrl-C again within 5 s cancels; the copy goes on".to_owned())
        }
        Wish::AskToLeave => {
            Ok("leave before the end? Ctrl-C again within 5 s leaves; it goes on".to_owned())
        }
        Wish::Cancel => match client.cancel(id).await {
            Ok(_) => Ok("cancelling; waiting for the end".to_owned()),
            Err(failure) if failure.exit == Exit::Refused => {
                Ok(format!("not cancelled: {}", failure.message()))
            }
            Err(failure) => Err(failure),
        },
        Wish::Leave => Err(Failure::new(Exit::Unreachable, "left before the end; it goes on")
            .hint(format!("follow it with: volferry ops watch {id}"))),
    }
}
