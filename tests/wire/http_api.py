"""modeld's own routes: looking, opening, branching, closing; and requests that name their conversation.

The shapes are those of docs/sessions.md; the scripted tokenizer makes a token of each byte."""
import json
import math
import threading
import time

from libwire import CHAT, COMPLETION, JSON, SLACK, Server, case, check_error, finish, main, parse_events, user

NEVER_ENDS = {"256": -100}  # the end token is banned, so that max_tokens decides

STATUS = {"model", "engine", "engine_version", "device", "engine_choice", "type_k", "type_v", "capabilities", "state", "running", "queued", "requests", "uptime_seconds", "window_tokens", "rope",
          "sliding_window_attention_tokens", "xattention",
          "trained_tokens", "past_window",
          "block_tokens", "sink_tokens", "recent_tokens", "residency", "reuse", "cold_policy", "sessions", "session_limit",
          "kv_bytes_per_token", "break_even_tokens", "diagnostic", "eviction", "retrieval", "hot", "cold", "disk"}
SESSION = {"id", "parent", "running", "fatal", "tokens_only", "idle_seconds", "context_tokens", "prefix_tokens", "tape_tokens", "hot_tokens",
           "cold_tokens", "lost_tokens", "protected_tokens", "pinned_cold_tokens", "held_out_tokens", "rebased_tokens", "durable_tokens",
           "class_tokens", "provenance_tokens", "hot_bytes", "cold_bytes", "requests", "prefilled_tokens", "decoded_tokens", "prefill_seconds",
           "evicted_blocks", "restored_blocks", "shared_blocks", "recomputed_blocks", "dropped_blocks", "moved_tokens",
           "rebased_blocks", "scorings"}
EXPLAIN = SESSION | {"segments", "map", "physical_prefill_calls", "physical_prefill_tokens", "decode_calls", "residency"}
# the session protocol's ResidencyReport
RESIDENCY = {"budget_tokens", "total_tokens", "hot_tokens", "cold_tokens", "protected_tokens", "hot_blocks", "cold_blocks",
             "over_budget", "capabilities", "diagnostics", "error"}
CAPABILITIES = {"remove_tail", "remove_middle", "position_shift", "sparse_attention", "sliding_window_attention_tokens",
                "cold_store", "recompute_range"}


def fill(server, tokens=1500, **more):
    """One conversation of so many tokens; returns its id."""
    status, got = server.post(COMPLETION, dict({"prompt": [i % 256 for i in range(tokens)], "max_tokens": 4,
                                                "logit_bias": NEVER_ENDS}, **more))
    assert status == 200, got
    return got["modeld"]["session"]


def read_stream(s):
    """The rest of a streamed reply, and when it ended."""
    got = b""
    s.settimeout(30)
    while b"[DONE]" not in got:
        more = s.recv(65536)
        assert more, got[-300:]
        got += more
    return got, time.monotonic()


@case
def status_has_one_shape_under_three_names():
    with Server(["x"], window=4096, hot=512, block=64, cold=1 << 20) as server:
        t = server.get("/api/status")[1]
        assert set(t) == STATUS, set(t) ^ STATUS
        assert set(t["hot"]) == {"tokens", "limit_tokens", "bytes"}, t["hot"]
        assert set(t["cold"]) == {"used_bytes", "budget_bytes", "peak_bytes", "blocks", "tokens", "refused", "dropped", "hits",
                                  "misses", "collisions"}, t["cold"]
        assert t["disk"] is None, "there is no disk tier"
        assert (t["model"], t["engine"], t["state"], t["running"]) == ("scripted", "fake", "idle", None), t
        assert (t["window_tokens"], t["hot"]["limit_tokens"], t["block_tokens"]) == (4096, 512, 64), t
        assert (t["reuse"], t["cold_policy"], t["sessions"], t["diagnostic"]) == ("place", "write-back", 0, None), t
        assert {"remove_middle", "cold_store", "recompute_range"} <= set(t["capabilities"]), t
        for path in ("/v1/status", "/status"):
            assert set(server.get(path)[1]) == STATUS, path
        status, headers, body = server.request("HEAD", "/api/status")
        assert status == 200 and body == b""
    with Server(["x"], residency=0, hot=1024, window=1024) as server:
        t = server.get("/api/status")[1]
        assert t["residency"] is False and t["hot"]["limit_tokens"] == 1024, t


