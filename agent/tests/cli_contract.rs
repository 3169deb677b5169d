//! The built commands as scripts and people use them: exit codes, what goes where, and the texts of help.

#[path = "support/fake_agent.rs"]
mod fake_agent;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use clap::CommandFactory;
use fake_agent::{Served, leftover};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use volferry_agent::operation::{LeftoverKind, State};

const LONGEST: Duration = Duration::from_secs(30);

fn volferry(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_volferry"));
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    command.env_remove("VOLFERRY_SOCKET").env_remove("RUST_BACKTRACE");
    command
}

fn at(served: &Served, arguments: &[&str]) -> Command {
    let mut command = volferry(arguments);
    command.env("VOLFERRY_SOCKET", &served.socket);
    command
}

async fn ended(mut command: Command) -> (i32, String, String) {
    let output = tokio::time::timeout(LONGEST, command.output()).await.expect("it ends");
    told(output.expect("it runs"))
}

fn told(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().expect("an exit code"), text(output.stdout), text(output.stderr))
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures")
}

/// Rows of `input, port, as, expected, why`; in input and expected, `\t` and `\n` are escapes, `||` separates
/// equally good answers, ERROR means exit 2 with nothing on standard output.
#[tokio::test]
async fn monitors_are_written_as_the_table_says() {
    let table = fs::read_to_string(fixtures().join("rbd/monitors.tsv")).expect("the table");
    let unescape = |text: &str| text.replace("\\t", "\t").replace("\\n", "\n");
    let mut rows = 0;
    for line in table.lines().skip(1).filter(|line| !line.is_empty()) {
        let cells: Vec<&str> = line.split('\t').collect();
        let [input, port, form, expected, why] = cells[..] else { panic!("five cells: {line}") };
        let list = unescape(input);
        let (exit, out, err) =
            ended(volferry(&["rbd", "monitors", &list, "--port", port, "--as", form])).await;
        let good = expected.split("||").any(|answer| match answer {
            "ERROR" => exit == 2 && out.is_empty() && !err.trim().is_empty(),
            answer => exit == 0 && out.strip_suffix('\n') == Some(unescape(answer).as_str()),
        });
        assert!(good, "{input:?} {port} {form} ({why}): exit {exit}, {out:?}, {err:?}");
        rows += 1;
    }
    assert!(rows > 20, "{rows} rows");
}

#[tokio::test]
async fn odd_monitor_arguments_reach_the_reader_of_lists() {
    for list in ["", "-x", "--", "[", "-"] {
        let (exit, out, err) =
            ended(volferry(&["rbd", "monitors", "--port", "0", "--as", "list", list])).await;
        assert_eq!((exit, out.as_str()), (2, ""), "{list:?}: {err}");
    }
    let hosts = ["rbd", "monitors", "mon1", "--port", "0", "--as", "hosts"];
    assert_eq!(ended(volferry(&hosts)).await.1, "mon1\n", "no port, no tab");
}

#[tokio::test]
async fn mistakes_of_usage_end_with_2_and_say_nothing_on_standard_output() {
    let mistakes: [&[&str]; 11] = [
        &[],
        &["nonsense"],
        &["migrate", "web", "vda"],
        &["migrate", "web", "vda", "--to", "p", "--bandwidth", "0"],
        &["migrate", "web", "vda", "--to", "p", "--bandwidth", "fast"],
        &["migrate", "web", "vda", "--to", "p", "--deadline", "1x"],
        &["migrate", "web", "vda", "--to", "p", "--keep-source", "--keep-source-name"],
        &["migrate", "a", "b", "--to", "p", "--delete-source-snapshots", "--keep-source-name"],
        &["plan", "--to", "p"],
        &["plan", "--domain-xml", "x", "--to", "p"],
        &[
            "plan",
            "--domain-xml",
            "/nonexistent",
            "--disk",
            "a",
            "--to",
            "p",
            "--config",
            "/nonexistent",
        ],
    ];
    for arguments in mistakes {
        let (exit, out, err) = ended(volferry(arguments)).await;
        assert_eq!((exit, out.as_str()), (2, ""), "{arguments:?}");
        assert!(!err.is_empty(), "{arguments:?}");
    }
}

