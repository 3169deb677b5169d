//! A small agent without an engine: operations that change state when a test says so, or by themselves.
//!
//! What an operation does is chosen by its disk: `vda` runs through to its end, `vdb` copies until it is told
//! otherwise, `vdz` waits for the test, `vdf` fails, `vdo` needs an operator. The pool `full` refuses, the pool `slow` waits for the gate.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use tempfile::TempDir;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use volferry_agent::api::socket::Socket;
use volferry_agent::api::{Agent, server};
use volferry_agent::engine::checks::{Check, Verdict};
use volferry_agent::engine::doctor::{Orphan, OrphanError, Orphans};
use volferry_agent::engine::history::{Entry, History};
use volferry_agent::engine::{
    CommandError, Decision, DiskListing, Examined, Health, HostListing, LeftoverError, PoolListing,
    PoolPlace, Retried, ViewReceiver,
};
use volferry_agent::facts::HostFacts;
use volferry_agent::journal::JournalError;
use volferry_agent::operation::{
    Evidence, Failure, FailureCause, Found, Kept, Leftover, LeftoverKind, MoveResult, Names,
    OperationView, Phase, PhaseSpan, Progress, Resolution, Side, SourceFate, State,
};
use volferry_agent::plan::{Plan, Refusal, RefusalCode};
use volferry_agent::ports::MarkedVolume;
use volferry_agent::spec::{
    Bytes, BytesPerSecond, DiskTarget, DomainReference, DomainUuid, Identity, LeftoverId,
    MigrateSpec, OperationId, PoolName, RbdPoolAddress, Subject, VolumeFormat, VolumeLocation,
};

const STEP: Duration = Duration::from_millis(30);

/// The agent.
#[derive(Default)]
pub struct FakeAgent {
    operations: Mutex<Vec<watch::Sender<Arc<OperationView>>>>,
    /// What is left: a source stays at a retry, anything else is removed.
    pub leftovers: Mutex<Vec<Leftover>>,
    /// What it was told last.
    pub configured: Mutex<Option<HostFacts>>,
    /// A pool has lost its mount.
    pub broken: Mutex<bool>,
    /// What keeps it from its work.
    pub health: watch::Sender<Health>,
    /// Opens for requests to the pool `slow`.
    pub gate: Notify,
    /// Tells that such a request has come.
    pub at_the_gate: Notify,
}

/// A served agent; the socket goes with it.
pub struct Served {
    pub agent: Arc<FakeAgent>,
    pub socket: PathBuf,
    stop: CancellationToken,
    server: JoinHandle<()>,
    folder: Arc<TempDir>,
}

impl Served {
    /// A fresh agent on a socket of its own.
    pub async fn start() -> Self {
        let folder = Arc::new(tempfile::tempdir().expect("a folder"));
        Self::serve(Arc::new(FakeAgent::default()), folder).await
    }

    async fn serve(agent: Arc<FakeAgent>, folder: Arc<TempDir>) -> Self {
        let socket = folder.path().join("volferry.sock");
        let stop = CancellationToken::new();
        let Socket { listener, file } = Socket::bind(&socket).await.expect("a socket");
        let (served, stopped) = (Arc::clone(&agent), stop.clone());
        let server = tokio::spawn(async move {
            server::serve(served, listener, Arc::default(), stopped).await.expect("it serves");
            drop(file);
        });
        Self { agent, socket, stop, server, folder }
    }

    /// Stops serving; returns once it has.
    pub async fn stop(self) -> Stopped {
        self.stop.cancel();
        self.server.await.expect("no panic");
        Stopped { agent: self.agent, folder: self.folder }
    }
}

/// An agent nobody can reach; its operations go on.
pub struct Stopped {
    agent: Arc<FakeAgent>,
    folder: Arc<TempDir>,
}

impl Stopped {
    /// Serves it again on the same socket.
    pub async fn start(self) -> Served {
        Served::serve(self.agent, self.folder).await
    }
}

