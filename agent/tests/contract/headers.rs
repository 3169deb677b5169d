//! Encryption headers: how much they leave, what opens them, and that QEMU copies behind them with libvirt's secret.

use volferry_agent::ports::ErrorClass;
use volferry_agent::ports::{EventKind, NewSecret, PortError};
use volferry_agent::spec::{
    Bytes, EncryptionScheme, HeaderKind, Identity, Passphrase, VolumeFormat, VolumeLocation,
};

use crate::stage::{Kind, Stage, class, copy, is_on, made, next};

pub fn passphrase(text: &str) -> Passphrase {
    Passphrase::new(text.as_bytes().to_vec()).expect("a passphrase")
}

async fn make(
    stage: &dyn Stage,
    at: &VolumeLocation,
    scheme: EncryptionScheme,
    size: u64,
) -> Result<Identity, PortError> {
    make_with(stage, at, scheme, size, "open sesame").await
}

/// Makes an encrypted volume that opens with this passphrase.
pub async fn make_with(
    stage: &dyn Stage,
    at: &VolumeLocation,
    scheme: EncryptionScheme,
    size: u64,
    text: &str,
) -> Result<Identity, PortError> {
    let (ports, right) = (stage.ports(), passphrase(text));
    match at {
        VolumeLocation::Rbd { address, image } => {
            let made =
                ports.images.create_encrypted(address, image, Bytes(size), scheme, &right).await;
            made.map(|image_id| Identity::Rbd { image_id })
        }
        VolumeLocation::File { path } => {
            ports.files.create_encrypted(path, Bytes(size), None, &right).await
        }
    }
}

async fn open(
    stage: &dyn Stage,
    at: &VolumeLocation,
    header: HeaderKind,
    text: &str,
) -> Result<Bytes, PortError> {
    let (ports, passphrase) = (stage.ports(), passphrase(text));
    match at {
        VolumeLocation::Rbd { address, image } => {
            ports.images.open_encrypted(address, image, header, &passphrase).await
        }
        VolumeLocation::File { path } => {
            ports.files.open_encrypted(path, VolumeFormat::Qcow2, &passphrase).await
        }
    }
}

/// Every place a header can have.
pub const BOTH: [(Kind, EncryptionScheme); 3] = [
    (Kind::File, EncryptionScheme::Luks1Qemu),
    (Kind::Rbd, EncryptionScheme::Luks1Qemu),
    (Kind::Rbd, EncryptionScheme::Luks2Librbd),
];

pub async fn a_header_leaves_exactly_the_size_that_was_asked_for(stage: &dyn Stage) {
    for (kind, scheme) in BOTH {
        let at = stage.place(kind);
        // Whole sectors, and not whole megabytes.
        let size = stage.size() + 512;
        make(stage, &at, scheme, size).await.expect("a free name");
        let usable = open(stage, &at, scheme.header(), "open sesame").await.expect("it opens");
        assert_eq!(usable.0, size, "{at} {scheme}");
        class(make(stage, &at, scheme, size).await, ErrorClass::Exists);
    }
}

pub async fn a_volume_without_a_header_is_told_from_a_wrong_passphrase(stage: &dyn Stage) {
    for (kind, scheme) in BOTH {
        let at = stage.place(kind);
        make(stage, &at, scheme, stage.size()).await.expect("a free name");
        let wrong = open(stage, &at, scheme.header(), "sesame, open").await;
        class(wrong, ErrorClass::WrongPassphrase);
        let plain = made(stage, kind).await;
        class(open(stage, &plain, scheme.header(), "open sesame").await, ErrorClass::NoHeader);
    }
}

pub async fn an_encrypted_volume_is_copied_into_and_pivoted_to(stage: &dyn Stage) {
    for (home, kind) in [(Kind::Rbd, Kind::File), (Kind::File, Kind::Rbd)] {
        let guest = stage.guest(home, true);
        let at = stage.place(kind);
        make(stage, &at, EncryptionScheme::Luks1Qemu, stage.size()).await.expect("a free name");
        let secret = NewSecret {
            uuid: uuid::Uuid::new_v4().to_string(),
            usage: at.to_string(),
            description: "volferry contract".to_owned(),
            ephemeral: true,
        };
        let mut request = copy(&guest, &at);
        let encryption = format!(
            "<encryption format='luks'><secret type='passphrase' uuid='{}'/></encryption>",
            secret.uuid
        );
        request.destination_xml = match request.destination_xml.contains("</source>") {
            true => request.destination_xml.replace("</source>", &format!("{encryption}</source>")),
            false => request.destination_xml.replacen(
                "/><target",
                &format!(">{encryption}</source><target"),
                1,
            ),
        };
        let (ports, mut events) = (stage.ports(), stage.ports().events.subscribe());
        class(ports.jobs.start_copy(&request).await, ErrorClass::NotFound);
        ports.secrets.define(&secret, &passphrase("sesame, open")).await.expect("it is defined");
        class(ports.jobs.start_copy(&request).await, ErrorClass::WrongPassphrase);
        ports.secrets.set(&secret.uuid, &passphrase("open sesame")).await.expect("it is set");
        ports.jobs.start_copy(&request).await.expect("the copy starts");
        assert_eq!(next(&mut events, &guest).await, EventKind::JobReady);
        ports.jobs.pivot(&guest.uuid, &crate::stage::vda()).await.expect("it is in step");
        is_on(stage, &guest, &at).await;
        let block = ports.domains.block_info(&guest.uuid, &crate::stage::vda()).await;
        assert_eq!(block.expect("QEMU answers").capacity.0, stage.size());
        stage.destroy(&guest);
        ports.secrets.undefine(&secret.uuid).await.expect("it is removed");
    }
}
