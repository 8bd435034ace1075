//! A pool's figures through the `metrics` facade.
#![forbid(unsafe_code)]

use crate::pool::Pool;

/// Publishes a pool's counters and gauges, labelled `pool = name`. Call it as often as metrics are
/// to be fresh; it costs one [`Pool::snapshot`].
pub fn record(pool: &Pool, name: &str) {
    let label = || [("pool", name.to_owned())];
    let snapshot = pool.snapshot();
    let counters = &snapshot.counters;
    for (metric, value) in [
        ("vacancy_selected_total", counters.selected),
        ("vacancy_queued_total", counters.queued),
        ("vacancy_admitted_total", counters.admitted),
        ("vacancy_expired_total", counters.expired),
        ("vacancy_cancelled_total", counters.cancelled),
        ("vacancy_wakeups_total", counters.wakeups),
        ("vacancy_reselections_total", counters.reselections),
        ("vacancy_passes_total", counters.passes),
    ] {
        metrics::counter!(metric, &label()).absolute(value);
    }
    for &(reason, value) in &counters.rejected_by {
        let labels = [("pool", name.to_owned()), ("reason", reason.to_owned())];
        metrics::counter!("vacancy_rejected_total", &labels).absolute(value);
    }
    for (metric, value) in [
        ("vacancy_workers", snapshot.workers),
        ("vacancy_ranks", snapshot.ranks.len()),
        ("vacancy_ranks_full", snapshot.full),
        ("vacancy_waiting", snapshot.waiting),
    ] {
        metrics::gauge!(metric, &label()).set(value as f64);
    }
    for class in &snapshot.classes {
        let labels = [("pool", name.to_owned()), ("class", class.class.to_string())];
        metrics::gauge!("vacancy_class_waiting", &labels).set(class.waiting as f64);
        metrics::gauge!("vacancy_class_waiting_tokens", &labels).set(class.tokens as f64);
    }
}
