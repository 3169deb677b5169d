//! The quoting of QEMU's `rbd:` string: a backslash takes the next character literally.

/// Puts a backslash before every character that separates something in QEMU's `rbd:` string.
///
/// `:` ends an option, `@` begins a snapshot wherever it stands, `=` ends an option's name, `;` and
/// `,` separate monitors for those who read the string besides QEMU. `/` is left alone: it only
/// counts before the options, where no name may contain it.
///
/// ```
/// use rbdutils::qemu::{escape, unescape};
///
/// assert_eq!(escape(r"a:b@c\d"), r"a\:b\@c\\d");
/// assert_eq!(unescape(r"a\:b\@c\\d"), r"a:b@c\d");
/// ```
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '\\' | ':' | '@' | '=' | ';' | ',') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// Takes the backslashes away again. One at the very end stays, as in QEMU.
pub fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        plain.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
    }
    plain
}

/// Where the first unescaped `delimiter` is.
pub(super) fn find(text: &str, delimiter: char) -> Option<usize> {
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            chars.next();
        } else if c == delimiter {
            return Some(at);
        }
    }
    None
}

/// Splits at the first unescaped ASCII `delimiter`; without one the whole text is the first part.
pub(super) fn cut(text: &str, delimiter: char) -> (&str, Option<&str>) {
    match find(text, delimiter) {
        Some(at) => (&text[..at], Some(&text[at + delimiter.len_utf8()..])),
        None => (text, None),
    }
}
