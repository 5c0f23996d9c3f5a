"""RoPE scaling by flags, environment and modeld.json: what plan, status and the start line say of it, what is refused, and
that what a daemon kept under other settings is not taken.

The window of a scale is llama.cpp's: times as many tokens as before scaling."""
import json
import os
import subprocess

from libcli import BUILD, FOLDER, case, main, modeld, refused, write
from libdaemon import Daemon
from libgguf import BASE12
from libplan import file, plan, show
from libwire import COMPLETION

TRAINED = 8192
YARN = ("--rope-scaling", "yarn", "--rope-scale", 4)


def exact(name, *says):
    path = os.path.join(FOLDER, name)
    subprocess.run([BUILD + "/tests/support/exact_model", path] + [str(s) for s in says], check=True)
    return path


MODEL = exact("plain.gguf", TRAINED)


@case
def the_window_follows():
    for flags, window, text in ((YARN, 32768, "yarn x4 of 8192 tokens"),
                                (YARN + ("--yarn-orig-ctx", 4096), 16384, "yarn x4 of 4096 tokens"),
                                (("--rope-scaling", "linear", "--rope-freq-scale", 0.5), 16384, "linear x2"),
                                (("--rope-freq-base", 1e6), TRAINED, "base 1000000")):
        p = plan(MODEL, *flags)
        assert p["model_max_context"] == p["window_tokens"] == window and p["file_max_context"] == TRAINED, (flags, p)
        assert p["rope"]["text"] == text and p["rope"]["set"] is True, p["rope"]
        said = modeld("plan", MODEL, *flags).out.decode()
        assert "RoPE set to %s; 8,192 in the file" % text in said, said
        assert "refused" not in plan(MODEL, "-c", window, *flags)
        assert "with --rope-* counted" in plan(MODEL, "-c", window + 1, *flags)["refused"]
    p = plan(MODEL)
    assert p["rope"] is None and p["model_max_context"] == p["file_max_context"] == TRAINED, p
    assert "RoPE" not in modeld("plan", MODEL).out.decode()


@case
def what_a_file_says():
    for declared in (TRAINED, 2048):
        path = exact("yarn%d.gguf" % declared, declared, 4, 2048)
        p, s = plan(path), show(path)
        assert p["model_max_context"] == p["window_tokens"] == s["context_length"] == 8192, p
        assert p["rope"]["text"] == s["rope"]["text"] == "yarn x4 of 2048 tokens" and p["rope"]["set"] is False, p["rope"]
        assert "RoPE yarn x4 of 2048 tokens, by the file" in modeld("plan", path).out.decode()
        assert "RoPE scaling yarn x4 of 2048 tokens: trained for 8192 tokens" in modeld("show", path).out.decode()
    off = plan(path, "--rope-scaling", "none")
    assert off["model_max_context"] == 2048 and off["rope"]["text"] == "not scaled", off
    assert plan(path, "--yarn-orig-ctx", 4096)["model_max_context"] == 16384


@case
def what_is_refused_needs_no_model():
    verbs = {"run": ("run", "-p", "x"), "chat": ("chat",), "bench": ("bench",), "plan": ("plan",)}
    rows = (("--rope-scale needs --rope-scaling", "--rope-scale", 4), ("none, linear or yarn, got 'ntk'", "--rope-scaling", "ntk"),
            ("give one", "--rope-scaling", "yarn", "--rope-scale", 4, "--rope-freq-scale", 0.25),
            ("leave out --rope-scale", "--rope-scaling", "none", "--rope-scale", 4),
            ("--yarn-orig-ctx needs --rope-scaling yarn, not linear", "--rope-scaling", "linear", "--rope-scale", 2,
             "--yarn-orig-ctx", 512),
            ("give --yarn-ext-factor 0 as well", *YARN, "--yarn-attn-factor", 2))
    broken = write("broken.gguf", b"GGUF")
    for says, *flags in rows:
        for verb in verbs.values():
            refused(modeld(*verb, "-m", broken, *flags), 1, says)
        r = modeld("serve", "-m", broken, "--port", 0, *flags)
        assert r.code == 1 and says in r.err.splitlines()[-1] and "ready" not in r.err, r
    for flag, value in (("--rope-scale", "0.5"), ("--rope-freq-base", "nan"), ("--yarn-ext-factor", "2")):
        refused(modeld("plan", broken, flag, value), 2, flag, value)


