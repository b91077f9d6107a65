//! Hit ratios on request traces, beside other caches: `cargo bench --bench hit_ratio -- ARGS`.
//!
//! ```text
//! cargo bench --bench hit_ratio                                     # the committed trace
//! cargo bench --bench hit_ratio -- --traces DIR --out target/hits   # a folder of traces
//! cargo bench --bench hit_ratio -- --quick                          # within a minute, once built
//! cargo bench --bench hit_ratio -- --help                           # everything it takes
//! ```
//!
//! The bench lives in `benches/peers`, a package of its own, as its peers are no dependencies of
//! the library. This starts it, and takes its exit code. Without cargo's `--bench` (as under
//! `cargo test --benches`) it starts nothing.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let (from_cargo, arguments): (Vec<OsString>, Vec<OsString>) = std::env::args_os()
        .skip(1)
        .partition(|word| word == "--bench");
    if from_cargo.is_empty() {
        println!("nothing to check here; `cargo bench --bench hit_ratio` measures");
        return ExitCode::SUCCESS;
    }
    match start(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Builds and runs the subcommand in `benches/peers`, from the working directory as it is (which
/// under `cargo bench` is the package's root).
fn start(arguments: &[OsString]) -> Result<ExitCode, String> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers/Cargo.toml");
    if !manifest.is_file() {
        return Err(format!(
            "the hit ratios are measured by benches/peers, and {} is not there: it comes with the \
             repository, not with the published package",
            manifest.display()
        ));
    }
    let cargo = std::env::var_os("CARGO");
    let cargo = cargo.as_deref().unwrap_or(OsStr::new("cargo"));
    let status = Command::new(cargo)
        .args(["run", "--release", "--locked", "--manifest-path"])
        .arg(&manifest)
        .args(["--", "hit-ratio"])
        .args(arguments)
        .status()
        .map_err(|error| format!("cannot start {}: {error}", cargo.display()))?;
    match status.code() {
        Some(0) => Ok(ExitCode::SUCCESS),
        // The program, or cargo when it cannot build it, has said why.
        Some(code) => Ok(ExitCode::from(u8::try_from(code).unwrap_or(1))),
        None => Err(format!("the bench was ended from outside ({status})")),
    }
}
