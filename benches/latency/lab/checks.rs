//! What the lab must get right before its figures mean anything. Plain functions, because one of
//! the two programs has no test harness; both run them.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::compare::median;
use super::ledger::{Holding, Ledger};
use super::load::{Clock, Requests, closed, open};
use super::record::{Moments, Op, QUANTILES, Recorder, Row, fine};
use super::report::time;
use super::scenario::{Amount, HOUR, Request, Scenario, Traffic};
use super::subject::{Search, Settings, Setup, millis};
use super::task::{Answer, Tick, grouped};
use super::{Value, args, plain};

/// A value for a check that is not about values.
#[allow(dead_code, reason = "for the checks of other contenders")]
pub(crate) fn value() -> Value {
    static LEDGER: OnceLock<&'static Ledger> = OnceLock::new();
    let ledger = LEDGER.get_or_init(|| Ledger::open(Duration::ZERO));
    ledger.value(u64::MAX)
}

/// All checks, with their names.
pub(crate) const CHECKS: [(&str, fn()); 15] = [
    (
        "a stall is in the open loop's p99",
        a_stall_is_in_the_open_loops_p99,
    ),
    (
        "a stall is one sample of the closed loop",
        a_stall_is_one_sample_of_the_closed_loop,
    ),
    (
        "the machine's pauses are in the control",
        the_machines_pauses_are_in_the_control,
    ),
    (
        "a request that is not served has waited",
        a_request_that_is_not_served_has_waited,
    ),
    ("the open loop keeps its rate", the_open_loop_keeps_its_rate),
    (
        "latencies are told apart by phase",
        latencies_are_told_apart_by_phase,
    ),
    (
        "the ledger counts the held and the dead",
        the_ledger_counts_the_held_and_the_dead,
    ),
    (
        "a read renews a sliding value",
        a_read_renews_a_sliding_value,
    ),
    (
        "writes are as frequent as asked",
        writes_are_as_frequent_as_asked,
    ),
    ("skewed traffic is skewed", skewed_traffic_is_skewed),
    ("caches by hand expire", caches_by_hand_expire),
    ("settings survive being text", settings_survive_being_text),
    ("answers survive the pipe", answers_survive_the_pipe),
    ("bad input is refused", bad_input_is_refused),
    (
        "figures are shown to three digits",
        figures_are_shown_to_three_digits,
    ),
];

const MS: u64 = 1_000_000;

/// A clock that moves only when it is read, or told to.
struct Fake(u64);

impl Clock for Fake {
    fn now(&mut self) -> u64 {
        self.0 += 50;
        self.0
    }
}

/// Requests of a microsecond each, one of which stalls.
struct Stalling {
    made: u64,
    given_up: u64,
    stall_at: u64,
    stall: u64,
    latencies: Histogram<u64>,
    control: Histogram<u64>,
}

impl Stalling {
    fn at(stall_at: u64, stall: u64) -> Self {
        Stalling {
            made: 0,
            given_up: 0,
            stall_at,
            stall,
            latencies: fine(),
            control: fine(),
        }
    }

    fn waits_above(&self, nanos: u64) -> u64 {
        self.latencies.count_between(nanos, u64::MAX)
    }
}

impl Requests<Fake> for Stalling {
    type Kind = ();

    fn make(&mut self, clock: &mut Fake, _now: u64) {
        clock.0 += 1_000;
        if self.made == self.stall_at {
            clock.0 += self.stall;
        }
        self.made += 1;
    }

    fn give_up(&mut self) {
        self.given_up += 1;
    }

    fn note(&mut self, _kind: (), from: u64, done: u64) {
        self.latencies.record(done - from).unwrap();
    }

    fn note_control(&mut self, from: u64, done: u64) {
        self.control.record(done - from).unwrap();
    }
}

/// A hundred thousand requests a second for a second, of which the 20,000th takes 50 ms.
fn stalled_open() -> Stalling {
    let mut requests = Stalling::at(20_000, 50 * MS);
    let stop = AtomicU64::new(1_000 * MS);
    let unserved = open(&mut Fake(0), &mut requests, 10_000, 10_000, &stop);
    assert_eq!(unserved, 0);
    requests
}

fn a_stall_is_in_the_open_loops_p99() {
    let requests = stalled_open();
    // Whoever was due in the 50 ms waited for what was left of them: 5 % of the second, so that
    // the 1 % that waited longest waited over 40. (Catching up takes a ninth as long again.)
    let p99 = requests.latencies.value_at_quantile(0.99);
    assert!((40 * MS..50 * MS).contains(&p99), "{p99}");
    let late = requests.waits_above(20_000);
    assert!((5_000..5_900).contains(&late), "{late}");
    assert!(requests.latencies.value_at_quantile(0.9) < 2_000);
    let max = requests.latencies.max();
    assert!((50 * MS..51 * MS).contains(&max), "{max}");
}

