//! Against plain maps, step by step; and with many threads, compared at rest.

use super::*;
use crate::grace::{Domain, Guard, Seat};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A generator of numbers that needs no crate and is the same everywhere.
#[derive(Clone)]
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// The hash of a prefix: what makes a list of letters a chain.
fn chain_of(letters: &[u64]) -> Arc<[u64]> {
    let mut hash = 7_u64;
    letters
        .iter()
        .map(|letter| {
            hash = Rng(hash ^ letter.wrapping_mul(0x1234_5678_9abc_def1)).next();
            hash
        })
        .collect()
}

/// A chain over few letters: deep sharing, partings everywhere.
fn random_chain(rng: &mut Rng) -> Arc<[u64]> {
    let len = rng.below(12);
    let letters: Vec<u64> = (0..len).map(|_| u64::from(rng.below(4) == 0)).collect();
    chain_of(&letters)
}

fn book(rank: &mut RankPrompts, chain: &Arc<[u64]>, at: At<'_>) -> Held {
    let missing = rank.missing(chain);
    rank.enter(missing, at)
}

/// A booking: its rank, what it holds there, and its chain.
type Live = (usize, Held, Arc<[u64]>);

/// What one rank holds, as a map.
#[derive(Default)]
struct Naive(BTreeMap<u64, u32>);

impl Naive {
    fn missing(&self, chain: &[u64]) -> u32 {
        chain.iter().filter(|hash| !self.0.contains_key(hash)).count() as u32
    }

    fn enter(&mut self, chain: &[u64]) {
        for hash in chain {
            *self.0.entry(*hash).or_default() += 1;
        }
    }

    fn leave(&mut self, chain: &[u64]) -> u32 {
        let mut left = 0;
        for hash in chain {
            let count = self.0.get_mut(hash).unwrap();
            *count -= 1;
            if *count == 0 {
                self.0.remove(hash);
                left += 1;
            }
        }
        left
    }
}

/// Calls `visit` for each block in which a rank holds the run, with its lanes.
fn for_each_block(run: RunView<'_>, mut visit: impl FnMut(u32, u64)) {
    for part in 0..80 {
        let blocks = run.blocks(part);
        for block in (0..64).filter(|at| blocks >> at & 1 == 1).map(|at| part * 64 + at) {
            let mask = run.mask(block);
            // The word about blocks is not of the same moment as theirs.
            if mask != 0 {
                visit(block, mask);
            }
        }
    }
}

/// What the index says `slot` holds of `chain`, in blocks from the beginning.
fn indexed(index: &PromptIndex, guard: &Guard<'_>, slot: u32, chain: &[u64]) -> u32 {
    let (mut held, mut ended, mut next) = (0, false, 0);
    let found = index.descend(guard, chain, |run, from, to| {
        assert_eq!(from, next, "stretches follow one another");
        assert!(to > from);
        next = to;
        let has = run.mask(slot >> 6) >> (slot & 63) & 1 == 1;
        let mut ranks = 0;
        let mut seen = Vec::new();
        for_each_block(run, |block, mask| {
            assert!(!seen.contains(&block), "each block once");
            seen.push(block);
            assert_eq!(mask, run.mask(block));
            ranks += mask.count_ones();
        });
        assert_eq!(ranks, run.ranks());
        assert!(ranks > 0, "a run that nobody holds is not there");
        if has {
            assert!(!ended, "who holds a block holds what is before it");
            held = to;
        } else {
            ended = true;
        }
    });
    assert_eq!(found, next);
    held
}

const SLOTS: [u32; 12] = [0, 1, 63, 64, 65, 200, 4000, 4001, 9000, 70, 71, 300_000];

