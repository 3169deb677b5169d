//! Where the agent is: a socket of this host, or a name on the network with the files that mutual TLS takes.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::failure::Failure;
use crate::api::status::Exit;
use crate::config::DEFAULT_SOCKET;

const GENERAL: &str = "General options";
const SOCKET: &str = "VOLFERRY_SOCKET";
const CONNECT: &str = "VOLFERRY_CONNECT";

/// Where the agent is, as typed.
#[derive(Debug, Args)]
pub struct AddressArguments {
    /// The agent's socket; else $VOLFERRY_SOCKET, else /run/volferry/volferry.sock
    #[arg(long, global = true, value_name = "PATH", help_heading = GENERAL)]
    socket: Option<PathBuf>,

    /// The agent on another host, https://HOST:PORT, with mutual TLS; else $VOLFERRY_CONNECT
    #[arg(long, global = true, value_name = "URL", help_heading = GENERAL)]
    #[arg(conflicts_with = "socket")]
    connect: Option<String>,

    /// The CA of the agent's certificate, PEM; else $VOLFERRY_CA
    #[arg(long, global = true, value_name = "FILE", help_heading = GENERAL)]
    ca: Option<PathBuf>,

    /// The certificate to show it, PEM; else $VOLFERRY_CERT
    #[arg(long, global = true, value_name = "FILE", help_heading = GENERAL)]
    cert: Option<PathBuf>,

    /// The key of that certificate, PEM; else $VOLFERRY_KEY
    #[arg(long, global = true, value_name = "FILE", help_heading = GENERAL)]
    key: Option<PathBuf>,
}

/// Where the agent is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A unix socket.
    Socket(PathBuf),
    /// A listener with mutual TLS.
    Network(Network),
}

/// A listener with mutual TLS, and what it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    url: String,
    ca: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => path.display().fmt(formatter),
            Self::Network(network) => formatter.write_str(&network.url),
        }
    }
}

impl AddressArguments {
    /// As said on the command line, else by the environment, else the usual socket.
    ///
    /// Errors: what is said contradicts itself, or lacks a file.
    pub fn address(&self) -> Result<Address, Failure> {
        let said = |variable| env::var_os(variable).filter(|value| !value.is_empty());
        let socket = self.socket.clone().filter(|path| !path.as_os_str().is_empty());
        if let Some(path) = socket {
            return Ok(Address::Socket(path));
        }
        let url = match (&self.connect, said(CONNECT), said(SOCKET)) {
            (Some(url), _, _) => url.clone(),
            (None, Some(_), Some(_)) => {
                return Err(usage(format!("both {CONNECT} and {SOCKET} say where the agent is"))
                    .hint("unset one of them, or say --socket PATH or --connect URL"));
            }
            (None, Some(url), None) => utf8(url)?,
            (None, None, Some(path)) => return Ok(Address::Socket(path.into())),
            (None, None, None) => return Ok(Address::Socket(DEFAULT_SOCKET.into())),
        };
        let file = |given: &Option<PathBuf>, option: &str, variable| {
            let file = given.clone().or_else(|| said(variable).map(PathBuf::from));
            file.ok_or_else(|| {
                usage(format!("{url} takes mutual TLS: {option} FILE is missing"))
                    .hint(format!("--ca, --cert and --key, or ${variable} and its like"))
            })
        };
        let network = Network {
            ca: file(&self.ca, "--ca", "VOLFERRY_CA")?,
            certificate: file(&self.cert, "--cert", "VOLFERRY_CERT")?,
            key: file(&self.key, "--key", "VOLFERRY_KEY")?,
            url: url.clone(),
        };
        Ok(Address::Network(network))
    }
}

impl Network {
    /// What connects there.
    ///
    /// Errors: the address or a file cannot be used.
    pub fn endpoint(&self) -> Result<Endpoint, Failure> {
        let url = &self.url;
        if !url.starts_with("https://") {
            return Err(usage(format!("{url:?} is no address such as https://host.example:16510")));
        }
        let unusable = |error: tonic::transport::Error| {
            usage(format!(
                "{url:?} with these files cannot be used: {}",
                crate::report::chain(&error)
            ))
        };
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(read(&self.ca)?))
            .identity(Identity::from_pem(read(&self.certificate)?, read(&self.key)?));
        Endpoint::from_shared(url.clone()).map_err(unusable)?.tls_config(tls).map_err(unusable)
    }
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(file).map_err(|error| usage(format!("{} cannot be read: {error}", file.display())))
}

fn utf8(text: OsString) -> Result<String, Failure> {
    text.into_string().map_err(|text| usage(format!("{CONNECT} is no text: {}", text.display())))
}

fn usage(message: String) -> Failure {
    Failure::new(Exit::Usage, message)
}
