//! Two Ceph pools and two file pools, every ordered pair of them, and what a volume that went there holds.

use std::path::{Path, PathBuf};
use std::process::Command;

use volferry_tests::lab::{Lab, LabError, Volume, output};

/// As the configuration calls them; the first two are Ceph's `vf-a` and `vf-b`.
pub const POOLS: [&str; 4] = ["ceph-a", "ceph-b", "nfs", "smp"];
/// A way along which every ordered pair of pools is gone once.
pub const WAY: [usize; 17] = [0, 0, 1, 1, 2, 2, 3, 3, 0, 2, 0, 3, 1, 3, 2, 1, 0];
pub const MIB: u64 = 1 << 20;

/// A volume of this stem.
pub fn volume(lab: &Lab, pool: usize, stem: &str) -> Result<Volume, LabError> {
    Ok(match pool {
        0 => Volume::rbd("vf-a", stem),
        1 => Volume::rbd("vf-b", stem),
        folder => Volume::qcow2(lab.pool(POOLS[folder])?.join(format!("{stem}.qcow2"))),
    })
}

/// The name and format a request has.
pub fn asked(pool: usize, stem: &str) -> (String, &'static str) {
    match pool {
        0 | 1 => (format!("{}/{stem}", POOLS[pool]), "raw"),
        _ => (format!("{}/{stem}.qcow2", POOLS[pool]), "qcow2"),
    }
}

/// A volume as the tools open it.
pub fn opened(lab: &Lab, volume: &Volume) -> Result<String, LabError> {
    let conf = lab.setting("VOLFERRY_LAB_CEPH_CONF")?;
    let spec = volume.spec();
    Ok(match spec.starts_with("rbd:") {
        true => format!("{spec}:id=volferry:conf={conf}"),
        false => spec,
    })
}

/// A raw file with data at its beginning and at its very end, `written` and one of `size` MiB, and the volume with the
/// same content.
pub fn reference(
    lab: &Lab,
    name: &str,
    to: &Volume,
    size: u64,
    written: u64,
) -> Result<PathBuf, LabError> {
    let file = lab.dir()?.join(format!("{name}-reference.raw"));
    let create = ["create", "-q", "-f", "raw"];
    output(Command::new("qemu-img").args(create).arg(&file).arg(format!("{size}M")))?;
    let first = format!("write -q -P 0x5a 2M {}M", written - 1);
    let last = format!("write -q -P 0x77 {}M 1M", size - 1);
    for write in [first.as_str(), last.as_str()] {
        output(Command::new("qemu-io").args(["-f", "raw", "-c", write]).arg(&file))?;
    }
    let mut convert = Command::new("qemu-img");
    convert.args(["convert", "-f", "raw", "-O", to.format.name()]).arg(&file);
    output(convert.arg(opened(lab, to)?))?;
    Ok(file)
}

/// A plain volume holds what the file holds.
pub fn identical(lab: &Lab, volume: &Volume, reference: &Path) -> Result<(), LabError> {
    let mut command = Command::new("qemu-img");
    command.args(["compare", "-f", volume.format.name(), "-F", "raw", &opened(lab, volume)?]);
    output(command.arg(reference)).map(drop)
}

/// An encrypted one, behind a header of this scheme, opened with the passphrase in a file.
pub fn identical_behind(
    lab: &Lab,
    volume: &Volume,
    scheme: &str,
    passphrase_file: &str,
    reference: &Path,
) -> Result<(), LabError> {
    let conf = lab.setting("VOLFERRY_LAB_CEPH_CONF")?;
    let spec = volume.spec();
    let rbd = spec.strip_prefix("rbd:").and_then(|name| name.split_once('/'));
    let place = match rbd {
        Some((pool, image)) => format!(
            "file.driver=rbd,file.pool={pool},file.image={image},file.conf={conf},file.user=volferry"
        ),
        None => format!("file.driver=file,file.filename={spec}"),
    };
    let options = match (scheme, rbd.is_some()) {
        ("luks2-librbd", _) => {
            format!("driver=raw,{place},file.encrypt.format=luks2,file.encrypt.key-secret=pass")
        }
        (_, true) => format!("driver=luks,key-secret=pass,{place}"),
        (_, false) => format!("driver=qcow2,encrypt.format=luks,encrypt.key-secret=pass,{place}"),
    };
    let plain = format!("driver=raw,file.driver=file,file.filename={}", reference.display());
    let mut command = Command::new("qemu-img");
    command.args(["compare", "--object", &format!("secret,id=pass,file={passphrase_file}")]);
    output(command.args(["--image-opts", &options, &plain])).map(drop)
}
