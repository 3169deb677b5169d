//! What the documents say of refusals, failures and lessons is held against the code, and every test and case they
//! name against the sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tonic::Code;
use volferry_agent::api::status::{Exit, refusal_answer, state_exit};
use volferry_agent::operation::{FailureCause, State};
use volferry_agent::plan::RefusalCode;

/// Codes that no test produces yet. This number only goes down.
const NOT_PRODUCED: usize = 0;
/// Lessons, or halves of them, that are not covered yet. This number only goes down.
const NOT_COVERED: usize = 0;
const LESSONS: usize = 40;
/// Faults of the table in docs/reliability.md. This number only goes up.
const FAULTS: usize = 33;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rows of every table below the heading, cells trimmed, without heads and rules.
fn rows(text: &str, heading: Option<&str>) -> Vec<Vec<String>> {
    let part = match heading {
        Some(heading) => {
            let rest = text.split_once(&format!("\n## {heading}\n")).expect("the heading").1;
            rest.split("\n## ").next().unwrap_or_default()
        }
        None => text,
    };
    part.lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"))
        .map(|line| line.split(" | ").map(|cell| cell.trim().to_owned()).collect::<Vec<_>>())
        .filter(|cells| !matches!(cells[0].as_str(), "code" | "#"))
        .collect()
}

/// Every `FILE.rs` of the sources and tests with its text.
fn sources(folder: &Path, found: &mut Vec<(String, String)>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            found.push((name, fs::read_to_string(&path).expect("a readable source file")));
        }
    }
}

fn all_sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for folder in
        ["agent/src", "agent/tests", "tests/tests", "rbdutils/src", "rbdutils/tests", "xml/tests"]
    {
        sources(&root().join(folder), &mut found);
    }
    found
}

/// What a cell names in backquotes: tests as `FILE.rs::NAME`, cases as case `NAME`.
#[derive(Debug, Default)]
struct Named {
    tests: Vec<(String, String)>,
    cases: Vec<String>,
}

fn named(cell: &str) -> Named {
    let mut named = Named::default();
    let parts: Vec<&str> = cell.split('`').collect();
    assert!(parts.len() % 2 == 1, "a backquote without its partner: {cell}");
    for pair in parts.chunks(2).filter(|pair| pair.len() == 2) {
        match pair[1].split_once("::") {
            Some((file, name)) => named.tests.push((file.to_owned(), name.to_owned())),
            None if pair[0].ends_with("case ") => named.cases.push(pair[1].to_owned()),
            None => panic!("`{}` is neither a test nor a case: {cell}", pair[1]),
        }
    }
    named
}

/// Every test exists, as a function of that name in a file of that name, and every case has its folder.
fn exist(named: &Named, sources: &[(String, String)]) {
    for (file, name) in &named.tests {
        let heads = [format!("fn {name}("), format!("fn {name}<")];
        let mut texts = sources.iter().filter(|(found, _)| found == file);
        assert!(
            texts.any(|(_, text)| heads.iter().any(|head| text.contains(head))),
            "there is no test {name} in a file {file}"
        );
    }
    for case in &named.cases {
        expectation(case);
    }
}

fn expectation(case: &str) -> serde_json::Value {
    let text = read(&format!("fixtures/cases/plans/{case}/expect.json"));
    serde_json::from_str(&text).expect("an expectation is JSON")
}

/// Rows of a table of codes: code, cells, and what produces it (none: not yet).
fn codes(heading: &str) -> Vec<(String, Vec<String>, Option<Named>)> {
    let table = rows(&read("docs/errors.md"), Some(heading));
    table
        .into_iter()
        .map(|cells| {
            assert_eq!(cells.len(), 7, "{cells:?}");
            assert!(cells.iter().all(|cell| !cell.is_empty()), "{cells:?}");
            let code = cells[0].trim_matches('`').to_owned();
            let produced = match cells[6].as_str() {
                "not produced yet" => None,
                cell => Some(named(cell)),
            };
            (code, cells, produced)
        })
        .collect()
}

#[test]
fn every_refusal_is_in_the_table_as_it_is_in_the_code() {
    let table = codes("Refusals");
    let written: Vec<&str> = table.iter().map(|(code, ..)| code.as_str()).collect();
    let known: Vec<&str> = RefusalCode::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(written, known);
    for (code, (text, cells, produced)) in RefusalCode::ALL.iter().zip(&table) {
        let answer = refusal_answer(*code);
        assert_eq!(cells[3], code.retry().as_str(), "{text}");
        assert_eq!(cells[4], (answer.exit as u8).to_string(), "{text}");
        assert_eq!(cells[5], format!("{:?}", answer.code), "{text}");
        for case in produced.iter().flat_map(|named| &named.cases) {
            let wanted = expectation(case)["refusal_code"].clone();
            assert_eq!(wanted, text.as_str(), "case {case}");
        }
    }
}

