#!/usr/bin/env python3
"""ledger.py DIR...: docs/ledger.md and docs/ledger.svg of runs of cost-of-tcp, one for each kernel."""
import collections
import html
import json
import statistics
import sys

from exact_instructions import cost


def counts(record):
    """Sums over hosts of what a price is per, per KiB or per transaction."""
    sums = collections.Counter()
    for host in record["hosts"].values():
        for reading in host["readings"]:
            if "group" in str(reading["whose"]):
                continue
            for name, count in reading["counts"].items():
                sums[reading["meter"], name] += count
    work = sums["workload", "transactions"] or sums["workload", "payload_bytes_received"] / 1024
    # Segments without payload that were sent, at both ends.
    acks = sums["tcp_info", "conn_segments_sent"] - sums["tcp_info", "conn_data_segments_sent"]
    switches = sums["rusage", "voluntary_switches"] + sums["rusage", "involuntary_switches"]
    return {
        "ACKs": acks / work,
        "skbs": (sums["netstat", "ip_packets_sent"] - acks) / work,
        "writes": sums["workload", "send_calls"] / work,
        "switches": switches / work,
    }


def load(folder):
    cells = collections.defaultdict(dict)
    kernel = None
    for line in open(f"{folder}/records.jsonl"):
        record = json.loads(line)
        if record["outcome"] != "measured":
            print(f"{folder}: {record['cell']}: {record.get('reason')}", file=sys.stderr)
            continue
        kernel = next(iter(record["machines"].values()))["kernel"].split()[0]
        cells[record["cell"]][record["repetition"]] = (cost(record), counts(record))
    return kernel, cells


def of_cell(name):
    return lambda snapshot: snapshot[name][0]


def by(first, second, count):
    """What one more of a count costs: the second cell against the first."""

    def price(snapshot):
        (low, low_counts), (high, high_counts) = snapshot[first], snapshot[second]
        return (high - low) / (high_counts[count] - low_counts[count])

    return price


BULK, ONE = "stream, TSO", "stream, 1 segment an skb"
PRICES = [
    ("a KiB in bulk, TSO", of_cell(BULK)),
    ("a KiB in bulk, sendfile (copies less: not to be compared)", of_cell("stream, sendfile")),
    ("a KiB in bulk, TSO off", of_cell("stream, TSO off")),
    ("a KiB in bulk, one skb a segment", of_cell(ONE)),
    ("a segment that software cuts (TSO off)", by(BULK, "stream, TSO off", "segments_on_the_wire")),
    ("an skb through both stacks", by("stream, 16 segments an skb", "stream, 4 segments an skb", "skbs")),
    ("an ACK", by(ONE, "an ACK for each read", "ACKs")),
    ("a system call that writes", by("writes of 4 KiB", "writes of 1 KiB", "writes")),
    ("a switch of two processes that wake each other", by("rr, 1 B", "rr, 1 B, two processes", "switches")),
    ("a transaction of 1 B", of_cell("rr, 1 B")),
    ("a transaction of 16 KiB", of_cell("rr, 16 KiB")),
    ("a connection, beside its transaction", lambda snapshot: snapshot["crr, 1 B"][0] - snapshot["rr, 1 B"][0]),
]
# A segment that is cut below TCP has an MSS of 1448 bytes.
MSS = 1448


def price(rule, snapshot):
    try:
        return rule(snapshot)
    except (KeyError, ZeroDivisionError):
        return None


def table(runs):
    rows = []
    for name, rule in PRICES:
        row = [name]
        for _, cells in runs:
            snapshots = sorted(set.intersection(*(set(of) for of in cells.values())))
            values = []
            for number in snapshots:
                snapshot = {}
                for cell, of in cells.items():
                    figure, counted = of[number]
                    counted = dict(counted)
                    counted["segments_on_the_wire"] = 1024 / MSS if cell == "stream, TSO off" else 0.0
                    snapshot[cell] = (figure, counted)
                values.append(price(rule, snapshot))
            values = [value for value in values if value is not None]
            row.append(values)
        rows.append(row)
    return rows


def show(values):
    if not values:
        return "–"
    middle = statistics.median(values)
    digits = 0 if middle >= 1000 else 1
    return f"{middle:,.{digits}f} [{min(values):,.{digits}f}, {max(values):,.{digits}f}]"


