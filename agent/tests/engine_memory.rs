//! One agent over very many moves keeps what it needs and no more. Alone in its program: memory is the process's.

use std::fs;

use volferry_agent::fake::Stage;
use volferry_agent::fake::scene::Home;
use volferry_agent::operation::State;

const WARM: usize = 50;
const ALL: usize = 500;
const MORE_KIB: u64 = 2048;

/// Memory of the process that is no file's, in KiB.
fn rss_anon_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("a process has a status");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number of KiB")
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("a process has descriptors").count()
}

#[tokio::test(start_paused = true)]
async fn five_hundred_moves_take_no_more_memory_than_fifty() {
    let stage = Stage::new(Home::Rbd, true).await;
    let mut at_warm = (0, 0);
    for number in 1..=ALL {
        let pool = ["ceph-ssd", "nfs-1", "ceph-hdd"][number % 3];
        let request = stage.guest.request(pool);
        stage.begin(&request).await;
        let view = stage.agent.end(&request.operation).await;
        assert_eq!(view.state, State::Succeeded, "{view:#?}");
        // What the world remembers for tests is not the agent's memory.
        stage.world.clear_script();
        stage.world.kill_agent_at(usize::MAX);
        if number == WARM {
            at_warm = (rss_anon_kib(), descriptors());
        }
    }
    let at_end = (rss_anon_kib(), descriptors());
    println!(
        "RssAnon {} KiB after {WARM} moves, {} KiB after {ALL}; descriptors {} and {}",
        at_warm.0, at_end.0, at_warm.1, at_end.1
    );
    assert!(at_end.0 <= at_warm.0 + MORE_KIB, "{at_warm:?} {at_end:?}");
    assert_eq!(at_end.1, at_warm.1, "descriptors");
}
