//! Requests from the wire into validated specs.

use std::collections::HashMap;
use std::time::Duration;

use tonic::Status;

use crate::api::{pb, status};
use crate::config;
use crate::config::pool::PoolError;
use crate::config::raw::{RawKind, RawPool};
use crate::operation::Kept;
use crate::plan::{Refusal, RefusalCode};
use crate::spec::{
    Bytes, BytesPerSecond, CheckpointName, DiskReference, DomainReference, EncryptionWish,
    InvalidIoTune, InvalidName, InvalidPassphrase, InvalidQuantity, IoTune, LeftoverId, Method,
    MigrateSpec, OperationId, Passphrase, Passphrases, PoolName, RequestPool, Subject,
    VolumeFormat, VolumeName,
    encryption::{UnknownHeader, UnknownScheme},
};

/// A request that is no valid spec.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequest {
    /// A name breaks a rule.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// The limit is no rate.
    #[error("invalid bandwidth: {0}")]
    Bandwidth(#[from] InvalidQuantity),
    /// Limits that QEMU would not take.
    #[error("invalid iotune: {0}")]
    IoTune(#[from] InvalidIoTune),
    /// No such method.
    #[error("invalid method: {0:?} is none of auto, mirror and handover")]
    Method(String),
    /// A pool that the configuration could not have either.
    #[error("invalid pool: {0}")]
    Pool(#[from] PoolError),
    /// A pool of no known type.
    #[error("invalid pool: {0:?} is none of rbd, nfs, shared-mount-point and local")]
    PoolType(String),
    /// The deadline is no span of time ahead.
    #[error("invalid deadline: it must be longer than zero")]
    Deadline,
    /// Two wishes that contradict each other.
    #[error("{0} and {1} exclude each other")]
    Exclusive(&'static str, &'static str),
    /// A passphrase that cannot be one.
    #[error("invalid {0}: {1}")]
    Passphrase(&'static str, InvalidPassphrase),
    /// No encryption has that name.
    #[error("invalid accept_encryption: {0}")]
    Encryption(#[from] UnknownScheme),
    /// No volume is encrypted like that.
    #[error("invalid volume.encryption: {0}")]
    Header(#[from] UnknownHeader),
    /// A page begins after no operation of the list.
    #[error("invalid page_token: {0:?} is no operation of this list; begin again without one")]
    PageToken(String),
    /// A part of the message that must be there is not.
    #[error("the request has no {0}")]
    Missing(&'static str),
}

impl From<InvalidRequest> for Status {
    /// Names are refused like everywhere else, with a code; the rest are mistakes of the client program.
    fn from(error: InvalidRequest) -> Self {
        match error {
            InvalidRequest::Name(name) => {
                status::refusal_status(&Refusal::new(RefusalCode::InvalidName, name.to_string()))
            }
            InvalidRequest::Bandwidth(_)
            | InvalidRequest::PageToken(_)
            | InvalidRequest::IoTune(_)
            | InvalidRequest::Pool(_)
            | InvalidRequest::PoolType(_)
            | InvalidRequest::Method(_)
            | InvalidRequest::Deadline
            | InvalidRequest::Exclusive(..)
            | InvalidRequest::Passphrase(..)
            | InvalidRequest::Encryption(_)
            | InvalidRequest::Header(_)
            | InvalidRequest::Missing(_) => Self::invalid_argument(error.to_string()),
        }
    }
}

/// The volume to keep; none when only the evidence is asked for.
pub fn kept(request: &pb::ResolveOperationRequest) -> Result<Option<Kept>, InvalidRequest> {
    match request.keep() {
        pb::Place::Source => Ok(Some(Kept::Source)),
        pb::Place::Destination => Ok(Some(Kept::Destination)),
        pb::Place::Unspecified if request.remove_other => {
            Err(InvalidRequest::Missing("volume to keep"))
        }
        pb::Place::Unspecified => Ok(None),
        pb::Place::Unknown => Err(InvalidRequest::Missing("volume to keep")),
    }
}

impl TryFrom<pb::MigrateRequest> for MigrateSpec {
    type Error = InvalidRequest;

    fn try_from(mut request: pb::MigrateRequest) -> Result<Self, InvalidRequest> {
        check_exclusive(&request)?;
        let (encryption, passphrases) = encryption(&mut request)?;
        let operation = match request.operation_id {
            id if id.is_empty() => OperationId::random(),
            id => OperationId::new(id)?,
        };
        let subject = subject(request.volume, request.domain, request.disk)?;
        let volume = Some(request.destination_volume).filter(|name| !name.is_empty());
        Ok(Self {
            operation,
            subject,
            pool: pool(&request.to_pool, request.pool)?,
            to: PoolName::new(request.to_pool)?,
            destination_volume: volume.map(VolumeName::new).transpose()?,
            bandwidth: bandwidth(request.bandwidth_bytes_per_second)?,
            keep_source: request.keep_source,
            keep_source_name: request.keep_source_name,
            delete_source_snapshots: request.delete_source_snapshots,
            write_blocking: request.write_blocking,
            manual_pivot: request.manual_pivot,
            deadline: request.deadline.map(deadline).transpose()?,
            allow_checkpoint_loss: request
                .allow_checkpoint_loss
                .into_iter()
                .map(CheckpointName::new)
                .collect::<Result<_, _>>()?,
            live: request.live,
            no_compare: request.no_compare,
            expected_size: Some(request.expected_bytes).filter(|bytes| *bytes > 0).map(Bytes),
            encryption,
            passphrases,
            method: method(&request.method)?,
            iotune: iotune(request.iotune)?,
        })
    }
}

impl TryFrom<pb::PlanRequest> for MigrateSpec {
    type Error = InvalidRequest;

    fn try_from(request: pb::PlanRequest) -> Result<Self, InvalidRequest> {
        request.request.ok_or(InvalidRequest::Missing("request"))?.try_into()
    }
}

/// A disk of a domain, or a volume, never both.
fn subject(
    volume: Option<pb::VolumeSelector>,
    domain: String,
    disk: String,
) -> Result<Subject, InvalidRequest> {
    let Some(volume) = volume else {
        let (domain, disk) = (DomainReference::new(domain)?, DiskReference::new(disk)?);
        return Ok(Subject::Disk { domain, disk });
    };
    let volume_format = match volume.format() {
        pb::VolumeFormat::Raw => VolumeFormat::Raw,
        pb::VolumeFormat::Qcow2 => VolumeFormat::Qcow2,
        pb::VolumeFormat::Unspecified => return Err(InvalidRequest::Missing("volume.format")),
    };
    Ok(Subject::Volume {
        volume_pool: PoolName::new(volume.pool)?,
        volume_name: VolumeName::new(volume.name)?,
        volume_format,
        volume_encryption: match volume.encryption.as_str() {
            "" => None,
            word => Some(word.parse()?),
        },
    })
}

fn check_exclusive(request: &pb::MigrateRequest) -> Result<(), InvalidRequest> {
    if request.volume.is_some() {
        let others = [
            ("domain", !request.domain.is_empty()),
            ("disk", !request.disk.is_empty()),
            ("live", request.live),
        ];
        if let Some((other, _)) = others.into_iter().find(|(_, said)| *said) {
            return Err(InvalidRequest::Exclusive("volume", other));
        }
    }
    let wishes = [
        ("keep_source", request.keep_source),
        ("keep_source_name", request.keep_source_name),
        ("delete_source_snapshots", request.delete_source_snapshots),
    ];
    let mut wished = wishes.into_iter().filter(|(_, wished)| *wished).map(|(name, _)| name);
    match (wished.next(), wished.next()) {
        (Some(one), Some(other)) => Err(InvalidRequest::Exclusive(one, other)),
        _ => Ok(()),
    }
}

/// The wishes, and the passphrases taken out of the message. No bytes are no passphrase.
fn encryption(
    request: &mut pb::MigrateRequest,
) -> Result<(EncryptionWish, Passphrases), InvalidRequest> {
    let take = |name, bytes: &mut Vec<u8>| match std::mem::take(bytes) {
        none if none.is_empty() => Ok(None),
        bytes => Passphrase::new(bytes)
            .map(Some)
            .map_err(|invalid| InvalidRequest::Passphrase(name, invalid)),
    };
    let passphrases = Passphrases {
        source: take("passphrase", &mut request.passphrase)?,
        destination: take("destination_passphrase", &mut request.destination_passphrase)?,
    };
    if request.decrypt && passphrases.destination.is_some() {
        return Err(InvalidRequest::Exclusive("decrypt", "destination_passphrase"));
    }
    let accept = std::mem::take(&mut request.accept_encryption);
    let wish = EncryptionWish {
        source_passphrase: passphrases.source.is_some(),
        destination_passphrase: passphrases.destination.is_some(),
        accept: accept.iter().map(|word| word.parse()).collect::<Result<_, _>>()?,
        decrypt: request.decrypt,
    };
    Ok((wish, passphrases))
}

impl std::fmt::Debug for pb::MigrateRequest {
    /// Names what is moved, and never a passphrase.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MigrateRequest")
            .field("operation_id", &self.operation_id)
            .field("domain", &self.domain)
            .field("disk", &self.disk)
            .field("to_pool", &self.to_pool)
            .finish_non_exhaustive()
    }
}

/// A limit as the wire has it, 0 for none.
pub fn bandwidth(rate: u64) -> Result<Option<BytesPerSecond>, InvalidRequest> {
    Ok(if rate == 0 { None } else { Some(BytesPerSecond::new(rate)?) })
}

/// A method as the wire has it; empty: the agent chooses.
fn method(name: &str) -> Result<Method, InvalidRequest> {
    match name {
        "" | "auto" => Ok(Method::Auto),
        "mirror" => Ok(Method::Mirror),
        "handover" => Ok(Method::Handover),
        _ => Err(InvalidRequest::Method(name.to_owned())),
    }
}

/// Limits as the wire has them; an empty map asks for none.
fn iotune(limits: HashMap<String, u64>) -> Result<Option<IoTune>, InvalidRequest> {
    if limits.is_empty() {
        return Ok(None);
    }
    Ok(Some(IoTune::from_names(limits)?))
}

/// A pool the request brings along, by the rules of the configuration.
fn pool(name: &str, wire: Option<pb::RequestPool>) -> Result<Option<RequestPool>, InvalidRequest> {
    let Some(wire) = wire else { return Ok(None) };
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    let kind = match wire.r#type.as_str() {
        "rbd" => RawKind::Rbd,
        "nfs" => RawKind::Nfs,
        "shared-mount-point" => RawKind::SharedMountPoint,
        "local" => RawKind::Local,
        _ => return Err(InvalidRequest::PoolType(wire.r#type)),
    };
    let raw = RawPool {
        name: name.to_owned(),
        kind,
        monitors: Some(wire.monitors).filter(|list| !list.is_empty()),
        port: Some(wire.port).filter(|port| *port != 0),
        pool: some(wire.ceph_pool),
        namespace: some(wire.ceph_namespace),
        user: some(wire.user),
        secret_uuid: some(wire.secret_uuid),
        key_file: None,
        path: some(wire.path),
        host: some(wire.host),
        must_be_mounted: wire.must_be_mounted,
        operations: None,
    };
    Ok(Some(RequestPool::from(config::pool::resolve_here(raw)?)))
}

/// The id of an existing operation.
pub fn operation_id(text: String) -> Result<OperationId, InvalidRequest> {
    Ok(OperationId::new(text)?)
}

/// The id of a leftover record.
pub fn leftover_id(text: String) -> Result<LeftoverId, InvalidRequest> {
    Ok(LeftoverId::new(text)?)
}

/// The name of a domain.
pub fn domain(text: String) -> Result<DomainReference, InvalidRequest> {
    Ok(DomainReference::new(text)?)
}

fn deadline(wire: prost_types::Duration) -> Result<Duration, InvalidRequest> {
    span(&wire).filter(|deadline| !deadline.is_zero()).ok_or(InvalidRequest::Deadline)
}

/// A span of time from the wire; none when it is negative or malformed. (prost's own conversion negates, and so
/// overflows on the smallest numbers.)
pub fn span(wire: &prost_types::Duration) -> Option<Duration> {
    let nanos = u32::try_from(wire.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Duration::new(u64::try_from(wire.seconds).ok()?, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::HeaderKind;

    fn request() -> pb::MigrateRequest {
        pb::MigrateRequest {
            domain: "web".into(),
            disk: "vda".into(),
            to_pool: "ceph".into(),
            ..Default::default()
        }
    }

    #[test]
    fn what_is_left_out_takes_its_default() {
        let spec = MigrateSpec::try_from(request()).expect("a valid request");
        assert!(!spec.operation.as_str().is_empty(), "an id is made");
        assert_eq!((spec.bandwidth, spec.deadline, spec.destination_volume), (None, None, None));
    }

    #[test]
    fn every_name_is_checked() {
        for bad in ["", "a\nb", "a\0"] {
            let requests = [
                pb::MigrateRequest { domain: bad.into(), ..request() },
                pb::MigrateRequest { disk: bad.into(), ..request() },
                pb::MigrateRequest { to_pool: bad.into(), ..request() },
                pb::MigrateRequest { allow_checkpoint_loss: vec![bad.into()], ..request() },
            ];
            for request in requests {
                assert!(matches!(MigrateSpec::try_from(request), Err(InvalidRequest::Name(_))));
            }
        }
        let escaping = pb::MigrateRequest { destination_volume: "../x".into(), ..request() };
        let status = Status::from(MigrateSpec::try_from(escaping).expect_err("a path"));
        let refusal = status::refusal_of(&status).expect("a refusal");
        assert_eq!(refusal.code, "invalid-name");
    }

    #[test]
    fn what_becomes_of_the_source_is_wished_once() {
        let request = |kept, named, deleted| pb::MigrateRequest {
            keep_source: kept,
            keep_source_name: named,
            delete_source_snapshots: deleted,
            ..request()
        };
        for (request, both) in [
            (request(true, true, false), ("keep_source", "keep_source_name")),
            (request(true, false, true), ("keep_source", "delete_source_snapshots")),
            (request(false, true, true), ("keep_source_name", "delete_source_snapshots")),
        ] {
            let refused = MigrateSpec::try_from(request).expect_err("a contradiction");
            assert_eq!(refused, InvalidRequest::Exclusive(both.0, both.1));
            assert_eq!(Status::from(refused).code(), tonic::Code::InvalidArgument);
        }
        let spec = MigrateSpec::try_from(request(false, true, false)).expect("a valid request");
        assert!(spec.keep_source_name && !spec.delete_source_snapshots);
    }

    #[test]
    fn a_volume_is_named_with_its_format_and_without_a_domain() {
        let volume = |pool: &str, name: &str, format| pb::VolumeSelector {
            pool: pool.into(),
            name: name.into(),
            format,
            ..Default::default()
        };
        let raw = pb::VolumeFormat::Raw.into();
        let asked = |volume| pb::MigrateRequest {
            volume: Some(volume),
            domain: String::new(),
            disk: String::new(),
            ..request()
        };
        let spec = MigrateSpec::try_from(asked(volume("nfs", "v.img", raw))).expect("a request");
        assert_eq!(spec.subject.to_string(), "volume nfs/v.img");
        for bad in [volume("nfs", "../v", raw), volume("", "v", raw), volume("nfs", "", raw)] {
            let refused = MigrateSpec::try_from(asked(bad));
            assert!(matches!(refused, Err(InvalidRequest::Name(_))), "{refused:?}");
        }
        let unsaid = asked(volume("nfs", "v", pb::VolumeFormat::Unspecified.into()));
        assert_eq!(MigrateSpec::try_from(unsaid), Err(InvalidRequest::Missing("volume.format")));
        let encrypted =
            |word: &str| pb::VolumeSelector { encryption: word.into(), ..volume("nfs", "v", raw) };
        let said = MigrateSpec::try_from(asked(encrypted("luks1-qemu"))).map(|spec| spec.subject);
        let header = Some(HeaderKind::QemuLuks1);
        assert!(
            matches!(said, Ok(Subject::Volume { volume_encryption, .. }) if volume_encryption == header)
        );
        let unknown = MigrateSpec::try_from(asked(encrypted("luks")));
        assert!(matches!(unknown, Err(InvalidRequest::Header(_))), "{unknown:?}");
        let both = pb::MigrateRequest { volume: Some(volume("nfs", "v", raw)), ..request() };
        assert_eq!(MigrateSpec::try_from(both), Err(InvalidRequest::Exclusive("volume", "domain")));
        let live = pb::MigrateRequest { live: true, ..asked(volume("nfs", "v", raw)) };
        assert_eq!(MigrateSpec::try_from(live), Err(InvalidRequest::Exclusive("volume", "live")));
    }

    #[test]
    fn passphrases_are_taken_and_never_shown() {
        let secret = pb::MigrateRequest {
            passphrase: b"open sesame".to_vec(),
            accept_encryption: vec!["luks1-qemu".into()],
            ..request()
        };
        let plan = pb::PlanRequest { request: Some(secret.clone()) };
        let shown = format!("{secret:?} {plan:?}");
        assert!(!shown.contains("sesame") && !shown.contains("111, 112"), "{shown}");
        let spec = MigrateSpec::try_from(secret).expect("a valid request");
        assert!(spec.encryption.source_passphrase && !spec.encryption.destination_passphrase);
        let taken = spec.passphrases.source.as_ref().map(Passphrase::expose);
        assert_eq!(taken, Some(&b"open sesame"[..]));
        let written = serde_json::to_string(&spec).expect("a spec is written down");
        assert!(!written.contains("sesame") && !format!("{spec:?}").contains("sesame"));
    }

    #[test]
    fn what_is_wished_of_encryption_is_checked() {
        let long = pb::MigrateRequest { passphrase: vec![1; 5000], ..request() };
        let unknown = pb::MigrateRequest { accept_encryption: vec!["rot13".into()], ..request() };
        let both = pb::MigrateRequest {
            decrypt: true,
            destination_passphrase: b"x".to_vec(),
            ..request()
        };
        for (bad, text) in
            [(long, "longer than 4096"), (unknown, "rot13"), (both, "exclude each other")]
        {
            let status = Status::from(MigrateSpec::try_from(bad).expect_err("it is refused"));
            assert_eq!(status.code(), tonic::Code::InvalidArgument);
            assert!(status.message().contains(text), "{}", status.message());
        }
    }

    #[test]
    fn quantities_are_checked() {
        let deadline = |seconds, nanos| pb::MigrateRequest {
            deadline: Some(prost_types::Duration { seconds, nanos }),
            ..request()
        };
        for bad in [deadline(0, 0), deadline(-1, 0), deadline(i64::MIN, i32::MIN)] {
            assert_eq!(MigrateSpec::try_from(bad), Err(InvalidRequest::Deadline));
        }
        let spec = MigrateSpec::try_from(deadline(5, 0)).expect("a valid deadline");
        assert_eq!(spec.deadline, Some(Duration::from_secs(5)));
        for (name, value) in [("speed", 1), ("total_iops_sec", u64::MAX), ("size_iops_sec", 1)] {
            let iotune = [(name.to_owned(), value)].into();
            let refused = MigrateSpec::try_from(pb::MigrateRequest { iotune, ..request() });
            assert!(matches!(refused, Err(InvalidRequest::IoTune(_))), "{name}: {refused:?}");
        }
        let fast = pb::MigrateRequest { bandwidth_bytes_per_second: u64::MAX, ..request() };
        assert!(matches!(MigrateSpec::try_from(fast), Err(InvalidRequest::Bandwidth(_))));
        assert_eq!(
            MigrateSpec::try_from(pb::PlanRequest { request: None }),
            Err(InvalidRequest::Missing("request"))
        );
    }
}
