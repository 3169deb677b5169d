//! The layer itself, in front of every service.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::{Request, Response};
use tonic::Status;
use tonic::body::Body;
use tower::{Layer, Service};

use super::super::status;
use super::{Access, Caller, Entry, rights};
use crate::config::access::Role;

/// Lets through what its caller may ask for.
#[derive(Debug, Clone)]
pub struct Guard {
    access: Arc<Access>,
}

impl Guard {
    /// By these rules, as they are at each request.
    pub fn new(access: Arc<Access>) -> Self {
        Self { access }
    }
}

impl<S> Layer<S> for Guard {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Guarded { access: Arc::clone(&self.access), inner }
    }
}

/// A service behind the layer.
#[derive(Debug, Clone)]
pub struct Guarded<S> {
    access: Arc<Access>,
    inner: S,
}

impl<S> Service<Request<Body>> for Guarded<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let caller = Caller::of(request.extensions(), &self.access.rules());
        let path = request.uri().path().to_owned();
        let needed = rights::needed(&path);
        let entry = match needed {
            Role::Observe => Entry::of_look(caller.clone(), &path),
            Role::Operate | Role::Admin => Entry::of_command(caller.clone(), &path),
        };
        let what = path.rsplit('/').next().unwrap_or(&path);
        if let Err(refusal) = caller.may(needed, what) {
            let refused = status::refusal_status(&refusal);
            entry.answered(Some(&refused));
            return Box::pin(ready(Ok(refused.into_http())));
        }
        request.extensions_mut().insert(caller);
        request.extensions_mut().insert(entry.clone());
        let answering = self.inner.call(request);
        Box::pin(async move {
            let response = answering.await?;
            // Without a status here the answer has begun, and whatever has one was carried out.
            entry.answered(Status::from_header_map(response.headers()).as_ref());
            Ok(response)
        })
    }
}
