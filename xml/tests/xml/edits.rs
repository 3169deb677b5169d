//! Edits: what they touch, what they leave, and what they refuse.

use crate::support::{documents, domain, file, rbd};
use volferry_xml::{
    DestinationFormat, DestinationSource, DomainXml, EditError, Source, build_destination,
};

const TWO: &str = "<?xml version='1.0'?>\r\n<!-- head -->\r\n<domain xmlns:x='u'>\r\n <devices>\r\n  \
    <disk type='file'>\r\n   <!-- kept -->\r\n   <driver type='raw'/>\r\n   <source file='/a'/>\r\n   \
    <target dev='vda'/>\r\n   <x:note/>\r\n   <alias name='ua-1'/>\r\n   <address type='drive'/>\r\n  </disk>\r\n  \
    <disk><target dev='vdb'/></disk>\r\n </devices>\r\n</domain>\r\n";

#[test]
fn a_repair_keeps_everything_else_of_the_disk_and_its_line_ends() {
    let domain = DomainXml::parse(TWO).unwrap();
    let destination = DestinationSource::Rbd {
        name: "p/i".into(),
        hosts: Vec::new(),
        user: Some("u".into()),
        secret_uuid: Some("s".into()),
    };
    let edited = domain.with_disk_source_replaced("vda", &destination).unwrap();
    let expected = TWO
        .replace("<disk type='file'>", "<disk type='network'>")
        .replace("<driver type='raw'/>", "<driver name='qemu' type='raw'/>")
        .replace(
            "<source file='/a'/>",
            "<source protocol='rbd' name='p/i'>\r\n     <auth username='u'>\
             <secret type='ceph' uuid='s'/></auth>\r\n   </source>",
        );
    assert_eq!(edited, expected);
}

#[test]
fn a_repair_is_stable() {
    for name in documents() {
        let domain = domain(&name);
        for disk in domain.disks() {
            let destination = rbd("pool/image");
            let once = domain.with_disk_source_replaced(&disk.target, &destination).unwrap();
            let again = DomainXml::parse(&once).unwrap();
            let twice = again.with_disk_source_replaced(&disk.target, &destination).unwrap();
            assert_eq!(once, twice, "{name} {}", disk.target);
        }
    }
}

#[test]
fn a_destination_declares_the_prefixes_it_needs() {
    let domain = DomainXml::parse(TWO).unwrap();
    let built = build_destination(&domain, &domain.disks()[0], &file("/b"), DestinationFormat::Raw);
    assert!(built.starts_with("<disk xmlns:x=\"u\" type='file'>"), "{built}");
    assert!(built.contains("<x:note/>") && !built.contains("<!--") && !built.contains("alias"));
}

#[test]
fn a_destination_reads_back_as_what_was_asked_for() {
    let path = "/srv/a b/Söhne & <Co> 'x' \"y\"\t\n&amp;.qcow2";
    for name in documents() {
        let domain = domain(&name);
        for disk in domain.disks() {
            let built = build_destination(&domain, disk, &file(path), DestinationFormat::Qcow2);
            let text = format!("<domain><devices>{built}</devices></domain>");
            let read = DomainXml::parse(&text).unwrap();
            let new = &read.disks()[0];
            assert_eq!(new.source, Source::File { path: path.into(), has_data_store: false });
            assert_eq!((&new.target, &new.device), (&disk.target, &disk.device), "{name}");
            assert_eq!((&new.serial, &new.wwn), (&disk.serial, &disk.wwn), "{name}");
            assert_eq!(new.iothreads, disk.iothreads, "{name}");
            assert_eq!(new.driver.format.as_deref(), Some("qcow2"));
            assert!(new.auths.is_empty() && new.encryption.is_none() && new.mirror.is_none());
            assert!(!new.backing_known && new.alias.is_none() && new.source_index.is_none());
            assert!(!new.shareable && !new.transient && !new.readonly);
            for (key, value) in &disk.driver.attributes {
                let kept = new.driver.attributes.contains(&(key.clone(), value.clone()));
                assert!(kept || key == "type", "{name}: {key} is lost");
            }
        }
    }
}

