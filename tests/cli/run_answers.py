"""`modeld run`: where the prompt comes from, what is written where, and the figures."""
import glob
import json
import os
import subprocess

from libcli import (EXACT, FIELDS, FOLDER, MODELD, case, environment, exact_tokens, main, modeld, refused, run_json,
                    run_ok, write)

HI = ("-p", "hi there", "-n", "12")


@case
def the_answer_alone_is_on_stdout():
    out = run_ok(*HI)
    figures = run_json(*HI)[0]
    assert out.decode("utf-8", "strict") == figures["text"] + "\n", (out, figures["text"])
    assert figures["completion_tokens"] == 12 and figures["finish_reason"] == "length"
    assert "turn" not in figures


@case
def greedy_repeats():
    assert run_ok(*HI) == run_ok(*HI)
    assert run_ok(*HI) != run_ok("-p", "hi thera", "-n", "12"), "the prompt does not matter"


@case
def a_seed_repeats():
    def sampled(seed):
        r = modeld("run", "-m", EXACT, "-p", "x", "-n", "12", "--temp", "1.5", "--top-k", "0", "--top-p", "1", "--min-p",
                   "0", "--seed", seed, "--json")
        assert r.code == 0 and r.err == "", r
        return json.loads(r.out)["tokens"]
    assert sampled(7) == sampled(7)
    assert sampled(7) != sampled(8)
    assert sampled(4294967295) == sampled(4294967295)
    assert sampled(-1) != sampled(-1)


@case
def prompt_from_argument_file_and_stdin():
    text = "many lines\n\n of \u00e4\u20ac text\n"
    path = write("prompt.txt", text)
    want = run_ok("-p", text, "-n", "8")
    assert run_ok("-f", path, "-n", "8") == want
    assert run_ok("-n", "8", stdin=text.encode()) == want
    assert run_ok("-f", "-", "-n", "8", stdin=text.encode()) == want
    assert run_ok("--file=" + path, "--predict=8") == want
    with open(path, "rb") as f:
        assert run_ok("-n", "8", stdin=f) == want
    assert run_ok("-p", text, "-n", "8", stdin=b"not this") == want


@case
def prompt_bytes_are_kept():
    nul = b"a\0b" + bytes([0xff, 0xc3]) + b"\r\n"
    figures = run_json("--raw", "-f", write("nul.bin", nul), "-n", "1")[0]
    assert figures["prompt_tokens"] == len(nul), "one token per byte: %s" % figures


@case
def nothing_to_generate():
    figures = run_json("-p", "hi", "-n", "0")[0]
    assert figures["text"] == "" and figures["tokens"] == [] and figures["finish_reason"] == "length"
    assert figures["tape_tokens"] == figures["prompt_tokens"] == figures["prefilled_tokens"]
    assert run_ok("-p", "hi", "-n", "0") == b"\n"


@case
def raw_leaves_the_template_out():
    raw, chat = run_json("--raw", "-p", "hi", "-n", "1")[0], run_json("-p", "hi", "-n", "1")[0]
    assert raw["prompt_tokens"] == 2
    assert chat["prompt_tokens"] == exact_tokens("user: hi\nassistant: ")
    same = run_json("--raw", "-p", "user: hi\nassistant: ", "-n", "1")[0]
    assert same["tokens"] == chat["tokens"]


@case
def system_message():
    figures = run_json("-sys", "be brief", "-p", "hi", "-n", "1")[0]
    assert figures["prompt_tokens"] == exact_tokens("system: be brief\nuser: hi\nassistant: ")


@case
def until_the_end_or_the_window():
    figures = run_json("-p", "hi", "-c", "128")[0]
    assert figures["prompt_tokens"] + figures["completion_tokens"] <= 128, figures
    if figures["finish_reason"] == "length":
        assert figures["prompt_tokens"] + figures["completion_tokens"] == 128, figures


