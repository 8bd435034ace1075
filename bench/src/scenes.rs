//! The operations that are measured, by name: wall times (criterion), instruction counts (callgrind)
//! and ratio rules (`perf`) run the very same closures.
//!
//! A name is `operation/ranks/variant` and stays what it is. Every operation checks its answer and
//! leaves the fleet as it found it.

use crate::engine::{self, Bench, Mode};
use crate::workload::{BLOCK_SIZE, MAX_NUM_BATCHED_TOKENS, PROMPT_TOKENS, Random};
use std::hint::black_box;
use std::sync::Arc;
use vacancy::{
    Admit, Backend, Booking, Constraints, Error, Overlap, Overrides, Pool, Profile, Prompt, Rank,
    RejectThresholds, Request, RequestId, Thresholds, WorkerSpec,
};

/// One operation, ready to be repeated.
pub type Op = Box<dyn FnMut()>;

/// How many operations are counted in one go; as many run before, uncounted.
pub const OPERATIONS: usize = 32;

/// Names of everything that is measured, in the order of reports.
pub const NAMES: [&str; 36] = [
    "select_book_free/64/off",
    "select_book_free/64/reject",
    "select_book_free/64/gate",
    "select_book_free/64/pair",
    "select_book_free/512/off",
    "select_book_free/512/reject",
    "select_book_free/512/gate",
    "select_book_free/512/pair",
    "select_book_free/4096/off",
    "select_book_free/4096/reject",
    "select_book_free/4096/admit",
    "select_book_free/4096/gate",
    "select_book_free/4096/pair",
    "select_book_free/65536/off",
    "select_book_free/65536/reject",
    "select_book_free/4096/by_id",
    "select/4096/off",
    "p2c/4096/by_id",
    "sum/4096/plain",
    "pass/4096/off",
    "pass/4096/reject",
    "overlap/4096/eight",
    "long_prefix/4096/none",
    "long_prefix/4096/tenth",
    "long_prefix/4096/half",
    "long_prefix/4096/all",
    "long_prompt/4096/6250",
    "constrained/4096/taint",
    "constrained/4096/allow",
    "constrained/4096/pin",
    "temperature/4096/warm",
    "refuse/64/reject",
    "refuse/4096/reject",
    "release_to_admitted/64/gate",
    "release_to_admitted/4096/gate",
    "release_to_admitted/65536/gate",
];

/// Those whose instructions are counted: all but the largest fleets, which take minutes to build
/// under an emulator and run the same code, and what goes by id. Ids are hashed with a key that is
/// drawn anew in each process, and so are different shards full, and grow, in each. What goes
/// through a class at 64 ranks was seen to differ by 2 % from run to run; at more ranks it does not.
pub fn counted() -> impl Iterator<Item = &'static str> {
    NAMES.into_iter().filter(|name| {
        !name.starts_with("sum/")
            && !name.ends_with("/by_id")
            && !matches!(*name, "select_book_free/64/gate" | "select_book_free/64/pair")
            && (!name.contains("/65536/") || *name == "select_book_free/65536/reject")
    })
}

/// Makes an operation by name, on `backend` or on the machine's best.
///
/// # Panics
/// If there is no such operation.
pub fn make(name: &str, backend: Option<Backend>) -> Op {
    let mut parts = name.split('/');
    let (Some(operation), Some(ranks), Some(variant)) = (parts.next(), parts.next(), parts.next())
    else {
        panic!("{name}: not operation/ranks/variant")
    };
    let ranks: usize = ranks.parse().unwrap_or_else(|_| panic!("{name}: how many ranks?"));
    match (operation, variant) {
        ("select_book_free", "pair") => paired(ranks, backend),
        ("select_book_free", "by_id") => by_id(ranks, backend),
        ("select_book_free", _) => book_free(ranks, mode(name, variant), backend),
        ("select", _) => select(ranks, mode(name, variant), backend),
        ("p2c", _) => p2c(ranks, backend),
        ("sum", _) => sum(ranks),
        ("pass", _) => pass(ranks, mode(name, variant), backend),
        ("overlap", _) => overlap(ranks, backend),
        ("long_prefix", "none") => long_prefix(ranks, 0, backend),
        ("long_prefix", "tenth") => long_prefix(ranks, ranks / 10, backend),
        ("long_prefix", "half") => long_prefix(ranks, ranks / 2, backend),
        ("long_prefix", "all") => long_prefix(ranks, ranks, backend),
        ("long_prompt", blocks) => {
            long_prompt(ranks, blocks.parse().expect("a number of blocks"), backend)
        }
        ("constrained", _) => constrained(ranks, variant, backend),
        ("temperature", _) => temperature(ranks, backend),
        ("refuse", _) => refuse(ranks, backend),
        ("release_to_admitted", _) => release_to_admitted(ranks, backend),
        _ => panic!("{name}: no such operation"),
    }
}

