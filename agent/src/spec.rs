//! What was asked for, after validation: newtypes for every name and quantity.
//!
//! A value of these types is well formed by construction; nothing here looks at the world. Wire types and
//! command line text are turned into them at the edge and never travel further in.

pub mod encryption;
pub mod flags;
pub mod iotune;
pub mod limits;
pub mod migrate;
pub mod names;
pub mod passphrase;
pub mod pool;
pub mod quantity;
pub mod span;
pub mod volume;

pub use encryption::{EncryptionScheme, EncryptionWish, HeaderKind};
pub use flags::{CopyFlag, CopyFlags};
pub use iotune::{InvalidIoTune, IoLimit, IoTune};
pub use limits::{Limits, Reserve};
pub use migrate::{Method, MigrateSpec, Subject};
pub use names::{
    CheckpointName, DiskReference, DiskTarget, DomainReference, DomainUuid, InvalidName,
    LeftoverId, OperationId, PoolName, VolumeName,
};
pub use passphrase::{InvalidPassphrase, Passphrase, Passphrases};
pub use pool::{FilePool, FilePoolKind, Pool, PoolKind, RbdPool, RequestPool, RequestPools};
pub use quantity::{Bytes, BytesPerSecond, InvalidQuantity};
pub use volume::{Identity, RbdPoolAddress, VolumeFormat, VolumeLocation};
