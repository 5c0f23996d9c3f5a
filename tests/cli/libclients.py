"""What tests of the daemon's clients share: the scripted daemon, what is no daemon, and answers with one member changed."""
import contextlib
import json
import socket
import threading

from libcli import modeld, refused
from libwire import Server


def serving(**options):
    return Server(["x"], window=8192, hot=1024, block=64, **options)


def ask(server, *args, **more):
    return modeld(*args, "--connect", "http://127.0.0.1:%d" % server.port, **more)


def said(r):
    assert r.code == 0 and r.err == "", r
    return r.out.decode()


@contextlib.contextmanager
def listener(answer):
    """What is no modeld: a port whose every connection is given to answer(socket)."""
    s = socket.create_server(("127.0.0.1", 0))

    def run():
        while True:
            try:
                c, _ = s.accept()
            except OSError:
                return
            with c:
                answer(c)
    threading.Thread(target=run, daemon=True).start()
    try:
        yield "http://127.0.0.1:%d" % s.getsockname()[1]
    finally:
        s.shutdown(socket.SHUT_RDWR)
        s.close()


def answering(status, kind, body):
    def answer(c):
        c.recv(65536)
        c.sendall(b"HTTP/1.1 %d X\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" %
                  (status, kind.encode(), len(body), body))
    return listener(answer)


def answering_json(what):
    return answering(200, "application/json", json.dumps(what).encode())


def places(what, path=()):
    """Every member and element within it."""
    items = what.items() if isinstance(what, dict) else enumerate(what) if isinstance(what, list) else ()
    for key, value in items:
        yield path + (key,)
        yield from places(value, path + (key,))


def changed(what, path, value):
    """A copy with another value at the place; ... takes it away."""
    copy = json.loads(json.dumps(what))
    at = copy
    for key in path[:-1]:
        at = at[key]
    if value is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return copy


def members_are_checked(args, what, unread=()):
    """The verb takes the answer, and refuses it with any member taken away or of another type but those `unread`."""
    with answering_json(what) as address:
        said(modeld(*args, "--connect", address))
    for path in places(what):
        if set(unread) & set(path):
            continue
        value = what
        for key in path:
            value = value[key]
        odd = [] if isinstance(value, bool) else [True]
        odd += [-1, 1e300] if str(path[-1]).endswith("_seconds") else [-1, 1.5, 1e300]
        odd += [[5], "x"] if not isinstance(value, str) and value is not None else [[5]]
        odd += [] if isinstance(path[-1], int) else [...]  # a list may be shorter
        for other in odd:
            with answering_json(changed(what, path, other)) as address:
                words = ["is missing"] if other is ... else ["is not "]
                named = "".join("[%d]" % key if isinstance(key, int) else ".%s" % key for key in path)[1:]
                if isinstance(other, list) and isinstance(value, list):
                    named += "[0]"
                for flags in ([], ["--json"]) if other is ... else ([],):
                    refused(modeld(*args, *flags, "--connect", address), 1, address, "not modeld", "'%s' " % named, *words)
