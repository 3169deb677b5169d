//! Volumes of guests in the lab's pools: made from the built images, read back as raw.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::User;

use super::process::wait_for;
use super::{Lab, LabError, at, output};

/// Which built image a volume starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// The root disk.
    Root,
    /// The data disk.
    Data,
}

impl Base {
    pub(crate) fn file(self) -> &'static str {
        match self {
            Base::Root => "root.raw",
            Base::Data => "data.raw",
        }
    }
}

/// Format of a volume's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Raw.
    Raw,
    /// Qcow2.
    Qcow2,
}

impl Format {
    /// As QEMU and libvirt call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::Raw => "raw",
            Format::Qcow2 => "qcow2",
        }
    }
}

/// Where a volume is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A file.
    File(PathBuf),
    /// An RBD image.
    Rbd {
        /// Ceph pool.
        pool: String,
        /// Image name.
        image: String,
    },
}

/// A volume: where, in which format, on which template, and how encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Where it is.
    pub place: Place,
    /// Its format.
    pub format: Format,
    /// The template it is made on: a qcow2 file under an overlay, or an RBD image to clone.
    pub template: Option<Place>,
    /// How it is encrypted, where it is.
    pub encryption: Option<Encryption>,
}

/// How a guest's disk is encrypted, by its XML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encryption {
    /// `luks` or `luks2`.
    pub format: String,
    /// `qemu` or `librbd`; none where the XML names none, which is QEMU.
    pub engine: Option<String>,
    /// The uuid of libvirt's secret.
    pub secret: String,
}

impl Volume {
    /// A plain volume without a template.
    #[must_use]
    pub(crate) fn at(place: Place, format: Format) -> Volume {
        Volume { place, format, template: None, encryption: None }
    }

    /// A qcow2 file.
    #[must_use]
    pub fn qcow2(path: impl Into<PathBuf>) -> Volume {
        Volume::at(Place::File(path.into()), Format::Qcow2)
    }

    /// A raw file.
    #[must_use]
    pub fn raw(path: impl Into<PathBuf>) -> Volume {
        Volume::at(Place::File(path.into()), Format::Raw)
    }

    /// An RBD image.
    #[must_use]
    pub fn rbd(pool: &str, image: &str) -> Volume {
        Volume::at(Place::Rbd { pool: pool.into(), image: image.into() }, Format::Raw)
    }

    /// A qcow2 overlay over a template file, which `create` makes if it is missing.
    #[must_use]
    pub fn overlay(path: impl Into<PathBuf>, template: impl Into<PathBuf>) -> Volume {
        Volume { template: Some(Place::File(template.into())), ..Volume::qcow2(path) }
    }

    /// A clone of the snapshot `base` of a template image, which `create` makes if it is missing.
    #[must_use]
    pub fn clone_of(pool: &str, image: &str, template: &str) -> Volume {
        let template = Place::Rbd { pool: pool.into(), image: template.into() };
        Volume { template: Some(template), ..Volume::rbd(pool, image) }
    }

    /// Reads what [`Volume::spec`] and [`Format::name`] wrote.
    #[must_use]
    pub fn parse(spec: &str, format: &str) -> Option<Volume> {
        let format = match format {
            "raw" => Format::Raw,
            "qcow2" => Format::Qcow2,
            _ => return None,
        };
        let place = match spec.strip_prefix("rbd:") {
            Some(name) => {
                let (pool, image) = name.split_once('/')?;
                Place::Rbd { pool: pool.into(), image: image.into() }
            }
            None => Place::File(spec.into()),
        };
        Some(Volume::at(place, format))
    }

    /// As the scripts and qemu-img take it: a path or `rbd:POOL/IMAGE`.
    #[must_use]
    pub fn spec(&self) -> String {
        match &self.place {
            Place::File(path) => path.display().to_string(),
            Place::Rbd { pool, image } => format!("rbd:{pool}/{image}"),
        }
    }
}

