//! The laboratory guest's workload, run as its init: writes to its disks with O_DIRECT and promises
//! each completed operation on the serial console.
//!
//! Kernel command line: `vf.seed=N` (one per boot), `vf.mode=write|verify-boot|idle`,
//! `vf.rate=N` (most operations a second on each disk, 0 for no limit).
//!
//! The console is the first serial port, written by port instructions: when one returns, QEMU has the
//! byte. Through the tty a promise could wait in the guest's kernel, and the log would not tell which
//! single operation of a disk was in flight when the guest ended.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use volferry_tests::guest::block::fill_range;
use volferry_tests::guest::ops::{Kind, MAX_SECTORS, Op, op};
use volferry_tests::guest::{Disk, SECTOR};

const COM1: u16 = 0x3f8;
const DISKS: [Disk; 2] = [Disk::VDA, Disk::VDB];

mod ioctl {
    #![allow(missing_docs)]
    nix::ioctl_read!(size, 0x12, 114, u64); // BLKGETSIZE64
    nix::ioctl_write_ptr_bad!(discard, nix::request_code_none!(0x12, 119), [u64; 2]); // BLKDISCARD
    nix::ioctl_write_ptr_bad!(zero_out, nix::request_code_none!(0x12, 127), [u64; 2]); // BLKZEROOUT
}

struct Console {
    turn: Mutex<()>,
    begun: Instant,
}

impl Console {
    /// Threads started later inherit the permission.
    fn open() -> io::Result<Console> {
        // SAFETY: grants this thread the port instructions for one serial port; touches no memory.
        nix::errno::Errno::result(unsafe { nix::libc::ioperm(COM1.into(), 8, 1) })?;
        Ok(Console { turn: Mutex::new(()), begun: Instant::now() })
    }

    fn say(&self, line: &str) -> io::Result<()> {
        let _turn = self.turn.lock().map_err(|_| io::Error::other("the other thread died"))?;
        line.bytes().chain([b'\n']).for_each(put);
        Ok(())
    }
}

/// Hands one byte to the serial port. QEMU's takes it at once: there is no line to wait for.
fn put(byte: u8) {
    // SAFETY: `Console::open` got permission for this port; the instruction touches no memory.
    unsafe {
        std::arch::asm!("out dx, al", in("dx") COM1, in("al") byte, options(nomem, nostack, preserves_flags));
    }
}

struct Settings {
    seed: u64,
    mode: String,
    rate: u64,
}

impl Settings {
    fn read() -> io::Result<Settings> {
        let line = fs::read_to_string("/proc/cmdline")?;
        let value = |key: &str| line.split_whitespace().find_map(|word| word.strip_prefix(key));
        let number = |key: &str, other: u64| match value(key) {
            None => Ok(other),
            Some(text) => text.parse().map_err(|_| io::Error::other(format!("bad {key}{text}"))),
        };
        Ok(Settings {
            seed: number("vf.seed=", 0)?,
            rate: number("vf.rate=", 0)?,
            mode: value("vf.mode=").unwrap_or("idle").to_owned(),
        })
    }
}

/// A block device and a buffer O_DIRECT accepts.
struct Device {
    disk: Disk,
    file: File,
    sectors: u64,
    memory: Vec<u8>,
}

impl Device {
    fn open(disk: Disk) -> io::Result<Device> {
        const O_DIRECT: i32 = 0o40000;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(O_DIRECT)
            .open(format!("/dev/{disk}"))?;
        let mut bytes = 0;
        // SAFETY: BLKGETSIZE64 writes one u64 to the pointer, which lives across the call.
        unsafe { ioctl::size(file.as_raw_fd(), &raw mut bytes) }?;
        let memory = vec![0; (MAX_SECTORS as usize + 8) * SECTOR];
        Ok(Device { disk, file, sectors: bytes / SECTOR as u64, memory })
    }

