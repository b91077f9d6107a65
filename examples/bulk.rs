//! Many entries at once, on one thread and on rayon's, and a word count with `entry`.
//!
//! ```text
//! cargo run --features rayon --example bulk
//! ```

use std::time::Duration;

use ebbtide::Cache;
use rayon::prelude::*;

fn main() -> Result<(), ebbtide::BuildError> {
    let words: Cache<&str, u64> = Cache::unbounded();
    "the tide comes in the tide goes out"
        .par_split_whitespace()
        .for_each(|word| {
            words.entry(word).and_modify(|count| count + 1).or_insert(1);
        });
    assert_eq!(
        words.get_many(["the", "tide", "moon"]),
        [Some(2), Some(2), None]
    );

    let squares: Cache<u64, u64> = Cache::builder().max_entries(1_000_000).build()?;
    squares.insert_many((0..1_000).map(|n| (n, n * n)));
    (&squares).par_extend((1_000..100_000u64).into_par_iter().map(|n| (n, n * n)));
    squares.insert_many_with_ttl((0..10).map(|n| (n, 0)), Duration::from_secs(60));
    let even = squares
        .par_iter()
        .filter(|(_, square)| square % 2 == 0)
        .count();
    squares.retain(|_, square| square % 2 == 0);
    println!("{even} even squares, {} left", squares.entry_count());
    assert_eq!(squares.entry_count(), even as u64);
    Ok(())
}
