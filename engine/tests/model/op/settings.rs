//! The settings of a pool, drawn.

use super::super::custom::{Classifier, Custom, Filter, Gives, Picker, Refresh, Say, Scorer, When};
use super::super::queue::Policy;
use super::super::{Config, Scope};
use super::draw::{TAINTS, class, of, policy, rank, rarely, some, target, valid};
use super::{Dice, Mixture};
use std::time::Duration;
use vacancy::{RouterId, Thresholds, Weights, WorkerSpec};

/// Draws the settings of a pool.
pub fn config(d: &mut dyn Dice, mixture: Mixture) -> Config {
    match mixture {
        Mixture::Plain => plain(d),
        Mixture::Crowd => crowd(d),
        Mixture::Pair => paired(d),
    }
}

/// Few ranks, and classes that wait for them; costs and reject thresholds as they come.
fn crowd(d: &mut dyn Dice) -> Config {
    let mut config = Config { mixture: Mixture::Crowd, ..Config::default() };
    config.weights.device = of(d, &[1.0, 1.0, 4.0]);
    config.track_blocks = d.roll(3) != 2;
    config.class_room_only = d.roll(6) == 5;
    config.lease = of(d, &[None, None, Some(Duration::from_millis(400))]);
    config.fleet = (1..=1 + u64::from(d.roll(3)))
        .map(|id| {
            let spec = WorkerSpec::new(id).ranks(0, of(d, &[1, 1, 2]));
            spec.max_num_batched_tokens(64).total_kv_blocks(16).taint(TAINTS[id as usize % 2])
        })
        .collect();
    let explicit = 2 + d.roll(3);
    let names = ["e", "f", "g", "h"];
    let mut classes = vec![class(d, "u", Some(("u".into(), "all".into())))];
    for name in &names[..explicit as usize] {
        let mut class = class(d, name, None);
        class.quantum = of(d, &[10, 10, 100, 16, 400, 1, 3]);
        class.thresholds.prefill_tokens = Some(of(d, &[0, 0, 0, 16]));
        class.limits = [None; 3];
        classes.push(class);
    }
    let buckets = vec![(0, "all".into())];
    config.policy = Some(Policy { default_family: "u".into(), buckets, classes });
    config.custom.classifier = rarely(d, classifier);
    config.custom.refresh = rarely(d, refresh);
    config
}

fn classifier(d: &mut dyn Dice) -> Classifier {
    let when = of(d, &[When::Always, When::NoRoom, When::Above(16), When::Above(3)]);
    let say = |d: &mut dyn Dice| match d.roll(12) {
        0..=3 => Say::Class(of(d, &["e", "f", "u", "v", "e", "w"])),
        4..=5 => Say::Due(of(d, &[20u64, 3, 0, 150]).checked_sub(1).map(Duration::from_millis)),
        6..=8 => Say::Cost(of(d, &[1, 10, 100, 10, 1, 0])),
        9 | 10 => Say::Target(some(d, target)),
        _ => of(d, &[Say::Fails, Say::Panics]),
    };
    Classifier { when, says: (0..1 + d.roll(3)).map(|_| say(d)).collect() }
}

fn refresh(d: &mut dyn Dice) -> Refresh {
    let after = Duration::from_millis(of(d, &[0, 5, 20]));
    let gives = match d.roll(10) {
        0..=5 => Gives::Blocks(rank(d), of(d, &[1.0, 4.0, 16.0, 0.5])),
        6 => Gives::Nothing,
        7 => Gives::NoAnswer,
        8 => Gives::Invalid,
        _ => Gives::Panics,
    };
    Refresh { after, gives }
}

fn plain(d: &mut dyn Dice) -> Config {
    let mut weights = Weights::default();
    weights.device = of(d, &[1.0, 1.0, 0.0, 2.0, 0.5]);
    weights.host = of(d, &[0.75, 0.0, 1.0]);
    weights.disk = of(d, &[0.25, 0.0, 3.0]);
    weights.shared = of(d, &[0.0, 0.5, 1.5]);
    weights.prefill_scale = of(d, &[1.0, 1.0, 0.0, 2.5]);
    weights.request = of(d, &[0.0, 0.0, 1.0, 0.3]);
    weights.decay = of(d, &[0.0, 0.0, 1.0, 0.1]);
    weights.temperature = of(d, &[0.0, 0.0, 0.0, 0.5, 5.0]);
    Config {
        block_size: of(d, &[16, 16, 1, 128, 3]),
        track_prefill: d.roll(4) != 3,
        track_blocks: d.roll(4) != 3,
        weights,
        scope: of(d, &[Scope::Worker, Scope::Worker, Scope::Rank]),
        lease: of(d, &[Some(Duration::from_millis(200)), None]),
        custom: Custom {
            filter: rarely(d, |d| {
                of(
                    d,
                    &[Filter::EvenRanks, Filter::AtMostRequests(1), Filter::Nobody, Filter::Fails],
                )
            }),
            scorer: rarely(d, |d| {
                of(
                    d,
                    &[
                        Scorer::AddPerWorker(2.0),
                        Scorer::Requests,
                        Scorer::NotFinite(2),
                        Scorer::Fails,
                        Scorer::Panics,
                    ],
                )
            }),
            picker: rarely(d, |d| of(d, &[Picker::Dearest, Picker::Fails])),
            classifier: rarely(d, classifier),
            refresh: rarely(d, refresh),
        },
        policy: some(d, policy),
        class_room_only: d.roll(6) == 5,
        mixture: Mixture::Plain,
        fleet: (0..d.roll(4)).map(|i| valid(d, u64::from(i) + 1)).collect(),
        signal_ttl: Duration::from_millis(of(d, &[100, 20, 5000])),
        ..Config::default()
    }
}

/// Classes that wait for few prefill ranks and for the room of few decode ranks.
fn paired(d: &mut dyn Dice) -> Config {
    let mut config = crowd(d);
    config.mixture = Mixture::Pair;
    config.holds = d.roll(6) != 5;
    config.shared_rejects = d.roll(6) == 5;
    config.signal_ttl = Duration::from_millis(of(d, &[100, 20, 5000]));
    config.router = RouterId(0);
    config.lease =
        of(d, &[None, Some(Duration::from_millis(300)), Some(Duration::from_millis(60))]);
    config.policy.iter_mut().flat_map(|p| &mut p.classes).for_each(|class| {
        class.thresholds.decode_frac = (d.roll(6) != 5).then(|| of(d, &[0.5, 0.0, 0.29, 0.9, 1.0]));
        class.thresholds.prefill_tokens = (d.roll(3) == 2).then(|| of(d, &[0, 16, 64]));
        if class.thresholds == Thresholds::NONE {
            class.busy_worker_ratio = None;
        }
    });
    let mut decode = plain(d);
    decode.custom = Custom { classifier: decode.custom.classifier.take(), ..Custom::default() };
    decode.mixture = Mixture::Pair;
    if d.roll(3) != 2 {
        decode.block_size = config.block_size;
    }
    decode.track_prefill = d.roll(4) == 3;
    decode.track_blocks = d.roll(8) != 7;
    decode.lease = of(d, &[None, Some(Duration::from_millis(300))]);
    decode.fleet.clear();
    for id in 1..=1 + of(d, &[0u64, 1, 2]) {
        let mut spec = valid(d, id);
        spec.total_kv_blocks = of(d, &[Some(8), Some(16), Some(12), None]);
        decode.fleet.push(spec);
    }
    config.pair = Some(Box::new(decode));
    config
}
