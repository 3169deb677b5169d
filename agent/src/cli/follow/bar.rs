//! The progress bar, on standard error.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::Reporter;
use crate::api::pb;
use crate::cli::output::Output;
use crate::cli::render::progress;

const COPYING: &str = "{prefix} [{bar:20}] {wide_msg}";
const WAITING: &str = "{prefix} {spinner} {wide_msg}";

/// One line that is drawn over and over.
#[derive(Debug)]
pub struct Bar {
    bar: ProgressBar,
    copying: bool,
}

impl Bar {
    /// A bar without content, below those there are.
    pub fn among(bars: &MultiProgress) -> Self {
        let bar = bars.add(ProgressBar::new(100));
        bar.set_style(style(WAITING));
        bar.enable_steady_tick(Duration::from_millis(250));
        Self { bar, copying: false }
    }
}

impl Reporter for Bar {
    fn change(&mut self, operation: &pb::Operation, _output: &mut Output) {
        let share = progress::percent(operation);
        self.bar.set_prefix(progress::subject(operation));
        self.bar.set_position(share.unwrap_or(0));
        self.bar.set_message(progress::sentence(operation));
        if self.copying != share.is_some() {
            self.copying = share.is_some();
            self.bar.set_style(style(if self.copying { COPYING } else { WAITING }));
        }
    }

    fn note(&mut self, text: &str, _output: &mut Output) {
        self.bar.println(text);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_are_valid() {
        for template in [COPYING, WAITING] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }
}
