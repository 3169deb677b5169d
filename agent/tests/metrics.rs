//! The metrics as Prometheus gets them: scraped over HTTP from a daemon that serves an engine in the programmable world,
//! and held against what happened, the rules for names, and what is shipped that asks for them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use volferry_agent::config::Config;
use volferry_agent::daemon;
use volferry_agent::engine::Retried;
use volferry_agent::fake::Stage;
use volferry_agent::fake::faults::{Fault, Method};
use volferry_agent::fake::scene::Home;
use volferry_agent::operation::State;
use volferry_agent::ports::ErrorClass;

const WATCHER: &str = "192.0.2.99:0/7";
const REFUSED: Fault = Fault::Refuse(ErrorClass::PermissionDenied, "Operation not permitted");

/// A daemon on the engine of a stage.
struct Daemon {
    address: SocketAddr,
    stop: CancellationToken,
    serving: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl Daemon {
    async fn start(stage: &Stage) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let free = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = free.local_addr().expect("an address");
        drop(free);
        let text = format!(
            "host_name = \"host-a\"\nlisten = \"unix:{}/socket\"\n[metrics]\nlisten = \"{address}\"\n",
            folder.path().display()
        );
        let config = Config::parse(&text).expect("a configuration");
        let (engine, stop) = (Arc::new(stage.agent.engine.clone()), CancellationToken::new());
        let stopped = stop.clone();
        let serving = tokio::spawn(async move {
            daemon::serve(&config, engine, stopped).await.expect("it serves");
        });
        while TcpStream::connect(address).await.is_err() {
            tokio::task::yield_now().await;
        }
        Self { address, stop, serving, _folder: folder }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.serving.await.expect("no panic");
    }

    /// What it answers to a request, head and body.
    async fn ask(&self, request: &str) -> (String, String) {
        self.ask_for(request, "application/openmetrics-text;version=1.0.0,*/*;q=0.1").await
    }

    /// The same, of a client that reads these formats.
    async fn ask_for(&self, request: &str, accept: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.address).await.expect("it listens");
        let text = format!(
            "{request} HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(text.as_bytes()).await.expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head.to_owned(), body.to_owned())
    }

    async fn page(&self) -> Page {
        let (head, text) = self.ask("GET /metrics").await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
        assert!(text.ends_with("# EOF\n"), "{text}");
        Page { text }
    }
}

/// A page of metrics.
struct Page {
    text: String,
}

impl Page {
    /// The value of a series, written as it is on the page.
    fn value(&self, series: &str) -> Option<f64> {
        let mut lines = self.text.lines();
        lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }

    fn is(&self, series: &str, value: f64) {
        assert_eq!(self.value(series), Some(value), "{series}\n{}", self.text);
    }

    /// Names of series without labels.
    fn names(&self) -> BTreeSet<String> {
        let samples = self.text.lines().filter(|line| !line.starts_with('#'));
        samples.map(|line| line.split(['{', ' ']).next().unwrap_or_default().to_owned()).collect()
    }

    /// Families with a comment of this kind, and what it says.
    fn comments(&self, kind: &str) -> BTreeMap<String, String> {
        let head = format!("# {kind} ");
        let lines = self.text.lines().filter_map(|line| line.strip_prefix(&head)?.split_once(' '));
        lines.map(|(name, text)| (name.to_owned(), text.to_owned())).collect()
    }
}

fn duration(outcome: &str) -> String {
    format!("volferry_operation_duration_seconds_count{{outcome=\"{outcome}\"}}")
}

