"""What the engine openvino does with its limits, its settings and the places where others keep a cache: B123, B126, B129 and
B132, with the exact model, whose tokens are bytes.  Left out where the engine was not built in."""
import json
import os
import resource
import signal
import subprocess

from libcli import EXACT, FOLDER, MODELD, case, environment, main, modeld, refused
from libdaemon import Daemon
from libwire import CHAT, COMPLETION, check_error

ENGINE = ("--engine", "openvino", "-t", "1")
RUN = ("run", "-m", EXACT, "-p", "what was there before", "--raw", "-n", "12", "--temp", "0", "-c", "512", *ENGINE)
HERE = [e["name"] for e in json.loads(modeld("doctor", "--json").out)["engines"] if e["works"]]


def plan(path, *args):
    r = modeld("plan", path, "--json", *ENGINE, *args)
    assert r.code == 0, r
    return json.loads(r.out)


# ---- B123 ----
#
# The case is that of an NPU, which takes prompts up to a length that is fixed when the model is compiled.  No such device
# can be opened: it is refused in a line (B124), because its plugin has no block tables, and a limit that no device has would
# be a setting that nothing reads.  What a client sees is the same where the context is what is limited: the figure in plan and status,
# and an error with it.  A prompt of exactly the context leaves no token for an answer, and is refused as well (B041).

LIMIT = 1024


def prompt(count):
    return [3 + i * 11 % 256 for i in range(count)]


@case
def b123_an_npu_is_refused_in_a_line():
    for verb, more in (("run", ("-p", "x")), ("plan", ())):
        r = modeld(verb, "-m", EXACT, *ENGINE, "--device", "NPU", *more)
        refused(r, 1, "--device 'NPU'", "'openvino'", "CPU")


@case
def b123_a_limit_of_1024():
    p = plan(EXACT, "-c", LIMIT)
    assert p["effective_context"] == p["context_tokens"] == p["window_tokens"] == LIMIT, p
    for hot in ((), ("--hot", 256)):
        with Daemon(EXACT, *ENGINE, "-c", LIMIT, *hot) as d:
            s = d.status()
            assert (s["engine"], s["window_tokens"]) == ("openvino", LIMIT), s
            capacity = d.get("/api/capacity")[1]
            assert capacity["context_tokens"] == LIMIT, capacity
            assert capacity["effective_context"] == (hot[1] if hot else LIMIT), capacity  # what is hot at once
            assert d.get("/v1/models")[1]["data"][0]["context_length"] == LIMIT
            for count in (LIMIT - 1, LIMIT, LIMIT + 1, 4 * LIMIT):
                got = d.post(COMPLETION, {"prompt": prompt(count), "max_tokens": 4, "temperature": 0, "ignore_eos": True})
                if count < LIMIT:
                    assert got[0] == 200 and got[1]["usage"]["prompt_tokens"] == count, got
                    continue
                error = check_error(got, 400, code="context_length_exceeded", says=[str(count), str(LIMIT)])
                assert (error["n_prompt_tokens"], error["n_ctx"]) == (count, LIMIT), error
            grown_over_turns(d)


def grown_over_turns(d):
    """Turns of some hundred tokens each, until one is over; after it the conversation is as it was."""
    messages, counts = [], []
    for i in range(20):
        ask = messages + [{"role": "user", "content": "turn %d of this: %s" % (i, "x" * 100)}]
        status, got = d.post(CHAT, {"messages": ask, "max_tokens": 8, "temperature": 0, "ignore_eos": True})
        if status != 200:
            error = check_error((status, got), 400, code="context_length_exceeded", says=[str(LIMIT)])
            assert error["n_prompt_tokens"] >= LIMIT and error["n_ctx"] == LIMIT, error
            break
        counts.append(got["usage"]["prompt_tokens"])
        messages = ask + [{"role": "assistant", "content": got["choices"][0]["message"]["content"]}]
    assert len(counts) > 4 and LIMIT - 200 < counts[-1] < LIMIT, counts
    short = messages[:-1]  # what was answered last, once more
    status, got = d.post(CHAT, {"messages": short, "max_tokens": 8, "temperature": 0, "ignore_eos": True})
    assert status == 200 and got["choices"][0]["message"]["content"] == messages[-1]["content"], got
    assert got["usage"]["prompt_tokens_details"]["cached_tokens"] >= counts[-1] - 1, got["usage"]


# ---- B126, before a model is read; the rest is in test_past_openvino_exact.c ----


@case
def b126_keys_that_cannot_be_moved():
    for type_, says in (("u8", "keys of type u8 cannot be moved"), ("f32", None), ("f16", None)):
        p = plan(EXACT, "--past-window", "-ctk", type_, "-c", 300000)
        assert (says is None) == ("refused" not in p) and (says or "") in p.get("refused", ""), p
    refused(modeld(*RUN[:-6], "-c", "300000", *ENGINE, "--past-window", "-ctk", "u8"), 1, "keys of type u8 cannot be moved")


# ---- B129 ----
#
# The library has caches for what it compiled; in this release what is written there cannot be read again (ov_backend.h), so
# modeld asks for none, and each start compiles.  There is nothing to cut, spoil or fill: what is left of the case is that a
# start needs no place to write to, and leaves nothing behind.


def files(folder):
    return sorted(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)


def world(name):
    """Empty folders for all that programs ask the environment for; the one to run in comes first."""
    root = os.path.join(FOLDER, name)
    env = {}
    for key in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        env[key] = os.path.join(root, key)
        os.makedirs(env[key])
    here = os.path.join(root, "here")
    os.makedirs(here)
    return root, here, env


