#!/usr/bin/env python3
"""One very long conversation, once: what it costs to have it and to have it back, its memory, and what of it is found again.

    cold      the whole text sent to a daemon that has seen nothing, time to the first token
    warm      another message behind it
    restart   the daemon is killed (SIGKILL) and started again over its --kv-dir, which it wrote as it went; then another
              message
    recall    needles stand in the text at equal distances; each is asked for at its end.  Of each: was the block it stands in
              hot for its answer, and was it answered

Retrieval is asked for.  Past the trained window nothing is scored (`modeld status` says so), and what is hot there is the first
and the newest tokens: the line of recall says which it was.  The cold store and --kv-dir hold all of the KV: SmolLM2 takes
23 kB a token, 200,000 of them 4.6 GB in memory and as much on the disk.  Exit status 1 where a warm turn or a restart is less
than 20 times as fast as cold (--least).

usage: long.py MODELD MODEL [--tokens N] [--hot N] [--needles N] [--threads N] [--engine NAME] [--folder DIR] [--least RATIO]
"""
import argparse
import atexit
import os
import random
import shutil
import sys
import tempfile

from libbench import Daemon, context_length, read_json

THINGS = ("harbour", "lantern", "orchard", "compass", "violin", "glacier", "windmill", "anchor", "saddle", "beacon", "cellar",
          "meadow", "turbine", "ladder", "kettle", "bridge", "marble", "thimble", "canoe", "chimney")
WHO = ("The baker", "A sailor", "The teacher", "An old farmer", "The postman", "A young doctor", "The miller", "Our neighbour")
DID = ("walked along the river", "looked for a lost dog", "repaired the wooden fence", "carried water up the hill",
       "waited for the evening train", "counted the boats in the bay", "read a letter from home", "planted two rows of beans")
WHEN = ("before the rain came", "while the others slept", "until the lamps were lit", "as on every Sunday", "without saying a word",
        "and nobody was surprised")


def needle(i):
    return THINGS[i % len(THINGS)] + ("" if i < len(THINGS) else " number %d" % i), 10000 + (i * 7919 + 1234) % 90000


def sentence(r):
    return "%s %s %s. " % (r.choice(WHO), r.choice(DID), r.choice(WHEN))


def said(role, text):
    return {"role": role, "content": text}


def make_talk(d, tokens, needles):
    """Messages of about so many tokens, each second one of which begins with a needle."""
    r, probe, talk = random.Random(11), 40, []
    sample = "".join(sentence(r) for _ in range(probe))
    each = d.chat([said("user", sample)], answer=1)[1]["prompt_tokens"] / probe
    for i in range(needles):
        for with_needle in (False, True):
            filler = "".join(sentence(r) for _ in range(int(tokens / needles / 2 / each)))
            talk.append(said("user", ("The secret number of the %s is %d. " % needle(i) if with_needle else "") + filler))
            talk.append(said("assistant", "Noted."))
    return talk


def gigabytes(n):
    return "%.2f GB" % (n / 1e9)


def is_hot(d, session, message):
    """All of the first 48 tokens of a user's message, in which a needle stands."""
    got = d.call("GET", "/api/sessions/%d" % session)[1]
    start = [g for g in got["segments"] if g["kind"] == "user"][message]["token_start"]
    block = got["map"]["block_tokens"]
    return set(got["map"]["state"][start // block:(start + 48 - 1) // block + 1]) == {"#"}


def recall(d, talk, needles):
    """How many needles were hot for their answer, and answered."""
    hot = answered = 0
    for i in range(needles):
        name, number = needle(i)
        _, f = d.chat(talk + [said("user", "What is the secret number of the %s? Say the number alone." % name)], answer=12)
        hot += is_hot(d, f["session"], 2 * i + 1)
        answered += str(number) in f["text"]
    return hot, answered


def main():
    p = argparse.ArgumentParser()
    p.add_argument("modeld")
    p.add_argument("model")
    p.add_argument("--tokens", type=int, default=200000)
    p.add_argument("--hot", type=int, default=2048)
    p.add_argument("--needles", type=int, default=20)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--engine", default="llama")
    p.add_argument("--least", type=float, default=20, help="ratio to cold that a warm turn and a restart must reach")
    p.add_argument("--folder", default=os.environ.get("MODELD_BENCH_DIR"))
    o = p.parse_args()
    trained = context_length(o.modeld, o.model)
    per_token = read_json([o.modeld, "plan", o.model, "--json"])["kv_bytes_per_token"]
    room = o.tokens + 4096
    need = room * (per_token + 1024) * 4 // 3 + (64 << 20)
    folder = tempfile.mkdtemp(prefix="modeld-long-", dir=o.folder)
    atexit.register(shutil.rmtree, folder, True)    # after the daemons that write to it, which are registered later
    if shutil.disk_usage(folder).free < need:
        sys.exit("long.py: %s has no room for %s: give --folder" % (folder, gigabytes(need)))
    serve = [o.modeld, "serve", "-m", o.model, "--port", "0", "-t", str(o.threads), "--engine", o.engine, "-c", str(room),
             "--hot", str(o.hot), "--min-hot-context", "0", "--mem-cold", str(need), "--kv-dir", folder, "--kv-disk",
             str(2 * need), "--retrieval", "auto"]
    if room > trained:
        serve.append("--past-window")
    measure(o, serve, folder)


def measure(o, serve, folder):
    d = Daemon(serve)
    status = d.call("GET", "/api/status")[1]["retrieval"]
    talk = make_talk(d, o.tokens, o.needles)
    empty = d.memory()
    print("%s, %s, %d threads, %d of the tokens hot" % (os.path.basename(o.model), o.engine, o.threads, o.hot))
    cold, f = d.chat(talk[:-1])
    print("  cold      %9.1f s   %d tokens, %.0f tokens/s; %s more memory, %d tokens on the disk"
          % (cold, f["prompt_tokens"], f["prompt_n"] / f["prompt_ms"] * 1e3, gigabytes(d.memory() - empty), f["durable_tokens"]),
          flush=True)
    talk += [said("user", "And so the day ended, and the long story with it.")]
    warm, f = d.chat(talk)
    print("  warm      %9.2f s   ratio %7.1f   %d tokens prefilled" % (warm, cold / warm, f["prompt_n"]))
    d.kill()
    d = Daemon(serve)
    talk += [said("assistant", "It did."), said("user", "Nobody spoke of it again until the spring.")]
    restart, f = d.chat(talk)
    print("  restart   %9.2f s   ratio %7.1f   %d tokens prefilled, %d restored; %.1f s to load"
          % (restart, cold / restart, f["prompt_n"], f["restored_tokens"], d.loaded), flush=True)
    talk += [said("assistant", "So it was.")]
    hot, answered = recall(d, talk, o.needles)
    how = "by what questions attend to" if status["on"] else "by recency: nothing is retrieved (%s)" % status["reason"]
    print("  recall    %d of %d needles were hot, %d answered; %s" % (hot, o.needles, answered, how))
    print("  memory    %s after all" % gigabytes(d.memory()))
    d.close()
    less = [name for name, seconds in (("warm", warm), ("restart", restart)) if cold / seconds < o.least]
    if less:
        sys.exit("long.py: less than %g times as fast as cold: %s" % (o.least, ", ".join(less)))


if __name__ == "__main__":
    main()
