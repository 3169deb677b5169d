//! Replacing byte ranges of a text. Knows nothing of XML.

use std::ops::Range;

/// A set of replacements in one text, applied together.
#[derive(Debug, Default)]
pub(crate) struct Splices {
    splices: Vec<(Range<usize>, String)>,
}

impl Splices {
    /// Replaces `range` by `text`.
    pub(crate) fn replace(&mut self, range: Range<usize>, text: impl Into<String>) {
        self.splices.push((range, text.into()));
    }

    /// Inserts `text` at `at`; insertions at one place keep the order of the calls.
    pub(crate) fn insert(&mut self, at: usize, text: impl Into<String>) {
        self.replace(at..at, text);
    }

    /// Removes `range`.
    pub(crate) fn remove(&mut self, range: Range<usize>) {
        self.replace(range, "");
    }

    /// The part `span` of `text` with all replacements done. A replacement inside a range that is
    /// itself replaced is dropped with it.
    pub(crate) fn apply(mut self, text: &str, span: Range<usize>) -> String {
        self.splices.sort_by_key(|(range, _)| (range.start, range.end));
        let mut edited = String::with_capacity(span.len());
        let mut position = span.start;
        for (range, replacement) in self.splices {
            if range.start < position {
                continue;
            }
            edited.push_str(&text[position..range.start]);
            edited.push_str(&replacement);
            position = range.end;
        }
        edited.push_str(&text[position..span.end]);
        edited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn insertions_stay_in_order_and_before_a_removal_at_the_same_place() {
        let mut splices = Splices::default();
        splices.remove(2..4);
        splices.insert(2, "x");
        splices.insert(2, "y");
        assert_eq!(splices.apply("abcdef", 0..6), "abxyef");
    }

    #[test]
    fn a_replacement_inside_a_removed_range_goes_with_it() {
        let mut splices = Splices::default();
        splices.replace(3..4, "no");
        splices.remove(1..5);
        assert_eq!(splices.apply("abcdef", 0..6), "af");
    }
}