/// A leftover of that kind of the operation `op-1`.
pub fn leftover(kind: LeftoverKind) -> Leftover {
    let operation = OperationId::new("op-1").expect("a plain id");
    let location = VolumeLocation::File { path: "/mnt/nfs-1/root.qcow2.moved-op-1".into() };
    Leftover {
        id: operation.leftover(kind.as_str()),
        operation,
        domain: DomainUuid::new("70000000-0000-4000-8000-000000000007").expect("a uuid"),
        kind,
        own_name: location.clone(),
        location,
        opened_as: None,
        identity: Some(Identity::File { device: 40, inode: 7 }),
        snapshots: vec![],
        dependent: None,
        secret: None,
        mount: None,
        due: None,
        since: SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000),
        reason: "it is in use".to_owned(),
        tries: 0,
        last_try: None,
    }
}

/// What an operation nobody knows has left.
fn orphan(id: &str, kept: Option<&str>) -> Orphan {
    let operation = OperationId::new(id).expect("a plain id");
    let path = format!("/mnt/nfs-1/{}", operation.private_volume_name()).into();
    Orphan {
        pool: PoolName::new("nfs-1").expect("a plain name"),
        volume: MarkedVolume {
            location: VolumeLocation::File { path },
            identity: Identity::File { device: 40, inode: 9 },
            operation,
            host: Some("host-a".to_owned()),
            private: true,
        },
        job: None,
        kept: kept.map(str::to_owned),
    }
}

impl FakeAgent {
    /// Changes an operation.
    pub fn change(&self, id: &str, change: impl FnOnce(&mut OperationView)) {
        let operations = self.operations.lock().expect("no panic");
        let sender = operations
            .iter()
            .find(|sender| sender.borrow().spec.operation.as_str() == id)
            .expect("the operation");
        sender.send_modify(|view| {
            let mut next = OperationView::clone(view);
            change(&mut next);
            *view = Arc::new(next);
        });
    }

    /// Moves an operation to a state, with what belongs to it.
    pub fn enter(&self, id: &str, state: State) {
        self.change(id, |view| enter(view, state));
    }

    /// Whether no request got so far as to become an operation.
    pub fn operations_are_none(&self) -> bool {
        self.operations.lock().expect("no panic").is_empty()
    }

    fn find(&self, id: &OperationId) -> Option<ViewReceiver> {
        let operations = self.operations.lock().expect("no panic");
        let found = operations.iter().find(|sender| sender.borrow().spec.operation == *id);
        found.map(watch::Sender::subscribe)
    }

    fn create(&self, spec: MigrateSpec) -> Arc<OperationView> {
        let disk = subject(&spec).1;
        let view = Arc::new(view(spec));
        let (sender, _) = watch::channel(Arc::clone(&view));
        self.operations.lock().expect("no panic").push(sender.clone());
        tokio::spawn(async move {
            for state in script(&disk) {
                tokio::time::sleep(STEP).await;
                // A test may have ended it meanwhile.
                if sender.borrow().state.is_final() {
                    return;
                }
                sender.send_modify(|view| {
                    let mut next = OperationView::clone(view);
                    enter(&mut next, *state);
                    *view = Arc::new(next);
                });
            }
        });
        view
    }
}

fn script(disk: &str) -> &'static [State] {
    use State as S;
    match disk {
        "vdz" => &[],
        "vdb" => &[S::Planned, S::Preparing, S::Copying],
        "vdf" => &[S::Planned, S::Preparing, S::Copying, S::RollingBack, S::Failed],
        "vdo" => &[S::Planned, S::Preparing, S::Copying, S::Ready, S::Pivoting, S::NeedsOperator],
        _ => &[
            S::Planned,
            S::Preparing,
            S::Copying,
            S::Ready,
            S::Pivoting,
            S::Moved,
            S::Cleaning,
            S::Succeeded,
        ],
    }
}

