//! Time: whole seconds of the log spread out, trace time compressed to run time.

use std::time::Duration;

use crate::trace::Request;

const SECOND: u64 = 1_000_000_000;

/// Replaces whole seconds (in `at`, ascending) by nanoseconds: the n requests logged in one second
/// stand 1/n s apart, the first of them at the second's beginning. Gives the time covered, the last
/// second included in full.
pub(crate) fn spread_within_seconds(requests: &mut [Request]) -> u64 {
    let span = requests.last().map_or(0, |r| (r.at + 1) * SECOND);
    for second in requests.chunk_by_mut(|a, b| a.at == b.at) {
        let count = second.len() as u64;
        for (place, request) in (0_u64..).zip(second) {
            request.at = request.at * SECOND + place * SECOND / count;
        }
    }
    span
}

/// Gives requests without times an even rate, in requests a second; and the time covered.
pub(crate) fn spread_evenly(requests: &mut [Request], rate: f64) -> u64 {
    let step = SECOND as f64 / rate;
    for (place, request) in requests.iter_mut().enumerate() {
        request.at = (place as f64 * step) as u64;
    }
    (requests.len() as f64 * step) as u64
}

/// How trace time becomes run time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compression {
    /// Trace time passes this many times faster than it was logged.
    pub(crate) speed: f64,
    /// Lifetimes are divided by this, and by `speed` as all trace time is.
    pub(crate) lifetime_factor: f64,
}

impl Compression {
    /// The run time of a point in trace time, both since the beginning.
    pub(crate) fn time(self, trace_nanos: u64) -> Duration {
        Duration::from_nanos((trace_nanos as f64 / self.speed) as u64)
    }

    /// The lifetime in the run of one of `seconds` in the trace, at least 1 ns; none for 0.
    pub(crate) fn lifetime(self, seconds: u32) -> Option<Duration> {
        let nanos = f64::from(seconds) * SECOND as f64 / (self.speed * self.lifetime_factor);
        (seconds > 0).then(|| Duration::from_nanos((nanos as u64).max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Op;

    fn at_seconds(seconds: &[u64]) -> Vec<Request> {
        let request = |&at| Request {
            key: 1,
            at,
            size: 1,
            ttl: 1,
            op: Op::Fetch,
        };
        seconds.iter().map(request).collect()
    }

    fn times(requests: &[Request]) -> Vec<u64> {
        requests.iter().map(|r| r.at).collect()
    }

    #[test]
    fn requests_of_one_second_stand_evenly_apart_and_never_leave_it() {
        let mut requests = at_seconds(&[0, 0, 0, 0, 1, 3, 3, 3]);
        assert_eq!(spread_within_seconds(&mut requests), 4 * SECOND);
        assert_eq!(
            times(&requests),
            [
                0,
                250_000_000,
                500_000_000,
                750_000_000,
                1_000_000_000,
                3_000_000_000,
                3_333_333_333,
                3_666_666_666
            ]
        );
    }

    #[test]
    fn a_crowded_second_keeps_its_order() {
        let mut requests = at_seconds(&[7; 3_000]);
        assert_eq!(spread_within_seconds(&mut requests), 8 * SECOND);
        assert!(times(&requests).is_sorted());
        assert!(times(&requests).iter().all(|at| at / SECOND == 7));
    }

    #[test]
    fn no_requests_cover_no_time() {
        assert_eq!(spread_within_seconds(&mut []), 0);
        assert_eq!(spread_evenly(&mut [], 5.0), 0);
    }

    #[test]
    fn an_even_rate_has_even_steps() {
        let mut requests = at_seconds(&[0; 5]);
        assert_eq!(spread_evenly(&mut requests, 4.0), SECOND * 5 / 4);
        assert_eq!(
            times(&requests),
            [0, 250_000_000, 500_000_000, 750_000_000, 1_000_000_000]
        );
    }

    #[test]
    fn lifetimes_are_divided_by_both_factors_and_times_by_one() {
        let compression = Compression {
            speed: 25.0,
            lifetime_factor: 600.0,
        };
        assert_eq!(compression.time(50 * SECOND), Duration::from_secs(2));
        assert_eq!(
            compression.lifetime(86_400),
            Some(Duration::from_millis(5_760))
        );
        assert_eq!(compression.lifetime(0), None);
        let steep = Compression {
            speed: 1e9,
            lifetime_factor: 1e9,
        };
        assert_eq!(steep.lifetime(1), Some(Duration::from_nanos(1)));
    }
}
