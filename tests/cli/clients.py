"""ps, status, explain, branch and close: against the scripted daemon, and against what is no daemon at all."""
import json
import os
import re
import time

from libcli import EXACT, FOLDER, SLACK, case, main, modeld, refused
from libclients import answering, answering_json, ask, listener, members_are_checked, said, serving
from libwire import CHAT, COMPLETION, user

NEVER_ENDS = {"256": -100}
HEAD = "ID CONTEXT HOT COLD LOST REQUESTS IDLE STATE".split()


def fill(server, tokens=5500):
    status, got = server.post(COMPLETION, {"prompt": [i % 256 for i in range(tokens)], "max_tokens": 4, "logit_bias": NEVER_ENDS})
    assert status == 200, got
    return got["modeld"]["session"]


@case
def ps():
    with serving(decode_ms=5) as server:
        assert said(ask(server, "ps")).split() == HEAD, "nothing is open"
        session = fill(server)
        assert said(ask(server, "branch", session, "--at", 700)) == "%d\n" % (session + 1)
        rows = [line.split() for line in said(ask(server, "ps")).splitlines()]
        assert rows[0] == HEAD and len(rows) == 3, rows
        for row, s in zip(rows[1:], server.sessions()):
            assert row[:6] == [str(s[k]) for k in ("id", "context_tokens", "hot_tokens", "cold_tokens", "lost_tokens", "requests")]
            assert re.fullmatch(r"\d+s", row[6]) and row[7] == "idle", row
        listed = json.loads(said(ask(server, "ps", "--json")))["sessions"]
        assert [s["context_tokens"] for s in listed] == [5504, 700] and set(listed[0]) == set(server.sessions()[0]), listed
        s = server.raw_post(CHAT, user("x", stream=True, max_tokens=400, logit_bias=NEVER_ENDS, modeld={"session": session + 1}))
        server.wait_status(lambda t: t["running"] == session + 1, 5)
        rows = [line.split() for line in said(ask(server, "ps")).splitlines()]
        assert [row[7] for row in rows[1:]] == ["idle", "running"], rows
        assert "busy with conversation %d" % (session + 1) in said(ask(server, "status"))
        s.close()


@case
def status():
    with serving(cold=1 << 20) as server:
        fill(server)
        t = server.status()
        text = said(ask(server, "status"))
        for words in ("scripted, engine fake", "idle, 0 waiting, 1 request so far", "1 of at most 64", "8192 tokens; blocks of 64",
                      "%d of 1024 tokens" % t["hot"]["tokens"],
                      "%d tokens in %d blocks, %.1f of 1.0 MB" % (t["cold"]["tokens"], t["cold"]["blocks"],
                                                                   t["cold"]["used_bytes"] / 1e6), "place, write-back"):
            assert words in text, (words, text)
        got = json.loads(said(ask(server, "status", "--json")))
        assert {k: v for k, v in got.items() if k != "uptime_seconds"} == {k: v for k, v in t.items() if k != "uptime_seconds"}


@case
def explain():
    with serving() as server:
        session = fill(server)
        e = server.get("/api/sessions/%d" % session)[1]
        text = said(ask(server, "explain", session))
        for words in ("conversation %d: 5504 tokens, idle for 0s\n" % session, "  1 request: 5500 tokens", "cold %d " % e["cold_tokens"], "volatile 5503",
                      "no segments", "86 blocks of 64 tokens"):
            assert words in text, (words, text)
        bar = re.search(r"^\[([#.x]+)\]$", text, re.M).group(1)
        # 86 blocks in 64 columns: sinks first, then cold, hot at the end, as the map has it
        assert len(bar) == 64 and bar[0] == bar[-1] == "#" and re.fullmatch(r"#+\.+#+", bar), bar
        text = said(ask(server, "explain", session, "--map"))
        rows = [line[11:] for line in text.splitlines() if re.fullmatch(r"[ \d]{9}  [#.xtrvfba]+", line)]
        for i, name in enumerate(("state", "class", "provenance")):
            assert "".join(rows[i::3]) == e["map"][name], (name, rows)
        got = json.loads(said(ask(server, "explain", session, "--json")))
        assert got["map"] == e["map"] and got["residency"] == e["residency"]


