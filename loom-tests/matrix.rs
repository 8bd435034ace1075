/// A model: a small world in which a protocol of the engine must hold.
struct Model {
    number: u32,
    /// What holds, as the rest of the test's name.
    sentence: &'static str,
    /// The model's file in `models/`.
    file: &'static str,
    /// Files of `models/` that it is built on.
    support: &'static [&'static str],
    /// The engine's files that it runs on, from `engine/src`.
    engine: &'static [&'static str],
    /// Pre-emptions explored in an ordinary run, in the gate, and in a long run, which is started by
    /// hand; `None`: all.
    short: Option<usize>,
    gate: Option<usize>,
    long: Option<usize>,
    controls: &'static [Control],
}

/// A change that must turn the model red.
struct Control {
    /// What is removed or put wrong, as the rest of the test's name.
    removed: &'static str,
    /// The file that is patched: the engine's, from `engine/src`, or one of `models/`.
    file: &'static str,
    /// Passages, which must occur once each, and what they are replaced with.
    patches: &'static [(&'static str, &'static str)],
    /// The assertion that must fail: a part of its message. Several, where it depends on the
    /// interleaving which consequence of the one defect shows first.
    fails_on: &'static [&'static str],
}

const SLEEPS: &str = "a waiter sleeps beside room";
/// What the models of a pair that goes or comes fail on.
const GONE: &str = "a waiter sleeps for a pair that is gone";
const HAD: &str = "a waiter sleeps for the pair it had";
/// The row's own check: more is taken off than is on it.
const BELOW_ZERO: &str = "Row(0 tokens, 0 blocks) - Load";

/// A grace period was too short, or nothing orders the last look before the use.
const USED: &[&str] = &["used again while somebody looks", "Causality violation"];

/// What rows and slots are made of.
const ROWS: &[&str] = &["load/row.rs", "load/slot.rs"];

const OLD: &str = "a look is older than what was known before it";
const AT_REST: &str = "at rest a summary is out of date";
const MIXED: &str = "the words are of two summaries";
const OTHER: &str = "it is about another subject";

/// What summaries are sealed with.
const SEAL: &[&str] = &["fleet/seal.rs"];

const LESS: &str = "a descent finds less than the rank holds";
const LESS_AT_REST: &str = "at rest the index knows less than a rank holds";
const MORE_AT_REST: &str = "at rest the index says more than a rank holds";
const NOT_CURRENT: &str = "a run that was replaced passes for current";
const NOT_IN_SET: &str = "who is in the set is not found in it";
const REUSED: &str = "a run is used again while somebody looks";
/// A rank lets go of a chain from its beginning.
const FROM_THE_BEGINNING: &[(&str, &str)] = &[
    (
        "let Some(run) = trail.pop() else { break start };",
        "if trail.is_empty() {\n                    break start;\n                }\n                let run = trail.remove(0);",
    ),
    ("                end = run.body().start as usize;\n", ""),
];
/// The parts of a cut are unlocked before the run that was cut is marked.
const UNLOCKED_FIRST: &[(&str, &str)] = &[(
    "        run.retire();\n        drop((upper_lock, lower_lock));\n",
    "        drop((upper_lock, lower_lock));\n        run.retire();\n",
)];
/// A run that was cut is not marked.
const UNMARKED: &[(&str, &str)] = &[("        run.retire();\n        drop((", "        drop((")];
const OUTLIVES: &str = "a cut outlives the booking that made it";
const NOT_REMOVED: &str = "a chain is removed whole";
const LEFT_RUN: &str = "a run is left that nobody holds";
/// The index's own check.
const LINKED: &str = "a run that is not obsolete is linked";
const CHARGE: &str = "what is charged is not what is held";
/// Nothing orders what a run is made of before it is looked at.
const UNORDERED: &str = "Causality violation";

/// What the index of prompt blocks is made of.
const PROMPTS: &[&str] = &[
    "grace.rs",
    "load/prompts/chain.rs",
    "load/prompts/set.rs",
    "load/prompts/run.rs",
    "load/prompts/table.rs",
    "load/prompts/index.rs",
];

/// And what a rank is charged by.
const CHARGED: &[&str] = &[
    "load/row.rs",
    "load/slot.rs",
    "grace.rs",
    "load/prompts/chain.rs",
    "load/prompts/set.rs",
    "load/prompts/run.rs",
    "load/prompts/table.rs",
    "load/prompts/index.rs",
    "load/prompts/edges.rs",
    "load/prompts/rank.rs",
];

/// What a queue is made of.
const QUEUE: &[&str] = &[
    "load/row.rs",
    "load/slot.rs",
    "room/signal.rs",
    "room/turn.rs",
    "room/park.rs",
    "queue/baton.rs",
    "queue/waiter.rs",
    "queue/waiting.rs",
];

