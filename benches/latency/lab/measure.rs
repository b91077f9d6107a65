//! One measurement: threads that make requests, and one that looks at the memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::ledger::{ENTRY_BYTES, Holding, Ledger};
use super::load::{self, Clock, Real, Requests};
use super::record::{Moments, Op, Recorder, phase};
use super::scenario::{Amount, HOUR, OTHERS, Request, Scenario, Traffic, scattered};
use super::subject::{Contender, Setup, Subject};
use super::task::{Answer, LATE, Loop, Task, Tick};
use super::{Host, Lifetimes, Outcome, machine};

const MS: u64 = 1_000_000;
/// Between two looks for what is held.
const LOOK: Duration = Duration::from_millis(2);
/// Requests begin this long before they are recorded.
const RUN_UP: u64 = 20 * MS;

/// One thread's requests to the subject.
pub(crate) struct Caller<'a> {
    subject: &'a dyn Subject,
    ledger: &'static Ledger,
    moments: &'a Moments,
    traffic: Traffic,
    recorder: Recorder,
    lifetime: Duration,
}

impl<C: Clock> Requests<C> for Caller<'_> {
    type Kind = Op;

    #[inline]
    fn make(&mut self, _clock: &mut C, now: u64) -> Op {
        match self.traffic.next() {
            Request::Read(key) => {
                let hit = self.subject.get(key);
                if now >= self.moments.record {
                    self.recorder.hits += u64::from(hit);
                    self.recorder.misses += u64::from(!hit);
                }
                Op::Read
            }
            Request::Write(key) => {
                let value = self.ledger.value(now + self.lifetime.as_nanos() as u64);
                self.subject.insert(key, value, self.lifetime);
                Op::Write
            }
        }
    }

    fn give_up(&mut self) -> Op {
        match self.traffic.next() {
            Request::Read(_) => Op::Read,
            Request::Write(_) => Op::Write,
        }
    }

    #[inline]
    fn note(&mut self, op: Op, from: u64, done: u64) {
        self.recorder.note(self.moments, op, from, done);
    }

    #[inline]
    fn note_control(&mut self, from: u64, done: u64) {
        self.recorder.note(self.moments, Op::Control, from, done);
    }
}

