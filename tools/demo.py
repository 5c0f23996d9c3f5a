#!/usr/bin/env python3
"""The main job, for real: an agent's conversation several times larger than the hot KV set.

Starts the daemon on SmolLM2 with a small hot set, feeds it real source text turn by turn, asks follow-ups,
branches from an early turn, comes back, and ends with a table.  Exits non-zero if a promise did not hold.

usage: demo.py MODELD MODEL TEXT
"""
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

HOT = 1024           # tokens of KV in the engine
WINDOW = 8192        # what SmolLM2 was trained for
PARTS = 9            # pieces of source text the agent reads, one a turn
PART_CHARS = 1500    # about 460 tokens of C header
ANSWER_TOKENS = 24
BRANCH_AFTER = 2     # the turn whose history is sent again without what came later


class Daemon:
    """modeld serve, and a thread that watches what is resident."""

    def __init__(self, modeld, model, root):
        self.log = open(os.path.join(root, "log"), "w+")
        self.process = subprocess.Popen(
            [modeld, "serve", "-m", model, "-c", str(WINDOW), "--hot", str(HOT), "--port", "0", "--data-root", root],
            stderr=self.log, stdin=subprocess.DEVNULL)
        self.port = self.wait_ready()
        self.hot_max = self.samples = 0
        self.watching = True
        self.watcher = threading.Thread(target=self.watch, daemon=True)
        self.watcher.start()

    def wait_ready(self):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            text = open(self.log.name).read()
            if "ready at http://" in text:
                return int(text.split("ready at http://")[1].split()[0].rsplit(":", 1)[1])
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        sys.exit("demo: the daemon did not start:\n" + open(self.log.name).read())

    def call(self, method, path, body=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        c.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        answer = c.getresponse()
        data = json.loads(answer.read())
        if answer.status != 200:
            sys.exit(f"demo: {path} answered {answer.status}: {data}")
        return data

    def watch(self):
        while self.watching:
            hot = self.call("GET", "/api/status")["hot"]
            self.hot_max = max(self.hot_max, hot["tokens"])
            self.samples += 1
            time.sleep(0.1)

    def stop(self):
        self.watching = False
        self.watcher.join()
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(timeout=30) != 0:
            sys.exit("demo: the daemon did not stop cleanly:\n" + open(self.log.name).read())


def ask(daemon, rows, label, messages):
    start = time.monotonic()
    reply = daemon.call("POST", "/v1/chat/completions", {
        "messages": messages, "max_tokens": ANSWER_TOKENS, "temperature": 0, "seed": 1})
    took = time.monotonic() - start
    usage, extra, timings = reply["usage"], reply["modeld"], reply["timings"]
    status = daemon.call("GET", "/api/status")
    session = daemon.call("GET", "/api/sessions/%d" % extra["session"])
    row = {
        "label": label, "prompt": usage["prompt_tokens"], "cached": usage["prompt_tokens_details"]["cached_tokens"],
        "prefilled": timings["prompt_n"], "prefill_ms": timings["prompt_ms"], "restored": extra["restored_tokens"],
        "restore_ms": extra["restore_ms"], "recomputed": extra["recomputed_tokens"], "dropped": extra["dropped_tokens"],
        "attended": extra["attended_tokens"], "hot": session["hot_tokens"], "hot_mb": session["hot_bytes"] / 1e6,
        "tape": session["tape_tokens"], "cold": status["cold"]["tokens"], "cold_mb": status["cold"]["used_bytes"] / 1e6,
        "seconds": took,
    }
    rows.append(row)
    share = 100 * row["cached"] / row["prompt"]
    print(f"  {label:<21} {row['prompt']:>6} {share:>6.1f}% {row['restored']:>8} {row['prefilled']:>9} | "
          f"{row['tape']:>7} = {row['hot']:>4} hot {row['hot_mb']:>5.1f} MB + {row['tape'] - row['hot']:>4} cold | "
          f"{row['cold']:>5} tokens {row['cold_mb']:>5.1f} MB | {took:>5.1f}", flush=True)
    return reply["choices"][0]["message"]["content"]


def converse(daemon, text):
    """The conversation; returns its rows by label."""
    rows = []
    print(f"\n  {'turn':<21} {'prompt':>6} {'reused':>7} {'restored':>8} {'prefilled':>9} | "
          f"{'logical':>7} {'':<32} | {'cold store':>21} | {'sec':>5}", flush=True)
    messages = [{"role": "system", "content": "You are a coding agent. You answer in one short sentence."}]
    early = None
    for i in range(PARTS):
        part = text[i * PART_CHARS:(i + 1) * PART_CHARS]
        messages.append({"role": "user", "content": f"Read part {i + 1} of llama.h:\n```c\n{part}\n```\nWhat is it about?"})
        answer = ask(daemon, rows, f"read part {i + 1}", messages)
        messages.append({"role": "assistant", "content": answer})
        if i + 1 == BRANCH_AFTER:
            early = list(messages)

    def follow_up(history, label, question):
        return ask(daemon, rows, label, history + [{"role": "user", "content": question}])

    follow_up(messages, "follow-up", "Which of these types matters most?")
    follow_up(early, "branch from turn 2", "Name one function of part 2.")
    follow_up(messages, "back to the long one", "Name one struct of the last part.")
    return rows


def check(daemon, rows):
    """Every promise as (holds, words)."""
    by = {r["label"]: r for r in rows}
    branch, back, follow = by["branch from turn 2"], by["back to the long one"], by["follow-up"]
    longest = max(r["prompt"] for r in rows)
    restore_ms = branch["restore_ms"] + back["restore_ms"]
    restore = (branch["restored"] + back["restored"]) / restore_ms * 1000 if restore_ms else 0
    prefill = sum(r["prefilled"] for r in rows) / sum(r["prefill_ms"] for r in rows) * 1000
    new_tokens = 40  # a short question in its template, and the last token, which is always evaluated
    print(f"\n  {longest} tokens of history over {HOT} hot ones: {longest / HOT:.1f} times")
    print(f"  restore {restore:,.0f} tokens/s against prefill {prefill:,.0f} tokens/s: {restore / prefill:,.0f} times")
    print(f"  resident KV: at most {daemon.hot_max} tokens in {daemon.samples} looks, {HOT} allowed\n")
    return [
        (longest >= 4 * HOT, "the history is at least four times the hot set"),
        (daemon.hot_max <= HOT and daemon.samples > 50, "resident KV was never above the hot budget"),
        (sum(r["dropped"] + r["recomputed"] for r in rows) == 0, "nothing was dropped, nothing computed twice"),
        (all(r["hot"] + r["cold"] >= r["tape"] >= r["prompt"] for r in rows), "every token is hot or cold"),
        (follow["cached"] >= 0.99 * follow["prompt"], "a follow-up reuses 99 % of its prompt or more"),
        (branch["restored"] >= HOT / 4 and branch["prefilled"] <= new_tokens, "the branch was restored, not prefilled"),
        (back["restored"] >= HOT / 4 and back["prefilled"] <= new_tokens, "so was the long history afterwards"),
        (restore > 10 * prefill, "restoring is more than ten times as fast as prefill"),
    ]


def main():
    modeld, model, text_path = sys.argv[1:4]
    text = open(text_path, errors="replace").read()
    text = text[text.index("struct llama_model_params"):]  # declarations rather than a licence
    print(f"modeld on {os.path.basename(model)}: hot set {HOT} tokens, window {WINDOW}; a minute or more")
    with tempfile.TemporaryDirectory(prefix="modeld-demo-") as root:
        daemon = Daemon(modeld, model, root)
        rows = converse(daemon, text)
        promises = check(daemon, rows)
        daemon.stop()
    for holds, words in promises:
        print(f"  {'ok  ' if holds else 'FAIL'}  {words}")
    sys.exit(0 if all(holds for holds, _ in promises) else 1)


if __name__ == "__main__":
    main()