#[tokio::test]
async fn an_agent_that_is_away_is_5_with_a_hint() {
    let commands: [&[&str]; 4] = [
        &["pools"],
        &["ops", "list"],
        &["plan", "a", "b", "--to", "c"],
        &["migrate", "a", "b", "--to", "c"],
    ];
    for arguments in commands {
        let mut command = volferry(arguments);
        command.args(["--socket", "/nonexistent/s"]);
        let (exit, out, err) = ended(command).await;
        assert_eq!((exit, out.as_str()), (5, ""), "{arguments:?}");
        let lines: Vec<_> = err.lines().collect();
        assert_eq!(lines.len(), 2, "{err}");
        assert!(lines[0].contains("/nonexistent/s: there is no such socket"), "{err}");
        assert!(lines[1].starts_with("hint: is volferryd running?"), "{err}");
    }
}

#[tokio::test]
async fn a_move_ends_with_0_and_says_where_the_volume_is() {
    let served = Served::start().await;
    let migrate = ["migrate", "web", "vda", "--to", "ceph", "--operation-id", "op-1"];
    let (exit, out, err) = ended(at(&served, &migrate)).await;
    assert_eq!(exit, 0, "{err}");
    assert_eq!(
        out,
        "web:vda succeeded\n\
         \x20 operation     op-1\n\
         \x20 volume is at  rbd:vms/root (the destination)\n\
         \x20 contents      pool ceph, raw, encryption none, 1 GiB, 400 MiB allocated\n\
         \x20 source        left behind as /mnt/nfs-1/root.qcow2.moved-1: it is in use\n\
         \x20 warning       2 snapshots of the source were not moved\n\
         \x20 phases        queued 30 ms, planned 30 ms, preparing 30 ms, copying 30 ms, ready 30 ms, \
         pivoting 30 ms, moved 30 ms, cleaning 30 ms\n"
    );
    assert!(err.contains("web:vda: copying 43% of 1 GiB, 100 MiB/s, 5.8 s left"), "{err}");
    let again = ended(at(&served, &migrate)).await;
    assert_eq!((again.0, again.1), (0, out), "a retry finds the same operation");
}

#[tokio::test]
async fn every_end_has_its_exit_code() {
    let served = Served::start().await;
    let ends: [(&[&str], i32, &str); 4] = [
        (&["vdf", "--to", "ceph"], 1, "destination-full (destination side): No space left"),
        (&["vda", "--to", "full"], 3, "refused: no-space: pool full has 0 B left"),
        (&["vda", "--to", "a/b"], 3, "refused: invalid-name: "),
        (&["vdo", "--to", "ceph"], 6, "volume is at  unknown"),
    ];
    for (arguments, exit, text) in ends {
        let mut command = at(&served, &["migrate", "web"]);
        command.args(arguments);
        let (code, out, err) = ended(command).await;
        assert_eq!(code, exit, "{arguments:?}: {out}{err}");
        assert!(format!("{out}{err}").contains(text), "{arguments:?}: {out}{err}");
    }
}

#[tokio::test]
async fn json_lines_tell_every_state_and_the_end_last() {
    let served = Served::start().await;
    let migrate = ["migrate", "web", "vda", "--to", "ceph", "--output", "json"];
    let (exit, out, err) = ended(at(&served, &migrate)).await;
    assert_eq!((exit, err.as_str()), (0, ""));
    let lines: Vec<Value> =
        out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let (last, before) = lines.split_last().expect("lines");
    assert_eq!(last["event"], "final");
    assert_eq!(last["operation"]["result"]["source"]["fate"], "left-behind");
    assert_eq!(last["operation"]["place"], "destination");
    assert!(before.iter().all(|line| line["event"] == "state" || line["event"] == "progress"));
    let refused = ["migrate", "web", "vda", "--to", "full", "--output", "json"];
    let (exit, out, _) = ended(at(&served, &refused)).await;
    let error: Value = serde_json::from_str(&out).expect("one object");
    assert_eq!((exit, &error["error"]["code"]), (3, &Value::from("no-space")));
    assert_eq!(error["error"]["message"], "pool full has 0 B left");
}

