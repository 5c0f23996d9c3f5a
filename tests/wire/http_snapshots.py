"""Snapshots over HTTP: written, listed, restored, removed; names (B058), and what is refused.

The shapes are those of docs/sessions.md.  The scripted tokenizer makes a token of each byte, and the fake engine's KV is
that of its tokens and places, so that what was restored wrongly is not found again, or answers otherwise."""
import json
import os
import resource
import shutil
import stat
import tempfile
import threading
import time

from libwire import CHAT, COMPLETION, JSON, SLACK, Server, case, check_error, main, user

NEVER_ENDS = {"256": -100}  # the end token is banned, so that max_tokens decides
PROMPT = [i * 7 % 256 for i in range(1000)]
ASK = {"prompt": PROMPT, "max_tokens": 4, "logit_bias": NEVER_ENDS}
LIST, RESTORE, REMOVE = "/api/snapshots", "/api/snapshots/restore", "/api/snapshots/remove"


class Folder:
    """The folder of the snapshots, in one that can be looked at for what was put beside it."""

    def __enter__(self):
        self.outside = tempfile.mkdtemp(prefix="modeld-snapshots-")
        self.path = os.path.join(self.outside, "state", "snapshots")
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.outside, True)

    def file(self, name):
        return os.path.join(self.path, name)

    def everything(self):
        """Each path within `outside`, and the size of files."""
        found = {}
        for folder, folders, files in os.walk(self.outside):
            for name in folders + files:
                path = os.path.join(folder, name)
                found[os.path.relpath(path, self.outside)] = None if name in folders else os.lstat(path).st_size
        return found


def serving(folder, **more):
    return Server(["x", "y"], **dict({"window": 4096, "hot": 512, "block": 64, "snapshots": folder.path}, **more))


def ask(server, session=None, **more):
    status, got = server.post(COMPLETION, dict(ASK, **({} if session is None else {"modeld": {"session": session}}), **more))
    assert status == 200, got
    return got


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def listed(server):
    status, got = server.get(LIST)
    assert status == 200 and set(got) == {"folder", "snapshots"}, got
    for s in got["snapshots"]:
        assert set(s) == {"name", "bytes", "modified_seconds"}, s
    return got


def names(server):
    return [s["name"] for s in listed(server)["snapshots"]]


def refused(server, path, body, status, param=None, says=()):
    """The body is an object, or the bytes of one."""
    got = server.post(path, body if isinstance(body, bytes) else json.dumps(body).encode())
    return check_error(got, status, param, says=says)


@case
def written_listed_restored_removed():
    with Folder() as folder:
        with serving(folder) as server:
            assert listed(server) == {"folder": folder.path, "snapshots": []}
            session = ask(server)["modeld"]["session"]
            refused(server, RESTORE, {"name": "no"}, 404, "name", ["there is no snapshot 'no': GET /api/snapshots lists"])
            refused(server, REMOVE, {"name": "no"}, 404, "name", ["there is no snapshot 'no': GET /api/snapshots lists"])
            assert folder.everything() == {}, "no folder is made before there is something for it"
            before = time.time()
            status, got = server.post(LIST, {"session": session, "name": "work"})
            assert status == 200 and set(got) == {"name", "session", "bytes", "context_tokens", "kv_tokens"}, got
            # 1000 of the prompt, 4 sampled, and the last of them is not evaluated
            assert (got["name"], got["session"], got["context_tokens"], got["kv_tokens"]) == ("work", session, 1004, 1003), got
            assert stat.S_IMODE(os.stat(folder.path).st_mode) == 0o700
            assert stat.S_IMODE(os.stat(folder.file("work")).st_mode) == 0o600
            assert got["bytes"] == os.path.getsize(folder.file("work")), got
            (one,) = listed(server)["snapshots"]
            assert (one["name"], one["bytes"]) == ("work", got["bytes"]), one
            assert before - 2 < one["modified_seconds"] < time.time() + 2, one
            assert server.request("HEAD", LIST)[0] == 200
        with serving(folder) as server:  # another process, which knows nothing but the file
            status, got = server.post(RESTORE, {"name": "work"})
            assert status == 200 and set(got) == {"id", "name", "context_tokens", "kv_tokens"}, got
            assert (got["name"], got["context_tokens"], got["kv_tokens"]) == ("work", 1004, 1003), got
            (session,) = server.sessions()
            assert (session["id"], session["context_tokens"], session["lost_tokens"]) == (got["id"], 1004, 0), session
            answer = ask(server, got["id"])
            assert answer["choices"][0]["text"] == "xyxy" and cached(answer) == 999, "the last token is evaluated again: %s" % answer
            assert answer["modeld"]["recomputed_tokens"] == answer["modeld"]["dropped_tokens"] == 0, answer["modeld"]
            assert server.call("POST", REMOVE, {"name": "work"}) == (200, {"name": "work", "removed": True})
            assert names(server) == [] and os.listdir(folder.path) == []
            refused(server, REMOVE, {"name": "work"}, 404, "name", ["no snapshot 'work'"])
            refused(server, RESTORE, {"name": "work"}, 404, "name", ["no snapshot 'work'"])
            assert len(server.sessions()) == 1, "what was not restored opened nothing"


