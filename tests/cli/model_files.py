"""Model files nobody should trust, through the whole program: `show` and `plan` read them, the daemon refuses them.

Files are headers made by libgguf; BASE12 is the file of the cases.  Figures without a source beside them are the
cases' own (B...)."""
import json
import os
import re
import struct
import subprocess
import time

from libcli import FOLDER, MODELD, SLACK, case, environment, main, modeld
from libgguf import BASE12, F16, F32, changed, gguf
from libplan import KIB, MIB, all_refuse, file, key, kv_bytes, plan, put, show


def windows(path):
    return [int(layer["window"] > 0) for layer in plan(path, "-c", 4096)["layers"]]


def measured(*args):
    """(seconds, largest resident memory in bytes) of a run, and how it ended."""
    started = time.monotonic()
    p = subprocess.Popen([MODELD] + [str(a) for a in args], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                         env=environment())
    err = p.stderr.read().decode()
    _, status, usage = os.wait4(p.pid, 0)
    p.returncode = os.waitstatus_to_exitcode(status)
    return time.monotonic() - started, usage.ru_maxrss * KIB, p.returncode, err


def refused_at_once(data, *says):
    """In no time and in no memory: measured against the same program on a good small file."""
    path = put(data)
    _, usual, code, err = measured("show", file())
    assert code == 0, err
    took, most, code, err = measured("show", path)
    assert code == 1, (code, err)
    for word in says:
        assert word in err, (word, err)
    assert took < 0.5 * SLACK, took  # with the start of the program; the case says 0.1 s for the file alone
    assert most < usual + 1 * MIB, (most, usual)
    all_refuse(path, *says)


@case
def b001_an_empty_key():
    all_refuse(put(bytes.fromhex("47475546030000000000000000000000010000000000000000000000000000000400000007000000")),
               "entry 0", "key is empty")


@case
def b003_a_string_longer_than_the_file():
    head = "474755460300000000000000000000000100000000000000010000000000000061 08000000"
    # the length stands at bytes 37 to 44: behind 24 of header, 8 + 1 of key, 4 of type
    refused_at_once(bytes.fromhex(head + "FFFFFFFFFFFFFF7F"), "byte 45 of", "9223372036854775807 bytes", "0 are left",
                    "key 'a'")
    one_more = bytes.fromhex(head) + struct.pack("<Q", 11) + b"0123456789"
    refused_at_once(one_more, "11 bytes", "10 are left")
    assert show(put(one_more[:37] + struct.pack("<Q", 10) + one_more[45:]))["metadata"] == {"a": '"0123456789"'}


@case
def b005_impossible_counts():
    refused_at_once(bytes.fromhex("474755460300000000000000000000000000000000000080"), "9223372036854775808 entries")
    # 2^40 tensors
    refused_at_once(bytes.fromhex("474755460300000000000000000100000000000000000000"), "1099511627776")


@case
def b006_tensors_of_no_size():
    for dimensions, says in (((64, 0, 8), "[64, 0, 8]"), ((0,), "[0]"), ((1, 2, 3, 4, 5), "5 dimensions")):
        all_refuse(put(gguf([], [("blk.0.w", dimensions, F16)], data=bytes(4096))), "blk.0.w", says)


@case
def b007_alignment():
    def aligned(name, value, **more):
        return put(gguf(BASE12 + [("general.alignment", name, value)], [("w", (32,), F32)], **more))
    all_refuse(aligned("u32", 0), "general.alignment", "0 is not a power of two")
    all_refuse(aligned("u32", 24), "general.alignment", "24 is not a power of two")
    all_refuse(aligned("u32", 0x80000000), "its data would begin at 2147483648")
    all_refuse(aligned("i32", 32), "general.alignment", "i32", "u32 is required")
    all_refuse(aligned("[u32]", [32]), "general.alignment", "array of u32", "u32 is required")
    s = show(aligned("u32", 64, alignment=64))
    assert s["alignment"] == 64 and s["data_offset"] % 64 == 0 and s["data_offset"] > 0, s


