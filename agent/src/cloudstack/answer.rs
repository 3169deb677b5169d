//! What the management server waits for.

use serde_json::{Map, Value, json};

use super::command::Kind;

/// A volume that was moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// Its path in the destination pool.
    pub path: String,
    /// Its format: `RAW` or `QCOW2`.
    pub format: &'static str,
    /// `luks` or `luks2`; none of a plain one.
    pub encrypt_format: Option<&'static str>,
    /// What to know; empty when there is nothing.
    pub details: String,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It was carried out.
    Moved(Moved),
    /// It was not; why.
    Failed(String),
}

impl Answer {
    /// That of a command after one that failed.
    pub fn stopped() -> Self {
        Self::Failed("Stopped by previous failure".to_owned())
    }

    /// Whether the command was carried out.
    pub fn is_good(&self) -> bool {
        matches!(self, Self::Moved(_))
    }

    /// The answer as it is serialised, none of its fields null.
    pub fn json(&self, kind: Kind) -> Value {
        let mut fields = Map::new();
        match self {
            Self::Failed(details) => {
                fields.insert("result".into(), json!(false));
                fields.insert("details".into(), json!(details));
            }
            Self::Moved(moved) => {
                match kind {
                    Kind::Copy => fields.insert("newData".into(), new_data(moved)),
                    Kind::Migrate | Kind::Unsupported => {
                        fields.insert("volumePath".into(), json!(moved.path))
                    }
                };
                fields.insert("result".into(), json!(true));
                if !moved.details.is_empty() {
                    fields.insert("details".into(), json!(moved.details));
                }
            }
        }
        fields.insert("contextMap".into(), json!({}));
        fields.insert("wait".into(), json!(0));
        fields.insert("bypassHostMaintenance".into(), json!(false));
        json!({ class(kind): fields })
    }
}

/// The answer to what is no command at all.
pub fn not_understood(why: &str) -> Value {
    json!({ "com.cloud.agent.api.Answer": { "result": false, "details": why } })
}

fn class(kind: Kind) -> &'static str {
    match kind {
        Kind::Migrate => "com.cloud.agent.api.storage.MigrateVolumeAnswer",
        Kind::Copy => "org.apache.cloudstack.storage.command.CopyCmdAnswer",
        Kind::Unsupported => "com.cloud.agent.api.UnsupportedAnswer",
    }
}

fn new_data(moved: &Moved) -> Value {
    let mut volume = json!({ "path": moved.path, "format": moved.format });
    if let Some(format) = moved.encrypt_format {
        volume["encryptFormat"] = json!(format);
    }
    json!({ "org.apache.cloudstack.storage.to.VolumeObjectTO": volume })
}
