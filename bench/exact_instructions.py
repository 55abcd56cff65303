#!/usr/bin/env python3
"""Tables of bench/exact-instructions and bench/ledger, of the records of runs with --guest."""
import collections
import itertools
import json
import statistics
import sys


def cost(record, with_memory=False):
    """Instructions per KiB or per transaction of a trial: all contexts of the meter exact but idle, spinners and others, without
    those that move memory where they are known."""
    total = work = 0
    has_transactions = record["knobs"].get("workload") in ("rr", "crr")
    for host in record["hosts"].values():
        for reading in host["readings"]:
            counts = reading["counts"]
            # A record has the sum over CPUs, too.
            if reading["meter"] == "exact" and "cpu" in reading["whose"]:
                left_out = ("exact_idle_ns", "exact_soaker_ns", "exact_task_others_ns")
                total += sum(n for name, n in counts.items() if name.startswith("exact_") and name not in left_out)
            if reading["meter"] == "emulator" and not with_memory:
                total -= counts["memory_instructions"]
            if reading["meter"] == "workload" and "group" not in str(reading["whose"]):
                key = "transactions" if has_transactions else "payload_bytes_received"
                work += counts.get(key, 0)
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
    """Costs by cell, boot by boot."""
    cells = collections.defaultdict(dict)
    for line in open(f"{folder}/records.jsonl"):
        record = json.loads(line)
        if record["outcome"] == "measured":
            cells[record["cell"]][record["repetition"]] = cost(record)
            REGIMES[record["cell"]].append(regime(record))
            WHOLE[record["cell"]][record["repetition"]] = cost(record, with_memory=True)
        else:
            print(f"{record['cell']}: {record.get('reason')}", file=sys.stderr)
    return {name: [boots[k] for k in sorted(boots)] for name, boots in cells.items()}


def ranks(first, second):
    """The 95 % interval of the ratio of two samples by the report's own ranks (Hodges and Lehmann; four each: all of them)."""
    ratios = sorted(b / a for a in first for b in second)
    n, m = len(first), len(second)
    below = n * m / 2 - 1.96 * (n * m * (n + m + 1) / 12) ** 0.5 - 0.5
    k = max(int(below // 1), 0)
    return ratios[k], statistics.median(ratios), ratios[-1 - k]


def aa(folder):
    for name, boots in load(folder).items():
        mean = statistics.mean(boots)
        groups = [boots[i : i + 4] for i in range(0, len(boots) - 3, 4)]
        pairs = list(itertools.combinations(groups, 2))
        intervals = [ranks(a, b) for a, b in pairs]
        false = [i for i in intervals if i[0] > 1 or i[2] < 1]
        matter = [i for i in intervals if i[0] > 1.001 or i[2] < 0.999]
        print(
            f"{name}: {len(boots)} boots, mean {mean:.2f}, sd {statistics.stdev(boots) / mean * 100:.4f} %, range "
            f"{(max(boots) - min(boots)) / mean * 100:.4f} %; of {len(pairs)} pairs of four boots {len(false)} intervals leave out 0, "
            f"{len(matter)} are 0.1 % away from it; {len(set(REGIMES[name]))} regimes"
        )


def effects(folder):
    """A table: what a cell costs against its base, boot by boot, with and without what moves memory."""
    cells = load(folder)
    print("| cell | instructions | sd of the boots | change | with copies and clears | per MiB or transaction |")
    print("|---|---|---|---|---|---|")
    for name, boots in sorted(cells.items()):
        base = "rr" if name.startswith("rr") else "stream"
        if name.endswith("TSO off, GRO on"):
            base = "stream, TSO off"
        elif name.endswith("GRO on"):
            base = "stream, GRO off"
        elif "visited" in name:
            base = "stream, visited"
        mean = statistics.mean(boots)
        spread = statistics.stdev(boots) / mean * 100 if len(boots) > 1 else 0
        ratios = [statistics.mean(boots) / statistics.mean(cells[base])]
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