@case
def b009_kv_heads_by_layer():
    def six(*new):
        return file(key("block_count", "u32", 6), *new)
    heads = [4, 4, 0, 4, 1, 4]
    for of in ("[i32]", "[u32]"):
        path = six(key("attention.head_count_kv", of, heads))
        assert kv_bytes(path, 4096) == 17825792
        assert [layer["kv_heads"] for layer in show(path)["layers"]] == heads
        text = modeld("show", path).out.decode()
        for line in ("0-1 +4 KV heads, keys 64, values 64", "2 +no KV", "3 +4 KV heads", "4 +1 KV heads", "5 +4 KV heads"):
            assert re.search("^  " + line, text, re.M), text
        assert "[4, 4, 0, 4, 1, 4]" in show(path)["metadata"]["llama.attention.head_count_kv"]
    for new in (key("attention.head_count_kv", "u32", 4), key("attention.head_count_kv", "i32", 4),
                key("attention.head_count", "[u32]", [16] * 6)):
        assert kv_bytes(six(new), 4096) == 25165824, new


@case
def b011_arrays_of_another_length():
    for count in (5, 7, 0):
        path = file(key("block_count", "u32", 6), key("attention.head_count_kv", "[u32]", [4] * count))
        all_refuse(path, "llama.attention.head_count_kv", "expected 6, found %d" % count, verbs=("plan", "serve"))
        assert "expected 6, found %d" % count in show(path)["refused"]
    path = file(key("block_count", "u32", 6), key("nextn_predict_layers", "u32", 1),
                key("attention.head_count_kv", "[u32]", [4] * 6))
    assert len(plan(path)["layers"]) == 6


def patterned(*new):
    """8 layers of a family that the table of architectures does not know: what is declared counts."""
    base = [(k.replace("llama.", "novarch."), t, v) for k, t, v in BASE12]
    return file(("general.architecture", "str", "novarch"), ("novarch.block_count", "u32", 8),
                ("novarch.attention.sliding_window", "u32", 256),
                *[("novarch.attention.sliding_window_pattern",) + n for n in new], base=base)


@case
def b012_patterns_of_windows():
    every_fourth = [1, 1, 1, 0, 1, 1, 1, 0]
    assert windows(patterned(("u32", 4))) == every_fourth
    assert windows(patterned(("u32", 1))) == [0] * 8
    assert windows(patterned(("u32", 0))) == [1] * 8
    assert windows(patterned(("u32", 3))) == [1, 1, 0, 1, 1, 0, 1, 1]
    for of in ("[bool]", "[u8]", "[u32]", "[i32]"):
        assert windows(patterned((of, every_fourth))) == every_fourth, of
        all_refuse(patterned((of, every_fourth[:7])), "sliding_window_pattern", "expected 8, found 7", verbs=("plan",))


@case
def b014_too_many_layers():
    for count in (513, 65536, 4294967295):
        path = file(key("block_count", "u32", count))
        started = time.monotonic()
        all_refuse(path, "%d layers, at most 512 supported" % count, verbs=("plan", "serve"))
        assert show(path)["metadata"]["llama.block_count"] == str(count)
        assert time.monotonic() - started < 3 * SLACK
    assert len(plan(file(key("block_count", "u32", 512)), "-c", 256)["layers"]) == 512


@case
def b015_the_first_key_that_is_missing():
    arch = BASE12[:1]
    for path, says in ((put(gguf([])), "'general.architecture' is missing"),
                       (put(gguf(arch)), "'llama.block_count' is missing"),
                       (put(gguf(BASE12[:2])), "'llama.context_length' is missing"),
                       (file(key("attention.head_count", "u32", 0)), "'llama.attention.head_count' is 0"),
                       (file(("general.architecture", "str", "")), "'general.architecture' is empty")):
        all_refuse(path, says, verbs=("plan", "serve"))
        assert says in show(path)["refused"]
    p = plan(file(without=("llama.attention.head_count_kv",)), "-c", 4096)
    assert {(x["kv_heads"], x["key_length"], x["value_length"]) for x in p["layers"]} == {(16, 64, 64)}, p["layers"]