fn a_stall_is_one_sample_of_the_closed_loop() {
    let mut requests = Stalling::at(20_000, 50 * MS);
    closed(&mut Fake(0), &mut requests, &AtomicU64::new(1_000 * MS));
    assert!(requests.made > 100_000, "{}", requests.made);
    assert_eq!(requests.waits_above(20_000), 1);
    assert!(requests.latencies.value_at_quantile(0.999) < 2_000);
    assert!(requests.latencies.max() >= 50 * MS);
}

/// Time that passes while nobody does anything.
struct Interrupted {
    clock: Fake,
    at: u64,
    pause: u64,
}

impl Clock for Interrupted {
    fn now(&mut self) -> u64 {
        if self.clock.0 >= self.at {
            self.at = u64::MAX;
            self.clock.0 += self.pause;
        }
        self.clock.now()
    }
}

impl Requests<Interrupted> for Stalling {
    type Kind = ();

    fn make(&mut self, clock: &mut Interrupted, now: u64) {
        Requests::<Fake>::make(self, &mut clock.clock, now);
    }

    fn give_up(&mut self) {
        Requests::<Fake>::give_up(self);
    }

    fn note(&mut self, kind: (), from: u64, done: u64) {
        Requests::<Fake>::note(self, kind, from, done);
    }

    fn note_control(&mut self, from: u64, done: u64) {
        Requests::<Fake>::note_control(self, from, done);
    }
}

fn the_machines_pauses_are_in_the_control() {
    // The subject's stall is not: the thread was not idle.
    let stalled = stalled_open();
    assert!(stalled.control.max() < 2_000, "{}", stalled.control.max());
    assert!(stalled.control.len() > 90_000, "{}", stalled.control.len());
    // A pause while the thread waits is, and hits as many requests to nothing as real ones.
    let mut clock = Interrupted {
        clock: Fake(0),
        at: 300 * MS + 2_000,
        pause: 20 * MS,
    };
    let mut requests = Stalling::at(u64::MAX, 0);
    open(
        &mut clock,
        &mut requests,
        10_000,
        10_000,
        &AtomicU64::new(1_000 * MS),
    );
    let paused = requests.control.count_between(100_000, u64::MAX);
    assert!((1_900..2_100).contains(&paused), "{paused}");
    assert!(requests.control.max() > 19 * MS);
    assert!(requests.waits_above(100_000) >= 1_900);
    // In the closed loop the control takes as long as the requests.
    let mut requests = Stalling::at(u64::MAX, 0);
    closed(&mut Fake(0), &mut requests, &AtomicU64::new(100 * MS));
    let spent = |histogram: &Histogram<u64>| histogram.mean() * histogram.len() as f64;
    let ratio = spent(&requests.control) / spent(&requests.latencies);
    assert!((0.9..1.1).contains(&ratio), "{ratio}");
}

fn a_request_that_is_not_served_has_waited() {
    // Everything from 10 ms on is held up until long after the end.
    let mut requests = Stalling::at(1_000, 500 * MS);
    let stop = AtomicU64::new(100 * MS);
    let unserved = open(&mut Fake(0), &mut requests, 10_000, 10_000, &stop);
    assert_eq!(requests.made, 1_001);
    assert_eq!(unserved, requests.given_up);
    assert_eq!(requests.latencies.len(), requests.made + unserved);
    assert!((8_990..=8_999).contains(&unserved), "{unserved}");
    assert!(requests.waits_above(400 * MS) >= unserved);
}

fn the_open_loop_keeps_its_rate() {
    let mut requests = Stalling::at(u64::MAX, 0);
    let unserved = open(
        &mut Fake(0),
        &mut requests,
        10_000,
        10_000,
        &AtomicU64::new(1_000 * MS),
    );
    assert_eq!((requests.made, unserved), (99_999, 0));
    // Served when due: the request, and two looks at the clock.
    assert!(
        requests.latencies.max() <= 1_100 + 50,
        "{}",
        requests.latencies.max()
    );
}

