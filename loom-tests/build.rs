//! Makes the modules that models are compiled in, and those of the controls for their package.
//!
//! The engine's own protocol files are compiled against loom once, as they are, in `plain`. Each
//! model of `matrix.rs` gets a module that uses those. Each control gets a module with a copy of
//! one file in which a passage is replaced, copies of the files that use it, and `plain` for the
//! rest. The passage must occur exactly once; when the engine's file has changed so that it does
//! not, the build fails and says which control has to be looked at.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

include!("matrix.rs");

/// The modules of the engine's root that protocol files are, or are in.
const ROOTS: [&str; 7] = ["fleet", "grace", "load", "names", "queue", "room", "time"];

fn main() {
    let package = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let out = PathBuf::from(std::env::var("OUT_DIR").expect("set by cargo"));
    let controls = package.ends_with("controls");
    let here = if controls { package.join("..") } else { package };
    for input in ["build.rs", "matrix.rs", "models"] {
        println!("cargo::rerun-if-changed={}", here.join(input).display());
    }
    let engine = engine(&here);
    let mut variants = plain(&out, &engine);
    let mut problems = Vec::new();
    for model in MODELS {
        let bound = format!(
            "vacancy_loom_tests::explore::Bound {{ short: {:?}, gate: {:?}, long: {:?} }}",
            model.short, model.gate, model.long
        );
        let file = read(&here.join(format!("models/{}.rs", model.file)));
        let worlds = |name: &str| match file.contains("pub(crate) const WORLDS: usize") {
            true => format!("in_{name}::model::WORLDS"),
            false => "1".to_owned(),
        };
        if !controls {
            let name = format!("model_{}_{}", model.number, model.sentence);
            variants += &module(&here, &out, &engine, &name, model, None, &mut problems);
            writeln!(
                variants,
                "#[test]\nfn {name}() {{\n    vacancy_loom_tests::explore::model({bound}, {}, \
                 in_{name}::model::BRANCHES, in_{name}::model::run);\n}}\n",
                worlds(&name)
            )
            .expect("a string takes it");
            continue;
        }
        for control in model.controls {
            let name = format!("control_{}_{}", model.number, control.removed);
            variants += &module(&here, &out, &engine, &name, model, Some(control), &mut problems);
            writeln!(
                variants,
                "#[test]\nfn {name}() {{\n    vacancy_loom_tests::explore::control({name:?}, {bound}, {}, &{:?}, \
                 in_{name}::model::run);\n}}\n",
                worlds(&name), control.fails_on
            )
            .expect("a string takes it");
        }
    }
    assert!(problems.is_empty(), "\n\n{}\n", problems.join("\n"));
    fs::write(out.join("variants.rs"), variants).expect("the variants can be written");
}

/// A file of the engine.
struct File {
    /// The room that it is in, or the part of a room (`load/prompts`); none for a file of the root.
    room: Option<&'static str>,
    stem: &'static str,
    text: String,
}

impl File {
    fn path(&self) -> String {
        match self.room {
            Some(room) => format!("crate::{}::{}", room.replace('/', "::"), self.stem),
            None => format!("crate::{}", self.stem),
        }
    }

    /// The name of a copy of it.
    fn copy(&self) -> String {
        format!("{}_{}.rs", self.room.unwrap_or("root").replace('/', "_"), self.stem)
    }

    /// Whether this file has to be a copy if `other` is one: it names it, by its path from the
    /// crate or as a neighbour; or both are in one part of a room, whose files show each other what
    /// nobody else sees.
    fn uses(&self, other: &File) -> bool {
        if self.room == other.room && self.room.is_some_and(|room| room.contains('/')) {
            return true;
        }
        let path = other.path();
        let neighbour = format!("super::{}", other.stem);
        self.text.contains(&path) || self.room == other.room && self.text.contains(&neighbour)
    }
}

/// The engine's files as they are, by path.
fn engine(here: &Path) -> BTreeMap<&'static str, File> {
    let paths = MODELS.iter().flat_map(|model| model.engine).copied();
    paths
        .map(|path| {
            let (room, file) = match path.rsplit_once('/') {
                Some((room, file)) => (Some(room), file),
                None => (None, path),
            };
            let stem = file.strip_suffix(".rs").expect("a Rust file");
            let from = here.join("../engine/src").join(path);
            (path, File { room, stem, text: read(&from) })
        })
        .collect()
}

fn read(from: &Path) -> String {
    println!("cargo::rerun-if-changed={}", from.display());
    fs::read_to_string(from).unwrap_or_else(|error| panic!("{}: {error}", from.display()))
}

