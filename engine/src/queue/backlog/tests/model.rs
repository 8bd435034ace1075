//! A naive queue: one list, sorted anew whenever somebody asks, whole rounds walked one by one.
//! It says what the real one must do, step by step over random operations.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

const CLASSES: usize = 3;
const PINS: u64 = 3;

#[derive(Clone, Debug)]
struct Item {
    sequence: u64,
    class: usize,
    named: usize,
    rating: Rating,
    pin: Option<u64>,
    constrained: bool,
    isl: u64,
    passed: u32,
}

/// Which gates are open: a class's for those without constraints, a pin's, and single entries'.
#[derive(Clone, Debug, Default)]
struct Gates {
    classes: [bool; CLASSES],
    pins: [bool; PINS as usize],
    entries: u64,
}

impl Gates {
    fn open(&self, sequence: u64, class: usize, pin: Option<u64>, constrained: bool) -> bool {
        match pin {
            Some(pin) => self.pins[pin as usize],
            None if constrained => self.entries >> (sequence % 64) & 1 == 1,
            None => self.classes[class],
        }
    }
}

/// Whether an entry would land on a rank that a constrained head may use: any fixed rule will do.
fn lands_on_heads_ranks(sequence: u64) -> bool {
    !sequence.is_multiple_of(4)
}

#[derive(Debug, Default)]
struct Model {
    items: Vec<Item>,
    credit: [u128; CLASSES],
    interrupted: [bool; CLASSES],
    turn: usize,
    fresh: bool,
}

#[derive(Clone, Copy, Debug)]
struct Rules {
    quanta: [u64; CLASSES],
    policies: [QueuePolicy; CLASSES],
    /// The class that each name stands for.
    classes: [usize; CLASSES],
}

impl Rules {
    fn profile(&self) -> Arc<Profile> {
        let mut specs: Vec<Option<ClassSpec>> = vec![None; CLASSES];
        for (named, &class) in self.classes.iter().enumerate() {
            let spec = ClassSpec::new(name(named), self.quanta[class]);
            specs[class] = Some(spec.queue_policy(self.policies[class]));
        }
        with_classes(specs.into_iter().flatten())
    }
}

fn first_of(a: &Item, b: &Item, policy: QueuePolicy) -> std::cmp::Ordering {
    let due = |i: &Item| i.rating.due.map_or((1, 0), |due| (0, due.as_nanos()));
    let by_sequence = a.sequence.cmp(&b.sequence);
    if policy == QueuePolicy::Edf {
        return due(a).cmp(&due(b)).then(by_sequence);
    }
    let score = |i: &Item| match policy {
        QueuePolicy::Fcfs => i.rating.priority_jump - i.rating.arrival.as_secs_f64(),
        _ => (1.0 + i.rating.priority_jump) / i.rating.uncached.max(1) as f64,
    };
    b.rating
        .strict_priority
        .cmp(&a.rating.strict_priority)
        .then(due(a).cmp(&due(b)))
        .then(score(b).partial_cmp(&score(a)).unwrap())
        .then(by_sequence)
}

impl Model {
    fn new() -> Model {
        // The default family's class, where nothing waits, comes last in the ring.
        Model { turn: CLASSES, ..Model::default() }
    }

    fn lane(&self, class: usize, pin: Option<u64>, rules: &Rules) -> Vec<Item> {
        let mut lane: Vec<Item> =
            self.items.iter().filter(|i| i.class == class && i.pin == pin).cloned().collect();
        lane.sort_by(|a, b| first_of(a, b, rules.policies[class]));
        lane
    }

    /// The next head of a class that can go, and the constrained head that it passes.
    fn head(&self, class: usize, rules: &Rules, gates: &Gates) -> Option<(Item, Option<u64>)> {
        let policy = rules.policies[class];
        let main = self.lane(class, None, rules);
        let first = main.first().filter(|i| i.constrained);
        let mut can_go: Vec<Item> = Vec::new();
        for pin in std::iter::once(None).chain((0..PINS).map(Some)) {
            let lane = self.lane(class, pin, rules);
            let goes = lane.iter().take(1 + LOOK_AHEAD).find(|i| {
                let barred = first
                    .is_some_and(|f| first_of(f, i, policy).is_lt() && f.passed >= PASSES)
                    && lands_on_heads_ranks(i.sequence);
                gates.open(i.sequence, class, i.pin, i.constrained) && !barred
            });
            // A pinned lane's gate holds for all of it, but a bar may hold up just the first.
            let in_turn = goes.filter(|i| {
                pin.is_none() || i.sequence == lane[0].sequence || lane[0].passed < PASSES
            });
            can_go.extend(in_turn.cloned());
        }
        can_go.sort_by(|a, b| first_of(a, b, policy));
        let next = can_go.into_iter().next()?;
        let passes = first.filter(|f| first_of(f, &next, policy).is_lt()).map(|f| f.sequence);
        Some((next, passes))
    }