const MODELS: &[Model] = &[
    Model {
        number: 1,
        sentence: "whoever_enters_while_room_is_released_is_let_in",
        file: "m01_enqueue_release",
        support: &["pool"],
        engine: QUEUE,
        short: None,
        gate: None,
        long: None,
        controls: &[
            Control {
                removed: "release_only_loads_the_word",
                file: "room/signal.rs",
                patches: &[(
                    "let word = self.word.fetch_add(EPOCH, Ordering::AcqRel);",
                    "let word = self.word.load(Ordering::Acquire);",
                )],
                fails_on: &[SLEEPS],
            },
            Control {
                removed: "release_publishes_nothing",
                file: "room/signal.rs",
                patches: &[(
                    "let word = self.word.fetch_add(EPOCH, Ordering::AcqRel);",
                    "let word = self.word.fetch_add(EPOCH, Ordering::Acquire);",
                )],
                fails_on: &[SLEEPS],
            },
            Control {
                removed: "release_sees_nothing",
                file: "room/signal.rs",
                patches: &[(
                    "let word = self.word.fetch_add(EPOCH, Ordering::AcqRel);",
                    "let word = self.word.fetch_add(EPOCH, Ordering::Release);",
                )],
                fails_on: &[SLEEPS],
            },
            Control {
                removed: "register_publishes_nothing",
                file: "room/signal.rs",
                patches: &[(
                    "let word = self.word.fetch_add(PARTY, Ordering::AcqRel);",
                    "let word = self.word.fetch_add(PARTY, Ordering::Acquire);",
                )],
                fails_on: &[SLEEPS],
            },
            Control {
                removed: "register_sees_nothing",
                file: "room/signal.rs",
                patches: &[(
                    "let word = self.word.fetch_add(PARTY, Ordering::AcqRel);",
                    "let word = self.word.fetch_add(PARTY, Ordering::Release);",
                )],
                fails_on: &[SLEEPS],
            },
            Control {
                removed: "interest_is_taken_by_the_release_and_not_put_back",
                file: "room/signal.rs",
                patches: &[(
                    "let word = self.word.fetch_add(EPOCH, Ordering::AcqRel);",
                    "let word = self.word.fetch_add(EPOCH, Ordering::AcqRel);\n        self.word.fetch_and(!PARTIES, Ordering::Relaxed);",
                )],
                fails_on: &[SLEEPS],
            },
            Control {
                removed: "registered_before_it_is_counted",
                file: "queue/waiting.rs",
                patches: &[(
                    "        if self.count.fetch_add(1, Ordering::Relaxed) == 0 {\n            for signal in &inner.signals {\n                signal.register();\n            }\n        }\n",
                    "        for signal in &inner.signals {\n            signal.register();\n        }\n        self.count.fetch_add(1, Ordering::Relaxed);\n",
                )],
                fails_on: &[SLEEPS],
            },
            Control {
                removed: "nobody_is_told",
                file: "room/signal.rs",
                patches: &[("if word & PARTIES == 0 {", "if word & PARTIES != u64::MAX {")],
                fails_on: &[SLEEPS],
            },
            Control {
                removed: "the_epoch_is_moved_before_the_row",
                file: "models/pool.rs",
                patches: &[(
                    "        slot::take_off(&self.row, load).expect(\"the rank lives\");\n        self.signal.release_and_tell();\n",
                    "        self.signal.release_and_tell();\n        slot::take_off(&self.row, load).expect(\"the rank lives\");\n",
                )],
                fails_on: &[SLEEPS],
            },
            Control {
                removed: "the_waiter_looks_and_then_registers",
                file: "models/pool.rs",
                patches: &[(
                    "        self.push(|queue| queue.push_back(Arc::clone(entry)))?;\n        self.drain();\n",
                    "        self.drain();\n        self.push(|queue| queue.push_back(Arc::clone(entry)))?;\n",
                )],
                fails_on: &[SLEEPS],
            },
            Control {
                removed: "tried_outside_the_queue_and_put_back",
                file: "models/pool.rs",
                patches: &[
                    (
                        "        let Some(head) = self.waiting.with(|queue| queue.front().cloned()) else {\n",
                        "        let Some(head) = self.waiting.leave(|queue| queue.pop_front()) else {\n",
                    ),
                    (
                        "        if self.attempt(&head, true).is_err() {\n            return",
                        "        if self.attempt(&head, true).is_err() {\n            let _ = self.push(|queue| queue.push_front(head));\n            return",
                    ),
                ],
                fails_on: &[SLEEPS],
            },
        ],
    },
    Model {
        number: 1,
        sentence: "whoever_enters_behind_others_while_room_is_released_is_let_in",
        file: "m01_behind_others",
        support: &["pool"],
        engine: QUEUE,
        short: Some(3),
        gate: Some(5),
        long: Some(5),
        controls: &[Control {
            removed: "the_queue_withdraws_while_somebody_waits",
            file: "queue/waiting.rs",
            patches: &[(
                "if self.count.fetch_sub(1, Ordering::Relaxed) == 1 {",
                "if self.count.fetch_sub(1, Ordering::Relaxed) == 2 {",
            )],
            fails_on: &[SLEEPS],
        }],
    },
    Model {
        number: 1,
        sentence: "a_subscriber_misses_no_move_of_the_epoch",
        file: "m01_subscribers",
        support: &[],
        engine: &["room/signal.rs", "room/turn.rs", "room/park.rs"],
        short: Some(3),
        gate: Some(3),
        long: None,
        controls: &[
            Control {
                removed: "one_wake_up_a_release",
                file: "room/signal.rs",
                patches: &[
                    (
                        "if !told.is_empty() {",
                        "if !told.is_empty() && subscribers.wakers.is_empty() {",
                    ),
                    (
                        "let told = std::mem::take(&mut subscribers.wakers);",
                        "let told: BTreeMap<u64, Waker> = subscribers.wakers.pop_first().into_iter().collect();",
                    ),
                ],
                fails_on: &["a subscriber sleeps though the epoch has moved"],
            },
            Control {
                removed: "the_subscriber_looks_and_then_stores_its_waker",
                file: "room/signal.rs",
                patches: &[(
                    "epoch = this.signal.subscribe(&mut this.key, cx.waker().clone());",
                    "this.signal.subscribe(&mut this.key, cx.waker().clone());",
                )],
                fails_on: &["a subscriber sleeps though the epoch has moved"],
            },
            Control {
                removed: "a_subscriber_is_counted_after_it_registers",
                file: "room/signal.rs",
                patches: &[
                    (
                        "            self.subscribed.store(count, Ordering::Relaxed);\n            // All",
                        "            // All",
                    ),
                    (
                        "            (if first { self.register() } else { self.epoch() }, old)\n",
                        "            let epoch = if first { self.register() } else { self.epoch() };\n            self.subscribed.store(count, Ordering::Relaxed);\n            (epoch, old)\n",
                    ),
                ],
                fails_on: &["a subscriber sleeps though the epoch has moved"],
            },
        ],
    },
    Model {
        number: 2,
        sentence: "what_a_cancelled_waiter_was_given_lets_the_next_one_in",
        file: "m02_one_place",
        support: &["pool"],
        engine: QUEUE,
        short: Some(3),
        gate: Some(4),
        long: Some(4),
        controls: &[
            Control {
                removed: "given_back_without_a_drain",
                file: "models/pool.rs",
                patches: &[(
                    "            Cancelled::Chosen(()) => self.give_back(entry),\n",
                    "            Cancelled::Chosen(()) => {\n                slot::take_off(&self.row, ONE).expect(\"the rank lives\");\n            }\n",
                )],
                fails_on: &[SLEEPS],
            },
            Control {
                removed: "delivery_is_a_store",
                file: "queue/waiter.rs",
                patches: &[(
                    "            if self.end(READY).is_none() {",
                    "            self.state.swap(READY, Ordering::Relaxed);\n            if false {",
                )],
                fails_on: &["what nobody holds was given back"],
            },
            Control {
                removed: "a_canceller_that_was_chosen_is_not_told",
                file: "queue/waiter.rs",
                patches: &[(
                    "            READY => match self.take_slot() {",
                    "            TAKEN => match self.take_slot() {",
                )],
                fails_on: &["what nobody holds was given back"],
            },
            Control {
                removed: "poll_looks_and_then_stores_the_waker",
                file: "queue/waiter.rs",
                patches: &[(
                    "        self.store_waker(cx.waker());\n        self.look()\n",
                    "        let looked = self.look();\n        self.store_waker(cx.waker());\n        looked\n",
                )],
                fails_on: &[SLEEPS],
            },
            Control {
                removed: "the_waker_is_taken_before_the_state_is_changed",
                file: "queue/waiter.rs",
                patches: &[
                    (
                        "    pub(crate) fn deliver(&self, payload: T) -> Result<Wake, T> {\n",
                        "    pub(crate) fn deliver(&self, payload: T) -> Result<Wake, T> {\n        let early = self.take_waker();\n",
                    ),
                    ("        Ok(self.take_waker())\n", "        Ok(early)\n"),
                ],
                fails_on: &[SLEEPS],
            },
            Control {
                removed: "the_payload_comes_after_its_lock_is_let_go",
                file: "queue/waiter.rs",
                patches: &[(
                    "            *slot = Slot::Payload(payload);\n        }\n",
                    "            drop(slot);\n            *self.slot.lock() = Slot::Payload(payload);\n        }\n",
                )],
                fails_on: &["come"],
            },
            Control {
                removed: "canceller_and_drainer_both_count_it_out",
                file: "queue/waiting.rs",
                patches: &[
                    (
                        "        let left = take(&mut inner.queue)?;\n",
                        "        let left = take(&mut inner.queue);\n",
                    ),
                    ("        Some(left)\n", "        left\n"),
                ],
                fails_on: &["nothing is left waiting"],
            },
        ],
    },
    Model {
        number: 2,
        sentence: "two_releases_let_two_of_three_in_though_the_first_is_cancelled",
        file: "m02_cancel_after_wake",
        support: &["pool"],
        engine: QUEUE,
        short: Some(2),
        gate: Some(3),
        long: Some(3),
        controls: &[Control {
            removed: "two_releases_given_back_without_a_drain",
            file: "models/pool.rs",
            patches: &[(
                "            Cancelled::Chosen(()) => self.give_back(entry),\n",
                "            Cancelled::Chosen(()) => {\n                slot::take_off(&self.row, ONE).expect(\"the rank lives\");\n            }\n",
            )],
            fails_on: &[SLEEPS],
        }],
    },
    Model {
        number: 2,
        sentence: "a_head_that_leaves_lets_the_one_behind_it_in",
        file: "m02_head_leaves",
        support: &["pool"],
        engine: QUEUE,
        short: None,
        gate: None,
        long: None,
        controls: &[Control {
            removed: "a_cancelled_head_does_not_drain",
            file: "models/pool.rs",
            patches: &[(
                "                if *baton || head {",
                "                let _ = head;\n                if *baton {",
            )],
            fails_on: &[SLEEPS],
        }],
    },
    Model {
        number: 3,
        sentence: "a_mark_left_for_a_running_drain_is_never_lost",
        file: "m03_marks",
        support: &[],
        engine: &["queue/baton.rs"],
        short: Some(3),
        gate: Some(4),
        long: Some(4),
        controls: &[
            Control {
                removed: "the_state_is_loaded_before_the_mark",
                file: "queue/baton.rs",
                patches: &[(
                    "if self.marks.fetch_add(1, Ordering::AcqRel) != 0 {",
                    "if self.marks.load(Ordering::Acquire) != 0 || self.marks.fetch_add(1, Ordering::AcqRel) != 0 {",
                )],
                fails_on: &["a mark was lost"],
            },
            Control {
                removed: "the_drainer_does_not_look_at_what_is_left",
                file: "queue/baton.rs",
                patches: &[(
                    "self.seen = self.baton.marks.fetch_sub(self.seen, Ordering::AcqRel) - self.seen;",
                    "self.baton.marks.swap(0, Ordering::AcqRel);\n        self.seen = 0;",
                )],
                fails_on: &["a mark was lost"],
            },
            Control {
                removed: "a_mark_publishes_nothing",
                file: "queue/baton.rs",
                patches: &[(
                    "if self.marks.fetch_add(1, Ordering::AcqRel) != 0 {",
                    "if self.marks.fetch_add(1, Ordering::Acquire) != 0 {",
                )],
                fails_on: &["a mark was lost"],
            },
            Control {
                removed: "a_mark_sees_nothing",
                file: "queue/baton.rs",
                patches: &[(
                    "if self.marks.fetch_add(1, Ordering::AcqRel) != 0 {",
                    "if self.marks.fetch_add(1, Ordering::Release) != 0 {",
                )],
                fails_on: &["a drain sees what the one before it did"],
            },
            Control {
                removed: "letting_go_publishes_nothing",
                file: "queue/baton.rs",
                patches: &[(
                    "self.seen = self.baton.marks.fetch_sub(self.seen, Ordering::AcqRel) - self.seen;",
                    "self.seen = self.baton.marks.fetch_sub(self.seen, Ordering::Acquire) - self.seen;",
                )],
                fails_on: &["a drain sees what the one before it did"],
            },
            Control {
                removed: "the_next_round_sees_nothing",
                file: "queue/baton.rs",
                patches: &[(
                    "self.seen = self.baton.marks.fetch_sub(self.seen, Ordering::AcqRel) - self.seen;",
                    "self.seen = self.baton.marks.fetch_sub(self.seen, Ordering::Release) - self.seen;",
                )],
                fails_on: &["a mark was lost"],
            },
            Control {
                removed: "everybody_drains",
                file: "queue/baton.rs",
                patches: &[(
                    "if self.marks.fetch_add(1, Ordering::AcqRel) != 0 {",
                    "self.marks.fetch_add(1, Ordering::AcqRel);\n        if false {",
                )],
                fails_on: &["one drains at a time", "a drain sees what the one before it did"],
            },
        ],
    },
    Model {
        number: 4,
        sentence: "of_two_bookers_one_gets_the_last_place",
        file: "m04_two_bookers",
        support: &[],
        engine: ROWS,
        short: None,
        gate: None,
        long: None,
        controls: &[
            Control {
                removed: "added_without_looking_again",
                file: "load/slot.rs",
                patches: &[(
                    "        // AcqRel: publishes the load to whoever judges next and sees what was judged before.\n        match row.compare_exchange(seen.bits(), next.bits(), Ordering::AcqRel, Ordering::Acquire) {",
                    "        match Ok::<u64, u64>(row.fetch_add(next.bits() - seen.bits(), Ordering::AcqRel)) {",
                )],
                fails_on: &["one was booked past the limit"],
            },
            Control {
                removed: "judged_once_and_not_at_each_try",
                file: "load/slot.rs",
                patches: &[
                    (
                        "        if !judge(seen) {",
                        "        if !std::mem::replace(&mut judged, true) && !judge(seen) {",
                    ),
                    (
                        "    // Acquire: a row opened by `reopen` comes with what was written before it.\n    let mut seen = Row::from_bits(row.load(Ordering::Acquire));\n    loop {",
                        "    let mut judged = false;\n    let mut seen = Row::from_bits(row.load(Ordering::Acquire));\n    loop {",
                    ),
                ],
                fails_on: &["one was booked past the limit"],
            },
            Control {
                removed: "a_lost_swap_is_taken_for_a_no",
                file: "load/slot.rs",
                patches: &[(
                    "            // A lost swap is not a \"no\": look again, at a value that is read afresh.\n            Err(_) => seen = Row::from_bits(row.load(Ordering::Acquire)),",
                    "            Err(_) => return Err(Refusal::Full(seen)),",
                )],
                fails_on: &["a lost swap is not a no"],
            },
        ],
    },
    Model {
        number: 5,
        sentence: "a_free_never_touches_the_next_life_of_its_slot",
        file: "m05_free_and_return",
        support: &["seats"],
        engine: &["grace.rs", "load/row.rs", "load/slot.rs"],
        short: None,
        gate: None,
        long: None,
        controls: &[
            Control {
                removed: "the_incarnation_is_not_looked_at",
                file: "load/slot.rs",
                patches: &[(
                    "    !seen.is_dead() && lives.load(Ordering::Relaxed) == incarnation",
                    "    !seen.is_dead()",
                )],
                fails_on: &["a former life took load off the next one", BELOW_ZERO],
            },
            Control {
                removed: "the_incarnation_is_read_before_the_row",
                file: "load/slot.rs",
                patches: &[(
                    "    let seen = Row::from_bits(row.load(Ordering::Acquire));\n    !seen.is_dead() && lives.load(Ordering::Relaxed) == incarnation",
                    "    let same = lives.load(Ordering::Relaxed) == incarnation;\n    let seen = Row::from_bits(row.load(Ordering::Acquire));\n    !seen.is_dead() && same",
                )],
                fails_on: &["a former life took load off the next one", BELOW_ZERO],
            },
            Control {
                removed: "the_row_is_reopened_relaxed",
                file: "load/slot.rs",
                patches: &[(
                    "    row.swap(Row::EMPTY.bits(), Ordering::Release);",
                    "    row.swap(Row::EMPTY.bits(), Ordering::Relaxed);",
                )],
                fails_on: &["a former life took load off the next one", BELOW_ZERO],
            },
            Control {
                removed: "the_free_does_not_acquire_the_row",
                file: "load/slot.rs",
                patches: &[(
                    "    let seen = Row::from_bits(row.load(Ordering::Acquire));\n    !seen.is_dead() && lives.load(Ordering::Relaxed) == incarnation",
                    "    let seen = Row::from_bits(row.load(Ordering::Relaxed));\n    !seen.is_dead() && lives.load(Ordering::Relaxed) == incarnation",
                )],
                fails_on: &["a former life took load off the next one", BELOW_ZERO],
            },
            Control {
                removed: "a_slot_is_reused_without_quarantine",
                file: "grace.rs",
                patches: &[(
                    "self.epoch.load(Ordering::Acquire).wrapping_sub(stamp.0) >= 2",
                    "true || stamp.0 == self.epoch.load(Ordering::Acquire)",
                )],
                fails_on: &["a former life took load off the next one", BELOW_ZERO],
            },
            Control {
                removed: "pins_without_their_fence",
                file: "grace.rs",
                patches: &[(
                    "            // epoch read above does no harm: it only holds the epoch back.\n            fence(Ordering::SeqCst);",
                    "",
                )],
                fails_on: &["a former life took load off the next one", BELOW_ZERO],
            },
        ],
    },
    Model {
        number: 6,
        sentence: "whoever_enters_while_a_limit_is_raised_is_let_in",
        file: "m06_threshold_update",
        support: &["pool"],
        engine: QUEUE,
        short: None,
        gate: None,
        long: None,
        controls: &[
            Control {
                removed: "waiters_are_looked_for_before_the_limit_is_stored",
                file: "models/pool.rs",
                patches: &[(
                    "        self.limit.store(Arc::new(tokens(limit)));\n        self.signal.release_and_tell();\n",
                    "        self.signal.release_and_tell();\n        self.limit.store(Arc::new(tokens(limit)));\n",
                )],
                fails_on: &["under a limit that is no longer in force"],
            },
            Control {
                removed: "the_second_look_takes_the_first_looks_view",
                file: "models/pool.rs",
                patches: &[
                    (
                        "        let limit = *self.limit.load();\n        let class",
                        "        let limit = *self.first.get_or_init(|| *self.limit.load());\n        let class",
                    ),
                    (
                        "    bound: u64,\n    /// The pair",
                        "    bound: u64,\n    first: std::sync::OnceLock<Limit>,\n    /// The pair",
                    ),
                    (
                        "            bound,\n            pair,",
                        "            bound,\n            first: std::sync::OnceLock::new(),\n            pair,",
                    ),
                ],
                fails_on: &["under a limit that is no longer in force"],
            },
            Control {
                removed: "an_update_publishes_nothing",
                file: "room/signal.rs",
                patches: &[(
                    "let word = self.word.fetch_add(EPOCH, Ordering::AcqRel);",
                    "let word = self.word.fetch_add(EPOCH, Ordering::Acquire);",
                )],
                fails_on: &["under a limit that is no longer in force"],
            },
        ],
    },
    Model {
        number: 6,
        sentence: "a_selection_judges_by_the_limit_in_force",
        file: "m06_selection",
        support: &[],
        engine: ROWS,
        short: None,
        gate: None,
        long: None,
        controls: &[Control {
            removed: "a_selection_judges_a_value_it_does_not_replace",
            file: "load/slot.rs",
            patches: &[(
                "        // AcqRel: publishes the load to whoever judges next and sees what was judged before.\n        match row.compare_exchange(seen.bits(), next.bits(), Ordering::AcqRel, Ordering::Acquire) {",
                "        match Ok::<u64, u64>(row.swap(next.bits(), Ordering::AcqRel)) {",
            )],
            fails_on: &["the row is what was booked"],
        }],
    },
    Model {
        number: 7,
        sentence: "a_pair_that_is_dropped_while_it_is_asked_leaves_nobody_asleep",
        file: "m07_pair_dropped",
        support: &["pool"],
        engine: QUEUE,
        short: None,
        gate: None,
        long: None,
        controls: &[
            Control {
                removed: "the_drop_says_nothing",
                file: "models/pool.rs",
                patches: &[(
                    "            fence(Ordering::Acquire);\n            self.signal.release_and_tell();\n",
                    "            fence(Ordering::Acquire);\n",
                )],
                fails_on: &[GONE],
            },
            Control {
                removed: "the_drop_says_so_before_the_last_reference_is_gone",
                file: "models/pool.rs",
                patches: &[
                    (
                        "        let last = self.references.fetch_sub(1, Ordering::Release) == 1;\n",
                        "        if self.references.load(Ordering::Relaxed) == 1 {\n            self.signal.release_and_tell();\n        }\n        let last = self.references.fetch_sub(1, Ordering::Release) == 1;\n",
                    ),
                    (
                        "            fence(Ordering::Acquire);\n            self.signal.release_and_tell();\n",
                        "            fence(Ordering::Acquire);\n",
                    ),
                ],
                fails_on: &[GONE],
            },
            Control {
                removed: "who_asks_lets_go_of_the_last_reference_quietly",
                file: "models/pool.rs",
                patches: &[(
                    "        let last = pair.let_go();\n",
                    "        let last = pair.references.fetch_sub(1, Ordering::Release) == 1;\n",
                )],
                fails_on: &[GONE],
            },
            Control {
                removed: "it_is_let_go_of_under_the_lock_that_it_is_found_under",
                file: "models/pool.rs",
                patches: &[(
                    "        let there = {\n            let _known = known.lock();\n            pair.upgrade()\n        };\n",
                    "        let _known = known.lock();\n        let there = pair.upgrade();\n",
                )],
                fails_on: &["deadlock"],
            },
            Control {
                removed: "who_is_told_inside_a_turn_is_forgotten",
                file: "room/turn.rs",
                patches: &[("            turns.later.push_back(party.clone());\n", "")],
                fails_on: &[GONE],
            },
            Control {
                removed: "the_queue_registers_at_its_own_signal_alone",
                file: "queue/waiting.rs",
                patches: &[(
                    "            for signal in &inner.signals {\n                signal.register();",
                    "            for signal in inner.signals.iter().take(1) {\n                signal.register();",
                )],
                fails_on: &[GONE],
            },
        ],
    },
    Model {
        number: 8,
        sentence: "a_hold_under_an_id_ends_once",
        file: "m08_hold",
        support: &[],
        engine: &["names.rs", "time.rs", "load/row.rs", "load/slot.rs", "load/ids.rs"],
        short: None,
        gate: None,
        long: None,
        controls: &[
            Control {
                removed: "the_lease_is_looked_at_before_the_lock_that_takes_the_hold",
                file: "load/ids.rs",
                patches: &[(
                    "            let mut shard = shard.lock();\n            while shard.front != NIL {\n                let place = shard.front;\n                if shard.at(place).touched.after(lease) > now {\n                    break;\n                }\n",
                    "            let past = {\n                let mut shard = shard.lock();\n                let front = shard.front;\n                front != NIL && shard.at(front).touched.after(lease) <= now\n            };\n            let mut shard = shard.lock();\n            while past && shard.front != NIL {\n                let place = shard.front;\n",
                )],
                fails_on: &["a lease was renewed and the hold reclaimed all the same"],
            },
            Control {
                removed: "renewing_does_not_touch_the_lease",
                file: "load/ids.rs",
                patches: &[(
                    "        shard.unlink(place);\n        shard.link_last(place, now);\n",
                    "",
                )],
                fails_on: &["a lease was renewed and the hold reclaimed all the same"],
            },
        ],
    },
    Model {
        number: 8,
        sentence: "a_hold_is_converted_in_one_step",
        file: "m08_in_one_step",
        support: &[],
        engine: ROWS,
        short: None,
        gate: None,
        long: None,
        controls: &[
            Control {
                removed: "a_hold_is_given_back_and_then_booked",
                file: "load/slot.rs",
                patches: &[(
                    "    judge: impl Fn(Row) -> bool,\n) -> Result<Row, Refusal> {\n    let mut seen = Row::from_bits(row.load(Ordering::Acquire));\n",
                    "    judge: impl Fn(Row) -> bool,\n) -> Result<Row, Refusal> {\n    if take_off(row, off).is_some() {\n        return add(row, on, judge);\n    }\n    let mut seen = Row::from_bits(row.load(Ordering::Acquire));\n",
                )],
                fails_on: &["somebody landed in the room of a hold"],
            },
            Control {
                removed: "a_hold_is_swapped_without_looking_again",
                file: "load/slot.rs",
                patches: &[(
                    "        // AcqRel: as in `add`.\n        match row.compare_exchange(seen.bits(), next.bits(), Ordering::AcqRel, Ordering::Acquire) {",
                    "        match Ok::<u64, u64>(row.swap(next.bits(), Ordering::AcqRel)) {",
                )],
                fails_on: &["the row is what was booked"],
            },
            Control {
                removed: "a_leg_is_judged_with_its_own_hold",
                file: "load/slot.rs",
                patches: &[("        if !judge(without) {", "        if !judge(seen) {")],
                fails_on: &["judged as if its own hold were not there"],
            },
        ],
    },
    Model {
        number: 9,
        sentence: "a_summary_is_never_older_than_the_look_that_believes_it",
        file: "m09_one_block",
        support: &[],
        engine: SEAL,
        short: Some(1),
        gate: Some(2),
        long: Some(2),
        controls: &[
            Control {
                removed: "the_version_moves_before_the_row",
                file: "models/m09_one_block.rs",
                patches: &[(
                    "        self.row.store(to, Ordering::Relaxed);\n        self.versions.bump(0, 0);\n",
                    "        self.versions.bump(0, 0);\n        self.row.store(to, Ordering::Relaxed);\n",
                )],
                fails_on: &[OLD, AT_REST],
            },
            Control {
                removed: "a_bump_publishes_nothing",
                file: "fleet/seal.rs",
                patches: &[(
                    "            after(version, lane),\n            Ordering::Release,\n",
                    "            after(version, lane),\n            Ordering::Relaxed,\n",
                )],
                fails_on: &[OLD, AT_REST],
            },
            Control {
                removed: "a_look_does_not_acquire_the_version",
                file: "fleet/seal.rs",
                patches: &[(
                    "self.now[at].load(Ordering::Acquire)",
                    "self.now[at].load(Ordering::Relaxed)",
                )],
                fails_on: &[OLD, AT_REST],
            },
            Control {
                removed: "the_version_is_read_after_the_row",
                file: "models/m09_one_block.rs",
                patches: &[(
                    "        reached(\"summed up\");\n",
                    "        let version = self.versions.of(0);\n        reached(\"summed up\");\n",
                )],
                fails_on: &[OLD, AT_REST],
            },
            Control {
                removed: "a_version_of_one_bit",
                file: "fleet/seal.rs",
                patches: &[(
                    "self.now[at].load(Ordering::Acquire)",
                    "(self.now[at].load(Ordering::Acquire) >> COUNT_AT) % 2 * 2 + 2",
                )],
                fails_on: &[OLD, AT_REST],
            },
            Control {
                removed: "a_summary_publishes_nothing",
                file: "fleet/seal.rs",
                patches: &[(
                    "        // Release: publishes the words.\n        self.seal.store(version, Ordering::Release);",
                    "        self.seal.store(version, Ordering::Relaxed);",
                )],
                fails_on: &[OLD, AT_REST, MIXED],
            },
            Control {
                removed: "a_look_does_not_acquire_the_seal",
                file: "fleet/seal.rs",
                patches: &[(
                    "self.seal.load(Ordering::Acquire) == version",
                    "self.seal.load(Ordering::Relaxed) == version",
                )],
                fails_on: &[OLD, AT_REST, MIXED],
            },
            Control {
                removed: "the_fence_of_who_publishes",
                file: "fleet/seal.rs",
                patches: &[(
                    "        fence(Ordering::Release);\n        for (to, word)",
                    "        for (to, word)",
                )],
                fails_on: &[MIXED],
            },
            Control {
                removed: "the_fence_of_who_reads",
                file: "fleet/seal.rs",
                patches: &[(
                    "        fence(Ordering::Acquire);\n        self.seal",
                    "        self.seal",
                )],
                fails_on: &[MIXED],
            },
            Control {
                removed: "everybody_publishes_at_once",
                file: "fleet/seal.rs",
                patches: &[("taken.is_ok().then(|| Turn(self))", "Some(Turn(self))")],
                fails_on: &[OLD, AT_REST, MIXED],
            },
            Control {
                removed: "who_finds_the_turn_taken_gives_it_up",
                file: "fleet/seal.rs",
                patches: &[(
                    "taken.is_ok().then(|| Turn(self))",
                    "taken.is_ok().then_some(Turn(self))",
                )],
                fails_on: &[OLD, AT_REST, MIXED],
            },
            Control {
                removed: "the_second_look_at_the_seal",
                file: "fleet/seal.rs",
                patches: &[(
                    "        self.seal.load(Ordering::Relaxed) == version\n",
                    "        let _ = version;\n        true\n",
                )],
                fails_on: &[MIXED],
            },
        ],
    },
    Model {
        number: 9,
        sentence: "a_sum_of_versions_stands_for_each_of_them",
        file: "m09_many_blocks",
        support: &[],
        engine: SEAL,
        short: Some(1),
        gate: Some(1),
        long: Some(2),
        controls: &[
            Control {
                removed: "the_sum_is_taken_before_the_seal",
                file: "fleet/seal.rs",
                patches: &[(
                    "        let seal = self.seal.load(Ordering::Acquire);\n        let sum = versions.sum();\n",
                    "        let sum = versions.sum();\n        let seal = self.seal.load(Ordering::Acquire);\n",
                )],
                fails_on: &[OLD],
            },
            Control {
                removed: "the_seal_of_a_sum_is_not_acquired",
                file: "fleet/seal.rs",
                patches: &[(
                    "        let seal = self.seal.load(Ordering::Acquire);\n        let sum",
                    "        let seal = self.seal.load(Ordering::Relaxed);\n        let sum",
                )],
                fails_on: &[OLD, AT_REST],
            },
        ],
    },
    Model {
        number: 9,
        sentence: "a_waiter_may_believe_a_summary_that_says_there_is_no_room",
        file: "m09_waiter",
        support: &[],
        engine: &["fleet/seal.rs", "room/signal.rs", "room/turn.rs", "room/park.rs"],
        short: Some(2),
        gate: Some(3),
        long: Some(3),
        controls: &[
            Control {
                removed: "the_epoch_moves_before_the_version",
                file: "models/m09_waiter.rs",
                patches: &[(
                    "        self.versions.bump(0, 0);\n        let _ = self.signal.release();\n",
                    "        let _ = self.signal.release();\n        self.versions.bump(0, 0);\n",
                )],
                fails_on: &[SLEEPS],
            },
            Control {
                removed: "the_waiter_looks_and_then_registers",
                file: "models/m09_waiter.rs",
                patches: &[(
                    "    let epoch = world.signal.register();\n    let (full, believed) = world.look();\n",
                    "    let (full, believed) = world.look();\n    let epoch = world.signal.register();\n",
                )],
                fails_on: &[SLEEPS],
            },
            Control {
                removed: "an_outdated_summary_is_believed",
                file: "models/m09_waiter.rs",
                patches: &[(
                    "self.each.read(version)",
                    "self.each.latest().map(|(_, words)| words)",
                )],
                fails_on: &[SLEEPS],
            },
        ],
    },
    Model {
        number: 9,
        sentence: "lanes_that_changed_are_all_remembered_or_none",
        file: "m09_lanes",
        support: &[],
        engine: SEAL,
        short: Some(2),
        gate: Some(3),
        long: Some(3),
        controls: &[
            Control {
                removed: "a_change_that_is_no_longer_named_is_left_out",
                file: "fleet/seal.rs",
                patches: &[(
                    "    if times > u64::from(NAMED) {\n        return None;\n    }\n",
                    "    let times = times.min(u64::from(NAMED));\n",
                )],
                fails_on: &[OLD, AT_REST],
            },
            Control {
                removed: "a_change_is_counted_and_then_named",
                file: "fleet/seal.rs",
                patches: &[
                    (
                        "            after(version, lane),\n            Ordering::Release,\n",
                        "            version + (1 << COUNT_AT),\n            Ordering::Release,\n",
                    ),
                    (
                        "            version = other;\n        }\n",
                        "            version = other;\n        }\n        \
                         now.fetch_add(((lane as u64) << 1).wrapping_sub(version % (1 << COUNT_AT)), Ordering::Release);\n",
                    ),
                ],
                fails_on: &[OLD, AT_REST],
            },
            Control {
                removed: "a_lost_swap_is_not_tried_again",
                file: "fleet/seal.rs",
                patches: &[("            version = other;\n", "            break;\n")],
                fails_on: &[OLD, AT_REST],
            },
        ],
    },
    Model {
        number: 9,
        sentence: "a_shelf_that_is_given_to_another_run_is_not_taken_for_the_old_one_s",
        file: "m09_subjects",
        support: &[],
        engine: SEAL,
        short: Some(1),
        gate: Some(2),
        long: Some(2),
        controls: &[
            Control {
                removed: "not_looked_at_again",
                file: "fleet/seal.rs",
                patches: &[(
                    "        self.edition.load(Ordering::Relaxed) == edition\n",
                    "        self.edition.load(Ordering::Relaxed) >= edition\n",
                )],
                fails_on: &[OTHER],
            },
            Control {
                removed: "the_fence_of_who_gives",
                file: "fleet/seal.rs",
                patches: &[(
                    "        fence(Ordering::Release);\n        self.subject",
                    "        self.subject",
                )],
                fails_on: &[OTHER],
            },
            Control {
                removed: "a_gift_publishes_nothing",
                file: "fleet/seal.rs",
                patches: &[(
                    "self.edition.store(edition + 2, Ordering::Release)",
                    "self.edition.store(edition + 2, Ordering::Relaxed)",
                )],
                fails_on: &[OTHER],
            },
            Control {
                removed: "the_edition_is_not_acquired",
                file: "fleet/seal.rs",
                patches: &[(
                    "let edition = self.edition.load(Ordering::Acquire);",
                    "let edition = self.edition.load(Ordering::Relaxed);",
                )],
                fails_on: &[OTHER],
            },
            Control {
                removed: "what_stood_there_is_not_wiped_off",
                file: "fleet/seal.rs",
                patches: &[("        self.each.iter().for_each(Sealed::wipe);\n", "")],
                fails_on: &[OTHER],
            },
        ],
    },
    Model {
        number: 10,
        sentence: "one_decode_release_wakes_both_queues",
        file: "m10_both_queues",
        support: &["pool"],
        engine: QUEUE,
        short: Some(3),
        gate: None,
        long: None,
        controls: &[
            Control {
                removed: "only_the_first_party_is_told",
                file: "room/signal.rs",
                patches: &[(
                    "for party in self.parties.load().iter() {",
                    "for party in self.parties.load().iter().take(1) {",
                )],
                fails_on: &["the paired pool's queue was not woken"],
            },
            Control {
                removed: "only_the_last_party_is_told",
                file: "room/signal.rs",
                patches: &[(
                    "for party in self.parties.load().iter() {",
                    "for party in self.parties.load().iter().rev().take(1) {",
                )],
                fails_on: &[SLEEPS],
            },
            Control {
                removed: "the_pair_is_registered_before_it_is_counted",
                file: "queue/waiting.rs",
                patches: &[(
                    "        if self.count.fetch_add(1, Ordering::Relaxed) == 0 {\n            for signal in &inner.signals {\n                signal.register();\n            }\n        }\n",
                    "        for signal in &inner.signals {\n            signal.register();\n        }\n        self.count.fetch_add(1, Ordering::Relaxed);\n",
                )],
                fails_on: &["the paired pool's queue was not woken"],
            },
            Control {
                removed: "the_queue_registers_at_its_own_signal_alone",
                file: "queue/waiting.rs",
                patches: &[(
                    "            for signal in &inner.signals {\n                signal.register();",
                    "            for signal in inner.signals.iter().take(1) {\n                signal.register();",
                )],
                fails_on: &["the paired pool's queue was not woken"],
            },
        ],
    },
    Model {
        number: 11,
        sentence: "nobody_sleeps_in_a_closed_pool",
        file: "m11_close",
        support: &["pool"],
        engine: QUEUE,
        short: None,
        gate: None,
        long: None,
        controls: &[
            Control {
                removed: "closed_is_looked_at_before_the_lock",
                file: "queue/waiting.rs",
                patches: &[(
                    "        let mut inner = self.inner.lock();\n        if inner.closed {\n            return Err(Closed);\n        }\n",
                    "        if self.inner.lock().closed {\n            return Err(Closed);\n        }\n        let mut inner = self.inner.lock();\n",
                )],
                fails_on: &["a waiter sleeps in a closed pool"],
            },
            Control {
                removed: "closed_is_not_looked_at",
                file: "queue/waiting.rs",
                patches: &[("        if inner.closed {", "        if false {")],
                fails_on: &["a waiter sleeps in a closed pool"],
            },
        ],
    },
    Model {
        number: 12,
        sentence: "a_reused_slot_carries_nothing_of_its_former_life",
        file: "m12_slot_reuse",
        support: &["seats"],
        engine: &["grace.rs", "load/row.rs", "load/slot.rs"],
        short: Some(2),
        gate: Some(3),
        long: Some(3),
        controls: &[
            Control {
                removed: "removal_sets_no_dead_bit",
                file: "load/slot.rs",
                patches: &[(
                    "row.fetch_or(Row::dead_bit(), Ordering::AcqRel)",
                    "row.fetch_or(0, Ordering::AcqRel)",
                )],
                fails_on: &["booked on a rank that was removed", "two lives of one slot are mixed"],
            },
            Control {
                removed: "a_booking_does_not_look_at_the_dead_bit",
                file: "load/slot.rs",
                patches: &[(
                    "        if seen.is_dead() {\n            return Err(Refusal::Dead);\n        }\n        if !judge(seen) {",
                    "        if !judge(seen) {",
                )],
                fails_on: &["booked on a rank that was removed"],
            },
            Control {
                removed: "the_slot_is_reused_without_quarantine",
                file: "grace.rs",
                patches: &[(
                    "self.epoch.load(Ordering::Acquire).wrapping_sub(stamp.0) >= 2",
                    "true || stamp.0 == self.epoch.load(Ordering::Acquire)",
                )],
                fails_on: &["two lives of one slot are mixed", BELOW_ZERO],
            },
            Control {
                removed: "readers_pin_without_their_fence",
                file: "grace.rs",
                patches: &[(
                    "            // epoch read above does no harm: it only holds the epoch back.\n            fence(Ordering::SeqCst);",
                    "",
                )],
                fails_on: &["two lives of one slot are mixed", BELOW_ZERO],
            },
            Control {
                removed: "one_move_of_the_epoch_is_taken_for_a_grace_period",
                file: "grace.rs",
                patches: &[("wrapping_sub(stamp.0) >= 2", "wrapping_sub(stamp.0) >= 1")],
                fails_on: &["two lives of one slot are mixed", BELOW_ZERO],
            },
            Control {
                removed: "the_old_free_does_not_look_at_the_incarnation",
                file: "load/slot.rs",
                patches: &[(
                    "    !seen.is_dead() && lives.load(Ordering::Relaxed) == incarnation",
                    "    !seen.is_dead()",
                )],
                fails_on: &["two lives of one slot are mixed", BELOW_ZERO],
            },
        ],
    },
    Model {
        number: 12,
        sentence: "what_was_unlinked_is_used_again_when_nobody_looks",
        file: "m12_grace",
        support: &["seats"],
        engine: &["grace.rs"],
        short: Some(2),
        gate: Some(3),
        long: Some(3),
        controls: &[
            Control {
                removed: "pins_in_the_domain_without_their_fence",
                file: "grace.rs",
                patches: &[(
                    "            // epoch read above does no harm: it only holds the epoch back.\n            fence(Ordering::SeqCst);",
                    "",
                )],
                fails_on: USED,
            },
            Control {
                removed: "stamps_without_their_fence",
                file: "grace.rs",
                patches: &[("        fence(Ordering::SeqCst);\n        Stamp(", "        Stamp(")],
                fails_on: USED,
            },
            Control {
                removed: "seats_are_looked_at_without_the_fence",
                file: "grace.rs",
                patches: &[(
                    "        // Pairs with the fence in `pin`.\n        fence(Ordering::SeqCst);\n",
                    "",
                )],
                fails_on: USED,
            },
            Control {
                removed: "unpinning_publishes_nothing",
                file: "grace.rs",
                patches: &[(
                    "self.seat.state.store(0, Ordering::Release);",
                    "self.seat.state.store(0, Ordering::Relaxed);",
                )],
                fails_on: USED,
            },
            Control {
                removed: "the_epoch_moves_without_acquiring_the_seats",
                file: "grace.rs",
                patches: &[("        fence(Ordering::Acquire);\n", "")],
                fails_on: USED,
            },
            Control {
                removed: "a_move_of_the_epoch_publishes_nothing",
                file: "grace.rs",
                patches: &[(
                    "epoch + 1, Ordering::Release, Ordering::Relaxed)",
                    "epoch + 1, Ordering::Relaxed, Ordering::Relaxed)",
                )],
                fails_on: USED,
            },
            Control {
                removed: "a_grace_period_is_seen_without_acquiring_it",
                file: "grace.rs",
                patches: &[(
                    "self.epoch.load(Ordering::Acquire)",
                    "self.epoch.load(Ordering::Relaxed)",
                )],
                fails_on: USED,
            },
        ],
    },
    Model {
        number: 12,
        sentence: "who_pins_again_at_once_has_looked_before",
        file: "m12_pinned_again",
        support: &["seats"],
        engine: &["grace.rs"],
        short: Some(3),
        gate: Some(3),
        long: None,
        controls: &[Control {
            removed: "a_second_pin_hides_the_unpinning",
            file: "grace.rs",
            patches: &[(
                "seat.state.store(epoch << 1 | 1, Ordering::Release);",
                "seat.state.store(epoch << 1 | 1, Ordering::Relaxed);",
            )],
            fails_on: USED,
        }],
    },
    Model {
        number: 13,
        sentence: "what_a_rank_holds_is_found_while_its_run_is_cut",
        file: "m13_cut",
        support: &["prompts"],
        engine: PROMPTS,
        short: None,
        gate: None,
        long: None,
        controls: &[
            Control {
                removed: "the_upper_part_of_a_cut_is_published_first",
                file: "load/prompts/index.rs",
                patches: &[
                    (
                        "        let mut lower_lock = None;\n",
                        "        let mut lower_lock = None;\n        let next = Some(chain[middle]);\n        let upper_lock =\n            self.table.replace(run, guard, |new| fill(new, start, middle, next, above));\n        run.retire();\n",
                    ),
                    (
                        "        let next = (!nobody).then(|| chain[middle]);\n        let upper_lock =\n            self.table.replace(run, guard, |new| fill(new, start, middle, next, above));\n        run.retire();\n",
                        "",
                    ),
                ],
                fails_on: &[LESS],
            },
            Control {
                removed: "a_run_takes_anothers_place_relaxed",
                file: "load/prompts/table.rs",
                patches: &[(
                    "places.places[at].run.store(run.cast_mut(), Ordering::Release);",
                    "places.places[at].run.store(run.cast_mut(), Ordering::Relaxed);",
                )],
                fails_on: &[LESS, UNORDERED],
            },
            Control {
                removed: "a_look_up_does_not_acquire_the_run",
                file: "load/prompts/table.rs",
                patches: &[(
                    "            // contents.\n            let run = place.run.load(Ordering::Acquire);",
                    "            // contents.\n            let run = place.run.load(Ordering::Relaxed);",
                )],
                fails_on: &[LESS, UNORDERED],
            },
            Control {
                removed: "the_lower_part_forgets_who_holds_it",
                file: "load/prompts/index.rs",
                patches: &[(
                    "new.set.copy_from(&run.set, &self.table.wides, guard.domain());\n            match",
                    "match",
                )],
                fails_on: &[LESS, LESS_AT_REST],
            },
        ],
    },
    Model {
        number: 13,
        sentence: "what_a_rank_holds_is_found_while_two_runs_are_made_one",
        file: "m13_merge",
        support: &["prompts"],
        engine: PROMPTS,
        short: None,
        gate: None,
        long: None,
        controls: &[
            Control {
                removed: "a_trail_that_is_lost_is_not_taken_up_again",
                file: "load/prompts/index.rs",
                patches: &[("None if tries > 0 && last", "None if tries > TRIES && last")],
                fails_on: &[LESS],
            },
            Control {
                removed: "the_lower_run_goes_before_the_upper_one_is_marked",
                file: "load/prompts/index.rs",
                patches: &[(
                    "        upper.retire();\n        lower.retire();\n        drop(whole_lock);\n        drop(lock);\n        self.table.remove(lower, guard);\n",
                    "        lower.retire();\n        drop(lock);\n        self.table.remove(lower, guard);\n        upper.retire();\n        drop(whole_lock);\n",
                )],
                fails_on: &[LESS],
            },
            Control {
                removed: "the_lower_run_goes_before_the_whole_is_there",
                file: "load/prompts/index.rs",
                patches: &[(
                    "        let whole_lock = self.table.replace(upper, guard, |new| {\n            // SAFETY: the table hands out runs that nobody else has.\n            unsafe { new.refill(chain, start, end, lower.body().next) };",
                    "        lower.retire();\n        self.table.remove(lower, guard);\n        let whole_lock = self.table.replace(upper, guard, |new| {\n            // SAFETY: the table hands out runs that nobody else has.\n            unsafe { new.refill(chain, start, end, lower.body().next) };",
                )],
                fails_on: &[LESS],
            },
            Control {
                removed: "a_removal_publishes_nothing",
                file: "load/prompts/table.rs",
                patches: &[
                    (
                        "places[at].run.store(left(), Ordering::Release);",
                        "places[at].run.store(left(), Ordering::Relaxed);",
                    ),
                    (
                        "places[at].run.store(ptr::null_mut(), Ordering::Release);",
                        "places[at].run.store(ptr::null_mut(), Ordering::Relaxed);",
                    ),
                ],
                fails_on: &[LESS],
            },
        ],
    },
    Model {
        number: 13,
        sentence: "so_it_is_while_the_lower_ones_place_is_given_to_another_rank",
        file: "m13_place_again",
        support: &["prompts"],
        engine: PROMPTS,
        short: Some(2),
        gate: Some(2),
        long: Some(3),
        controls: &[
            Control {
                removed: "a_place_gets_another_key_relaxed",
                file: "load/prompts/table.rs",
                patches: &[(
                    "place.key.store(key, Ordering::Release);",
                    "place.key.store(key, Ordering::Relaxed);",
                )],
                fails_on: &[LESS],
            },
            Control {
                removed: "a_look_up_does_not_acquire_the_key",
                file: "load/prompts/table.rs",
                patches: &[(
                    "place.key.load(Ordering::Acquire)",
                    "place.key.load(Ordering::Relaxed)",
                )],
                fails_on: &[LESS],
            },
        ],
    },
    Model {
        number: 13,
        sentence: "a_prompt_that_comes_back_is_found_as_it_was_or_as_it_is",
        file: "m13_comes_back",
        support: &["prompts"],
        engine: PROMPTS,
        short: Some(3),
        gate: Some(3),
        long: None,
        controls: &[Control {
            removed: "a_run_that_comes_back_is_published_relaxed",
            file: "load/prompts/table.rs",
            patches: &[(
                "place.run.store(run.cast_mut(), Ordering::Release);\n        writer.live",
                "place.run.store(run.cast_mut(), Ordering::Relaxed);\n        writer.live",
            )],
            fails_on: &[UNORDERED],
        }],
    },
    Model {
        number: 13,
        sentence: "who_enters_a_run_while_its_last_holder_leaves_is_found",
        file: "m13_emptied",
        support: &["prompts"],
        engine: PROMPTS,
        short: None,
        gate: None,
        long: None,
        controls: &[
            Control {
                removed: "who_enters_does_not_look_at_the_mark",
                file: "load/prompts/index.rs",
                patches: &[(
                    "let covered = body.covers(&chain[pos..end]);\n        let lock = run.lock.lock();\n        if run.is_obsolete() {",
                    "let covered = body.covers(&chain[pos..end]);\n        let lock = run.lock.lock();\n        if false {",
                )],
                fails_on: &[LESS_AT_REST],
            },
            Control {
                removed: "an_empty_run_is_not_marked",
                file: "load/prompts/index.rs",
                patches: &[(
                    "            run.set.remove(slot);\n            if run.set.count() == 0 {\n                run.retire();\n                drop(lock);",
                    "            run.set.remove(slot);\n            if run.set.count() == 0 {\n                drop(lock);",
                )],
                fails_on: &[LESS_AT_REST],
            },
            Control {
                removed: "an_empty_run_is_marked_when_its_lock_is_let_go",
                file: "load/prompts/index.rs",
                patches: &[(
                    "            run.set.remove(slot);\n            if run.set.count() == 0 {\n                run.retire();\n                drop(lock);",
                    "            run.set.remove(slot);\n            if run.set.count() == 0 {\n                drop(lock);\n                run.retire();",
                )],
                fails_on: &[LESS_AT_REST],
            },
            Control {
                removed: "who_enters_does_not_take_the_runs_lock",
                file: "load/prompts/index.rs",
                patches: &[(
                    "let covered = body.covers(&chain[pos..end]);\n        let lock = run.lock.lock();",
                    "let covered = body.covers(&chain[pos..end]);\n        let lock = Box::new(());",
                )],
                fails_on: &[LESS_AT_REST, MORE_AT_REST],
            },
        ],
    },
    Model {
        number: 13,
        sentence: "a_cut_and_an_entry_in_the_whole_run_are_both_found",
        file: "m13_two_change",
        support: &["prompts"],
        engine: PROMPTS,
        short: Some(3),
        gate: None,
        long: None,
        controls: &[
            Control {
                removed: "bits_are_set_without_the_runs_lock",
                file: "load/prompts/index.rs",
                patches: &[(
                    "let covered = body.covers(&chain[pos..end]);\n        let lock = run.lock.lock();",
                    "let covered = body.covers(&chain[pos..end]);\n        let lock = Box::new(());",
                )],
                fails_on: &[LESS_AT_REST, MORE_AT_REST],
            },
            Control {
                removed: "a_run_that_was_cut_is_not_marked",
                file: "load/prompts/index.rs",
                patches: UNMARKED,
                fails_on: &[LESS_AT_REST],
            },
            Control {
                removed: "a_mark_is_not_looked_at_under_the_lock",
                file: "load/prompts/index.rs",
                patches: &[(
                    "let covered = body.covers(&chain[pos..end]);\n        let lock = run.lock.lock();\n        if run.is_obsolete() {",
                    "let covered = body.covers(&chain[pos..end]);\n        let gone = run.is_obsolete();\n        let lock = run.lock.lock();\n        if gone {",
                )],
                fails_on: &[LESS_AT_REST],
            },
        ],
    },
    Model {
        number: 13,
        sentence: "a_merge_and_a_cut_of_the_lower_run_leave_what_is_held",
        file: "m13_merge_and_leave",
        support: &["prompts"],
        engine: PROMPTS,
        short: Some(3),
        gate: Some(5),
        long: Some(8),
        controls: &[
            Control {
                removed: "a_merge_does_not_take_the_lower_runs_lock",
                file: "load/prompts/index.rs",
                patches: &[(
                    "        let Some(lock) = lower.lock.try_lock() else { return };\n",
                    "        let lock = Box::new(());\n",
                )],
                fails_on: &[LESS_AT_REST, MORE_AT_REST, LEFT_RUN],
            },
            Control {
                removed: "a_merge_does_not_look_at_the_lower_runs_mark",
                file: "load/prompts/index.rs",
                patches: &[("if lower.is_obsolete() || !lower.set.same", "if !lower.set.same")],
                fails_on: &[LESS_AT_REST, MORE_AT_REST, LEFT_RUN],
            },
            Control {
                removed: "the_lower_run_of_a_merge_is_not_marked",
                file: "load/prompts/index.rs",
                patches: &[(
                    "        upper.retire();\n        lower.retire();\n",
                    "        upper.retire();\n",
                )],
                fails_on: &[LESS_AT_REST, MORE_AT_REST, LEFT_RUN, LINKED],
            },
            Control {
                removed: "who_leaves_does_not_look_at_the_mark",
                file: "load/prompts/index.rs",
                patches: &[(
                    "let covered = body.covers(&chain[at..end]);\n        let lock = run.lock.lock();\n        if run.is_obsolete() {",
                    "let covered = body.covers(&chain[at..end]);\n        let lock = run.lock.lock();\n        if false {",
                )],
                fails_on: &[LESS_AT_REST, MORE_AT_REST, LEFT_RUN, LINKED],
            },
        ],
    },
    Model {
        number: 13,
        sentence: "a_merge_and_a_cut_of_what_it_makes_lose_nothing",
        file: "m13_merge_and_cut",
        support: &["prompts"],
        engine: PROMPTS,
        short: Some(3),
        gate: Some(3),
        long: None,
        controls: &[
            Control {
                removed: "what_a_merge_makes_is_published_unlocked",
                file: "load/prompts/index.rs",
                patches: &[(
                    "            new.lock.lock()\n        });\n",
                    "            Box::new(())\n        });\n",
                )],
                fails_on: &[LESS_AT_REST, LEFT_RUN],
            },
            Control {
                removed: "what_a_merge_makes_is_unlocked_before_the_lower_run_is_marked",
                file: "load/prompts/index.rs",
                patches: &[(
                    "        lower.retire();\n        drop(whole_lock);\n",
                    "        drop(whole_lock);\n        lower.retire();\n",
                )],
                fails_on: &[LESS_AT_REST, LEFT_RUN],
            },
        ],
    },
    Model {
        number: 13,
        sentence: "a_cut_and_a_merge_of_what_it_leaves_lose_nothing",
        file: "m13_cut_and_merge",
        support: &["prompts"],
        engine: PROMPTS,
        short: Some(2),
        gate: Some(2),
        long: Some(3),
        controls: &[
            Control {
                removed: "the_lower_part_of_a_cut_is_published_unlocked",
                file: "load/prompts/index.rs",
                patches: &[(
                    "Ok(lock) => lower_lock = Some(lock),",
                    "Ok(lock) => {\n                    drop(lock);\n                    lower_lock = Some(Box::new(()));\n                }",
                )],
                fails_on: &[LESS, NOT_REMOVED],
            },
            Control {
                removed: "the_parts_of_a_cut_are_unlocked_before_it_is_marked",
                file: "load/prompts/index.rs",
                patches: UNLOCKED_FIRST,
                fails_on: &[LESS, NOT_REMOVED],
            },
        ],
    },
    Model {
        number: 13,
        sentence: "whatever_two_ranks_do_at_once_leaves_what_is_held",
        file: "m13_any_two",
        support: &["prompts", "at_once"],
        engine: PROMPTS,
        short: Some(1),
        gate: Some(1),
        long: Some(2),
        controls: &[Control {
            removed: "what_takes_a_runs_place_is_published_unlocked",
            file: "load/prompts/index.rs",
            patches: &[
                (
                    "            new.lock.lock()\n        };\n",
                    "            Box::new(())\n        };\n",
                ),
                (
                    "            new.lock.lock()\n        });\n",
                    "            Box::new(())\n        });\n",
                ),
            ],
            fails_on: &[LESS_AT_REST, MORE_AT_REST, LEFT_RUN, NOT_REMOVED],
        }],
    },
    Model {
        number: 13,
        sentence: "whatever_three_ranks_do_at_once_leaves_what_is_held",
        file: "m13_any_three",
        support: &["prompts", "at_once"],
        engine: PROMPTS,
        short: Some(0),
        gate: Some(0),
        long: Some(1),
        controls: &[],
    },
    Model {
        number: 13,
        sentence: "who_enters_a_chain_that_another_lets_go_of_is_found",
        file: "m13_leave_and_enter",
        support: &["prompts"],
        engine: PROMPTS,
        short: Some(2),
        gate: Some(3),
        long: None,
        controls: &[Control {
            removed: "a_rank_lets_go_of_a_chain_from_its_beginning",
            file: "load/prompts/index.rs",
            patches: FROM_THE_BEGINNING,
            fails_on: &[LESS_AT_REST, MORE_AT_REST, NOT_REMOVED],
        }],
    },
    Model {
        number: 13,
        sentence: "two_who_leave_at_once_leave_one_run",
        file: "m13_two_leave",
        support: &["prompts"],
        engine: PROMPTS,
        short: Some(2),
        gate: Some(3),
        long: Some(3),
        controls: &[Control {
            removed: "a_rank_that_leaves_beside_another_lets_go_from_the_beginning",
            file: "load/prompts/index.rs",
            patches: FROM_THE_BEGINNING,
            fails_on: &[OUTLIVES],
        }],
    },
    Model {
        number: 13,
        sentence: "whatever_has_come_before_four_ranks_leave_what_is_held",
        file: "m13_any_history",
        support: &["prompts"],
        engine: PROMPTS,
        short: Some(1),
        gate: Some(1),
        long: Some(2),
        controls: &[],
    },
    Model {
        number: 13,
        sentence: "a_run_that_is_cut_does_not_pass_for_current",
        file: "m13_current",
        support: &["prompts"],
        engine: PROMPTS,
        short: Some(2),
        gate: Some(3),
        long: Some(3),
        controls: &[
            Control {
                removed: "the_parts_of_a_cut_are_published_unlocked",
                file: "load/prompts/index.rs",
                patches: &[(
                    "            new.lock.lock()\n        };\n",
                    "            Box::new(())\n        };\n",
                )],
                fails_on: &[NOT_CURRENT],
            },
            Control {
                removed: "a_cut_run_passes_for_current",
                file: "load/prompts/index.rs",
                patches: UNMARKED,
                fails_on: &[NOT_CURRENT],
            },
            Control {
                removed: "who_enters_does_not_acquire_what_it_finds",
                file: "load/prompts/table.rs",
                patches: &[(
                    "            // contents.\n            let run = place.run.load(Ordering::Acquire);",
                    "            // contents.\n            let run = place.run.load(Ordering::Relaxed);",
                )],
                fails_on: &[NOT_CURRENT, UNORDERED],
            },
        ],
    },
    Model {
        number: 13,
        sentence: "a_run_that_is_cut_does_not_pass_for_one_of_who_left",
        file: "m13_current_leave",
        support: &["prompts"],
        engine: PROMPTS,
        short: Some(2),
        gate: Some(3),
        long: Some(3),
        controls: &[Control {
            removed: "the_parts_of_a_cut_are_unlocked_and_then_it_is_marked",
            file: "load/prompts/index.rs",
            patches: UNLOCKED_FIRST,
            fails_on: &[NOT_CURRENT],
        }],
    },
    Model {
        number: 13,
        sentence: "a_run_that_is_cut_does_not_pass_for_one_without_who_entered_above",
        file: "m13_current_upper",
        support: &["prompts"],
        engine: PROMPTS,
        short: Some(2),
        gate: Some(3),
        long: Some(3),
        controls: &[Control {
            removed: "the_upper_part_of_a_cut_is_published_unlocked",
            file: "load/prompts/index.rs",
            patches: &[(
                "            self.table.replace(run, guard, |new| fill(new, start, middle, next, above));\n",
                "            self.table.replace(run, guard, |new| {\n                drop(fill(new, start, middle, next, above));\n                Box::new(())\n            });\n",
            )],
            fails_on: &[NOT_CURRENT],
        }],
    },
    Model {
        number: 13,
        sentence: "a_run_that_outlives_the_one_above_does_not_pass_for_current",
        file: "m13_current_gone",
        support: &["prompts"],
        engine: PROMPTS,
        short: Some(2),
        gate: Some(3),
        long: Some(3),
        controls: &[Control {
            removed: "the_lower_run_outlives_the_upper_one",
            file: "load/prompts/index.rs",
            patches: FROM_THE_BEGINNING,
            fails_on: &[NOT_CURRENT],
        }],
    },
    Model {
        number: 13,
        sentence: "a_run_that_is_made_one_with_another_does_not_pass_for_current",
        file: "m13_current_merge",
        support: &["prompts"],
        engine: PROMPTS,
        short: Some(2),
        gate: Some(3),
        long: Some(3),
        controls: &[
            Control {
                removed: "the_upper_run_of_a_merge_is_marked_late",
                file: "load/prompts/index.rs",
                patches: &[(
                    "        upper.retire();\n        lower.retire();\n        drop(whole_lock);\n",
                    "        lower.retire();\n        drop(whole_lock);\n        upper.retire();\n",
                )],
                fails_on: &[NOT_CURRENT],
            },
            Control {
                removed: "the_lower_run_of_a_merge_is_marked_late",
                file: "load/prompts/index.rs",
                patches: &[(
                    "        upper.retire();\n        lower.retire();\n        drop(whole_lock);\n",
                    "        upper.retire();\n        drop(whole_lock);\n        lower.retire();\n",
                )],
                fails_on: &[NOT_CURRENT],
            },
        ],
    },
    Model {
        number: 13,
        sentence: "each_block_of_a_rank_is_charged_once",
        file: "m13_charge",
        support: &["prompts"],
        engine: CHARGED,
        short: Some(2),
        gate: Some(3),
        long: Some(3),
        controls: &[
            Control {
                removed: "the_ranks_lock_is_let_go_before_the_row",
                file: "models/m13_charge.rs",
                patches: &[
                    (
                        "        let mut rank = self.rank.lock();\n        let missing = rank.missing(chain);\n        let blocks = missing.blocks();\n        add(",
                        "        let blocks = self.rank.lock().missing(chain).blocks();\n        add(",
                    ),
                    (
                        "        let held = rank.enter(missing, at);\n",
                        "        let mut rank = self.rank.lock();\n        let missing = rank.missing(chain);\n        let held = rank.enter(missing, at);\n",
                    ),
                ],
                fails_on: &[CHARGE],
            },
            Control {
                removed: "the_row_goes_down_when_the_ranks_lock_is_let_go",
                file: "models/m13_charge.rs",
                patches: &[(
                    "        let shared = rank.leave(held, at);\n",
                    "        let shared = rank.leave(held, at);\n        drop(rank);\n",
                )],
                fails_on: &[CHARGE],
            },
            Control {
                removed: "the_row_goes_up_when_the_ranks_lock_is_let_go",
                file: "models/m13_charge.rs",
                patches: &[
                    (
                        "        add(&self.row, Load::new(0, blocks), |_| true).expect(\"the rank lives\");\n",
                        "",
                    ),
                    (
                        "        drop(rank);\n        reached(if",
                        "        drop(rank);\n        add(&self.row, Load::new(0, blocks), |_| true).expect(\"the rank lives\");\n        reached(if",
                    ),
                ],
                fails_on: &[CHARGE],
            },
            Control {
                removed: "a_run_is_published_relaxed",
                file: "load/prompts/table.rs",
                patches: &[
                    (
                        "place.key.store(key, Ordering::Release);",
                        "place.key.store(key, Ordering::Relaxed);",
                    ),
                    (
                        "place.run.store(run.cast_mut(), Ordering::Release);\n        writer.live",
                        "place.run.store(run.cast_mut(), Ordering::Relaxed);\n        writer.live",
                    ),
                ],
                fails_on: &[UNORDERED],
            },
            Control {
                removed: "a_shared_block_is_given_back_by_each",
                file: "load/prompts/rank.rs",
                patches: &[(
                    "            if run.count == 0 {\n                from = start;",
                    "            if true {\n                from = start;",
                )],
                fails_on: &[CHARGE, LESS_AT_REST],
            },
        ],
    },
    Model {
        number: 13,
        sentence: "a_bitmap_that_replaces_another_has_who_was_in_it",
        file: "m13_wide",
        support: &["prompts"],
        engine: PROMPTS,
        short: Some(2),
        gate: Some(3),
        long: Some(3),
        controls: &[
            Control {
                removed: "a_bitmap_is_published_relaxed",
                file: "load/prompts/set.rs",
                patches: &[(
                    "self.wide.store(new, Ordering::Release);",
                    "self.wide.store(new, Ordering::Relaxed);",
                )],
                fails_on: &[NOT_IN_SET, UNORDERED],
            },
            Control {
                removed: "a_bitmap_is_not_acquired",
                file: "load/prompts/set.rs",
                patches: &[(
                    "let wide = self.wide.load(Ordering::Acquire);",
                    "let wide = self.wide.load(Ordering::Relaxed);",
                )],
                fails_on: &[NOT_IN_SET, UNORDERED],
            },
            Control {
                removed: "a_bitmap_is_published_before_it_is_filled",
                file: "load/prompts/set.rs",
                patches: &[
                    (
                        "        let wide = unsafe { Wide::new(new) };\n        match self.wide() {",
                        "        let wide = unsafe { Wide::new(new) };\n        let before = self.wide();\n        self.wide.store(new, Ordering::Release);\n        match before {",
                    ),
                    (
                        "            None => self.for_each_block(|block, mask| wide.put(block as usize, mask)),\n",
                        "            None => for few in &self.few {\n                let slot = few.load(Ordering::Relaxed);\n                if slot != NOBODY {\n                    wide.put(slot as usize >> 6, 1 << (slot & 63));\n                }\n            },\n",
                    ),
                    (
                        "        let old = self.wide.load(Ordering::Relaxed);\n        // Release",
                        "        let old: *mut AtomicU64 = ptr::null_mut();\n        // Release",
                    ),
                ],
                fails_on: &[NOT_IN_SET],
            },
            Control {
                removed: "a_bitmap_is_used_again_at_once",
                file: "load/prompts/set.rs",
                patches: &[(
                    "            if !domain.passed(stamp) {\n                return;\n            }\n            self.limbo.pop_front();\n            // SAFETY: a grace",
                    "            self.limbo.pop_front();\n            // SAFETY: a grace",
                )],
                fails_on: &[NOT_IN_SET, "a bitmap is used again while somebody looks"],
            },
        ],
    },
    Model {
        number: 13,
        sentence: "a_run_serves_another_chain_when_nobody_looks_at_it",
        file: "m13_reuse",
        support: &["prompts"],
        engine: PROMPTS,
        short: Some(2),
        gate: Some(3),
        long: Some(3),
        controls: &[
            Control {
                removed: "a_run_is_used_again_at_once",
                file: "load/prompts/table.rs",
                patches: &[
                    ("        if !domain.has_passed(oldest) {\n", "        if false {\n"),
                    (
                        "            if !domain.has_passed(stamp) {\n                break;\n            }\n            self.limbo.pop_front();",
                        "            self.limbo.pop_front();",
                    ),
                ],
                fails_on: &[REUSED, UNORDERED],
            },
            Control {
                removed: "a_run_is_stamped_before_it_is_unlinked",
                file: "load/prompts/table.rs",
                patches: &[
                    (
                        "        let Ok((mut at, found)) = places.locate(key, hash) else { return };\n",
                        "        let Ok((mut at, found)) = places.locate(key, hash) else { return };\n        let stamp = guard.domain().stamp();\n",
                    ),
                    (
                        "spare.limbo.push_back((domain.stamp(), run));\n        spare.quiet",
                        "spare.limbo.push_back((stamp, run));\n        spare.quiet",
                    ),
                ],
                fails_on: &[REUSED, UNORDERED],
            },
        ],
    },
    Model {
        number: 13,
        sentence: "a_run_that_stays_is_found_while_others_come_and_go",
        file: "m13_table",
        support: &["prompts"],
        engine: PROMPTS,
        short: Some(3),
        gate: None,
        long: None,
        controls: &[
            Control {
                removed: "an_array_is_published_relaxed",
                file: "load/prompts/table.rs",
                patches: &[(
                    "self.places.store(new, Ordering::Release);",
                    "self.places.store(new, Ordering::Relaxed);",
                )],
                fails_on: &[LESS, UNORDERED],
            },
            Control {
                removed: "an_array_is_not_acquired",
                file: "load/prompts/table.rs",
                patches: &[(
                    "let places = self.shard(hash).places.load(Ordering::Acquire);",
                    "let places = self.shard(hash).places.load(Ordering::Relaxed);",
                )],
                fails_on: &[LESS, UNORDERED],
            },
            Control {
                removed: "an_array_is_published_before_it_is_filled",
                file: "load/prompts/table.rs",
                patches: &[(
                    "        to.clear();\n",
                    "        to.clear();\n        self.places.store(new, Ordering::Release);\n",
                )],
                fails_on: &[LESS, UNORDERED],
            },
            Control {
                removed: "a_place_that_was_left_looks_as_if_never_used",
                file: "load/prompts/table.rs",
                patches: &[(
                    "places[at].run.store(left(), Ordering::Release);",
                    "places[at].run.store(ptr::null_mut(), Ordering::Release);",
                )],
                fails_on: &[LESS],
            },
        ],
    },
    Model {
        number: 13,
        sentence: "an_array_is_given_up_when_nobody_looks_at_it",
        file: "m13_table_again",
        support: &["prompts"],
        engine: PROMPTS,
        short: Some(2),
        gate: Some(3),
        long: Some(3),
        controls: &[Control {
            removed: "an_array_is_given_up_at_once",
            file: "load/prompts/table.rs",
            patches: &[
                (
                    "            if !domain.passed(stamp) {\n                return true;\n            }\n",
                    "",
                ),
                // Wiped and not freed: what a freed one reads as would be up to the allocator.
                (
                    "                // SAFETY: as above.\n                drop(unsafe { Box::from_raw(places) });\n            }\n            false",
                    "                unsafe { &*places }.clear();\n            }\n            false",
                ),
            ],
            fails_on: &[LESS],
        }],
    },
    Model {
        number: 14,
        sentence: "a_baton_handed_on_is_drained_by_whoever_holds_it",
        file: "m14_baton_polled",
        support: &["pool"],
        engine: QUEUE,
        short: Some(3),
        gate: None,
        long: None,
        controls: &[
            Control {
                removed: "handed_on_before_it_is_let_go",
                file: "queue/baton.rs",
                patches: &[(
                    "        self.baton.marks.swap(0, Ordering::AcqRel);\n        self.work.hand_on();\n",
                    "        self.work.hand_on();\n        self.baton.marks.swap(0, Ordering::AcqRel);\n",
                )],
                fails_on: &["the baton was handed on before it was let go"],
            },
            Control {
                removed: "let_go_and_not_handed_on",
                file: "queue/baton.rs",
                patches: &[(
                    "        self.baton.marks.swap(0, Ordering::AcqRel);\n        self.work.hand_on();\n",
                    "        self.baton.marks.swap(0, Ordering::AcqRel);\n",
                )],
                fails_on: &[SLEEPS],
            },
        ],
    },
    Model {
        number: 14,
        sentence: "a_baton_holder_that_is_cancelled_passes_it_on",
        file: "m14_baton_cancelled",
        support: &["pool", "m14_baton_polled"],
        engine: QUEUE,
        short: Some(3),
        gate: None,
        long: None,
        controls: &[Control {
            removed: "a_cancelled_holder_drops_the_baton",
            file: "queue/waiter.rs",
            patches: &[(
                "WAITING => Cancelled::Withdrawn { baton: before & BATON != 0 },",
                "WAITING => Cancelled::Withdrawn { baton: false },",
            )],
            fails_on: &[SLEEPS],
        }],
    },
    Model {
        number: 15,
        sentence: "what_a_newcomer_takes_and_gives_back_lets_a_waiter_in",
        file: "m15_newcomer_rolls_back",
        support: &["pool"],
        engine: QUEUE,
        short: Some(3),
        gate: Some(4),
        long: Some(4),
        controls: &[Control {
            removed: "a_newcomer_does_not_tell_the_own_queue_of_its_roll_back",
            file: "models/pool.rs",
            patches: &[("                if draining {", "                if draining || true {")],
            fails_on: &[SLEEPS],
        }],
    },
    Model {
        number: 15,
        sentence: "a_hold_that_is_taken_back_lets_a_waiter_of_the_pair_in",
        file: "m15_hold_taken_back",
        support: &["pool"],
        engine: QUEUE,
        short: Some(2),
        gate: Some(3),
        long: Some(3),
        controls: &[Control {
            removed: "a_hold_that_was_never_delivered_is_taken_back_quietly",
            file: "models/pool.rs",
            patches: &[(
                "            pair.release(ONE);",
                "            slot::take_off(&pair.row, ONE).expect(\"the rank lives\");",
            )],
            fails_on: &[SLEEPS],
        }],
    },
    Model {
        number: 16,
        sentence: "who_waits_is_let_in_by_a_pair_that_is_installed_full_and_then_has_room",
        file: "m16_pair_installed",
        support: &["pool"],
        engine: QUEUE,
        short: None,
        gate: None,
        long: None,
        controls: &[
            Control {
                removed: "published_before_it_is_subscribed_to",
                file: "models/pool.rs",
                patches: &[(
                    "        self.subscribe(pair);\n        late.store(Arc::new(pair.clone()));\n        self.signal.release_and_tell();\n",
                    "        late.store(Arc::new(pair.clone()));\n        self.signal.release_and_tell();\n        self.subscribe(pair);\n",
                )],
                fails_on: &[HAD],
            },
            Control {
                removed: "drained_before_it_is_published",
                file: "models/pool.rs",
                patches: &[(
                    "        late.store(Arc::new(pair.clone()));\n        self.signal.release_and_tell();\n",
                    "        self.signal.release_and_tell();\n        late.store(Arc::new(pair.clone()));\n",
                )],
                fails_on: &[HAD],
            },
            Control {
                removed: "what_waits_already_is_not_registered",
                file: "queue/waiting.rs",
                patches: &[(
                    "        if self.count() > 0 {\n            signal.register();\n        }\n",
                    "",
                )],
                fails_on: &[HAD],
            },
        ],
    },
    Model {
        number: 16,
        sentence: "whoever_enters_while_a_pair_with_room_is_installed_is_let_in",
        file: "m16_pair_and_newcomer",
        support: &["pool"],
        engine: QUEUE,
        short: None,
        gate: None,
        long: None,
        controls: &[
            Control {
                removed: "no_drain_when_it_is_installed",
                file: "models/pool.rs",
                patches: &[(
                    "        late.store(Arc::new(pair.clone()));\n        self.signal.release_and_tell();\n",
                    "        late.store(Arc::new(pair.clone()));\n",
                )],
                fails_on: &[HAD],
            },
            Control {
                removed: "the_installation_publishes_nothing",
                file: "room/signal.rs",
                patches: &[(
                    "let word = self.word.fetch_add(EPOCH, Ordering::AcqRel);",
                    "let word = self.word.fetch_add(EPOCH, Ordering::Acquire);",
                )],
                fails_on: &[HAD],
            },
            Control {
                removed: "who_enters_sees_nothing",
                file: "room/signal.rs",
                patches: &[(
                    "let word = self.word.fetch_add(PARTY, Ordering::AcqRel);",
                    "let word = self.word.fetch_add(PARTY, Ordering::Release);",
                )],
                fails_on: &[HAD],
            },
        ],
    },
    Model {
        number: 17,
        sentence: "a_due_time_that_passes_during_a_drain_is_kept",
        file: "m17_due_time",
        support: &["pool"],
        engine: QUEUE,
        short: None,
        gate: None,
        long: None,
        controls: &[
            Control {
                removed: "the_clock_is_shown_after_the_mark",
                file: "models/pool.rs",
                patches: &[(
                    "        self.baton.show(now);\n        self.drain()\n",
                    "        let drained = self.drain();\n        self.baton.show(now);\n        drained\n",
                )],
                fails_on: &["a waiter sleeps past its due time"],
            },
            Control {
                removed: "the_clock_is_read_once_outside_the_loop",
                file: "queue/baton.rs",
                patches: &[
                    (
                        "        let mut steps = 0;\n        loop {",
                        "        let mut steps = 0;\n        let now = self.now();\n        loop {",
                    ),
                    ("work.step(self.now())", "work.step(now)"),
                ],
                fails_on: &["a waiter sleeps past its due time"],
            },
            Control {
                removed: "the_drain_does_not_look_at_marks_again",
                file: "queue/baton.rs",
                patches: &[(
                    "self.seen = self.baton.marks.fetch_sub(self.seen, Ordering::AcqRel) - self.seen;",
                    "self.baton.marks.swap(0, Ordering::AcqRel);\n        self.seen = 0;",
                )],
                fails_on: &["a waiter sleeps past its due time"],
            },
        ],
    },
    Model {
        number: 18,
        sentence: "a_booking_beside_a_sibling_stands_only_while_that_has_room",
        file: "m18_sibling",
        support: &[],
        engine: ROWS,
        short: None,
        gate: None,
        long: None,
        controls: &[Control {
            removed: "the_sibling_is_looked_at_before_the_landing_only",
            file: "load/slot.rs",
            patches: &[(
                "    let landed = land()?;\n    if sibling_has_room() { Ok(landed)",
                "    let room = sibling_has_room();\n    let landed = land()?;\n    if room { Ok(landed)",
            )],
            fails_on: &["landed on a worker that was full"],
        }],
    },
];
