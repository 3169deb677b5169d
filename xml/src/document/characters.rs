//! Characters, names and references of XML 1.0, on plain strings.

use crate::escape::is_xml_char;
use crate::malformed::MalformedRule;

/// White space as XML knows it; nothing else of Unicode counts.
pub(crate) fn is_whitespace(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

/// The production `NameStartChar` without the colon.
fn is_name_start(c: char) -> bool {
    matches!(c,
        'A'..='Z' | 'a'..='z' | '_' | '\u{C0}'..='\u{D6}' | '\u{D8}'..='\u{F6}' | '\u{F8}'..='\u{2FF}'
        | '\u{370}'..='\u{37D}' | '\u{37F}'..='\u{1FFF}' | '\u{200C}'..='\u{200D}'
        | '\u{2070}'..='\u{218F}' | '\u{2C00}'..='\u{2FEF}' | '\u{3001}'..='\u{D7FF}'
        | '\u{F900}'..='\u{FDCF}' | '\u{FDF0}'..='\u{FFFD}' | '\u{10000}'..='\u{EFFFF}')
}

/// The production `NameChar` without the colon.
fn is_name_char(c: char) -> bool {
    is_name_start(c)
        || matches!(c, '-' | '.' | '0'..='9' | '\u{B7}' | '\u{300}'..='\u{36F}' | '\u{203F}'..='\u{2040}')
}

/// A name without a colon.
pub(super) fn is_local_name(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(is_name_start) && characters.all(is_name_char)
}

/// A name with at most one prefix.
pub(super) fn is_qualified_name(name: &str) -> bool {
    match name.split_once(':') {
        Some((prefix, local)) => is_local_name(prefix) && is_local_name(local),
        None => is_local_name(name),
    }
}

/// The reference at the start of `raw` (which starts with `&`): its character and its length.
pub(super) fn reference(raw: &str) -> Result<(char, usize), MalformedRule> {
    let end = raw.find(';').ok_or(MalformedRule::BadReference)?;
    let name = &raw[1..end];
    let character = match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "apos" => '\'',
        "quot" => '"',
        _ => match name.strip_prefix('#') {
            Some(number) => numeric_reference(number).ok_or(MalformedRule::BadReference)?,
            None if is_qualified_name(name) => {
                let shown = name.chars().take(64).collect();
                return Err(MalformedRule::UnknownEntity(shown));
            }
            None => return Err(MalformedRule::BadReference),
        },
    };
    Ok((character, end + 1))
}

/// The character of `38` or `x26`.
fn numeric_reference(number: &str) -> Option<char> {
    let (digits, radix) = match number.strip_prefix('x') {
        Some(digits) => (digits, 16),
        None => (number, 10),
    };
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return None;
    }
    let code = u32::from_str_radix(digits, radix).ok()?;
    char::from_u32(code).filter(|c| is_xml_char(*c))
}

/// Checks every reference of `raw`; the error carries the offset inside it.
pub(super) fn check_references(raw: &str) -> Result<(), (usize, MalformedRule)> {
    let mut position = 0;
    while let Some(ampersand) = raw[position..].find('&') {
        position += ampersand;
        let (_, length) = reference(&raw[position..]).map_err(|rule| (position, rule))?;
        position += length;
    }
    Ok(())
}

/// An attribute value: references resolved, literal white space turned into blanks.
pub(super) fn decode_attribute(raw: &str) -> String {
    resolve(&normalise_line_ends(raw).replace(['\t', '\n'], " "))
}

/// A piece of character data or a CDATA section, which is taken literally.
pub(super) fn decode_text(raw: &str) -> String {
    match raw.strip_prefix("<![CDATA[").and_then(|rest| rest.strip_suffix("]]>")) {
        Some(literal) => normalise_line_ends(literal),
        None => resolve(&normalise_line_ends(raw)),
    }
}

/// CR LF and lone CR become LF, as XML prescribes for literal characters.
fn normalise_line_ends(raw: &str) -> String {
    raw.replace("\r\n", "\n").replace('\r', "\n")
}

/// Replaces references by their characters. A reference the parser would have refused stays as
/// it is written.
fn resolve(raw: &str) -> String {
    let mut resolved = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(ampersand) = rest.find('&') {
        resolved.push_str(&rest[..ampersand]);
        rest = &rest[ampersand..];
        match reference(rest) {
            Ok((character, length)) => {
                resolved.push(character);
                rest = &rest[length..];
            }
            Err(_) => {
                resolved.push('&');
                rest = &rest[1..];
            }
        }
    }
    resolved.push_str(rest);
    resolved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_the_predefined_ones_and_valid_numbers() {
        assert_eq!(reference("&amp;x"), Ok(('&', 5)));
        assert_eq!(reference("&#x2F;"), Ok(('/', 6)));
        assert_eq!(reference("&#47;"), Ok(('/', 5)));
        for bad in
            ["&#0;", "&#x;", "&#xD800;", "&#x110000;", "&#+38;", "&;", "& ;", "&#XA;", "&amp"]
        {
            assert_eq!(reference(bad), Err(MalformedRule::BadReference), "{bad}");
        }
        assert_eq!(reference("&lol9;"), Err(MalformedRule::UnknownEntity("lol9".into())));
    }

    #[test]
    fn values_are_decoded_once() {
        assert_eq!(decode_attribute("a&amp;amp;&#10;b\r\n\tc"), "a&amp;\nb  c");
        assert_eq!(decode_text("a\r\nb&lt;"), "a\nb<");
        assert_eq!(decode_text("<![CDATA[a&lt;<b>]]>"), "a&lt;<b>");
    }

    #[test]
    fn names_have_at_most_one_prefix() {
        assert!(
            is_qualified_name("nova:disk") && is_qualified_name("größe") && is_local_name("a-1.b")
        );
        for bad in ["", "1a", "a:b:c", ":a", "a:", "-a", "a b"] {
            assert!(!is_qualified_name(bad), "{bad}");
        }
    }
}
