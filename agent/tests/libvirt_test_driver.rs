//! The libvirt ports over libvirt's own in-process `test:///` driver: no daemon, no root, no QEMU.
//!
//! It proves our wrapper: opening, looking up, listing, defining, events and how errors are classed. What needs a
//! QEMU (copies, pivots) is in `real_ports`.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::Receiver;
use virt::connect::Connect;
use volferry_agent::libvirt::{LibvirtPorts, Timeouts};
use volferry_agent::ports::{
    BlockJobs, CopyRequest, DomainState, Domains, ErrorClass, EventKind, Events, PortError,
    StoragePools, TimedEvent,
};
use volferry_agent::spec::{
    CopyFlags, DiskTarget, DomainReference, DomainUuid, PoolKind, PoolName,
};

const NODE: &str = r#"<node>
  <domain type='test'>
    <name>web</name>
    <uuid>70000000-0000-4000-8000-0000000000a1</uuid>
    <memory>8192</memory>
    <os><type>hvm</type></os>
    <devices>
      <disk type='network' device='disk'>
        <driver name='qemu' type='raw'/>
        <auth username='volferry'><secret type='ceph' uuid='5e0f1d8a-2b3c-4d5e-8f60-716273747576'/></auth>
        <source protocol='rbd' name='vf-a/web'><host name='192.0.2.1' port='6789'/></source>
        <target dev='vda' bus='virtio'/>
      </disk>
    </devices>
  </domain>
  <pool type='dir'>
    <name>images</name>
    <target><path>/srv/images</path></target>
  </pool>
  <pool type='logical'>
    <name>lvm</name>
    <source><name>vg</name></source>
    <target><path>/dev/vg</path></target>
  </pool>
</node>"#;
const WEB: &str = "70000000-0000-4000-8000-0000000000a1";

/// A node of its own for a test: the driver keeps one state for each connection to a file.
struct Node {
    ports: Arc<LibvirtPorts>,
    _file: tempfile::NamedTempFile,
}

fn node() -> Node {
    let file = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    std::fs::write(file.path(), NODE).expect("the file can be written");
    let uri = format!("test://{}", file.path().display());
    let ports = LibvirtPorts::connect(&uri, Timeouts::default()).expect("the URI is valid");
    Node { ports, _file: file }
}

fn reference(text: &str) -> DomainReference {
    DomainReference::new(text).expect("a valid reference")
}

fn web() -> DomainUuid {
    DomainUuid::new(WEB).expect("a valid uuid")
}

fn vda() -> DiskTarget {
    DiskTarget::new("vda").expect("a valid target")
}

fn class<T>(result: Result<T, PortError>) -> Option<ErrorClass> {
    result.err().map(|error| error.class)
}

