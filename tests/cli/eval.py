"""`modeld eval` on the exact model: its answers are noise, so what is checked is what was hot, what was counted, and that the
same is counted again."""
import array
import json
import os
import re
import signal
import subprocess
import time
import xml.etree.ElementTree as ElementTree

from libcli import exact_tokens as exact, EXACT, FOLDER, MODELD, SLACK, case, environment, main, modeld, refused, write

SMALL = ("-m", EXACT, "--hot", "512", "--length", "700")
BLOCK, SINK = 64, 64  # tokens; a sixteenth of the hot set, in whole blocks
SVG = "{http://www.w3.org/2000/svg}"


def evaluate(*args, **more):
    r = modeld("eval", *args, timeout=120, **more)
    assert r.code == 0, r
    return r


def cells(*args):
    return [json.loads(line) for line in evaluate(*args, "--json").out.decode().splitlines()]


def units(path):
    """What the file of --resume remembers, without its first line."""
    with open(path) as f:
        return [json.loads(line) for line in f.read().splitlines()[1:]]


def fresh(name):
    path = os.path.join(FOLDER, name)
    if os.path.exists(path):
        os.remove(path)
    return path


def timeless(cells):
    return [{k: v for k, v in c.items() if k != "seconds"} for c in cells]


def is_covered(item, sink=SINK, block=BLOCK):
    """Does what T1 leaves hot cover the needle?  It is the sinks and the end of the prompt, `attended` tokens in all."""
    tail = item["prompt"] - (item["attended"] - sink)
    if item["attended"] == item["prompt"]:
        tail = 0
    assert tail % block == 0, item
    return all(end <= sink or start >= tail for start, end in item["spans"])


def check_recall(path, hot=512):
    recalled = {True: 0, False: 0}
    for unit in units(path):
        for item in unit["items"]:
            if unit["policy"] == "dense":
                assert item["attended"] == item["prompt"] and item["recalled"], item
            else:
                assert item["attended"] <= hot and item["recalled"] == is_covered(item), item
                recalled[item["recalled"]] += 1
    return recalled


def selected(item):
    """The blocks that two rotations are compared by: what attention chose, else what was hot."""
    return {i for i, b in enumerate(item["blocks"]) if b == ("c" if "c" in item["blocks"] else "h")}


def check_rotations(path, rotations):
    """The figures from their definitions: pairs of items that ask for the same needle."""
    for r in rotations:
        pairs, shares = [], []
        for items in (u["items"] for u in units(path) if u["policy"] == r["policy"]):
            pairs += [(selected(a), selected(b)) for i, a in enumerate(items) for b in items[i + 1:]
                      if a["needle"] == b["needle"]]
            for order in range(r["orders"]):
                of = [i["recalled"] for i in items if i["order"] == order]
                shares.append(sum(of) / len(of))
        alike = [len(a & b) / len(a | b) for a, b in pairs]
        assert len(alike) == r["pairs"], r
        assert abs(sum(alike) / len(alike) - r["jaccard_mean"]) < 1e-9 and min(alike) == r["jaccard_least"], (alike, r)
        assert (min(shares), max(shares)) == (r["recall_least"], r["recall_most"]), (shares, r)


@case
def recall_is_what_the_policy_leaves_hot():
    path = fresh("recall.jsonl")
    got = cells("needle", *SMALL, "--depths", "0,50,100", "--sink", "192", "--hot", "576",
                "--resume", path)
    for unit in units(path):
        for item in unit["items"]:
            if unit["policy"] == "dense":
                assert item["recalled"] and item["attended"] == item["prompt"], item
                continue
            covered = is_covered(item, 192)  # the first and the last are, the middle is not
            assert item["recalled"] == covered == (unit["depth"] != 50), item
    assert [(c["policy"], c["depth"], c["recall"]) for c in got] == \
        [("dense", 0, 1), ("dense", 50, 1), ("dense", 100, 1), ("t1", 0, 1), ("t1", 50, 0), ("t1", 100, 1)], got
    c = got[4]
    assert (c["task"], c["engine"], c["length"], c["hot"], c["order"], c["seed"], c["prefill"], c["total"]) == \
        ("needle", "llama", 700, 576, 0, 1, "bounded", 1), c
    assert c["found"] == 0 and c["found_low"] == 0 and abs(c["found_high"] - 0.7935) < 1e-4, c  # Wilson, 0 of 1
    assert got[0]["hot"] is None and got[0]["model"] and c["seconds"] > 0


