"""`modeld plan` on real models: its figures are the engine's.  Model S is SmolLM2-135M, model G Gemma-3-270M."""
# slow
import os
import re
import shutil
import struct
import sys

from libcli import FOLDER, SMOLLM, case, main, modeld
from libdaemon import Daemon
from libplan import MIB, all_refuse, plan, show
from libwire import COMPLETION

GEMMA = os.path.join(os.path.dirname(SMOLLM), "gemma3-270m.gguf")
for model, name in ((SMOLLM, "smollm2"), (GEMMA, "gemma3-270m")):
    if not os.path.exists(model):
        print("FAIL models '%s' is missing: tools/setup.sh model %s" % (model, name))
        sys.exit(1)


def allocated(log):
    """Bytes of the KV buffers, in the library's own words; it prints MiB with two digits."""
    found = re.findall(r"llama_kv_cache: +\S+ KV buffer size = +([\d.]+) MiB", log)
    assert found, log[-2000:]
    return sum(float(n) for n in found) * MIB


def resident(pid):
    with open("/proc/%d/status" % pid) as f:
        return int(re.search(r"VmRSS:\s+(\d+) kB", f.read()).group(1)) * 1024


@case
def b008_cut_and_bent():
    """Each is refused by the size of the file alone, before anything is mapped; the whole file opens."""
    whole = os.path.getsize(SMOLLM)
    copy = os.path.join(FOLDER, "cut.gguf")
    shutil.copyfile(SMOLLM, copy)
    # behind the name of a tensor: dimensions, type and offset, which is raised by 2^40
    with open(copy, "r+b") as f:
        head = f.read(8 << 20)
        name = b"blk.7.ffn_up.weight"
        at = head.index(struct.pack("<Q", len(name)) + name) + 8 + len(name)
        at += 4 + 8 * struct.unpack_from("<I", head, at)[0] + 4
        offset = struct.unpack_from("<Q", head, at)[0]
        f.seek(at)
        f.write(struct.pack("<Q", offset + (1 << 40)))
    all_refuse(copy, "blk.7.ffn_up.weight")
    with open(copy, "r+b") as f:
        f.seek(at)
        f.write(struct.pack("<Q", offset))
    assert plan(copy, "-c", 256)["kv_bytes"] == 256 * 23040
    for size in (whole - 1, whole - 4096, whole // 2):
        os.truncate(copy, size)
        all_refuse(copy, "file has %d bytes, tensor '" % size, "needs")
    for size in (100, 0):
        os.truncate(copy, size)
        all_refuse(copy, "left in the file")
    os.unlink(copy)


@case
def b019_windows_the_file_does_not_list():
    for context, want in ((4096, 28311552), (8192, 40894464), (32768, 116391936)):
        p = plan(GEMMA, "-c", context, "-ub", 512, "--seq-max", 1)
        assert p["kv_bytes"] == want == sum(x["bytes"] for x in p["layers"]), (context, p["kv_bytes"])
        assert [int(x["window"] > 0) for x in p["layers"]] == [1, 1, 1, 1, 1, 0] * 3
        assert plan(GEMMA, "-c", context)["kv_bytes"] == want, "it is opened with one sequence"
    full = plan(GEMMA, "-c", 32768, "--swa-full", "on")
    assert full["kv_bytes"] == 603979776 and full["window_full"] is True, full


@case
def b021_planned_is_allocated():
    for model, flags in ((GEMMA, ()), (GEMMA, ("-c", "4096")), (GEMMA, ("-c", "8192", "--swa-full", "on")),
                         (SMOLLM, ("-c", "8192")), (SMOLLM, ("-c", "4096", "-ctk", "q8_0", "-ctv", "q4_0"))):
        p = plan(model, *flags)
        with Daemon(model, "-t", "1", "-v", *flags) as d:
            planned, real = p["kv_bytes"], allocated(d.log)
            assert abs(planned - real) <= 0.01 * real, (flags, planned, real)
            assert "window %d tokens, hot %d," % (p["window_tokens"], p["hot_tokens"]) in d.log, d.log[-2000:]


@case
def b021_resident_memory():
    """A small and a large context of model G differ in resident memory by what plan says they differ in; the library
    clears the KV cache when it makes it, so all of it is resident.  Compute buffers are not: not all is touched."""
    sizes, plans = [], []
    for context in ("256", "32768"):
        plans.append(plan(GEMMA, "-c", context)["kv_bytes"])
        with Daemon(GEMMA, "-t", "1", "-c", context) as d:
            sizes.append(resident(d.process.pid))
    grown, planned = sizes[1] - sizes[0], plans[1] - plans[0]
    buffers = plan(GEMMA, "-c", "32768")["overhead_bytes"] - plan(GEMMA, "-c", "256")["overhead_bytes"]
    assert planned * 0.95 <= grown <= planned + buffers + 16 * MIB, (grown, planned, buffers)


@case
def b025_1000_tokens():
    p = plan(SMOLLM, "-c", 1000)
    assert p["kv_bytes_per_token"] == 23040 and p["kv_bytes"] == 23592960, p
    assert p["context_tokens"] == p["window_tokens"] == p["effective_context"] == 1000, p
    assert {x["cells"] for x in p["layers"]} == {1024}, p
    with Daemon(SMOLLM, "-t", "1", "-v", "-c", "1000") as d:
        assert "window 1000 tokens, hot 1000," in d.log, d.log[-2000:]
        assert abs(allocated(d.log) - 23592960) < MIB / 100, "1024 cells"
        assert d.get("/v1/models")[1]["data"][0]["context_length"] == 1000
        assert d.status()["window_tokens"] == 1000
        status, answer = d.post(COMPLETION, {"prompt": [100] * 1000, "max_tokens": 1})
        assert status == 400 and "the context window is 1000:" in answer["error"]["message"], answer
    p = plan(SMOLLM, "--budget", 23040000)
    assert p["effective_context"] == p["context_tokens"] == 768, p


@case
def past_the_window():
    p = plan(SMOLLM, "--past-window", "-c", 16384, "--hot", 2048)
    assert "refused" not in p and (p["window_tokens"], p["hot_tokens"], p["past_window_step_tokens"]) == (16384, 2048, 1024), p
    assert "windowed or recurrent layers" in plan(GEMMA, "--past-window")["refused"]
    assert "--cache-type-k f16" in plan(SMOLLM, "--past-window", "-ctk", "q8_0")["refused"]


@case
def b118_rope():
    """Gemma's window base stands in no key of the file: it is the family's (gemma3: 10,000)."""
    s, g = show(SMOLLM), show(GEMMA)
    assert s["rope_freq_base"] == 100000 and s["context_length"] == 8192, s
    assert g["rope_freq_base"] == 1000000 and g["rope_freq_base_swa"] == 10000 and g["context_length"] == 32768, g
    assert s["metadata"]["llama.rope.freq_base"] == "100000"


@case
def the_panel_of_a_real_model():
    text = modeld("plan", GEMMA, "-c", 8192).out.decode()
    assert "28,311,552" not in text and "40,894,464 bytes" in text and "KV of windowed layers" in text, text
    s = show(SMOLLM)
    assert len(s["layers"]) == 30 and {(x["kv_heads"], x["key_length"]) for x in s["layers"]} == {(3, 64)}, s["layers"]
    assert sum(t["bytes"] for t in s["tensors"]) < s["file_bytes"] == os.path.getsize(SMOLLM)


@case
def the_answer_fits_the_memory_that_is_asked():
    """Model S with its whole window stays within what it was given."""
    limit = 512 * MIB
    flags = ("--mem-max", str(limit), "-c", "8192", "-ub", "64")
    p = plan(SMOLLM, *flags)
    assert "refused" not in p and p["required_bytes"] <= limit, p
    with Daemon(SMOLLM, "-t", "1", *flags) as d:
        status, answer = d.post(COMPLETION, {"prompt": [100] * 300, "max_tokens": 2}, timeout=60)
        assert status == 200, answer
        assert resident(d.process.pid) < limit + 64 * MIB, resident(d.process.pid)  # and the program itself


main()
