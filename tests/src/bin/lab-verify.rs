//! Verifies volumes against what a guest was promised.
//!
//! `lab-verify --initial vda=IMG --initial vdb=IMG --log SEED:SERIALLOG [--killed-log SEED:SERIALLOG]
//! --final vda=RAW --final vdb=RAW`: raw images, logs in boot order. `--killed-log` is for a boot whose
//! QEMU was killed: only what a flush covered is demanded of it. Exit status 1 when anything is missing or changed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufReader;
use std::process::ExitCode;

use volferry_tests::guest::Disk;
use volferry_tests::guest::acks::Acks;
use volferry_tests::guest::verify::{Boot, Report, verify_disk};

type Failure = Box<dyn std::error::Error>;

#[derive(Default)]
struct Arguments {
    initial: BTreeMap<Disk, String>,
    last: BTreeMap<Disk, String>,
    boots: Vec<Boot>,
}

fn image(text: &str) -> Result<(Disk, String), Failure> {
    let (disk, path) = text.split_once('=').ok_or_else(|| format!("'{text}' is not DISK=IMAGE"))?;
    let disk = Disk::parse(disk).ok_or_else(|| format!("'{disk}' is not a disk like vda"))?;
    Ok((disk, path.to_owned()))
}

fn boot(text: &str, killed: bool) -> Result<Boot, Failure> {
    let (seed, path) = text.split_once(':').ok_or_else(|| format!("'{text}' is not SEED:LOG"))?;
    let log = fs::read(path).map_err(|e| format!("{path}: {e}"))?;
    Ok(Boot { seed: seed.parse()?, acks: Acks::parse(&log)?, killed })
}

fn arguments(mut words: impl Iterator<Item = String>) -> Result<Arguments, Failure> {
    let mut all = Arguments::default();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--initial" => all.initial.extend([image(&value()?)?]),
            "--final" => all.last.extend([image(&value()?)?]),
            "--log" => all.boots.push(boot(&value()?, false)?),
            "--killed-log" => all.boots.push(boot(&value()?, true)?),
            other => return Err(format!("unknown argument {other}").into()),
        }
    }
    if all.last.is_empty() || !all.last.keys().eq(all.initial.keys()) {
        return Err("--initial and --final must name the same disks".into());
    }
    Ok(all)
}

fn verify(all: &Arguments) -> Result<Report, Failure> {
    let open = |path: &String| File::open(path).map_err(|e| format!("{path}: {e}"));
    let mut report = Report::default();
    for (disk, path) in &all.last {
        let (initial, last) = (open(&all.initial[disk])?, open(path)?);
        let (size, now) = (initial.metadata()?.len(), last.metadata()?.len());
        if size > now {
            return Err(
                format!("{disk}: {path} has {now} bytes, less than the initial {size}").into()
            );
        }
        report.add(verify_disk(
            *disk,
            size,
            BufReader::new(initial),
            BufReader::new(last),
            &all.boots,
        )?);
    }
    Ok(report)
}

fn main() -> ExitCode {
    let outcome = arguments(std::env::args().skip(1)).and_then(|all| verify(&all));
    match outcome {
        Ok(report) => {
            println!("{report}");
            ExitCode::from(u8::from(!report.is_good()))
        }
        Err(error) => {
            eprintln!("lab-verify: {error}");
            ExitCode::from(2)
        }
    }
}
