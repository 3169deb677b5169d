//! PURE: whose turn is it? Operations wait in the order in which they were accepted.
//!
//! - An operation begins when the host and each of its pools has a free place; the pool its volume leaves counts
//!   as much as the one it goes to.
//! - Nobody waits for a pool that is not his: an operation that waits is passed by later ones of other pools.
//! - Nobody is passed for ever: the first in line for a pool keeps a free place in its other pool. The host's places
//!   are not kept, because whatever ends in a pool gives one back at the same moment.

use std::collections::HashMap;
use std::fmt;

use crate::spec::{Limits, Pool, PoolName};

/// How many operations run at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    host: usize,
    pool: usize,
    own: HashMap<PoolName, usize>,
}

/// One operation that has not ended.
#[derive(Debug, Clone, Copy)]
pub struct Queued<'a> {
    /// The pools it works on.
    pub pools: &'a [PoolName],
    /// Whether its turn has come.
    pub runs: bool,
}

/// What becomes of an operation now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// It runs, or may begin.
    Runs,
    /// It waits.
    Waits(Wait),
}

/// What an operation waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// Where there is no place.
    pub at: Resource,
    /// How many operations may be there at a time.
    pub limit: usize,
    /// Its place among those that wait for the same, the next one is 1.
    pub place: usize,
}

/// Where places are limited.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Resource {
    /// This host.
    Host,
    /// A pool.
    Pool(PoolName),
}

impl Places {
    /// The limits of the configuration.
    pub fn new(limits: &Limits, pools: &[Pool]) -> Self {
        let own = pools.iter().filter_map(|pool| Some((pool.name.clone(), pool.operations?)));
        Self {
            host: limits.operations_per_host,
            pool: limits.operations_per_pool,
            own: own.collect(),
        }
    }

    fn of(&self, pool: &PoolName) -> usize {
        self.own.get(pool).copied().unwrap_or(self.pool)
    }
}

/// Decides on every operation, given all that have not ended in the order in which they were accepted.
pub fn decide(places: &Places, operations: &[Queued<'_>]) -> Vec<Turn> {
    let mut taken = Taken::default();
    for running in operations.iter().filter(|operation| operation.runs) {
        taken.take(running.pools);
    }
    let mut lines: HashMap<Resource, usize> = HashMap::new();
    let turn = |operation: &Queued<'_>| {
        if operation.runs {
            return Turn::Runs;
        }
        let full: Vec<&PoolName> =
            operation.pools.iter().filter(|pool| taken.of(pool) >= places.of(pool)).collect();
        let (at, limit) = match full.first() {
            Some(pool) => (Resource::Pool(PoolName::clone(pool)), places.of(pool)),
            None if taken.host >= places.host => (Resource::Host, places.host),
            None => {
                taken.take(operation.pools);
                return Turn::Runs;
            }
        };
        let mut first = false;
        for pool in &full {
            let line = lines.entry(Resource::Pool(PoolName::clone(pool))).or_default();
            *line += 1;
            first |= *line == 1;
        }
        if full.is_empty() {
            *lines.entry(Resource::Host).or_default() += 1;
        }
        if first {
            for pool in operation.pools.iter().filter(|pool| !full.contains(pool)) {
                *taken.pools.entry(pool.clone()).or_default() += 1;
            }
        }
        let place = lines.get(&at).copied().unwrap_or(1);
        Turn::Waits(Wait { at, limit, place })
    };
    operations.iter().map(turn).collect()
}

/// Places that are taken or kept.
#[derive(Debug, Default)]
struct Taken {
    host: usize,
    pools: HashMap<PoolName, usize>,
}

impl Taken {
    fn of(&self, pool: &PoolName) -> usize {
        self.pools.get(pool).copied().unwrap_or(0)
    }

