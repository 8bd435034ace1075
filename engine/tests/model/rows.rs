//! What each rank carries: nothing but the list of live bookings, summed anew at every look.

use super::fleet::Fleet;
use super::limits::Row;
use std::collections::BTreeSet;
use vacancy::{Rank, Request, RequestId, RouterId, Time};

/// What a row can hold at most: 32 bits of tokens, 31 bits of blocks.
pub const MAX_TOKENS: u64 = u32::MAX as u64;
/// See [`MAX_TOKENS`].
pub const MAX_BLOCKS: u64 = (1 << 31) - 1;

/// What one attempt of one request puts on a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Prefill tokens still outstanding.
    pub prefill: u64,
    /// Prompt blocks that may be shared, by hash.
    pub hashes: Vec<u64>,
    /// Prompt blocks without hashes, which are shared with nobody.
    pub own_blocks: u64,
    /// Output blocks.
    pub output: u64,
}

impl Load {
    /// The blocks that this load adds to a rank that holds `held`.
    pub fn new_blocks(&self, held: &BTreeSet<u64>) -> u64 {
        let new = self.hashes.iter().filter(|h| !held.contains(h)).count() as u64;
        new + self.own_blocks + self.output
    }
}

/// Whose load it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A booking of this router's.
    Booking,
    /// Room set aside for a decode leg: so many blocks were added when it landed. Whether it ends
    /// by itself is known to the pool that it was set aside for.
    Hold {
        /// The blocks.
        charged: u64,
    },
    /// A booking of another router's: what it puts on any rank.
    Mirror {
        /// The router.
        router: RouterId,
        /// Prefill tokens.
        tokens: u64,
        /// Blocks, shared with nobody here.
        blocks: u64,
    },
}

impl Kind {
    /// Whether it is a hold.
    pub fn is_hold(self) -> bool {
        matches!(self, Kind::Hold { .. })
    }
}

/// One live booking, hold or mirror.
#[derive(Clone, Debug)]
pub struct Live {
    /// Whose it is.
    pub kind: Kind,
    /// Where it is.
    pub rank: Rank,
    /// The life of the rank that it was booked in. In any other one it weighs nothing.
    pub life: u64,
    /// Its load.
    pub load: Load,
    /// What was asked for: another rank would be charged by it.
    pub request: Request,
    /// Whether its prefill has completed.
    pub completed: bool,
    /// The id, if the host frees by id, and the attempt under that id.
    pub id: Option<(RequestId, u64)>,
    /// The last call on its id.
    pub renewed: Time,
}

impl Live {
    /// Whether it counts as a request.
    pub fn counts(&self) -> bool {
        !self.kind.is_hold()
    }

    /// Whether it still weighs on a rank.
    pub fn stands(&self, fleet: &Fleet) -> bool {
        fleet.life(self.rank) == Some(self.life)
    }
}

/// The bookings that weigh on `rank`.
pub fn on<'a>(
    fleet: &'a Fleet,
    bookings: impl IntoIterator<Item = &'a Live> + 'a,
    rank: Rank,
) -> impl Iterator<Item = &'a Live> + 'a {
    bookings.into_iter().filter(move |b| b.rank == rank && b.stands(fleet))
}

/// The distinct prompt blocks among `bookings`.
pub fn held<'a>(bookings: impl Iterator<Item = &'a Live>) -> BTreeSet<u64> {
    bookings.flat_map(|b| b.load.hashes.iter().copied()).collect()
}

/// The sum of `bookings`, a shared block counted once.
pub fn sum<'a>(bookings: impl Iterator<Item = &'a Live> + Clone) -> Row {
    let mut held: Vec<u64> = bookings.clone().flat_map(|b| &b.load.hashes).copied().collect();
    held.sort_unstable();
    held.dedup();
    Row {
        prefill_tokens: bookings.clone().map(|b| b.load.prefill).sum(),
        kv_blocks: bookings.clone().map(|b| b.load.own_blocks + b.load.output).sum::<u64>()
            + held.len() as u64,
        requests: bookings.filter(|b| b.counts()).count() as u64,
    }
}

/// Whether `load` fits on a rank that carries `row` and holds `held`.
pub fn fits(row: Row, held: &BTreeSet<u64>, load: &Load) -> bool {
    let new = load.new_blocks(held);
    row.prefill_tokens + load.prefill <= MAX_TOKENS && row.kv_blocks + new <= MAX_BLOCKS
}

#[cfg(test)]
mod tests {
    use super::*;
    use vacancy::WorkerSpec;

    fn live(fleet: &Fleet, prefill: u64, hashes: &[u64], own_blocks: u64) -> Live {
        let rank = Rank::new(1, 0);
        let load = Load { prefill, hashes: hashes.to_vec(), own_blocks, output: 0 };
        let life = fleet.life(rank).expect("declared");
        let request = Request::new(0);
        let renewed = Time::ZERO;
        let kind = Kind::Booking;
        Live { kind, rank, life, load, request, completed: false, id: None, renewed }
    }

    #[test]
    fn a_block_that_several_requests_share_counts_once_until_the_last_leaves() {
        let mut f = Fleet::default();
        f.upsert(WorkerSpec::new(1));
        let mut all =
            vec![live(&f, 10, &[1, 2, 3], 0), live(&f, 20, &[1, 2, 4], 5), live(&f, 0, &[], 2)];
        let row = |all: &[Live]| sum(on(&f, all, Rank::new(1, 0)).collect::<Vec<_>>().into_iter());
        assert_eq!(row(&all), Row { prefill_tokens: 30, kv_blocks: 11, requests: 3 });
        all.remove(0);
        assert_eq!(row(&all), Row { prefill_tokens: 20, kv_blocks: 10, requests: 2 });
        all.remove(0);
        assert_eq!(row(&all), Row { prefill_tokens: 0, kv_blocks: 2, requests: 1 });
    }

    #[test]
    fn a_booking_of_a_former_life_weighs_nothing() {
        let mut f = Fleet::default();
        f.upsert(WorkerSpec::new(1));
        let old = live(&f, 10, &[1], 0);
        f.upsert(WorkerSpec::new(1).ranks(1, 1));
        assert!(!old.stands(&f));
        f.upsert(WorkerSpec::new(1).ranks(0, 2));
        assert!(!old.stands(&f));
        assert_eq!(on(&f, [&old], Rank::new(1, 0)).count(), 0);
    }

    #[test]
    fn a_row_holds_32_bits_of_tokens_and_31_of_blocks() {
        let full = Row { prefill_tokens: MAX_TOKENS - 1, kv_blocks: MAX_BLOCKS - 1, requests: 1 };
        let load = |prefill, own_blocks| Load { prefill, own_blocks, hashes: vec![7], output: 0 };
        assert!(fits(full, &BTreeSet::new(), &load(1, 0)));
        assert!(!fits(full, &BTreeSet::new(), &load(2, 0)));
        assert!(!fits(full, &BTreeSet::new(), &load(0, 1)));
        assert!(fits(full, &BTreeSet::from([7]), &load(0, 1)));
    }
}
