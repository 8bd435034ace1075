//! The plots of a report, each an SVG element that needs nothing from outside.
#![forbid(unsafe_code)]

use super::Told;
use super::arrivals::Arrival;
use super::figures::{busy_ns, mean_decoding, ms, sorted};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;
use std::fmt::Debug;

/// A line: what it is called, and its points.
type Series = (String, Vec<(f64, f64)>);

const SIZE: (u32, u32) = (960, 380);
/// Points that a line has at most; more cannot be told apart at this size.
const POINTS: usize = 480;
/// Okabe and Ito's colours, which most colour-blind readers can tell apart.
const COLOURS: [RGBColor; 5] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 86, 86),
];

/// Requests that have arrived and are not admitted, over time.
pub fn waiting_for_admission(arrivals: &[Arrival], told: &[Told]) -> String {
    over_time(told.iter().map(|t| (t.figures.strategy.into(), waits(arrivals, t, None))))
}

/// The same for one strategy, class by class.
pub fn waiting_by_class(arrivals: &[Arrival], told: &Told) -> String {
    let classes = told.figures.classes.iter();
    over_time(classes.map(|c| (c.class.clone(), waits(arrivals, told, Some(&c.class)))))
}

/// The changes of how many wait for admission, of one class or of all.
fn waits(arrivals: &[Arrival], told: &Told, class: Option<&str>) -> Vec<(u64, i64)> {
    let all = arrivals.iter().zip(&told.run.records);
    let those = all.filter(|(_, r)| class.is_none() || r.class.as_deref() == class);
    let spans = those.filter_map(|(a, r)| r.waited(a.at));
    spans.flat_map(|(from, until)| [(from, 1), (until, -1)]).collect()
}

/// Requests that are placed and whose prefill has not started, over time.
pub fn waiting_for_prefill(told: &[Told]) -> String {
    over_time(told.iter().map(|t| {
        let spans = t.run.records.iter().filter_map(|r| Some((r.admitted?, r.prefill_start?)));
        (t.figures.strategy.into(), spans.flat_map(|(s, e)| [(s, 1), (e, -1)]).collect())
    }))
}

/// How busy each rank was with prefill, the busiest first.
pub fn load_per_rank(told: &[Told], ranks: usize) -> String {
    let series: Vec<Series> = told
        .iter()
        .map(|t| {
            let end = t.run.records.iter().filter_map(|r| r.prefill_end).max().unwrap_or(0).max(1);
            let mut busy = busy_ns(&t.run.records, ranks);
            busy.sort_unstable_by(|a, b| b.cmp(a));
            let share = |i: usize| (i as f64 + 1.0, busy[i] as f64 * 100.0 / end as f64);
            (t.figures.strategy.into(), thinned(busy.len()).map(share).collect())
        })
        .collect();
    per_rank(ranks, "% of time prefilling", &series)
}

/// How many requests decoded on each decode rank, the busiest first.
pub fn decoding_per_rank(told: &[Told], ranks: usize) -> String {
    let series: Vec<Series> = told
        .iter()
        .map(|t| {
            let mut mean = mean_decoding(&t.run.records, ranks);
            mean.sort_unstable_by(|a, b| b.total_cmp(a));
            let point = |i: usize| (i as f64 + 1.0, mean[i]);
            (t.figures.strategy.into(), thinned(mean.len()).map(point).collect())
        })
        .collect();
    per_rank(ranks, "requests decoding, mean", &series)
}

fn per_rank(ranks: usize, unit: &str, series: &[Series]) -> String {
    let x = 1.0..(ranks as f64).max(2.0);
    let y = 0.0..highest(series, 1.0);
    let names = SeriesLabelPosition::LowerLeft;
    svg(|area| draw(area, x, y, "rank, busiest first", unit, series, names))
}

/// How large a share of decisions took longer.
pub fn decision_time(told: &[Told]) -> String {
    slower_than("decision time, us", told, |t| {
        let both = t.run.records.iter().flat_map(|r| [r.decision_ns, r.decode_decision_ns]);
        sorted(both).into_iter().map(|ns| ns as f64 / 1e3).collect()
    })
}

/// How large a share of requests waited longer for the first token.
pub fn first_token(arrivals: &[Arrival], told: &[Told]) -> String {
    slower_than("time to first token, ms", told, |t| {
        let all = arrivals.iter().zip(&t.run.records);
        sorted(all.map(|(a, r)| Some(r.first_token? - a.at))).into_iter().map(ms).collect()
    })
}

/// Counts of requests over time, from their changes: per stretch of time the highest value.
fn over_time(counts: impl Iterator<Item = (String, Vec<(u64, i64)>)>) -> String {
    let mut counts: Vec<_> = counts.collect();
    for (_, changes) in &mut counts {
        changes.retain(|(at, _)| *at != u64::MAX);
        changes.sort_unstable();
    }
    // One axis of time for all of them.
    let end = counts.iter().flat_map(|(_, c)| c.last()).map(|c| c.0).max().unwrap_or(0);
    let series: Vec<Series> = counts
        .into_iter()
        .map(|(name, changes)| (name, highest_per_stretch(&changes, end)))
        .collect();
    let end = series.iter().flat_map(|(_, p)| p.last()).map(|p| p.0).fold(1e-3, f64::max);
    let top = highest(&series, 1.0);
    let names = SeriesLabelPosition::UpperRight;
    svg(|area| draw(area, 0.0..end, 0.0..top, "s", "requests", &series, names))
}

