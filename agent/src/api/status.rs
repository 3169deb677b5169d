//! The one table from what happened to what is answered: gRPC status codes and exit codes of the command.
//!
//! Every match here is exhaustive, without `_`: a new refusal or state does not compile until it has an answer.
//! A refusal travels as a google.rpc.Status in `grpc-status-details-bin`; both directions are here.

use prost::Message;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use super::convert::words;
use super::pb;
use crate::engine::doctor::OrphanError;
use crate::engine::{CommandError, LeftoverError};
use crate::journal::JournalError;
use crate::operation::{RetryClass, State};
use crate::plan::{Refusal, RefusalCode};
use crate::report;

/// The ASCII metadata key that carries a refusal's code.
pub const REFUSAL_CODE_KEY: &str = "volferry-refusal-code";

/// The ASCII metadata key that says what may be done with the same request, of refusals and problems: now, later, never
/// or operator.
pub const RETRY_KEY: &str = "volferry-retry";

const REFUSAL_TYPE: &str = "type.googleapis.com/volferry.v1.Refusal";
const PROBLEM_TYPE: &str = "type.googleapis.com/volferry.v1.CommandProblem";

/// Exit codes of the `volferry` command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// Failed; whatever was begun was rolled back.
    Failed = 1,
    /// The command line or a value in it is wrong.
    Usage = 2,
    /// Refused before anything was changed.
    Refused = 3,
    /// Cancelled on request.
    Cancelled = 4,
    /// The agent cannot be reached, or was lost on the way: the outcome is not known here.
    Unreachable = 5,
    /// The outcome needs an operator.
    NeedsOperator = 6,
}

/// How a refusal is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// On gRPC.
    pub code: Code,
    /// On the command line.
    pub exit: Exit,
}

/// The status and exit code of a refusal.
pub const fn refusal_answer(code: RefusalCode) -> Answer {
    use RefusalCode as R;
    let (code, exit) = match code {
        R::InvalidName => (Code::InvalidArgument, Exit::Refused),
        R::DomainNotFound | R::DiskNotFound | R::PoolUnknown => (Code::NotFound, Exit::Refused),
        R::DestinationExists => (Code::AlreadyExists, Exit::Refused),
        R::PoolAuthFailed | R::PermissionDenied | R::NotAllowed => {
            (Code::PermissionDenied, Exit::Refused)
        }
        R::NoSpace => (Code::ResourceExhausted, Exit::Refused),
        R::PoolUnavailable => (Code::Unavailable, Exit::Refused),
        R::Busy => (Code::Aborted, Exit::Refused),
        R::NotRunning
        | R::NotADisk
        | R::Shareable
        | R::ReadOnly
        | R::TransientDisk
        | R::BlockJobActive
        | R::FileToFile
        | R::SameVolume
        | R::OtherHostsLocalPool
        | R::NotMounted
        | R::UnsupportedSource
        | R::HasSnapshots
        | R::VolumeInUse
        | R::SecretMissing
        | R::WrongPassphrase
        | R::SizeMismatch
        | R::StateMismatch
        | R::EncryptionUnsupported
        | R::MethodUnavailable
        | R::HostUnsupported
        | R::MalformedXml => (Code::FailedPrecondition, Exit::Refused),
    };
    Answer { code, exit }
}

/// The exit code of a command that followed an operation up to `state`.
pub const fn state_exit(state: State) -> Exit {
    match state {
        State::Moved | State::Cleaning | State::Succeeded => Exit::Done,
        State::Failed => Exit::Failed,
        State::Cancelled => Exit::Cancelled,
        State::NeedsOperator => Exit::NeedsOperator,
        State::Queued
        | State::Planned
        | State::Preparing
        | State::Copying
        | State::Ready
        | State::Pivoting
        | State::RollingBack => Exit::Unreachable,
    }
}

/// The exit code of a command to an operation that was not carried out.
pub const fn reason_exit(reason: pb::CommandReason) -> Exit {
    match reason {
        pb::CommandReason::UnknownOperation
        | pb::CommandReason::UnknownLeftover
        | pb::CommandReason::UnknownOrphan
        | pb::CommandReason::NotAllowed => Exit::Refused,
        pb::CommandReason::AgentFault | pb::CommandReason::Unspecified => Exit::Failed,
    }
}