fn mode(name: &str, variant: &str) -> Mode {
    [Mode::Off, Mode::Reject, Mode::Admit, Mode::Gate]
        .into_iter()
        .find(|mode| mode.name() == variant)
        .unwrap_or_else(|| panic!("{name}: no such variant"))
}

/// One request's way through: chosen, booked (or admitted), given back.
fn book_free(ranks: usize, mode: Mode, backend: Option<Backend>) -> Op {
    let bench = Bench::on(ranks, mode, backend);
    let mut at = 0;
    Box::new(move || {
        at += 1;
        drop(black_box(bench.book(&bench.pool, at)));
    })
}

/// The same under an id.
fn by_id(ranks: usize, backend: Option<Backend>) -> Op {
    let bench = Bench::on(ranks, Mode::Reject, backend);
    let mut at = 0;
    Box::new(move || {
        at += 1;
        let id = RequestId((1 << 64) + at as u128);
        let placed = bench.pool.book_as(id, bench.request(at)).expect("most ranks have room");
        bench.check_rank(placed.choice.rank);
        assert!(bench.pool.free(id), "it was booked");
    })
}

/// Admitted at a prefill pool whose class consults a decode pool of as many ranks. Holds are off:
/// what is measured is the gate.
fn paired(ranks: usize, backend: Option<Backend>) -> Op {
    let decode = Bench::on(ranks, Mode::Off, backend);
    let profile = Arc::new(Profile::single(engine::thresholds()).expect("valid thresholds"));
    let prefill =
        Bench::with(ranks, Mode::Off, backend, |builder| builder.policy(&profile).holds(false));
    prefill.pool.pair_with(&decode.pool);
    let mut at = 0;
    Box::new(move || {
        at += 1;
        // The decode pool lives as long as the pair is consulted.
        let _ = &decode;
        drop(black_box(engine::admit(&prefill.pool, prefill.request(at).clone())));
    })
}

/// The answer alone.
fn select(ranks: usize, mode: Mode, backend: Option<Backend>) -> Op {
    let bench = Bench::on(ranks, mode, backend);
    let mut at = 0;
    Box::new(move || {
        at += 1;
        let choice = bench.pool.select(bench.request(at)).expect("most ranks have room");
        bench.check_rank(black_box(choice.rank));
    })
}

/// Two ranks drawn at random, the one with fewer requests taken and booked under an id, with the
/// very booking of `select_book_free/../by_id`: what differs is the choice.
fn p2c(ranks: usize, backend: Option<Backend>) -> Op {
    let bench = Bench::on(ranks, Mode::Reject, backend);
    let mut random = Random::new(5);
    let mut at = 0;
    Box::new(move || {
        at += 1;
        let rank = loop {
            let mut draw = || Rank::new(random.below(ranks) as u64, 0);
            let (a, b) = (draw(), draw());
            let load = |rank: Rank| bench.pool.load(rank).expect("it is declared");
            let (first, second) = (load(a), load(b));
            let (rank, load) =
                if second.requests < first.requests { (b, second) } else { (a, first) };
            if !load.full {
                break rank;
            }
        };
        bench.check_rank(rank);
        let id = RequestId((1 << 64) + at as u128);
        bench.pool.import_as(id, rank, bench.request(at)).expect("it fits");
        assert!(bench.pool.free(id), "it was booked");
    })
}

/// A plain sum of the bytes that a pass cannot do without: 8 of row and 8 of limit for every rank.
fn sum(ranks: usize) -> Op {
    let rows: Vec<u64> = (1..=ranks as u64).collect();
    let limits = vec![u64::MAX >> 1; ranks];
    let total = |column: &[u64]| column.iter().fold(0u64, |sum, x| sum.wrapping_add(*x));
    let expected = total(&rows).wrapping_add(total(&limits));
    Box::new(move || {
        let sum = total(black_box(&rows)).wrapping_add(total(black_box(&limits)));
        assert_eq!(sum, expected);
    })
}

/// The full pass: a weight of the request's own, which no summary can answer for, no hashes.
fn pass(ranks: usize, mode: Mode, backend: Option<Backend>) -> Op {
    let bench = Bench::on(ranks, mode, backend);
    let mut weights = Overrides::default();
    weights.prefill_scale = Some(0.5);
    let request = Request::new(u64::from(PROMPT_TOKENS)).overrides(weights);
    Box::new(move || {
        let choice = bench.pool.select(black_box(&request)).expect("most ranks have room");
        bench.check_rank(choice.rank);
    })
}

