//! What is read from a domain, and from where it must not be read.

use crate::support::domain;
use volferry_xml::{DeviceKind, Disk, DomainXml, Host, Placement, Source};

/// The only disk of a domain with this content of `<devices>`.
fn disk(devices: &str) -> Disk {
    let text = format!("<domain><devices>{devices}</devices></domain>");
    let domain = DomainXml::parse(&text).unwrap();
    assert_eq!(domain.disks().len(), 1, "{devices}");
    domain.disks()[0].clone()
}

fn some(value: &str) -> Option<String> {
    Some(value.to_owned())
}

#[test]
fn identity_of_the_domain() {
    let domain = domain("inputs/every-feature.xml");
    assert_eq!(domain.name(), Some("every-feature"));
    assert_eq!(domain.uuid(), Some("80000000-0000-4000-8000-000000000008"));
    assert_eq!(domain.dac_label(), Some("+64055:+64055"));
    assert_eq!(domain.id(), some("3"));
}

#[test]
fn every_fact_of_a_disk() {
    let domain = domain("inputs/every-feature.xml");
    let disk = domain.find_disk("vda").unwrap();
    assert_eq!((disk.target.as_str(), disk.bus.as_deref()), ("vda", Some("virtio")));
    assert_eq!(disk.device, DeviceKind::Disk);
    assert_eq!(
        disk.source,
        Source::File { path: "/srv/a&b/vol-1.qcow2".into(), has_data_store: false }
    );
    assert_eq!(disk.driver.format.as_deref(), Some("qcow2"));
    assert_eq!(disk.driver.rerror_policy.as_deref(), Some("report"));
    assert_eq!(disk.driver.attributes.len(), 18);
    assert_eq!(disk.driver.attributes[17], ("page_per_vq".into(), "on".into()));
    assert_eq!(disk.iothreads.len(), 2);
    assert_eq!(disk.iothreads[0].queues, ["0", "1"]);
    assert!(disk.backing_known && disk.backing_complete);
    assert_eq!(disk.backing_chain.len(), 1);
    assert_eq!(disk.backing_chain[0].source, Source::Block { dev: "/dev/vg0/base".into() });
    let encryption = disk.encryption.as_ref().unwrap();
    assert_eq!(encryption.place, Placement::Disk);
    assert_eq!(encryption.secret_uuid.as_deref(), Some("60000000-0000-4000-8000-0000000000ff"));
    assert!(disk.is_encrypted());
    assert_eq!(disk.serial.as_deref(), Some("a <b>&c"));
    assert_eq!(disk.wwn.as_deref(), Some("5000c50015ea71aa"));
    assert_eq!(disk.alias.as_deref(), Some("ua-1"));
    assert_eq!(disk.snapshot.as_deref(), Some("external"));
    assert_eq!(disk.boot_order.as_deref(), Some("1"));
    assert_eq!(disk.source_index.as_deref(), Some("7"));
    assert!(disk.slices && disk.reservations && !disk.data_store);
    assert!(!disk.shareable && !disk.transient && !disk.readonly);
    assert_eq!(disk.mirror, None, "the mirror stands in a comment");
    assert!(disk.element_text(&domain).starts_with("<disk type=\"file\""));
    assert!(disk.element_text(&domain).ends_with("</disk>"));
}

#[test]
fn an_rbd_source_with_everything() {
    let domain = domain("inputs/every-feature.xml");
    let disk = domain.find_disk("cs-hdd/ns/vol-2").unwrap();
    assert_eq!(disk.target, "vdb");
    assert!(disk.shareable && disk.transient && disk.readonly);
    assert_eq!(
        disk.source,
        Source::Network {
            protocol: "rbd".into(),
            name: some("cs-hdd/ns/vol-2"),
            hosts: vec![Host { name: some("192.0.2.1"), ..Host::default() }],
            config: some("/etc/ceph/a.conf"),
            snapshot: some("s1"),
            query: None,
        }
    );
    let auth = disk.auth().unwrap();
    assert_eq!((auth.place, auth.username.as_deref()), (Placement::Disk, Some("old")));
    assert_eq!((auth.uuid.as_deref(), auth.usage.as_deref()), (None, Some("old")));
}

