//! What no count shows, by reading the sources of the versions in `Cargo.lock`: which locks an
//! operation takes, and which cache lines a read writes that other threads write too.

/// What was read about one contender (and all whose names begin with its name and a comma).
#[derive(Debug)]
pub(super) struct Read {
    pub(super) contender: &'static str,
    /// Locks that a read takes.
    pub(super) read_locks: &'static str,
    /// Locks that a write takes.
    pub(super) write_locks: &'static str,
    /// Lines written by a read hit that other threads' reads write too.
    pub(super) shared_lines: &'static str,
    /// Where this stands: file and function.
    pub(super) source: &'static str,
}

/// Longer names come before their own beginnings.
pub(super) const READ: [Read; 17] = [
    Read {
        contender: "ebbtide, increment_with_ttl",
        read_locks: "–",
        write_locks: "0",
        shared_lines: "–",
        source: "src/cache/update.rs `add`: a glance, then one fetch_add on the entry; the lock only to create a counter",
    },
    Read {
        contender: "ebbtide, time_to_live, clock_lease",
        read_locks: "0",
        write_locks: "1",
        shared_lines: "0; reads one that the publisher writes 4 times a lease",
        source: "src/lease.rs `covers`: one relaxed load; the rest as below",
    },
    Read {
        contender: "ebbtide, max_entries",
        read_locks: "0",
        write_locks: "1, and one of another shard if that is where there is room to be made",
        shared_lines: "0; its entry's mark until that is set",
        source: "src/cache/core.rs `used`, `finish_write`; the count of linked entries is a shared line of writes",
    },
    Read {
        contender: "ebbtide",
        read_locks: "0",
        write_locks: "1 (increment: 0)",
        shared_lines: "0",
        source: "src/cache/core.rs `read`; src/shard/mod.rs `glance`; src/cache/write.rs `put` locks the shard (parking_lot `Mutex`); the pin writes the thread's own epoch record",
    },
    Read {
        contender: "dashmap entry",
        read_locks: "–",
        write_locks: "1 (exclusive)",
        shared_lines: "–",
        source: "src/lib.rs `_entry`: `_yield_write_shard`",
    },
    Read {
        contender: "dashmap",
        read_locks: "1 shared",
        write_locks: "1 exclusive",
        shared_lines: "1: the shard's lock word, by everyone, twice",
        source: "src/lib.rs `_get` (`_yield_read_shard`), `_insert` by `entry`, `_remove`; src/lock.rs",
    },
    Read {
        contender: "papaya update",
        read_locks: "–",
        write_locks: "0 (a new entry, a CAS)",
        shared_lines: "–",
        source: "src/raw/mod.rs `update_entry`; garbage through seize",
    },
    Read {
        contender: "papaya atomic",
        read_locks: "–",
        write_locks: "0 (fetch_add in place)",
        shared_lines: "–",
        source: "`get`, and an atomic of the user's",
    },
    Read {
        contender: "papaya",
        read_locks: "0",
        write_locks: "0 (CAS; one to allocate a table)",
        shared_lines: "0",
        source: "src/raw/mod.rs `get`, `insert_inner`; seize src/raw/collector.rs `enter`, `leave` write the thread's own reservation",
    },
    Read {
        contender: "scc entry",
        read_locks: "–",
        write_locks: "1 exclusive (bucket)",
        shared_lines: "–",
        source: "src/hash_map.rs `entry_sync`: `Writer` of the bucket",
    },
    Read {
        contender: "scc HashIndex",
        read_locks: "0",
        write_locks: "1 exclusive (bucket)",
        shared_lines: "0",
        source: "src/hash_table.rs `peek_entry`; `Writer` in src/hash_table/bucket.rs; sdd `Guard::new` writes the thread's own record",
    },
    Read {
        contender: "scc",
        read_locks: "1 shared (bucket)",
        write_locks: "1 exclusive (bucket)",
        shared_lines: "1: the bucket's lock word, by readers of the same bucket, twice",
        source: "src/hash_table.rs `reader_sync` (`Reader::lock_sync`), src/hash_table/bucket.rs",
    },
    Read {
        contender: "quick_cache",
        read_locks: "1 shared",
        write_locks: "1 exclusive",
        shared_lines: "1: the shard's lock word, by everyone, twice (locks stand unpadded beside each other); the entry's `referenced` until it is full",
        source: "src/sync.rs `get`, `insert_with_lifecycle`; src/shard.rs `get_key_value`",
    },
    Read {
        contender: "TinyUFO",
        read_locks: "0",
        write_locks: "1 (flurry's bin), and CAS on the sketch, a queue and the weights",
        shared_lines: "0; the entry's `uses` until it is full",
        source: "src/lib.rs `get` (`inc_uses`), `put`, `admit`; src/buckets.rs; flurry src/map.rs",
    },
    Read {
        contender: "moka entry",
        read_locks: "–",
        write_locks: "1 (a waiter map of the key)",
        shared_lines: "–",
        source: "src/sync/cache.rs `and_upsert_with`; src/sync/value_initializer.rs",
    },
    Read {
        contender: "moka",
        read_locks: "0; the housekeeper's when the log is full or time is up",
        write_locks: "0, and the housekeeper's as for reads",
        shared_lines: "3: the entry's reference count; the read log's tail, and its slot",
        source: "src/sync/base_cache.rs `do_get_with_hash` (clones a `MiniArc`), `record_read_op` (`try_send` on one channel), `do_insert_with_hash`; src/cht is lock-free",
    },
    Read {
        contender: "mini-moka",
        read_locks: "1 shared (dashmap's); the housekeeper's when the log is full or time is up",
        write_locks: "1 exclusive, and the housekeeper's as for reads",
        shared_lines: "4: the shard's lock word; the entry's reference count; the read log's tail, and its slot",
        source: "src/sync/base_cache.rs `get_with_hash`, `record_read_op`; its map is dashmap",
    },
];

/// What was read about `contender`.
pub(super) fn about(contender: &str) -> Option<&'static Read> {
    READ.iter().find(|read| {
        contender
            .strip_prefix(read.contender)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(','))
    })
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::super::{child, contenders};
    use super::*;

    #[test]
    fn every_contender_has_been_read() {
        let mut used = std::collections::HashSet::new();
        for &operation in child::Operation::value_variants() {
            for contender in child::names(operation) {
                if contender == contenders::LOOP_ALONE {
                    assert!(about(&contender).is_none());
                    continue;
                }
                let read = about(&contender);
                let read = read.unwrap_or_else(|| panic!("{contender} was not read"));
                used.insert(read.contender);
            }
        }
        for read in &READ {
            assert!(
                used.contains(read.contender),
                "{} is nobody",
                read.contender
            );
        }
        let source = |contender| about(contender).map(|read| read.contender);
        assert_eq!(source("moka, time_to_live"), Some("moka"));
        assert_eq!(source("ebbtide, max_entries"), Some("ebbtide, max_entries"));
        assert_eq!(source("dashmap entry, ahash"), Some("dashmap entry"));
    }
}
