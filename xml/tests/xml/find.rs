//! Finding a disk by target or by exact source.

use crate::support::domain;
use volferry_xml::{DomainXml, FindDiskError};

#[test]
fn a_source_is_found_by_its_whole_name_only() {
    let neighbours = domain("cases/prefix-equal-volume-names.xml");
    let target = |reference: &str| neighbours.find_disk(reference).map(|disk| disk.target.clone());
    assert_eq!(target("cs-hdd/vol-1").unwrap(), "vdd");
    assert_eq!(target("cs-hdd-old/vol-1").unwrap(), "vdc");
    assert_eq!(target("vdb").unwrap(), "vdb");
    for reference in ["", "vd", "vol-1", "cs-hdd/vol", "hdd/vol-1", "CS-HDD/vol-1", " vda", "vda "]
    {
        assert!(matches!(target(reference), Err(FindDiskError::NotFound { .. })), "{reference:?}");
    }
    for (case, reference) in [
        ("file-to-rbd-seclabel-private", "/srv/gfs2/vms/vol-31.img"),
        ("rbd-to-rbd-nova-dump", "vms/0a0a0a0a-1111-4222-8333-000000000001_disk"),
        ("unsupported-block-lvm", "/dev/vg0/web.data"),
        ("unsupported-gluster", "volume1/205/disk.0"),
    ] {
        assert!(domain(&format!("cases/{case}.xml")).find_disk(reference).is_ok(), "{case}");
    }
}

#[test]
fn what_is_not_found_lists_what_there_is() {
    let error = domain("cases/not-found-only-prefix.xml").find_disk("cs-hdd/vol-1").unwrap_err();
    assert_eq!(
        error.to_string(),
        "no disk \"cs-hdd/vol-1\"; there are: vdb (cs-hdd/vol-10), vdc (cs-hdd/vol-11)"
    );
    let error = DomainXml::parse("<domain/>").unwrap().find_disk("vda").unwrap_err();
    assert_eq!(error.to_string(), "no disk \"vda\"; there are: none");
}

#[test]
fn one_image_on_two_disks_is_ambiguous_by_source_and_not_by_target() {
    let domain = domain("cases/two-disks-one-image.xml");
    assert_eq!(domain.find_disk("vdb").unwrap().target, "vdb");
    let error = domain.find_disk("cs-hdd/vol-56").unwrap_err();
    assert!(
        matches!(error, FindDiskError::Ambiguous { ref targets, .. } if *targets == ["vda", "vdb"])
    );
}

#[test]
fn a_target_beats_a_source_of_the_same_name() {
    let text = "<domain><devices><disk><source file='vdb'/><target dev='vda'/></disk>\
        <disk><source file='/x'/><target dev='vdb'/></disk></devices></domain>";
    let domain = DomainXml::parse(text).unwrap();
    assert_eq!(domain.find_disk("vdb").unwrap().source.describe(), "file /x");
}
