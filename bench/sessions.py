#!/usr/bin/env python3
"""What a turn costs that comes back to known text, against prefilling the same tokens, in one run; and the same of
llama-server (from the xllamacpp package) beside it.

    warm turn   the history again with 16 new tokens at its end
    switch      the same, after another conversation of that length had its turn; once where both fit the hot set, once where
                they do not, so that it is restored from the cold store
    branch      an early turn of the history (its first quarter) with 16 other tokens behind it
    re-sent     1,024 tokens of the history again: at their old place; at its end, behind other text, where they are computed;
                there with --reuse approximate, where they are taken from where they stood.  With what the answer counts

A figure is the time to the first token of a streamed answer of at most 16 tokens, the median of those of a round: each
step that is not a prefill of all is made several times, of all servers in turn.  The ratio is that of the same tokens sent
to a server that has not seen them.  ratio 20 is what the project promises.

usage: sessions.py MODELD MODEL [--tokens N] [--peer FOLDER] [--rounds N] [--threads N]
       FOLDER: holds the package xllamacpp; without it modeld is measured alone
"""
import argparse
import http.client
import json
import os
import re
import statistics
import sys
import time

from libbench import Daemon, text

NEW, ANSWER, RESENT, TIMES = 16, 16, 1024, 6
PEER = r"""
import sys, time, json, xllamacpp as x
p = x.CommonParams()
p.model.path = sys.argv[1]
p.n_ctx = int(sys.argv[2])
p.cpuparams.n_threads = int(sys.argv[3])
p.n_parallel, p.kv_unified = 4, True  # what llama-server starts with when nothing is said
p.port = 0
s = x.Server(p)
print(s.listening_address, flush=True)
time.sleep(1e9)
"""


