"""Which engine and which device: --engine auto, --device, and an OpenVINO library that is missing or of another release.

What is right for auto is worked out from speeds that this test writes itself; for devices from what the machine has, which
is read from `modeld doctor`."""
import json
import os
import subprocess

from libcli import BUILD, EXACT, FOLDER, Result, case, main, modeld, refused, write

DOCTOR = json.loads(modeld("doctor", "--json").out)
ENGINES = [e["name"] for e in DOCTOR["engines"]]
HERE = {e["name"]: [d for d in e["devices"] if "refused" not in d] for e in DOCTOR["engines"] if e["works"]}
BOTH = "openvino" in HERE


def root(name):
    path = os.path.join(FOLDER, name)
    os.makedirs(path, exist_ok=True)
    return path


def last_line(r):
    """Without what `serve` logs before."""
    return Result(r.code, r.out, r.err.splitlines(True)[-1] if r.err else "")


def plan(*args, **more):
    r = modeld("plan", EXACT, "--json", *args, **more)
    assert r.code == 0, r
    return json.loads(r.out)


@case
def b124_devices_that_are_not_here():
    for engine in HERE:
        if HERE[engine]:
            continue  # a machine with a card
        for name in ("GPU", "GPU.7", "NPU", "cuda", "", "GPU.x"):
            verbs = (("plan", ()), ("run", ("-p", "x")), ("serve", ()), ("bench", ()))
            for verb, more in verbs if name == "GPU" else verbs[:1]:
                r = last_line(modeld(verb, "-m", EXACT, "--engine", engine, "--device", name, *more))
                refused(r, 1, "--device '%s'" % name, "'%s'" % engine, "there is CPU: give one of them, or AUTO")
    refused(modeld("run", "-m", EXACT, "-p", "x", "--device", "CPU", "-ngl", "3"), 1, "contradict")


@case
def devices_that_are_here():
    for engine in HERE:
        for name in ("CPU", "cpu", "AUTO", "auto"):
            p = plan("--engine", engine, "--device", name)
            assert p["device_kind"] == "system" or name.lower() == "auto", p
        assert plan("--engine", engine, "--device", "CPU")["requested_gpu_layers"] == 0
    out = modeld("run", "-m", EXACT, "-p", "a device", "--raw", "-n", "4", "--temp", "0", "--device", "CPU")
    assert out.code == 0 and out.err == "", out


@case
def the_doctor_says_what_each_engine_can():
    for e in DOCTOR["engines"]:
        assert e["works"], e
        assert "f16" in e["engine_kv_types"] and "f32" in e["engine_kv_types"], e
        assert {"cold_store", "remove_middle", "position_shift"} <= set(e["engine_capabilities"]), e
        assert ("q8_0" in e["engine_kv_types"]) == (e["name"] == "llama"), e
        assert ("u8" in e["engine_kv_types"]) == (e["name"] == "openvino"), e
        for name in e["engine_kv_types"]:  # what is listed can be asked for, where the model's heads are long enough
            r = modeld("plan", EXACT, "--engine", e["name"], "-ctk", name, "-ctv", name)
            assert r.code == 0 or "heads of 16 are not made of blocks of 32" in r.err, r
            assert r.code == 0 or e["name"] == "llama", r
    text = modeld("doctor").out.decode()
    assert text.count("  devices           CPU") == len(ENGINES) and text.count("  KV types          f32 f16") == len(ENGINES)


def speeds(folder, llama, openvino):
    """Put (prefill, decode) of both into the file that a start with --engine auto left."""
    with open(folder + "/speeds.json") as f:
        kept = json.load(f)
    for entry in kept["short"]:
        s = llama if entry["key"].startswith("llama ") else openvino
        entry["prefill_tokens_per_second"], entry["decode_tokens_per_second"] = s
    with open(folder + "/speeds.json", "w") as f:
        json.dump(kept, f)