#[tokio::test]
async fn the_metrics_say_what_happened_and_survive_what_must_survive() {
    let stage = Stage::new(Home::Rbd, true).await;
    let daemon = Daemon::start(&stage).await;
    let page = daemon.page().await;
    for state in State::ALL {
        page.is(&format!("volferry_operations{{state=\"{state}\"}}"), 0.0);
    }
    page.is("volferry_libvirt_up", 1.0);
    page.is("volferry_journal_readable", 1.0);
    page.is(&format!("volferry_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION")), 1.0);

    // One is refused, one fails, one succeeds and leaves its source.
    let unknown = stage.agent.engine.migrate(stage.guest.request("nowhere")).await;
    assert!(unknown.is_err(), "{unknown:?}");
    stage.world.fault(Method::StartCopy, 1, Fault::Refuse(ErrorClass::Other, "no copy today"));
    let failed = stage.run(&stage.guest.request("nfs-1")).await;
    assert_eq!(failed.state, State::Failed);
    let cause = failed.failure.as_ref().expect("a failure").cause;
    stage.source_image(|image| image.watchers.push(WATCHER.to_owned()));
    let patience = stage.guest.request("nfs-1");
    stage.begin(&patience).await;
    // While it runs it is in one state, and none has ended.
    let running = stage.reaches(&patience, State::Cleaning).await;
    daemon.page().await.is(&format!("volferry_operations{{state=\"{}\"}}", running.state), 1.0);
    daemon.page().await.is(&duration("succeeded"), 0.0);
    stage.world.fault(Method::RemoveImage, 1, REFUSED);
    stage.source_image(|image| image.watchers.clear());
    let moved = stage.end(&patience).await;
    assert_eq!(moved.state, State::Succeeded, "{moved:#?}");

    let page = daemon.page().await;
    page.is("volferry_refusals_total{code=\"pool-unknown\"}", 1.0);
    page.is(&format!("volferry_failures_total{{cause=\"{cause}\"}}"), 1.0);
    for (state, count) in [("failed", 1.0), ("succeeded", 1.0), ("cleaning", 0.0)] {
        page.is(&format!("volferry_operations{{state=\"{state}\"}}"), count);
    }
    page.is(&duration("failed"), 1.0);
    page.is(&duration("succeeded"), 1.0);
    page.is(&duration("cancelled"), 0.0);
    page.is("volferry_ready_to_pivot_seconds_count", 1.0);
    let pools = "{source_pool=\"ceph-hdd\",destination_pool=\"nfs-1\"}";
    let copied = page.value(&format!("volferry_copied_bytes_total{pools}")).expect("copied");
    let occupied = moved.result.as_ref().and_then(|result| result.allocated).expect("a size");
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let occupied = occupied.0 as f64;
    assert!(copied >= occupied && occupied > 0.0, "{copied} of {occupied}");
    page.is("volferry_leftovers{kind=\"source\"}", 1.0);
    page.is("volferry_recoveries_total{reason=\"restart\"}", 0.0);
    assert!(!page.text.contains(stage.guest.uuid.as_str()) && !page.text.contains("web"));

    // libvirt goes and comes back.
    stage.world.libvirt_away();
    daemon.page().await.is("volferry_libvirt_up", 0.0);
    stage.world.libvirt_back();
    let page = loop {
        let page = daemon.page().await;
        if page.value("volferry_libvirt_reconnects_total") == Some(1.0) {
            break page;
        }
    };
    page.is("volferry_libvirt_up", 1.0);

    // The next life knows what is left, and which operations there were.
    daemon.stop().await;
    let stage = stage.restart().await;
    let daemon = Daemon::start(&stage).await;
    let page = daemon.page().await;
    page.is("volferry_leftovers{kind=\"source\"}", 1.0);
    page.is("volferry_operations{state=\"succeeded\"}", 1.0);
    page.is(&duration("succeeded"), 0.0);
    let left = stage.agent.engine.leftovers().await.expect("a journal");
    stage.world.fault(Method::RemoveImage, 1, REFUSED);
    let stays = stage.agent.engine.retry_leftover(&left[0].id).await.expect("a record");
    assert!(matches!(stays, Retried::Stays(_)), "{stays:?}");
    daemon.page().await.is("volferry_leftover_retries_total{outcome=\"stays\"}", 1.0);
    stage.agent.engine.forget_leftover(&left[0].id).await.expect("a record");
    daemon.page().await.is("volferry_leftovers{kind=\"source\"}", 0.0);
    daemon.stop().await;
}

#[tokio::test]
async fn an_operation_taken_up_again_is_counted_and_its_writes_that_fail_too() {
    let stage = Stage::new(Home::Rbd, true).await;
    let mut request = stage.guest.request("nfs-1");
    request.manual_pivot = true;
    stage.begin(&request).await;
    stage.reaches(&request, State::Ready).await;
    let stage = stage.restart().await;
    let daemon = Daemon::start(&stage).await;
    daemon.page().await.is("volferry_recoveries_total{reason=\"restart\"}", 1.0);
    daemon.page().await.is("volferry_operations{state=\"ready\"}", 1.0);
    stage.world.fail_journal(1..3);
    stage.agent.engine.cancel(&request.operation).await.expect("it may be cancelled");
    stage.end(&request).await;
    let failed = daemon.page().await.value("volferry_journal_write_failures_total");
    assert!(failed >= Some(1.0), "{failed:?}");
    daemon.page().await.is(&duration("cancelled"), 1.0);
    daemon.stop().await;
}

