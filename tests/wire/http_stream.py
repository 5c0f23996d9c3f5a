"""Streams: their shape, whole characters, stop strings, first bytes, clients that leave."""
import json
import time

from libwire import (CHAT, COMPLETION, Server, case, check_error, finish, joined, killed_in_prefill_is_paid_once, main,
                     parse_events, reset, user)


def read_until(s, marker, seconds=10):
    got = b""
    s.settimeout(seconds)
    while marker not in got:
        more = s.recv(65536)
        assert more, "closed after %r" % got[-200:]
        got += more
    return got


@case
def chat_stream_shape():
    with Server(["al", "pha"]) as server:
        events, body = server.stream(CHAT, user("hi", stream_options={"include_usage": True}))
        first = events[0]
        assert first["object"] == "chat.completion.chunk" and first["model"] == "scripted"
        assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}, first
        assert all("role" not in e["choices"][0]["delta"] for e in events[1:-1])
        assert len({e["id"] for e in events}) == 1
        assert joined(events) == "alpha" and finish(events) == "stop"
        assert events[-1]["choices"] == [] and all(e["usage"] is None for e in events[:-1])
        usage = events[-1]["usage"]
        prompt = len("user: hi\nassistant: ")
        assert usage == {"prompt_tokens": prompt, "completion_tokens": 2, "total_tokens": prompt + 2,
                         "prompt_tokens_details": {"cached_tokens": 0}}, usage
        timings = events[-2]["timings"]
        assert set(timings) == {"cache_n", "prompt_n", "prompt_ms", "prompt_per_second", "predicted_n",
                                "predicted_ms", "predicted_per_second"}
        assert timings["prompt_n"] == prompt and timings["cache_n"] == 0 and timings["predicted_n"] == 2
        assert set(events[-2]["modeld"]) == {"session", "restored_tokens", "moved_tokens", "lost_tokens", "recomputed_tokens",
                                             "dropped_tokens", "attended_tokens", "hot_tokens", "hot_limit_tokens", "durable_tokens",
                                             "restore_ms", "provenance_tokens", "breaker", "retrieval", "eviction"}
        assert events[-2]["modeld"]["retrieval"] is None
        events, _ = server.stream(CHAT, user("hi"))
        assert all("usage" not in e for e in events) and events[-1]["choices"], "usage was not asked for"
        status, whole = server.post(CHAT, user("hi"))
        assert status == 200 and whole["object"] == "chat.completion"
        assert whole["choices"][0]["message"] == {"role": "assistant", "content": "alpha"}
        assert whole["choices"][0]["finish_reason"] == "stop"
        assert whole["usage"]["prompt_tokens_details"]["cached_tokens"] > 0, "the second time it is cached"


@case
def completion_shape():
    with Server(["al", "pha"]) as server:
        events, _ = server.stream(COMPLETION, {"prompt": "x", "stream_options": {"include_usage": True}})
        assert events[0]["object"] == "text_completion"
        assert joined(events) == "alpha" and finish(events) == "stop"
        assert events[-1]["usage"]["prompt_tokens"] == 1
        _, whole = server.post(COMPLETION, {"prompt": [104, 105]})
        assert whole["choices"][0]["text"] == "alpha" and whole["usage"]["prompt_tokens"] == 2
        _, whole = server.post(COMPLETION, {"prompt": ["hi"], "max_tokens": 1})
        assert whole["choices"][0]["text"] == "al" and whole["choices"][0]["finish_reason"] == "length"


@case
def progress_is_streamed():
    with Server(prefill_ms=1, batch=64, hot=2048) as server:
        events, _ = server.stream(CHAT, user("x" * 500, return_progress=True))
        seen = [e["prompt_progress"] for e in events if "prompt_progress" in e]
        assert len(seen) >= 3, seen
        total = 500 + len("user: \nassistant: ")
        assert all(set(p) == {"total", "cache", "processed", "time_ms"} and p["total"] == total for p in seen), seen
        done = [p["processed"] for p in seen]
        assert done == sorted(done) and done[0] < done[-1] <= total, done
        events, _ = server.stream(CHAT, user("y" * 500))
        assert all("prompt_progress" not in e for e in events), "it was not asked for"


@case
def first_byte_before_prefill():
    with Server(prefill_ms=4, hot=2048) as server:
        started = time.monotonic()
        s = server.raw_post(CHAT, user("x" * 500, stream=True))
        read_until(s, b'"role":"assistant"', 1)
        assert time.monotonic() - started < 1, "the prefill takes 2 s"
        server.wait_status(lambda t: t["state"] == "busy", 1)
        waits = server.raw_post(CHAT, user("y", stream=True))  # behind it in the queue: no different
        read_until(waits, b'"role":"assistant"', 1)
        server.wait_status(lambda t: t["queued"] == 1, 1)
        waits.close()
        s.close()


