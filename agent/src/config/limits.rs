//! `[limits]`, with the defaults of the manual.

use super::raw::RawLimits;
use super::rules::{self, InvalidValue};
use crate::spec::{Limits, Reserve};

/// Checks the limits.
///
/// Errors: the key and the rule it breaks.
pub fn resolve(raw: RawLimits) -> Result<Limits, (&'static str, InvalidValue)> {
    let default = Limits::default();
    let per_host = value("limits.operations_per_host", raw.operations_per_host, rules::at_a_time)?;
    let per_pool = value("limits.operations_per_pool", raw.operations_per_pool, rules::at_a_time)?;
    let percent = value("limits.reserve_percent", raw.reserve_percent, rules::share)?;
    let at_least = value("limits.reserve_bytes", raw.reserve_bytes, |text| rules::size(&text))?;
    Ok(Limits {
        operations_per_host: per_host.unwrap_or(default.operations_per_host),
        operations_per_pool: per_pool.unwrap_or(default.operations_per_pool),
        reserve: Reserve {
            percent: percent.unwrap_or(default.reserve.percent),
            at_least: at_least.unwrap_or(default.reserve.at_least),
        },
    })
}

fn value<V, T>(
    key: &'static str,
    value: Option<V>,
    rule: impl Fn(V) -> Result<T, InvalidValue>,
) -> Result<Option<T>, (&'static str, InvalidValue)> {
    value.map(rule).transpose().map_err(|rule| (key, rule))
}
