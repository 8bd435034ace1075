//! Sentences of the contract about two paired pools.

use std::sync::Arc;
use vacancy::*;

fn profile(frac: f64) -> Arc<Profile> {
    let class =
        ClassSpec::new("c", 100).family("f", "all").thresholds(Thresholds::NONE.decode_frac(frac));
    Arc::new(Profile::new("f", [(0, Name::new("all"))], [class]).unwrap())
}

fn two_pools(frac: f64, blocks: u64) -> (Pool, Pool, RejectThresholds) {
    let rejects = RejectThresholds::default();
    let decode =
        Pool::builder().track_prefill(false).reject_thresholds(rejects.clone()).build().unwrap();
    decode.upsert(WorkerSpec::new(1).total_kv_blocks(blocks)).unwrap();
    let prefill = Pool::builder().track_blocks(false).policy(&profile(frac)).build().unwrap();
    prefill.upsert(WorkerSpec::new(2).max_num_batched_tokens(8192)).unwrap();
    prefill.pair_with(&decode);
    (prefill, decode, rejects)
}

#[test]
fn a_burst_overshoots_by_at_most_the_request_that_crossed_and_all_legs_convert() {
    let (prefill, decode, rejects) = two_pools(0.5, 100);
    let rank = Rank::new(1, 0);
    let mut admits: Vec<Admit> = (0..10).map(|_| prefill.admit(Request::new(160))).collect();
    let load = decode.load(rank).unwrap();
    assert_eq!((load.kv_blocks, load.held_blocks, load.requests), (0, 60, 0));
    assert_eq!(admits.iter().filter(|a| a.is_waiting()).count(), 4);
    assert_eq!(admits[9].standing().unwrap().why, Why::Pair);

    // Six holds on a full rank, the reject threshold at the class limit: all six legs convert.
    rejects.set(Thresholds::NONE.decode_frac(0.5)).unwrap();
    let mut legs = Vec::new();
    for admit in &mut admits[..6] {
        let admitted = admit.try_take().unwrap().unwrap();
        let leg = decode.book_leg(admitted.hold.unwrap(), &Request::new(160)).unwrap();
        assert_eq!(leg.rank(), rank);
        legs.push((leg, admitted.booking));
    }
    let load = decode.load(rank).unwrap();
    assert_eq!((load.kv_blocks, load.held_blocks, load.requests), (60, 0, 6));

    // A decode release wakes the prefill queue.
    legs.pop();
    assert_eq!(admits[6..].iter().filter(|a| a.is_waiting()).count(), 3);
    drop(legs);
    drop(admits);
    let load = decode.load(rank).unwrap();
    assert_eq!((load.kv_blocks, load.held_blocks, load.requests), (0, 0, 0));
    assert_eq!(prefill.load(Rank::new(2, 0)).unwrap().prefill_tokens, 0);
}

#[test]
fn a_pair_without_a_reachable_rank_has_no_room_and_one_that_is_dropped_has() {
    let (prefill, decode, _) = two_pools(0.5, 8);
    decode.set_available(WorkerId(1), false);
    let mut admit = prefill.admit(Request::new(16));
    assert_eq!(admit.standing().unwrap().why, Why::Pair);
    decode.set_available(WorkerId(1), true);
    assert!(admit.try_take().unwrap().unwrap().hold.is_some());
    decode.remove(WorkerId(1));
    let mut admit = prefill.admit(Request::new(16));
    assert!(admit.is_waiting());
    drop(decode);
    assert!(admit.try_take().unwrap().unwrap().hold.is_none());
}

/// A foreign pair that has room when it is asked, and none to set aside; while it says so, somebody
/// who needs no pair arrives.
struct Withdraws {
    pool: std::sync::OnceLock<Pool>,
    arrived: std::sync::Mutex<Option<Admit>>,
}

impl PairedPool for Withdraws {
    fn room(&self, _: &PairAsk<'_>) -> PairRoom {
        PairRoom::Room
    }

    fn subscribe(&self, _: PairWaker) {}

    fn hold(&self, _: &PairAsk<'_>) -> HoldOffer {
        let admit = self.pool.get().unwrap().admit(Request::new(16).class("own"));
        assert!(admit.is_waiting(), "the only place is taken for as long as this takes");
        *self.arrived.lock().unwrap() = Some(admit);
        HoldOffer::NoRoom
    }
}

#[test]
fn what_a_newcomer_takes_and_gives_back_lets_a_waiter_in() {
    let full = Thresholds::NONE.prefill_frac(0.0);
    let classes = [
        ClassSpec::new("own", 1).family("f", "all").thresholds(full),
        // Never queues: once it is refused, nothing of it looks at the queue again.
        ClassSpec::new("both", 1)
            .thresholds(full.decode_frac(0.5))
            .request_queue_limit_per_worker(0),
    ];
    let profile = Arc::new(Profile::new("f", [(0, Name::new("all"))], classes).unwrap());
    let prefill = Pool::builder().policy(&profile).build().unwrap();
    prefill.upsert(WorkerSpec::new(1).max_num_batched_tokens(8192)).unwrap();
    let pair = Arc::new(Withdraws {
        pool: std::sync::OnceLock::new(),
        arrived: std::sync::Mutex::new(None),
    });
    assert!(pair.pool.set(prefill.clone()).is_ok());
    prefill.pair_with_hook(pair.clone());
    let refused = prefill.admit(Request::new(16).class("both")).wait().unwrap_err();
    assert!(matches!(refused, Error::QueueRejected { .. }), "{refused:?}");
    let mut arrived = pair.arrived.lock().unwrap().take().unwrap();
    let admitted = arrived.try_take().expect("nobody sleeps beside room").unwrap();
    assert!(admitted.waited);
}
