//! The `rbd:` string and monitor lists against those who read them: our own reader, QEMU and Ceph.
//! No cluster is needed: the monitors named here are documentation addresses nobody answers at.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/tools.rs"]
mod tools;

use std::path::Path;

use proptest::prelude::*;
use rbdutils::monitors::MonitorList;
use rbdutils::names::{ImageName, ImageSpec, NamespaceName, PoolName, SnapshotName};
use rbdutils::qemu::{QemuError, RbdString, escape, unescape};
use secrecy::ExposeSecret;

fn name() -> impl Strategy<Value = String> {
    r"[a-z:=;,\\#. é]{1,12}".prop_filter("a name", |n| ImageName::new(n.as_str()).is_ok())
}

fn image_spec() -> impl Strategy<Value = ImageSpec> {
    (name(), proptest::option::of(name()), name(), proptest::option::of(name())).prop_map(
        |(pool, namespace, image, snapshot)| ImageSpec {
            pool: PoolName::new(pool).unwrap(),
            namespace: namespace.map(|n| NamespaceName::new(n).unwrap()),
            image: ImageName::new(image).unwrap(),
            snapshot: snapshot.map(|n| SnapshotName::new(n).unwrap()),
        },
    )
}

fn rbd_string() -> impl Strategy<Value = RbdString> {
    let value = || r"[a-z0-9:=;,@/\\+ é]{0,16}";
    let monitors = prop_oneof![
        Just("192.0.2.11,2001:db8::12"),
        Just("[v2:192.0.2.11:3300,v1:192.0.2.11:6789] 192.0.2.13:40001"),
        Just("mon1,mon2:40001"),
        Just("v1:[2001:db8::1]:6789"),
    ];
    (
        image_spec(),
        proptest::option::of(value()),
        proptest::option::of(value()),
        proptest::option::of((monitors, 0_u32..65536)),
        proptest::option::of(value()),
        proptest::collection::vec(("x_[a-z:=@]{0,5}", value()), 0..4),
    )
        .prop_map(|(image, user, conf, monitors, key, options)| RbdString {
            user,
            conf,
            monitors: monitors.map(|(text, port)| MonitorList::parse(text, port).unwrap()),
            key: key.map(Into::into),
            options,
            ..RbdString::new(image)
        })
}

proptest! {
    #[test]
    fn what_was_written_reads_back_the_same(rbd in rbd_string()) {
        let text = rbd.to_secret_string();
        prop_assert_eq!(text.expose_secret().parse::<RbdString>().unwrap(), rbd);
    }

    #[test]
    fn unescape_undoes_escape(text in any::<String>()) {
        prop_assert_eq!(unescape(&escape(&text)), text);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in r"rbd:[a-c:=;,@/\\]{0,24}") {
        let _ = text.parse::<RbdString>();
    }
}

#[test]
fn the_key_is_not_shown() {
    let rbd: RbdString = "rbd:p/i:key=SECRET==:id=a".parse().unwrap();
    assert_eq!(rbd.key.as_ref().unwrap().expose_secret(), "SECRET==");
    assert_eq!(rbd.to_string(), "rbd:p/i:id=a:key=***");
    assert!(!format!("{rbd:?}").contains("SECRET"));
    assert!(rbd.to_secret_string().expose_secret().contains(r"key=SECRET\=\="));
    let error = "rbd:p/i:keySECRET".parse::<RbdString>().unwrap_err();
    assert_eq!(error, QemuError::NoValue { position: 1 });
}

#[test]
fn strings_qemu_refuses_too() {
    for text in ["rbd:pool", r"rbd:po\/ol", "nbd:p/i", "rbd:p/i:id", "rbd:p/i:", "rbd:/i", "rbd:p/"]
    {
        assert!(text.parse::<RbdString>().is_err(), "{text}");
    }
    assert!("rbd:p/i:mon_host=a b=c".parse::<RbdString>().is_err());
}