#[tokio::test]
async fn a_journal_that_cannot_be_read_is_told_and_nothing_is_made_up() {
    let stage = Stage::new(Home::Rbd, true).await;
    let daemon = Daemon::start(&stage).await;
    daemon.page().await.is("volferry_operations{state=\"succeeded\"}", 0.0);
    let journal = rusqlite::Connection::open(stage.folder().join("journal.db")).expect("a journal");
    journal.execute_batch("DROP TABLE leftovers").expect("it is gone");
    let page = daemon.page().await;
    page.is("volferry_journal_readable", 0.0);
    page.is("volferry_libvirt_up", 1.0);
    let names = page.names();
    assert!(!names.contains("volferry_operations") && !names.contains("volferry_leftovers"));
    daemon.stop().await;
}

/// Prometheus's own checker; `None`, said aloud, where it is not installed.
fn promtool() -> Option<Command> {
    let given = std::env::var_os("VOLFERRY_PROMTOOL").unwrap_or_else(|| "promtool".into());
    if Command::new(&given).arg("--version").output().is_ok() {
        return Some(Command::new(given));
    }
    let required = std::env::var("VOLFERRY_REQUIRE_TOOLS").is_ok_and(|value| value == "1");
    assert!(!required, "promtool is not installed");
    let _ =
        writeln!(std::io::stderr(), "SKIPPED promtool check metrics: promtool is not installed");
    None
}

#[tokio::test]
async fn who_does_not_ask_for_openmetrics_gets_what_promtool_finds_nothing_wrong_with() {
    let stage = Stage::new(Home::Rbd, true).await;
    assert!(stage.agent.engine.migrate(stage.guest.request("nowhere")).await.is_err());
    stage.run(&stage.guest.request("nfs-1")).await;
    let daemon = Daemon::start(&stage).await;
    let (head, text) = daemon.ask_for("GET /metrics", "*/*").await;
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    let samples = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(samples(&text), samples(&daemon.page().await.text));
    daemon.stop().await;
    let Some(mut promtool) = promtool() else { return };
    let mut checking = promtool
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    checking.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
    let output = checking.wait_with_output().expect("it ends");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
}

#[tokio::test]
async fn nothing_but_the_page_is_served_and_a_silent_client_is_in_nobodys_way() {
    let stage = Stage::new(Home::Rbd, true).await;
    let daemon = Daemon::start(&stage).await;
    for (request, status) in [
        ("GET /", "404"),
        ("GET /metrics/..", "404"),
        ("POST /metrics", "405"),
        ("DELETE /metrics", "405"),
    ] {
        let (head, body) = daemon.ask(request).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {head}");
        assert_eq!(body, "");
    }
    let mut silent = Vec::new();
    for _ in 0..5 {
        silent.push(TcpStream::connect(daemon.address).await.expect("it listens"));
    }
    daemon.page().await;
    drop(silent);
    daemon.stop().await;
}