@case
def half_a_needle_is_not_recalled():
    """The sinks end within the line: its first block is hot, its last is not."""
    path = fresh("half.jsonl")
    cells("needle", *SMALL, "--depths", "0", "--sink", "128", "--policy", "t1", "--resume", path)
    item = units(path)[0]["items"][0]
    (start, end), = item["spans"]
    assert start < 128 < end and not item["recalled"] and not is_covered(item, 128), item


@case
def recall_is_of_when_the_answer_began():
    """With blocks of 8 the answer's 32 tokens push others out; what left meanwhile was hot all the same."""
    path, book = fresh("began.jsonl"), write("short_lines.txt", "abcdefg\n" * 100)
    cells("needle", *SMALL, "--haystack", book, "--policy", "t1", "--block-tokens", "8", "--sink", "32", "--depths",
          ",".join(str(d) for d in range(54, 66)), "--resume", path)
    left = 0
    for unit in units(path):
        item = unit["items"][0]
        tail = item["prompt"] - (item["attended"] - 32)
        assert item["recalled"] == is_covered(item, 32, 8), item
        left += tail <= item["spans"][0][0] < tail + 24
    assert left > 0, "none was near the border"


@case
def several_needles_in_every_order():
    path = fresh("orders.jsonl")
    got = cells("needle", *SMALL, "--needles", "3", "--kind", "near", "--orders", "all", "--resume", path,
                "--length", "900")
    for unit in units(path):
        asked = [[i["needle"] for i in unit["items"] if i["order"] == order] for order in range(3)]
        assert asked == [[0, 1, 2], [1, 2, 0], [2, 0, 1]], asked
        for order in range(3):  # each question follows the last one's answer
            prompts = [i["prompt"] for i in unit["items"] if i["order"] == order]
            assert prompts == sorted(prompts) and prompts[0] < prompts[1], prompts
    assert check_recall(path)[False] > 0
    rotations = [c for c in got if "orders" in c]
    assert [(c["policy"], c["orders"], c["pairs"]) for c in rotations] == [("dense", 3, 9), ("t1", 3, 9)], rotations
    assert (rotations[0]["jaccard_mean"], rotations[0]["recall_least"]) == (1, 1), rotations
    check_rotations(path, rotations)
    got = [c for c in got if "orders" not in c]
    assert [(c["policy"], c["depth"], c["order"]) for c in got] == \
        [(p, d, o) for p in ("dense", "t1") for d in (17, 50, 83) for o in range(3)], got
    assert all(c["total"] == 1 and c["kind"] == "near" for c in got)


@case
def asked_alone_the_order_does_not_matter():
    """Each question has the haystack alone before it: where it comes in the order is nothing that the model can see.  Between turns it
    is, and the sets that are chosen differ."""
    args = ("needle", "-m", EXACT, "--hot", "1024", "--length", "1400", "--needles", "2", "--policy", "t1-retrieval",
            "--orders", "all", "--ask")
    alone, turns = fresh("alone.jsonl"), fresh("turns.jsonl")
    got = cells(*args, "alone", "--resume", alone)
    other = cells(*args, "turns", "--resume", turns)
    check_rotations(alone, got[-1:])
    check_rotations(turns, other[-1:])
    assert got[-1]["ask"] == "alone" and got[-1]["jaccard_least"] == 1 and other[-1]["jaccard_mean"] < 1, (got, other)
    (a,), (b,) = units(alone), units(turns)
    for needle in range(2):
        first, second = [{k: v for k, v in i.items() if k not in ("order", "turn", "seconds")} for i in a["items"]
                         if i["needle"] == needle]
        assert first == second, (first, second)
    same = [{k: v for k, v in i.items() if k != "seconds"} for i in a["items"] + b["items"] if i["turn"] == 0]
    assert same[:2] == same[2:], "the first of a rotation has nothing before it"
    for item in a["items"] + b["items"]:
        assert item["evaluations"] > 1 and item["rank"] > 0 and item["first_rank"] > 0, item
    ranked = [c for c in got if "orders" not in c]
    for c in ranked:
        ranks = [i["rank"] for i in a["items"] if i["depth"] == c["depth"] and i["order"] == c["order"]]
        assert (c["ranked"], c["rank_mean"], c["rank_p90"]) == (1, ranks[0], ranks[0]), (c, ranks)


