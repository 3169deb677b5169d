//! LUKS headers by QEMU: making them and opening them with a passphrase, in qcow2 files and for raw images elsewhere.
//!
//! A header for an image that is no local file is made, and looked at, in a file in memory: the few megabytes at the
//! front decide everything, and no other program has to reach the image.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::qemu_img::QemuImg;
use super::secret_file::SecretFile;
use crate::ports::{ErrorClass, PortError};
use crate::spec::{Bytes, Passphrase};

/// Deriving a key takes seconds of processor time by design, and a busy host has little to give.
pub const BOUND: Duration = Duration::from_secs(180);
/// How long a key takes to be derived from the passphrase, in milliseconds of one processor: the guest stands still for
/// this time whenever QEMU opens the volume.
const KEY_MILLISECONDS: u32 = 500;
/// No header is longer; those of QEMU take two megabytes.
pub const LONGEST_HEADER: usize = 32 << 20;
/// QEMU sometimes cannot measure how fast the processor is; the next time it can.
const TRIES: u32 = 5;
/// The name of the secret inside qemu-img.
const KEY: &str = "key";

/// An empty qcow2 image, encrypted inside, in memory.
pub async fn new_qcow2(
    tool: &QemuImg,
    size: Bytes,
    passphrase: &Passphrase,
    operation: &str,
) -> Result<SecretFile, PortError> {
    let secret = secret_file(passphrase, operation)?;
    let image = memory(&[], operation)?;
    let options = format!(
        "encrypt.format=luks,encrypt.key-secret={KEY},encrypt.iter-time={KEY_MILLISECONDS}"
    );
    create(tool, &secret, "qcow2", &options, image.path(), size, operation).await?;
    Ok(image)
}

/// The header for a raw image in which `size` bytes are usable; the image has its length and those.
pub async fn new_header(
    tool: &QemuImg,
    size: Bytes,
    passphrase: &Passphrase,
    operation: &str,
) -> Result<Vec<u8>, PortError> {
    let secret = secret_file(passphrase, operation)?;
    let image = memory(&[], operation)?;
    let options = format!("key-secret={KEY},iter-time={KEY_MILLISECONDS}");
    create(tool, &secret, "luks", &options, image.path(), size, operation).await?;
    let failed = |text: String| PortError::new(ErrorClass::Other, operation, text);
    let length = image.file().metadata().map_err(|error| failed(error.to_string()))?.len();
    let header = length.checked_sub(size.0).and_then(|length| usize::try_from(length).ok());
    let Some(header) = header.filter(|length| (1..=LONGEST_HEADER).contains(length)) else {
        return Err(failed(format!("QEMU made {length} bytes around {} usable ones", size.0)));
    };
    let mut bytes = vec![0; header];
    image.file().read_exact_at(&mut bytes, 0).map_err(|error| failed(error.to_string()))?;
    Ok(bytes)
}

/// Opens a raw image of `length` bytes by its first ones. Returns what is usable.
pub async fn open_header(
    tool: &QemuImg,
    head: &[u8],
    length: u64,
    passphrase: &Passphrase,
    operation: &str,
) -> Result<Bytes, PortError> {
    let secret = secret_file(passphrase, operation)?;
    let image = memory(head, operation)?;
    let sized = image.file().set_len(length);
    sized.map_err(|error| PortError::new(ErrorClass::Other, operation, error))?;
    usable(tool, &secret, image.path(), operation).await
}

/// Opens a qcow2 file that is encrypted inside, also while a guest uses it. Returns what is usable.
pub async fn open_qcow2(
    tool: &QemuImg,
    path: &Path,
    passphrase: &Passphrase,
    operation: &str,
) -> Result<Bytes, PortError> {
    let other = |text: &str| PortError::new(ErrorClass::Other, operation, text);
    let words = ["info", "-U", "--output=json", "-f", "qcow2"].map(Into::into);
    let words = words.into_iter().chain([path.as_os_str().to_owned()]);
    let info = tool.run(words, BOUND, operation).await?;
    let info: Value = serde_json::from_slice(&info)
        .map_err(|_| other("what qemu-img says of the image is not understood"))?;
    let format = &info["format-specific"]["data"]["encrypt"]["format"];
    if format.as_str() != Some("luks") {
        let found = format.as_str().unwrap_or("nothing");
        let text = format!("its header says that it is encrypted with {found}, not with luks");
        return Err(PortError::new(ErrorClass::NoHeader, operation, text));
    }
    let secret = secret_file(passphrase, operation)?;
    let options = json!({
        "driver": "qcow2",
        "encrypt.key-secret": KEY,
        // What the header names below it is data of whoever wrote the image, and not needed here.
        "backing": null,
        "file": { "driver": "file", "filename": text(path, operation)? },
    });
    // What is mapped does not matter: the passphrase is tried before.
    map(tool, &secret, &options, &["--max-length=65536"], operation).await?;
    info["virtual-size"].as_u64().map(Bytes).ok_or_else(|| other("it has no size"))
}

