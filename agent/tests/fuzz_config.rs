//! The configuration and every mutation of it: refused in words or read, in bounded time, and never a panic.

#[path = "support/mutation.rs"]
mod mutation;

use std::path::Path;
use std::time::{Duration, Instant};

use mutation::{Cases, Dice, memory, mutate};
use volferry_agent::config::Config;

const SEEDS: [&str; 4] = [
    "host_name = \"a\"\nlisten = \"unix:/run/s\"\nstate_dir = \"/s\"\nlibvirt_uri = \"test:///default\"\n\
     source_retention = \"7d\"\nsocket_group = \"libvirt\"\nsocket_role = \"operate\"\n\
     [limits]\noperations_per_host = 2\noperations_per_pool = 1\nreserve_percent = 5\nreserve_bytes = \"64MiB\"\n",
    "host_name = \"a\"\n[tls]\nlisten = \"[::1]:16510\"\ncertificate = \"/c\"\nkey = \"/k\"\nclient_ca = \"/a\"\n\
     [[client]]\nname = \"spiffe://x/y\"\nrole = \"admin\"\n[[client]]\nname = \"m.example\"\nrole = \"observe\"\n",
    "host_name = \"a\"\n[pools_in_requests]\npaths = [\"/mnt/a\", \"/srv\"]\nrbd = true\n[metrics]\nlisten = \"127.0.0.1:1\"\n",
    "host_name = 'a'\npool = [ { name = \"p\", type = \"rbd\", monitors = [\"h:1\", \"[::1]:2\"], port = 3, pool = \"c\", \
     namespace = \"n\", user = \"u\", secret_uuid = \"10000000-0000-4000-8000-0000000000aa\" } ]\n",
];

/// Words of the format and of the file, which chance alone would hardly find.
const WORDS: [&str; 18] = [
    "[[pool]]\n",
    "[[client]]\n",
    "[tls]\n",
    "[limits]\n",
    "host_name = ",
    "type = \"nfs\"\n",
    "\"\"\"",
    "'''",
    "= {",
    "[[",
    "]]",
    "1e999",
    "0x",
    "99999999999999999999",
    "inf",
    "1979-05-27T07:32:00Z",
    "\\U0010FFFF",
    "\u{0}",
];

fn case(dice: &mut Dice, seeds: &[Vec<u8>]) -> Vec<u8> {
    if dice.one_in(200) {
        // Deep, where a parser that calls itself would fall.
        let (open, close) = *dice.pick(&[("[", "]"), ("{a=", "}"), ("a.", "")]);
        let depth = dice.below(60_000);
        let key = if open == "a." { "" } else { "host_name = " };
        return format!("{key}{}1{}", open.repeat(depth), close.repeat(depth)).into_bytes();
    }
    let seed = dice_seed(dice, seeds);
    let mut bytes = mutate(dice, seed, seeds);
    for _ in 0..dice.below(3) {
        let place = dice.below(bytes.len() + 1);
        bytes.splice(place..place, dice.pick(&WORDS).bytes());
    }
    bytes
}

fn dice_seed(dice: &mut Dice, seeds: &[Vec<u8>]) -> Vec<u8> {
    if dice.one_in(50) { dice.bytes(4096) } else { dice.pick(seeds).clone() }
}

#[test]
fn no_configuration_panics_hangs_or_takes_all_memory() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/volferry.toml");
    let example = std::fs::read_to_string(example).expect("the example");
    let spoken = example.replace("\n#", "\n");
    let mut seeds: Vec<Vec<u8>> = SEEDS.iter().map(|seed| seed.as_bytes().to_vec()).collect();
    for seed in &seeds {
        let text = std::str::from_utf8(seed).expect("text");
        Config::parse(text).unwrap_or_else(|error| panic!("a seed is good: {}", error.rule));
    }
    seeds.extend([example.into_bytes(), spoken.into_bytes()]);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("volferry.toml");
    let (mut cases, mut good, mut slowest) = (Cases::new(), 0_u64, Duration::ZERO);
    let before = memory("VmHWM");
    while let Some(number) = cases.next() {
        let mut dice = Dice::new(number);
        let bytes = case(&mut dice, &seeds);
        let told = std::panic::catch_unwind(|| {
            let began = Instant::now();
            let result = match std::str::from_utf8(&bytes) {
                Ok(text) if number % 64 != 0 => Config::parse(text),
                // As the daemon reads it, whatever the bytes are.
                Ok(_) | Err(_) => {
                    std::fs::write(&file, &bytes).expect("written");
                    Config::load(&file)
                }
            };
            // What a refusal says is for people: it is made, and no longer than the file allows.
            let words = result.as_ref().err().map(|error| format!("{error}: {}", error.rule));
            assert!(words.is_none_or(|words| words.len() < 4096 + 8 * bytes.len()));
            (result.is_ok(), began.elapsed())
        });
        let (read, took) = told.unwrap_or_else(|_| {
            panic!("VOLFERRY_FUZZ_CASE={number}: {:?}", String::from_utf8_lossy(&bytes))
        });
        good += u64::from(read);
        slowest = slowest.max(took);
        assert!(took < Duration::from_secs(5), "VOLFERRY_FUZZ_CASE={number} took {took:?}");
    }
    let grown = memory("VmHWM") - before;
    println!(
        "{} configurations, {good} of them good; the slowest took {slowest:?}; {grown} KiB more at most",
        cases.count
    );
    assert!(grown < 256 * 1024, "{grown} KiB");
}