@case
def b074_cold_bytes_come_and_go():
    """Bytes used and limit are in status and in the capacity report; closing frees them and the numbers go to 0."""
    with Server(["x"], window=4096, hot=512, block=64, cold=1 << 20) as server:
        assert server.get("/api/capacity")[1] == {"window_tokens": 4096, "cold_used_bytes": 0}
        session = fill(server)
        t = server.get("/api/status")[1]
        assert 0 < t["cold"]["used_bytes"] <= t["cold"]["budget_bytes"] == 1 << 20, t
        assert t["cold"]["used_bytes"] >= t["cold"]["tokens"] * t["kv_bytes_per_token"] > 0, t
        assert t["hot"]["tokens"] > 0 and t["hot"]["bytes"] > 0, t
        assert server.get("/api/capacity")[1]["cold_used_bytes"] == t["cold"]["used_bytes"], "asked afresh"
        assert server.call("DELETE", "/api/sessions/%d" % session) == (200, {"id": session, "closed": True})
        t = server.get("/api/status")[1]
        assert t["cold"]["used_bytes"] == t["cold"]["tokens"] == t["hot"]["tokens"] == t["hot"]["bytes"] == 0, t
        assert t["cold"]["peak_bytes"] > 0 and t["sessions"] == 0 and t["requests"] == 1, t
        assert server.get("/api/capacity")[1]["cold_used_bytes"] == 0


@case
def explain_adds_up():
    with Server(["x"], window=4096, hot=512, block=64) as server:
        session = fill(server)
        (listed,) = server.sessions()
        e = server.get("/api/sessions/%d" % session)[1]
        assert set(listed) == SESSION and set(e) == EXPLAIN, (set(listed) ^ SESSION, set(e) ^ EXPLAIN)
        same = SESSION - {"idle_seconds"}
        assert {k: listed[k] for k in same} == {k: e[k] for k in same}
        # 1500 of the prompt, 4 sampled, and the last of them is not evaluated
        assert (e["id"], e["context_tokens"], e["tape_tokens"]) == (session, 1504, 1503), e
        assert e["hot_tokens"] + e["cold_tokens"] + e["lost_tokens"] == e["tape_tokens"], e
        assert sum(e["class_tokens"].values()) == sum(e["provenance_tokens"].values()) == e["tape_tokens"], e
        assert set(e["class_tokens"]) == {"task_pinned", "repo_map", "volatile"}, e
        assert set(e["provenance_tokens"]) == {"full", "bounded", "approximate"}, e
        m, r = e["map"], e["residency"]
        assert m["block_tokens"] == 64 and m["blocks"] == math.ceil(1503 / 64), m
        for name, letters in (("state", "#.x"), ("class", "trv"), ("provenance", "fba")):
            assert len(m[name]) == m["blocks"] and set(m[name]) <= set(letters), (name, m)
        assert m["state"][0] == m["state"][-1] == "#" and "." in m["state"], "sinks and the end are hot: %s" % m
        assert set(m["class"]) == {"v"} and m["provenance"][0] == "f" and "b" in m["provenance"], m
        assert set(r) == RESIDENCY and set(r["capabilities"]) == CAPABILITIES, r
        assert r["hot_blocks"] == m["state"].count("#") and r["cold_blocks"] == m["state"].count("."), (r, m)
        assert r["cold_tokens"] == 64 * r["cold_blocks"] == e["cold_tokens"], "what is cold are whole blocks: %s" % r
        assert (r["budget_tokens"], r["total_tokens"], r["hot_tokens"]) == (512, 1503, e["hot_tokens"]), r
        assert r["over_budget"] is False and r["error"] is None and r["diagnostics"] is None, r
        assert e["physical_prefill_tokens"] == 1500 and e["physical_prefill_calls"] > 0, e
        assert e["evicted_blocks"] >= r["cold_blocks"] and e["dropped_blocks"] == 0, e


