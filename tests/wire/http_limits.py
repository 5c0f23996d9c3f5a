"""Before and around a request: overflow, hosts and origins, framing, slow clients, ports, loading."""
import http.client
import json
import os
import select
import socket
import subprocess
import tempfile
import threading
import time

from libwire import (CHAT, COMPLETION, JSON, SLACK, Server, case, check_error, finish, joined, main, parse_events,
                     scripted_server_path, user)


def read_reply(s, seconds=10):
    """Status, and what follows until the end or silence; (0, b"") when the server just closed."""
    s.settimeout(seconds)
    got = b""
    try:
        while True:
            more = s.recv(65536)
            if not more:
                break
            got += more
            head, mark, body = got.partition(b"\r\n\r\n")
            for line in head.split(b"\r\n"):
                if line.lower().startswith(b"content-length:") and mark and len(body) >= int(line.split(b":")[1]):
                    return int(head.split()[1]), body
    except ConnectionResetError:
        pass
    return (int(got.split()[1]), got) if got else (0, b"")


def exchange(server, raw, seconds=10):
    s = server.connect()
    s.sendall(raw)
    reply = read_reply(s, seconds)
    s.close()
    return reply


def is_closed(s, seconds):
    s.settimeout(seconds)
    try:
        while s.recv(65536):
            pass
        return True
    except ConnectionResetError:
        return True
    except socket.timeout:
        return False


def rss_kib(server):
    with open("/proc/%d/status" % server.process.pid) as f:
        return int([line for line in f if line.startswith("VmRSS")][0].split()[1])


@case
def b041_overflow():
    with Server(["x"], window=512, hot=512) as server:
        for count in (600, 512):
            for stream in (True, False):
                body = json.dumps({"prompt": [120] * count, "stream": stream}).encode()
                status, headers, got = server.request("POST", COMPLETION, body, JSON)
                assert headers["Content-Type"].startswith("application/json"), headers["Content-Type"]
                error = check_error((status, json.loads(got)), 400, code="context_length_exceeded", says=[str(count), "512"])
                assert error["type"] == "exceed_context_size_error", error
                assert (error["n_prompt_tokens"], error["n_ctx"]) == (count, 512), error
        check_error(server.post(CHAT, user("x" * 600)), 400, code="context_length_exceeded")
        status, got = server.post(COMPLETION, {"prompt": [120] * 511, "max_tokens": 5, "logit_bias": {"256": -100}})
        assert status == 200 and got["choices"][0]["finish_reason"] == "length", got


@case
def b032_without_max_tokens_it_ends():
    """A window of 256, a prompt of 20, no max_tokens, and the end token cannot come: the window is the default bound."""
    for more in ({"residency": 0, "hot": 256}, {"hot": 128, "block": 16}):
        with Server(["x"], window=256, **more) as server:
            ask = {"prompt": [120] * 20, "logit_bias": {"256": -100}}
            status, got = server.post(COMPLETION, ask)
            assert status == 200 and got["choices"][0]["finish_reason"] == "length", got
            assert got["usage"]["prompt_tokens"] == 20 and got["usage"]["total_tokens"] == 256, got["usage"]
            evicted = server.sessions()[0]["evicted_blocks"]
            assert (evicted > 0) == ("residency" not in more), (more, evicted)
            events, _ = server.stream(COMPLETION, ask)
            assert finish(events) == "length" and joined(events) == got["choices"][0]["text"], events[-1]


@case
def models_and_status():
    with Server(["x"], window=4096, hot=512, block=64) as server:
        status, got = server.get("/v1/models")
        model = got["data"][0]
        assert status == 200 and got["object"] == "list" and len(got["data"]) == 1
        assert model["id"] == "scripted" and model["object"] == "model" and model["aliases"] == ["alias"]
        assert model["meta"]["n_ctx"] == 4096 and model["meta"]["n_ctx_train"] == 8192
        assert model["context_length"] == model["max_model_len"] == 4096
        status, got = server.post(COMPLETION, {"prompt": [i % 256 for i in range(1500)], "max_tokens": 4,
                                               "logit_bias": {"256": -100}})
        assert status == 200, got
        t = server.status()
        assert t["hot"]["limit_tokens"] == 512 and 0 < t["hot"]["tokens"] <= 512, t
        assert got["modeld"]["hot_limit_tokens"] == 512
        for path, want in (("/nowhere", 404), ("/v1/chat/completions", 405), ("/v1/models/../../etc/passwd", 404)):
            check_error(server.get(path), want)
        check_error(server.post("/v1/embeddings", {"input": "x"}), 404, says=["no such route", "/v1/chat/completions", "/api/status"])
        check_error(server.post("/v1/models", {}), 405)
        status, headers, body = server.request("HEAD", "/health")
        assert status == 200 and body == b""


