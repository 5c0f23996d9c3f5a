"""One daemon on SmolLM2, and what clients see of it: figures, reuse, limits, whole characters, cancel."""
# slow
import atexit
import json
import os
import shutil
import signal
import subprocess
import time

from libdaemon import Daemon
from libwire import (CHAT, COMPLETION, SLACK, case, check_error, finish, joined, killed_in_prefill_is_paid_once, main,
                     parse_events, reset, user)

MODEL = os.path.abspath(os.environ.get("MODELD_TEST_MODEL", ".deps/models/smollm2.gguf"))
ENDS = {"2": -100, "0": -100}  # the end tokens cannot come
GREEDY = {"temperature": 0, "seed": 1}


def smollm(*args, **more):
    return Daemon(MODEL, "-t", "1", *args, **more)


SHARED = {}


def daemon():
    """The one that most cases use; main() is over before it is stopped."""
    if not SHARED:
        SHARED["daemon"] = smollm("--hot", "512", "-c", "2048", "--alias", "little").__enter__()
        atexit.register(SHARED["daemon"].process.kill)  # when not all cases are asked for
    return SHARED["daemon"]


@case
def health_while_loading_and_after():
    d = smollm("--hot", "512", ready=False)
    with d:
        seen = []
        while not seen or seen[-1] != 200:
            status, body = d.get("/health")
            if not seen or seen[-1] != status:
                seen.append(status)
            if status == 503:
                assert body["error"]["message"], body
                got = d.post(CHAT, user("hi", max_tokens=1))
                # it may have become ready between the two requests
                assert got[0] in (200, 503), got
            assert d.process.poll() is None
        assert seen == [503, 200], seen
        assert d.get("/health") == (200, {"status": "ok"})


@case
def models_and_their_figures():
    status, body = daemon().get("/v1/models")
    assert status == 200 and body["object"] == "list"
    assert {m["id"] for m in body["data"]} >= {"smollm2"}, body
    text = json.dumps(body)
    assert "8192" in text and "2048" in text and "little" in text, body


@case
def stream_and_whole_say_the_same():
    d = daemon()
    ask = user("Name three colours.", max_tokens=24, **GREEDY)
    events, _ = d.stream(CHAT, dict(ask, stream_options={"include_usage": True}))
    status, whole = d.post(CHAT, ask)
    assert status == 200, whole
    content = whole["choices"][0]["message"]["content"]
    assert joined(events) == content and len(content) > 10, (joined(events), content)
    assert finish(events) == whole["choices"][0]["finish_reason"]
    for usage in (events[-1]["usage"], whole["usage"]):
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"], usage
        assert 0 < usage["completion_tokens"] <= 24
        assert usage["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"]
    for name in ("prompt_tokens", "completion_tokens"):
        assert events[-1]["usage"][name] == whole["usage"][name]
    timings = whole["timings"]
    assert timings["cache_n"] + timings["prompt_n"] == whole["usage"]["prompt_tokens"], timings
    assert timings["predicted_n"] == whole["usage"]["completion_tokens"], timings
    run = subprocess.run([os.path.abspath(os.environ.get("MODELD", "build/modeld")), "run", "-m", MODEL, "-t", "1", "--hot",
                          "512", "-c", "2048", "--temp", "0", "-n", "24", "-p", "Name three colours."],
                         stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
    assert run.returncode == 0 and run.stdout.decode().startswith(content[:8]), (run, content)


@case
def the_second_turn_is_cached():
    d = daemon()
    messages = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "What is the capital of France?"}]
    _, first = d.post(CHAT, {"messages": messages, "max_tokens": 16, **GREEDY})
    answer = first["choices"][0]["message"]["content"]
    messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "And of Italy?"}]
    _, second = d.post(CHAT, {"messages": messages, "max_tokens": 16, **GREEDY})
    u1, u2 = first["usage"], second["usage"]
    cached = u2["prompt_tokens_details"]["cached_tokens"]
    assert cached >= u1["prompt_tokens"] + u1["completion_tokens"] - 1, (u1, u2)
    assert second["modeld"]["recomputed_tokens"] == second["modeld"]["dropped_tokens"] == 0


@case
def a_long_history_goes_cold_and_a_branch_comes_back():
    d = daemon()
    header = open(os.path.join(os.path.dirname(MODEL), "..", "llama", "include", "llama.h")).read()
    head, tail = header[:3000], header[6000:8000]
    _, first = d.post(COMPLETION, {"prompt": head + tail, "max_tokens": 4, **GREEDY}, timeout=120)
    assert first["usage"]["prompt_tokens"] > 900, first["usage"]
    assert first["modeld"]["hot_tokens"] <= first["modeld"]["hot_limit_tokens"] == 512
    status = d.status()
    assert status["cold"]["tokens"] > 300 and status["cold"]["dropped"] == 0 and status["hot"]["tokens"] <= 512, status
    _, branch = d.post(COMPLETION, {"prompt": head, "max_tokens": 4, **GREEDY}, timeout=120)
    m = branch["modeld"]
    assert m["restored_tokens"] > 0 and m["recomputed_tokens"] == m["dropped_tokens"] == 0, m
    assert branch["usage"]["prompt_tokens"] - branch["usage"]["prompt_tokens_details"]["cached_tokens"] <= 64, branch["usage"]


