//! The command line, as typed. Values that only the agent can judge stay text.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use super::address::AddressArguments;
use super::failure::Failure;
use crate::api::status::Exit;
use crate::spec::{
    Bytes, BytesPerSecond, EncryptionScheme, EncryptionWish, HeaderKind, IoTune, OperationId, span,
};

const GENERAL: &str = "General options";

const ENCRYPTION: &str = "Options of encryption";

const EXIT_CODES: &str = "Exit codes:
  0  done
  1  failed; what was begun was rolled back
  2  usage: the command line or a value in it is wrong
  3  refused before anything was changed
  4  cancelled
  5  the agent cannot be reached, or was lost: ask again
  6  the outcome needs an operator";

/// Moves the disks of virtual machines between storage pools while they run, and volumes while nobody uses them
#[derive(Debug, Parser)]
#[command(name = "volferry", version, after_help = EXIT_CODES)]
#[command(disable_help_subcommand = true, infer_subcommands = false)]
pub struct Arguments {
    #[command(flatten)]
    pub(super) agent: AddressArguments,

    /// How to print: text for people, json for programs
    #[arg(long, global = true, value_name = "FORMAT", value_enum, default_value = "text")]
    #[arg(hide_possible_values = true, help_heading = GENERAL)]
    pub(super) output: Format,

    #[command(subcommand)]
    pub(super) command: Command,
}

/// The two ways to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables and sentences
    Text,
    /// JSON
    Json,
}

/// How to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CopyMethod {
    /// As the agent chooses
    Auto,
    /// QEMU mirrors the disk
    Mirror,
    /// The guest goes on from the destination while the data follow
    Handover,
}

impl CopyMethod {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Mirror => "mirror",
            Self::Handover => "handover",
        }
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Move a disk of a virtual machine, or a volume nobody uses, to another pool
    Migrate(MigrateArguments),
    /// Show what a move would do, without doing it
    Plan(PlanArguments),
    /// List, follow and steer operations
    Ops {
        #[command(subcommand)]
        command: OpsCommand,
    },
    /// List, retry and forget what operations could not remove
    Leftovers {
        #[command(subcommand)]
        command: LeftoversCommand,
    },
    /// Check libvirt, QEMU, pools, mounts and secrets, and say what to mend
    ///
    /// Without --remove, nothing is changed. Exits with 1 when something is in the way of moves.
    Doctor {
        /// Look for volumes in the pools that an operation of the agent made and no operation knows
        #[arg(long)]
        orphans: bool,
        /// End the copy into the orphans of this operation and remove them, if nobody uses them
        #[arg(long, value_name = "ID", requires = "orphans")]
        remove: Option<String>,
    },
    /// List the disks of a domain and which of them can be moved
    Disks {
        /// The domain, by name or uuid
        domain: String,
    },
    /// List the pools and whether they can be used now
    Pools,
    /// Show what this host runs
    Host,
    /// Check and convert names of Ceph
    Rbd {
        #[command(subcommand)]
        command: RbdCommand,
    },
    /// Carry out commands of Apache CloudStack
    Cloudstack {
        #[command(subcommand)]
        command: CloudstackCommand,
    },
    /// Print the completion script of a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// What to move, where to, and how.
#[derive(Debug, Args)]
pub struct RequestOptions {
    /// Limit of the copy, such as 200MiB/s; none without it
    #[arg(long, value_name = "RATE")]
    pub bandwidth: Option<BytesPerSecond>,

    /// Keep the source, under another name, after the move
    #[arg(long)]
    pub keep_source: bool,

    /// Leave the source under its very name: an old record can then still boot old data
    #[arg(long, conflicts_with = "keep_source")]
    pub keep_source_name: bool,

    /// Delete the snapshots of an RBD source after the move, and then the source itself; without
    /// it, a source with snapshots stays under another name
    #[arg(long, conflicts_with_all = ["keep_source", "keep_source_name"])]
    pub delete_source_snapshots: bool,

    /// Guest writes wait for both sides: slower, but a busy guest cannot outrun the copy
    #[arg(long)]
    pub write_blocking: bool,

    /// Wait for `volferry ops pivot` before the guest is switched
    #[arg(long)]
    pub manual_pivot: bool,

    /// Give up and roll back when the switch has not begun after this time, such as 2h or 1h30m
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    pub deadline: Option<Duration>,

    /// Name of the volume at the destination; the source's name without it
    #[arg(long, value_name = "NAME")]
    pub destination_volume: Option<String>,

