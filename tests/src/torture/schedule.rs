//! Which kill comes next: every point of every pair in turn, in an order that follows from the seed.

use std::collections::HashMap;
use std::time::Duration;

use super::kill::asks_to_pivot;
use super::{Kill, Victim};
use crate::guest::mix;

/// Milliseconds after the pivot was asked for at which others than the agent are killed.
const INSIDE_PIVOT: [u64; 6] = [0, 1, 2, 5, 10, 30];
/// Milliseconds libvirtd stays away.
const AWAY: [u64; 3] = [0, 400, 2_000];

/// An endless row of kills.
#[derive(Debug)]
pub struct Schedule {
    kills: Vec<(usize, Kill)>,
    next: usize,
}

impl Schedule {
    /// Kills of `victim` at the points that moves of each pair pass.
    #[must_use]
    pub fn new(victim: Victim, points: &[Vec<String>], seed: u64) -> Schedule {
        let mut kills = Vec::new();
        for (pair, points) in points.iter().enumerate() {
            let mut counts: HashMap<&str, u32> = HashMap::new();
            for point in points {
                let count = counts.entry(point).or_default();
                *count += 1;
                let kill = |delay: Option<u64>| Kill {
                    victim,
                    point: point.clone(),
                    count: *count,
                    delay: delay.map(Duration::from_millis),
                    away: Duration::ZERO,
                };
                kills.push((pair, kill(None)));
                if victim != Victim::Agent && asks_to_pivot(point) {
                    kills.extend(INSIDE_PIVOT.map(|delay| (pair, kill(Some(delay)))));
                }
            }
        }
        shuffle(&mut kills, seed);
        for (index, (_, kill)) in kills.iter_mut().enumerate() {
            kill.away = Duration::from_millis(AWAY[index % AWAY.len()]);
        }
        Schedule { kills, next: 0 }
    }

    /// The next kill and the pair it belongs to; after the last comes the first again.
    ///
    /// # Panics
    /// When there are no points.
    #[allow(clippy::should_implement_trait, reason = "it never ends, so it is no iterator's next")]
    pub fn next(&mut self) -> (usize, Kill) {
        let kill = self.kills[self.next % self.kills.len()].clone();
        self.next += 1;
        kill
    }
}

/// Fisher and Yates, with numbers that follow from the seed.
fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut state = seed;
    for last in (1..items.len()).rev() {
        state = mix(state);
        let other = usize::try_from(state % (last as u64 + 1)).unwrap_or(0);
        items.swap(last, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_of_every_pair_has_its_turn_before_one_comes_again() {
        let points = ["before create", "after append intent pivot", "before create"];
        let points = vec![points.map(str::to_owned).to_vec(), vec!["before create".to_owned()]];
        let mut schedule = Schedule::new(Victim::Agent, &points, 7);
        let round: Vec<_> = (0..4).map(|_| schedule.next()).collect();
        for (pair, point, count) in [
            (0, "before create", 1),
            (0, "before create", 2),
            (0, "after append intent pivot", 1),
            (1, "before create", 1),
        ] {
            let is = |(p, kill): &&(usize, Kill)| {
                *p == pair && kill.point == point && kill.count == count
            };
            assert_eq!(round.iter().filter(is).count(), 1, "{round:#?}");
        }
        assert_eq!(schedule.next(), round[0]);
        let libvirtd = Schedule::new(Victim::Libvirtd, &points, 7);
        assert_eq!(libvirtd.kills.len(), 4 + INSIDE_PIVOT.len());
    }
}
