"""`modeld bench --engine both`: the two engines side by side in one run, and what is refused."""
import json
import re
import shutil
import sys

from libcli import EXACT, FOLDER, case, main, modeld, refused

BOTH = ("bench", "-m", EXACT, "--engine", "both", "-b", "200")
OPENVINO = "'openvino'" in modeld("bench", "-m", EXACT, "--engine", "none").err
RATIOS = {"prefill_first_512": "prefill, first 512", "prefill": "prefill, all", "prefill_at_depth": "prefill at depth",
          "decode": "decode at depth", "export": "export", "restore": "restore"}


@case
def json_figures():
    r = modeld(*BOTH, "-d", "600", "-n", "9", "--json", timeout=120)
    assert r.code == 0 and r.err == "", r
    f = json.loads(r.out)
    assert f["depth_tokens"] == 600 and [e["engine"] for e in f["engines"]] == ["llama", "openvino"], f
    first, other = f["engines"]
    for e in f["engines"]:
        assert e["version"] and e["device"] == "CPU" and e["type_k"] == e["type_v"] == "f16", e
        # half of the tokens in blocks of 64; a token of the exact model has 512 bytes of f16 keys and values
        assert e["moved_tokens"] == 256 and 256 * 512 <= e["moved_bytes"] < 256 * 512 * 1.1, e
        assert -1 <= e["break_even_tokens"] <= 64, e
    assert "ratios" not in first and set(other["ratios"]) == set(RATIOS), f
    for name, ratio in other["ratios"].items():
        a, b = (e[name + "_tokens_per_second"] for e in (first, other))
        assert a > 0 and abs(ratio - b / a) < 1e-6 * ratio, (name, f)
    # all tokens are the first 512 and the rest: the rate of all lies between those of the parts
    for e in f["engines"]:
        seconds = 600 / e["prefill_tokens_per_second"] - 512 / e["prefill_first_512_tokens_per_second"]
        assert seconds > 0 and abs(88 / seconds / e["prefill_at_depth_tokens_per_second"] - 1) < 1e-3, e


@case
def text_figures():
    r = modeld(*BOTH, "-d", "256", "-n", "3", timeout=120)
    assert r.code == 0 and r.err == "", r
    lines = r.out.decode().splitlines()
    assert "256 tokens deep, in turn; tokens/s" in lines[0] and "KV f16/f16" in lines[0], lines
    assert lines[1].split() == ["llama", "openvino", "ratio", "to", "llama"], lines
    assert len(lines) == 2 + len(RATIOS), lines
    for line, (name, text) in zip(lines[2:], RATIOS.items()):
        number = r"-" if name == "prefill_first_512" else r"\d+\.\d"  # there are no more than 256
        assert re.fullmatch(r"  %s +%s +%s  (-|\d+\.\d\d)" % (re.escape(text), number, number), line), line


@case
def one_engine_of_the_two():
    r = modeld("bench", "-m", EXACT, "--engine", "openvino", "-d", "256", "-n", "2", "--json", timeout=120)
    f = json.loads(r.out)
    assert r.code == 0 and f["engine"] == "openvino" and f["moved_tokens"] == 128 and "engines" not in f, r
    assert "prefill_first_512_tokens_per_second" not in f and f["decode_tokens_per_second"] > 0, f


@case
def what_one_engine_refuses():
    """Nothing is measured then, and the line says whose word it is."""
    refused(modeld(*BOTH, "-d", "256", "-ctk", "bf16", "-ctv", "bf16"), 1, "--engine both", "'openvino' refuses", "use f32, f16")
    refused(modeld(*BOTH, "-d", "256", "-ctk", "q8_0", "-ctv", "q8_0"), 1, "--engine both", "'llama' refuses", "q8_0")
    other = FOLDER + "/exact.model"  # a name that only the library of the one engine minds
    shutil.copy(EXACT, other)
    refused(modeld("bench", "-m", other, "--engine", "both", "-d", "256"), 1, "'openvino' refuses", "named .gguf")


@case
def both_is_for_bench_only():
    refused(modeld("plan", "-m", EXACT, "--engine", "both"), 1, "unknown engine 'both'")
    refused(modeld("run", "-m", EXACT, "--engine", "both", "-p", "x"), 1, "unknown engine 'both'")


@case
def sizes_are_those_of_both():
    r = modeld(*BOTH, "-d", "512", "-c", "512")
    assert r.code == 2 and "do not fit 512 tokens" in r.err, r


if not OPENVINO:
    refused(modeld(*BOTH), 1, "--engine both: this build has 'llama' only")
    print("ok refused_where_there_is_one_engine")
    sys.exit(0)
main()
