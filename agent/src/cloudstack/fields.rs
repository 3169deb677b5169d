//! The fields of a serialised object, none of whose values is ever repeated in an error: some are secret.

use serde_json::{Map, Value};

/// An object and its name.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    name: &'a str,
    map: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// Errors: it is no object, or has a field that is none of `known`, unless those are ignored.
    pub fn new(
        name: &'a str,
        value: &'a Value,
        known: &[&str],
        ignore_unknown: bool,
    ) -> Result<Self, String> {
        let map = value.as_object().ok_or_else(|| format!("{name} is no object"))?;
        let unknown = map.keys().find(|key| !known.contains(&key.as_str()));
        match unknown.filter(|_| !ignore_unknown) {
            Some(key) => Err(format!(
                "{name} has the field {:?}, whose meaning is not known here",
                shown(key)
            )),
            None => Ok(Self { name, map }),
        }
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// A field's value.
    ///
    /// Errors: it is missing.
    pub fn need(&self, key: &str) -> Result<&'a Value, String> {
        self.get(key).ok_or_else(|| format!("{} has no {key}", self.name))
    }

    /// A field that is there or not.
    pub fn value(&self, key: &str) -> Option<&'a Value> {
        self.get(key)
    }

    /// A text that is not empty; none where it is missing or empty.
    ///
    /// Errors: it is no text.
    pub fn text(&self, key: &str) -> Result<Option<String>, String> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok((!text.is_empty()).then(|| text.clone())),
            Some(_) => Err(format!("{} has a {key} that is no text", self.name)),
        }
    }

    /// The same, where it must be there.
    pub fn need_text(&self, key: &str) -> Result<String, String> {
        self.text(key)?.ok_or_else(|| format!("{} has no {key}", self.name))
    }

    /// A number that is not negative; 0 where it is missing.
    ///
    /// Errors: it is none.
    pub fn number(&self, key: &str) -> Result<u64, String> {
        match self.get(key) {
            None => Ok(0),
            Some(value) => value
                .as_u64()
                .ok_or_else(|| format!("{} has a {key} that is no number from 0 on", self.name)),
        }
    }

    /// Bytes, serialised as signed numbers.
    ///
    /// Errors: they are none.
    pub fn bytes(&self, key: &str) -> Result<Option<Vec<u8>>, String> {
        let wrong = || format!("{} has a {key} that is no list of bytes", self.name);
        let Some(value) = self.get(key) else { return Ok(None) };
        let byte = |value: &Value| {
            let number = i16::try_from(value.as_i64()?).ok()?;
            u8::try_from(number).or_else(|_| i8::try_from(number).map(i8::cast_unsigned)).ok()
        };
        let bytes: Option<Vec<u8>> = value.as_array().ok_or_else(wrong)?.iter().map(byte).collect();
        Ok(Some(bytes.ok_or_else(wrong)?).filter(|bytes| !bytes.is_empty()))
    }
}

/// A polymorphic object: `{"java.class.Name": {..}}`.
///
/// Errors: it is not of that form.
pub fn class_of<'a>(name: &str, value: &'a Value) -> Result<(&'a str, &'a Value), String> {
    let mut entries = value.as_object().into_iter().flatten();
    match (entries.next(), entries.next()) {
        (Some((class, fields)), None) => Ok((class, fields)),
        _ => Err(format!("{name} is no object of one class")),
    }
}

/// A name somebody else made, short enough for a line.
pub fn shown(name: &str) -> String {
    name.chars().take(100).collect()
}
