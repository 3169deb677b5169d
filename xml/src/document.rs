//! A strict index over the text of an XML document: where each element, attribute and piece of
//! character data stands. No meaning of any element lives here, and nothing is ever re-serialised.

mod characters;
mod namespaces;
mod parser;
mod tag;

use std::ops::Range;

use crate::malformed::MalformedXml;

/// An XML document: the original text and the byte spans of its elements.
///
/// Parsing is stricter than most XML libraries where leniency would let a damaged dump pass for a
/// whole one, and refuses any document type declaration.
#[derive(Debug, Clone)]
pub struct Document {
    text: String,
    elements: Vec<Element>,
    /// Comments and processing instructions, in document order.
    asides: Vec<Aside>,
}

/// A comment or processing instruction.
#[derive(Debug, Clone)]
pub(crate) struct Aside {
    pub(crate) span: Range<usize>,
    pub(crate) parent: Option<ElementId>,
}

/// Index of an element in its document.
pub(crate) type ElementId = usize;

/// One element as byte spans of the text.
#[derive(Debug, Clone)]
pub(crate) struct Element {
    pub(crate) parent: Option<ElementId>,
    pub(crate) children: Vec<ElementId>,
    pub(crate) name: Range<usize>,
    /// From `<` of the start tag to the byte after `>` of the end tag.
    pub(crate) span: Range<usize>,
    /// The start tag, both angle brackets included.
    pub(crate) start_tag: Range<usize>,
    /// Between start tag and end tag; empty for `<a/>`.
    pub(crate) content: Range<usize>,
    pub(crate) attributes: Vec<Attribute>,
    /// Character data, references and CDATA sections directly inside.
    pub(crate) texts: Vec<Range<usize>>,
    /// In a namespace, by prefix or by a default declaration. libvirt's own elements never are.
    pub(crate) foreign: bool,
}

/// One attribute as byte spans of the text.
#[derive(Debug, Clone)]
pub(crate) struct Attribute {
    pub(crate) name: Range<usize>,
    /// The value as written, without its quotes.
    pub(crate) value: Range<usize>,
}

impl Attribute {
    /// The attribute from its name to the byte after its closing quote.
    pub(crate) fn span(&self) -> Range<usize> {
        self.name.start..self.value.end + 1
    }
}

impl Document {
    /// Parses `text` and checks it to the end.
    ///
    /// # Errors
    /// [`MalformedXml`] when the text is not one complete well-formed element, has a document type
    /// declaration, an unknown entity or an undeclared namespace prefix, or exceeds the limits.
    pub fn parse(text: &str) -> Result<Document, MalformedXml> {
        parser::parse(text)
    }

    /// The text exactly as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Name of the root element as written, with its prefix.
    pub fn root_name(&self) -> &str {
        self.name(self.root())
    }

    /// The root element.
    pub(crate) fn root(&self) -> ElementId {
        0
    }

    pub(crate) fn element(&self, id: ElementId) -> &Element {
        &self.elements[id]
    }

    /// Name as written, with its prefix.
    pub(crate) fn name(&self, id: ElementId) -> &str {
        &self.text[self.elements[id].name.clone()]
    }

    /// Whether `id` is libvirt's element `name`: that name and no namespace.
    pub(crate) fn is(&self, id: ElementId, name: &str) -> bool {
        !self.elements[id].foreign && self.name(id) == name
    }

    /// Direct children of `id` that are libvirt's elements `name`, in order.
    pub(crate) fn children<'a>(
        &'a self,
        id: ElementId,
        name: &'a str,
    ) -> impl Iterator<Item = ElementId> + 'a {
        self.elements[id].children.iter().copied().filter(move |child| self.is(*child, name))
    }

    /// The first direct child `name`: libvirt reads no other.
    pub(crate) fn child(&self, id: ElementId, name: &str) -> Option<ElementId> {
        self.elements[id].children.iter().copied().find(|child| self.is(*child, name))
    }

    /// Attribute of exactly this name (a prefixed one is another attribute).
    pub(crate) fn attribute(&self, id: ElementId, name: &str) -> Option<&Attribute> {
        let attributes = &self.elements[id].attributes;
        attributes.iter().find(|attribute| &self.text[attribute.name.clone()] == name)
    }

    /// Value of an attribute, references resolved and white space normalised.
    pub(crate) fn attribute_value(&self, id: ElementId, name: &str) -> Option<String> {
        self.attribute(id, name).map(|attribute| self.decoded_value(attribute))
    }

    /// The decoded value of `attribute`.
    pub(crate) fn decoded_value(&self, attribute: &Attribute) -> String {
        characters::decode_attribute(&self.text[attribute.value.clone()])
    }

    /// Character data directly inside `id`, references resolved, comments left out.
    pub(crate) fn string_value(&self, id: ElementId) -> String {
        let pieces = &self.elements[id].texts;
        pieces.iter().map(|piece| characters::decode_text(&self.text[piece.clone()])).collect()
    }

    /// Comments and processing instructions inside `span`.
    pub(crate) fn asides_in(&self, span: &Range<usize>) -> impl Iterator<Item = &Aside> {
        let from = self.asides.partition_point(|aside| aside.span.start < span.start);
        self.asides[from..].iter().take_while(move |aside| aside.span.end <= span.end)
    }

    /// Whether `id` holds character data other than white space directly inside.
    pub(crate) fn has_text(&self, id: ElementId) -> bool {
        let mut pieces = self.elements[id].texts.iter();
        pieces.any(|piece| !self.text[piece.clone()].chars().all(characters::is_whitespace))
    }

    /// White space directly before byte `at`.
    pub(crate) fn whitespace_before(&self, at: usize) -> &str {
        let before = &self.text[..at];
        &before[before.trim_end_matches(characters::is_whitespace).len()..]
    }

    /// Namespace declarations outside `id` that names inside it need, as (prefix, URI as written).
    pub(crate) fn inherited_namespaces(&self, id: ElementId) -> Vec<(&str, &str)> {
        namespaces::inherited(self, id)
    }
}