    /// Move although this checkpoint's bitmaps are lost; may be given more than once
    #[arg(long, value_name = "NAME")]
    pub allow_checkpoint_loss: Vec<String>,

    /// A volume that no domain uses, instead of a domain's disk
    #[arg(long, value_name = "POOL/NAME", requires = "format")]
    #[arg(conflicts_with_all = ["live", "write_blocking", "allow_checkpoint_loss"])]
    pub volume: Option<String>,

    /// The format of that volume, raw or qcow2; it is never guessed
    #[arg(
        long,
        value_name = "FORMAT",
        value_enum,
        hide_possible_values = true,
        requires = "volume"
    )]
    pub format: Option<ImageFormat>,

    /// How that volume is encrypted, which is never guessed either: luks1-qemu, luks1-librbd or
    /// luks2-librbd; not needed for qcow2
    #[arg(long, value_name = "KIND", requires = "volume", help_heading = ENCRYPTION)]
    pub volume_encryption: Option<HeaderKind>,

    /// Refuse a volume that holds another number of bytes for a guest, such as 10GiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub expect_size: Option<Bytes>,

    /// Only while the guest runs; without it, the disk of a stopped domain is copied offline
    #[arg(long)]
    pub live: bool,

    /// Offline: remove the source without comparing it with its copy
    #[arg(long)]
    pub no_compare: bool,

    /// How to copy: auto, mirror or handover; without it the agent chooses
    #[arg(long, value_name = "METHOD", value_enum, default_value = "auto")]
    #[arg(hide_possible_values = true, hide_default_value = true)]
    pub method: CopyMethod,

    /// A file with one [[pool]] table, as the configuration has it but without a key: the
    /// destination pool itself, where the agent lets requests bring pools along
    #[arg(long, value_name = "FILE", conflicts_with = "to")]
    pub to_pool_file: Option<PathBuf>,

    /// Limits of the disk from the switch on, by libvirt's names: total_bytes_sec=100MiB,
    /// total_iops_sec=500; 0 lifts one, what is not named stays
    #[arg(long, value_name = "NAME=VALUE,..")]
    pub iotune: Option<IoTune>,

    /// File with the passphrase of an encrypted disk, every byte of it; the destination gets the
    /// same one
    #[arg(long, value_name = "FILE", help_heading = ENCRYPTION)]
    pub passphrase_file: Option<PathBuf>,

    /// File with another passphrase for the destination, also for a disk that has none
    #[arg(long, value_name = "FILE", help_heading = ENCRYPTION)]
    pub dest_passphrase_file: Option<PathBuf>,

    /// What the destination may be encrypted with: luks1-qemu, luks2-librbd; without it
    /// luks1-qemu in file pools and luks2-librbd on RBD
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = ENCRYPTION)]
    pub accept_encryption: Vec<EncryptionScheme>,

    /// Write the data of an encrypted disk to the destination in plain text
    #[arg(long, conflicts_with = "dest_passphrase_file", help_heading = ENCRYPTION)]
    pub decrypt: bool,
}

/// The format of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ImageFormat {
    /// No header
    Raw,
    /// QEMU's copy-on-write format
    Qcow2,
}

/// `volferry migrate`.
#[derive(Debug, Args)]
#[command(override_usage = "volferry migrate [OPTIONS] --to <POOL> <DOMAIN> <DISK>
       volferry migrate [OPTIONS] --to <POOL> --volume <POOL/NAME> --format <raw|qcow2>")]
