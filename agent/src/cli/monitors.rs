//! `volferry rbd monitors`: a list of monitors, checked and written for Ceph, QEMU or libvirt.

use rbdutils::monitors::{MonitorError, MonitorList};
use serde_json::{Value, json};

use super::arguments::{MonitorsArguments, MonitorsForm};
use super::failure::Failure;
use super::output::Output;
use crate::api::status::Exit;

/// Runs it. Invalid input is a mistake of usage, with nothing on standard output.
pub fn run(arguments: &MonitorsArguments, output: &mut Output) -> Result<Exit, Failure> {
    let list = MonitorList::parse(&arguments.list, arguments.port).map_err(invalid)?;
    let (lines, json): (Vec<String>, Value) = match arguments.form {
        MonitorsForm::List => one(list.to_ceph_conf()),
        MonitorsForm::Qemu => one(list.to_qemu_mon_host()),
        MonitorsForm::Hosts => {
            let hosts = list.to_libvirt_hosts().map_err(invalid)?;
            let lines = hosts.iter().map(ToString::to_string).collect();
            let hosts: Vec<_> =
                hosts.iter().map(|host| json!({"name": host.name, "port": host.port})).collect();
            (lines, json!({ "hosts": hosts }))
        }
    };
    if output.is_json() {
        output.json(&json);
    } else {
        lines.iter().for_each(|line| output.line(line));
    }
    Ok(Exit::Done)
}

fn one(text: String) -> (Vec<String>, Value) {
    let json = json!({ "monitors": text });
    (vec![text], json)
}

fn invalid(error: MonitorError) -> Failure {
    Failure::new(Exit::Usage, error.to_string())
}