@case
def b049_first_tokens():
    """Model S adds no first token: raw `Hi` is one token, and the template writes its own <|im_start|> once."""
    d = daemon()
    _, raw = d.post(COMPLETION, {"prompt": "Hi", "max_tokens": 1, **GREEDY})
    assert raw["usage"]["prompt_tokens"] == 1, raw["usage"]
    _, chat = d.post(CHAT, user("Hi", max_tokens=1, **GREEDY))
    texts = ("system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face", "\n", "user\nHi", "\n",
             "assistant\n")
    want = 5  # three <|im_start|> and two <|im_end|>
    for text in texts:
        want += d.post(COMPLETION, {"prompt": text, "max_tokens": 1, **GREEDY})[1]["usage"]["prompt_tokens"]
    assert chat["usage"]["prompt_tokens"] == want, (chat["usage"], want)


@case
def b082_broken_characters():
    d = daemon()
    for token, one in (("187", "\ufffd"), ("10813", "\ufffd"), ("142", "\ufffd")):
        for count in (1, 2, 3, 4):
            ask = {"prompt": "x", "max_tokens": count, "logit_bias": {token: 100}, **GREEDY}
            events, body = d.stream(COMPLETION, ask)  # strict UTF-8 and JSON, or it raises
            _, whole = d.post(COMPLETION, ask)
            text = whole["choices"][0]["text"]
            assert joined(events) == text, (joined(events), text)
            assert text == one * count, (token, count, text)
            assert whole["usage"]["completion_tokens"] == count


@case
def b090_max_tokens():
    d = daemon()
    status, zero = d.post(CHAT, user("Hi", max_tokens=0))
    assert status == 200 and zero["usage"]["completion_tokens"] == 0 and zero["choices"][0]["finish_reason"] == "length"
    _, one = d.post(CHAT, user("Hi", max_tokens=1, **GREEDY))
    assert one["usage"]["completion_tokens"] == 1 and one["choices"][0]["finish_reason"] == "length"
    _, both = d.post(CHAT, user("Hi", max_tokens=9, max_completion_tokens=2, logit_bias=ENDS, **GREEDY))
    assert both["usage"]["completion_tokens"] == 2 and both["choices"][0]["finish_reason"] == "length"
    for more in ({}, {"max_tokens": None}, {"max_tokens": -1}):
        status, whole = d.post(CHAT, user("Say only the word yes.", **GREEDY, stop=["e", "a", "o", "i", "u", " "], **more))
        assert status == 200 and whole["choices"][0]["finish_reason"] == "stop", whole


@case
def b078_a_client_that_leaves_frees_the_slot():
    d = daemon()
    for streamed in (True, False):
        for hard in (False, True):
            s = d.raw_post(CHAT, user("Tell a story.", max_tokens=2000, stream=streamed, logit_bias=ENDS, **GREEDY))
            if streamed:
                got = b""
                while got.count(b"data: ") < 5:
                    got += s.recv(65536)
            else:
                d.wait_status(lambda st: st["state"] == "busy", 5)
                time.sleep(0.3)
            reset(s) if hard else s.close()
            took = d.wait_idle(1)
            assert took < 1 * SLACK, took
            status, next_one = d.post(CHAT, user("Hi", max_tokens=1, **GREEDY))
            assert status == 200, next_one


@case
def b078_a_client_that_leaves_in_the_middle_of_a_prefill():
    d = daemon()
    s = d.raw_post(CHAT, user("The quick brown fox jumps over the lazy dog. " * 150, stream=True))
    d.wait_status(lambda st: st["state"] == "busy", 5)
    time.sleep(1)
    s.close()
    d.wait_idle(1)


@case
def killed_at_10_50_and_90_percent_of_a_prefill():
    """The prompts are more than the hot set of 512, and each says something else from its beginning on."""
    for percent in (10, 50, 90):
        killed_in_prefill_is_paid_once(daemon(), user("Chapter %d. " % percent + "The dog is quick while the sun is setting. " * 70,
                                                      max_tokens=1, **GREEDY),
                                       percent, user("Hi, %d." % percent, max_tokens=1, **GREEDY))


