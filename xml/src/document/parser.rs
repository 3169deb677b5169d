//! From tokens to the index. quick-xml finds the tokens; every rule of well-formedness it leaves
//! to its caller is checked here, because a cut-off dump must never pass for a whole one.

use std::ops::Range;

use quick_xml::Reader;
use quick_xml::events::Event;

use super::characters::{check_references, is_local_name, is_whitespace};
use super::namespaces::Scopes;
use super::tag::{self, Fault};
use super::{Aside, Document, Element, ElementId};
use crate::escape::is_xml_char;
use crate::malformed::{MalformedRule, MalformedXml};

/// libvirt sends no string longer than this over its protocol (`REMOTE_STRING_MAX`).
const MAX_BYTES: usize = 4 * 1024 * 1024;
/// libvirt's own schema nests about 15 deep; backing chains and metadata nest deeper.
const MAX_DEPTH: usize = 128;
/// A guest with every device libvirt allows has some thousands.
const MAX_ELEMENTS: usize = 100_000;
const BYTE_ORDER_MARK: char = '\u{FEFF}';

/// Parses a whole document.
pub(super) fn parse(text: &str) -> Result<Document, MalformedXml> {
    let fault = |(offset, rule): Fault| MalformedXml::at(text, offset, rule);
    check_characters(text).map_err(fault)?;
    let start = if text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len_utf8() } else { 0 };
    if text[start..].starts_with(BYTE_ORDER_MARK) {
        return Err(fault((start, MalformedRule::TextOutsideRoot)));
    }
    let mut builder = Builder::new(text, start);
    builder.run().map_err(fault)?;
    let Builder { elements, asides, .. } = builder;
    Ok(Document { text: text.to_owned(), elements, asides })
}

fn check_characters(text: &str) -> Result<(), Fault> {
    if text.len() > MAX_BYTES {
        return Err((0, MalformedRule::TooLarge { size: text.len(), limit: MAX_BYTES }));
    }
    match text.char_indices().find(|(_, c)| !is_xml_char(*c)) {
        Some((offset, c)) => Err((offset, MalformedRule::ForbiddenCharacter(c.into()))),
        None => Ok(()),
    }
}

struct Builder<'a> {
    text: &'a str,
    /// Where the document starts, after a byte order mark.
    start: usize,
    elements: Vec<Element>,
    asides: Vec<Aside>,
    open: Vec<ElementId>,
    scopes: Scopes<'a>,
}

impl<'a> Builder<'a> {
    fn new(text: &'a str, start: usize) -> Self {
        Builder {
            text,
            start,
            elements: Vec::new(),
            asides: Vec::new(),
            open: Vec::new(),
            scopes: Scopes::default(),
        }
    }

    fn run(&mut self) -> Result<(), Fault> {
        let mut reader = Reader::from_str(&self.text[self.start..]);
        let config = reader.config_mut();
        config.check_end_names = false; // checked here, with the position of the end tag
        config.allow_unmatched_ends = true; // the same
        loop {
            let from = self.position(&reader);
            let event = reader
                .read_event()
                .map_err(|error| (from, MalformedRule::Syntax(error.to_string())))?;
            let span = from..self.position(&reader);
            match event {
                Event::Start(_) => self.start_tag(span, false)?,
                Event::Empty(_) => self.start_tag(span, true)?,
                Event::End(_) => self.end_tag(span)?,
                Event::Text(_) | Event::GeneralRef(_) => self.character_data(span)?,
                Event::CData(_) => self.cdata(span)?,
                Event::Comment(_) => self.comment(span)?,
                Event::PI(_) => self.instruction(span)?,
                Event::Decl(_) => self.declaration(span)?,
                Event::DocType(_) => return Err((from, MalformedRule::Doctype)),
                Event::Eof => return self.finish(),
            }
        }
    }

    fn position(&self, reader: &Reader<&[u8]>) -> usize {
        let position = usize::try_from(reader.buffer_position())
            .expect("a position inside a string fits the address space");
        self.start + position
    }

    fn start_tag(&mut self, span: Range<usize>, empty: bool) -> Result<(), Fault> {
        if self.open.is_empty() && !self.elements.is_empty() {
            return Err((span.start, MalformedRule::SeveralRoots));
        }
        if self.elements.len() == MAX_ELEMENTS {
            return Err((span.start, MalformedRule::TooManyElements { limit: MAX_ELEMENTS }));
        }
        if self.open.len() == MAX_DEPTH {
            return Err((span.start, MalformedRule::TooDeep { limit: MAX_DEPTH }));
        }
        let tag = tag::scan(self.text, span.clone(), empty)?;
        let foreign = self.scopes.enter(self.text, &tag)?;
        let id = self.elements.len();
        let parent = self.open.last().copied();
        if let Some(parent) = parent {
            self.elements[parent].children.push(id);
        }
        self.elements.push(Element {
            parent,
            children: Vec::new(),
            name: tag.name,
            span: span.clone(),
            content: span.end..span.end,
            start_tag: span,
            attributes: tag.attributes,
            texts: Vec::new(),
            foreign,
        });
        if empty {
            self.scopes.leave();
        } else {
            self.open.push(id);
        }
        Ok(())
    }

