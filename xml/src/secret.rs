//! A secret of libvirt for one volume, as facts and as text. Its value never appears in either.

use crate::document::Document;
use crate::escape::attribute_value;
use crate::malformed::{MalformedRule, MalformedXml};

/// The XML of one secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretXml {
    /// `<uuid>`.
    pub uuid: String,
    /// `<volume>` of `<usage type='volume'>`; none of a secret for something else.
    pub volume: Option<String>,
    /// `<description>`.
    pub description: Option<String>,
    /// `ephemeral=`: it is gone with the daemon.
    pub ephemeral: bool,
    /// `private=`: its value cannot be read back.
    pub private: bool,
}

impl SecretXml {
    /// Parses the text and reads the facts.
    ///
    /// # Errors
    /// [`MalformedXml`] for every text [`Document::parse`] refuses, and when the root is not
    /// libvirt's `<secret>`.
    pub fn parse(text: &str) -> Result<Self, MalformedXml> {
        let document = Document::parse(text)?;
        let root = document.root();
        if !document.is(root, "secret") {
            let start = document.element(root).span.start;
            let found = document.root_name().to_owned();
            let rule = MalformedRule::UnexpectedRoot { found, expected: "secret" };
            return Err(MalformedXml::at(text, start, rule));
        }
        let text = |id, name| document.child(id, name).map(|child| document.string_value(child));
        let flag = |name| document.attribute_value(root, name).as_deref() == Some("yes");
        let usage = document.child(root, "usage");
        let of_volume =
            |usage: &_| document.attribute_value(*usage, "type").as_deref() == Some("volume");
        Ok(Self {
            uuid: text(root, "uuid").unwrap_or_default(),
            volume: usage.filter(of_volume).and_then(|usage| text(usage, "volume")),
            description: text(root, "description"),
            ephemeral: flag("ephemeral"),
            private: flag("private"),
        })
    }

    /// The text libvirt defines the secret from. Values must be
    /// [representable](crate::is_representable).
    pub fn to_text(&self) -> String {
        let word = |flag| if flag { "yes" } else { "no" };
        let element = |name: &str, value: &Option<String>| match value {
            Some(value) => format!("<{name}>{}</{name}>", attribute_value(value)),
            None => String::new(),
        };
        let usage = match element("volume", &self.volume) {
            none if none.is_empty() => none,
            volume => format!("<usage type='volume'>{volume}</usage>"),
        };
        format!(
            "<secret ephemeral='{}' private='{}'><uuid>{}</uuid>{}{usage}</secret>",
            word(self.ephemeral),
            word(self.private),
            attribute_value(&self.uuid),
            element("description", &self.description),
        )
    }
}
