#!/usr/bin/env python3
"""What `tcpcost watch` costs: watch_cost.py TCPCOST [--pairs N], as root.

In a network namespace of its own, first what it costs the traffic that it watches: rates of requests and of a bulk stream that go on
all the time, with `watch --by process` over those just before and after it, N times (12): their median [95 % interval of the median].

Then its own CPU time: `watch --metrics` with four clients that scrape as fast as they are answered; `watch --by process`, and `watch`
on a terminal, beside 20,000 sockets of loopback connections, to which 200 new ones come and go all the time.
"""
import argparse
import contextlib
import fcntl
import http.client
import os
import resource
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

SECONDS = 8
RATE_SECONDS = 2


def cpu(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def watching(*arguments, **streams):
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} | streams
    process = subprocess.Popen([args.tcpcost, "watch", "--interval=1s", *arguments], **streams)
    time.sleep(1)
    if process.poll() is not None:
        sys.exit(f"watch_cost: watch {' '.join(arguments)} ended at once with exit code {process.returncode}")
    return process


def terminal():
    """A terminal of 50 lines and 160 columns that somebody reads."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))

    def read():
        try:
            while os.read(ours, 1 << 16):
                pass
        except OSError:
            pass
    threading.Thread(target=read, daemon=True).start()
    return {"stdin": theirs, "stdout": theirs, "env": os.environ | {"TERM": "xterm-256color"}}


def segments():
    """Received by this network namespace."""
    with open("/proc/net/snmp") as file:
        names, values = [line.split() for line in file if line.startswith("Tcp:")]
    return int(values[names.index("InSegs")])


def octets():
    """Received by this network namespace."""
    with open("/proc/net/netstat") as file:
        names, values = [line.split() for line in file if line.startswith("IpExt:")]
    return int(values[names.index("InOctets")])


# Two segments come in for a transaction: a request and a response, which carry the ACKs.
WORKLOADS = {"200 flows, 1 B / 1 B": ({"workload": "rr", "flows": 200}, segments),
             "one bulk flow": ({"workload": "stream", "flows": 1}, octets)}


def rate(count):
    before, started = count(), time.time()
    time.sleep(RATE_SECONDS)
    return (count() - before) / (time.time() - started)


@contextlib.contextmanager
def traffic(knobs):
    """A load that goes on until the end of the block."""
    with tempfile.TemporaryDirectory() as folder:
        study = os.path.join(folder, "study.toml")
        with open(study, "w") as file:
            file.write('[measure]\nrepetitions = 1\nretries = 0\nwarm_up = "200ms"\nduration = "3600s"\nmeters = ["rusage"]\n')
        setting = [f"--set={name}={value}" for name, value in ({"bed": "loopback"} | knobs).items()]
        process = subprocess.Popen([args.tcpcost, "run", study, "--quiet", "--out", os.path.join(folder, "out"), *setting],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(3)
            if process.poll() is not None:
                sys.exit(f"watch_cost: run ended at once with exit code {process.returncode}")
            yield
        finally:
            process.terminate()
            process.wait()


def median(values):
    """With the 95 % interval of the median, by order; fewer than six values have none."""
    values, n = sorted(values), len(values)
    if n < 6:
        return f"{statistics.median(values):.3f}, smallest {values[0]:.3f}, largest {values[-1]:.3f}, n={n}"
    edge = max(int((n - 1.96 * n ** 0.5) / 2), 0)
    return f"{statistics.median(values):.3f} [{values[edge]:.3f}, {values[n - 1 - edge]:.3f}], n={n}"


def beside_traffic(knobs, count):
    """Each rate with watch over the mean of those before and after it: the CPUs are as far apart in all three."""
    ratios = []
    with traffic(knobs):
        before = rate(count)
        for _ in range(args.pairs):
            process = watching("--format=lines", "--by", "process")
            try:
                time.sleep(1)  # Until the programs run in windows.
                with_it = rate(count)
            finally:
                process.terminate()
                process.wait()
            after = rate(count)
            ratios.append(with_it * 2 / (before + after))
            before = after
    return median(ratios)


def measured(arguments, work, **streams):
    process = watching(*arguments, **streams)
    before, started = cpu(process.pid), time.time()
    result = work(started + SECONDS)
    spent = cpu(process.pid) - before
    process.terminate()
    process.wait()
    return f"{spent:.2f} s of CPU in {time.time() - started:.1f} s; {result}"


def sockets(listener, count):
    pairs = []
    for _ in range(count // 2):
        client = socket.create_connection(listener.getsockname())
        pairs.append((client, listener.accept()[0]))
    return pairs


def churn(listener):
    def work(until):
        made = 0
        while time.time() < until:
            pairs = sockets(listener, 20)
            made += len(pairs) * 2
            time.sleep(0.1)
            for pair in pairs:
                for one in pair:
                    one.close()
        return f"{made} sockets came and went"
    return work


def scrape(until):
    counts = [0] * 4

    def client(number):
        while time.time() < until:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", 9464, timeout=20)
                while time.time() < until:
                    connection.request("GET", "/metrics")
                    connection.getresponse().read()
                    counts[number] += 1
            except OSError:
                pass
    threads = [threading.Thread(target=client, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return f"{sum(counts)} scrapes"


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("tcpcost")
parser.add_argument("--pairs", type=int, default=12)
parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
args = parser.parse_args()
if not args.inside:
    os.execvp("unshare", ["unshare", "-n", sys.executable, *sys.argv, "--inside"])
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
with open("/proc/sys/net/ipv4/tcp_congestion_control", "w") as file:
    file.write("reno")
for name, (knobs, count) in WORKLOADS.items():
    print(f"{name}, rate with watch over that without: {beside_traffic(knobs, count)}", flush=True)
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
print("4 scrapers:    ", measured(["--format=lines", "--metrics", "9464"], scrape), flush=True)
listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
kept = sockets(listener, 19_600)
print("20,000 sockets:", measured(["--format=lines", "--by", "process", "--top", "5"], churn(listener)), flush=True)
print("the same, on a terminal:", measured([], churn(listener), **terminal()), flush=True)
