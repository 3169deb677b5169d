//! Commands of CloudStack as its management server serialises them, the requests they become, and their answers.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use volferry_agent::api::pb;
use volferry_agent::cloudstack::answer::not_understood;
use volferry_agent::cloudstack::{Answer, Kind, Moved, Place, migrate_request, read};

/// The agent's pools: none is named after its uuid.
fn pools() -> Vec<pb::Pool> {
    let ceph = |name: &str, pool: &str| pb::Pool {
        name: name.to_owned(),
        r#type: "rbd".to_owned(),
        ceph_pool: pool.to_owned(),
        monitors: "10.0.0.2:6789,10.0.0.9:6789".to_owned(),
        ..Default::default()
    };
    let nfs = pb::Pool {
        name: "nfs".to_owned(),
        r#type: "nfs".to_owned(),
        folder: "/mnt/c1000000-0000-4000-8000-000000000003".to_owned(),
        ..Default::default()
    };
    vec![ceph("hdd", "cs-hdd"), ceph("ssd", "cs-ssd"), nfs]
}

fn cases() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cloudstack");
    let files = fs::read_dir(folder).expect("fixtures/cloudstack");
    let case = |path: &Path| {
        let text = fs::read_to_string(path).expect("a readable case");
        (path.display().to_string(), serde_json::from_str(&text).expect("a case in JSON"))
    };
    files.map(|file| case(&file.expect("a file").path())).collect()
}

/// What a command becomes, in the words of the cases.
fn become_of(command: &Value, ignore: bool) -> Value {
    let commands = match read(command, ignore) {
        Ok(commands) => commands,
        Err(why) => return json!({ "unreadable": why }),
    };
    let [(_, command)] = &commands[..] else { panic!("one command: {commands:?}") };
    let pools = pools();
    let place = Place { pools: &pools, mounts: Path::new("/mnt") };
    let request = command.clone().and_then(|it| migrate_request(&it, "op".to_owned(), &place));
    match request {
        Err(why) => json!({ "error": why }),
        Ok(request) => told(&request),
    }
}

fn told(request: &pb::MigrateRequest) -> Value {
    let mut told = json!({
        "operation_id": request.operation_id,
        "to": request.to_pool,
        "wait_seconds": request.deadline.as_ref().map_or(0, |wait| wait.seconds),
    });
    assert_eq!(request.live, request.volume.is_none(), "{told}");
    assert_eq!(request.keep_source_name, request.volume.is_some(), "{told}");
    assert!(!request.decrypt, "{told}");
    let mut text = |key: &str, text: &str| {
        if !text.is_empty() {
            told[key] = json!(text);
        }
    };
    text("domain", &request.domain);
    text("disk", &request.disk);
    text("destination", &request.destination_volume);
    if let Some(volume) = &request.volume {
        let format = volume.format().as_str_name().trim_start_matches("VOLUME_FORMAT_");
        told["volume"] =
            json!([volume.pool, volume.name, format.to_lowercase(), volume.encryption]);
    }
    if !request.passphrase.is_empty() {
        told["passphrase"] = json!(request.passphrase);
    }
    if !request.destination_passphrase.is_empty() {
        told["destination_passphrase"] = json!(request.destination_passphrase);
    }
    if !request.accept_encryption.is_empty() {
        told["accept"] = json!(request.accept_encryption);
    }
    told
}

#[test]
fn every_command_becomes_what_its_case_says() {
    let cases = cases();
    for (name, case) in &cases {
        let (command, mut expected) = (&case["command"], case["expected"].clone());
        if let Some(ignored) = expected.as_object_mut().and_then(|all| all.remove("ignored")) {
            assert_eq!(become_of(command, true), ignored, "{name}, what is unknown ignored");
        }
        let found = become_of(command, false);
        for key in ["error", "unreadable"] {
            let Some(part) = expected[key].as_str() else { continue };
            let text = found[key].as_str().unwrap_or_else(|| panic!("{name}: {found}"));
            assert!(text.contains(part), "{name}: {text}");
        }
        if expected.get("error").is_none() && expected.get("unreadable").is_none() {
            assert_eq!(found, expected, "{name}");
        }
    }
    assert!(cases.len() > 20, "{} cases", cases.len());
}

/// No secret of any case is in any error, nor in what is shown of a command.
#[test]
fn nothing_secret_is_repeated() {
    for (name, case) in cases() {
        let found = become_of(&case["command"], false);
        let mut said = [&found["error"], &found["unreadable"]].map(Value::to_string).join(" ");
        if let Ok(commands) = read(&case["command"], true) {
            said.push_str(&format!("{commands:?}"));
        }
        for secret in ["SECRET", "c2VjcmV0", "109, -17", "109, 239"] {
            assert!(!said.contains(secret), "{name}: {said}");
        }
    }
    // The search finds what is there.
    assert!(format!("{:?}", vec![109_u8, 239]).contains("109, 239"));
}

/// A command with anything taken out or put in the place of anything gets an answer, and never a panic.
#[test]
fn whatever_is_changed_in_a_command_is_answered() {
    fn mutilate(value: &Value, each: &mut dyn FnMut(Value)) {
        let others =
            [Value::Null, json!(-1), json!(1e300), json!("\u{0}x/../y"), json!([]), json!({})];
        others.into_iter().for_each(&mut *each);
        match value {
            Value::Object(map) => {
                for (key, inner) in map {
                    let mut without = map.clone();
                    without.remove(key);
                    each(Value::Object(without));
                    mutilate(inner, &mut |changed| {
                        let mut whole = map.clone();
                        whole.insert(key.clone(), changed);
                        each(Value::Object(whole));
                    });
                }
            }
            Value::Array(list) => {
                for (index, inner) in list.iter().enumerate() {
                    mutilate(inner, &mut |changed| {
                        let mut whole = list.clone();
                        whole[index] = changed;
                        each(Value::Array(whole));
                    });
                }
            }
            _ => {}
        }
    }
    let mut count = 0;
    for (_, case) in cases() {
        mutilate(&case["command"], &mut |command| {
            become_of(&command, count % 2 == 0);
            count += 1;
        });
    }
    assert!(count > 5000, "{count} changes");
}

#[test]
fn answers_have_the_classes_and_fields_the_management_server_reads() {
    let moved = Moved {
        path: "v.qcow2".to_owned(),
        format: "QCOW2",
        encrypt_format: Some("luks"),
        details: String::new(),
    };
    let rest = |mut fields: Value| {
        fields["contextMap"] = json!({});
        fields["wait"] = json!(0);
        fields["bypassHostMaintenance"] = json!(false);
        fields
    };
    assert_eq!(
        Answer::Moved(moved.clone()).json(Kind::Migrate),
        json!({ "com.cloud.agent.api.storage.MigrateVolumeAnswer":
            rest(json!({ "volumePath": "v.qcow2", "result": true })) })
    );
    let volume = json!({ "path": "v.qcow2", "format": "QCOW2", "encryptFormat": "luks" });
    let new_data = json!({ "org.apache.cloudstack.storage.to.VolumeObjectTO": volume });
    assert_eq!(
        Answer::Moved(moved).json(Kind::Copy),
        json!({ "org.apache.cloudstack.storage.command.CopyCmdAnswer":
            rest(json!({ "newData": new_data, "result": true })) })
    );
    assert_eq!(
        Answer::stopped().json(Kind::Unsupported),
        json!({ "com.cloud.agent.api.UnsupportedAnswer":
            rest(json!({ "result": false, "details": "Stopped by previous failure" })) })
    );
    assert_eq!(not_understood("x")["com.cloud.agent.api.Answer"]["result"], false);
}
