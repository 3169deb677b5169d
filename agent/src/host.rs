//! The real files and images of this host: the local file system with qemu-img, and librbd.
//!
//! Paths and clusters may hang: every call is bounded in time and in number. Nothing is decided here.

mod confinement;
pub mod copies;
pub mod files;
pub mod images;
pub mod keys;
mod luks;
pub mod marks;
mod mounts;
mod qcow2;
mod qemu_img;
mod secret_file;

pub use copies::HostCopies;
pub use files::HostFiles;
pub use images::HostImages;
pub use marks::HostMarks;
