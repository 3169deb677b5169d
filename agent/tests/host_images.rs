//! The images port where no cluster answers: nobody waits longer than the bound, and everybody is told why.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use secrecy::SecretString;
use volferry_agent::host::HostImages;
use volferry_agent::host::images::ImageTimeouts;
use volferry_agent::host::keys::KeySource;
use volferry_agent::ports::{ErrorClass, Images, PortError};
use volferry_agent::spec::RbdPoolAddress;

struct OneKey(&'static str);

#[async_trait]
impl KeySource for OneKey {
    async fn ceph_key(&self, _secret_uuid: &str) -> Result<SecretString, PortError> {
        Ok(self.0.into())
    }
}

const WELL_FORMED: &str = "AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA==";

fn images(key: &'static str) -> HostImages {
    let quick = Duration::from_secs(3);
    let timeouts = ImageTimeouts { quick, ..ImageTimeouts::default() };
    HostImages::new(Arc::new(OneKey(key)), timeouts)
}

/// Nobody listens there.
fn nowhere() -> RbdPoolAddress {
    RbdPoolAddress {
        monitors: "127.0.0.1:9".to_owned(),
        user: Some("volferry".to_owned()),
        secret_uuid: Some("10000000-0000-4000-8000-0000000000aa".to_owned()),
        key_file: None,
        pool: "vms".to_owned(),
        namespace: None,
    }
}

#[tokio::test]
async fn monitors_that_do_not_answer_are_told_in_time_to_all_who_wait() {
    let (images, pool) = (images(WELL_FORMED), nowhere());
    let begun = Instant::now();
    let (source, destination, space) =
        tokio::join!(images.observe(&pool, "v"), images.prepare(&pool), images.space(&pool));
    let took = begun.elapsed();
    let errors = [source.err(), destination.err(), space.err()];
    for (error, operation) in errors.iter().zip(["look into", "connect to", "ask for the space"]) {
        let error = error.as_ref().expect("nobody answers");
        assert_eq!(error.class, ErrorClass::Unavailable, "{error}");
        assert!(error.operation.starts_with(operation), "its own call: {error}");
    }
    assert!(took < Duration::from_secs(6), "one try for all of them: {took:?}");
    let begun = Instant::now();
    let later = images.fsid(&pool).await.expect_err("nobody answers");
    assert_eq!(later.class, ErrorClass::Unavailable);
    assert!(begun.elapsed() > Duration::from_millis(500), "a later call tries anew");
}

#[tokio::test]
async fn a_key_that_is_none_is_a_matter_of_permission_and_not_of_time() {
    let begun = Instant::now();
    let error = images("no key").prepare(&nowhere()).await.expect_err("no key");
    assert_eq!(error.class, ErrorClass::PermissionDenied, "{error}");
    assert!(!error.to_string().contains("no key"), "keys are not told: {error}");
    assert!(begun.elapsed() < Duration::from_secs(1));
}