@case
def open_branch_close():
    with Server(["x"], window=4096, hot=1024, block=64) as server:
        status, got = server.call("POST", "/api/sessions", {})
        assert (status, set(got)) == (200, {"id"}), got
        first = got["id"]
        status, got = server.request("POST", "/api/sessions", b"", JSON)[::2]
        assert status == 200 and json.loads(got)["id"] != first, "no body is an empty one"
        server.call("DELETE", "/api/sessions/%d" % json.loads(got)["id"])
        _, got = server.post(CHAT, user("a" * 300, modeld={"session": first}))
        assert got["modeld"]["session"] == first, got["modeld"]
        tokens = server.get("/api/sessions/%d" % first)[1]["context_tokens"]
        for body, want in (({"tokens": 100}, 100), ({}, tokens), ({"tokens": None}, tokens), ({"tokens": 0}, 0),
                           ({"tokens": tokens}, tokens), ({"tokens": 5.0}, 5)):
            status, got = server.call("POST", "/api/sessions/%d/branch" % first, body)
            assert status == 200 and set(got) == {"id", "parent"} and got["parent"] == first, (body, got)
            branch = server.get("/api/sessions/%d" % got["id"])[1]
            assert (branch["parent"], branch["context_tokens"]) == (first, want), (body, branch)
        assert len(server.sessions()) == 7, server.sessions()
        check_error(server.call("POST", "/api/sessions/%d/branch" % first, {"tokens": tokens + 1}), 400, "tokens")
        for session in server.sessions():
            assert server.call("DELETE", "/api/sessions/%d" % session["id"]) == (200, {"id": session["id"], "closed": True})
            check_error(server.call("DELETE", "/api/sessions/%d" % session["id"]), 404,
                        says=["there is no session %d: GET /api/sessions" % session["id"]])
        assert server.sessions() == [] and server.status()["sessions"] == 0


@case
def bound_requests():
    with Server(["al", "pha"], window=4096, hot=1024) as server:
        a, b = (server.call("POST", "/api/sessions", {})[1]["id"] for _ in range(2))
        for path, what in ((CHAT, user("one")), (COMPLETION, {"prompt": "one"})):
            events, _ = server.stream(path, dict(what, modeld={"session": b}))
            assert [e["modeld"]["session"] for e in events if "modeld" in e] == [b], "the last chunk says which"
            assert events[-1]["modeld"]["provenance_tokens"]["full"] > 0 and finish(events) == "stop", events[-1]
        both = {s["id"]: s for s in server.sessions()}
        assert both[a]["requests"] == 0 and both[b]["requests"] == 2, both
        # the same text without a name goes on with another, which has it as well; another text with a new one
        d = server.post(COMPLETION, {"prompt": "one"})[1]
        assert d["modeld"]["session"] not in (a, b) and d["usage"]["prompt_tokens_details"]["cached_tokens"] > 0, d
        c = server.post(COMPLETION, {"prompt": "quite another text of some length" * 4})[1]["modeld"]["session"]
        assert c not in (a, b, d["modeld"]["session"]), c
        again = server.post(COMPLETION, {"prompt": "one", "modeld": {}})[1]["modeld"]["session"]
        assert again == d["modeld"]["session"], again
        assert server.post(COMPLETION, {"prompt": "one", "modeld": None})[0] == 200
        for stream in (False, True):
            for path, what in ((CHAT, user("x", stream=stream)), (COMPLETION, {"prompt": "x", "stream": stream})):
                check_error(server.post(path, dict(what, modeld={"session": 99})), 404, "modeld.session",
                            says=["there is no session 99: GET /api/sessions"])
                for wrong, param in ((1, "modeld"), ("x", "modeld"), ([a], "modeld"), ({"session": "1"}, "modeld.session"),
                                     ({"session": 0}, "modeld.session"), ({"session": -1}, "modeld.session"),
                                     ({"session": 1.5}, "modeld.session"), ({"session": 1e300}, "modeld.session"),
                                     ({"sesion": a}, "modeld.sesion"), ({"session": True}, "modeld.session")):
                    check_error(server.post(path, dict(what, modeld=wrong)), 400, param, says=["modeld"])
        for one, two in ((b"1", b"2"), (b"null", b"%d" % a), (b"null", b"null")):
            twice = b'{"prompt":"x","modeld":{"session":%s,"session":%s}}' % (one, two)
            check_error(server.post(COMPLETION, twice), 400, "modeld.session", says=["twice"])
        assert [s["requests"] for s in server.sessions() if s["id"] == a] == [0], "refused before any work"