@case
def b129_two_starts_in_a_row():
    root, here, env = world("starts")
    answers = set()
    for _ in range(2):
        r = modeld(*RUN, env=env, cwd=here)
        assert r.code == 0 and r.err == "" and len(r.out) >= 12, r
        answers.add(r.out)
        found = [f for f in files(root) if not f.endswith("/speeds.json")]  # how fast it was, for `plan`: a few lines
        assert found == [], found
    assert len(answers) == 1, answers
    sizes = [os.path.getsize(f) for f in files(root)]
    assert sum(sizes) < 4096, sizes


@case
def b129_nowhere_to_write():
    """/proc takes no file from anybody; with a limit of 0 bytes none can grow, as on a full disk."""
    want = modeld(*RUN).out
    _, here, env = world("nowhere")
    r = modeld(*RUN, env={k: "/proc" for k in env}, cwd="/proc")
    assert r.code == 0 and r.out == want, r

    def full():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    for _ in range(2):
        p = subprocess.run([MODELD, *RUN], capture_output=True, env=environment(env), cwd=here, preexec_fn=full, timeout=120)
        assert p.returncode == 0 and p.stdout == want, (p.returncode, p.stderr)


# ---- XAttention: what an engine does with it is in test_xattention_openvino_*.c ----

STEP = ("-c", 1024, "-b", 512, "-ub", 512)


def turn(d, count):
    status, got = d.post(COMPLETION, {"prompt": prompt(count), "max_tokens": 4, "temperature": 0, "ignore_eos": True})
    assert status == 200, got
    return got["usage"]["prompt_tokens_details"]["cached_tokens"], got["modeld"]["provenance_tokens"]


@case
def xattention_is_asked_for():
    refused(modeld(*RUN, "--xattention", "0.9", "-b", "128"), 1, "of a step of 128 none", "-ub")
    for args, env, said in (((), {}, "off"), (("--xattention", "0.90"), {}, "0.9"), ((), {"MODELD_XATTENTION": "1"}, "1")):
        with Daemon(EXACT, *ENGINE, *STEP, *args, env=env) as d:
            assert d.status()["xattention"] == said, d.status()
            _, kinds = turn(d, 300)
            assert kinds == dict.fromkeys(kinds, 0) | {"full" if said == "off" else "bounded": 303}, kinds


@case
def xattention_does_not_share_a_folder():
    """What one share left on the disk is not found with another, nor without; with the same it is."""
    folder = os.path.join(FOLDER, "kv-xattention")
    for share, found in (("0.9", False), ("off", False), ("0.5", False), ("0.9", True), ("off", True)):
        with Daemon(EXACT, *ENGINE, *STEP, "--kv-dir", folder, "--kv-disk", "64MiB", "--xattention", share) as d:
            cached, kinds = turn(d, 300)
            assert (cached > 256) == found, (share, cached)
            assert (kinds["full"] == 0) == (share != "off"), (share, kinds)


@case
def xattention_and_auto():
    """Who asks for it gets the engine that has it, and hears why in a line."""
    r = modeld("run", "-m", EXACT, "-p", "x", "--raw", "-n", "2", "--engine", "auto", "--xattention", "0.9")
    assert r.code == 0 and r.err.count("\n") == 1, r
    assert "engine openvino: chosen by auto, 'llama' cannot: the engine 'llama' has no XAttention" in r.err, r


# ---- B132; on the fake engine: test_hot_settings.c ----


@case
def b132_start_recent_and_most():
    def flags(start, recent, most, *more):
        return ("-c", "1024", "--block-tokens", "32", "--sink", start, "--recent", recent, "--hot", most, *more)

    run = ("run", "-m", EXACT, "-p", "x", "--raw", "-n", "2", *ENGINE)
    for row, code, says in (((32, 128, 128), 1, ("--hot", "got 128", "smallest that works is 192")),
                            ((32, 128, 160), 1, ("--hot", "got 160", "smallest that works is 192")),
                            ((32, 0, 512), 1, ("--recent must be at least 1",)), ((32, -1, 512), 2, ("--recent",)),
                            ((-1, 128, 512), 2, ("--sink",)), ((32, 128, -1), 2, ("--hot",))):
        refused(modeld(*run, *flags(*row)), code, *says)
    refused(modeld(*run, *flags(32, 128, 512)[:-6], "--block-tokens", "0"), 1, "--block-tokens must be between")
    for row, want in (((30, 128, 500), (32, 128, 500)), ((0, 100, 512), (0, 128, 512))):
        with Daemon(EXACT, *ENGINE, *flags(*row)) as d:
            s = d.status()
            assert (s["sink_tokens"], s["recent_tokens"], s["hot"]["limit_tokens"]) == want, s
            status, got = d.post(COMPLETION, {"prompt": prompt(900), "max_tokens": 4, "temperature": 0, "ignore_eos": True})
            assert status == 200 and got["modeld"]["hot_tokens"] <= want[2] and got["modeld"]["lost_tokens"] == 0, got
            assert d.status()["cold"]["tokens"] > 900 - want[2], d.status()


@case
def b132_a_window_of_100():
    p = plan(EXACT, "-c", 100)
    assert p["hot_tokens"] == p["window_tokens"] == 100, p
    with Daemon(EXACT, *ENGINE, "-c", 100) as d:
        status, got = d.post(COMPLETION, {"prompt": prompt(90), "max_tokens": 8, "temperature": 0, "ignore_eos": True})
        assert status == 200 and got["modeld"]["hot_tokens"] >= 97, got
        s = d.status()
        assert (s["window_tokens"], s["hot"]["limit_tokens"], s["sink_tokens"], s["recent_tokens"]) == (100, 100, 0, 0), s
        assert s["cold"]["tokens"] == 0, s
        assert d.sessions()[0]["evicted_blocks"] == 0, d.sessions()


if "openvino" not in HERE:
    print("ok left_out_of_this_build")
else:
    main()
