"""kill -9 at 100 random moments of a scripted session over HTTP: the restarted daemon has every turn whose last event was
received, and of the one that was on its way all or nothing.

The scripted tokenizer makes a token of each byte, and answers are the tokens 257, 258, ... of its pieces, so that it is
known beforehand how long each conversation is after each turn.  A turn after a restart must prefill what is new alone: the
fake engine's KV is found by its tokens, and of another text it is not found."""
import http.client
import json
import os
import random
import tempfile
import threading
import time

from libwire import COMPLETION, JSON, Server, case, main

KILLS, TALKS = 100, 2
PIECES = ("it", " is", " kept")
ANSWER = [257 + i for i in range(len(PIECES))]
SEED = int(os.environ.get("SEED", time.time_ns() % 2**32))


class Talk:
    """One conversation: what was acknowledged, and the turn that was on its way when the daemon died."""

    def __init__(self, number, random_):
        self.random, self.turns = random_, 0
        self.history = [number, 7, number]  # what tells them apart; nothing of it is computed yet
        self.prompt = None

    def next_prompt(self):
        if self.prompt is None:  # else the client asks again what was not answered
            self.prompt = self.history + [self.random.randrange(1, 250) for _ in range(self.random.randrange(5, 60))]
        return self.prompt

    def answered(self):
        self.history, self.prompt = self.prompt + ANSWER, None
        self.turns += 1

    def lengths(self):
        """How long its context may be after a kill: as acknowledged, or with all of the turn that was on its way."""
        return {len(self.history) if self.turns else 0} | ({len(self.prompt + ANSWER)} if self.prompt else set())


def ask(server, prompt):
    """One streamed turn: the usage of its last event and [DONE], or None when the daemon died before."""
    c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        c.request("POST", COMPLETION, json.dumps({"prompt": prompt, "stream": True, "stream_options": {"include_usage": True}}), JSON)
        r = c.getresponse()
        assert r.status == 200, r.read()
        lines = [line for line in r if line.startswith(b"data: ")]
    except (OSError, http.client.HTTPException):
        return None
    finally:
        c.close()
    if not lines or lines[-1].strip() != b"data: [DONE]":
        return None
    return json.loads(lines[-2][6:])["usage"]


def play_until_killed(server, talks, seconds, first):
    """Turns of both in turn; the first of each after a restart pays for what is new only."""
    killer = threading.Timer(seconds, server.process.kill)
    killer.start()
    at = 0
    while True:
        talk = talks[at % TALKS]
        prompt = talk.next_prompt()
        usage = ask(server, prompt)
        if usage is None:
            break
        new = len(prompt) - len(talk.history) + 1 if talk.turns else len(prompt)  # the last token of an answer is not computed
        cost = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
        assert cost <= new, "%d tokens prefilled, %d are new (%s a restart, SEED=%d)" % (cost, new, "after" if at < TALKS and not first else "without", SEED)
        talk.answered()
        at += 1
    killer.join()
    server.process.wait()
    return at


@case
def whatever_moment_it_is():
    random_ = random.Random(SEED)
    talks = [Talk(100 + i, random_) for i in range(TALKS)]
    whole = turns = 0
    with tempfile.TemporaryDirectory() as folder:
        options = {"kv_dir": folder, "window": 65536, "hot": 1024, "prefill_ms": 0, "decode_ms": 1}
        for i in range(KILLS):
            server = Server(PIECES, **options).__enter__()
            there = sorted(s["context_tokens"] for s in server.sessions() if s["context_tokens"] > 0)
            allowed = [t.lengths() for t in talks]
            fits = [a in allowed[0] and b in allowed[1] for a, b in ([(there + [0, 0])[:2], (there + [0, 0])[1::-1]])]
            assert len(there) <= TALKS and any(fits), "contexts of %s, allowed are %s (kill %d, SEED=%d)" % (there, allowed, i, SEED)
            whole += sum(len(t.prompt) + len(ANSWER) in there for t in talks if t.prompt)
            turns += play_until_killed(server, talks, random_.uniform(0, 0.12), i == 0)
    print("# %d turns, %d of those that were on their way were whole, SEED=%d" % (turns, whole, SEED))
    assert turns >= KILLS, "hardly a turn between the kills: %d" % turns


main()
