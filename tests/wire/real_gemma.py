"""Daemons on Gemma-3-270M, whose tokenizer puts a first token and whose layers have windows, and what clients see of it:
B042, B049, B059."""
# slow
import atexit
import os
import shutil
import tempfile

from libdaemon import Daemon
from libwire import CHAT, COMPLETION, case, check_error, main, user

MODEL = os.path.abspath(".deps/models/gemma3-270m.gguf")
GREEDY = {"temperature": 0, "seed": 1, "max_tokens": 1}
FOLDER = tempfile.mkdtemp(prefix="modeld-gemma-")
atexit.register(shutil.rmtree, FOLDER, True)
DISTANCE = 512  # of two checkpoints: --checkpoint-tokens says it, docs/memory.md


def ask(d, tokens, **more):
    what = dict(GREEDY, prompt=tokens, max_tokens=16, logit_bias={"1": -100, "106": -100})
    status, got = d.post(COMPLETION, dict(what, **more), timeout=300)
    assert status == 200, got
    usage = got["usage"]
    return got, usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]


def text(answer):
    return answer["choices"][0]["text"]


@case
def b049_first_tokens():
    """Raw `<bos>Hi` and `Hi` are the same two tokens, and a chat's text counts its first token once, whoever writes it.
    (Which tokens, and a template: test_model_llama_prompt.c; this file brings none, so that there is no chat route.)"""
    with Daemon(MODEL, "-t", "1", "-c", "512", "--hot", "512") as d:
        def tokens(prompt):
            status, got = d.post(COMPLETION, dict(GREEDY, prompt=prompt))
            assert status == 200, got
            return got["usage"]["prompt_tokens"]
        assert tokens("<bos>Hi") == tokens("Hi") == 2
        # <bos>, two <start_of_turn>, <end_of_turn>, user, Hi, model, and three ends of lines
        turns = "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"
        assert tokens(turns) == tokens("<bos>" + turns) == 10, tokens(turns)
        check_error(d.post(CHAT, user("Hi")), 501, code="unsupported", says=["no chat template"])


def some_tokens(count):
    """Any: the same ones each time."""
    return [2] + [1000 + i * i % 977 for i in range(count - 1)]


@case
def b042_the_same_again_and_with_another_end():
    prompt = some_tokens(2000)
    with Daemon(MODEL, "-t", "1", "-c", "4096", "--hot", "4096") as d:
        first, new = ask(d, prompt)
        assert new == 2000, first["usage"]
        session = {"modeld": {"session": first["modeld"]["session"]}}
        again, new = ask(d, prompt, **session)
        assert new == 1, again["usage"]  # the last one, for its logits: a turn leaves a checkpoint before it
        assert text(again) == text(first) != "" and again["modeld"]["breaker"] is None, again
        other = prompt[:-50] + [1500 + i for i in range(50)]
        third, new = ask(d, other, **session)
        assert 50 <= new <= 50 + DISTANCE, third["usage"]
        assert third["modeld"]["recomputed_tokens"] == new - 50 and third["modeld"]["dropped_tokens"] == 0, third["modeld"]
        back, new = ask(d, prompt, **session)  # and what was left is there to come back to
        assert new <= 1 + DISTANCE and text(back) == text(first), back


@case
def b059_a_restart_and_the_same_prompt():
    prompt = some_tokens(1000)
    args = (MODEL, "-t", "1", "-c", "2048", "--hot", "2048", "--snapshots", FOLDER)
    with Daemon(*args) as d:
        first, _ = ask(d, prompt)
        again, new = ask(d, prompt, modeld={"session": first["modeld"]["session"]})
        assert new == 1 and text(again) == text(first), again
        status, got = d.post("/api/snapshots", {"name": "k", "session": first["modeld"]["session"]})
        assert status == 200 and got["kv_tokens"] == got["context_tokens"] - 1 == 1015, got
    with Daemon(*args) as d:
        status, got = d.post("/api/snapshots/restore", {"name": "k"}, timeout=60)
        assert status == 200 and got["kv_tokens"] == 1015, got
        answer, new = ask(d, prompt, modeld={"session": got["id"]})
        assert new <= 1 and text(answer) == text(first), (new, text(answer), text(first))
        assert answer["modeld"]["recomputed_tokens"] == answer["modeld"]["dropped_tokens"] == 0, answer["modeld"]
    for args in ((MODEL, "-t", "1", "-c", "2048", "--hot", "2048", "-ctk", "q8_0"), (MODEL, "-t", "1", "-c", "512", "--hot", "512")):
        with Daemon(*args, "--snapshots", FOLDER) as d:  # B065, of a windowed model
            check_error(d.post("/api/snapshots/restore", {"name": "k"}, timeout=60), 400)
            assert d.sessions() == []


main()
