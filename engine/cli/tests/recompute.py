#!/usr/bin/env python3
"""Computes the figures of `vacancy replay --json` again from what `--decisions` wrote.

    recompute.py RESULT.json DECISIONS.jsonl

Uses nothing of the product but those two files, and of the result only what no request can tell:
how many prefill ranks there were. Exits 1, naming the figure, on any difference.
"""

import json
import sys

PER_MILLE = {"p50": 500, "p90": 900, "p99": 990, "p999": 999, "max": 1000}
MS = 1e6


def percentile(samples, name):
    """The nearest rank: the smallest sample that at least this share does not exceed."""
    ordered = sorted(samples)
    if not ordered:
        return None
    rank = -(-len(ordered) * PER_MILLE[name] // 1000)
    return ordered[max(rank, 1) - 1]


def percentiles(samples, names, unit=1):
    found = {name: percentile(samples, name) for name in names}
    return {name: None if at is None else at / unit for name, at in found.items()}


def figures(lines, setting):
    def spans(start, end):
        pairs = ((line[start], line[end]) for line in lines)
        return [e - s for s, e in pairs if s is not None and e is not None]

    keys = ("decision_ns", "decode_decision_ns")
    decisions = [line[key] for line in lines for key in keys if line[key] is not None]
    started = [line for line in lines if line["cached_tokens"] is not None]
    tokens = sum(line["isl"] for line in started)
    cached = sum(line["cached_tokens"] for line in started)
    busy = {}
    for line in lines:
        if line["prefill_end_ns"] is not None:
            rank = (line["prefill_worker"], line["prefill_dp_rank"])
            took = line["prefill_end_ns"] - line["prefill_start_ns"]
            busy[rank] = busy.get(rank, 0) + took
    mean = sum(busy.values()) / setting["prefill_ranks"]
    limited = [line for line in lines if line["landing_limit"] is not None]
    past = [line["landing_blocks"] - line["landing_limit"] for line in limited]
    # A request is booked from its admission to its end.
    left = [line for line in lines if line["admitted_ns"] is not None and line["end_ns"] is None]
    return {
        "requests": len(lines),
        "admitted": sum(line["admitted_ns"] is not None for line in lines),
        "rejected": sum(line["outcome"] == "rejected" for line in lines),
        "expired": sum(line["outcome"] == "expired" for line in lines),
        "decision_ns": percentiles(decisions, ["p50", "p99", "p999", "max"]),
        "ttft_ms": percentiles(spans("arrival_ns", "first_token_ns"), ["p50", "p90", "p99"], MS),
        "queue_wait_ms": percentiles(spans("arrival_ns", "admitted_ns"), ["p50", "p99"], MS),
        "cached_token_share": cached / tokens if tokens else 0.0,
        "prefill_imbalance": max(busy.values()) / mean if mean else 1.0,
        "landings_past_limit": sum(over > 0 for over in past),
        "decode_overshoot_blocks": max([0] + past),
        "bookings_left": len(left),
    }


def differences(printed, computed, name=""):
    if isinstance(computed, dict):
        for key, value in computed.items():
            yield from differences((printed or {}).get(key), value, f"{name}.{key}".lstrip("."))
    elif computed is None or printed is None:
        if computed is not printed:
            yield f"{name}: printed {printed}, computed {computed}"
    elif abs(printed - computed) > 1e-9 * max(1.0, abs(computed)):
        yield f"{name}: printed {printed}, computed {computed}"


def main(result_path, decisions_path):
    with open(result_path, encoding="utf-8") as file:
        result = json.load(file)
    by_strategy = {}
    with open(decisions_path, encoding="utf-8") as file:
        for text in file:
            line = json.loads(text)
            by_strategy.setdefault(line["strategy"], []).append(line)
    # What stands at the top is the strategy that was asked for.
    printed = {**result.get("compare", {}), result["strategy"]: result}
    wrong = []
    if set(printed) != set(by_strategy):
        wrong.append(f"strategies: printed {sorted(printed)}, decided {sorted(by_strategy)}")
    for strategy, lines in by_strategy.items():
        computed = figures(lines, result["setting"])
        for place in (printed, result.get("compare", {})):
            if strategy in place:
                wrong += [f"{strategy}: {d}" for d in differences(place[strategy], computed)]
    for what in wrong:
        print(what)
    if not wrong:
        print(f"{len(printed)} strategies, {result['requests']} requests: every figure agrees")
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2]))