def change(first, last):
    if not first or not last:
        return "–"
    return f"{(statistics.median(last) / statistics.median(first) - 1) * 100:+.1f} %"


def markdown(kernels, rows, snapshots):
    head = "| one more of | " + " | ".join(kernels) + " | " + ("change |" if len(kernels) > 1 else "")
    lines = [head, "|---" * (len(kernels) + 1 + (len(kernels) > 1)) + "|"]
    for name, *each in rows:
        cells = [show(values) for values in each]
        if len(kernels) > 1:
            cells.append(change(each[0], each[-1]))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines), snapshots


def did(runs):
    """ACKs, skbs with data and switches of each cell."""
    lines = ["| cell | " + " | ".join(kernel for kernel, _ in runs) + " |", "|---" * (len(runs) + 1) + "|"]
    for name in runs[0][1]:
        cells = []
        for _, of in runs:
            counts = [snapshot[1] for snapshot in of[name].values()]
            unit = 1 if "rr" in name else 1024
            middle = {key: statistics.median(each[key] for each in counts) * unit for key in ("ACKs", "skbs", "switches")}
            two = "two processes" in name
            skbs = "" if two else f"{middle['skbs']:.2f} skbs, "
            cells.append(f"{middle['ACKs']:.2f} ACKs, {skbs}{middle['switches']:.2f} switches")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def picture(kernels, rows):
    """A bar for each kernel and price, of the first kernel's."""
    colours = ["#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2"]
    bar, gap, left, width = 12, 12, 330, 460
    scale = width / max([2.0] + [statistics.median(v) / statistics.median(each[0]) for _, *each in rows if each[0] for v in each if v])
    y, out = 40, []
    for name, *each in rows:
        if not each[0]:
            continue
        out.append(f'<text x="{left - 8}" y="{y + bar}" text-anchor="end">{html.escape(name)}</text>')
        for index, values in enumerate(each):
            if values:
                ratio = statistics.median(values) / statistics.median(each[0])
                out.append(f'<rect x="{left}" y="{y}" width="{ratio * scale:.1f}" height="{bar}" fill="{colours[index % 6]}"/>')
                out.append(f'<text x="{left + ratio * scale + 4:.1f}" y="{y + bar - 2}">{statistics.median(values):,.0f}</text>')
            y += bar + 2
        y += gap
    legend = "".join(
        f'<rect x="{left + 170 * i}" y="12" width="12" height="12" fill="{colours[i % 6]}"/><text x="{left + 170 * i + 16}" y="22">{html.escape(k)}</text>'
        for i, k in enumerate(kernels)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 90}" height="{y}" font-family="sans-serif" font-size="11">'
        f'<rect width="100%" height="100%" fill="white"/>{legend}{"".join(out)}</svg>\n'
    )


TEXT = """# Ledger: what TCP costs in instructions, kernel by kernel

Remade by `bench/ledger` from runs of `cost-of-tcp` in guests whose clock counts instructions (docs/kernels.md). Instructions are not
time: no caches, no memory latency, one CPU, both ends together; a copied byte is an eighth of an instruction. Numbers are medians of
{snapshots} snapshots with their range; a price is the difference of two cells by the count in which they differ, snapshot by snapshot. `change` is the
last kernel's against the first's.

{table}

![prices over kernels](ledger.svg)

Bars are of the first kernel's price; the numbers beside them are instructions.

What the same cell did in each kernel, per MiB or per transaction: where these differ, columns are of two regimes, and `tcpcost kernels`
gives no verdict on the cells.

{regimes}
"""


def main():
    runs = [load(folder) for folder in sys.argv[1:]]
    kernels = [kernel for kernel, _ in runs]
    rows = table(runs)
    snapshots = min(len(of) for _, cells in runs for of in cells.values())
    text, snapshots = markdown(kernels, rows, snapshots)
    with open("docs/ledger.md", "w") as out:
        out.write(TEXT.format(snapshots=snapshots, table=text, regimes=did(runs)))
    with open("docs/ledger.svg", "w") as out:
        out.write(picture(kernels, rows))


main()