/// Eight ranks have some of the prompt cached.
fn overlap(ranks: usize, backend: Option<Backend>) -> Op {
    let bench = Bench::on(ranks, Mode::Reject, backend);
    let mut random = Random::new(11);
    let mut rank = || Rank::new(random.below(ranks) as u64, 0);
    let requests: Vec<Request> = bench.requests[..512]
        .iter()
        .map(|request| {
            let overlaps: Vec<Overlap> =
                (1..=8).map(|blocks| Overlap::device(rank(), f64::from(blocks))).collect();
            request.clone().overlaps(overlaps)
        })
        .collect();
    let mut at = 0;
    Box::new(move || {
        at += 1;
        let request = &requests[at % requests.len()];
        let booking = bench.pool.book(request).expect("most ranks have room");
        bench.check_rank(booking.choice().rank);
    })
}

/// Blocks of the prefix in `long_prefix`.
const LONG_PREFIX: usize = 200;

/// Prompts of 200 shared and 16 own blocks; `holders` ranks hold the shared ones.
fn long_prefix(ranks: usize, holders: usize, backend: Option<Backend>) -> Op {
    let bench = long_prefix_bench(ranks, holders, backend);
    let mut at = 0;
    Box::new(move || {
        at += 1;
        drop(black_box(bench.book(&bench.pool, at)));
    })
}

/// The fleet under `long_prefix`.
pub fn long_prefix_bench(ranks: usize, holders: usize, backend: Option<Backend>) -> Bench {
    let mut bench = Bench::on(ranks, Mode::Reject, backend);
    let mut random = Random::new(13);
    let prefix: Vec<u64> = (0..LONG_PREFIX).map(|_| random.bits()).collect();
    for rank in 0..holders {
        // Spread over the fleet, whatever the share.
        let rank = Rank::new((rank * ranks / holders) as u64, 0);
        let id = RequestId((1 << 96) + u128::from(rank.worker.0));
        bench.pool.import_as(id, rank, &going_on(&prefix, 16, &mut random)).expect("it fits");
        bench.pool.prefill_completed(id).expect("it is live");
    }
    bench.settle(move || {
        let mut random = random.clone();
        (0..512).map(|_| going_on(&prefix, 16, &mut random)).collect()
    });
    bench
}

/// A request whose prompt goes on behind `prefix` with `own` blocks of its own.
fn going_on(prefix: &[u64], own: usize, random: &mut Random) -> Request {
    let chain: Vec<u64> = prefix.iter().copied().chain((0..own).map(|_| random.bits())).collect();
    let isl = u64::from(BLOCK_SIZE) * chain.len() as u64;
    Request::new(isl).prompt(Prompt::new(chain).expect("random bits do not repeat"))
}

/// Prompts of `blocks` blocks, three quarters of them shared with one live booking.
fn long_prompt(ranks: usize, blocks: usize, backend: Option<Backend>) -> Op {
    let mut bench = Bench::on(ranks, Mode::Reject, backend);
    let mut random = Random::new(17);
    let prefix: Vec<u64> = (0..blocks * 3 / 4).map(|_| random.bits()).collect();
    let mut prompt = move || going_on(&prefix, blocks - prefix.len(), &mut random);
    let holder = bench.workload.full.iter().position(|full| !full).expect("most have room");
    let id = RequestId(1 << 96);
    let rank = Rank::new(holder as u64, 0);
    bench.pool.import_as(id, rank, &prompt()).expect("it fits");
    bench.pool.prefill_completed(id).expect("it is live");
    let requests: Vec<Request> = (0..8).map(|_| prompt()).collect();
    bench.settle(move || requests.clone());
    let mut at = 0;
    Box::new(move || {
        at += 1;
        drop(black_box(bench.book(&bench.pool, at)));
    })
}

