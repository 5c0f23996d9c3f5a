#!/usr/bin/env python3
"""What it costs to have a conversation back, against prefilling the same tokens, in one run:

    from RAM      another conversation had pushed it out of the hot set into the cold store
    snapshot      written to a file; restored from it into a conversation of a daemon that has seen nothing
    restart       the daemon is killed (SIGKILL) and started again over its --kv-dir; its files are in the page cache
    cold disk     the same, and the files are put out of the page cache before; where the system keeps them all the
                  same (it may), the line says so

A figure is the time from the request to the first token of a streamed answer; the ratio is that of the same tokens sent
to the same daemon when it has not seen them.  The time a daemon takes to load the model is told apart.  Bytes are those of
the KV.  ratio 20 is what the project promises: exit status 1 where one is less.

usage: restore.py MODELD MODEL [--tokens N] [--threads N]
"""
import argparse
import ctypes
import mmap
import os
import shutil
import sys
import tempfile

from libbench import Daemon, text

NEW, GOAL = 16, 20


def files(folder):
    return [os.path.join(top, name) for top, _, names in os.walk(folder) for name in names]


def put_out(folder):
    """Put the files out of the page cache; the share of their pages that is still there."""
    libc = ctypes.CDLL(None, use_errno=True)
    there = pages = 0
    for path in files(folder):
        size = os.path.getsize(path)
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if size > 0:
            m = mmap.mmap(fd, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)  # ctypes wants it writable
            count = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE
            vec = (ctypes.c_ubyte * count)()
            at = ctypes.addressof(ctypes.c_char.from_buffer(m))
            if libc.mincore(ctypes.c_void_p(at), ctypes.c_size_t(size), vec) == 0:
                there += sum(v & 1 for v in vec)
                pages += count
            del at
        os.close(fd)
    return there / pages if pages else 1.0


def line(what, seconds, same, figures, kv_bytes, note=""):
    restored = figures["restored_tokens"]
    ms = figures["restore_ms"]
    rate = restored * kv_bytes / ms / 1e6 if ms > 0 else 0
    print("  %-10s %7.0f ms   prefill of the same tokens %7.0f ms   ratio %6.1f   %d restored, %5.2f GB/s%s"
          % (what, 1e3 * seconds, 1e3 * same, same / seconds, restored, rate, note))
    return same / seconds


def main():
    p = argparse.ArgumentParser()
    p.add_argument("modeld")
    p.add_argument("model")
    p.add_argument("--tokens", type=int, default=4000)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    o = p.parse_args()
    folder = tempfile.mkdtemp(prefix="modeld-restore-", dir=os.environ.get("MODELD_BENCH_DIR"))
    kv, snapshots = folder + "/kv", folder + "/snapshots"
    os.mkdir(snapshots)
    serve = [o.modeld, "serve", "-m", o.model, "--port", "0", "-c", str(o.tokens + 1024), "-t", str(o.threads),
             "--hot", str(o.tokens * 5 // 4), "--snapshots", snapshots]
    a, b = text(1, o.tokens), text(2, o.tokens)
    again = a + text(3, NEW)
    try:
        measure(o, serve, kv, a, b, again)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure(o, serve, kv, a, b, again):
    d = Daemon(serve)
    d.turn(text(9, 64))  # the first request of a process pays for what is made on demand
    kv_bytes = d.call("GET", "/v1/status")[1]["kv_bytes_per_token"]
    print("%s, %d tokens of history (%.0f MB of KV), time to the first token"
          % (os.path.basename(o.model), o.tokens, o.tokens * kv_bytes / 1e6))
    cold, figures = d.turn(a)
    session = figures["session"]
    other, _ = d.turn(b)
    same = (cold + other) / 2
    seconds, figures = d.turn(again)
    ratios = {"RAM": line("RAM", seconds, same, figures, kv_bytes)}
    wrote, got = d.call("POST", "/api/snapshots", {"session": session, "name": "bench"})
    d.close()
    d = Daemon(serve)
    d.turn(text(9, 64))
    read, back = d.call("POST", "/api/snapshots/restore", {"name": "bench"})
    seconds, figures = d.turn(again + text(4, NEW), back["id"])
    print("  snapshot   %7.0f ms to write %.0f MB, %5.2f GB/s;   %.0f ms to restore, %5.2f GB/s"
          % (1e3 * wrote, got["bytes"] / 1e6, got["bytes"] / wrote / 1e9, 1e3 * read, got["bytes"] / read / 1e9))
    ratios["restored"] = line("restored", seconds + read, same, figures, kv_bytes, ", the restore counted in")
    d.close()

    d = Daemon(serve + ["--kv-dir", kv])
    d.turn(text(9, 64))
    first, figures = d.turn(a)
    if figures["durable_tokens"] < o.tokens:
        print("  only %d of %d tokens are on the disk" % (figures["durable_tokens"], o.tokens))
    d.kill()
    for what in ("restart", "cold disk"):
        left = put_out(kv) if what == "cold disk" else None
        d = Daemon(serve + ["--kv-dir", kv])
        seconds, figures = d.turn(again)
        note = ""
        if left is not None:
            note = "; %.0f %% of the pages were in memory all the same" % (100 * left) if left > 0.01 else ""
        ratios[what] = line(what, seconds, first, figures, kv_bytes, ", %.1f s to load%s" % (d.loaded, note))
        d.kill()
        again = again + text(5, NEW)
    judge(ratios)


def judge(ratios):
    """Ends the program where one is less than what is promised."""
    less = ["%s %.1f" % (what, ratio) for what, ratio in ratios.items() if ratio < GOAL]
    if less:
        sys.exit("restore.py: below %d times as fast as prefill: %s" % (GOAL, ", ".join(less)))


if __name__ == "__main__":
    main()
