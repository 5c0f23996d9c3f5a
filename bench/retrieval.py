#!/usr/bin/env python3
"""What `--retrieval auto` costs an answer, beside the same answer without, in one run and in turn.

Two daemons have the same history.  Each question is 64 tokens behind it, answered with 32: `first token` is the median time to
the first piece of text over the questions, `whole answer` to the last.  The first question reads the keys of all blocks, later ones
find them: it is told apart.  `scoring` is the time of scoring and choosing (score_ms), as a share of what the prompt took.

usage: retrieval.py MODELD MODEL [--tokens N] [--hot N] [--questions N] [--threads N] [--engine NAME] [-- FLAG ...]
"""
import argparse
import os
import statistics
import sys
import time

from libbench import BYTES, Daemon, text

ASK, ANSWER = 64, 32


def ask(d, history, number):
    start = time.monotonic()
    first, figures = d.turn(history + text(500 + number, ASK, BYTES), answer=ANSWER)
    return first, time.monotonic() - start, figures


def main():
    argv, more = sys.argv[1:], []
    if "--" in argv:
        argv, more = argv[:argv.index("--")], argv[argv.index("--") + 1:]
    p = argparse.ArgumentParser()
    p.add_argument("modeld")
    p.add_argument("model")
    p.add_argument("--tokens", type=int, default=4096)
    p.add_argument("--hot", type=int, default=1024)
    p.add_argument("--questions", type=int, default=6)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--engine", default="llama")
    o = p.parse_args(argv)
    serve = [o.modeld, "serve", "-m", o.model, "--port", "0", "-t", str(o.threads), "--engine", o.engine, "--hot",
             str(o.hot), "--min-hot-context", "0", "-c", str(o.tokens + 512)] + more
    daemons = {mode: Daemon(serve + ["--retrieval", mode]) for mode in ("off", "auto")}
    why = daemons["auto"].call("GET", "/api/status")[1]["retrieval"]
    if not why["on"]:
        sys.exit("retrieval.py: nothing is retrieved here: %s" % why["reason"])
    history = text(1, o.tokens, BYTES)
    for d in daemons.values():
        d.turn(text(9, 64, BYTES))
        d.turn(history, answer=1)
    got = {mode: [] for mode in daemons}
    for i in range(o.questions + 1):
        for mode in sorted(daemons, reverse=i % 2 == 1):
            got[mode].append(ask(daemons[mode], history, i))
    print("%s, %s, %d threads, %d tokens, %d of them hot" % (os.path.basename(o.model), o.engine, o.threads, o.tokens, o.hot))
    for at, what in ((0, "first token"), (1, "whole answer")):
        off, auto = (statistics.median(q[at] for q in got[mode][1:]) for mode in ("off", "auto"))
        print("  %-14s without %8.0f ms   with %8.0f ms   ratio %5.2f   the first question %8.0f ms"
              % (what, 1e3 * off, 1e3 * auto, auto / off, 1e3 * got["auto"][0][at]))
    asked = [q[2] for q in got["auto"][1:]]
    score = statistics.median(f["retrieval"]["score_ms"] for f in asked)
    prompt = statistics.median(f["prompt_ms"] for f in asked)
    decode = statistics.median(f["predicted_ms"] for f in asked)
    print("  scoring        %8.1f ms: %4.1f %% of the prompt's %.0f ms, %4.1f %% of the answer's; %s evaluations of the question, "
          "%.0f tokens brought, %d blocks scored"
          % (score, 100 * score / prompt, prompt, 100 * score / (prompt + decode),
             "/".join(str(f["retrieval"]["evaluations"]) for f in asked),
             statistics.mean(f["retrieval"]["brought_tokens"] for f in asked), asked[-1]["retrieval"]["scored_blocks"]))
    for d in daemons.values():
        d.close()


if __name__ == "__main__":
    main()
