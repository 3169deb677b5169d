//! What is shipped beside the binaries, before the programs that read it: systemd, man, Prometheus.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use support::{shipped, tool};
use volferry_packaging::{completions, configuration, manual};

type Keys = BTreeMap<String, BTreeSet<String>>;

fn read(path: &str) -> String {
    let path = shipped(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Tables and keys of the configuration as the agent reads it, from the one file that names them.
fn keys_of_the_agent() -> Keys {
    let text = read("agent/src/config/raw.rs");
    let mut structs: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    let (mut at, mut rename) = (None, None);
    for line in text.lines().map(str::trim) {
        if let Some(name) =
            line.strip_prefix("pub struct ").and_then(|rest| rest.strip_suffix(" {"))
        {
            at = Some(name.to_owned());
        } else if line == "}" {
            at = None;
        } else if let Some((_, rest)) = line.split_once("rename = \"") {
            rename = rest.split('"').next().map(str::to_owned);
        } else if let (Some(name), Some(field)) = (&at, line.strip_prefix("pub ")) {
            let (key, kind) = field.split_once(": ").expect("a field has a type");
            let key = rename.take().unwrap_or_else(|| key.to_owned());
            structs.entry(name.clone()).or_default().push((key, kind.to_owned()));
        }
    }
    let mut keys = Keys::new();
    for (key, kind) in &structs["RawConfig"] {
        let inner = structs.iter().find(|(name, _)| kind.contains(name.as_str()));
        match inner {
            Some((_, fields)) => {
                let inner = fields.iter().map(|(key, _)| key.clone()).collect();
                keys.insert(key.clone(), inner);
            }
            None => {
                keys.entry(String::new()).or_default().insert(key.clone());
            }
        }
    }
    keys
}

/// Tables and keys of the example, and of volferry.toml(5), which is made of it; commented out or not.
fn keys_of_the_example() -> Keys {
    let path = configuration::example();
    let text = fs::read_to_string(path).expect("the example can be read");
    let is_word =
        |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let (mut keys, mut table) = (Keys::new(), String::new());
    for line in text.lines().map(|line| line.strip_prefix('#').unwrap_or(line)) {
        let name = line.trim_matches(['[', ']']);
        if line.starts_with('[') && is_word(name) {
            table = name.to_owned();
        } else if let Some((key, _)) = line.split_once(" = ").filter(|(key, _)| is_word(key)) {
            keys.entry(table.clone()).or_default().insert(key.to_owned());
        }
    }
    keys
}

#[test]
fn the_manual_of_the_configuration_has_every_key_and_no_other() {
    assert_eq!(keys_of_the_example(), keys_of_the_agent());
    let pages = manual::pages().expect("they are made");
    let page = pages.iter().find(|page| page.name == "volferry.toml.5").expect("the page");
    let text = String::from_utf8_lossy(&page.text).replace('\\', "");
    for (table, keys) in keys_of_the_agent() {
        assert!(table.is_empty() || text.contains(&format!("[{table}]")), "{table}");
        for key in keys {
            assert!(text.lines().any(|line| line.starts_with(&format!("{key} = "))), "{key}");
        }
    }
}

#[test]
fn every_command_has_a_manual_page_that_renders_without_a_warning() {
    let pages = manual::pages().expect("they are made");
    let names: Vec<&str> = pages.iter().map(|page| page.name.as_str()).collect();
    for name in ["volferry.1", "volferry-migrate.1", "volferry-ops-resolve.1", "volferryd.8"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    for page in &pages {
        let Some(mut man) = tool("manual pages", "man") else { return };
        let file = folder.path().join(&page.name);
        fs::write(&file, &page.text).expect("written");
        let output =
            man.args(["--warnings", "-E", "UTF-8", "-l"]).arg(&file).output().expect("man runs");
        let warned = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && warned.is_empty(), "{}: {warned}", page.name);
        assert!(output.stdout.len() > 200, "{} says nothing", page.name);
    }
}

#[test]
fn completions_are_made_for_every_shell() {
    let folder = tempfile::tempdir().expect("a folder");
    completions::write(folder.path()).expect("they are made");
    for name in ["volferry.bash", "_volferry", "volferry.fish"] {
        let text = fs::read_to_string(folder.path().join(name)).expect("it is there");
        assert!(text.contains("migrate") && text.contains("leftovers"), "{name}");
    }
}

#[test]
fn systemd_finds_nothing_wrong_with_the_unit_and_little_left_open() {
    const PROGRAM: &str = "/usr/sbin/volferryd";
    let Some(mut verify) = tool("the unit", "systemd-analyze") else { return };
    let text = read("systemd/volferryd.service");
    assert!(text.contains(PROGRAM));
    let folder = tempfile::tempdir().expect("a folder");
    let unit = folder.path().join("volferryd.service");
    // Nothing is installed here: any program does, and manual pages are not looked for.
    fs::write(&unit, text.replace(PROGRAM, "/bin/true")).expect("written");
    let output = verify.args(["verify", "--man=no"]).arg(&unit).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    let Some(mut security) = tool("the unit", "systemd-analyze") else { return };
    let unit = shipped("systemd/volferryd.service");
    let output = security
        .args(["security", "--offline=true", "--threshold=30"])
        .arg(unit)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", said.lines().last().unwrap_or_default());
}

#[test]
fn prometheus_takes_the_alert_rules() {
    let Some(mut promtool) = tool("alert rules", "promtool") else { return };
    let rules = shipped("packaging/prometheus-alerts.yml");
    let output = promtool.args(["check", "rules"]).arg(rules).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}
