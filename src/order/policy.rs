//! Which entry a full cache gives up: what the user chooses from.

/// Which living entry has to go when the cache is full. (An entry that is over goes first, wherever a
/// bounded look finds one.)
///
/// | policy | choose it when |
/// |---|---|
/// | [`segmented_clock`](Self::segmented_clock) | you do not know better: the default, the best mean over all traces measured |
/// | [`clock`](Self::clock) | what was used last is what is used next, and nothing ever scans or loops over more than fits |
/// | [`fifo`](Self::fifo) | uses say nothing about the future, or an entry must stay for a predictable number of inserts |
/// | [`nearest_deadline`](Self::nearest_deadline) | lifetimes say how much an entry is worth |
/// | [`random`](Self::random) | all entries are used equally often, or no pattern of use may decide what stays |
/// | [`no_eviction`](Self::no_eviction) | losing an entry before its time is an error: then the insert fails instead |
///
/// ```
/// use ebbtide::{Cache, Policy};
///
/// let sessions: Cache<u64, String> = Cache::builder()
///     .max_entries(10_000)
///     .policy(Policy::segmented_clock().cold_share(0.2))
///     .build()?;
/// # Ok::<(), ebbtide::BuildError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub(super) rule: Rule,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rule {
    SegmentedClock { cold_share: f64 },
    Clock,
    Fifo,
    NearestDeadline,
    Random,
    NoEviction,
}

/// The share of a shard that new entries pass through before they are admitted, unless set.
const COLD_SHARE: f64 = 0.1;

impl Policy {
    /// A small first-in first-out segment for what is new and a large CLOCK for what has proved
    /// itself, with a memory of evicted keys and of how often keys are asked for that decides who
    /// may enter the large one. Neither a scan nor a loop over more than fits empties the
    /// cache, and skewed use is served about as well as by any policy known. The default.
    pub fn segmented_clock() -> Self {
        Policy {
            rule: Rule::SegmentedClock {
                cold_share: COLD_SHARE,
            },
        }
    }

    /// Segmented CLOCK: the share of the cache that new entries pass through, above 0 and below 1
    /// (default 0.1). More suits use that depends on recency alone (0.5 then comes close to
    /// [`clock`](Self::clock)), less suits loops. No effect on the other policies.
    #[must_use]
    pub fn cold_share(mut self, share: f64) -> Self {
        if let Rule::SegmentedClock { cold_share } = &mut self.rule {
            *cold_share = share;
        }
        self
    }

    /// Much like least recently used, without moving an entry at each use: the oldest entry goes
    /// unless it was used since it was last looked at (the CLOCK of Corbató, 1968, with up to three
    /// uses remembered). Loops over more entries than fit, and scans, empty it.
    pub fn clock() -> Self {
        Policy { rule: Rule::Clock }
    }

    /// First in, first out: the oldest entry goes, however much it is used. A new value for a key
    /// keeps the key's place.
    pub fn fifo() -> Self {
        Policy { rule: Rule::Fifo }
    }

    /// The entry with the nearest deadline goes, entries without a deadline last, as with
    /// `volatile-ttl` of Redis, and like it from a sample: of 16 entries of a shard drawn at random and
    /// the 16 nearest of earlier draws (of all of them if there are no more than 32). Deadlines are told apart to 67 ms.
    pub fn nearest_deadline() -> Self {
        Policy {
            rule: Rule::NearestDeadline,
        }
    }

    /// Any entry goes, each with the same chance, as with `allkeys-random` of Redis.
    pub fn random() -> Self {
        Policy { rule: Rule::Random }
    }

    /// No living entry goes: a write that finds the cache full is refused. Use
    /// [`try_insert`](crate::Cache::try_insert), which gives the entry back and leaves what was there;
    /// [`insert`](crate::Cache::insert) cannot say so, and drops the new value and the one before it.
    pub fn no_eviction() -> Self {
        Policy {
            rule: Rule::NoEviction,
        }
    }

    /// Whether living entries are given up at all.
    pub(crate) fn evicts(&self) -> bool {
        self.rule != Rule::NoEviction
    }

    /// # Errors
    /// The cold share as given, if it is not above 0 and below 1.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.rule {
            Rule::SegmentedClock { cold_share } if !(cold_share > 0.0 && cold_share < 1.0) => {
                Err(cold_share.to_string())
            }
            _ => Ok(()),
        }
    }
}

impl Default for Policy {
    /// [`Policy::segmented_clock`].
    fn default() -> Self {
        Policy::segmented_clock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cold_share_lies_between_none_and_all() {
        for good in [0.001, 0.1, 0.5, 0.999] {
            let policy = Policy::segmented_clock().cold_share(good);
            assert_eq!(policy.check(), Ok(()));
            assert_eq!(policy.rule, Rule::SegmentedClock { cold_share: good });
        }
        for bad in [0.0, 1.0, -0.1, 7.0, f64::NAN, f64::INFINITY] {
            let policy = Policy::segmented_clock().cold_share(bad);
            assert_eq!(policy.check(), Err(bad.to_string()));
            // It is nobody else's setting.
            assert_eq!(Policy::clock().cold_share(bad), Policy::clock());
        }
        assert_eq!(Policy::default().check(), Ok(()));
    }
}
