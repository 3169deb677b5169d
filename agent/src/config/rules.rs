//! Rules for single values: words, paths, the listener.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Component, Path, PathBuf};

use std::time::Duration;

use super::raw::{RawMetrics, RawRequestPools};
use super::{DEFAULT_SOCKET, METRICS_PORT};
use crate::spec::span;
use crate::spec::{Bytes, InvalidQuantity, RequestPools};

const LONGEST_RETENTION: Duration = Duration::from_secs(10 * 366 * 86_400);

/// A value that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidValue {
    /// Nothing in it.
    #[error("it is empty")]
    Empty,
    /// A character no name or path of ours may have.
    #[error("{0:?} contains a control character")]
    ControlCharacter(String),
    /// A path that depends on where the daemon was started.
    #[error("{0:?} is not an absolute path")]
    NotAbsolute(String),
    /// A path that leads back up.
    #[error("{0:?} contains '..'")]
    LeadsUp(String),
    /// A listener on the network.
    #[error(
        "{0:?} needs mutual TLS, which is not configured: an address goes to `listen` of [tls]; here only \"unix:/PATH\""
    )]
    NeedsTls(String),
    /// No address of a TCP listener.
    #[error("{0:?} is not an address with a port, such as 127.0.0.1:9856 or [::1]:9856")]
    NotAnAddress(String),
    /// A number that allows nothing.
    #[error("it must be at least 1")]
    NotPositive,
    /// No share.
    #[error("{0} is not a share: expected 0 to 50")]
    NotAShare(u32),
    /// No size.
    #[error(transparent)]
    Quantity(InvalidQuantity),
    /// No span of time.
    #[error("{0:?} is not a time of at most ten years, such as 12h or 7d, or 0")]
    NotASpan(String),
    /// The root, below which everything is.
    #[error("\"/\" would allow every folder of the host")]
    Everything,
    /// No uuid.
    #[error("{0:?} is not a uuid")]
    NotAUuid(String),
}

/// A text that is not empty and has no control characters.
pub fn word(text: String) -> Result<String, InvalidValue> {
    if text.trim().is_empty() {
        Err(InvalidValue::Empty)
    } else if text.chars().any(char::is_control) {
        Err(InvalidValue::ControlCharacter(text))
    } else {
        Ok(text)
    }
}

/// An absolute path without `.`, `..`, doubled or final slashes.
pub fn absolute(text: &str) -> Result<PathBuf, InvalidValue> {
    let text = word(text.to_owned())?;
    let path = Path::new(&text);
    if !path.is_absolute() {
        return Err(InvalidValue::NotAbsolute(text));
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(InvalidValue::LeadsUp(text));
    }
    Ok(path.components().collect())
}

/// Which pools requests may bring along.
pub fn request_pools(raw: RawRequestPools) -> Result<RequestPools, InvalidValue> {
    let paths = raw.paths.iter().map(|path| match absolute(path)?.parent() {
        Some(_) => absolute(path),
        None => Err(InvalidValue::Everything),
    });
    Ok(RequestPools { paths: paths.collect::<Result<_, _>>()?, rbd: raw.rbd })
}

/// The path of the unix socket to listen on.
pub fn listen(text: Option<&str>) -> Result<PathBuf, InvalidValue> {
    match text {
        None => Ok(PathBuf::from(DEFAULT_SOCKET)),
        Some(text) => match text.strip_prefix("unix:") {
            Some(path) => absolute(path),
            None => Err(InvalidValue::NeedsTls(text.to_owned())),
        },
    }
}

/// Where metrics are scraped: on loopback unless it is said otherwise.
pub fn metrics(raw: Option<RawMetrics>) -> Result<Option<SocketAddr>, InvalidValue> {
    let Some(raw) = raw else { return Ok(None) };
    match raw.listen {
        None => Ok(Some(SocketAddr::from((Ipv4Addr::LOCALHOST, METRICS_PORT)))),
        Some(text) => address(text).map(Some),
    }
}

/// An address with a port.
pub fn address(text: String) -> Result<SocketAddr, InvalidValue> {
    text.parse().map_err(|_| InvalidValue::NotAnAddress(text))
}

/// A span of time, or none at all.
pub fn retention(text: Option<&str>) -> Result<Duration, InvalidValue> {
    match text {
        None | Some("0") => Ok(Duration::ZERO),
        Some(text) => span::parse(text)
            .ok()
            .filter(|span| *span <= LONGEST_RETENTION)
            .ok_or_else(|| InvalidValue::NotASpan(text.to_owned())),
    }
}

/// A uuid in its canonical form.
pub fn uuid(text: &str) -> Result<String, InvalidValue> {
    match uuid::Uuid::try_parse(text) {
        Ok(uuid) => Ok(uuid.as_hyphenated().to_string()),
        Err(_) => Err(InvalidValue::NotAUuid(text.to_owned())),
    }
}

/// How many at a time; none would stop everything.
pub fn at_a_time(number: u32) -> Result<usize, InvalidValue> {
    match usize::try_from(number) {
        Ok(number) if number > 0 => Ok(number),
        Ok(_) | Err(_) => Err(InvalidValue::NotPositive),
    }
}

/// Hundredths of a pool that stay free.
pub fn share(percent: u32) -> Result<u8, InvalidValue> {
    match u8::try_from(percent) {
        Ok(share) if share <= 50 => Ok(share),
        Ok(_) | Err(_) => Err(InvalidValue::NotAShare(percent)),
    }
}

/// A size with its unit.
pub fn size(text: &str) -> Result<Bytes, InvalidValue> {
    text.parse().map_err(InvalidValue::Quantity)
}
