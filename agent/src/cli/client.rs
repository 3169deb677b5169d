//! The agent at the other end of the connection.

use std::path::PathBuf;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Streaming};
use tower::service_fn;

use super::address::Address;
use super::failure::Failure;
use crate::api::pb;
use crate::api::status::Exit;

/// The longest an answer that only reads the agent's memory may take.
const QUICK: Duration = Duration::from_secs(30);
/// The longest an answer that looks at libvirt and storage may take.
const LOOKING: Duration = Duration::from_secs(180);
/// The longest an answer that waits for the removal of a large image may take.
const REMOVING: Duration = Duration::from_secs(900);
/// A page of operations is far below this.
const LARGEST_ANSWER: usize = 64 * 1024 * 1024;

/// A connection that comes back by itself when the agent does.
#[derive(Debug, Clone)]
pub struct Client {
    inner: pb::volferry_client::VolferryClient<Channel>,
}

impl Client {
    /// Connects.
    pub async fn connect(agent: &Address) -> Result<Self, Failure> {
        let channel = match agent {
            Address::Socket(path) => Self::local(path.clone()).await,
            Address::Network(network) => network.endpoint()?.connect().await,
        };
        let channel = channel.map_err(|error| Failure::unreachable(agent, &error))?;
        let inner = pb::volferry_client::VolferryClient::new(channel)
            .max_decoding_message_size(LARGEST_ANSWER);
        Ok(Self { inner })
    }

    async fn local(path: PathBuf) -> Result<Channel, tonic::transport::Error> {
        let connector = service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        // The name is never looked up: the connector goes to the socket.
        Endpoint::from_static("http://volferryd").connect_with_connector(connector).await
    }

    /// Starts a move.
    pub async fn migrate(&mut self, request: pb::MigrateRequest) -> Result<pb::Operation, Failure> {
        Ok(self.inner.migrate(bounded(request, LOOKING)).await?.into_inner())
    }

    /// The plan of a move.
    pub async fn plan(&mut self, request: pb::MigrateRequest) -> Result<pb::PlanResponse, Failure> {
        let request = pb::PlanRequest { request: Some(request) };
        Ok(self.inner.plan(bounded(request, LOOKING)).await?.into_inner())
    }

    /// One operation with its whole history.
    pub async fn history(&mut self, id: &str) -> Result<pb::GetHistoryResponse, Failure> {
        let request = pb::GetHistoryRequest { operation_id: id.to_owned() };
        Ok(self.inner.get_history(bounded(request, QUICK)).await?.into_inner())
    }

    /// Everything a move needs, looked at.
    pub async fn checks(&mut self) -> Result<Vec<pb::Check>, Failure> {
        let request = pb::CheckHostRequest {};
        Ok(self.inner.check_host(bounded(request, LOOKING)).await?.into_inner().checks)
    }

    /// Operations, newest first, at most `limit`.
    pub async fn operations(
        &mut self,
        unfinished_only: bool,
        domain: Option<String>,
        limit: u32,
    ) -> Result<Vec<pb::Operation>, Failure> {
        let wanted = limit as usize;
        let mut operations = Vec::new();
        let mut request = pb::ListOperationsRequest {
            unfinished_only,
            domain: domain.unwrap_or_default(),
            page_size: limit,
            page_token: String::new(),
        };
        while operations.len() < wanted {
            let page = self.inner.list_operations(bounded(request.clone(), QUICK)).await?;
            let page = page.into_inner();
            operations.extend(page.operations);
            request.page_token = page.next_page_token;
            if request.page_token.is_empty() {
                break;
            }
        }
        operations.truncate(wanted);
        Ok(operations)
    }

    /// Follows an operation.
    pub async fn watch(&mut self, id: &str) -> Result<Streaming<pb::Operation>, tonic::Status> {
        let request = pb::WatchOperationRequest { operation_id: id.to_owned() };
        Ok(self.inner.watch_operation(request).await?.into_inner())
    }

    /// Asks to cancel.
    pub async fn cancel(&mut self, id: &str) -> Result<pb::Operation, Failure> {
        let request = pb::CancelOperationRequest { operation_id: id.to_owned() };
        Ok(self.inner.cancel_operation(bounded(request, QUICK)).await?.into_inner())
    }