#[test]
fn every_failure_is_in_the_table_as_it_is_in_the_code() {
    let table = codes("Failures");
    let written: Vec<&str> = table.iter().map(|(code, ..)| code.as_str()).collect();
    let known: Vec<&str> = FailureCause::ALL.iter().map(|cause| cause.as_str()).collect();
    assert_eq!(written, known);
    for (cause, (text, cells, _)) in FailureCause::ALL.iter().zip(&table) {
        assert_eq!(cells[3], cause.retry().as_str(), "{text}");
        assert_eq!(cells[4], (state_exit(State::Failed) as u8).to_string(), "{text}");
        // An operation that failed is the answer to a call that succeeded.
        assert_eq!(cells[5].to_uppercase(), format!("{:?}", Code::Ok).to_uppercase(), "{text}");
    }
    let undecided = read("docs/errors.md").contains("`needs-operator`");
    assert!(undecided && state_exit(State::NeedsOperator) == Exit::NeedsOperator);
}

#[test]
fn every_code_is_produced_by_a_test_or_said_not_to_be() {
    let sources = all_sources();
    let mut missing = Vec::new();
    for heading in ["Refusals", "Failures"] {
        for (code, _, produced) in codes(heading) {
            match produced {
                None => missing.push(code),
                Some(named) => {
                    assert!(!(named.tests.is_empty() && named.cases.is_empty()), "{code}");
                    exist(&named, &sources);
                    assert!(named.cases.len() + spoken(&named, &sources, &code) > 0, "{code}");
                }
            }
        }
    }
    let text = "codes without a test: write fewer here when one is produced, never more";
    assert_eq!(missing.len(), NOT_PRODUCED, "{text}: {missing:?}");
}

/// How many of the files named speak of this code, by its word or by its variant.
fn spoken(named: &Named, sources: &[(String, String)], code: &str) -> usize {
    let variant: String =
        code.split('-').map(|word| word[..1].to_uppercase() + &word[1..]).collect();
    // Behaviours of the ports below the engine have QEMU's words instead.
    let quoted = [format!("\"{code}\""), format!("::{variant}"), "it says no".to_owned()];
    let files: BTreeSet<&str> = named.tests.iter().map(|(file, _)| file.as_str()).collect();
    sources
        .iter()
        .filter(|(file, text)| {
            files.contains(file.as_str()) && quoted.iter().any(|word| text.contains(word))
        })
        .count()
}

#[test]
fn every_lesson_has_its_test_or_its_reason() {
    let sources = all_sources();
    let table = rows(&read("docs/lessons.md"), None);
    assert_eq!(table.len(), LESSONS);
    let mut open = 0;
    for (number, cells) in (1..).zip(&table) {
        assert_eq!(cells.len(), 4, "{cells:?}");
        assert_eq!(cells[0], number.to_string());
        let named = named(&cells[3]);
        exist(&named, &sources);
        let open_here = cells[3].contains("not covered yet: ");
        open += usize::from(open_here);
        let reason = open_here || cells[3].contains("cannot happen: ");
        assert!(reason || !(named.tests.is_empty() && named.cases.is_empty()), "{cells:?}");
    }
    assert_eq!(open, NOT_COVERED, "lessons not covered: write fewer, never more");
}

#[test]
fn every_fault_of_the_table_has_its_cause_and_its_test() {
    let sources = all_sources();
    let table: Vec<_> = rows(&read("docs/reliability.md"), Some("Faults"))
        .into_iter()
        .filter(|cells| cells[0] != "fault")
        .collect();
    assert!(table.len() >= FAULTS, "{} faults", table.len());
    for cells in &table {
        assert_eq!(cells.len(), 6, "{cells:?}");
        assert!(cells.iter().all(|cell| !cell.is_empty()), "{cells:?}");
        let named = named(&cells[5]);
        assert!(!named.tests.is_empty(), "{cells:?}");
        exist(&named, &sources);
        let code = cells[3].trim_matches('`');
        if code != "-" {
            let known = FailureCause::ALL.iter().any(|cause| cause.as_str() == code);
            assert!(known, "{code} is no cause");
            // Tests that judge by rules instead of by a cause name none.
            let judged = named.tests.iter().any(|(file, _)| file == "engine_matrix.rs");
            assert!(judged || spoken(&named, &sources, code) > 0, "{cells:?}");
        }
    }
}

#[test]
fn every_call_is_in_the_table_of_roles_where_the_code_has_it() {
    use volferry_agent::api::access::rights::RIGHTS;

    let text = read("docs/security.md");
    for (path, role) in RIGHTS {
        let Some(call) = path.strip_prefix("/volferry.v1.Volferry/") else { continue };
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        let rows: Vec<_> = rows.filter(|line| line.contains(&format!("`{call}`"))).collect();
        assert!(
            matches!(rows[..], [row] if row.starts_with(&format!("| `{role}` |"))),
            "{call}: {rows:?}"
        );
    }
}