    fn end_tag(&mut self, span: Range<usize>) -> Result<(), Fault> {
        let raw = &self.text[span.clone()];
        let found = raw
            .strip_prefix("</")
            .and_then(|rest| rest.strip_suffix('>'))
            .ok_or((span.start, MalformedRule::BadTag))?
            .trim_end_matches(is_whitespace);
        let Some(id) = self.open.pop() else {
            return Err((span.start, MalformedRule::SeveralRoots));
        };
        let element = &mut self.elements[id];
        let expected = &self.text[element.name.clone()];
        if found != expected {
            let (expected, found) = (expected.to_owned(), found.chars().take(64).collect());
            return Err((span.start, MalformedRule::UnmatchedEnd { expected, found }));
        }
        element.content.end = span.start;
        element.span.end = span.end;
        self.scopes.leave();
        Ok(())
    }

    fn character_data(&mut self, span: Range<usize>) -> Result<(), Fault> {
        let raw = &self.text[span.clone()];
        check_references(raw).map_err(|(offset, rule)| (span.start + offset, rule))?;
        if let Some(offset) = raw.find("]]>") {
            return Err((span.start + offset, MalformedRule::CdataEndInText));
        }
        match self.open.last() {
            Some(id) if !span.is_empty() => self.elements[*id].texts.push(span),
            Some(_) => {}
            None if raw.chars().all(is_whitespace) => {}
            None => return Err((span.start, MalformedRule::TextOutsideRoot)),
        }
        Ok(())
    }

    fn cdata(&mut self, span: Range<usize>) -> Result<(), Fault> {
        let raw = &self.text[span.clone()];
        if !(raw.starts_with("<![CDATA[") && raw.ends_with("]]>")) {
            return Err((span.start, MalformedRule::BadTag));
        }
        match self.open.last() {
            Some(id) => self.elements[*id].texts.push(span),
            None => return Err((span.start, MalformedRule::TextOutsideRoot)),
        }
        Ok(())
    }

    fn comment(&mut self, span: Range<usize>) -> Result<(), Fault> {
        let content = self.text[span.clone()]
            .strip_prefix("<!--")
            .and_then(|rest| rest.strip_suffix("-->"))
            .ok_or((span.start, MalformedRule::BadTag))?;
        if content.contains("--") || content.ends_with('-') {
            return Err((span.start, MalformedRule::CommentHyphens));
        }
        self.push_aside(span);
        Ok(())
    }

    fn instruction(&mut self, span: Range<usize>) -> Result<(), Fault> {
        let content = self.text[span.clone()]
            .strip_prefix("<?")
            .and_then(|rest| rest.strip_suffix("?>"))
            .ok_or((span.start, MalformedRule::BadTag))?;
        let target = content.split(is_whitespace).next().unwrap_or_default();
        if target.eq_ignore_ascii_case("xml") {
            return Err((span.start, MalformedRule::MisplacedDeclaration));
        }
        if !is_local_name(target) {
            let name = target.chars().take(64).collect();
            return Err((span.start, MalformedRule::BadName(name)));
        }
        self.push_aside(span);
        Ok(())
    }

    fn push_aside(&mut self, span: Range<usize>) {
        self.asides.push(Aside { span, parent: self.open.last().copied() });
    }

    /// The XML declaration: a version 1.x, and no encoding that contradicts the text.
    fn declaration(&mut self, span: Range<usize>) -> Result<(), Fault> {
        if span.start != self.start {
            return Err((span.start, MalformedRule::MisplacedDeclaration));
        }
        let bad = (span.start, MalformedRule::BadDeclaration);
        let raw = &self.text[span];
        match raw.strip_prefix("<?xml").and_then(|rest| rest.strip_suffix("?>")) {
            Some(body) if self.is_declaration(body) => Ok(()),
            _ => Err(bad),
        }
    }

    /// The pairs of a declaration have the grammar of attributes, in a fixed order.
    fn is_declaration(&self, body: &str) -> bool {
        let tag = format!("<xml{body}>");
        let Ok(scanned) = tag::scan(&tag, 0..tag.len(), false) else { return false };
        let pairs: Vec<(&str, &str)> = scanned
            .attributes
            .iter()
            .map(|attribute| (&tag[attribute.name.clone()], &tag[attribute.value.clone()]))
            .collect();
        let names: Vec<&str> = pairs.iter().map(|(name, _)| *name).collect();
        let order = ["version", "encoding", "standalone"];
        let in_order = order.iter().filter(|name| names.contains(name)).eq(names.iter());
        in_order
            && pairs.iter().all(|(name, value)| match *name {
                "version" => value.starts_with("1."),
                "encoding" => self.encoding_fits(value),
                _ => matches!(*value, "yes" | "no"),
            })
            && names.first() == Some(&"version")
    }

    /// The text arrived as UTF-8; another declared encoding is harmless only when it reads ASCII
    /// bytes the same way and there are no others.
    fn encoding_fits(&self, encoding: &str) -> bool {
        let encoding = encoding.to_ascii_lowercase();
        let reads_ascii = encoding.starts_with("iso-8859-") || encoding.starts_with("windows-125");
        matches!(encoding.as_str(), "utf-8" | "utf8" | "us-ascii" | "ascii")
            || (reads_ascii && self.text.is_ascii())
    }

    fn finish(&self) -> Result<(), Fault> {
        if let Some(id) = self.open.last() {
            let name = self.text[self.elements[*id].name.clone()].to_owned();
            return Err((self.text.len(), MalformedRule::Unclosed(name)));
        }
        if self.elements.is_empty() {
            return Err((self.text.len(), MalformedRule::NoRoot));
        }
        Ok(())
    }
}