#[tokio::test]
async fn a_signal_without_a_terminal_cancels_and_waits_for_the_end() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let served = Served::start().await;
        let mut command = at(&served, &["migrate", "web", "vdb", "--to", "ceph"]);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        let mut told = BufReader::new(child.stderr.take().expect("piped")).lines();
        while let Some(line) = told.next_line().await.expect("text") {
            if line.contains("copying") {
                break;
            }
        }
        let pid = i32::try_from(child.id().expect("it still runs")).expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("signalled");
        let output = tokio::time::timeout(LONGEST, child.wait_with_output()).await;
        let (exit, out, _) = self::told(output.expect("it ends").expect("it ran"));
        assert_eq!(exit, 4, "{out}");
        assert!(out.starts_with("web:vdb cancelled\n"), "{out}");
        assert!(out.contains("volume is at  /mnt/nfs-1/root.qcow2 (the source)"), "{out}");
    }
}

#[tokio::test]
async fn an_agent_that_comes_back_is_found_again() {
    let served = Served::start().await;
    let migrate = ["migrate", "web", "vdz", "--to", "ceph", "--operation-id", "op-1"];
    let mut command = at(&served, &migrate);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut told = BufReader::new(child.stderr.take().expect("piped")).lines();
    told.next_line().await.expect("text").expect("the first state");
    let stopped = served.stop().await;
    let line = told.next_line().await.expect("text").expect("a note");
    assert_eq!(line, "the agent is away; it is asked again every second");
    let served = stopped.start().await;
    served.agent.enter("op-1", State::Succeeded);
    let output = tokio::time::timeout(LONGEST, child.wait_with_output()).await;
    let (exit, out, _) = self::told(output.expect("it ends").expect("it ran"));
    assert_eq!(exit, 0, "{out}");
}