/// Opens a raw file with a header around its content, also while a guest uses it. Returns what is usable.
pub async fn open_raw(
    tool: &QemuImg,
    path: &Path,
    passphrase: &Passphrase,
    operation: &str,
) -> Result<Bytes, PortError> {
    let secret = secret_file(passphrase, operation)?;
    usable(tool, &secret, path, operation).await
}

/// What is usable of a raw file behind its header.
async fn usable(
    tool: &QemuImg,
    secret: &SecretFile,
    path: &Path,
    operation: &str,
) -> Result<Bytes, PortError> {
    let options = json!({
        "driver": "luks",
        "key-secret": KEY,
        "file": { "driver": "file", "filename": text(path, operation)? },
    });
    let map = map(tool, secret, &options, &[], operation).await?;
    let end = |extent: &Value| Some(extent["start"].as_u64()? + extent["length"].as_u64()?);
    let usable = map.as_array().and_then(|map| map.last()).and_then(end);
    usable.map(Bytes).ok_or_else(|| {
        PortError::new(ErrorClass::Other, operation, "the map of the image is not understood")
    })
}

async fn create(
    tool: &QemuImg,
    secret: &SecretFile,
    format: &str,
    options: &str,
    path: &Path,
    size: Bytes,
    operation: &str,
) -> Result<(), PortError> {
    let mut words = vec!["create".into(), "-q".into(), "-f".into(), format.into()];
    words.extend(object(secret));
    words.extend(["-o".into(), options.to_owned(), "--".into()]);
    let mut words: Vec<_> = words.into_iter().map(std::ffi::OsString::from).collect();
    words.push(path.as_os_str().to_owned());
    words.push(size.0.to_string().into());
    let mut tries = 1;
    loop {
        match tool.run(&words, BOUND, operation).await {
            Err(error) if error.class == ErrorClass::Busy && tries < TRIES => tries += 1,
            Err(error) if error.class == ErrorClass::Busy => {
                return Err(PortError::new(ErrorClass::Other, operation, error.message));
            }
            ended => return ended.map(drop),
        }
    }
}

async fn map(
    tool: &QemuImg,
    secret: &SecretFile,
    image: &Value,
    more: &[&str],
    operation: &str,
) -> Result<Value, PortError> {
    let mut words = vec!["map".to_owned(), "-U".to_owned(), "--output=json".to_owned()];
    words.extend(more.iter().map(|&word| word.to_owned()));
    words.extend(object(secret));
    words.push(format!("json:{image}"));
    let map = tool.run(&words, BOUND, operation).await?;
    serde_json::from_slice(&map).map_err(|_| {
        PortError::new(ErrorClass::Other, operation, "the map of the image is not understood")
    })
}

fn object(secret: &SecretFile) -> [String; 2] {
    ["--object".to_owned(), format!("secret,id={KEY},file={}", secret.path().display())]
}

fn secret_file(passphrase: &Passphrase, operation: &str) -> Result<SecretFile, PortError> {
    memory(passphrase.expose(), operation)
}

fn memory(bytes: &[u8], operation: &str) -> Result<SecretFile, PortError> {
    SecretFile::new(bytes).map_err(|error| {
        PortError::new(ErrorClass::Unsupported, operation, format!("no file in memory: {error}"))
    })
}

fn text<'a>(path: &'a Path, operation: &str) -> Result<&'a str, PortError> {
    path.to_str().ok_or_else(|| {
        PortError::new(ErrorClass::Other, operation, format!("{} is not UTF-8", path.display()))
    })
}
