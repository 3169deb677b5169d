//! Space of a pool, from the monitors' answers to `df detail` and `osd pool ls detail`.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::cluster::ClusterError;
use crate::errno::ErrorClass;
use crate::ffi::ClusterHandle;
use crate::names::PoolName;

/// How much room a pool has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSpace {
    /// What clients can still write before the fullest OSD is full, replication taken off. The
    /// quota is not part of it.
    pub max_avail_bytes: u64,
    /// What clients have written; this is what the quota counts.
    pub used_bytes: u64,
    /// Objects in the pool.
    pub used_objects: u64,
    /// The pool's limit for `used_bytes`.
    pub quota_max_bytes: Option<u64>,
    /// The pool's limit for `used_objects`.
    pub quota_max_objects: Option<u64>,
    /// The pool's flags; `None` when the user may not read them.
    pub flags: Option<PoolFlags>,
}

/// Flags that foretell or explain hanging writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolFlags {
    /// Writes are held back: an OSD is full or the quota is used up.
    pub full: bool,
    /// An OSD is nearly full.
    pub nearfull: bool,
}

impl PoolSpace {
    /// What can still be written, the quota taken into account; nothing in a full pool.
    pub fn writable_bytes(&self) -> u64 {
        if self.flags.is_some_and(|flags| flags.full) {
            return 0;
        }
        let quota = self.quota_max_bytes.map_or(u64::MAX, |q| q.saturating_sub(self.used_bytes));
        self.max_avail_bytes.min(quota)
    }
}

#[derive(Deserialize)]
struct Df {
    pools: Vec<DfPool>,
}

#[derive(Deserialize)]
struct DfPool {
    name: String,
    stats: DfStats,
}

#[derive(Deserialize)]
struct DfStats {
    stored: u64,
    objects: u64,
    max_avail: u64,
    #[serde(default)]
    quota_bytes: u64,
    #[serde(default)]
    quota_objects: u64,
}

#[derive(Deserialize)]
struct PoolDetail {
    pool_name: String,
    #[serde(default)]
    flags_names: String,
}

pub(super) fn read(cluster: &ClusterHandle, pool: &PoolName) -> Result<PoolSpace, ClusterError> {
    let df = r#"{"prefix":"df","detail":"detail","format":"json"}"#;
    let list = r#"{"prefix":"osd pool ls","detail":"detail","format":"json"}"#;
    let df: Df = ask(cluster, "df detail", df)?;
    let flags = match ask::<Vec<PoolDetail>>(cluster, "osd pool ls detail", list) {
        Ok(pools) => pools.iter().find(|p| p.pool_name == pool.as_str()).map(flags),
        Err(error) if error.class() == ErrorClass::PermissionDenied => None,
        Err(error) => return Err(error),
    };
    space(df, pool, flags).ok_or_else(|| ClusterError::NotListed(pool.clone()))
}

fn ask<T: DeserializeOwned>(
    cluster: &ClusterHandle,
    command: &'static str,
    json: &str,
) -> Result<T, ClusterError> {
    let answer = cluster.mon_command(json).map_err(|(source, text)| ClusterError::Command {
        command,
        text,
        source,
    })?;
    serde_json::from_slice(&answer).map_err(|source| ClusterError::Answer { command, source })
}

fn flags(pool: &PoolDetail) -> PoolFlags {
    let has = |flag| pool.flags_names.split(',').any(|name| name == flag);
    PoolFlags {
        full: has("full") || has("full_quota"),
        nearfull: has("nearfull") || has("backfillfull"),
    }
}

fn space(df: Df, pool: &PoolName, flags: Option<PoolFlags>) -> Option<PoolSpace> {
    let stats = df.pools.into_iter().find(|p| p.name == pool.as_str())?.stats;
    let quota = |limit: u64| (limit != 0).then_some(limit);
    Some(PoolSpace {
        max_avail_bytes: stats.max_avail,
        used_bytes: stats.stored,
        used_objects: stats.objects,
        quota_max_bytes: quota(stats.quota_bytes),
        quota_max_objects: quota(stats.quota_objects),
        flags,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DF: &str = r#"{"stats":{"total_bytes":1},"pools":[
        {"name":"fast","id":1,"stats":{"stored":30,"objects":2,"bytes_used":90,"max_avail":100,
         "quota_objects":0,"quota_bytes":50}},
        {"name":"slow","id":2,"stats":{"stored":0,"objects":0,"max_avail":100}}]}"#;

    #[test]
    fn the_quota_bounds_what_can_be_written() {
        let pool = |name| PoolName::new(name).unwrap();
        let read = |name, flags| space(serde_json::from_str(DF).unwrap(), &pool(name), flags);
        let fast = read("fast", None).unwrap();
        assert_eq!((fast.quota_max_bytes, fast.quota_max_objects), (Some(50), None));
        assert_eq!(fast.writable_bytes(), 20);
        assert_eq!(read("slow", None).unwrap().writable_bytes(), 100);
        let full = Some(PoolFlags { full: true, nearfull: false });
        assert_eq!(read("slow", full).unwrap().writable_bytes(), 0);
        assert_eq!(read("other", None), None);
    }

    #[test]
    fn flags_are_whole_words() {
        let flags = |names: &str| {
            flags(&PoolDetail { pool_name: String::new(), flags_names: names.to_owned() })
        };
        assert_eq!(flags("hashpspool"), PoolFlags { full: false, nearfull: false });
        assert_eq!(flags("hashpspool,nearfull"), PoolFlags { full: false, nearfull: true });
        assert_eq!(flags("full_quota,full"), PoolFlags { full: true, nearfull: false });
    }
}
