//! PURE: what an operation is while it runs and when it has ended. No clock, no files, no runtime.
//!
//! ```text
//! queued -> planned -> preparing -> copying -> ready -> pivoting -> moved -> cleaning -> succeeded
//!   |          |           |           |         |         |
//!   +----------+-----------+-----------+---------+         +-> back to ready, rolling-back, or needs-operator
//!                          v
//!                    rolling-back -> failed | cancelled | needs-operator
//!
//! needs-operator -> succeeded | failed, once it is decided which volume is the disk's
//! ```
//!
//! From `moved` on the answer is success, whatever else fails.

pub mod admission;
pub mod evidence;
pub mod failure;
pub mod leftover;
pub mod progress;
pub mod queue;
pub mod result;
pub mod space;
pub mod state;
pub mod view;

pub use admission::{Admission, admit};
pub use evidence::{Evidence, Found, Kept, Names, Resolution};
pub use failure::{Failure, FailureCause, RetryClass, Side};
pub use leftover::{DependentVolume, Leftover, LeftoverKind};
pub use progress::{Converges, Phase, Progress, RateMeter};
pub use result::{MoveResult, SourceFate};
pub use state::{Event, IllegalEvent, State, transition};
pub use view::{OperationView, PhaseSpan};