#[test]
fn ranks_and_index_agree_with_plain_maps_after_every_step() {
    for seed in 0..60 {
        let domain = Domain::new();
        let seat = domain.seat();
        let index = PromptIndex::new(&domain);
        let mut rng = Rng(seed);
        let ranks = 1 + seed as usize % SLOTS.len();
        let mut truth: Vec<RankPrompts> = (0..ranks).map(|_| RankPrompts::new()).collect();
        let mut naive: Vec<Naive> = (0..ranks).map(|_| Naive::default()).collect();
        let mut live: Vec<Live> = Vec::new();
        let most = 1 + rng.below(40) as usize;
        for step in 0..1500 {
            let guard = domain.pin(seat);
            let leaving = step > 1300 || live.len() >= most || rng.below(2) == 0;
            if leaving && !live.is_empty() {
                let (rank, held, chain) = live.swap_remove(rng.below(live.len() as u64) as usize);
                let at = At { index: &index, slot: SLOTS[rank], guard: &guard };
                assert_eq!(truth[rank].leave(held, at), naive[rank].leave(&chain));
            } else if step <= 1300 {
                let rank = rng.below(ranks as u64) as usize;
                let chain = random_chain(&mut rng);
                let at = At { index: &index, slot: SLOTS[rank], guard: &guard };
                let missing = truth[rank].missing(&chain);
                assert_eq!(missing.blocks(), naive[rank].missing(&chain));
                let held = truth[rank].enter(missing, at);
                naive[rank].enter(&chain);
                live.push((rank, held, chain));
            } else {
                // Now and then all of one rank goes at once, bookings and all.
                continue;
            }
            if rng.below(200) == 0 {
                let rank = rng.below(ranks as u64) as usize;
                let at = At { index: &index, slot: SLOTS[rank], guard: &guard };
                assert_eq!(truth[rank].clear(at), naive[rank].0.len() as u32);
                naive[rank].0.clear();
                live.retain(|&(of, held, _)| {
                    if of == rank {
                        assert_eq!(truth[rank].leave(held, at), 0, "it is of a former life");
                    }
                    of != rank
                });
            }
            let probe = random_chain(&mut rng);
            for rank in 0..ranks {
                assert_eq!(truth[rank].held(), naive[rank].0.len() as u32);
                let missing = naive[rank].missing(&probe);
                assert_eq!(truth[rank].missing(&probe).blocks(), missing);
                let held = indexed(&index, &guard, SLOTS[rank], &probe);
                assert_eq!(held, probe.len() as u32 - missing, "seed {seed} step {step}");
            }
        }
        assert!(live.is_empty());
        assert_eq!(index.runs(), 0, "nothing held, nothing kept");
    }
}

#[test]
fn a_run_may_be_cut_at_every_place() {
    let domain = Domain::new();
    let seat = domain.seat();
    let n = 20;
    let long = chain_of(&(0..n).collect::<Vec<_>>());
    for part in 1..n as usize {
        for ends in [true, false] {
            let index = PromptIndex::new(&domain);
            let guard = domain.pin(seat);
            let at = |slot| At { index: &index, slot, guard: &guard };
            let mut other: Vec<u64> = (0..part as u64).collect();
            if !ends {
                other.extend([100, 101]);
            }
            let other = chain_of(&other);
            let (mut a, mut b) = (RankPrompts::new(), RankPrompts::new());
            let held_a = a.enter(a.missing(&long), at(1));
            let held_b = b.enter(b.missing(&other), at(2));
            assert_eq!(indexed(&index, &guard, 1, &long), n as u32);
            assert_eq!(indexed(&index, &guard, 2, &long), part as u32);
            assert_eq!(indexed(&index, &guard, 1, &other), part as u32);
            assert_eq!(indexed(&index, &guard, 2, &other), other.len() as u32);
            let again = a.missing(&other);
            assert_eq!(again.blocks(), other.len() as u32 - part as u32);
            let held = a.enter(again, at(1));
            assert_eq!(a.leave(held_a, at(1)), n as u32 - part as u32);
            assert_eq!(indexed(&index, &guard, 1, &long), part as u32);
            assert_eq!(b.leave(held_b, at(2)), other.len() as u32);
            assert_eq!(indexed(&index, &guard, 2, &long), 0);
            assert_eq!(a.leave(held, at(1)), other.len() as u32);
            assert_eq!(index.runs(), 0);
        }
    }
}

