#!/usr/bin/env python3
"""ledger.py DIR...: docs/ledger.md and docs/ledger.svg of runs of cost-of-tcp, one for each kernel."""
import collections
import html
import json
import re
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
        kernel = next(iter(record["machines"].values()))["kernel"]
        cells[record["cell"]][record["repetition"]] = (cost(record), counts(record))
    return kernel, cells


def of_cell(name):
    def price(snapshot):
        return snapshot[name][0]

    price.cell = name
    return price


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


def other_regimes(runs):
    """Prices, by name and index of the kernel, whose cell does otherwise than in the first kernel: 2 % more or fewer ACKs or skbs."""
    marked = set()
    for name, rule in PRICES:
        cell = getattr(rule, "cell", None)
        if cell is None:
            continue
        did = [[statistics.mean(one[1][key] for one in of[cell].values()) for key in ("ACKs", "skbs")] for _, of in runs]
        for index, each in enumerate(did):
            # An ACK in a hundred transactions is no regime.
            if any(abs(now - first) > 0.02 * first and abs(now - first) > 0.001 for now, first in zip(each, did[0])):
                marked.add((name, index))
    return marked


# Student's quantile at 97.5 % by degrees of freedom.
QUANTILE = [None, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26]


def half(values):
    """Half the 95 % interval of the mean. None for one value."""
    if len(values) < 2:
        return None
    quantile = QUANTILE[min(len(values) - 1, len(QUANTILE) - 1)]
    return quantile * statistics.stdev(values) / len(values) ** 0.5


def number(value):
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.1f}"


def change(first, last):
    if not first or not last:
        return "–"
    return f"{(statistics.mean(last) / statistics.mean(first) - 1) * 100:+.1f} %"


def short(kernel):
    """`5.10.223` of `5.10.0-32-cloud-amd64 #1 SMP Debian 5.10.223-1 …`: a release that Debian names by its ABI has its version after that."""
    named = re.search(r"Debian ([0-9.]+)", kernel)
    return named.group(1) if named else re.split("[-+ ]", kernel)[0]


def markdown(kernels, rows, marked):
    names = [short(kernel) for kernel in kernels]
    lines = ["| one more of | " + " | ".join(names) + " | ± | change |", "|---" * (len(names) + 3) + "|"]
    for name, *each in rows:
        star = ["\\*" if (name, index) in marked else "" for index in range(len(each))]
        means = [number(statistics.mean(values)) + mark if values else "–" for values, mark in zip(each, star)]
        widest = max((half(values) or 0 for values in each if values), default=0)
        lines.append(f"| {name} | " + " | ".join(means) + f" | {number(widest)} | {change(each[0], each[-1])} |")
    return "\n".join(lines)


MEMORY = "copying, clearing, setting memory"
# Groups of functions by their names; the first that fits.
GROUPS = [
    ("application and library", r"\[user\]"),
    (MEMORY, r"copy_user|copy_mc|clear_(high)?page|mem(set|cpy|move)|rep_movs|_copy_(to|from)_iter|csum"),
    ("TCP", r"tcp|inet_(csk|ehash|sk|hash|bind|twsk)|__inet_|reqsk|bictcp|cubictcp"),
    ("skbs and memory", r"skb|slab|kmem|kmalloc|kfree|page|mem(cg|_cgroup)|folio|rmqueue|zone|pcp"),
    ("IP and netfilter", r"^_*(ip|ipv4|inet|nf|fib|dst|rt|raw_local|icmp)_|nf_"),
    ("device and softirq", r"veth|netif|dev_|net_rx|backlog|softirq|napi|xmit|qdisc|eth_|rps|gro"),
    ("sockets and system calls", r"sock|sys|vfs|fget|fdget|fput|ep_|epoll|security|apparmor|entry|exit|ksys|file|rw_verify|import"),
    ("scheduler, timers, locks, RCU", r"sched|timer|time|rcu|lock|wake|task|rq|cfs|rt_|fair|irq|tick|mutex|switch|pick_next|idle|preempt"),
    ("meters (eBPF)", r"bpf|trace|perf"),
]
REST = "the rest"
# Cells by which releases are told apart, with their unit.
HEADLINES = [(BULK, "KiB in bulk, TSO"), ("rr, 1 B", "transaction of 1 B"), ("crr, 1 B", "connection with a transaction")]