@case
def found_by_its_text():
    """A request without an ID goes on with what was restored."""
    with Folder() as folder:
        with serving(folder) as server:
            session = server.post(CHAT, user("q" * 600))[1]["modeld"]["session"]
            assert server.post(LIST, {"session": session, "name": "chat"})[0] == 200
        with serving(folder) as server:
            restored = server.post(RESTORE, {"name": "chat"})[1]["id"]
            answer = server.post(CHAT, user("q" * 600))[1]
            assert answer["modeld"]["session"] == restored and cached(answer) == answer["usage"]["prompt_tokens"] - 1, answer


@case
def a_client_that_leaves():
    """Its snapshot ends at the next block, with nothing left of it; the conversation and who waits go on at once."""
    with Folder() as folder, serving(folder, hot=4096, export_ms=200) as server:
        session = ask(server)["modeld"]["session"]
        s = server.raw_post(LIST, {"session": session, "name": "half"})  # 16 blocks: 3.2 s
        server.wait_status(lambda t: t["running"] == session, 5)
        end = time.monotonic() + 10 * SLACK
        while not [name for name in folder.everything() if name.endswith(".tmp")]:
            assert time.monotonic() < end, folder.everything()
        s.close()
        took = server.wait_idle(2)
        assert took < 1.6 * SLACK, took
        assert list(folder.everything()) == ["state", "state/snapshots"], folder.everything()
        assert names(server) == []
        answer = ask(server, session)
        assert answer["choices"][0]["text"] == "xyxy" and cached(answer) == 999, answer
        status, got = server.post(LIST, {"session": session, "name": "whole"})
        assert status == 200 and names(server) == ["whole"], got


@case
def into_one_that_is_open():
    with Folder() as folder, serving(folder) as server:
        first = ask(server)["modeld"]["session"]
        assert server.post(LIST, {"session": first, "name": "x", })[0] == 200
        other = server.post(COMPLETION, dict(ASK, prompt=[200] * 300))[1]["modeld"]["session"]
        assert other != first
        status, got = server.post(RESTORE, {"name": "x", "session": other})
        assert status == 200 and got["id"] == other, got
        assert [s["context_tokens"] for s in server.sessions()] == [1004, 1004], server.sessions()
        answer = ask(server, other)
        assert answer["choices"][0]["text"] == "xyxy" and cached(answer) == 999, answer
        refused(server, RESTORE, {"name": "x", "session": 99}, 404, "session", ["there is no session 99: GET /api/sessions lists"])
        refused(server, LIST, {"name": "y", "session": 99}, 404, "session", ["there is no session 99: GET /api/sessions lists"])
        assert names(server) == ["x"]
        # an empty one, and one in the place of another
        empty = server.call("POST", "/api/sessions", {})[1]["id"]
        status, got = server.post(LIST, {"session": empty, "name": "x"})
        assert status == 200 and (got["context_tokens"], got["kv_tokens"]) == (0, 0), got
        assert listed(server)["snapshots"] == [dict(listed(server)["snapshots"][0], name="x", bytes=got["bytes"])]
        status, got = server.post(RESTORE, {"name": "x", "session": None})  # null is as if it were not there
        assert status == 200 and got["id"] not in (first, other, empty) and got["context_tokens"] == 0, got


