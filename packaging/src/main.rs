//! `package-files FOLDER`: makes everything a package carries besides the two binaries, in FOLDER.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use volferry_agent::report;
use volferry_packaging::{MakeError, completions, configuration, crates, licences, manual};

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let (Some(folder), None) = (words.next(), words.next()) else {
        report::to_stderr("usage: package-files FOLDER");
        return ExitCode::from(2);
    };
    match make(Path::new(&folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::to_stderr(&format!("package-files: {}", chain(&error)));
            ExitCode::FAILURE
        }
    }
}

fn make(folder: &Path) -> Result<(), MakeError> {
    let part = |name: &str| -> Result<PathBuf, MakeError> {
        let path = folder.join(name);
        // What an earlier version made is not to be packed.
        if path.exists() {
            fs::remove_dir_all(&path).map_err(MakeError::at(&path))?;
        }
        fs::create_dir_all(&path).map_err(MakeError::at(&path))?;
        Ok(path)
    };
    let manuals = part("man")?;
    for page in manual::pages()? {
        let path = manuals.join(&page.name);
        fs::write(&path, page.text).map_err(MakeError::at(&path))?;
    }
    completions::write(&part("completions")?)?;
    let text = configuration::installed()?;
    let path = folder.join("volferry.toml");
    fs::write(&path, text).map_err(MakeError::at(&path))?;
    let path = folder.join("third-party-licences.txt");
    let text = licences::text(&crates::linked()?)?;
    fs::write(&path, text).map_err(MakeError::at(&path))
}

fn chain(error: &MakeError) -> String {
    let source = error.source().map(|source| format!(": {source}")).unwrap_or_default();
    format!("{error}{source}")
}
