//! The packed row against plain integers: every operation, also from two threads at once.
#![forbid(unsafe_code)]

use crate::bytes::Bytes;
use crate::load::row::{Limit, Load, MAX_BLOCKS, Row};
use crate::load::slot::{Refusal, add, alive, kill, land_beside, reopen, replace, take_off};
use crate::model::op::{Dice, Seeded};
use crate::sync::atomic::{AtomicU64, Ordering};

/// A row in plain integers, and what is on it.
#[derive(Debug, Default)]
struct Plain {
    tokens: u64,
    blocks: u64,
    /// The life that goes on; 0: none.
    life: u64,
    lives: u64,
    on: Vec<(u32, u32)>,
}

impl Plain {
    fn fits(&self, (tokens, blocks): (u32, u32)) -> bool {
        self.tokens + u64::from(tokens) <= u64::from(u32::MAX)
            && self.blocks + u64::from(blocks) <= u64::from(MAX_BLOCKS)
    }

    fn over(&self, (tokens, blocks): (u32, u32)) -> bool {
        self.tokens > u64::from(tokens) || self.blocks > u64::from(blocks.min(MAX_BLOCKS))
    }

    fn put(&mut self, load: (u32, u32)) {
        self.tokens += u64::from(load.0);
        self.blocks += u64::from(load.1);
        self.on.push(load);
    }

    fn take(&mut self, nth: usize) -> (u32, u32) {
        let load = self.on.swap_remove(nth);
        self.tokens -= u64::from(load.0);
        self.blocks -= u64::from(load.1);
        load
    }

    /// What an addition must answer.
    fn adding(&self, load: (u32, u32), limit: (u32, u32)) -> Result<(), &'static str> {
        match () {
            () if self.life == 0 => Err("dead"),
            () if self.over(limit) => Err("full"),
            () if !self.fits(load) => Err("overflow"),
            () => Ok(()),
        }
    }
}

fn told<T>(answer: Result<T, Refusal>) -> Result<(), &'static str> {
    match answer {
        Ok(_) => Ok(()),
        Err(Refusal::Full(_)) => Err("full"),
        Err(Refusal::Dead) => Err("dead"),
        Err(Refusal::Overflow) => Err("overflow"),
    }
}

/// A part of a load or a limit: mostly small, now and then at the edge of its bits.
fn part(d: &mut dyn Dice, most: u32) -> u32 {
    match d.roll(16) {
        0..=9 => d.roll(200),
        10 => 0,
        11 => most,
        12 => most - d.roll(4),
        13 => most / 2 + d.roll(3),
        _ => d.roll(70_000),
    }
}

fn load(d: &mut dyn Dice) -> (u32, u32) {
    let most = if d.roll(8) == 7 { u32::MAX } else { MAX_BLOCKS };
    (part(d, u32::MAX), part(d, most))
}

fn limit(d: &mut dyn Dice) -> (u32, u32) {
    match d.roll(3) {
        0 => (u32::MAX, u32::MAX),
        1 => (part(d, u32::MAX), u32::MAX),
        _ => (part(d, u32::MAX), part(d, MAX_BLOCKS)),
    }
}

fn pack((tokens, blocks): (u32, u32)) -> Load {
    Load::new(tokens, blocks)
}

/// A row and its plain double.
struct Double {
    row: AtomicU64,
    lives: AtomicU64,
    plain: Plain,
}

impl Double {
    fn new() -> Double {
        let (row, lives) = (AtomicU64::new(Row::VACANT.bits()), AtomicU64::new(0));
        Double { row, lives, plain: Plain::default() }
    }

    fn now(&self) -> Row {
        Row::from_bits(self.row.load(Ordering::Relaxed))
    }

