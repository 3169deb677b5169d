//! The `volferry.v1.Volferry` service: each call validated, forwarded to the agent, and its answer described.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use futures::Stream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status};
use tracing::{error, info};

use super::access::{About, Call, Entry, rights};
use super::agent::Agent;
use super::convert::{InvalidRequest, request};
use super::{pb, status, watch};
use crate::engine::doctor::Orphans;
use crate::engine::{CommandError, Decision, Examined};
use crate::operation::OperationView;
use crate::spec::{DomainReference, MigrateSpec, Subject};

const DEFAULT_PAGE: u32 = 100;
const LARGEST_PAGE: u32 = 1000;

/// The service over an agent; cheap to clone.
#[derive(Debug)]
pub struct Service<A> {
    agent: Arc<A>,
    stop: CancellationToken,
    commands: TaskTracker,
}

type Answer<T> = Result<Response<T>, Status>;
type OperationStream = Pin<Box<dyn Stream<Item = Result<pb::Operation, Status>> + Send>>;

impl<A: Agent> Service<A> {
    /// A service that ends its streams when `stop` is cancelled and runs commands in tasks of `commands`.
    pub fn new(agent: Arc<A>, stop: CancellationToken, commands: TaskTracker) -> Self {
        Self { agent, stop, commands }
    }

    /// Runs a command to its end even when its client goes away, and says in its entry how it ended: a dropped call
    /// must not leave half of one behind.
    async fn whole<T, F>(
        &self,
        entry: &Entry,
        command: impl FnOnce(Arc<A>) -> F,
    ) -> Result<T, Status>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Status>> + Send + 'static,
    {
        let (entry, command) = (entry.clone(), command(Arc::clone(&self.agent)));
        let running = self.commands.spawn(async move {
            let answer = command.await;
            entry.ended(&answer);
            answer
        });
        running.await.unwrap_or_else(|error| {
            error!(%error, "a command failed");
            Err(Status::internal("the agent failed at this; its log has the whole story"))
        })
    }

    /// The same of a command to an operation.
    async fn commands<T, F>(
        &self,
        entry: &Entry,
        command: impl FnOnce(Arc<A>) -> F,
    ) -> Result<T, Status>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, CommandError>> + Send + 'static,
    {
        let command = |agent| {
            let running = command(agent);
            async move { running.await.map_err(|error| status::command_status(&error)) }
        };
        self.whole(entry, command).await
    }
}

#[tonic::async_trait]
impl<A: Agent> pb::volferry_server::Volferry for Service<A> {
    type WatchOperationStream = OperationStream;

    async fn migrate(&self, request: Request<pb::MigrateRequest>) -> Answer<pb::Operation> {
        let (call, request) = Call::of(request)?;
        let needed = rights::needed_by_content(&request);
        let spec = MigrateSpec::try_from(request)?;
        call.entry.begins(about(&spec));
        call.may(needed)?;
        let id = spec.operation.clone();
        let command = |agent: Arc<A>| async move {
            agent.migrate(spec).await.map_err(|refusal| {
                info!(operation = %id, code = %refusal.code, reason = refusal.message, "refused");
                status::refusal_status(&refusal)
            })
        };
        shown(&self.whole(&call.entry, command).await?)
    }

    async fn plan(&self, request: Request<pb::PlanRequest>) -> Answer<pb::PlanResponse> {
        let (call, request) = Call::of(request)?;
        let needed = request.request.as_ref().map(rights::needed_by_content);
        let spec = MigrateSpec::try_from(request)?;
        if let Some(needed) = needed {
            call.entry.concerns(about(&spec));
            call.may(needed)?;
        }
        match self.agent.plan(spec).await {
            Ok(plan) => Ok(Response::new(pb::PlanResponse::from(&plan))),
            Err(refusal) => Err(status::refusal_status(&refusal)),
        }
    }

    async fn get_operation(
        &self,
        request: Request<pb::GetOperationRequest>,
    ) -> Answer<pb::Operation> {
        let id = request::operation_id(request.into_inner().operation_id)?;
        commanded(self.agent.operation(&id).await)
    }

    async fn get_history(
        &self,
        request: Request<pb::GetHistoryRequest>,
    ) -> Answer<pb::GetHistoryResponse> {
        let id = request::operation_id(request.into_inner().operation_id)?;
        match self.agent.history(&id).await {
            Ok(history) => Ok(Response::new(pb::GetHistoryResponse::from(&history))),
            Err(error) => Err(status::command_status(&error)),
        }
    }

    async fn check_host(
        &self,
        _request: Request<pb::CheckHostRequest>,
    ) -> Answer<pb::CheckHostResponse> {
        let checks = self.agent.checks().await.iter().map(pb::Check::from).collect();
        Ok(Response::new(pb::CheckHostResponse { checks }))
    }

