"""Snapshots of SmolLM2's KV, over daemons that come and go: B059, B061, B065.

What is right: the answer that the daemon which computed the KV gives when it is asked again; it evaluates the same one
token over the same KV, so that the text is the same however two prefills may round (B055)."""
# slow
import atexit
import os
import shutil
import struct
import tempfile

from libdaemon import Daemon
from libwire import COMPLETION, case, check_error, main

MODEL = os.path.abspath(os.environ.get("MODELD_TEST_MODEL", ".deps/models/smollm2.gguf"))
GEMMA = os.path.abspath(".deps/models/gemma3-270m.gguf")
FOLDER = tempfile.mkdtemp(prefix="modeld-snapshots-")
atexit.register(shutil.rmtree, FOLDER, True)
ENDS = {"2": -100, "0": -100}  # the end tokens cannot come
LONG = {"prompt": "The quick brown fox jumps over the lazy dog while the sun is setting. " * 19, "max_tokens": 12,
        "temperature": 0, "seed": 1, "logit_bias": ENDS}
FRESH = dict(LONG, prompt="The capital of France is")


def smollm(*args, window=1024):
    return Daemon(MODEL, "-t", "1", "--hot", "512", "-c", window, "--snapshots", FOLDER, *args)


def ask(d, what, **more):
    status, got = d.post(COMPLETION, dict(what, **more), timeout=200)
    assert status == 200, got
    return got


def text(answer):
    return answer["choices"][0]["text"]


def processed(answer):
    usage = answer["usage"]
    return usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]


def restore(d, name, **more):
    return d.post("/api/snapshots/restore", dict({"name": name}, **more), timeout=60)


class Written:
    """The snapshot that all cases read, made once: of about 300 tokens, all of them hot."""
    again = fresh = None

    @classmethod
    def get(cls):
        if cls.again is None:
            with smollm() as d:
                cls.fresh = ask(d, FRESH)
                first = ask(d, LONG)
                status, got = d.post("/api/snapshots", {"name": "k", "session": first["modeld"]["session"]})
                # all of the prompt and of the answer; the last token of that is not evaluated
                assert status == 200 and 290 <= got["context_tokens"] <= 330, got
                assert got["context_tokens"] == first["usage"]["total_tokens"] == got["kv_tokens"] + 1, (got, first["usage"])
                per_token = d.status()["kv_bytes_per_token"]
                assert per_token == 23040, "30 layers, keys and values, 3 heads of 64 values of 2 bytes"
                assert 0 < got["bytes"] - got["kv_tokens"] * per_token < got["kv_tokens"] * 200 + 4096, got
                cls.again = ask(d, LONG)
                assert processed(cls.again) == 1 and len(text(cls.again)) > 10, cls.again
        return cls


@case
def b059_a_restart_and_the_same_prompt():
    want = Written.get()
    for bound in (True, False):  # by its ID, and found by its text
        with smollm() as d:
            status, got = restore(d, "k")
            assert status == 200 and got["kv_tokens"] == got["context_tokens"] - 1, got
            answer = ask(d, LONG, **({"modeld": {"session": got["id"]}} if bound else {}))
            assert answer["modeld"]["session"] == got["id"] and processed(answer) <= 1, answer
            assert text(answer) == text(want.again), (text(answer), text(want.again))
            assert answer["modeld"]["recomputed_tokens"] == answer["modeld"]["dropped_tokens"] == 0, answer["modeld"]
            # and further turns of it
            more = ask(d, LONG, prompt=LONG["prompt"] + text(answer) + " And then", modeld={"session": got["id"]})
            assert processed(more) <= 8, more["usage"]


def sections(data):
    """Where each payload is, by type; the format is host/sections.h's."""
    at, found = 32, {}
    while at < len(data):
        kind, _, size, _ = struct.unpack_from("<4sIQQ", data, at)
        found.setdefault(kind.decode(), []).append((at + 24, size))
        at += 24 + (size + 7) // 8 * 8
    return found


