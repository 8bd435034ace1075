//! How two engines are compared, and how their answers are checked.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use vacancy_bench::measure::{Clock, Pair, median};
use vacancy_bench::oracle::Oracle;
use vacancy_bench::workload::{CHAINS, Workload};

/// How long one batch should take: short against a time slice, long against the clock.
const BATCH: Duration = Duration::from_millis(4);

/// The fleet and its right answers.
#[derive(Clone)]
pub struct Field {
    pub workload: Rc<Workload>,
    /// What both sides of a pair are timed by.
    pub clock: Clock,
    oracle: Rc<Oracle>,
    /// The lowest cost per chain, over all ranks and over those with room; found when first asked.
    cheapest: Rc<RefCell<[Vec<Option<f64>>; 2]>>,
}

/// What a contestant promises of its choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// It takes a rank of the lowest cost. (With one thread: while others book, that changes.)
    pub exact: bool,
    /// It never takes a full rank.
    pub judges_room: bool,
}

/// An engine with the fleet in it.
pub trait Contestant {
    /// Sends requests `at .. at + ops` of the stream through: chosen, booked, given back. Answers
    /// the time by the field's clock, and adds the ranks chosen to `chosen` (request by request if there is one
    /// thread). What a host must prepare for the interface at hand is prepared before the clock
    /// starts.
    fn run(&mut self, at: usize, ops: usize, chosen: &mut Vec<u32>) -> Duration;

    /// What can be checked of the ranks.
    fn promise(&self) -> Promise;

    /// Panics unless all ranks carry what they carried at first.
    fn check_settled(&mut self);
}

impl Field {
    pub fn new(ranks: usize) -> Field {
        let workload = Rc::new(Workload::new(ranks));
        let oracle = Rc::new(Oracle::new(&workload));
        let unknown = || vec![None; CHAINS];
        let cheapest = Rc::new(RefCell::new([unknown(), unknown()]));
        Field { workload, clock: Clock::Thread, oracle, cheapest }
    }

    /// Timed by the wall, because one of the two sides is several threads.
    pub fn by_the_wall(&self) -> Field {
        Field { clock: Clock::Wall, ..self.clone() }
    }

    /// Which chain request `at` of the stream has.
    pub fn chain(&self, at: usize) -> usize {
        self.workload.draws[at % self.workload.draws.len()] as usize
    }

    pub fn oracle(&self) -> &Oracle {
        &self.oracle
    }

    fn cheapest(&self, chain: usize, judge_room: bool) -> f64 {
        let known = &mut self.cheapest.borrow_mut()[usize::from(judge_room)][chain];
        *known.get_or_insert_with(|| self.oracle.cheapest(&self.workload.chains[chain], judge_room))
    }

    /// Panics if an answer is not what was promised.
    fn check(&self, who: &str, promise: Promise, at: usize, chosen: &[u32]) {
        for (i, &rank) in chosen.iter().enumerate() {
            let rank = rank as usize;
            let full = self.workload.full[rank];
            assert!(!(full && promise.judges_room), "{who}: rank {rank} is full and was chosen");
            if promise.exact {
                let chain = self.chain(at + i);
                let cost = self.oracle.cost(rank, &self.workload.chains[chain]);
                let least = self.cheapest(chain, promise.judges_room);
                assert!(
                    (cost - least).abs() <= 1e-6 * least,
                    "{who}: rank {rank} costs {cost}, the cheapest {least}"
                );
            }
        }
    }
}

/// What came out of one pair.
pub struct Outcome {
    pub name: String,
    pub ranks: usize,
    pub ours_ns: f64,
    pub peer_ns: f64,
    pub ratio: f64,
    pub quartiles: (f64, f64),
    pub rounds: usize,
}