class Server(Daemon):
    def first_token(self, tokens, answer=ANSWER):
        """Seconds to the first piece of text; the answer is read to its end."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=3600)
        body = json.dumps({"prompt": tokens, "max_tokens": answer, "temperature": 0, "stream": True,
                           "cache_prompt": True, "stream_options": {"include_usage": True}})
        start = time.monotonic()
        c.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        r = c.getresponse()
        if r.status != 200:
            sys.exit("sessions.py: %d %s" % (r.status, r.read()[:500]))
        first = None
        self.counted = {}  # of modeld: tokens of the prompt by where they came from
        for line in r:
            self.counted.update((m.group(1).decode(), int(m.group(2)))
                                for m in re.finditer(rb'"(cached_tokens|moved_tokens|restored_tokens|prompt_tokens)": ?(\d+)', line))
            if first is None and line.startswith(b"data: {") and re.search(rb'"text": ?"[^"]', line):
                first = time.monotonic() - start
        c.close()
        return first if first is not None else time.monotonic() - start

    def get(self, path):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        start = time.monotonic()
        c.request("GET", path)
        body = c.getresponse().read()
        c.close()
        return time.monotonic() - start, body


def step(t, servers, name, tokens):
    """Ask all servers, another one first each time, so that a machine that is busy for a while is so for all."""
    order = list(zip(t, servers))
    for times, server in order if len(t[0].get(name, ())) % 2 == 0 else reversed(order):
        times.setdefault(name, []).append(server.first_token(tokens))


def round_of(servers, seed, count):
    """One round with texts that nobody has seen; lists of seconds by name for each server."""
    talks = [text(seed, count), text(seed + 1, count)]
    t = [{} for _ in servers]
    step(t, servers, "cold", talks[0])
    step(t, servers, "other", talks[1])
    step(t, servers, "cold branch", text(seed + 5, count // 4 + NEW))
    for i in range(TIMES):
        talks[i % 2] += text(seed + 10 + i, NEW)
        step(t, servers, "switch", talks[i % 2])
    for i in range(TIMES):
        talks[1] += text(seed + 20 + i, NEW)
        step(t, servers, "warm turn", talks[1])
    for i in range(TIMES):
        step(t, servers, "branch", talks[i % 2][:count // 4] + text(seed + 30 + i, NEW))
    return t


def measure(servers, count, rounds):
    """Rounds of lists of seconds by name, for each server."""
    for server in servers:
        server.first_token(text(7, 64))  # the first request of a process pays for what is made on demand
    return list(zip(*[round_of(servers, 100 * (i + 1), count) for i in range(rounds)]))


def median(rounds, name):
    return statistics.median(seconds for r in rounds for seconds in r[name])


def resent(server, count):
    """Text that is sent again, at its place and at the end: seconds and what the server counted, for each."""
    a = text(4242, count)
    server.first_token(a)
    at = len(a) // 4
    rows = []
    for prompt in (a[:at + RESENT] + text(4244, NEW), a + text(4243, NEW) + a[at:at + RESENT]):
        seconds = server.first_token(prompt)
        rows.append((seconds, server.counted))
    return rows


def restored_switch(server, count):
    """Seconds to the first token of a conversation that lies in the cold store, and how many of its tokens came from there."""
    a = text(5151, count)
    server.first_token(a)
    server.first_token(text(5152, count))
    return server.first_token(a + text(5153, NEW)), server.counted["restored_tokens"]


def explain_while_decoding(server):
    """The longest of many answers about a conversation while another one decodes; None where there is none."""
    import threading
    sessions = json.loads(server.get("/api/sessions")[1]).get("sessions", [])
    if not sessions:
        return None
    worker = threading.Thread(target=server.first_token, args=(text(9, NEW), 20 * ANSWER))
    worker.start()
    times = []
    while worker.is_alive():
        times.append(server.get("/api/sessions/%d" % sessions[0]["id"])[0])
    worker.join()
    return max(times), len(times)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("modeld")
    p.add_argument("model")
    p.add_argument("--tokens", type=int, default=4000)
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--peer")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))  # 1 on a busy machine
    o = p.parse_args()
    threads = str(o.threads)
    assert o.tokens >= 2 * NEW * TIMES, "too few tokens"
    window, hot = str(o.tokens + 2 * RESENT), str(3 * o.tokens)  # room for what a round has at once
    serve = [o.modeld, "serve", "-m", o.model, "--port", "0", "-c", window, "-t", threads]
    server = Server(serve + ["--hot", hot])
    servers = [server]
    if o.peer:
        os.environ["PYTHONPATH"] = os.path.abspath(o.peer)
        servers.append(Server([sys.executable, "-c", PEER, o.model, hot, threads], r"(?m)^http://127\.0\.0\.1:(\d+)\s"))
    rows = dict(zip(("modeld", "llama-server"), measure(servers, o.tokens, o.rounds)))
    if o.peer:
        servers[1].close()
    explain = explain_while_decoding(server)
    again = dict(zip(("at its place", "computed"), resent(server, o.tokens))) if o.tokens >= 2 * RESENT else {}
    server.close()
    server = Server(serve + ["--hot", str(o.tokens * 5 // 4)])
    restored, from_cold = restored_switch(server, o.tokens)
    server.close()
    if again:
        server = Server(serve + ["--hot", hot, "--reuse", "approximate"])
        again["approximate"] = resent(server, o.tokens)[1]
        server.close()
    name = os.path.basename(o.model)
    print("%s, %d tokens of history, time to the first token" % (name, o.tokens))
    for who, rounds in rows.items():
        for what in ("warm turn", "switch", "branch"):
            same = median(rounds, "cold branch" if what == "branch" else "cold")
            print("  %-13s %-10s %7.0f ms   prefill of the same tokens %7.0f ms   ratio %6.1f"
                  % (who, what, 1e3 * median(rounds, what), 1e3 * same, same / median(rounds, what)))
    cold = median(rows["modeld"], "cold")
    print("  %-13s %-10s %7.0f ms   prefill of the same tokens %7.0f ms   ratio %6.1f   %d restored"
          % ("modeld", "switch", 1e3 * restored, 1e3 * cold, cold / restored, from_cold))
    for how, (seconds, counted) in again.items():
        same = again["computed"][0] if how == "approximate" else cold * (RESENT + NEW) / o.tokens
        print("  %-13s %-22s %5.0f ms   prefill of the same tokens %7.0f ms   ratio %6.1f   %d prefilled, %d moved, of %d"
              % ("modeld", "re-sent, " + how, 1e3 * seconds, 1e3 * same, same / seconds,
                 counted["prompt_tokens"] - counted["cached_tokens"], counted["moved_tokens"], counted["prompt_tokens"]))
    if explain:
        print("  %-13s explain    %7.1f ms at most, %d times while another decodes" % ("modeld", 1e3 * explain[0], explain[1]))
    for what in ("warm turn", "switch", "branch") if o.peer else ():
        pairs = [a / b for ours, theirs in zip(rows["modeld"], rows["llama-server"]) for a, b in zip(ours[what], theirs[what])]
        print("  against llama-server: %s %.2f of its time (%s)"
              % (what, statistics.median(pairs), ", ".join("%.2f" % p for p in sorted(pairs))))


if __name__ == "__main__":
    main()