# What a daemon could have answered: the shapes of docs/sessions.md.
SEGMENT = {"kind": "system", "class": "task_pinned", "stable": True, "invalidation": "none", "token_start": 0, "token_end": 100}
LISTED = {"id": 3, "context_tokens": 251, "hot_tokens": 122, "cold_tokens": 64, "lost_tokens": 64, "requests": 2, "idle_seconds": 7200.5,
          "running": False, "fatal": None, "tokens_only": False}
FULL = dict(LISTED, parent=None, tape_tokens=250, segments=[SEGMENT], hot_bytes=1, cold_bytes=1, protected_tokens=1, held_out_tokens=0,
            pinned_cold_tokens=0, class_tokens={"task_pinned": 0, "repo_map": 0, "volatile": 250},
            provenance_tokens={"full": 250, "bounded": 0, "approximate": 0}, prefilled_tokens=1, decoded_tokens=1, evicted_blocks=0,
            restored_blocks=0, shared_blocks=0, recomputed_blocks=0, dropped_blocks=0,
            map={"block_tokens": 64, "blocks": 4, "state": "#.x#", "class": "tvvv", "provenance": "ffff"})


@case
def explain_shows_segments_and_no_control_characters():
    evil = dict(SEGMENT, kind="evil\x1b[31m", stable=False, invalidation="on_edit", token_start=100, token_end=250)
    made = dict(FULL, segments=[SEGMENT, evil], fatal="bad\x1b]0;x\x07",
                map=dict(FULL["map"], **{"class": "t\x1bvv", "provenance": "f"}))
    made["segments"][1]["class"] = "volatile"
    with answering_json(made) as address:
        text = said(modeld("explain", 3, "--connect", address))
        rows = [line.split() for line in text.splitlines()]
        # blocks of 64: [0,64) hot, [64,128) cold, [128,192) lost, [192,250) hot
        assert ["system", "task_pinned", "0", "100", "64", "36", "0", "stable"] in rows, text
        (evil,) = [row for row in rows if row and row[0].startswith("evil")]
        assert evil[1:] == ["volatile", "100", "150", "58", "28", "64", "changes", "on_edit"], evil
        assert "\x1b" not in text and "\x07" not in text, text
        assert "fatal, idle for 2h" in text and "[#.x#]" in text, text
        text = said(modeld("explain", 3, "--map", "--connect", address))
        assert "\x1b" not in text and "t?vv" in text, text
    for block, letters in ((0, "#"), (1 << 62, "#" * 70), (64, "")):
        with answering_json(dict(FULL, map=dict(FULL["map"], block_tokens=block, state=letters))) as address:
            for more in ([], ["--map"]):
                said(modeld("explain", 3, *more, "--connect", address))


@case
def a_member_of_another_type_is_no_answer_of_modeld():
    """Every member that is read: taken away, and with values of other types.  map.blocks is for others to read."""
    with serving() as server:
        fill(server, 300)
        whole = {"status": server.get("/api/status")[1], "ps": {"sessions": [LISTED]}, "explain": FULL}
    unread = {"status": {"capabilities", "residency", "kv_bytes_per_token", "break_even_tokens", "hits", "misses", "collisions"},
              "ps": set(), "explain": {"blocks"}}
    for verb, what in whole.items():
        members_are_checked([verb] + ([3] if verb == "explain" else []), what, unread[verb])
    for other in (5, "x", {}, None, True, [5], [[]]):  # nothing of this is an empty list
        with answering_json({"sessions": other}) as address:
            refused(modeld("ps", "--connect", address), 1, address, "not modeld", "sessions")


@case
def ps_reads_well():
    """Columns hold whatever the ids are; what runs is not idle; a fatal one says why."""
    def rows(*sessions):
        with answering_json({"sessions": list(sessions)}) as address:
            lines = said(modeld("ps", "--connect", address)).splitlines()
        assert lines[0].split() == HEAD, lines
        return lines
    assert len(rows()) == 1
    assert rows(LISTED)[1].split() == ["3", "251", "122", "64", "64", "2", "2h", "idle"]
    lines = rows(LISTED, dict(LISTED, id=2**63 - 1, running=True, idle_seconds=0), dict(LISTED, id=4, fatal="no KV\x1b[2J left"))
    assert len({line.index(word) for line, word in zip(lines, ("STATE", "idle", "running", "fatal"))}) == 1, lines
    assert lines[2].split() == ["9223372036854775807", "251", "122", "64", "64", "2", "-", "running"], lines
    assert "fatal: no KV" in lines[3] and lines[3].endswith("left") and "\x1b" not in lines[3], lines
    many = rows(*[dict(LISTED, id=i + 1) for i in range(64)])
    assert len(many) == 65 and len({len(line) for line in many[1:]}) == 1, many


