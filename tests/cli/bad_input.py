"""Bad input of all commands: one line that says what and what to do, status 2 for usage and 1 for the rest."""
import os
import pty
import struct
import subprocess

from libcli import EXACT, FOLDER, MODELD, TRAINED, case, main, modeld, refused, write

VERBS = ("run", "chat", "bench", "serve")
RUN = ("run", "-m", EXACT, "-p", "hi", "-n", "1")  # should it be taken after all, it ends soon


def each(rows):
    """Rows of (arguments, status, words); all are tried before the first failure is told."""
    wrong = []
    for args, code, *says in rows:
        try:
            refused(modeld(*args), code, *says)
        except AssertionError as e:
            wrong.append("%s: %s" % (args, e))
    assert not wrong, "\n".join(wrong)


@case
def b030_numbers():
    limits = {"-c": "--ctx-size", "--hot": "--hot", "--block-tokens": "--block-tokens", "--sink": "--sink",
              "--recent": "--recent", "-b": "--batch-size", "-ub": "--ubatch-size", "-t": "--threads",
              "-ngl": "--gpu-layers", "--min-hot-context": "--min-hot-context"}
    bad = ("-1", "4294967296", "9223372036854775808", "4096abc", "", "1e3", "0x100", " 5", "5 ", "+5", "1.5", "-", "five")
    each([(RUN + (flag, value), 2, name + " must be a whole number from", "'%s'" % value)
          for flag, name in limits.items() for value in bad])
    each([(("serve", "-m", EXACT, "-c", value), 2, "--ctx-size", "'%s'" % value) for value in bad])
    each([(("bench", "-m", EXACT, "-d", value), 2, "--depth", "'%s'" % value) for value in bad + ("255",)])
    each([(RUN + ("-n", value), 2, "--predict", "'%s'" % value) for value in bad[1:] + ("-2",)])
    each([(RUN + ("-s", value), 2, "--seed") for value in bad[1:] + ("-2",)])
    each([(RUN + ("-t", "513"), 2, "--threads", "512")])


@case
def b030_automatic_and_tiny_windows():
    for value in ("0", "1"):
        r = modeld(*RUN, "-c", value)
        if value == "0":
            assert r.code == 0 and r.err == "", r
        else:
            refused(r, 1, "window is 1")
    automatic = modeld(*RUN, "--temp", "0")
    for flag in ("-b", "-ub", "--hot", "--min-hot-context"):
        r = modeld(*RUN, "--temp", "0", flag, "0")
        assert r.code == 0 and r.err == "" and r.out == automatic.out, (flag, str(r))


@case
def real_numbers():
    each([(RUN + (flag, value), 2, flag + " must be a number from", "'%s'" % value)
          for flag in ("--temp", "--top-p", "--min-p", "--repeat-penalty")
          for value in ("-0.5", "nan", "inf", "1e999", "", "0x1p-1", " 0.5", "0.5x", "hot", ".", "101")])


@case
def sizes():
    each([(RUN + ("--mem-cold", value), 2, "--mem-cold: '%s'" % value)
          for value in ("", "-1", "+1", "8Q", "G", "nan", "0x10", "1e3", "1 G", "8GG", "101%", "5%%", "1.2.3",
                        "99999999999T", "-5%", "0.1")])
    each([(("serve", "-m", EXACT, flag, value), 2, "%s: '%s' is not a size" % (flag, value))
          for flag in ("--mem-max", "--mem-reserve") for value in ("", "-1", "8Q", "1e3")])
    each([(RUN + ("--mem-headroom", value), 2, "--mem-headroom must be a number from") for value in ("0", "1", "10%", "")])
    for value in ("0", "0%", "12345", "1K", "64kib", "1.5MiB", "0.08G", "25%", "2MB", " 1G "):
        r = modeld(*RUN, "--mem-cold", value)
        assert r.code == 0 and r.err == "", (value, str(r))


