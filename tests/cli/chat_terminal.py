"""`modeld chat`: in a terminal (a pty, whose Ctrl-C and Ctrl-D are real), in a pipe, and without a model."""
import fcntl
import os
import pty
import re
import select
import shutil
import subprocess
import termios
import time

from libcli import EXACT, FOLDER, MODELD, SLACK, case, environment, exact_tokens, main, modeld, refused, run_json

CTRL_C, CTRL_D = b"\x03", b"\x04"


class Terminal:
    """A program in a terminal of its own."""

    def __init__(self, *args, env=None):
        self.args, self.env = [MODELD] + [str(a) for a in args], environment(env)

    def __enter__(self):
        self.parent, child = pty.openpty()

        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        self.process = subprocess.Popen(self.args, stdin=child, stdout=child, stderr=child, env=self.env,
                                        preexec_fn=own_terminal)
        os.close(child)
        self.seen = ""
        return self

    def __exit__(self, *why):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.parent)

    def read(self, seconds):
        """False at the end of all output; True, perhaps without any news, before."""
        if not select.select([self.parent], [], [], seconds)[0]:
            return True
        try:
            more = os.read(self.parent, 65536)
        except OSError:  # EIO: the other side is closed
            return False
        self.seen += more.decode("utf-8", "replace")
        return True

    def until(self, pattern, seconds=20):
        """Read until the pattern comes; what was read up to its end is returned and forgotten."""
        end = time.monotonic() + seconds * SLACK
        while True:
            found = re.search(pattern, self.seen, re.S)
            if found:
                text, self.seen = self.seen[:found.end()], self.seen[found.end():]
                return text
            left = end - time.monotonic()
            assert left > 0 and self.read(left), "no %r in %r" % (pattern, self.seen[-600:])

    def type(self, data):
        os.write(self.parent, data if isinstance(data, bytes) else data.encode())

    def ask(self, text):
        """A line and all that comes until the next prompt."""
        self.type(text + "\n")
        return self.until(r"\n> $")

    def ended(self, seconds=10):
        end = time.monotonic() + seconds * SLACK
        while self.read(0.5):
            assert time.monotonic() < end, "it does not end: %r" % self.seen[-300:]
        return self.process.wait(seconds * SLACK)


def chat(*args, **more):
    return Terminal("chat", "-m", EXACT, "--temp", "0", *args, **more)


@case
def questions_and_answers():
    with chat("-n", "12") as t:
        assert t.until("> ") == "> "
        answer = t.ask("hi there")
        want = run_json("-p", "hi there", "-n", "12")[0]
        assert "length; %d prompt tokens: 0 reused" % want["prompt_tokens"] in answer, answer
        # control characters of the answer may be changed by the terminal, words are not
        words = re.findall(r"[A-Za-z0-9]{2,}", want["text"])
        assert words and all(w in answer for w in words), (answer, want["text"])
        again = t.ask("and more")
        reused = int(re.search(r"(\d+) reused", again).group(1))
        assert reused >= want["prompt_tokens"], again
        t.type("/exit\n")
        assert t.ended() == 0


