//! The built-in workload: sessions of several turns over shared system prompts.
//!
//! A session opens with one of 64 system prompts (popularity by Zipf's law), then user and model
//! take turns; every turn's prompt repeats the whole session so far. Messages and answers are
//! log-normal, and one message in four carries a document of Pareto-distributed length (tail index
//! 1.3). The arrivals are a window of time: a session that began before it is cut there and knows
//! nothing of what lies before, so that rate and work are even from the first second on. The time
//! axis is then stretched so that the prefill work that is left if every block is computed once in
//! the whole fleet (no strategy can do with less) is the wanted share of what the ranks can do.
#![forbid(unsafe_code)]

use super::arrivals::{Arrival, chain, mix};
use super::sim::Model;
use rustc_hash::FxHashSet;
use std::f64::consts::TAU;
use vacancy::Prompt;

/// What is wanted of the workload.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// How many requests.
    pub requests: usize,
    /// How many ranks prefill.
    pub ranks: usize,
    /// The share of their prefill rate that is asked for.
    pub load: f64,
    /// Everything follows from it.
    pub seed: u64,
}

const SYSTEM_PROMPTS: usize = 64;
const MEAN_TURNS: f64 = 4.0;
const DOCUMENTS: f64 = 0.25;
const LONGEST_CONTEXT: u32 = 131_072;
const LONGEST_ANSWER: f64 = 4096.0;
/// Mean pause between an answer and the next message, in seconds.
const MEAN_PAUSE_S: f64 = 3.0;
/// Pace of an answer as a session sees it, in seconds per token. It says only when the next turn
/// arrives: arrivals must be the same whatever the ranks do.
const ANSWER_S_PER_TOKEN: f64 = 0.03;
/// How long before the window sessions begin; few last longer.
const BEFORE_S: f64 = 240.0;
/// About how many tokens a turn adds; the stretching corrects what this is off by.
const TURN_TOKENS: f64 = 4000.0;

/// One turn of a session.
struct Turn {
    at_s: f64,
    isl: u32,
    osl: u32,
    system: usize,
    session: u64,
    turn: u64,
}

/// Generates the workload: exactly the requests wanted, by arrival, the first at 0. The same for
/// the same input, on every machine.
pub fn generate(wanted: Wanted, model: &Model) -> Vec<Arrival> {
    let mut rng = fastrand::Rng::with_seed(wanted.seed);
    let systems: Vec<u32> = (0..SYSTEM_PROMPTS).map(|_| 512 + rng.u32(..4096)).collect();
    let turns = window(wanted, &systems, model, &mut rng);
    let origin = turns.first().map_or(0.0, |t| t.at_s);
    let (mut arrivals, mut work_ns) = (Vec::with_capacity(turns.len()), 0);
    let mut computed: FxHashSet<u64> = FxHashSet::default();
    for turn in &turns {
        let prompt = prompt(turn, &systems, model.block);
        let prompt = Prompt::new(prompt).expect("a chain of distinct prefixes has no hash twice");
        let Turn { isl, osl, .. } = *turn;
        let arrival = Arrival { at: 0, isl, osl, prompt: Some(prompt), class: None };
        let cacheable = arrival.cacheable(model.block);
        let cached = cacheable.iter().take_while(|h| computed.contains(h)).count();
        computed.extend(&cacheable[cached..]);
        work_ns += model.prefill_ns(turn.isl - cached as u32 * model.block);
        arrivals.push(arrival);
    }
    let span_s = turns.last().map_or(0.0, |t| t.at_s - origin).max(1e-9);
    let stretch = work_ns as f64 / (wanted.load * wanted.ranks as f64 * span_s);
    for (arrival, turn) in arrivals.iter_mut().zip(&turns) {
        arrival.at = ((turn.at_s - origin) * stretch).round() as u64;
    }
    arrivals
}

/// The first turns from second 0 on, as many as are wanted.
fn window(wanted: Wanted, systems: &[u32], model: &Model, rng: &mut fastrand::Rng) -> Vec<Turn> {
    let popularity = zipf(systems.len());
    let turns_per_s = wanted.ranks as f64 * model.prefill_tps * wanted.load / TURN_TOKENS;
    let sessions_per_s = turns_per_s / MEAN_TURNS;
    let mut turns: Vec<Turn> = Vec::new();
    let mut start_s = -BEFORE_S;
    for session in 0.. {
        start_s += exponential(rng) / sessions_per_s;
        let system = pick(&popularity, rng);
        draw_session(session, start_s, system, systems[system], rng, &mut turns);
        // No later session adds a turn before its own start: what lies before that is complete.
        // (Counted now and then: counting costs as much as drawing.)
        let may_do = turns.len() >= wanted.requests && session % 1024 == 0;
        if may_do && turns.iter().filter(|t| t.at_s <= start_s).count() >= wanted.requests {
            break;
        }
    }
    turns.sort_by(|a, b| {
        a.at_s.total_cmp(&b.at_s).then((a.session, a.turn).cmp(&(b.session, b.turn)))
    });
    turns.truncate(wanted.requests);
    turns
}

