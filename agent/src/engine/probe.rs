//! Tries whether a block copy into an image that librbd encrypts works on this host: no version tells. The order in
//! which libvirt hands secrets to QEMU decides, and a libvirt that has it wrong fails at the start of the copy.
//!
//! Everything that is made for it is small and bears names of its own, in the pool that was asked for: two images, a
//! secret, and a domain whose processor never runs. What a try that was cut short left is removed by the next one.

use std::time::Duration;

use tokio::sync::Mutex;
use volferry_xml::{
    DestinationEncryption, DestinationFormat, DomainXml, EncryptionEngine, EncryptionFormat,
    build_destination, build_encrypted_destination,
};

use super::backoff::Backoff;
use super::context::Context;
use crate::facts::LibrbdCopy;
use crate::plan::encryption::secret_uuid;
use crate::plan::lone_volume;
use crate::ports::{CopyRequest, ErrorClass, HostVersions, NewSecret, PortError};
use crate::spec::{
    Bytes, CopyFlag, CopyFlags, DiskTarget, DomainReference, DomainUuid, EncryptionScheme,
    Passphrase, RbdPoolAddress, VolumeLocation,
};

/// What is copied.
const SIZE: Bytes = Bytes::mib(4);
const TARGET: &str = "vda";
/// A disk to write others from.
const TEMPLATE: &str = "<domain><devices><disk type='file' device='disk'><driver name='qemu' type='raw'/>\
                        <source file='/'/><target dev='vda' bus='virtio'/></disk></devices></domain>";
/// How long a job that was just started is looked for.
const LOOKS: u32 = 20;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// The last answer, for the versions it was found with.
#[derive(Debug, Default)]
pub struct Known(Mutex<Option<(HostVersions, LibrbdCopy)>>);

impl Known {
    /// What was found so far; none when nothing was tried, or a try is running.
    pub fn last(&self) -> Option<LibrbdCopy> {
        let known = self.0.try_lock().ok()?;
        known.as_ref().map(|(_, answer)| answer.clone())
    }
}

/// Whether it works, tried once for each build of libvirt and QEMU.
pub async fn librbd_copy(context: &Context, pool: &RbdPoolAddress) -> LibrbdCopy {
    let mut known = context.librbd.0.lock().await;
    let versions = match context.ports.domains.versions().await {
        Ok(versions) => versions,
        Err(error) => return LibrbdCopy::Fails(format!("it could not be tried: {error}")),
    };
    if let Some((found_with, answer)) = known.as_ref()
        && *found_with == versions
    {
        return answer.clone();
    }
    let attempt = Attempt::new(context, pool);
    let answer = attempt.run().await;
    match answer {
        Ok(answer) => {
            tracing::info!(?answer, "tried a block copy into an image that librbd encrypts");
            *known = Some((versions, answer.clone()));
            answer
        }
        Err(error) => LibrbdCopy::Fails(format!("it could not be tried: {error}")),
    }
}

struct Attempt<'a> {
    context: &'a Context,
    pool: &'a RbdPoolAddress,
    domain: String,
    source: String,
    target: String,
    secret: NewSecret,
}

impl<'a> Attempt<'a> {
    fn new(context: &'a Context, pool: &'a RbdPoolAddress) -> Self {
        let domain = format!("volferry-probe-{}", context.host().host_name);
        let usage = format!("{domain} of {}", pool.pool);
        Self {
            context,
            pool,
            source: format!(".{domain}-source"),
            target: format!(".{domain}-target"),
            secret: NewSecret {
                uuid: secret_uuid(&usage),
                usage,
                description: "volferry tries what librbd can do here".to_owned(),
                ephemeral: true,
            },
            domain,
        }
    }

    /// Errors: it could not be found out.
    async fn run(&self) -> Result<LibrbdCopy, PortError> {
        self.clear().await?;
        let answer = self.attempt().await;
        // What stays is removed by the next attempt.
        if let Err(error) = self.clear().await {
            tracing::warn!(%error, "what was made to try librbd stays for now");
        }
        answer
    }