@case
def b096_hosts_and_origins():
    with Server(["x"]) as server:
        port = server.port
        def get(*lines):
            return exchange(server, ("GET /v1/models HTTP/1.1\r\n" + "".join(x + "\r\n" for x in lines) + "\r\n").encode())[0]
        for host in ("localhost:%d" % port, "127.0.0.1:%d" % port, "[::1]:%d" % port, "LOCALHOST", "localhost", "127.0.0.1", "[::1]",
                     "127.1.2.3"):
            assert get("Host: " + host) == 200, host
        for host in ("evil.example:%d" % port, "127.0.0.1.evil.example", "localhost.evil.example", "evil.example", "localhost:x", "",
                     "10.0.0.1", "[::2]", "localhost:80:80", "[::1", "2130706433", "localhost@evil"):
            assert get("Host: " + host) in (400, 403), host
        assert get() == 400, "no Host at all"
        assert get("Host: localhost", "Host: evil.example") == 400
        assert get("Host: localhost", "Host: localhost") == 400
        for origin in ("http://localhost:%d" % port, "http://127.0.0.1:3000", "http://[::1]:1"):
            assert get("Host: localhost", "Origin: " + origin) == 200, origin
        for origin in ("https://evil.example", "null", "http://localhost.evil.example", "file://", "chrome-extension://abc"):
            assert get("Host: localhost", "Origin: " + origin) == 403, origin
        body = json.dumps(user("x")).encode()
        status, headers, got = server.request("POST", CHAT, body, {"Content-Type": "text/plain", "Origin": "https://evil.example"})
        check_error((status, json.loads(got)), 403)
        for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx", "multipart/form-data"):
            status, headers, got = server.request("POST", CHAT, body, {"Content-Type": kind})
            check_error((status, json.loads(got)), 415)
        status, _, got = server.request("POST", CHAT, body, {})
        check_error((status, json.loads(got)), 415)
        assert server.request("POST", CHAT, body, {"Content-Type": "Application/JSON; charset=utf-8"})[0] == 200
        status, headers, _ = server.request("OPTIONS", CHAT, None, {"Origin": "https://evil.example",
                                                                    "Access-Control-Request-Method": "POST"})
        assert status == 403, status
        status, headers, _ = server.request("OPTIONS", CHAT, None, {"Origin": "http://localhost:1"})
        assert status == 405 and "Access-Control-Allow-Origin" not in headers
        _, headers, _ = server.request("GET", "/v1/models", None, {"Origin": "http://localhost:1"})
        assert "Access-Control-Allow-Origin" not in headers
        assert server.status()["requests"] == 1, "refused before any work"


@case
def b098_slow_and_deaf_clients():
    big = "y" * 3000
    with Server([big] * 60, prefill_ms=2, decode_ms=2, batch=64, hot=2048, header_ms=2500, stall_ms=500, queue=60) as server:
        before = rss_kib(server)
        slow, stop, trickled = [], threading.Event(), []
        for _ in range(200):
            s = server.connect()
            slow.append(s)
        deaf = []
        for i in range(50):
            s = socket.socket()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            s.connect(("127.0.0.1", server.port))
            body = json.dumps(user("q%d" % i, stream=True, logit_bias={"256": -100})).encode()
            s.sendall(b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                      b"Content-Length: %d\r\n\r\n" % len(body) + body)
            deaf.append(s)

        def trickle():
            text = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 1000
            for byte in range(len(text)):
                for s in slow:
                    try:
                        s.send(text[byte:byte + 1])
                    except OSError:
                        pass
                if stop.wait(0.5):
                    return
        thread = threading.Thread(target=trickle)
        thread.start()
        worst, started = 0, time.monotonic()
        while time.monotonic() - started < 5:
            t = time.monotonic()
            assert server.get("/health")[0] == 200
            worst = max(worst, time.monotonic() - t)
            time.sleep(0.1)
        stop.set()
        thread.join()
        assert worst < 0.2 * SLACK, "health took %.3f s" % worst
        assert all(is_closed(s, 1) for s in slow), "a trickled header has a deadline"
        # each deaf reader is given up within its bound, one after the other
        gone = 50 - server.status()["queued"]
        took = server.wait_status(lambda t: 50 - t["queued"] >= gone + 5, 10)
        assert took < 8 * SLACK, took
        grown = rss_kib(server) - before
        assert grown < 60000, "%d KiB more" % grown
        for s in slow + deaf:
            s.close()
        server.wait_idle(1)
        status, _ = server.post(CHAT, user("next", max_tokens=1))
        assert status == 200