@case
def b058_names():
    with Folder() as folder, serving(folder) as server:
        session = ask(server)["modeld"]["session"]
        assert server.post(LIST, {"session": session, "name": "good"})[0] == 200
        target = os.path.join(folder.outside, "target")
        with open(target, "wb") as f:
            f.write(open(folder.file("good"), "rb").read())  # it would restore, were it followed
        os.symlink(target, folder.file("good.kv"))
        before = folder.everything()
        for name in ("../x", "a/b", "a\\b", "", ".", "..", "x\0y", "a" * 300, "a" * 201, "/etc/passwd", ".x", "a\nb", "\x85"):
            for path in (LIST, RESTORE, REMOVE):
                body = {"name": name} if path == REMOVE else {"name": name, "session": session}
                error = refused(server, path, body, 400, "name")
                assert "name" in error["message"], error
        assert folder.everything() == before
        for name in ("CON", " x ", "-rf", "a" * 200, "über", '"', "%2e%2e", "\ufffd"):
            status, got = server.post(LIST, {"session": session, "name": name})
            assert status == 200 and got["name"] == name, got
            assert os.path.isfile(os.path.join(os.fsencode(folder.path), name.encode())), name
            status, got = server.post(RESTORE, {"name": name})
            assert status == 200 and got["name"] == name, got
            assert server.call("DELETE", "/api/sessions/%d" % got["id"])[0] == 200
        assert names(server) == sorted(["good", "CON", " x ", "-rf", "a" * 200, "über", '"', "%2e%2e", "\ufffd"], key=str.encode)
        for name in ("CON", " x ", "-rf", "a" * 200, "über", '"', "%2e%2e", "\ufffd"):
            assert server.post(REMOVE, {"name": name}) == (200, {"name": name, "removed": True})
        assert folder.everything() == before
        # the link: not listed, not followed; written over and removed without a touch of what it points to
        refused(server, RESTORE, {"name": "good.kv"}, 400, "name", ["good.kv"])
        assert folder.everything() == before
        assert server.post(LIST, {"session": session, "name": "good.kv"})[0] == 200
        assert os.path.isfile(folder.file("good.kv")) and not os.path.islink(folder.file("good.kv"))
        assert os.path.getsize(target) == before["target"]
        os.unlink(folder.file("good.kv"))
        os.symlink(target, folder.file("good.kv"))
        assert server.post(REMOVE, {"name": "good.kv"})[0] == 200
        assert os.path.getsize(target) == before["target"] and os.listdir(folder.path) == ["good"]
        lone = b'{"session":%d,"name":"a\\ud83d"}' % session  # http.h: U+FFFD, like any lone surrogate
        assert server.post(LIST, lone)[0] == 200 and names(server) == ["a\ufffd", "good"]


@case
def what_lies_in_the_folder():
    """Temporary files and what is no file are left out; what is no snapshot is refused in words, and changes nothing."""
    with Folder() as folder, serving(folder) as server:
        session = ask(server)["modeld"]["session"]
        for name in ("b", "a"):
            assert server.post(LIST, {"session": session, "name": name})[0] == 200
        good = open(folder.file("a"), "rb").read()
        os.mkdir(folder.file("folder"))
        for name, data in ((".a.0123456789abcdef.tmp", b"x"), (".hidden", b"x"), ("text", b"hello"), ("empty", b""),
                           ("cut", good[:-1]), ("more", good + b"\0" * 8)):
            with open(folder.file(name), "wb") as f:
                f.write(data)
        assert names(server) == ["a", "b", "cut", "empty", "more", "text"]
        before = server.get("/api/sessions/%d" % session)[1]
        for name, status in (("text", 500), ("empty", 500), ("cut", 500), ("more", 500), ("folder", 400)):
            error = refused(server, RESTORE, {"name": name}, status)
            assert name in error["message"], error
            refused(server, RESTORE, {"name": name, "session": session}, status)
        after = server.get("/api/sessions/%d" % session)[1]
        same = set(before) - {"idle_seconds"}
        assert {k: before[k] for k in same} == {k: after[k] for k in same} and len(server.sessions()) == 1
        assert cached(ask(server, session)) == 999


