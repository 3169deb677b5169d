//! A host with one guest and one agent, ready for a request: what most tests begin with.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::scene::{Guest, Home, Scene};
use super::{Agent, World};
use crate::engine::Tuning;
use crate::journal::What;
use crate::operation::{OperationView, State};
use crate::spec::{Identity, MigrateSpec};

/// The stage.
#[derive(Debug)]
pub struct Stage {
    /// The host.
    pub scene: Scene,
    /// The world of the host.
    pub world: World,
    /// The guest.
    pub guest: Guest,
    /// The agent.
    pub agent: Agent,
    /// Every volume before the request.
    pub before: BTreeMap<String, Identity>,
    folder: tempfile::TempDir,
}

impl Stage {
    /// A running guest, and an agent that has done nothing yet.
    ///
    /// # Panics
    /// When there is no place for a temporary folder.
    pub async fn new(home: Home, persistent: bool) -> Self {
        Self::prepared(home, persistent, |_| ()).await
    }

    /// The same on a host whose sources can be restored for a time.
    ///
    /// # Panics
    /// When there is no place for a temporary folder.
    pub async fn with_retention(home: Home, persistent: bool, retention: Duration) -> Self {
        let prepare = |scene: &mut Scene| scene.host.source_retention = retention;
        Self::prepared(home, persistent, prepare).await
    }

    /// The same, on a host with another configuration.
    ///
    /// # Panics
    /// When there is no place for a temporary folder.
    pub async fn prepared(home: Home, persistent: bool, prepare: impl FnOnce(&mut Scene)) -> Self {
        Self::tuned(home, persistent, Tuning::default(), prepare).await
    }

    /// The same, with an agent of other periods and bounds.
    ///
    /// # Panics
    /// When there is no place for a temporary folder.
    pub async fn tuned(
        home: Home,
        persistent: bool,
        tuning: Tuning,
        prepare: impl FnOnce(&mut Scene),
    ) -> Self {
        let mut scene = Scene::new();
        prepare(&mut scene);
        let guest = scene.guest("web", home, persistent);
        // In memory where that is possible: nothing here is about disks, and there are very many flushes.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let folder = folder.expect("a temporary folder");
        let agent = Agent::start_with(&scene, &folder.path().join("journal.db"), tuning).await;
        // Paused time goes on when nobody has anything to do: the agent's first look through its pools is over, and
        // its calls are not counted among those of the test.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let world = scene.world.clone();
        let before = world.volumes();
        Self { scene, world, guest, agent, before, folder }
    }

    /// Sends a request that must be accepted.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn begin(&self, spec: &MigrateSpec) {
        if let Err(refusal) = self.agent.engine.migrate(spec.clone()).await {
            panic!("refused: {refusal}");
        }
    }

    /// Waits for the end and judges the world.
    ///
    /// # Panics
    /// When a rule is broken.
    pub async fn end(&self, spec: &MigrateSpec) -> Arc<OperationView> {
        let view = self.agent.end(&spec.operation).await;
        if let Err(broken) = self.world.audit(&self.guest, &view, &self.before) {
            panic!("{broken}\n{view:#?}");
        }
        view
    }

    /// Sends a request, waits for the end and judges the world.
    pub async fn run(&self, spec: &MigrateSpec) -> Arc<OperationView> {
        self.begin(spec).await;
        self.end(spec).await
    }

    /// Waits for a state on the way.
    pub async fn reaches(&self, spec: &MigrateSpec, state: State) -> Arc<OperationView> {
        self.agent.reaches(&spec.operation, state).await
    }

    /// What the journal says of the operation, in order.
    pub async fn history(&self, spec: &MigrateSpec) -> Vec<What> {
        let records = self.agent.records(&spec.operation).await;
        records.into_iter().map(|record| record.what).collect()
    }

    /// The state the journal would show the next life.
    ///
    /// # Panics
    /// When the operation is not in it.
    pub async fn journaled_state(&self, spec: &MigrateSpec) -> State {
        let view = self.agent.journal.view(&spec.operation).await.expect("a readable journal");
        view.expect("the operation is there").state
    }

    /// Kills the agent wherever it is and starts the next one.
    #[must_use]
    pub async fn restart(mut self) -> Self {
        self.agent = self.agent.restart(&self.scene).await;
        self
    }

    /// Changes the image the guest's disk was on at first, under whichever name it has now.
    ///
    /// # Panics
    /// When its home is not RBD, or it is gone.
    pub fn source_image(&self, change: impl FnOnce(&mut super::rbd::Image)) {
        let Some(Identity::Rbd { image_id }) = self.before.get(&self.guest.volume.to_string())
        else {
            panic!("{} is no RBD image", self.guest.volume)
        };
        self.world.with(|state| {
            let pools = state.clusters.iter_mut().flat_map(|cluster| cluster.pools.values_mut());
            let mut images = pools.flat_map(|pool| pool.images.values_mut());
            change(images.find(|image| image.id == *image_id).expect("the source is there"));
        });
    }

    /// Puts somebody else's volume there, in place of whatever has the name.
    pub fn stranger(&mut self, place: &crate::spec::VolumeLocation) {
        self.world.with(|state| super::scene::put(state, place, super::scene::DISK_SIZE, 1));
        let found = self.world.volumes();
        if let Some(identity) = found.get(&place.to_string()) {
            self.before.insert(place.to_string(), identity.clone());
        }
    }

    /// The folder of the journal.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }
}
