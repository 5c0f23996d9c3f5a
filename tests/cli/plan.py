"""`modeld plan`: what a model is worth on this machine, what is refused, and that `serve` opens the same.

Figures without a source beside them are the cases' own (B...)."""
import glob
import json
import os
import re

from libcli import EXACT, FOLDER, TRAINED, case, main, modeld, refused
from libdaemon import Daemon
from libgguf import BASE12, gguf
from libplan import file, kv_bytes, plan, put
from libwire import COMPLETION

PER_TOKEN = 12288  # BASE12: 12 layers x 2 x 4 heads of 64 x 2 bytes


@case
def b018_a_family_that_is_not_known():
    base = [(k.replace("llama.", "novarch."), t, v) for k, t, v in BASE12]
    path = file(("general.architecture", "str", "novarch"), ("novarch.block_count", "u32", 24),
                ("novarch.attention.head_count_kv", "u32", 8), ("novarch.attention.sliding_window", "u32", 128),
                ("novarch.attention.sliding_window_pattern", "[bool]", [1, 0] * 12), base=base)
    assert kv_bytes(path, 32768, "-ub", 512) == 824180736
    p = plan(path, "-c", 32768, "--seq-max", 1)
    assert [x["cells"] for x in p["layers"]] == [768, 32768] * 12, p["layers"]
    assert p["sparse_attention"] is True and p["sliding_window_attention_tokens"] == 128
    # it can be planned, not opened
    assert p["unsupported"] == ["unsupported_architecture"] and "'novarch'" in p["refused"], p["refused"]
    r = modeld("serve", "-m", path, "--port", 0)
    assert r.code == 1 and "cannot run the architecture 'novarch'" in r.err and "ready" not in r.err, r


@case
def b023_keys_that_hold_the_values():
    d = "deepseek2."
    path = put(gguf([("general.architecture", "str", "deepseek2")] + [(d + k, "u32", v) for k, v in (
        ("block_count", 27), ("context_length", 163840), ("embedding_length", 2048), ("attention.head_count", 16),
        ("attention.head_count_kv", 1), ("attention.key_length", 576), ("attention.value_length", 512),
        ("attention.key_length_mla", 192), ("attention.value_length_mla", 128), ("attention.kv_lora_rank", 512),
        ("rope.dimension_count", 64))]))
    assert kv_bytes(path, 32768) == 1019215872
    assert all(x["keys_only"] for x in plan(path, "-c", 256)["layers"])


@case
def b024_kv_types():
    path = file()
    for types, want in ((("f16", "f16"), 402653184), (("q8_0", "q8_0"), 213909504), (("q4_0", "q4_0"), 113246208),
                        (("q8_0", "f16"), 308281344)):
        assert kv_bytes(path, 32768, "-ctk", types[0], "-ctv", types[1]) == want, types
    p = plan(path, "-ctk", "q8_0")
    assert (p["type_k"], p["type_v"]) == ("q8_0", "f16"), p
    for verb in ("plan", "serve"):
        r = modeld(verb, "-m", path, "-ctk", "q9_9")
        assert r.code == 1 and "q9_9" in r.err and "q8_0" in r.err and "keys" in r.err, r
        r = modeld(verb, "-m", path, "-ctv", "q8_0", "-fa", "off")
        assert r.code == 1 and "flash attention" in r.err, r


@case
def b025_one_context_everywhere():
    """The exact model takes 512 bytes a token (4 layers, 2 KV heads of 16): 1000 tokens are 1024 cells."""
    p = plan(EXACT, "-c", 1000)
    assert p["context_tokens"] == p["window_tokens"] == p["hot_tokens"] == p["effective_context"] == 1000, p
    assert p["kv_bytes"] == 1024 * 512 and {x["cells"] for x in p["layers"]} == {1024}, p
    with Daemon(EXACT, "-t", "1", "-c", "1000") as d:
        assert "window 1000 tokens, hot 1000," in d.log, d.log
        model = d.get("/v1/models")[1]["data"][0]
        assert model["context_length"] == model["max_model_len"] == model["meta"]["n_ctx"] == 1000, model
        status, answer = d.post(COMPLETION, {"prompt": [100] * 1000, "max_tokens": 1})
        assert status == 400 and "has 1000 tokens, the context window is 1000:" in answer["error"]["message"], answer
        status, answer = d.post(COMPLETION, {"prompt": [100] * 999, "max_tokens": 5})
        assert status == 200 and answer["usage"]["total_tokens"] == 1000, answer
        assert d.status()["window_tokens"] == 1000