@case
def branch_and_close():
    with serving() as server:
        session = fill(server, 300)
        a = said(ask(server, "branch", session)).strip()
        b = said(ask(server, "branch", session, "--at=100")).strip()
        assert [(s["parent"], s["context_tokens"]) for s in server.sessions()] == [(None, 304), (session, 304), (session, 100)]
        assert said(ask(server, "close", b)) == "", "nothing to say"
        assert [str(s["id"]) for s in server.sessions()] == [str(session), a]
        for verb in ("close", "explain", "branch"):
            refused(ask(server, verb, b), 1, "there is no session %s (`modeld ps` lists them)" % b)
        refused(ask(server, "branch", a, "--at", 305), 1, "304", "305")


@case
def where_the_daemon_is():
    with serving() as server:
        address = "http://127.0.0.1:%d" % server.port
        for args, env in ((["--connect", address], {}), (["--connect=" + address + "/"], {}), ([], {"MODELD_CONNECT": address}),
                          (["--connect", address], {"MODELD_CONNECT": "http://127.0.0.1:9"}),
                          (["--connect", "http://localhost:%d" % server.port], {})):
            assert said(modeld("ps", *args, env=env)).split() == HEAD, (args, env)
        proxies = {"http_proxy": "http://127.0.0.1:9", "all_proxy": "http://127.0.0.1:9", "no_proxy": "", "NO_PROXY": ""}
        assert said(modeld("ps", "--connect", address, env=proxies)).split() == HEAD, "no proxy is asked"
    path = os.path.join(FOLDER, "daemon.sock")
    with serving(host=path) as server:
        for address in (path, "unix:" + path):
            assert said(modeld("ps", "--connect", address)).split() == HEAD, address
    for address in (path, "unix:" + path, "http://127.0.0.1:1"):
        refused(modeld("ps", "--connect", address), 1, "nobody listens at " + address, "modeld serve", "--connect", "MODELD_CONNECT")
    refused(modeld("status", env={"MODELD_CONNECT": "http://127.0.0.1:1"}), 1, "nobody listens at http://127.0.0.1:1")
    assert "http://127.0.0.1:8080" in said(modeld("ps", "-h")), "the default of serve"
    r = modeld("show", EXACT, env={"MODELD_CONNECT": "http://127.0.0.1:1"})
    assert r.code == 0 and r.err == "", "the other verbs know the variable: %s" % r