pub(crate) fn measure(host: &Host, task: &Task) -> Outcome<Answer> {
    let contender = host.contender(&task.contender)?;
    let ttl = Duration::from_millis(task.ttl);
    let sliding = task.scenario == Scenario::Sliding;
    let ledger = Ledger::open(if sliding { ttl } else { Duration::ZERO });
    let longest = task.calm + task.duration.max(task.patience);
    let ticks = (longest / task.tick) as usize + 1;
    let recorders: Vec<Recorder> = (0..task.threads)
        .map(|_| Recorder::new(ticks, task.tick * MS))
        .collect();
    let empty = machine::resident_bytes();
    let wave = task.scenario == Scenario::Wave;
    let lifetime = if wave { HOUR } else { ttl };
    let room = 2 * (task.rate * task.writes * ttl.as_secs_f64()) as u64;
    let subject = (contender.build)(&Setup {
        settings: task.settings.clone(),
        lifetime,
        sliding,
        room: room.max(1 << 17),
    })?;
    let subject = subject.as_ref();
    let empty = subject.resident().or(empty);

    let mut clock = Real(ledger.began());
    let moments = if wave {
        let deadline = task.lead * MS;
        if !fill(subject, ledger, task.entries, deadline)? {
            return Ok(late(&mut clock));
        }
        subject.settle();
        if clock.now() + task.calm * MS + 5 * RUN_UP > deadline {
            return Ok(late(&mut clock));
        }
        Moments {
            record: deadline - task.calm * MS,
            mark: deadline,
            window: deadline + task.duration * MS,
            gone: AtomicU64::new(u64::MAX),
            stop: AtomicU64::new(deadline + task.patience.max(task.duration) * MS),
        }
    } else {
        let record = clock.now() + RUN_UP + (task.ttl + task.ttl / 4) * MS;
        Moments {
            record,
            mark: record,
            window: u64::MAX,
            gone: AtomicU64::new(u64::MAX),
            stop: AtomicU64::new(record + task.duration * MS),
        }
    };
    // Before the requests: those of a scenario without a wave fill the cache.
    let first = if wave {
        moments.record - RUN_UP
    } else {
        clock.now() + RUN_UP
    };
    let full = resident(subject);

    let interval = (1e9 * task.threads as f64 / task.rate).max(1.0) as u64;
    let amount = Amount {
        writes: task.writes,
        write_rate: task.rate * task.writes / task.threads as f64,
        lifetime,
    };
    let (mut seen, recorder, unserved) = thread::scope(|scope| {
        let callers: Vec<_> = recorders
            .into_iter()
            .zip(0..)
            .map(|(recorder, thread)| {
                let caller = Caller {
                    subject,
                    ledger,
                    moments: &moments,
                    traffic: Traffic::new(task.scenario, amount, thread, task.threads),
                    recorder,
                    lifetime,
                };
                // The threads' requests are due in turn.
                let first = first + interval * thread / task.threads;
                scope.spawn(move || call(caller, task.kind, first, interval))
            })
            .collect();
        let seen = watch(subject, ledger, task, &moments);
        let mut all: Option<Recorder> = None;
        let mut unserved = 0;
        for caller in callers {
            let (recorder, waiting) = caller.join().expect("a caller does not panic");
            unserved += waiting;
            match &mut all {
                Some(all) => all.merge(&recorder),
                None => all = Some(recorder),
            }
        }
        (seen, all.expect("there is a thread"), unserved)
    });
    check(contender, task, &recorder)?;

    for tick in &mut seen.ticks {
        if let Some(resident) = &mut tick.resident {
            *resident -= empty.unwrap_or(0) as f64;
        }
    }
    let mut answer = Answer {
        rows: recorder.rows(&moments),
        ticks: line(&seen, &recorder, &moments, task),
        ..Answer::default()
    };
    let spent = seen.spent.as_secs_f64();
    let requests: u64 = answer
        .rows
        .iter()
        .filter(|row| row.op != "control" && row.phase != phase::WINDOW)
        .map(|row| row.count)
        .sum();
    let mut say = |name: &str, value: f64| answer.figures.insert(name.to_owned(), value);
    say("requests/s", requests as f64 / spent);
    say(
        "hits,%",
        100.0 * recorder.hits as f64 / (recorder.hits + recorder.misses) as f64,
    );
    say("unserved", unserved as f64);
    let above = |bytes: Option<u64>| match (bytes, empty) {
        (Some(bytes), Some(empty)) => (bytes as f64 - empty as f64) / 1e6,
        _ => f64::NAN,
    };
    say("rss-before,MB", above(full));
    for (name, value) in seen.memory() {
        say(name, value);
    }
    // What goes back to the system a moment after the traffic's end.
    thread::sleep(Duration::from_millis(200));
    say("rss-after,MB", above(resident(subject)));
    let gone = moments.gone.load(Ordering::Relaxed);
    if wave {
        let gone = if gone == u64::MAX {
            f64::INFINITY
        } else {
            (gone - moments.mark) as f64 / 1e6
        };
        say("gone,ms", gone);
    }
    for (name, value) in subject.extras() {
        say(name, value);
    }
    Ok(answer)
}

fn resident(subject: &dyn Subject) -> Option<u64> {
    subject.resident().or_else(machine::resident_bytes)
}

fn late(clock: &mut Real) -> Answer {
    let mut answer = Answer::default();
    answer
        .figures
        .insert(LATE.to_owned(), clock.now() as f64 / 1e6);
    answer
}

/// Fills in the entries that stay and the wave; whether it was done before the deadline.
fn fill(
    subject: &dyn Subject,
    ledger: &'static Ledger,
    entries: u64,
    deadline: u64,
) -> Outcome<bool> {
    for i in 0..OTHERS {
        subject.fill(scattered(i), ledger.value(u64::MAX), HOUR)?;
    }
    for i in OTHERS..OTHERS + entries {
        let left = Duration::from_nanos(deadline).saturating_sub(ledger.began().elapsed());
        if left.is_zero() {
            return Ok(false);
        }
        subject.fill(scattered(i), ledger.value(deadline), left)?;
    }
    Ok(true)
}

fn call(mut caller: Caller<'_>, kind: Loop, first: u64, interval: u64) -> (Recorder, u64) {
    let mut clock = Real(caller.ledger.began());
    thread::sleep(Duration::from_nanos(
        first.saturating_sub(clock.now() + RUN_UP),
    ));
    let stop = &caller.moments.stop;
    let unserved = match kind {
        Loop::Open => load::open(&mut clock, &mut caller, first, interval, stop),
        Loop::Closed => {
            thread::sleep(Duration::from_nanos(first.saturating_sub(clock.now())));
            load::closed(&mut clock, &mut caller, stop);
            0
        }
    };
    (caller.recorder, unserved)
}

