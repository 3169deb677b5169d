//! Properties over generated domains, and what happens to damaged ones.

use crate::support::{documents, domain, file, fixture, rbd};
use proptest::prelude::*;
use volferry_xml::{DestinationFormat, Document, DomainXml, build_destination};

/// Children a disk may have, in both quote styles, with things that look like others.
const CHILDREN: &[&str] = &[
    "<driver name='qemu' type=\"qcow2\" cache = 'none' unknown='a&amp;b'/>",
    "<driver type='raw'><iothreads><iothread id='1'/></iothreads><metadata_cache/></driver>",
    "<source file='/a&#38;b'/>",
    "<source protocol=\"rbd\" name='p/i'><host name='h'/><auth username='u'/></source>",
    "<auth username='u'><secret type='ceph' uuid='s'/></auth>",
    "<encryption format='luks'/>",
    "<backingStore type='file'><format type='raw'/><source file='/b'/><backingStore/></backingStore>",
    "<mirror type='file' job='copy'><source file='/m'/></mirror>",
    "<serial>a<!-- b --> &gt; <![CDATA[<source file='/x'/>]]></serial>",
    "<iotune><total_iops_sec>1</total_iops_sec></iotune>",
    "<x:source file='/foreign'/>",
    "<alias name='ua-1'/>",
    "<shareable/>",
    "<readonly />",
    "<!-- <source file='/comment'/> -->",
    "<?tool disk='no'?>",
    "<new attribute='&#10;'><deep><er/></deep></new>",
    "stray text",
];

fn disk(target: &'static str) -> impl Strategy<Value = String> {
    let child = prop::sample::select(CHILDREN);
    let space = prop::sample::select(&["", " ", "\n      ", "\r\n\t"][..]);
    let pieces = prop::collection::vec((space, child), 0..12);
    let start =
        prop::sample::select(&["<disk>", "<disk type='file'>", "<disk\n device=\"disk\" >"][..]);
    (start, pieces, any::<prop::sample::Index>()).prop_map(move |(start, pieces, at)| {
        let mut parts: Vec<String> =
            pieces.into_iter().map(|(space, child)| format!("{space}{child}")).collect();
        let target = format!("<target dev='{target}' bus='virtio'/>");
        parts.insert(at.index(parts.len() + 1), target);
        format!("{start}{}</disk>", parts.concat())
    })
}

