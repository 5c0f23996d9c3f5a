"""The real daemon in a process, with the clients of libwire's Server."""
import os
import re
import select
import signal
import subprocess
import sys
import time

from libwire import SLACK, Server

MODELD = os.path.abspath(os.environ.get("MODELD", "build/modeld"))


class Daemon(Server):
    """`modeld serve` on a free port.  Its log is kept in .log; leaving the block ends it with SIGTERM and checks
    that it ends well."""

    def __init__(self, model, *args, ready=True, port=0, env=None):
        self.args = [MODELD, "serve", "-m", model, "--port", str(port)] + [str(a) for a in args]
        self.env = env or {}
        self.wait = ready
        self.log = ""

    def __enter__(self):
        env = {k: v for k, v in os.environ.items() if not k.startswith("MODELD_") or k.startswith("MODELD_TEST_")}
        env.update(self.env)
        self.process = subprocess.Popen(self.args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=env,
                                        stderr=subprocess.PIPE, bufsize=0)
        found = self.wait_log(r"listening at http://127\.0\.0\.1:(\d+)")
        self.port = int(found.group(1))
        if self.wait:
            self.wait_log(r"ready at http://127\.0\.0\.1:%d\n" % self.port)
        return self

    def wait_log(self, pattern, seconds=60):
        """Read the log until the pattern is in it."""
        end = time.monotonic() + seconds * SLACK
        while not re.search(pattern, self.log):
            left = end - time.monotonic()
            assert left > 0 and select.select([self.process.stderr], [], [], left)[0], "no %r in %r" % (pattern, self.log)
            more = os.read(self.process.stderr.fileno(), 65536).decode("utf-8", "replace")
            assert more, "it ended: %r" % self.log
            self.log += more
        return re.search(pattern, self.log)

    def end(self, number=signal.SIGTERM, within=5):
        """Returns (exit status, seconds it took)."""
        started = time.monotonic()
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=within * SLACK)
        self.log += err.decode("utf-8", "replace")
        assert out == b"", "nothing belongs on standard output: %r" % out[:200]
        return self.process.returncode, time.monotonic() - started

    def __exit__(self, kind, value, trace):
        if self.process.poll() is None and kind is None:
            code, _ = self.end()
            assert code == 0, "it ended with %d: %s" % (code, self.log[-500:])
        elif self.process.poll() is None:
            self.process.kill()
            self.process.wait()
            print(self.log[-2000:], file=sys.stderr)