    async fn list_operations(
        &self,
        request: Request<pb::ListOperationsRequest>,
    ) -> Answer<pb::ListOperationsResponse> {
        let request = request.into_inner();
        let domain = match request.domain.as_str() {
            "" => None,
            _ => Some(request::domain(request.domain.clone())?),
        };
        let operations = self.agent.operations().await;
        let operations = operations.map_err(|error| status::journal_status(&error))?;
        let wanted = operations.into_iter().filter(|view| {
            !(request.unfinished_only && view.state.is_final())
                && domain.as_ref().is_none_or(|domain| is_of(view, domain))
        });
        Ok(Response::new(page(wanted, &request)?))
    }

    async fn watch_operation(
        &self,
        request: Request<pb::WatchOperationRequest>,
    ) -> Answer<OperationStream> {
        let id = request::operation_id(request.into_inner().operation_id)?;
        match self.agent.watch(&id).await {
            Ok(views) => Ok(Response::new(Box::pin(watch::stream(views, self.stop.clone())))),
            Err(error) => Err(status::command_status(&error)),
        }
    }

    async fn cancel_operation(
        &self,
        request: Request<pb::CancelOperationRequest>,
    ) -> Answer<pb::Operation> {
        let (call, request) = Call::of(request)?;
        let id = request::operation_id(request.operation_id)?;
        call.entry.begins(About::operation(&id));
        let command = |agent: Arc<A>| async move { agent.cancel(&id).await };
        shown(&self.commands(&call.entry, command).await?)
    }

    async fn complete_operation(
        &self,
        request: Request<pb::CompleteOperationRequest>,
    ) -> Answer<pb::Operation> {
        let (call, request) = Call::of(request)?;
        let id = request::operation_id(request.operation_id)?;
        call.entry.begins(About::operation(&id));
        let command = |agent: Arc<A>| async move { agent.complete(&id).await };
        shown(&self.commands(&call.entry, command).await?)
    }

    async fn set_bandwidth(
        &self,
        request: Request<pb::SetBandwidthRequest>,
    ) -> Answer<pb::Operation> {
        let (call, request) = Call::of(request)?;
        let limit = request::bandwidth(request.bandwidth_bytes_per_second)?;
        let id = request::operation_id(request.operation_id)?;
        let detail = limit.map_or("no limit".to_owned(), |limit| limit.to_string());
        call.entry.begins(About { detail: Some(detail), ..About::operation(&id) });
        let command = |agent: Arc<A>| async move { agent.set_bandwidth(&id, limit).await };
        shown(&self.commands(&call.entry, command).await?)
    }

    async fn resolve_operation(
        &self,
        request: Request<pb::ResolveOperationRequest>,
    ) -> Answer<pb::ResolveOperationResponse> {
        let (call, request) = Call::of(request)?;
        let keep = request::kept(&request)?;
        let remove_other = request.remove_other;
        let id = request::operation_id(request.operation_id)?;
        let Some(keep) = keep else {
            let detail = Some("only the evidence".to_owned());
            call.entry.begins(About { detail, ..About::operation(&id) });
            let command = |agent: Arc<A>| async move { agent.examine(&id).await };
            return examined(&self.commands(&call.entry, command).await?);
        };
        let other = if remove_other { ", the other one removed" } else { "" };
        let detail = Some(format!("keep {keep}{other}"));
        call.entry.begins(About { detail, ..About::operation(&id) });
        let decision = Decision { keep, remove_other, by: call.caller.who.to_string() };
        let command = |agent: Arc<A>| async move { agent.resolve(&id, decision).await };
        examined(&self.commands(&call.entry, command).await?)
    }

    async fn settle_operation(
        &self,
        request: Request<pb::SettleOperationRequest>,
    ) -> Answer<pb::ResolveOperationResponse> {
        let (call, request) = Call::of(request)?;
        let id = request::operation_id(request.operation_id)?;
        call.entry.begins(About::operation(&id));
        let command = |agent: Arc<A>| async move { agent.settle(&id).await };
        examined(&self.commands(&call.entry, command).await?)
    }

    async fn list_leftovers(
        &self,
        _request: Request<pb::ListLeftoversRequest>,
    ) -> Answer<pb::ListLeftoversResponse> {
        let leftovers = self.agent.leftovers().await;
        let leftovers = leftovers.map_err(|error| status::leftover_status(&error))?;
        let leftovers = leftovers.iter().map(pb::Leftover::from).collect();
        Ok(Response::new(pb::ListLeftoversResponse { leftovers }))
    }

    async fn retry_leftover(
        &self,
        request: Request<pb::RetryLeftoverRequest>,
    ) -> Answer<pb::RetryLeftoverResponse> {
        let (call, request) = Call::of(request)?;
        let id = request::leftover_id(request.leftover_id)?;
        call.entry.begins(About { leftover: Some(id.to_string()), ..About::default() });
        let command = |agent: Arc<A>| async move {
            agent.retry_leftover(&id).await.map_err(|error| status::leftover_status(&error))
        };
        let retried = self.whole(&call.entry, command).await?;
        Ok(Response::new(pb::RetryLeftoverResponse::from(&retried)))
    }

