//! Marks.

use async_trait::async_trait;

use crate::fake::World;
use crate::fake::faults::Method;
use crate::fake::state::State;
use crate::ports::{ErrorClass, Mark, MarkedVolume, Marks, PortError, Search};
use crate::spec::{OperationId, PoolKind, VolumeLocation};

#[async_trait]
impl Marks for World {
    async fn set(&self, at: &VolumeLocation, mark: &Mark) -> Result<(), PortError> {
        let what = format!("mark {at}");
        self.call(Method::SetMark, what.clone(), |state| {
            let missing =
                || PortError::new(ErrorClass::NotFound, &what, "No such file or directory");
            let found = state.volume(at).ok_or_else(missing)?;
            state.marks.insert(found.identity.to_string(), mark.clone());
            Ok(())
        })
        .await
    }

    async fn clear(&self, at: &VolumeLocation, operation: &OperationId) -> Result<(), PortError> {
        self.call(Method::ClearMark, format!("take the mark of {at} away"), |state| {
            state.marks.retain(|_, mark| mark.operation != *operation);
            Ok(())
        })
        .await
    }

    async fn find(&self, pool: &PoolKind, search: Search) -> Result<Vec<MarkedVolume>, PortError> {
        self.call(Method::FindMarks, "search a pool".to_owned(), |state| found(state, pool, search))
            .await
    }
}

fn found(state: &State, pool: &PoolKind, search: Search) -> Result<Vec<MarkedVolume>, PortError> {
    let places: Vec<VolumeLocation> = match pool {
        PoolKind::Rbd(rbd) => {
            let names = state.pool(&rbd.address)?.images.keys();
            names
                .map(|image| VolumeLocation::Rbd {
                    address: rbd.address.clone(),
                    image: image.clone(),
                })
                .collect()
        }
        PoolKind::File(folder) => {
            let here = state.files.keys().filter(|path| path.parent() == Some(&*folder.path));
            here.map(|path| VolumeLocation::File { path: path.clone() }).collect()
        }
    };
    let marked = places.into_iter().filter_map(|location| {
        let identity = state.volume(&location)?.identity;
        let name = location.name();
        let by_name = name.strip_prefix(OperationId::PRIVATE_PREFIX);
        let by_name = by_name.and_then(|id| OperationId::new(id).ok());
        let mark = state.marks.get(&identity.to_string());
        let mark = mark.filter(|_| search == Search::Marks);
        let private = by_name.is_some();
        let operation = mark.map(|mark| mark.operation.clone()).or(by_name)?;
        let host = mark.map(|mark| mark.host.clone());
        Some(MarkedVolume { location, identity, operation, host, private })
    });
    Ok(marked.collect())
}
