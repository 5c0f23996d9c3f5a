"""A daemon of modeld for the scripts of this folder, and text to send it."""
import atexit
import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

ANSWER = 16
BYTES = range(10, 250)  # tokens of every vocabulary
READY = r"ready at http://127\.0\.0\.1:(\d+)\D"      # not half of the number
PROGRAM = os.path.basename(sys.argv[0])


class Daemon:
    """Whatever ends the script ends it too.  What it says goes to a file: a pipe that nobody reads would stop it."""

    def __init__(self, command, ready=READY):
        self.log = tempfile.TemporaryFile(mode="w+")
        start = time.monotonic()
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        atexit.register(self.kill)
        while True:
            ended = self.process.poll() is not None     # before the log is read: then all of it is there
            found = re.search(ready, self.said())
            if found:
                self.port = int(found.group(1))
                self.loaded = time.monotonic() - start
                return
            if ended:
                sys.exit("%s: %s did not start: %s" % (PROGRAM, command[0], self.said()[-2000:]))
            time.sleep(0.005)

    def said(self):
        """All that it has written.  By pread: its place in the file is the daemon's too."""
        return os.pread(self.log.fileno(), 1 << 20, 0).decode(errors="replace")

    def kill(self):
        atexit.unregister(self.kill)
        self.process.send_signal(signal.SIGKILL)        # nothing, where it was waited for already
        self.process.wait()

    def close(self):
        self.process.terminate()
        self.process.wait()
        atexit.unregister(self.kill)

    def call(self, method, path, body=None):
        """(seconds, what was answered)"""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=3600)
        start = time.monotonic()
        c.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        r = c.getresponse()
        got = r.read()
        c.close()
        if r.status != 200:
            sys.exit("%s: %s %s: %d %s" % (PROGRAM, method, path, r.status, got[:500]))
        return time.monotonic() - start, json.loads(got)

    def memory(self):
        """Bytes of RAM it has now."""
        with open("/proc/%d/statm" % self.process.pid) as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def turn(self, tokens, session=None, answer=ANSWER):
        """Seconds to the first piece of text, and the last figures of the stream; "text": what was answered."""
        more = {} if session is None else {"modeld": {"session": session}}
        return self.stream("/v1/completions", dict(more, prompt=tokens, max_tokens=answer))

    def chat(self, messages, answer=ANSWER):
        return self.stream("/v1/chat/completions", {"messages": messages, "max_tokens": answer})

    def stream(self, path, body):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=36000)
        body = dict(body, temperature=0, stream=True, stream_options={"include_usage": True})
        start = time.monotonic()
        c.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        r = c.getresponse()
        if r.status != 200:
            sys.exit("%s: %d %s" % (PROGRAM, r.status, r.read()[:500]))
        first, figures = None, {"text": ""}
        for line in r:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            for key in ("usage", "modeld", "timings"):
                figures.update(event.get(key) or {})
            for choice in event["choices"]:
                figures["text"] += choice.get("text") or choice.get("delta", {}).get("content") or ""
            if first is None and figures["text"]:
                first = time.monotonic() - start
        c.close()
        return (first if first is not None else time.monotonic() - start), figures


def read_json(command):
    """What a verb of modeld prints with --json."""
    shown = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if shown.returncode != 0:
        sys.exit("%s: `%s` failed" % (PROGRAM, " ".join(command)))
    return json.loads(shown.stdout)


def context_length(modeld, model):
    """The window that the model was trained for, in tokens."""
    return read_json([modeld, "show", model, "--json"])["context_length"]


def text(seed, count, tokens=range(1000, 20000)):
    r = random.Random(seed)
    return [r.choice(tokens) for _ in range(count)]