/// QEMU hands each option to librados; a name librados does not know comes back in the message.
#[test]
fn qemu_reads_option_names_as_we_write_them() {
    let Some(mut qemu) = tools::tool("qemu_reads_option_names", "qemu-img") else { return };
    let rbd = RbdString::new("pool/image".parse().unwrap())
        .with_user("us@er:x=y")
        .with_conf("/dev/null")
        .with_option(r"no:such@op=tion\", "a");
    let output = qemu.args(["info", rbd.to_secret_string().expose_secret()]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains(r"invalid conf option no:such@op=tion\:"), "{message}");
}

/// librados names its log file by a value QEMU unescaped, and writes the monitors it read into it.
fn log_of_qemu(mut qemu: std::process::Command, folder: &Path, monitors: &MonitorList) -> String {
    let log = folder.join(r"we:i=rd@na;m,e\.log");
    let rbd = RbdString::new("pool/image".parse().unwrap())
        .with_user("us@er")
        .with_conf("/dev/null")
        .with_monitors(monitors.clone())
        .with_key("AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA==".to_owned().into())
        .with_option("client_mount_timeout", "1")
        .with_option("debug_monc", "10")
        .with_option("log_file", log.to_str().unwrap());
    let output = qemu.args(["info", rbd.to_secret_string().expose_secret()]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("error connecting"), "{message}");
    std::fs::read_to_string(log).unwrap()
}

#[test]
fn qemu_reads_values_and_monitors_as_we_write_them() {
    for (text, port, expected) in [
        ("192.0.2.11", 6789, &["v1:192.0.2.11:6789/0"][..]),
        ("192.0.2.11", 0, &["v2:192.0.2.11:3300/0", "v1:192.0.2.11:6789/0"]),
        (
            "2001:db8::1:6789,[2001:db8::2]:3300",
            6789,
            &["v1:[2001:db8::1:6789]:6789/0", "v2:[2001:db8::2]:3300/0"],
        ),
        (
            "[v2:192.0.2.11:3300/0,v1:192.0.2.11:6789/0] v1:192.0.2.12:40001",
            0,
            &["[v2:192.0.2.11:3300/0,v1:192.0.2.11:6789/0]", "v1:192.0.2.12:40001/0"],
        ),
    ] {
        let Some(qemu) = tools::tool("qemu_reads_values", "qemu-img") else { return };
        let folder = tempfile::tempdir().unwrap();
        let list = MonitorList::parse(text, port).unwrap();
        let log = log_of_qemu(qemu, folder.path(), &list);
        for address in expected {
            assert!(log.contains(&format!(": {address} mon.")), "{text}: no {address} in\n{log}");
        }
    }
}

/// Every accepted list of addresses in the table of cases, given to Ceph in a ceph.conf.
#[test]
fn ceph_reads_every_accepted_list() {
    let cases = include_str!("../../fixtures/rbd/monitors.tsv");
    for line in cases.lines().skip(1) {
        let Some(mut monmaptool) = tools::tool("ceph_reads_every_list", "monmaptool") else {
            return;
        };
        let cells: Vec<&str> = line.split('\t').collect();
        let text = cells[0].replace("\\t", "\t").replace("\\n", "\n");
        let Ok(list) = MonitorList::parse(&text, cells[1].parse().unwrap()) else { continue };
        let written = list.to_ceph_conf();
        if written.contains("mon") {
            continue; // names would be resolved
        }
        let folder = tempfile::tempdir().unwrap();
        let (conf, map) = (folder.path().join("ceph.conf"), folder.path().join("monmap"));
        let fsid = "11111111-1111-1111-1111-111111111111";
        std::fs::write(&conf, format!("[global]\nfsid = {fsid}\nmon_host = {written}\n")).unwrap();
        monmaptool.arg("-c").arg(&conf).args(["--generate", "--create"]).arg(&map);
        let output = monmaptool.output().unwrap();
        assert!(output.status.success(), "{written}: {}", String::from_utf8_lossy(&output.stderr));
        let mut print = std::process::Command::new("monmaptool");
        let output = print.arg("--print").arg(&map).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        for entry in list.entries() {
            let entry = entry.to_string().to_lowercase();
            let bare = entry.trim_start_matches("any:").trim_matches(['[', ']']);
            for address in bare.split(',').map(|a| a.trim_end_matches(['[', ']'])) {
                assert!(printed.contains(address), "{written}: no {address} in\n{printed}");
            }
        }
    }
}
