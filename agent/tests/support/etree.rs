//! The few paths of Python's ElementTree that the cases use, over a tree read by quick-xml.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

/// One element.
#[derive(Debug, Default)]
pub struct Element {
    name: String,
    attributes: Vec<(String, String)>,
    text: String,
    children: Vec<Element>,
}

/// Reads one element, as the only child of a nameless one.
///
/// Errors: the text is not well formed.
pub fn parse(text: &str) -> Result<Element, String> {
    let mut reader = Reader::from_str(text);
    let mut open = vec![Element::default()];
    loop {
        match reader.read_event().map_err(|error| error.to_string())? {
            Event::Start(start) => open.push(element(&start)?),
            Event::Empty(start) => {
                let child = element(&start)?;
                open.last_mut().ok_or("text after the end")?.children.push(child);
            }
            Event::End(_) => {
                let child = open.pop().ok_or("one end too many")?;
                open.last_mut().ok_or("one end too many")?.children.push(child);
            }
            Event::Text(text) => {
                open.last_mut().ok_or("text after the end")?.text.push_str(&text);
            }
            Event::Eof => break,
            _ => {}
        }
    }
    match (open.pop(), open.is_empty()) {
        (Some(root), true) if root.children.len() == 1 => Ok(root),
        _ => Err("not exactly one element".to_owned()),
    }
}

fn element(start: &BytesStart<'_>) -> Result<Element, String> {
    let name = start.name().as_ref().to_owned();
    let mut attributes = Vec::new();
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|error| error.to_string())?;
        let value =
            quick_xml::escape::unescape(&attribute.value).map_err(|error| error.to_string())?;
        let key = attribute.key.as_ref().to_owned();
        attributes.push((key, value.into_owned()));
    }
    Ok(Element { name, attributes, ..Element::default() })
}

/// One step of a path: a name or `*`, and what must hold of the element.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    name: String,
    tests: Vec<Test>,
}

#[derive(Debug, PartialEq, Eq)]
enum Test {
    Has(String),
    Is(String, String),
    Text(String),
}

impl Element {
    /// The name of the only child.
    pub fn only_child_name(&self) -> &str {
        self.children.first().map_or("", |child| &child.name)
    }

    /// How many elements the path selects below this one.
    ///
    /// # Panics
    /// When the path has something these few rules do not cover.
    pub fn count(&self, path: &str) -> usize {
        let (anywhere, steps) = match path.strip_prefix(".//") {
            Some(rest) => (true, steps(rest)),
            None => (false, steps(path)),
        };
        let first = if anywhere { self.descendants() } else { self.children.iter().collect() };
        let mut found: Vec<&Element> =
            first.into_iter().filter(|element| steps[0].fits(element)).collect();
        for step in &steps[1..] {
            found = found
                .into_iter()
                .flat_map(|element| &element.children)
                .filter(|element| step.fits(element))
                .collect();
        }
        found.len()
    }

    fn descendants(&self) -> Vec<&Element> {
        let below = self.children.iter();
        below.flat_map(|child| std::iter::once(child).chain(child.descendants())).collect()
    }

    fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

impl Step {
    fn fits(&self, element: &Element) -> bool {
        let named = self.name == "*" || self.name == element.name;
        named
            && self.tests.iter().all(|test| match test {
                Test::Has(name) => element.attribute(name).is_some(),
                Test::Is(name, value) => element.attribute(name) == Some(value),
                Test::Text(text) => element.text == *text,
            })
    }
}

/// Slashes inside quotes separate nothing.
fn steps(path: &str) -> Vec<Step> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    for character in path.chars() {
        quoted ^= character == '\'';
        match (character, quoted) {
            ('/', false) => parts.push(String::new()),
            _ => parts.last_mut().expect("never empty").push(character),
        }
    }
    parts.iter().map(|part| step(part)).collect()
}

fn step(part: &str) -> Step {
    let (name, mut rest) = part.split_at(part.find('[').unwrap_or(part.len()));
    let mut tests = Vec::new();
    while let Some(inner) = rest.strip_prefix('[') {
        // A bracket inside quotes would need more than this; no case has one.
        let end = inner.find(']').expect("a predicate ends");
        tests.push(test(&inner[..end]));
        rest = &inner[end + 1..];
    }
    assert!(rest.is_empty() && !name.is_empty(), "path {part:?}");
    Step { name: name.to_owned(), tests }
}

fn test(predicate: &str) -> Test {
    let value = |text: &str| text.trim_matches('\'').to_owned();
    match (predicate.strip_prefix('@'), predicate.split_once('=')) {
        (Some(_), Some((name, text))) => Test::Is(name[1..].to_owned(), value(text)),
        (Some(name), None) => Test::Has(name.to_owned()),
        (None, Some((".", text))) => Test::Text(value(text)),
        _ => panic!("predicate {predicate:?}"),
    }
}
