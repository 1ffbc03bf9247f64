use crate::{HOUR, MILLISECOND, MINUTE, SECOND};

/// Reports whether an expression is valid: in the form of
/// [`crate::Schedule::Cron`], or `@every` and a duration such as `@every
/// 1h30m`. Use it to check a caller's expression before you set it. It cannot
/// check time zones, which only the host knows.
pub fn valid_schedule(expression: &str) -> bool {
    if expression.len() > 255 {
        return false;
    }
    if let Some(text) = expression.strip_prefix("@every ") {
        let (least, most) = (100 * MILLISECOND, 10 * 366 * 24 * HOUR);
        return period(text).map_or(false, |n| n >= least as f64 && n <= most as f64);
    }
    if ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"].contains(&expression) {
        return true;
    }
    let (mut sets, mut stars, mut n) = ([0u64; 5], [false; 5], 0);
    for part in expression.split(|c| matches!(c, ' ' | '\t'..='\r')).filter(|part| !part.is_empty()) {
        if n == 5 {
            return false;
        }
        match FIELDS[n].parse(part) {
            Some(set) => sets[n] = set,
            None => return false,
        }
        stars[n] = part.starts_with('*');
        n += 1;
    }
    n == 5 && (!stars[2] && !stars[4] || comes(sets[2], sets[3], sets[4]))
}

/// A duration in nanoseconds.
fn period(text: &str) -> Option<f64> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut sum = 0.0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let count: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let unit = match &rest[..end] {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => MILLISECOND,
            "s" => SECOND,
            "m" => MINUTE,
            "h" => HOUR,
            _ => return None,
        };
        sum += count * unit as f64;
        rest = &rest[end..];
    }
    Some(sum)
}

/// Reports whether one of the days occurs in one of the months on one of the
/// weekdays. It checks ten years, as the host does.
fn comes(days: u64, months: u64, weekdays: u64) -> bool {
    let weekdays = weekdays | weekdays >> 7; // Sunday is both 0 and 7
    let mut weekday = 6; // of 1 January 2000
    for year in 0..10 {
        for (month, last) in [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31].iter().enumerate() {
            let leap = (month == 1 && year % 4 == 0) as i32;
            for day in 1..=last + leap {
                if months >> (month + 1) & days >> day & weekdays >> weekday & 1 != 0 {
                    return true;
                }
                weekday = (weekday + 1) % 7;
            }
        }
    }
    false
}

/// The range and the names that a field of an expression allows.
struct Field {
    low: u32,
    high: u32,
    /// Starting at `low`.
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field { low: 0, high: 59, names: &[] },
    Field { low: 0, high: 23, names: &[] },
    Field { low: 1, high: 31, names: &[] },
    Field { low: 1, high: 12, names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"] },
    Field { low: 0, high: 7, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

impl Field {
    /// The numbers of a list of ranges, as bits.
    fn parse(&self, text: &str) -> Option<u64> {
        let mut all = 0;
        for part in text.split(',') {
            let (span, step) = match part.split_once('/') {
                Some((span, step)) => (span, Some(number(step).filter(|n| (1..=self.high).contains(n))?)),
                None => (part, None),
            };
            let (mut low, mut high) = (self.low, self.high);
            if span != "*" {
                if let Some((first, last)) = span.split_once('-') {
                    low = self.value(first)?;
                    high = self.value(last)?;
                } else {
                    low = self.value(span)?;
                    if step.is_none() {
                        high = low;
                    }
                }
            }
            if high < low {
                return None;
            }
            for n in (low..=high).step_by(step.unwrap_or(1) as usize) {
                all |= 1 << n;
            }
        }
        Some(all)
    }

    fn value(&self, text: &str) -> Option<u32> {
        if let Some(at) = self.names.iter().position(|name| text.eq_ignore_ascii_case(name)) {
            return Some(self.low + at as u32);
        }
        number(text).filter(|n| (self.low..=self.high).contains(n))
    }
}

/// Parses up to three digits, and nothing else.
fn number(text: &str) -> Option<u32> {
    if text.len() > 3 || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::valid_schedule;

    #[test]
    fn schedules_are_read_as_by_the_host() {
        for expression in VALID {
            assert!(valid_schedule(expression), "{}", expression);
        }
        for expression in NOT_VALID {
            assert!(!valid_schedule(expression), "{}", expression);
        }
    }

    const VALID: [&str; 17] = [
        "* * * * *", " 0\t3 * * mon-fri ", "*/15 8-18/2 1,15 JAN-Mar,dec 7", "0 0 29 2 *", "0 0 31 2 mon", "0 0 */31 2 tue", "5/10 * * * *",
        "007 0 1 1 sat", "@daily", "@midnight", "@yearly", "@every 100ms", "@every 1h30m", "@every +.5h1.5s", "@every 87840h", "@every 100000µs",
        "@every 100000000ns",
    ];
    const NOT_VALID: [&str; 31] = [
        "", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "5-1 * * * *", "*/0 * * * *",
        "*/-1 * * * *", "*/60 * * * *", "+1 * * * *", "1, * * * *", "1-2-3 * * * *", "1/2/3 * * * *", "0001 * * * *", "* * * * unm", "mon * * * *",
        "0 0 31 2 *", "0 0 */31 2 mon", "@reboot", "@Daily", "@every", "@every 1ms", "@every 87841h", "@every -5s", "@every 5", "@every 1d",
        "@every 1.2.3s", "@every .s",
    ];
}
