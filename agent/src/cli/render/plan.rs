//! Plans: one JSON shape for both forms of `volferry plan`, and its text.

use serde_json::{Value, json};

use super::json::text;
use crate::api::convert::words::word;
use crate::api::pb;
use crate::cli::output::{Output, Tone, one_line};
use crate::spec::Bytes;

/// An accepted plan of the agent, in the shape the offline form has too.
pub fn accepted(plan: &pb::PlanResponse) -> Value {
    let volume = |volume: &Option<pb::Volume>, format: pb::VolumeFormat| {
        let volume = volume.clone().unwrap_or_default();
        json!({
            "pool": text(&volume.pool),
            "volume": volume.name,
            "location": volume.location,
            "format": word(format.as_str_name(), "VOLUME_FORMAT_"),
        })
    };
    let mut destination = volume(&plan.destination, plan.destination_format());
    destination["size_bytes"] = json!(plan.virtual_bytes);
    destination["xml"] = json!(plan.destination_xml);
    destination["encryption"] = match plan.destination_encryption.as_str() {
        "" => Value::Null,
        scheme => json!({ "scheme": scheme, "secret_uuid": plan.destination_secret_uuid }),
    };
    destination["pool_of_libvirt"] = json!(plan.destination_pool_of_libvirt);
    json!({
        "verdict": "accepted",
        "refusal": null,
        "domain": plan.domain.as_ref().map(|domain| json!({ "name": domain.name, "uuid": domain.uuid })),
        "disk": text(&plan.disk),
        "source": volume(&plan.source, plan.source_format()),
        "destination": destination,
        "flags": plan.flags,
        "steps": plan.steps.iter().map(|step| step.text.as_str()).collect::<Vec<_>>(),
        "warnings": plan.warnings,
        "unchecked": [],
    })
}

/// A refused one.
pub fn refused(refusal: &Value) -> Value {
    json!({
        "verdict": "refused",
        "refusal": refusal,
        "source": null,
        "destination": null,
        "flags": [],
        "steps": [],
        "warnings": [],
        "unchecked": [],
    })
}

/// The text of a plan of either form.
pub fn show(plan: &Value, output: &mut Output) {
    let verdict = plan["verdict"].as_str().unwrap_or("unknown");
    let tone = if verdict == "accepted" { Tone::Good } else { Tone::Bad };
    let verdict = output.paint(verdict, tone);
    let code = plan["refusal"]["code"].as_str().unwrap_or_default();
    let message = plan["refusal"]["message"].as_str().unwrap_or_default();
    output.line(&match code {
        "" => verdict,
        code => format!("{verdict}: {code}: {}", one_line(message)),
    });
    let mut field = |name: &str, value: &str| {
        if !value.is_empty() {
            output.line(&format!("  {name:<13} {}", one_line(value)));
        }
    };
    field("source", &place(&plan["source"]));
    field("destination", &place(&plan["destination"]));
    if plan["destination"]["pool_of_libvirt"] == true {
        field("pool", "an active one of libvirt; the configuration has none of that name");
    }
    if let Some(scheme) = plan["destination"]["encryption"]["scheme"].as_str() {
        field("encryption", scheme);
    }
    field("flags", &strings(&plan["flags"]).join(" "));
    if let Some(bytes) = plan["destination"]["size_bytes"].as_u64() {
        field("size", &Bytes(bytes).to_string());
    }
    for (number, step) in strings(&plan["steps"]).into_iter().enumerate() {
        field(&format!("step {}", number + 1), step);
    }
    for warning in strings(&plan["warnings"]) {
        field("warning", warning);
    }
    for unchecked in strings(&plan["unchecked"]) {
        field("not checked", unchecked);
    }
}

fn place(volume: &Value) -> String {
    let part = |key: &str| volume[key].as_str().unwrap_or_default().to_owned();
    let place = match part("location") {
        location if location.is_empty() => part("volume"),
        location => location,
    };
    let details: Vec<_> =
        [part("pool"), part("format")].into_iter().filter(|detail| !detail.is_empty()).collect();
    match (place.is_empty(), details.is_empty()) {
        (true, true) => String::new(),
        (false, true) => place,
        _ => format!("{place} ({})", details.join(", ")),
    }
}

fn strings(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}