@case
def bad_input():
    with Server(["x"]) as server:
        session = fill(server, 200)
        one, branch = "/api/sessions/%d" % session, "/api/sessions/%d/branch" % session
        table = [  # method, path, body, status, param
            ("PUT", "/api/sessions", b"{}", 405, None), ("DELETE", "/api/sessions", None, 405, None),
            ("PATCH", one, b"{}", 405, None), ("POST", one, b"{}", 405, None), ("GET", branch, None, 405, None),
            ("DELETE", branch, None, 405, None), ("POST", "/api/status", b"{}", 405, None),
            ("POST", "/api/capacity", b"{}", 405, None), ("DELETE", "/api/capacity", None, 405, None),
            ("DELETE", "/v1/chat/completions", None, 405, None), ("DELETE", "/health", None, 405, None),
            ("GET", "/api", None, 404, None), ("GET", "/api/", None, 404, None), ("GET", "/api/sessions/", None, 404, None),
            ("GET", one + "/", None, 404, None), ("POST", branch + "/x", b"{}", 404, None), ("PUT", "/api/x", b"{}", 404, None),
            ("POST", branch, b"", 200, None), ("POST", branch, b"[]", 400, None), ("POST", branch, b"1", 400, None),
            ("POST", branch, b"null", 400, None), ("POST", branch, b"{", 400, None), ("POST", branch, b"\xff", 400, None),
            ("POST", branch, b'{"tokens":-1}', 400, "tokens"), ("POST", branch, b'{"tokens":1.5}', 400, "tokens"),
            ("POST", branch, b'{"tokens":"9"}', 400, "tokens"), ("POST", branch, b'{"tokens":true}', 400, "tokens"),
            ("POST", branch, b'{"tokens":[]}', 400, "tokens"), ("POST", branch, b'{"tokens":1e99}', 400, "tokens"),
            ("POST", branch, b'{"tokens":2147483648}', 400, "tokens"), ("POST", branch, b'{"tokens":205}', 400, "tokens"),
            ("POST", branch, b'{"tokens":1,"tokens":2}', 400, "tokens"),
            ("POST", branch, b'{"tokens":null,"tokens":2}', 400, "tokens"), ("POST", branch, b'{"token":1}', 400, "token"),
            ("POST", branch, b'{"a\\u0000b":1}', 400, "a"), ("POST", branch, b"[" * 5000, 400, None),
            ("POST", "/api/sessions", b'{"tokens":1}', 400, "tokens"), ("POST", "/api/sessions", b'"x"', 400, None),
            ("DELETE", one, b"{}", 400, None),
        ]
        for method in ("PUT", "PATCH", "OPTIONS", "FOO"):  # a body that nobody wants is read before it is refused
            for path, want in ((one, 405), ("/api/x", 404)):
                status, headers, got = server.request(method, path, b"x" * 3000000)
                check_error((status, json.loads(got)), want)
                assert status == 404 or headers["Allow"] == "GET, HEAD, DELETE", headers
        for path in ("/api/sessions/%d%%00", "/api/sessions/%d%%00/branch", "/api%%2fsessions/%d", "/api/sessions/%%3%d"):
            check_error(server.call("DELETE", path % session), 404)  # no path of ours has anything escaped in it
        for text in ("0", "01", "-1", "+1", "1.0", "x", "1x", " 1", "9" * 18, "9" * 19, "9" * 400, "1/branch/", "../status", "%2e%2e"):
            table.append(("GET", "/api/sessions/" + text.replace(" ", "%20"), None, 404, None))
            table.append(("DELETE", "/api/sessions/" + text.replace(" ", "%20"), None, 404, None))
        for method, path, body, want, param in table:
            status, headers, got = server.request(method, path, body, JSON if body is not None else {})
            assert status == want, (method, path, body, status, got)
            if status != 200:
                check_error((status, json.loads(got.decode())), want, param)
            if status == 405:
                assert method not in headers["Allow"].split(", "), (method, path, headers["Allow"])
        assert server.request("DELETE", "/api/sessions")[1]["Allow"] == "GET, HEAD, POST"
        assert server.request("POST", one, b"{}", JSON)[1]["Allow"] == "GET, HEAD, DELETE"
        large = b'{"x":"%s"}' % (b"x" * (64 << 10))
        status, _, got = server.request("POST", branch, large, JSON)
        check_error((status, json.loads(got)), 413, says=["%d bytes" % len(large), "65536 bytes"])
        assert server.post(branch, b" " * ((64 << 10) - 2) + b"{}")[0] == 200
        for headers, want in ((dict(JSON, Origin="https://evil.example"), 403), ({"Content-Type": "text/plain"}, 415), ({}, 415),
                              (dict(JSON, Host="evil.example"), 403)):
            for path in ("/api/sessions", branch):
                assert server.request("POST", path, b"{}", headers)[0] == want, (path, headers)
        for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}, {"Origin": "null"}):
            assert server.request("DELETE", one, None, headers)[0] == 403, headers
            assert server.request("GET", "/api/capacity", None, headers)[0] == 403, headers
            assert server.request("GET", one, None, headers)[0] == 403, headers
        assert server.get(one)[0] == 200, "nothing of this closed it"
        assert len(server.sessions()) == 3, "and of all that only the two good branches opened something"