#[test]
fn what_belongs_to_qcow2_goes_only_when_the_destination_is_raw() {
    let domain = domain("inputs/every-feature.xml");
    let disk = domain.find_disk("vda").unwrap();
    let raw = build_destination(&domain, disk, &file("/b"), DestinationFormat::Raw);
    let qcow2 = build_destination(&domain, disk, &file("/b"), DestinationFormat::Qcow2);
    for text in ["metadata_cache", "discard_no_unref"] {
        assert!(!raw.contains(text) && qcow2.contains(text), "{text}");
    }
}

#[test]
fn the_driver_name_and_format_are_those_qemu_needs() {
    let text = "<domain><devices><disk><driver name='tap' type=\"&#x61;io\"/><driver type='x'/>\
        <target dev='vda'/></disk></devices></domain>";
    let domain = DomainXml::parse(text).unwrap();
    let built = build_destination(&domain, &domain.disks()[0], &file("/b"), DestinationFormat::Raw);
    assert_eq!(
        built,
        "<disk type='file'><driver name='qemu' type=\"raw\"/><source file='/b'/>\
         <target dev='vda'/></disk>"
    );
    let bare = DomainXml::parse("<domain><devices><disk/></devices></domain>").unwrap();
    let built = build_destination(&bare, &bare.disks()[0], &file("/b"), DestinationFormat::Raw);
    assert_eq!(
        built,
        "<disk type='file'><driver name='qemu' type='raw'/><source file='/b'/></disk>"
    );
}

#[test]
fn replacing_and_replacing_back_is_nothing() {
    for name in documents() {
        let domain = domain(&name);
        for disk in domain.disks() {
            let original = disk.element_text(&domain);
            let built = build_destination(&domain, disk, &rbd("p/i"), DestinationFormat::Raw);
            let edited = domain.with_disk_replaced(&disk.target, &built).unwrap();
            assert_ne!(edited, domain.text());
            let back = DomainXml::parse(&edited).unwrap();
            let restored = back.with_disk_replaced(&disk.target, original).unwrap();
            assert_eq!(restored, domain.text(), "{name}");
        }
    }
}

#[test]
fn a_replacement_is_one_disk_with_the_same_target() {
    let domain = DomainXml::parse(TWO).unwrap();
    let replace = |text: &str| domain.with_disk_replaced("vda", text);
    assert!(replace("\n <disk><target dev='vda'/></disk>\n").is_ok());
    for text in [
        "",
        "text",
        "<disc/>",
        "<!-- --><disk><target dev='vda'/></disk>",
        "<disk><target dev='vda'/></disk><disk><target dev='vdc'/></disk>",
        "<disk xmlns='u'><target dev='vda'/></disk>",
    ] {
        assert!(matches!(replace(text), Err(EditError::NotOneDisk { .. })), "{text}");
    }
    for text in [
        "<disk>",
        "</disk><disk>",
        "<?xml version='1.0'?><disk/>",
        "<y:disk/>",
        "<!DOCTYPE d><disk/>",
    ] {
        assert!(matches!(replace(text), Err(EditError::Malformed(_))), "{text}");
    }
    let other = replace("<disk><target dev='vdc'/></disk>");
    assert!(matches!(other, Err(EditError::TargetChanged { .. })));
    let escape = "<disk/></devices></domain>";
    assert!(matches!(replace(escape), Err(EditError::Malformed(_))));
}

#[test]
fn the_target_of_an_edit_is_exact() {
    let domain = DomainXml::parse(TWO).unwrap();
    for target in ["", "vd", "/a"] {
        let error = domain.with_disk_source_replaced(target, &file("/b")).unwrap_err();
        assert!(matches!(error, EditError::TargetNotFound { .. }), "{target:?}");
    }
    let twice = TWO.replace("vdb", "vda");
    let error = DomainXml::parse(&twice).unwrap().with_disk_source_replaced("vda", &file("/b"));
    assert!(matches!(error, Err(EditError::AmbiguousTarget { count: 2, .. })));
}

#[test]
fn a_path_xml_cannot_carry_is_refused() {
    assert!(!volferry_xml::is_representable("/a\u{1}b") && volferry_xml::is_representable("/ä\n"));
    let domain = DomainXml::parse(TWO).unwrap();
    let error = domain.with_disk_source_replaced("vda", &file("/a\u{1}b")).unwrap_err();
    assert!(matches!(error, EditError::Malformed(_)));
}
