//! An HTTP router on tokio and axum: requests wait as futures, a client that hangs up gives its
//! place or its load back, and errors become the statuses of the contract.
//!
//! ```sh
//! cargo run --release -p vacancy --features tokio --example router
//! curl -s localhost:8100/generate -H 'content-type: application/json' -d '{"tokens": 2048}'
//! curl -s localhost:8100/load
//! ```

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use vacancy::{Pool, Profile, RejectThresholds, Request, Thresholds, Time, WorkerSpec};

/// How long a request may wait for room.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone)]
struct Host {
    pool: Pool,
    start: Instant,
}

impl Host {
    fn now(&self) -> Time {
        Time::ZERO.after(self.start.elapsed())
    }
}

#[derive(Deserialize)]
struct Generate {
    /// Prompt tokens.
    tokens: u64,
    /// Output tokens.
    #[serde(default)]
    output: u32,
}

/// Admits the request, works on it, and answers which rank it ran on.
///
/// If the client hangs up, axum drops this future wherever it stands: in the queue it leaves its
/// place, later its booking takes its load off.
async fn generate(
    State(host): State<Host>,
    Json(body): Json<Generate>,
) -> Result<String, (StatusCode, String)> {
    let now = host.now();
    let request = Request::new(body.tokens).at(now).due(now.after(PATIENCE));
    let admitted = host.pool.admit(request).await.map_err(|error| {
        let status = error.http_status().and_then(|status| StatusCode::from_u16(status).ok());
        (status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), error.to_string())
    })?;

    // A real router forwards the request here.
    let booking = &admitted.booking;
    tokio::time::sleep(Duration::from_micros(10 * body.tokens)).await;
    booking.prefill_completed();
    for _ in 0..body.output.div_ceil(16) {
        tokio::time::sleep(Duration::from_millis(1)).await;
        // The output grows by a KV block.
        if let Err(error) = booking.add_output_blocks(1) {
            return Err((StatusCode::INTERNAL_SERVER_ERROR, error.to_string()));
        }
    }
    Ok(format!("rank {}, waited: {}\n", booking.rank(), admitted.waited))
}

async fn load(State(host): State<Host>) -> String {
    let snapshot = host.pool.snapshot();
    let mut text = format!("waiting {}\n", snapshot.waiting);
    for (rank, load) in snapshot.ranks {
        text += &format!("{rank}: {} tokens, {} blocks\n", load.prefill_tokens, load.kv_blocks);
    }
    text
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Requests wait from four fifths of the KV blocks on, and are refused from nine tenths.
    let waits = Profile::single(Thresholds::NONE.prefill_frac(1.0).decode_frac(0.8))?;
    let refused = RejectThresholds::new(Thresholds::NONE.decode_frac(0.9))?;
    let pool = Pool::builder().policy(&Arc::new(waits)).reject_thresholds(refused).build()?;
    for worker in 0..4 {
        let spec = WorkerSpec::new(worker).ranks(0, 2).max_num_batched_tokens(8_192);
        pool.upsert(spec.total_kv_blocks(4_000))?;
    }

    let host = Host { pool: pool.clone(), start: Instant::now() };
    // Due times, leases and marks end at their time.
    let clock = host.clone();
    let timers = vacancy::timers::drive(pool, move || clock.now(), Duration::from_millis(5));
    tokio::spawn(timers);

    let routes =
        Router::new().route("/generate", post(generate)).route("/load", get(load)).with_state(host);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8100").await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, routes).await?;
    Ok(())
}
