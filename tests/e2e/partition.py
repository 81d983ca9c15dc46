"""A wire between two nodes that can be cut in every shape: a TCP proxy on a thread of its own."""
import contextlib
import selectors
import socket
import threading

OPEN, CUT, SILENT, NO_REQUESTS, NO_REPLIES = "open", "cut", "silent", "no requests", "no replies"
SHAPES = (CUT, SILENT, NO_REQUESTS, NO_REPLIES)


class Wire:
    """Whoever connects to `port` speaks with `target`. CUT refuses and ends connections; SILENT swallows nothing and
    passes nothing on, either way; NO_REQUESTS and NO_REPLIES do so one way."""

    def __init__(self, target):
        self.target, self.shape = target, OPEN
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.pairs = []  # (who asks, who answers)
        self.lock = threading.Lock()
        self.ends, self.waker = socket.socketpair()
        self.stopping = False
        self.trap = None  # (word, how often it is to come, what is done then); it may be set and taken out at any time
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def set(self, shape):
        with self.lock:
            self.shape = shape
            if shape == CUT:
                for pair in self.pairs:
                    self.end(pair)
                self.pairs = []
        self.waker.send(b"x")

    @staticmethod
    def end(pair):
        for sock in pair:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def accept(self):
        client, _ = self.listener.accept()
        if self.shape == CUT:
            client.close()
            return
        try:
            server = socket.create_connection(("127.0.0.1", self.target), 5)
        except OSError:
            client.close()
            return
        for sock in (client, server):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.pairs.append((client, server))

    def passes(self, asks):
        return self.shape == OPEN or self.shape == (NO_REPLIES if asks else NO_REQUESTS)

    def look(self):
        """The sockets that may be read now, and where to."""
        routes = {}
        for pair in self.pairs:
            if self.passes(True):
                routes[pair[0]] = (pair[1], pair)
            if self.passes(False):
                routes[pair[1]] = (pair[0], pair)
        return routes

    def run(self):
        while not self.stopping:
            with self.lock:
                routes = self.look()
                selector = selectors.DefaultSelector()
                for sock in (self.ends, self.listener, *routes):
                    selector.register(sock, selectors.EVENT_READ)
            ready = [key.fileobj for key, _ in selector.select(1)]
            selector.close()
            with self.lock:
                for sock in ready:
                    if sock is self.ends:
                        sock.recv(4096)
                    elif sock is self.listener:
                        self.accept()
                    elif routes[sock][1] in self.pairs:
                        self.carry(sock, *routes[sock])

    def spring(self, data):
        """What is done when the word was asked for so often, before it is passed on."""
        trap = self.trap
        if trap and trap[0] in data:
            self.trap = (trap[0], trap[1] - 1, trap[2])
            if trap[1] == 1:
                self.trap = None
                trap[2]()

    def carry(self, sock, to, pair):
        try:
            data = sock.recv(1 << 16)
            if data:
                if sock is pair[0]:
                    self.spring(data)
                to.sendall(data)
                return
        except OSError:
            pass
        self.end(pair)
        self.pairs.remove(pair)

    def stop(self):
        self.stopping = True
        self.waker.send(b"x")
        self.thread.join()
        for pair in self.pairs:
            self.end(pair)
        for sock in (self.listener, self.ends, self.waker):
            sock.close()
