//! Scripted faults: which call fails how, which event is lost or comes twice.

use std::fmt;

use super::World;
use crate::ports::{DomainEvent, ErrorClass, EventKind};

/// Every method of the ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the ports' methods")]
pub enum Method {
    ObserveDomain,
    ListDomains,
    BlockInfo,
    QemuDevices,
    RunOf,
    Definition,
    Define,
    SetIotune,
    SecretExists,
    FindPool,
    ActivePools,
    Versions,
    StartCopy,
    JobInfo,
    SetBandwidth,
    Abort,
    Pivot,
    PrepareRbd,
    Fsid,
    ImageId,
    ObserveImage,
    CreateImage,
    RenameImage,
    RemoveImage,
    CreateSnapshot,
    DropSnapshot,
    CloneImage,
    FlattenImage,
    RemoveSnapshot,
    TrashImage,
    TrashedImage,
    AllocatedImage,
    RbdSpace,
    FileIdentity,
    BackingFile,
    ObserveFile,
    ObserveFolder,
    FolderAccess,
    CreateFile,
    RenameFile,
    RemoveFile,
    SealFile,
    TrashFile,
    FileUsers,
    CopyImage,
    CompareImages,
    FindSecret,
    LookSecret,
    DefineSecret,
    UndefineSecret,
    CreateEncrypted,
    OpenEncrypted,
    StartPaused,
    DestroyDomain,
    SetMark,
    ClearMark,
    FindMarks,
}

impl Method {
    /// True when it changes the world.
    pub const fn is_effect(self) -> bool {
        use Method as M;
        matches!(
            self,
            M::Define
                | M::SetIotune
                | M::StartCopy
                | M::SetBandwidth
                | M::Abort
                | M::Pivot
                | M::CreateImage
                | M::RenameImage
                | M::RemoveImage
                | M::RemoveSnapshot
                | M::CreateSnapshot
                | M::DropSnapshot
                | M::CloneImage
                | M::FlattenImage
                | M::TrashImage
                | M::TrashFile
                | M::CreateFile
                | M::RenameFile
                | M::RemoveFile
                | M::SealFile
                | M::CopyImage
                | M::DefineSecret
                | M::UndefineSecret
                | M::CreateEncrypted
                | M::StartPaused
                | M::DestroyDomain
                | M::SetMark
                | M::ClearMark
        )
    }

    /// True when libvirt answers it.
    pub const fn needs_libvirt(self) -> bool {
        use Method as M;
        matches!(
            self,
            M::ObserveDomain
                | M::ListDomains
                | M::BlockInfo
                | M::QemuDevices
                | M::RunOf
                | M::Definition
                | M::Define
                | M::SetIotune
                | M::SecretExists
                | M::FindPool
                | M::ActivePools
                | M::Versions
                | M::StartCopy
                | M::JobInfo
                | M::SetBandwidth
                | M::Abort
                | M::Pivot
                | M::FindSecret
                | M::LookSecret
                | M::DefineSecret
                | M::UndefineSecret
                | M::StartPaused
                | M::DestroyDomain
        )
    }
}

/// What goes wrong with a call.
pub enum Fault {
    /// It is refused and nothing happens.
    Refuse(ErrorClass, &'static str),
    /// No answer comes within the bound.
    NoAnswer {
        /// Whether its effect happens all the same.
        effect: bool,
    },
    /// It waits until [`World::release`], or for the bound and then without effect.
    Hang,
    /// Something happens right before it; the call itself goes on.
    Do(Box<dyn FnOnce(&World) + Send>),
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refuse(class, text) => f.debug_tuple("Refuse").field(class).field(text).finish(),
            Self::NoAnswer { effect } => {
                f.debug_struct("NoAnswer").field("effect", effect).finish()
            }
            Self::Hang => f.write_str("Hang"),
            Self::Do(_) => f.write_str("Do"),
        }
    }
}

/// When a fault strikes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum When {
    /// At this many calls of the method from now.
    Method(Method, usize),
    /// At this many effects from now, whichever they are.
    Effect(usize),
    /// At this many calls from now, whichever they are.
    Call(usize),
    /// At the next call of the method that names this.
    Naming(Method, String),
}

/// The event a script is about.
pub type EventTest = fn(&EventKind) -> bool;

/// Everything that is still to go wrong.
#[derive(Debug, Default)]
pub(super) struct Script {
    faults: Vec<(When, Fault)>,
    events: Vec<(EventTest, usize)>,
    /// Calls that are refused until that is taken back: the method, what they name, and how they are refused.
    refusals: Vec<(Method, String, ErrorClass, &'static str)>,
    calls: Vec<Method>,
}

impl Script {
    /// The faults that strike this call, which says `what` it does.
    pub(super) fn next(&mut self, method: Method, what: &str) -> Vec<Fault> {
        self.calls.push(method);
        let mut striking = Vec::new();
        let mut left = Vec::new();
        for (when, fault) in std::mem::take(&mut self.faults) {
            let (counts, rest) = match &when {
                When::Method(of, rest) => (*of == method, *rest),
                When::Effect(rest) => (method.is_effect(), *rest),
                When::Call(rest) => (true, *rest),
                When::Naming(of, name) => (*of == method && what.contains(name), 1),
            };
            match (counts, rest) {
                (false, _) => left.push((when, fault)),
                (true, 0 | 1) => striking.push(fault),
                (true, rest) => left.push((when.with(rest - 1), fault)),
            }
        }
        self.faults = left;
        let refused =
            self.refusals.iter().find(|(of, name, ..)| *of == method && what.contains(name));
        striking.extend(refused.map(|(.., class, text)| Fault::Refuse(*class, text)));
        striking
    }

    /// How many times an event is sent.
    pub(super) fn copies(&mut self, kind: &EventKind) -> usize {
        match self.events.iter().position(|(test, _)| test(kind)) {
            Some(index) => self.events.remove(index).1,
            None => 1,
        }
    }
}

impl When {
    fn with(self, rest: usize) -> Self {
        match self {
            Self::Method(method, _) => Self::Method(method, rest),
            Self::Effect(_) => Self::Effect(rest),
            Self::Call(_) => Self::Call(rest),
            Self::Naming(method, name) => Self::Naming(method, name),
        }
    }
}

impl World {
    /// Lets the `nth` call of `method` from now on (counted from one) go wrong.
    pub fn fault(&self, method: Method, nth: usize, fault: Fault) {
        self.script().faults.push((When::Method(method, nth), fault));
    }

    /// Lets the next call of `method` that names `name` (a domain, a volume) go wrong.
    pub fn fault_naming(&self, method: Method, name: &str, fault: Fault) {
        self.script().faults.push((When::Naming(method, name.to_owned()), fault));
    }

    /// Refuses every call of `method` that names `name` from now on.
    pub fn refuse_naming(&self, method: Method, name: &str, class: ErrorClass, text: &'static str) {
        self.script().refusals.push((method, name.to_owned(), class, text));
    }

    /// Lets the `nth` effect from now on go wrong, whichever it is.
    pub fn fault_effect(&self, nth: usize, fault: Fault) {
        self.script().faults.push((When::Effect(nth), fault));
    }

    /// Lets the `nth` call from now on go wrong, whichever it is.
    pub fn fault_call(&self, nth: usize, fault: Fault) {
        self.script().faults.push((When::Call(nth), fault));
    }

    /// Lets something happen right before the `nth` call of `method` from now on.
    pub fn before(&self, method: Method, nth: usize, action: impl FnOnce(&Self) + Send + 'static) {
        self.fault(method, nth, Fault::Do(Box::new(action)));
    }

    /// Answers every hanging call.
    pub fn release(&self) {
        self.0.released.notify_waiters();
    }

    /// Loses the next event of this kind.
    pub fn lose_event(&self, test: EventTest) {
        self.script().events.push((test, 0));
    }

    /// Sends the next event of this kind twice.
    pub fn duplicate_event(&self, test: EventTest) {
        self.script().events.push((test, 2));
    }

    /// Every call so far, in order.
    pub fn calls(&self) -> Vec<Method> {
        self.script().calls.clone()
    }

    /// Forgets the calls so far and every fault that has not struck.
    pub fn clear_script(&self) {
        *self.script() = Script::default();
    }

    /// libvirt goes away: calls are refused, events are lost. Jobs run on in QEMU.
    pub fn libvirt_away(&self) {
        self.connection(false, EventKind::ConnectionLost);
    }

    /// libvirt is back.
    pub fn libvirt_back(&self) {
        self.connection(true, EventKind::ConnectionRestored);
    }

    fn connection(&self, connected: bool, kind: EventKind) {
        self.with(|state| {
            if state.connected != connected {
                state.connected = connected;
                state.outbox.push(DomainEvent { domain: None, target: None, kind });
            }
        });
    }
}