@case
def b025_a_budget_of_1000_tokens():
    # 1000 tokens of BASE12; 1024 cells would be 12,582,912 bytes
    p = plan(file(), "--budget", 1000 * PER_TOKEN)
    assert p["effective_context"] == p["context_tokens"] == 768 and p["kv_bytes"] == 768 * PER_TOKEN, p


@case
def b030_numbers_that_no_context_reaches():
    """Up to 2^31 - 1 they are numbers; what is more than the model was trained for is no context."""
    for flags in (("-c", 2147483647), ("-c", 1073741825), ("--hot", 2147483647), ("-c", 1 << 30, "--hot", (1 << 30) + 1)):
        assert "refused" in plan(EXACT, *flags), flags
        assert modeld("plan", EXACT, *flags).code == 0, flags


@case
def b030_numbers():
    path = file()
    for text in ("-1", "4294967296", "9223372036854775808", "4096abc", "", "1e3", "0x100", " 4096", "4096 ",
                 "+1x", "2147483648"):
        for verb in ("plan", "serve", "run"):
            r = modeld(verb, "-m", path, "-c", text)
            refused(r, 2, "--ctx-size")
    automatic = plan(path)
    assert plan(path, "-c", "0")["context_tokens"] == automatic["context_tokens"] == 32768
    one = plan(path, "-c", "1")  # a cell unit is 256: the bytes are those of 256 cells, the context stays 1
    assert one["context_tokens"] == one["window_tokens"] == one["effective_context"] == 1, one
    assert one["kv_bytes"] == 256 * PER_TOKEN, one
    for flag in ("-ub", "--seq-max", "--hot", "--min-hot-context", "-ngl"):
        refused(modeld("plan", path, flag, "-1"), 2, flag if flag.startswith("--") else "--")
    for flag in ("--budget", "--mem-cold", "--mem-max"):
        for text in ("-1", "12XB", "", "1e3", "0x10"):
            refused(modeld("plan", path, flag, text), 2, flag)
    refused(modeld("plan", path, "--seq-max", "257"), 2, "--seq-max")


@case
def b031_what_100_mib_hold():
    path = file()
    p = plan(path, "--budget", "100MiB")
    assert (p["effective_context"], p["kv_bytes"], p["limited_by"]) == (8448, 103809024, "memory"), p
    p = plan(path, "--budget", "1GiB")
    assert (p["effective_context"], p["limited_by"], p["clamped"], p["reason"]) == (32768, "model", False, ""), p


# ---- memory ----


@case
def nothing_fits():
    for flags in (("--mem-max", "1MiB"), ("--mem-reserve", "100000GiB")):
        p = plan(EXACT, *flags)
        assert p["effective_context"] == p["hot_tokens"] == p["window_tokens"] == p["planner_effective_context"] == 0, p
        assert p["clamped"] is True and "does not fit" in p["refused"], p
        r = modeld("serve", "-m", EXACT, "--port", 0, *flags)
        assert r.code == 1 and "ready" not in r.err, r
        for word in ("weights", "KV", "buffers", "usable", "enough for 0 tokens", p["reason"]):
            assert word in r.err, (word, r.err)
        text = modeld("plan", EXACT, *flags)
        assert text.code == 0 and b"serve would refuse this: a context of" in text.out, text


@case
def more_than_it_was_trained_for():
    path = file()
    p = plan(path, "-c", 32769)
    assert p["reason"] == "request_exceeds_model_window" and p["limited_by"] == "model" and p["clamped"], p
    assert "32769" in p["refused"] and "32768" in p["refused"], p["refused"]
    for verb in ("serve", "run", "chat"):
        r = modeld(verb, "-m", EXACT, "-c", TRAINED + 1, *(("-p", "x") if verb == "run" else ()))
        assert r.code == 1 and str(TRAINED + 1) in r.err and "trained for" in r.err, r


