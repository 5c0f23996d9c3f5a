"""What the tests of `modeld plan` and `modeld show` share: files made by libgguf, and the answers about them."""
import json

from libcli import modeld, write
from libgguf import BASE12, changed, gguf

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
COUNT = [0]


def put(data):
    COUNT[0] += 1
    return write("p%d.gguf" % COUNT[0], data)


def file(*new, without=(), base=BASE12):
    return put(gguf(changed(base, *new, without=without)))


def key(name, *rest):
    return ("llama." + name,) + rest


def plan(path, *args, **more):
    r = modeld("plan", path, "--json", *args, **more)
    assert r.code == 0, r
    return json.loads(r.out.decode("utf-8", "strict"))


def show(path, *args):
    r = modeld("show", path, "--json", *args)
    assert r.code == 0 and r.err == "", r
    return json.loads(r.out.decode("utf-8", "strict"))


def kv_bytes(path, context, *args):
    p = plan(path, "-c", context, "--seq-max", 1, *args)
    assert p["context_tokens"] == context, p
    assert p["kv_bytes"] == sum(layer["bytes"] for layer in p["layers"]), p
    return p["kv_bytes"]


def all_refuse(path, *says, verbs=("show", "plan", "serve")):
    """Each verb that reads the file says so in a line, with status 1; the daemon does not come up."""
    for verb in verbs:
        args = ("serve", "-m", path, "--port", 0) if verb == "serve" else (verb, path)
        r = modeld(*args)
        lines = [line for line in r.err.splitlines() if line.startswith("modeld ")]
        assert r.code == 1 and r.out == b"" and len(lines) == 1, (verb, str(r))
        assert "ready at" not in r.err, r
        for word in (path,) + says:
            assert word in lines[0], (verb, word, lines[0])
