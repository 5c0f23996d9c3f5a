"""Commands on SmolLM2: sense, repetition, KV types, names."""
# slow
import json
import os
import re
import subprocess

from libcli import MODELD, SMOLLM, SLACK, case, check_figures, environment, main, modeld, write

HEADER = os.path.join(os.path.dirname(SMOLLM), "..", "llama", "include", "llama.h")


def smollm(*args, **more):
    r = modeld("run", "-m", SMOLLM, "--temp", "0", *args, timeout=200, **more)
    assert r.code == 0, r
    return r


@case
def it_knows_paris_and_repeats_itself():
    ask = ("-sys", "You are a helpful assistant.", "-p", "What is the capital of France?", "-n", "24", "--hot", "512")
    first, second = smollm(*ask), smollm(*ask)
    assert first.out == second.out and first.err == second.err == ""
    assert b"Paris" in first.out, first
    figures = check_figures(json.loads(smollm(*ask, "--json").out))
    assert figures["text"] + "\n" == first.out.decode()


@case
def a_seed_repeats():
    def sampled(seed):
        return modeld("run", "-m", SMOLLM, "-p", "Tell a story.", "-n", "12", "--temp", "1", "--seed", seed, timeout=100).out
    assert sampled(5) == sampled(5) and sampled(5) != sampled(6)


@case
def the_end_token_ends_it():
    figures = json.loads(smollm("-p", "Say only: yes", "-n", "200", "--hot", "512", "--json").out)
    assert figures["finish_reason"] == "stop" and figures["completion_tokens"] < 200, figures
    assert "<|im_end|>" not in figures["text"]


@case
def b035_kv_types_with_a_small_hot_set():
    """The case: hot 256, 600 tokens, 64 decoded.  (Each type with each: test_kv_types_llama_exact.c.)"""
    with open(HEADER) as f:
        prompt = write("header.txt", f.read()[2000:4500])
    for k, v in (("f16", "f16"), ("q8_0", "f16"), ("q8_0", "q8_0"), ("q4_0", "q4_0")):
        r = smollm("--raw", "-f", prompt, "--hot", "256", "-n", "64", "-ctk", k, "-ctv", v, "--json")
        figures = check_figures(json.loads(r.out))
        assert figures["prompt_tokens"] >= 600 and figures["completion_tokens"] == 64, figures
        assert figures["cold_tokens"] > 300 and figures["dropped_tokens"] == 0, figures
        lossy = "KV types %s/%s are lossy" % (k, v)
        assert (lossy in r.err) == (k != "f16"), r
        assert len(r.err.splitlines()) == (0 if k == "f16" else 1), r


@case
def the_checkout_knows_its_model_by_name():
    if os.path.dirname(os.path.dirname(os.path.realpath(SMOLLM))) != os.path.join(os.path.dirname(os.path.dirname(MODELD)), ".deps"):
        print("# the program is not in its checkout", flush=True)
        return
    p = subprocess.run([MODELD, "chat"], stdin=subprocess.DEVNULL, capture_output=True, env=environment(), timeout=30 * SLACK)
    assert p.returncode == 1 and p.stdout == b"", p
    listed = re.findall(r"^  (\S+) +([\d.]+) MB  (\S+)$", p.stderr.decode(), re.M)
    assert ("smollm2" in [name for name, _, _ in listed]), p.stderr
    assert all("/../" not in path and os.path.exists(path) for _, _, path in listed), listed
    r = modeld("chat", "-m", "smollm2", "--temp", "0", "-n", "12", "--hot", "512", stdin=b"Say hello.\n", timeout=100)
    assert r.code == 0 and r.err == "" and r.out.strip(), r


main()
