#!/usr/bin/env python3
"""Writes the seeds that every target starts from: `python3 fuzz/seeds/make.py`.

Tapes (ops, backends, rows) are bytes without a pattern, from a generator with a fixed seed: any
tape is a valid case. Texts are the project's own scenarios, the policies that stand in them and a
few lines of a trace, whole and damaged.
"""

import pathlib
import random
import re

HERE = pathlib.Path(__file__).parent
SCENARIOS = sorted((HERE / "../../engine/tests/scenarios").glob("*.yaml"))


def put(target, name, data):
    directory = HERE / target
    directory.mkdir(exist_ok=True)
    (directory / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def tapes():
    for target, number, length in [("ops", 16, 2500), ("backends", 6, 1200), ("rows", 6, 600)]:
        rng = random.Random(f"seeds of {target}")
        for i in range(number):
            put(target, f"tape-{i:02}", rng.randbytes(length))
    # The first byte of `ops` chooses between two pools, a crowd and a single pool.
    rng = random.Random("one pool")
    for first in (6, 7):
        put("ops", f"mixture-{first}", bytes([first]) + rng.randbytes(2500))


def policies():
    found = set()
    for file in SCENARIOS:
        # A policy document in place, on one line.
        found.update(re.findall(r"^ *policy: (\{.*\})$", file.read_text(), re.M))
    chosen = [text for text in sorted(found, key=len) if "policy_classes" in text][:12]
    for i, text in enumerate(chosen):
        put("policy", f"policy-{i:02}.yaml", text + "\n")
    every_key = """default_policy_family: standard
uncached_isl_buckets:
  - {min_tokens: 0, bucket: small}
  - {min_tokens: 8192, bucket: large}
policy_classes:
  - {name: standard_small, policy_family: standard, cache_bucket: small, quantum: 8192, queue_policy: fcfs, prefill_busy_threshold_frac: 4.0, decode_busy_threshold_frac: 0.9}
  - {name: standard_large, policy_family: standard, cache_bucket: large, quantum: 4096, queue_policy: wspt, prefill_busy_threshold_frac: 2.0, request_queue_limit_per_worker: 4, max_wait_ms: 100}
  - {name: probe, quantum: 1, queue_policy: edf, prefill_busy_threshold: 64, busy_worker_ratio: 0.5, request_queue_limit_per_worker: 0, raw_isl_token_queue_limit_per_worker: 9, cached_token_queue_limit_per_worker: 7}
models:
  m:
    default_policy_family: f
    uncached_isl_buckets: [{min_tokens: 0, bucket: b}]
    policy_classes: [{name: c, policy_family: f, cache_bucket: b, quantum: 1}]
router: {anything: [1, 2]}
"""
    put("policy", "every-key.yaml", every_key)
    put("policy", "anchors.yaml", "a: &a [1, 1]\nb: &b [*a, *a]\nc: [*b, *b]\n" + every_key)
    put("policy", "nested.yaml", "router: " + "[" * 40 + "]" * 40 + "\n")


def scenarios():
    for file in sorted(SCENARIOS, key=lambda f: f.stat().st_size)[:30]:
        put("scenario", file.stem[:40] + ".yaml", file.read_bytes())
    put("scenario", "nothing.yaml", "pools: {p: {}}\nsteps: []\n")


def traces():
    line = '{{"timestamp": {}, "input_length": {}, "output_length": {}, "hash_ids": {}}}\n'
    whole = "".join(line.format(i * 7, 512 * i + 3, i, list(range(i + 1))) for i in range(6))
    put("trace", "whole.jsonl", whole)
    put("trace", "class.jsonl", '{"timestamp": 0.5, "input_length": 3, "output_length": 1, "class": "c"}\n')
    put("trace", "how-first", b"\x01\x04\x02" + whole.encode())
    put("trace", "damaged.jsonl", whole + "{\n\n7\n" + whole[:50] + "\n" + whole)
    put("trace", "numbers.jsonl", "".join(
        line.format(t, i, 1, "null")
        for t, i in [("1e300", 1), (-1, 1), (0, 4294967296), (0, -3), (0, 4294967295)]
    ))
    put("trace", "twice.jsonl", line.format(0, 2000, 1, [1, 1, 1]))


tapes()
policies()
scenarios()
traces()