fn enter(view: &mut OperationView, state: State) {
    if let Some(last) = view.phases.last_mut() {
        last.lasted = Some(STEP);
    }
    view.phases.push(PhaseSpan { state, entered: view.phases[0].entered, lasted: None });
    view.state = state;
    view.progress = match state {
        State::Copying => Progress {
            phase: Phase::Copying,
            total: Bytes::mib(1024),
            copied: Bytes::mib(443),
            remaining: Bytes::mib(581),
            rate: Bytes::mib(100),
            estimate: Some(Duration::from_millis(5_810)),
            ..Progress::default()
        },
        _ => Progress::default(),
    };
    match state {
        State::Succeeded => {
            view.warnings = vec!["2 snapshots of the source were not moved".to_owned()];
            view.result = Some(result(view));
        }
        State::Failed => {
            let text = "No space left on device";
            view.failure =
                Some(Failure::new(FailureCause::DestinationFull, Side::Destination, text));
        }
        State::NeedsOperator => {
            let text = "QEMU died around the pivot";
            view.failure = Some(Failure::new(FailureCause::GuestGone, Side::Guest, text));
        }
        _ => {}
    }
}

fn result(view: &OperationView) -> MoveResult {
    MoveResult {
        encryption: None,
        pool: view.spec.to.clone(),
        volume: view.destination.name(),
        location: view.destination.clone(),
        identity: Identity::Rbd { image_id: "10d6c2f6a1f5".to_owned() },
        format: VolumeFormat::Raw,
        virtual_size: Bytes::mib(1024),
        allocated: Some(Bytes::mib(400)),
        source: SourceFate::LeftBehind {
            location: view.source.renamed("root.qcow2.moved-1"),
            reason: "it is in use".to_owned(),
        },
        depends_on: None,
        ready_to_pivot_us: Some(3_200),
    }
}

/// The domain and the disk of a request.
fn subject(spec: &MigrateSpec) -> (String, String) {
    match &spec.subject {
        Subject::Disk { domain, disk } => (domain.to_string(), disk.to_string()),
        Subject::Volume { volume_pool, volume_name, .. } => {
            (volume_pool.to_string(), volume_name.to_string())
        }
    }
}

fn view(spec: MigrateSpec) -> OperationView {
    let address = RbdPoolAddress {
        monitors: "192.0.2.11".to_owned(),
        user: Some("volferry".to_owned()),
        secret_uuid: Some("10000000-0000-4000-8000-0000000000aa".to_owned()),
        key_file: None,
        pool: "vms".to_owned(),
        namespace: None,
    };
    let accepted = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
    OperationView {
        offline: false,
        domain_name: subject(&spec).0,
        domain_uuid: DomainUuid::new("70000000-0000-4000-8000-000000000007").expect("a uuid"),
        target: DiskTarget::new(subject(&spec).1).expect("a target"),
        source_pool: None,
        source: VolumeLocation::File { path: "/mnt/nfs-1/root.qcow2".into() },
        destination: VolumeLocation::Rbd { address, image: "root".to_owned() },
        state: State::Queued,
        detail: None,
        phases: vec![PhaseSpan { state: State::Queued, entered: accepted, lasted: None }],
        progress: Progress::default(),
        bandwidth: spec.bandwidth,
        waits_for_pivot: false,
        warnings: Vec::new(),
        failure: None,
        result: None,
        resolution: None,
        spec,
    }
}

#[async_trait]
impl Agent for FakeAgent {
    async fn migrate(&self, spec: MigrateSpec) -> Result<Arc<OperationView>, Refusal> {
        if spec.to.as_str() == "full" {
            return Err(Refusal::new(RefusalCode::NoSpace, "pool full has 0 B left"));
        }
        if spec.to.as_str() == "slow" {
            self.at_the_gate.notify_one();
            self.gate.notified().await;
        }
        match self.find(&spec.operation) {
            None => Ok(self.create(spec)),
            Some(known) if known.borrow().spec == spec => Ok(known.borrow().clone()),
            Some(_) => Err(Refusal::new(RefusalCode::Busy, "the id is taken")),
        }
    }

    async fn plan(&self, spec: MigrateSpec) -> Result<Plan, Refusal> {
        let message = format!("there is no domain {}", subject(&spec).0);
        Err(Refusal::new(RefusalCode::DomainNotFound, message))
    }

