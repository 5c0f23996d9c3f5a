"""A daemon on SmolLM2 with a disk tier that is killed: what the next one has, against one that was not killed and has none."""
# slow
import atexit
import json
import os
import shutil
import signal
import struct
import subprocess
import tempfile

from libdaemon import MODELD, Daemon
from libwire import CHAT, SLACK, case, main, parse_events

MODEL = os.path.abspath(os.environ.get("MODELD_TEST_MODEL", ".deps/models/smollm2.gguf"))
ENDS = {"2": -100, "0": -100}  # the end tokens cannot come: each answer has as many tokens as it may
BLOCK = 64
ANSWER = 8
TURNS = ["My name is Quillfeather, and I keep %s." % what for what in
         ("seven goats", "a lighthouse", "old maps", "bees", "a small shop", "three boats", "letters", "a diary", "two cats",
          "silence")] + ["What is my name?", "And what do I keep?"]
KILLED = 10  # turns before the kill

FOLDER = tempfile.mkdtemp(prefix="modeld-restart-")
atexit.register(shutil.rmtree, FOLDER, True)
KV = FOLDER + "/kv"


def world(name):
    """Empty XDG folders, and a TMPDIR, of one daemon."""
    kinds = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "TMPDIR", "HOME")
    env = {kind: os.path.join(FOLDER, name, kind) for kind in kinds}
    for path in env.values():
        os.makedirs(path, 0o700, exist_ok=True)
    return env


def smollm(name, *args):
    return Daemon(MODEL, "-t", "1", "-c", "1024", "--hot", "1024", "--block-tokens", BLOCK, *args, env=world(name))


def kept(*args):
    return smollm("kept", "--kv-dir", KV, "--kv-disk", "200MiB", *args)


def ask(messages):
    return {"messages": messages, "max_tokens": ANSWER, "temperature": 0, "seed": 1, "logit_bias": ENDS}


class Talk:
    """One chat; figures[i] is what the daemon said of turn i."""

    def __init__(self):
        self.messages, self.answers, self.figures = [], [], []

    def say(self, d):
        self.messages.append({"role": "user", "content": TURNS[len(self.answers)]})
        status, whole = d.post(CHAT, ask(self.messages), timeout=60 * SLACK)
        assert status == 200, whole
        self.hear(whole["choices"][0]["message"]["content"], whole)
        return whole

    def say_and_kill(self, d):
        """SIGKILL as soon as the last event is here."""
        self.messages.append({"role": "user", "content": TURNS[len(self.answers)]})
        s = d.raw_post(CHAT, dict(ask(self.messages), stream=True, stream_options={"include_usage": True}))
        s.settimeout(60 * SLACK)
        got = b""
        while b"data: [DONE]" not in got:
            more = s.recv(65536)
            assert more, "closed after %r" % got[-200:]
            got += more
        d.process.send_signal(signal.SIGKILL)
        d.process.communicate()
        s.close()
        # chunks of HTTP stand between the events
        lines = [line for line in got.split(b"\r\n") if b"data: " in line]
        events = parse_events(b"".join(lines))
        text = "".join(c["delta"].get("content") or "" for e in events for c in e["choices"])
        figures = {name: e[name] for e in events for name in ("usage", "modeld") if e.get(name)}
        self.hear(text, figures)

    def hear(self, text, figures):
        self.messages.append({"role": "assistant", "content": text})
        self.answers.append(text)
        self.figures.append(figures)


def prefilled(whole):
    usage = whole["usage"]
    return usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]


def files(folder):
    return [os.path.join(top, name) for top, _, names in os.walk(folder) for name in names]


STORY = {}


def never_killed():
    """The same turns to a daemon without a disk tier."""
    if "plain" not in STORY:
        talk = Talk()
        with smollm("plain") as d:
            for _ in TURNS:
                talk.say(d)
            STORY["plain status"] = d.status()
        STORY["plain"] = talk
    return STORY["plain"]


def killed():
    """Ten turns, and then the kill; nothing runs when this returns."""
    if "kept" not in STORY:
        talk = Talk()
        with kept() as d:
            for _ in range(KILLED - 1):
                talk.say(d)
            talk.say_and_kill(d)
        STORY["kept"] = talk
    return STORY["kept"]


def status_text(d):
    env = dict(os.environ, MODELD_CONNECT="http://127.0.0.1:%d" % d.port)
    p = subprocess.run([MODELD, "status"], env=env, capture_output=True, timeout=30 * SLACK)
    assert p.returncode == 0, p
    return p.stdout.decode()