@case
def b063_a_disk_that_is_full():
    """A file may not be as large as the snapshot: what had its name stays, whole, and nothing is left beside it."""
    with Folder() as folder, serving(folder) as server:
        small = server.post(COMPLETION, dict(ASK, prompt=[5] * 100))[1]["modeld"]["session"]
        large = ask(server)["modeld"]["session"]
        status, got = server.post(LIST, {"session": small, "name": "k"})
        assert status == 200 and got["context_tokens"] == 104, got
        limit = 2 * got["bytes"]  # 1003 tokens of KV are more
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (limit, limit))
        for name in ("k", "new"):
            refused(server, LIST, {"session": large, "name": name}, 500, says=["no space", name])
        assert os.listdir(folder.path) == ["k"] and names(server) == ["k"]
        assert server.post(RESTORE, {"name": "k"})[1]["context_tokens"] == 104
        assert cached(ask(server, large)) == 999, "and the conversation goes on"


@case
def b065_what_it_does_not_fit():
    with Folder() as folder:
        with serving(folder) as server:
            session = ask(server)["modeld"]["session"]
            assert server.post(LIST, {"session": session, "name": "x"})[0] == 200
        with serving(folder, window=1000) as server:
            error = refused(server, RESTORE, {"name": "x"}, 400, says=["1000"])
            assert error["code"] == "context_length_exceeded", error
            assert server.sessions() == []
        with serving(folder, block=32) as server:
            refused(server, RESTORE, {"name": "x"}, 400, "name", ["64", "32"])
        with serving(folder, window=8192, hot=2048) as server:  # a larger one is accepted
            got = server.post(RESTORE, {"name": "x"})[1]
            answer = ask(server, got["id"])
            assert cached(answer) == 999 and answer["choices"][0]["text"] == "xyxy", answer
        with serving(folder, cold=0) as server:  # no room for the KV: the text comes back, and the figures say so
            status, got = server.post(RESTORE, {"name": "x"})
            assert status == 200 and (got["context_tokens"], got["kv_tokens"]) == (1004, 0), got
            assert ask(server, got["id"])["choices"][0]["text"] == "xyxy"


@case
def of_another_engine():
    """Refused with nothing changed; its tokens alone come back, and all of them are computed."""
    with Folder() as folder:
        with serving(folder, engine="one") as server:
            session = ask(server)["modeld"]["session"]
            assert server.post(LIST, {"session": session, "name": "x"})[0] == 200
        with serving(folder, engine="two", window=4096, hot=2048, kv_dir=os.path.join(folder.outside, "kv")) as server:
            mine = server.call("POST", "/api/sessions", {})[1]["id"]
            for body in ({"name": "x"}, {"name": "x", "session": mine}, {"name": "x", "tokens_only": False}):
                error = refused(server, RESTORE, body, 400, "name", ["one with f32/f32 KV", "two with f32/f32 KV", '"tokens_only": true'])
                assert "\n" not in error["message"], error
            (before,) = server.sessions()
            assert (before["context_tokens"], before["tokens_only"]) == (0, False), before
            for body in ({"name": "x", "tokens_only": True}, {"name": "x", "session": mine, "tokens_only": True}):
                status, got = server.post(RESTORE, body)
                assert status == 200 and (got["context_tokens"], got["kv_tokens"]) == (1004, 0), got
                s = server.get("/api/sessions/%d" % got["id"])[1]
                assert (s["tokens_only"], s["tape_tokens"], s["lost_tokens"], s["hot_tokens"], s["cold_tokens"]) == (True, 1003, 1003, 0, 0), s
                assert set(s["map"]["state"]) == {"x"} and sum(s["provenance_tokens"].values()) == 0, s
            session = server.post(RESTORE, {"name": "x", "tokens_only": True})[1]["id"]
            answer = ask(server, session)
            assert answer["choices"][0]["text"] == "xyxy" and cached(answer) == 0, answer
            assert answer["modeld"]["lost_tokens"] == answer["modeld"]["restored_tokens"] == answer["modeld"]["recomputed_tokens"] == 0, answer
            s = server.get("/api/sessions/%d" % session)[1]
            assert (s["tokens_only"], s["lost_tokens"], s["provenance_tokens"]["full"]) == (False, 0, 1003), s
            assert cached(ask(server, session)) == 999
        with serving(folder, engine="one") as server:  # its own engine too, and it is found by its text
            restored = server.post(RESTORE, {"name": "x", "tokens_only": True})[1]
            answer = ask(server)
            assert restored["kv_tokens"] == cached(answer) == 0 and answer["modeld"]["session"] == restored["id"], answer
        with serving(folder, engine="two", window=1000) as server:
            refused(server, RESTORE, {"name": "x", "tokens_only": True}, 400, says=["1000"])


