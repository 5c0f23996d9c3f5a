"""Gemma-3-270M, whose layers mostly see a window of 512 tokens, far past its hot set: what an edit, a branch, another
conversation, a kill and a snapshot cost.  What is right: counts that follow from what was asked and from --checkpoint-tokens."""
# slow
import atexit
import os
import shutil
import signal
import tempfile

from libdaemon import Daemon
from libwire import COMPLETION, SLACK, case, main

MODEL = os.path.abspath(".deps/models/gemma3-270m.gguf")
FOLDER = tempfile.mkdtemp(prefix="modeld-windowed-")
atexit.register(shutil.rmtree, FOLDER, True)
TOKENS, EVERY, ANSWER = 4000, 512, 4
TEXT = [1000 + (i * 7919) % 20000 for i in range(TOKENS)]
OTHER = [1000 + (i * 104729) % 20000 for i in range(600)]


def gemma(*args):
    return Daemon(MODEL, "-c", "5000", "--hot", "2048", "-ub", "256", "--checkpoint-tokens", EVERY, *args,
                  "--snapshots", FOLDER + "/snapshots")


def ask(d, prompt):
    """The tokens computed for it, and the answer's."""
    status, got = d.post(COMPLETION, {"prompt": prompt, "max_tokens": ANSWER, "temperature": 0, "seed": 1,
                                      "logit_bias": {"1": -100, "106": -100}}, timeout=600 * SLACK)
    assert status == 200, got
    usage = got["usage"]
    assert usage["prompt_tokens"] == len(prompt), usage
    assert got["modeld"]["lost_tokens"] == got["modeld"]["dropped_tokens"] == 0, got["modeld"]
    return len(prompt) - usage["prompt_tokens_details"]["cached_tokens"], got


@case
def edits_branches_kills_and_snapshots():
    with gemma("--kv-dir", FOLDER + "/kv") as d:
        computed, first = ask(d, TEXT)
        assert computed == TOKENS and first["modeld"]["hot_tokens"] <= 2048, first["modeld"]
        assert first["modeld"]["durable_tokens"] == TOKENS + ANSWER - 1, first["modeld"]
        edited = TEXT[:3950] + [999] + TEXT[3951:]
        computed, _ = ask(d, edited)
        assert computed <= 50 + EVERY, computed
        computed, _ = ask(d, OTHER)  # another conversation: the first one leaves the engine
        assert computed == len(OTHER), computed
        more = edited + TEXT[100:120]
        computed, _ = ask(d, more)
        assert computed <= 21 + ANSWER, computed
        computed, _ = ask(d, TEXT[:2000] + OTHER[:30])  # an early turn of it
        assert computed <= 30 + EVERY, computed
        computed, last = ask(d, more + TEXT[200:210])
        assert computed <= 11 + ANSWER, computed
        status, snap = d.post("/api/snapshots", {"session": last["modeld"]["session"], "name": "k"})
        assert status == 200 and snap["kv_tokens"] == len(more) + 10 + ANSWER - 1, snap
        d.process.send_signal(signal.SIGKILL)
        d.process.wait()
    # the answer is replaced, so that it goes on from the checkpoint before the last token of the prompt: that one, and 20
    again = more + TEXT[200:210] + TEXT[300:320]
    with gemma("--kv-dir", FOLDER + "/kv") as d:
        computed, _ = ask(d, again)
        assert computed == 1 + 20, computed
    with gemma() as d:
        status, got = d.post("/api/snapshots/restore", {"name": "k"}, timeout=60 * SLACK)
        assert status == 200 and got["kv_tokens"] == snap["kv_tokens"], got
        computed, answer = ask(d, again)
        assert computed == 1 + 20 and answer["modeld"]["session"] == got["id"], (computed, got)


# ---- a chat, in text ----

WORDS = "the goat on the roof of the old lighthouse looked at the sea and then at the small boat below".split()
LONG = " ".join(WORDS[(i * i + i // 7) % len(WORDS)] for i in range(1400))  # more than is hot
SAID = ["I keep %s." % what for what in ("seven goats", "a lighthouse", "old maps", "bees", "a small shop", "three boats",
                                         "letters", "a diary", "two cats")] + ["What do I keep?"]
KILLED = 10  # turns before the kill


def turn(text):
    return "<start_of_turn>user\n%s<end_of_turn>\n<start_of_turn>model\n" % text


def tokens_of(d, text):
    """What the tokenizer makes of it, without the first token that it puts before a prompt."""
    status, got = d.post(COMPLETION, {"prompt": text, "max_tokens": 0}, timeout=60 * SLACK)
    assert status == 200, got
    return got["usage"]["prompt_tokens"] - 1


class Chat:
    """Each turn is its own text behind all that was said before; figures are those of the last."""

    def __init__(self):
        self.text, self.answers = "", []

    def say(self, d, text):
        self.text += text
        status, got = d.post(COMPLETION, {"prompt": self.text, "max_tokens": ANSWER, "temperature": 0, "seed": 1,
                                          "logit_bias": {"1": -100, "106": -100}}, timeout=600 * SLACK)
        assert status == 200, got
        self.answers.append(got["choices"][0]["text"])
        self.text += self.answers[-1] + "<end_of_turn>\n"
        usage, m = got["usage"], got["modeld"]
        assert m["lost_tokens"] == m["dropped_tokens"] == m["recomputed_tokens"] == 0, m
        return usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"], m


@case
def turn_eleven_after_a_kill_computes_its_own_tokens():
    """The last token of an answer was sampled and not evaluated: it comes with the next turn, as what ends the answer does.
    Everything else of before is there."""
    chat = Chat()
    args = ("-t", "1", "-c", "3500", "--hot", "1280", "-ub", "256", "--checkpoint-tokens", EVERY)
    with Daemon(MODEL, *args) as d:
        own = [tokens_of(d, "<end_of_turn>\n" + turn(text)) for text in SAID]
    with Daemon(MODEL, *args, "--kv-dir", FOLDER + "/chat") as d:
        computed, m = chat.say(d, turn(LONG))
        assert computed > 1400 > 1280 >= m["hot_tokens"], (computed, m)
        for i in range(KILLED - 1):
            computed, _ = chat.say(d, turn(SAID[i]))
            assert computed == 1 + own[i], (i, computed, own[i])
        d.process.send_signal(signal.SIGKILL)
        d.process.wait()
    with Daemon(MODEL, *args, "--kv-dir", FOLDER + "/chat") as d:
        computed, _ = chat.say(d, turn(SAID[KILLED - 1]))
        assert computed == 1 + own[KILLED - 1], (computed, own[KILLED - 1])


main()