/// The exit code of a retry to remove what is left.
pub const fn retry_exit(outcome: pb::RetryOutcome) -> Exit {
    match outcome {
        pb::RetryOutcome::Removed | pb::RetryOutcome::AlreadyGone => Exit::Done,
        pb::RetryOutcome::Stays | pb::RetryOutcome::Unspecified => Exit::Failed,
    }
}

/// The exit code of a status without details of ours.
pub const fn code_exit(code: Code) -> Exit {
    match code {
        Code::Ok => Exit::Done,
        Code::InvalidArgument | Code::OutOfRange => Exit::Usage,
        Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::ResourceExhausted
        | Code::Unauthenticated
        | Code::Unimplemented => Exit::Refused,
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => Exit::Unreachable,
        Code::Unknown | Code::Aborted | Code::Internal | Code::DataLoss => Exit::Failed,
    }
}

/// The one word for a status: the code of its refusal, else the reason of its problem, else gRPC's own.
pub fn code_of(status: &Status) -> String {
    if let Some(refusal) = refusal_of(status) {
        return refusal.code;
    }
    match problem_of(status) {
        Some(problem) => words::word(problem.reason().as_str_name(), "COMMAND_REASON_"),
        None => kebab(&format!("{:?}", status.code())),
    }
}

fn kebab(name: &str) -> String {
    let mut word = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !word.is_empty() {
            word.push('-');
        }
        word.push(letter.to_ascii_lowercase());
    }
    word
}

/// The status of a refusal.
pub fn refusal_status(refusal: &Refusal) -> Status {
    let detail = pb::Refusal::from(refusal);
    let code = refusal_answer(refusal.code).code;
    let mut metadata = MetadataMap::new();
    metadata.insert(REFUSAL_CODE_KEY, MetadataValue::from_static(refusal.code.as_str()));
    metadata.insert(RETRY_KEY, MetadataValue::from_static(retry_word(refusal.code.retry())));
    let details = packed(code, &refusal.message, REFUSAL_TYPE, detail.encode_to_vec());
    Status::with_details_and_metadata(code, &refusal.message, details.into(), metadata)
}

/// The status of a command to an operation that was not carried out.
pub fn command_status(error: &CommandError) -> Status {
    let (code, reason, retry) = match error {
        CommandError::UnknownOperation(_) => {
            (Code::NotFound, pb::CommandReason::UnknownOperation, RetryClass::Never)
        }
        CommandError::NotAllowed { .. } => {
            (Code::FailedPrecondition, pb::CommandReason::NotAllowed, RetryClass::Never)
        }
        CommandError::Journal { .. } => {
            (Code::Internal, pb::CommandReason::AgentFault, RetryClass::Later)
        }
    };
    problem_status(code, reason, retry, error)
}

/// The status of a command to a leftover record that was not carried out.
pub fn leftover_status(error: &LeftoverError) -> Status {
    match error {
        LeftoverError::Unknown(_) => {
            let reason = pb::CommandReason::UnknownLeftover;
            problem_status(Code::NotFound, reason, RetryClass::Never, error)
        }
        LeftoverError::Journal(_) => {
            let reason = pb::CommandReason::AgentFault;
            problem_status(Code::Internal, reason, RetryClass::Later, error)
        }
    }
}

/// The status of a question whose answer is in a journal that cannot be read.
pub fn journal_status(error: &JournalError) -> Status {
    problem_status(Code::Internal, pb::CommandReason::AgentFault, RetryClass::Later, error)
}

/// The status of a search for orphans, or of their removal, that was not carried out.
pub fn orphan_status(error: &OrphanError) -> Status {
    let (code, reason, retry) = match error {
        OrphanError::Unknown(_) => {
            (Code::NotFound, pb::CommandReason::UnknownOrphan, RetryClass::Never)
        }
        OrphanError::Kept { .. } => {
            (Code::FailedPrecondition, pb::CommandReason::NotAllowed, RetryClass::Later)
        }
        OrphanError::Journal(_) => {
            (Code::Internal, pb::CommandReason::AgentFault, RetryClass::Later)
        }
    };
    problem_status(code, reason, retry, error)
}