    async fn attempt(&self) -> Result<LibrbdCopy, PortError> {
        let ports = &self.context.ports;
        let random = uuid::Uuid::new_v4().to_string().into_bytes();
        let passphrase = Passphrase::new(random).map_err(|invalid| other(&invalid))?;
        ports.images.create(self.pool, &self.source, SIZE).await?;
        let scheme = EncryptionScheme::Luks2Librbd;
        let target = &self.target;
        ports.images.create_encrypted(self.pool, target, SIZE, scheme, &passphrase).await?;
        ports.secrets.define(&self.secret, &passphrase).await?;
        let domain = ports.domains.start_paused(&self.domain_xml()?).await?;
        let request = CopyRequest {
            domain: domain.clone(),
            target: DiskTarget::new(TARGET).map_err(|invalid| other(&invalid))?,
            destination_xml: self.destination_xml()?,
            flags: CopyFlags::from([CopyFlag::ReuseExt, CopyFlag::TransientJob]),
            bandwidth: None,
        };
        match ports.jobs.start_copy(&request).await {
            Ok(()) => self.goes_on(&request).await,
            // Nobody was asked, or nobody answered.
            Err(error) if error.is_unavailable() || error.class == ErrorClass::NoAnswer => {
                Err(error)
            }
            Err(error) => Ok(LibrbdCopy::Fails(error.message)),
        }
    }

    /// A copy that works gets in step with its idle source.
    async fn goes_on(&self, request: &CopyRequest) -> Result<LibrbdCopy, PortError> {
        for _ in 0..LOOKS {
            match self.context.ports.jobs.info(&request.domain, &request.target).await? {
                Some(job) if job.current == job.end => return Ok(LibrbdCopy::Works),
                Some(_) => tokio::time::sleep(BETWEEN_LOOKS).await,
                None => return Ok(LibrbdCopy::Fails("the copy ended by itself".to_owned())),
            }
        }
        // Slow, and still there: it started, which is what a libvirt that cannot do it never reaches.
        Ok(LibrbdCopy::Works)
    }

    fn place(&self, image: &str) -> VolumeLocation {
        VolumeLocation::Rbd { address: self.pool.clone(), image: image.to_owned() }
    }

    fn domain_xml(&self) -> Result<String, PortError> {
        let disk = self.disk(&self.source, None)?;
        let name = &self.domain;
        Ok(format!(
            "<domain type='qemu'><name>{name}</name><memory unit='MiB'>32</memory><vcpu>1</vcpu>\
             <os><type>hvm</type></os><devices>{disk}</devices></domain>"
        ))
    }

    fn destination_xml(&self) -> Result<String, PortError> {
        let encryption = DestinationEncryption {
            format: EncryptionFormat::Luks2,
            engine: EncryptionEngine::Librbd,
            secret_uuid: self.secret.uuid.clone(),
        };
        self.disk(&self.target, Some(&encryption))
    }

    fn disk(
        &self,
        image: &str,
        encryption: Option<&DestinationEncryption>,
    ) -> Result<String, PortError> {
        let domain = DomainXml::parse(TEMPLATE).map_err(|error| other(&error))?;
        let disk = domain.find_disk(TARGET).map_err(|error| other(&error))?;
        let source = lone_volume::source(&self.place(image)).map_err(|text| other(&text))?;
        let format = DestinationFormat::Raw;
        Ok(match encryption {
            None => build_destination(&domain, disk, &source, format),
            Some(known) => build_encrypted_destination(&domain, disk, &source, format, known),
        })
    }

    /// Removes whatever bears these names.
    async fn clear(&self) -> Result<(), PortError> {
        let ports = &self.context.ports;
        if let Some(uuid) = self.domain_uuid().await? {
            absent(ports.domains.destroy(&uuid).await)?;
        }
        absent(ports.secrets.undefine(&self.secret.uuid).await)?;
        for image in [&self.source, &self.target] {
            let tuning = self.context.tuning;
            let mut backoff = Backoff::bounded(&tuning, tuning.removal_patience);
            while let Err(error) = self.remove(image).await {
                if error.class != ErrorClass::Busy || !backoff.wait().await {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    async fn domain_uuid(&self) -> Result<Option<DomainUuid>, PortError> {
        let name = DomainReference::new(self.domain.as_str()).map_err(|error| other(&error))?;
        match self.context.ports.domains.observe(&name).await {
            Ok(domain) => Ok(Some(domain.uuid)),
            Err(error) if error.class == ErrorClass::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn remove(&self, image: &str) -> Result<(), PortError> {
        let images = &self.context.ports.images;
        match images.image_id(self.pool, image).await? {
            Some(id) => absent(images.remove(self.pool, image, &id).await),
            None => Ok(()),
        }
    }
}

/// What is not there is removed.
fn absent(removed: Result<(), PortError>) -> Result<(), PortError> {
    removed.or_else(|error| match error.class {
        ErrorClass::NotFound => Ok(()),
        _ => Err(error),
    })
}

fn other(error: &dyn std::fmt::Display) -> PortError {
    PortError::new(ErrorClass::Other, "try a copy into an image that librbd encrypts", error)
}