#[test]
fn hashes_that_are_no_chains_harm_nobody() {
    for seed in 0..200 {
        let domain = Domain::new();
        let seats = [domain.seat(), domain.seat()];
        let index = PromptIndex::new(&domain);
        let mut rng = Rng(seed);
        let mut ranks: Vec<RankPrompts> = (0..4).map(|_| RankPrompts::new()).collect();
        let mut live: Vec<(usize, Held)> = Vec::new();
        let mut charged = [0_u32; 4];
        for step in 0..600 {
            let guard = domain.pin(seats[rng.below(2) as usize]);
            if step > 400 || rng.below(2) == 0 {
                if live.is_empty() {
                    continue;
                }
                let (rank, held) = live.swap_remove(rng.below(live.len() as u64) as usize);
                let at = At { index: &index, slot: rank as u32, guard: &guard };
                charged[rank] -= ranks[rank].leave(held, at);
            } else {
                // Six numbers in any order: anything follows anything.
                let mut hashes: Vec<u64> = (0..6).collect();
                for i in 0..6 {
                    hashes.swap(i, i + rng.below(6 - i as u64) as usize);
                }
                hashes.truncate(1 + rng.below(6) as usize);
                let chain: Arc<[u64]> = hashes.into();
                let rank = rng.below(4) as usize;
                let at = At { index: &index, slot: rank as u32, guard: &guard };
                let missing = ranks[rank].missing(&chain);
                charged[rank] += missing.blocks();
                let held = ranks[rank].enter(missing, at);
                live.push((rank, held));
            }
            for (rank, charged) in ranks.iter().zip(charged) {
                assert_eq!(rank.held(), charged, "what is charged is what is held");
            }
        }
        assert_eq!(charged, [0; 4]);
        assert_eq!(index.runs(), 0, "seed {seed}");
    }
}

#[test]
fn what_one_thread_gives_back_another_uses_and_no_prompt_stays_behind() {
    let domain = Domain::new();
    let (books, frees) = (domain.seat(), domain.seat());
    let index = PromptIndex::new(&domain);
    let mut rank = RankPrompts::new();
    let kept = chain_of(&[1]);
    let mut round = |n: u64, frees: &Seat, chain: &Arc<[u64]>| {
        let held = {
            let guard = domain.pin(books);
            rank.enter(rank.missing(chain), At { index: &index, slot: 7, guard: &guard })
        };
        let guard = domain.pin(frees);
        assert_eq!(rank.leave(held, At { index: &index, slot: 7, guard: &guard }), 1, "{n}");
        (index.runs_made(), rank.nodes_made())
    };
    let mut made = (0, 0);
    for n in 0..20_000 {
        // Now by one, now by the other.
        let now = round(n, if n % 2_000 < 1_000 { frees } else { books }, &chain_of(&[1_000 + n]));
        if n == 10_000 {
            made = now;
        }
        assert!(n < 10_000 || now == made, "{now:?} after {made:?}");
    }
    round(0, frees, &kept);
    for n in 0..40_000 {
        round(n, books, &chain_of(&[1_000 + n]));
    }
    assert_eq!(Arc::strong_count(&kept), 1, "left behind by a thread that does no more");
}