    /// Lets it pivot.
    pub async fn complete(&mut self, id: &str) -> Result<pb::Operation, Failure> {
        let request = pb::CompleteOperationRequest { operation_id: id.to_owned() };
        Ok(self.inner.complete_operation(bounded(request, QUICK)).await?.into_inner())
    }

    /// Changes the limit, 0 lifts it.
    pub async fn set_bandwidth(&mut self, id: &str, rate: u64) -> Result<pb::Operation, Failure> {
        let request = pb::SetBandwidthRequest {
            operation_id: id.to_owned(),
            bandwidth_bytes_per_second: rate,
        };
        Ok(self.inner.set_bandwidth(bounded(request, QUICK)).await?.into_inner())
    }

    /// The evidence about its volumes, and the decision which one is kept.
    pub async fn resolve(
        &mut self,
        id: &str,
        keep: pb::Place,
        remove_other: bool,
    ) -> Result<pb::ResolveOperationResponse, Failure> {
        let operation_id = id.to_owned();
        let request = pb::ResolveOperationRequest { operation_id, keep: keep.into(), remove_other };
        let longest = if remove_other { REMOVING } else { LOOKING };
        Ok(self.inner.resolve_operation(bounded(request, longest)).await?.into_inner())
    }

    /// Asks the world again about it.
    pub async fn settle(&mut self, id: &str) -> Result<pb::ResolveOperationResponse, Failure> {
        let request = pb::SettleOperationRequest { operation_id: id.to_owned() };
        Ok(self.inner.settle_operation(bounded(request, REMOVING)).await?.into_inner())
    }

    /// What operations left behind.
    pub async fn leftovers(&mut self) -> Result<Vec<pb::Leftover>, Failure> {
        let request = pb::ListLeftoversRequest {};
        Ok(self.inner.list_leftovers(bounded(request, QUICK)).await?.into_inner().leftovers)
    }

    /// Tries once more to remove it.
    pub async fn retry_leftover(
        &mut self,
        leftover_id: String,
    ) -> Result<pb::RetryLeftoverResponse, Failure> {
        let request = pb::RetryLeftoverRequest { leftover_id };
        Ok(self.inner.retry_leftover(bounded(request, REMOVING)).await?.into_inner())
    }

    /// Drops its record.
    pub async fn forget_leftover(&mut self, leftover_id: String) -> Result<pb::Leftover, Failure> {
        let request = pb::ForgetLeftoverRequest { leftover_id };
        Ok(self.inner.forget_leftover(bounded(request, QUICK)).await?.into_inner())
    }

    /// Volumes no operation knows.
    pub async fn orphans(&mut self) -> Result<pb::ListOrphansResponse, Failure> {
        let request = pb::ListOrphansRequest {};
        Ok(self.inner.list_orphans(bounded(request, REMOVING)).await?.into_inner())
    }

    /// Removes those of an operation.
    pub async fn remove_orphan(
        &mut self,
        operation_id: String,
    ) -> Result<pb::ListOrphansResponse, Failure> {
        let request = pb::RemoveOrphanRequest { operation_id };
        Ok(self.inner.remove_orphan(bounded(request, REMOVING)).await?.into_inner())
    }

    /// Disks of a domain.
    pub async fn disks(&mut self, domain: String) -> Result<Vec<pb::Disk>, Failure> {
        let request = pb::ListDisksRequest { domain };
        Ok(self.inner.list_disks(bounded(request, LOOKING)).await?.into_inner().disks)
    }

    /// Pools.
    pub async fn pools(&mut self) -> Result<Vec<pb::Pool>, Failure> {
        let request = pb::ListPoolsRequest {};
        Ok(self.inner.list_pools(bounded(request, LOOKING)).await?.into_inner().pools)
    }

    /// The host.
    pub async fn host(&mut self) -> Result<pb::HostCapabilities, Failure> {
        let request = pb::GetHostCapabilitiesRequest {};
        Ok(self.inner.get_host_capabilities(bounded(request, LOOKING)).await?.into_inner())
    }
}

fn bounded<T>(message: T, longest: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(longest);
    request
}

/// An answer without a part it always has: an agent of another kind.
pub fn incomplete(part: &str) -> Failure {
    Failure::new(Exit::Failed, format!("the agent's answer has no {part}"))
}