@case
def b118_a_stretched_window_ends_where_the_file_says():
    path = file(("llama.context_length", "u32", 16384), ("llama.rope.scaling.type", "str", "yarn"),
                ("llama.rope.scaling.factor", "f32", 4.0), ("llama.rope.scaling.original_context_length", "u32", 4096))
    p = plan(path)
    assert p["model_max_context"] == p["effective_context"] == 16384, p
    assert "16385 is more than the 16384 tokens" in plan(path, "-c", 16385)["refused"]


# The exact model: 733,920 bytes of weights, about 1.4 MiB of buffers and 1,024 bytes of mask beside 512 of KV a token.
# 8 MiB less a tenth hold some 3,300 tokens; the floor is 4,096.
SMALL = ("--mem-max", "8MiB")


@case
def below_the_floor_and_with_the_floor_off():
    p = plan(EXACT, *SMALL)
    assert 256 <= p["hot_tokens"] < 4096 == p["min_hot_context_tokens"], p
    assert "a context of 4096 tokens does not fit" in p["refused"] and "--min-hot-context" in p["refused"], p
    r = modeld("run", "-m", EXACT, "-p", "x", *SMALL)
    refused(r, 1, "a context of 4096 tokens does not fit", "enough for %d tokens" % p["hot_tokens"])
    open_ = plan(EXACT, *SMALL, "--min-hot-context", 0)
    assert "refused" not in open_ and open_["hot_tokens"] == p["hot_tokens"], open_
    r = modeld("run", "-m", EXACT, "-p", "x", "-n", 1, *SMALL, "--min-hot-context", 0, "--json")
    assert r.code == 0 and json.loads(r.out)["hot_limit_tokens"] == p["hot_tokens"], r


@case
def required_is_the_sum_and_fits():
    for path, flags in ((EXACT, ()), (EXACT, ("-c", "5000")), (EXACT, SMALL), (file(), ("--mem-max", "300MiB"))):
        p = plan(path, *flags)
        assert p["required_bytes"] == p["weights_bytes"] + p["overhead_bytes"] + p["kv_bytes"], p
        assert p["required_bytes"] <= p["usable_bytes"] <= p["free_bytes"], p
        assert p["weights_bytes"] == os.path.getsize(path)


