//! Commands as a management server of CloudStack serialises them, for the pools of the laboratory.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};
use volferry_tests::agent::Agent;
use volferry_tests::lab::{Lab, LabError};

/// What a management server sends along for a Ceph pool and nobody may repeat.
const USER_INFO: &str = "volferry:bm90IGEga2V5IGF0IGFsbA==";

/// A pool of the laboratory as primary storage.
fn store(lab: &Lab, pool: &str) -> Result<Value, LabError> {
    let ceph = |ceph: &str| -> Result<Value, LabError> {
        let port: u16 = lab.setting("VOLFERRY_LAB_MON_PORT")?.parse().expect("a port");
        Ok(json!({ "poolType": "RBD", "host": "127.0.0.1", "path": ceph, "port": port }))
    };
    let mut store = match pool {
        "ceph-a" => ceph("vf-a")?,
        "ceph-b" => ceph("vf-b")?,
        // Mounted under its uuid, whatever its export is called.
        "nfs" => {
            json!({ "poolType": "NetworkFilesystem", "host": "192.0.2.5", "path": "/export", "port": 2049 })
        }
        folder => {
            json!({ "poolType": "SharedMountPoint", "host": "localhost", "path": lab.pool(folder)?, "port": 0 })
        }
    };
    store["uuid"] = json!(pool);
    Ok(json!({ "org.apache.cloudstack.storage.to.PrimaryDataStoreTO": store }))
}

/// A volume; none of its fields that are null.
pub fn volume(lab: &Lab, pool: &str, path: Option<&str>, format: &str) -> Result<Value, LabError> {
    let mut fields = json!({
        "uuid": "5d0f6a4e-7c1b-4d8e-9a55-0a2b4c6d8e10",
        "volumeType": "DATADISK",
        "dataStore": store(lab, pool)?,
        "format": format,
        "hypervisorType": "KVM",
    });
    if let Some(path) = path {
        fields["path"] = json!(path);
    }
    Ok(json!({ "org.apache.cloudstack.storage.to.VolumeObjectTO": fields }))
}

/// `MigrateVolumeCommand` of a guest's disk, which keeps its name.
pub fn migrate(
    lab: &Lab,
    guest: &str,
    (from, path, format): (&str, &str, &str),
    to: &str,
) -> Result<Value, LabError> {
    let of_destination = store(lab, to)?;
    let known = &of_destination["org.apache.cloudstack.storage.to.PrimaryDataStoreTO"];
    let pool = json!({
        "id": 7, "uuid": to, "host": known["host"], "path": known["path"], "port": known["port"],
        "type": known["poolType"], "userInfo": USER_INFO,
    });
    Ok(json!([{ "com.cloud.agent.api.storage.MigrateVolumeCommand": {
        "volumeId": 42,
        "volumePath": path,
        "pool": pool,
        "attachedVmName": guest,
        "volumeType": "DATADISK",
        "srcData": volume(lab, from, Some(path), format)?,
        "destData": volume(lab, to, Some(path), format)?,
        "contextMap": { "logid": "5f0c1e2d" },
        "wait": 3600,
        "bypassHostMaintenance": false,
    } }]))
}

/// `CopyCommand` of a volume nobody uses, into a new one.
pub fn copy(source: Value, destination: Value) -> Value {
    json!([{ "org.apache.cloudstack.storage.command.CopyCommand": {
        "srcTO": source, "destTO": destination, "executeInSequence": true, "options": {}, "options2": {}, "wait": 10800,
    } }])
}

/// Has a command carried out: the exit code, and the answer's fields.
pub fn run(lab: &Lab, agent: &Agent, command: &Value) -> Result<(i32, Value), LabError> {
    let mounts = lab.pool("nfs")?.parent().expect("a folder of pools").display().to_string();
    let failed =
        |text: String| LabError::Command { command: "volferry cloudstack run".into(), text };
    let mut child = agent
        .command(&["cloudstack", "run", "--mounts", &mounts])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(command.to_string().as_bytes()).map_err(|error| failed(error.to_string()))?;
    drop(input);
    let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    for said in [&output.stdout, &output.stderr] {
        assert!(!String::from_utf8_lossy(said).contains(USER_INFO), "the key is repeated");
    }
    let answers: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))?;
    let answer = answers[0].as_object().and_then(|answer| answer.values().next()).cloned();
    Ok((output.status.code().unwrap_or(-1), answer.expect("an answer of one class")))
}