#[tokio::test]
async fn operations_are_listed_with_the_place_of_each_volume() {
    let served = Served::start().await;
    let long = "12345678-1234-1234-1234-123456789012";
    for (id, disk) in [("short", "vdz"), (long, "vdz"), ("third", "vdz")] {
        let domain = "a-domain-with-a-very-long-name.example.org";
        let migrate = ["migrate", domain, disk, "--to", "ceph", "--operation-id", id, "--detach"];
        let (exit, out, _) = ended(at(&served, &migrate)).await;
        assert_eq!((exit, out), (0, format!("operation {id}\n")));
    }
    served.agent.enter("short", State::Pivoting);
    served.agent.enter(long, State::Copying);
    served.agent.enter("third", State::Succeeded);
    let (_, out, _) = ended(at(&served, &["ops", "list"])).await;
    let lines: Vec<_> = out.lines().collect();
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{out}");
    assert!(
        lines[1].starts_with("third ") && lines[1].ends_with("succeeded    destination"),
        "{out}"
    );
    assert!(lines[2].starts_with(long) && lines[2].ends_with("copying 43%  source"), "{out}");
    assert!(lines[3].ends_with("pivoting     unknown"), "{out}");
    let (_, out, _) = ended(at(&served, &["ops", "list", "--output", "json", "--running"])).await;
    let list: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(list["operations"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn operations_are_steered() {
    let served = Served::start().await;
    let migrate = ["migrate", "web", "vdz", "--to", "ceph", "--operation-id", "a", "--detach"];
    ended(at(&served, &migrate)).await;
    let (exit, out, _) = ended(at(&served, &["ops", "set-bandwidth", "a", "5MiB/s"])).await;
    assert_eq!((exit, out.as_str()), (0, "operation a: at most 5 MiB/s\n"));
    let (exit, _, err) = ended(at(&served, &["ops", "pivot", "a"])).await;
    assert_eq!(exit, 3, "{err}");
    let (exit, _, err) = ended(at(&served, &["ops", "show", "b"])).await;
    assert_eq!(exit, 3);
    assert_eq!(
        err,
        "volferry: there is no operation b\nhint: `volferry ops list` shows all operations\n"
    );
    assert_eq!(ended(at(&served, &["ops", "cancel", "a"])).await.0, 0);
    assert_eq!(ended(at(&served, &["ops", "watch", "a"])).await.0, 4);
    let (exit, out, _) = ended(at(&served, &["plan", "web", "vda", "--to", "ceph"])).await;
    assert_eq!((exit, out.as_str()), (3, "refused: domain-not-found: there is no domain web\n"));
}

#[tokio::test]
async fn inventories_fit_the_screen() {
    let served = Served::start().await;
    for (arguments, text) in [
        (&["disks", "web"][..], "no: not-a-disk"),
        (&["pools"], "ceph-hdd: the monitors do not answer"),
        (&["host"], "libvirt  - (away)"),
    ] {
        let (exit, out, err) = ended(at(&served, arguments)).await;
        assert_eq!(exit, 0, "{err}");
        assert!(out.contains(text), "{out}");
        assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
        let mut json = at(&served, arguments);
        json.args(["--output", "json"]);
        serde_json::from_str::<Value>(&ended(json).await.1).expect("JSON");
    }
}

#[tokio::test]
async fn a_reader_who_leaves_crashes_nothing() {
    let mut command = volferry(&["completions", "bash"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    drop(child.stdout.take());
    let output = tokio::time::timeout(LONGEST, child.wait_with_output()).await;
    let (exit, _, err) = told(output.expect("it ends").expect("it ran"));
    assert_eq!((exit, err.as_str()), (0, ""));
}

#[tokio::test]
async fn help_is_as_recorded() {
    let folder = fixtures().join("cli");
    let mut texts = BTreeMap::new();
    let mut open = vec![(Vec::<String>::new(), volferry_agent::cli::Arguments::command())];
    while let Some((path, command)) = open.pop() {
        let mut arguments: Vec<&str> = path.iter().map(String::as_str).collect();
        arguments.push("--help");
        let (exit, out, err) = ended(volferry(&arguments)).await;
        assert_eq!((exit, err.as_str()), (0, ""), "{path:?}");
        arguments.pop();
        arguments.insert(0, "volferry");
        texts.insert(format!("{}.txt", arguments.join("-")), out);
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            let mut path = path.clone();
            path.push(below.get_name().to_owned());
            open.push((path, below.clone()));
        }
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("the folder");
        for (name, text) in &texts {
            fs::write(folder.join(name), text).expect("written");
        }
    }
    let mut recorded = BTreeMap::new();
    for file in fs::read_dir(&folder).expect("fixtures/cli") {
        let file = file.expect("an entry");
        let text = fs::read_to_string(file.path()).expect("text");
        recorded.insert(file.file_name().to_string_lossy().into_owned(), text);
    }
    for (name, text) in &texts {
        let recorded = recorded.get(name).map_or("", String::as_str);
        assert_eq!(recorded, text, "{name}; UPDATE_GOLDEN=1 records it");
    }
    assert_eq!(recorded.len(), texts.len(), "a file too many");
}

#[tokio::test]
async fn leftovers_are_listed_tried_again_and_forgotten() {
    let served = Served::start().await;
    assert_eq!(ended(at(&served, &["leftovers", "list"])).await.0, 0);
    let kinds = [LeftoverKind::Source, LeftoverKind::Private, LeftoverKind::Destination];
    served.agent.leftovers.lock().expect("no panic").extend(kinds.map(leftover));
    let (exit, out, _) = ended(at(&served, &["leftovers", "list"])).await;
    assert_eq!(exit, 0);
    assert!(out.contains("op-1-source") && out.contains("reason    it is in use"), "{out}");
    let (_, out, _) = ended(at(&served, &["leftovers", "list", "--output", "json"])).await;
    let listed: Value = serde_json::from_str(&out).expect("JSON");
    let first = &listed["leftovers"][0];
    assert_eq!(first["id"], "op-1-source");
    assert_eq!(first["kind"], "source");
    assert_eq!(first["identity"], "device 40 inode 7");
    assert_eq!(first["last_try"], Value::Null);
    let retry = ["leftovers", "retry", "op-1-source", "--output", "json"];
    let (exit, out, _) = ended(at(&served, &retry)).await;
    let stays: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((exit, stays["outcome"].as_str()), (1, Some("stays")), "{out}");
    assert_eq!(stays["leftover"]["tries"], 1);
    let (exit, out, _) = ended(at(&served, &["leftovers", "retry", "op-1-private"])).await;
    assert_eq!(exit, 0);
    assert!(out.ends_with("root.qcow2.moved-op-1 is removed\n"), "{out}");
    let (exit, out, _) = ended(at(&served, &["leftovers", "forget", "op-1-source"])).await;
    assert_eq!(exit, 0);
    assert!(out.contains("was not touched"), "{out}");
    for command in ["retry", "forget"] {
        let (exit, out, err) = ended(at(&served, &["leftovers", command, "op-1-source"])).await;
        assert_eq!((exit, out.as_str()), (3, ""));
        assert!(err.contains("there is no leftover op-1-source"), "{err}");
    }
    let (exit, _, err) = ended(at(&served, &["leftovers", "retry", "../x"])).await;
    assert_eq!(exit, 3, "{err}");
    assert!(err.contains("invalid-name"), "{err}");
}

#[test]
fn an_operation_id_that_breaks_its_rule_is_a_usage_error_and_nothing_is_sent() {
    for id in ["", "../x", "-x y"] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_volferry"))
            .args(["--socket", "/nonexistent/socket", "migrate", "web", "vda", "--to", "nfs"])
            .arg(format!("--operation-id={id}"))
            .output()
            .expect("the command runs");
        assert_eq!(output.status.code(), Some(2), "{id:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
}

#[tokio::test]
async fn an_undecided_operation_is_shown_decided_and_settled() {
    let served = Served::start().await;
    let migrate = ["migrate", "web", "vdo", "--to", "ceph", "--operation-id", "op-1"];
    assert_eq!(ended(at(&served, &migrate)).await.0, 6);
    let (exit, out, err) = ended(at(&served, &["ops", "resolve", "op-1"])).await;
    assert_eq!(exit, 6, "{err}");
    for part in [
        "hint          both volumes are kept",
        "evidence          QEMU uses the destination, but was started again meanwhile",
        "evidence          the stored definition names the source",
        "keep source       not possible now: QEMU uses the destination",
        "keep destination  volferry ops resolve op-1 --keep destination",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let (exit, _, err) = ended(at(&served, &["ops", "settle", "op-1"])).await;
    assert_eq!(exit, 3);
    assert!(err.contains("nothing proves yet"), "{err}");
    let keep = ["ops", "resolve", "op-1", "--keep"];
    let (exit, out, err) = ended(at(&served, &[&keep[..], &["source"]].concat())).await;
    assert_eq!((exit, out.as_str()), (3, ""), "{err}");
    assert!(err.contains("QEMU uses the destination"), "{err}");
    let (exit, out, _) = ended(at(&served, &[&keep[..], &["destination"]].concat())).await;
    assert_eq!(exit, 0);
    assert!(out.contains("succeeded") && out.contains("decided       for the destination by uid"));
    let again = [&keep[..], &["destination", "--output", "json"]].concat();
    let (exit, out, err) = ended(at(&served, &again)).await;
    assert_eq!(exit, 3, "{err}");
    assert!(out.contains("needs no operator"), "{out}");
}

#[tokio::test]
async fn a_decision_that_leaves_the_other_volume_ends_with_1_and_mistakes_with_2() {
    let served = Served::start().await;
    let migrate = ["migrate", "web", "vdo", "--to", "ceph", "--operation-id", "op-1"];
    assert_eq!(ended(at(&served, &migrate)).await.0, 6);
    let keep = ["ops", "resolve", "op-1", "--keep", "destination", "--remove-other"];
    let (exit, out, err) = ended(at(&served, &[&keep[..], &["--output", "json"]].concat())).await;
    assert_eq!(exit, 1, "{err}");
    let told: Value = serde_json::from_str(&out).expect("an object");
    assert_eq!(told["removal"]["outcome"], "stays");
    assert_eq!(told["operation"]["resolution"]["kept"], "destination");
    assert_eq!(told["operation"]["place"], "destination");
    for mistake in [
        &["ops", "resolve", "op-1", "--keep", "both"][..],
        &["ops", "resolve", "op-1", "--remove-other"],
    ] {
        assert_eq!(ended(at(&served, mistake)).await.0, 2, "{mistake:?}");
    }
}

#[tokio::test]
async fn orphans_are_listed_and_removed_when_asked() {
    let served = Served::start().await;
    let (exit, out, err) = ended(at(&served, &["doctor", "--orphans"])).await;
    assert_eq!(exit, 0, "{err}");
    for part in [
        "remove    volferry doctor --orphans --remove lost-1",
        "remove    not possible now: domain web uses it",
        "location  /mnt/nfs-1/.volferry-lost-1",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let (_, out, _) = ended(at(&served, &["doctor", "--orphans", "--output", "json"])).await;
    let told: Value = serde_json::from_str(&out).expect("an object");
    assert_eq!(told["orphans"][1]["kept"], "domain web uses it");
    let remove = |id: &str| at(&served, &["doctor", "--orphans", "--remove", id]);
    let (exit, out, _) = ended(remove("lost-1")).await;
    assert_eq!((exit, out.as_str()), (0, "/mnt/nfs-1/.volferry-lost-1 is removed\n"));
    for (id, words) in [("lost-2", "domain web uses it"), ("lost-3", "no pool has an orphan")] {
        let (exit, out, err) = ended(remove(id)).await;
        assert_eq!((exit, out.as_str()), (3, ""), "{err}");
        assert!(err.contains(words), "{err}");
    }
    assert_eq!(ended(at(&served, &["doctor", "--remove", "lost-1"])).await.0, 2);
    assert_eq!(ended(at(&served, &["ops", "list", "--limit", "0"])).await.0, 2);
}

#[tokio::test]
async fn the_doctor_says_what_is_in_the_way_and_what_to_do() {
    let served = Served::start().await;
    let (exit, out, err) = ended(at(&served, &["doctor"])).await;
    assert_eq!(exit, 0, "{err}");
    for line in [
        "good  agent: version 0.0.1",
        "note  leftovers: 1 could not be removed",
        "      list them",
        "but the agent's is another",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
    *served.agent.broken.lock().expect("no panic") = true;
    let (exit, out, _) = ended(at(&served, &["doctor"])).await;
    assert_eq!(exit, 1, "{out}");
    assert!(out.contains("BAD   pool nfs-1: its mount is missing\n      mount it\n"), "{out}");
    let (exit, out, _) = ended(at(&served, &["doctor", "--output", "json"])).await;
    let told: Value = serde_json::from_str(&out).expect("an object");
    assert_eq!((exit, &told["checks"][2]["verdict"]), (1, &"bad".into()), "{out}");
}

#[tokio::test]
async fn an_operation_is_shown_with_its_history_and_what_is_left_to_do() {
    let served = Served::start().await;
    let migrate = ["migrate", "web", "vdz", "--to", "ceph", "--operation-id", "a", "--detach"];
    ended(at(&served, &migrate)).await;
    let (exit, out, _) = ended(at(&served, &["ops", "show", "a"])).await;
    assert_eq!(exit, 0);
    let at_the_end =
        "  history\n    2026-09-21T14:13:20Z  is queued\n  left to do\n    look at it\n";
    assert!(out.ends_with(at_the_end), "{out}");
    let (_, out, _) = ended(at(&served, &["ops", "show", "a", "--output", "json"])).await;
    let told: Value = serde_json::from_str(&out).expect("an object");
    assert_eq!((&told["id"], &told["history"][0]["text"]), (&"a".into(), &"is queued".into()));
    assert_eq!(told["to_do"][0], "look at it");
}

/// Runs `volferry cloudstack run` on a command: the exit code and the answers.
async fn cloudstack(command: Command, input: &str) -> (i32, Value) {
    use tokio::io::AsyncWriteExt;
    let mut command = command;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input.as_bytes()).await.expect("it is read");
    drop(stdin);
    let output = tokio::time::timeout(LONGEST, child.wait_with_output()).await.expect("it ends");
    let (exit, out, err) = told(output.expect("it ran"));
    for secret in ["SECRET", "109"] {
        assert!(!out.contains(secret) && !err.contains(secret), "{out}{err}");
    }
    (exit, serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}")))
}

#[tokio::test]
async fn every_command_of_cloudstack_gets_an_answer_and_its_exit_code() {
    let served = Served::start().await;
    let run = || at(&served, &["cloudstack", "run"]);
    for nonsense in ["", "SECRET", "[", "[{\"a\":1,\"b\":2}]", "\"SECRET\"", "[]"] {
        let (exit, answers) = cloudstack(run(), nonsense).await;
        assert_eq!(exit, 2, "{nonsense}: {answers}");
        assert_eq!(answers[0]["com.cloud.agent.api.Answer"]["result"], false, "{answers}");
    }
    let case = |name: &str| {
        let path = fixtures().join(format!("cloudstack/{name}.json"));
        let text = fs::read_to_string(path).expect("the case");
        serde_json::from_str::<Value>(&text).expect("JSON")["command"].clone()
    };
    let migrated = "com.cloud.agent.api.storage.MigrateVolumeAnswer";
    let (exit, answers) = cloudstack(run(), &case("no-source").to_string()).await;
    assert_eq!(exit, 1);
    assert_eq!(answers[0][migrated]["details"], "MigrateVolumeCommand has no srcData");
    // What the agent refuses, and a later command of the same list.
    let mut both = case("local-to-rbd-encrypted");
    let pool = "/0/com.cloud.agent.api.storage.MigrateVolumeCommand/pool/uuid";
    let store = "/0/com.cloud.agent.api.storage.MigrateVolumeCommand/destData/\
                 org.apache.cloudstack.storage.to.VolumeObjectTO/dataStore/\
                 org.apache.cloudstack.storage.to.PrimaryDataStoreTO/uuid";
    for place in [pool, store] {
        *both.pointer_mut(place).expect("a uuid") = Value::from("full");
    }
    let more = case("rbd-to-rbd")[0].clone();
    both.as_array_mut().expect("a list").push(more);
    let (exit, answers) = cloudstack(run(), &both.to_string()).await;
    assert_eq!(exit, 1);
    let details = answers[0][migrated]["details"].as_str().expect("a text");
    assert!(details.contains("no-space") || details.contains("has 0 B left"), "{answers}");
    assert_eq!(answers[1][migrated]["details"], "Stopped by previous failure");
    // Nobody answers.
    let away = volferry(&["--socket", "/nonexistent/s", "cloudstack", "run"]);
    let (exit, answers) = cloudstack(away, &case("rbd-to-rbd").to_string()).await;
    let details = answers[0][migrated]["details"].as_str().expect("a text");
    assert!(exit == 1 && details.contains("cannot be reached"), "{answers}");
}
