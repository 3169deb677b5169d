//! Destinations and repaired configurations, compared with the files in `fixtures/xml/golden`.
//! `UPDATE_GOLDEN=1 cargo test -p volferry-xml golden` writes them anew.

use std::fs;

use crate::support::{domain, file, fixtures, rbd};
use volferry_xml::{
    DestinationEncryption, DestinationFormat, DestinationSource, EncryptionEngine,
    EncryptionFormat, build_destination, build_encrypted_destination,
};

fn compare(name: &str, found: &str) {
    let path = fixtures().join("golden").join(name);
    let found = format!("{found}\n");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &found).unwrap();
    }
    let wanted = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, wanted, "{} (UPDATE_GOLDEN=1 writes it anew)", path.display());
}

#[test]
fn destinations_are_the_golden_ones() {
    let moves = [
        ("inputs/every-feature", "vda", rbd("cs-ssd/vol-1")),
        ("inputs/every-feature", "vdb", file("/mnt/nfs/vol-2.qcow2")),
        ("inputs/every-feature", "vdb", rbd("cs-ssd/ns/vol-2")),
        ("inputs/every-feature", "sda", rbd("cs-ssd/no-source")),
        ("cases/file-to-rbd-chain-iotune", "vda", rbd("cs-hdd/vol-2")),
        ("cases/file-to-rbd-seclabel-private", "sdb", rbd("cs-hdd/vol-31")),
        ("cases/local-pool-same-path-on-both-hosts", "hda", rbd("cs-hdd/vol-32")),
        ("cases/neighbours-carry-the-odd-things", "vdb", rbd("cs-ssd/vol-21")),
        ("cases/rbd-auth-in-source-other-cluster", "sda", rbd("cs-hdd/vol-8")),
        (
            "cases/rbd-to-path-with-amp-space-unicode",
            "vda",
            file("/srv/Söhne & Co <1>/v'\"\n.qcow2"),
        ),
        ("cases/rbd-to-rbd-nested-iothreads", "vdb", rbd("cs-ssd/vol-30")),
        ("cases/rbd-to-rbd-nova-dump", "vda", rbd("cs-ssd/vol-1_disk")),
        ("cases/encrypted-luks2-in-source", "vda", file("/mnt/nfs/vol-51.qcow2")),
    ];
    for (input, target, source) in moves {
        let domain = domain(&format!("{input}.xml"));
        let disk = domain.find_disk(target).unwrap();
        let (kind, format) = match source {
            DestinationSource::Rbd { .. } => ("rbd", DestinationFormat::Raw),
            DestinationSource::File { .. } => ("file", DestinationFormat::Qcow2),
        };
        let name = input.split('/').next_back().unwrap();
        let found = build_destination(&domain, disk, &source, format);
        compare(&format!("{name}.{target}-to-{kind}.xml"), &found);
    }
}

#[test]
fn repaired_configurations_are_the_golden_ones() {
    let repairs = [
        ("inputs/every-feature", "vda", rbd("cs-ssd/vol-1")),
        ("inputs/every-feature", "vdb", file("/mnt/nfs/vol-2.qcow2")),
        ("cases/rbd-to-rbd-nova-dump", "vda", rbd("cs-ssd/vol-1_disk")),
    ];
    for (input, target, source) in repairs {
        let found = domain(&format!("{input}.xml")).with_disk_source_replaced(target, &source);
        let name = input.split('/').next_back().unwrap();
        compare(&format!("{name}.{target}-repaired.xml"), &found.unwrap());
    }
}

#[test]
fn an_encrypted_destination_is_the_golden_one() {
    let domain = domain("cases/encrypted-luks2-in-source.xml");
    let encryption = DestinationEncryption {
        format: EncryptionFormat::Luks2,
        engine: EncryptionEngine::Librbd,
        secret_uuid: "60000000-0000-4000-8000-0000000000ff".to_owned(),
    };
    let found = build_encrypted_destination(
        &domain,
        &domain.disks()[0],
        &rbd("cs-ssd/vol-51"),
        DestinationFormat::Raw,
        &encryption,
    );
    compare("encrypted-luks2-in-source.vda-to-rbd-luks2.xml", &found);
}
