//! One run of qemu-img: ended when its future is dropped, and by the kernel when this process dies.

use std::io;
use std::path::Path;
use std::process::ExitStatus;

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::host::qemu_img::alone;
use crate::ports::Done;
use crate::spec::Bytes;

/// What is kept of what it says.
const MOST_WORDS: usize = 16 * 1024;

/// How it ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// Its status.
    pub(super) status: ExitStatus,
    /// What it said besides its progress.
    pub(super) said: String,
    /// What it complained of.
    pub(super) complained: String,
}

/// Runs it to its end, telling how much of `size` is done.
///
/// `setpriv` asks the kernel to kill it when the thread that started it ends, which is one of the runtime's workers:
/// those live as long as this process.
///
/// Errors: it cannot be started.
pub(super) async fn run(
    program: &Path,
    words: &[&str],
    size: Bytes,
    done: &Done,
) -> io::Result<Ended> {
    let mut child = alone("setpriv")
        .args(["--pdeathsig", "KILL", "--"])
        .arg(program)
        .args(words)
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("cannot run setpriv: {error}")))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (said, complained, status) = tokio::join!(
        listen(stdout, |line| if let Some(share) = share_of(line) {
            done.send_replace(Bytes((size.0 as f64 * share) as u64));
        }),
        listen(stderr, |_| ()),
        child.wait(),
    );
    Ok(Ended { status: status?, said, complained })
}

/// Reads all that is said, line by line (a carriage return ends one too), and returns it without progress.
async fn listen(pipe: Option<impl AsyncRead + Unpin>, mut heard: impl FnMut(&str)) -> String {
    let Some(mut pipe) = pipe else { return String::new() };
    let (mut kept, mut line, mut buffer) = (String::new(), Vec::new(), [0; 4096]);
    loop {
        // A pipe that cannot be read any more has nothing more to say.
        let read = pipe.read(&mut buffer).await.unwrap_or(0);
        for byte in &buffer[..read] {
            match byte {
                b'\r' | b'\n' => end_line(&mut line, &mut kept, &mut heard),
                byte if line.len() < MOST_WORDS => line.push(*byte),
                _ => {}
            }
        }
        if read == 0 {
            end_line(&mut line, &mut kept, &mut heard);
            return kept;
        }
    }
}

fn end_line(line: &mut Vec<u8>, kept: &mut String, heard: &mut impl FnMut(&str)) {
    let text = String::from_utf8_lossy(line).trim().to_owned();
    line.clear();
    heard(&text);
    if text.is_empty() || share_of(&text).is_some() || kept.len() + text.len() > MOST_WORDS {
        return;
    }
    if !kept.is_empty() {
        kept.push_str("; ");
    }
    kept.push_str(&text);
}

/// `(12.34/100%)`.
fn share_of(line: &str) -> Option<f64> {
    let percent: f64 = line.strip_prefix('(')?.strip_suffix("/100%)")?.parse().ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::watch;

    use super::*;

    #[test]
    fn progress_is_read_and_nothing_else_is_taken_for_it() {
        assert_eq!(share_of("(25.00/100%)"), Some(0.25));
        for other in ["", "(x/100%)", "25.00/100%", "(101.00/100%)", "(NaN/100%)", "Images differ"]
        {
            assert_eq!(share_of(other), None, "{other}");
        }
    }

    #[tokio::test]
    async fn words_are_kept_and_progress_is_told() -> io::Result<()> {
        let (done, mut told) = watch::channel(Bytes(0));
        let script = "printf '    (10.00/100%%)\\r    (50.00/100%%)\\rImages differ\\n'; echo no >&2; exit 1";
        let ended = run(Path::new("sh"), &["-c", script], Bytes(200), &done).await?;
        assert_eq!((ended.status.code(), ended.said.as_str()), (Some(1), "Images differ"));
        assert_eq!(ended.complained, "no");
        assert_eq!(*told.borrow_and_update(), Bytes(100));
        Ok(())
    }

    #[tokio::test]
    async fn who_is_given_up_is_ended() -> io::Result<()> {
        let (done, _told) = watch::channel(Bytes(0));
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("pid");
        let script = format!("echo $$ > {}; exec sleep 300", file.display());
        let words = ["-c", script.as_str()];
        let running = run(Path::new("sh"), &words, Bytes(1), &done);
        let given_up = tokio::time::timeout(Duration::from_secs(2), running).await;
        assert!(given_up.is_err(), "it was still running");
        let pid = std::fs::read_to_string(&file)?;
        let alive = || {
            let text = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
            text.is_ok_and(|text| !text.contains(") Z "))
        };
        for _ in 0..200 {
            if !alive() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("process {pid} goes on");
    }
}