@case
def what_is_attended_stays():
    """T2 keeps as many tokens as T1 (docs/residency.md: the same limit), but not the newest: else its figures would be T1's by another name.
    Both keep the sinks and the recent window, a quarter of the hot set in whole blocks before the question's end."""
    path = fresh("t2.jsonl")
    cells("needle", "-m", EXACT, "--hot", "1024", "--length", "1800", "--depths", "50", "--policy", "t1,t2", "--resume", path)
    t1, t2 = (u["items"][0] for u in units(path))
    assert t1["prompt"] == t2["prompt"] and t1["attended"] == t2["attended"] <= 1024, (t1, t2)
    assert t2["evaluations"] == 0 and set(t2["blocks"]) == {".", "h"}, "nothing was brought in for the question"
    assert t1["blocks"] != t2["blocks"] and t1["blocks"].count("h") == t2["blocks"].count("h"), (t1, t2)
    assert t1["blocks"][0] == t2["blocks"][0] == "h"
    tail = t1["blocks"].lstrip("h").lstrip(".")
    assert "." not in tail and t1["blocks"].rindex(".") > t2["blocks"].index("h", 1), "an older block stayed in the place of a newer"


@case
def all_in_one_message():
    path = fresh("together.jsonl")
    got = cells("needle", *SMALL, "--needles", "3", "--ask", "together", "--length", "900", "--policy", "dense", "--resume", path)
    items = units(path)[0]["items"]
    assert [(i["turn"], i["needle"]) for i in items] == [(0, 0), (1, 1), (2, 2)], items
    assert len({(i["prompt"], i["answer"]) for i in items}) == 1, "one question, one answer"
    assert len({i["value"] for i in items}) == 3 and [c["total"] for c in got] == [1, 1, 1]


@case
def every_task_runs_and_a_chain_needs_all_of_its_links():
    for task, length, more in (("keys", 700, ()), ("code", 800, ()), ("vt", 900, ("--needles", "2", "--hot", "768"))):
        path = fresh(task + ".jsonl")
        got = cells(task, *SMALL, "--length", length, "--policy", "t1", "--resume", path, *more,
                    *(() if more else ("--depths", "0,100")))
        recalled = check_recall(path, 768)
        assert all(c["task"] == task for c in got)
        if task == "vt":
            assert [len(i["spans"]) for u in units(path) for i in u["items"]] == [4, 4]
            assert recalled == {True: 0, False: 2} and [c["depth"] for c in got] == [None], got
            items = [i for u in units(path) for i in u["items"]]
            assert any(is_covered(dict(i, spans=i["spans"][-1:])) for i in items), "the last link alone was hot"
        else:
            assert recalled[True] >= 1, recalled  # the one at the end


@case
def a_seed_repeats_and_trials_differ():
    args = ("needle", *SMALL, "--depths", "50", "--policy", "t1", "--trials", "2")
    one, two, other = (fresh(n) for n in ("one.jsonl", "two.jsonl", "other.jsonl"))
    first = cells(*args, "--seed", "7", "--resume", one)
    assert timeless(first) == timeless(cells(*args, "--seed", "7", "--resume", two))
    cells(*args, "--seed", "8", "--resume", other)

    def answers(path):
        return [i["answer"] for u in units(path) for i in u["items"]]
    assert answers(one) == answers(two) and answers(one) != answers(other)
    assert len(set(answers(one))) == 2 and first[0]["total"] == 2
    values = [i["value"] for u in units(one) for i in u["items"]]
    assert len(set(values)) == 2 and all("-" in v for v in values), values


