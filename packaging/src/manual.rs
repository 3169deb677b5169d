//! The manual pages: volferry(1) and one for each of its commands, volferryd(8), and volferry.toml(5), which is the
//! example configuration set in type.

use std::io;

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use volferry_agent::cli;
use volferry_agent::daemon::DaemonArguments;

use crate::{MakeError, configuration};

/// A manual page.
#[derive(Debug)]
pub struct Page {
    /// Its file name, such as `volferry.1`.
    pub name: String,
    /// Its text.
    pub text: Vec<u8>,
}

/// Every page.
pub fn pages() -> Result<Vec<Page>, MakeError> {
    // A page for each command, and none for `help`.
    let mut command =
        cli::Arguments::command().mut_subcommands(|below| below.disable_help_subcommand(true));
    command.build();
    let mut pages = Vec::new();
    of_command(&command, "volferry", &mut pages)?;
    pages.push(daemon()?);
    pages.push(configuration()?);
    Ok(pages)
}

fn render(io: io::Error) -> MakeError {
    MakeError::Render("a manual page", io)
}

/// A command's page and those of the commands below it.
fn of_command(command: &Command, name: &str, pages: &mut Vec<Page>) -> Result<(), MakeError> {
    let man = Man::new(command.clone()).section("1").manual("volferry").source(source());
    let mut text = Vec::new();
    man.render(&mut text).map_err(render)?;
    let mut see = Roff::new();
    see.control("SH", ["SEE ALSO"]);
    let above = name.rsplit_once('-').map(|(above, _)| format!("{above}(1)"));
    let others =
        above.into_iter().chain(["volferryd(8)".to_owned(), "volferry.toml(5)".to_owned()]);
    see.text([roman(others.collect::<Vec<_>>().join(", "))]);
    see.to_writer(&mut text).map_err(render)?;
    pages.push(Page { name: format!("{name}.1"), text });
    for below in command.get_subcommands() {
        of_command(below, &format!("{name}-{}", below.get_name()), pages)?;
    }
    Ok(())
}

fn source() -> &'static str {
    concat!("volferry ", env!("CARGO_PKG_VERSION"))
}

const DAEMON: &[(&str, &[&str])] = &[
    (
        "SIGNALS",
        &[
            "SIGHUP reads the configuration and the certificates anew; what cannot be used changes nothing, and operations \
             that run are not touched.",
            "SIGTERM and SIGINT end the daemon. Copies of running guests go on in QEMU; the next start takes them up again.",
        ],
    ),
    (
        "ENVIRONMENT",
        &["VOLFERRY_LOG filters the log, such as info (the default) or volferry_agent=debug."],
    ),
    (
        "FILES",
        &[
            "/etc/volferry/volferry.toml: the configuration, volferry.toml(5).",
            "/var/lib/volferry: the journal. Without it nobody knows which operations there are; it is not to be removed \
             while volumes move.",
            "/run/volferry/volferry.sock: the socket volferry(1) talks to.",
        ],
    ),
    ("SEE ALSO", &["volferry(1), volferry.toml(5), systemctl(1)"]),
];

fn daemon() -> Result<Page, MakeError> {
    let man = Man::new(DaemonArguments::command()).section("8").manual("volferry").source(source());
    let mut text = Vec::new();
    man.render(&mut text).map_err(render)?;
    let mut roff = Roff::new();
    for (title, paragraphs) in DAEMON {
        roff.control("SH", [*title]);
        for paragraph in *paragraphs {
            roff.control("PP", []);
            roff.text([roman(*paragraph)]);
        }
    }
    roff.to_writer(&mut text).map_err(render)?;
    Ok(Page { name: "volferryd.8".to_owned(), text })
}

/// The example, block by block: what is said of the keys as text, the keys as they are written.
fn configuration() -> Result<Page, MakeError> {
    let path = configuration::example();
    let example = std::fs::read_to_string(&path).map_err(MakeError::at(&path))?;
    let mut roff = Roff::new();
    roff.control("TH", ["volferry.toml", "5", "", source(), "volferry"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman("volferry.toml - configuration of volferryd")]);
    roff.control("SH", ["SYNOPSIS"]);
    roff.text([bold("/etc/volferry/volferry.toml")]);
    roff.control("SH", ["DESCRIPTION"]);
    for block in example.split("\n\n").filter(|block| !block.trim().is_empty()) {
        set_block(&mut roff, block);
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman("volferryd(8), volferry(1)")]);
    let mut text = Vec::new();
    roff.to_writer(&mut text).map_err(render)?;
    Ok(Page { name: "volferry.toml.5".to_owned(), text })
}

/// One block of the example, which is comments and then keys; a comment without a blank after its `#` is a key that has
/// its default there.
fn set_block(roff: &mut Roff, block: &str) {
    let is_text = |line: &&str| *line == "#" || line.starts_with("# ");
    let (said, keys): (Vec<&str>, Vec<&str>) = block.lines().partition(is_text);
    for paragraph in said.split(|line| *line == "#").filter(|lines| !lines.is_empty()) {
        roff.control("PP", []);
        let words: Vec<&str> = paragraph.iter().map(|line| line.trim_start_matches("# ")).collect();
        roff.text([roman(words.join(" "))]);
    }
    if keys.is_empty() {
        return;
    }
    roff.control("PP", []);
    roff.control("RS", ["4"]);
    roff.control("nf", []);
    for key in keys {
        roff.text([roman(key.trim_start_matches('#'))]);
    }
    roff.control("fi", []);
    roff.control("RE", []);
}
