# slow
"""`modeld serve` and `modeld plan` with the engine openvino and SmolLM2: right answers, also when most of the prompt
is cold, and what the daemon says of its engine.  Left out where the engine was not built in."""
import json
import os
import subprocess
import sys

from libdaemon import MODELD, Daemon
from libwire import case, main, user

MODEL = os.path.abspath(os.environ.get("MODELD_TEST_MODEL", ".deps/models/smollm2.gguf"))
ENGINE = ("--engine", "openvino")


def plan(*args):
    done = subprocess.run([MODELD, "plan", "-m", MODEL, "--json", *ENGINE, *args], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def ask(daemon, text):
    status, answer = daemon.post("/v1/chat/completions", user(text, temperature=0, max_tokens=20), timeout=300)
    assert status == 200, answer
    return answer["choices"][0]["message"]["content"], answer


@case
def answers_are_right_with_a_small_hot_set():
    facts = " ".join("Fact %d: the colour of box number %d is %s." % (i, i, ("red", "blue", "green", "black")[i % 4])
                     for i in range(140))
    with Daemon(MODEL, *ENGINE, "--hot", 1024, "-c", 4096, "-t", 2) as d:
        text, _ = ask(d, "What is the capital of France?")
        assert "Paris" in text, text
        text, answer = ask(d, facts + " What is the capital of Italy?")
        assert "Rome" in text, text
        assert answer["usage"]["prompt_tokens"] > 2048 and answer["modeld"]["hot_tokens"] <= 1024, answer
        assert answer["modeld"]["lost_tokens"] == 0, answer
        s = d.status()
        assert (s["engine"], s["device"], s["type_k"], s["type_v"]) == ("openvino", "CPU", "f16", "f16"), s
        assert s["engine_version"].startswith("2026.4"), s
        assert "position_shift" in s["capabilities"] and "checkpoint" not in s["capabilities"], s
        assert s["cold"]["tokens"] > 1000, s
        assert s["xattention"] == "off" and s["sliding_window_attention_tokens"] == 0, s


@case
def answers_are_right_with_xattention():
    """The prompt is one step, of which a part is left out: it is said to be, and is not called exact."""
    facts = " ".join("Fact %d: the colour of box number %d is %s." % (i, i, ("red", "blue", "green", "black")[i % 4])
                     for i in range(70))
    with Daemon(MODEL, *ENGINE, "--xattention", "0.9", "-b", 2048, "-ub", 2048, "-c", 4096, "-t", 2) as d:
        text, answer = ask(d, facts + " What is the capital of Italy?")
        assert "Rome" in text, text
        kinds = answer["modeld"]["provenance_tokens"]
        assert kinds["full"] == 0 and kinds["bounded"] > 1024 and kinds["approximate"] == 0, answer
        assert d.status()["xattention"] == "0.9", d.status()


@case
def kv_of_eight_bits_is_planned_and_served():
    code, out, err = plan("-ctk", "u8")
    p = json.loads(out)  # 30 layers, keys and values of 3 heads of 64 numbers, and 8 bytes for each
    assert code == 0 and "refused" not in p and p["kv_bytes"] == 8192 * 30 * 2 * 3 * (64 + 8), (out, err)
    with Daemon(MODEL, *ENGINE, "--cache-type-k", "u8", "-c", 1024, "-t", 2) as d:
        text, _ = ask(d, "What is the capital of France?")
        assert "Paris" in text, text
        s = d.status()
        assert (s["engine"], s["type_k"], s["type_v"]) == ("openvino", "u8", "u8"), s
    done = subprocess.run([MODELD, "plan", "-m", MODEL, "-ctk", "u8"], capture_output=True, text=True)
    assert done.returncode == 1 and "unknown KV type 'u8' for keys: one of f32 f16 bf16 q8_0" in done.stderr, done


@case
def plans_and_refusals():
    code, out, err = plan()
    p = json.loads(out)
    assert code == 0 and p["engine"] == "openvino" and "refused" not in p and p["kv_bytes"] == 8192 * 23040, (out, err)
    assert p["runtime_name"] == "OpenVINO", p
    code, _, err = plan("-ctk", "q8_0", "-ctv", "q8_0")
    assert code == 1 and "use f32, f16 or u8" in err, err


if "'openvino'" not in subprocess.run([MODELD, "plan", "-m", MODEL, "--engine", "none"], capture_output=True,
                                      text=True).stderr:
    print("ok left_out_of_this_build")
    sys.exit(0)
main()
