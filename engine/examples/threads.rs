//! A router in plain threads: two policy classes, requests that wait, and one pool that every
//! thread calls straight into.
//!
//! ```sh
//! cargo run --release -p vacancy --example threads
//! ```

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};
use vacancy::{Policy, Pool, Request, Time, WorkerSpec};

/// Interactive requests are served four times as much as batch ones while both wait, and a class
/// waits once every rank is past its thresholds.
const POLICY: &str = "
default_policy_family: interactive
uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
policy_classes:
  - {name: interactive, policy_family: interactive, cache_bucket: all, quantum: 400, prefill_busy_threshold_frac: 1.0}
  - {name: batch, policy_family: batch, cache_bucket: all, quantum: 100, prefill_busy_threshold_frac: 0.5}
";

const THREADS: usize = 4;
const EACH: usize = 250;
const TOKENS: u64 = 2_048;

fn main() -> Result<(), Box<dyn Error>> {
    let policy = Policy::from_yaml(POLICY)?;
    let pool = Pool::builder().block_size(16).policy(policy.profile(None)).build()?;
    for worker in 0..4 {
        let spec = WorkerSpec::new(worker).ranks(0, 2).max_num_batched_tokens(8_192);
        pool.upsert(spec.total_kv_blocks(40_000))?;
    }

    let start = Instant::now();
    let waited: usize = thread::scope(|scope| {
        let routers: Vec<_> = (0..THREADS)
            .map(|number| {
                // A clone is a handle of its own, whose counters no other thread writes.
                let pool = pool.clone();
                scope.spawn(move || route(&pool, number, start))
            })
            .collect();
        routers.into_iter().map(|router| router.join().expect("no thread panics")).sum()
    });

    let snapshot = pool.snapshot();
    println!(
        "{} requests in {:?}, {waited} of them waited for room",
        THREADS * EACH,
        start.elapsed()
    );
    assert_eq!(snapshot.counters.admitted, (THREADS * EACH) as u64);
    assert!(snapshot.ranks.iter().all(|(_, load)| load.requests == 0), "all load came off");
    Ok(())
}

/// Routes its share of the requests, eight at a time; returns how many had to wait.
fn route(pool: &Pool, number: usize, start: Instant) -> usize {
    let class = if number.is_multiple_of(2) { "interactive" } else { "batch" };
    let mut waited = 0;
    for _ in 0..EACH {
        // The clock is the host's: nothing in the library reads one.
        let now = Time::ZERO.after(start.elapsed());
        let request = Request::new(TOKENS).class(class).at(now);
        // Blocks this thread until its turn has come; `.await` does the same for a task.
        let admitted = pool.admit(request).wait().expect("the fleet is there to stay");
        waited += usize::from(admitted.waited);

        // Here the request would be sent to `admitted.booking.rank()`.
        thread::sleep(Duration::from_micros(100));
        admitted.booking.prefill_completed();
        thread::sleep(Duration::from_micros(50));
        // Dropped: the load comes off, and whoever can go now goes on this very thread.
    }
    waited
}
