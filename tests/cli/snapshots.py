"""snapshot, restore and snapshots: against the scripted daemon, and against what is no daemon at all."""
import json
import os
import re
import stat
import tempfile
import time

from libcli import EXACT, FOLDER, case, main, modeld, refused, write
from libclients import answering_json, ask, members_are_checked, said, serving
from libdaemon import Daemon
from libwire import COMPLETION

NEVER_ENDS = {"256": -100}
WRITTEN = {"name": "x", "session": 3, "bytes": 5000000, "context_tokens": 251, "kv_tokens": 250}
RESTORED = {"id": 7, "name": "x", "context_tokens": 251, "kv_tokens": 250}
LISTED = {"folder": "/f", "snapshots": [{"name": "x", "bytes": 5000000, "modified_seconds": 1.5},
                                        {"name": "y", "bytes": 0, "modified_seconds": 1e12}]}


def keeping(folder=None, **more):
    """The daemon, and the folder of its snapshots."""
    folder = folder or os.path.join(tempfile.mkdtemp(dir=FOLDER), "snapshots")
    return serving(snapshots=folder, **more), folder


def fill(server, tokens=600):
    status, got = server.post(COMPLETION, {"prompt": [i % 256 for i in range(tokens)], "max_tokens": 4, "logit_bias": NEVER_ENDS})
    assert status == 200, got
    return got["modeld"]["session"]


@case
def there_and_back():
    server, folder = keeping()
    with server:
        assert said(ask(server, "snapshots")).split() == ["MB", "AGE", "NAME"], "there is none yet"
        session = fill(server)
        line = said(ask(server, "snapshot", session, "my work"))
        bytes_ = os.path.getsize(os.path.join(folder, "my work"))
        assert line == "my work: 604 tokens, KV of 603, %.1f MB\n" % (bytes_ / 1e6), line
        got = json.loads(said(ask(server, "snapshot", session, "b", "--json")))
        assert (got["name"], got["session"], got["context_tokens"], got["kv_tokens"]) == ("b", session, 604, 603), got
        rows = said(ask(server, "snapshots")).splitlines()
        assert [row.split(maxsplit=2)[2] for row in rows] == ["NAME", "b", "my work"], rows
        assert re.fullmatch(r" *%.1f +[01]s  b" % (got["bytes"] / 1e6), rows[1]), rows
        assert json.loads(said(ask(server, "snapshots", "--json"))) == server.get("/api/snapshots")[1]
        assert said(ask(server, "restore", "my work")) == "%d\n" % (session + 1)
        assert said(ask(server, "restore", "--session", session, "b")) == "%d\n" % session
        assert said(ask(server, "restore", "b", "--session=%d" % session)) == "%d\n" % session
        assert json.loads(said(ask(server, "restore", "b", "--json"))) == {"id": session + 2, "name": "b", "context_tokens": 604,
                                                                           "kv_tokens": 603}
        assert [s["context_tokens"] for s in server.sessions()] == [604] * 3
        refused(ask(server, "restore", "c"), 1, "there is no snapshot 'c' (`modeld snapshots` lists them)")
        refused(ask(server, "restore", "b", "--session", 99), 1, "no session 99", "modeld ps")
        refused(ask(server, "snapshot", 99, "c"), 1, "no session 99", "modeld ps")
        with open(os.path.join(folder, "c"), "wb") as f:
            f.write(b"hello")
        refused(ask(server, "restore", "c"), 1, "c'")
        assert len(server.sessions()) == 3


@case
def of_another_engine():
    """One line that says what to ask for; then ps and explain say that nothing of it is computed, until it is."""
    server, folder = keeping(engine="one")
    with server:
        said(ask(server, "snapshot", fill(server), "x"))
    server, _ = keeping(folder, engine="two")
    with server:
        r = ask(server, "restore", "x")
        refused(r, 1, "one with f32/f32 KV", "two with f32/f32 KV", "--tokens-only")
        assert server.sessions() == []
        session = int(said(ask(server, "restore", "x", "--tokens-only")))
        row = said(ask(server, "ps")).splitlines()[1]
        assert row.split()[:6] == [str(session), "604", "0", "0", "603", "0"] and row.endswith("tokens only"), row
        text = said(ask(server, "explain", session))
        assert "tokens only, idle for" in text and "the next call computes it" in text and "lost 603" in text, text
        got = json.loads(said(ask(server, "restore", "--tokens-only", "x", "--json", "--session", session)))
        assert (got["id"], got["context_tokens"], got["kv_tokens"]) == (session, 604, 0), got
        assert fill(server) == session, "it is found by its text"
        row = said(ask(server, "ps")).splitlines()[1]
        assert row.split()[4] == "0" and row.endswith("idle") and "tokens only" not in said(ask(server, "explain", session)), row


@case
def names():
    """Any name that the daemon takes: those that begin with '-' behind "--"; others never leave this program."""
    server, folder = keeping()
    with server:
        session, address = fill(server, 100), "http://127.0.0.1:%d" % server.port
        for name in ("-rf", "--json", " x ", "CON", '"', "--", "über", "-"):
            said(modeld("snapshot", "--connect", address, "--", session, name))
            assert os.path.isfile(os.path.join(folder, name)), name
            said(modeld("restore", "--connect", address, "--", name))
        before = sorted(os.listdir(folder))
        for args in (["snapshot", session], ["restore"]):
            for name, says in (("../x", "'.'"), ("a/b", "'/'"), ("a\\b", "'\\'"), ("", "empty"), (".", "'.'"), ("..", "'.'"),
                               ("a" * 300, "300 bytes"), ("a\nb", "control"), (b"a\xffb", "UTF-8")):
                refused(modeld(*args, os.fsdecode(name) if isinstance(name, bytes) else name), 2, "name", says)
        assert sorted(os.listdir(folder)) == before