    /// Whose turn it is, by the rules taken literally.
    fn pick(&mut self, rules: &Rules, gates: &Gates) -> Option<(Item, Option<u64>)> {
        let heads: Vec<_> = (0..CLASSES).map(|c| self.head(c, rules, gates)).collect();
        if heads.iter().all(Option::is_none) {
            return None;
        }
        let cost = |c: usize| heads[c].as_ref().map(|(i, _)| u128::from(i.rating.uncached.max(1)));
        let holder = self.turn;
        if holder < CLASSES {
            match cost(holder) {
                Some(cost) => {
                    if self.credit[holder] < cost && self.fresh {
                        self.credit[holder] += u128::from(rules.quanta[holder]);
                        self.fresh = false;
                    }
                    if self.credit[holder] >= cost {
                        return heads[holder].clone();
                    }
                    self.interrupted[holder] = false;
                }
                None => {
                    let waits = self.items.iter().any(|i| i.class == holder);
                    self.interrupted[holder] = waits && !self.fresh;
                }
            }
        }
        // The ring has one more place than there are classes here.
        let ring = (1..=CLASSES + 1).map(|i| (holder + i) % (CLASSES + 1)).filter(|&c| c < CLASSES);
        let ring: Vec<usize> = ring.collect();
        for &c in &ring {
            let Some(cost) = cost(c) else { continue };
            self.fresh = self.credit[c] >= cost && !self.interrupted[c];
            self.interrupted[c] = false;
            if self.credit[c] < cost {
                self.credit[c] += u128::from(rules.quanta[c]);
            }
            if self.credit[c] >= cost {
                self.turn = c;
                return heads[c].clone();
            }
        }
        self.fresh = false;
        for &c in ring.iter().cycle() {
            let Some(cost) = cost(c) else { continue };
            self.credit[c] += u128::from(rules.quanta[c]);
            if self.credit[c] >= cost {
                self.turn = c;
                return heads[c].clone();
            }
        }
        unreachable!("some class has a head");
    }

    /// Lets everybody go who can, and gives their sequences.
    fn drain(&mut self, rules: &Rules, gates: &Gates, most: usize) -> Vec<u64> {
        let mut gone = Vec::new();
        while gone.len() < most
            && let Some((item, passes)) = self.pick(rules, gates)
        {
            if let Some(head) = passes
                && lands_on_heads_ranks(item.sequence)
            {
                self.items.iter_mut().filter(|i| i.sequence == head).for_each(|i| i.passed += 1);
            }
            if item.pin.is_some() {
                let head = self.lane(item.class, item.pin, rules)[0].sequence;
                if head != item.sequence {
                    self.items
                        .iter_mut()
                        .filter(|i| i.sequence == head)
                        .for_each(|i| i.passed += 1);
                }
            }
            self.credit[item.class] -= u128::from(item.rating.uncached.max(1));
            self.leave(item.sequence);
            gone.push(item.sequence);
        }
        gone
    }

    fn leave(&mut self, sequence: u64) {
        let Some(at) = self.items.iter().position(|i| i.sequence == sequence) else { return };
        let class = self.items.swap_remove(at).class;
        if !self.items.iter().any(|i| i.class == class) {
            self.credit[class] = 0;
            self.interrupted[class] = false;
            if self.turn == class {
                self.fresh = false;
            }
        }
    }

    fn reload(&mut self, rules: &Rules) {
        for item in &mut self.items {
            item.class = rules.classes[item.named];
        }
        let items = std::mem::take(&mut self.items);
        *self = Model { items, ..Model::new() };
    }
}

#[derive(Clone, Debug)]
enum Op {
    Push {
        named: usize,
        priority: i64,
        due: Option<u64>,
        jump: u8,
        uncached: u64,
        pin: Option<u64>,
        constrained: bool,
    },
    Remove(prop::sample::Index),
    Gates(Gates),
    Drain(usize),
    Expire(u64),
    Reload(Rules),
}

