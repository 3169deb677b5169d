//! The page for clients that do not ask for OpenMetrics, in Prometheus's older text format: what people see with curl,
//! and what `promtool check metrics` reads. One text is made of the other; nothing is counted here.

use std::borrow::Cow;
use std::collections::HashMap;

/// OpenMetrics in the older format: families are named as their samples are, and the types it lacks become those it has.
pub(super) fn from_open_metrics(page: &str) -> String {
    let types: HashMap<&str, &str> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let mut text = String::with_capacity(page.len());
    for line in page.lines() {
        if let Some(line) = in_text(line, &types) {
            text.push_str(&line);
            text.push('\n');
        }
    }
    text
}

fn in_text<'a>(line: &'a str, types: &HashMap<&str, &str>) -> Option<Cow<'a, str>> {
    if line == "# EOF" || line.starts_with("# UNIT ") {
        return None;
    }
    for word in ["HELP", "TYPE"] {
        let rest = line.strip_prefix("# ").and_then(|line| line.strip_prefix(word));
        let Some((family, rest)) = rest.and_then(|rest| rest.strip_prefix(' ')?.split_once(' '))
        else {
            continue;
        };
        let (suffix, kind) = match types.get(family).copied() {
            Some("counter") => ("_total", "counter"),
            Some("info") => ("_info", "gauge"),
            Some("unknown") => ("", "untyped"),
            Some(kind) => ("", kind),
            None => ("", rest),
        };
        let rest = if word == "TYPE" { kind } else { rest };
        return Some(Cow::Owned(format!("# {word} {family}{suffix} {rest}")));
    }
    Some(Cow::Borrowed(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_named_as_their_samples_and_what_is_not_known_there_is_left_out() {
        let page = "# HELP a_b Says # TYPE a_b things.\n# TYPE a_b counter\na_b_total{x=\"# EOF\"} 1\n\
            # HELP t_seconds Time.\n# TYPE t_seconds histogram\n# UNIT t_seconds seconds\nt_seconds_sum 0.0\n\
            # HELP build What.\n# TYPE build info\nbuild_info{version=\"1\"} 1\n# EOF\n";
        let text = "# HELP a_b_total Says # TYPE a_b things.\n# TYPE a_b_total counter\na_b_total{x=\"# EOF\"} 1\n\
            # HELP t_seconds Time.\n# TYPE t_seconds histogram\nt_seconds_sum 0.0\n\
            # HELP build_info What.\n# TYPE build_info gauge\nbuild_info{version=\"1\"} 1\n";
        assert_eq!(from_open_metrics(page), text);
    }
}
