//! The storage pools port on libvirt's real storage drivers.

use virt::connect::Connect;
use virt::storage_pool::StoragePool;
use volferry_agent::host::HostImages;
use volferry_agent::host::images::ImageTimeouts;
use volferry_agent::ports::{ErrorClass, Images, StoragePools};
use volferry_agent::spec::{PoolKind, PoolName};

use crate::lab::{class_is, lab, need, unique};

/// A pool that goes with the test.
struct Pool(StoragePool);

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = self.0.destroy();
        let _ = self.0.undefine();
    }
}

fn name(text: &str) -> PoolName {
    PoolName::new(text).expect("a plain name")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_is_found_only_while_it_is_active() {
    let Some(lab) = lab("a_folder_is_found").await else { return };
    let ports = lab.ports().await;
    let connection = Connect::open(Some(&lab.uri)).expect("the lab's daemon");
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let (pool, path) = (unique("pool"), folder.path().display());
    let xml =
        format!("<pool type='dir'><name>{pool}</name><target><path>{path}</path></target></pool>");
    assert!(ports.find(&name(&pool)).await.expect("an answer").is_none());
    let defined = Pool(connection.define_storage_pool_xml(&xml, 0).expect("it can be defined"));
    class_is(&ports.find(&name(&pool)).await, ErrorClass::Unavailable);
    defined.0.create(0).expect("it starts");
    let found = ports.find(&name(&pool)).await.expect("an answer").expect("it is active");
    let PoolKind::File(found) = found.kind else { panic!("a folder") };
    assert_eq!((found.path.as_path(), found.must_be_mounted), (folder.path(), false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ceph_pool_with_its_secret_by_usage_can_be_reached() {
    let Some(lab) = lab("a_ceph_pool_with_its_secret").await else { return };
    let ports = lab.ports().await;
    let connection = Connect::open(Some(&lab.uri)).expect("the lab's daemon");
    let uuid = need("VOLFERRY_LAB_SECRET_UUID");
    let secret = connection.lookup_secret_by_uuid_string(&uuid).expect("the lab's secret");
    // virt 0.5 frees the text that `Secret::usage_id` returns although it is libvirt's own.
    let described = secret.xml_desc(0).expect("its XML");
    let usage = described.split("<name>").nth(1).and_then(|rest| rest.split("</name>").next());
    let usage = usage.expect("a secret of Ceph has a name as its usage");
    let pool = unique("pool");
    let xml = format!(
        "<pool type='rbd'><name>{pool}</name><source><host name='{}' port='{}'/><name>{}</name>\
         <auth type='ceph' username='{}'><secret usage='{}'/></auth></source></pool>",
        need("VOLFERRY_LAB_MON_HOST"),
        need("VOLFERRY_LAB_MON_PORT"),
        need("VOLFERRY_LAB_RBD_POOL_A"),
        need("VOLFERRY_LAB_RBD_USER"),
        usage,
    );
    let _pool = Pool(connection.create_storage_pool_xml(&xml, 0).expect("it starts"));
    let found = ports.find(&name(&pool)).await.expect("an answer").expect("it is active");
    let PoolKind::Rbd(found) = found.kind else { panic!("a Ceph pool") };
    assert_eq!(found.address.secret_uuid.as_deref(), Some(uuid.as_str()));
    let images = HostImages::new(ports, ImageTimeouts::default());
    let (by_pool, by_file) = (images.fsid(&found.address).await, images.fsid(&lab.rbd('B')).await);
    assert_eq!(by_pool.expect("its own key fits"), by_file.expect("the lab's cluster"));
}
