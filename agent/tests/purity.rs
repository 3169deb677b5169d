//! What decides stays pure: planner, operation states and facts know no runtime, no clock, no files, no libvirt.

use std::fs;
use std::path::{Path, PathBuf};

const PURE: [&str; 5] =
    ["src/plan", "src/plan.rs", "src/operation", "src/operation.rs", "src/facts.rs"];

const FORBIDDEN: [&str; 12] = [
    "tokio",
    "virt::",
    "virt_sys",
    "std::fs",
    "std::net",
    "std::process",
    "SystemTime::now",
    "Instant::now",
    "crate::engine",
    "crate::libvirt",
    "crate::host",
    "crate::api",
];

fn sources(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_file() {
        found.push(path.to_owned());
        return;
    }
    for entry in fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())) {
        sources(&entry.expect("a readable folder").path(), found);
    }
}

/// The line without its comment; text in quotes counts as code, which is stricter than needed.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

#[test]
fn what_decides_touches_nothing() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for pure in PURE {
        sources(&root.join(pure), &mut files);
    }
    let mut impure = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).expect("a readable source file");
        for (index, line) in text.lines().enumerate() {
            for word in FORBIDDEN.iter().filter(|word| code(line).contains(**word)) {
                impure.push(format!("{}:{}: {word}", file.display(), index + 1));
            }
        }
    }
    assert!(files.len() > 15, "only {} files: has the folder moved?", files.len());
    assert!(impure.is_empty(), "{impure:#?}");
}
