#!/usr/bin/env python3
"""Ways of scoring blocks, compared without the model, on what `modeld eval --dump FILE` kept.

usage: retrieval_study.py [--quota N] [--pass N] [--only E1,E4] [--base span=32,heads=16,...] FILE...

Each record of a file is one scoring of one question; the form is in src/commands/eval_dump.h.  An item counts when every block
that its needle touches is cold or could be: it stands among the candidates.  Its rank is that of its worst block, ties going to the
lower index, as policy/select has it.  One thing is changed at a time, the rest is as --base says; the line that is the base is marked.

    n         items
    recall    share whose needle is whole within the first --quota blocks, and a 95 % interval
    median, p90     of the rank;  MRR: mean of 1 / rank, and a 95 % interval

A haystack is a trial of a file, at all its depths and lengths: they have the same seed, so the same filler and the same needle.
Intervals are a bootstrap over haystacks, not items, because questions of one text are not independent (percentiles of 2,000 draws); over
items where there are fewer than five haystacks, which says so and is too narrow.

    E1  which tokens of the question ask            E4  heads and blocks: sum, max, rank fusion; weight by share
    E2  which heads, cross-validated; a control     E5  less the mean of earlier questions about the same text
    E3  pooling over neighbouring tokens            E6  a list of words that question and block share
"""
import argparse
import collections
import json
import re
import sys

try:
    import numpy as np
except ImportError:
    sys.exit("retrieval_study.py needs numpy: python3 -m pip install -r bench/requirements.txt")

POOLS = (1, 7, 31, 63)
REDUCES = ("sum", "max")
BAND = (0.30, 0.75)     # of the layers: policy/calibrate.h
RANK_OFFSET = 60        # policy/score.h
DRAWS, SEED = 2000, 1
FOLDS = 2
NOTHING_APART = "heads are chosen on other haystacks, of %d or more, or on other needles, and there are none" % (2 * FOLDS)
BASE = {"span": "whole", "heads": "band", "pool": 1, "reduce": "sum", "fuse": "sum", "share": True}


# ---- records ----

def read(path):
    """(header, share[H][C], mass[H][C][T]) of each record."""
    with open(path, "rb") as f:
        while line := f.readline():
            head = json.loads(line)
            raw = f.read(head["bytes"])
            if len(raw) != head["bytes"]:
                sys.exit("%s: the last record is cut off" % path)
            numbers = np.frombuffer(raw, dtype="=f4")
            heads, clauses, tokens = len(head["heads"]), len(head["clauses"]), sum(head["tokens"])
            yield (head, numbers[:heads * clauses].reshape(heads, clauses),
                   numbers[heads * clauses:].reshape(heads, clauses, tokens))


def runs(head):
    """Stretches of tokens without a hole between them: [from, to) in the order of the record."""
    out, at = [], 0
    for i, (start, tokens) in enumerate(zip(head["starts"], head["tokens"])):
        joined = i > 0 and head["starts"][i - 1] + head["tokens"][i - 1] == start
        if joined:
            out[-1][1] = at + tokens
        else:
            out.append([at, at + tokens])
        at += tokens
    return out


