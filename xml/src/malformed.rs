//! Why a text is not the XML this crate accepts. Only the error lives here, no checking.

/// A text that is refused before anything is read from it.
///
/// The message carries the byte offset of the fault and a short excerpt, so that an operator can
/// find it in a dump of thousands of lines.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed xml at byte {offset}: {rule}, near {excerpt:?}")]
pub struct MalformedXml {
    /// Byte offset of the fault in the text.
    pub offset: usize,
    /// The rule that was broken.
    pub rule: MalformedRule,
    /// A few characters of the text from the fault on.
    pub excerpt: String,
}

/// The rules of XML 1.0, of its namespaces and of this crate that a text can break.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MalformedRule {
    /// Larger than a string libvirt can send over its protocol.
    #[error("the document has {size} bytes, more than {limit}")]
    TooLarge {
        /// Size of the text.
        size: usize,
        /// Largest size that is accepted.
        limit: usize,
    },
    /// Elements nested deeper than any libvirt document.
    #[error("elements are nested more than {limit} deep")]
    TooDeep {
        /// Deepest nesting that is accepted.
        limit: usize,
    },
    /// More elements than any libvirt document.
    #[error("the document has more than {limit} elements")]
    TooManyElements {
        /// Largest number that is accepted.
        limit: usize,
    },
    /// A character XML 1.0 cannot contain, not even escaped.
    #[error("character U+{0:04X} is not allowed in xml 1.0")]
    ForbiddenCharacter(u32),
    /// The text holds no element at all.
    #[error("there is no root element")]
    NoRoot,
    /// A second element, or an end tag, after the root was closed.
    #[error("there is more than one root element")]
    SeveralRoots,
    /// The document is another one than was asked for.
    #[error("the root element is <{found}>, not <{expected}>")]
    UnexpectedRoot {
        /// Name of the root.
        found: String,
        /// Name that was expected.
        expected: &'static str,
    },
    /// Character data, a reference or CDATA before or after the root.
    #[error("there is text outside the root element")]
    TextOutsideRoot,
    /// The text ends inside an element: it was cut off.
    #[error("the document ends before </{0}>: it is cut off")]
    Unclosed(String),
    /// An end tag that does not belong to the innermost open element.
    #[error("end tag </{found}> where </{expected}> was expected")]
    UnmatchedEnd {
        /// Name of the open element.
        expected: String,
        /// Name in the end tag.
        found: String,
    },
    /// A document type declaration, the carrier of entity bombs; libvirt never writes one.
    #[error("a document type declaration is not accepted")]
    Doctype,
    /// A reference to an entity other than the five predefined ones.
    #[error("entity &{0}; is not one of the five predefined ones")]
    UnknownEntity(String),
    /// A reference without `;`, or to a character XML 1.0 does not allow.
    #[error("a character or entity reference is not valid")]
    BadReference,
    /// `--` inside a comment.
    #[error("a comment contains --")]
    CommentHyphens,
    /// `]]>` in character data.
    #[error("character data contains ]]>")]
    CdataEndInText,
    /// The same attribute twice in one tag.
    #[error("attribute {0} occurs twice in one tag")]
    DuplicateAttribute(String),
    /// A namespace prefix no element in scope declares.
    #[error("namespace prefix {0} is not declared")]
    UnboundPrefix(String),
    /// An XML declaration anywhere but at the very start, or a target reserved for it.
    #[error("an xml declaration is only allowed at the very start")]
    MisplacedDeclaration,
    /// The declaration names a version or an encoding the text does not have.
    #[error("the xml declaration is not valid for an utf-8 text")]
    BadDeclaration,
    /// A name that is not a (qualified) XML name.
    #[error("{0:?} is not an xml name")]
    BadName(String),
    /// A tag that does not follow the grammar.
    #[error("a tag is not well-formed")]
    BadTag,
    /// The tokenizer could not go on, mostly because the text is cut off inside markup.
    #[error("{0}")]
    Syntax(String),
}

impl MalformedXml {
    /// The error for a fault of `text` at `offset`.
    pub(crate) fn at(text: &str, offset: usize, rule: MalformedRule) -> Self {
        const EXCERPT_CHARACTERS: usize = 32;
        let mut start = offset.min(text.len());
        while !text.is_char_boundary(start) {
            start -= 1;
        }
        let excerpt = text[start..].chars().take(EXCERPT_CHARACTERS).collect();
        MalformedXml { offset, rule, excerpt }
    }
}