@case
def words():
    each([(RUN + (flag, value), 2, flag + " must be on or off", "'%s'" % value)
          for flag in ("--residency", "--swa-full") for value in ("", "maybe", "2")])
    each([(RUN + ("--json=maybe",), 2, "--json must be on or off")])
    each([(RUN + ("--evict", value), 1, "--evict '%s' is not known" % value, "recency, attention") for value in ("", "age", "Attention")])
    each([(RUN + ("--retrieval", value), 1, "--retrieval '%s' is not known" % value, "off, auto") for value in ("", "on", "Auto")])
    each([(RUN + ("-fa", "yes"), 1, "--flash-attn must be on, off or auto", "'yes'"),
          (RUN + ("--engine", "gpt"), 1, "unknown engine 'gpt'", "llama"),
          (RUN + ("-ctk", "q9"), 1, "unknown KV type 'q9'", "f16"),
          (RUN + ("-ctv", ""), 1, "unknown KV type ''", "f16"),
          (RUN + ("-ctv", "q8_0", "-fa", "off"), 1, "q8_0", "flash attention"),
          (("serve", "-m", EXACT, "--host", "nowhere.invalid", "--port", "0"), 1, "nowhere.invalid")][:5])
    r = modeld("serve", "-m", EXACT, "--host", "nowhere.invalid", "--port", "0")
    assert r.code == 1 and "nowhere.invalid" in r.err.splitlines()[-1], r


@case
def shares():
    each([((verb, "-m", EXACT, "--xattention", value), 2, "--xattention must be off, or a share above 0 and up to 1",
           "'%s'" % value) for verb in VERBS for value in ("0", "1.5", "nan", "text", "", "-0.9", "90%")])
    each([((verb, "-m", EXACT, *(("-p", "hi") if verb == "run" else ()), "--xattention", "0.9"), 1, "the engine 'llama' has no XAttention", "leave out --xattention",
           "'openvino'") for verb in ("run", "chat", "bench", "plan")])


@case
def flags():
    each([(RUN + ("--bogus",), 2, "unknown flag '--bogus'", "-h"), (RUN + ("-x",), 2, "unknown flag '-x'"),
          (RUN + ("--hott", "5"), 2, "unknown flag '--hott'"), (RUN + ("extra",), 2, "unexpected argument 'extra'"),
          (RUN + ("--port", "1"), 2, "--port is not a flag of this command"),
          (RUN + ("--depth", "512"), 2, "--depth is not a flag of this command"),
          (("serve", "-m", EXACT, "-p", "x"), 2, "--prompt is not a flag of this command"),
          (("bench", "-m", EXACT, "--temp", "1"), 2, "--temp is not a flag of this command"),
          (("bench", "-m", EXACT, "--mem-max", "1G"), 2, "--mem-max is not a flag of this command"),
          (RUN + ("--budget", "1G"), 2, "--budget is not a flag of this command"),
          (("chat", "-m", EXACT, "--json"), 2, "--json is not a flag of this command"),
          (("serve", "-m", EXACT, "--port", "65536"), 2, "--port", "65535", "'65536'"),
          (("serve", "-m", EXACT, "--port", "-1"), 2, "--port", "'-1'")])
    each([(RUN + (flag,), 2, "needs a value") for flag in ("-n", "--hot", "-f", "--mem-cold", "--residency")])
    each([((verb, "-m"), 2, "--model needs a value") for verb in VERBS])
    each([((verb, "--bogus", "-h"), 2, "unknown flag '--bogus'") for verb in VERBS])


@case
def verbs():
    for args in ((), ("walk",), ("-m", EXACT), ("",), ("Run",)):
        r = modeld(*args)
        assert r.code == 2 and r.out == b"" and "usage: modeld VERB" in r.err, r
        assert not args or r.err.startswith("modeld: unknown verb '%s'" % args[0]), r


@case
def prompts():
    turns = write("t.jsonl", '{"role":"user","content":"hi"}\n')
    each([(RUN + ("-f", turns), 2, "-p or -f, not both"), (RUN + ("--turns", turns), 2, "--turns goes without"),
          (("run", "-m", EXACT, "--raw", "--turns", turns), 2, "--turns goes without"),
          (RUN + ("--raw", "-sys", "x"), 2, "--raw", "--system"),
          (("run", "-m", EXACT), 1, "the prompt is empty"), (("run", "-m", EXACT, "-p", ""), 1, "the prompt is empty"),
          (("run", "-m", EXACT, "-f", "/no/such"), 1, "'/no/such'", "No such file"),
          (("run", "-m", EXACT, "-f", FOLDER), 1, "'%s'" % FOLDER, "directory"),
          (("run", "-m", EXACT, "--turns", "/no/such"), 1, "'/no/such'", "No such file"),
          (("run", "-p", "hi"), 2, "-m"), (("serve",), 2, "-m"), (("bench",), 2, "-m"), (("run", "-m", "", "-p", "x"), 2, "-m")])