@case
def auto_measures_once_and_keeps_it():
    if not BOTH:
        print("# one engine here", flush=True)
        return
    folder = root("auto")
    ask = ("--engine", "auto", "--data-root", folder)
    p = plan(*ask)
    assert p["engine"] == "llama" and "measured at the first start" in p["engine_choice"], p
    assert not os.path.exists(folder + "/speeds.json")
    run = ("run", "-m", EXACT, "-p", "which one", "--raw", "-n", "4", "--temp", "0", "-c", "2048", *ask)
    r = modeld(*run)
    assert r.code == 0 and r.err == "", r
    with open(folder + "/speeds.json") as f:
        kept = json.load(f)
    assert sorted(e["key"].split()[0] for e in kept["short"]) == ["llama", "openvino"], kept
    assert all(e["prefill_tokens_per_second"] > 0 and e["decode_tokens_per_second"] > 0 for e in kept["short"]), kept
    # 2,048 tokens are 1,792 read and 256 written: 1792 / 7 + 256 / 1 = 512 s, 1792 / 14 + 256 / 2 = 256 s.
    for llama, openvino, want, says in (((7, 1), (14, 2), "openvino", "about 256 s, with 'llama' 512 s"),
                                        ((14, 2), (7, 1), "llama", "about 256 s, with 'openvino' 512 s"),
                                        ((14, 2), (14, 2.05), "llama", "as good as even")):
        speeds(folder, llama, openvino)
        p = plan("-c", "2048", *ask)
        assert p["engine"] == want and says in p["engine_choice"], (want, p["engine"], p["engine_choice"])
    # what is kept is what counts: a start measures nothing anew, and uses it
    speeds(folder, (7, 1), (14, 2))
    r = modeld(*run, "-v")
    assert r.code == 0 and "engine openvino: chosen by auto" in r.err, r
    with open(folder + "/speeds.json") as f:
        assert sorted(e["decode_tokens_per_second"] for e in json.load(f)["short"]) == [1, 2]
    assert "engine openvino: chosen by auto" in modeld("plan", EXACT, "-c", "2048", *ask).out.decode()
    # other threads and other KV types are other speeds
    for more in (("-ctk", "f32", "-ctv", "f32"), ("-ub", "64")):
        assert "measured at the first start" in plan(*more, *ask)["engine_choice"], more


@case
def auto_where_only_one_can():
    p = plan("--engine", "auto", "-ctk", "f16", "-ctv", "f32")
    assert p["engine"] == "llama" and p["engine_choice"], p
    if BOTH:
        assert "'openvino' cannot" in p["engine_choice"] and "one KV type for keys and values" in p["engine_choice"], p
    folder = root("one")
    r = modeld("run", "-m", EXACT, "-p", "x", "--raw", "-n", "2", "--engine", "auto", "-fa", "off", "-v", "--data-root", folder)
    assert r.code == 0 and r.err.count("chosen by auto") == 1, r
    if BOTH:  # the other one cannot: that is said without -v too
        r = modeld("run", "-m", EXACT, "-p", "x", "--raw", "-n", "2", "--engine", "auto", "-fa", "off", "--data-root", folder)
        assert r.code == 0 and r.err.count("\n") == 1 and "'openvino' cannot" in r.err and "flash attention" in r.err, r
    assert "short" not in open(folder + "/speeds.json").read() if os.path.exists(folder + "/speeds.json") else True
    r = modeld("run", "-m", write("no.gguf", b"GGUF but no more"), "-p", "x", "--engine", "auto")
    refused(r, 1, "no.gguf")


def without_openvino(env, *says):
    """openvino is refused in a line; the other engine works as ever."""
    d = json.loads(modeld("doctor", "--json", env=env).out)
    found = [e for e in d["engines"] if e["name"] == "openvino"][0]
    assert found["works"] is False and "engine_unavailable" in [f["code"] for f in d["refused"]], d
    for word in says:
        assert word in found["error"], found
    for verb, more in (("run", ("-p", "x")), ("serve", ())):
        refused(last_line(modeld(verb, "-m", EXACT, "--engine", "openvino", *more, env=env)), 1, *says)
    r = modeld("run", "-m", EXACT, "-p", "x", "--raw", "-n", "4", "--temp", "0", env=env)
    assert r.code == 0 and r.err == "", r
    p = plan("--engine", "auto", env=env)
    assert p["engine"] == "llama" and "'openvino' cannot" in p["engine_choice"], p
    r = modeld("run", "-m", EXACT, "-p", "x", "--raw", "-n", "4", "--temp", "0", "--engine", "auto", env=env)
    assert r.code == 0 and r.err.count("\n") == 1 and "engine llama: chosen by auto, 'openvino' cannot" in r.err, r
    for word in says:
        assert word in r.err, r