@case
def where_they_are():
    """DATA_ROOT/snapshots, or modeld/snapshots in the state folder of XDG, or what --snapshots says."""
    root = tempfile.mkdtemp(dir=FOLDER)
    prompt = {"prompt": "a b" * 20, "max_tokens": 4, "temperature": 0}
    small = ["-t", "1", "-c", "512", "--hot", "512"]
    for flags, state, want in ((["--snapshots", root + "/s"], root, root + "/s"), (["--data-root", root + "/d"], root, root + "/d/snapshots"),
                               ([], root + "/state", root + "/state/modeld/snapshots")):
        for turn in range(2):  # the second daemon finds what the first one wrote
            with Daemon(EXACT, *small, *flags, env={"XDG_STATE_HOME": state}) as daemon:
                assert daemon.get("/api/snapshots")[1]["folder"] == want
                if turn == 0:
                    assert not os.path.exists(want), "none is made before there is something for it"
                    first = daemon.post(COMPLETION, prompt)[1]
                    said(ask(daemon, "snapshot", first["modeld"]["session"], "s"))
                    assert stat.S_IMODE(os.stat(want).st_mode) == 0o700 and os.listdir(want) == ["s"]
                    again = daemon.post(COMPLETION, prompt)[1]
                    assert again["choices"][0]["text"] == first["choices"][0]["text"]
                else:
                    restored = int(said(ask(daemon, "restore", "s")))
                    answer = daemon.post(COMPLETION, prompt)[1]
                    assert answer["modeld"]["session"] == restored and answer["choices"] == again["choices"], answer
                    assert answer["usage"] == again["usage"], (answer, again)
    for place, says in ((write("file", b""), "is not a folder"), (write("file", b"") + "/x", "Not a directory"), ("", "1 to 4095 bytes"),
                        ("/" + "d" * 5000, "1 to 4095 bytes, not 5001")):
        r = modeld("serve", "-m", EXACT, "--port", 0, "--snapshots", place)
        assert r.code == 1 and "--snapshots" in r.err and says in r.err, r


@case
def a_member_of_another_type_is_no_answer_of_modeld():
    for args, what in ((["snapshot", 3, "x"], WRITTEN), (["restore", "x"], RESTORED), (["snapshots"], LISTED)):
        members_are_checked(args, what)


@case
def what_is_shown():
    evil = dict(LISTED, snapshots=[{"name": "a\x1b[2J\nb", "bytes": 2**63 - 1, "modified_seconds": 0},
                                   {"name": "soon", "bytes": 1, "modified_seconds": time.time() + 1e6},
                                   {"name": "d", "bytes": 0, "modified_seconds": time.time() - 3 * 86400}])
    with answering_json(evil) as address:
        text = said(modeld("snapshots", "--connect", address))
        lines = text.splitlines()
        assert len(lines) == 4 and "\x1b" not in text, lines
        assert lines[2].split() == ["0.0", "0s", "soon"] and lines[3].split() == ["0.0", "3d", "d"], lines
    with answering_json(dict(WRITTEN, name="x\x1b[2J")) as address:
        assert "\x1b" not in said(modeld("snapshot", 3, "x", "--connect", address))


@case
def usage():
    for args, says in ((["snapshot"], "modeld ps"), (["snapshot", "1"], "under which name?"), (["snapshot", "x", "1"], "'x'"),
                       (["snapshot", "0", "x"], "'0'"), (["snapshot", "1", "x", "y"], "unexpected argument 'y'"),
                       (["snapshot", "1", "-x"], "-x"), (["snapshot", "1", "x", "--session", "1"], "--session"),
                       (["snapshot", "1", "x", "--at", "5"], "--at"), (["restore"], "modeld snapshots"),
                       (["restore", "x", "y"], "unexpected argument 'y'"), (["restore", "x", "--session"], "needs a value"),
                       (["restore", "x", "--session", "0"], "'0'"), (["restore", "x", "--session=y"], "'y'"),
                       (["restore", "-rf"], "-rf"), (["restore", "x", "--tokens-only=1"], "--tokens-only"),
                       (["snapshot", "1", "x", "--tokens-only"], "--tokens-only"), (["snapshots", "--tokens-only"], "--tokens-only"), (["restore", "x", "--map"], "--map"), (["snapshots", "x"], "unexpected argument 'x'"),
                       (["snapshots", "--", "-x"], "unexpected argument '-x'"), (["branch", "--session", "1", "2"], "--session"),
                       (["close", "--", "-1"], "'-1'")):
        refused(modeld(*args), 2, says)
    for verb in ("snapshot", "restore", "snapshots"):
        for flag in ("-h", "--help"):
            assert said(modeld(verb, flag)).startswith("usage: modeld %s " % verb), verb
        assert "\n  %s " % verb in said(modeld("-h")), verb
    assert "--tokens-only" in said(modeld("restore", "-h")) and "--tokens-only" not in said(modeld("snapshot", "-h"))
    assert "--session ID" in said(modeld("restore", "-h")) and "--session" not in said(modeld("snapshot", "-h"))
    for args in (["snapshot", "1", "x"], ["restore", "x"], ["snapshots"]):
        refused(modeld(*args, "--connect", "http://127.0.0.1:1"), 1, "nobody listens at http://127.0.0.1:1")


main()
