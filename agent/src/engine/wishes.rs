//! What operators want of a running operation. Set by anybody, read by its owner.

use crate::spec::BytesPerSecond;

/// The wishes of one operation; each is taken up by the owner when its state allows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Cancel.
    pub cancel: bool,
    /// Pivot when ready.
    pub pivot: bool,
    /// Another limit; the inner none lifts it.
    pub bandwidth: Option<Option<BytesPerSecond>>,
}
