//! How the tests reach a real cluster; they say so where there is none. The lab tells by variables:
//! `VOLFERRY_LAB_CEPH_CONF` (its `mon_host` is read), `VOLFERRY_LAB_CEPH_USER`,
//! `VOLFERRY_LAB_CEPH_KEY_FILE` (the bare key) and `VOLFERRY_LAB_CEPH_POOL`; the last three also by
//! the names in the lab's own `env` file.

#![allow(dead_code, reason = "each test program uses a part")]

use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};

use rbdutils::cluster::{Cluster, ConnectOptions, Timeouts};
use rbdutils::images::{ImageId, Pool};
use rbdutils::monitors::MonitorList;
use rbdutils::names::{ImageName, PoolName};

pub const MIB: u64 = 1 << 20;

/// A pool of the lab cluster, with a prefix for the names of one test.
pub struct Lab {
    pub options: ConnectOptions,
    pub pool: Pool,
    pub key_file: String,
    prefix: String,
}

impl Lab {
    pub fn find(test: &str) -> Option<Self> {
        let variable = |names: [&str; 2]| {
            let value = names.iter().find_map(|name| std::env::var(name).ok());
            if value.is_none() {
                let name = names[0];
                skipped(&format!("SKIPPED {test}: {name} is not set, there is no lab cluster"));
            }
            value
        };
        let conf = variable(["VOLFERRY_LAB_CEPH_CONF"; 2])?;
        let conf = std::fs::read_to_string(conf).unwrap();
        let user = variable(["VOLFERRY_LAB_CEPH_USER", "VOLFERRY_LAB_RBD_USER"])?;
        let key_file = variable(["VOLFERRY_LAB_CEPH_KEY_FILE", "VOLFERRY_LAB_KEY_FILE"])?;
        let key = std::fs::read_to_string(&key_file).unwrap();
        let pool = variable(["VOLFERRY_LAB_CEPH_POOL", "VOLFERRY_LAB_RBD_POOL_A"])?;
        let pool = PoolName::new(pool).unwrap();
        let monitors = conf.lines().find_map(|line| {
            let (key, value) = line.split_once('=')?;
            matches!(key.trim(), "mon_host" | "mon host").then(|| value.trim().to_owned())
        });
        let options = ConnectOptions {
            monitors: MonitorList::parse(&monitors.unwrap(), 0).unwrap(),
            user: Some(user),
            key: Some(key.trim().into()),
            timeouts: Timeouts::default(),
        };
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("native-{}-{count}", std::process::id());
        let pool = Cluster::connect(&options).unwrap().pool(&pool, None).unwrap();
        Some(Self { options, pool, key_file, prefix })
    }

    pub fn name(&self, name: &str) -> ImageName {
        ImageName::new(format!("{}-{name}", self.prefix)).unwrap()
    }

    pub fn create(&self, name: &str, size_bytes: u64) -> (ImageName, ImageId) {
        let name = self.name(name);
        let id = self.pool.create(&name, size_bytes).unwrap();
        (name, id)
    }
}

/// Past the test harness, which keeps the output of passed tests to itself.
fn skipped(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

macro_rules! lab {
    ($test:literal) => {
        match Lab::find($test) {
            Some(lab) => lab,
            None => return,
        }
    };
}
