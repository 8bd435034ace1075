//! Where things are, and the arguments of commands.

use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// `perf/name`.
pub fn perf(name: &str) -> PathBuf {
    root().join("perf").join(name)
}

/// Where cargo builds.
pub fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// The cargo that runs us, or the one on the path.
pub fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Flags and values of a command.
pub struct Args {
    flags: Vec<String>,
    values: Vec<(String, String)>,
}

impl Args {
    /// Takes `words` apart.
    ///
    /// # Errors
    /// A word that is neither among `flags` nor among `valued`, or a value that is missing.
    pub fn parse(words: &[String], flags: &[&str], valued: &[&str]) -> Result<Args, String> {
        let mut args = Args { flags: Vec::new(), values: Vec::new() };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if flags.contains(&word.as_str()) {
                args.flags.push(word.clone());
            } else if valued.contains(&word.as_str()) {
                let value = words.next().ok_or(format!("{word} needs a value"))?;
                args.values.push((word.clone(), value.clone()));
            } else {
                return Err(format!("unknown argument {word}"));
            }
        }
        Ok(args)
    }

    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|f| f == flag)
    }

    pub fn value(&self, name: &str) -> Option<&str> {
        self.values.iter().rev().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// A number, or `default`.
    ///
    /// # Errors
    /// Something that is not a number of at least 1.
    pub fn number(&self, name: &str, default: usize) -> Result<usize, String> {
        match self.value(name) {
            None => Ok(default),
            Some(text) => match text.parse() {
                Ok(n) if n > 0 => Ok(n),
                _ => Err(format!("{name}: {text} is not a number of at least 1")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_words_and_missing_values_are_refused() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let parse = |text: &str| Args::parse(&words(text), &["--json"], &["--rounds"]);
        let args = parse("--json --rounds 3").unwrap();
        assert!(args.has("--json"));
        assert_eq!(args.number("--rounds", 9), Ok(3));
        assert!(parse("--jsno").is_err());
        assert!(parse("--rounds").is_err());
        assert!(parse("--rounds 0").unwrap().number("--rounds", 9).is_err());
    }
}