fn latencies_are_told_apart_by_phase() {
    let moments = Moments {
        record: 100,
        mark: 200,
        window: 350,
        gone: AtomicU64::new(300),
        stop: AtomicU64::new(400),
    };
    let mut recorder = Recorder::new(3, 100);
    for from in (0..400).step_by(50) {
        recorder.note(&moments, Op::Read, from, from + 10 + from);
    }
    recorder.note(&moments, Op::Control, 210, 211);
    let mut other = Recorder::new(3, 100);
    other.note(&moments, Op::Write, 399, 400);
    recorder.merge(&other);
    let rows = recorder.rows(&moments);
    let counts: Vec<_> = rows
        .iter()
        .map(|row| (row.phase.as_str(), row.op.as_str(), row.count, row.max))
        .collect();
    assert_eq!(
        counts,
        [
            ("calm", "read", 2, 160),
            ("run", "read", 2, 260),
            ("run", "control", 1, 1),
            ("after", "read", 2, 360),
            ("after", "write", 1, 1),
            ("window", "read", 3, 310),
            ("window", "control", 1, 1),
        ]
    );
    // The control is no part of the time line.
    assert_eq!(recorder.tick(1)[3], 2);
    assert_eq!(recorder.tick(2)[3], 3);
    assert_eq!(recorder.tick(3), [0; 4]);
}

fn the_ledger_counts_the_held_and_the_dead() {
    let ledger = Ledger::open(Duration::ZERO);
    let values = [
        ledger.value(5 * MS),
        ledger.value(5 * MS + 1),
        ledger.value(u64::MAX),
    ];
    let holding = |held, dead| Holding { held, dead };
    assert_eq!(ledger.look(5 * MS - 1), holding(3, 0));
    // Deadlines are rounded up to a millisecond: nothing counts as dead too early.
    assert_eq!(ledger.look(5 * MS), holding(3, 1));
    assert_eq!(ledger.look(6 * MS), holding(3, 2));
    assert_eq!(ledger.look(200_000 * MS), holding(3, 2));
    let [first, second, third] = values;
    drop(first);
    assert_eq!(ledger.look(6 * MS), holding(2, 1));
    drop((second, third));
    assert_eq!(ledger.look(200_000 * MS), holding(0, 0));
    // Whatever was looked past, what is made later counts.
    let later = ledger.value(200_001 * MS);
    assert_eq!(ledger.look(201_000 * MS), holding(1, 1));
    drop(later);
}

fn a_read_renews_a_sliding_value() {
    let ledger = Ledger::open(Duration::from_millis(10));
    let value = ledger.value(10 * MS);
    assert_eq!(ledger.look(9 * MS).dead, 0);
    value.read();
    assert_eq!(ledger.look(18 * MS).dead, 0);
    assert_eq!(ledger.look(19 * MS).dead, 1);
    drop(value);
    assert_eq!(ledger.look(19 * MS), Holding::default());
}

fn traffic(scenario: Scenario, writes: f64) -> Traffic {
    let amount = Amount {
        writes,
        write_rate: 1_000.0,
        lifetime: Duration::from_secs(1),
    };
    Traffic::new(scenario, amount, 0, 1)
}

fn writes_are_as_frequent_as_asked() {
    for scenario in [
        Scenario::Steady,
        Scenario::Wave,
        Scenario::Skewed,
        Scenario::Sliding,
    ] {
        let mut traffic = traffic(scenario, 0.25);
        let writes = (0..100_000)
            .filter(|_| matches!(traffic.next(), Request::Write(_)))
            .count();
        assert!((24_000..26_000).contains(&writes), "{scenario:?}: {writes}");
    }
    // Steady: reads go to the newest 800 keys (0.8 of those alive), writes to new ones.
    let mut traffic = traffic(Scenario::Steady, 0.25);
    let mut written = Vec::new();
    for _ in 0..100_000 {
        match traffic.next() {
            Request::Write(key) => written.push(key),
            Request::Read(key) => {
                let newest = &written[written.len().saturating_sub(800)..];
                assert!(newest.contains(&key));
            }
        }
    }
    let mut distinct = written.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), written.len());
}

fn skewed_traffic_is_skewed() {
    let mut traffic = traffic(Scenario::Skewed, 0.25);
    let first = super::scenario::scattered(0);
    let hits = (0..100_000)
        .filter(|_| match traffic.next() {
            Request::Write(key) | Request::Read(key) => key == first,
        })
        .count();
    // The first of 100,000 keys gets 1 / H(100000, 0.99), or 7.9 %.
    assert!((7_000..8_800).contains(&hits), "{hits}");
}

