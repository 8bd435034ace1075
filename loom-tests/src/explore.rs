//! Runs a model over its interleavings, and a control until it fails as it must.

use loom::thread::ThreadId;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

thread_local! {
    /// The world that is being explored.
    static WORLD: Cell<usize> = const { Cell::new(0) };
    /// How often each branch was reached. loom runs all threads of a model on one of the
    /// system's, so a thread's own table is the model's own table.
    static REACHED: RefCell<BTreeMap<&'static str, u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// The most threads of a model, its first one included.
pub const MAX_THREADS: usize = 4;

thread_local! {
    /// Threads that this run of the model has started.
    static THREADS: Cell<usize> = const { Cell::new(1) };
    /// Those of them that have been joined.
    static JOINED: Cell<usize> = const { Cell::new(0) };
    /// What loom calls them, in the order of [`spawn`]; none for one that has not begun. (In a
    /// table of our own: a variable of loom's costs a look into a hash map at each access.)
    static IDS: Cell<[Option<ThreadId>; MAX_THREADS]> = const { Cell::new([None; MAX_THREADS]) };
    /// Threads that the first run of the model started; none until that is over.
    static MOST: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The number of this thread of the model: 0 for the first one, then in the order of [`spawn`].
pub fn thread() -> usize {
    let id = Some(loom::thread::current().id());
    IDS.get().iter().position(|known| *known == id).expect("it was started by `spawn`")
}

/// Which of its worlds the model is to be run in, from 0 on.
pub fn world() -> usize {
    WORLD.get()
}

/// Begins with a world, whose threads have not been counted.
fn enter(world: usize) {
    WORLD.set(world);
    MOST.set(None);
}

/// Whether this thread of the model is the only one: no other was started yet, or all were joined,
/// so that what they did came before whatever this one does now.
pub fn alone() -> bool {
    THREADS.get() - JOINED.get() == 1
}

/// Threads that a run of the model starts, its first one included; the most there may be, until
/// that is known.
pub fn most_threads() -> usize {
    MOST.get().unwrap_or(MAX_THREADS)
}

/// A thread of the model, to be joined.
#[must_use]
pub struct JoinHandle<T>(loom::thread::JoinHandle<T>);

impl<T: 'static> JoinHandle<T> {
    /// Waits for its end; blocks the thread of the model that calls it.
    pub fn join(self) -> std::thread::Result<T> {
        let ended = self.0.join();
        JOINED.set(JOINED.get() + 1);
        ended
    }
}

/// Starts a thread of the model. Each run of a model starts as many as its first run.
pub fn spawn<T: 'static>(run: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
    let number = THREADS.get();
    assert!(number < most_threads(), "more threads than {MAX_THREADS}, or than in the first run");
    THREADS.set(number + 1);
    JoinHandle(loom::thread::spawn(move || {
        begin(number);
        run()
    }))
}

/// Notes that this is the thread of that number.
fn begin(number: usize) {
    let mut ids = IDS.get();
    ids[number] = Some(loom::thread::current().id());
    IDS.set(ids);
}

/// Runs the model once, by its first thread.
fn once(run: fn()) {
    THREADS.set(1);
    JOINED.set(0);
    IDS.set([None; MAX_THREADS]);
    begin(0);
    run();
    if MOST.get().is_none() {
        MOST.set(Some(THREADS.get()));
    }
}

/// Counts that a branch was reached which the model would prove nothing without.
pub fn reached(branch: &'static str) {
    REACHED.with(|reached| *reached.borrow_mut().entry(branch).or_default() += 1);
}

/// How far a model is explored.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// Pre-emptions explored in an ordinary test run; `None`: all.
    pub short: Option<usize>,
    /// Pre-emptions explored with `LOOM_LONG=gate`; `None`: all.
    pub gate: Option<usize>,
    /// Pre-emptions explored with `LOOM_LONG=1`; `None`: all.
    pub long: Option<usize>,
}

/// Which of its bounds a model is explored to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Length {
    Short,
    Gate,
    Long,
}

impl Length {
    /// # Panics
    ///
    /// If `LOOM_LONG` is neither `0`, `gate` nor `1`: a misspelt one would pass for a long run.
    fn asked_for() -> Length {
        match std::env::var("LOOM_LONG").as_deref() {
            Err(_) | Ok("0") => Length::Short,
            Ok("gate") => Length::Gate,
            Ok("1") => Length::Long,
            Ok(other) => panic!("LOOM_LONG is {other:?}, and neither 0, gate nor 1"),
        }
    }
}

