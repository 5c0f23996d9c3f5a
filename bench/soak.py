#!/usr/bin/env python3
"""Many clients for a long time: does the daemon stay within its limits?

Eight clients talk to `modeld serve` with the exact model, whose hot set and cold store are far too small for what they
say: they go on with conversations, branch, edit, leave in the middle of an answer, open and close.  The high-water mark
of resident memory must stay below what was there before the first request, plus the configured KV of both tiers, plus
an allowance for work; and the second half of the time must not grow.

usage: soak.py BUILD SECONDS
"""
import http.client
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time

CLIENTS, WINDOW, HOT, COLD_MIB, SESSIONS, QUEUE = 8, 4096, 512, 16, 16, 16
KV_BYTES = 512  # of the exact model: 4 layers, 2 KV heads of 16, keys and values of two bytes
WORK_MIB = 48   # requests on their way, tapes, buffers of the HTTP front, the heap's own


def rss(pid):
    text = open("/proc/%d/status" % pid).read()
    return [int(re.search(what + r":\s+(\d+) kB", text).group(1)) / 1024 for what in ("VmRSS", "VmHWM")]


class Client(threading.Thread):
    def __init__(self, port, seed, end):
        super().__init__()
        self.port, self.end, self.r = port, end, random.Random(seed)
        self.said, self.failures = {}, []

    def call(self, method, path, body=None, leave_after=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            c.request(method, path, None if body is None else json.dumps(body),
                      {"Content-Type": "application/json"})
            r = c.getresponse()
            if leave_after is not None:
                r.read(leave_after)
                return r.status, None
            return r.status, json.loads(r.read())
        finally:
            c.close()

    def turn(self):
        history = self.r.choice(self.histories)
        kind = self.r.random()
        if kind < 0.15:
            history = history[:self.r.randrange(len(history) + 1)]  # a branch from an earlier turn
        elif kind < 0.25 and history:
            history = [history[0] + " (edited)"] + history[1:]
        history = history + ["".join(self.r.choice("abcdefgh ") for _ in range(self.r.randrange(1, 300)))]
        prompt = "\n".join(history)
        # a token a byte, and three for a blank, which its tokenizer writes as U+2581
        if len(prompt.replace(" ", "\u2581").encode()) > WINDOW - 200:
            self.histories = [[] for _ in self.histories]
            return
        body = {"prompt": prompt, "max_tokens": self.r.randrange(0, 64), "stream": self.r.random() < 0.5}
        leave = self.r.randrange(1, 400) if body["stream"] else None
        status, reply = self.call("POST", "/v1/completions", body, leave)
        if status == 200 and reply is not None:
            history = history + [reply["choices"][0]["text"]]
        self.said[status] = self.said.get(status, 0) + 1
        if status not in (200, 503):
            self.failures.append((status, reply))
        self.histories[self.r.randrange(len(self.histories))] = history

    def look(self):
        status, reply = self.call("GET", "/api/sessions")
        if status != 200:
            self.failures.append((status, reply))
            return
        for s in reply["sessions"][:2]:
            status, _ = self.call("GET", "/api/sessions/%d" % s["id"])
            if status not in (200, 404):
                self.failures.append((status, "explain"))
        if self.r.random() < 0.3 and reply["sessions"]:
            self.call("DELETE", "/api/sessions/%d" % self.r.choice(reply["sessions"])["id"])

    def run(self):
        self.histories = [[] for _ in range(4)]
        while time.monotonic() < self.end:
            try:
                self.look() if self.r.random() < 0.2 else self.turn()
            except (OSError, http.client.HTTPException) as e:
                self.failures.append((type(e).__name__, str(e)))


def main():
    build, seconds = sys.argv[1], float(sys.argv[2])
    seed = int(os.environ.get("SEED", time.time()))
    print("SEED=%d" % seed)
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "exact.gguf")
        subprocess.run([os.path.join(build, "tests/support/exact_model"), model], check=True)
        daemon = subprocess.Popen([os.path.join(build, "modeld"), "serve", "-m", model, "--port", "0", "-c", str(WINDOW),
                                   "--hot", str(HOT), "--mem-cold", "%dMiB" % COLD_MIB, "--sessions", str(SESSIONS),
                                   "-t", "1"], stderr=subprocess.PIPE, text=True)
        for line in daemon.stderr:
            found = re.search(r"ready at http://127\.0\.0\.1:(\d+)", line)
            if found:
                break
        threading.Thread(target=lambda: [None for _ in daemon.stderr], daemon=True).start()
        before, _ = rss(daemon.pid)
        limit = before + COLD_MIB + HOT * KV_BYTES / 2**20 + WORK_MIB
        end = time.monotonic() + seconds
        clients = [Client(int(found.group(1)), seed + i, end) for i in range(CLIENTS)]
        for c in clients:
            c.start()
        samples, next_line = [], 0
        while any(c.is_alive() for c in clients):
            time.sleep(1)
            now, peak = rss(daemon.pid)
            samples.append(now)
            if len(samples) >= next_line:
                next_line += 60
                print("  %5d s  %6.1f MiB, at most %.1f of %.1f" % (len(samples), now, peak, limit), flush=True)
        now, peak = rss(daemon.pid)
        daemon.terminate()
        code = daemon.wait(timeout=30)
        failures = [f for c in clients for f in c.failures]
        said = {}
        for c in clients:
            for k, n in c.said.items():
                said[k] = said.get(k, 0) + n
        half, rest = samples[len(samples) // 4:len(samples) // 2], samples[3 * len(samples) // 4:]
        grown = (sum(rest) / len(rest) - sum(half) / len(half)) if half and rest else 0
        print("%d clients, %d s, answers %s: %.1f MiB before, %.1f at most, limit %.1f, last quarter %+.1f against the "
              "second, exit %d" % (CLIENTS, seconds, said, before, peak, limit, grown, code))
        bad = [why for why, is_so in (("over the limit", peak > limit), ("it grows", grown > 4),
                                      ("exit status", code != 0), ("failures: %s" % failures[:3], failures)) if is_so]
        sys.exit("soak: " + "; ".join(bad) if bad else 0)


if __name__ == "__main__":
    main()