    /// Does one operation to both.
    fn step(&mut self, d: &mut dyn Dice) {
        let now = self.now();
        let (row, plain) = (&self.row, &mut self.plain);
        match d.roll(16) {
            0..=5 => {
                let (load, limit) = (load(d), limit(d));
                let packed = Limit::new(limit.0, limit.1);
                let want = plain.adding(load, limit);
                assert_eq!(told(add(row, pack(load), |r| !r.exceeds(packed))), want, "{plain:?}");
                if want.is_ok() {
                    plain.put(load);
                }
            }
            6..=10 if !plain.on.is_empty() => {
                let load = plain.take(d.roll(64) as usize % plain.on.len());
                assert_eq!(take_off(row, pack(load)).is_some(), plain.life != 0, "{plain:?}");
            }
            11 if !plain.on.is_empty() => {
                let (on, limit) = (load(d), limit(d));
                let packed = Limit::new(limit.0, limit.1);
                let off = plain.take(d.roll(64) as usize % plain.on.len());
                let want = plain.adding(on, limit);
                let judge = |r: Row| !r.exceeds(packed);
                assert_eq!(told(replace(row, pack(off), pack(on), judge)), want, "{plain:?}");
                plain.put(if want.is_ok() { on } else { off });
            }
            12 => {
                // Landed for a sibling's room, which may have gone by then.
                let (load, room) = (load(d), d.roll(2) == 1);
                let want = plain.adding(load, (u32::MAX, u32::MAX));
                let land = || add(row, pack(load), |_| true);
                let back = |_| Refusal::Full(take_off(row, pack(load)).expect("it lives"));
                let want = want.and(if room { Ok(()) } else { Err("full") });
                assert_eq!(told(land_beside(land, || room, back)), want, "{plain:?}");
                if want.is_ok() {
                    plain.put(load);
                }
            }
            13 => {
                let life = d.roll(4) as u64;
                let asked = plain.lives.saturating_sub(life);
                let lives = plain.life != 0 && asked == plain.life;
                assert_eq!(alive(row, &self.lives, asked), lives, "{plain:?}");
            }
            14 => {
                let limit = limit(d);
                let want = plain.life == 0 || plain.over(limit);
                let packed = Limit::new(limit.0, limit.1);
                assert_eq!(now.exceeds(packed), want, "{plain:?}");
                let tokens_only = plain.life == 0 || plain.over((limit.0, u32::MAX));
                assert_eq!(now.exceeds(packed.tokens_only()), tokens_only, "{plain:?}");
            }
            15 if d.roll(8) == 7 || plain.life == 0 => {
                if plain.life == 0 {
                    plain.lives += 1;
                    let lives = plain.lives;
                    *plain = Plain { life: lives, lives, ..Plain::default() };
                    reopen(row, &self.lives, lives);
                } else {
                    let last = kill(row);
                    assert!(!last.is_dead(), "{plain:?}");
                    plain.life = 0;
                    plain.on.clear();
                }
            }
            _ => {}
        }
        self.compare();
    }

    fn compare(&self) {
        let (row, plain) = (self.now(), &self.plain);
        assert_eq!(row.is_dead(), plain.life == 0, "{plain:?}");
        if plain.life != 0 {
            let shown = (u64::from(row.tokens()), u64::from(row.blocks()));
            assert_eq!(shown, (plain.tokens, plain.blocks), "{plain:?}");
        }
    }
}

/// Does the operations that `data` says to a row and to plain integers.
///
/// # Panics
/// If they differ.
pub fn rows(data: &[u8]) -> u64 {
    let mut bytes = Bytes::new(data);
    let (mut both, mut done) = (Double::new(), 0);
    while !bytes.spent() && done < 10_000 {
        both.step(&mut bytes);
        done += 1;
    }
    done
}

/// Does `count` operations, drawn by `seed`, to a row and to plain integers.
///
/// # Panics
/// If they differ.
pub fn rows_alone(seed: u64, count: u64) {
    let mut dice = Seeded(seed);
    let mut both = Double::new();
    for i in 0..count {
        both.step(&mut dice);
        // As many bookings as a busy rank has.
        while both.plain.on.len() > 100 {
            let load = both.plain.take(0);
            take_off(&both.row, pack(load));
        }
        if i % 1_000_000 == 999_999 {
            both = Double::new();
        }
    }
}

/// `count` additions, replacements and removals on one row by each of two threads, under a limit;
/// the row shows the sum of what both left on it, and in the end nothing.
///
/// # Panics
/// If it shows anything else, or ever more than the limit and the one load that crossed it.
pub fn rows_among_threads(seed: u64, count: u64) {
    const MOST: u32 = 500;
    let (row, lives) = (AtomicU64::new(Row::VACANT.bits()), AtomicU64::new(0));
    reopen(&row, &lives, 1);
    let limit = Limit::new(MOST, MOST);
    let work = |seed: u64| {
        let (row, mut dice) = (&row, Seeded(seed));
        let mut mine: Vec<(u32, u32)> = Vec::new();
        for _ in 0..count {
            let load = (dice.roll(40), dice.roll(40));
            match dice.roll(4) {
                0 | 1 => {
                    if let Ok(now) = add(row, pack(load), |r| !r.exceeds(limit)) {
                        assert!(now.tokens() < MOST + 40 && now.blocks() < MOST + 40, "{now:?}");
                        mine.push(load);
                    }
                }
                2 if !mine.is_empty() => {
                    let off = mine.swap_remove(dice.roll(64) as usize % mine.len());
                    let on = replace(row, pack(off), pack(load), |r| !r.exceeds(limit));
                    mine.push(if on.is_ok() { load } else { off });
                }
                _ if !mine.is_empty() => {
                    let load = mine.swap_remove(dice.roll(64) as usize % mine.len());
                    take_off(row, pack(load)).expect("it lives");
                }
                _ => {}
            }
        }
        mine
    };
    let left = std::thread::scope(|scope| {
        let other = scope.spawn(|| work(seed ^ 1));
        let mut left = work(seed);
        left.extend(other.join().expect("it did not panic"));
        left
    });
    let sum = |of: fn(&(u32, u32)) -> u32| left.iter().map(of).sum::<u32>();
    let now = Row::from_bits(row.load(Ordering::Acquire));
    assert_eq!((now.tokens(), now.blocks()), (sum(|l| l.0), sum(|l| l.1)));
    for load in left {
        take_off(&row, pack(load)).expect("it lives");
    }
    assert_eq!(row.load(Ordering::Acquire), Row::EMPTY.bits());
}
