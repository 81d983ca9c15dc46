"""A server that speaks as S3 does, as far as the archive asks: PUT, GET, DELETE, list, each signed. It checks signatures
by itself, keeps objects in memory, and misbehaves as a test says."""
import contextlib
import hashlib
import hmac
import http.server
import threading
import urllib.parse
from xml.sax.saxutils import escape

KEY, SECRET, REGION = "AKIATEST", "a/secret+of/the=tests", "eu-test-1"


def hashed(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status, code, message="as the test says"):
        self.answer(status, f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode())

    def signature(self, path, query, body):
        """As the documents of AWS have it, of what has come."""
        fields = dict(part.strip().split("=", 1) for part in
                      self.headers["Authorization"].removeprefix("AWS4-HMAC-SHA256 ").split(","))
        key, day, region, service, end = fields["Credential"].split("/")
        names = fields["SignedHeaders"].split(";")
        if key != KEY or "host" not in names or self.headers["x-amz-content-sha256"] != hashlib.sha256(body).hexdigest():
            return None, fields["Signature"]
        request = "\n".join([self.command, path, query, *(f"{n}:{self.headers[n].strip()}" for n in names), "",
                             ";".join(names), self.headers["x-amz-content-sha256"]])
        text = "\n".join(["AWS4-HMAC-SHA256", self.headers["x-amz-date"], f"{day}/{region}/{service}/{end}",
                          hashlib.sha256(request.encode()).hexdigest()])
        signing = f"AWS4{SECRET}".encode()
        for word in (day, region, service, end):
            signing = hashed(signing, word)
        return hashed(signing, text).hex(), fields["Signature"]

    def serve(self):
        bucket = self.server.bucket
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        wanted, has = self.signature(path, query, body)
        if wanted != has:
            return self.refuse(403, "SignatureDoesNotMatch")
        name = urllib.parse.unquote(path).removeprefix("/bucket").removeprefix("/")
        with bucket.lock:
            bucket.requests.append((self.command, name))
            fault = bucket.due(self.command, name)
        return self.act(bucket, name, query, body, fault)

    def act(self, bucket, name, query, body, fault):
        if fault == "refuse":
            return self.refuse(503, "SlowDown")
        if fault == "skewed":
            return self.refuse(403, "RequestTimeTooSkewed")
        if fault == "full":
            return self.refuse(507, "QuotaExceeded")
        if fault == "tear":  # the connection ends in the middle, and nothing is there
            self.close_connection = True
            return self.connection.close()
        if self.command == "PUT":
            with bucket.lock:
                bucket.objects[name] = body
                if bucket.late:
                    bucket.hidden.add(name)
            if fault == "lose":  # the answer
                self.close_connection = True
                return self.connection.close()
            return self.answer(200)
        if self.command == "DELETE":
            bucket.objects.pop(name, None)
            return self.answer(204)
        if bucket.refuses and query == bucket.refuses:
            return self.refuse(403, "AccessDenied")
        if query == "versioning=":
            status = f"<Status>{bucket.versions}</Status>" if bucket.versions else ""
            return self.answer(200, f"<VersioningConfiguration>{status}</VersioningConfiguration>".encode())
        return self.list(bucket, query) if not name else self.get(bucket, name)

    def get(self, bucket, name):
        body = bucket.objects.get(name)
        if body is None:
            return self.refuse(404, "NoSuchKey")
        if "Range" in self.headers:
            first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
            return self.answer(206, body[first:last + 1])
        return self.answer(200, body)

    def list(self, bucket, query):
        words = dict(urllib.parse.parse_qsl(query))
        with bucket.lock:
            names = sorted(n for n in bucket.objects if n.startswith(words["prefix"]) and n not in bucket.hidden
                           and n > words.get("continuation-token", ""))
        page, more = names[:bucket.page], len(names) > bucket.page
        rows = "".join(f"<Contents><Key>{escape(n)}</Key><Size>{len(bucket.objects[n])}</Size></Contents>" for n in page)
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        self.answer(200, f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{rows}"
                         "</ListBucketResult>".encode())

    do_GET = do_PUT = do_DELETE = serve


class Bucket:
    def __init__(self):
        self.lock = threading.Lock()
        self.objects, self.hidden, self.requests, self.faults = {}, set(), [], []
        self.page, self.late, self.versions, self.refuses = 7, False, "", ""
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.bucket = self
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def fault(self, what, method="PUT", times=1, part="", after=0):
        """Of requests whose names have that part, behind the first so many."""
        with self.lock:
            self.faults.append({"what": what, "method": method, "left": times, "part": part, "after": after})

    def due(self, method, name):
        for f in self.faults:
            if f["method"] in (method, "*") and f["part"] in name and f["left"] > 0:
                f["after"] -= 1
                if f["after"] < 0:
                    f["left"] -= 1
                    return f["what"]
        return ""

    def stop(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@contextlib.contextmanager
def bucket():
    b = Bucket()
    try:
        yield b
    finally:
        b.stop()
