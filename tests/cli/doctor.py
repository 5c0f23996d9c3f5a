"""`modeld doctor`: what this machine offers, and what would be refused on it."""
import json
import os
import re
import subprocess

from libcli import EXACT, FOLDER, MODELD, case, environment, main, modeld, refused
from libplan import GIB, MIB


def doctor(*args, **more):
    r = modeld("doctor", "--json", *args, **more)
    assert r.code == 0, r
    return json.loads(r.out.decode("utf-8", "strict"))


def codes(d):
    return [f["code"] for f in d["refused"]]


@case
def figures_are_those_of_the_system():
    d = doctor()
    with open("/proc/meminfo") as f:
        info = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in f}
    memory = d["memory"]
    assert d["processors"] == len(os.sched_getaffinity(0)), d
    assert 0 < memory["available_bytes"] <= memory["total_bytes"] <= info["MemTotal"], (memory, info["MemTotal"])
    if memory["limit_bytes"] == 0:
        assert memory["total_bytes"] == info["MemTotal"] and memory["limit_path"] == "", memory
        assert abs(memory["available_bytes"] - info["MemAvailable"]) < info["MemTotal"] / 10, (memory, info)
    else:
        with open(memory["limit_path"]) as f:
            assert int(f.read()) == memory["limit_bytes"], memory
    # derived: eight tenths, a tenth, a quarter, 4096 tokens (capacity.h)
    free = memory["available_bytes"]
    assert abs(memory["max_resident_bytes"] - 0.8 * free) <= 1 and abs(memory["host_cold_budget_bytes"] - free / 4) <= 1
    assert memory["headroom_frac"] == 0.1 and memory["min_hot_context_tokens"] == 4096, memory


@case
def engines_types_and_models():
    d = doctor()
    llama = d["engines"][0]
    assert llama["name"] == "llama" and llama["works"] is True and llama["runtime_name"] == "llama.cpp", llama
    assert llama["runtime_digest"] and "error" not in llama and "=" in llama["runtime_system_info"], llama
    for device in llama["devices"]:
        for name in "index name description type memory_free memory_total memory_free_known memory_total_known computes_with".split():
            assert name in device, device
    assert d["kv_types"] == "f32 f16 bf16 q8_0 q5_1 q5_0 q4_1 q4_0 iq4_nl".split(), d["kv_types"]
    assert ("no_accelerator_present" in codes(d)) == (not llama["devices"]), d
    assert "quantized_values_need_flash_attention" in codes(d) and all(f["text"] for f in d["refused"]), d


@case
def the_text_says_the_same():
    d, r = doctor(), modeld("doctor")
    text = r.out.decode()
    assert r.code == 0 and r.err == "", r
    for pattern in (r"^processors +%d$" % d["processors"], r"^memory +[\d.]+ GiB available of [\d.]+ GiB$",
                    r"a model may take +[\d.]+ GiB, headroom 10 %", "^engine llama +llama.cpp ", "^KV types +f32 f16 bf16",
                    "^models ", "^what would be refused$"):
        assert re.search(pattern, text, re.M), (pattern, text)
    for code in codes(d):
        assert "  %s: " % code in text, (code, text)
    assert ("  limit " in text) == (d["memory"]["limit_bytes"] > 0), text


@case
def models_are_those_of_the_folder():
    root = os.path.join(FOLDER, "root")
    os.makedirs(root + "/models")
    odd = os.path.join(os.fsencode(root), b"models", b"odd\x1b[1m\xff.gguf")
    for path in (odd, root + "/models/mine.gguf"):
        os.link(EXACT, path)
    d = doctor("--data-root", root)
    assert {"mine", "odd\x1b[1m\ufffd"} <= set(d["models"]) and "no_model" not in codes(d), d["models"]
    r = modeld("doctor", "--data-root", root)
    assert r.code == 0 and b"odd\\x1b[1m\\xff" in r.out and b"\x1b" not in r.out, r
    # the checkout's own models are found as well, when the program runs from its build folder
    d = doctor("--data-root", FOLDER + "/nowhere")
    assert ("no_model" in codes(d)) == (d["models"] == []), d
    assert not os.path.exists(FOLDER + "/nowhere")