@case
def bad_input():
    with Folder() as folder, serving(folder) as server:
        session = ask(server)["modeld"]["session"]
        table = [  # method, path, body, status, param
            ("PUT", LIST, b"{}", 405, None), ("DELETE", LIST, None, 405, None), ("GET", RESTORE, None, 405, None),
            ("GET", REMOVE, None, 405, None), ("DELETE", REMOVE, None, 405, None), ("PUT", RESTORE, b"{}", 405, None),
            ("GET", LIST + "/", None, 404, None), ("GET", LIST + "/x", None, 404, None), ("POST", LIST + "/x", b"{}", 404, None),
            ("DELETE", LIST + "/x", None, 404, None), ("POST", "/api/snapshots%2fremove", b"{}", 404, None),
            ("POST", LIST, b"", 400, "name"), ("POST", LIST, b"{}", 400, "name"), ("POST", LIST, b"[]", 400, None),
            ("POST", LIST, b"null", 400, None), ("POST", LIST, b"{", 400, None), ("POST", LIST, b"\xff", 400, None),
            ("POST", LIST, b'{"name":"\xff","session":1}', 400, None), ("POST", LIST, b"[" * 5000, 400, None),
            ("POST", LIST, b'{"name":"x"}', 400, "session"), ("POST", LIST, b'{"name":"x","session":null}', 400, "session"),
            ("POST", LIST, b'{"session":1}', 400, "name"), ("POST", LIST, b'{"session":1,"name":null}', 400, "name"),
            ("POST", LIST, b'{"session":1,"name":5}', 400, "name"), ("POST", LIST, b'{"session":1,"name":["x"]}', 400, "name"),
            ("POST", LIST, b'{"session":1,"name":"x","nam":"y"}', 400, "nam"),
            ("POST", LIST, b'{"session":1,"name":"x","name":"y"}', 400, "name"),
            ("POST", LIST, b'{"session":1,"name":"x","a\\u0000b":1}', 400, "a"),
            ("POST", RESTORE, b"", 400, "name"), ("POST", RESTORE, b'{"id":1}', 400, "id"), ("POST", RESTORE, b"1", 400, None),
            ("POST", REMOVE, b"", 400, "name"), ("POST", REMOVE, b'{"name":"x","session":1}', 400, "session"),
            ("POST", REMOVE, b'{"name":"x","name":"y"}', 400, "name"),
        ]
        for wrong in (b"0", b"-1", b"1.5", b'"1"', b"true", b"[1]", b"1e300", b"9007199254740993e1"):
            for path in (LIST, RESTORE):
                table.append(("POST", path, b'{"name":"x","session":%s}' % wrong, 400, "session"))
        for wrong in (b"0", b"1", b'"true"', b"null", b"[]", b"{}"):
            table.append(("POST", RESTORE, b'{"name":"x","tokens_only":%s}' % wrong, 400, "tokens_only"))
        for path, body in ((LIST, b'{"name":"x","session":1,"tokens_only":true}'), (REMOVE, b'{"name":"x","tokens_only":true}')):
            table.append(("POST", path, body, 400, "tokens_only"))
        for method, path, body, want, param in table:
            status, headers, got = server.request(method, path, body, JSON if body is not None else {})
            assert status == want, (method, path, body, status, got)
            check_error((status, json.loads(got.decode())), want, param)
            if status == 405:
                assert headers["Allow"] == ("GET, HEAD, POST" if path == LIST else "POST"), (path, headers["Allow"])
        large = b'{"name":"%s"}' % (b"x" * (64 << 10))
        for path in (LIST, RESTORE, REMOVE):
            assert server.request("POST", path, large, JSON)[0] == 413
            assert server.request("POST", path, b"{}", {"Content-Type": "text/plain"})[0] == 415
            for headers in (dict(JSON, Origin="https://evil.example"), dict(JSON, Host="evil.example")):
                assert server.request("POST", path, b'{"name":"x","session":%d}' % session, headers)[0] == 403
        assert server.request("GET", LIST, None, {"Origin": "https://evil.example"})[0] == 403
        assert server.request("GET", LIST, b'{"x":1}')[0] == 200, "the body of a GET means nothing"
        assert folder.everything() == {} and len(server.sessions()) == 1, "nothing of this did anything"
    with Server(["x"]) as server:  # no folder was given
        for method, path, body in (("GET", LIST, None), ("POST", LIST, b'{"name":"x","session":1}'), ("POST", RESTORE, b'{"name":"x"}'),
                                   ("POST", REMOVE, b'{"name":"x"}')):
            status, _, got = server.request(method, path, body, JSON if body is not None else {})
            check_error((status, json.loads(got)), 501, says=["folder"])
    with Folder() as folder:  # something else is where the folder should be
        os.mkdir(os.path.dirname(folder.path))
        with open(folder.path, "wb"):
            pass
        with serving(folder) as server:
            session = server.call("POST", "/api/sessions", {})[1]["id"]
            refused(server, LIST, {"name": "x", "session": session}, 500, says=["not a folder"])
            check_error(server.get(LIST), 500, says=[folder.path])