@case
def context_shows_the_map():
    with chat("-n", "4", "--hot", "512", "-c", "4096") as t:
        t.until("> ")
        empty = t.ask("/context")
        assert "0 of 4096 tokens: 0 hot (limit 512, 0.0 MB), 0 cold, 0 lost" in empty, empty
        for i in range(6):
            t.ask("x" * 200)
        shown = t.ask("/context")
        figures = re.search(r"(\d+) of 4096 tokens: (\d+) hot \(limit 512, [\d.]+ MB\), (\d+) cold, (\d+) lost; the cold "
                            r"store holds ([\d.]+) of", shown)
        assert figures, shown
        tape, hot, cold, lost = (int(n) for n in figures.groups()[:4])
        assert tape == hot + cold and lost == 0 and hot <= 512 and cold > 256 and float(figures.group(5)) > 0, shown
        blocks = "".join(re.findall(r"^ +\d+ ([#.x]+)\r?$", shown, re.M))
        assert len(blocks) == -(-tape // 64), (blocks, tape)
        assert blocks[0] == "#" and blocks[-1] == "#" and "." in blocks and "x" not in blocks, blocks
        assert "one sign is 64 tokens" in shown


@case
def clear_forgets_but_for_the_system_message():
    system = ("-sys", "be brief")
    want = exact_tokens("system: be brief\nuser: one\nassistant: ")
    with chat("-n", "4", *system) as t:
        t.until("> ")
        for _ in range(2):
            assert "; %d prompt tokens" % want in t.ask("one")
            more = t.ask("two")
            assert int(re.search(r"; (\d+) prompt tokens", more).group(1)) > want
            assert "\n" not in t.ask("/clear").replace("/clear\r\n", "").strip("> \r\n")


@case
def help_and_commands_that_are_none():
    with chat("-n", "2") as t:
        t.until("> ")
        text = t.ask("/help")
        assert all(word in text for word in ("/context", "/clear", "/exit", "Ctrl-C")), text
        assert "'/contxt' is not a command" in t.ask("/contxt")
        assert "prompt tokens" not in t.ask(""), "an empty line asks nothing"


@case
def ctrl_c_stops_the_answer():
    with chat("-c", "200000") as t:
        t.until("> ")
        t.type("x\n")
        t.until(r"x\r\n.{40}")
        started = time.monotonic()
        t.type(CTRL_C)
        stopped = t.until(r"\n> $")
        assert "[cancelled; " in stopped or "[stop; " in stopped, stopped[-300:]
        assert "[cancelled; " in stopped, "this answer does not end by itself: %s" % stopped[-300:]
        assert time.monotonic() - started < 3 * SLACK
        context = t.ask("/context")
        assert int(re.search(r"(\d+) of \d+ tokens", context).group(1)) > exact_tokens("user: x\nassistant: ") + 20
        t.type(CTRL_D)
        assert t.ended() == 0


@case
def ctrl_c_stops_the_prefill():
    """A question stopped before it got a word is forgotten, like one that was never asked."""
    with chat("-b", "8", "--hot", "8192") as t:
        t.until("> ")
        t.type("y" * 4000 + "\n")  # a line of a terminal has at most 4,095 bytes
        t.until(r"yyy\r\n")
        time.sleep(0.2)  # Ctrl-C throws away what the program has not read yet
        t.type(CTRL_C)
        stopped = t.until(r"\n> $")
        assert "[cancelled; " in stopped, stopped
        t.type("hi\n")
        t.until(r"hi\r\n.{10}")
        t.type(CTRL_C)
        asked = int(re.search(r"; (\d+) prompt tokens", t.until(r"\n> $")).group(1))
        assert asked == exact_tokens("user: hi\nassistant: "), asked


@case
def ctrl_c_at_the_prompt_gives_a_new_one():
    with chat("-n", "2") as t:
        t.until("> ")
        time.sleep(0.2)  # until it waits for a line
        t.type(CTRL_C)
        t.until(r"\n> $")
        assert t.process.poll() is None
        assert "prompt tokens" in t.ask("hi")


@case
def ctrl_d_ends():
    with chat() as t:
        t.until("> ")
        t.type(CTRL_D)
        assert t.ended() == 0


@case
def a_question_that_does_not_fit_is_forgotten():
    with chat("-n", "2", "-c", "256") as t:
        t.until("> ")
        first = int(re.search(r"; (\d+) prompt tokens", t.ask("one")).group(1))
        refusal = t.ask("x" * 400)
        assert "modeld chat: " in refusal and "256" in refusal, refusal
        after = t.ask("two")
        tokens = int(re.search(r"; (\d+) prompt tokens", after).group(1))
        assert first < tokens < first + 100, after


@case
def in_a_pipe_only_answers_are_written():
    r = modeld("chat", "-m", EXACT, "--temp", "0", "-n", "6", stdin=b"hi\n\nhi\n")
    want = run_json("-p", "hi", "-n", "6")[0]["text"].encode()
    assert r.code == 0 and r.err == "" and r.out.startswith(want + b"\n"), r
    assert b"\x1b[" not in r.out and not r.out.startswith(b"> ")
    r = modeld("chat", "-m", EXACT, "--temp", "0", "-n", "6", stdin=b"hi")  # no line end
    assert r.code == 0 and r.out == want + b"\n", r


@case
def a_disk_that_is_full_ends_it():
    with open("/dev/full", "wb") as full:
        r = modeld("chat", "-m", EXACT, "-n", "6", stdin=b"hi\nhi\n", stdout=full)
    assert r.code == 1 and r.err == "modeld chat: write standard output: No space left on device\n", r


@case
def progress_is_for_terminals():
    """A long prefill: one line that is rewritten, and wiped before the answer."""
    text = "y" * 16000
    path = os.path.join(FOLDER, "long.txt")
    with open(path, "w") as f:
        f.write(text)
    args = ("run", "-m", EXACT, "-f", path, "-n", "2", "--temp", "0", "--hot", "1024", "-b", "64")
    r = modeld(*args)
    assert r.code == 0 and r.err == "" and b"prefill" not in r.out, r
    with Terminal(*args) as t:
        assert t.ended(60) == 0
        lines = re.findall(r"\r\x1b\[Kprefill (\d+) / (\d+) tokens \((\d+) reused\), (\d+) tokens/s, (\d+) s left", t.seen)
        assert len(lines) >= 2, t.seen[-300:]
        assert {int(line[1]) for line in lines} == {len(text) + exact_tokens("user: \nassistant: ")}, lines[0]
        done = [int(line[0]) for line in lines]
        assert done == sorted(done) and done[0] < done[-1]
        assert not re.search(r"left[^\r\n]*[^\r]*$", t.seen.split("\r\x1b[K")[-1]), "the line is wiped"


def copy_program(folder):
    """The program somewhere else than in its checkout, whose models it would find."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "modeld")
    shutil.copy(MODELD, path)
    return path


@case
def without_a_model():
    alone = copy_program(os.path.join(FOLDER, "elsewhere"))
    data = os.path.join(FOLDER, "xdg")
    env = environment({"XDG_DATA_HOME": data})

    def listing(*args, **more):
        p = subprocess.run([alone, "chat", *args], stdin=subprocess.DEVNULL, capture_output=True, timeout=30,
                           env=dict(env, **more))
        assert p.returncode == 1 and p.stdout == b"", p
        return p.stderr.decode()
    none = listing()
    assert "no model found" in none and "'%s/modeld/models'" % data in none and "tools/setup.sh model smollm2" in none, none
    os.makedirs(data + "/modeld/models/folder.gguf")
    for name in ("b.gguf", "a.gguf"):
        os.symlink(EXACT, data + "/modeld/models/" + name)
    open(data + "/modeld/models/notes.txt", "w").close()
    some = listing()
    assert re.findall(r"^  (\S+) +[\d.]+ MB  (\S+)$", some, re.M) == [
        (n, "%s/modeld/models/%s.gguf" % (data, n)) for n in ("a", "b")], some
    root = os.path.join(FOLDER, "other-root")
    assert "'%s/models'" % root in listing("--data-root", root), "--data-root wins"
    home = listing(XDG_DATA_HOME="relative", HOME="/nowhere")
    assert "'/nowhere/.local/share/modeld/models'" in home, "a relative XDG_DATA_HOME is ignored: %s" % home


@case
def a_model_by_its_name():
    root = os.path.join(FOLDER, "named")
    os.makedirs(root + "/models")
    os.symlink(EXACT, root + "/models/tiny.gguf")
    r = modeld("chat", "--data-root", root, "-m", "tiny", "-n", "1", stdin=b"hi\n")
    assert r.code == 0 and r.err == "", r
    refused(modeld("chat", "--data-root", root, "-m", "huge"), 1, "no model 'huge'", root + "/models")


main()
