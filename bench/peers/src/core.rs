//! `dynamo-kv-router`'s selection core, driven as its own bench does: `select_and_reserve`, then
//! `free_reservation`, on a runtime of one thread.
//!
//! It takes token ids and hashes them itself, inside the clock, which is part of its work; requests
//! are made before the clock starts. It insists on an event endpoint per worker when its cache index
//! is fed by events, and guesses at what is cached when it is not; so, as in its own bench, every
//! worker has an endpoint at which nobody answers, and the index stays empty, as no overlap is
//! passed to this engine either. That costs it a socket per worker, so it is measured at the sizes
//! of its own bench.

use crate::contest::{Contestant, Field, Promise};
use dynamo_kv_router::protocols::{RoutingConstraints, WorkerWithDpRank};
use dynamo_kv_router::services::selection::{
    PromptRequest, SelectAndReserveRequest, SelectionCacheConfig, SelectionCore, WorkerRequest,
};
use dynamo_kv_router::{KvRouterConfig, WorkerSelectionPolicy};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;
use vacancy_bench::workload::{BLOCK_SIZE, MAX_NUM_BATCHED_TOKENS};

/// The largest fleet of its own bench.
pub const MOST_RANKS: usize = 512;

pub struct Core {
    field: Field,
    runtime: Runtime,
    core: SelectionCore,
    stop: CancellationToken,
}

impl Core {
    pub fn new(field: &Field) -> Core {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let stop = CancellationToken::new();
        let config = KvRouterConfig {
            use_kv_events: true,
            router_queue_threshold: None,
            ..KvRouterConfig::default()
        };
        let policy = Arc::new(
            |config: &KvRouterConfig,
             role: dynamo_kv_router::WorkerType,
             _: dynamo_kv_router::RoutingPartitionRef<'_>| {
                WorkerSelectionPolicy::reference(config.clone(), role.default_selector_label())
            },
        );
        let core = {
            let _entered = runtime.enter();
            let cache = SelectionCacheConfig::default();
            SelectionCore::try_new_local(config, 1, stop.clone(), cache, policy).expect("a core")
        };
        let this = Core { field: field.clone(), runtime, core, stop };
        this.fill();
        this
    }

    fn fill(&self) {
        let workload = &self.field.workload;
        self.runtime.block_on(async {
            for rank in 0..workload.ranks {
                let request = WorkerRequest {
                    worker_id: rank as u64,
                    endpoint: Some(format!("http://worker-{rank}:8000")),
                    kv_events_endpoint: Some(format!("tcp://127.0.0.1:{}", 40_000 + rank)),
                    block_size: Some(BLOCK_SIZE),
                    max_num_batched_tokens: Some(MAX_NUM_BATCHED_TOKENS),
                    total_kv_blocks: Some(workload.kv_blocks(rank)),
                    ..WorkerRequest::default()
                };
                self.core.upsert_worker(request).await.expect("it is accepted");
            }
            for (number, live) in workload.live.iter().enumerate() {
                let id = format!("live-{number}");
                let mut request = self.request(id.clone(), live.chain);
                request.pinned_worker = Some(WorkerWithDpRank::new(live.rank as u64, 0));
                self.core.select_and_reserve(request).await.expect("it is accepted");
                if live.prefill_completed {
                    self.core.prefill_complete(&id).await.expect("it is live");
                }
            }
        });
    }

    fn request(&self, id: String, chain: usize) -> SelectAndReserveRequest {
        // A block's tokens follow from its hash, so chains share tokens where they share hashes.
        let tokens = self.field.workload.chains[chain]
            .iter()
            .flat_map(|&hash| (0..BLOCK_SIZE).map(move |i| (hash as u32).wrapping_add(i)))
            .collect();
        SelectAndReserveRequest {
            model_name: "default".to_string(),
            routing_group: "default".to_string(),
            selection_id: Some(id),
            prompt: PromptRequest { token_ids: Some(tokens), ..PromptRequest::default() },
            router_config_override: None,
            expected_output_tokens: None,
            priority_jump: None,
            strict_priority: None,
            session_id: None,
            session_context: None,
            affinity_target: None,
            pinned_worker: None,
            allowed_worker_ids: None,
            routing_constraints: RoutingConstraints::default(),
        }
    }
}

impl Contestant for Core {
    fn run(&mut self, at: usize, ops: usize, chosen: &mut Vec<u32>) -> Duration {
        let requests: Vec<_> = (at..at + ops)
            .map(|at| {
                let id = format!("request-{at}");
                (id.clone(), self.request(id, self.field.chain(at)))
            })
            .collect();
        // A runtime of one thread: this one, and all of its tasks run in here.
        self.field.clock.time(|| {
            self.runtime.block_on(async {
                for (id, request) in requests {
                    let answer = self.core.select_and_reserve(request).await;
                    self.core.free_reservation(&id).await.expect("it is booked");
                    chosen.push(answer.expect("it is placed").worker_id as u32);
                }
            });
        })
    }

    fn promise(&self) -> Promise {
        Promise { exact: true, judges_room: false }
    }

    fn check_settled(&mut self) {}
}

impl Drop for Core {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