impl Lab {
    /// Makes a volume with the content of a built image; what had its name before is removed.
    ///
    /// # Errors
    /// When a tool fails.
    pub fn create(&self, base: Base, volume: &Volume) -> Result<Volume, LabError> {
        let image = self.built(base.file())?;
        if !image.exists() {
            self.build_images()?;
        }
        self.remove(volume)?;
        match (&volume.place, &volume.template) {
            (_, None) => self.convert(&image, volume)?,
            (Place::File(path), Some(Place::File(template))) => {
                let template = Volume::qcow2(template);
                self.make_template(&image, &template, |lab| lab.convert(&image, &template))?;
                let template = template.spec();
                output(
                    Command::new("qemu-img")
                        .args(["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b"])
                        .args([Path::new(&template), path]),
                )?;
                self.give_to_qemu(path)?;
            }
            (
                Place::Rbd { pool, image: name },
                Some(Place::Rbd { pool: from, image: template }),
            ) => {
                let parent = format!("{from}/{template}");
                let snapshot = format!("{parent}@base");
                let template = Volume::rbd(from, template);
                self.make_template(&image, &template, |lab| {
                    if lab.exists(&template)? {
                        lab.rbd(&["snap", "unprotect", &snapshot])?;
                        lab.rbd(&["snap", "purge", "--no-progress", &parent])?;
                        lab.remove(&template)?;
                    }
                    lab.convert(&image, &template)?;
                    lab.rbd(&["snap", "create", "--no-progress", &snapshot])?;
                    lab.rbd(&["snap", "protect", &snapshot]).map(drop)
                })?;
                self.rbd(&["clone", &snapshot, &format!("{pool}/{name}")])?;
            }
            (_, Some(_)) => {
                let text = "a template must be of the same kind as the volume".into();
                return Err(LabError::Command { command: "create".into(), text });
            }
        }
        Ok(volume.clone())
    }

    /// Makes a template unless it is there, made from this very image: one of an older build would
    /// differ from what the verifier compares with.
    fn make_template(
        &self,
        image: &Path,
        template: &Volume,
        make: impl FnOnce(&Lab) -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        let marks = self.built("templates")?;
        fs::create_dir_all(&marks).map_err(at(&marks))?;
        let mark = marks.join(template.spec().replace('/', "%"));
        let built = fs::metadata(image).map_err(at(image))?;
        let identity = format!("{} {}.{:09}", built.ino(), built.mtime(), built.mtime_nsec());
        if fs::read_to_string(&mark).is_ok_and(|old| old == identity) && self.exists(template)? {
            return Ok(());
        }
        make(self)?;
        fs::write(&mark, identity).map_err(at(&mark))
    }

    fn convert(&self, image: &Path, volume: &Volume) -> Result<(), LabError> {
        let mut target = volume.spec();
        if matches!(volume.place, Place::Rbd { .. }) {
            let conf = self.setting("VOLFERRY_LAB_CEPH_CONF")?;
            target = format!("{target}:id=volferry:conf={conf}");
        }
        output(
            Command::new("qemu-img")
                .args(["convert", "-f", "raw", "-O", volume.format.name()])
                .arg(image)
                .arg(target),
        )?;
        match &volume.place {
            Place::File(path) => self.give_to_qemu(path),
            Place::Rbd { .. } => Ok(()),
        }
    }

    /// Where QEMU is not root and libvirt leaves owners alone, files must be QEMU's from the start.
    pub(crate) fn give_to_qemu(&self, path: &Path) -> Result<(), LabError> {
        if self.mode() != "qemu-static" {
            return Ok(());
        }
        let missing = || LabError::NotUp("there is no user libvirt-qemu".into());
        let user = User::from_name("libvirt-qemu").ok().flatten().ok_or_else(missing)?;
        chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).map_err(at(path))
    }

    /// Removes a volume, if it is there.
    ///
    /// # Errors
    /// When it cannot be removed (still in use).
    pub fn remove(&self, volume: &Volume) -> Result<(), LabError> {
        match &volume.place {
            Place::File(path) => match fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(at(path)(error)),
                _ => Ok(()),
            },
            Place::Rbd { pool, image } => {
                let name = format!("{pool}/{image}");
                let names = self.rbd(&["ls", pool])?;
                if !names.lines().any(|line| line == image) {
                    return Ok(());
                }
                // The watch of a killed QEMU lasts 30 s.
                wait_for(45, &format!("{name} to have no watcher"), || {
                    match self.rbd(&["rm", "--no-progress", &name]) {
                        Ok(_) => Ok(Some(())),
                        Err(LabError::Command { text, .. }) if text.contains("watchers") => {
                            Ok(None)
                        }
                        Err(error) => Err(error),
                    }
                })
            }
        }
    }

    /// Is the volume there?
    ///
    /// # Errors
    /// When the pool cannot be asked.
    pub fn exists(&self, volume: &Volume) -> Result<bool, LabError> {
        match &volume.place {
            Place::File(path) => Ok(path.exists()),
            Place::Rbd { pool, image } => Ok(self.rbd(&["ls", pool])?.lines().any(|l| l == image)),
        }
    }

    /// Converts a volume to a raw file.
    ///
    /// # Errors
    /// When it is missing, still written to, or not of its format.
    pub fn to_raw(&self, volume: &Volume, out: &Path) -> Result<(), LabError> {
        output(
            Command::new(self.script("to-raw.sh")?)
                .env("VOLFERRY_LAB_DIR", self.dir()?)
                .args([&volume.spec(), volume.format.name()])
                .arg(out),
        )
        .map(drop)
    }
}
