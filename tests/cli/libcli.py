"""What the CLI tests share: the program as a script calls it, models, and what figures must satisfy.

Everything runs with one thread: the machine is shared, and threads of ggml that wait for each other are slow."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "wire"))
from libwire import CASES, SLACK, case, main  # noqa: E402,F401

MODELD = os.path.abspath(os.environ.get("MODELD", "build/modeld"))
BUILD = os.path.abspath(os.environ.get("MODELD_TEST_BUILD", "build"))
SMOLLM = os.path.abspath(os.environ.get("MODELD_TEST_MODEL", ".deps/models/smollm2.gguf"))
FOLDER = tempfile.mkdtemp(prefix="modeld-cli-")
EXACT = os.path.join(FOLDER, "exact.gguf")
TRAINED = 262144  # tokens, of the exact model

subprocess.run([BUILD + "/tests/support/exact_model", EXACT], check=True)
# exit() of main() must not leave the folder behind
import atexit  # noqa: E402
atexit.register(shutil.rmtree, FOLDER, True)

FIELDS = ("text tokens finish_reason prompt_tokens completion_tokens cached_tokens prefilled_tokens restored_tokens "
          "lost_tokens "
          "recomputed_tokens dropped_tokens attended_tokens hot_tokens hot_limit_tokens tape_tokens cold_tokens "
          "cold_bytes cold_limit_bytes prefill_tokens_per_second decode_tokens_per_second").split()


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __str__(self):
        return "status %s, out %r, err %r" % (self.code, (self.out or b"")[:300], self.err[:300])


def environment(more=None):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("MODELD_", "CONTENOX_")) or k.startswith("MODELD_TEST_")}
    env["MODELD_THREADS"] = "1"
    env.update(more or {})
    return env


def modeld(*args, stdin=b"", env=None, timeout=60, **more):
    """Run to the end; stdin is bytes, or a file."""
    feed = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}
    more.setdefault("stdout", subprocess.PIPE)
    p = subprocess.run([MODELD] + [str(a) for a in args], stderr=subprocess.PIPE, env=environment(env),
                       timeout=timeout * SLACK, **feed, **more)
    return Result(p.returncode, p.stdout, p.stderr.decode("utf-8", "replace"))


def exact_tokens(text):
    """How many the exact model makes of it: one a byte, a blank being three (the tokenizer writes U+2581)."""
    return len(text.encode()) + 2 * text.count(" ")


def write(name, data):
    path = os.path.join(FOLDER, name)
    with open(path, "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())
    return path


def run_ok(*args, **more):
    """`modeld run` with the exact model, greedy; returns what it wrote."""
    r = modeld("run", "-m", EXACT, "--temp", "0", *args, **more)
    assert r.code == 0 and r.err == "", r
    return r.out


def run_json(*args, **more):
    """The figures of each turn, checked."""
    lines = run_ok("--json", *args, **more).decode("utf-8", "strict").splitlines()
    return [check_figures(json.loads(line)) for line in lines]


def check_figures(f):
    missing = [name for name in FIELDS if name not in f]
    assert not missing, missing
    assert isinstance(f["text"], str) and f["finish_reason"] in ("stop", "length"), f
    assert all(isinstance(t, int) and t >= 0 for t in f["tokens"]), f["tokens"]
    for name in FIELDS[3:]:
        assert f[name] >= 0, (name, f)
    assert f["completion_tokens"] == len(f["tokens"]), f
    assert f["prompt_tokens"] == f["cached_tokens"] + f["prefilled_tokens"], f
    assert f["prefilled_tokens"] >= 1, "the last token of a prompt is always evaluated: %s" % f
    assert f["restored_tokens"] <= f["cached_tokens"], f
    assert f["recomputed_tokens"] <= f["prefilled_tokens"], f
    assert 1 <= f["attended_tokens"] <= f["hot_limit_tokens"] and f["hot_tokens"] <= f["hot_limit_tokens"], f
    assert f["cold_bytes"] <= f["cold_limit_bytes"], f
    assert (f["cold_bytes"] > 0) == (f["cold_tokens"] > 0), f
    # the last token sampled is not on the tape, unless it was a stop string or end that followed one
    assert f["prompt_tokens"] <= f["tape_tokens"] <= f["prompt_tokens"] + f["completion_tokens"], f
    assert f["prefill_tokens_per_second"] > 0, f
    return f


def refused(r, code, *says):
    """One line on standard error that names what and what to do; nothing on standard output."""
    assert r.code == code, r
    assert r.out == b"", r
    lines = r.err.splitlines()
    assert len(lines) == 1 and r.err.endswith("\n"), r
    assert lines[0].startswith("modeld ") and ": " in lines[0] and not lines[0].endswith("."), r
    for word in says:
        assert word in lines[0], (word, str(r))
