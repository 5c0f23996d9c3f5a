"""modeld.json, the environment under contenox's names, and which of them wins: refused before a model loads."""
import json
import os

from libcli import EXACT, FOLDER, case, check_figures, main, modeld, refused, write

GIB = 1 << 30
VERBS = {"run": ("run", "-p", "x"), "serve": ("serve", "--port", "0"), "bench": ("bench",), "chat": ("chat",)}
NONE = ("-m", "/no/such.gguf")  # nothing that is refused here needs a model


def config(name, data):
    """A data root with that modeld.json; returns its folder."""
    root = os.path.join(FOLDER, name)
    os.makedirs(root, exist_ok=True)
    write(os.path.join(name, "modeld.json"), data if isinstance(data, (bytes, str)) else json.dumps(data))
    return root


def memory(name, **values):
    return config(name, {"memory": values})


def cold_limit(*args, env=None):
    """The bytes that the cold store may take: what --mem-cold came to."""
    r = modeld("run", "-m", EXACT, "-p", "x", "-n", "1", "--temp", "0", "--json", *args, env=env)
    assert r.code == 0 and r.err == "", r
    return check_figures(json.loads(r.out))["cold_limit_bytes"]


@case
def a_broken_file_is_refused_by_every_verb():
    rows = {"cut": ("{", "is not JSON", "line 1"), "empty": ("", "is empty"), "list": ("[]", "must be an object", "array"),
            "key": ('{"memory": {"max_memory": 1}}', "unknown key 'memory.max_memory'"),
            "type": ('{"memory": {"max_resident": 8}}', "memory.max_resident", "found 8"),
            "size": ('{"memory": {"host_cold_budget": "8GG"}}', "memory.host_cold_budget", "'8GG' is not a size"),
            "share": ('{"memory": {"headroom_frac": 2}}', "memory.headroom_frac", "found 2"),
            "twice": ('{"idle": {}, "idle": {}}', "idle is there twice")}
    for name, (data, *says) in rows.items():
        root = config(name, data)
        for verb in VERBS.values():
            refused(modeld(*verb, *NONE, "--data-root", root), 2, os.path.join(root, "modeld.json"), *says)


@case
def a_file_that_cannot_be_read():
    root = os.path.join(FOLDER, "folder")
    os.makedirs(os.path.join(root, "modeld.json"))
    refused(modeld(*VERBS["run"], *NONE, "--data-root", root), 2, root + "/modeld.json", "a directory")
    root = config("large", "{}" + " " * (1 << 20))
    refused(modeld(*VERBS["run"], *NONE, "--data-root", root), 2, "1048578 bytes")
    root = os.path.join(FOLDER, "loop")
    os.makedirs(root)
    os.symlink("modeld.json", os.path.join(root, "modeld.json"))
    refused(modeld(*VERBS["run"], *NONE, "--data-root", root), 2, root + "/modeld.json")
    refused(modeld(*VERBS["run"], *NONE, "--data-root", "/" + "x" * 5000), 2, "longer than")


@case
def a_missing_file_sets_nothing():
    for root in (os.path.join(FOLDER, "not-there"), EXACT):
        refused(modeld(*VERBS["run"], *NONE, "--data-root", root), 1, "/no/such.gguf")


@case
def help_needs_no_file():
    r = modeld("run", "-h", "--data-root", config("cut", "{"))
    assert r.code == 0 and b"--mem-max SIZE" in r.out, r


@case
def flags_over_environment_over_file():
    number = memory("number", host_cold_budget_bytes=1000000)
    both = memory("both", host_cold_budget="3MiB", host_cold_budget_bytes=1000000)
    root = ("--data-root", both)
    assert cold_limit("--data-root", number) == 1000000
    assert cold_limit(*root) == 3 << 20
    contenox = {"CONTENOX_MODELD_MEM_COLD": "5MB"}
    assert cold_limit(*root, env=contenox) == 5000000
    assert cold_limit(*root, env={"CONTENOX_MODELD_MEM_COLD": "0"}) == 3 << 20
    own = dict(contenox, MODELD_MEM_COLD="7MB")
    assert cold_limit(*root, env=own) == 7000000
    assert cold_limit(*root, "--mem-cold", "9k", env=own) == 9000
    assert cold_limit(*root, "--mem-cold=0", env=own) == 0
    assert cold_limit(env=dict(contenox, MODELD_DATA_ROOT=number)) == 5000000
    assert cold_limit(env={"MODELD_DATA_ROOT": number}) == 1000000


@case
def the_xdg_folder():
    home = os.path.join(FOLDER, "home")
    for path in ("xdg/modeld", "home/.config/modeld"):
        os.makedirs(os.path.join(FOLDER, path))
    write("xdg/modeld/modeld.json", '{"memory":{"host_cold_budget":"1MB"}}')
    write("home/.config/modeld/modeld.json", '{"memory":{"host_cold_budget":"2MB"}}')
    assert cold_limit(env={"XDG_CONFIG_HOME": os.path.join(FOLDER, "xdg"), "HOME": home}) == 1000000
    assert cold_limit(env={"XDG_CONFIG_HOME": "relative", "HOME": home}) == 2000000


@case
def bad_environment_is_refused_by_name():
    for name, value in (("CONTENOX_MODELD_MEM_MAX", "8Q"), ("CONTENOX_MODELD_MEM_RESERVE", ""),
                        ("CONTENOX_MODELD_MEM_COLD", "-1"), ("CONTENOX_MODELD_MEM_HEADROOM", "1"),
                        ("CONTENOX_MODELD_MIN_HOT_CONTEXT", "-1"), ("CONTENOX_LLAMA_CTX", "4096abc"),
                        ("CONTENOX_LLAMA_GPU_LAYERS", "all"), ("MODELD_MEM_MAX", "8Q"), ("MODELD_SWA_FULL", "2")):
        refused(modeld(*VERBS["serve"], *NONE, env={name: value}), 2, "environment variable %s:" % name, "'%s'" % value)
    r = modeld(*VERBS["serve"], *NONE, env={"CONTENOX_LLAMA_CTX": "4096abc", "MODELD_CTX_SIZE": "512"})
    assert r.code == 1 and "/no/such.gguf" in r.err, r  # the second name is not looked at
    r = modeld("run", "-m", EXACT, "-p", "x", env={"CONTENOX_LLAMA_KV_CACHE_TYPE": "q9"})
    refused(r, 1, "unknown KV type 'q9'")


@case
def what_has_no_effect_yet_is_said_with_v():
    root = config("idle", {"idle": {"ttl": "5m"}})
    r = modeld(*VERBS["run"], *NONE, "--data-root", root)
    refused(r, 1, "/no/such.gguf")
    r = modeld(*VERBS["run"], *NONE, "--data-root", root, "-v")
    assert r.code == 1 and "idle.ttl has no effect" in r.err, r


main()
