//! Who calls: a user of this host on the socket, or a client by the certificate of its connection.

use std::fmt;
use std::net::SocketAddr;

use hyper::http::Extensions;
use tonic::transport::server::{TcpConnectInfo, TlsConnectInfo, UdsConnectInfo};
use tonic::{Request, Status};

use super::super::{status, tls};
use super::{Entry, Rules};
use crate::config::access::Role;
use crate::plan::{Refusal, RefusalCode};

/// Who somebody is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// A user of this host, as the kernel says.
    Local {
        /// The user.
        uid: u32,
        /// Its group.
        gid: u32,
        /// Its process, where that can be told.
        pid: Option<i32>,
    },
    /// A client on the network.
    Remote {
        /// Its name in the configuration; of a stranger, the names in its certificate.
        name: String,
        /// Where it comes from.
        address: Option<SocketAddr>,
    },
    /// The connection does not tell.
    Unknown,
}

impl fmt::Display for Who {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local { uid, .. } => write!(formatter, "uid {uid}"),
            Self::Remote { name, .. } => write!(formatter, "client {name}"),
            Self::Unknown => formatter.write_str("an unknown caller"),
        }
    }
}

/// Whoever calls, and what it may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Who it is.
    pub who: Who,
    /// Its role, or why it has none.
    pub role: Result<Role, String>,
}

impl Caller {
    /// Whoever is at the other end of a connection.
    pub fn of(extensions: &Extensions, rules: &Rules) -> Self {
        if let Some(remote) = extensions.get::<TlsConnectInfo<TcpConnectInfo>>() {
            return Self::remote(remote, rules);
        }
        match extensions.get::<UdsConnectInfo>().map(|local| local.peer_cred) {
            Some(Some(peer)) => Self {
                who: Who::Local { uid: peer.uid(), gid: peer.gid(), pid: peer.pid() },
                role: Ok(rules.socket_role),
            },
            // It could connect, so the socket's mode lets it.
            Some(None) => Self { who: Who::Unknown, role: Ok(rules.socket_role) },
            None => Self { who: Who::Unknown, role: Err("nobody knows it".to_owned()) },
        }
    }

    fn remote(connection: &TlsConnectInfo<TcpConnectInfo>, rules: &Rules) -> Self {
        let address = connection.get_ref().remote_addr();
        let nobody =
            |name: String, why: String| Self { who: Who::Remote { name, address }, role: Err(why) };
        let shown = connection.peer_certs().unwrap_or_default();
        let names = match shown.first().map(tls::names) {
            Some(Ok(names)) => names,
            Some(Err(error)) => {
                return nobody(String::new(), format!("its certificate cannot be read: {error}"));
            }
            None => return nobody(String::new(), "it has shown no certificate".to_owned()),
        };
        let Some(identity) = &rules.identity else {
            return nobody(names.join(" "), "there are no certificates to judge it by".to_owned());
        };
        if let Err(error) = identity.verify(&shown) {
            return nobody(names.join(" "), format!("its certificate is no longer good: {error}"));
        }
        let mut known = rules.clients.iter().filter(|client| names.contains(&client.name));
        match (known.next(), known.next()) {
            (Some(client), None) => Self {
                who: Who::Remote { name: client.name.clone(), address },
                role: Ok(client.role),
            },
            (None, _) => nobody(
                names.join(" "),
                "no [[client]] of the configuration has a name of its certificate".to_owned(),
            ),
            (Some(_), Some(_)) => nobody(
                names.join(" "),
                "its certificate has the names of two clients of the configuration".to_owned(),
            ),
        }
    }

    /// Whether it may do what takes `needed`.
    ///
    /// Errors: the refusal it is answered with.
    pub fn may(&self, needed: Role, what: &str) -> Result<(), Refusal> {
        let message = match &self.role {
            Ok(role) if *role >= needed => return Ok(()),
            Ok(role) => format!("{} has the role {role}; {what} takes {needed}", self.who),
            Err(why) => format!("{} may do nothing here: {why}", self.who),
        };
        Err(Refusal::new(RefusalCode::NotAllowed, message))
    }
}

/// What a handler knows about its call.
#[derive(Debug)]
pub struct Call {
    /// Who calls.
    pub caller: Caller,
    /// Its line in the audit.
    pub entry: Entry,
}

impl Call {
    /// Takes a request apart.
    ///
    /// Errors: it came past the layer that knows callers, which is a fault of the agent.
    pub fn of<T>(mut request: Request<T>) -> Result<(Self, T), Status> {
        let extensions = request.extensions_mut();
        match (extensions.remove::<Caller>(), extensions.remove::<Entry>()) {
            (Some(caller), Some(entry)) => Ok((Self { caller, entry }, request.into_inner())),
            _ => Err(Status::internal("the agent does not know who calls")),
        }
    }

    /// Whether its caller may ask for what takes `needed`.
    ///
    /// Errors: the status it is answered with.
    pub fn may(&self, (needed, what): (Role, &str)) -> Result<(), Status> {
        self.caller.may(needed, what).map_err(|refusal| status::refusal_status(&refusal))
    }
}