@case
def b098_deaf_client_is_cancelled():
    with Server(["y" * 3000] * 10, decode_ms=1, stall_ms=800) as server:
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        s.connect(("127.0.0.1", server.port))
        body = json.dumps(user("q", stream=True, logit_bias={"256": -100})).encode()
        s.sendall(b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                  b"Content-Length: %d\r\n\r\n" % len(body) + body)
        server.wait_status(lambda t: t["state"] == "busy", 2)
        time.sleep(0.5)
        tape = server.tape()
        server.wait_idle(5)
        assert server.tape() < 3900, (tape, server.tape())
        s.close()


@case
def b099_bodies():
    limit = 1 << 20
    with Server(["x"], body_limit=limit, body_ms=1500, window=4096) as server:
        head = "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" % CHAT
        good = json.dumps(user("hi")).encode()
        # (a) a chunked body without end
        before = rss_kib(server)
        s = server.connect()
        s.sendall((head + "Transfer-Encoding: chunked\r\n\r\n").encode())
        chunk, sent = b"10000\r\n" + b"x" * 65536 + b"\r\n", 0
        try:
            while sent < 64 << 20 and not select.select([s], [], [], 0)[0]:
                s.sendall(chunk)
                sent += 65536
        except OSError:
            pass
        status, body = read_reply(s)
        check_error((status, json.loads(body)), 413, says=["more than %d bytes" % limit, "limit"])
        assert limit <= sent <= 16 << 20, "the answer comes when the limit is crossed, not after %d" % sent
        assert rss_kib(server) - before < 20000
        s.close()
        # (b) and (c) framing that nobody can trust
        for label, lines in (("chunk size", "Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\nx"),
                             ("chunk letters", "Transfer-Encoding: chunked\r\n\r\nxyz\r\nx"),
                             ("over 64 bits", "Content-Length: 18446744073709551616\r\n\r\n"),
                             ("minus one", "Content-Length: -1\r\n\r\n"), ("letters", "Content-Length: 12abc\r\n\r\n"),
                             ("two lengths", "Content-Length: 2\r\nContent-Length: 40\r\n\r\n{}"),
                             ("blank in a name", "Content-Length : 2\r\n\r\n{}"),
                             ("blank in another", "Transfer-Encoding : chunked\r\nContent-Length: 2\r\n\r\n{}"),
                             ("not chunked", "Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
                             ("not even that", "Transfer-Encoding: xchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
                             ("until the end", "Transfer-Encoding: identity\r\n\r\n{}"),
                             ("both", "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")):
            s = server.connect()
            s.sendall((head + lines).encode())
            status, body = read_reply(s)
            assert status in (400, 413), (label, status, body)
            assert is_closed(s, 3), label + ": the connection ends"
            s.close()
        # the largest size that fits 64 bits is one more chunk to libmicrohttpd: it counts as what comes of it
        for size in (10, limit + 65536):
            s = server.connect()
            s.sendall((head + "Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n").encode() + b"x" * size)
            if size > limit:
                assert read_reply(s)[0] == 413
            assert is_closed(s, 4)
            s.close()
        # (d) an honest large one passes, one above the declared limit is told so
        status, got = server.post(CHAT, user("x" * 900000))
        check_error((status, got), 400, code="context_length_exceeded")
        status, got = server.post(CHAT, user("x" * 1200000))
        check_error((status, got), 413, says=["12000", "%d bytes" % limit, "limit"])
        s = server.connect()
        s.sendall((head + "Expect: 100-continue\r\nContent-Length: 9999999\r\n\r\n").encode())
        status, body = read_reply(s)
        check_error((status, json.loads(body)), 413, says=["9999999 bytes", "%d bytes" % limit])  # before the body is sent
        s.close()
        # (e) five bytes of ten
        s = server.connect()
        s.sendall((head + "Content-Length: 10\r\n\r\n{\"x\":").encode())
        assert is_closed(s, 4), "a body has a deadline"
        s.close()
        # chunked and whole
        s = server.connect()
        s.sendall((head + "Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(good)).encode() + good + b"\r\n0\r\n\r\n")
        assert read_reply(s)[0] == 200
        s.close()
        # two requests in one packet
        s = server.connect()
        one = (head + "Content-Length: %d\r\n\r\n" % len(good)).encode() + good
        s.sendall(one + one)
        assert read_reply(s)[0] == 200
        s.close()
    with Server(["x"], window=4096) as server:
        status, got = server.post(CHAT, user("x" * (4 << 20)))
        check_error((status, got), 400, code="context_length_exceeded", says=["at least", "4096"])


@case
def bodies_without_room_are_told_so():
    """http_front.h: all bodies together may have four times the limit of one.  A fifth comes in pieces: nobody knows
    before how large it is."""
    limit = 1 << 20
    with Server(["x"], body_limit=limit) as server:
        head = ("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" % CHAT).encode()
        held = []
        for _ in range(4):
            s = server.connect()
            s.sendall(head + b"Content-Length: %d\r\n\r\n" % limit + b" " * (limit - 1))
            held.append(s)
        time.sleep(1 * SLACK)  # what is held counts when the loop has read it
        for more in (b"Content-Length: 5000\r\n\r\n" + b" " * 5000,
                     b"Transfer-Encoding: chunked\r\n\r\n1388\r\n" + b" " * 5000 + b"\r\n"):
            status, body = exchange(server, head + more)
            check_error((status, json.loads(body)), 503, says=["memory", "try again"])
        for s in held:
            s.close()
        assert server.get("/health")[0] == 200


def run_server(*args):
    started = time.monotonic()
    p = subprocess.run([scripted_server_path()] + list(args), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, timeout=10)
    return p.returncode, p.stderr.decode(), p.stdout.decode(), time.monotonic() - started


@case
def b107_ports():
    with Server(["x"]) as server:
        code, err, out, took = run_server("--port", str(server.port), "--load-ms", "5000")
        assert code == 1 and str(server.port) in err and "in use" in err and out == "", (code, err, out)
        assert took < 1 * SLACK, "before the model is loaded"
        # leave connections in TIME_WAIT on the server's side
        for _ in range(5):
            exchange(server, b"GET /nowhere HTTP/1.0\r\nHost: localhost\r\n\r\n")
        port = server.port
    with Server(["x"], port=port) as again:
        assert again.port == port and again.get("/health")[0] == 200
    foreign = socket.socket()
    foreign.bind(("127.0.0.1", 0))
    foreign.listen()
    code, err, _, _ = run_server("--port", str(foreign.getsockname()[1]))
    assert code == 1 and str(foreign.getsockname()[1]) in err, err
    foreign.close()
    for port in ("65536", "-1"):
        code, err, _, _ = run_server("--port", port)
        assert code == 1 and port in err and "65535" in err, err
    code, err, _, _ = run_server("--host", "no.such.host")
    assert code == 1 and "no.such.host" in err, err
    if os.path.exists("/proc/net/if_inet6"):
        try:
            six = socket.socket(socket.AF_INET6)
            six.bind(("::1", 0))
            six.listen()
        except OSError:
            return
        code, err, _, _ = run_server("--host", "::1", "--port", str(six.getsockname()[1]))
        assert code == 1 and "in use" in err, err
        six.close()
        with Server(["x"], host="::1") as server:
            s = socket.create_connection(("::1", server.port))
            s.sendall(b"GET /health HTTP/1.1\r\nHost: [::1]\r\n\r\n")
            assert read_reply(s)[0] == 200
            s.close()


@case
def loading_answers_503():
    with Server(["x"], load_ms=1500, wait_ready=False) as server:
        status, headers, body = server.request("GET", "/health")
        check_error((status, json.loads(body)), 503, says=["loading"])
        assert int(headers["Retry-After"]) > 0
        check_error(server.post(CHAT, user("x")), 503, says=["loading"])
        check_error(server.get("/v1/models"), 503)
        server.line("ready")
        assert server.get("/health") == (200, {"status": "ok"})
        assert server.post(CHAT, user("x"))[0] == 200


@case
def unix_socket():
    folder = tempfile.mkdtemp()
    path = folder + "/m.sock"
    for _ in range(2):  # the second finds no socket left behind
        with Server(["al", "pha"], host=path) as server:
            assert server.port == -1 and os.stat(path).st_mode & 0o777 == 0o600
            out = subprocess.run(["curl", "-sN", "--max-time", "10", "--unix-socket", path, "http://any.name" + CHAT, "-H",
                                  "Content-Type: application/json", "-d", json.dumps(user("x", stream=True))],
                                 stdout=subprocess.PIPE, timeout=20).stdout
            assert joined(parse_events(out)) == "alpha", out
            code, err, _, _ = run_server("--host", path)
            assert code == 1 and "in use" in err, err
        assert not os.path.exists(path)
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(path)
    stale.close()  # its owner died
    with Server(["x"], host=path):
        pass
    with open(path, "w") as f:
        f.write("keep me")
    code, err, _, _ = run_server("--host", path)
    assert code == 1 and "no socket" in err and open(path).read() == "keep me", err
    os.unlink(path)
    os.rmdir(folder)


@case
def too_many_connections():
    with Server(["x"], connections=8, header_ms=1500) as server:
        held = [server.connect() for _ in range(20)]
        time.sleep(2.5)
        assert server.get("/health")[0] == 200, "idle ones made room after their deadline"
        for s in held:
            s.close()


main()