@case
def models_it_means_nothing_for():
    gpt2 = file(base=[(k.replace("llama.", "gpt2."), t, "gpt2" if v == "llama" else v) for k, t, v in BASE12])
    refused(modeld("plan", gpt2, *YARN), 1, "no rotary positions")
    assert plan(gpt2)["rope"] is None
    refused(modeld("plan", MODEL, "--yarn-beta-fast", 16), 1, "needs --rope-scaling yarn: the model file does not scale by it")
    refused(modeld("plan", MODEL, "--rope-scaling", "yarn"), 1, "needs --rope-scale N: the model file says no factor")


@case
def environment_and_file():
    root = os.path.join(FOLDER, "root")
    os.makedirs(root)
    write("root/modeld.json", json.dumps({"rope": {"scaling": "yarn", "scale": 4, "yarn_orig_ctx": 4096}}))
    assert plan(MODEL, "--data-root", root)["rope"]["text"] == "yarn x4 of 4096 tokens"
    env = {"MODELD_ROPE_SCALE": "2"}
    assert plan(MODEL, "--data-root", root, env=env)["rope"]["text"] == "yarn x2 of 4096 tokens"
    assert plan(MODEL, "--data-root", root, "--rope-scale", 8, env=env)["rope"]["text"] == "yarn x8 of 4096 tokens"
    refused(modeld("plan", MODEL, env=env), 1, "--rope-scale needs --rope-scaling")


@case
def answers_and_figures_of_commands():
    greedy = ("-p", "the cat", "-n", 8, "--temp", 0, "--json", "-t", 1)

    def tokens(*flags):
        r = modeld("run", "-m", MODEL, *greedy, *flags)
        assert r.code == 0, r
        return json.loads(r.out)["tokens"]
    assert tokens() != tokens("--rope-freq-base", 20), "the settings reach the engine"
    r = modeld("bench", "-m", MODEL, "-d", 8192, "-n", 8, "-t", 1)
    refused(r, 1, "8200 tokens are asked for, the model was trained for 8192")
    r = modeld("bench", "-m", MODEL, "-d", 8192, "-n", 8, "-t", 1, "--json", *YARN, timeout=120)
    assert r.code == 0 and json.loads(r.out)["depth_tokens"] == 8192, r


def daemon(*flags):
    return Daemon(MODEL, "-t", "1", "-c", 1024, "--hot", 1024, "--kv-dir", os.path.join(FOLDER, "kv"), *flags)


def ask(d):
    status, got = d.post(COMPLETION, {"prompt": [100 + i % 90 for i in range(300)], "max_tokens": 2, "temperature": 0,
                                      "logit_bias": {"2": -100}})
    assert status == 200, got
    return got["usage"]["prompt_tokens_details"]["cached_tokens"]


@case
def a_daemon_says_it_and_keeps_kv_apart():
    with daemon() as d:
        assert d.status()["rope"] is None and "RoPE" not in d.log, d.log
        assert ask(d) == 0
    with daemon(*YARN) as d:
        assert "RoPE set to yarn x4 of 8192 tokens: the window that counts as trained is 32768 tokens, 8192 in the file" in d.log
        assert "KV f16/f16, RoPE yarn x4 of 8192 tokens\n" in d.log, d.log
        assert d.status()["rope"] == "yarn x4 of 8192 tokens"
        assert d.get("/v1/models")[1]["data"][0]["meta"]["n_ctx_train"] == 32768
        assert d.get("/api/capacity")[1]["rope"]["text"] == "yarn x4 of 8192 tokens"
        assert "RoPE      yarn x4 of 8192 tokens" in modeld("status", "--connect", "http://127.0.0.1:%d" % d.port).out.decode()
        assert d.status()["sessions"] == 0 and ask(d) == 0
    for flags in ((), YARN):
        with daemon(*flags) as d:
            assert d.status()["sessions"] == 1 and ask(d) == 299, d.log


main()
