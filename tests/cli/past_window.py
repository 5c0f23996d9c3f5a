"""--past-window: what plan says of it, what is refused before a model is read, and that serve goes on behind the window.

The exact model (512 bytes of KV a token) with 1,024 tokens for its trained window: an eighth of that is the step, the rest
the most that can be hot."""
import json
import os

from libcli import EXACT, FOLDER, case, main, modeld, refused, write
from libdaemon import Daemon
from libplan import file, key, plan
from libwire import COMPLETION

TRAINED, STEP, MOST, BLOCK = 1024, 128, 896, 64
YARN = ("--rope-scaling", "yarn", "--rope-scale", "4")


def small():
    with open(EXACT, "rb") as f:
        data = f.read()
    at = data.index(b"llama.context_length") + len(b"llama.context_length") + 4  # behind the key its type, then a u32
    return write("small.gguf", data[:at] + TRAINED.to_bytes(4, "little") + data[at + 4:])


SMALL = small()


@case
def off_unless_asked():
    p = plan(SMALL)
    assert p["past_window"] is False and p["past_window_step_tokens"] == p["past_window_hot_most_tokens"] == 0, p
    assert p["window_tokens"] == p["hot_tokens"] == TRAINED, p
    assert "--past-window goes on behind them" in plan(SMALL, "-c", TRAINED + 1)["refused"]
    refused(modeld("run", "-m", SMALL, "-p", "x", "-c", TRAINED + 1), 1, "--past-window")