async fn next(events: &mut Receiver<TimedEvent>, wanted: &EventKind) -> TimedEvent {
    let find = async {
        loop {
            let event = events.recv().await.expect("the hub lives");
            if &event.event.kind == wanted {
                return event;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), find).await.expect("the event arrives")
}

#[tokio::test]
async fn a_domain_is_found_by_name_and_by_uuid_and_described() {
    let node = node();
    let by_name = node.ports.observe(&reference("web")).await.expect("web is there");
    let by_uuid = node.ports.observe(&reference(WEB)).await.expect("web is there");
    assert_eq!(by_name.uuid, by_uuid.uuid);
    assert_eq!(by_name.state, DomainState::Running);
    assert!(by_name.persistent);
    assert!(by_name.live_xml.contains("vf-a/web"));
    assert!(by_name.inactive_xml.as_deref().is_some_and(|xml| xml.contains("vf-a/web")));
    assert_eq!(by_name.snapshots.snapshots, Vec::<String>::new());
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let node = node();
    assert_eq!(class(node.ports.observe(&reference("no")).await), Some(ErrorClass::NotFound));
    let missing = "70000000-0000-4000-8000-0000000000ff";
    assert_eq!(class(node.ports.observe(&reference(missing)).await), Some(ErrorClass::NotFound));
    let uuid = DomainUuid::new(missing).expect("a valid uuid");
    assert_eq!(class(node.ports.info(&uuid, &vda()).await), Some(ErrorClass::NotFound));
}

#[tokio::test]
async fn all_domains_are_listed() {
    let node = node();
    let list = node.ports.list().await.expect("a list");
    let names: Vec<_> = list.iter().map(|domain| domain.name.as_str()).collect();
    assert_eq!(names, ["web"]);
    assert_eq!(list[0].uuid, web());
}

#[tokio::test]
async fn defining_keeps_to_the_domain_it_names() {
    let node = node();
    let seen = node.ports.observe(&reference("web")).await.expect("web is there");
    let xml = seen.inactive_xml.expect("web is persistent");
    let edited = xml.replace("vf-a/web", "vf-b/web");
    for _ in 0..2 {
        node.ports.define(&web(), &edited).await.expect("the definition is taken");
    }
    let seen = node.ports.observe(&reference("web")).await.expect("web is there");
    assert!(seen.inactive_xml.is_some_and(|xml| xml.contains("vf-b/web")));
    let other = DomainUuid::new("70000000-0000-4000-8000-0000000000ff").expect("a valid uuid");
    assert!(node.ports.define(&other, &edited).await.is_err());
    let renamed = edited.replace(WEB, other.as_str());
    assert_eq!(class(node.ports.define(&other, &renamed).await), Some(ErrorClass::NotFound));
}

#[tokio::test]
async fn what_the_driver_cannot_do_is_unsupported() {
    let node = node();
    let request = CopyRequest {
        domain: web(),
        target: vda(),
        destination_xml: "<disk type='file'><source file='/x'/></disk>".to_owned(),
        flags: CopyFlags::new(),
        bandwidth: None,
    };
    assert_eq!(class(node.ports.start_copy(&request).await), Some(ErrorClass::Unsupported));
    assert_eq!(class(node.ports.pivot(&web(), &vda()).await), Some(ErrorClass::Unsupported));
    assert_eq!(class(node.ports.qemu_devices(&web()).await), Some(ErrorClass::Unsupported));
    assert_eq!(
        class(node.ports.secret_exists("5e0f1d8a-2b3c-4d5e-8f60-716273747576").await),
        Some(ErrorClass::Unsupported)
    );
}

#[tokio::test]
async fn text_with_a_nul_is_an_error_and_no_panic() {
    let node = node();
    let request = CopyRequest {
        domain: web(),
        target: vda(),
        destination_xml: "<disk>\0</disk>".to_owned(),
        flags: CopyFlags::new(),
        bandwidth: None,
    };
    assert!(node.ports.start_copy(&request).await.is_err());
    assert!(node.ports.define(&web(), "\0").await.is_err());
    assert!(LibvirtPorts::connect("test:///\0", Timeouts::default()).is_err());
}

#[tokio::test]
async fn life_cycle_events_arrive_with_their_time() {
    let ports = LibvirtPorts::connect("test:///default", Timeouts::default()).expect("a URI");
    let mut events = ports.subscribe();
    if !ports.connected() {
        next(&mut events, &EventKind::ConnectionRestored).await;
    }
    let (before, name) = (std::time::Instant::now(), "test");
    // The default node is one for all connections of a process: this is "somebody else".
    tokio::task::spawn_blocking(move || {
        let other = Connect::open(Some("test:///default")).expect("the driver opens");
        let domain = other.lookup_domain_by_name(name).expect("the node has it");
        domain.destroy().expect("it runs");
    })
    .await
    .expect("no panic");
    let event = next(&mut events, &EventKind::DomainStopped { reason: "destroyed" }).await;
    assert!(event.at >= before);
    let seen = ports.observe(&reference(name)).await.expect("it is persistent");
    assert_eq!(event.event.domain, Some(seen.uuid));
    assert_eq!(seen.state, DomainState::ShutOff);
}

#[tokio::test]
async fn a_libvirt_that_is_away_is_unavailable_and_not_an_error_of_connect() {
    let uri = "qemu+unix:///system?socket=/nonexistent/volferry-test-sock";
    let ports = LibvirtPorts::connect(uri, Timeouts::default()).expect("the URI is valid");
    assert!(!ports.connected());
    assert_eq!(class(ports.observe(&reference("web")).await), Some(ErrorClass::Unavailable));
    assert_eq!(class(ports.info(&web(), &vda()).await), Some(ErrorClass::Unavailable));
}

#[tokio::test]
async fn an_active_pool_is_found_and_what_is_no_destination_says_so() {
    let node = node();
    let find = async |name: &str| node.ports.find(&PoolName::new(name).expect("a name")).await;
    let images = find("images").await.expect("libvirt answers").expect("the pool");
    let PoolKind::File(folder) = images.kind else { panic!("a folder") };
    assert_eq!(folder.path.to_str(), Some("/srv/images"));
    assert!(!folder.must_be_mounted);
    assert_eq!(class(find("lvm").await), Some(ErrorClass::Unsupported));
    assert!(find("no-such-pool").await.expect("libvirt answers").is_none());
}
