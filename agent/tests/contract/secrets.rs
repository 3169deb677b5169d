//! libvirt secrets of volumes. That a value is right is seen by who opens the volume, never by reading it.

use volferry_agent::ports::{ErrorClass, NewSecret};
use volferry_agent::spec::Passphrase;

use crate::stage::{Kind, Stage, class};

fn passphrase(text: &[u8]) -> Passphrase {
    Passphrase::new(text.to_vec()).expect("a passphrase")
}

/// A secret for a volume nobody has.
fn new(stage: &dyn Stage) -> NewSecret {
    NewSecret {
        uuid: uuid::Uuid::new_v4().to_string(),
        usage: format!("{} & 'more'", stage.place(Kind::File)),
        description: "volferry contract <test>".to_owned(),
        ephemeral: false,
    }
}

pub async fn a_secret_is_found_by_its_volume_and_its_uuid(stage: &dyn Stage) {
    let secrets = &stage.ports().secrets;
    for ephemeral in [false, true] {
        let new = NewSecret { ephemeral, ..new(stage) };
        secrets.define(&new, &passphrase(b"\x00\xff bytes\n")).await.expect("it is defined");
        let found = secrets.find(&new.usage).await.expect("an answer").expect("it is there");
        assert_eq!(found.uuid, new.uuid);
        assert_eq!(found.usage.as_ref(), Some(&new.usage));
        assert_eq!(found.description.as_ref(), Some(&new.description));
        assert_eq!(found.ephemeral, ephemeral);
        assert_eq!(secrets.look(&new.uuid).await.expect("an answer"), Some(found));
        secrets.undefine(&new.uuid).await.expect("it is removed");
        assert_eq!(secrets.find(&new.usage).await.expect("an answer"), None);
        assert_eq!(secrets.look(&new.uuid).await.expect("an answer"), None);
    }
}

pub async fn a_secret_is_defined_again_and_its_value_set_again(stage: &dyn Stage) {
    let secrets = &stage.ports().secrets;
    let mut new = new(stage);
    secrets.define(&new, &passphrase(b"one")).await.expect("it is defined");
    new.description = "volferry contract, the second time".to_owned();
    secrets.define(&new, &passphrase(b"two")).await.expect("it is defined anew");
    let found = secrets.look(&new.uuid).await.expect("an answer").expect("it is there");
    assert_eq!(found.description.as_ref(), Some(&new.description));
    secrets.set(&new.uuid, &passphrase(b"three")).await.expect("its value is set");
    let after = secrets.look(&new.uuid).await.expect("an answer").expect("it is there");
    assert_eq!(after, found, "a value changes nothing that is seen");
    secrets.undefine(&new.uuid).await.expect("it is removed");
}

pub async fn a_volume_has_one_secret_and_a_uuid_one_volume(stage: &dyn Stage) {
    let secrets = &stage.ports().secrets;
    let (one, other) = (new(stage), new(stage));
    secrets.define(&one, &passphrase(b"one")).await.expect("it is defined");
    let stolen_volume = NewSecret { usage: one.usage.clone(), ..other.clone() };
    class(secrets.define(&stolen_volume, &passphrase(b"two")).await, ErrorClass::Exists);
    let stolen_uuid = NewSecret { uuid: one.uuid.clone(), ..other.clone() };
    class(secrets.define(&stolen_uuid, &passphrase(b"two")).await, ErrorClass::Exists);
    let found = secrets.find(&one.usage).await.expect("an answer").expect("it is there");
    assert_eq!((found.uuid, found.description), (one.uuid.clone(), Some(one.description)));
    assert_eq!(secrets.find(&other.usage).await.expect("an answer"), None);
    secrets.undefine(&one.uuid).await.expect("it is removed");
}

pub async fn a_secret_that_is_not_there_is_told_as_such(stage: &dyn Stage) {
    let secrets = &stage.ports().secrets;
    for uuid in [uuid::Uuid::new_v4().to_string(), "no uuid".to_owned()] {
        class(secrets.set(&uuid, &passphrase(b"x")).await, ErrorClass::NotFound);
        class(secrets.undefine(&uuid).await, ErrorClass::NotFound);
        assert_eq!(secrets.look(&uuid).await.expect("an answer"), None);
    }
}
