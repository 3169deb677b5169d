//! Cuts a monitor list into entries. Knows brackets and separators, nothing of addresses.

use super::error::MonitorError;

/// The entries of `text`; empty ones are dropped, as Ceph does.
///
/// Separators are commas, semicolons, spaces, tabs and line ends outside of brackets.
pub(super) fn split(text: &str) -> Result<Vec<&str>, MonitorError> {
    let mut entries = Vec::new();
    let mut start = 0;
    let mut depth = 0_u32;
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' if depth == 0 => return Err(unbalanced(&text[start..])),
            ']' => depth -= 1,
            ',' | ';' | ' ' | '\t' | '\n' | '\r' if depth == 0 => {
                entries.push(&text[start..at]);
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    if depth != 0 {
        return Err(unbalanced(&text[start..]));
    }
    entries.push(&text[start..]);
    entries.retain(|entry| !entry.is_empty());
    Ok(entries)
}

fn unbalanced(text: &str) -> MonitorError {
    MonitorError::UnbalancedBrackets { text: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_count_only_outside_of_brackets() {
        assert_eq!(split("a,b;c d\te\r\nf").unwrap(), ["a", "b", "c", "d", "e", "f"]);
        assert_eq!(split("[v2:a,v1:b] [c;d]").unwrap(), ["[v2:a,v1:b]", "[c;d]"]);
        assert_eq!(split(" ,, a ,").unwrap(), ["a"]);
    }

    #[test]
    fn a_bracket_without_its_partner_is_an_error() {
        for text in ["[a", "a]", "[[a]", "x,[a,b"] {
            assert!(matches!(split(text), Err(MonitorError::UnbalancedBrackets { .. })), "{text}");
        }
    }
}
