"""`modeld bench`: figures as text and as JSON."""
import json
import re

from libcli import EXACT, case, main, modeld


@case
def json_figures():
    r = modeld("bench", "-m", EXACT, "-d", "600", "-n", "8", "-b", "128", "--json")
    assert r.code == 0 and r.err == "", r
    f = json.loads(r.out)
    assert f["engine"] == "llama" and f["type_k"] == f["type_v"] == "f16" and f["depth_tokens"] == 600, f
    assert f["moved_tokens"] == 600 // 2 // 64 * 64
    assert f["moved_tokens"] * 512 <= f["moved_bytes"] < f["moved_tokens"] * 512 * 1.1, f
    for what in ("prefill", "prefill_at_depth", "decode", "export", "restore"):
        assert f[what + "_tokens_per_second"] > 0, (what, f)
    for what in ("export", "restore"):
        bytes_each = f[what + "_bytes_per_second"] / f[what + "_tokens_per_second"]
        assert abs(bytes_each - f["moved_bytes"] / f["moved_tokens"]) < 0.01, (what, f)
    assert f["restore_tokens_per_second"] > f["prefill_at_depth_tokens_per_second"], f
    # where restoring a block of 64 is faster than computing it, as just said, there is a number of tokens that decides
    assert -1 <= f["break_even_tokens"] <= 64, f


@case
def text_figures():
    r = modeld("bench", "-m", EXACT, "-d", "256", "-n", "4")
    assert r.code == 0 and r.err == "", r
    text = r.out.decode()
    assert "\r" not in text and "\x1b" not in text, "no progress in a pipe"
    assert "256 tokens deep" in text.splitlines()[0] and "KV f16/f16" in text
    for what in ("prefill", "decode", "export", "restore"):
        assert re.search(r"^  %s +\d+(\.\d)? tokens/s" % what, text, re.M), (what, text)
    assert text.count("GB/s") == 2, text
    assert re.search(r"^  break-even: (from \d+ tokens|restoring is never)", text, re.M), text


@case
def kv_types_are_told():
    r = modeld("bench", "-m", EXACT, "-d", "256", "-n", "2", "-ctk", "f32", "-ctv", "f32", "--json")
    f = json.loads(r.out)
    assert r.code == 0 and f["type_k"] == f["type_v"] == "f32" and f["moved_bytes"] >= f["moved_tokens"] * 1024, f


@case
def output_that_cannot_be_written():
    for args in ((), ("--json",)):
        with open("/dev/full", "wb") as full:
            r = modeld("bench", "-m", EXACT, "-d", "256", "-n", "2", *args, stdout=full)
        assert r.code == 1 and r.err == "modeld bench: write standard output: No space left on device\n", r


main()