#[test]
fn credentials_and_encryption_are_found_in_both_places() {
    let found = disk(
        "<disk type='network'><source protocol='rbd' name='p/i'><auth username='b'/>\
         <encryption format='luks2' engine='librbd'/></source><auth username='a'/></disk>",
    );
    let names: Vec<_> = found.auths.iter().filter_map(|auth| auth.username.as_deref()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(found.auth().unwrap().place, Placement::Disk);
    let encryption = found.encryption.unwrap();
    assert_eq!(encryption.place, Placement::Source);
    assert_eq!(encryption.engine.as_deref(), Some("librbd"));
}

#[test]
fn the_type_decides_which_attribute_of_the_source_counts() {
    let source = |attributes: &str| disk(&format!("<disk {attributes}</disk>")).source;
    let file = |path: &str| Source::File { path: path.into(), has_data_store: false };
    assert_eq!(source("type='&#102;ile'><source file='&#x2F;a'/>"), file("/a"));
    assert_eq!(source("><source file='/a' dev='/b' name='c'/>"), file("/a"));
    assert_eq!(source("type='file'><source dev='/b'/>"), Source::None);
    assert_eq!(source("type='file'>"), Source::None);
    assert_eq!(source("type='file'><source file=''/>"), Source::None);
    let nbd = source("type='network'><source protocol='nbd' name=''/>");
    assert_eq!(nbd.reference(), None);
    assert_eq!(
        source("type='block'><source file='/a' dev='/b'/>"),
        Source::Block { dev: "/b".into() }
    );
    assert_eq!(source("type='dir'><source dir='/d'/>"), Source::Dir { path: "/d".into() });
    assert_eq!(
        source("type='volume'><source pool='p' volume='v'/>"),
        Source::Volume { pool: "p".into(), volume: "v".into() }
    );
    assert_eq!(source("type='nvme'><source type='pci'/>"), Source::Nvme);
    assert_eq!(source("type='vhostuser'><source path='/s'/>"), Source::Vhostuser);
    assert_eq!(source("type='vhostvdpa'><source dev='/dev/vhost-vdpa-0'/>"), Source::VhostVdpa);
    assert_eq!(source("type='rbd'><source file='/a'/>"), Source::Other("rbd".into()));
    assert_eq!(source("><source file='/a'/><source file='/b'/>"), file("/a"));
    assert_eq!(
        source("><source file='/a'><dataStore/></source>").describe(),
        "file /a with a separate data store"
    );
}

#[test]
fn kinds_of_device() {
    let device = |attribute: &str| disk(&format!("<disk {attribute}/>")).device;
    assert_eq!(device(""), DeviceKind::Disk);
    assert_eq!(device("device=\"disk\""), DeviceKind::Disk);
    assert_eq!(device("device='cdrom'"), DeviceKind::Cdrom);
    assert_eq!(device("device='floppy'"), DeviceKind::Floppy);
    assert_eq!(device("device='lun'"), DeviceKind::Lun);
    assert_eq!(device("device='tape'"), DeviceKind::Other("tape".into()));
}

#[test]
fn backing_chains_end_known_or_unknown() {
    let known = disk("<disk><backingStore/></disk>");
    assert!(known.backing_known && known.backing_complete && known.backing_chain.is_empty());
    let unknown = disk("<disk/>");
    assert!(!unknown.backing_known && !unknown.backing_complete);
    let open = disk(
        "<disk><backingStore type='file'><format type='qcow2'/><source file='/b'>\
         <encryption format='luks'/></source></backingStore></disk>",
    );
    assert!(open.backing_known && !open.backing_complete && open.is_encrypted());
    assert_eq!(open.backing_chain[0].format.as_deref(), Some("qcow2"));
    let chain = domain("cases/file-to-rbd-chain-iotune.xml").disks()[0].backing_chain.clone();
    assert_eq!(chain.len(), 2);
    assert!(chain[1].source.describe().ends_with("000000000004"));
}

#[test]
fn mirrors_of_old_and_new_libvirt() {
    let domain = domain("cases/block-job-network-mirror.xml");
    let mirror = domain.disks()[0].mirror.clone().unwrap();
    assert_eq!((mirror.job.as_deref(), mirror.ready.as_deref()), (Some("copy"), Some("yes")));
    assert_eq!(mirror.format.as_deref(), Some("raw"));
    assert_eq!(mirror.source.describe(), "nbd network source copy");
    let old = disk("<disk><mirror file='/m' format='qcow2'/></disk>").mirror.unwrap();
    assert_eq!(old.source, Source::File { path: "/m".into(), has_data_store: false });
    assert_eq!((old.job, old.format.as_deref()), (None, Some("qcow2")));
}

#[test]
fn only_disks_of_devices_and_only_in_no_namespace_count() {
    let text = "<domain xmlns:x='u'><disk><target dev='a'/></disk><metadata><devices><disk/></devices>\
        </metadata><devices><x:disk/><disk xmlns='v'/><hostdev><disk/></hostdev>\
        <!-- <disk/> --><![CDATA[<disk/>]]><disk x:type='block' type='file'><x:shareable/>\
        <source x:file='/x' file='/y'/><target dev='vda'/></disk></devices>\
        <devices><disk><target dev='ioemu:hda'/></disk></devices></domain>";
    let domain = DomainXml::parse(text).unwrap();
    let targets: Vec<_> = domain.disks().iter().map(|disk| disk.target.as_str()).collect();
    assert_eq!(targets, ["vda", "hda"]);
    assert_eq!(domain.disks()[0].source.describe(), "file /y");
    assert!(!domain.disks()[0].shareable);
}

#[test]
fn nested_elements_of_the_same_name_belong_to_others() {
    let lun = &domain("cases/not-a-disk-lun-reservations.xml").disks()[0].clone();
    assert!(lun.reservations);
    assert_eq!(lun.source.describe(), "block device /dev/mapper/360000000000000000000000000000042");
    let split = &domain("cases/unsupported-qcow2-data-file-on-rbd.xml").disks()[0].clone();
    assert!(split.data_store && split.auths.is_empty());
    let neighbours = domain("cases/neighbours-carry-the-odd-things.xml");
    let plain = neighbours.find_disk("vdb").unwrap();
    assert!(plain.mirror.is_none() && plain.encryption.is_none() && !plain.shareable);
}
