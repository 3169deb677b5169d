//! The crates that are linked, against deny.toml: their licences, where they come from, and which are there twice. The
//! same rules as `make deny` has, in a second instead of minutes, so that no change goes by them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use toml::Value;
use volferry_packaging::crates::{self, Crate};

fn rules() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deny.toml");
    let text = fs::read_to_string(&path).expect("deny.toml can be read");
    toml::from_str(&text).expect("deny.toml is TOML")
}

fn words(list: &Value) -> BTreeSet<&str> {
    list.as_array().expect("a list").iter().filter_map(Value::as_str).collect()
}

/// Whether an SPDX expression is met by the licences that are allowed.
fn is_met(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let met = either(&tokens, &mut at, allowed);
    assert_eq!(at, tokens.len(), "what is {expression}?");
    met
}

fn either(tokens: &[&str], at: &mut usize, allowed: &BTreeSet<&str>) -> bool {
    let mut met = both(tokens, at, allowed);
    while tokens.get(*at) == Some(&"OR") {
        *at += 1;
        met |= both(tokens, at, allowed);
    }
    met
}

fn both(tokens: &[&str], at: &mut usize, allowed: &BTreeSet<&str>) -> bool {
    let mut met = one(tokens, at, allowed);
    while tokens.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(tokens, at, allowed);
    }
    met
}

fn one(tokens: &[&str], at: &mut usize, allowed: &BTreeSet<&str>) -> bool {
    let token = tokens.get(*at).copied().expect("a licence");
    *at += 1;
    if token == "(" {
        let met = either(tokens, at, allowed);
        assert_eq!(tokens.get(*at), Some(&")"));
        *at += 1;
        return met;
    }
    if tokens.get(*at) == Some(&"WITH") {
        // A licence with an exception is another licence, and none such is on the list.
        *at += 2;
        return false;
    }
    allowed.contains(token)
}

#[test]
fn expressions_are_understood() {
    let allowed = BTreeSet::from(["MIT", "ISC"]);
    for (expression, met) in [
        ("MIT", true),
        ("Apache-2.0", false),
        ("Apache-2.0 OR MIT", true),
        ("Apache-2.0/MIT", true),
        ("Apache-2.0 AND MIT", false),
        ("(Apache-2.0 OR MIT) AND ISC", true),
        ("Apache-2.0 WITH LLVM-exception OR MIT", true),
        ("MIT WITH LLVM-exception", false),
    ] {
        assert_eq!(is_met(expression, &allowed), met, "{expression}");
    }
}

#[test]
fn every_crate_has_a_licence_that_is_allowed_to_it() {
    let rules = rules();
    let allowed = words(&rules["licenses"]["allow"]);
    let exceptions: BTreeMap<&str, BTreeSet<&str>> = rules["licenses"]["exceptions"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|rule| (rule["crate"].as_str().expect("a name"), words(&rule["allow"])))
        .collect();
    let all = crates::all().expect("cargo tells");
    for found in all {
        let mut allowed = allowed.clone();
        allowed.extend(exceptions.get(found.name.as_str()).into_iter().flatten());
        let licence = found.licence.as_deref();
        assert!(licence.is_some_and(|licence| is_met(licence, &allowed)), "{found:?}");
    }
}

#[test]
fn every_crate_comes_from_the_registry() {
    let rules = rules();
    let registries = words(&rules["sources"]["allow-registry"]);
    let known: Vec<String> = registries.iter().map(|url| format!("registry+{url}")).collect();
    for found in crates::all().expect("cargo tells") {
        if let Some(source) = &found.source {
            assert!(known.contains(source), "{} comes from {source}", found.name);
        }
    }
}

#[test]
fn what_is_there_twice_is_there_for_a_reason_and_no_reason_outlives_its_crate() {
    let rules = rules();
    let mut excused: BTreeSet<&str> = BTreeSet::new();
    for rule in rules["bans"]["skip"].as_array().expect("a list") {
        assert!(rule["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{rule}");
        excused.insert(rule["crate"].as_str().expect("a name"));
    }
    let mut versions: BTreeMap<String, Vec<Crate>> = BTreeMap::new();
    for found in crates::needed().expect("cargo tells") {
        versions.entry(found.name.clone()).or_default().push(found);
    }
    let is_excused = |found: &Crate, excuse: &str| {
        excuse.split_once('@').is_some_and(|(name, version)| {
            let rest = found.version.strip_prefix(version);
            found.name == name && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    };
    let mut used = BTreeSet::new();
    for several in versions.values().filter(|several| several.len() > 1) {
        let mut left = Vec::new();
        for found in several {
            match excused.iter().find(|excuse| is_excused(found, excuse)) {
                Some(excuse) => {
                    used.insert(*excuse);
                }
                None => left.push(format!("{} {}", found.name, found.version)),
            }
        }
        assert!(left.len() <= 1, "there without a reason: {left:?}");
    }
    assert_eq!(used, excused, "some reasons are for nothing");
}
