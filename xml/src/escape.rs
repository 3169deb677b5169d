//! Writing values into new XML. Decoding of values lives in `document::characters`.

/// Whether XML 1.0 can carry `text` at all, escaped or not.
///
/// Control characters other than tab, line feed and carriage return, U+FFFE and U+FFFF cannot be
/// written into a document by any means. A name or path for which this is false must be refused
/// before a destination is built with it.
pub fn is_representable(text: &str) -> bool {
    text.chars().all(is_xml_char)
}

/// The production `Char` of XML 1.0.
pub(crate) fn is_xml_char(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..)
}

/// `value` escaped once for use between quotes of either kind.
///
/// White space other than the blank becomes a numeric reference, because a parser turns the
/// literal characters into blanks.
pub(crate) fn attribute_value(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\'' => escaped.push_str("&apos;"),
            '"' => escaped.push_str("&quot;"),
            '\t' => escaped.push_str("&#9;"),
            '\n' => escaped.push_str("&#10;"),
            '\r' => escaped.push_str("&#13;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Appends ` name='value'` to a start tag under construction.
pub(crate) fn push_attribute(tag: &mut String, name: &str, value: &str) {
    tag.push(' ');
    tag.push_str(name);
    tag.push_str("='");
    tag.push_str(&attribute_value(value));
    tag.push('\'');
}