@case
def the_library_is_missing_or_broken():
    if "openvino" not in ENGINES:
        print("# left out of this build", flush=True)
        return
    without_openvino({"MODELD_OPENVINO_LIBDIR": root("empty")}, "cannot be loaded", "No such file")
    broken = root("broken")
    with open(broken + "/libopenvino.so.2641", "w") as f:
        f.write("no library" * 100)
    without_openvino({"LD_LIBRARY_PATH": broken}, "cannot be loaded", "libopenvino.so.2641")
    with open(BUILD + "/openvino/libmodeld_openvino.so", "rb") as f:
        whole = f.read()
    for name, content, says in (("empty-file", b"", "no library"), ("text", b"no library" * 100, "no library"),
                                ("cut", whole[:30000], "was cut"), ("cut-header", whole[:100], "was cut"), ("fifo", None, "no regular file")):
        path = root(name) + "/libmodeld_openvino.so"
        if content is None:
            os.mkfifo(path)
        else:
            with open(path, "wb") as f:
                f.write(content)
        without_openvino({"MODELD_OPENVINO_LIBDIR": root(name)}, "cannot be loaded", says)
    r = modeld("doctor", env={"MODELD_OPENVINO_LIBDIR": "/no/\x1b[31m"})  # the folder is told, and colours nothing
    assert r.code == 0 and b"/no/?[31m" in r.out and b"\x1b" not in r.out, r
    other = root("other")
    build(other + "/libmodeld_openvino.so", "int nothing;\n")
    without_openvino({"MODELD_OPENVINO_LIBDIR": other}, "of another build of modeld")
    # neither takes it: both reasons are told, by a plan as well
    env = {"MODELD_OPENVINO_LIBDIR": root("empty-too")}
    for verb, more in (("run", ("-p", "x", "--raw")), ("plan", ()), ("plan", ("--json",))):
        r = modeld(verb, "-m", EXACT, "--engine", "auto", "--xattention", "0.9", *more, env=env)
        assert r.code == 1 and r.err.count("\n") == 2, r
        assert "no engine takes this; 'openvino' cannot: the OpenVINO library cannot be loaded" in r.err, r
        assert "the engine 'llama' has no XAttention" in r.err.splitlines()[1], r


@case
def the_library_has_other_structs():
    """The table of functions is as long as ours, of a model's facts a field is missing."""
    if "openvino" not in ENGINES:
        return
    other = root("structs")
    build(other + "/libmodeld_openvino.so", '#include "adapters/openvino/ov_shim.h"\n'
          'static struct md_ov_shim shim = { .sizes = MD_OV_SHIM_SIZES };\n'
          'enum md_status md_ov_shim_get(const struct md_ov_shim **ret, struct md_err *err);\n'
          'enum md_status md_ov_shim_get(const struct md_ov_shim **ret, struct md_err *err)\n'
          '{ (void)err; shim.sizes[1] -= sizeof(int32_t); *ret = &shim; return MD_OK; }\n')
    without_openvino({"MODELD_OPENVINO_LIBDIR": other}, "of another build of modeld: install both together")


def build(path, source):
    subprocess.run(["cc", "-shared", "-fPIC", "-Isrc", "-x", "c", "-", "-o", path], input=source.encode(), check=True)


@case
def the_library_is_of_another_release():
    if "openvino" not in ENGINES:
        return
    fake = FOLDER + "/version.so"
    build(fake, 'struct version { const char *build, *description; };\n'
          'struct version get_openvino_version(void)\n'
          '{ return (struct version){ "2026.40.0-1-x", "OpenVINO" }; }\n')
    without_openvino({"LD_PRELOAD": fake}, "2026.40.0-1-x", "built for 2026.4.1", "the engine 'llama'")


@case
def a_file_that_no_engine_takes():
    """A file that is cut is refused by its header; a whole one that lacks a tensor by the library that reads it."""
    with open(EXACT, "rb") as f:
        data = f.read()
    assert data.count(b"blk.0.attn_q.weight") == 1
    cut = write("cut.gguf", data[:len(data) // 2])
    lacks = write("lacks.gguf", data.replace(b"blk.0.attn_q.weight", b"blk.0.attn_z.weight"))
    for engine in HERE:
        refused(modeld("run", "-m", cut, "-p", "x", "--engine", engine), 1, "cut.gguf")
        said = ("OpenVINO", "the engine 'llama' may take it") if engine == "openvino" else ("blk.0.attn_q.weight",)
        refused(modeld("run", "-m", lacks, "-p", "x", "--engine", engine), 1, "lacks.gguf", *said)


main()