def group(function):
    return next((name for name, pattern in GROUPS if re.search(pattern, function)), REST)


def told_as(function):
    """Name over releases. 6.10 added `_noprof`, and functions that move memory have had many names, so they are one."""
    if group(function) == MEMORY:
        return MEMORY
    return f"`{re.sub(r'_noprof$', '', function)}`"


def functions(folder, cell):
    """Mean over snapshots of each function's instructions; empty if they were not counted."""
    try:
        trials = json.load(open(f"{folder}/functions.json"))["cells"].get(cell, [])
    except FileNotFoundError:
        return {}
    sums = collections.Counter()
    for trial in trials:
        for name, count in trial["functions"].items():
            sums[name] += count / len(trials)
    return sums


def by_group(kernels, folders):
    """For each headline cell: the groups over kernels, then what each release changed and by which functions."""
    out = []
    for cell, what in HEADLINES:
        each = [functions(folder, cell) for folder in folders]
        groups = [collections.Counter() for _ in each]
        for of, sums in zip(each, groups):
            for name, count in of.items():
                sums[group(name)] += count
        out.append(f"\nA {what}, by group of functions:\n")
        out.append("| group | " + " | ".join(short(kernel) for kernel in kernels) + " |\n" + "|---" * (len(kernels) + 1) + "|")
        for name in [name for name, _ in GROUPS] + [REST]:
            row = [number(sums[name]) if sums else "–" for sums in groups]
            out.append(f"| {name} | " + " | ".join(row) + " |")
        totals = [number(sum(sums.values())) if sums else "–" for sums in groups]
        out.append("| sum | " + " | ".join(totals) + " |")
        out.append("")
        for before, after, old, new in zip(each, each[1:], kernels, kernels[1:]):
            if not before or not after:
                continue
            moved = collections.Counter()
            for sums, sign in ((after, 1), (before, -1)):
                for name, count in sums.items():
                    moved[told_as(name)] += sign * count
            largest = sorted(moved.items(), key=lambda one: -abs(one[1]))[:5]
            total, first = sum(moved.values()), sum(before.values())
            told = ", ".join(f"{name} {count:+,.1f}" for name, count in largest)
            out.append(f"- {short(old)} to {short(new)}: {total:+,.1f} ({total / first * 100:+.1f} %): {told}.")
    return "\n".join(out)


