//! The agent's daemon; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    volferry_agent::daemon::main()
}
