//! Why a command ended other than well: one line, a hint, an exit code.

use std::error::Error;
use std::io;

use serde_json::json;
use tonic::Status;

use super::address::Address;
use super::output::{self, Output};
use crate::api::status::{self, Exit, code_exit, reason_exit, refusal_answer};
use crate::api::{convert::words::word, pb};
use crate::plan::RefusalCode;

/// An ending that is not the wanted one.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    message: String,
    hint: Option<String>,
    refusal: Option<pb::Refusal>,
}

impl Failure {
    /// A failure in one line.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None, refusal: None }
    }

    /// The same with what to do next.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Its line.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The refusal, when it is one.
    pub fn refusal(&self) -> Option<&pb::Refusal> {
        self.refusal.as_ref()
    }

    /// An agent that cannot be reached.
    pub fn unreachable(agent: &Address, error: &(dyn Error + 'static)) -> Self {
        if let Some(failure) = not_accepted(error) {
            return failure;
        }
        let kind = io_kind(error);
        let reason = match kind {
            Some(io::ErrorKind::NotFound) => "there is no such socket".to_owned(),
            Some(io::ErrorKind::ConnectionRefused) => "nobody answers there".to_owned(),
            Some(io::ErrorKind::PermissionDenied) => "permission denied".to_owned(),
            _ => crate::report::chain(error),
        };
        let hint = match (agent, kind) {
            (Address::Network(_), _) => {
                "is [tls] in the agent's configuration, and volferryd running there? `systemctl status volferryd`"
            }
            (Address::Socket(_), Some(io::ErrorKind::PermissionDenied)) => {
                "the socket is for its owner and its group: join the group, or use sudo"
            }
            _ => {
                "is volferryd running? `systemctl status volferryd`; another socket: --socket PATH"
            }
        };
        let message = format!("the agent cannot be reached on {agent}: {reason}");
        Self::new(Exit::Unreachable, message).hint(hint)
    }

    /// Tells it: a line and a hint on standard error, and an object on standard output for programs (not of a
    /// mistake of usage: whoever made it reads no output yet).
    pub fn report(&self, output: &mut Output) {
        output::note(&format!("volferry: {}", output::one_line(&self.message)));
        if let Some(hint) = &self.hint {
            output::note(&format!("hint: {hint}"));
        }
        if output.is_json() && self.exit != Exit::Usage {
            let refusal = self.refusal.as_ref();
            output.json(&json!({
                "event": "error",
                "error": {
                    "exit": self.exit as u8,
                    "message": refusal.map_or(&self.message, |refusal| &refusal.message),
                    "code": refusal.map(|refusal| refusal.code.as_str()),
                    "retry": refusal
                        .map(|refusal| word(refusal.retry().as_str_name(), "RETRY_CLASS_")),
                    "hint": self.hint,
                },
            }));
        }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        if let Some(refusal) = status::refusal_of(&status) {
            return refused(refusal);
        }
        if let Some(problem) = status::problem_of(&status) {
            let failure = Self::new(reason_exit(problem.reason()), status.message());
            return match problem.reason() {
                pb::CommandReason::UnknownOperation => {
                    failure.hint("`volferry ops list` shows all operations")
                }
                _ => failure,
            };
        }
        if let Some(failure) = not_accepted(&status) {
            return failure;
        }
        if is_lost(&status) {
            let message = format!("the agent was lost: {}", status.message());
            return Self::new(Exit::Unreachable, message)
                .hint("operations go on without it: `volferry ops list` once it is back");
        }
        Self::new(code_exit(status.code()), status.message())
    }
}

/// What TLS says when one side does not accept the other's certificate; the client's is judged only after the connection
/// seems to be there.
fn not_accepted(error: &(dyn Error + 'static)) -> Option<Failure> {
    const ALERT: &str = "received fatal alert: ";
    const AGENT: &str = "invalid peer certificate: ";
    let text = crate::report::chain(error);
    let after = |words| text.split_once(words).map(|(_, rest): (_, &str)| rest);
    if let Some(why) = after(AGENT) {
        let message = format!("the agent's certificate is not accepted: {why}");
        let hint = "--ca takes the CA of the agent, and its certificate has to have the name in the address";
        return Some(Failure::new(Exit::Unreachable, message).hint(hint));
    }
    let alert = after(ALERT)?;
    let message = format!("the agent does not accept the certificate of --cert: {alert}");
    let hint = "it has to be valid now, for clients, and by a CA in `client_ca` of the agent's [tls]; the agent's log says more";
    Some(Failure::new(Exit::Unreachable, message).hint(hint))
}

/// Whether a status means that the agent is away, not that it answered.
pub fn is_lost(status: &Status) -> bool {
    let answered = status::refusal_of(status).is_some() || status::problem_of(status).is_some();
    !answered && (status.source().is_some() || code_exit(status.code()) == Exit::Unreachable)
}

fn refused(refusal: pb::Refusal) -> Failure {
    let known = RefusalCode::ALL.iter().find(|code| code.as_str() == refusal.code);
    let exit = known.map_or(Exit::Refused, |code| refusal_answer(*code).exit);
    let hint = known.and_then(|code| refusal_hint(*code)).or(match refusal.retry() {
        pb::RetryClass::Now => Some("try again"),
        pb::RetryClass::Later => Some("nothing was changed; try again later"),
        pb::RetryClass::Operator | pb::RetryClass::Never | pb::RetryClass::Unspecified => None,
    });
    Failure {
        exit,
        message: format!("refused: {}: {}", refusal.code, refusal.message),
        hint: hint.map(str::to_owned),
        refusal: Some(refusal),
    }
}

/// Where to look next, for refusals whose message alone does not say.
const fn refusal_hint(code: RefusalCode) -> Option<&'static str> {
    match code {
        RefusalCode::DomainNotFound => Some("`virsh list --all` shows the domains of this host"),
        RefusalCode::DiskNotFound => Some("`volferry disks DOMAIN` shows its disks"),
        RefusalCode::PoolUnknown => Some("`volferry pools` shows the pools"),
        RefusalCode::Busy => Some(
            "`volferry ops list --running` shows what goes on, `volferry host` whether libvirt answers",
        ),
        RefusalCode::NotAllowed => Some(
            "the agent's configuration decides: roles in [[client]] and socket_role, pools in [pools_in_requests]",
        ),
        RefusalCode::DestinationExists => Some("another name: --destination-volume NAME"),
        _ => None,
    }
}

fn io_kind(error: &(dyn Error + 'static)) -> Option<io::ErrorKind> {
    let mut below = Some(error);
    while let Some(error) = below {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return Some(io.kind());
        }
        below = error.source();
    }
    None
}