    async fn operation(&self, id: &OperationId) -> Result<Arc<OperationView>, CommandError> {
        Ok(self.watch(id).await?.borrow().clone())
    }

    async fn history(&self, id: &OperationId) -> Result<History, CommandError> {
        let view = self.operation(id).await?;
        let entries = view
            .phases
            .iter()
            .map(|phase| Entry { at: phase.entered, text: format!("is {}", phase.state) });
        let entries = entries.collect();
        Ok(History { view, entries, to_do: vec!["look at it".to_owned()] })
    }

    async fn checks(&self) -> Vec<Check> {
        let check = |what: &str, verdict, found: &str, fix: Option<&str>| Check {
            what: what.to_owned(),
            verdict,
            found: found.to_owned(),
            fix: fix.map(str::to_owned),
        };
        let mut checks = vec![
            check("agent", Verdict::Good, "version 0.0.1", None),
            check("leftovers", Verdict::Note, "1 could not be removed", Some("list them")),
        ];
        if *self.broken.lock().expect("no panic") {
            checks.push(check(
                "pool nfs-1",
                Verdict::Bad,
                "its mount is missing",
                Some("mount it"),
            ));
        }
        checks
    }

    async fn operations(&self) -> Result<Vec<Arc<OperationView>>, JournalError> {
        let operations = self.operations.lock().expect("no panic");
        Ok(operations.iter().rev().map(|sender| sender.borrow().clone()).collect())
    }

    async fn watch(&self, id: &OperationId) -> Result<ViewReceiver, CommandError> {
        self.find(id).ok_or_else(|| CommandError::UnknownOperation(id.clone()))
    }

    async fn cancel(&self, id: &OperationId) -> Result<Arc<OperationView>, CommandError> {
        let view = self.operation(id).await?;
        if !view.state.can_cancel() {
            let reason = format!("it is {} and can no longer be cancelled", view.state);
            return Err(CommandError::NotAllowed { operation: id.clone(), reason });
        }
        self.enter(id.as_str(), State::RollingBack);
        self.enter(id.as_str(), State::Cancelled);
        self.operation(id).await
    }

    async fn complete(&self, id: &OperationId) -> Result<Arc<OperationView>, CommandError> {
        let reason = "it waits for no word to pivot".to_owned();
        Err(CommandError::NotAllowed {
            operation: self.operation(id).await?.spec.operation.clone(),
            reason,
        })
    }

    async fn set_bandwidth(
        &self,
        id: &OperationId,
        limit: Option<BytesPerSecond>,
    ) -> Result<Arc<OperationView>, CommandError> {
        self.operation(id).await?;
        self.change(id.as_str(), |view| view.bandwidth = limit);
        self.operation(id).await
    }

    async fn examine(&self, id: &OperationId) -> Result<Examined, CommandError> {
        let view = self.operation(id).await?;
        let evidence = Evidence {
            source: view.source.clone(),
            source_found: Found::Itself,
            destination: view.destination.clone(),
            destination_found: Found::Itself,
            qemu: Names::One(Kept::Destination),
            same_run: false,
            job: false,
            live: Names::One(Kept::Destination),
            stored: Names::One(Kept::Source),
            proofs: vec![],
            equal: None,
        };
        Ok(Examined { view, evidence, removal: None })
    }