/// The rules promtool checks, and those of the naming conventions.
#[tokio::test]
async fn names_and_labels_follow_the_conventions() {
    let stage = Stage::new(Home::Rbd, true).await;
    stage.run(&stage.guest.request("nfs-1")).await;
    let daemon = Daemon::start(&stage).await;
    let page = daemon.page().await;
    daemon.stop().await;
    let (types, helps) = (page.comments("TYPE"), page.comments("HELP"));
    assert!(types.len() >= 13, "{types:?}");
    assert_eq!(types.keys().collect::<Vec<_>>(), helps.keys().collect::<Vec<_>>());
    let plain = |text: &str| {
        text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    for (family, kind) in &types {
        assert!(family.starts_with("volferry_") && plain(family), "{family}");
        for word in ["total", "count", "sum", "bucket", "info"] {
            assert!(!family.ends_with(&format!("_{word}")), "{family} ends like a sample");
        }
        for unit in ["milliseconds", "minutes", "hours", "kilobytes", "mib", "percent"] {
            assert!(!family.contains(unit), "{family} is in no base unit");
        }
        assert!(!family.contains(kind.as_str()), "{family} has its type in its name");
        assert!(!helps[family].is_empty(), "{family}");
    }
    for name in page.names() {
        let family = |suffix: &str| name.strip_suffix(suffix).and_then(|family| types.get(family));
        let known = match types.get(&name) {
            Some(kind) => kind == "gauge",
            None => {
                family("_total").is_some_and(|kind| kind == "counter")
                    || family("_info").is_some_and(|kind| kind == "info")
                    || ["_count", "_sum", "_bucket"]
                        .iter()
                        .any(|suffix| family(suffix).is_some_and(|kind| kind == "histogram"))
            }
        };
        assert!(known, "{name} fits no family: {types:?}");
    }
    for line in page.text.lines().filter(|line| !line.starts_with('#')) {
        let Some((_, rest)) = line.split_once('{') else { continue };
        let labels = rest.split_once('}').expect("they end").0;
        for label in labels.split("\",").filter_map(|label| label.split('=').next()) {
            let known = ["state", "outcome", "code", "cause", "kind", "reason", "le", "version"];
            let pool = label.ends_with("_pool");
            assert!(known.contains(&label) || pool, "{line}: {label} is a label of nothing");
        }
    }
}

/// Every `volferry_..` a text names.
fn asked_for(text: &str) -> BTreeSet<String> {
    let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let words = text.split(|character| !is_name(character));
    words.filter(|word| word.starts_with("volferry_")).map(str::to_owned).collect()
}

fn shipped(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Names in every expression of the dashboard and the rules.
#[tokio::test]
async fn what_is_shipped_asks_for_nothing_that_is_not_there() {
    let stage = Stage::new(Home::Rbd, true).await;
    stage.run(&stage.guest.request("nfs-1")).await;
    let daemon = Daemon::start(&stage).await;
    let page = daemon.page().await;
    daemon.stop().await;
    let names = page.names();
    let dashboard: serde_json::Value =
        serde_json::from_str(&shipped("grafana-dashboard.json")).expect("it is JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut shown = BTreeSet::new();
    for panel in panels {
        let targets = panel["targets"].as_array().expect("a panel has targets");
        assert!(!targets.is_empty(), "{panel:#}");
        for target in targets {
            let asked = asked_for(target["expr"].as_str().expect("an expression"));
            assert!(!asked.is_empty() && asked.is_subset(&names), "{target}: {names:#?}");
            shown.extend(asked);
        }
    }
    let rules = shipped("prometheus-alerts.yml");
    let expressions: Vec<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).collect();
    let alerts = rules.lines().filter(|line| line.trim().starts_with("- alert: ")).count();
    assert_eq!((expressions.len(), alerts >= 7), (alerts, true), "{rules}");
    for expression in &expressions {
        let asked = asked_for(expression);
        assert!(!asked.is_empty() && asked.is_subset(&names), "{expression}: {names:#?}");
    }
    labels_are_there(&rules, &page);
    labels_are_there(&shipped("grafana-dashboard.json").replace("\\\"", "\""), &page);
    // The guide names them all, and what to do for every alert.
    let guide = shipped("../docs/operations.md");
    for family in page.comments("TYPE").keys() {
        assert!(guide.contains(&format!("`{family}")), "docs/operations.md lacks {family}");
    }
    for name in asked_for(&guide) {
        let known = names.iter().any(|known| known.starts_with(&name));
        assert!(known, "docs/operations.md has {name}");
    }
    for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(guide.contains(&format!("| {alert} |")), "docs/operations.md lacks {alert}");
    }
    // Whoever looks sees each of them; the page's own buckets and sums apart.
    let families = page.comments("TYPE");
    for family in families.keys() {
        let seen = shown.iter().any(|name| name.starts_with(family.as_str()));
        assert!(seen, "no panel shows {family}");
    }
}

/// Every `label="value"` of the state, cause and kind labels is one the page has.
fn labels_are_there(text: &str, page: &Page) {
    for label in ["state", "cause", "kind", "outcome"] {
        for part in text.split(&format!("{label}=\"")).skip(1) {
            let value = part.split('"').next().unwrap_or_default();
            assert!(page.text.contains(&format!("{label}=\"{value}\"")), "{label}={value}");
        }
    }
}
