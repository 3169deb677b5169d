//! The last proof of a pivot: once QEMU is gone, two volumes that hold the same can each be the disk's, so the
//! destination is. Nothing is changed here, and nothing is decided.

use tokio::sync::watch;

use super::steps::volumes;
use crate::plan::Plan;
use crate::ports::{Comparison, Image, ImageCopy, Ports};
use crate::spec::{Bytes, Identity};

/// Compares what a guest would read from either volume. QEMU is gone when this is asked; whether it still is must be
/// asked again afterwards.
///
/// Errors: why they could not be compared, in words.
pub async fn compare(
    ports: &Ports,
    plan: &Plan,
    created: Option<&Identity>,
) -> Result<Comparison, String> {
    if plan.destination_encryption.is_some() || plan.spec.encryption.decrypt {
        return Err("an encrypted volume is opened with a passphrase, which is not kept".to_owned());
    }
    for (volume, meant) in
        [(&plan.source, Some(&plan.source_identity)), (&plan.destination, created)]
    {
        let found = volumes::identity(ports, volume).await.map_err(|error| error.to_string())?;
        if meant.is_none() || found.as_ref() != meant {
            return Err(format!("{volume} is not the volume it was"));
        }
    }
    let request = ImageCopy {
        operation: plan.spec.operation.clone(),
        from: Image { location: plan.source.clone(), format: plan.source_format, key: None },
        to: Image {
            location: plan.destination.clone(),
            format: plan.destination_format,
            key: None,
        },
        size: plan.size,
        bandwidth: None,
    };
    let (done, _progress) = watch::channel(Bytes(0));
    let compared = ports.copies.compare(&request, &done).await;
    compared.map_err(|error| crate::report::chain(&error))
}