/// Measures a pair: batches in turn, ratios round by round, every answer checked.
pub fn run(
    name: &str,
    field: &Field,
    ours: &mut dyn Contestant,
    peer: &mut dyn Contestant,
    rounds: usize,
) -> Outcome {
    let batch = |who: &str, contestant: &mut dyn Contestant, at: &mut usize, ops: usize| {
        let mut chosen = Vec::with_capacity(ops);
        let elapsed = contestant.run(*at, ops, &mut chosen);
        assert_eq!(chosen.len(), ops, "{who} answered every request");
        field.check(who, contestant.promise(), *at, &chosen);
        *at += ops;
        elapsed.as_nanos() as f64 / ops as f64
    };
    let (mut ours_at, mut peer_at) = (0, 0);
    let size = |who: &str, contestant: &mut dyn Contestant, at: &mut usize| {
        let ns = median(&[0; 5].map(|_| batch(who, contestant, at, 32)));
        ((BATCH.as_nanos() as f64 / ns) as usize).clamp(16, 1 << 14)
    };
    let ours_ops = size("ours", ours, &mut ours_at);
    let peer_ops = size(name, peer, &mut peer_at);
    // Batches are short, so a round is many of them.
    let batch = RefCell::new(batch);
    let pair = Pair::measure(
        rounds * 10,
        || (batch.borrow_mut())("ours", ours, &mut ours_at, ours_ops),
        || (batch.borrow_mut())(name, peer, &mut peer_at, peer_ops),
    );
    ours.check_settled();
    peer.check_settled();
    Outcome {
        name: name.to_owned(),
        ranks: field.workload.ranks,
        ours_ns: median(&pair.a),
        peer_ns: median(&pair.b),
        ratio: pair.ratio(),
        quartiles: pair.spread(),
        rounds: pair.a.len(),
    }
}

impl Outcome {
    /// For the parent process.
    pub fn to_line(&self) -> String {
        let Outcome { name, ranks, ours_ns, peer_ns, ratio, quartiles: (low, high), rounds } = self;
        format!("{name} {ranks} {ours_ns} {peer_ns} {ratio} {low} {high} {rounds}")
    }

    pub fn from_line(line: &str) -> Option<Outcome> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |i: usize| words.get(i)?.parse::<f64>().ok();
        Some(Outcome {
            name: words.first()?.to_string(),
            ranks: number(1)? as usize,
            ours_ns: number(2)?,
            peer_ns: number(3)?,
            ratio: number(4)?,
            quartiles: (number(5)?, number(6)?),
            rounds: number(7)? as usize,
        })
    }

    pub fn to_json(&self) -> String {
        let Outcome { name, ranks, rounds, quartiles: (low, high), .. } = self;
        // A pair of which no round was undisturbed has no figures, and JSON has no word for those.
        let number = |x: f64| if x.is_finite() { format!("{x:.3}") } else { "null".to_owned() };
        let [ours, peer, ratio] = [self.ours_ns, self.peer_ns, self.ratio].map(number);
        let (low, high) = (number(*low), number(*high));
        format!(
            "{{\"pair\": \"{name}\", \"ranks\": {ranks}, \"ours_ns\": {ours}, \
             \"peer_ns\": {peer}, \"ratio\": {ratio}, \"ratio_q1\": {low}, \
             \"ratio_q3\": {high}, \"rounds\": {rounds}}}"
        )
    }

    pub fn print(&self) {
        println!(
            "{:<28} {:>5} ranks   ours {:>11}   peer {:>11}   ratio {:>8.2}  ({:.2} .. {:.2})",
            self.name,
            self.ranks,
            time(self.ours_ns),
            time(self.peer_ns),
            self.ratio,
            self.quartiles.0,
            self.quartiles.1,
        );
    }
}

fn time(ns: f64) -> String {
    if ns < 1e3 {
        format!("{ns:.1} ns")
    } else if ns < 1e6 {
        format!("{:.2} us", ns / 1e3)
    } else {
        format!("{:.2} ms", ns / 1e6)
    }
}