@case
def b017_arrays_of_arrays():
    refused_at_once(bytes.fromhex("47475546030000000000000000000000010000000000000001000000000000006109000000"
                                  "09000000010000000000000009000000" "0100000000000000"),
                    "nested arrays are not supported", "key 'a'")
    deep = gguf([("a", "u32", 0)])[:-8] + struct.pack("<I", 9)
    refused_at_once(deep + struct.pack("<IQ", 9, 1) * 100000, "nested arrays are not supported")


# ---- hostile words ----

HOSTILE = changed(BASE12, ("general.name", "str", b"ev\x1b[31mil\x07\xff\xfe\xc2\x9b2J\"quote\\")) + [
    (b"k\x1b[2Jey\n\xff", "u32", 7), ("cut", "str", b"\x01" * 45 + "\u00e9".encode() * 30),
    ("texts", "[str]", [b"\x1b]0;title\x07", b"\xff\xfe", "\u20ac".encode() * 60]), ("nan", "f32", float("nan")),
    ("inf", "f64", float("-inf"))]


def harmless(data):
    """UTF-8, and nothing that a terminal would act on."""
    text = data.decode("utf-8", "strict")
    bad = [c for c in text if (c < " " and c != "\n") or "\x7f" <= c < "\xa0"]
    assert not bad, (bad, data)
    return text


@case
def hostile_words_do_no_harm():
    path = put(gguf(HOSTILE, [(b"t\x1b[0m\xff", (32,), F32)]))
    s = show(path)
    assert s["tensors"][0]["name"] == "t\x1b[0m\ufffd" and s["metadata"]["k\x1b[2Jey\n\ufffd"] == "7", s
    assert s["metadata"]["nan"] == "nan" and s["metadata"]["inf"] == "-inf", s
    assert s["metadata"]["cut"].endswith('..."'), s["metadata"]["cut"]
    assert "ev?[31mil?\ufffd\ufffd\x9b2J" in plan(path)["description"]
    for verb in ("show", "plan"):
        r = modeld(verb, path)
        text = harmless(r.out)
        assert r.code == 0 and ("k\\x1b[2Jey\\n\\xff" if verb == "show" else "ev?[31mil") in text, text
    # a name of an architecture, and of a file
    r = modeld("show", file(("general.architecture", "str", b"no\x1b[31m\xff\xc2\x9bva")))
    assert r.code == 0 and "no\\x1b[31m" in harmless(r.out), r
    odd = os.path.join(os.fsencode(FOLDER), b"odd\x1b[1m\xff.gguf")
    with open(odd, "wb") as f:
        f.write(gguf(BASE12))
    for verb in ("show", "plan"):
        p = subprocess.run([MODELD, verb, odd], capture_output=True, env=environment(), timeout=60)
        assert p.returncode == 0 and "odd\\x1b[1m\\xff" in harmless(p.stdout), p
        p = subprocess.run([MODELD, verb, odd, "--json"], capture_output=True, env=environment(), timeout=60)
        assert p.returncode == 0, p
        answer = json.loads(p.stdout.decode("utf-8", "strict"))
        assert answer.get("model", "odd\x1b[1m\ufffd") == "odd\x1b[1m\ufffd", answer
        assert answer.get("path", "odd\x1b[1m\ufffd.gguf").endswith("odd\x1b[1m\ufffd.gguf"), answer
    r = modeld("plan", file(("general.architecture", "str", b"no\x1b[31m\xc2\x9b\x07va")))
    assert r.code == 1 and not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", r.err), r


main()
