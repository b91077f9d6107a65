//! Takes the operations, the cache beside its model, and the checks after each step from the
//! property test, `tests/model.rs`, as they are: one definition for both.

use std::path::Path;
use std::{env, fs};

fn main() {
    let here = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let tests = Path::new(&here).parent().expect("this folder is in tests");
    let (source, common) = (tests.join("model.rs"), tests.join("common"));
    for path in [&source, &common] {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let text = fs::read_to_string(&source).expect("the property test is there");
    // What is included cannot have inner comments, and its modules are looked for elsewhere.
    let text: String = text
        .lines()
        .filter(|line| !line.starts_with("//!"))
        .map(|line| format!("{line}\n"))
        .collect();
    let module = format!("#[path = {:?}]\nmod common;", common.join("mod.rs"));
    assert!(text.contains("mod common;"), "its helpers are in common");
    let text = text.replacen("mod common;", &module, 1);
    let out = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("operations.rs"), text).expect("the folder is cargo's");
}
