"""`modeld run --turns`: several turns in one process, branches, and scripts that are wrong."""
import json

from libcli import EXACT, case, exact_tokens, main, modeld, refused, run_json, run_ok, write


def turns(*messages):
    """Each message is "role: text", None a blank line."""
    out = ""
    for m in messages:
        if m is not None:
            role, _, text = m.partition(": ")
            out += json.dumps({"role": role, "content": text})
        out += "\n"
    return write("turns.jsonl", out)


def plain(*texts):
    return "".join(t + "\n" for t in texts) + "assistant: "


@case
def the_next_turn_reuses_all_of_the_last():
    a, b, c = run_json("--turns", turns("user: one", "user: two", "user: three"), "-n", "20")
    assert [f["turn"] for f in (a, b, c)] == [1, 2, 3]
    assert a["cached_tokens"] == 0 and a["prompt_tokens"] == exact_tokens(plain("user: one"))
    for before, now in ((a, b), (b, c)):
        # the answer's text is read again as bytes: it is reused up to where its bytes were no characters
        assert now["cached_tokens"] >= before["prompt_tokens"], (before, now)
        assert now["restored_tokens"] == 0


@case
def scripted_answers_are_not_asked_for():
    script = turns("system: brief", "user: one", "assistant: 1", "user: two", "assistant: 2", "user: three")
    figures = run_json("--turns", script, "-n", "8")
    assert len(figures) == 1 and figures[0]["turn"] == 1
    want = plain("system: brief", "user: one", "assistant: 1", "user: two", "assistant: 2", "user: three")
    assert figures[0]["prompt_tokens"] == exact_tokens(want)
    same = run_json("--raw", "-p", want, "-n", "8")[0]
    assert same["tokens"] == figures[0]["tokens"]


@case
def text_is_one_line_for_each_answer():
    script = turns("user: one", "assistant: 1", "user: two", None, "user: one")
    figures = run_json("--turns", script, "-n", "6")
    assert run_ok("--turns", script, "-n", "6").decode() == "".join(f["text"] + "\n" for f in figures)


@case
def a_blank_line_forgets_the_messages_but_not_the_system():
    script = turns("user: one", None, "user: two")
    first, second = run_json("-sys", "brief", "--turns", script, "-n", "4")
    assert first["prompt_tokens"] == second["prompt_tokens"] == exact_tokens(plain("system: brief", "user: two"))
    assert second["cached_tokens"] >= exact_tokens("system: brief\nuser: "), second
    assert second["tokens"] == run_json("-sys", "brief", "-p", "two", "-n", "4")[0]["tokens"]
    crlf = write("crlf.jsonl", open(script).read().replace("\n", "\r\n"))
    assert run_ok("-sys", "brief", "--turns", crlf, "-n", "4") == run_ok("-sys", "brief", "--turns", script, "-n", "4")


@case
def a_branch_comes_back_from_the_cold_store():
    long = ["user: " + "%03d " % i * 100 for i in range(8)]
    history = []
    for q in long:
        history += [q, "assistant: ok"]
    script = turns(*history, "user: and now?", None, *history[:6], "user: what was the first?")
    whole, branch = run_json("--turns", script, "-n", "8", "--hot", "512", "-c", "8192")
    assert whole["prompt_tokens"] > 4 * 512 and whole["dropped_tokens"] == 0
    assert branch["restored_tokens"] > 0 and branch["recomputed_tokens"] == 0, branch
    assert branch["prefilled_tokens"] <= exact_tokens(plain("user: what was the first?")) + 64, branch
    none = run_json("--turns", script, "-n", "8", "--hot", "512", "-c", "8192", "--mem-cold", "0")[1]
    assert none["restored_tokens"] == 0 and none["prefilled_tokens"] > branch["prefilled_tokens"], none


@case
def restored_turns_answer_like_a_fresh_run():
    """All hot, so that all KV is of full provenance: a branch restored from the cold store is exact."""
    history = []
    for i in range(6):
        history += ["user: " + "%03d " % i * 60, "assistant: fine"]
    script = turns(*history, "user: x", None, *history[:2], "user: " + "other " * 90, None, *history, "user: x")
    args = ("-n", "24", "-c", "4096", "--hot", "4096")
    first, other, again = run_json("--turns", script, *args)
    assert again["restored_tokens"] > 0 and again["recomputed_tokens"] == 0, again
    assert again["tokens"] == first["tokens"], (first, again)
    fresh = run_json("--turns", turns(*history[:2], "user: " + "other " * 90), *args)[0]
    assert fresh["tokens"] == other["tokens"]


@case
def turns_from_stdin():
    script = turns("user: one", "user: two")
    assert run_ok("--turns", "-", "-n", "4", stdin=open(script, "rb").read()) == run_ok("--turns", script, "-n", "4")


@case
def scripts_that_are_wrong():
    good = '{"role":"user","content":"hi"}\n'
    rows = (("", "nothing to answer"), ("\n\n", "nothing to answer"),
            ('{"role":"assistant","content":"x"}', "nothing to answer"), ('{"role":"system","content":"x"}', "end them with"),
            (good + "{", "line 2", "not JSON"), (good + "hello\n", "line 2", "not JSON"), (good + "[]\n", "line 2 of", '"role"'),
            (good + '{"role":"user"}\n', "line 2"), ('{"content":"user"}\n', "line 1"), ('{"role":"","content":"x"}', "line 1"),
            ('{"role":1,"content":"x"}\n' + good, "line 1"), ('{"role":"user","content":null}\n', "line 1"),
            ('{"role":"user","content":"\xff"}'.encode("latin-1"), "line 1"), (b"\0\n", "line 1"), (good + "\n" + good + "}", "line 4"))
    for script, *says in rows:
        refused(modeld("run", "-m", EXACT, "--turns", write("wrong.jsonl", script)), 1, *says)
    r = modeld("run", "-m", EXACT, "--turns", write("role.jsonl", '{"role":"us er","content":"x"}\n' + good))
    refused(r, 1, "role")


@case
def a_later_turn_that_fails_keeps_the_answers_before():
    script = turns("user: short", "user: " + "x" * 600)
    r = modeld("run", "-m", EXACT, "--turns", script, "-c", "512", "-n", "4", "--json")
    assert r.code == 1 and len(r.out.splitlines()) == 1 and json.loads(r.out)["turn"] == 1, r
    assert len(r.err.splitlines()) == 1 and "512" in r.err, r


main()
