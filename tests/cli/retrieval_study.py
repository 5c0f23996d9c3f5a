"""bench/retrieval_study.py on a dump that is written here, in the form of src/commands/eval_dump.h, with ranks found by hand.

Four layers of one head, of which the third alone is in the band; blocks of 8 tokens, with a hole before the last, the first of which
is hot whatever is chosen.  Where numpy is missing it has to say so, and that alone is asked of it: no other name is printed."""
import array
import importlib.util
import json
import re
import subprocess
import sys

from libcli import FOLDER, case, main

DUMP = FOLDER + "/hand.dump"
ROWS, TOKENS = 20, 32
# What the head of the band gives to the tokens of each block: (all rows, the last 12)
FIRST = ([0] * 8, [0] * 7 + [5], [0.5] * 8, [3] + [0] * 7), ([0] * 8, [0] * 8, [1] * 8, [0] * 8)
SECOND = ([0] * 8, [5] + [0] * 7, [0] * 8, [4] + [0] * 7), ([0] * 8, [1] * 8, [0] * 8, [0] * 8)


def record(needle, span, band, question, texts, trial=0, depth=-1):
    head = {"trial": trial, "length": 40, "depth": depth, "order": 0, "turn": needle, "needle": needle, "pass": 0, "from": 40,
            "rows": ROWS, "question": question, "spans": [span], "heads": [[layer, 0] for layer in range(4)],
            "clauses": [ROWS, ROWS, ROWS, 12], "starts": [0, 8, 16, 32], "tokens": [8] * 4, "candidates": [0, 1, 1, 1],
            "hot": [1, 0, 0, 0], "texts": texts}
    numbers = array.array("f", [0.25] * 16)     # shares
    for layer in range(4):
        for clause in range(4):
            rows = band[clause == 3] if layer == 2 else [[1] * 8] * 4
            numbers.extend(x for block in rows for x in block)
    assert len(numbers) == 16 + 16 * TOKENS
    head["bytes"] = len(numbers) * numbers.itemsize
    return json.dumps(head).encode() + b"\n" + numbers.tobytes()


def study(*args):
    return subprocess.run([sys.executable, "bench/retrieval_study.py", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, timeout=120)


def rows(text):
    """{label: (n, median)} of the lines of tables."""
    line = re.compile(r"^  (\S.*?) +(\d+) +[\d.]+ % \( *\d+- *\d+\) +([\d.]+) ", re.M)
    return {label: (int(n), float(median)) for label, n, median in line.findall(text)}


def ranks_found_by_hand():
    with open(DUMP, "wb") as f:
        f.write(record(0, [16, 20], FIRST, "user: What is the zebra-code of max_depth?",
                       ["zebra", "nothing here", "the zebra has 12, maxDepth too", "a code"]))
        f.write(record(1, [32, 40], SECOND, "user: And the lion?", ["", "lioness", "", "a lion"]))
        f.write(record(2, [0, 8], FIRST, "", [""] * 4))     # of a hot block: left out
    r = study(DUMP, "--quota", "1")
    assert r.returncode == 0, r
    assert r.stdout.startswith("2 items of 1 haystacks, pass 0; 1 left out"), r.stdout
    got = rows(r.stdout)
    # All rows: 5 in the block before the needle's 4, twice.  The last 12: 8 in the needle's, then none, which is last of three.
    assert got["whole"] == (2, 2) and got["last 12 tokens, or all of fewer"] == (2, 2), got
    assert got["band of 30 to 75 % of the depth"] == (2, 2), got
    # A maximum of 7 reaches 3 tokens: 5 of block 1 come over the border into block 2, three times, with the half of its others: 17.5 to
    # block 1's 20, and 25 if the 3 of the last block came over the hole.  Of the second, 20 and 16.
    assert got["7 tokens, sum of a block"] == (2, 2) and got["7 tokens, max of a block"] == (2, 2), got
    # 63 tokens: blocks 1 and 2 have 5 in all of their tokens, a tie goes to the lower index, and the last block is behind both.
    assert got["63 tokens, sum of a block"] == (2, 2.5), got
    # The second question alone has an earlier one: 5 - 5, 0 - 4 and 4 - 3.
    assert got["nothing taken off"] == (1, 2) and got["running mean taken off"] == (1, 1), got
    # Words: zebra, max, depth and code; lion, which lioness is not.
    assert got["words alone"] == (2, 1), got
    one = rows(study(DUMP, "--only", "E3", "--base", "span=12").stdout)
    assert one["1 tokens, sum of a block"] == (2, 2), one
    assert study(DUMP, "--base", "span=13").returncode != 0 and study(DUMP, "--only", "E9").returncode != 0
    with open(DUMP, "rb") as f:
        whole = f.read()
    with open(DUMP, "wb") as f:
        f.write(whole[:-5])
    r = study(DUMP)
    assert r.returncode != 0 and "cut off" in r.stderr, r


def one_needle_at_five_depths():
    """As `modeld eval needle --dump` has it: one trial, so one seed and one needle.  No other needle chooses heads; two of three trials
    are no two halves of two each; of four trials are, and depths of a trial are one haystack."""
    def dump(trials):
        with open(DUMP, "wb") as f:
            for trial in range(trials):
                for depth in (0, 25, 50, 75, 100):
                    f.write(record(0, [16, 20], FIRST, "", [""] * 4, trial, depth))
    for trials, chosen in ((1, False), (3, False), (4, True)):
        dump(trials)
        r = study(DUMP, "--only", "E2,E3,E5")
        assert r.returncode == 0 and r.stdout.startswith("%d items of %d haystacks" % (5 * trials, trials)), r
        assert "intervals are of items" in r.stdout, r.stdout
        assert ("  best 16 " in r.stdout) and ("best 16" in rows(r.stdout)) == chosen, r.stdout
        assert ("left out: heads are chosen on other haystacks" in r.stdout) != chosen, r.stdout
        r = study(DUMP, "--base", "heads=4")
        assert (r.returncode == 0) == chosen and "Traceback" not in r.stderr, r
        assert chosen or "--base heads=4: heads are chosen on other" in r.stderr, r
    dump(5)
    r = study(DUMP, "--only", "E1")
    assert r.returncode == 0 and "intervals are of items" not in r.stdout, r


def without_numpy_it_says_so():
    r = study(DUMP)
    assert r.returncode != 0 and "needs numpy" in r.stderr, r


if importlib.util.find_spec("numpy") is None:
    case(without_numpy_it_says_so)
else:
    case(ranks_found_by_hand)
    case(one_needle_at_five_depths)
main()
