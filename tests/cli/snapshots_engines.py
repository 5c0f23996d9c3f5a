"""Snapshots and the KV folder with both engines, on the exact model: what one wrote is refused by the other with a line, its
tokens go on there, and a daemon that was killed computes what is new.

What is right: the same requests to a daemon that has seen nothing else."""
import json
import os
import signal
import tempfile

from libcli import EXACT, FOLDER, case, main, modeld, refused
from libclients import ask, said
from libdaemon import Daemon
from libwire import COMPLETION, SLACK

ENGINES = [e["name"] for e in json.loads(modeld("doctor", "--json").out)["engines"] if e["works"]]
BOTH = "openvino" in ENGINES
# Letters alone, so that what is sent back as text is the tokens that were sampled; the byte 0 is token 3.
LETTERS = {str(t): -100 for t in range(259) if not ord("A") <= t - 3 <= ord("Z")}
FIRST = "".join("Line %d of a long text.\n" % i for i in range(12))


def daemon(engine, *args, kv="f32"):
    return Daemon(EXACT, "--engine", engine, "-ctk", kv, "-ctv", kv, "-fa", "off" if engine == "llama" and kv == "f32" else "auto", "-t", 1,
                  "-c", 2048, "--hot", 2048, "--block-tokens", 32, *args, env={"XDG_STATE_HOME": tempfile.mkdtemp(dir=FOLDER)})


def say(d, prompt):
    """The text of the answer, and what the daemon says of it."""
    status, got = d.post(COMPLETION, {"prompt": prompt, "max_tokens": 8, "temperature": 0, "logit_bias": LETTERS}, timeout=60 * SLACK)
    assert status == 200, got
    return got["choices"][0]["text"], got


def cached(got):
    return got["usage"]["prompt_tokens_details"]["cached_tokens"]


def fresh(engine, prompt, **more):
    with daemon(engine, **more) as d:
        return say(d, prompt)


def there(engine, name, folder, **more):
    """A conversation in a file; returns the prompt that goes on with it."""
    with daemon(engine, "--snapshots", folder, **more) as d:
        text, got = say(d, FIRST)
        said(ask(d, "snapshot", got["modeld"]["session"], name))
    return FIRST + text + "\nAnd more of it.\n"


def and_on(engine, name, folder, prompt, theirs, ours, **more):
    want, _ = fresh(engine, prompt, **more)
    with daemon(engine, "--snapshots", folder, **more) as d:
        refused(ask(d, "restore", name), 1, theirs, ours, "--tokens-only")
        assert d.sessions() == []
        session = int(said(ask(d, "restore", name, "--tokens-only")))
        (s,) = d.sessions()
        assert s["tokens_only"] and s["lost_tokens"] == s["tape_tokens"] > 200, s
        assert said(ask(d, "ps")).splitlines()[1].endswith("tokens only")
        text, got = say(d, prompt)
        assert got["modeld"]["session"] == session and cached(got) == 0 and got["modeld"]["lost_tokens"] == 0, got
        assert text == want, (text, want)
        (s,) = d.sessions()
        assert not s["tokens_only"] and s["provenance_tokens"]["full"] == s["tape_tokens"], s


@case
def from_one_engine_to_the_other():
    if not BOTH:
        return
    folder = tempfile.mkdtemp(dir=FOLDER)
    for engine, other in (("llama", "openvino"), ("openvino", "llama")):
        and_on(other, engine, folder, there(engine, engine, folder), engine + " ", other + " ")


@case
def to_another_type_of_kv():
    folder = tempfile.mkdtemp(dir=FOLDER)
    for engine in ENGINES[:1]:
        and_on(engine, "k", folder, there(engine, "k", folder, kv="f32"), "f32/f32", "f16/f16", kv="f16")


@case
def to_another_rope():
    folder = tempfile.mkdtemp(dir=FOLDER)
    there("llama", "k", folder)
    with daemon("llama", "--snapshots", folder, "--rope-freq-base", 5000) as d:
        refused(ask(d, "restore", "k"), 1, "llama", "5000", "--tokens-only")
        said(ask(d, "restore", "k", "--tokens-only"))


@case
def killed_and_gone_on():
    """SIGKILL as soon as the answer is there: the next daemon computes the new tokens of the next turn alone, and one of the
    other engine finds nothing of it."""
    for engine in ENGINES:
        folder = os.path.join(tempfile.mkdtemp(dir=FOLDER), "kv")
        with daemon(engine, "--kv-dir", folder) as d:
            text, got = say(d, FIRST)
            d.process.send_signal(signal.SIGKILL)
            d.process.communicate()
        tape = got["usage"]["prompt_tokens"] + got["usage"]["completion_tokens"] - 1
        assert got["modeld"]["durable_tokens"] == tape, got
        prompt = FIRST + text + "\nAnd more of it.\n"
        want, whole = fresh(engine, prompt)
        for other in ENGINES:
            if other != engine:
                with daemon(other, "--kv-dir", folder) as d:
                    assert d.sessions() == [] and cached(say(d, prompt)[1]) == 0
        with daemon(engine, "--kv-dir", folder) as d:
            (s,) = d.sessions()
            assert s["cold_tokens"] == s["tape_tokens"] == tape and not s["tokens_only"], s
            text, got = say(d, prompt)
            assert text == want, (text, want)
            assert cached(got) == tape and got["modeld"]["restored_tokens"] == tape, (got, tape)
            assert got["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"], (got, whole)
            assert got["modeld"]["lost_tokens"] == got["modeld"]["recomputed_tokens"] == 0, got


@case
def tokens_alone_and_a_kill():
    """What was restored so is on the disk as what it is."""
    if not BOTH:
        return
    root = tempfile.mkdtemp(dir=FOLDER)
    prompt = there("llama", "k", root + "/s")
    want, _ = fresh("openvino", prompt)
    with daemon("openvino", "--snapshots", root + "/s", "--kv-dir", root + "/kv") as d:
        session = int(said(ask(d, "restore", "k", "--tokens-only")))
        d.process.send_signal(signal.SIGKILL)
        d.process.communicate()
    with daemon("openvino", "--snapshots", root + "/s", "--kv-dir", root + "/kv") as d:
        (s,) = d.sessions()
        assert s["id"] == session and s["tokens_only"] and s["lost_tokens"] == s["tape_tokens"], s
        text, got = say(d, prompt)
        assert (text, cached(got)) == (want, 0) and got["modeld"]["session"] == session, got


main()