/// Writes a copy that is to be compiled inside the module `inside`, and gives its `mod` item. The
/// engine's unit tests are not models.
fn write(out: &Path, inside: &str, name: &str, stem: &str, text: &str) -> String {
    let mut text = text.replace("#[cfg(test)]", "#[cfg(any())]");
    for room in ROOTS {
        text = text.replace(&format!("crate::{room}::"), &format!("crate::{inside}::{room}::"));
    }
    let dir = out.join(inside);
    fs::create_dir_all(&dir).expect("the directory can be made");
    let to = dir.join(name);
    fs::write(&to, text).expect("the copy can be written");
    format!("#[path = {to:?}]\npub(crate) mod {stem};\n")
}

/// The items of a module, by room.
fn rooms(mut items: BTreeMap<Option<&str>, String>) -> String {
    let parts: Vec<&str> = items.keys().flatten().copied().filter(|r| r.contains('/')).collect();
    for path in parts {
        let inner = items.remove(&Some(path)).unwrap_or_default();
        let (room, part) = path.split_once('/').expect("it has one");
        let outer = items.entry(Some(room)).or_default();
        *outer += &format!("pub(crate) mod {part} {{\n{inner}}}\n");
    }
    items.iter().fold(String::new(), |all, (room, items)| match room {
        Some(room) => format!("{all}pub(crate) mod {room} {{\n{items}}}\n"),
        None => all + items,
    })
}

/// Writes the module of the engine's files as they are.
fn plain(out: &Path, engine: &BTreeMap<&'static str, File>) -> String {
    let mut items: BTreeMap<Option<&str>, String> = BTreeMap::new();
    for file in engine.values() {
        let name = file.copy();
        let item = write(out, "plain", &name, file.stem, &file.text);
        items.entry(file.room).or_default().push_str(&item);
    }
    format!("pub(crate) mod plain {{\n{}}}\n", rooms(items))
}

/// The text with the control's passages replaced.
fn patched(text: &str, file: &str, name: &str, control: &Control, out: &mut Vec<String>) -> String {
    let mut text = text.to_owned();
    for (find, replace) in control.patches {
        match text.matches(find).count() {
            1 => text = text.replacen(find, replace, 1),
            found => out.push(format!(
                "{name}: this passage occurs {found} times in {file} and must occur once; the file \
                 has changed, look at the control again:\n{find}\n"
            )),
        }
    }
    text
}

/// Writes the module of one model, or of one control of it.
fn module(
    here: &Path,
    out: &Path,
    engine: &BTreeMap<&'static str, File>,
    name: &str,
    model: &Model,
    control: Option<&Control>,
    problems: &mut Vec<String>,
) -> String {
    let inside = format!("in_{name}");
    let patch = control.map(|control| control.file);
    // The files that are not the same as in `plain`: the patched one, and who uses such a one.
    let mut own: Vec<&str> =
        model.engine.iter().copied().filter(|file| patch == Some(*file)).collect();
    loop {
        let users = model.engine.iter().copied().find(|file| {
            !own.contains(file) && own.iter().any(|other| engine[file].uses(&engine[other]))
        });
        match users {
            Some(file) => own.push(file),
            None => break,
        }
    }
    let mut applied = false;
    let mut text_of = |file: &str, text: &str| {
        let Some(control) = control.filter(|control| control.file == file) else {
            return text.to_owned();
        };
        applied = true;
        patched(text, file, name, control, problems)
    };
    let mut items: BTreeMap<Option<&str>, String> = BTreeMap::new();
    for path in model.engine {
        let file = &engine[path];
        let item = if own.contains(path) {
            write(out, &inside, &file.copy(), file.stem, &text_of(path, &file.text))
        } else {
            format!("pub(crate) use {};\n", file.path().replace("crate::", "crate::plain::"))
        };
        items.entry(file.room).or_default().push_str(&item);
    }
    let mut body = rooms(items);
    for file in model.support.iter().chain([&model.file]) {
        let path = format!("models/{file}.rs");
        let text = text_of(&path, &read(&here.join(&path)));
        let stem = if file == &model.file { "model" } else { file };
        body += &write(out, &inside, &format!("{stem}.rs"), stem, &text);
    }
    if let Some(file) = patch.filter(|_| !applied) {
        problems.push(format!("{name}: the model does not compile {file}"));
    }
    format!("mod {inside} {{\n{body}}}\n")
}
