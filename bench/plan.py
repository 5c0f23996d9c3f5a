#!/usr/bin/env python3
"""`modeld plan` on a file of 5 GB with a vocabulary of 152,000 tokens and as many merges: how long it takes and how
much memory.  It reads the header only, so both must stay small: under 50 ms and 20 MB.

usage: plan.py MODELD
"""
import os
import statistics
import subprocess
import sys
import tempfile
import time

FILE_BYTES, RUNS, TOKENS = 5_000_000_000, 21, 152_000
LIMIT_MS, LIMIT_KB = 50, 20_000


def make(path):
    """Sparse: the tensors are holes."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "cli"))
    from libgguf import F16, gguf
    entries = [("general.architecture", "str", "qwen2"), ("qwen2.block_count", "u32", 28),
               ("qwen2.context_length", "u32", 32768), ("qwen2.embedding_length", "u32", 3584),
               ("qwen2.feed_forward_length", "u32", 18944), ("qwen2.attention.head_count", "u32", 28),
               ("qwen2.attention.head_count_kv", "u32", 4), ("tokenizer.ggml.model", "str", "gpt2"),
               ("tokenizer.ggml.tokens", "[str]", ["token%d" % i for i in range(TOKENS)]),
               ("tokenizer.ggml.token_type", "[i32]", [1] * TOKENS),
               ("tokenizer.ggml.merges", "[str]", ["tok en%d" % i for i in range(TOKENS)])]
    tensors = [("blk.%d.t%d.weight" % (i, j), (4096, 1700), F16) for i in range(28) for j in range(12)]
    with open(path, "wb") as f:
        f.write(gguf(entries, tensors, data=b""))
        f.truncate(FILE_BYTES)


def once(modeld, path):
    start = time.monotonic()
    p = subprocess.Popen([modeld, "plan", path, "--json"], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(p.pid, 0)
    took = (time.monotonic() - start) * 1000
    p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode != 0:
        sys.exit("plan.py: modeld plan ended with %d" % p.returncode)
    return took, usage.ru_maxrss


def main():
    if sys.argv[1] == "--make":
        return make(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "big.gguf")
        # in a process of its own: what a process took before it became modeld would count as modeld's
        subprocess.run([sys.executable, __file__, "--make", path], check=True)
        runs = [once(sys.argv[1], path) for _ in range(RUNS)]
    ms, kb = statistics.median(r[0] for r in runs), max(r[1] for r in runs)
    print("modeld plan, a file of 5 GB: %.1f ms (median of %d, limit %d), %.1f MB of memory at most (limit %d)"
          % (ms, RUNS, LIMIT_MS, kb * 1024 / 1e6, LIMIT_KB // 1000))


if __name__ == "__main__":
    main()