fn builder(bound: Option<usize>) -> loom::model::Builder {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(bound);
    builder.max_branches = 20_000;
    builder
}

/// Runs the model over the interleavings of each of its worlds, and checks that each of `branches`
/// was reached. In the gate, which has the ordinary run as well, nothing is run twice to one bound.
pub fn model(bound: Bound, worlds: usize, branches: &[&str], run: fn()) {
    let length = Length::asked_for();
    if length == Length::Gate && bound.gate == bound.short {
        println!("no further than in an ordinary run");
        return;
    }
    let bound = match length {
        Length::Short => bound.short,
        Length::Gate => bound.gate,
        Length::Long => bound.long,
    };
    let began = Instant::now();
    let runs = Arc::new(AtomicU64::new(0));
    for world in 0..worlds {
        enter(world);
        let count = Arc::clone(&runs);
        builder(bound).check(move || {
            count.fetch_add(1, Ordering::Relaxed);
            once(run);
        });
    }
    let reached = REACHED.with(RefCell::take);
    let bound = bound.map_or("none".to_owned(), |bound| bound.to_string());
    println!(
        "interleavings {}, bound {bound}, {:.2} s, reached {reached:?}",
        runs.load(Ordering::Relaxed),
        began.elapsed().as_secs_f64(),
    );
    for branch in branches {
        assert!(reached.contains_key(branch), "no interleaving reached: {branch}");
    }
    for branch in reached.keys() {
        assert!(branches.contains(branch), "the model does not declare the branch: {branch}");
    }
}

/// Set for the process of its own that a control runs in.
const INSIDE: &str = "VACANCY_CONTROL";
/// How that process ends when an assertion failed.
const RED: i32 = 70;

/// Interleavings that this process has run.
static RUNS: AtomicU64 = AtomicU64::new(0);

/// Runs a model on a patched file, and checks that it fails on the assertion it is meant to fail
/// on.
///
/// In a process of its own, which ends at the first failed assertion: the objects of the model
/// would panic again while they are dropped.
pub fn control(name: &str, bound: Bound, worlds: usize, fails_on: &[&str], run: fn()) {
    if std::env::var_os(INSIDE).is_some() {
        return inside(bound, worlds, run);
    }
    let began = Instant::now();
    let output = Command::new(std::env::current_exe().expect("this test has a file"))
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .output()
        .expect("this test can be run once more");
    let said = String::from_utf8_lossy(&output.stdout);
    let said = said.lines().find_map(|line| line.split_once(MARK)).map_or("", |(_, said)| said);
    match output.status.code() {
        Some(RED) => println!("red {said}, {:.2} s", began.elapsed().as_secs_f64()),
        Some(0) => panic!("the control is green ({said}): it must fail on {fails_on:?}"),
        _ => panic!("the control did not end as it should: {output:?}"),
    }
    assert!(
        fails_on.iter().any(|message| said.contains(message)),
        "the control failed on another assertion than {fails_on:?}: {said}"
    );
}

/// Before what a control's process says to the test that started it.
const MARK: &str = "control: ";

fn inside(bound: Bound, worlds: usize, run: fn()) {
    std::panic::set_hook(Box::new(|panic| {
        let said = panic.payload_as_str().unwrap_or("a panic without a message");
        let said = said.replace('\n', " ");
        println!("\n{MARK}at interleaving {}: {said}", RUNS.load(Ordering::Relaxed));
        std::process::exit(RED);
    }));
    // Few pre-emptions first: most defects need one or two, and are found at once among those.
    let bounds = [Some(1), Some(2), Some(3), bound.long];
    for (bound, world) in bounds.iter().flat_map(|bound| (0..worlds).map(|world| (*bound, world))) {
        enter(world);
        let mut builder = builder(bound);
        // A control that finds nothing in so many is taken for green, and that is a failure. (In
        // interleavings and not in seconds: a machine may be stopped for a minute.)
        builder.max_permutations = Some(match Length::asked_for() {
            Length::Short | Length::Gate => 200_000,
            Length::Long => 2_000_000,
        });
        builder.check(move || {
            RUNS.fetch_add(1, Ordering::Relaxed);
            once(run);
        });
    }
    println!("\n{MARK}{} interleavings", RUNS.load(Ordering::Relaxed));
}
