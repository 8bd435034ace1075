//! The tables at the end of a run: a column per strategy, then a row per policy class.
#![forbid(unsafe_code)]

use super::figures::OfClass;
use super::{Setting, Told};
use comfy_table::{CellAlignment, Table, presets};
use std::fmt::Write;

/// What was run, and the figures.
pub fn text(setting: &Setting, told: &[Told]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    let names = told.iter().map(|t| t.figures.strategy.to_string());
    table.set_header([String::new()].into_iter().chain(names));
    for (name, cell) in ROWS {
        table.add_row([(*name).to_string()].into_iter().chain(told.iter().map(cell)));
    }
    figures_to_the_right(&mut table);
    let mut text = format!("{}\n{table}", headline(setting, told));
    let classes = &told[0].figures.classes;
    if !classes.is_empty() {
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        table.set_header(CLASS_COLUMNS.iter().map(|(name, _)| *name));
        for class in classes {
            table.add_row(CLASS_COLUMNS.iter().map(|(_, cell)| cell(class)));
        }
        figures_to_the_right(&mut table);
        let _ = write!(text, "\n{}, by class\n{table}", told[0].figures.strategy);
    }
    text
}

fn figures_to_the_right(table: &mut Table) {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

/// What was run, in a few lines.
pub fn headline(setting: &Setting, told: &[Told]) -> String {
    let f = &told[0].figures;
    let skipped = match setting.bad_lines {
        0 => String::new(),
        n => format!(" ({n} malformed line(s) skipped)"),
    };
    let pools = match setting.decode_ranks {
        0 => format!("{} ranks", setting.prefill_ranks),
        d => format!("{} prefill and {d} decode ranks", setting.prefill_ranks),
    };
    let transfer = match setting.decode_ranks {
        0 => String::new(),
        _ => format!(", {} tokens/s moved to decode", setting.transfer_tokens_per_s),
    };
    let holds = match setting.holds {
        None => "",
        Some(true) => "; holds on",
        Some(false) => "; holds off",
    };
    let refused = |frac: Option<f64>, of| {
        frac.map_or(String::new(), |f| format!("; refused past {f} of a rank's {of}"))
    };
    format!(
        "workload   {}{skipped}: {} requests, blocks of {} tokens, speedup {}, seed {}\n\
         fleet      {} workers, {pools}, {}\n\
         each rank  {} prompt tokens/s, {} ms per output token, {} KV blocks with LRU prefix \
         cache, {} tokens per batch declared{transfer}\n\
         policy     {}{holds}{}{}",
        setting.workload,
        f.requests,
        setting.trace_block,
        setting.speedup,
        f.seed,
        f.workers,
        f.mode,
        setting.prefill_tokens_per_s,
        setting.ms_per_output_token,
        setting.kv_blocks_per_rank,
        setting.max_num_batched_tokens,
        setting.policy,
        refused(setting.reject_prefill_frac, "token batch"),
        refused(setting.reject_decode_frac, "KV blocks"),
    )
}

type Cell = fn(&Told) -> String;

/// The rows: what is shown, and how it is written.
pub const ROWS: &[(&str, Cell)] = &[
    ("admitted", |t| t.figures.admitted.to_string()),
    ("rejected", |t| t.figures.rejected.to_string()),
    ("expired", |t| t.figures.expired.to_string()),
    ("cached token share", |t| format!("{:.1} %", t.figures.cached_token_share * 100.0)),
    ("time to first token p50", |t| ms(t.figures.ttft_ms.p50)),
    ("time to first token p90", |t| ms(t.figures.ttft_ms.p90)),
    ("time to first token p99", |t| ms(t.figures.ttft_ms.p99)),
    ("queue wait p50", |t| ms(t.figures.queue_wait_ms.p50)),
    ("queue wait p99", |t| ms(t.figures.queue_wait_ms.p99)),
    ("prefill ranks busy, mean", |t| format!("{:.1} %", t.prefill_utilisation * 100.0)),
    ("prefill imbalance, max/mean", |t| format!("{:.2}", t.figures.prefill_imbalance)),
    ("landings past limit", |t| t.figures.landings_past_limit.to_string()),
    ("decode overshoot, blocks", |t| t.figures.decode_overshoot_blocks.to_string()),
    ("decision p50", |t| us(t.figures.decision_ns.p50)),
    ("decision p99", |t| us(t.figures.decision_ns.p99)),
    ("decision p99.9", |t| us(t.figures.decision_ns.p999)),
    ("decision max", |t| us(t.figures.decision_ns.max)),
    ("bookings left", |t| t.figures.bookings_left.to_string()),
    ("wall time", |t| format!("{:.2} s", t.figures.wall_s)),
];

type ClassCell = fn(&OfClass) -> String;

/// What is shown of a class, and how it is written.
pub const CLASS_COLUMNS: &[(&str, ClassCell)] = &[
    ("class", |c| c.class.clone()),
    ("requests", |c| c.requests.to_string()),
    ("admitted", |c| c.admitted.to_string()),
    ("rejected", |c| c.rejected.to_string()),
    ("expired", |c| c.expired.to_string()),
    ("waited", |c| c.waited.to_string()),
    ("most waiting", |c| c.most_waiting.to_string()),
    ("queue wait p50", |c| ms(c.queue_wait_ms.p50)),
    ("queue wait p99", |c| ms(c.queue_wait_ms.p99)),
];

fn ms(ms: Option<f64>) -> String {
    ms.map_or("-".into(), |ms| format!("{ms:.1} ms"))
}

fn us(ns: Option<u64>) -> String {
    ns.map_or("-".into(), |ns| format!("{:.2} us", ns as f64 / 1e3))
}