/// Draws the turns of one session and keeps those from second 0 on.
fn draw_session(
    session: u64,
    start_s: f64,
    system: usize,
    system_tokens: u32,
    rng: &mut fastrand::Rng,
    turns: &mut Vec<Turn>,
) {
    let mut at_s = start_s;
    let mut context = system_tokens;
    for turn in 0.. {
        let mut message = log_normal(rng, 300.0, 1.0);
        if rng.f64() < DOCUMENTS {
            message += 4096.0 * (1.0 - rng.f64()).powf(-1.0 / 1.3);
        }
        let isl = context.saturating_add(message.ceil() as u32);
        let osl = log_normal(rng, 200.0, 0.8).min(LONGEST_ANSWER).ceil() as u32;
        if isl > LONGEST_CONTEXT {
            break;
        }
        if at_s >= 0.0 {
            turns.push(Turn { at_s, isl, osl, system, session, turn });
            context = isl + osl;
        }
        // Turns are geometric.
        if rng.f64() < 1.0 / MEAN_TURNS {
            break;
        }
        at_s += f64::from(osl) * ANSWER_S_PER_TOKEN + MEAN_PAUSE_S * exponential(rng);
    }
}

/// The block hashes of a turn's prompt. Blocks full of system prompt are those of every session
/// over it, full blocks of a session those of its later turns; a last block in part is the turn's
/// own.
fn prompt(turn: &Turn, systems: &[u32], block: u32) -> Vec<u64> {
    let of_system = u64::from(systems[turn.system] / block);
    let full = u64::from(turn.isl / block);
    let ids: Vec<u64> = (0..u64::from(turn.isl.div_ceil(block)))
        .map(|i| match i {
            i if i < of_system => mix(turn.system as u64),
            i if i < full => mix(turn.session ^ 1 << 63),
            _ => mix(turn.session ^ 1 << 62).wrapping_add(turn.turn),
        })
        .collect();
    // The chain tells blocks at different positions apart.
    chain(&ids)
}

/// Cumulated shares of `n` things whose popularity goes by Zipf's law with exponent 1.
fn zipf(n: usize) -> Vec<f64> {
    let total: f64 = (1..=n).map(|k| 1.0 / k as f64).sum();
    let mut sum = 0.0;
    (1..=n)
        .map(|k| {
            sum += 1.0 / k as f64 / total;
            sum
        })
        .collect()
}

fn pick(cumulated: &[f64], rng: &mut fastrand::Rng) -> usize {
    let x = rng.f64();
    cumulated.partition_point(|&c| c <= x).min(cumulated.len() - 1)
}

/// Exponential with mean 1.
fn exponential(rng: &mut fastrand::Rng) -> f64 {
    -(1.0 - rng.f64()).ln()
}

/// Log-normal, by the method of Box and Muller.
fn log_normal(rng: &mut fastrand::Rng, median: f64, sigma: f64) -> f64 {
    let normal = (2.0 * exponential(rng)).sqrt() * (TAU * rng.f64()).cos();
    median * (sigma * normal).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: Model = Model {
        block: 512,
        prefill_tps: 3000.0,
        token_ns: 30_000_000,
        kv_blocks: 2048,
        transfer_tps: 150_000.0,
    };
    const WANTED: Wanted = Wanted { requests: 20_000, ranks: 256, load: 0.8, seed: 7 };

    #[test]
    fn the_same_seed_gives_the_same_arrivals_and_another_one_others() {
        let key = |seed| -> Vec<_> {
            generate(Wanted { seed, ..WANTED }, &MODEL)
                .iter()
                .map(|a| (a.at, a.isl, a.osl, a.prompt.as_ref().unwrap().hashes().to_vec()))
                .collect()
        };
        let a = key(1);
        assert_eq!(a.len(), WANTED.requests);
        assert_eq!(a[0].0, 0);
        assert!(a.is_sorted_by_key(|x| x.0));
        assert!(a == key(1));
        assert!(a != key(2));
    }

    #[test]
    fn the_load_is_what_was_asked_for_and_even_over_time() {
        let arrivals = generate(WANTED, &MODEL);
        let span = arrivals.last().unwrap().at;
        let mut computed = FxHashSet::default();
        let mut work = [0.0; 4];
        for a in &arrivals {
            let chain = a.cacheable(MODEL.block);
            let fresh = chain.iter().filter(|h| computed.insert(**h)).count() as u32;
            let tokens = a.isl - (chain.len() as u32 - fresh) * MODEL.block;
            work[(a.at * 4 / (span + 1)) as usize] += MODEL.prefill_ns(tokens) as f64;
        }
        let capacity = span as f64 * WANTED.ranks as f64;
        let load: f64 = work.iter().sum::<f64>() / capacity;
        assert!((load - 0.8).abs() < 0.001, "{load}");
        for quarter in work {
            let load = quarter * 4.0 / capacity;
            assert!((0.65..0.95).contains(&load), "{work:?} of {capacity}");
        }
    }

    #[test]
    fn lengths_have_a_heavy_tail_and_most_tokens_were_seen_before() {
        let arrivals = generate(WANTED, &MODEL);
        let mut lengths: Vec<u32> = arrivals.iter().map(|a| a.isl).collect();
        lengths.sort_unstable();
        let at = |share: f64| lengths[(lengths.len() as f64 * share) as usize];
        assert!(at(0.99) > 8 * at(0.5), "median {}, p99 {}", at(0.5), at(0.99));
        assert!(*lengths.last().unwrap() <= LONGEST_CONTEXT);
        let mut computed = FxHashSet::default();
        let blocks = arrivals.iter().flat_map(|a| a.cacheable(512));
        let (all, fresh) = blocks
            .fold((0, 0), |(all, fresh), h| (all + 1, fresh + u32::from(computed.insert(*h))));
        assert!(fresh * 2 < all, "{fresh} of {all}");
    }
}
