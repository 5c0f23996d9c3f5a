#!/usr/bin/env python3
"""A context several times the hot set: what stands in the sinks or in the recent window is recalled.

Qwen2.5-Coder-0.5B, a hot set of 1,024 tokens, source code of about 6,000.  The needle is a line of its own, once in the
first tokens (the system message) and once among the last; the model is asked for it.  What lies between is cold: the
figures show how much was attended.

usage: needle.py MODELD MODEL
"""
import http.client
import json
import os
import re
import subprocess
import sys
import time

HOT, TOKENS, CHARS_A_TOKEN = 1024, 6000, 3
NEEDLE = "The password of the build server is %s."
QUESTION = "What is the password of the build server? Answer with the password only."


def filler():
    """Source code of the project itself, the same at every commit that does not touch these files."""
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src", "policy")
    text = "".join(open(os.path.join(folder, name)).read() for name in sorted(os.listdir(folder)))
    return text[:TOKENS * CHARS_A_TOKEN]


def ask(port, messages):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=3600)
    c.request("POST", "/v1/chat/completions",
              json.dumps({"messages": messages, "max_tokens": 16, "temperature": 0}), {"Content-Type": "application/json"})
    reply = json.loads(c.getresponse().read())
    c.close()
    if "choices" not in reply:
        sys.exit("needle.py: %s" % reply)
    return reply


def main():
    modeld, model = sys.argv[1:3]
    daemon = subprocess.Popen([modeld, "serve", "-m", model, "--port", "0", "-c", "16384", "--hot", str(HOT)],
                              stderr=subprocess.PIPE, text=True)
    for line in daemon.stderr:
        found = re.search(r"ready at http://127\.0\.0\.1:(\d+)", line)
        if found:
            break
    code, missed = filler(), 0
    for place, word in (("sinks", "heron-4417"), ("recent window", "otter-9052")):
        needle = NEEDLE % word
        first = "You help with this code. " + (needle if place == "sinks" else "")
        last = (needle + "\n" if place != "sinks" else "") + QUESTION
        start = time.monotonic()
        r = ask(int(found.group(1)), [{"role": "system", "content": first},
                                      {"role": "user", "content": "Read this code.\n" + code},
                                      {"role": "assistant", "content": "I have read it."},
                                      {"role": "user", "content": last}])
        answer = r["choices"][0]["message"]["content"]
        hit = word in answer
        missed += not hit
        print("needle in the %-13s %-6s  %r  %d tokens, %d attended, hot limit %d, %.0f s"
              % (place, "found" if hit else "LOST", answer, r["usage"]["prompt_tokens"],
                 r["modeld"]["attended_tokens"], HOT, time.monotonic() - start), flush=True)
    daemon.terminate()
    daemon.wait()
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
