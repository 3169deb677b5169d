//! QEMU's `rbd:` string: an image, how to reach its cluster, and options, in one line of text.
//!
//! Here live the value and its writing; reading is in `parse`, the quoting in `escape`.
//! libvirt XML and QEMU's JSON form are not written here.

mod escape;
mod parse;

use std::fmt;

use secrecy::{ExposeSecret, SecretString};

pub use escape::{escape, unescape};

use crate::monitors::{MonitorError, MonitorList};
use crate::names::{ImageSpec, NameError};

/// An RBD image as QEMU's `rbd:` string names it:
/// `rbd:pool/[namespace/]image[@snapshot][:option=value]...`
///
/// Everything the text is made of is escaped. QEMU's reader looks for an unescaped `@` in the whole
/// rest of the string, so a user `client@site` would otherwise turn the options into an image name.
///
/// Without `conf` QEMU also reads the host's default ceph.conf; name `/dev/null` to shut that out.
///
/// ```
/// use rbdutils::monitors::MonitorList;
/// use rbdutils::qemu::{Authentication, RbdString};
///
/// let text = RbdString::new("volumes/web".parse()?)
///     .with_user("libvirt@site")
///     .with_conf("/dev/null")
///     .with_monitors(MonitorList::parse("192.0.2.11,2001:db8::12", 6789)?)
///     .with_authentication(Authentication::Cephx)
///     .to_secret_string();
/// # use secrecy::ExposeSecret;
/// assert_eq!(
///     text.expose_secret(),
///     r"rbd:volumes/web:id=libvirt\@site:conf=/dev/null:mon_host=192.0.2.11\:6789\;[2001\:db8\:\:12]\:6789:auth_client_required=cephx"
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct RbdString {
    /// The image or snapshot.
    pub image: ImageSpec,
    /// The cephx user without `client.` (option `id`).
    pub user: Option<String>,
    /// The ceph.conf to read (option `conf`); an unreadable one is an error in QEMU.
    pub conf: Option<String>,
    /// The monitors (option `mon_host`).
    pub monitors: Option<MonitorList>,
    /// The user's key in base64 (option `key`). On a command line every user of the host sees it:
    /// prefer QEMU's secret objects or a keyring file.
    pub key: Option<SecretString>,
    /// Further options, handed to Ceph as they are, in this order; the last of a name wins.
    pub options: Vec<(String, String)>,
}

/// How a client proves who it is.
///
/// Written as `auth_client_required`: newer Ceph no longer knows `auth_supported`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authentication {
    /// By a cephx user and its key.
    Cephx,
    /// Not at all.
    None,
}

/// Why a text is no usable `rbd:` string.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QemuError {
    /// It does not begin with `rbd:`.
    #[error("the text does not begin with rbd:")]
    Prefix,
    /// No unescaped `/`, so no pool; QEMU says "Pool name is required".
    #[error("the rbd: string names no pool")]
    NoPool,
    /// A pool, namespace, image or snapshot that is no name.
    #[error("the rbd: string names no usable image")]
    Name(#[source] NameError),
    /// An option without `=`. Its text is withheld, it may hold a key.
    #[error("option {position} of the rbd: string has no value")]
    NoValue {
        /// Which option, counted from 1.
        position: usize,
    },
    /// The monitors cannot be used.
    #[error("the mon_host of the rbd: string cannot be used")]
    Monitors(#[source] MonitorError),
}

impl RbdString {
    /// An image and nothing else: QEMU then takes cluster and user from the default ceph.conf.
    pub fn new(image: ImageSpec) -> Self {
        Self { image, user: None, conf: None, monitors: None, key: None, options: Vec::new() }
    }

    /// Sets the cephx user, without `client.`.
    pub fn with_user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Sets the path of the ceph.conf.
    pub fn with_conf(mut self, path: impl Into<String>) -> Self {
        self.conf = Some(path.into());
        self
    }

    /// Sets the monitors.
    pub fn with_monitors(mut self, monitors: MonitorList) -> Self {
        self.monitors = Some(monitors);
        self
    }

    /// Sets the key of the user.
    pub fn with_key(mut self, key: SecretString) -> Self {
        self.key = Some(key);
        self
    }

    /// Adds the option `auth_client_required`.
    pub fn with_authentication(self, authentication: Authentication) -> Self {
        let value = match authentication {
            Authentication::Cephx => "cephx",
            Authentication::None => "none",
        };
        self.with_option("auth_client_required", value)
    }

    /// Adds an option of Ceph, such as `client_mount_timeout`.
    pub fn with_option(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.push((name.into(), value.into()));
        self
    }

    /// The text for QEMU. A secret, because it may hold the key.
    pub fn to_secret_string(&self) -> SecretString {
        let key = self.key.as_ref().map(|key| escape(key.expose_secret()));
        self.write(key.as_deref()).into()
    }

    fn write(&self, key: Option<&str>) -> String {
        let mut text = format!("rbd:{}/", escape(self.image.pool.as_str()));
        if let Some(namespace) = &self.image.namespace {
            text += &format!("{}/", escape(namespace.as_str()));
        }
        text += &escape(self.image.image.as_str());
        if let Some(snapshot) = &self.image.snapshot {
            text += &format!("@{}", escape(snapshot.as_str()));
        }
        let mut option = |name: &str, value: &str| text += &format!(":{}={value}", escape(name));
        if let Some(user) = &self.user {
            option("id", &escape(user));
        }
        if let Some(conf) = &self.conf {
            option("conf", &escape(conf));
        }
        if let Some(monitors) = &self.monitors {
            option("mon_host", &monitors.to_qemu_mon_host());
        }
        if let Some(key) = key {
            option("key", key);
        }
        for (name, value) in &self.options {
            option(name, &escape(value));
        }
        text
    }
}

/// The text for people: as QEMU reads it, but with `***` for the key.
impl fmt::Display for RbdString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.write(self.key.as_ref().map(|_| "***")))
    }
}

/// Equal texts, keys included.
impl PartialEq for RbdString {
    fn eq(&self, other: &Self) -> bool {
        self.to_secret_string().expose_secret() == other.to_secret_string().expose_secret()
    }
}

impl Eq for RbdString {}