fn problem_status(
    code: Code,
    reason: pb::CommandReason,
    retry: RetryClass,
    error: &(dyn std::error::Error + 'static),
) -> Status {
    let problem =
        pb::CommandProblem { reason: reason.into(), retry: pb::RetryClass::from(retry).into() };
    let message = report::chain(error);
    let details = packed(code, &message, PROBLEM_TYPE, problem.encode_to_vec());
    let mut metadata = MetadataMap::new();
    metadata.insert(RETRY_KEY, MetadataValue::from_static(retry_word(retry)));
    Status::with_details_and_metadata(code, message, details.into(), metadata)
}

const fn retry_word(retry: RetryClass) -> &'static str {
    match retry {
        RetryClass::Now => "now",
        RetryClass::Later => "later",
        RetryClass::Never => "never",
        RetryClass::Operator => "operator",
    }
}

/// The refusal a status carries.
pub fn refusal_of(status: &Status) -> Option<pb::Refusal> {
    unpacked(status, REFUSAL_TYPE).and_then(|bytes| pb::Refusal::decode(&bytes[..]).ok())
}

/// The problem a status carries.
pub fn problem_of(status: &Status) -> Option<pb::CommandProblem> {
    unpacked(status, PROBLEM_TYPE).and_then(|bytes| pb::CommandProblem::decode(&bytes[..]).ok())
}

/// google.rpc.Status, which gRPC tools expect in the binary details.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

fn packed(code: Code, message: &str, type_url: &str, value: Vec<u8>) -> Vec<u8> {
    let detail = prost_types::Any { type_url: type_url.to_owned(), value };
    RpcStatus { code: code.into(), message: message.to_owned(), details: vec![detail] }
        .encode_to_vec()
}

fn unpacked(status: &Status, type_url: &str) -> Option<Vec<u8>> {
    let packed = RpcStatus::decode(status.details()).ok()?;
    packed.details.into_iter().find(|any| any.type_url == type_url).map(|any| any.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::OperationId;

    #[test]
    fn every_refusal_travels_whole_and_ends_the_command_with_3() {
        for code in RefusalCode::ALL {
            let status = refusal_status(&Refusal::new(*code, "because"));
            assert_ne!(status.code(), Code::Ok);
            let carried = status.metadata().get(REFUSAL_CODE_KEY).and_then(|v| v.to_str().ok());
            assert_eq!(carried, Some(code.as_str()));
            let detail = refusal_of(&status).expect("a refusal carries its detail");
            assert_eq!((detail.code.as_str(), detail.message.as_str()), (code.as_str(), "because"));
            assert_eq!(detail.retry(), pb::RetryClass::from(code.retry()));
            assert_eq!(refusal_answer(*code).exit, Exit::Refused);
        }
    }

    #[test]
    fn every_final_state_has_an_exit_code_of_its_own() {
        let exits: Vec<_> = State::ALL
            .into_iter()
            .filter(|state| state.is_final())
            .map(|state| state_exit(state) as u8)
            .collect();
        assert_eq!(exits, [0, 1, 4, 6]);
    }

    #[test]
    fn a_command_that_is_not_carried_out_says_why() {
        let operation = OperationId::new("a").expect("a plain id");
        let unknown = command_status(&CommandError::UnknownOperation(operation.clone()));
        assert_eq!(unknown.message(), "there is no operation a");
        assert!(refusal_of(&unknown).is_none());
        let late = CommandError::NotAllowed { operation, reason: "it is pivoting".into() };
        let late = command_status(&late);
        assert_eq!(late.message(), "operation a: it is pivoting");
        for status in [unknown, late] {
            let problem = problem_of(&status).expect("a command problem carries its detail");
            assert_eq!(reason_exit(problem.reason()), Exit::Refused);
        }
    }
}