@case
def a_prompt_from_a_terminal_is_no_prompt():
    parent, child = pty.openpty()
    try:
        refused(modeld("run", "-m", EXACT, stdin=os.fdopen(child, "rb", 0)), 2, "no prompt", "-p", "-f")
    finally:
        os.close(parent)


@case
def prompts_beyond_the_window():
    long = write("long.txt", "x" * 600)
    each([(("run", "-m", EXACT, "--raw", "-f", long, "-c", "512", *more), 1, "600", "512")
          for more in ((), ("--residency", "off"), ("--hot", "256"), ("--json",))])
    exactly = write("exact.txt", "x" * 512)
    each([(("run", "-m", EXACT, "--raw", "-f", exactly, "-c", "512"), 1, "512")])
    r = modeld("run", "-m", EXACT, "--raw", "-f", write("one-less.txt", "x" * 511), "-c", "512", "--json")
    assert r.code == 0, r


@case
def b039_sizes_against_each_other():
    each([(RUN + ("-c", str(TRAINED + 1)), 1, "--ctx-size %d" % (TRAINED + 1), "%d tokens" % TRAINED),
          (RUN + ("-c", "2147483647"), 1, "--ctx-size 2147483647", "%d tokens" % TRAINED),
          (RUN + ("--hot", "512", "-c", "1024", "--residency", "off"), 1, "--hot 512", "--residency on"),
          (RUN + ("--hot", "256", "--sink", "128", "--recent", "128"), 1, "--hot"),
          (RUN + ("--hot", "256", "--sink", "2147483647"), 1, "--"),
          (RUN + ("--hot", "256", "--recent", "2147483647"), 1, "--"),
          (RUN + ("--hot", "256", "--recent", "0"), 1, "--recent"),
          (RUN + ("--hot", "256", "--block-tokens", "512"), 1, "--"),
          (RUN + ("--block-tokens", "0"), 1, "--block-tokens", "8", "4096"),
          (RUN + ("--block-tokens", "2147483647"), 1, "--block-tokens", "4096"),
          *((RUN + (name, "-1"), 2, name) for name in ("--sink", "--recent", "--block-tokens", "--hot")),
          (("bench", "-m", EXACT, "-d", "512", "-c", "512"), 2, "--depth 512", "512 tokens"),
          (("bench", "-m", EXACT, "-d", str(TRAINED)), 1, "%d" % TRAINED, "--depth"),
          (("bench", "-m", EXACT, "-d", "2147483647"), 2, "--depth 2147483647")])


