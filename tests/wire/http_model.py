"""The daemon itself on SmolLM2: what a scripted model cannot show."""
# slow
import json
import os
import socket
import struct
import subprocess
import sys
import time

from libwire import (CHAT, COMPLETION, JSON, SLACK, ModelServer, case, check_error, finish, joined, main, user)

if not os.path.exists(os.environ.get("MODELD_TEST_MODEL", "")):
    sys.exit("MODELD_TEST_MODEL is not there: tools/setup.sh model smollm2")

NO_END = {"2": -100, "0": -100}
TEXT = "The quick brown fox jumps over the lazy dog while the sun is setting behind the hills. "


@case
def b082_bytes_that_are_no_text():
    with ModelServer("-c", "512") as server:
        for token in ("187", "10813", "142"):  # F0, F0 9F, C3: never a whole character
            for count in range(1, 5):
                ask = user("hi", max_tokens=count, logit_bias={token: 100}, temperature=0)
                events, _ = server.stream(CHAT, ask)
                whole = server.post(CHAT, ask)[1]
                text = whole["choices"][0]["message"]["content"]
                assert joined(events) == text and set(text) == {"\ufffd"}, (token, count, text)
                assert len(text) == count, (token, count, text)
                assert finish(events) == whole["choices"][0]["finish_reason"] == "length"


@case
def b088_nearly_greedy():
    with ModelServer("-c", "512") as server:
        answers = {server.post(CHAT, user("Say hello.", temperature=t, max_tokens=8))[1]["choices"][0]["message"]["content"]
                   for t in (0, 1e-6)}
        assert len(answers) == 1 and answers != {""}, answers
        one = server.post(CHAT, user("Tell me a story.", temperature=1.5, seed=7, max_tokens=12))[1]
        two = server.post(CHAT, user("Tell me a story.", temperature=1.5, seed=7, max_tokens=12))[1]
        assert one["choices"][0]["message"] == two["choices"][0]["message"], "a seed repeats"


@case
def b034_window_without_residency():
    with ModelServer("-c", "512", "--residency", "off") as server:
        made = {}
        for count in (480, 496, 511):
            status, got = server.post(COMPLETION, {"prompt": [504] * count, "max_tokens": 100000, "logit_bias": NO_END,
                                                   "temperature": 0}, timeout=120)
            assert status == 200 and got["choices"][0]["finish_reason"] == "length", (count, got)
            made[count] = count + got["usage"]["completion_tokens"]
        assert len(set(made.values())) == 1 and 511 <= made[511] <= 512, made
        for stream in (True, False):
            for count in (512, 600):
                error = check_error(server.post(COMPLETION, {"prompt": [504] * count, "stream": stream}), 400,
                                    code="context_length_exceeded", says=[str(count), "512"])
                assert (error["n_prompt_tokens"], error["n_ctx"]) == (count, 512)


@case
def b040_long_prompt_through_a_small_hot_set():
    with ModelServer("-c", "4096", "--hot", "512") as server:
        ask = user(TEXT * 110, max_tokens=4, temperature=0, return_progress=True, stream_options={"include_usage": True})
        started = time.monotonic()
        s = server.raw_post(CHAT, dict(ask, stream=True))
        assert s.recv(100).startswith(b"HTTP/1.1 200"), "the reply begins before the prefill"
        assert time.monotonic() - started < 2 * SLACK
        worst = 0
        while server.status()["running"] or server.status()["requests"] == 0:
            t = time.monotonic()
            assert server.get("/health")[0] == 200 and server.get("/v1/models")[0] == 200
            worst = max(worst, time.monotonic() - t)
            time.sleep(0.05)
            assert time.monotonic() - started < 120
        assert worst < 0.4 * SLACK, "two requests took %.3f s in prefill" % worst
        s.close()
        t = server.status()
        assert t["hot"]["tokens"] <= 512 and t["cold"]["tokens"] > 1000 and t["lost_tokens"] == 0, t
        events, _ = server.stream(CHAT, ask)
        usage = events[-1]["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] >= 0.99 * usage["prompt_tokens"] - 1, usage


@case
def b078_client_leaves_the_model():
    with ModelServer("-c", "4096", "--hot", "1024") as server:
        for how in ("fin", "rst"):
            for stream in (True, False):
                s = server.raw_post(CHAT, user("Tell me a long story about %s %s." % (how, stream), max_tokens=2000,
                                               logit_bias=NO_END, stream=stream))
                server.wait_status(lambda t: t["running"] and t["tape_tokens"] > 20, 10)
                time.sleep(0.3)
                if how == "rst":
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                s.close()
                server.wait_status(lambda t: not t["running"] and t["queued"] == 0, 1.0)
        s = server.raw_post(CHAT, user(TEXT * 150, stream=True))  # leaves in the middle of the prefill
        server.wait_status(lambda t: t["running"], 5)
        time.sleep(1)
        s.close()
        server.wait_status(lambda t: not t["running"], 1.0)
        started = time.monotonic()
        assert server.post(CHAT, user("Hello", max_tokens=1), timeout=60)[0] == 200
        assert time.monotonic() - started < 5 * SLACK


@case
def b107_port_is_taken_before_the_model_is_read():
    with ModelServer("-c", "512") as server:
        for flags, word in ((["--port", str(server.port)], str(server.port)), (["--port", "65536"], "65536")):
            started = time.monotonic()
            p = subprocess.run([os.environ["MODELD"], "serve", "-m", os.environ["MODELD_TEST_MODEL"]] + flags,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=20)
            assert p.returncode in (1, 2) and word in p.stderr.decode(), (p.returncode, p.stderr)
            assert time.monotonic() - started < 1 * SLACK, "before loading"
    assert server.ended_in < 5


main()