fn rules() -> impl Strategy<Value = Rules> {
    let policy = prop::sample::select(vec![QueuePolicy::Fcfs, QueuePolicy::Wspt, QueuePolicy::Edf]);
    let order = Just([0, 1, 2]).prop_shuffle();
    ([1..40u64, 1..40, 1..40], [policy.clone(), policy.clone(), policy], order)
        .prop_map(|(quanta, policies, classes)| Rules { quanta, policies, classes })
}

fn op() -> impl Strategy<Value = Op> {
    let push = (
        0..CLASSES,
        -1..2i64,
        prop::option::weighted(0.2, 0..200u64),
        0..3u8,
        0..50u64,
        prop::option::weighted(0.3, 0..PINS),
        prop::bool::weighted(0.3),
    )
        .prop_map(|(named, priority, due, jump, uncached, pin, constrained)| Op::Push {
            named,
            priority,
            due,
            jump,
            uncached,
            pin,
            constrained: constrained && pin.is_none(),
        });
    let gates = (any::<[bool; CLASSES]>(), any::<[bool; PINS as usize]>(), any::<u64>())
        .prop_map(|(classes, pins, entries)| Op::Gates(Gates { classes, pins, entries }));
    prop_oneof![
        20 => push,
        3 => any::<prop::sample::Index>().prop_map(Op::Remove),
        3 => gates,
        4 => (0..12usize).prop_map(Op::Drain),
        1 => (0..200u64).prop_map(Op::Expire),
        1 => rules().prop_map(Op::Reload),
    ]
}

struct Both {
    queue: Queue<u64>,
    model: Model,
    rules: Rules,
    gates: Gates,
    ids: HashMap<u64, EntryId>,
    clock: u64,
}

impl Both {
    fn drain(&mut self, most: usize) -> Vec<u64> {
        let round = self.queue.begin();
        let mut gone = Vec::new();
        while gone.len() < most
            && let Some(c) = self.queue.next(&round)
        {
            let sequence = *self.queue.get(c.entry).expect("a candidate waits");
            let open = self.gates.open(sequence, c.class.index(), c.pin, c.constrained);
            let lands = lands_on_heads_ranks(sequence);
            let reach = match (c.pin, c.constrained) {
                (Some(_), _) => Blocked::Lane,
                (None, true) => Blocked::Entry,
                (None, false) => Blocked::Unconstrained,
            };
            if !open {
                self.queue.blocked(&c, reach);
            } else if lands && c.passing.is_some_and(|p| p.barred) {
                self.queue.blocked(&c, Blocked::Entry);
            } else if c.purpose == Purpose::Ask {
                self.queue.open(&c);
            } else {
                gone.extend(self.queue.admitted(&c, lands));
            }
        }
        gone
    }

