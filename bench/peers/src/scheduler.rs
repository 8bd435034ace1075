//! `dynamo-kv-router`'s `LocalScheduler`, as its hosts use it: an actor on a tokio runtime.
//!
//! Requests and ids are made before the clock starts. Nothing listens to its load events. No
//! overlap is passed in, as none is to this engine: what is compared is the choice by load and by
//! active prompt blocks.

use crate::contest::{Contestant, Field, Promise};
use dynamo_kv_router::protocols::{
    PrefillLoadHint, RoutingConstraints, WorkerConfigLike, WorkerId, WorkerWithDpRank,
};
use dynamo_kv_router::scheduling::{OverlapSignals, PolicyProfile, ScheduleMode, ScheduleRequest};
use dynamo_kv_router::{
    ActiveSequencesMultiWorker, KvRouterConfig, LocalScheduler, NoopSequencePublisher,
    RouterQueuePolicy, SequenceRequest, WorkerSelectionPolicy,
};
use rustc_hash::FxHashMap;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use vacancy_bench::measure::Clock;
use vacancy_bench::workload::{BLOCK_SIZE, MAX_NUM_BATCHED_TOKENS, PROMPT_TOKENS};

/// How it is set up.
#[derive(Clone, Copy, Default)]
pub struct Setup {
    /// A runtime with two worker threads, as in production; else one thread, where a message to
    /// the actor needs no other core.
    pub many_threads: bool,
    /// Tasks that send requests; 0 counts as 1.
    pub tasks: usize,
    /// The queue gate: waits while every worker's prefill load is past four times its batch.
    pub gate: bool,
    /// The full ranks are in the set of overloaded workers.
    pub overloaded: bool,
}

/// The `frac` of the gate. No worker is ever past it here.
pub const GATE: f64 = 4.0;

#[derive(Clone, PartialEq)]
struct Config {
    total_kv_blocks: u64,
}

impl WorkerConfigLike for Config {
    fn data_parallel_start_rank(&self) -> u32 {
        0
    }

    fn data_parallel_size(&self) -> u32 {
        1
    }

    fn max_num_batched_tokens(&self) -> Option<u64> {
        Some(MAX_NUM_BATCHED_TOKENS)
    }

    fn total_kv_blocks(&self) -> Option<u64> {
        Some(self.total_kv_blocks)
    }
}

type Local = LocalScheduler<NoopSequencePublisher, Config>;

pub struct Scheduler {
    field: Field,
    setup: Setup,
    runtime: Runtime,
    local: Arc<Local>,
    _workers: watch::Sender<HashMap<WorkerId, Config>>,
    stop: CancellationToken,
}

impl Scheduler {
    pub fn new(field: &Field, setup: Setup) -> Scheduler {
        let setup = Setup { tasks: setup.tasks.max(1), ..setup };
        let mut builder = match setup.many_threads {
            true => Builder::new_multi_thread(),
            false => Builder::new_current_thread(),
        };
        let runtime = builder.worker_threads(2).enable_all().build().expect("a runtime");
        let stop = CancellationToken::new();
        let ranks = field.workload.ranks;
        let ranges = (0..ranks as u64).map(|id| (id, (0, 1))).collect();
        let slots = Arc::new(ActiveSequencesMultiWorker::new_without_expiry(
            NoopSequencePublisher,
            BLOCK_SIZE as usize,
            ranges,
            false,
            0,
            "aggregated",
        ));
        let configs = (0..ranks)
            .map(|rank| (rank as u64, Config { total_kv_blocks: field.workload.kv_blocks(rank) }))
            .collect();
        let (workers, receiver) = watch::channel(configs);
        let full: HashSet<WorkerId> =
            (0..ranks as u64).filter(|&rank| field.workload.full[rank as usize]).collect();
        let overloaded = setup.overloaded.then(|| {
            let provide: dynamo_kv_router::scheduling::OverloadedWorkerProvider =
                Arc::new(move || Some(full.clone()));
            provide
        });
        let local = runtime.block_on(async {
            Arc::new(Local::new(
                slots,
                receiver,
                PolicyProfile::synthetic(setup.gate.then_some(GATE), RouterQueuePolicy::Fcfs),
                BLOCK_SIZE,
                WorkerSelectionPolicy::reference(KvRouterConfig::default(), "aggregated"),
                None,
                None,
                overloaded,
                None,
                Duration::from_secs(60),
                true,
                stop.clone(),
                "aggregated",
                false,
            ))
        });
        let scheduler =
            Scheduler { field: field.clone(), setup, runtime, local, _workers: workers, stop };
        scheduler.fill();
        scheduler.check_loads();
        scheduler
    }