@case
def two_tiers():
    """-c is more than is hot at once, and the cold store carries the rest."""
    flags = ("-c", "200000", "--mem-max", "64MiB")
    p = plan(EXACT, *flags)
    assert p["window_tokens"] == p["planner_effective_context"] == p["context_tokens"] == 200000 and "refused" not in p, p
    assert 4096 <= p["hot_tokens"] == p["hot_context_tokens"] < 200000 and p["limited_by"] == "memory", p
    text = modeld("plan", EXACT, *flags).out.decode()
    hot = -(-p["hot_tokens"] // 256) * 256 * 512  # what is drawn as hot is what is hot
    assert re.search(r"K KV, hot +%s bytes" % format(hot, ","), text), text
    # with a cold store that does not hold the rest it is refused, with the arithmetic
    small = plan(EXACT, *flags, "--mem-cold", "1MiB")
    assert small["planner_effective_context"] == small["hot_tokens"] + 2048, small  # 1 MiB of 512 bytes
    assert "a context of 200000 tokens does not fit" in small["refused"], small
    r = modeld("serve", "-m", EXACT, "--port", 0, *flags, "--mem-cold", "1MiB")
    assert r.code == 1 and "a context of 200000 tokens does not fit" in r.err and "usable" in r.err, r
    assert "refused" in plan(EXACT, *flags, "--mem-cold", "0")


@case
def hot_by_hand():
    p = plan(EXACT, "--hot", 512)
    assert p["hot_tokens"] == 512 == p["context_tokens"] and p["kv_bytes"] == 512 * 512, p
    assert p["window_tokens"] == TRAINED, p  # the derived cold store holds it all: 128 MiB
    p = plan(EXACT, "--hot", 512, "-c", 4096)
    assert (p["hot_tokens"], p["window_tokens"]) == (512, 4096) and "refused" not in p, p
    p = plan(EXACT, "--hot", 5000, "-c", 4096)  # more than one conversation fills: the others' share
    assert (p["hot_tokens"], p["window_tokens"]) == (5000, 4096) and "refused" not in p, p
    assert "does not fit" in plan(EXACT, "--hot", 100000, "--mem-max", "16MiB")["refused"]
    # its size is the user's choice, also where the cold store does not hold the rest
    assert "refused" not in plan(EXACT, "--hot", 512, "-c", 4096, "--mem-cold", "100K")


def windowed():
    """gemma3: 12 layers, 4 KV heads of 64, window 512, every sixth layer global."""
    base = [(k.replace("llama.", "gemma3."), t, v) for k, t, v in BASE12]
    return file(("general.architecture", "str", "gemma3"), ("gemma3.attention.sliding_window", "u32", 512), base=base)


def cells(p):
    return sorted({x["cells"] for x in p["layers"]})


@case
def windowed_layers():
    path = windowed()
    one = plan(path, "-c", 8192, "--seq-max", 1)
    assert [int(x["window"] > 0) for x in one["layers"]] == [1, 1, 1, 1, 1, 0] * 2
    assert cells(one) == [1024, 8192]  # 512 + 512
    assert cells(plan(path, "-c", 8192, "--seq-max", 5)) == [3072, 8192]  # 5 * 512 + 512
    assert cells(plan(path, "-c", 8192, "-ub", 64)) == [768, 8192]  # 512 + 64, one sequence as it is opened
    assert plan(path, "-c", 8192)["sequences"] == 1
    full = plan(path, "-c", 8192, "--swa-full", "on")
    assert cells(full) == [8192] and full["window_full"] is True and one["window_full"] is False
    assert full["kv_bytes"] == 12 * 8192 * 1024 and one["kv_bytes"] == (2 * 8192 + 10 * 1024) * 1024
    refusal = plan(path, "--past-window")["refused"]
    assert "windowed or recurrent layers" in refusal and "leave the flag out" in refusal, refusal
    # what is not in the windows goes cold as that of a dense model
    assert one["host_cold_budget_bytes"] > 0 and one["hot_tokens"] == 8192
    text = modeld("plan", path, "-c", 8192).out.decode()
    assert re.search(r"S KV of windowed layers +10,485,760 bytes", text), text
    assert "--swa-full" in modeld("plan", path, "-c", 8192, "--swa-full", "on").out.decode()
    little = plan(path, "-c", 32768, "--mem-max", "80MiB")
    assert little["hot_tokens"] < 32768 == little["window_tokens"] and "refused" not in little, little


@case
def serve_opens_what_plan_says():
    for flags in ((), ("-c", "8192"), ("-c", "200000", "--mem-max", "64MiB"), ("--hot", "512"),
                  ("--hot", "1000", "-c", "3000"), ("--mem-max", "8MiB", "--min-hot-context", "0"),
                  ("-c", "5000", "-ub", "64", "-ctk", "f32"), ("-c", "70000", "--mem-cold", "1MiB"),
                  ("--mem-max", "64MiB", "--mem-cold", "0"), ("--residency", "off", "-c", "3000"),
                  ("--residency", "off", "--mem-max", "64MiB")):
        p = plan(EXACT, *flags)
        assert "refused" not in p, p
        with Daemon(EXACT, "-t", "1", *flags) as d:
            assert "window %d tokens, hot %d," % (p["window_tokens"], p["hot_tokens"]) in d.log, (flags, d.log)
            assert "KV %s/%s" % (p["type_k"], p["type_v"]) in d.log, d.log


@case
def no_layers_for_a_gpu_that_is_not_there():
    p = plan(EXACT, "-ngl", 0)
    assert p["device_kind"] == "system" and p["resolved_gpu_layers"] == 0 == p["requested_gpu_layers"], p
    if p["devices"]:
        print("# there is an accelerator", flush=True)
        return
    assert "--gpu-layers 3" in plan(EXACT, "-ngl", 3)["refused"]
    r = modeld("serve", "-m", EXACT, "--port", 0, "-ngl", 3)
    assert r.code == 1 and "--gpu-layers 3" in r.err, r


# ---- what is written ----

DESCRIBE = ("model_max_context effective_context memory_context_tokens hot_context_tokens planner_effective_context "
            "kv_bytes_per_token free_bytes weights_bytes overhead_bytes reserved_bytes user_limit_bytes min_free_bytes "
            "host_cold_budget_bytes usable_bytes required_bytes clamped reason device_kind device_id device_total_bytes "
            "shared_with_display requested_gpu_layers resolved_gpu_layers sparse_attention "
            "sliding_window_attention_tokens supports_vision vision_tokens_per_image chat_template_format "
            "chat_template_thinking_start_tag chat_template_reasoning_format chat_template_supports_tool_calls "
            "chat_template_supports_thinking chat_template_supports_reasoning_effort runtime_name runtime_digest runtime_system_info supports_gpu_offload "
            "devices").split()


@case
def all_fields_are_there():
    p = plan(EXACT)
    missing = [name for name in DESCRIBE + ["kv_bytes", "context_tokens", "layers"] if name not in p]
    assert not missing, missing
    for layer in p["layers"]:
        assert set("kv_heads key_length value_length window cells bytes".split()) <= set(layer), layer
    assert p["kv_bytes_per_token"] == 512 and p["model_max_context"] == TRAINED and p["kv_bytes"] == 512 * TRAINED, p
    assert p["runtime_name"] == "llama.cpp" and p["runtime_digest"] and p["runtime_system_info"], p
    assert p["device_total_bytes"] >= p["free_bytes"] > 0, p


@case
def the_panel():
    text = modeld("plan", file(), "-c", 4096, "--mem-cold", "64MiB").out.decode()
    assert "4,096 tokens" in text and "12,288 bytes" in text and "50,331,648 bytes" in text, text
    assert "not measured here yet" in text, text
    bar = re.search(r"^  \[(.+)\]$", text, re.M).group(1)
    assert len(bar) == 60 and set(bar) <= set("WKSCcQR."), bar
    for letter, name in (("W", "weights"), ("K", "KV, hot"), ("C", "compute"), ("c", "cold store"), ("R", "kept"),
                         (".", "allowed")):
        assert re.search(r"^  %s %s" % (re.escape(letter), name), text, re.M) and letter in bar, (letter, text)
    sizes = [int(n.replace(",", "")) for n in re.findall(r"^  [WKSCcR.] .*? ([\d,]+) bytes", text, re.M)]
    free = plan(file())["free_bytes"]
    assert abs(sum(sizes) - free) < free / 20, (sizes, free)  # others use memory meanwhile
    kept = int(re.search(r"R kept: limits, headroom +([\d,]+) bytes", text).group(1).replace(",", ""))
    # usable is 0.8 * 0.9 of what is free, and the cold store is none of what is kept
    assert abs(kept - (0.28 * free - (64 << 20))) < free / 50, (kept, free)
    limited = modeld("plan", EXACT, "--mem-max", "64MiB").out.decode()
    assert "limited by the memory (model_context_exceeds_memory_budget)" in limited, limited


@case
def keys_of_retrieval():
    """Keys are kept as f16 for as many layers as a measured set of 16 heads may have: all of BASE12's 12, with 4 heads of 64.  A block costs them 64 tokens of that, its tokens and what the store keeps of it; a window of 4,096 has 64 and one."""
    args = ("-c", 4096, "--hot", 1024, "--mem-cold", "256MiB", "--min-hot-context", 0)
    off, on = plan(file(), *args), plan(file(), "--retrieval", "auto", *args)
    assert off["retrieval_keys_bytes"] == 0 and off["host_cold_budget_bytes"] == on["host_cold_budget_bytes"] == 256 << 20
    least = 65 * 64 * (12 * 4 * 64 * 2 + 4)
    assert least < on["retrieval_keys_bytes"] < least * 1.05, (least, on["retrieval_keys_bytes"])
    for more in ((), ("--retrieval", "auto")):  # eviction by attention scores the same keys: they are kept once
        assert plan(file(), "--evict", "attention", *more, *args)["retrieval_keys_bytes"] == on["retrieval_keys_bytes"], more
    assert plan(file(), "--evict", "recency", *args)["retrieval_keys_bytes"] == 0
    # never more than a quarter, which the cold store does not have then
    small = ("--hot", 1024, "--mem-cold", "16MiB", "--min-hot-context", 0)
    off, on = plan(file(), *small), plan(file(), "--retrieval", "auto", *small)
    assert on["retrieval_keys_bytes"] == 4 << 20, on
    assert off["window_tokens"] == 1024 + (16 << 20) // PER_TOKEN, off
    assert on["window_tokens"] == 1024 + (12 << 20) // PER_TOKEN, on
    # nothing is cold, or nothing is kept to be scored
    assert plan(file(), "--retrieval", "auto", "-c", 4096, "--residency", "off")["retrieval_keys_bytes"] == 0
    text = modeld("plan", file(), "--retrieval", "auto", *args).out.decode()
    assert re.search(r"^  Q keys for attention, at most +[\d,]+ bytes", text, re.M), text
    assert "keys for attention" not in modeld("plan", file(), *args).out.decode()
    r = modeld("plan", file(), "--retrieval", "on")
    assert r.code == 1 and "--retrieval 'on' is not known: it is one of off, auto" in r.err, r
    r = modeld("plan", file(), "--evict", "oldest")
    assert r.code == 1 and "--evict 'oldest' is not known: it is one of recency, attention" in r.err, r
    # and what was planned is what is taken
    args = ("-c", 2048, "--hot", 512, "--mem-cold", "64MiB", "--retrieval", "auto", "--min-hot-context", 0)
    with Daemon(EXACT, "-t", "1", *args) as d:
        status = d.status()["retrieval"]
        assert status["on"] and status["keys_budget_bytes"] == plan(EXACT, *args)["retrieval_keys_bytes"] > 0, status


@case
def what_a_template_mentions():
    fields = ("format", "thinking_start_tag", "reasoning_format", "supports_tool_calls", "supports_thinking",
              "supports_reasoning_effort")
    rows = (("{{ messages }}", ["jinja", "", "", False, False, False]),
            ("{% if tools %}x{% endif %}", ["jinja", "", "", True, False, False]),
            ("{% if enable_thinking %}", ["jinja", "", "auto", False, True, False]),
            ("<think>{{ reasoning_effort }}", ["jinja", "<think>", "auto", False, True, True]),
            (None, ["", "", "", False, False, False]))
    for text, wanted in rows:
        p = plan(file(*([] if text is None else [("tokenizer.chat_template", "str", text)])))
        assert [p["chat_template_" + f] for f in fields] == wanted, (text, p)


@case
def the_model_once():
    path = file()
    for args in (("plan", path, "-m", path), ("plan", "-m", path, path), ("show", path, path)):
        r = modeld(*args)
        refused(r, 2)
    refused(modeld("plan"), 2, "no model")
    r = modeld("plan", "-m", path, "--json")
    assert r.code == 0 and json.loads(r.out)["context_tokens"] == 32768
    r = modeld("plan", "/no/such.gguf")
    refused(r, 1, "/no/such.gguf")
    refused(modeld("plan", FOLDER + "/"), 1, "not a file")
    with open("/dev/full", "wb") as full:
        for more in ((), ("--json",)):
            assert modeld("plan", path, *more, stdout=full).code == 1


def tree(folder):
    return sorted((p, os.stat(p).st_mtime_ns) for p in glob.glob(folder + "/**", recursive=True))


@case
def plan_and_show_write_nothing():
    state = os.path.join(FOLDER, "empty")
    os.makedirs(state)
    path = file()
    before = tree(FOLDER)
    folders = "XDG_STATE_HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_CACHE_HOME HOME TMPDIR"
    env = {name: state for name in folders.split()}
    for verb in ("plan", "show"):
        for more in ((), ("--json",), ("--data-root", state)):
            assert modeld(verb, path, *more, env=env).code == 0
    assert tree(FOLDER) == before


# ---- speeds ----


def with_root(name, content=None):
    root = os.path.join(FOLDER, name)
    os.makedirs(root, exist_ok=True)
    if content is not None:
        with open(os.path.join(root, "speeds.json"), "wb") as f:
            f.write(content)
    return root


@case
def what_was_measured_is_told():
    root = with_root("speeds")
    r = modeld("run", "-m", EXACT, "-p", "a" * 200, "-n", 1, "--hot", 1024, "--data-root", root)
    assert r.code == 0 and "prefill_tokens_per_second" not in plan(EXACT, "--data-root", root), "255 tokens tell nothing"
    r = modeld("run", "-m", EXACT, "-p", "a" * 600, "-n", 1, "--hot", 1024, "--data-root", root, "--json")
    measured_speed = json.loads(r.out)["prefill_tokens_per_second"]
    p = plan(EXACT, "--data-root", root)
    assert 0.5 < p["prefill_tokens_per_second"] / measured_speed < 2, (p, measured_speed)
    assert abs(p["cold_prefill_seconds"] * p["prefill_tokens_per_second"] / TRAINED - 1) < 1e-6, p
    # of this model, not of another
    assert "cold_prefill_seconds" not in plan(file(), "--data-root", root)
    with open(os.path.join(root, "speeds.json"), "rb") as f:
        assert b"aaa" not in f.read(), "no word of a prompt"


def speeds(value):
    key_ = "llama/exact/%d/cpu" % os.path.getsize(EXACT)
    return json.dumps({"prefill": [{"key": key_, "tokens_per_second": value}]}).encode()


@case
def slow_ones_are_warned_of():
    for speed, warned in ((1000, False), (100, True)):
        # 150,000 tokens take 150 s, or 1500
        text = modeld("plan", EXACT, "-c", 150000, "--data-root", with_root("slow", speeds(speed))).out.decode()
        assert "about %d s at %d tokens/s" % (150000 / speed, speed) in text, text
        assert ("WARNING: above 180 s" in text) == warned, text
    state = os.path.join(FOLDER, "state")
    os.makedirs(state + "/modeld")
    with open(state + "/modeld/speeds.json", "wb") as f:
        f.write(speeds(100))
    assert plan(EXACT, "-c", 150000, env={"XDG_STATE_HOME": state})["cold_prefill_seconds"] == 1500


@case
def a_broken_file_of_speeds_is_no_speed():
    good = json.loads(speeds(5))
    for i, content in enumerate((b"", b"{", b"\xff\xfe", b"[]", b"7", b'{"prefill": 3}', b'{"prefill": [1, null, [], {}]}',
                                 json.dumps({"prefill": good}).encode(), speeds("fast"), speeds(0), speeds(-5), speeds(1e-320),
                                 speeds(None), b"[" * 100000, b" " * (2 << 20) + speeds(5), speeds(5)[:-2])):
        root = with_root("broken%d" % i, content)
        p = plan(EXACT, "-c", 4096, "--data-root", root)
        assert "cold_prefill_seconds" not in p, (content[:80], p["cold_prefill_seconds"])
        r = modeld("run", "-m", EXACT, "-p", "a" * 600, "-n", 1, "--hot", 1024, "--data-root", root)
        assert r.code == 0 and r.err == "", r
        assert plan(EXACT, "--data-root", root)["prefill_tokens_per_second"] > 1, "it is replaced"
    os.mkfifo(os.path.join(with_root("fifo"), "speeds.json"))
    assert plan(EXACT, "--data-root", with_root("fifo"))["context_tokens"] == TRAINED, "nobody waits for it"
    os.makedirs(os.path.join(with_root("folder"), "speeds.json"))
    assert plan(EXACT, "--data-root", with_root("folder"))["context_tokens"] == TRAINED
    r = modeld("run", "-m", EXACT, "-p", "a" * 600, "-n", 1, "--hot", 1024, "--data-root", with_root("folder"))
    assert r.code == 0 and r.err == "" and os.listdir(with_root("folder")) == ["speeds.json"], r


main()