@case
def it_waits_its_turn():
    """What was asked for behind a request that runs is written after it; who leaves takes the wish back."""
    with Folder() as folder, serving(folder, decode_ms=30) as server:
        session = server.call("POST", "/api/sessions", {})[1]["id"]
        busy = {"prompt": [65] * 100, "max_tokens": 30, "logit_bias": NEVER_ENDS, "modeld": {"session": session}}
        answers = []
        asker = threading.Thread(target=lambda: answers.append(server.post(COMPLETION, busy, 60 * SLACK)))
        asker.start()
        server.wait_status(lambda t: t["running"] == session, 5)
        leaver = server.raw_post(LIST, {"session": session, "name": "left"})
        server.wait_status(lambda t: t["queued"] == 1, 2)
        leaver.close()
        server.wait_status(lambda t: t["queued"] == 0, 1)
        assert listed(server)["snapshots"] == [], "the list waits for nobody"
        assert server.status()["state"] == "busy"
        status, got = server.post(LIST, {"session": session, "name": "x"}, 60 * SLACK)
        asker.join()
        assert answers[0][0] == 200 and status == 200 and got["context_tokens"] == 130, (answers, got)
        assert names(server) == ["x"]
        # closed before its turn
        asker = threading.Thread(target=lambda: server.post(COMPLETION, dict(busy, modeld={}), 60 * SLACK))
        asker.start()
        server.wait_status(lambda t: t["state"] == "busy", 5)
        closer = threading.Thread(target=lambda: server.call("DELETE", "/api/sessions/%d" % session))
        closer.start()
        server.wait_status(lambda t: t["queued"] == 1, 2)
        refused(server, RESTORE, {"name": "x", "session": session}, 404, "session", ["no session %d" % session])
        asker.join()
        closer.join()


