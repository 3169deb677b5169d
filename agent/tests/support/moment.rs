//! Where in an operation a point of the programmable world lies at which the agent is killed.

/// The four moments of a step.
pub const MOMENTS: [&str; 4] = ["before intent", "after intent", "after effect", "after result"];

/// The step a point belongs to, and which moment of it. The steps come from the records of the run itself: a write is
/// named by what it says, `append intent pivot`.
pub fn moment(points: &[String]) -> (String, &'static str) {
    let here = points.last().cloned().unwrap_or_default();
    let named = |text: &str, word: &str| {
        let rest = text.rsplit_once(word)?.1;
        rest.split(' ').next().map(str::to_owned)
    };
    let before = here.starts_with("before");
    if let Some(step) = named(&here, " intent ") {
        return (step, if before { "before intent" } else { "after intent" });
    }
    if let Some(step) = named(&here, " done ") {
        return (step, if before { "after effect" } else { "after result" });
    }
    let last = points.iter().rev().find_map(|point| named(point, " intent "));
    let moment = match (here.contains(" append"), before) {
        (true, _) => "between",
        (false, true) => "after intent",
        (false, false) => "after effect",
    };
    (last.unwrap_or_else(|| "none".to_owned()), moment)
}