#[test]
fn a_run_held_by_thousands_of_ranks_is_a_bitmap_that_grows_with_the_fleet() {
    let domain = Domain::new();
    let seat = domain.seat();
    let index = PromptIndex::new(&domain);
    let chain = chain_of(&[1, 2, 3]);
    let short = chain_of(&[1, 2]);
    let mut ranks: Vec<(RankPrompts, Held)> = Vec::new();
    for slot in 0..10_000 {
        let guard = domain.pin(seat);
        let mut rank = RankPrompts::new();
        let chain = if slot % 3 == 0 { &chain } else { &short };
        let held = rank.enter(rank.missing(chain), At { index: &index, slot, guard: &guard });
        ranks.push((rank, held));
    }
    let guard = domain.pin(seat);
    let mut counts = Vec::new();
    index.descend(&guard, &chain, |run, from, to| counts.push((from, to, run.ranks())));
    assert_eq!(counts, [(0, 2, 10_000), (2, 3, 3_334)]);
    for slot in 0..10_000 {
        assert_eq!(indexed(&index, &guard, slot, &chain), if slot % 3 == 0 { 3 } else { 2 });
    }
    drop(guard);
    for (slot, (mut rank, held)) in ranks.into_iter().enumerate() {
        let guard = domain.pin(seat);
        rank.leave(held, At { index: &index, slot: slot as u32, guard: &guard });
    }
    assert_eq!(index.runs(), 0);
}

