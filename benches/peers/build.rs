//! Notes at build time what the tables must state: the compiler, and the version
//! of every contender as Cargo.lock has it.

use std::{env, fs, process::Command};

const SHOWN: [&str; 10] = [
    "ebbtide",
    "moka",
    "mini-moka",
    "quick_cache",
    "TinyUFO",
    "foyer-memory",
    "lru",
    "dashmap",
    "papaya",
    "scc",
];

fn main() {
    println!("cargo::rerun-if-changed=Cargo.lock");
    println!("cargo::rerun-if-changed=build.rs");

    let lock = fs::read_to_string("Cargo.lock").expect("Cargo.lock stands beside build.rs");
    let versions: Vec<String> = SHOWN
        .iter()
        .filter(|name| **name != "ebbtide" || env::var_os("CARGO_FEATURE_EBBTIDE").is_some())
        .filter_map(|name| Some(format!("{name} {}", version(&lock, name)?)))
        .collect();
    println!("cargo::rustc-env=PEERS_VERSIONS={}", versions.join(", "));

    let rustc = env::var_os("RUSTC").expect("cargo sets RUSTC");
    let said = Command::new(rustc)
        .arg("--version")
        .output()
        .expect("the compiler names its version");
    let said = String::from_utf8_lossy(&said.stdout);
    println!("cargo::rustc-env=PEERS_RUSTC={}", said.trim());

    for name in ["PROFILE", "OPT_LEVEL", "TARGET"] {
        let value = env::var(name).unwrap_or_default();
        println!("cargo::rustc-env=PEERS_{name}={value}");
    }
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    println!(
        "cargo::rustc-env=PEERS_RUSTFLAGS={}",
        flags.replace('\u{1f}', " ")
    );
}

/// The version of `name` in the text of a lock file, whose `[[package]]` tables
/// always begin with `name`, then `version`. Of several versions the newest, which
/// comes last: an older one is some contender's own dependency.
fn version<'a>(lock: &'a str, name: &str) -> Option<&'a str> {
    let lines: Vec<&str> = lock.lines().collect();
    let wanted = format!("name = \"{name}\"");
    lines.windows(2).rfind(|pair| pair[0] == wanted)?[1]
        .strip_prefix("version = \"")?
        .strip_suffix('"')
}
