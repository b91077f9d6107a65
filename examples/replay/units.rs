//! Numbers as people read and write them.

use std::time::Duration;

/// `1234567` as `1,234,567`.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Three significant digits: `1.23`, `12.3`, `123`, `1,230`.
fn significant(value: f64) -> String {
    if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        grouped(value.round() as u64)
    }
}

/// A time with its unit: `87 ns`, `1.23 µs`, `45.6 ms`, `2.88 s`, `1.5 h`, `14 d`.
pub(crate) fn time(duration: Duration) -> String {
    let nanos = duration.as_nanos() as f64;
    match nanos {
        ..999.5 => format!("{nanos:.0} ns"),
        ..999.5e3 => format!("{} µs", significant(nanos / 1e3)),
        ..999.5e6 => format!("{} ms", significant(nanos / 1e6)),
        ..3_600e9 => format!("{} s", significant(nanos / 1e9)),
        ..86_400e9 => format!("{} h", nanos / 3_600e9),
        _ => format!("{} d", nanos / 86_400e9),
    }
}

/// Nanoseconds as [`time`] shows them.
pub(crate) fn nanos(nanos: u64) -> String {
    time(Duration::from_nanos(nanos))
}

/// Bytes in decimal units: `512 B`, `1.23 kB`, `45.6 MB`.
pub(crate) fn bytes(n: u64) -> String {
    let value = n as f64;
    match value {
        ..1e3 => format!("{n} B"),
        ..999.5e3 => format!("{} kB", significant(value / 1e3)),
        ..999.5e6 => format!("{} MB", significant(value / 1e6)),
        _ => format!("{} GB", significant(value / 1e9)),
    }
}

/// `part` of `whole` in percent; a dash where there is no whole.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".to_owned();
    }
    format!("{:.2} %", part as f64 * 100.0 / whole as f64)
}

/// Reads a time such as `1ms`, `250us`, `2s`. More than zero.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let unit_at = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .ok_or("a unit is missing: write 500us, 1ms or 2s")?;
    let (number, unit) = text.split_at(unit_at);
    let scale = match unit.trim_start() {
        "ns" => 1e-9,
        "us" | "µs" | "μs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        _ => return Err(format!("\"{unit}\" is no unit: ns, us, ms, s or min")),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| format!("\"{number}\" is no number"))?;
    match Duration::try_from_secs_f64(number * scale) {
        Ok(duration) if duration.is_zero() => Err("must be more than zero".to_owned()),
        Ok(duration) => Ok(duration),
        Err(_) => Err("is out of range".to_owned()),
    }
}

/// Reads a finite number above zero, such as a factor.
pub(crate) fn parse_factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if n.is_finite() && n > 0.0 => Ok(n),
        Ok(_) => Err("must be more than zero".to_owned()),
        Err(_) => Err("is no number".to_owned()),
    }
}

/// Reads a share between 0 and 1.
pub(crate) fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if (0.0..=1.0).contains(&n) => Ok(n),
        Ok(_) => Err("must lie between 0 and 1".to_owned()),
        Err(_) => Err("is no number".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (n, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (12_345, "12,345"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(n), text);
        }
    }

    #[test]
    fn times_carry_three_digits_and_the_unit_that_fits() {
        for (n, text) in [
            (0, "0 ns"),
            (87, "87 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (9_996, "10.0 µs"),
            (123_456, "123 µs"),
            (999_600, "1.00 ms"),
            (2_880_000_000, "2.88 s"),
            (20_400_000_000, "20.4 s"),
            (43_200_000_000_000, "12 h"),
            (1_209_600_000_000_000, "14 d"),
        ] {
            assert_eq!(nanos(n), text);
        }
    }

    #[test]
    fn sizes_are_decimal() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_500), "1.50 kB");
        assert_eq!(bytes(999_600), "1.00 MB");
        assert_eq!(bytes(29_300_000), "29.3 MB");
        assert_eq!(bytes(4_000_000_000), "4.00 GB");
    }

    #[test]
    fn a_share_of_nothing_is_a_dash() {
        assert_eq!(percent(1, 3), "33.33 %");
        assert_eq!(percent(0, 0), "–");
    }

    #[test]
    fn times_are_read_with_their_unit() {
        assert_eq!(parse_time("1ms"), Ok(Duration::from_millis(1)));
        assert_eq!(parse_time("1.5 s"), Ok(Duration::from_millis(1_500)));
        assert_eq!(parse_time("250us"), Ok(Duration::from_micros(250)));
        for (text, part) in [
            ("5", "unit is missing"),
            ("5 hours", "no unit"),
            ("ms", "no number"),
            ("1.2.3s", "no number"),
            ("0s", "more than zero"),
            ("99999999999999999999999s", "out of range"),
        ] {
            let error = parse_time(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn factors_and_shares_are_checked() {
        assert_eq!(parse_factor("2.5"), Ok(2.5));
        assert!(
            ["0", "-1", "inf", "NaN", "x"]
                .iter()
                .all(|t| parse_factor(t).is_err())
        );
        assert_eq!(parse_share("0.25"), Ok(0.25));
        assert!(
            ["-0.1", "1.1", "NaN", "x"]
                .iter()
                .all(|t| parse_share(t).is_err())
        );
    }
}