/// One look.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: u64,
    resident: Option<f64>,
    holding: Holding,
}

struct Seen {
    ticks: Vec<Look>,
    /// From the beginning of the record to its end.
    spent: Duration,
    /// Looks from the mark on.
    mark: u64,
}

impl Seen {
    /// Means and extremes from the mark on.
    fn memory(&self) -> Vec<(&'static str, f64)> {
        let looks = || self.ticks.iter().filter(|look| look.at >= self.mark);
        let count = looks().count() as f64;
        let held: u64 = looks().map(|look| look.holding.held).sum();
        let dead: u64 = looks().map(|look| look.holding.dead).sum();
        let share =
            |look: &Look| 100.0 * look.holding.dead as f64 / look.holding.held.max(1) as f64;
        let most = |value: &dyn Fn(&Look) -> f64| looks().map(value).fold(f64::NAN, f64::max);
        vec![
            ("held,mean", held as f64 / count),
            ("held,max", most(&|look| look.holding.held as f64)),
            ("dead,mean,%", 100.0 * dead as f64 / (held as f64).max(1.0)),
            ("dead,max,%", most(&share)),
            (
                "dead,max,MB",
                most(&|look| (look.holding.dead * ENTRY_BYTES) as f64 / 1e6),
            ),
            (
                "rss-max,MB",
                most(&|look| look.resident.unwrap_or(f64::NAN) / 1e6),
            ),
        ]
    }
}

/// Looks at the memory until the end, which it sets when a wave is gone.
fn watch(subject: &dyn Subject, ledger: &Ledger, task: &Task, moments: &Moments) -> Seen {
    let wave = task.scenario == Scenario::Wave;
    let mut clock = Real(ledger.began());
    let mut ticks = Vec::new();
    let mut due = moments.record;
    loop {
        let now = clock.now();
        let mut holding = ledger.look(now);
        if let Some(held) = subject.held() {
            let dead = if wave && now >= moments.mark {
                held.saturating_sub(OTHERS)
            } else {
                0
            };
            holding = Holding { held, dead };
        }
        if now >= due {
            ticks.push(Look {
                at: now,
                resident: resident(subject).map(|bytes| bytes as f64),
                holding,
            });
            due = now - (now - due) % (task.tick * MS) + task.tick * MS;
        }
        if wave
            && now >= moments.mark
            && holding.dead == 0
            && moments.gone.load(Ordering::Relaxed) == u64::MAX
        {
            moments.gone.store(now, Ordering::Relaxed);
            let stop = (moments.mark + task.duration * MS).max(now + task.duration * MS / 4);
            moments.stop.store(stop, Ordering::Relaxed);
        }
        if now >= moments.stop.load(Ordering::Relaxed) {
            return Seen {
                ticks,
                spent: Duration::from_nanos(now - moments.record),
                mark: moments.mark,
            };
        }
        thread::sleep(LOOK);
    }
}

/// The looks with the latencies around them.
fn line(seen: &Seen, recorder: &Recorder, moments: &Moments, task: &Task) -> Vec<Tick> {
    let zero = moments.mark as f64 / 1e9;
    seen.ticks
        .iter()
        .map(|look| {
            let index = ((look.at - moments.record) / (task.tick * MS)) as usize;
            let [p50, p99, max, requests] = recorder.tick(index);
            Tick {
                at: look.at as f64 / 1e9 - zero,
                resident: look.resident.unwrap_or(f64::NAN),
                held: look.holding.held,
                dead: look.holding.dead,
                p50,
                p99,
                max,
                requests,
            }
        })
        .collect()
}

/// A cache that loses what it must hold ends the run: its latencies would mean nothing.
fn check(contender: &Contender, task: &Task, recorder: &Recorder) -> Outcome<()> {
    let must_hit = task.scenario == Scenario::Wave && contender.lifetimes == Lifetimes::PerEntry;
    if must_hit && recorder.misses > 0 {
        let (who, misses) = (contender.name, recorder.misses);
        return Err(format!("{who} missed keys that it holds, {misses} times").into());
    }
    if recorder.hits + recorder.misses == 0 {
        return Err("not one read was made: a longer duration or a higher rate is needed".into());
    }
    Ok(())
}
