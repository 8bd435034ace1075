//! Timers on tokio, for hosts that have it: due times, leases and marks end at their time.
#![forbid(unsafe_code)]

use crate::pool::Pool;
use crate::time::Time;
use std::time::Duration;

/// Ends what ends by itself, at its time, until the pool is closed: requests whose due time comes,
/// leases, marks, silences. Spawn it once per pool.
///
/// `now` reads the host's clock. Between events it looks every `tick`, so what is added with an
/// earlier time than everything known before is at most `tick` late.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// use std::time::Duration;
/// use vacancy::{Error, Pool, Request, Time, WorkerId, WorkerSpec};
/// let pool = Pool::builder().build().unwrap();
/// pool.upsert(WorkerSpec::new(1)).unwrap();
/// pool.set_overloaded(WorkerId(1), true, Some(Time::from_millis(50)));
/// let start = tokio::time::Instant::now();
/// let now = move || Time::ZERO.after(start.elapsed());
/// let timers = tokio::spawn(vacancy::timers::drive(pool.clone(), now, Duration::from_millis(10)));
/// assert_eq!(pool.select(&Request::new(1)), Err(Error::AllEligibleWorkersOverloaded));
/// tokio::time::sleep(Duration::from_millis(60)).await;
/// assert!(pool.select(&Request::new(1)).is_ok());
/// pool.close();
/// timers.await.unwrap();
/// # }
/// ```
pub async fn drive(pool: Pool, now: impl Fn() -> Time + Send, tick: Duration) {
    while !pool.is_closed() {
        let at = now();
        pool.expire(at);
        let due = pool.next_due().map_or(tick, |due| due.since(at));
        tokio::time::sleep(due.clamp(Duration::from_micros(100), tick)).await;
    }
}