fn domain_text() -> impl Strategy<Value = String> {
    (disk("vda"), disk("vdb"), disk("vdc")).prop_map(|(a, b, c)| {
        format!("<domain xmlns:x='u'><devices>{a}\n{b}<!-- between -->{c}</devices></domain>\n")
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn parsing_keeps_the_text(text in domain_text()) {
        let domain = DomainXml::parse(&text).unwrap();
        prop_assert_eq!(domain.text(), text.as_str());
        prop_assert_eq!(domain.disks().len(), 3);
    }

    #[test]
    fn a_repair_touches_only_the_span_of_its_disk(text in domain_text(), at in 0..3_usize) {
        let domain = DomainXml::parse(&text).unwrap();
        let disk = &domain.disks()[at];
        let old = disk.element_text(&domain);
        let edited = domain.with_disk_source_replaced(&disk.target, &rbd("p/new")).unwrap();
        let start = old.as_ptr() as usize - domain.text().as_ptr() as usize;
        prop_assert_eq!(&edited[..start], &text[..start]);
        prop_assert!(edited.ends_with(&text[start + old.len()..]));
        let again = DomainXml::parse(&edited).unwrap();
        for (index, other) in domain.disks().iter().enumerate().filter(|(index, _)| *index != at) {
            prop_assert_eq!(again.disks()[index].element_text(&again), other.element_text(&domain));
        }
        prop_assert_eq!(again.disks()[at].source.describe(), "rbd image p/new");
        prop_assert_eq!(&again.disks()[at].alias, &disk.alias);
    }

    #[test]
    fn replacing_back_gives_the_input(text in domain_text(), at in 0..3_usize) {
        let domain = DomainXml::parse(&text).unwrap();
        let disk = &domain.disks()[at];
        let built = build_destination(&domain, disk, &file("/n"), DestinationFormat::Qcow2);
        let edited = DomainXml::parse(&domain.with_disk_replaced(&disk.target, &built).unwrap()).unwrap();
        let back = edited.with_disk_replaced(&disk.target, disk.element_text(&domain)).unwrap();
        prop_assert_eq!(back, text);
    }

    #[test]
    fn edits_of_two_disks_commute(text in domain_text()) {
        let edit = |text: &str, target: &str, path: &str| {
            DomainXml::parse(text).unwrap().with_disk_source_replaced(target, &file(path)).unwrap()
        };
        let one = edit(&edit(&text, "vda", "/1"), "vdc", "/2");
        let other = edit(&edit(&text, "vdc", "/2"), "vda", "/1");
        prop_assert_eq!(one, other);
    }

    #[test]
    fn a_destination_is_one_disk_without_anything_of_the_old_volume(text in domain_text(), at in 0..3_usize) {
        let domain = DomainXml::parse(&text).unwrap();
        let disk = &domain.disks()[at];
        let built = build_destination(&domain, disk, &rbd("p/new"), DestinationFormat::Raw);
        let fragment = Document::parse(&built).unwrap();
        prop_assert_eq!(fragment.root_name(), "disk");
        let read = DomainXml::parse(&format!("<domain><devices>{built}</devices></domain>")).unwrap();
        let new = &read.disks()[0];
        prop_assert_eq!(new.source.describe(), "rbd image p/new");
        prop_assert_eq!(new.auths.len(), 1);
        prop_assert!(new.encryption.is_none() && new.mirror.is_none() && !new.backing_known);
        prop_assert!(new.alias.is_none() && !new.shareable && !new.readonly);
        prop_assert_eq!(&new.serial, &disk.serial);
        prop_assert!(!built.contains("<!--") && !built.contains("/m'"));
    }

    #[test]
    fn any_value_survives_being_written_and_read(path in any::<String>()) {
        let domain = DomainXml::parse("<domain><devices><disk><target dev='vda'/></disk></devices></domain>").unwrap();
        let edited = domain.with_disk_source_replaced("vda", &file(&path));
        prop_assert_eq!(edited.is_ok(), volferry_xml::is_representable(&path));
        if let Ok(text) = edited {
            let read = DomainXml::parse(&text).unwrap();
            let written = Some(path).filter(|path| !path.is_empty());
            prop_assert_eq!(read.disks()[0].source.reference(), written);
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "(<|>|/|a|domain|disk|&|;|'|\"|=| |!|-|\\[|\\]|\\?|xml|#|:|é){0,40}") {
        let _ = DomainXml::parse(&text);
    }
}

/// Every reading and editing function on a text that may be damaged.
fn exercise(text: &str) {
    let Ok(domain) = DomainXml::parse(text) else { return };
    for disk in domain.disks() {
        let _ = disk.element_text(&domain);
        let built = build_destination(&domain, disk, &rbd("p/i"), DestinationFormat::Raw);
        assert!(Document::parse(&built).is_ok(), "{built}\n{text}");
        let _ = domain.find_disk(&disk.target);
        if let Ok(edited) = domain.with_disk_source_replaced(&disk.target, &file("/a")) {
            assert!(DomainXml::parse(&edited).is_ok());
        }
    }
}

#[test]
fn a_document_cut_off_anywhere_is_malformed() {
    for name in documents() {
        let text = fixture(&name);
        let end = text.trim_end().len();
        for cut in (0..end).filter(|cut| text.is_char_boundary(*cut)) {
            assert!(DomainXml::parse(&text[..cut]).is_err(), "{name} cut at {cut}");
        }
    }
}

#[test]
fn damaged_documents_are_refused_or_handled() {
    const SUBSTITUTES: &[u8] = b"<>/&;'\"=- a\0\n![]?";
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |limit: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap() % limit
    };
    for name in documents() {
        let text = fixture(&name);
        for _ in 0..100 {
            let mut bytes = text.clone().into_bytes();
            for _ in 0..=random(3) {
                let at = random(bytes.len());
                match random(3) {
                    0 => bytes[at] = SUBSTITUTES[random(SUBSTITUTES.len())],
                    1 => drop(bytes.drain(at..(at + random(20)).min(bytes.len()))),
                    _ => bytes.insert(at, SUBSTITUTES[random(SUBSTITUTES.len())]),
                }
            }
            exercise(&String::from_utf8_lossy(&bytes));
        }
    }
}

#[test]
fn fixtures_are_complete() {
    assert!(documents().len() >= 32);
    for name in documents() {
        exercise(domain(&name).text());
    }
}