@case
def keepalive_comments_while_silent():
    with Server(["x"], prefill_ms=4, hot=2048, keepalive_ms=300) as server:
        s = server.raw_post(CHAT, user("x" * 500, stream=True))
        body = read_until(s, b"[DONE]")
        comments = body.count(b": keep-alive\n\n")
        assert 3 <= comments <= 8, comments
    with Server(["x"] * 40, decode_ms=50, keepalive_ms=400) as server:
        _, body = server.stream(CHAT, user("hi"))
        assert b"keep-alive" not in body, "it was never silent"


@case
def b082_whole_characters():
    crab, euro, bad = "\U0001f980", "\u20ac", "\ufffd"
    table = [
        ("one character of three pieces", [b"\xf0", b"\x9f\xa6", b"\x80"], crab),
        ("a euro", [b"\xe2", b"\x82", b"\xac"], euro),
        ("cut by a letter", [b"\xf0\x9f", b"A"], bad + "A"),
        ("cut by another start", [b"\xc3", b"\xc3\xa9"], bad + "\u00e9"),
        ("a tail without a head", [b"\x80", b"A"], bad + "A"),
        ("cut by the end", [b"A", b"\xf0\x9f\xa6"], "A" + bad),
        ("the first byte for ever", [b"\xf0"] * 4, bad * 4),
    ]
    for label, pieces, want in table:
        with Server(pieces) as server:
            for path, what in ((CHAT, user("hi")), (COMPLETION, {"prompt": "x"})):
                events, body = server.stream(path, what)  # strict UTF-8 and JSON inside
                assert joined(events) == want, (label, joined(events))
                whole = server.post(path, what)[1]["choices"][0]
                text = whole["text"] if "text" in whole else whole["message"]["content"]
                assert text == want, (label, text)
            if label == "one character of three pieces":
                deltas = [e["choices"][0]["text"] for e in events if e["choices"][0]["text"]]
                assert deltas == [crab], deltas
    with Server([b"\xf0\x9f\xa6", b"\x80"]) as server:
        _, whole = server.post(COMPLETION, {"prompt": "x", "max_tokens": 1})
        assert whole["choices"][0]["text"] == bad and whole["choices"][0]["finish_reason"] == "length", whole


@case
def b091_stop_strings():
    table = [
        ("across tokens", ["al", "pha ST", "O", "P!", "x"], ["STOP"], "alpha ", "stop"),
        ("begun but not come", ["al", "pha ST"], ["STOP"], "alpha ST", "stop"),
        ("the earliest wins", ["al", "pha ST", "O", "P!", "x"], ["STO", "STOP!"], "alpha ", "stop"),
        ("a split character", [b"caf\xc3", b"\xa9", b"tail"], ["\u00e9"], "caf", "stop"),
        ("one string, no list", ["one", "two"], "two", "one", "stop"),
        ("at the very start", ["two"], ["two"], "", "stop"),
    ]
    for label, pieces, stop, want, reason in table:
        with Server(pieces) as server:
            for path, what in ((CHAT, user("hi", stop=stop)), (COMPLETION, {"prompt": "x", "stop": stop})):
                events, _ = server.stream(path, what)
                assert joined(events) == want, (label, joined(events))
                assert finish(events) == reason, (label, finish(events))
                whole = server.post(path, what)[1]["choices"][0]
                text = whole["text"] if "text" in whole else whole["message"]["content"]
                assert (text, whole["finish_reason"]) == (want, reason), (label, whole)
    with Server(["x"]) as server:
        for stop in ([""], "", ["x" * 2000], [1], {"a": 1}, ["s"] * 17):
            check_error(server.post(CHAT, user("hi", stop=stop)), 400, "stop")


@case
def b078_client_leaves():
    """Within a second the engine is free, whatever way the client went; the next one starts at once."""
    for how in ("fin", "rst"):
        for stream in (True, False):
            with Server(["tok "] * 50, decode_ms=20) as server:
                ask = user("hi", max_tokens=2000, logit_bias={"256": -100}, stream=stream)
                s = server.raw_post(CHAT, ask)
                if stream:
                    read_until(s, b'"content":"tok "')
                server.wait_status(lambda t: t["state"] == "busy", 2)
                time.sleep(0.3)
                before = server.tape()
                if how == "rst":
                    reset(s)
                else:
                    s.close()
                took = server.wait_idle(1.0)
                after = server.tape()
                assert after - before <= took / 0.02 + 20, (how, stream, before, after)
                started = time.monotonic()
                status, _ = server.post(CHAT, user("next", max_tokens=1))
                assert status == 200 and time.monotonic() - started < 1, (how, stream)


