//! The stage in the programmable world.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use volferry_agent::fake::Scene;
use volferry_agent::fake::scene::{DISK_SIZE, Home};
use volferry_agent::ports::Ports;
use volferry_agent::spec::VolumeLocation;

use crate::stage::{Guest, Kind, Stage, image};

pub struct FakeStage {
    scene: Scene,
    ports: Ports,
    number: AtomicU32,
}

impl FakeStage {
    pub fn new() -> Self {
        let scene = Scene::new();
        let ports = scene.world.ports();
        Self { scene, ports, number: AtomicU32::new(0) }
    }

    fn unique(&self, word: &str) -> String {
        format!("{word}-{}", self.number.fetch_add(1, Ordering::Relaxed))
    }
}

impl Stage for FakeStage {
    fn ports(&self) -> &Ports {
        &self.ports
    }

    fn size(&self) -> u64 {
        DISK_SIZE
    }

    fn guest(&self, kind: Kind, persistent: bool) -> Guest {
        let home = match kind {
            Kind::Rbd => Home::Rbd,
            Kind::File => Home::File,
        };
        let guest = self.scene.guest(&self.unique("guest"), home, persistent);
        Guest { uuid: guest.uuid, name: guest.name, volume: guest.volume }
    }

    fn place(&self, kind: Kind) -> VolumeLocation {
        match kind {
            Kind::Rbd => self.scene.place("ceph-ssd", &self.unique("copy")),
            Kind::File => self.scene.place("smp-1", &format!("{}.qcow2", self.unique("copy"))),
        }
    }

    fn destroy(&self, guest: &Guest) {
        self.scene.world.destroy(&guest.uuid);
    }

    fn kill(&self, guest: &Guest) {
        self.scene.world.kill_qemu(&guest.uuid);
    }

    fn unlink(&self, path: &Path) {
        let removed = self.scene.world.with(|state| state.files.remove(path));
        assert!(removed.is_some(), "{} was there", path.display());
    }

    fn trash(&self, volume: &VolumeLocation) {
        let (pool, name) = image(volume);
        self.scene.world.with(|state| state.trash_image(&pool, &name)).expect("it was there");
    }

    fn snapshot(&self, volume: &VolumeLocation, name: &str) {
        let (pool, image) = image(volume);
        self.scene.world.with(|state| {
            let images = &mut state.pool_mut(&pool).expect("the pool").images;
            images.get_mut(&image).expect("the image").snapshots.push(name.to_owned());
        });
    }

    fn nobody_listens(&self) -> String {
        "203.0.113.1:6789".to_owned()
    }
}
