//! The audit: one line in the log for each command that changes something, however it ended, and for each refusal.
//!
//! A line is written when the last part of the agent that has to do with the command lets go of its [`Entry`]: a client
//! that goes away leaves no command without one. Nothing of a request but names gets here.

use std::sync::{Arc, Mutex, PoisonError};

use tonic::Status;

use super::super::status;
use super::{AUDIT, Caller, Who};

/// What a command is about; what it has none of is left out.
#[derive(Debug, Default, Clone)]
pub struct About {
    /// The operation.
    pub operation: Option<String>,
    /// The domain.
    pub domain: Option<String>,
    /// Its disk.
    pub disk: Option<String>,
    /// The volume that no domain uses.
    pub volume: Option<String>,
    /// The pool it goes to.
    pub to: Option<String>,
    /// The leftover record.
    pub leftover: Option<String>,
    /// What else decides what is done.
    pub detail: Option<String>,
}

impl About {
    /// An operation.
    pub fn operation(id: &impl ToString) -> Self {
        Self { operation: Some(id.to_string()), ..Self::default() }
    }
}

/// The line of one command, not written yet.
#[derive(Debug, Clone)]
pub struct Entry(Arc<Line>);

#[derive(Debug)]
struct Line {
    caller: Caller,
    call: String,
    content: Mutex<Content>,
}

#[derive(Debug, Default)]
struct Content {
    about: About,
    outcome: Option<String>,
    /// A look that went well is nothing to write about.
    only_refusals: bool,
}

impl Entry {
    /// Of a call that changes something.
    pub fn of_command(caller: Caller, path: &str) -> Self {
        Self::new(caller, path, false)
    }

    /// Of a call that only looks: written if its caller is refused.
    pub fn of_look(caller: Caller, path: &str) -> Self {
        Self::new(caller, path, true)
    }

    fn new(caller: Caller, path: &str, only_refusals: bool) -> Self {
        let call = path.rsplit('/').next().unwrap_or(path).chars().take(64).collect();
        let content = Mutex::new(Content { only_refusals, ..Content::default() });
        Self(Arc::new(Line { caller, call, content }))
    }

    fn change(&self, change: impl FnOnce(&mut Content)) {
        // Each change is one assignment, whole or not made.
        change(&mut self.0.content.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Says what it is about, and that it begins.
    pub fn begins(&self, about: About) {
        tracing::info!(
            call = self.0.call, caller = %self.0.caller.who,
            operation = about.operation, domain = about.domain, disk = about.disk,
            volume = about.volume, to = about.to, leftover = about.leftover, about.detail,
            "asked for"
        );
        self.change(|content| content.about = about);
    }

    /// Says what it is about.
    pub fn concerns(&self, about: About) {
        self.change(|content| content.about = about);
    }

    /// Says how it ended.
    pub fn ended<T>(&self, answer: &Result<T, Status>) {
        let outcome = match answer {
            Ok(_) => "ok".to_owned(),
            Err(status) => status::code_of(status),
        };
        self.change(|content| content.outcome = Some(outcome));
    }

    /// Says how it ended, unless that is known.
    pub fn answered(&self, status: Option<&Status>) {
        let outcome = status.map_or_else(|| "ok".to_owned(), status::code_of);
        self.change(|content| {
            content.outcome.get_or_insert(outcome);
        });
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let content = self.content.get_mut().unwrap_or_else(PoisonError::into_inner);
        let outcome = content.outcome.as_deref().unwrap_or("cut off");
        if content.only_refusals && outcome != crate::plan::RefusalCode::NotAllowed.as_str() {
            return;
        }
        let (mut uid, mut gid, mut pid, mut client, mut address) = (None, None, None, None, None);
        match &self.caller.who {
            Who::Local { uid: user, gid: group, pid: process } => {
                (uid, gid, pid) = (Some(*user), Some(*group), *process);
            }
            Who::Remote { name, address: from } => {
                client = Some(name.as_str());
                address = from.map(|from| from.to_string());
            }
            Who::Unknown => {}
        }
        let role = self.caller.role.as_ref().map_or("none", |role| role.as_str());
        let About { operation, domain, disk, volume, to, leftover, detail } = &content.about;
        tracing::info!(
            target: AUDIT,
            call = self.call, outcome, uid, gid, pid, client, address, role,
            operation, domain, disk, volume, to, leftover, detail,
            "command"
        );
    }
}
