//! The `volferry` command: arguments, the client, and what people and scripts read.
//!
//! `arguments` is the whole command line, one module per group of commands carries it out, `follow` watches an
//! operation to its end, `render` writes. Nothing about moves is decided here: the agent decides, the command asks.

mod address;
mod arguments;
mod client;
mod cloudstack;
mod doctor;
mod failure;
mod follow;
mod host;
mod leftovers;
mod migrate;
mod monitors;
mod ops;
mod output;
mod passphrases;
mod plan;
mod pool_file;
mod render;
mod resolve;

use std::process::ExitCode;

pub use arguments::Arguments;
use arguments::{CloudstackCommand, Command, RbdCommand};
use clap::{CommandFactory, Parser};
use failure::Failure;
use output::Output;

use crate::api::status::Exit;

/// `volferry`: reads the command line, does it, and tells how it ended by the exit code.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(usage) => {
            // Help and version go to standard output with 0, mistakes to standard error with 2.
            let _ = usage.print();
            return ExitCode::from(u8::try_from(usage.exit_code()).unwrap_or(Exit::Usage as u8));
        }
    };
    let mut output = Output::new(arguments.output);
    let exit = run(arguments, &mut output).unwrap_or_else(|failure| {
        failure.report(&mut output);
        failure.exit
    });
    ExitCode::from(exit as u8)
}

fn run(arguments: Arguments, output: &mut Output) -> Result<Exit, Failure> {
    let agent = arguments.agent.address();
    match arguments.command {
        Command::Rbd { command: RbdCommand::Monitors(list) } => monitors::run(&list, output),
        Command::Plan(plan) => match plan.offline()? {
            Some(offline) => plan::offline(&offline, output),
            None => block_on(plan::online(&agent?, plan, output)),
        },
        Command::Migrate(migrate) => block_on(migrate::run(&agent?, migrate, output)),
        Command::Ops { command } => block_on(ops::run(&agent?, command, output)),
        Command::Leftovers { command } => block_on(leftovers::run(&agent?, command, output)),
        Command::Doctor { orphans: false, .. } => block_on(doctor::checks(&agent?, output)),
        Command::Doctor { orphans: true, remove } => {
            block_on(doctor::orphans(&agent?, remove, output))
        }
        Command::Disks { domain } => block_on(host::disks(&agent?, domain, output)),
        Command::Pools => block_on(host::pools(&agent?, output)),
        Command::Host => block_on(host::capabilities(&agent?, output)),
        Command::Cloudstack { command: CloudstackCommand::Run(run) } => {
            block_on(cloudstack::run(&agent?, run, output))
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "volferry", &mut script);
            output.text(&String::from_utf8_lossy(&script));
            Ok(Exit::Done)
        }
    }
}

fn block_on(command: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failed, format!("cannot start: {error}")))?;
    runtime.block_on(command)
}