/// A quarter of the workers by taint, eight by name, or one by pin.
fn constrained(ranks: usize, variant: &str, backend: Option<Backend>) -> Op {
    let bench = Bench::on(ranks, Mode::Reject, backend);
    let with_room: Vec<u64> =
        (0..ranks as u64).filter(|&rank| !bench.workload.full[rank as usize]).collect();
    let allowed: Vec<u64> = match variant {
        "taint" => (0..ranks as u64).filter(|rank| rank % 4 == 0).collect(),
        "allow" => with_room[..8].to_vec(),
        _ => vec![with_room[0]],
    };
    let constraints = match variant {
        "taint" => {
            for &rank in &allowed {
                let spec = WorkerSpec::new(rank)
                    .max_num_batched_tokens(MAX_NUM_BATCHED_TOKENS)
                    .total_kv_blocks(bench.workload.kv_blocks(rank as usize))
                    .taint("gold");
                bench.pool.upsert(spec).expect("a valid spec");
            }
            Constraints::new().taint("gold")
        }
        "allow" => Constraints::new().allow(allowed.iter().copied()),
        _ => Constraints::new().pin(vacancy::Target::worker(allowed[0])),
    };
    let constraints = Arc::new(constraints);
    let requests: Vec<Request> = bench
        .requests
        .iter()
        .map(|request| request.clone().constraints(Arc::clone(&constraints)))
        .collect();
    let mut at = 0;
    Box::new(move || {
        at += 1;
        let request = &requests[at % requests.len()];
        let booking = bench.pool.book(request).expect("some have room");
        let rank = booking.choice().rank;
        bench.check_rank(rank);
        assert!(allowed.binary_search(&rank.worker.0).is_ok(), "{rank} is not allowed");
    })
}

/// A draw by temperature over all ranks with room.
fn temperature(ranks: usize, backend: Option<Backend>) -> Op {
    let bench = Bench::on(ranks, Mode::Reject, backend);
    let mut warm = Overrides::default();
    warm.temperature = Some(0.5);
    let requests: Vec<Request> =
        bench.requests.iter().map(|request| request.clone().overrides(warm)).collect();
    let mut at = 0;
    Box::new(move || {
        at += 1;
        let request = &requests[at % requests.len()];
        let booking = bench.pool.book(request).expect("most ranks have room");
        bench.check_rank(booking.choice().rank);
    })
}

/// A fleet on which one request of 800 tokens fills a rank.
fn saturated(ranks: usize, backend: Option<Backend>, rejects: bool) -> (Pool, Vec<Booking>) {
    let limits = Thresholds::NONE.decode_frac(0.5);
    let (shed, wait) =
        if rejects { (limits, Thresholds::NONE) } else { (Thresholds::NONE, limits) };
    let shed = RejectThresholds::new(shed).expect("valid thresholds");
    let profile = Arc::new(Profile::single(wait).expect("valid thresholds"));
    let mut builder = Pool::builder()
        .block_size(BLOCK_SIZE)
        .lease(None)
        .seed(1)
        .reject_thresholds(shed)
        .policy(&profile);
    if let Some(backend) = backend {
        builder = builder.backend(backend);
    }
    let pool = builder.build().expect("a valid pool");
    let specs: Vec<WorkerSpec> =
        (0..ranks as u64).map(|id| WorkerSpec::new(id).total_kv_blocks(98)).collect();
    pool.reconcile(&specs).expect("a valid fleet");
    let bookings = (0..ranks).map(|_| pool.book(&filling()).expect("still room")).collect();
    (pool, bookings)
}

/// 50 blocks, where 49 are the limit.
fn filling() -> Request {
    Request::new(50 * u64::from(BLOCK_SIZE))
}

/// Everybody is full: the refusal.
fn refuse(ranks: usize, backend: Option<Backend>) -> Op {
    let (pool, bookings) = saturated(ranks, backend, true);
    let request = filling();
    Box::new(move || {
        let _ = &bookings;
        let refused = pool.book(black_box(&request)).expect_err("everybody is full");
        assert_eq!(refused, Error::AllEligibleWorkersOverloaded);
    })
}

/// Everybody is full and 64 wait; one booking is given back, and the first in line is in when that
/// call returns. Then another takes a place at the end of the line.
fn release_to_admitted(ranks: usize, backend: Option<Backend>) -> Op {
    let (pool, mut bookings) = saturated(ranks, backend, false);
    let mut line: std::collections::VecDeque<Admit> =
        (0..64).map(|_| pool.admit(filling())).collect();
    let mut random = Random::new(19);
    Box::new(move || {
        let given_back = random.below(bookings.len());
        bookings.swap_remove(given_back).free();
        let mut first = line.pop_front().expect("some wait");
        let admitted = first.try_take().expect("room was made").expect("and it fits");
        assert!(admitted.waited);
        bookings.push(admitted.booking);
        line.push_back(pool.admit(filling()));
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_does_what_it_says_on_a_small_fleet() {
        for name in NAMES {
            let mut parts: Vec<&str> = name.split('/').collect();
            parts[1] = "130";
            let name = parts.join("/");
            let mut op = make(&name, None);
            for _ in 0..40 {
                op();
            }
        }
    }
}
