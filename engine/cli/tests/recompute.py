#!/usr/bin/env python3
"""Computes the figures of `vacancy replay --json` again from what `--decisions` wrote.

    recompute.py RESULT.json DECISIONS.jsonl

Uses nothing of the product but those two files, and of the result only what no request can tell:
how many prefill ranks there were, and which classes. Exits 1, naming the figure, on any difference.

A landing is past its limit if the decode rank's KV blocks just before it (booked and held) exceed
the limit of the request's class. Each request has a landing for its hold, and one for its decode
leg unless the hold became the leg's booking in its place. On the way two things are checked that no
figure shows: that a leg without a landing of its own is where its hold was, and that no landing
adds more than the prompt's blocks.
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
    past = [line[kind + "_blocks"] - line[kind + "_limit"] for line, kind in landings(lines)]
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
        "landings_judged": len(past),
        "bookings_left": len(left),
    }


def landings(lines):
    """The landings on decode ranks that a class limit speaks of: the line, and which leg."""
    for line in lines:
        for kind in ("hold", "leg"):
            if line[kind + "_limit"] is not None:
                yield line, kind


def wrong_landings(lines, block):
    """What no landing may be."""
    for line, kind in landings(lines):
        if line[kind + "_added"] > -(-line["isl"] // block):
            yield f"request {line['request']}: its {kind} added more than its prompt"
    for line in lines:
        held = (line["hold_worker"], line["hold_dp_rank"])
        decodes = (line["decode_worker"], line["decode_dp_rank"])
        if line["hold_limit"] is not None and line["leg_limit"] is None:
            if decodes != (None, None) and decodes != held:
                yield f"request {line['request']}: decodes elsewhere than its hold, not judged"


def by_class(lines, name):
    here = [line for line in lines if line["class"] == name]
    spans = []
    for line in here:
        until = line["admitted_ns"] if line["admitted_ns"] is not None else line["end_ns"]
        if until is None or until > line["arrival_ns"]:
            spans.append((line["arrival_ns"], until if until is not None else float("inf")))
    count = most = 0
    for _, change in sorted([(s, 1) for s, _ in spans] + [(e, -1) for _, e in spans]):
        count += change
        most = max(most, count)
    waits = [line["admitted_ns"] - line["arrival_ns"] for line in here if line["admitted_ns"] is not None]
    return {
        "requests": len(here),
        "admitted": sum(line["admitted_ns"] is not None for line in here),
        "rejected": sum(line["outcome"] == "rejected" for line in here),
        "expired": sum(line["outcome"] == "expired" for line in here),
        "waited": len(spans),
        "most_waiting": most,
        "queue_wait_ms": percentiles(waits, ["p50", "p99"], MS),
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
        wrong += [f"{strategy}: {w}" for w in wrong_landings(lines, result["setting"]["trace_block"])]
        for place in (printed, result.get("compare", {})):
            if strategy not in place:
                continue
            wrong += [f"{strategy}: {d}" for d in differences(place[strategy], computed)]
            for told in place[strategy]["classes"]:
                name = told["class"]
                found = differences(told, by_class(lines, name), name)
                wrong += [f"{strategy}: {d}" for d in found]
    for what in wrong:
        print(what)
    if not wrong:
        print(f"{len(printed)} strategies, {result['requests']} requests: every figure agrees")
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2]))
