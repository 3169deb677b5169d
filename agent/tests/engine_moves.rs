//! Whole moves through the engine in the programmable world: every pair, every end that is not success, and what
//! clients may ask for on the way.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use volferry_agent::fake::scene::{Guest, Home};
use volferry_agent::fake::{Agent, Scene};
use volferry_agent::operation::{OperationView, State};
use volferry_agent::spec::{Identity, MigrateSpec};

/// A host with one guest and an agent.
struct Stage {
    scene: Scene,
    guest: Guest,
    agent: Agent,
    before: BTreeMap<String, Identity>,
    _folder: tempfile::TempDir,
}

async fn stage(home: Home, persistent: bool) -> Stage {
    let scene = Scene::new();
    let guest = scene.guest("web", home, persistent);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path: PathBuf = folder.path().join("journal.db");
    let agent = Agent::start(&scene, &path).await;
    let before = scene.world.volumes();
    Stage { scene, guest, agent, before, _folder: folder }
}

impl Stage {
    async fn begin(&self, spec: &MigrateSpec) {
        self.agent.engine.migrate(spec.clone()).await.expect("an accepted request");
    }

    async fn run(&self, spec: &MigrateSpec) -> Arc<OperationView> {
        self.begin(spec).await;
        self.end(spec).await
    }

    async fn end(&self, spec: &MigrateSpec) -> Arc<OperationView> {
        let view = self.agent.end(&spec.operation).await;
        if let Err(broken) = self.scene.world.audit(&self.guest, &view, &self.before) {
            panic!("{broken}\n{view:#?}");
        }
        view
    }
}

#[tokio::test(start_paused = true)]
async fn every_pair_moves_on_persistent_and_transient_domains() {
    for (home, pool) in [(Home::Rbd, "ceph-ssd"), (Home::Rbd, "nfs-1"), (Home::File, "ceph-hdd")] {
        for persistent in [true, false] {
            let stage = stage(home, persistent).await;
            let view = stage.run(&stage.guest.request(pool)).await;
            assert_eq!(view.state, State::Succeeded, "{view:#?}");
            assert_eq!(view.warnings, Vec::<String>::new());
        }
    }
}