@case
def explains_while_a_decode_runs():
    """Each within one decode step: none of them waits for the engine."""
    step = 0.2
    with Server(["x"], window=4096, hot=512, decode_ms=int(step * 1000)) as server:
        session = server.call("POST", "/api/sessions", {})[1]["id"]
        s = server.raw_post(COMPLETION, {"prompt": [65] * 700, "max_tokens": 200, "stream": True, "logit_bias": NEVER_ENDS,
                                         "modeld": {"session": session}})
        server.wait_status(lambda t: t["running"] == session, 5)
        worst = 0
        for i in range(50):
            started = time.monotonic()
            status, e = server.get("/api/sessions/%d" % session)
            assert status == 200 and e["running"] and e["idle_seconds"] == 0, (i, e)
            worst = max(worst, time.monotonic() - started)
        assert worst < step * SLACK, "one took %.3f s" % worst
        assert server.status()["state"] == "busy", "the decode went on meanwhile"
        s.close()
        server.wait_idle(2)


@case
def closing_the_running_one_waits_its_turn():
    with Server(["x"], decode_ms=30) as server:
        session = server.call("POST", "/api/sessions", {})[1]["id"]
        s = server.raw_post(CHAT, user("hi", stream=True, max_tokens=30, logit_bias=NEVER_ENDS, modeld={"session": session}))
        server.wait_status(lambda t: t["running"] == session, 5)
        closed = {}

        def close():
            closed["answer"] = server.call("DELETE", "/api/sessions/%d" % session)
            closed["at"] = time.monotonic()
        thread = threading.Thread(target=close)
        thread.start()
        server.wait_status(lambda t: t["queued"] == 1, 2)
        assert server.get("/health")[0] == 200 and server.get("/api/capacity")[0] == 200, "nobody waits for that job"
        body, ended = read_stream(s)
        thread.join()
        assert closed["answer"] == (200, {"id": session, "closed": True}), closed
        assert body.count(b'"content":"x"') == 30, "the answer was whole"
        assert closed["at"] > ended - 0.2 * SLACK, "it did not wait"
        check_error(server.get("/api/sessions/%d" % session), 404, says=["no session %d: GET /api/sessions" % session])
        # a conversation that is closed before a waiting request of its own
        session = server.call("POST", "/api/sessions", {})[1]["id"]
        s = server.raw_post(CHAT, user("busy", stream=True, max_tokens=20, logit_bias=NEVER_ENDS))
        server.wait_status(lambda t: t["state"] == "busy", 5)
        threading.Thread(target=close).start()
        server.wait_status(lambda t: t["queued"] == 1, 2)
        check_error(server.post(CHAT, user("late", modeld={"session": session})), 404, says=["no session %d: GET" % session])
        s.close()


