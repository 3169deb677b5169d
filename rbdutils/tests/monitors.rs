//! Monitor lists as people write them: a table of cases, and properties of every accepted list.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use rbdutils::monitors::{EntryRule, MonitorError, MonitorList};

const CASES: &str = include_str!("../../fixtures/rbd/monitors.tsv");

fn unescape(text: &str) -> String {
    text.replace("\\t", "\t").replace("\\n", "\n")
}

fn render(input: &str, port: u32, form: &str) -> Result<String, MonitorError> {
    let list = MonitorList::parse(input, port)?;
    match form {
        "list" => Ok(list.to_ceph_conf()),
        "qemu" => Ok(list.to_qemu_mon_host()),
        "hosts" => {
            let hosts = list.to_libvirt_hosts()?;
            Ok(hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
        }
        other => panic!("unknown form {other}"),
    }
}

/// `||` separates equally good answers, `ERROR` stands for a refusal.
#[test]
fn every_case_of_the_table() {
    let mut wrong = Vec::new();
    for (number, line) in CASES.lines().enumerate().skip(1) {
        let cells: Vec<&str> = line.split('\t').collect();
        let [input, port, form, expected, why] = cells[..] else {
            panic!("line {} has {} cells", number + 1, cells.len());
        };
        let result = render(&unescape(input), port.parse().unwrap(), form);
        let right = expected.split("||").any(|answer| match &result {
            Ok(text) => answer != "ERROR" && *text == unescape(answer),
            Err(_) => answer == "ERROR",
        });
        if !right {
            wrong.push(format!(
                "line {}: {input} -> {result:?}, expected {expected} ({why})",
                number + 1
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_error_names_the_entry_and_the_rule() {
    let rule = |text: &str| match MonitorList::parse(text, 6789) {
        Err(MonitorError::Entry { entry, rule }) => (entry, rule),
        other => panic!("{text}: {other:?}"),
    };
    let (entry, _) = rule("192.0.2.10,192.0.2.11:99999");
    assert_eq!(entry, "192.0.2.11:99999");
    for (text, expected) in [
        ("192.0.2.11:99999", EntryRule::PortRange),
        ("[v2:192.0.2.11:99999]", EntryRule::PortRange),
        ("192.0.2.11:6789:6789", EntryRule::TwoPorts),
        ("[2001:db8::1]:6789:6789", EntryRule::TwoPorts),
        ("2001:db8:1:2:3:4:5:6:6789", EntryRule::Ipv6),
        ("[fe80::1%eth0]:6789", EntryRule::Zone),
        ("fe80::1%eth0", EntryRule::Zone),
        (r"192.0.2.11\:6789", EntryRule::Escaped),
        ("[\"192.0.2.11\"]", EntryRule::Quote),
        ("f=192.0.2.11", EntryRule::Assignment),
        ("192.0.2.11:6789:/", EntryRule::Path),
        ("192.0.2.11:/volumes", EntryRule::Path),
        ("192.0.2.11\u{7}", EntryRule::Character),
        ("192.0.2.11\0", EntryRule::Character),
        ("192.0.2.11\u{a0}", EntryRule::Character),
        ("[[2001:db8::1]]", EntryRule::Brackets),
        ("[192.0.2.11:6789,192.0.2.12:6789]", EntryRule::Brackets),
        ("[v2:192.0.2.11:3300]:6789", EntryRule::AfterBracket),
        ("[v2:192.0.2.11:3300,192.0.2.11:6789]", EntryRule::VectorMember),
        ("[v2:192.0.2.11:3300,v1:192.0.2.11]", EntryRule::VectorPort),
        ("192.0.2.11/7", EntryRule::Nonce),
        ("999.1.1.1", EntryRule::Ipv4),
        ("mon1,v2:192.0.2.11", EntryRule::NameBesidePrefix),
        ("192.0.2.11:2,[v2:192.0.2.11:1,v1:192.0.2.11:2]", EntryRule::RepeatsAnAddress),
    ] {
        assert_eq!(rule(text).1, expected, "{text}");
    }
    assert_eq!(MonitorList::parse(" \n", 6789), Err(MonitorError::Empty));
    assert_eq!(MonitorList::parse("a", 70000), Err(MonitorError::DefaultPort(70000)));
}

#[test]
fn a_list_in_pieces() {
    let pieces = |pieces: &[&str]| {
        let pieces: Vec<String> = pieces.iter().map(ToString::to_string).collect();
        MonitorList::from_entries(&pieces, 6789)
    };
    let list =
        pieces(&["192.0.2.11", "[v2:192.0.2.12:3300,v1:192.0.2.12:6789]", "::1,::2"]).unwrap();
    assert_eq!(
        list.to_ceph_conf(),
        "192.0.2.11:6789,[v2:192.0.2.12:3300,v1:192.0.2.12:6789],[::1]:6789,[::2]:6789"
    );
    assert_eq!(pieces(&[]), Err(MonitorError::Empty));
    assert!(pieces(&["[v2:192.0.2.12:3300", "v1:192.0.2.12:6789]"]).is_err());
}

#[test]
fn a_monitor_in_common() {
    let list = |text: &str| MonitorList::parse(text, 0).unwrap();
    for (a, b) in [
        ("192.0.2.11,192.0.2.12", "192.0.2.12:6789,192.0.2.13"),
        ("192.0.2.11:3300", "192.0.2.11:6789"),
        ("192.0.2.11:40001", "192.0.2.11"),
        ("[v2:192.0.2.11:3300,v1:192.0.2.11:6789]", "192.0.2.11:6789"),
        ("[v2:127.0.0.1:40001,v1:127.0.0.1:40002]", "127.0.0.1:40002"),
        ("v1:192.0.2.11", "v2:192.0.2.11"),
        ("[2001:db8:0:0::1]:3300", "2001:DB8::1"),
        ("MON1.example.com", "mon1.Example.com.:6789"),
    ] {
        assert!(list(a).shares_a_monitor_with(&list(b)), "{a} {b}");
        assert!(list(b).shares_a_monitor_with(&list(a)), "{b} {a}");
    }
    for (a, b) in [
        ("192.0.2.11", "192.0.2.12"),
        ("127.0.0.1:40001", "127.0.0.1:40002"),
        ("192.0.2.11:6789", "192.0.2.11:40001"),
        ("mon1", "mon1.example.com"),
        ("localhost", "127.0.0.1"),
        ("[v2:127.0.0.1:40001,v1:127.0.0.1:40002]", "v2:127.0.0.1:40003"),
    ] {
        assert!(!list(a).shares_a_monitor_with(&list(b)), "{a} {b}");
        assert!(!list(b).shares_a_monitor_with(&list(a)), "{b} {a}");
    }
}

/// Text that is often close to a monitor list.
fn almost_a_list() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-z0-9.:\\[\\]/,; %=_-]{0,12}",
        Just("192.0.2.11".to_owned()),
        Just(":6789".to_owned()),
        Just("[2001:db8::1]".to_owned()),
        Just("2001:db8::2".to_owned()),
        Just("v2:".to_owned()),
        Just("[v2:192.0.2.12:3300,v1:192.0.2.12:6789]".to_owned()),
        Just(",".to_owned()),
        Just("/0".to_owned()),
    ];
    proptest::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn what_was_written_reads_back_the_same(text in almost_a_list(), port in 0_u32..70000) {
        if let Ok(list) = MonitorList::parse(&text, port) {
            prop_assert_eq!(MonitorList::parse(&list.to_ceph_conf(), 0), Ok(list.clone()));
            let qemu = rbdutils::qemu::unescape(&list.to_qemu_mon_host());
            prop_assert_eq!(MonitorList::parse(&qemu, 0), Ok(list.clone()));
            prop_assert!(list.shares_a_monitor_with(&list));
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in any::<String>(), port in any::<u32>()) {
        if let Ok(list) = MonitorList::parse(&text, port) {
            let written = list.to_ceph_conf();
            prop_assert!(written.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b';'));
            let _ = list.to_libvirt_hosts();
        }
    }

    #[test]
    fn libvirt_hosts_are_bare(text in almost_a_list(), port in 0_u32..70000) {
        if let Ok(hosts) = MonitorList::parse(&text, port).and_then(|list| list.to_libvirt_hosts()) {
            prop_assert!(!hosts.is_empty());
            prop_assert!(hosts.iter().all(|h| !h.name.contains(['[', ']', '/', ',']) && h.port != Some(0)));
        }
    }
}
