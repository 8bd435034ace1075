//! What the fuzzer starts from, and whatever it has found, through the same bodies.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use vacancy_fuzz_targets::TARGETS;

/// The files of `directory`, in the order of their names.
fn files(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).collect();
    files.sort();
    files
}

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn every_seed_and_every_case_found_passes() {
    for (name, target) in TARGETS {
        let (mut ran, mut operations) = (0, 0);
        for kind in ["seeds", "found"] {
            for file in files(&fuzz().join(kind).join(name)) {
                let bytes = fs::read(&file).expect("it can be read");
                // If it panics, this is the last line.
                println!("{}", file.display());
                operations += target(&bytes);
                ran += 1;
            }
        }
        println!("{name}: {ran} files, {operations} operations");
        assert!(ran >= 4 && operations > 0, "{name}: {ran} files, {operations} operations");
    }
}

#[test]
fn the_scenarios_of_the_project_run_to_their_end() {
    let (_, scenario) = TARGETS.into_iter().find(|(name, _)| *name == "scenario").expect("one");
    let mut steps = 0;
    for file in files(&fuzz().join("../engine/tests/scenarios")) {
        steps += scenario(&fs::read(&file).expect("it can be read"));
    }
    assert!(steps > 500, "{steps}");
}

#[test]
fn bytes_of_any_kind_do_no_harm() {
    let mut state = 1u64;
    let mut byte = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    for round in 0..40 {
        let bytes: Vec<u8> = (0..round * 37).map(|_| byte()).collect();
        for (_, target) in TARGETS {
            target(&bytes);
        }
    }
}