@case
def who_is_not_modeld():
    json_404 = json.dumps({"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}}).encode()
    for status_, kind, body in ((200, "text/html", b"<html>hello</html>"), (200, "application/json", b"[]"),
                                (200, "application/json", b"{}"), (200, "application/json", b'{"sessions":5,"hot":5}'), (200, "application/json", b""), (404, "text/plain", b"no"),
                                (404, "application/json", json_404), (500, "application/json", b'{"error":"x"}'),
                                (301, "text/plain", b"")):
        with answering(status_, kind, body) as address:
            for verb in ("ps", "status"):
                refused(modeld(verb, "--connect", address), 1, address, "not modeld")
            refused(modeld("explain", 1, "--connect", address), 1, address, "not modeld")
    with listener(lambda c: c.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")) as address:
        refused(modeld("ps", "--connect", address), 1, address, "not modeld")
    with listener(lambda c: c.recv(65536)) as address:
        refused(modeld("ps", "--connect", address), 1, address, "without an answer")
    for verb, body in (("explain", b'{"map":null}'), ("branch", b'{"id":-1}'), ("branch", b'{"id":1.5}'), ("branch", b'{"id":18446744073709551615}'),
                       ("branch", b'{"id":"1; rm"}'), ("close", b'{"closed":false}'), ("close", b'{"closed":null}')):
        with answering(200, "application/json", body) as address:
            refused(modeld(verb, 1, "--connect", address), 1, address, "not modeld")
    with listener(lambda c: (c.recv(65536), c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"))) as address:
        refused(modeld("ps", "--connect", address), 1, address, "without an answer")
    with answering(200, "application/json", b" " * (65 << 20)) as address:  # client.c: ANSWER_BYTES_MAX is 64 MiB
        refused(modeld("ps", "--connect", address), 1, address, "more than 64 MiB")
    escapes = json.dumps({"error": {"message": "\x1b[31mred\nline"}}).encode()
    with answering(500, "application/json", escapes) as address:
        r = modeld("ps", "--connect", address)
        refused(r, 1, "red")
        assert "\x1b" not in r.err, r


@case
def time_out_and_loading():
    with listener(lambda c: time.sleep(5 * SLACK)) as address:
        started = time.monotonic()
        refused(modeld("ps", "--timeout", 1, "--connect", address), 1, address, "in time", "--timeout")
        assert time.monotonic() - started < 4 * SLACK
    with serving(load_ms=1000, wait_ready=False) as server:
        refused(ask(server, "ps"), 1, "loading the model")
        server.line("ready")
        assert said(ask(server, "ps")).split() == HEAD
    with serving(decode_ms=20) as server:  # closing waits for what runs, and is given the time it needs
        session = server.call("POST", "/api/sessions", {})[1]["id"]
        s = server.raw_post(CHAT, user("x", stream=True, max_tokens=80, logit_bias=NEVER_ENDS, modeld={"session": session}))
        server.wait_status(lambda t: t["running"] == session, 5)
        refused(ask(server, "close", session, "--timeout", 1), 1, "in time")
        assert said(ask(server, "close", session, "--timeout", 0)) == ""
        assert server.sessions() == []
        s.close()


@case
def usage():
    for args, says in ((["ps", "x"], "unexpected argument 'x'"), (["ps", "--map"], "--map"), (["status", "--at", "5"], "--at"),
                       (["explain"], "modeld ps"), (["explain", "0"], "'0'"), (["explain", "x"], "'x'"), (["close", "1", "2"], "'2'"),
                       (["close", "-1"], "-1"), (["close", "1", "--json"], "--json"), (["branch", "9" * 19], "999"),
                       (["branch", "1", "--at"], "--at needs a value"), (["branch", "1", "--at", "-1"], "--at"),
                       (["branch", "1", "--at", "1.5"], "1.5"), (["branch", "1", "--at="], "--at"), (["ps", "--atx=1"], "--atx"),
                       (["branch", "1", "--at", "2147483648"], "2147483648"), (["ps", "--timeout", "x"], "--timeout"),
                       (["ps", "--timeout", "86401"], "86401"), (["ps", "--connect"], "needs a value"), (["explain", ""], "''"),
                       (["ps", "--connect", ""], "http://HOST:PORT"), (["ps", "--connect", "https://x"], "https://x"),
                       (["ps", "--connect", "127.0.0.1:8080"], "http://"), (["ps", "--connect", "http://"], "http://HOST"),
                       (["ps", "--connect", "unix:"], "unix:PATH"), (["ps", "--connect", "http://a/b"], "http://a/b"),
                       (["ps", "--connect", "http://u@h"], "http://u@h"), (["ps", "--connect", "http://h:99999"], "65535"),
                       (["ps", "--connect", "http://h:0"], "65535"), (["ps", "--connect", "http://h:-1"], "65535"),
                       (["ps", "--connect", "http://h:80x"], "65535"), (["ps", "--connect", "http://[::1"], "http://[::1"),
                       (["ps", "--connect", "http://:80"], "http://:80"), (["ps", "--connect", "http://a\nb"], "http://a"),
                       (["ps", "--connect", "http://" + "h" * 600], "607 bytes, more than 512"),
                       (["ps", "--connect", "unix:/" + "p" * 107], "108 bytes, more than 107"),  # sun_path less its NUL
                       (["close", "1", "--connect", "http://h:65536"], "65535"), (["ps", "--connect", "file:///etc/passwd"], "file:")):
        refused(modeld(*args), 2, says)
    refused(modeld("ps", env={"MODELD_CONNECT": "ftp://x"}), 2, "ftp://x")
    refused(modeld("ps", env={"MODELD_CONNECT": "http://localhost:70000"}), 2, "70000", "65535")
    for verb in ("ps", "status", "explain", "branch", "close"):
        for flag in ("-h", "--help"):
            assert said(modeld(verb, flag)).startswith("usage: modeld %s " % verb), verb
        assert "\n  %s " % verb in said(modeld("-h")), verb
    with open("/dev/full", "w") as full:
        with serving() as server:
            r = ask(server, "ps", stdout=full)
            assert r.code == 1 and "write standard output" in r.err, r


main()
