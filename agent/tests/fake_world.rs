//! The imaginary host of `volferryd --fake`: every trouble ends as it says, and what a file may not say is refused.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use volferry_agent::config::Config;
use volferry_agent::engine::{Engine, Tuning};
use volferry_agent::fake::scene::Guest;
use volferry_agent::fake::trouble::Trouble;
use volferry_agent::fake::world_file::{self, WorldFileError};
use volferry_agent::journal::Journal;
use volferry_agent::operation::{FailureCause, OperationView, SourceFate, State};
use volferry_agent::plan::RefusalCode;
use volferry_agent::report;
use volferry_agent::spec::{DomainUuid, MigrateSpec, VolumeLocation};

const UUID: &str = "70000000-0000-4000-8000-0000000000ab";

fn examples() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/examples"))
}

struct Host {
    engine: Engine,
    folder: TempDir,
}

impl Host {
    async fn new(world: &str) -> Result<Host, WorldFileError> {
        let config = Config::load(&examples().join("fake.toml")).expect("the example is valid");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("world.toml");
        std::fs::write(&file, world).expect("it can be written");
        let world = world_file::load(&file, &config.pools)?;
        let journal = Journal::open(&folder.path().join("journal.sqlite")).expect("a new journal");
        let engine =
            Engine::start(world.ports(), journal, config.host_facts(), Tuning::default()).await;
        Ok(Host { engine: engine.expect("it starts"), folder })
    }

    async fn until(
        &self,
        request: &MigrateSpec,
        test: impl Fn(&OperationView) -> bool,
    ) -> Arc<OperationView> {
        let mut views = self.engine.watch(&request.operation).await.expect("it is known");
        let found =
            tokio::time::timeout(Duration::from_secs(7200), views.wait_for(|view| test(view)));
        Arc::clone(&found.await.expect("something happens").expect("it comes to that"))
    }

    async fn ends(&self, request: &MigrateSpec) -> Arc<OperationView> {
        self.engine.migrate(request.clone()).await.expect("it is accepted");
        self.until(request, |view| view.state.is_final()).await
    }
}

fn request(to: &str) -> MigrateSpec {
    let guest = Guest {
        uuid: DomainUuid::new(UUID).expect("a uuid"),
        name: "web".to_owned(),
        volume: VolumeLocation::File { path: "/nowhere".into() },
    };
    MigrateSpec { deadline: Some(Duration::from_secs(300)), ..guest.request(to) }
}

fn world(trouble: &str, state: &str, times: &str) -> String {
    format!(
        "[[domain]]\nname = \"web\"\nuuid = \"{UUID}\"\nstate = \"{state}\"\ntrouble = \"{trouble}\"\n{times}
        [[domain.disk]]\ntarget = \"vda\"\nvolume = \"ceph-hdd/web-root\"\nsize = \"1GiB\""
    )
}

#[tokio::test(start_paused = true)]
async fn every_trouble_ends_as_it_says() {
    use FailureCause as C;
    let failed = |cause| (State::Failed, Some(cause));
    let mut tried = 0;
    for trouble in Trouble::ALL {
        let (name, state, end) = match trouble {
            Trouble::DestinationFull => ("destination-full", "running", failed(C::DestinationFull)),
            Trouble::DestinationWriteError => {
                ("destination-write-error", "running", failed(C::DestinationWriteError))
            }
            Trouble::SourceReadError => {
                ("source-read-error", "running", failed(C::SourceReadError))
            }
            Trouble::SizeMismatch => ("size-mismatch", "running", failed(C::SizeMismatch)),
            Trouble::DestinationReplaced => {
                ("destination-replaced", "running", failed(C::DestinationReplaced))
            }
            Trouble::JobLost => ("job-lost", "running", failed(C::JobLost)),
            Trouble::JobStolen => ("job-stolen", "running", failed(C::JobStolen)),
            Trouble::GuestGone => ("guest-gone", "running", failed(C::GuestGone)),
            Trouble::NeverConverges => ("never-converges", "running", failed(C::Deadline)),
            Trouble::LibvirtGone => ("libvirt-gone", "running", failed(C::LibvirtGone)),
            Trouble::PivotFailed => ("pivot-failed", "running", failed(C::PivotFailed)),
            Trouble::Undecided => {
                ("undecided", "running", (State::NeedsOperator, Some(C::PivotFailed)))
            }
            Trouble::SourceStays => ("source-stays", "running", (State::Succeeded, None)),
            Trouble::VolumeInUse => ("volume-in-use", "shut-off", failed(C::VolumeInUse)),
            Trouble::VerifyMismatch => ("verify-mismatch", "shut-off", failed(C::VerifyMismatch)),
            // It never ends: below.
            Trouble::PoolStalled => continue,
        };
        let host = Host::new(&world(name, state, "")).await.expect("a world");
        let request = request("ceph-ssd");
        let view = host.ends(&request).await;
        let cause = view.failure.as_ref().map(|failure| failure.cause);
        assert_eq!((view.state, cause), end, "{name}: {view:#?}");
        let stays = matches!(
            view.result.as_ref().map(|result| &result.source),
            Some(SourceFate::LeftBehind { .. })
        );
        assert_eq!(stays, trouble == Trouble::SourceStays, "{view:#?}");
        tried += 1;
    }
    assert_eq!(tried, Trouble::ALL.len() - 1);
}

