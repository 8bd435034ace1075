//! Records: what was measured, on which machine, of which commit.

use crate::callgrind::ask;
use crate::place;
use serde_json::{Value, json};

/// What a figure depends on besides the code.
pub fn machine() -> Value {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().next().and_then(|l| l.parse::<f64>().ok());
    json!({
        "cpu": model,
        "cores": cores,
        // Above the number of cores: others were at work too, absolute times are worth little.
        "load_average": load,
        "rustc": ask("rustc", &["--version"]),
        "commit": ask("git", &["rev-parse", "--short", "HEAD"]),
    })
}

/// Writes `perf/records/name.json`.
///
/// # Errors
/// It cannot be written.
pub fn write(name: &str, figures: Value) -> Result<(), String> {
    let dir = place::perf("records");
    let path = dir.join(format!("{name}.json"));
    let record = json!({"machine": machine(), "figures": figures});
    std::fs::create_dir_all(&dir)
        .and_then(|()| std::fs::write(&path, format!("{record:#}\n")))
        .map_err(|e| format!("{}: {e}", path.display()))
}

/// Reads a record; `None`: there is none.
///
/// # Errors
/// It is there and cannot be read.
pub fn read(name: &str) -> Result<Option<Value>, String> {
    let path = place::perf("records").join(format!("{name}.json"));
    match std::fs::read_to_string(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(format!("{}: {e}", path.display())),
        Ok(text) => {
            serde_json::from_str(&text).map(Some).map_err(|e| format!("{}: {e}", path.display()))
        }
    }
}
