//! A day of members' sessions through the cache: without expiry, with a fixed
//! lifetime, with a sliding one.

use std::collections::HashMap;
use std::time::Duration;

use ebbtide::{Builder, Cache, ManualClock, Reaper};

use crate::seeds::figures::{self, DayRow};
use crate::seeds::session_day::{
    DAY, DayOutcome, LIFETIME, Live, MEMBERS, Session, SessionDay, SessionStore, Visit, cost,
};

const SESSION_LIFETIME: Duration = Duration::from_secs(LIFETIME as u64);

/// What a touch does to a live session.
#[derive(Clone, Copy, Debug)]
enum Renewal {
    /// Nothing.
    None,
    /// `touch`: its own lifetime again.
    Touch,
    /// `expire`: a lifetime given anew.
    Expire,
}

/// The cache as a store of sessions. With `reaps`, what is expired is swept before
/// every count; the table must be the same with and without.
struct CachedSessions {
    clock: ManualClock,
    cache: Cache<String, String>,
    renewal: Renewal,
    reaps: bool,
}

impl CachedSessions {
    fn new(
        renewal: Renewal,
        reaps: bool,
        configure: impl FnOnce(Builder<String, String>) -> Builder<String, String>,
    ) -> Self {
        let clock = ManualClock::new();
        let builder = Cache::builder()
            .clock(clock.clone())
            .reaper(Reaper::manual())
            .record_stats(true);
        Self {
            cache: configure(builder).build().expect("valid settings"),
            clock,
            renewal,
            reaps,
        }
    }
}

impl SessionStore for CachedSessions {
    fn set_time(&mut self, second: u32) {
        self.clock.set_ns(u64::from(second) * 1_000_000_000);
    }

    fn visit(&mut self, session: Session) -> Visit {
        let key = session.key();
        match self.cache.get(&key) {
            None => {
                self.cache.insert(key, session.self_describing());
                Visit::Entered
            }
            Some(value) => {
                assert_eq!(value, session.self_describing());
                let renewed = match self.renewal {
                    Renewal::None => true,
                    Renewal::Touch => self.cache.touch(&key),
                    Renewal::Expire => self.cache.expire(&key, SESSION_LIFETIME),
                };
                assert!(renewed, "{key} was just read");
                Visit::Known
            }
        }
    }

    fn live(&mut self) -> Live {
        if self.reaps {
            self.cache.reap(Duration::from_secs(30));
            assert_eq!(self.cache.entry_count(), self.cache.live_count());
        }
        let mut live = Live::default();
        for (key, value) in self.cache.pin().iter() {
            live.entries += 1;
            live.bytes += cost(key, value);
        }
        assert_eq!(live.entries, self.cache.live_count());
        live
    }
}

fn assert_row(row: &DayRow, outcome: &DayOutcome, store: &CachedSessions) {
    let name = row.name;
    assert_eq!(outcome.peak.entries, row.peak_entries, "{name}: peak");
    assert_eq!(outcome.peak.bytes, row.peak_bytes, "{name}: peak bytes");
    assert_eq!(outcome.end.entries, row.end_entries, "{name}: end");
    assert_eq!(outcome.end.bytes, row.end_bytes, "{name}: end bytes");
    assert_eq!(outcome.misses, row.misses, "{name}: misses");
    assert_eq!(outcome.extra_entries(), row.extra_entries, "{name}: extra");

    let stats = store.cache.stats();
    assert_eq!(stats.misses, row.misses, "{name}: the cache's own misses");
    assert_eq!(
        stats.hits + stats.misses,
        figures::DAY_TOUCHES as u64,
        "{name}: the cache's own reads"
    );
}

fn check_day(
    row: &DayRow,
    renewal: Renewal,
    configure: impl Fn(Builder<String, String>) -> Builder<String, String>,
) {
    let day = SessionDay::new();
    for reaps in [false, true] {
        let mut store = CachedSessions::new(renewal, reaps, &configure);
        let outcome = day.play(&mut store);
        assert_row(row, &outcome, &store);
    }
}

#[test]
fn sessions_without_expiration() {
    check_day(&figures::DAY_NO_EXPIRATION, Renewal::None, |builder| {
        builder
    });
}

#[test]
fn sessions_with_a_fixed_lifetime() {
    check_day(&figures::DAY_FIXED, Renewal::None, |builder| {
        builder.time_to_live(SESSION_LIFETIME)
    });
}

#[test]
fn sessions_sliding_by_touch() {
    check_day(&figures::DAY_SLIDING, Renewal::Touch, |builder| {
        builder.time_to_live(SESSION_LIFETIME)
    });
}

#[test]
fn sessions_sliding_by_expire() {
    check_day(&figures::DAY_SLIDING, Renewal::Expire, |builder| {
        builder.time_to_live(SESSION_LIFETIME)
    });
}

#[test]
fn sessions_sliding_by_time_to_idle_and_touch() {
    check_day(&figures::DAY_SLIDING, Renewal::Touch, |builder| {
        builder.time_to_idle(SESSION_LIFETIME)
    });
}

/// Reads alone renew an idle lifetime, but a gain below a sixteenth of it may be
/// skipped: sessions end up to that much early, never late.
#[test]
fn sessions_sliding_by_time_to_idle_alone_end_at_most_a_sixteenth_early() {
    let mut store = CachedSessions::new(Renewal::None, false, |builder| {
        builder.time_to_idle(SESSION_LIFETIME)
    });
    let mut last_touch: HashMap<u32, u32> = HashMap::new();
    let (mut misses, mut early) = (0u64, 0u64);
    for touch in SessionDay::new().touches {
        store.set_time(touch.at);
        let session = Session {
            member: touch.member,
        };
        let visit = store.visit(session);
        if visit == Visit::Entered {
            misses += 1;
        }
        match last_touch.insert(touch.member, touch.at) {
            None => assert_eq!(visit, Visit::Entered, "nothing was stored before"),
            Some(last) => {
                let idle = touch.at - last;
                if idle >= LIFETIME {
                    assert_eq!(visit, Visit::Entered, "idle for {idle} s");
                } else if idle <= LIFETIME - LIFETIME.div_ceil(16) {
                    assert_eq!(visit, Visit::Known, "idle for {idle} s only");
                } else if visit == Visit::Entered {
                    early += 1;
                }
            }
        }
    }
    store.set_time(DAY);
    assert_eq!(misses, store.cache.stats().misses);
    // Each early end is one miss more, and can spare a later one: the new entry's
    // deadline is exact.
    assert!(
        misses.abs_diff(figures::DAY_SLIDING.misses) <= early,
        "{misses} misses, {early} of them early"
    );
    assert!(misses >= u64::from(MEMBERS));
}