@case
def b040_a_long_prompt_and_health_meanwhile():
    d = daemon()
    ask = user("The lazy dog is quick while the sun is setting. " * 130, max_tokens=4, return_progress=True,
               stream_options={"include_usage": True}, **GREEDY)
    before = d.status()["requests"]
    started = time.monotonic()
    s = d.raw_post(CHAT, dict(ask, stream=True))
    assert s.recv(100).startswith(b"HTTP/1.1 200"), "the reply begins before the prefill"
    assert time.monotonic() - started < 2 * SLACK
    worst = 0
    while d.status()["state"] == "busy" or d.status()["requests"] == before:
        t = time.monotonic()
        assert d.get("/health")[0] == 200 and d.get("/v1/models")[0] == 200
        worst = max(worst, time.monotonic() - t)
        time.sleep(0.05)
        assert time.monotonic() - started < 120 * SLACK
    assert worst < 0.4 * SLACK, "two requests took %.3f s in prefill" % worst
    s.close()
    t = d.status()
    assert t["hot"]["tokens"] <= 512 and t["cold"]["tokens"] > 700 and t["cold"]["dropped"] == 0, t
    events, _ = d.stream(CHAT, ask)
    usage = events[-1]["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= 0.99 * usage["prompt_tokens"] - 1, usage


@case
def b088_nearly_greedy_and_a_seed_that_repeats():
    d = daemon()
    answers = {d.post(CHAT, user("Say hello.", temperature=t, max_tokens=8))[1]["choices"][0]["message"]["content"]
               for t in (0, 1e-6)}
    assert len(answers) == 1 and answers != {""}, answers
    one, two = (d.post(CHAT, user("Tell me a story.", temperature=1.5, seed=7, max_tokens=12))[1] for _ in range(2))
    assert one["choices"][0]["message"] == two["choices"][0]["message"], "a seed repeats"


@case
def curl():
    if shutil.which("curl") is None:
        print("# curl is not there", flush=True)
        return
    d = daemon()
    url = "http://127.0.0.1:%d" % d.port

    def call(*args):
        p = subprocess.run(["curl", "-sS", "--noproxy", "*", *args], capture_output=True, timeout=60)
        assert p.returncode == 0, p
        return p.stdout.decode()
    assert json.loads(call(url + "/health")) == {"status": "ok"}
    body = json.dumps(user("Hi", max_tokens=4, **GREEDY))
    answer = json.loads(call(url + CHAT, "-H", "Content-Type: application/json", "-d", body))
    assert answer["usage"]["completion_tokens"] <= 4 and answer["choices"][0]["message"]["content"]
    streamed = call("-N", url + CHAT, "-H", "Content-Type: application/json", "-d", json.dumps(dict(json.loads(body), stream=True)))
    assert joined(parse_events(streamed.encode())) == answer["choices"][0]["message"]["content"]
    code = call("-o", os.devnull, "-w", "%{http_code}", url + CHAT, "-H", "Content-Type: application/json", "-d", "{")
    assert code == "400", code


@case
def b074_50_mib_of_cold_kv():
    """What the cases before left is more than 50 MiB (2275 tokens of 23,040 bytes): status has it, with its limit, and the
    plan of a switch credits it with all that the process holds.  It goes with the conversations."""
    d = daemon()
    chapter = 0
    while d.status()["cold"]["used_bytes"] < 50 << 20:  # only when few cases were asked for
        chapter += 1
        d.post(COMPLETION, {"prompt": "%d. " % chapter + "The dog is quick while the sun is setting. " * 100, "max_tokens": 1},
               timeout=120)
    cold = d.status()["cold"]
    credited = d.get("/api/capacity")[1]["credited_bytes"]
    assert cold["used_bytes"] <= cold["peak_bytes"] <= cold["budget_bytes"], cold
    assert credited > cold["used_bytes"], (credited, cold)
    for session in d.sessions():
        assert d.call("DELETE", "/api/sessions/%d" % session["id"])[0] == 200, session
    t = d.status()
    # what fell off a conversation before belongs to none, and waits for its text to come again
    assert t["cold"]["used_bytes"] < cold["used_bytes"] / 2 and t["hot"]["bytes"] == t["sessions"] == 0, (cold, t)


@case
def ends_well():
    d = SHARED.pop("daemon")
    code, took = d.end(signal.SIGTERM)
    assert code == 0 and took < 5 * SLACK, (code, took)


@case
def b034_b041_a_window_of_512_without_residency():
    with smollm("-c", "512", "--residency", "off") as d:
        ids = [28120, 28] * 400
        for count in (1, 255, 256, 511):
            status, whole = d.post(COMPLETION, {"prompt": ids[:count], "max_tokens": 100000, "logit_bias": ENDS, **GREEDY},
                                   timeout=200)
            assert status == 200, (count, whole)
            usage = whole["usage"]
            assert usage["prompt_tokens"] == count and usage["completion_tokens"] == 512 - count, usage
            assert whole["choices"][0]["finish_reason"] == "length", whole["choices"]
        for count in (512, 600):
            for streamed in (False, True):
                answer = d.post(COMPLETION, {"prompt": ids[:count], "max_tokens": 4, "stream": streamed})
                error = check_error(answer, 400, says=(str(count), "512"))
                assert "context" in error["code"], error
        # B117: a text beyond the window is refused, not cut
        status, refused = d.post(CHAT, user("word " * 3000, max_tokens=4))
        assert status == 400, refused
        status, whole = d.post(CHAT, user("Hi", max_tokens=2, **GREEDY))
        assert status == 200, whole


main()
