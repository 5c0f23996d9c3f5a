"""The disk tier through the whole program: what status says of its bytes, what is refused before a model is looked at, and
files that are not this version's."""
import glob
import os

from libcli import EXACT, FOLDER, case, main, modeld, write
from libdaemon import Daemon
from libwire import COMPLETION

PAGE = 4096


def daemon(folder, *flags):
    return Daemon(EXACT, "-t", "1", "-c", 1024, "--hot", 1024, "--kv-dir", folder, *flags)


def ask(d):
    status, got = d.post(COMPLETION, {"prompt": [100 + i % 90 for i in range(300)], "max_tokens": 2, "temperature": 0,
                                      "logit_bias": {"2": -100}})
    assert status == 200, got
    return got["usage"]["prompt_tokens_details"]["cached_tokens"]


def files(folder, kind):
    return glob.glob(os.path.join(folder, "*", kind + "-*"))


def pages(paths):
    return sum(-(-os.path.getsize(p) // PAGE) * PAGE for p in paths)


@case
def used_bytes_are_those_of_all_files():
    folder = os.path.join(FOLDER, "used")
    with daemon(folder) as d:
        assert d.status()["disk"]["used_bytes"] == PAGE  # the lock
        ask(d)
        disk = d.status()["disk"]
        blocks, records = files(folder, "b"), files(folder, "s")
        assert len(blocks) == disk["blocks"] == 5 and len(records) == 1, (disk, blocks, records)
        assert disk["used_bytes"] == disk["peak_bytes"] == pages(blocks + records) + PAGE, disk
    with daemon(folder) as d:  # and so does the next one
        again = d.status()["disk"]
        assert again["used_bytes"] == disk["used_bytes"] and again["blocks"] == 5, again
        said = modeld("status", "--connect", "http://127.0.0.1:%d" % d.port).out.decode()
        assert "in 5 blocks, %.1f of" % (again["used_bytes"] / 1e6) in said, said


@case
def files_of_another_version():
    folder = os.path.join(FOLDER, "versions")
    with daemon(folder) as d:
        ask(d)
        used = d.status()["disk"]["used_bytes"]
    changed = files(folder, "b")[:3]
    for path in changed:
        with open(path, "r+b") as f:  # host/sections.h: the version stands at byte 8
            f.seek(8)
            f.write(b"\x07")
    with daemon(folder) as d:
        lines = [line for line in d.log.splitlines() if "another version" in line]
        assert len(lines) == 1 and "left alone are 3 block(s)" in lines[0] and "--kv-disk" in lines[0], d.log
        assert d.status()["disk"]["blocks"] == 2 and d.status()["disk"]["used_bytes"] == used, d.status()
        assert all(map(os.path.exists, changed)) and "removed" not in d.log, d.log
        ask(d)


@case
def a_limit_without_a_folder_is_refused_before_the_model():
    for name in (write("none.gguf", b"GGUF"), "/no/such.gguf"):
        r = modeld("serve", "-m", name, "--port", 0, "--kv-disk", "1GiB")
        assert r.code == 1 and r.err.splitlines()[-1].endswith("--kv-disk limits --kv-dir, which is not given"), r
    r = modeld("serve", "-m", "/no/such.gguf", "--port", 0, "--kv-disk", "1GiB", "--kv-dir", os.path.join(FOLDER, "kv"))
    assert "/no/such.gguf" in r.err.splitlines()[-1], r


@case
def a_limit_that_is_too_small_is_refused_before_the_model():
    """src/session/disk.h says how much the least is."""
    folder = os.path.join(FOLDER, "little")
    for size, bytes in (("0", 0), ("1", 1), ("1023KiB", 1023 << 10)):
        r = modeld("serve", "-m", "/no/such.gguf", "--port", 0, "--kv-dir", folder, "--kv-disk", size)
        assert r.code == 1 and r.err.splitlines()[-1].endswith("--kv-disk must be at least 1048576 bytes, got %d" % bytes), r
        assert not os.path.exists(folder)
    r = modeld("serve", "-m", "/no/such.gguf", "--port", 0, "--kv-dir", folder, "--kv-disk", "1MiB")
    assert "/no/such.gguf" in r.err.splitlines()[-1], r


@case
def a_bad_folder_is_refused_before_the_model():
    """A model that is not there is what would be told next.  /proc takes no folder, of whomever."""
    there = write("a-file", b"")
    for folder, why in ((there, "is not a folder"), (there + "/kv", "Not a directory"), ("/proc/kv", "make the folder"),
                        ("/proc/missing/kv", "make the folder"), ("", "1 to 4095 bytes")):
        r = modeld("serve", "-m", "/no/such.gguf", "--port", 0, "--kv-dir", folder)
        last = r.err.splitlines()[-1]
        assert r.code == 1 and "--kv-dir: " in last and why in last and last.endswith("modeld may write to"), (folder, r)
    r = modeld("serve", "-m", "/no/such.gguf", "--port", 0, "--kv-dir", os.path.join(FOLDER, "new", "kv"))
    assert "/no/such.gguf" in r.err.splitlines()[-1], r  # the folders above it are made


main()
