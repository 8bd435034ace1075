//! The world's own books: what lies on each rank, kept the plain way.
//!
//! A record is one booking, hold or mirror; a row is the sum of the records on it. Prompt blocks are
//! a multiset of hashes per rank, and count once each.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use vacancy::Rank;

/// What a record stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A booking of this router.
    Booking,
    /// Room set aside.
    Hold,
    /// A booking of another router.
    Mirror,
}

/// One booking, hold or mirror.
#[derive(Clone, Debug)]
pub struct Record {
    /// Which.
    pub what: What,
    /// Where it is.
    pub rank: Rank,
    /// The life of that rank when it came there.
    pub life: u64,
    /// Prompt tokens.
    pub isl: u32,
    /// Blocks on the device, by rank.
    pub cached: Rc<[(Rank, u32)]>,
    /// Prompt blocks.
    pub blocks: u32,
    /// Their hashes, if they may be shared.
    pub chain: Option<Rc<[u64]>>,
    /// Output blocks.
    pub output: u32,
    /// Its prefill is over.
    pub done: bool,
    /// The id it is under.
    pub id: Option<u128>,
}

/// What one rank carries.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Which of the lives of the rank's name.
    pub life: u64,
    /// Prefill tokens.
    pub tokens: u64,
    /// Blocks that are shared with nobody.
    unshared: u64,
    /// How many records hold each hash.
    hashes: HashMap<u64, u32>,
    /// Requests.
    pub requests: u64,
    /// Blocks of the holds here, and of those of them that share none: between the two is what they
    /// added when they landed, which hangs on who else was there then.
    pub held: [u64; 2],
}

impl Row {
    /// A rank that begins a life.
    pub fn in_life(life: u64) -> Row {
        Row { life, ..Row::default() }
    }

    /// KV blocks, whoever's.
    pub fn blocks(&self) -> u64 {
        self.unshared + self.hashes.len() as u64
    }

    /// Whether it carries nothing.
    pub fn is_empty(&self) -> bool {
        *self == Row::in_life(self.life)
    }
}

/// The blocks of a record if it is a hold, and of those the ones that it shares with nobody.
fn held(record: &Record) -> Option<[u64; 2]> {
    let all = record.chain.as_ref().map_or(u64::from(record.blocks), |chain| chain.len() as u64);
    let alone = if record.chain.is_some() { 0 } else { all };
    (record.what == What::Hold).then_some([all, alone])
}

/// A mistake made on purpose in these books, to see the checks and the shrinker at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Output blocks stay when their booking leaves.
    OutputStays,
}

/// The rows of one pool.
#[derive(Debug)]
pub struct Ledger {
    /// Rows of declared ranks.
    pub rows: BTreeMap<Rank, Row>,
    /// Whether tokens are booked.
    pub tokens: bool,
    /// Whether blocks are.
    pub blocks: bool,
    /// Tokens in a block.
    pub block_size: u32,
    /// A mistake made on purpose.
    pub mistake: Option<Mistake>,
}

impl Ledger {
    /// Prompt tokens of a record that a rank has cached.
    pub fn cached(&self, record: &Record, rank: Rank) -> u32 {
        let on = record.cached.iter().rfind(|(at, _)| *at == rank).map_or(0, |&(_, n)| n);
        record.isl.min(on * self.block_size)
    }

    fn tokens_of(&self, record: &Record) -> u64 {
        if !self.tokens || record.done || record.what == What::Hold {
            return 0;
        }
        u64::from(record.isl - self.cached(record, record.rank))
    }

    /// Whether the rank that a record is on has not gone since.
    pub fn is_alive(&self, record: &Record) -> bool {
        self.rows.get(&record.rank).is_some_and(|row| row.life == record.life)
    }

    /// Puts a record on the rank that it names, in that rank's present life.
    pub fn land(&mut self, record: &mut Record) {
        record.life = self.rows.get(&record.rank).map_or(0, |row| row.life);
        self.put(record);
    }

    /// As [`land`](Self::land), for one that came there when so many lives had begun: a life that has
    /// begun since is another one, and the record lies on none.
    pub fn land_in(&mut self, record: &mut Record, lives: u64) {
        if self.rows.get(&record.rank).is_some_and(|row| row.life <= lives) {
            self.land(record);
        }
    }

    fn put(&mut self, record: &mut Record) {
        let tokens = self.tokens_of(record);
        let Some(row) = self.rows.get_mut(&record.rank).filter(|r| r.life == record.life) else {
            return;
        };
        row.tokens += tokens;
        if self.blocks {
            match &record.chain {
                Some(chain) => {
                    chain.iter().for_each(|&hash| *row.hashes.entry(hash).or_default() += 1);
                }
                None => row.unshared += u64::from(record.blocks),
            }
            row.unshared += u64::from(record.output);
        }
        match held(record) {
            Some(held) => row.held = [row.held[0] + held[0], row.held[1] + held[1]],
            None => row.requests += 1,
        }
    }

    /// Takes a record off its rank, if that is still the one it came to.
    pub fn take_off(&mut self, record: &Record) {
        let tokens = self.tokens_of(record);
        let Some(row) = self.rows.get_mut(&record.rank).filter(|r| r.life == record.life) else {
            return;
        };
        row.tokens -= tokens;
        if self.blocks {
            match &record.chain {
                Some(chain) => {
                    for hash in chain.iter() {
                        let count = row.hashes.get_mut(hash).expect("it was put there");
                        *count -= 1;
                        if *count == 0 {
                            row.hashes.remove(hash);
                        }
                    }
                }
                None => row.unshared -= u64::from(record.blocks),
            }
            if self.mistake != Some(Mistake::OutputStays) {
                row.unshared -= u64::from(record.output);
            }
        }
        match held(record) {
            Some(held) => row.held = [row.held[0] - held[0], row.held[1] - held[1]],
            None => row.requests -= 1,
        }
    }

    /// A record's prefill is over.
    pub fn complete(&mut self, record: &mut Record) {
        let tokens = self.tokens_of(record);
        record.done = true;
        if let Some(row) = self.rows.get_mut(&record.rank).filter(|r| r.life == record.life) {
            row.tokens -= tokens;
        }
    }

    /// A record grows.
    pub fn grow(&mut self, record: &mut Record, blocks: u32) {
        if !self.blocks {
            return;
        }
        record.output += blocks;
        if let Some(row) = self.rows.get_mut(&record.rank).filter(|r| r.life == record.life) {
            row.unshared += u64::from(blocks);
        }
    }

    /// A record moves to a rank that is declared.
    pub fn move_to(&mut self, record: &mut Record, rank: Rank) {
        if record.rank == rank && self.is_alive(record) {
            return;
        }
        self.take_off(record);
        record.rank = rank;
        self.land(record);
    }
}
