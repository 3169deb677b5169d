//! Storage pools: the facts of each kind the agent may move to.

use volferry_xml::StoragePoolXml;

#[test]
fn a_folder_is_read() {
    let pool = StoragePoolXml::parse(
        "<pool type='dir'><name>images &amp; more</name><capacity unit='bytes'>1</capacity><source/>\
         <target><path>/var/lib/libvirt/images</path><permissions><mode>0711</mode></permissions></target></pool>",
    )
    .unwrap();
    assert_eq!((pool.kind.as_str(), pool.name.as_str()), ("dir", "images & more"));
    assert_eq!(pool.target_path.as_deref(), Some("/var/lib/libvirt/images"));
    assert_eq!((pool.source_name, pool.auth), (None, None));
}

#[test]
fn a_ceph_pool_is_read() {
    let pool = StoragePoolXml::parse(
        "<pool type='rbd'><name>p</name><source><host name='192.0.2.11' port='6789'/><host name='2001:db8::1'/>\
         <name>vms</name><auth type='ceph' username='libvirt'><secret usage='client.libvirt secret'/></auth>\
         </source></pool>",
    )
    .unwrap();
    assert_eq!(pool.source_name.as_deref(), Some("vms"));
    let hosts: Vec<_> =
        pool.hosts.iter().map(|host| (host.name.as_deref(), host.port.as_deref())).collect();
    assert_eq!(hosts, [(Some("192.0.2.11"), Some("6789")), (Some("2001:db8::1"), None)]);
    let auth = pool.auth.unwrap();
    assert_eq!(auth.username.as_deref(), Some("libvirt"));
    assert_eq!((auth.uuid, auth.usage.as_deref()), (None, Some("client.libvirt secret")));
}

#[test]
fn another_document_is_no_pool() {
    for text in ["<domain/>", "<pool", "<x:pool xmlns:x='y'/>", ""] {
        assert!(StoragePoolXml::parse(text).is_err(), "{text}");
    }
}