@case
def b078_client_leaves_in_prefill():
    with Server(prefill_ms=5, batch=32, hot=2048) as server:
        s = server.raw_post(CHAT, user("x" * 1500, stream=True))
        server.wait_status(lambda t: t["state"] == "busy", 2)
        time.sleep(0.4)
        s.close()
        server.wait_idle(1.0)
        assert server.tape() > 0, "what was computed is kept"


@case
def killed_at_10_50_and_90_percent_of_a_prefill():
    with Server(["x"], prefill_ms=1, batch=64, hot=512) as server:
        for percent in (10, 50, 90):
            killed_in_prefill_is_paid_once(server, user(("%d " % percent) * 300, max_tokens=1), percent,
                                           user("other %d" % percent, max_tokens=1))


@case
def b081_waiting_clients_leave():
    with Server(["tok "] * 40, decode_ms=25, queue=25) as server:
        a = server.raw_post(CHAT, user("A", stream=True))
        read_until(a, b'"content":"tok "')
        waiting = [server.raw_post(CHAT, user("B%d" % i, stream=i % 2 == 0)) for i in range(20)]
        server.wait_status(lambda t: t["queued"] == 20, 3)
        for i, s in enumerate(waiting):
            reset(s) if i % 3 == 0 else s.close()
        server.wait_status(lambda t: t["queued"] == 0, 1.0)
        assert server.status()["state"] == "busy", "A still runs"
        d = server.raw_post(CHAT, user("D", stream=True, max_tokens=2))
        read_until(a, b"[DONE]")
        a_done = time.monotonic()
        read_until(d, b"[DONE]")
        assert time.monotonic() - a_done < 1, "D had to wait for somebody"
        assert server.status()["requests"] == 2, server.status()


@case
def queue_full_is_503_with_retry_after():
    with Server(["tok "] * 50, decode_ms=30, queue=2) as server:
        held = [server.raw_post(CHAT, user("A", stream=True))]
        server.wait_status(lambda t: t["state"] == "busy", 2)
        held += [server.raw_post(CHAT, user("B", stream=True)) for _ in range(2)]
        server.wait_status(lambda t: t["queued"] == 2, 2)
        for stream in (True, False):
            status, headers, body = server.request("POST", CHAT, json.dumps(user("C", stream=stream)),
                                                   {"Content-Type": "application/json"})
            check_error((status, json.loads(body)), 503, code="queue_full")
            assert int(headers["Retry-After"]) > 0
        status, models = server.get("/v1/models")
        assert status == 200 and models["data"][0]["id"] == "scripted", "models answer while busy"
        for s in held:
            s.close()


@case
def shutdown_ends_streams():
    with Server(["tok "] * 50, decode_ms=50) as server:
        s = server.raw_post(CHAT, user("A", stream=True))
        read_until(s, b'"content":"tok "')
        waits = server.raw_post(CHAT, user("B", stream=False))
        server.wait_status(lambda t: t["queued"] == 1, 2)
        server.process.stdin.close()
        rest = b""
        s.settimeout(5)
        while True:
            more = s.recv(65536)
            if not more:
                break
            rest += more
        assert b'data: {"error":' in rest and b"shutting down" in rest, rest[-300:]
        # an error in the middle of a stream ends it as its success would: docs/serve.md
        assert rest.index(b'{"error":') < rest.index(b"data: [DONE]\n\n") and rest.endswith(b"\r\n0\r\n\r\n"), rest[-300:]
        head = waits.recv(65536)
        assert head.startswith(b"HTTP/1.1 503"), head[:100]
    assert server.ended_in < 3, server.ended_in


@case
def one_connection_serves_many():
    import http.client
    with Server(["al", "pha"]) as server:
        c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        c.connect()
        sock = c.sock
        for i in range(20):
            c.request("POST", CHAT, json.dumps(user("q%d" % i, stream=i % 2 == 0)), {"Content-Type": "application/json"})
            r = c.getresponse()
            body = r.read()
            assert r.status == 200 and (b"alpha" in body or joined(parse_events(body)) == "alpha")
            c.request("GET", "/health")
            assert json.loads(c.getresponse().read()) == {"status": "ok"}
        assert c.sock is sock, "the connection was not kept"
        c.close()


main()