    async fn forget_leftover(
        &self,
        request: Request<pb::ForgetLeftoverRequest>,
    ) -> Answer<pb::Leftover> {
        let (call, request) = Call::of(request)?;
        let id = request::leftover_id(request.leftover_id)?;
        call.entry.begins(About { leftover: Some(id.to_string()), ..About::default() });
        let command = |agent: Arc<A>| async move {
            agent.forget_leftover(&id).await.map_err(|error| status::leftover_status(&error))
        };
        let leftover = self.whole(&call.entry, command).await?;
        Ok(Response::new(pb::Leftover::from(&leftover)))
    }

    async fn list_orphans(
        &self,
        _request: Request<pb::ListOrphansRequest>,
    ) -> Answer<pb::ListOrphansResponse> {
        match self.agent.orphans().await {
            Ok(orphans) => Ok(Response::new(pb::ListOrphansResponse::from(&orphans))),
            Err(error) => Err(status::orphan_status(&error)),
        }
    }

    async fn remove_orphan(
        &self,
        request: Request<pb::RemoveOrphanRequest>,
    ) -> Answer<pb::ListOrphansResponse> {
        let (call, request) = Call::of(request)?;
        let id = request::operation_id(request.operation_id)?;
        call.entry.begins(About::operation(&id));
        let command = |agent: Arc<A>| async move {
            agent.remove_orphan(&id).await.map_err(|error| status::orphan_status(&error))
        };
        let removed = Orphans { found: self.whole(&call.entry, command).await?, unread: vec![] };
        Ok(Response::new(pb::ListOrphansResponse::from(&removed)))
    }

    async fn list_disks(
        &self,
        request: Request<pb::ListDisksRequest>,
    ) -> Answer<pb::ListDisksResponse> {
        let domain = request::domain(request.into_inner().domain)?;
        match self.agent.disks(&domain).await {
            Ok(disks) => {
                let disks = disks.iter().map(pb::Disk::from).collect();
                Ok(Response::new(pb::ListDisksResponse { disks }))
            }
            Err(refusal) => Err(status::refusal_status(&refusal)),
        }
    }

    async fn list_pools(
        &self,
        _request: Request<pb::ListPoolsRequest>,
    ) -> Answer<pb::ListPoolsResponse> {
        let pools = self.agent.pools().await.iter().map(pb::Pool::from).collect();
        Ok(Response::new(pb::ListPoolsResponse { pools }))
    }

    async fn get_host_capabilities(
        &self,
        _request: Request<pb::GetHostCapabilitiesRequest>,
    ) -> Answer<pb::HostCapabilities> {
        Ok(Response::new(pb::HostCapabilities::from(&self.agent.host().await)))
    }
}

/// What a request is about, for the audit: names only.
fn about(spec: &MigrateSpec) -> About {
    let about = About { to: Some(spec.to.to_string()), ..About::operation(&spec.operation) };
    match &spec.subject {
        Subject::Disk { domain, disk } => {
            About { domain: Some(domain.to_string()), disk: Some(disk.to_string()), ..about }
        }
        Subject::Volume { volume_pool, volume_name, .. } => {
            About { volume: Some(format!("{volume_pool}/{volume_name}")), ..about }
        }
    }
}

#[allow(clippy::unnecessary_wraps, reason = "it is the answer itself")]
fn shown(view: &Arc<OperationView>) -> Answer<pb::Operation> {
    Ok(Response::new(pb::Operation::from(&**view)))
}

fn commanded(answer: Result<Arc<OperationView>, CommandError>) -> Answer<pb::Operation> {
    match answer {
        Ok(view) => Ok(Response::new(pb::Operation::from(&*view))),
        Err(error) => Err(status::command_status(&error)),
    }
}

#[allow(clippy::unnecessary_wraps, reason = "it is the answer itself")]
fn examined(examined: &Examined) -> Answer<pb::ResolveOperationResponse> {
    Ok(Response::new(pb::ResolveOperationResponse::from(examined)))
}

fn is_of(view: &OperationView, domain: &DomainReference) -> bool {
    let is_it =
        view.domain_name == domain.as_str() || domain.as_uuid().as_ref() == Some(&view.domain_uuid);
    is_it && !view.domain_uuid.is_none()
}

/// One page, beginning after the operation the token names.
///
/// Errors: there is no such operation, so that what is after it cannot be told.
fn page(
    views: impl Iterator<Item = Arc<OperationView>>,
    request: &pb::ListOperationsRequest,
) -> Result<pb::ListOperationsResponse, InvalidRequest> {
    let size = match request.page_size {
        0 => DEFAULT_PAGE,
        size => size.min(LARGEST_PAGE),
    };
    let token = request.page_token.as_str();
    let mut begun = token.is_empty();
    let mut rest = views.filter(|view| {
        let here = begun;
        begun = begun || view.spec.operation.as_str() == token;
        here
    });
    let operations: Vec<_> =
        rest.by_ref().take(size as usize).map(|view| pb::Operation::from(&*view)).collect();
    let last = operations.last().map(|operation| operation.id.clone());
    let next_page_token = rest.next().and(last).unwrap_or_default();
    drop(rest);
    if !begun {
        return Err(InvalidRequest::PageToken(request.page_token.clone()));
    }
    Ok(pb::ListOperationsResponse { operations, next_page_token })
}