    /// Puts the live bookings on.
    fn fill(&self) {
        let workload = &self.field.workload;
        self.runtime.block_on(async {
            for (number, live) in workload.live.iter().enumerate() {
                let id = format!("live-{number}");
                let request = SequenceRequest {
                    request_id: id.clone(),
                    token_sequence: Some(workload.chains[live.chain].to_vec()),
                    track_prefill_tokens: true,
                    expected_output_tokens: None,
                    prefill_load_hint: Some(PrefillLoadHint {
                        initial_effective_prefill_tokens: PROMPT_TOKENS as usize,
                        expected_prefill_duration: None,
                    }),
                    worker: WorkerWithDpRank::new(live.rank as u64, 0),
                    lora_name: None,
                };
                self.local.add_request(request).await.expect("it is accepted");
                if live.prefill_completed {
                    self.local.mark_prefill_completed(&id).await.expect("it is live");
                }
            }
        });
    }

    /// Compares every worker's load with the oracle's.
    fn check_loads(&self) {
        let oracle = self.field.oracle();
        let loads = self.local.get_potential_loads(None, 0, FxHashMap::default(), true);
        assert_eq!(loads.len(), self.field.workload.ranks);
        for load in loads {
            let rank = load.worker_id as usize;
            assert_eq!(load.potential_prefill_tokens, oracle.tokens[rank] as usize, "rank {rank}");
            assert_eq!(load.potential_decode_blocks, oracle.held[rank].len(), "rank {rank}");
        }
    }

    fn request(&self, at: usize) -> (String, ScheduleRequest) {
        let id = format!("request-{at}");
        let request = ScheduleRequest {
            mode: ScheduleMode::Tracked { request_id: id.clone() },
            token_seq: Some(self.field.workload.chains[self.field.chain(at)].to_vec()),
            block_hashes: None,
            isl_tokens: PROMPT_TOKENS as usize,
            lora_name: None,
            expected_output_tokens: None,
            affinity_target: None,
            pinned_worker: None,
            allowed_worker_ids: None,
            routing_constraints: RoutingConstraints::default(),
            router_config_override: None,
            priority_jump: 0.0,
            strict_priority: 0,
            policy_class: None,
            session_context: None,
            overlap: OverlapSignals::default(),
            kv_transfer_candidates: None,
            retain_kv_transfer_chain: false,
            shared_cache_hits: None,
        };
        (id, request)
    }
}

/// Schedules and frees, one request after the other.
async fn route(local: Arc<Local>, requests: Vec<(String, ScheduleRequest)>) -> Vec<u32> {
    let mut chosen = Vec::with_capacity(requests.len());
    for (id, request) in requests {
        let answer = local.schedule_request(request).await.expect("most have room");
        local.free(&id).await.expect("it is booked");
        chosen.push(answer.best_worker.worker_id as u32);
    }
    chosen
}

impl Contestant for Scheduler {
    fn run(&mut self, at: usize, ops: usize, chosen: &mut Vec<u32>) -> Duration {
        let tasks = self.setup.tasks;
        let work: Vec<Vec<(String, ScheduleRequest)>> = (0..tasks)
            .map(|task| {
                (at..at + ops).skip(task).step_by(tasks).map(|at| self.request(at)).collect()
            })
            .collect();
        // With a runtime of one thread, all tasks run on this thread, in here. With more, a task
        // is a thread of the runtime's, and it is the wall that tells.
        assert!(!(self.setup.many_threads && self.field.clock == Clock::Thread));
        self.field.clock.time(|| {
            self.runtime.block_on(async {
                let spawned: Vec<_> = work
                    .into_iter()
                    .map(|requests| tokio::spawn(route(Arc::clone(&self.local), requests)))
                    .collect();
                for task in spawned {
                    chosen.extend(task.await.expect("no check failed"));
                }
            });
        })
    }

    fn promise(&self) -> Promise {
        Promise { exact: self.setup.tasks == 1, judges_room: self.setup.overloaded }
    }

    fn check_settled(&mut self) {
        self.check_loads();
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
