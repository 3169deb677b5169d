//! Guests of the laboratory from a shell: the demo, the smoke test, a try by hand.
//!
//! ```text
//! lab-guest create NAME ROOT DATA [--transient] [--rate N]   volumes: FILE.qcow2 | FILE.raw | rbd:POOL/IMAGE
//!                                       | FILE.qcow2+TEMPLATE.qcow2 | rbd:POOL/IMAGE+TEMPLATE-IMAGE
//! lab-guest start NAME SEED             boots it, writing; each boot needs another seed
//! lab-guest boot-check NAME SEED        boots it and reads both disks from end to end
//! lab-guest wait NAME ACKS              waits for that many acknowledgements more
//! lab-guest acks NAME                   acknowledgements of this boot, and the longest gap
//! lab-guest set-volume NAME DISK FORMAT VOLUME   where a stopped transient guest's disk is now
//! lab-guest kill NAME                   kills its QEMU; only flushed writes are demanded of this boot then
//! lab-guest destroy NAME | undefine NAME | volumes NAME | serial NAME
//! lab-guest verify NAME                 exit status 1 when anything is missing or changed
//! ```
//! `LAB_LIBVIRTD=NAME:MODE` chooses another daemon of the lab, `LAB_URI=URI` one that is none of the lab's.

use std::process::ExitCode;

use volferry_tests::guest::Disk;
use volferry_tests::lab::{Base, Guest, Lab, Spec, Volume};

type Failure = Box<dyn std::error::Error>;

fn volume(text: &str) -> Result<Volume, Failure> {
    let bad = || format!("'{text}' is no volume: see the head of lab-guest");
    let (spec, template) = match text.split_once('+') {
        Some((spec, template)) => (spec, Some(template)),
        None => (text, None),
    };
    let plain = |spec: &str| {
        let format = if spec.ends_with(".qcow2") { "qcow2" } else { "raw" };
        Volume::parse(spec, format)
    };
    let Some(template) = template else { return Ok(plain(spec).ok_or_else(bad)?) };
    if let Some(name) = spec.strip_prefix("rbd:") {
        let (pool, image) = name.split_once('/').ok_or_else(bad)?;
        return Ok(Volume::clone_of(pool, image, template));
    }
    Ok(Volume::overlay(spec, template))
}

fn create(lab: &Lab, words: &[&str]) -> Result<(), Failure> {
    let [name, root, data, options @ ..] = words else {
        return Err("create NAME ROOT DATA".into());
    };
    lab.build_images()?;
    let root = lab.create(Base::Root, &volume(root)?)?;
    let data = lab.create(Base::Data, &volume(data)?)?;
    let mut spec = Spec::new(name, root, data);
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match *option {
            "--transient" => spec = spec.transient(),
            "--rate" => spec = spec.rate(options.next().ok_or("--rate N")?.parse()?),
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    Guest::create(lab, spec)?.save()?;
    Ok(())
}

fn run(words: &[&str]) -> Result<bool, Failure> {
    let mut lab = Lab::from_env()?;
    if let Ok(daemon) = std::env::var("LAB_LIBVIRTD") {
        let (name, mode) = daemon.split_once(':').ok_or("LAB_LIBVIRTD is NAME:MODE")?;
        lab = lab.with_libvirtd(name, mode)?;
    }
    if let Ok(uri) = std::env::var("LAB_URI") {
        lab = lab.with_uri(&uri);
    }
    if let ["create", rest @ ..] = words {
        return create(&lab, rest).map(|()| true);
    }
    let [action, name, rest @ ..] = words else {
        return Err("ACTION NAME; see the head of lab-guest".into());
    };
    let mut guest = Guest::open(&lab, name)?;
    let good = act(&mut guest, action, rest);
    guest.save()?;
    good
}

fn act(guest: &mut Guest, action: &str, rest: &[&str]) -> Result<bool, Failure> {
    match (action, rest) {
        ("start", [seed]) => guest.start(seed.parse()?)?,
        ("boot-check", [seed]) => guest.start_to_verify_boot(seed.parse()?)?,
        ("wait", [acks]) => println!("{}", guest.wait_for_acks(acks.parse()?)?.total()),
        ("acks", []) => {
            let acks = guest.acks()?;
            println!(
                "{} acknowledgements, last at {} ms, longest gap {} ms",
                acks.total(),
                acks.last_ms,
                acks.longest_gap_ms
            );
        }
        ("set-volume", [disk, format, spec]) => {
            let disk = Disk::parse(disk).ok_or("no such disk")?;
            guest.set_volume(disk, Volume::parse(spec, format).ok_or("no such volume")?);
        }
        ("volumes", []) => {
            for disk in [Disk::VDA, Disk::VDB] {
                let volume = guest.volume(disk)?;
                println!("{disk} {} {}", volume.format.name(), volume.spec());
            }
        }
        ("serial", []) => println!("{}", guest.serial_log().ok_or("not started yet")?.display()),
        ("destroy", []) => guest.destroy()?,
        ("kill", []) => guest.kill()?,
        ("undefine", []) => guest.undefine()?,
        ("verify", []) => {
            let report = guest.verify()?;
            println!("{report}");
            return Ok(report.is_good());
        }
        _ => return Err(format!("unknown action {action}; see the head of lab-guest").into()),
    }
    Ok(true)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(good) => ExitCode::from(u8::from(!good)),
        Err(error) => {
            eprintln!("lab-guest: {error}");
            ExitCode::from(2)
        }
    }
}
