//! `volferry doctor`: what is in the way of moves, and what no operation knows.

use serde_json::{Value, json};

use super::address::Address;
use super::client::Client;
use super::failure::Failure;
use super::output::{self, Output, Tone, one_line};
use super::render::json::text;
use super::render::table::{self, cell};
use crate::api::convert::words::word;
use crate::api::pb;
use crate::api::status::Exit;

/// `volferry doctor`: whatever was looked at, and 1 when something is in the way.
pub async fn checks(agent: &Address, output: &mut Output) -> Result<Exit, Failure> {
    let mut checks = Client::connect(agent).await?.checks().await?;
    checks.extend(versions(&checks));
    if output.is_json() {
        let checks: Vec<Value> = checks.iter().map(check_json).collect();
        output.json(&json!({ "checks": checks }));
    } else {
        checks.iter().for_each(|check| show(check, output));
    }
    let bad = checks.iter().any(|check| check.verdict() == pb::Verdict::Bad);
    Ok(if bad { Exit::Failed } else { Exit::Done })
}

/// A command of another version than the agent's: it was not started again after an upgrade.
fn versions(checks: &[pb::Check]) -> Option<pb::Check> {
    let ours = env!("CARGO_PKG_VERSION");
    let agent = checks.iter().find(|check| check.what == "agent")?;
    let same = agent.found == format!("version {ours}");
    (!same).then(|| pb::Check {
        what: "command".to_owned(),
        verdict: pb::Verdict::Note.into(),
        found: format!("version {ours}, but the agent's is another"),
        fix: "start volferryd again; copies that run go on".to_owned(),
    })
}

fn show(check: &pb::Check, output: &mut Output) {
    let (word, tone) = match check.verdict() {
        pb::Verdict::Good => ("good", Tone::Good),
        pb::Verdict::Note => ("note", Tone::Busy),
        pb::Verdict::Bad | pb::Verdict::Unspecified => ("BAD ", Tone::Bad),
    };
    let word = output.paint(word, tone);
    output.line(&format!("{word}  {}: {}", one_line(&check.what), one_line(&check.found)));
    if !check.fix.is_empty() {
        output.line(&format!("      {}", one_line(&check.fix)));
    }
}

fn check_json(check: &pb::Check) -> Value {
    json!({
        "what": check.what,
        "verdict": word(check.verdict().as_str_name(), "VERDICT_"),
        "found": check.found,
        "fix": text(&check.fix),
    })
}

/// `volferry doctor --orphans [--remove ID]`.
pub async fn orphans(
    agent: &Address,
    remove: Option<String>,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let mut client = Client::connect(agent).await?;
    let Some(id) = remove else {
        let found = client.orphans().await?;
        list(&found, output);
        // Whoever could not look everywhere has not seen everything.
        return Ok(if found.unread.is_empty() { Exit::Done } else { Exit::Failed });
    };
    let removed = client.remove_orphan(id).await?;
    if output.is_json() {
        output.json(&whole(&removed));
    } else {
        for orphan in &removed.orphans {
            output.line(&format!("{} is removed", one_line(&orphan.location)));
        }
    }
    Ok(Exit::Done)
}

fn list(found: &pb::ListOrphansResponse, output: &mut Output) {
    if output.is_json() {
        output.json(&whole(found));
        return;
    }
    for pool in &found.unread {
        let (name, reason) = (one_line(&pool.pool), one_line(&pool.reason));
        output::note(&format!("pool {name} could not be searched: {reason}"));
    }
    if found.orphans.is_empty() {
        output::note("no orphans");
        return;
    }
    let rows: Vec<_> = found
        .orphans
        .iter()
        .map(|orphan| {
            let host = if orphan.made_by.is_empty() { "-" } else { &orphan.made_by };
            vec![cell(&orphan.operation_id), cell(&orphan.pool), cell(host)]
        })
        .collect();
    table::print(&["OPERATION", "POOL", "MADE BY"], &rows, 0, output);
    for orphan in &found.orphans {
        output.line(&one_line(&orphan.operation_id));
        output.line(&format!("  location  {}", one_line(&orphan.location)));
        if !orphan.copied_by_domain.is_empty() {
            let (domain, disk) = (one_line(&orphan.copied_by_domain), &orphan.copied_by_disk);
            output.line(&format!("  copy      disk {disk} of domain {domain} is copied into it"));
        }
        let way = match orphan.kept.as_str() {
            "" => format!("volferry doctor --orphans --remove {}", orphan.operation_id),
            why => format!("not possible now: {}", one_line(why)),
        };
        output.line(&format!("  remove    {way}"));
    }
}

fn whole(found: &pb::ListOrphansResponse) -> Value {
    let orphans = found.orphans.iter().map(|orphan| {
        json!({
            "operation_id": orphan.operation_id,
            "pool": orphan.pool,
            "location": orphan.location,
            "identity": orphan.identity,
            "made_by": text(&orphan.made_by),
            "copied_by": text(&orphan.copied_by_domain)
                .map(|domain| json!({ "domain": domain, "disk": orphan.copied_by_disk })),
            "kept": text(&orphan.kept),
        })
    });
    let unread = found.unread.iter();
    let unread = unread.map(|pool| json!({ "pool": pool.pool, "reason": pool.reason }));
    json!({
        "orphans": orphans.collect::<Vec<_>>(),
        "unread": unread.collect::<Vec<_>>(),
    })
}