#[test]
fn threads_at_once_leave_the_index_saying_what_the_ranks_hold() {
    const RANKS: usize = 24;
    let threads = 4;
    let looks = AtomicUsize::new(0);
    for round in 0..8_u64 {
        let index = PromptIndex::new(crate::pins::domain());
        let ranks: Vec<Mutex<RankPrompts>> = (0..RANKS).map(|_| Mutex::default()).collect();
        let done = AtomicBool::new(false);
        let live: Vec<Vec<Live>> = std::thread::scope(|scope| {
            let (index, ranks, done, looks) = (&index, &ranks, &done, &looks);
            let workers: Vec<_> = (0..threads)
                .map(|thread| {
                    scope.spawn(move || {
                        let mut rng = Rng(round * 100 + thread);
                        let mut live = Vec::new();
                        for _ in 0..6_000 {
                            let guard = crate::pins::pin();
                            if live.len() > 30 || rng.below(2) == 0 && !live.is_empty() {
                                let (rank, held, _): Live =
                                    live.swap_remove(rng.below(live.len() as u64) as usize);
                                let at = At { index, slot: rank as u32 * 37, guard: &guard };
                                ranks[rank].lock().leave(held, at);
                            } else {
                                let rank = rng.below(RANKS as u64) as usize;
                                let chain = random_chain(&mut rng);
                                let at = At { index, slot: rank as u32 * 37, guard: &guard };
                                let held = book(&mut ranks[rank].lock(), &chain, at);
                                live.push((rank, held, chain));
                            }
                        }
                        live
                    })
                })
                .collect();
            let reader = scope.spawn(move || {
                let mut rng = Rng(round);
                while !done.load(Ordering::Relaxed) {
                    let guard = crate::pins::pin();
                    let chain = random_chain(&mut rng);
                    let mut next = 0;
                    index.descend(&guard, &chain, |run, from, to| {
                        assert!(from == next && to > from && to as usize <= chain.len());
                        next = to;
                        for_each_block(run, |block, mask| {
                            let lanes = (0..64).filter(|lane| mask >> lane & 1 == 1);
                            lanes.for_each(|lane| assert_eq!((block * 64 + lane) % 37, 0));
                        });
                    });
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            });
            let live = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
            done.store(true, Ordering::Relaxed);
            reader.join().unwrap();
            live
        });
        let guard = crate::pins::pin();
        let mut rng = Rng(round + 1);
        for probe in 0..200 {
            let chain = match live.iter().flatten().nth(probe) {
                Some((_, _, chain)) => chain.clone(),
                None => random_chain(&mut rng),
            };
            for (rank, prompts) in ranks.iter().enumerate() {
                let missing = prompts.lock().missing(&chain).blocks();
                let held = indexed(&index, &guard, rank as u32 * 37, &chain);
                assert_eq!(held, chain.len() as u32 - missing);
            }
        }
        for (rank, held, _) in live.into_iter().flatten() {
            let at = At { index: &index, slot: rank as u32 * 37, guard: &guard };
            ranks[rank].lock().leave(held, at);
        }
        assert!(ranks.iter().all(|rank| rank.lock().held() == 0));
        assert_eq!(index.runs(), 0);
    }
    assert!(looks.load(Ordering::Relaxed) > 0);
}

#[test]
fn threads_on_one_conversation_leave_the_index_exact() {
    const RANKS: usize = 6;
    let domain = Domain::new();
    let index = PromptIndex::new(&domain);
    let ranks: Vec<Mutex<RankPrompts>> = (0..RANKS).map(|_| Mutex::default()).collect();
    let turns: Vec<Arc<[u64]>> =
        (1..=8).map(|turns| chain_of(&(0..turns).collect::<Vec<u64>>())).collect();
    let seats = [(); 5].map(|()| domain.seat());
    let mut looked_at = 0;
    for round in 0..5_000_u64 {
        let live: Vec<(usize, Held)> = std::thread::scope(|scope| {
            let (domain, index, ranks, turns) = (&domain, &index, &ranks, &turns);
            let threads = [0, 1, 2, 3].map(|thread| {
                let seat = seats[thread];
                scope.spawn(move || {
                    let mut rng = Rng(round * 8 + thread as u64);
                    let mut live: Vec<(usize, Held)> = Vec::new();
                    for _ in 0..200 {
                        let guard = domain.pin(seat);
                        if live.len() > 2 || rng.below(2) == 0 && !live.is_empty() {
                            let gone = rng.below(live.len() as u64) as usize;
                            let (rank, held) = live.swap_remove(gone);
                            let at = At { index, slot: rank as u32, guard: &guard };
                            ranks[rank].lock().leave(held, at);
                        } else {
                            let rank = rng.below(RANKS as u64) as usize;
                            let at = At { index, slot: rank as u32, guard: &guard };
                            let chain = &turns[rng.below(8) as usize];
                            live.push((rank, book(&mut ranks[rank].lock(), chain, at)));
                        }
                    }
                    live
                })
            });
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let guard = domain.pin(seats[4]);
        for (rank, prompts) in ranks.iter().enumerate() {
            let held = 8 - prompts.lock().missing(&turns[7]).blocks();
            assert_eq!(indexed(&index, &guard, rank as u32, &turns[7]), held);
            looked_at += u32::from(held > 0);
        }
        for (rank, held) in live {
            ranks[rank].lock().leave(held, At { index: &index, slot: rank as u32, guard: &guard });
        }
        assert_eq!(index.runs(), 0);
    }
    assert!(looked_at > 5_000);
}

#[test]
fn a_prompt_of_thousands_of_blocks_costs_its_edges() {
    let domain = Domain::new();
    let seat = domain.seat();
    let index = PromptIndex::new(&domain);
    let letters: Vec<u64> = (0..6_250).collect();
    let mut other = letters.clone();
    other[4_000..].iter_mut().for_each(|letter| *letter += 1_000_000);
    let (long, other) = (chain_of(&letters), chain_of(&other));
    let guard = domain.pin(seat);
    let at = |slot| At { index: &index, slot, guard: &guard };
    let mut ranks: Vec<RankPrompts> = (0..3).map(|_| RankPrompts::new()).collect();
    let helds = [
        (0, book(&mut ranks[0], &long, at(0))),
        (0, book(&mut ranks[0], &other, at(0))),
        (1, book(&mut ranks[1], &other, at(1))),
        (2, book(&mut ranks[2], &long, at(2))),
    ];
    assert_eq!(ranks[0].nodes(), 3, "the common part and two tails");
    assert_eq!(index.runs(), 3);
    for (chain, parts) in [(&long, 4_000), (&other, 4_000)] {
        let mut stretches = Vec::new();
        index.descend(&guard, chain, |_, from, to| stretches.push((from, to)));
        assert_eq!(stretches, [(0, parts), (parts, 6_250)]);
    }
    for (rank, held) in helds {
        ranks[rank].leave(held, at(rank as u32));
    }
    assert_eq!(index.runs(), 0);
}

#[test]
fn a_booking_under_a_held_prefix_leaves_the_prefix_run_alone() {
    let domain = Domain::new();
    let seat = domain.seat();
    let index = PromptIndex::new(&domain);
    let guard = domain.pin(seat);
    let at = At { index: &index, slot: 5, guard: &guard };
    let mut rank = RankPrompts::new();
    let tail = |n: u64| chain_of(&(0..200).chain([1_000 + n]).collect::<Vec<_>>());
    let first = rank.enter(rank.missing(&tail(0)), at);
    let second = rank.enter(rank.missing(&tail(1)), at);
    assert_eq!(index.runs(), 2, "the first prompt as one run, and the second one's tail");
    assert_eq!(rank.leave(second, at), 1);
    assert_eq!((index.runs(), rank.nodes()), (1, 1), "what was cut for it is one again");
    assert_eq!(rank.leave(first, at), 201);
    assert_eq!(index.runs(), 0);
}

#[test]
fn cuts_do_not_outlive_the_bookings_that_made_them() {
    let domain = Domain::new();
    let seat = domain.seat();
    let index = PromptIndex::new(&domain);
    let guard = domain.pin(seat);
    let at = |slot| At { index: &index, slot, guard: &guard };
    let letters: Vec<u64> = (0..100).collect();
    let long = chain_of(&letters);
    let mut rng = Rng(9);
    let (mut holder, mut other) = (RankPrompts::new(), RankPrompts::new());
    let held = holder.enter(holder.missing(&long), at(1));
    let mut helds = Vec::new();
    for _ in 0..40 {
        let mut letters = letters[..1 + rng.below(99) as usize].to_vec();
        letters.extend((0..rng.below(3)).map(|i| 1000 + i));
        let chain = chain_of(&letters);
        helds.push(other.enter(other.missing(&chain), at(2)));
        assert_eq!(indexed(&index, &guard, 1, &long), 100);
    }
    assert!(index.runs() > 2 && other.nodes() > 10);
    while !helds.is_empty() {
        let held = helds.swap_remove(rng.below(helds.len() as u64) as usize);
        other.leave(held, at(2));
        assert_eq!(indexed(&index, &guard, 1, &long), 100);
    }
    assert_eq!(index.runs(), 1, "one rank holds one chain");
    // Two ranks that hold the same are one set, whatever a third one cut.
    let second = other.enter(other.missing(&long), at(2));
    let mut third = RankPrompts::new();
    let short = chain_of(&letters[..50]);
    let cut = third.enter(third.missing(&short), at(3));
    assert_eq!(index.runs(), 2);
    third.leave(cut, at(3));
    assert_eq!(index.runs(), 1);
    let third_held = third.enter(third.missing(&long), at(3));
    other.leave(second, at(2));
    third.leave(third_held, at(3));
    holder.leave(held, at(1));
    assert_eq!(index.runs(), 0);
}

#[test]
fn settled_bookings_make_no_new_runs() {
    let domain = Domain::new();
    let seat = domain.seat();
    let index = PromptIndex::new(&domain);
    let mut rng = Rng(3);
    let mut ranks: Vec<RankPrompts> = (0..64).map(|_| RankPrompts::new()).collect();
    let mut live: Vec<(usize, Held)> = Vec::new();
    let mut made = 0;
    for step in 0..40_000_u64 {
        let guard = domain.pin(seat);
        let prefix = rng.below(20) * 1_000_000;
        let chain = chain_of(&(prefix..prefix + 12).chain([step]).collect::<Vec<_>>());
        let rank = rng.below(64) as usize;
        let at = At { index: &index, slot: rank as u32, guard: &guard };
        let held = book(&mut ranks[rank], &chain, at);
        live.push((rank, held));
        if live.len() > 500 {
            let (rank, held) = live.swap_remove(rng.below(500) as usize);
            let at = At { index: &index, slot: rank as u32, guard: &guard };
            ranks[rank].leave(held, at);
        }
        if step == 20_000 {
            made = index.runs_made();
        }
    }
    // A shard may still come to have one more at a time than it ever had.
    assert!(index.runs_made() <= made + made / 20, "{made} then {}", index.runs_made());
}