@case
def b061_damage_is_refused_and_changes_nothing():
    want = Written.get()
    good = open(os.path.join(FOLDER, "k"), "rb").read()
    where = sections(good)
    assert set(where) == {"IDEN", "ORIG", "CONV", "BLCK", "END "}, where.keys()
    (record, record_bytes), kv, origin = where["CONV"][0], where["BLCK"], where["ORIG"][0]
    at = {"magic": 0, "version": 8, "type of a section": record - 24, "record": record, "origin": origin[0] + origin[1] // 2,
          "a token": record + record_bytes // 2,
          "KV of the first block": kv[0][0] + kv[0][1] // 2, "KV in the middle": len(good) // 2, "last byte": len(good) - 1}
    damaged = {name: good[:i] + bytes([good[i] ^ 1]) + good[i + 1:] for name, i in at.items()}
    for percent in (10, 50, 99):
        damaged["cut at %d %%" % percent] = good[:len(good) * percent // 100]
    damaged["nothing"] = b""
    with smollm() as d:
        session = ask(d, FRESH)["modeld"]["session"]
        for name, data in damaged.items():
            with open(os.path.join(FOLDER, "damaged"), "wb") as f:
                f.write(data)
            for more in ({}, {"session": session}):
                status, got = restore(d, "damaged", **more)
                error = check_error((status, got), 501 if name == "version" else 500)
                assert "damaged" in error["message"] or "version" in error["message"], (name, error)
            assert len(d.sessions()) == 1, name
            answer = ask(d, FRESH, modeld={"session": session})
            assert text(answer) == text(want.fresh) and processed(answer) == 1, (name, answer)
        # a fresh prompt that is computed, in a daemon that has refused all of them
        assert d.call("DELETE", "/api/sessions/%d" % session)[0] == 200
        new = ask(d, FRESH, prompt="Once. " + FRESH["prompt"])
        assert processed(new) > 1, new["usage"]
        assert restore(d, "k")[0] == 200 and text(ask(d, LONG)) == text(want.again)
    os.unlink(os.path.join(FOLDER, "damaged"))
    with smollm() as d:
        assert text(ask(d, FRESH, prompt="Once. " + FRESH["prompt"])) == text(new)


@case
def b065_another_kv_type_another_model_another_window():
    want = Written.get()
    with smollm("-ctk", "q8_0") as d:
        check_error(restore(d, "k"), 400, "name", says=["f16", "q8_0"])
        assert d.sessions() == [] and text(ask(d, FRESH))
    with Daemon(GEMMA, "-t", "1", "-c", "512", "--hot", "512", "--snapshots", FOLDER) as d:
        error = check_error(restore(d, "k"), 400, "name")
        assert "another model" in error["message"], error
        assert d.sessions() == []
    with smollm(window=256) as d:
        check_error(restore(d, "k"), 400, code="context_length_exceeded", says=["256"])
        assert d.sessions() == []
    with smollm(window=2048) as d:  # a larger one is accepted (docs/sessions.md)
        status, got = restore(d, "k")
        assert status == 200, got
        answer = ask(d, LONG)
        assert processed(answer) <= 1 and text(answer) == text(want.again), answer

@case
def b065_the_model_with_one_byte_changed():
    Written.get()
    changed = os.path.join(FOLDER, "..", os.path.basename(FOLDER) + ".gguf")
    shutil.copyfile(MODEL, changed)
    try:
        with open(changed, "r+b") as f:
            f.seek(-1000, os.SEEK_END)  # within the weights of the last tensor
            byte = f.read(1)[0]
            f.seek(-1000, os.SEEK_END)
            f.write(bytes([byte ^ 1]))
        with Daemon(changed, "-t", "1", "--hot", "512", "-c", "1024", "--snapshots", FOLDER) as d:
            error = check_error(restore(d, "k"), 400, "name")
            assert "another model" in error["message"], error
            assert d.sessions() == []
    finally:
        os.unlink(changed)



main()