fn highest_per_stretch(changes: &[(u64, i64)], end: u64) -> Vec<(f64, f64)> {
    let stretch = (end / POINTS as u64).max(1);
    let (mut count, mut at) = (0, 0);
    let mut points = Vec::new();
    for s in 0..=end / stretch {
        let until = (s + 1) * stretch;
        let mut top = count;
        while let Some(&(t, change)) = changes.get(at).filter(|c| c.0 < until) {
            // All changes of one instant are one step.
            count += change;
            at += 1;
            if changes.get(at).is_none_or(|next| next.0 != t) {
                top = top.max(count);
            }
        }
        points.push(((s * stretch) as f64 / 1e9, top as f64));
    }
    points
}

/// The share of samples above each value, both axes logarithmic, so that the tail can be read.
fn slower_than(unit: &str, told: &[Told], samples: impl Fn(&Told) -> Vec<f64>) -> String {
    let series: Vec<Series> = told
        .iter()
        .map(|t| {
            let sorted = samples(t);
            let n = sorted.len();
            // Evenly spaced along the logarithm of the share, from all to the last one.
            let mut points: Vec<(f64, f64)> = (0..=POINTS)
                .map(|k| (n as f64).powf(1.0 - k as f64 / POINTS as f64))
                .filter(|_| n > 0)
                .map(|above| {
                    let i = n - (above.round() as usize).clamp(1, n);
                    (sorted[i].max(1e-3), (n - i) as f64 / n as f64)
                })
                .collect();
            points.dedup();
            (t.figures.strategy.into(), points)
        })
        .collect();
    let all = || series.iter().flat_map(|(_, p)| p);
    let low = all().map(|p| p.0).fold(f64::INFINITY, f64::min);
    let low = if low.is_finite() { low } else { 0.1 };
    let high = all().map(|p| p.0).fold(low * 10.0, f64::max);
    let rare = all().map(|p| p.1).fold(0.1, f64::min);
    let (x, y) = ((low..high).log_scale(), (rare..1.0).log_scale());
    svg(|area| draw(area, x, y, unit, "share above", &series, SeriesLabelPosition::LowerLeft))
}

/// At most [`POINTS`] indices of `0..n`, the first and the last among them.
fn thinned(n: usize) -> impl Iterator<Item = usize> {
    let points = n.min(POINTS);
    (0..points).map(move |k| if points == 1 { 0 } else { k * (n - 1) / (points - 1) })
}

fn highest(series: &[Series], least: f64) -> f64 {
    series.iter().flat_map(|(_, p)| p).map(|p| p.1).fold(least, f64::max) * 1.05
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

/// Draws into a string. What cannot be drawn becomes a sentence in its place: a report with one
/// plot less is better than none.
fn svg(draw: impl for<'a> FnOnce(&Area<'a>) -> Drawn<'a>) -> String {
    let mut text = String::new();
    let drawn = {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        let drawn = area.fill(&WHITE).and_then(|()| draw(&area)).and_then(|()| area.present());
        drawn.map_err(|e| e.to_string())
    };
    match drawn {
        Ok(()) => text,
        Err(e) => format!("<p>This plot could not be drawn: {e}</p>"),
    }
}

fn draw<'a, X, Y>(
    area: &Area<'a>,
    x: X,
    y: Y,
    x_name: &str,
    y_name: &str,
    series: &[Series],
    names: SeriesLabelPosition,
) -> Drawn<'a>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    X::Value: Debug,
{
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .max_light_lines(0)
        .x_desc(x_name)
        .y_desc(y_name)
        .x_label_formatter(&|v| number(*v))
        .y_label_formatter(&|v| number(*v))
        .draw()?;
    for ((name, points), colour) in series.iter().zip(COLOURS.iter().cycle()) {
        chart
            .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?
            .label(name.as_str())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(3)));
    }
    chart
        .configure_series_labels()
        .position(names)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}

/// A label: no more digits than its size asks for.
fn number(v: f64) -> String {
    match v.abs() {
        0.0 => "0".into(),
        a if a >= 1e6 => format!("{v:.0e}"),
        a if a >= 10.0 => format!("{v:.0}"),
        a if a >= 1.0 => format!("{v:.1}").trim_end_matches(".0").into(),
        a if a >= 0.01 => format!("{v:.2}"),
        _ => format!("{v:.0e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_over_time_keeps_its_peaks_and_not_what_never_lasted() {
        let s = 1_000_000_000;
        let mut changes =
            vec![(0, 1), (s, 1), (s, -1), (2 * s, 1), (2 * s + 5, -1), (960 * s, 1), (960 * s, -1)];
        changes.sort_unstable();
        let points = highest_per_stretch(&changes, 960 * s);
        assert_eq!(points[0], (0.0, 1.0), "in and out at one instant is not waiting");
        assert_eq!(points[1], (2.0, 2.0), "a short peak is still seen");
        assert_eq!(points[2], (4.0, 1.0));
        assert!(points.len() <= POINTS + 1);
    }

    #[test]
    fn thinning_keeps_both_ends() {
        for n in [1, 2, 479, 480, 481, 4096] {
            let kept: Vec<_> = thinned(n).collect();
            assert_eq!((kept[0], *kept.last().unwrap()), (0, n - 1));
            assert!(kept.len() <= POINTS && kept.is_sorted());
        }
        assert_eq!(thinned(0).count(), 0);
    }
}
