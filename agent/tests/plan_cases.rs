//! The planner on real-world domains: every case of `fixtures/cases/plans`, judged by the rules of its `check.py`.
//! An expectation may have alternatives (`also_ok`); the first one's problems are shown.

#[path = "support/etree.rs"]
mod etree;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use volferry_agent::config::Config;
use volferry_agent::facts::HostFacts;
use volferry_agent::plan::render::offline_json;
use volferry_agent::plan::route::Request;
use volferry_agent::spec::{DiskReference, EncryptionWish, PoolName};

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn list(value: &Value, key: &str) -> Vec<String> {
    let items = value[key].as_array().into_iter().flatten();
    items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

/// What breaks an expectation; empty when it holds.
fn judge(plan: &Value, want: &Value) -> Vec<String> {
    let mut bad = Vec::new();
    let mut check = |holds: bool, problem: String| {
        if !holds {
            bad.push(problem);
        }
    };
    if plan["verdict"] != want["verdict"] {
        return vec![format!("verdict {} ({})", plan["verdict"], plan["refusal"])];
    }
    if want["verdict"] == "refused" {
        let (code, wanted) = (text(&plan["refusal"], "code"), text(want, "refusal_code"));
        check(code == wanted, format!("refusal code {code}, expected {wanted}"));
        let message = text(&plan["refusal"], "message");
        check(!message.trim().is_empty(), "refusal without a message".to_owned());
        return bad;
    }
    check(plan["refusal"].is_null(), "accepted with a refusal".to_owned());
    check(plan["source"].is_object(), "accepted without a source".to_owned());
    let destination = &plan["destination"];
    for (key, wanted) in [("pool", "to"), ("volume", "volume"), ("format", "format")] {
        let (found, wanted) = (&destination[key], &want[wanted]);
        check(found == wanted, format!("destination.{key} is {found}, expected {wanted}"));
    }
    let (flags, wanted) = (list(plan, "flags"), list(want, "flags"));
    check(
        wanted.iter().all(|flag| flags.contains(flag)),
        format!("flags {flags:?} lack some of {wanted:?}"),
    );
    let shallow = "SHALLOW".to_owned();
    check(
        wanted.contains(&shallow) || !flags.contains(&shallow),
        "flag SHALLOW outside RBD to RBD".to_owned(),
    );
    bad.extend(judge_xml(&text(destination, "xml"), want));
    bad
}

fn judge_xml(xml: &str, want: &Value) -> Vec<String> {
    let context = match etree::parse(xml) {
        Ok(context) => context,
        Err(error) => return vec![format!("destination.xml does not parse: {error}")],
    };
    let mut bad = Vec::new();
    if context.only_child_name() != "disk" {
        bad.push(format!("destination.xml is a <{}>", context.only_child_name()));
    }
    let holds = |rule: &str| {
        if let Some(path) = rule.strip_prefix("xpath:") {
            return context.count(path) > 0;
        }
        match rule.strip_prefix("count:").and_then(|rule| rule.split_once(':')) {
            Some((count, path)) => count.parse() == Ok(context.count(path)),
            None => xml.contains(rule.strip_prefix("str:").unwrap_or(rule)),
        }
    };
    for rule in list(want, "xml_must_have").iter().filter(|rule| !holds(rule)) {
        bad.push(format!("xml lacks {rule}"));
    }
    for rule in list(want, "xml_must_not_have").iter().filter(|rule| holds(rule)) {
        bad.push(format!("xml must not have {rule}"));
    }
    bad
}

fn plan(folder: &Path, want: &Value) -> Value {
    let read = |name| fs::read_to_string(folder.join(name)).expect("a file of the case");
    let config = Config::parse(&read("pools.toml")).expect("a valid configuration");
    let host = HostFacts {
        host_name: config.host_name,
        pools: config.pools,
        limits: config.limits,
        source_retention: config.source_retention,
        request_pools: config.request_pools,
    };
    let disk = DiskReference::new(text(want, "disk")).expect("a disk");
    let to = PoolName::new(text(want, "to")).expect("a pool");
    let request = Request {
        disk: &disk,
        to: &to,
        destination_volume: None,
        write_blocking: false,
        offline: false,
        encryption: &EncryptionWish::default(),
    };
    offline_json(&host, &read("domain.xml"), &request).0
}

#[test]
fn every_case_is_planned_as_expected() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cases/plans");
    let mut folders: Vec<PathBuf> = fs::read_dir(&root)
        .expect("the folder of the cases")
        .map(|entry| entry.expect("a readable folder").path())
        .collect();
    folders.sort();
    let mut failed = Vec::new();
    for folder in &folders {
        let expectation = fs::read_to_string(folder.join("expect.json")).expect("an expectation");
        let want: Value = serde_json::from_str(&expectation).expect("JSON");
        let plan = plan(folder, &want);
        let first = judge(&plan, &want);
        let other = want["also_ok"].as_array().into_iter().flatten().any(|other| {
            let mut want = want.clone();
            for (key, value) in other.as_object().into_iter().flatten() {
                want[key] = value.clone();
            }
            judge(&plan, &want).is_empty()
        });
        if !first.is_empty() && !other {
            failed.push(format!("{}: {}", folder.display(), first.join("; ")));
        }
    }
    assert!(folders.len() >= 32, "only {} cases", folders.len());
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), folders.len(), failed.join("\n"));
}

#[test]
fn the_judge_knows_its_paths() {
    let xml = "<disk type='file'><source file='/a/b&amp;c'><host name='h'/><host name='i'/></source>\
               <serial>s</serial></disk>";
    let context = etree::parse(xml).expect("well formed");
    for (path, count) in [
        ("disk[@type='file']/source[@file='/a/b&c']", 1),
        ("disk/source/host", 2),
        (".//host[@name='h']", 1),
        (".//*[@name]", 2),
        (".//source/host[@name='h']", 1),
        ("disk/serial[.='s']", 1),
        ("disk/serial[.='t']", 0),
        ("source", 0),
        (".//mirror", 0),
    ] {
        assert_eq!(context.count(path), count, "{path}");
    }
    assert!(etree::parse("<a/><b/>").is_err());
}
