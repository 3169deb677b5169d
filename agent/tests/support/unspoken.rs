//! What must never be said or written down: looked for in what was shown and in every file beside the journal.

use volferry_agent::fake::Stage;

/// Neither `shown` nor any file of the agent's folder has the text in it.
pub fn nothing_tells(stage: &Stage, shown: &str, text: &str) {
    assert!(!shown.contains(text), "{shown}");
    assert_eq!(files_with(stage, text), 0);
    // The search finds what is there: a text the journal is full of, and the one it looks for.
    assert!(files_with(stage, "preparation-began") > 0, "nobody looked into the journal");
    let planted = stage.folder().join("planted");
    std::fs::write(&planted, format!("{{\"x\":\"{text}\"}}")).expect("the folder can be written");
    assert_eq!(files_with(stage, text), 1);
    std::fs::remove_file(planted).expect("it was just made");
}

fn files_with(stage: &Stage, text: &str) -> usize {
    let files = std::fs::read_dir(stage.folder()).expect("the journal's folder");
    let found = files.filter(|entry| {
        let path = entry.as_ref().expect("an entry").path();
        let bytes = std::fs::read(path).expect("a readable file");
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    });
    found.count()
}