    async fn resolve(
        &self,
        id: &OperationId,
        decision: Decision,
    ) -> Result<Examined, CommandError> {
        let examined = self.examine(id).await?;
        let refused = |reason| CommandError::NotAllowed { operation: id.clone(), reason };
        if examined.view.state != State::NeedsOperator {
            return Err(refused(format!("it is {} and needs no operator", examined.view.state)));
        }
        examined.evidence.allows(decision.keep).map_err(refused)?;
        self.enter(id.as_str(), State::Succeeded);
        let resolution = Resolution {
            kept: decision.keep,
            by: decision.by,
            at: SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_100),
            found: examined.evidence.lines(),
        };
        self.change(id.as_str(), |view| view.resolution = Some(resolution));
        let removal = Retried::Stays(leftover(LeftoverKind::Source));
        let removal = decision.remove_other.then_some(removal);
        Ok(Examined { view: self.operation(id).await?, removal, ..examined })
    }

    async fn settle(&self, id: &OperationId) -> Result<Examined, CommandError> {
        let reason = "nothing proves yet which volume is the current one".to_owned();
        Err(CommandError::NotAllowed {
            operation: self.operation(id).await?.spec.operation.clone(),
            reason,
        })
    }

    async fn leftovers(&self) -> Result<Vec<Leftover>, LeftoverError> {
        Ok(self.leftovers.lock().expect("no panic").clone())
    }

    async fn retry_leftover(&self, id: &LeftoverId) -> Result<Retried, LeftoverError> {
        let mut leftovers = self.leftovers.lock().expect("no panic");
        let place = leftovers.iter().position(|leftover| leftover.id == *id);
        let place = place.ok_or_else(|| LeftoverError::Unknown(id.clone()))?;
        if leftovers[place].kind == LeftoverKind::Source {
            leftovers[place].tries += 1;
            return Ok(Retried::Stays(leftovers[place].clone()));
        }
        Ok(Retried::Removed(leftovers.remove(place)))
    }

    async fn forget_leftover(&self, id: &LeftoverId) -> Result<Leftover, LeftoverError> {
        let mut leftovers = self.leftovers.lock().expect("no panic");
        let place = leftovers.iter().position(|leftover| leftover.id == *id);
        Ok(leftovers.remove(place.ok_or_else(|| LeftoverError::Unknown(id.clone()))?))
    }

    async fn orphans(&self) -> Result<Orphans, OrphanError> {
        Ok(Orphans {
            found: vec![orphan("lost-1", None), orphan("lost-2", Some("domain web uses it"))],
            unread: vec![],
        })
    }

    async fn remove_orphan(&self, id: &OperationId) -> Result<Vec<Orphan>, OrphanError> {
        let mut found = self.orphans().await?.found;
        found.retain(|orphan| orphan.volume.operation == *id);
        match found.first() {
            None => Err(OrphanError::Unknown(id.clone())),
            Some(Orphan { kept: Some(reason), volume, .. }) => {
                Err(OrphanError::Kept { volume: volume.location.clone(), reason: reason.clone() })
            }
            Some(_) => Ok(found),
        }
    }

    async fn disks(&self, _domain: &DomainReference) -> Result<Vec<DiskListing>, Refusal> {
        let target = |name| DiskTarget::new(name).expect("a target");
        let long = "/mnt/30000000-0000-4000-8000-0000000000cc/40000000-0000-4000-8000-0000000000dd";
        Ok(vec![
            DiskListing {
                target: target("vda"),
                source: long.to_owned(),
                format: Some("qcow2".to_owned()),
                pool: PoolName::new("nfs-1").ok(),
                immovable: None,
            },
            DiskListing {
                target: target("hdc"),
                source: "-".to_owned(),
                format: None,
                pool: None,
                immovable: Some((RefusalCode::NotADisk, "hdc is a CD-ROM".to_owned())),
            },
        ])
    }

    async fn pools(&self) -> Vec<PoolListing> {
        vec![PoolListing {
            name: PoolName::new("ceph-hdd").expect("a plain name"),
            of_libvirt: false,
            type_name: "rbd",
            location: "vms on 192.0.2.11".to_owned(),
            place: PoolPlace::Folder("/srv/vms".into()),
            available: None,
            problem: Some("the monitors do not answer".to_owned()),
        }]
    }

    async fn host(&self) -> HostListing {
        HostListing {
            librbd: None,
            host_name: "host-a".to_owned(),
            agent_version: "0.1.0",
            versions: None,
            connected: false,
        }
    }

    fn configure(&self, host: HostFacts) {
        *self.configured.lock().expect("no panic") = Some(host);
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    async fn metrics(&self) -> String {
        String::new()
    }
}