@case
def what_plan_says():
    p = plan(SMALL, "--past-window", "-c", 100000)
    assert "refused" not in p and p["past_window"] is True, p
    assert (p["past_window_step_tokens"], p["past_window_hot_most_tokens"]) == (STEP, MOST), p
    assert p["hot_tokens"] == p["hot_context_tokens"] == p["effective_context"] == MOST, p
    assert p["window_tokens"] == p["context_tokens"] == p["planner_effective_context"] == 100000, p
    assert p["model_max_context"] == TRAINED and p["kv_bytes"] == 100096 * 512, p
    # without -c it is what the cold store holds, for what is moved is there as well: whole blocks, with what stands around
    # their KV (12 bytes a token, headers) and what the store takes for each (tokens, names: less than a seventh here)
    words = plan(SMALL, "--past-window", "--mem-cold", "1000")["refused"]
    block, rest = divmod(int(words.split("needs ")[1].split(" bytes")[0]), MOST // BLOCK)
    assert rest == 0 and BLOCK * (512 + 12 + 4) < block < BLOCK * 512 * 8 // 7, words
    p = plan(SMALL, "--past-window", "--mem-cold", "8MiB")
    assert p["window_tokens"] == (8 << 20) // block * BLOCK and p["hot_tokens"] == MOST and "refused" not in p, p
    for asked, bytes_, fits in ((1024 * BLOCK, 1024 * block, True), (1024 * BLOCK, 1024 * block - 1, False),
                                (1024 * BLOCK + 1, 1024 * block, False), (MOST, MOST // BLOCK * block, True)):
        p = plan(SMALL, "--past-window", "-c", asked, "--mem-cold", bytes_)
        assert ("refused" not in p) == fits, (asked, bytes_, p)
    p = plan(SMALL, "--past-window", "-c", 100000, "--hot", 512)
    assert (p["hot_tokens"], p["window_tokens"]) == (512, 100000) and "refused" not in p, p
    text = modeld("plan", SMALL, "--past-window", "-c", 100000).out.decode()
    assert "past the trained window          98,976 tokens   moved nearer every 128 tokens; at most 896 hot" in text, text
    assert "past the trained window" not in modeld("plan", SMALL).out.decode()
    # within the trained window there is nothing past it
    p = plan(SMALL, "--past-window", "-c", 500)
    assert p["window_tokens"] == p["hot_tokens"] == 500 and "refused" not in p, p


@case
def what_is_refused():
    rows = {"hot": (("--hot", MOST + 1), "--hot 897 is more than the 896 that --past-window allows"),
            "no store": (("--mem-cold", "0"), "needs a cold store", "--mem-cold"),
            "small store": (("--mem-cold", "458752"), "which needs ", "raise it, or lower --hot"),
            "yarn": (YARN, "with YaRN keys cannot be moved", "--yarn-ext-factor 0"),
            "residency": (("--residency", "off", "-c", "500"), "needs --residency on"),
            "too much": (("-c", "100000", "--mem-cold", "8MiB"), "a context of 100000 tokens does not fit"),
            "uncountable": (("-c", "1073741825"), "--ctx-size 1073741825")}
    for name, (flags, *says) in rows.items():
        text = plan(SMALL, "--past-window", *flags).get("refused", "")
        assert all(word in text for word in says), (name, text)
        refused(modeld("run", "-m", SMALL, "-p", "x", "--past-window", *flags), 1, *says)
    keys = ("--past-window", "-ctk", "q8_0")  # whose blocks want heads of 32 at least
    assert "keys of type q8_0 cannot be moved" in plan(file(), *keys)["refused"]
    refused(modeld("run", "-m", file(), "-p", "x", *keys), 1, "keys of type q8_0 cannot be moved", "--cache-type-k f16")
    assert "of 63 tokens is too small, 64 are" in plan(file(key("context_length", "u32", 63)), "--past-window")["refused"]
    refused(modeld("run", "-m", SMALL, "-p", "x", "--reuse", "approximate", *YARN), 1, "--reuse approximate: with YaRN")
    # what moves the keys then leaves them as long as they were: the engine tries it when it opens
    flags = (*YARN, "--yarn-ext-factor", "0", "-c", "8192", "--hot", "512", "-t", "1")
    assert "refused" not in plan(SMALL, "--past-window", *flags[:-2])
    r = modeld("run", "-m", SMALL, "-p", "x", "-n", "1", "--raw", "--past-window", *flags)
    assert r.code == 0, r
    refused(modeld("bench", "-m", SMALL, "--past-window"), 2, "--past-window is not a flag of this command")


@case
def from_environment_and_file():
    assert plan(SMALL, env={"MODELD_PAST_WINDOW": "on"})["past_window"] is True
    folder = os.path.join(FOLDER, "set")
    os.makedirs(folder)
    for value, want in ((True, True), (False, False)):
        write("set/modeld.json", json.dumps({"context": {"past_window": value}}))
        assert plan(SMALL, "--data-root", folder)["past_window"] is want
    for value, found in (("on", "'on'"), (1, "1"), (None, "null")):
        write("set/modeld.json", json.dumps({"context": {"past_window": value}}))
        refused(modeld("plan", SMALL, "--data-root", folder), 2, "context.past_window must be true or false, found " + found)
    write("set/modeld.json", json.dumps({"context": {"past": True}}))
    refused(modeld("plan", SMALL, "--data-root", folder), 2, "unknown key 'context.past'")


@case
def serve_goes_on():
    flags = ("-t", "1", "-c", "8192", "--hot", "512", "--past-window")
    with Daemon(SMALL, *flags) as d:
        assert "past window on: conversations go on behind the 1024 tokens" in d.log, d.log
        status = d.status()
        assert status["past_window"] is True and status["trained_tokens"] == TRAINED and status["window_tokens"] == 8192, status
        prompt = [3 + i * 7 % 256 for i in range(5000)]
        code, answer = d.post(COMPLETION, {"prompt": prompt, "max_tokens": 40, "temperature": 0, "ignore_eos": True})
        assert code == 200 and answer["usage"]["prompt_tokens"] == 5000, answer
        session = d.get("/api/sessions/%d" % answer["modeld"]["session"])[1]
        assert session["rebased_tokens"] >= 64 and session["rebased_blocks"] >= 10 and session["lost_tokens"] == 0, session
        code, again = d.post(COMPLETION, {"prompt": prompt + [99], "max_tokens": 2, "temperature": 0})
        assert code == 200 and again["modeld"]["lost_tokens"] == 0 and again["timings"]["cache_n"] >= 5000, again
        r = modeld("status", "--connect", "http://127.0.0.1:%d" % d.port)
        assert r.code == 0 and b"past      on: goes on behind the 1024 tokens the model was trained for" in r.out, r
        assert d.get("/api/capacity")[1]["past_window"] is True
    with Daemon(SMALL, "-t", "1") as d:
        assert "past window" not in d.log and d.status()["past_window"] is False


main()
