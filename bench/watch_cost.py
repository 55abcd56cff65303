#!/usr/bin/env python3
"""CPU time of `tcpcost watch` beside many sockets and greedy scrapers: watch_cost.py TCPCOST, as root.

In a network namespace of its own: 20,000 sockets of loopback connections, to which 200 new ones come and go all the time, and
`watch --by process`; then `watch --metrics` with four clients that scrape as fast as they are answered.
"""
import http.client
import os
import resource
import socket
import subprocess
import sys
import threading
import time

SECONDS = 8


def cpu(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(arguments, work):
    process = subprocess.Popen([sys.argv[1], "watch", "--interval=1s", "--format=lines", *arguments],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(1)
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


if "--inside" not in sys.argv:
    os.execvp("unshare", ["unshare", "-n", sys.executable, *sys.argv, "--inside"])
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
print("4 scrapers:    ", measured(["--metrics", "9464"], scrape))
listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
kept = sockets(listener, 19_600)
print("20,000 sockets:", measured(["--by", "process", "--top", "5"], churn(listener)))