@case
def models():
    whole = open(EXACT, "rb").read()
    other = whole.replace(b"llama", b"lambd")
    assert other != whole
    rows = [("/no/such.gguf", "'/no/such.gguf'", "No such file"), (FOLDER, "'%s'" % FOLDER, "is not a file"),
            ("nothing-of-that-name", "no model 'nothing-of-that-name'", ".gguf"),
            ("nothing.gguf", "no model 'nothing.gguf'"), ("/dev/null", "is not a file"),
            (write("text.gguf", "this is no model\n"), "not a GGUF file"), (write("empty.gguf", b""), "0 are left", "empty.gguf"),
            (write("cut.gguf", whole[:-4096]), "file has %d bytes, tensor '" % (len(whole) - 4096), "needs"),
            (write("half.gguf", whole[:len(whole) // 2]), "needs"), (write("head.gguf", whole[:100]), "are left"),
            (write("other.gguf", other), "architecture", "lambd"), ("x" * 5000, "no model 'xxx"),
            ("/" + "x" * 5000, "longer than"), (EXACT + "/x.gguf", "Not a directory")]
    each([(("run", "-p", "hi", "-m", name), 1, *says) for name, *says in rows])
    each([(("bench", "-m", name), 1, *says) for name, *says in rows])
    for name, *says in rows:
        r = modeld("serve", "--port", "0", "-m", name)
        last = r.err.splitlines()[-1]
        assert r.code == 1 and last.startswith("modeld serve: ") and all(s in last for s in says), (name, str(r))


@case
def bad_input_loads_no_model():
    """What can be known without the model is told first: the model named here does not exist."""
    each([(("run", "-m", "/no/such.gguf", "-p", "x", "-f", "y"), 2, "not both"),
          (("run", "-m", "/no/such.gguf", "-f", "/no/prompt"), 1, "/no/prompt"),
          (("run", "-m", "/no/such.gguf", "-p", ""), 1, "empty"),
          (("run", "-m", "/no/such.gguf", "--turns", write("bad.jsonl", "{")), 1, "line 1")])


@case
def a_name_is_no_path():
    """A model is found by name in the models folder, and by nothing that leaves it."""
    root = os.path.join(FOLDER, "root")
    os.makedirs(os.path.join(root, "models"))
    os.symlink(EXACT, os.path.join(root, "models", "tiny.gguf"))
    for name in ("tiny", "tiny.gguf"):
        r = modeld("run", "--data-root", root, "-m", name, "-p", "hi", "-n", "1", "--temp", "0")
        assert r.code == 0 and r.out == modeld(*RUN, "--temp", "0").out, r
    each([(("run", "--data-root", root, "-p", "hi", "-m", name), 1, "no model")
          for name in ("tin", "TINY", "tiny.ggu", "tiny.ggufs", "..", ".")])


@case
def values_the_library_would_abort_on():
    whole = open(EXACT, "rb").read()

    def after(key, kind, value):
        at = whole.index(key.encode()) + len(key)
        assert whole[at:at + 4] == struct.pack("<I", kind), key
        return whole[:at + 4] + value + whole[at + 8:]

    def pair(a, b):
        """Two tokens, the bytes 'A' and 'B' (68 and 69, behind three special ones), in as many bytes."""
        old, new = (b"".join(struct.pack("<Q", len(x)) + x for x in xs) for xs in ((b"<0x41>", b"<0x42>"), (a, b)))
        assert len(old) == len(new) and old in whole
        return whole.replace(old, new, 1)
    eps = "llama.attention.layer_norm_rms_epsilon"
    model = b"tokenizer.ggml.model" + struct.pack("<IQ", 8, 5)
    files = {
        "eps-1": (after(eps, 6, struct.pack("<f", -1)), "-1", eps),
        "epsnan": (after(eps, 6, struct.pack("<f", float("nan"))), "nan", eps),
        "layers": (after("llama.block_count", 4, struct.pack("<I", 1 << 31)), "2147483648 layers", "512"),
        "nolayer": (after("llama.block_count", 4, struct.pack("<I", 0)), "'llama.block_count' is 0"),
        "twice": (whole.replace(b"<0x41>", b"<0x42>", 1), "<0x42>", "twice"),
        # llama-vocab.cpp: an empty token gets its number as its name, and a text ends at its first NUL
        "named": (pair(b"[EMPTY_69]", b"\0x"), "[EMPTY_69]", "twice"),
        "none": (whole.replace(model + b"llama", model + b"none\0", 1), "no vocabulary", "'none'"),
    }
    each([(("run", "-m", write(name + ".gguf", data), "-p", "hi"), 1, *says) for name, (data, *says) in files.items()])
    two_empty = write("empties.gguf", pair(b"\0" b"0x41>", b"\0" b"0x42>"))
    r = modeld("run", "-m", two_empty, "-p", "hi", "-n", "1")
    assert r.code == 0, r


@case
def help_and_version_on_a_full_disk():
    for args in (("-h",), ("version",), ("run", "-h")):
        with open("/dev/full", "w") as full:
            p = subprocess.run([MODELD, *args], stdout=full, stderr=subprocess.PIPE)
        assert p.returncode == 1 and b"standard output" in p.stderr, (args, p)


@case
def what_an_error_quotes_cannot_draw():
    """Line ends and escape sequences, of an argument or of a model file, stay out of the terminal."""
    r = modeld("run", "-m", "a\nb\x1b[31m", "-p", "x")
    refused(r, 1, "no model 'a?b?[31m'")
    refused(modeld("run", "--bo\ngus\x7f"), 2, "unknown flag '--bo?gus?'")


main()
