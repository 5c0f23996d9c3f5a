#!/usr/bin/env python3
"""Decode and prefill far into a conversation: modeld with a small hot set, beside the same library with all of it hot, in one
run and in turn, as ratios.

Two daemons have the same tokens before them.  At each depth each of them, the other one first each time, is sent 512 more tokens
and answers with 32: `prefill` is of those 512, `decode` of the answer, the medians of the rounds.  Past the trained window both
run with linear RoPE scaling, which costs nothing and makes the text meaningless: only speed is measured.

usage: depth.py MODELD MODEL [--depths N,N,...] [--hot N] [--rounds N] [--threads N] [--no-dense N] [--engine NAME]
       --no-dense N  from this depth on modeld alone: dense prefill grows with the square of it
"""
import argparse
import os
import statistics
import sys

from libbench import BYTES, Daemon, context_length, text

STEP, ANSWER = 512, 32


def rate(figures, what):
    ms = figures["%s_ms" % what]
    return 1e3 * figures["%s_n" % what] / ms if ms > 0 else 0


def measure(daemons, depth, rounds):
    """{name: (prefill, decode)} in tokens/s."""
    history, got = text(1, depth, BYTES), {name: ([], []) for name in daemons}
    for d in daemons.values():
        d.turn(history, answer=1)  # on from the depth before
    for i in range(rounds):
        more = history + text(100 + depth + i, STEP, BYTES)
        for name in sorted(daemons, reverse=i % 2 == 1):
            _, f = daemons[name].turn(more, answer=ANSWER)
            if f["prompt_n"] < STEP or f["prompt_n"] > STEP + 64:
                sys.exit("depth.py: %s: %d tokens were prefilled where %d are new" % (name, f["prompt_n"], STEP))
            got[name][0].append(rate(f, "prompt"))
            if f["predicted_n"] > 1:
                got[name][1].append(rate(f, "predicted"))
    return {name: tuple(statistics.median(x) if x else 0 for x in both) for name, both in got.items()}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("modeld")
    p.add_argument("model")
    p.add_argument("--depths", default="2048,7168")
    p.add_argument("--hot", type=int, default=2048)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--no-dense", type=int, default=1 << 30)
    p.add_argument("--engine", default="llama")
    o = p.parse_args()
    depths = sorted(int(n) for n in o.depths.split(","))
    window = depths[-1] + STEP + ANSWER
    serve = [o.modeld, "serve", "-m", o.model, "--port", "0", "-t", str(o.threads), "--engine", o.engine,
             "--min-hot-context", "0", "-c", str(window)]
    scale = -(-window // context_length(o.modeld, o.model))
    if scale > 1:
        serve += ["--rope-scaling", "linear", "--rope-scale", str(scale)]
    daemons = {"modeld": Daemon(serve + ["--hot", str(o.hot)])}
    with_dense = [n for n in depths if n < o.no_dense]
    if with_dense:  # of as much as it is asked for, and no more
        at = serve.index("-c") + 1
        cells = str(with_dense[-1] + STEP + ANSWER)
        daemons["dense"] = Daemon(serve[:at] + [cells] + serve[at + 1:] + ["--hot", cells])
    for d in daemons.values():
        d.turn(text(9, 64, BYTES))  # the first request of a process pays for what is made on demand
    print("%s, %s, %d threads, hot set of %d tokens, beside all of it hot; tokens/s"
          % (os.path.basename(o.model), o.engine, o.threads, o.hot))
    for depth in depths:
        if depth >= o.no_dense and "dense" in daemons:
            daemons.pop("dense").close()
        got = measure(daemons, depth, o.rounds)
        mine, dense = got["modeld"], got.get("dense")
        for i, what in enumerate(("prefill", "decode")):
            print("  %8d deep  %-8s modeld %9.1f   %s" % (depth, what, mine[i], "" if dense is None else
                  "dense %9.1f   ratio %5.2f" % (dense[i], mine[i] / dense[i] if dense[i] > 0 else 0)), flush=True)
    for d in daemons.values():
        d.close()


if __name__ == "__main__":
    main()
