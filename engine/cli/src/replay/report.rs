//! `--report`: one HTML file with the figures and their plots. Nothing in it is fetched.
#![forbid(unsafe_code)]

use super::arrivals::Arrival;
use super::sim::Layout;
use super::{Setting, Told, plots, table};
use std::fmt::Write;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;\
padding:0 1rem;color:#1a1a1a;background:#fff}h1,h2{line-height:1.2}h2{margin-top:2.5rem}\
pre{background:#f4f4f4;padding:.8rem;overflow-x:auto}div{overflow-x:auto}\
table{border-collapse:collapse}td,th{padding:.25rem .8rem;text-align:right;border-bottom:1px solid \
#ddd;font-variant-numeric:tabular-nums}td:first-child{text-align:left}svg{max-width:100%;height:auto}\
p{color:#444}";

/// The whole page.
pub fn page(setting: &Setting, arrivals: &[Arrival], told: &[Told], layout: Layout) -> String {
    let mut page =
        String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width\">");
    let _ = write!(page, "<title>vacancy replay</title><style>{STYLE}</style></head><body>");
    let head = escaped(&table::headline(setting, told));
    let _ = write!(page, "<h1>vacancy replay</h1><pre>{head}</pre><div><table><tr><td></td>");
    for t in told {
        let _ = write!(page, "<th>{}</th>", t.figures.strategy);
    }
    page.push_str("</tr>");
    for (name, cell) in table::ROWS {
        let _ = write!(page, "<tr><td>{name}</td>");
        for t in told {
            let _ = write!(page, "<td>{}</td>", cell(t));
        }
        page.push_str("</tr>");
    }
    page.push_str("</table></div>");
    let mut plots = vec![(
        "Waiting for admission",
        "Requests that have arrived and that the strategy has not admitted yet; per stretch of \
         time the most at once.",
        plots::waiting_for_admission(arrivals, told),
    )];
    if !told[0].figures.classes.is_empty() {
        plots.push((
            "Waiting by class",
            "The same for the first strategy alone, class by class.",
            by_class(&told[0]) + &plots::waiting_by_class(arrivals, &told[0]),
        ));
    }
    plots.extend([
        (
            "Waiting for prefill",
            "Requests that have a rank which has not started on them yet; per stretch of time the \
             most at once, all ranks together.",
            plots::waiting_for_prefill(told),
        ),
        (
            "Load per rank",
            "Share of the run in which each rank computed prompts, the busiest rank first. A flat \
             line is an even load; a lower one is work that caches saved.",
            plots::load_per_rank(told, layout.prefill),
        ),
    ]);
    if layout.decode > 0 {
        plots.push((
            "Decode load per rank",
            "How many requests decoded on each decode rank, on average over the run, the busiest \
             rank first.",
            plots::decoding_per_rank(told, layout.decode),
        ));
    }
    plots.extend([
        (
            "Decision time",
            "Share of decisions that took longer, in wall time around the call alone.",
            plots::decision_time(told),
        ),
        (
            "Time to first token",
            "Share of requests that waited longer, from arrival, on the virtual clock.",
            plots::first_token(arrivals, told),
        ),
    ]);
    for (title, says, plot) in plots {
        let _ = write!(page, "<h2>{title}</h2><p>{says}</p><div>{plot}</div>");
    }
    page.push_str("</body></html>\n");
    page
}

/// The table of the classes.
fn by_class(told: &Told) -> String {
    let mut text = String::from("<table><tr>");
    for (name, _) in table::CLASS_COLUMNS {
        let _ = write!(text, "<th>{name}</th>");
    }
    text.push_str("</tr>");
    for class in &told.figures.classes {
        text.push_str("<tr>");
        for (_, cell) in table::CLASS_COLUMNS {
            let _ = write!(text, "<td>{}</td>", escaped(&cell(class)));
        }
        text.push_str("</tr>");
    }
    text + "</table>"
}

/// Text that is not ours, such as a path.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