    fn run(&mut self, seed: u64, n: u64, op: Op) -> io::Result<()> {
        let at = op.sector * SECTOR as u64;
        let bytes = op.count as usize * SECTOR;
        let skip = self.memory.as_ptr().align_offset(4096);
        let buffer = &mut self.memory[skip..skip + bytes];
        match op.kind {
            Kind::Write => {
                fill_range(seed, self.disk, n, op.sector, buffer);
                self.file.write_all_at(buffer, at)
            }
            Kind::Rewrite => {
                self.file.read_exact_at(buffer, at)?;
                self.file.write_all_at(buffer, at)
            }
            Kind::Flush => self.file.sync_data(),
            Kind::Zero => {
                // SAFETY: BLKZEROOUT reads two u64, offset and length, which live across the call.
                unsafe { ioctl::zero_out(self.file.as_raw_fd(), &[at, bytes as u64]) }?;
                Ok(())
            }
            Kind::Discard => {
                // SAFETY: BLKDISCARD reads two u64, offset and length, which live across the call.
                match unsafe { ioctl::discard(self.file.as_raw_fd(), &[at, bytes as u64]) } {
                    // A disk without discard keeps its content, which a discard allows.
                    Ok(_) | Err(nix::errno::Errno::EOPNOTSUPP) => Ok(()),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }

    /// Reads the whole disk; a lost block would fail here.
    fn read_all(&mut self) -> io::Result<u64> {
        let skip = self.memory.as_ptr().align_offset(4096);
        let mut sector = 0;
        while sector < self.sectors {
            let count = MAX_SECTORS.min(self.sectors - sector);
            let buffer = &mut self.memory[skip..skip + count as usize * SECTOR];
            self.file.read_exact_at(buffer, sector * SECTOR as u64)?;
            sector += count;
        }
        Ok(sector * SECTOR as u64)
    }
}

fn write_for_ever(console: &Console, settings: &Settings, disk: Disk) -> io::Result<()> {
    let mut device = Device::open(disk)?;
    let begun = Instant::now();
    for n in 0.. {
        let op = op(settings.seed, disk, n, device.sectors);
        device
            .run(settings.seed, n, op)
            .map_err(|e| io::Error::other(format!("{disk} operation {n} {op:?}: {e}")))?;
        console.say(&format!("ACK {disk} {n} {}", console.begun.elapsed().as_millis()))?;
        if let Some(due) = ((n + 1) * 1_000_000).checked_div(settings.rate) {
            #[allow(clippy::disallowed_methods, reason = "the pace of the guest's own workload")]
            std::thread::sleep(Duration::from_micros(due).saturating_sub(begun.elapsed()));
        }
    }
    Ok(())
}

fn work(console: &Console) -> io::Result<()> {
    let settings = Settings::read()?;
    console.say(&format!("BOOTED seed {} mode {}", settings.seed, settings.mode))?;
    match settings.mode.as_str() {
        "write" => std::thread::scope(|scope| {
            let settings = &settings;
            for disk in DISKS {
                scope.spawn(move || {
                    if let Err(error) = write_for_ever(console, settings, disk) {
                        let _ = console.say(&format!("FATAL {error}"));
                    }
                });
            }
            Ok(())
        }),
        "verify-boot" => {
            for disk in DISKS {
                let bytes = Device::open(disk)?.read_all()?;
                console.say(&format!("READ {disk} {bytes}"))?;
            }
            console.say("BOOT-OK")
        }
        "idle" => Ok(()),
        other => Err(io::Error::other(format!("unknown vf.mode {other}"))),
    }
}

fn main() {
    match Console::open() {
        Ok(console) => {
            if let Err(error) = work(&console) {
                let _ = console.say(&format!("FATAL {error}"));
            }
        }
        Err(error) => eprintln!("FATAL no console: {error}"),
    }
    // Init must not end: the kernel would panic.
    loop {
        std::thread::park();
    }
}
