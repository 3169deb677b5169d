//! Spans of time as people write and read them: `90s`, `15m`, `1h30m`.

use std::time::Duration;

/// Reads `NUMBER UNIT` once or more, largest unit first, units d, h, m, s. Zero is no span.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time, such as 90s, 15m, 2h or 1h30m");
    let mut rest = text.trim();
    let mut seconds: u64 = 0;
    let mut largest = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, after) = rest.split_at(digits);
        let unit = match after.as_bytes().first() {
            Some(b'd') => 86_400,
            Some(b'h') => 3_600,
            Some(b'm') => 60,
            Some(b's') => 1,
            _ => return Err(wrong()),
        };
        if unit >= largest {
            return Err(wrong());
        }
        largest = unit;
        let span = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
        seconds = span.and_then(|span| seconds.checked_add(span)).ok_or_else(wrong)?;
        rest = &after[1..];
    }
    match seconds {
        0 => Err(wrong()),
        seconds => Ok(Duration::from_secs(seconds)),
    }
}

/// A span in its two largest units; below a minute with a fraction.
pub fn humane(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 => format!("{} ms", span.as_millis()),
        1..60 => format!("{}.{} s", seconds, span.subsec_millis() / 100),
        60..3_600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {:02} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {:02} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read() {
        let seconds = |text| parse(text).map(|span| span.as_secs()).ok();
        assert_eq!(seconds("90s"), Some(90));
        assert_eq!(seconds("15m"), Some(900));
        assert_eq!(seconds("2h"), Some(7_200));
        assert_eq!(seconds("1h30m"), Some(5_400));
        assert_eq!(seconds("1d1s"), Some(86_401));
        for bad in
            ["", "0s", "90", "s", "-1s", "1.5h", "1m1h", "1h1h", "1é", "9999999999999999999d"]
        {
            assert_eq!(seconds(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn spans_are_written() {
        let texts: Vec<_> = [12, 1_250, 61_000, 5_400_000, 90_000_000]
            .map(|ms| humane(Duration::from_millis(ms)))
            .into();
        assert_eq!(texts, ["12 ms", "1.2 s", "1 min 01 s", "1 h 30 min", "1 d 01 h"]);
    }
}
