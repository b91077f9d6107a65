//! One hour of a library's traffic through the cache: dead entries that only
//! accesses clean up, that sampling cleans up, that the sweep cleans up.

#[path = "common/seeds/mod.rs"]
mod seeds;

use seeds::figures::{self, LibraryRow};
use seeds::library_cache::{Cleaning, CleaningReport, Watch, play};
use seeds::library_hour::{ACCESSES, HourOutcome, LibraryHour, Sampling};
use seeds::random::to_fixed;

/// Runs of each sampling row; the cache draws its own sampler seed in each.
const SAMPLER_RUNS: usize = 5;

fn played(cleaning: Cleaning, watch: Watch) -> (HourOutcome, CleaningReport) {
    play(&LibraryHour::new(), cleaning, watch).expect("the settings are valid")
}

fn assert_lazy_only(outcome: &HourOutcome) {
    let row = &figures::LAZY_ONLY;
    assert_eq!(outcome.held.entries, row.held, "held");
    assert_eq!(outcome.held.bytes, figures::LAZY_ONLY_BYTES, "bytes held");
    assert_eq!(outcome.dead.entries, row.dead, "dead");
    assert_eq!(outcome.dead.bytes, row.dead_bytes, "dead bytes");
    assert_eq!(to_fixed(outcome.dead_share(), 1), row.dead_share, "share");
    assert_eq!(outcome.peak_dead_bytes, row.peak_dead_bytes, "peak");
    assert_eq!(outcome.dropped_by_access, row.dropped_by_access, "dropped");
    assert_eq!(
        to_fixed(outcome.average_delay(), 1),
        row.average_delay,
        "average delay"
    );
    assert_eq!(outcome.delay_worst, row.worst_delay, "worst delay");
    assert_eq!(
        outcome.hits + outcome.missing + outcome.dropped_by_access,
        ACCESSES,
        "every access is accounted for"
    );
}

#[test]
fn lazy_only_is_exact_by_the_caches_own_counts() {
    let (outcome, report) = played(Cleaning::OnAccessAlone, Watch::Counts);
    assert_lazy_only(&outcome);
    let stats = report.stats;
    assert_eq!(stats.expired_by_read, figures::LAZY_ONLY.dropped_by_access);
    assert_eq!(stats.expired_by_write, 0);
    assert_eq!(stats.expired_by_sweep, 0);
    assert_eq!(stats.entries, figures::LAZY_ONLY.held);
    assert_eq!(stats.entries_inspected, 0, "no reaper ran");
}

#[test]
fn lazy_only_is_exact_by_removal_events() {
    let (outcome, report) = played(Cleaning::OnAccessAlone, Watch::Events);
    assert_lazy_only(&outcome);
    let stats = report.stats;
    assert_eq!(
        stats.expired_by_read + stats.expired_by_write,
        figures::LAZY_ONLY.dropped_by_access
    );
    assert_eq!(stats.expired_by_sweep, 0);
}

/// In every run at most 5 % more entry touches than the seed; over the runs a mean
/// dead share within 2 points of the seed's.
///
/// The seed printed one draw. Its own program, given 60 other sampler seeds, came
/// to shares that spread by 0.4 points and lay 1.1 points above the printed one
/// with 5 samples a round: the mean is held to the 2 points, and a single run to 3.
fn assert_as_good_as_the_seed(row: &LibraryRow) {
    let name = row.name;
    let mut shares = 0.0;
    for run in 0..SAMPLER_RUNS {
        let sampling = Sampling::of_size(row.sample_size);
        let (outcome, report) = played(Cleaning::Sample(sampling), Watch::Events);
        let touches = report.stats.entries_inspected;
        let share = outcome.dead_share();
        println!("{name}, run {run}: {touches} touches, dead share {share:.1} %");
        assert!(
            touches * 100 <= row.sampled * 105,
            "{name}, run {run}: {touches} touches, the seed made {}",
            row.sampled
        );
        assert!(
            (share - row.dead_share_percent()).abs() <= 3.0,
            "{name}, run {run}: dead share {share:.2} %, the seed's {} %",
            row.dead_share
        );
        assert_eq!(report.dropped, report.stats.expired_by_sweep, "{name}");
        assert!(
            touches <= report.stats.sample_rounds * row.sample_size as u64,
            "{name}, run {run}: {touches} touches in {} rounds",
            report.stats.sample_rounds
        );
        assert_eq!(
            outcome.hits + outcome.missing + outcome.dropped_by_access,
            ACCESSES,
            "{name}: every access is accounted for"
        );
        shares += share;
    }
    let mean = shares / SAMPLER_RUNS as f64;
    assert!(
        (mean - row.dead_share_percent()).abs() <= 2.0,
        "{name}: mean dead share {mean:.2} %, the seed's {} %",
        row.dead_share
    );
}

#[test]
fn sampling_5_a_round_is_as_good_as_the_seed() {
    assert_as_good_as_the_seed(&figures::SAMPLED[0]);
}

#[test]
fn sampling_20_a_round_is_as_good_as_the_seed() {
    assert_as_good_as_the_seed(&figures::SAMPLED[1]);
}

#[test]
fn sampling_100_a_round_is_as_good_as_the_seed() {
    assert_as_good_as_the_seed(&figures::SAMPLED[2]);
}

#[test]
fn sweep_ends_with_at_most_one_percent_dead() {
    let (outcome, report) = played(Cleaning::Sweep, Watch::Events);
    assert!(
        outcome.dead_share() <= 1.0,
        "dead share {:.2} %",
        outcome.dead_share()
    );
    assert_eq!(
        report.dropped + outcome.dropped_by_access + outcome.held.entries,
        LibraryHour::new().keys.len() as u64,
        "every key was swept, dropped by an access, or is held"
    );
    assert!(
        report.dropped > outcome.dropped_by_access,
        "the sweep did most of the work"
    );
}