#[command(after_help = "Progress goes to standard error: a bar on a terminal, lines otherwise.
The summary goes to standard output. With --output json, standard output has one
object a line: {\"event\": \"state\" | \"progress\" | \"note\" | \"final\", ..}; all but notes
carry the whole \"operation\", the shape of `volferry ops show`. \"final\" is the last, or
{\"event\": \"error\", \"error\": ..} when there is no operation or its end is not known.

Ctrl-C asks once; a second one within 5 s cancels. Without a terminal, the first
Ctrl-C or SIGTERM cancels. Either way the command waits for the end.")]
pub struct MigrateArguments {
    /// The domain, by name or uuid: moved live while it runs, offline while it is stopped
    #[arg(required_unless_present = "volume", conflicts_with = "volume")]
    pub domain: Option<String>,

    /// The disk, by target (vda) or exact source (pool/image, a path)
    #[arg(required_unless_present = "volume", conflicts_with = "volume")]
    pub disk: Option<String>,

    /// The destination pool
    #[arg(long, value_name = "POOL", required_unless_present = "to_pool_file")]
    pub to: Option<String>,

    #[command(flatten)]
    pub options: RequestOptions,

    /// Return once the operation is accepted
    #[arg(long)]
    pub detach: bool,

    /// Id of the operation, for retries that find the same one; made up without it
    #[arg(long, value_name = "ID")]
    pub operation_id: Option<OperationId>,
}

/// `volferry plan`.
#[derive(Debug, Args)]
#[command(override_usage = "volferry plan [OPTIONS] --to <POOL> <DOMAIN> <DISK>
       volferry plan [OPTIONS] --to <POOL> --volume <POOL/NAME> --format <raw|qcow2>
       volferry plan --domain-xml <FILE> --disk <TARGET> --to <POOL> --config <FILE>")]
#[command(
    after_help = "Exit code 0: accepted, 3: refused. The last form asks no agent and no libvirt:
what it could not look at is listed under \"unchecked\"."
)]
pub struct PlanArguments {
    /// The domain, by name or uuid
    #[arg(required_unless_present_any = ["domain_xml", "volume"])]
    #[arg(conflicts_with_all = ["domain_xml", "volume"])]
    pub domain: Option<String>,

    /// The disk, by target or exact source
    #[arg(value_name = "DISK", id = "DISK")]
    #[arg(required_unless_present_any = ["domain_xml", "volume"])]
    #[arg(conflicts_with_all = ["domain_xml", "volume"])]
    pub online_disk: Option<String>,

    /// The destination pool
    #[arg(long, value_name = "POOL", required_unless_present = "to_pool_file")]
    pub to: Option<String>,

    #[command(flatten)]
    pub options: RequestOptions,

    /// A domain's XML, to plan without an agent
    #[arg(long, value_name = "FILE", requires = "disk", requires = "config")]
    #[arg(conflicts_with_all = ["bandwidth", "keep_source", "manual_pivot", "deadline", "allow_checkpoint_loss"])]
    #[arg(conflicts_with_all = ["keep_source_name", "delete_source_snapshots", "iotune"])]
    #[arg(conflicts_with_all = ["volume", "live", "no_compare", "to_pool_file", "method"])]
    #[arg(conflicts_with_all = ["expect_size"])]
    pub domain_xml: Option<PathBuf>,

    /// The disk in that XML, by target
    #[arg(long, value_name = "TARGET", requires = "domain_xml")]
    pub disk: Option<String>,

    /// The configuration with the pools
    #[arg(long, value_name = "FILE", requires = "domain_xml")]
    pub config: Option<PathBuf>,
}

/// A plan without an agent.
#[derive(Debug, Clone)]
pub struct OfflinePlan {
    pub domain_xml: PathBuf,
    pub disk: String,
    pub to: String,
    pub config: PathBuf,
    pub destination_volume: Option<String>,
    pub write_blocking: bool,
    pub encryption: EncryptionWish,
}

impl PlanArguments {
    /// The offline form, when it was asked for.
    pub fn offline(&self) -> Result<Option<OfflinePlan>, Failure> {
        match (&self.domain_xml, &self.disk, &self.config) {
            (None, ..) => Ok(None),
            (Some(domain_xml), Some(disk), Some(config)) => Ok(Some(OfflinePlan {
                domain_xml: domain_xml.clone(),
                disk: disk.clone(),
                to: self.to.clone().unwrap_or_default(),
                config: config.clone(),
                destination_volume: self.options.destination_volume.clone(),
                write_blocking: self.options.write_blocking,
                encryption: EncryptionWish {
                    source_passphrase: self.options.passphrase_file.is_some(),
                    destination_passphrase: self.options.dest_passphrase_file.is_some(),
                    accept: self.options.accept_encryption.iter().copied().collect(),
                    decrypt: self.options.decrypt,
                },
            })),
            _ => Err(Failure::new(Exit::Usage, "--domain-xml needs --disk and --config")),
        }
    }
}

