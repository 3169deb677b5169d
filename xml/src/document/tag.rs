//! The grammar of one start tag: its name and its attributes as byte spans.

use std::collections::HashSet;
use std::ops::Range;

use super::Attribute;
use super::characters::{check_references, is_qualified_name, is_whitespace};
use crate::malformed::MalformedRule;

/// A fault inside a tag: byte offset in the document, and the rule.
pub(super) type Fault = (usize, MalformedRule);

/// A start tag taken apart.
pub(super) struct StartTag {
    pub(super) name: Range<usize>,
    pub(super) attributes: Vec<Attribute>,
}

/// Takes apart the start tag `span` of `text`, brackets (and the slash of `<a/>`) included.
pub(super) fn scan(text: &str, span: Range<usize>, empty: bool) -> Result<StartTag, Fault> {
    let end = span.end - if empty { 2 } else { 1 };
    let mut cursor = Cursor { text, position: span.start + 1, end };
    let name = cursor.name()?;
    let mut attributes = Vec::new();
    let mut seen = HashSet::new();
    loop {
        let spaced = cursor.skip_whitespace();
        if cursor.position == end {
            return Ok(StartTag { name, attributes });
        }
        if !spaced {
            return Err((cursor.position, MalformedRule::BadTag));
        }
        let attribute = cursor.attribute()?;
        let attribute_name = &text[attribute.name.clone()];
        if !seen.insert(attribute_name) {
            let rule = MalformedRule::DuplicateAttribute(attribute_name.to_owned());
            return Err((attribute.name.start, rule));
        }
        attributes.push(attribute);
    }
}

struct Cursor<'a> {
    text: &'a str,
    position: usize,
    end: usize,
}

impl Cursor<'_> {
    fn rest(&self) -> &str {
        &self.text[self.position..self.end]
    }

    fn skip_whitespace(&mut self) -> bool {
        let before = self.position;
        let rest = self.rest();
        self.position += rest.len() - rest.trim_start_matches(is_whitespace).len();
        self.position > before
    }

    /// A qualified name, up to white space or `=`.
    fn name(&mut self) -> Result<Range<usize>, Fault> {
        let start = self.position;
        let rest = self.rest();
        let length = rest.find(|c| is_whitespace(c) || c == '=').unwrap_or(rest.len());
        if !is_qualified_name(&rest[..length]) {
            return Err((start, MalformedRule::BadName(rest[..length].chars().take(64).collect())));
        }
        self.position += length;
        Ok(start..self.position)
    }

    fn expect_one_of(&mut self, wanted: [char; 2]) -> Result<char, Fault> {
        match self.rest().chars().next() {
            Some(found) if wanted.contains(&found) => {
                self.position += 1;
                Ok(found)
            }
            _ => Err((self.position, MalformedRule::BadTag)),
        }
    }

    fn attribute(&mut self) -> Result<Attribute, Fault> {
        let name = self.name()?;
        self.skip_whitespace();
        self.expect_one_of(['=', '='])?;
        self.skip_whitespace();
        let quote = self.expect_one_of(['\'', '"'])?;
        let start = self.position;
        let length = self.rest().find(quote).ok_or((start, MalformedRule::BadTag))?;
        let value = &self.rest()[..length];
        if let Some(bracket) = value.find('<') {
            return Err((start + bracket, MalformedRule::BadTag));
        }
        check_references(value).map_err(|(offset, rule)| (start + offset, rule))?;
        self.position += length + 1;
        Ok(Attribute { name, value: start..start + length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(tag: &str) -> Result<Vec<&str>, MalformedRule> {
        let scanned = scan(tag, 0..tag.len(), tag.ends_with("/>")).map_err(|(_, rule)| rule)?;
        Ok(scanned.attributes.iter().map(|attribute| &tag[attribute.span()]).collect())
    }

    #[test]
    fn attributes_are_found_with_either_quote_and_any_spacing() {
        assert_eq!(names("<a\n b = 'x>\"' c=\"'\" />"), Ok(vec!["b = 'x>\"'", "c=\"'\""]));
        assert_eq!(names("<a>"), Ok(vec![]));
    }

    #[test]
    fn broken_tags_are_refused() {
        assert_eq!(names("<a b='1' b='2'>"), Err(MalformedRule::DuplicateAttribute("b".into())));
        for bad in
            ["<a b>", "<a b=>", "<a b=1>", "<a b='1'c='2'>", "<a b='<'>", "<a b='1>", "<a / b='1'>"]
        {
            assert!(names(bad).is_err(), "{bad}");
        }
    }
}
