//! Who may do what: roles, the listener on the network and the clients that may come there. Files are named here and
//! read elsewhere.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;

use super::raw::{RawClient, RawTls};
use super::rules::{self, InvalidValue};

/// What somebody may do; each one may do what those before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Look.
    Observe,
    /// Move volumes, and steer what moves.
    Operate,
    /// Decide what an operator decides, remove what nobody asked to have removed, and name pools nobody configured.
    Admin,
}

impl Role {
    /// Its word in the configuration and in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The listener on the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The agent's certificate and what is between it and its CA, PEM.
    pub certificate: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
    /// The CAs whose clients may come, PEM.
    pub client_ca: PathBuf,
}

/// Whoever may come over the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// A DNS name or URI among the subject's alternative names of its certificate; the common name does not count.
    /// DNS names are in lower case.
    pub name: String,
    /// What it may do.
    pub role: Role,
}

/// What is wrong with them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessRule {
    /// A value of `[tls]`.
    #[error("tls.{key}: {rule}")]
    Tls {
        /// Its key.
        key: &'static str,
        /// What is wrong with it.
        rule: InvalidValue,
    },
    /// The name of a client.
    #[error("client {name:?}: {rule}")]
    Client {
        /// As written.
        name: String,
        /// What is wrong with it.
        rule: InvalidValue,
    },
    /// A name that stands for many.
    #[error("client {0:?}: a client is one name, without '*'")]
    Wildcard(String),
    /// Two clients have one name.
    #[error("client {0:?} is defined twice")]
    Twice(String),
    /// Clients have nowhere to come to.
    #[error("[[client]] needs [tls]: only a certificate tells who a client is")]
    NoListener,
    /// A listener for nobody.
    #[error("[tls] needs at least one [[client]]: nobody else may do anything there")]
    NoClients,
}

/// Checks `[tls]` and every `[[client]]`.
pub fn resolve(
    tls: Option<RawTls>,
    clients: Vec<RawClient>,
) -> Result<(Option<Tls>, Vec<Client>), AccessRule> {
    let tls = tls.map(listener).transpose()?;
    match (&tls, clients.is_empty()) {
        (None, false) => return Err(AccessRule::NoListener),
        (Some(_), true) => return Err(AccessRule::NoClients),
        (None, true) | (Some(_), false) => {}
    }
    let mut known: Vec<Client> = Vec::with_capacity(clients.len());
    for raw in clients {
        let name = client_name(&raw.name)?;
        if known.iter().any(|other| other.name == name) {
            return Err(AccessRule::Twice(raw.name));
        }
        known.push(Client { name, role: raw.role });
    }
    Ok((tls, known))
}

fn listener(raw: RawTls) -> Result<Tls, AccessRule> {
    let value = |key| move |rule| AccessRule::Tls { key, rule };
    Ok(Tls {
        listen: rules::address(raw.listen).map_err(value("listen"))?,
        certificate: rules::absolute(&raw.certificate).map_err(value("certificate"))?,
        key: rules::absolute(&raw.key).map_err(value("key"))?,
        client_ca: rules::absolute(&raw.client_ca).map_err(value("client_ca"))?,
    })
}

fn client_name(raw: &str) -> Result<String, AccessRule> {
    let wrong = |rule| AccessRule::Client { name: raw.to_owned(), rule };
    let name = rules::word(raw.to_owned()).map_err(wrong)?;
    if name.contains('*') {
        return Err(AccessRule::Wildcard(name));
    }
    // A URI is told by its colon, which no DNS name has; its case counts.
    Ok(if name.contains(':') { name } else { name.to_ascii_lowercase() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    const TLS: &str = "[tls]\nlisten = \"127.0.0.1:1\"\ncertificate = \"/c\"\nkey = \"/k\"\n\
                       client_ca = \"/ca\"\n";

    fn parse(text: &str) -> Result<Config, String> {
        let text = format!("host_name = \"a\"\n{text}");
        Config::parse(&text).map_err(|error| error.rule.to_string())
    }

    #[test]
    fn clients_have_names_and_roles_and_the_socket_has_one_role() {
        let config = parse("").expect("the least there is");
        assert_eq!((config.socket_role, config.tls, config.clients), (Role::Admin, None, vec![]));
        let text = format!(
            "socket_group = \"libvirt\"\nsocket_role = \"observe\"\n{TLS}\
             [[client]]\nname = \"Mgmt.Example.org\"\nrole = \"operate\"\n\
             [[client]]\nname = \"spiffe://Site/watcher\"\nrole = \"observe\"\n"
        );
        let config = parse(&text).expect("two clients");
        let clients =
            [("mgmt.example.org", Role::Operate), ("spiffe://Site/watcher", Role::Observe)];
        let clients = clients.map(|(name, role)| Client { name: name.to_owned(), role });
        assert_eq!(config.clients, clients);
        assert_eq!(config.socket_group.as_deref(), Some("libvirt"));
        assert_eq!(config.socket_role, Role::Observe);
        assert!(Role::Observe < Role::Operate && Role::Operate < Role::Admin);
    }

    #[test]
    fn every_broken_rule_is_named() {
        let client = |name: &str| format!("[[client]]\nname = \"{name}\"\nrole = \"admin\"\n");
        let tls = |from: &str, to: &str| TLS.replace(from, to) + &client("a");
        for (text, message) in [
            (client("a"), "[[client]] needs [tls]"),
            (TLS.to_owned(), "[tls] needs at least one [[client]]"),
            (TLS.to_owned() + &client("A") + &client("a"), "client \"a\" is defined twice"),
            (TLS.to_owned() + &client("*.example.org"), "without '*'"),
            (TLS.to_owned() + &client(" "), "client \" \": it is empty"),
            (tls("127.0.0.1:1", "localhost:1"), "tls.listen: \"localhost:1\" is not an address"),
            (tls("/c\"", "c\""), "tls.certificate: \"c\" is not an absolute path"),
            (tls("/k", "/../k"), "tls.key: \"/../k\" contains '..'"),
            (tls("/ca", ""), "tls.client_ca: it is empty"),
            (
                TLS.to_owned() + "[[client]]\nname = \"a\"\nrole = \"root\"\n",
                "unknown variant `root`",
            ),
            (tls("key = \"/k\"\n", ""), "missing field `key`"),
        ] {
            let refused = parse(&text).expect_err(message);
            assert!(refused.contains(message), "{refused}\nlacks {message}");
        }
    }
}
