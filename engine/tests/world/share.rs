//! Many worlds on all cores, each core a process of its own.
//!
//! Threads of one process would do the same work, but not the same worlds: ranks that leave wait for
//! readers, whoever's, before their place is used again, and the place decides between equals. The
//! processes are this test binary, told by its environment which share of the worlds to run.

use crate::generate;
use crate::plan::Fault;
use crate::sim::{Options, Outcome, run as run_world};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::{Command, Stdio};

const SHARE: &str = "VACANCY_SHARE";
const MARK: &str = "share of worlds:";

/// What many worlds came to.
#[derive(Default)]
pub struct Tally {
    /// Worlds run.
    pub worlds: u64,
    /// Requests that came in.
    pub requests: u64,
    steps: u64,
    waits_judged: u64,
    landings_judged: u64,
    /// Worlds that a fault was suffered in, and how often in all.
    pub faults: BTreeMap<Fault, (u64, u64)>,
    ends: BTreeMap<String, u64>,
    /// The first seed that failed.
    pub failed: Option<u64>,
}

impl Tally {
    fn add(&mut self, seed: u64, outcome: Outcome) {
        self.worlds += 1;
        self.requests += outcome.requests;
        self.steps += outcome.steps;
        self.waits_judged += outcome.waits_judged;
        self.landings_judged += outcome.landings_judged;
        for (fault, n) in outcome.faults {
            let (worlds, times) = self.faults.entry(fault).or_default();
            (*worlds, *times) = (*worlds + 1, *times + n);
        }
        for (end, n) in outcome.ends {
            *self.ends.entry(end.to_owned()).or_default() += n;
        }
        if outcome.breach.is_some() {
            self.failed.get_or_insert(seed);
        }
    }

    /// Prints the totals, the faults by kind and the ends of requests.
    pub fn print(&self, what: &str) {
        let mut table = format!(
            "{what}: {} worlds, {} requests, {} steps with all invariants, {} waiters and {} \
             landings judged\n",
            self.worlds, self.requests, self.steps, self.waits_judged, self.landings_judged
        );
        for (fault, (worlds, times)) in &self.faults {
            let share = 100.0 * *worlds as f64 / self.worlds as f64;
            let _ = writeln!(table, "  {:32} {times:>9} in {share:5.1} % of worlds", fault.key());
        }
        for (end, n) in &self.ends {
            let _ = writeln!(table, "  requests {end:23} {n:>9}");
        }
        println!("{table}");
    }

    /// As lines that another process reads.
    fn write(&self, at: usize) {
        let fields =
            [self.worlds, self.requests, self.steps, self.waits_judged, self.landings_judged];
        println!("{MARK} {at} totals {}", fields.map(|n| n.to_string()).join(" "));
        for (fault, (worlds, times)) in &self.faults {
            println!("{MARK} {at} fault {worlds} {times} {}", fault.key());
        }
        for (end, n) in &self.ends {
            println!("{MARK} {at} end {n} {end}");
        }
        if let Some(seed) = self.failed {
            println!("{MARK} {at} failed {seed}");
        }
    }

    fn read(&mut self, line: &str) -> Option<()> {
        let (kind, rest) = line.split_once(' ')?;
        match kind {
            "totals" => {
                let mut fields = rest.split(' ').map(|field| field.parse::<u64>().ok());
                for total in [
                    &mut self.worlds,
                    &mut self.requests,
                    &mut self.steps,
                    &mut self.waits_judged,
                    &mut self.landings_judged,
                ] {
                    *total += fields.next()??;
                }
            }
            "fault" => {
                let (worlds, rest) = rest.split_once(' ')?;
                let (times, key) = rest.split_once(' ')?;
                let fault = *Fault::ALL.iter().find(|fault| fault.key() == key)?;
                let entry = self.faults.entry(fault).or_default();
                *entry =
                    (entry.0 + worlds.parse::<u64>().ok()?, entry.1 + times.parse::<u64>().ok()?);
            }
            "end" => {
                let (n, end) = rest.split_once(' ')?;
                *self.ends.entry(end.to_owned()).or_default() += n.parse::<u64>().ok()?;
            }
            "failed" => {
                let seed = rest.parse().ok()?;
                self.failed = Some(self.failed.map_or(seed, |known| known.min(seed)));
            }
            _ => return None,
        }
        Some(())
    }
}

/// How many processes are run at once.
pub fn cores() -> u64 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u64)
}

/// Runs worlds about each of `about`, of the seeds `seed(which of them, 0, 1, ..)`, in `shares`
/// processes of the test `name`, each until its tally is `done`. `None`: this is one of those
/// processes, and it has done its share.
pub fn run(
    name: &str,
    shares: u64,
    about: &[Option<Fault>],
    seed: impl Fn(usize, u64) -> u64,
    done: impl Fn(&Tally, u64) -> bool,
) -> Option<Vec<Tally>> {
    if let Ok(share) = std::env::var(SHARE) {
        let share: u64 = share.parse().expect("a share is a number");
        for (at, &fault) in about.iter().enumerate() {
            let mut tally = Tally::default();
            let mut n = share;
            while !done(&tally, shares) && tally.failed.is_none() {
                let seed = seed(at, n);
                tally.add(seed, run_world(&generate::plan_about(seed, fault), Options::default()));
                n += shares;
            }
            tally.write(at);
        }
        return None;
    }
    let binary = std::env::current_exe().expect("a test has a binary");
    let spawn = |share: u64| {
        Command::new(&binary)
            .args(["--exact", name, "--nocapture", "--test-threads=1"])
            .env(SHARE, share.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a test can run its own binary")
    };
    let children: Vec<_> = (0..shares).map(spawn).collect();
    let mut tallies: Vec<Tally> = about.iter().map(|_| Tally::default()).collect();
    for child in children {
        let output = child.wait_with_output().expect("it was started");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "a share of the worlds came to an end: {text}");
        for line in text.lines() {
            let Some((_, line)) = line.split_once(MARK) else { continue };
            let (at, line) = line.trim_start().split_once(' ').expect("lines are of one form");
            let at: usize = at.parse().expect("lines are of one form");
            tallies[at].read(line).expect("lines are of one form");
        }
    }
    Some(tallies)
}