    fn agree(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.queue.len(), self.model.items.len());
        for class in 0..CLASSES {
            let mine = || self.model.items.iter().filter(|i| i.class == class);
            let expected = Waiting {
                requests: mine().count() as u64,
                tokens: mine().map(|i| i.isl).sum(),
                cached_tokens: mine().map(|i| i.isl - i.rating.uncached).sum(),
            };
            prop_assert_eq!(self.queue.waiting(ClassId(class as u32)), expected);
            prop_assert_eq!(self.queue.credit(ClassId(class as u32)), self.model.credit[class]);
        }
        prop_assert_eq!(
            self.queue.next_due(),
            self.model.items.iter().filter_map(|i| i.rating.due).min()
        );
        for (i, item) in self.model.items.iter().enumerate().filter(|(i, _)| i % 7 == 0) {
            let lane = self.model.lane(item.class, item.pin, &self.rules);
            let ahead = lane.iter().position(|other| other.sequence == item.sequence);
            prop_assert_eq!(self.queue.position(self.ids[&item.sequence]), ahead, "item {}", i);
        }
        Ok(())
    }

    fn step(&mut self, op: Op) -> Result<(), TestCaseError> {
        match op {
            Op::Push { named, priority, due, jump, uncached, pin, constrained } => {
                self.clock += 1;
                let rating = Rating {
                    cost: None,
                    strict_priority: priority,
                    due: due.map(Time::from_millis),
                    priority_jump: f64::from(jump),
                    arrival: Time::from_millis(self.clock * 300),
                    uncached,
                };
                let sequence = self.queue.sequence + 1;
                let isl = uncached + self.clock % 5;
                let arrival = Arrival {
                    class: Some(name(named)),
                    rating,
                    pin,
                    constrained,
                    isl,
                    payload: sequence,
                };
                let id = self.queue.push(arrival, 1).expect("no limits");
                prop_assert_eq!(id.sequence, sequence);
                self.ids.insert(sequence, id);
                let class = self.rules.classes[named];
                let passed = 0;
                self.model.items.push(Item {
                    sequence,
                    class,
                    named,
                    rating,
                    pin,
                    constrained,
                    isl,
                    passed,
                });
            }
            Op::Remove(which) if !self.model.items.is_empty() => {
                let sequence = self.model.items[which.index(self.model.items.len())].sequence;
                let of = self.model.items.iter().find(|i| i.sequence == sequence).expect("waits");
                let lane = self.model.lane(of.class, of.pin, &self.rules);
                let place = lane.iter().position(|i| i.sequence == sequence).expect("is in it");
                let held_up = place == 0 || (place <= LOOK_AHEAD && lane.len() > 1 + LOOK_AHEAD);
                let left = self.queue.remove(self.ids[&sequence]);
                let left = left.map(|left| (left.payload, left.held_up));
                prop_assert_eq!(left, Some((sequence, held_up)));
                self.model.leave(sequence);
            }
            Op::Remove(_) => {}
            Op::Gates(gates) => self.gates = gates,
            Op::Drain(most) => {
                let expected = self.model.drain(&self.rules, &self.gates, most);
                prop_assert_eq!(self.drain(most), expected);
            }
            Op::Expire(now) => {
                let now = Time::from_millis(now);
                let mut expected: Vec<(Time, u64)> = Vec::new();
                expected.extend(self.model.items.iter().filter_map(|i| {
                    i.rating.due.filter(|&due| due <= now).map(|due| (due, i.sequence))
                }));
                let mut taken = Vec::new();
                while let Some(left) = self.queue.take_due(now) {
                    self.model.leave(left.payload);
                    taken.push(left.payload);
                }
                expected.sort_unstable();
                taken.sort_unstable();
                let mut sequences: Vec<u64> = expected.into_iter().map(|(_, s)| s).collect();
                sequences.sort_unstable();
                prop_assert_eq!(taken, sequences);
            }
            Op::Reload(rules) => {
                self.rules = rules;
                self.queue.reload(rules.profile());
                self.model.reload(&rules);
            }
        }
        self.agree()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_queue_does_what_the_naive_one_does(
        first in rules(),
        ops in prop::collection::vec(op(), 1..240),
    ) {
        let mut both = Both {
            queue: Queue::new(first.profile()),
            model: Model::new(),
            rules: first,
            gates: Gates { classes: [true; CLASSES], ..Gates::default() },
            ids: HashMap::new(),
            clock: 0,
        };
        for op in ops {
            both.step(op)?;
        }
        // With every gate open nobody is left behind.
        both.gates = Gates { classes: [true; CLASSES], pins: [true; PINS as usize], entries: u64::MAX };
        both.step(Op::Drain(usize::MAX))?;
        prop_assert!(both.queue.is_empty());
    }

    #[test]
    fn over_a_long_backlog_service_in_tokens_follows_the_quanta(
        quanta in prop::collection::vec(50..2_000u64, 2..6),
        largest in 1..3_000u64,
        seed in any::<u64>(),
    ) {
        let mut number = numbers(seed);
        let mut queue = Queue::new(profile(&quanta));
        let mut push = |queue: &mut Queue<usize>, class: usize| {
            queue.push(of(class, 1 + number(largest)), 1).unwrap();
        };
        for class in (0..quanta.len()).flat_map(|class| [class; 4]) {
            push(&mut queue, class);
        }
        let mut served = vec![0u64; quanta.len()];
        let round = queue.begin();
        // Every class always has a backlog: whoever goes is replaced.
        for _ in 0..3_000 {
            let c = queue.next(&round).expect("all gates are open");
            if c.purpose == Purpose::Ask {
                queue.open(&c);
                continue;
            }
            let before = queue.waiting(c.class).tokens;
            let class = queue.admitted(&c, false).expect("it waits");
            served[class] += before - queue.waiting(c.class).tokens;
            push(&mut queue, class);
        }
        // In rounds: one more or less for the turn, and what the credit left over may be.
        let rounds = |class: usize| served[class] as f64 / quanta[class] as f64;
        for i in 0..quanta.len() {
            for j in 0..i {
                let slack = 2.0 + largest as f64 / quanta[i].min(quanta[j]) as f64;
                prop_assert!((rounds(i) - rounds(j)).abs() <= slack, "{:?} of {:?}", served, quanta);
            }
        }
    }
}
