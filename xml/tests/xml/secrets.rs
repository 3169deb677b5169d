//! Secrets of volumes: what is written is what is read.

use volferry_xml::SecretXml;

#[test]
fn what_is_written_is_read_again() {
    for volume in ["/srv/a & b/<x>.qcow2", "fsid/pool/image", "/srv/tab\there"] {
        let secret = SecretXml {
            uuid: "10000000-0000-4000-8000-0000000000aa".to_owned(),
            volume: Some(volume.to_owned()),
            description: Some("volferry operation 'one' & only".to_owned()),
            ephemeral: false,
            private: true,
        };
        assert_eq!(SecretXml::parse(&secret.to_text()).unwrap(), secret);
    }
}

#[test]
fn libvirts_own_text_is_read() {
    let secret = SecretXml::parse(
        "<secret ephemeral='yes' private='no'>\n  <uuid>10000000-0000-4000-8000-0000000000aa</uuid>\n  \
         <usage type='ceph'>\n    <name>client.libvirt secret</name>\n  </usage>\n</secret>\n",
    )
    .unwrap();
    assert_eq!((secret.volume, secret.description), (None, None));
    assert!(secret.ephemeral && !secret.private);
}

#[test]
fn another_document_is_no_secret() {
    for text in ["<domain/>", "<secret", "<x:secret xmlns:x='y'/>", ""] {
        assert!(SecretXml::parse(text).is_err(), "{text}");
    }
}
