//! What a package carries besides the two binaries: manual pages, completions, the configuration as it is installed,
//! and the licences of everything that is linked. All of it follows from the sources; nothing here is written twice.

pub mod completions;
pub mod configuration;
pub mod crates;
pub mod licences;
pub mod manual;

use std::io;
use std::path::PathBuf;

/// Why a file could not be made.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// A file.
    #[error("{}", .0.display())]
    File(PathBuf, #[source] io::Error),
    /// A text could not be rendered.
    #[error("cannot render {0}")]
    Render(&'static str, #[source] io::Error),
    /// cargo did not tell what is linked.
    #[error("cargo metadata: {0}")]
    Metadata(String),
}

impl MakeError {
    /// Of a file.
    pub fn at(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::File(path, error)
    }
}