@case
def an_engine_without_its_library():
    empty = os.path.join(FOLDER, "empty")
    os.makedirs(empty)
    for folder in (empty, empty + "/not/there"):
        env = {"MODELD_LLAMA_LIBDIR": folder}
        d = doctor(env=env)
        llama = d["engines"][0]
        assert llama["works"] is False and folder in llama["error"] and "devices" not in llama, llama
        other = any(e["works"] for e in d["engines"])  # openvino, where it was built in
        assert "engine_unavailable" in codes(d) and ("no_accelerator_present" in codes(d)) == other, d
        r = modeld("doctor", env=env)
        assert r.code == 0 and b"engine llama        does not work: no processor library" in r.out, r
        for verb in ("plan", "serve", "run"):  # what the doctor says is refused is refused
            refused_by = modeld(verb, "-m", EXACT, *(("-p", "x") if verb == "run" else ()), env=env)
            assert refused_by.code == 1 and folder in refused_by.err, refused_by


@case
def what_is_set_is_shown():
    d = doctor("--mem-max", "3GiB", "--mem-reserve", "1GiB", "--mem-cold", "64MiB", "--mem-headroom", "0.25")
    memory = d["memory"]
    assert (memory["max_resident_bytes"], memory["min_free_bytes"]) == (3 * GIB, GIB), memory
    assert (memory["host_cold_budget_bytes"], memory["headroom_frac"]) == (64 * MIB, 0.25), memory
    d = doctor("--mem-max", "100000GiB")
    assert "limit_above_free_memory" in codes(d), d
    assert "limit_above_free_memory" not in codes(doctor("--mem-max", "1MiB"))
    between = (memory["available_bytes"] + memory["total_bytes"]) // 2  # above what is free, below what there is
    assert "limit_above_free_memory" in codes(doctor("--mem-max", str(between)))


@case
def bad_flags_and_a_full_disk():
    refused(modeld("doctor", "-m", EXACT), 2, "-m")
    refused(modeld("doctor", "--mem-max", "-1"), 2, "--mem-max")
    with open("/dev/full", "wb") as full:
        for more in ((), ("--json",)):
            r = modeld("doctor", *more, stdout=full)
            assert r.code == 1 and "standard output" in r.err, r


LIMITED = r"""
set -e
mount -t tmpfs none /sys/fs/cgroup
cd /sys/fs/cgroup
printf "$2" >memory.max
printf 7516192768 >memory.current
printf 'inactive_file 6442450944\nactive_file 0\n' >memory.stat
printf 'MemTotal: 33554432 kB\nMemAvailable: 31457280 kB\n' >"$1/meminfo"
mount --bind "$1/meminfo" /proc/meminfo
shift 2
exec "$@"
"""


def limited(maximum, *args):
    """Run inside a control group's limit: the kernel's files replaced, in a mount namespace of our own.  The group
    of a process to come is not below that mount, so the mount itself counts (memory.h).  None: not allowed here."""
    p = subprocess.run(["unshare", "-rm", "sh", "-c", LIMITED, "sh", FOLDER, maximum, MODELD, *args],
                       capture_output=True, env=environment(), timeout=60)
    return p.stdout.decode() if p.returncode == 0 else None


@case
def b027_b028_inside_a_limit():
    text = limited("8589934592", "doctor", "--json")
    if text is None:
        print("# no mount namespace here", flush=True)
        return
    memory = json.loads(text)["memory"]
    # 8 GiB - (7 - 6) GiB, not 1 GiB and not 30
    assert memory["available_bytes"] == 7516192768 and memory["limit_bytes"] == 8589934592, memory
    assert memory["total_bytes"] == 8589934592 and memory["limit_path"] == "/sys/fs/cgroup/memory.max", memory
    assert "limit             8.00 GiB, set in '/sys/fs/cgroup/memory.max'" in limited("8589934592", "doctor")
    p = json.loads(limited("8589934592", "plan", EXACT, "--json"))
    assert (p["free_bytes"], p["host_limit_bytes"]) == (7516192768, 8589934592), p
    assert "7.00 GiB free in RAM, inside this group's limit" in limited("8589934592", "plan", EXACT)
    memory = json.loads(limited("max\\n", "doctor", "--json"))["memory"]
    assert memory["available_bytes"] == 30 * GIB and memory["limit_bytes"] == 0 and memory["limit_path"] == "", memory
    # a limit that cannot be understood does not count, and is told
    memory = json.loads(limited("much", "doctor", "--json"))["memory"]
    assert memory["available_bytes"] == 30 * GIB, memory


main()