def did(runs):
    """ACKs, skbs with data and switches of each cell."""
    lines = ["| cell | " + " | ".join(short(kernel) for kernel, _ in runs) + " |", "|---" * (len(runs) + 1) + "|"]
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
    """A panel for each price: its change since the first kernel in percent, with the 95 % interval of each kernel's mean."""
    columns, wide, high, left, top = 3, 300, 130, 44, 46
    names = [short(kernel) for kernel in kernels]
    rows = [row for row in rows if row[1]]
    out = []
    for index, (name, *each) in enumerate(rows):
        x0, y0 = (index % columns) * (wide + 16) + 8, (index // columns) * (high + 74) + 8
        first = statistics.mean(each[0])
        percent = [(statistics.mean(of) / first - 1) * 100 if of else None for of in each]
        errors = [(half(of) or 0) / first * 100 if of else 0 for of in each]
        known = [(value, error) for value, error in zip(percent, errors) if value is not None]
        low = min(-1.0, min(value - error for value, error in known))
        most = max(1.0, max(value + error for value, error in known))
        at_x = lambda at: x0 + left + at * (wide - left - 20) / max(1, len(names) - 1)
        at_y = lambda value: y0 + top + (most - value) * high / (most - low)
        out.append(f'<text x="{x0}" y="{y0 + 14}" font-weight="bold">{html.escape(name.split(" (")[0])}</text>')
        last = [of for of in each if of][-1]
        out.append(f'<text x="{x0}" y="{y0 + 29}" fill="#666">{number(first)} to {number(statistics.mean(last))} instructions</text>')
        for value in [0] + [value for value in (low, most) if abs(at_y(value) - at_y(0)) > 12]:
            out.append(f'<text x="{x0 + left - 6}" y="{at_y(value) + 4:.1f}" text-anchor="end" fill="#666">{value:+.0f} %</text>')
        out.append(f'<line x1="{x0 + left}" x2="{x0 + wide - 12}" y1="{at_y(0):.1f}" y2="{at_y(0):.1f}" stroke="#bbb"/>')
        points = " ".join(f"{at_x(at):.1f},{at_y(value):.1f}" for at, value in enumerate(percent) if value is not None)
        out.append(f'<polyline points="{points}" fill="none" stroke="#4c78a8" stroke-width="2"/>')
        for at, (value, error) in enumerate(zip(percent, errors)):
            if value is not None:
                x = at_x(at)
                out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{at_y(value + error):.1f}" y2="{at_y(value - error):.1f}" stroke="#e45756" stroke-width="2"/>')
                out.append(f'<circle cx="{x:.1f}" cy="{at_y(value):.1f}" r="3" fill="#4c78a8"/>')
            label = ".".join(names[at].split(".")[:2])
            out.append(f'<text x="{at_x(at):.1f}" y="{y0 + top + high + 16}" text-anchor="middle" fill="#666">{label}</text>')
    width, height = columns * (wide + 16) + 8, -(-len(rows) // columns) * (high + 74) + 8
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="11">'
        f'<rect width="100%" height="100%" fill="white"/>{"".join(out)}</svg>\n'
    )


TEXT = """# Ledger: what TCP costs in instructions, kernel by kernel

{answer}

![change of each price since the first kernel](ledger.svg)

Each panel is a price in percent of the first kernel's; the red bar is the 95 % interval of the mean, often narrower than the dot.

{table}

Remade by `bench/ledger` from runs of `cost-of-tcp` in guests whose clock counts instructions ([kernels.md](kernels.md)). Instructions
are not time: no caches, no memory latency, one CPU, both ends together; a copied byte is an eighth of an instruction. Numbers are means of
{snapshots} snapshots; \\* marks a kernel that does otherwise than the first in this cell (see Regimes), so that the work differs, too; ± is half the 95 % interval, the widest of the row; a price is the difference of two cells by the count in which they
differ, snapshot by snapshot; `change` is the last kernel's against the first's. Kernels are Debian's for clouds: {kernels}.

## Which functions

The sums include instructions that copy, clear or set memory, the prices above do not. A renamed function counts as one that went and one that came.
{groups}

## Regimes

What the same cell did in each kernel, per MiB or per transaction: where these differ, columns are of two regimes, and `tcpcost kernels`
gives no verdict on the cells.

{regimes}
"""


def answer(kernels, rows, marked):
    """The prices that changed, without those of other work."""
    last = len(kernels) - 1
    def share(row):
        return statistics.mean(row[-1]) / statistics.mean(row[1]) - 1

    is_same = lambda row: (row[0], last) not in marked and "not to be compared" not in row[0]
    known = sorted((row for row in rows if row[1] and row[-1] and is_same(row)), key=share)
    told = lambda some: "; ".join(f"{row[0]} {share(row) * 100:+.1f} %" for row in some)
    return (
        f"From Linux {short(kernels[0])} to {short(kernels[-1])}, cheapest first, became cheaper: {told([row for row in known if share(row) < 0]) or 'nothing'}. "
        f"Dearer: {told([row for row in reversed(known) if share(row) >= 0]) or 'nothing'}."
    )


def main():
    folders = sys.argv[1:]
    runs = [load(folder) for folder in folders]
    kernels = [kernel for kernel, _ in runs]
    rows, marked = table(runs), other_regimes(runs)
    snapshots = min(len(of) for _, cells in runs for of in cells.values())
    with open("docs/ledger.md", "w") as out:
        out.write(
            TEXT.format(
                answer=answer(kernels, rows, marked),
                snapshots=snapshots,
                table=markdown(kernels, rows, marked),
                kernels=", ".join(kernel.split()[0] for kernel in kernels),
                groups=by_group(kernels, folders),
                regimes=did(runs),
            )
        )
    with open("docs/ledger.svg", "w") as out:
        out.write(picture(kernels, rows))


main()