    fn take(&mut self, pools: &[PoolName]) {
        self.host += 1;
        for pool in pools {
            *self.pools.entry(pool.clone()).or_default() += 1;
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("this host"),
            Self::Pool(pool) => write!(f, "pool {pool}"),
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, limit, place } = self;
        write!(f, "waits for {at}, which takes {limit} at a time; place {place} in the queue")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a>b` runs from pool a to pool b, `?a>b` waits for its turn.
    fn turns(host: usize, pool: usize, own: &[(&str, usize)], operations: &str) -> String {
        let name = |text: &str| PoolName::new(text).expect("a plain name");
        let own = own.iter().map(|(pool, limit)| (name(pool), *limit)).collect();
        let places = Places { host, pool, own };
        let parsed: Vec<(Vec<PoolName>, bool)> = operations
            .split(' ')
            .map(|text| {
                let pools = text.trim_start_matches('?').split('>').map(name).collect();
                (pools, !text.starts_with('?'))
            })
            .collect();
        let queued: Vec<Queued<'_>> =
            parsed.iter().map(|(pools, runs)| Queued { pools, runs: *runs }).collect();
        let short = |turn: &Turn| match turn {
            Turn::Runs => "run".to_owned(),
            Turn::Waits(Wait { at: Resource::Host, place, .. }) => format!("host{place}"),
            Turn::Waits(Wait { at: Resource::Pool(pool), place, .. }) => format!("{pool}{place}"),
        };
        decide(&places, &queued).iter().map(short).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn turns_come_in_order_and_by_pool() {
        let cases = [
            ("alone", 8, 4, vec![], "?a>b", "run"),
            ("one at a time", 1, 4, vec![], "a>b ?a>b ?c>d", "run host1 host2"),
            ("the first of two", 1, 4, vec![], "?a>b ?a>b", "run host1"),
            ("the destination counts", 8, 1, vec![], "a>b ?c>b", "run b1"),
            ("the source counts", 8, 1, vec![], "a>b ?a>c", "run a1"),
            ("what was a destination is a source", 8, 1, vec![], "a>b ?b>c", "run b1"),
            ("in line", 8, 1, vec![], "a>b ?c>b ?d>b", "run b1 b2"),
            ("others pass", 8, 1, vec![], "a>b ?c>b ?d>e", "run b1 run"),
            ("the first in line keeps its other pool", 8, 1, vec![], "a>b ?c>b ?c>d", "run b1 c1"),
            (
                "only the first does",
                8,
                2,
                vec![("b", 1)],
                "a>b ?c>b ?c>b ?c>b ?c>d",
                "run b1 b2 b3 run",
            ),
            ("a pool of its own limit", 8, 1, vec![("b", 2)], "a>b ?c>b ?d>b", "run run b1"),
            ("the host is no place to keep", 2, 1, vec![], "a>b ?c>b ?d>e", "run b1 run"),
            ("running beyond the limit", 1, 1, vec![], "a>b a>b ?c>d", "run run host1"),
            ("within one pool it counts once", 8, 2, vec![], "a ?a ?a", "run run a1"),
            ("a full pool is told before a full host", 1, 1, vec![], "a>b ?c>b", "run b1"),
        ];
        for (what, host, pool, own, operations, expected) in cases {
            assert_eq!(turns(host, pool, &own, operations), expected, "{what}: {operations}");
        }
    }

    #[test]
    fn nobody_is_passed_for_ever() {
        // A stream of requests that need either of the first one's pools, each pool with one place.
        let mut operations = vec!["a>x", "b>y", "?a>b"];
        operations.extend(["?a>z", "?b>z"].repeat(3));
        for ended in ["a>x", "b>y"] {
            operations.retain(|operation| *operation != ended);
            let turns = turns(8, 1, &[], &operations.join(" "));
            let begun = turns.split(' ').zip(&operations);
            let begun: Vec<_> = begun.filter(|(turn, _)| *turn == "run").map(|(_, o)| *o).collect();
            let expected = if ended == "a>x" { vec!["b>y"] } else { vec!["?a>b"] };
            assert_eq!(begun, expected, "after {ended}: {turns}");
        }
    }

    #[test]
    fn a_wait_says_for_what_and_its_place() {
        let at = Resource::Pool(PoolName::new("ceph").expect("a plain name"));
        let wait = Wait { at, limit: 4, place: 2 };
        let text = "waits for pool ceph, which takes 4 at a time; place 2 in the queue";
        assert_eq!(wait.to_string(), text);
        let wait = Wait { at: Resource::Host, limit: 1, place: 1 };
        assert!(wait.to_string().starts_with("waits for this host, which takes 1 at a time"));
    }
}
