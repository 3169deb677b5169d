//! Completions of bash, zsh and fish, as their shells look for them.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use volferry_agent::cli;

use crate::MakeError;

/// The shells a package has completions for.
pub const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

/// Writes `volferry.bash`, `_volferry` and `volferry.fish`.
pub fn write(folder: &Path) -> Result<(), MakeError> {
    for shell in SHELLS {
        clap_complete::generate_to(shell, &mut cli::Arguments::command(), "volferry", folder)
            .map_err(MakeError::at(folder))?;
    }
    Ok(())
}
