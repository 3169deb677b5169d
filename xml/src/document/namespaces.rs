//! Namespace scopes while parsing, and what a fragment needs when it leaves its document.

use std::collections::{BTreeMap, HashMap};

use super::characters::decode_attribute;
use super::tag::{Fault, StartTag};
use super::{Document, ElementId};
use crate::malformed::MalformedRule;

/// The prefixes in scope; the empty prefix stands for the default namespace.
#[derive(Default)]
pub(super) struct Scopes<'a> {
    /// For each prefix the innermost declaration last: whether it binds to a namespace at all.
    bound: HashMap<&'a str, Vec<bool>>,
    /// Prefixes declared by each open element.
    declared: Vec<Vec<&'a str>>,
}

impl<'a> Scopes<'a> {
    /// Enters the element of `tag`; answers whether it is in a namespace.
    pub(super) fn enter(&mut self, text: &'a str, tag: &StartTag) -> Result<bool, Fault> {
        let mut declared = Vec::new();
        for attribute in &tag.attributes {
            let Some(prefix) = declared_prefix(&text[attribute.name.clone()]) else { continue };
            let uri = decode_attribute(&text[attribute.value.clone()]);
            if !prefix.is_empty() && uri.is_empty() {
                return Err(unbound(attribute.name.start, prefix));
            }
            self.bound.entry(prefix).or_default().push(!uri.is_empty());
            declared.push(prefix);
        }
        self.declared.push(declared);
        for attribute in &tag.attributes {
            let name = &text[attribute.name.clone()];
            if declared_prefix(name).is_none() {
                self.check_prefix(name, attribute.name.start)?;
            }
        }
        let name = &text[tag.name.clone()];
        self.check_prefix(name, tag.name.start)?;
        Ok(name.contains(':') || self.is_bound(""))
    }

    /// Leaves the innermost element.
    pub(super) fn leave(&mut self) {
        for prefix in self.declared.pop().unwrap_or_default() {
            if let Some(bindings) = self.bound.get_mut(prefix) {
                bindings.pop();
            }
        }
    }

    fn is_bound(&self, prefix: &str) -> bool {
        self.bound.get(prefix).and_then(|bindings| bindings.last()).copied().unwrap_or(false)
    }

    fn check_prefix(&self, name: &str, offset: usize) -> Result<(), Fault> {
        match name.split_once(':') {
            Some((prefix, _)) if prefix != "xml" && !self.is_bound(prefix) => {
                Err(unbound(offset, prefix))
            }
            _ => Ok(()),
        }
    }
}

fn unbound(offset: usize, prefix: &str) -> Fault {
    (offset, MalformedRule::UnboundPrefix(prefix.to_owned()))
}

/// The prefix an attribute declares: empty for `xmlns`, none for an ordinary attribute.
fn declared_prefix(attribute: &str) -> Option<&str> {
    match attribute.strip_prefix("xmlns")? {
        "" => Some(""),
        rest => rest.strip_prefix(':'),
    }
}

/// Declarations outside `top` that names inside it need, as (prefix, URI as written).
pub(super) fn inherited(document: &Document, top: ElementId) -> Vec<(&str, &str)> {
    let mut needed = BTreeMap::new();
    let mut pending = vec![top];
    while let Some(id) = pending.pop() {
        let element = document.element(id);
        pending.extend(&element.children);
        let attributes = element.attributes.iter().map(|attribute| &attribute.name);
        for name in std::iter::once(&element.name).chain(attributes) {
            let Some((prefix, _)) = document.text()[name.clone()].split_once(':') else { continue };
            if needed.contains_key(prefix) {
                continue;
            }
            if let Some((owner, uri)) = declaration(document, id, prefix)
                && document.element(owner).span.start < document.element(top).span.start
            {
                needed.insert(prefix, uri);
            }
        }
    }
    needed.into_iter().collect()
}

/// The innermost declaration of `prefix` in scope at `id`: the element that has it, and the URI.
fn declaration<'a>(
    document: &'a Document,
    id: ElementId,
    prefix: &str,
) -> Option<(ElementId, &'a str)> {
    let mut scope = Some(id);
    while let Some(owner) = scope {
        let element = document.element(owner);
        let found = element.attributes.iter().find(|attribute| {
            declared_prefix(&document.text()[attribute.name.clone()]) == Some(prefix)
        });
        if let Some(attribute) = found {
            return Some((owner, &document.text()[attribute.value.clone()]));
        }
        scope = element.parent;
    }
    None
}