@case
def ten_turns_a_kill_and_one_more():
    want, talk = never_killed(), killed()
    assert talk.answers == want.answers[:KILLED], (talk.answers, want.answers)
    for got in talk.figures:
        usage = got["usage"]  # all but the last token that was sampled, which is evaluated by the next turn
        assert got["modeld"]["durable_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] - 1, got
    with kept() as d:
        (session,) = d.sessions()
        before = talk.figures[KILLED - 1]["usage"]
        assert session["tape_tokens"] == before["prompt_tokens"] + before["completion_tokens"] - 1, (session, before)
        assert session["cold_tokens"] == session["durable_tokens"] == session["tape_tokens"], session
        status = d.status()
        assert status["disk"]["tokens"] >= session["tape_tokens"] and status["disk"]["blocks"] > 0, status["disk"]
        assert status["disk"]["budget_bytes"] == 200 << 20, status["disk"]
        assert any(line.startswith("disk") for line in status_text(d).splitlines()), status_text(d)
        the_folder_is_refused_to_another(d)
        got, same = talk.say(d), want.figures[KILLED]
        assert talk.answers[KILLED] == want.answers[KILLED], (talk.answers[KILLED], want.answers[KILLED])
        assert prefilled(got) == prefilled(same) < BLOCK, (got["usage"], same["usage"])
        assert got["modeld"]["restored_tokens"] == session["tape_tokens"], got["modeld"]
        assert got["modeld"]["recomputed_tokens"] == got["modeld"]["lost_tokens"] == 0, got["modeld"]
        assert got["modeld"]["durable_tokens"] == got["usage"]["prompt_tokens"] + ANSWER - 1, got
        d.process.kill()
        d.process.communicate()


def the_folder_is_refused_to_another(d):
    p = subprocess.run([MODELD, "serve", "-m", MODEL, "--port", "0", "-t", "1", "-c", "1024", "--hot", "1024", "--kv-dir", KV],
                       env=dict(os.environ, **world("second")), capture_output=True, timeout=60 * SLACK)
    last = p.stderr.decode().strip().splitlines()[-1]
    assert p.returncode not in (0, -signal.SIGABRT) and "--kv-dir" in last and "another modeld" in last and KV in last, p
    assert d.get("/health")[0] == 200


@case
def a_damaged_block_costs_its_own_computation():
    want, talk = never_killed(), killed()
    if len(talk.answers) == KILLED:
        ten_turns_a_kill_and_one_more()
    blocks = sorted((p for p in files(KV) if os.path.basename(p).startswith("b-")), key=os.path.getsize)
    path = blocks[-2]  # a whole one
    with open(path, "r+b") as f:
        f.seek(os.path.getsize(path) // 2)
        byte = f.read(1)
        f.seek(-1, os.SEEK_CUR)
        f.write(bytes([byte[0] ^ 1]))
    with kept() as d:
        got, same = talk.say(d), want.figures[KILLED + 1]
        assert talk.answers[KILLED + 1] == want.answers[KILLED + 1], (talk.answers[-1], want.answers[-1])
        assert prefilled(got) == prefilled(same) + BLOCK, (got["usage"], same["usage"])
        assert got["modeld"]["recomputed_tokens"] == BLOCK and got["modeld"]["lost_tokens"] == 0, got["modeld"]
        assert got["modeld"]["durable_tokens"] == got["usage"]["prompt_tokens"] + ANSWER - 1, got
        code, _ = d.end()
        assert code == 0 and "damaged" in d.log, d.log[-800:]
    with kept() as d:  # and it is whole again
        (session,) = d.sessions()
        assert session["cold_tokens"] == session["tape_tokens"] == got["modeld"]["durable_tokens"], session


def record_tokens(path):
    """The tokens of a conversation's record, as bytes: what follows 48 bytes of counts in its section."""
    data = open(path, "rb").read()
    at = data.index(b"CONV") + 24
    count, = struct.unpack_from("<i", data, at + 32)
    return data[at + 48:at + 48 + 4 * count]


def holds(path, needles):
    data = open(path, "rb").read()
    return [n for n in needles if n in data]


@case
def without_a_folder_nothing_is_written():
    never_killed()
    killed()
    assert STORY["plain status"]["disk"] is None, STORY["plain status"]["disk"]
    (record,) = [p for p in files(KV) if p.endswith(".session")]
    tokens = record_tokens(record)
    assert len(tokens) > 4 * 100
    needles = [b"Quillfeather", b"lighthouse", json.dumps(never_killed().answers[0]).encode()[1:-1]] + \
        [tokens[at:at + 24] for at in range(0, len(tokens) - 24, 40)]
    assert holds(record, needles), "what is looked for would be found"
    for name in ("plain", "kept"):
        for path in files(os.path.join(FOLDER, name)):
            assert not holds(path, needles), path
    assert not [p for p in files(KV) if holds(p, needles[:2])], "tokens are kept, no text"


@case
def kv_disk_without_kv_dir():
    p = subprocess.run([MODELD, "serve", "-m", MODEL, "--port", "0", "-t", "1", "-c", "512", "--kv-disk", "1GiB"],
                       env=dict(os.environ, **world("none")), capture_output=True, timeout=60 * SLACK)
    last = p.stderr.decode().strip().splitlines()[-1]
    assert p.returncode not in (0, -signal.SIGABRT) and "--kv-disk" in last and "--kv-dir" in last, p


main()
