"""Ports for the daemons of others: a broker, a cluster."""
import itertools
import random
import socket

# Below those that the kernel gives to clients, and above those that the servers of tests take (tests/e2e/conftest.py):
# what was free stays free until a daemon listens there, and when it is started again.
PORTS = range(20000, 32000)
ports = itertools.cycle(random.sample(PORTS, len(PORTS)))


def free_port():
    for port in ports:
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass
