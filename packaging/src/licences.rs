//! The licences of the crates that are linked: what each says of itself, and the texts that come with it, each text
//! once.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::MakeError;
use crate::crates::Crate;

const HEAD: &str = "\
volferry and volferryd are licensed under the Apache License 2.0 (see the file copyright, or LICENSE in the sources).
The crates below are linked into them. The crates virt and virt-sys are LGPL-2.1: the sources of this version of
volferry, with its lock file, are all it takes to link them again with another version of those.
";

/// The file of licences.
pub fn text(linked: &[Crate]) -> Result<String, MakeError> {
    let mut text = String::from(HEAD);
    text.push_str("\nCrates\n======\n\n");
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for found in linked {
        let name = format!("{} {}", found.name, found.version);
        let licence = found.licence.as_deref().unwrap_or("see its text below");
        // Writing into a String cannot fail.
        let _ = writeln!(text, "{name}: {licence}");
        for file in files(&found.folder)? {
            texts.entry(file).or_default().push(name.clone());
        }
    }
    text.push_str("\nTexts\n=====\n");
    for (licence, names) in texts {
        let _ = write!(text, "\n---- of {}\n\n{}\n", names.join(", "), licence.trim_end());
    }
    Ok(text)
}

/// The texts of licences in a crate's folder.
fn files(folder: &Path) -> Result<Vec<String>, MakeError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(MakeError::at(folder))? {
        let path = entry.map_err(MakeError::at(folder))?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().to_uppercase());
        let is_licence = name.is_some_and(|name| {
            ["LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT", "UNLICENSE"]
                .iter()
                .any(|word| name.starts_with(word))
        });
        if is_licence && path.is_file() {
            found.push(fs::read_to_string(&path).map_err(MakeError::at(&path))?);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crates;

    #[test]
    fn every_linked_crate_is_named_with_its_licence() -> Result<(), MakeError> {
        let linked = crates::linked()?;
        let names: Vec<&str> = linked.iter().map(|found| found.name.as_str()).collect();
        for name in ["virt", "tonic", "rusqlite"] {
            assert!(names.contains(&name), "{name}");
        }
        // Of tests and builds alone.
        for name in ["proptest", "protox", "clap_mangen", "volferry-agent"] {
            assert!(!names.contains(&name), "{name}");
        }
        let text = text(&linked)?;
        for found in &linked {
            let licence = found.licence.as_deref().unwrap_or("see its text below");
            assert!(text.contains(&format!("\n{} {}: {licence}\n", found.name, found.version)));
        }
        assert!(text.contains("GNU LESSER GENERAL PUBLIC LICENSE"));
        Ok(())
    }
}