@case
def a_long_prompt_goes_through_a_small_hot_set():
    text = "".join("line %d of the long text\n" % i for i in range(100))
    figures = run_json("-p", text, "-n", "8", "--hot", "256", "-c", "4096")[0]
    n = figures["prompt_tokens"]
    assert n > 2000 and figures["hot_limit_tokens"] == 256
    assert figures["cold_tokens"] >= n - 256 and figures["dropped_tokens"] == 0, figures
    assert figures["cold_tokens"] + figures["hot_tokens"] >= figures["tape_tokens"], figures
    assert figures["cold_bytes"] >= figures["cold_tokens"] * 512, "4 layers x 2 heads x 16 x (K, V) x f16"
    dropped = run_json("-p", text, "-n", "8", "--hot", "256", "-c", "4096", "--mem-cold", "0")[0]
    assert dropped["cold_bytes"] == 0 == dropped["cold_limit_bytes"] and dropped["cold_tokens"] == 0
    assert dropped["dropped_tokens"] >= n - 256, dropped
    assert dropped["tokens"] == figures["tokens"], "where evicted KV goes does not change the answer"


@case
def residency_off_keeps_all_hot():
    figures = run_json("-p", "x" * 700, "-n", "8", "-c", "1024", "--residency", "off")[0]
    assert figures["hot_limit_tokens"] == 1024 and figures["hot_tokens"] == figures["tape_tokens"]
    assert figures["cold_bytes"] == 0
    assert figures["tokens"] == run_json("-p", "x" * 700, "-n", "8", "-c", "1024", "--hot", "1024")[0]["tokens"]


@case
def environment_variables():
    base = ("run", "-m", EXACT, "--temp", "0", "-p", "hi", "--json")
    r = modeld(*base, env={"MODELD_PREDICT": "3", "MODELD_HOT": "512"})
    f = json.loads(r.out)
    assert r.code == 0 and r.err == "" and f["completion_tokens"] == 3 and f["hot_limit_tokens"] == 512, r
    r = modeld(*base, "-n", "5", env={"MODELD_PREDICT": "3"})
    assert json.loads(r.out)["completion_tokens"] == 5, "the command line wins: %s" % r
    r = modeld(*base, "-n", "1", env={"MODELD_PREDICTS": "3"})
    assert r.code == 0 and "unknown environment variable 'MODELD_PREDICTS'" in r.err and json.loads(r.out), r
    r = modeld(*base, "-n", "1", env={"MODELD_PORT": "8080", "MODELD_DEPTH": "300", "MODELD_ACCEL": "cpu",
                                      "MODELD_LLAMA_ROOT": "", "MODELDX": "1"})
    assert r.code == 0 and r.err == "", "those of other commands and of the build are known: %s" % r
    r = modeld("run", "-p", "hi", "-n", "1", env={"MODELD_MODEL": EXACT, "MODELD_JSON": "on"})
    assert r.code == 0 and json.loads(r.out)["completion_tokens"] == 1, r
    refused(modeld(*base, env={"MODELD_PREDICT": "many"}), 2, "environment variable MODELD_PREDICT", "'many'")
    refused(modeld(*base, env={"MODELD_HOT": ""}), 2, "MODELD_HOT")


@case
def quantised_kv_says_it_is_lossy():
    args = ("run", "-m", EXACT, "-p", "hi", "-n", "2", "--temp", "0")
    r = modeld(*args, "-ctk", "bf16", "-ctv", "bf16")
    assert r.code == 0 and r.err == "", r
    r = modeld("run", "-m", EXACT, "-p", "hi", "-n", "2", "-ctk", "q8_0", "-fa", "on")
    if r.code == 0:
        assert "warn" in r.err and "q8_0" in r.err and "lossy" in r.err, r
    else:
        refused(r, 1, "q8_0")


@case
def verbose_goes_to_stderr():
    r = modeld("run", "-m", EXACT, "--temp", "0", *HI, "-v")
    assert r.code == 0 and "debug llama.cpp: " in r.err, r
    assert r.out == run_ok(*HI)


@case
def kv_of_the_engine_is_the_hot_set():
    r = modeld("run", "-m", EXACT, "-p", "x" * 2000, "-n", "1", "--hot", "512", "-v")
    lines = [line for line in r.err.splitlines() if "cells" in line and "MiB" in line]
    assert r.code == 0 and lines, r
    assert all(" 512 cells" in line for line in lines), lines


@case
def output_that_cannot_be_written():
    for args in ((), ("--json",)):
        with open("/dev/full", "wb") as full:
            r = modeld("run", "-m", EXACT, *HI, *args, stdout=full)
        assert r.code == 1 and r.err == "modeld run: write standard output: No space left on device\n", r


