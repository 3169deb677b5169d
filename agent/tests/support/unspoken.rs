//! What must never be said or written down: looked for in what was shown and in every file beside the journal.

use volferry_agent::fake::Stage;

/// Neither `shown` nor any file of the agent's folder has the text in it.
pub fn nothing_tells(stage: &Stage, shown: &str, text: &str) {
    assert!(!shown.contains(text), "{shown}");
    let mut files = 0;
    for entry in std::fs::read_dir(stage.folder()).expect("the journal's folder") {
        let bytes = std::fs::read(entry.expect("an entry").path()).expect("a readable file");
        assert!(!bytes.windows(text.len()).any(|window| window == text.as_bytes()));
        files += 1;
    }
    assert!(files > 0);
}
