//! The configuration as a package installs it: the example, with every pool of it commented out, and open to the group
//! that the package makes.

use std::path::{Path, PathBuf};

use crate::MakeError;

const GROUP: &str = "#socket_group = \"volferry\"";

/// The example that is shipped as it is in the sources.
pub fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("volferry.toml")
}

/// The text of `/etc/volferry/volferry.toml`.
pub fn installed() -> Result<String, MakeError> {
    let path = example();
    let text = std::fs::read_to_string(&path).map_err(MakeError::at(&path))?;
    Ok(without_pools(&text))
}

/// The pools are the last part of the file, and the group's line is there once; a test holds both.
fn without_pools(text: &str) -> String {
    let mut in_pools = false;
    let mut lines = String::new();
    for line in text.lines() {
        in_pools |= line == "[[pool]]";
        let line = match line {
            GROUP => &GROUP[1..],
            other => other,
        };
        if in_pools && !line.is_empty() && !line.starts_with('#') {
            lines.push('#');
        }
        lines.push_str(line);
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use volferry_agent::config::Config;

    use super::*;

    #[test]
    fn what_is_installed_is_valid_and_names_no_pool_that_is_not_there() -> Result<(), MakeError> {
        let text = installed()?;
        let config = Config::parse(&text).expect("it is valid");
        assert!(config.pools.is_empty());
        assert_eq!(config.socket_group.as_deref(), Some("volferry"));
        let path = example();
        let example = std::fs::read_to_string(&path).map_err(MakeError::at(&path))?;
        assert_eq!(text.lines().count(), example.lines().count());
        assert!(text.contains("\n#[[pool]]\n#name = \"ceph-hdd\"\n"));
        Ok(())
    }
}
