//! The agent's command; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    volferry_agent::cli::main()
}