/// `volferry ops`.
#[derive(Debug, Subcommand)]
pub enum OpsCommand {
    /// List operations, newest first, and where each volume is
    List {
        /// Only those that have not ended
        #[arg(long)]
        running: bool,
        /// Only those of this domain
        #[arg(long, value_name = "DOMAIN")]
        domain: Option<String>,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 50,
              value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// Show one operation whole
    Show {
        /// The operation
        id: String,
    },
    /// Follow operations to their ends; Ctrl-C stops following, not the operations
    Watch {
        /// The operations; without one, all that run now. The exit code is that of the worst end
        #[arg(value_name = "ID")]
        ids: Vec<String>,
    },
    /// Ask an operation to undo what it did and end; possible until the switch begins
    Cancel {
        /// The operation
        id: String,
    },
    /// Let an operation that was started with --manual-pivot switch the guest
    Pivot {
        /// The operation
        id: String,
    },
    /// Change the limit of a copy
    SetBandwidth {
        /// The operation
        id: String,
        /// The limit, such as 200MiB/s, or none
        #[arg(value_name = "RATE", value_parser = limit)]
        limit: Limit,
    },
    /// Ask QEMU again about an operation that needs an operator; with proof it ends by itself
    Settle {
        /// The operation
        id: String,
    },
    /// Decide which volume is the disk's, of an operation that needs an operator
    ///
    /// Without --keep, the evidence is shown and nothing is changed. The stored definition is made to
    /// name the volume that is kept; refused while QEMU uses the other one.
    Resolve {
        /// The operation
        id: String,
        /// The volume to keep
        #[arg(long, value_name = "VOLUME", value_enum)]
        keep: Option<Keep>,
        /// Remove the other volume too, if it still is the recorded one and no domain uses it
        #[arg(long, requires = "keep")]
        remove_other: bool,
    },
}

/// One of an operation's two volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Keep {
    /// The disk stays where it was
    Source,
    /// The disk has moved
    Destination,
}

/// `volferry leftovers`.
#[derive(Debug, Subcommand)]
pub enum LeftoversCommand {
    /// List what operations could not remove, oldest first
    List,
    /// Try once more to remove it, if it still is the recorded volume and no domain uses it
    ///
    /// Exit code 0: it is gone; 1: it stays, and the answer says why.
    Retry {
        /// The leftover
        id: String,
    },
    /// Drop the record and touch nothing else
    Forget {
        /// The leftover
        id: String,
    },
}

/// A limit or explicitly none.
#[derive(Debug, Clone, Copy)]
pub struct Limit(pub Option<BytesPerSecond>);

/// A size that something can have.
fn size(text: &str) -> Result<Bytes, String> {
    match text.parse::<Bytes>() {
        Ok(Bytes(0)) => Err("nothing has a size of zero".to_owned()),
        Ok(size) => Ok(size),
        Err(error) => Err(error.to_string()),
    }
}

fn limit(text: &str) -> Result<Limit, String> {
    match text {
        "none" => Ok(Limit(None)),
        rate => rate.parse().map(|rate| Limit(Some(rate))).map_err(|error| format!("{error}")),
    }
}

/// `volferry cloudstack`.
#[derive(Debug, Subcommand)]
pub enum CloudstackCommand {
    /// Carry out the MigrateVolumeCommand or CopyCommand on standard input, and print its answer
    ///
    /// An answer is printed in every case. Exit code 0: its result is true; 1: it is false, and its
    /// details say why; 2: what was read is no command, and the answer says so.
    Run(CloudstackArguments),
}

/// `volferry cloudstack run`.
#[derive(Debug, Args)]
pub struct CloudstackArguments {
    /// The folder in which this host mounts NFS pools, each under its uuid
    #[arg(long, value_name = "FOLDER", default_value = "/mnt")]
    pub mounts: PathBuf,

    /// Take no notice of fields that are not known, instead of answering that they are not
    #[arg(long)]
    pub ignore_unknown: bool,

    /// The id of the operation, so that the same command sent again is the same operation
    #[arg(long, value_name = "ID")]
    pub operation_id: Option<OperationId>,
}

/// `volferry rbd`.
#[derive(Debug, Subcommand)]
pub enum RbdCommand {
    /// Write a list of monitors for ceph.conf, QEMU or libvirt
    Monitors(MonitorsArguments),
}

/// `volferry rbd monitors`.
#[derive(Debug, Args)]
pub struct MonitorsArguments {
    /// The monitors, separated by commas, semicolons, spaces or line ends
    #[arg(allow_hyphen_values = true)]
    pub list: String,

    /// Port of every monitor that names none; 0 leaves it to Ceph
    #[arg(long, value_name = "N")]
    pub port: u32,

    /// list: for ceph.conf; qemu: for mon_host= in an rbd: string; hosts: name and port a line
    #[arg(long = "as", value_name = "FORM", value_enum, hide_possible_values = true)]
    pub form: MonitorsForm,
}

/// Whom the monitors are written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MonitorsForm {
    /// ceph.conf
    List,
    /// The value of mon_host= inside QEMU's rbd: string
    Qemu,
    /// libvirt's <host> elements
    Hosts,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
