//! What entries cost in the seed's model, counted over what the cache holds: the
//! shapes of a session, and the loan counters of a whole catalog.

use ebbtide::{Cache, ManualClock};

use crate::seeds::books::{self, BOOKS, HOT_BOOKS, LEDGER, QUERIES};
use crate::seeds::figures::{self, BudgetRow, ShapeRow};
use crate::seeds::random::to_fixed;
use crate::seeds::session_day::{LIFETIME, MEMBERS, OVERHEAD, Session, cost};

/// The member whose session the seed writes down in six shapes.
const SAMPLE: Session = Session { member: 4_242 };

/// A cache that nothing but the test's thread works on.
fn quiet_cache<K, V>() -> Cache<K, V>
where
    K: Clone + Eq + std::hash::Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    Cache::builder()
        .clock(ManualClock::new())
        .build()
        .expect("valid settings")
}

fn shaped(row: &ShapeRow) -> (String, String) {
    let key = match row.key_format {
        "long" => SAMPLE.long_key(),
        "plain" => SAMPLE.key(),
        "short" => SAMPLE.short_key(),
        other => panic!("no key format {other}"),
    };
    let value = match row.value_format {
        "self-describing" => SAMPLE.self_describing(),
        "positional" => SAMPLE.positional(),
        other => panic!("no value format {other}"),
    };
    (key, value)
}

#[test]
fn six_shapes_of_a_session() {
    for row in &figures::SHAPES {
        let (key, value) = shaped(row);
        let name = format!("{} key, {} value", row.key_format, row.value_format);
        assert_eq!(key.len() as u64, row.key_bytes, "{name}");
        assert_eq!(value.len() as u64, row.value_bytes, "{name}");

        // The same session 20,000 times over; the copy's number costs nothing.
        let cache = quiet_cache::<(u32, String), String>();
        for copy in 0..MEMBERS {
            cache.insert_with_ttl(
                (copy, key.clone()),
                value.clone(),
                std::time::Duration::from_secs(u64::from(LIFETIME)),
            );
        }
        let costs: Vec<u64> = cache.iter().map(|((_, k), v)| cost(&k, &v)).collect();
        assert_eq!(costs.len(), MEMBERS as usize, "{name}");
        assert!(costs.iter().all(|&c| c == row.entry_bytes), "{name}");
        assert_eq!(costs.iter().sum::<u64>(), row.at_20_000, "{name}");
    }
}

#[test]
fn all_sessions_with_their_own_keys_and_values() {
    let cache = quiet_cache::<String, String>();
    for session in (1..=MEMBERS).map(|member| Session { member }) {
        cache.insert(session.key(), session.self_describing());
    }
    assert_eq!(cache.entry_count(), u64::from(MEMBERS));
    let bytes: u64 = cache.iter().map(|(k, v)| cost(&k, &v)).sum();
    assert_eq!(bytes, figures::ALL_SESSIONS_BYTES);
}

/// A field's value in a self-describing text, by its name.
fn named_field<'a>(text: &'a str, field: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!(r#""{field}":""#))?;
    Some(rest.split_once('"')?.0)
}

#[test]
fn stored_sessions_read_with_a_new_field_order() {
    let cache = quiet_cache::<&'static str, String>();
    cache.insert("self-describing", SAMPLE.self_describing());
    cache.insert("positional", SAMPLE.positional());

    let text = cache.get("self-describing").expect("just stored");
    assert_eq!(named_field(&text, "branch"), Some("university"));
    assert_eq!(named_field(&text, "role"), Some("reader"));
    assert_eq!(named_field(&text, "branch_code"), None);

    // Read as member|branch_code|branch|role, two fields are wrong and one missing.
    let text = cache.get("positional").expect("just stored");
    let mut fields = text.split('|').skip(1);
    assert_eq!(fields.next(), Some("university"), "as the branch's code");
    assert_eq!(fields.next(), Some("reader"), "as the branch");
    assert_eq!(fields.next(), None, "as the role");
}

fn counters(books: u32) -> Cache<String, String> {
    let cache = quiet_cache();
    for book in 1..=books {
        cache.insert(books::loan_key(book), books::loan_count(book).to_string());
    }
    assert_eq!(cache.entry_count(), u64::from(books));
    cache
}

/// Steps to answer all questions: one where there is a counter, else the ledger.
fn steps(cache: &Cache<String, String>, queries: &[u32]) -> (u64, u64) {
    let (mut steps, mut answered) = (0, 0);
    for &book in queries {
        match cache.get(&books::loan_key(book)) {
            Some(count) => {
                assert_eq!(count, books::loan_count(book).to_string());
                steps += 1;
                answered += 1;
            }
            None => steps += LEDGER,
        }
    }
    (steps, answered)
}

fn check_budget(row: &BudgetRow) -> Cache<String, String> {
    let name = row.name;
    let cache = counters(row.entries);
    let bytes: u64 = cache.iter().map(|(k, v)| cost(&k, &v)).sum();
    assert_eq!(bytes, row.bytes, "{name}");

    let queries = books::queries();
    assert_eq!(queries.len(), QUERIES);
    let (steps, answered) = steps(&cache, &queries);
    let asked = QUERIES as u64;
    assert_eq!(
        answered,
        match row.entries {
            0 => 0,
            HOT_BOOKS => figures::HOT_QUERIES,
            BOOKS => asked,
            other => panic!("no figure for {other} counters"),
        },
        "{name}"
    );
    assert_eq!(
        to_fixed(steps as f64 / asked as f64, 1),
        row.steps_per_query,
        "{name}"
    );
    let prevented = asked * LEDGER - steps;
    let per_byte = (bytes > 0).then(|| to_fixed(prevented as f64 / bytes as f64, 1));
    assert_eq!(per_byte.as_deref(), row.steps_prevented_per_byte, "{name}");
    cache
}

#[test]
fn no_counter_scans_the_ledger() {
    check_budget(&figures::BUDGET[0]);
}

#[test]
fn partial_counter_pays_best_by_the_byte() {
    check_budget(&figures::BUDGET[1]);
    let share = figures::HOT_QUERIES as f64 / QUERIES as f64 * 100.0;
    assert_eq!(to_fixed(share, 1), figures::HOT_QUERIES_SHARE);
}

#[test]
fn full_counter_answers_in_one_step() {
    let cache = check_budget(&figures::BUDGET[2]);
    let mut parts = [0; 3];
    for (key, value) in cache.iter() {
        parts[0] += key.len() as u64;
        parts[1] += value.len() as u64;
        parts[2] += OVERHEAD;
    }
    assert_eq!(parts, figures::FULL_COUNTER_PARTS);
    let bytes: u64 = parts.iter().sum();
    assert_eq!(
        to_fixed(bytes as f64 / f64::from(BOOKS), 1),
        figures::FULL_COUNTER_PER_ENTRY
    );
    assert_eq!(
        to_fixed(100.0 * parts[1] as f64 / bytes as f64, 1),
        figures::FULL_COUNTER_VALUE_SHARE
    );
}
