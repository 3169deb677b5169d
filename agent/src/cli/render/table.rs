//! Tables that fit eighty columns: one column gives way.

use crate::cli::output::{Output, Tone, one_line};

const WIDTH: usize = 80;
const GAP: usize = 2;
/// A column that gives way keeps at least this much.
const LEAST: usize = 8;

/// A cell with its tone.
pub type Cell = (String, Tone);

/// A cell without colour.
pub fn cell(text: impl AsRef<str>) -> Cell {
    (one_line(text.as_ref()), Tone::Plain)
}

/// Prints rows under headings. The column `gives_way` is cut when a row would be too wide.
pub fn print(headings: &[&str], rows: &[Vec<Cell>], gives_way: usize, output: &mut Output) {
    let mut widths: Vec<usize> = headings.iter().map(|heading| width(heading)).collect();
    for row in rows {
        for (column, (text, _)) in row.iter().enumerate() {
            widths[column] = widths[column].max(width(text));
        }
    }
    let others: usize =
        widths.iter().enumerate().filter(|(column, _)| *column != gives_way).map(|(_, w)| w).sum();
    let left = WIDTH.saturating_sub(others + GAP * (widths.len() - 1));
    widths[gives_way] = widths[gives_way].min(left.max(LEAST));
    let headings: Vec<Cell> = headings.iter().map(cell).collect();
    for row in std::iter::once(&headings).chain(rows) {
        let line = line(row, &widths, output);
        output.line(&line);
    }
}

fn line(row: &[Cell], widths: &[usize], output: &Output) -> String {
    let mut line = String::new();
    let mut padding = 0;
    for ((text, tone), room) in row.iter().zip(widths) {
        line.extend(std::iter::repeat_n(' ', padding));
        let text = cut(text, *room);
        padding = room - width(&text) + GAP;
        line.push_str(&output.paint(&text, *tone));
    }
    line.truncate(line.trim_end().len());
    line
}

fn width(text: &str) -> usize {
    text.chars().count()
}

fn cut(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    text.chars().take(room.saturating_sub(1)).chain(['~']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::arguments::Format;

    #[test]
    fn a_cut_cell_says_so() {
        assert_eq!(cut("Söhne & Co", 5), "Söhn~");
        assert_eq!(cut("abc", 3), "abc");
    }

    #[test]
    fn cells_are_padded_and_lines_are_not() {
        let output = Output::new(Format::Text);
        let row = [cell("a"), cell("bc"), cell("d")];
        assert_eq!(line(&row, &[3, 2, 5], &output), "a    bc  d");
    }
}
