//! Block jobs.

use async_trait::async_trait;

use crate::fake::faults::Method;
use crate::fake::{CALL_BOUND, World};
use crate::ports::{BlockJobs, CopyRequest, ErrorClass, JobInfo, PivotAnswer, PortError};
use crate::spec::{BytesPerSecond, DiskTarget, DomainUuid};

#[async_trait]
impl BlockJobs for World {
    async fn start_copy(&self, request: &CopyRequest) -> Result<(), PortError> {
        let what =
            format!("start the block copy of {} of domain {}", request.target, request.domain);
        let world = self.clone();
        self.call(Method::StartCopy, what.clone(), |state| {
            let number = state.start_copy(request, &what)?;
            let target = request.target.to_string();
            tokio::spawn(world.drive(request.domain.clone(), target, number));
            Ok(())
        })
        .await
    }

    async fn info(
        &self,
        domain: &DomainUuid,
        target: &DiskTarget,
    ) -> Result<Option<JobInfo>, PortError> {
        let what = format!("ask for the block job of {target} of domain {domain}");
        self.call(Method::JobInfo, what.clone(), |state| state.job_info(domain, target, &what))
            .await
    }

    async fn set_bandwidth(
        &self,
        domain: &DomainUuid,
        target: &DiskTarget,
        bandwidth: Option<BytesPerSecond>,
    ) -> Result<(), PortError> {
        let what = format!("limit the block job of {target} of domain {domain}");
        self.call(Method::SetBandwidth, what.clone(), |state| {
            state.limit_job(domain, target, bandwidth, &what)
        })
        .await
    }

    async fn abort(&self, domain: &DomainUuid, target: &DiskTarget) -> Result<(), PortError> {
        let what = format!("end the block job of {target} of domain {domain}");
        if self.quietly(|state| state.job_hangs(domain, target.as_str())) {
            tokio::time::sleep(CALL_BOUND).await;
            let text = "no answer within 30 s";
            return Err(PortError::new(ErrorClass::NoAnswer, what, text));
        }
        self.call(Method::Abort, what.clone(), |state| {
            state.abort_job(domain, target.as_str(), &what)
        })
        .await
    }

    async fn pivot(
        &self,
        domain: &DomainUuid,
        target: &DiskTarget,
    ) -> Result<PivotAnswer, PortError> {
        let what = format!("pivot {target} of domain {domain}");
        let called_at = tokio::time::Instant::now().into_std();
        self.call(Method::Pivot, what.clone(), |state| {
            state.pivot(domain, target.as_str(), &what).map(|()| PivotAnswer { called_at })
        })
        .await
    }
}