def pooled(mass, head, width):
    """Each token becomes the largest of those within width / 2 of it, not across holes."""
    if width == 1:
        return mass
    out = mass.copy()
    for a, b in runs(head):
        for d in range(1, min(width // 2, b - a - 1) + 1):
            np.maximum(out[..., a + d:b], mass[..., a:b - d], out=out[..., a + d:b])
            np.maximum(out[..., a:b - d], mass[..., a + d:b], out=out[..., a:b - d])
    return out


def blocks_of(mass, head, reduce):
    edges = np.cumsum([0] + head["tokens"])[:-1]
    return (np.add if reduce == "sum" else np.maximum).reduceat(mass, edges, axis=-1)


def words(text):
    """Identifiers, whole and in their parts, in lower case."""
    out = set()
    for word in re.findall(r"[A-Za-z_][A-Za-z0-9_]+|[0-9]{2,}", text.replace("\u2581", " ").replace("\u0120", " ")):
        parts = [p for chunk in word.split("_") for p in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+", chunk)]
        out.update(w.lower() for w in [word] + parts if len(w) > 1)
    return out


class Item:
    """A record, reduced to blocks."""

    def __init__(self, path, head, share, mass):
        self.head, self.share = head, share
        self.text = (path, head["length"], head["depth"], head["trial"])    # the same tokens
        # one trial's depths and lengths are of one seed: the same filler and the same needle, so not independent
        self.haystack = (path, head["trial"])
        self.rows = np.array(head["clauses"], dtype=np.float64)
        self.candidates = np.array(head["candidates"], dtype=bool)
        self.gold = [i for i, (a, n) in enumerate(zip(head["starts"], head["tokens"]))
                     if any(a < end and start < a + n for start, end in head["spans"])]
        # a span may touch blocks that are not scored at all: those of the end, which are hot
        self.counts = bool(self.gold) and all(self.candidates[self.gold])
        self.tables = {}
        for width in POOLS:
            wide = pooled(mass, head, width)
            for reduce in REDUCES:
                self.tables[width, reduce] = blocks_of(wide, head, reduce)
        self.before = None      # mean block masses of a row of earlier questions, [heads][blocks]

    def clause(self, span):
        if span == "whole":
            return 0
        rows = min(int(span), int(self.head["rows"]))
        return int(np.flatnonzero(self.rows == rows)[-1])

    def lexical(self):
        """For each block the sum over the question's words of 1 / (blocks that have it), rare ones alone."""
        asked = words(self.head["question"])
        has = [words(t) & asked for t in self.head["texts"]]
        count = collections.Counter(w for h in has for w in h)
        return np.array([sum(1 / count[w] for w in h if count[w] <= 3) for h in has])


def load(paths, wanted_pass):
    items, left, sums = [], 0, {}
    for path in paths:
        for head, share, mass in read(path):
            if head["pass"] != wanted_pass:
                continue
            item = Item(path, head, share, mass)
            key = item.text + (tuple(head["starts"][:8]),)
            total, n = sums.get(key, (None, 0))
            table = item.tables[1, "sum"][:, 0] / item.rows[0]
            if n:
                width = min(total.shape[1], table.shape[1])
                item.before = np.zeros_like(table)
                item.before[:, :width] = total[:, :width] / n
                total[:, :width] += table[:, :width]
                sums[key] = (total, n + 1)
            else:
                sums[key] = (table.copy(), 1)
            left += not item.counts
            items += [item] if item.counts else []
    return items, left


# ---- scoring ----

def layers_of(items):
    return 1 + max(layer for item in items for layer, _ in item.head["heads"])


def band(items, low, high):
    layers = layers_of(items)
    return [i for i, (layer, _) in enumerate(items[0].head["heads"]) if low <= layer / layers < high]


def gold_mass(items, span):
    """What each head gives to the needle, per row, times its share: by which heads are chosen."""
    total = np.zeros(len(items[0].head["heads"]))
    for item in items:
        c = item.clause(span)
        total += item.tables[1, "sum"][:, c][:, item.gold].sum(1) / item.rows[c] * item.share[:, c]
    return total / len(items)


def make_folds(items):
    haystacks = sorted({i.haystack for i in items})
    if len(haystacks) >= 2 * FOLDS:
        place = {h: n % FOLDS for n, h in enumerate(haystacks)}
        return [place[i.haystack] for i in items], "haystacks"
    return [i.head["needle"] % FOLDS for i in items], "needles of a haystack"


def can_choose(items):
    """Does each item have others to choose heads by?"""
    return len(set(make_folds(items)[0])) == FOLDS


def heads_for(items, how):
    """For each item the heads that score it."""
    if how == "band":
        return [band(items, *BAND)] * len(items)
    if how == "upper":
        return [band(items, 0.5, 1)] * len(items)
    if how == "all":
        return [list(range(len(items[0].head["heads"])))] * len(items)
    sys.exit("heads '%s' are not known: band, upper, all or a number" % how)


def best_heads(items, count, span):
    """`count` heads chosen on the other fold; where can_choose."""
    folds, _ = make_folds(items)
    chosen = {}
    for fold in range(FOLDS):
        others = [i for i, f in zip(items, folds) if f != fold]
        chosen[fold] = np.argsort(-gold_mass(others, span), kind="stable")[:count]
    return [chosen[f] for f in folds]


def ranks_within(blocks):
    """1 for the best; what has nothing has no rank."""
    order = np.argsort(np.argsort(-blocks, axis=-1, kind="stable"), axis=-1, kind="stable") + 1.0
    return np.where(blocks > 0, order, np.inf)


def fuse(blocks, weights, how):
    if how == "sum":
        return (blocks * weights[:, None]).sum(0)
    if how == "max":
        return (blocks * weights[:, None]).max(0)
    return (weights[:, None] / (RANK_OFFSET + ranks_within(blocks))).sum(0)


def score(item, heads, way, background=False):
    c = item.clause(way["span"])
    blocks = item.tables[way["pool"], way["reduce"]][heads][:, c] / item.rows[c]
    if background:
        blocks = np.maximum(blocks - item.before[heads], 0)
    blocks = np.where(item.candidates, blocks, 0)
    weights = item.share[heads, c] if way["share"] else np.ones(len(heads))
    return np.where(item.candidates, fuse(blocks, weights, way["fuse"]), -1)


def rank(item, scores):
    """Of the worst block of the needle, from 1."""
    order = np.argsort(-scores, kind="stable")
    place = np.empty(len(order), dtype=int)
    place[order] = np.arange(1, len(order) + 1)
    return int(place[item.gold].max())


def ranks(items, way, heads=None, background=False):
    """Of each item; None: its heads are to be the best ones, and there is nothing to choose them by."""
    if heads is None and str(way["heads"]).isdigit() and not can_choose(items):
        return None
    if heads is None:
        heads = best_heads(items, int(way["heads"]), way["span"]) if str(way["heads"]).isdigit() \
            else heads_for(items, way["heads"])
    return [rank(i, score(i, h, way, background)) for i, h in zip(items, heads)]


# ---- tables ----

def draws_haystacks(items):
    return len({i.haystack for i in items}) >= 5


def bootstrap(items, values):
    """95 % of the mean, haystacks (else items) being drawn."""
    groups = collections.defaultdict(list)
    whole = draws_haystacks(items)
    for item, v in zip(items, values):
        groups[item.haystack if whole else id(item)].append(v)
    sums = np.array([sum(g) for g in groups.values()], dtype=float)
    sizes = np.array([len(g) for g in groups.values()], dtype=float)
    draws = np.random.default_rng(SEED).integers(0, len(sums), (DRAWS, len(sums)))
    return np.percentile(sums[draws].sum(1) / sizes[draws].sum(1), (2.5, 97.5))


def row(name, items, found, quota, mark=""):
    if found is None:
        print("  %-34s left out: %s" % (name, NOTHING_APART))
        return
    r = np.array(found, dtype=float)
    recall, reciprocal = (r <= quota).astype(float), 1 / r
    low, high = bootstrap(items, recall)
    mrr_low, mrr_high = bootstrap(items, reciprocal)
    print("  %-34s %5d  %5.1f %% (%3.0f-%3.0f)  %6.1f  %6.1f  %5.3f (%.3f-%.3f) %s"
          % (name, len(r), recall.mean() * 100, low * 100, high * 100, np.median(r), np.percentile(r, 90), reciprocal.mean(),
             mrr_low, mrr_high, mark))


def title(text, quota):
    print("\n%s\n  %-34s %5s  %18s  %6s  %6s  %s" % (text, "", "n", "recall@%d" % quota, "median", "p90", "MRR"))


def vary(items, base, quota, key, values, name=str):
    for value in values:
        way = dict(base, **(value if isinstance(value, dict) else {key: value}))
        row(name(value), items, ranks(items, way), quota, "<- base" if way == base else "")


def e1(items, base, quota):
    title("E1 which tokens of the question ask", quota)
    vary(items, base, quota, "span", ("whole", 64, 32, 12),
         lambda v: "whole" if v == "whole" else "last %s tokens, or all of fewer" % v)


def e2(items, base, quota):
    _, apart = make_folds(items)
    title("E2 which heads (chosen on other %s)" % apart, quota)
    vary(items, base, quota, "heads", ("band", "upper", "all"),
         lambda v: {"band": "band of 30 to 75 % of the depth", "upper": "upper half", "all": "all"}[v])
    vary(items, base, quota, "heads", (4, 8, 16, 32, 64), lambda v: "best %s" % v)
    rng, inside = np.random.default_rng(SEED), band(items, *BAND)
    drawn = [ranks(items, base, [rng.choice(inside, min(16, len(inside)), replace=False)] * len(items)) for _ in range(20)]
    row("16 of the band by chance, 20 draws", items * len(drawn), [r for d in drawn for r in d], quota)


def e3(items, base, quota):
    title("E3 pooling", quota)
    vary(items, base, quota, None, [{"pool": p, "reduce": r} for r in REDUCES for p in POOLS],
         lambda v: "%d tokens, %s of a block" % (v["pool"], v["reduce"]))
    cut = [i for i in items if len(i.gold) > 1]
    if cut and len(cut) < len(items):
        print("  needles that a border cuts")
        vary(cut, base, quota, None, [{"pool": p, "reduce": r} for r in REDUCES for p in POOLS],
             lambda v: "%d tokens, %s of a cut one's" % (v["pool"], v["reduce"]))


def e4(items, base, quota):
    title("E4 heads together", quota)
    vary(items, base, quota, None, [{"fuse": f, "share": s, "reduce": r} for r in REDUCES for f in ("sum", "max", "rank")
                                    for s in (True, False)],
         lambda v: "%s of heads, %s of a block%s" % (v["fuse"], v["reduce"], ", by share" if v["share"] else ""))


def e5(items, base, quota):
    title("E5 less what earlier questions about the same text paid", quota)
    later = [i for i in items if i.before is not None]
    if not later:
        print("  no haystack was asked twice: dump several needles")
        return
    way = dict(base, span="whole", pool=1, reduce="sum")    # the mean is kept of that
    row("nothing taken off", later, ranks(later, way), quota)
    row("running mean taken off", later, ranks(later, way, background=True), quota)


def merged(first, second, every):
    """An order of blocks: of each `every` places one is the best of `second` that is not in yet."""
    out, a, b = [], list(np.argsort(-first, kind="stable")), [i for i in np.argsort(-second, kind="stable") if second[i] > 0]
    while a or b:
        source = b if b and len(out) % every == every - 1 else a or b
        block = source.pop(0)
        if block not in out:
            out.append(block)
    return out


def e6(items, base, quota):
    title("E6 words in common", quota)
    heads = best_heads(items, int(base["heads"]), base["span"]) if str(base["heads"]).isdigit() \
        else heads_for(items, base["heads"])
    by_heads = [score(i, h, base) for i, h in zip(items, heads)]
    by_words = [np.where(i.candidates, i.lexical(), -1) for i in items]
    row("off", items, [rank(i, s) for i, s in zip(items, by_heads)], quota, "<- base")
    row("words alone", items, [rank(i, w) for i, w in zip(items, by_words)], quota)
    for weight in (0.25, 1.0):
        row("rank fusion, weight %.2f" % weight, items,
            [rank(i, np.where(i.candidates, 1 / (RANK_OFFSET + ranks_within(s)) + weight / (RANK_OFFSET + ranks_within(w)), -1))
             for i, s, w in zip(items, by_heads, by_words)], quota)
    places = [{b: n + 1 for n, b in enumerate(merged(s, w, 4))} for s, w in zip(by_heads, by_words)]
    row("every fourth block by words", items, [max(p[b] for b in i.gold) for i, p in zip(items, places)], quota)


STUDIES = {"E1": e1, "E2": e2, "E3": e3, "E4": e4, "E5": e5, "E6": e6}


def read_base(text):
    base = dict(BASE)
    for pair in filter(None, text.split(",")):
        key, _, value = pair.partition("=")
        if key not in BASE:
            sys.exit("--base: '%s' is not known: it is one of %s" % (key, ", ".join(BASE)))
        base[key] = int(value) if value.isdigit() else value == "yes" if key == "share" else value
    known = {"pool": POOLS, "reduce": REDUCES, "fuse": ("sum", "max", "rank"), "span": ("whole", 64, 32, 12)}
    for key, values in known.items():
        if base[key] not in values:
            sys.exit("--base %s: it is one of %s" % (key, ", ".join(map(str, values))))
    return base


def main():
    p = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1][7:])
    p.add_argument("files", nargs="+")
    p.add_argument("--quota", type=int, default=6)
    p.add_argument("--pass", dest="which", type=int, default=0)
    p.add_argument("--only", default=",".join(STUDIES))
    p.add_argument("--base", default="")
    o = p.parse_args()
    base = read_base(o.base)
    items, left = load(o.files, o.which)
    if not items:
        sys.exit("no item of pass %d has its needle among the candidates (%d have not)" % (o.which, left))
    if any(i.head["heads"] != items[0].head["heads"] for i in items):
        sys.exit("the files are of different models or heads")
    if str(base["heads"]).isdigit() and not can_choose(items):
        sys.exit("--base heads=%s: %s" % (base["heads"], NOTHING_APART))
    print("%d items of %d haystacks, pass %d; %d left out, whose needle is hot whatever is chosen; candidates %d to %d"
          % (len(items), len({i.haystack for i in items}), o.which, left, min(i.candidates.sum() for i in items),
             max(i.candidates.sum() for i in items)))
    print("base: " + ", ".join("%s=%s" % (k, ("no", "yes")[v] if isinstance(v, bool) else v) for k, v in base.items()))
    if not draws_haystacks(items):
        print("intervals are of items, not of haystacks, of which there are too few: take them for too narrow")
    for name in o.only.split(","):
        if name not in STUDIES:
            sys.exit("--only: '%s' is not known: it is one of %s" % (name, ", ".join(STUDIES)))
        STUDIES[name](items, base, o.quota)


main()
