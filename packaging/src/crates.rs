//! Which crates are linked into the two binaries, as cargo tells it.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::MakeError;

const AGENT: &str = "volferry-agent";

/// A crate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Crate {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its licence, an SPDX expression as its author wrote it; none: it names none.
    pub licence: Option<String>,
    /// Where it comes from; none: this repository.
    pub source: Option<String>,
    /// The folder of its sources.
    pub folder: PathBuf,
}

/// Every crate that is built for this platform, tests and builds included.
pub fn all() -> Result<Vec<Crate>, MakeError> {
    let metadata = metadata()?;
    let mut crates: Vec<Crate> = packages(&metadata)?.into_values().collect();
    crates.sort();
    Ok(crates)
}

/// The crates the two binaries are made of, without ours; macros and what builds them are none of them.
pub fn linked() -> Result<Vec<Crate>, MakeError> {
    reached(&|member| member == AGENT, &|kind| kind.is_null())
}

/// Every crate that is needed to build ours, without those of tests alone.
pub fn needed() -> Result<Vec<Crate>, MakeError> {
    reached(&|_| true, &|kind| kind != "dev")
}

/// What is reached from these members of the workspace over dependencies of these kinds, without ours.
fn reached(
    from: &dyn Fn(&str) -> bool,
    over: &dyn Fn(&Value) -> bool,
) -> Result<Vec<Crate>, MakeError> {
    let metadata = metadata()?;
    let packages = packages(&metadata)?;
    let nodes: HashMap<&str, &Value> = metadata["resolve"]["nodes"]
        .as_array()
        .ok_or_else(|| missing("resolve.nodes"))?
        .iter()
        .filter_map(|node| Some((node["id"].as_str()?, node)))
        .collect();
    let ours = packages.iter().filter(|(_, found)| found.source.is_none() && from(&found.name));
    let mut open: Vec<&str> = ours.map(|(id, _)| id.as_str()).collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        let node = nodes.get(id).ok_or_else(|| missing(id))?;
        open.extend(node["deps"].as_array().into_iter().flatten().filter_map(|needed| {
            let mut kinds = needed["dep_kinds"].as_array().into_iter().flatten();
            kinds.any(|kind| over(&kind["kind"])).then(|| needed["pkg"].as_str())?
        }));
    }
    let found = seen.into_iter().filter_map(|id| packages.get(id).cloned());
    let mut found: Vec<Crate> = found.filter(|found| found.source.is_some()).collect();
    found.sort();
    Ok(found)
}

fn missing(what: &str) -> MakeError {
    MakeError::Metadata(format!("{what} is not there"))
}

fn metadata() -> Result<Value, MakeError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform"])
        .arg(format!("{}-unknown-linux-gnu", std::env::consts::ARCH))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .map_err(|error| MakeError::Metadata(error.to_string()))?;
    if !output.status.success() {
        return Err(MakeError::Metadata(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| MakeError::Metadata(error.to_string()))
}

fn packages(metadata: &Value) -> Result<HashMap<String, Crate>, MakeError> {
    let packages = metadata["packages"].as_array().ok_or_else(|| missing("packages"))?;
    // With a platform, cargo still tells of packages that only other platforms use; its graph does not.
    let nodes = metadata["resolve"]["nodes"].as_array().ok_or_else(|| missing("resolve.nodes"))?;
    let used: BTreeSet<&str> = nodes.iter().filter_map(|node| node["id"].as_str()).collect();
    let mut found = HashMap::new();
    for package in packages {
        let text = |key: &str| package[key].as_str().map(str::to_owned);
        let id = text("id").ok_or_else(|| missing("id"))?;
        if !used.contains(id.as_str()) {
            continue;
        }
        let manifest =
            PathBuf::from(text("manifest_path").ok_or_else(|| missing("manifest_path"))?);
        let folder = manifest.parent().ok_or_else(|| missing("a folder"))?.to_owned();
        let found_crate = Crate {
            name: text("name").ok_or_else(|| missing("name"))?,
            version: text("version").ok_or_else(|| missing("version"))?,
            licence: text("license"),
            source: text("source"),
            folder,
        };
        found.insert(id, found_crate);
    }
    Ok(found)
}