#[tokio::test(start_paused = true)]
async fn a_stalled_pool_holds_the_operation_and_says_so() {
    let host = Host::new(&world("pool-stalled", "running", "")).await.expect("a world");
    let request = request("ceph-ssd");
    host.engine.migrate(request.clone()).await.expect("it is accepted");
    let told = |view: &OperationView| {
        view.detail.as_ref().is_some_and(|detail| detail.contains("pool-stalled"))
    };
    let view = host.until(&request, told).await;
    assert!(!view.state.is_final(), "{view:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_trouble_passes_after_so_many_copies() {
    let host =
        Host::new(&world("job-lost", "running", "trouble_times = 2")).await.expect("a world");
    for state in [State::Failed, State::Failed, State::Succeeded] {
        let request = request("ceph-ssd");
        assert_eq!(host.ends(&request).await.state, state);
    }
    assert!(host.folder.path().join("journal.sqlite").exists());
}

#[tokio::test(start_paused = true)]
async fn what_a_world_may_not_say_is_refused_by_its_name() {
    let disk =
        "[[domain.disk]]\ntarget = \"vda\"\nvolume = \"ceph-hdd/web-root\"\nsize = \"1GiB\"\n";
    let domain = format!("[[domain]]\nname = \"web\"\n{disk}");
    let volume = |volume: &str, size: &str| {
        format!("[[volume]]\nvolume = \"{volume}\"\nsize = \"{size}\"\n")
    };
    for (text, told) in [
        ("moon = 1".to_owned(), "moon"),
        ("[[domain]]\nname = \"web\"\ntrouble = \"rain\"\n".to_owned() + disk, "rain"),
        (domain.replace("vda", "../x"), "domain web"),
        (format!("{domain}{disk}"), "two of its disks have one target"),
        (format!("{domain}{domain}"), "there is a volume of this name already"),
        (domain.clone() + &domain.replace("web-root", "other"), "there is a domain of this name"),
        (domain.replace("[[domain.disk]]", "uuid = \"x\"\n[[domain.disk]]"), "domain web"),
        (domain.replace("ceph-hdd", "moon"), "no pool \"moon\" is configured"),
        (volume("spare", "1GiB"), "it is not POOL/NAME"),
        (volume("nfs-1/a/b", "1GiB"), "volume nfs-1/a/b"),
        (volume("nfs-1/a.qcow2", "0"), "a positive multiple of 512"),
        (volume("nfs-1/a.qcow2", "513"), "a positive multiple of 512"),
        (volume("nfs-1/a.qcow2", "much"), "is not a size"),
        ("[[pool]]\nname = \"moon\"".to_owned(), "no pool \"moon\" is configured"),
        ("[[pool]]\nname = \"nfs-1\"\nstate = \"wet\"".to_owned(), "wet"),
        (
            domain.replace(
                "name = \"web\"",
                "name = \"web\"\nstate = \"shut-off\"\npersistent = false",
            ),
            "a transient domain is gone when it is shut off",
        ),
    ] {
        match Host::new(&text).await {
            Ok(_) => panic!("it was taken: {text}"),
            Err(error) => {
                let error = report::chain(&error);
                assert!(error.contains(told), "{told}: {error}");
            }
        }
    }
}

#[test]
fn the_guide_names_every_trouble_and_every_state_of_a_pool() {
    let guide = std::fs::read_to_string(examples().join("../../docs/fake.md")).expect("the guide");
    let source = include_str!("../src/fake/trouble.rs");
    for trouble in Trouble::ALL {
        let variant = format!("{trouble:?}");
        let name: String = variant
            .char_indices()
            .map(|(at, letter)| match letter.is_uppercase() && at > 0 {
                true => format!("-{}", letter.to_lowercase()),
                false => letter.to_lowercase().to_string(),
            })
            .collect();
        assert!(guide.contains(&format!("| `{name}` |")), "{name}");
    }
    assert_eq!(guide.matches("| `").count(), source.matches("        Self::").count(), "no other");
    for state in ["healthy", "unreachable", "wrong-key", "not-mounted", "full"] {
        assert!(guide.contains(&format!("`{state}`")), "{state}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_state_of_a_pool_is_what_a_request_is_refused_with() {
    for (pool, state, code) in [
        ("ceph-ssd", "unreachable", RefusalCode::PoolUnavailable),
        ("ceph-ssd", "wrong-key", RefusalCode::PoolAuthFailed),
        ("ceph-ssd", "full", RefusalCode::NoSpace),
        ("nfs-1", "unreachable", RefusalCode::PoolUnavailable),
        ("nfs-1", "not-mounted", RefusalCode::NotMounted),
        ("nfs-1", "full", RefusalCode::NoSpace),
    ] {
        let text = world("job-lost", "running", "");
        let text = format!("[[pool]]\nname = \"{pool}\"\nstate = \"{state}\"\n{text}");
        let host = Host::new(&text).await.expect("a world");
        let refusal = host.engine.migrate(request(pool)).await.expect_err("refused");
        assert_eq!(refusal.code, code, "{pool} {state}: {refusal}");
    }
    let host = Host::new(&world("job-lost", "paused", "")).await.expect("a world");
    let refusal = host.engine.migrate(request("ceph-ssd")).await.expect_err("refused");
    assert_eq!(refusal.code, RefusalCode::NotRunning, "{refusal}");
}
