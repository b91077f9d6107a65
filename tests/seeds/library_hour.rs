//! One hour of a library's traffic through the cache: dead entries that only
//! accesses clean up, that sampling cleans up, that the sweep cleans up.

use crate::seeds::figures::{self, LibraryRow};
use crate::seeds::library_cache::{Cleaning, CleaningReport, Watch, play};
use crate::seeds::library_hour::{ACCESSES, HourOutcome, LibraryHour, ReferenceLibrary, Sampling};
use crate::seeds::random::to_fixed;

/// Runs of each sampling row; the cache draws its own sampler seed in each.
const SAMPLER_RUNS: u32 = 5;

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

/// In every run at most 5 % more entry touches than the seed made; over the runs a
/// mean dead share within 2 points of the seed's, and within 1.5 of what the seed's
/// own scheme comes to.
///
/// The seed printed one draw. Its scheme with 60 other sampler seeds came to shares
/// that spread by up to 0.5 points (standard deviation) and, with 5 samples a round,
/// lay 1.1 points above the printed one on average, 1.9 at most: so it is the mean
/// that is held to the 2 points, and a single run to 3.
fn assert_as_good_as_the_seed(row: &LibraryRow) {
    let (name, seed_share) = (row.name, row.dead_share_percent());
    let sampling = Sampling::of_size(row.sample_size);
    let hour = LibraryHour::new();
    let (mut sum, mut reference_sum) = (0.0, 0.0);
    for run in 0..SAMPLER_RUNS {
        let (outcome, report) =
            play(&hour, Cleaning::Sample(sampling), Watch::Events).expect("the settings are valid");
        let touches = report.stats.entries_inspected;
        let share = outcome.dead_share();
        println!("{name}, run {run}: {touches} touches, dead share {share:.1} %");
        assert!(
            touches * 100 <= row.sampled * 105,
            "{name}, run {run}: {touches} touches, the seed made {}",
            row.sampled
        );
        assert!(
            touches <= report.stats.sample_rounds * row.sample_size as u64,
            "{name}, run {run}: {touches} touches in {} rounds",
            report.stats.sample_rounds
        );
        assert!(
            (share - seed_share).abs() <= 3.0,
            "{name}, run {run}: dead share {share:.2} %, the seed's {seed_share} %"
        );
        assert_eq!(report.dropped, report.stats.expired_by_sweep, "{name}");
        assert_eq!(
            outcome.hits + outcome.missing + outcome.dropped_by_access,
            ACCESSES,
            "{name}: every access is accounted for"
        );
        sum += share;

        let mut reference = ReferenceLibrary::with_sampler_seed(Some(sampling), run);
        reference_sum += hour.play(&mut reference).dead_share();
    }
    let mean = sum / f64::from(SAMPLER_RUNS);
    let reference = reference_sum / f64::from(SAMPLER_RUNS);
    assert!(
        (mean - seed_share).abs() <= 2.0,
        "{name}: mean dead share {mean:.2} %, the seed's {seed_share} %"
    );
    assert!(
        (mean - reference).abs() <= 1.5,
        "{name}: mean dead share {mean:.2} %, the seed's scheme {reference:.2} %"
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