def closed_pipe(args, ignore_sigpipe):
    reader, writer = os.pipe()
    os.close(reader)
    p = subprocess.Popen([MODELD, "run", "-m", EXACT, "-p", "x", "--temp", "0", *args], stdout=writer, stderr=subprocess.PIPE,
                         stdin=subprocess.DEVNULL, env=environment(), restore_signals=not ignore_sigpipe)
    os.close(writer)
    err = p.communicate(timeout=30)[1].decode()
    return p.returncode, err


@case
def a_reader_that_left():
    for args in (("-c", "200000"), ("--json", "-n", "4")):  # the first answer has no end: it is given up
        code, err = closed_pipe(args, False)
        assert code == -13 and err == "", "ended by SIGPIPE, as other filters: %s %s" % (code, err)
        code, err = closed_pipe(args, True)
        assert code == 1 and err == "modeld run: write standard output: Broken pipe\n", (code, err)


@case
def closed_standard_files():
    """A model opened as file 0, 1 or 2 would be read or written as if it were one of them."""
    for closed in (0, 1, 2, (0, 1, 2)):
        script = 'exec "$@" ' + " ".join("%d>&-" % n for n in (closed if isinstance(closed, tuple) else (closed,)))
        p = subprocess.run(["sh", "-c", script, "sh", MODELD, "run", "-m", EXACT, "--temp", "0", *HI],
                           stdin=subprocess.DEVNULL, capture_output=True, env=environment(), timeout=60)
        if closed == 0 or closed == 2:
            assert p.returncode == 0 and p.stdout == run_ok(*HI), (closed, p)
        assert b"\0" not in p.stdout
        bad = subprocess.run(["sh", "-c", script, "sh", MODELD, "run", "-m", EXACT], capture_output=True,
                             stdin=subprocess.DEVNULL, env=environment(), timeout=60)
        assert bad.returncode == 1, (closed, bad)


@case
def the_model_file_is_left_alone():
    before = open(EXACT, "rb").read()
    os.chmod(EXACT, 0o444)
    run_ok(*HI)
    assert open(EXACT, "rb").read() == before
    assert set(os.listdir(FOLDER)) >= {"exact.gguf"}


@case
def help_and_version():
    for args in (("-h",), ("--help",), ("help",)):
        r = modeld(*args)
        assert r.code == 0 and r.err == "" and b"serve" in r.out and b"bench" in r.out, r
    for verb, has, lacks in (("run", b"--turns", b"--port"), ("chat", b"--system", b"--turns"),
                             ("serve", b"--port", b"--prompt"), ("bench", b"--depth", b"--temp")):
        r = modeld(verb, "-h")
        assert r.code == 0 and r.err == "" and has in r.out and lacks not in r.out, r
    r = modeld("version")
    assert r.code == 0 and r.out.startswith(b"modeld ") and r.out == modeld("--version").out, r


assert len(FIELDS) == len(set(FIELDS))
@case
def the_cold_store_is_a_quarter_of_the_free_memory():
    def available():
        return int(next(l for l in open("/proc/meminfo") if l.startswith("MemAvailable")).split()[1]) * 1024
    before = available()
    figures = run_json("-p", "hi", "-n", "1", "--hot", "512", "-c", "1024")[0]
    low, high = sorted((before, available()))
    assert 0 < figures["cold_limit_bytes"] < high / 4 * 1.1, (low, high, figures)
    # where some control group has a limit, it may be this one: then less is free (tests/unit/test_memory.c)
    limits = [open(path).read().strip() for name in ("memory.max", "memory.limit_in_bytes")
              for path in glob.glob("/sys/fs/cgroup/**/" + name, recursive=True)]
    if all(limit == "max" or int(limit) > 1 << 60 for limit in limits):
        assert low / 4 * 0.9 < figures["cold_limit_bytes"], (low, high, figures)


@case
def a_rate_is_of_the_steps_that_were_timed():
    one = run_json("-p", "hi", "-n", "1")[0]  # it comes from the prompt: no decode step
    assert one["decode_tokens_per_second"] == 0, one
    some = run_json("-p", "hi", "-n", "9")[0]
    assert some["completion_tokens"] == 9, some
    assert abs(some["decode_tokens_per_second"] * some["decode_seconds"] - 8) < 0.01, some


main()
