#!/usr/bin/env python3
"""Tables of bench/exact-instructions and bench/ledger, of the records of runs with --guest."""
import collections
import json
import random
import statistics
import sys


def cost(record, with_memory=False):
    """Instructions per KiB or per transaction of a trial: those that the emulator counted, else all contexts of the meter exact but
    idle, spinners and others; without those that move memory where they are known."""
    by_clock = by_emulator = memory = work = 0
    has_transactions = record["knobs"].get("workload") in ("rr", "crr")
    for host in record["hosts"].values():
        for reading in host["readings"]:
            counts = reading["counts"]
            # A record has the sum over CPUs, too.
            if reading["meter"] == "exact" and "cpu" in reading["whose"]:
                left_out = ("exact_idle_ns", "exact_soaker_ns", "exact_task_others_ns")
                by_clock += sum(n for name, n in counts.items() if name.startswith("exact_") and name not in left_out)
            if reading["meter"] == "emulator":
                by_emulator += counts["instructions"]
                memory += counts["memory_instructions"]
            if reading["meter"] == "workload" and "group" not in str(reading["whose"]):
                key = "transactions" if has_transactions else "payload_bytes_received"
                work += counts.get(key, 0)
    total = (by_emulator or by_clock) - (0 if with_memory else memory)
    return total / (work if has_transactions else work / 1024)


def regime(record):
    """ACKs, IP packets (skbs) and switches of both hosts, per MiB or per transaction."""
    acks = switches = packets = work = 0
    has_transactions = record["knobs"].get("workload") in ("rr", "crr")
    for host in record["hosts"].values():
        for reading in host["readings"]:
            counts = reading["counts"]
            if reading["meter"] == "tcp_info":
                acks += counts["conn_segments_sent"] - counts["conn_data_segments_sent"]
            if reading["meter"] == "netstat":
                packets += counts["ip_packets_sent"]
            if reading["meter"] == "rusage":
                switches += counts["voluntary_switches"] + counts["involuntary_switches"]
            if reading["meter"] == "workload" and "group" not in str(reading["whose"]):
                key = "transactions" if has_transactions else "payload_bytes_received"
                work += counts.get(key, 0)
    work = work if has_transactions else work / (1 << 20)
    return f"{acks / work:.2f} ACKs, {packets / work:.2f} packets, {switches / work:.2f} switches"


REGIMES = collections.defaultdict(list)
WHOLE = collections.defaultdict(dict)


def load(folder):
    """Costs by cell, snapshot by snapshot."""
    cells = collections.defaultdict(dict)
    for line in open(f"{folder}/records.jsonl"):
        record = json.loads(line)
        if record["outcome"] == "measured":
            cells[record["cell"]][record["repetition"]] = cost(record)
            REGIMES[record["cell"]].append(regime(record))
            WHOLE[record["cell"]][record["repetition"]] = cost(record, with_memory=True)
        else:
            print(f"{record['cell']}: {record.get('reason')}", file=sys.stderr)
    return {name: [snapshots[k] for k in sorted(snapshots)] for name, snapshots in cells.items()}


# Student's t for 95 % at 4 degrees of freedom, and the report's least spread between snapshots (derive/cell.rs), by cell.
T95_OF_4 = 2.776
LEAST = {"stream": 2e-4}
LEAST_OF_TRANSACTIONS = 1.6e-4


def interval(name, first, second):
    """The report's 95 % interval of the ratio of the means of three snapshots each."""
    ratio = statistics.mean(second) / statistics.mean(first)
    relative = [statistics.variance(each) / statistics.mean(each) ** 2 for each in (first, second)]
    deviation = max(statistics.mean(relative) ** 0.5, LEAST.get(name, LEAST_OF_TRANSACTIONS)) * ratio
    half = T95_OF_4 * deviation * (2 / 3) ** 0.5
    return ratio - half, ratio, ratio + half


def aa(folder, pairs=100):
    """How many of random pairs of three snapshots each, of one kernel, seem to differ."""
    for name, snapshots in load(folder).items():
        mean = statistics.mean(snapshots)
        chance = random.Random(1)
        drawn = [chance.sample(snapshots, 6) for _ in range(pairs)]
        intervals = [interval(name, six[:3], six[3:]) for six in drawn]
        false = [each for each in intervals if each[0] > 1 or each[2] < 1]
        half = statistics.median(each[2] - each[1] for each in intervals)
        found = {}
        for effect in (0.05, 0.1, 0.2, 0.5):
            with_it = [interval(name, six[:3], [value * (1 + effect / 100) for value in six[3:]]) for six in drawn]
            found[effect] = sum(each[0] > 1 for each in with_it)
        print(
            f"{name}: {len(snapshots)} snapshots, mean {mean:.2f}, sd {statistics.stdev(snapshots) / mean * 100:.4f} %; of {pairs} pairs "
            f"of three snapshots {len(false)} seem to differ, median half-width {half * 100:.3f} %; with an effect added, found: "
            + ", ".join(f"{effect} % {count}" for effect, count in found.items())
            + f"; {len(set(REGIMES[name]))} regimes"
        )


def effects(folder):
    """A table: what a cell costs against its base, snapshot by snapshot, with and without what moves memory."""
    cells = load(folder)
    print("| cell | instructions | sd of the snapshots | change | with copies and clears | per MiB or transaction |")
    print("|---|---|---|---|---|---|")
    for name, snapshots in sorted(cells.items()):
        base = "rr" if name.startswith("rr") else "stream"
        if name.endswith("TSO off, GRO on"):
            base = "stream, TSO off"
        elif name.endswith("GRO on"):
            base = "stream, GRO off"
        elif "visited" in name:
            base = "stream, visited"
        mean = statistics.mean(snapshots)
        spread = statistics.stdev(snapshots) / mean * 100 if len(snapshots) > 1 else 0
        ratios = [statistics.mean(snapshots) / statistics.mean(cells[base])]
        ratios.append(statistics.mean(WHOLE[name].values()) / statistics.mean(WHOLE[base].values()))
        change = [f"{(ratio - 1) * 100:+.2f} %" if ratio < 2 else f"x{ratio:.2f}" for ratio in ratios]
        print(f"| {name} | {mean:,.1f} | {spread:.3f} % | {change[0]} | {change[1]} | {REGIMES[name][0]} |")
    acks = "stream, an ACK for each segment"
    if acks in cells:
        more = statistics.mean(cells[acks]) - statistics.mean(cells["stream, TSO off"])
        counts = [float(REGIMES[name][0].split()[0]) for name in (acks, "stream, TSO off")]
        print(f"\nAn ACK: {more * 1024 / (counts[0] - counts[1]):,.0f} instructions of both ends.")


if __name__ == "__main__":
    {"aa": aa, "effects": effects}[sys.argv[1]](*sys.argv[2:])