@case
def a_stream_whose_conversation_is_closed_before_its_turn():
    """It has begun while it waited, so it ends with an error event and [DONE]; and one that fails at once has not."""
    for path, what in ((CHAT, user("late")), (COMPLETION, {"prompt": "late"})):
        with Server(["x"], decode_ms=30) as server:
            session = server.call("POST", "/api/sessions", {})[1]["id"]
            s = server.raw_post(CHAT, user("busy", stream=True, max_tokens=40, logit_bias=NEVER_ENDS))
            server.wait_status(lambda t: t["state"] == "busy", 5)
            closer = threading.Thread(target=server.call, args=("DELETE", "/api/sessions/%d" % session))
            closer.start()
            server.wait_status(lambda t: t["queued"] == 1, 2)
            events, _ = server.stream(path, dict(what, modeld={"session": session}))  # looks for [DONE]
            assert set(events[-1]) == {"error"} and len(events) == 2, events
            error = events[-1]["error"]
            assert error["type"] == "not_found_error" and str(session) in error["message"], error
            assert events[0]["choices"][0]["finish_reason"] is None, events
            closer.join()
            s.close()


@case
def what_fails_before_a_stream_begins_has_its_status():
    """All conversations are kept, so that a new one is refused when its turn comes: at once, as nothing else runs."""
    with Server(["x"]) as server:
        for _ in range(64):  # MD_SESSIONS_DEFAULT
            assert server.call("POST", "/api/sessions", {})[0] == 200
        for path, what in ((CHAT, user("x")), (COMPLETION, {"prompt": "x"})):
            for stream in (True, False):
                for _ in range(5):
                    status, headers, body = server.request("POST", path, json.dumps(dict(what, stream=stream)), JSON)
                    check_error((status, json.loads(body)), 503, says=["64 sessions"])
                    assert int(headers["Retry-After"]) > 0 and headers["Content-Type"].startswith("application/json")
        check_error(server.call("POST", "/api/sessions", {}), 503, says=["64 sessions"])


