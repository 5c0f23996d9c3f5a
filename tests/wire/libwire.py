"""What the wire tests share: a server in a process, plain clients, and the count of cases.

A case is a function marked @case; it fails by raising.  main() runs them and prints `ok NAME` or
`FAIL NAME why`.  Nothing here but the standard library."""
import http.client
import json
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback

CHAT = "/v1/chat/completions"
COMPLETION = "/v1/completions"
JSON = {"Content-Type": "application/json"}
SLACK = float(os.environ.get("MODELD_TEST_SLACK", "1"))  # bounds in seconds are multiplied by it: sanitizers are slow


def scripted_server_path():
    build = os.environ.get("MODELD_TEST_BUILD", "build")
    for path in (build + "/tests/support/scripted_server", build + "/scripted_server"):
        if os.path.exists(path):
            return path
    sys.exit("scripted_server is not built in " + build)


class Server:
    """The scripted server; pieces are bytes or text.  Leaving the block stops it and checks how it ended."""

    def __init__(self, pieces=("hello", " ", "world"), **options):
        self.args = [scripted_server_path()]
        self.wait_ready = options.pop("wait_ready", True)
        for name, value in options.items():
            self.args += ["--" + name.replace("_", "-"), str(value)]
        for piece in pieces:
            self.args.append((piece if isinstance(piece, bytes) else piece.encode()).hex())

    def __enter__(self):
        self.process = subprocess.Popen(self.args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.port = int(self.line("port").split()[1])
        if self.wait_ready:
            self.line("ready")
        return self

    def line(self, start):
        if not select.select([self.process.stdout], [], [], 30)[0]:
            raise AssertionError("the server says nothing")
        text = self.process.stdout.readline().decode().strip()
        assert text.startswith(start), "the server said %r" % text
        return text

    def __exit__(self, kind, value, trace):
        started = time.monotonic()
        self.process.stdin.close()
        try:
            code = self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError("the server does not end")
        self.ended_in = time.monotonic() - started
        if kind is None:
            assert code == 0, "the server ended with %d" % code

    # ---- clients ----

    def connect(self, timeout=20):
        s = socket.create_connection(("127.0.0.1", self.port), timeout)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def request(self, method, path, body=None, headers=None, timeout=20):
        """Returns (status, headers, body bytes)."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            c.request(method, path, body, headers or {})
            r = c.getresponse()
            return r.status, r.headers, r.read()
        finally:
            c.close()

    def get(self, path):
        status, _, body = self.request("GET", path)
        return status, json.loads(body)

    def post(self, path, what, timeout=20):
        """Returns (status, parsed body); `what` is a dict, or the bytes of the body."""
        body = what if isinstance(what, bytes) else json.dumps(what).encode()
        status, _, got = self.request("POST", path, body, JSON, timeout)
        return status, json.loads(got.decode("utf-8", "strict"))

    def raw_post(self, path, what, extra=""):
        """Send a request and return the open socket."""
        body = json.dumps(what).encode()
        s = self.connect()
        s.sendall(("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s"
                   "Content-Length: %d\r\n\r\n" % (path, extra, len(body))).encode() + body)
        return s

    def stream(self, path, what):
        """Returns (events without [DONE], all bytes); checks that each is JSON and that [DONE] ends it."""
        status, headers, body = self.request("POST", path, json.dumps(dict(what, stream=True)).encode(), JSON)
        assert status == 200, (status, body)
        assert headers["Content-Type"].startswith("text/event-stream"), headers["Content-Type"]
        return parse_events(body), body

    def status(self):
        return self.get("/v1/status")[1]

    def sessions(self):
        return self.get("/api/sessions")[1]["sessions"]

    def tape(self):
        """Tokens of the one conversation that is open."""
        (session,) = self.sessions()
        return session["tape_tokens"]

    def call(self, method, path, body=None):
        """Any method: (status, parsed body)."""
        status, _, got = self.request(method, path, None if body is None else json.dumps(body).encode(),
                                      {} if body is None else JSON)
        return status, json.loads(got)

    def wait_idle(self, seconds):
        return self.wait_status(lambda t: t["state"] == "idle" and t["queued"] == 0, seconds)

    def wait_status(self, test, seconds):
        """How long until test(status) holds."""
        started = time.monotonic()
        while time.monotonic() - started < seconds * SLACK:
            if test(self.status()):
                return time.monotonic() - started
            time.sleep(0.02)
        raise AssertionError("not within %s s: %s" % (seconds, self.status()))


def seconds(f):
    """The shortest of three runs: the machine is shared, the bound is the server's."""
    best = 1e9
    for _ in range(3):
        started = time.monotonic()
        f()
        best = min(best, time.monotonic() - started)
    return best / SLACK


def parse_events(body, done=True):
    events = []
    text = body.decode("utf-8", "strict")
    assert text.endswith("\n\n"), text[-40:]
    for block in text[:-2].split("\n\n"):
        if block.startswith(":"):
            continue
        assert block.startswith("data: ") and "\n" not in block, block
        events.append(block[6:])
    if done:
        assert events[-1] == "[DONE]", events[-1]
        events.pop()
    assert "[DONE]" not in events
    return [json.loads(e) for e in events]


def user(text, **more):
    return dict({"messages": [{"role": "user", "content": text}]}, **more)


def joined(events):
    """The text of a stream, chat or completion."""
    out = ""
    for e in events:
        for choice in e["choices"]:
            out += choice["text"] if "text" in choice else choice["delta"].get("content") or ""
    return out


def finish(events):
    """The one finish_reason of a stream."""
    reasons = [c["finish_reason"] for e in events for c in e["choices"] if c["finish_reason"] is not None]
    assert len(reasons) == 1, reasons
    return reasons[0]


def check_error(answer, status, param=None, code=None, says=()):
    """(status, body) is this error, in the form clients parse."""
    got, body = answer
    error = body.get("error")
    assert got == status and error is not None, (got, body)
    for field in ("message", "type", "code", "param"):
        assert field in error, (field, error)
    assert isinstance(error["message"], str) and error["message"]
    assert param is None or error["param"] == param, error
    assert code is None or error["code"] == code, error
    for word in says:
        assert word in error["message"], (word, error)
    return error


def reset(s):
    """Close the socket hard: the other side gets RST."""
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def killed_in_prefill_is_paid_once(server, ask, percent, other):
    """Reset a client's connection at so many percent of its prefill, as it was reported to it, while another client
    waits: that one is served, and who asks the first thing again pays for the rest only."""
    answers = []
    waits = threading.Thread(target=lambda: answers.append(server.post(CHAT, other, timeout=60 * SLACK)))
    s = server.raw_post(CHAT, dict(ask, stream=True, return_progress=True))
    s.settimeout(60 * SLACK)
    got, last = b"", None
    while last is None or 100 * (last["processed"] - last["cache"]) < percent * (last["total"] - last["cache"]):
        more = s.recv(65536)
        assert more, "closed after %r" % got[-200:]
        got += more
        *blocks, got = got.split(b"\n\n")
        for block in blocks:
            if b'"prompt_progress"' in block:
                last = json.loads(block[block.index(b"data: ") + 6:])["prompt_progress"]
        if last is not None and waits.ident is None:
            waits.start()
    assert last["processed"] < last["total"], "there is nothing left to kill: %s" % last
    assert server.get("/health")[0] == 200
    server.wait_status(lambda t: t["queued"] == 1, 1)
    reset(s)
    waits.join(60 * SLACK)
    assert answers and answers[0][0] == 200, answers
    server.wait_idle(1)
    status, again = server.post(CHAT, ask, timeout=60 * SLACK)
    assert status == 200, again
    usage = again["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    assert usage["prompt_tokens"] == last["total"], (usage, last)
    assert last["processed"] <= cached < last["total"], "%d cached, %s was reported" % (cached, last)
    assert again["timings"]["prompt_n"] == last["total"] - cached, again["timings"]
    assert again["modeld"]["recomputed_tokens"] == again["modeld"]["dropped_tokens"] == 0, again["modeld"]


CASES = []


def case(f):
    CASES.append(f)
    return f


def main():
    failed = 0
    only = sys.argv[1:]
    for f in CASES:
        if only and f.__name__ not in only:
            continue
        try:
            f()
            print("ok", f.__name__, flush=True)
        except Exception as e:
            failed += 1
            traceback.print_exc()
            print("FAIL", f.__name__, "%s: %s" % (type(e).__name__, str(e).replace("\n", " ")[:300]), flush=True)
    sys.exit(1 if failed else 0)