fn caches_by_hand_expire() {
    for contender in plain::contenders()
        .iter()
        .filter(|one| one.name != plain::NOTHING)
    {
        for sliding in [false, true] {
            let lifetime = Duration::from_millis(if sliding { 20 } else { 3_600_000 });
            let ledger = Ledger::open(Duration::ZERO);
            let cache = (contender.build)(&Setup {
                settings: "interval=5ms".parse().unwrap(),
                lifetime,
                sliding,
                room: 0,
            })
            .unwrap();
            cache.insert(1, ledger.value(0), Duration::from_millis(20));
            cache.insert(2, ledger.value(0), HOUR);
            assert!(cache.get(2) && !cache.get(3), "{}", contender.name);
            std::thread::sleep(Duration::from_millis(30));
            // What slides was 2, by the read: its hour is 20 ms now, and over.
            let left = u64::from(!sliding);
            assert_eq!(
                (cache.get(1), cache.get(2)),
                (false, !sliding),
                "{}",
                contender.name
            );
            // Sooner or later the cleaning thread comes by.
            while ledger.look(0).held > left {
                std::thread::sleep(Duration::from_millis(1));
            }
            drop(cache);
            assert_eq!(ledger.look(0).held, 0, "{}", contender.name);
        }
    }
}

fn settings_survive_being_text() {
    let all = Settings {
        budget: Some(Duration::from_micros(250)),
        interval: Some(Duration::from_millis(50)),
        search: Some(Search::Sample(20)),
        workers: Some(2),
        shards: Some(64),
    };
    let text = "budget=0.25ms,interval=50ms,strategy=sample:20,workers=2,shards=64";
    assert_eq!(all.to_string(), text);
    assert_eq!(text.parse(), Ok(all));
    let none = Settings::default();
    assert_eq!(none.to_string().parse(), Ok(none));
    for wrong in [
        "",
        "budget",
        "budget=x",
        "speed=3",
        "strategy=sample:0",
        "strategy=guess",
    ] {
        assert!(wrong.parse::<Settings>().is_err(), "{wrong}");
    }
}

fn answers_survive_the_pipe() {
    let mut answer = Answer {
        rows: vec![Row {
            phase: "run".to_owned(),
            op: "read".to_owned(),
            count: 9,
            quantiles: [1, 2, 3, 4, 5],
            max: 6,
        }],
        ticks: vec![Tick {
            at: -0.25,
            resident: 1e6,
            held: 1,
            dead: 2,
            p50: 3,
            p99: 4,
            max: 5,
            requests: 6,
        }],
        ..Answer::default()
    };
    answer.figures.insert("gone,ms".to_owned(), f64::INFINITY);
    assert_eq!(Answer::read(&answer.write()).unwrap(), answer);
    assert_eq!(answer.row("run", "read").unwrap().quantile("p99.9"), 4);
    assert_eq!(
        answer.row("run", "read").unwrap().quantile(QUANTILES[0].0),
        1
    );
    assert!(answer.figure("speed").is_nan());
    for wrong in [
        "garbage",
        "figure x",
        "figure x y",
        "row run read 1 2",
        "tick 1 2 3 4 5 6 7 8 9",
    ] {
        assert!(Answer::read(wrong).is_err(), "{wrong}");
    }
}

fn bad_input_is_refused() {
    assert_eq!(millis("0").unwrap_err(), "must be above zero");
    assert!(millis("-1").is_err() && millis("soon").is_err() && millis("NaN").is_err());
    assert_eq!(millis("0.5"), Ok(Duration::from_micros(500)));
    let folder = std::env::temp_dir().join(format!("latency-lab-{}", std::process::id()));
    args::make_ready(&folder).unwrap();
    // A file is not a folder.
    let file = folder.join(args::RESULTS);
    let refused = args::make_ready(&file).unwrap_err().to_string();
    assert!(refused.starts_with("cannot write into "), "{refused}");
    std::fs::remove_dir_all(&folder).unwrap();
}

fn figures_are_shown_to_three_digits() {
    for (nanos, text) in [
        (0.0, "0 ns"),
        (999.4, "999 ns"),
        (999.6, "1.00 µs"),
        (12_345.0, "12.3 µs"),
        (123_456.0, "123 µs"),
        (1.5e6, "1.50 ms"),
        (6.5e9, "6.50 s"),
    ] {
        assert_eq!(time(nanos), text);
    }
    assert_eq!(
        (grouped(0), grouped(1_234_567)),
        ("0".to_owned(), "1,234,567".to_owned())
    );
    assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
    assert_eq!(median(&[3.0, 1.0]), 2.0);
    assert!(median(&[]).is_nan() && median(&[1.0, f64::NAN]).is_nan());
}