@case
def killed_and_started_again_it_says_the_same():
    args = ("needle", *SMALL, "--depths", "0,30,60,90", "--trials", "2")
    whole, path = fresh("whole.jsonl"), fresh("killed.jsonl")
    want = cells(*args, "--resume", whole)
    p = subprocess.Popen([MODELD, "eval", *args, "--resume", path], env=environment(), stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60 * SLACK
    while not os.path.exists(path) or len(open(path).read().splitlines()) < 4:
        assert p.poll() is None and time.monotonic() < end, "it was too fast, or too slow"
        time.sleep(0.01)
    p.send_signal(signal.SIGKILL)
    p.wait()
    before = open(path).read()
    done = before.count("\n") - 1
    assert 3 <= done < 16, done
    with open(path, "a") as f:  # and the line that was being written
        f.write('{"policy":"t1","length":700,"de')
    r = evaluate(*args, "--resume", path, "--json")
    assert timeless(json.loads(line) for line in r.out.decode().splitlines()) == timeless(want)
    assert open(path).read().startswith(before[:before.rindex("\n") + 1]), "what was done was done again"
    assert len(r.err.splitlines()) == 16 - done, "the rest, a line each: %s" % r
    for a, b in zip(sorted(units(whole), key=str), sorted(units(path), key=str)):
        assert [i["answer"] for i in a["items"]] == [i["answer"] for i in b["items"]]
    r = evaluate(*args, "--resume", path, "--json")  # all of it is there
    assert r.err == "" and timeless(json.loads(line) for line in r.out.decode().splitlines()) == timeless(want)
    r = modeld("eval", *args, "--resume", path, "--seed", "9")
    refused(r, 1, "--resume", "another 'seed'")
    r = modeld("eval", *args, "--resume", write("letter.txt", "Dear modeld\n"))
    refused(r, 1, "not a file of `modeld eval`")


@case
def the_table_and_the_map():
    path = fresh("map.svg")
    r = evaluate("needle", *SMALL, "--length", "700,600", "--depths", "0,100", "--map", path)
    lines = r.out.decode().splitlines()
    assert lines[0].startswith("needle: ") and "prefill bounded" in lines[1], lines
    assert lines[2].split() == "policy length hot depth order recall rank, p90 found seconds".split(), lines
    rows = [line.split()[:3] for line in lines[3:]]
    assert rows == [[p, n, h] for p, h in (("dense", "all"), ("t1", "512")) for n in ("700", "600") for _ in range(3)]
    root = ElementTree.parse(path).getroot()
    assert root.tag == SVG + "svg"
    assert {e.tag for e in root.iter()} == {SVG + "svg", SVG + "rect", SVG + "text"}, "shapes and words alone"
    assert len(root.findall(SVG + "rect")) == 1 + 2 * 2 * 2
    words = [e.text for e in root.findall(SVG + "text")]
    for word in ("dense", "t1", "700", "600", "0 %", "100 %", "0/1"):
        assert word in words, words
    framed = [e for e in root.findall(SVG + "rect") if e.get("stroke-width") == "3"]
    assert len(framed) == 4 + 2, "all that is dense, and what stands at the end"
    wide, high = int(root.get("width")), int(root.get("height"))
    for e in root.findall(SVG + "rect")[1:]:
        assert int(e.get("x")) + int(e.get("width")) <= wide and int(e.get("y")) + int(e.get("height")) <= high


@case
def a_map_takes_no_other_files_place():
    """What cannot be a picture is refused before any work, and stays as it is; an older picture goes."""
    one = ("needle", *SMALL, "--length", "600", "--depths", "0", "--policy", "t1")
    fifo, text, units, old = fresh("fifo"), fresh("book.txt"), fresh("units.jsonl"), fresh("old.svg")
    os.mkfifo(fifo)
    with open(text, "w") as f:
        f.write("a long text\n")
    for path in ("/dev/null", fifo):
        refused(modeld("eval", *one, "--map", path), 1, "--map", path, "not a regular file")
    refused(modeld("eval", *one, "--map", text), 1, "is no picture: name another")
    assert open(text).read() == "a long text\n"
    for _ in range(2):  # of which there is none yet, and then an empty one
        refused(modeld("eval", *one, "--map", units, "--resume", units), 1, "the same file")
    with open(old, "w") as f:
        f.write("<?xml of yesterday" + "x" * 100000)
    evaluate(*one, "--map", old)
    assert ElementTree.parse(old).getroot().tag == SVG + "svg"


@case
def what_every_head_pays_is_kept():
    """The form is eval_dump.h's.  A row of the question gives 1 in all to the tokens it sees (policy/attention.h), and it sees all
    that may come, which stand before it."""
    path = fresh("heads.bin")
    # the question needs room beside what stays: the exact model has a token for each byte of it
    args = ("needle", "-m", EXACT, "--hot", "1024", "--length", "1400", "--needles", "2", "--policy", "t1-retrieval")
    evaluate(*args, "--dump", path)
    seen = []
    with open(path, "rb") as f:
        for line in f:
            head = json.loads(line)
            heads, clauses, tokens = len(head["heads"]), head["clauses"], sum(head["tokens"])
            numbers = array.array("f", f.read(head["bytes"]))
            assert len(numbers) == heads * len(clauses) * (1 + tokens), head
            assert head["heads"] == [[layer, h] for layer in range(4) for h in range(4)], head["heads"]
            assert clauses == [min(head["rows"], n) for n in (1 << 30, 64, 32, 12)], clauses
            assert all(a + n <= head["from"] for a, n in zip(head["starts"], head["tokens"])), head
            said = head["question"].replace("\u2581", " ")
            assert re.fullmatch("\nuser: What is the .*[?] Answer with the .* only[.]\nassistant: ", said), said
            assert head["rows"] == exact(said), "the last message and nothing else"
            assert [exact(t.replace("\u2581", " ")) for t in head["texts"]] == head["tokens"], head["texts"]
            mass = numbers[heads * len(clauses):]
            for i in range(heads):
                for c, rows in enumerate(clauses):
                    at = (i * len(clauses) + c) * tokens
                    assert abs(sum(mass[at:at + tokens]) - rows) < 1e-3 * rows, (i, c)
            seen.append((head["order"], head["turn"], head["needle"], head["pass"]))
    assert [s for s in seen if s[3] == 0] == [(0, 0, 0, 0), (0, 1, 1, 0)], seen
    refused(modeld("eval", *args, "--dump", path), 1, "--dump: file")
    refused(modeld("eval", *args, "--dump", fresh("d"), "--resume", fresh("r")), 1, "leave one out")
    refused(modeld("eval", *args[:-1], "t1", "--dump", fresh("d")), 1, "--dump needs one policy that retrieves")


@case
def dense_prefill_then_evicted():
    args = ("needle", *SMALL, "--depths", "50,100", "--prefill")
    bounded, dense, roomy = (fresh(n) for n in ("bounded.jsonl", "dense.jsonl", "roomy.jsonl"))
    cells(*args, "bounded", "--resume", bounded)
    got = cells(*args, "dense", "--resume", dense)
    assert all(c["prefill"] == "dense" for c in got)
    assert check_recall(dense) == {True: 1, False: 1}
    assert [c["recall"] for c in got] == [1, 1, 0, 1], got

    def answers(path, policy):
        return [i["answer"] for u in units(path) if u["policy"] == policy for i in u["items"]]
    assert answers(dense, "dense") == answers(bounded, "dense")
    assert answers(dense, "t1") != answers(bounded, "t1"), "other KV"
    cells(*args, "dense", "--hot", "8192", "--resume", roomy)  # more than there is: nothing is evicted
    assert answers(roomy, "t1") == answers(roomy, "dense") == answers(dense, "dense")


@case
def text_of_ones_own():
    text = write("book.txt", "".join("line %d of a book that nobody wrote\n" % i for i in range(60)))
    path = fresh("book.jsonl")
    cells("needle", *SMALL, "--haystack", text, "--depths", "0,90", "--resume", path)
    check_recall(path)
    r = modeld("eval", "needle", *SMALL, "--haystack", text, "--length", "50000")
    refused(r, 1, "too short", "--length 50000")
    r = modeld("eval", "needle", *SMALL, "--haystack", "no such file")
    refused(r, 1, "'no such file' is neither prose, code, chat nor a file")
    refused(modeld("eval", "needle", *SMALL, "--haystack", write("empty.txt", "")), 1, "is empty")


@case
def bad_input_is_one_line():
    needle = ("needle", "-m", EXACT, "--hot", "256")
    rows = (
        (2, ("eval",), "no model"),
        (2, ("eval", "-m", EXACT), "no task"),
        (2, ("eval", "hay", "-m", EXACT), "task 'hay' is not known: it is one of needle, keys, vt, code"),
        (2, ("eval", *needle, "--policy", "t9"), "'t9' is not known"),
        (2, ("eval", *needle, "--policy", "t1,"), "--policy '' is not known"),
        (2, ("eval", *needle, "--policy", "t1,t1"), "t1 twice"),
        (2, ("eval", "needle", "-m", EXACT), "--policy t1: give --hot N"),
        (2, ("eval", *needle, "--orders", "some"), "--orders must be 1 or all"),
        (2, ("eval", *needle, "--prefill", "lazy"), "--prefill must be bounded or dense"),
        (2, ("eval", *needle, "--prefill", "dense", "--policy", "t2"), "t2 chooses by the question"),
        (2, ("eval", *needle, "--needles", "0"), "--needles must be a whole number from 1"),
        (2, ("eval", *needle, "--needles", "25"), "task 'needle' has 24 different ones"),
        (2, ("eval", "code", *needle[1:], "--needles", "17"), "task 'code' has 16 different ones"),
        (2, ("eval", *needle, "--kind", "near"), "--needles 2 or more"),
        (2, ("eval", *needle, "--kind", "far"), "--kind must be distinct or near"),
        (2, ("eval", *needle, "--ask", "never"), "--ask must be turns, alone or together"),
        (2, ("eval", *needle, "--needles", "2", "--depths", "5"), "--depths is for a single needle"),
        (2, ("eval", "vt", *needle[1:], "--depths", "5"), "links of a chain"),
        (2, ("eval", "keys", *needle[1:], "--haystack", "prose"), "pairs among pairs"),
        (2, ("eval", *needle, "--depths", "101"), "--depths must be whole numbers from 0 to 100"),
        (2, ("eval", *needle, "--length", "10"), "--length must be whole numbers from 64"),
        (2, ("eval", *needle, "--length", "1000,,2000"), "--length must be whole numbers"),
        (2, ("eval", *needle, "--length", "1000,1000"), "--length has 1000 twice"),
        (2, ("eval", *needle, "--trials", "0"), "--trials"),
        (1, ("eval", *needle, "--length", "100"), "--length 100 is too short"),
        (1, ("eval", *needle, "--length", "262144"), "the model was trained for 262144: lower --length"),
        (1, ("eval", *needle, "--hot", "64"), "--hot must hold sinks, recent window and one block"),
        (1, ("eval", *needle, "--map", os.path.join(FOLDER, "no", "folder.svg")), "--map: open"),
        (1, ("eval", *needle, "--resume", os.path.join(FOLDER, "no", "folder.jsonl")), "--resume: open"),
        (1, ("eval", "needle", "-m", os.path.join(FOLDER, "none.gguf"), "--hot", "256"), "none.gguf"),
        (2, ("eval", *needle, "--policy", "dense,t3"), "it is one of dense, t1, t1-retrieval, t2, t2-retrieval"),
        (1, ("eval", *needle[:-1], "1024", "--length", "1400", "--depths", "50", "--policy", "t1-retrieval", "--mem-cold", "0"),
         "--policy t1-retrieval: there is no cold store in memory"),
        (1, ("eval", *needle[:-1], "1024", "--length", "1400", "--depths", "50", "--policy", "t1-retrieval", "--mem-cold",
             "64KiB"), "tokens of the haystack were lost and 0 blocks could not be scored: raise --mem-cold"),
        # a policy by place computes it again, under another hot set: 779 tokens of 512 bytes are 390 KB
        *((1, ("eval", *needle[:-1], "512", "--length", "700", "--depths", "50", "--policy", "t1", "--mem-cold", size),
           "raise --mem-cold") for size in ("0", "128KiB")),
        (1, ("eval", *needle[:-1], "512", "--length", "900", "--needles", "3", "--policy", "t1", "--mem-cold", "512KiB"),
         "raise --mem-cold"),
        (1, ("eval", *needle, "--needles", "2", "--ask", "together", "--policy", "t1-retrieval", "--dump",
             os.path.join(FOLDER, "none.dump")), "not with --ask together"),
    )
    for code, args, says in rows:
        refused(modeld(*args), code, says)
    r = modeld("eval", "-h")
    assert r.code == 0 and b"TASK: needle" in r.out and b"--policy" in r.out and b"--kv-dir" not in r.out, r


main()
