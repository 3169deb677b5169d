//! An agent in this world: an engine over a journal that survives it, and ways to wait for what it does.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::Scene;
use crate::engine::{Engine, Tuning};
use crate::journal::{Journal, Record};
use crate::operation::{OperationView, State};
use crate::spec::OperationId;

/// No test waits longer, in virtual time; a wait that does shows the view it hangs in.
const PATIENCE: Duration = Duration::from_secs(48 * 3600);

/// One life of an agent.
#[derive(Debug)]
pub struct Agent {
    /// The engine.
    pub engine: Engine,
    /// Its journal.
    pub journal: Journal,
    path: PathBuf,
    tuning: Tuning,
}

impl Agent {
    /// Starts an agent over the journal of that path, new or left by an earlier life.
    ///
    /// # Panics
    /// When the journal cannot be opened.
    pub async fn start(scene: &Scene, path: &Path) -> Self {
        Self::start_with(scene, path, Tuning::default()).await
    }

    /// The same with other periods and bounds.
    ///
    /// # Panics
    /// When the journal cannot be opened.
    pub async fn start_with(scene: &Scene, path: &Path, tuning: Tuning) -> Self {
        let journal = scene.world.journal(path).expect("a journal in a folder of the test");
        let started =
            Engine::start(scene.world.ports(), journal.clone(), scene.host.clone(), tuning);
        let engine = started.await.expect("a journal that this version wrote");
        Self { engine, journal, path: path.to_owned(), tuning }
    }

    /// Drops everything as a kill would, and starts the next life.
    pub async fn restart(self, scene: &Scene) -> Self {
        self.engine.stop().await;
        scene.world.revive_agent();
        let (path, tuning) = (self.path.clone(), self.tuning);
        drop(self);
        Self::start_with(scene, &path, tuning).await
    }

    /// Waits until the operation's view passes the test.
    ///
    /// # Panics
    /// When it never does.
    pub async fn until(
        &self,
        id: &OperationId,
        test: impl Fn(&OperationView) -> bool,
    ) -> Arc<OperationView> {
        let mut views = self.engine.watch(id).await.expect("the operation is known");
        match tokio::time::timeout(PATIENCE, views.wait_for(|view| test(view))).await {
            Ok(Ok(view)) => return Arc::clone(&view),
            Ok(Err(_)) => {}
            Err(_) => panic!("nothing happens any more: {:#?}", self.engine.operation(id).await),
        }
        let view = self.engine.operation(id).await.expect("the operation is known");
        assert!(test(&view), "the operation ended before: {view:#?}");
        view
    }

    /// Waits until it is in that state.
    pub async fn reaches(&self, id: &OperationId, state: State) -> Arc<OperationView> {
        self.until(id, |view| view.state == state).await
    }

    /// Waits until it has ended.
    pub async fn end(&self, id: &OperationId) -> Arc<OperationView> {
        self.until(id, |view| view.state.is_final()).await
    }

    /// The operation's records.
    ///
    /// # Panics
    /// When the journal cannot be read.
    pub async fn records(&self, id: &OperationId) -> Vec<Record> {
        self.journal.records(id).await.expect("a readable journal")
    }
}
