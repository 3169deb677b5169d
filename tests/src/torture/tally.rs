//! What came of many kills, as a table.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::{Ended, Verdict, Victim};

/// The count of one kind of victim.
#[derive(Debug, Default)]
struct Row {
    reached: u32,
    missed: u32,
    ends: BTreeMap<&'static str, u32>,
    violations: u32,
    decided: Duration,
    cleaned: Duration,
    gaps: Vec<Duration>,
}

/// The counts of all.
#[derive(Debug, Default)]
pub struct Tally(BTreeMap<Victim, Row>);

impl Tally {
    /// A kill that came too late, or whose point the move did not pass.
    pub fn missed(&mut self, victim: Victim) {
        self.0.entry(victim).or_default().missed += 1;
    }

    /// A kill that hit, and what came of it.
    pub fn add(&mut self, victim: Victim, verdict: &Verdict) {
        let row = self.0.entry(victim).or_default();
        row.reached += 1;
        *row.ends.entry(verdict.ended.name()).or_default() += 1;
        row.violations += u32::from(!verdict.violations.is_empty());
        row.decided = row.decided.max(verdict.decided);
        row.cleaned = row.cleaned.max(verdict.cleaned);
        if verdict.ended != Ended::GuestGone {
            row.gaps.push(verdict.gap);
        }
    }

    /// Data of a guest that was missing or changed, found when the guest was stopped.
    pub fn broken(&mut self, victim: Victim) {
        self.0.entry(victim).or_default().violations += 1;
    }

    /// How many kills of a victim hit.
    #[must_use]
    pub fn reached(&self, victim: Victim) -> u32 {
        self.0.get(&victim).map_or(0, |row| row.reached)
    }

    /// Broken promises in all.
    #[must_use]
    pub fn violations(&self) -> u32 {
        self.0.values().map(|row| row.violations).sum()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (victim, row) in &self.0 {
            let ends: Vec<String> = row.ends.iter().map(|(end, n)| format!("{n} {end}")).collect();
            let mut gaps = row.gaps.clone();
            gaps.sort();
            let middle = gaps.get(gaps.len() / 2).copied().unwrap_or_default();
            let longest = gaps.last().copied().unwrap_or_default();
            writeln!(
                f,
                "{victim}: {} kills reached their point ({} missed it and do not count): {}; {} violations; decided \
                 and shown after at most {} ms, nothing left over after at most {} ms; longest gap between \
                 acknowledgements: median {} ms, most {} ms",
                row.reached,
                row.missed,
                ends.join(", "),
                row.violations,
                row.decided.as_millis(),
                row.cleaned.as_millis(),
                middle.as_millis(),
                longest.as_millis(),
            )?;
        }
        Ok(())
    }
}
