//! Whether the agent can do its work: libvirt is there, and every operation taken up again has been looked at.

use std::sync::Arc;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

use super::ViewReceiver;
use super::context::Context;
use crate::ports::EventKind;

/// What keeps the agent from its work. By default nothing does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Health {
    /// libvirt cannot be reached.
    pub libvirt_away: bool,
    /// Operations of an earlier life have not all been looked at again.
    pub recovering: bool,
}

impl Health {
    /// Whether nothing does.
    pub const fn is_serving(self) -> bool {
        !self.libvirt_away && !self.recovering
    }
}

/// Follows the connection to libvirt until it is dropped.
pub(super) async fn follow_libvirt(context: Arc<Context>, health: watch::Sender<Health>) {
    let mut events = context.ports.events.subscribe();
    let mut up = context.ports.events.connected();
    // The first connection is none that came back.
    let mut ever = up;
    loop {
        health.send_if_modified(|health| {
            let changed = health.libvirt_away == up;
            health.libvirt_away = !up;
            changed
        });
        let now = match events.recv().await {
            Ok(event) => match event.event.kind {
                EventKind::ConnectionLost => false,
                EventKind::ConnectionRestored => true,
                _ => continue,
            },
            Err(RecvError::Lagged(_)) => context.ports.events.connected(),
            Err(RecvError::Closed) => return,
        };
        if now && !up {
            if ever {
                context.metrics.reconnected();
            }
            ever = true;
        }
        up = now;
    }
}

/// Waits until each of these operations, taken up again, has told something new or has ended.
pub(super) async fn follow_recovery(
    context: Arc<Context>,
    resumed: Vec<ViewReceiver>,
    health: watch::Sender<Health>,
) {
    for mut views in resumed {
        // What is told while libvirt is away is no look at the operation. An error: its owner has ended.
        while views.changed().await.is_ok() && !context.ports.events.connected() {}
    }
    health.send_modify(|health| health.recovering = false);
}