@case
def queue_full_and_loading():
    with Folder() as folder, serving(folder, decode_ms=30, queue=1) as server:
        session = server.call("POST", "/api/sessions", {})[1]["id"]
        assert server.post(LIST, {"session": session, "name": "x"})[0] == 200
        held = [server.raw_post(CHAT, user("A", stream=True, max_tokens=200, logit_bias=NEVER_ENDS))]
        server.wait_status(lambda t: t["state"] == "busy", 2)
        held.append(server.raw_post(CHAT, user("B", stream=True)))
        server.wait_status(lambda t: t["queued"] == 1, 2)
        for path, body in ((LIST, {"session": session, "name": "y"}), (RESTORE, {"name": "x"})):
            check_error(server.post(path, body), 503, code="queue_full")
        assert names(server) == ["x"] and server.post(REMOVE, {"name": "x"})[0] == 200, "these need no turn"
        for s in held:
            s.close()
    with Folder() as folder, serving(folder, load_ms=800, wait_ready=False) as server:
        for method, path in (("GET", LIST), ("POST", LIST), ("POST", RESTORE), ("POST", REMOVE)):
            status, _, body = server.request(method, path, b"{}" if method == "POST" else None, JSON)
            check_error((status, json.loads(body)), 503, says=["loading"])
        server.line("ready")


@case
def restored_ones_are_kept():
    """As what was opened is: it is not closed to make room, and past the last one there is a 503."""
    with Folder() as folder, serving(folder) as server:
        session = ask(server)["modeld"]["session"]
        assert server.post(LIST, {"session": session, "name": "x"})[0] == 200
        server.call("DELETE", "/api/sessions/%d" % session)
        for _ in range(64):  # MD_SESSIONS_DEFAULT
            assert server.post(RESTORE, {"name": "x"})[0] == 200
        refused(server, RESTORE, {"name": "x"}, 503, says=["64 sessions"])
        assert len(server.sessions()) == 64


@case
def a_restore_that_fails_closes_nobody():
    """Where as many are open as may be, one makes way for what is restored, and for nothing else."""
    with Folder() as folder, serving(folder) as server:
        mine = ask(server)["modeld"]["session"]
        assert server.post(LIST, {"session": mine, "name": "x"})[0] == 200
        shutil.copy(folder.file("x"), folder.file("torn"))
        os.truncate(folder.file("torn"), os.path.getsize(folder.file("torn")) - 8)
        for _ in range(63):  # MD_SESSIONS_DEFAULT with mine
            server.call("POST", "/api/sessions", {})
        before = [s["id"] for s in server.sessions()]
        refused(server, RESTORE, {"name": "no"}, 404, "name", ["there is no snapshot 'no': GET /api/snapshots lists"])
        assert server.post(RESTORE, {"name": "torn"})[0] >= 400
        assert len(before) == 64 and [s["id"] for s in server.sessions()] == before
        status, got = server.post(RESTORE, {"name": "x"})
        assert status == 200 and [s["id"] for s in server.sessions()] == before[1:] + [got["id"]], got


@case
def what_was_restored_is_kept_after_a_restart():
    with Folder() as folder:
        kept = {"kv_dir": os.path.join(folder.outside, "kv")}
        with serving(folder, **kept) as server:
            session = ask(server)["modeld"]["session"]
            assert server.post(LIST, {"session": session, "name": "x"})[0] == 200
            server.call("DELETE", "/api/sessions/%d" % session)
            restored = server.post(RESTORE, {"name": "x"})[1]["id"]
        with serving(folder, **kept) as server:
            assert [s["id"] for s in server.sessions()] == [restored]
            for _ in range(63):  # MD_SESSIONS_DEFAULT with the one that is there
                assert server.call("POST", "/api/sessions", {})[0] == 200
            check_error(server.call("POST", "/api/sessions", {}), 503, says=["64 sessions"])
            assert server.sessions()[0]["id"] == restored


main()
