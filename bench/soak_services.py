"""Steps of bench/soak with commands that serve or show: their terminals close, their clients leave, they are killed.

Each step takes the soak, says what it finds, and gives exits as the soak's own steps do: (None, code, allowed codes).
"""
import os
import pty
import signal
import socket
import struct
import subprocess
import threading
import time

OK, INTERRUPTED = 0, 130
# What a person takes for at once, on a machine that does other things.
SOON_S = 10
PEER, HOST, ECHO = "10.79.0.2", "10.79.0.1", 7
SHOWS = [["watch"], ["watch", "--format=lines", "--interval=100ms"], ["watch", "--soak", "--interval=100ms"], ["trace", "-i", "lo", "--interval", "100ms"],
         ["stat", "--pid", "1"]]


def close_terminal(soak):
    """The window is closed: nobody sends a signal, since no process of it leads the terminal's session."""
    controller, terminal = pty.openpty()
    arguments = soak.random.choice(SHOWS)
    process = subprocess.Popen([soak.binary, *arguments], cwd=soak.folder, stdin=terminal, stdout=terminal,
                               stderr=terminal, start_new_session=True)
    os.close(terminal)
    reading = threading.Thread(target=read_for, args=(controller, soak.random.random()))
    reading.start()
    reading.join()
    os.close(controller)
    # Before it looks at its terminal a write fails, as into a closed pipe.
    return [(None, ends(soak, process, f"closed terminal: {' '.join(arguments)}"), {OK, 1, INTERRUPTED})]


def read_for(controller, seconds):
    os.set_blocking(controller, False)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            os.read(controller, 65536)
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:
            return  # It has ended already.


def clients_leave(soak):
    """Clients send to an echo, do not read, and leave: the next one is served."""
    process = soak.start(["peer", "--tun", "tcp9", "--local", f"{PEER}/24", "--host-address", f"{HOST}/24",
                          "--service=echo", "--listen", str(ECHO)])
    deaf = [client for _ in range(soak.random.randint(1, 20)) if (client := connected(process, (PEER, ECHO)))]
    for client in deaf:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        send_until_full(client)
    for client in deaf:
        if soak.random.random() < 0.5:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    client = connected(process, (PEER, ECHO))
    if client is None or not echoes(client):
        soak.say("clients leave: the next one is not served")
    process.send_signal(soak.random.choice([signal.SIGINT, signal.SIGTERM]))
    return [(None, ends(soak, process, "clients leave"), {OK, INTERRUPTED})]


def connected(process, address):
    """A connection to a process, as soon as it listens there: a pair of IPv4, or a path."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    end = time.monotonic() + SOON_S
    while time.monotonic() < end and process.poll() is None:
        client = socket.socket(family)
        client.settimeout(SOON_S)
        try:
            client.connect(address)
            return client
        except OSError:
            client.close()
            time.sleep(0.02)
    return None


def send_until_full(client):
    client.settimeout(0.2)
    try:
        while True:
            client.send(bytes(65536))
    except OSError:
        pass


def echoes(client):
    """Sends a little and reads it back."""
    with client:
        client.settimeout(SOON_S)
        try:
            client.sendall(b"tcpcost")
            return client.recv(7, socket.MSG_WAITALL) == b"tcpcost"
        except OSError:
            return False


def kill_relay(soak):
    """A relay is killed in the middle of transfers; the next one takes its socket over, and leaves nothing behind."""
    server = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=echo_all, args=(server,), daemon=True).start()
    path = os.path.join(soak.folder, "relay.sock")
    arguments = ["relay", "--listen", f"unix:{path}", "--to", f"127.0.0.1:{server.getsockname()[1]}",
                 "--mode", soak.random.choice(["auto", "splice", "copy", "io-uring"])]
    for kills in (True, False):
        process = soak.start(arguments)
        clients = [client for _ in range(soak.random.randint(1, 20)) if (client := connected(process, path))]
        if not clients or not echoes(clients.pop()):
            soak.say(f"relay: a client is not served: {arguments}")
        for client in clients:
            send_until_full(client)
        process.send_signal(signal.SIGKILL if kills else signal.SIGTERM)
        if not kills:
            # What is open may end by itself; the second one does not wait for that. Two of one kind might become one.
            process.send_signal(signal.SIGINT)
        code = ends(soak, process, "relay")
        for client in clients:
            client.close()
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    if os.path.lexists(path):
        soak.say("relay: its socket is left")
    return [(None, code, {OK, INTERRUPTED})]


def echo_all(server):
    """An echo for each connection, until the listener closes."""
    def echo(client):
        with client:
            try:
                while data := client.recv(65536):
                    client.sendall(data)
            except OSError:
                pass
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=echo, args=(client,), daemon=True).start()


def ends(soak, process, what):
    """The exit code; says so if it does not end."""
    try:
        return process.wait(SOON_S)
    except subprocess.TimeoutExpired:
        soak.say(f"{what}: goes on after {SOON_S} s")
        process.kill()
        return process.wait()


STEPS = [close_terminal, clients_leave, kill_relay]