@case
def a_client_that_leaves_takes_its_close_back():
    with Server(["x"], decode_ms=30) as server:
        session = server.call("POST", "/api/sessions", {})[1]["id"]
        s = server.raw_post(CHAT, user("hi", stream=True, max_tokens=40, logit_bias=NEVER_ENDS))
        server.wait_status(lambda t: t["state"] == "busy", 5)
        leaver = server.connect()
        leaver.sendall(b"DELETE /api/sessions/%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % session)
        server.wait_status(lambda t: t["queued"] == 1, 2)
        leaver.close()
        server.wait_status(lambda t: t["queued"] == 0, 1)
        s.close()
        server.wait_idle(2)
        assert server.get("/api/sessions/%d" % session)[0] == 200


@case
def queue_full_loading_and_shutdown():
    with Server(["x"], decode_ms=30, queue=1) as server:
        session = server.call("POST", "/api/sessions", {})[1]["id"]
        held = [server.raw_post(CHAT, user("A", stream=True, max_tokens=200, logit_bias=NEVER_ENDS))]
        server.wait_status(lambda t: t["state"] == "busy", 2)
        held.append(server.raw_post(CHAT, user("B", stream=True)))
        server.wait_status(lambda t: t["queued"] == 1, 2)
        for method, path in (("DELETE", "/api/sessions/%d" % session), ("POST", "/api/sessions"),
                             ("POST", "/api/sessions/%d/branch" % session)):
            status, headers, body = server.request(method, path, b"{}" if method == "POST" else None, JSON)
            check_error((status, json.loads(body)), 503, code="queue_full")
            assert int(headers["Retry-After"]) > 0
        for path in ("/api/status", "/api/sessions", "/api/sessions/%d" % session, "/api/capacity"):
            assert server.get(path)[0] == 200, path
        held.pop().close()
        server.wait_status(lambda t: t["queued"] == 0, 2)
        waits = server.connect()
        waits.sendall(b"DELETE /api/sessions/%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % session)
        server.wait_status(lambda t: t["queued"] == 1, 2)
        server.process.stdin.close()
        waits.settimeout(10)
        assert waits.recv(4096).startswith(b"HTTP/1.1 503"), "the server is shutting down"
    with Server(["x"], load_ms=800, wait_ready=False) as server:
        for method, path in (("GET", "/api/status"), ("GET", "/api/capacity"), ("GET", "/api/sessions"),
                             ("POST", "/api/sessions"), ("DELETE", "/api/sessions/1")):
            status, _, body = server.request(method, path, b"{}" if method == "POST" else None, JSON)
            check_error((status, json.loads(body)), 503, says=["loading"])
        server.line("ready")


@case
def the_queue_is_told_whose_requests_they_are():
    """One client's requests pile up; another's single one gets the next turn, not the last."""
    with Server(["x"] * 4, decode_ms=40) as server:
        ended = {}

        def ask(name, what):
            assert server.post(CHAT, what, 60)[0] == 200
            ended[name] = time.monotonic()
        threads = []

        def start(name, what):
            threads.append(threading.Thread(target=ask, args=(name, what)))
            threads[-1].start()
            server.wait_status(lambda t: t["queued"] + (t["state"] == "busy") == len(threads), 5)
        # of one conversation: the same system text and first question, whatever follows
        def turn(i):
            return {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q" * 400},
                                 {"role": "assistant", "content": "a"}, {"role": "user", "content": "turn %d" % i}],
                    "max_tokens": 40, "logit_bias": NEVER_ENDS}
        for i in range(4):
            start("many %d" % i, turn(i))
        start("one", user("somebody else", max_tokens=2))
        for thread in threads:
            thread.join()
        order = sorted(ended, key=ended.get)
        assert order.index("one") <= 2 and order[0] == "many 0", order


@case
def eight_clients_at_once():
    """Every route from eight threads; whoever is refused is told 503 or, for what is closed, 404."""
    with Server(["al", "pha"], window=2048, hot=512, block=16, queue=16, decode_ms=1) as server:
        stop, seen, wrong = time.monotonic() + 3 * SLACK ** 0.5, [], []

        def client(n):
            try:
                while time.monotonic() < stop:
                    status, got = server.call("POST", "/api/sessions", {})
                    if status == 503:
                        continue
                    session = got["id"]
                    steps = [("POST", CHAT, user("client %d " % n * 20, modeld={"session": session})),
                             ("GET", "/api/sessions/%d" % session, None), ("GET", "/api/sessions", None),
                             ("GET", "/api/status", None), ("GET", "/api/capacity", None),
                             ("POST", "/api/sessions/%d/branch" % session, {"tokens": 10}),
                             ("POST", CHAT, user("client %d " % n * 20, stream=True, modeld={"session": session}))]
                    for method, path, body in steps:
                        status, _, got = server.request(method, path, None if body is None else json.dumps(body).encode(),
                                                        {} if body is None else JSON)
                        seen.append(status)
                        assert status in (200, 503), (method, path, status, got)
                        if path.endswith("branch") and status == 200:
                            assert server.call("DELETE", "/api/sessions/%d" % json.loads(got)["id"])[0] in (200, 503)
                    while server.call("DELETE", "/api/sessions/%d" % session)[0] == 503:
                        time.sleep(0.01)
            except Exception as e:  # pylint: disable=broad-except
                wrong.append("client %d: %r" % (n, e))
        threads = [threading.Thread(target=client, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong, wrong
        assert seen.count(200) > 50 and len(seen) > 50, len(seen)
        server.wait_idle(5)
        for session in server.sessions():
            assert server.call("DELETE", "/api/sessions/%d" % session["id"])[0] == 200
        t = server.status()
        assert t["sessions"] == t["hot"]["tokens"] == t["hot"]["bytes"] == 0, t  # answers that were cut off stay cold


main()
