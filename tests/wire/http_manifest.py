"""modeld.manifest of a chat: what messages are, as ExplainContext shows it, and what follows from it.

The scripted tokenizer makes a token of each byte, and its template writes "role: content" and a line feed for each
message; a segment ends with its content (session/prompt.h)."""
from libwire import CHAT, COMPLETION, Server, case, check_error, main

ENDS = {"logit_bias": {"256": -100}, "max_tokens": 4}  # four tokens, whatever the script says


def chat(messages, segments=None, session=None, **more):
    """messages: (role, content) pairs; segments: a list of dicts."""
    body = {"messages": [{"role": role, "content": content} for role, content in messages], **ENDS, **more}
    modeld = {}
    if segments is not None:
        modeld["manifest"] = {"segments": segments}
    if session is not None:
        modeld["session"] = session
    return dict(body, modeld=modeld) if modeld else body


def ends(messages):
    """Where the contents end, in tokens; the last segment takes the rest."""
    at, out = 0, []
    for role, content in messages:
        at += len(role) + 2 + len(content)
        out.append(at)
        at += 1
    return out[:-1] + [at + len("assistant: ")]


def ask(server, body):
    status, got = server.post(CHAT, body)
    assert status == 200, got
    return got["modeld"], got["usage"]["prompt_tokens"], got["usage"]["prompt_tokens_details"]["cached_tokens"]


def explain(server, modeld):
    return server.get("/api/sessions/%d" % modeld["session"])[1]


TALK = [("system", "Rules. " * 20), ("user", "map " * 60), ("user", "$ make\n" + "out " * 60), ("assistant", "done"),
        ("user", "go on")]


@case
def roles_alone_make_segments():
    with Server(["al", "pha"]) as server:
        modeld, prompt, _ = ask(server, chat(TALK))
        e = explain(server, modeld)
        want = [("system", "task_pinned", True), ("user", "volatile", False), ("user", "volatile", False),
                ("assistant", "volatile", False), ("user", "volatile", False)]
        assert [(s["kind"], s["class"], s["stable"]) for s in e["segments"]] == want, e["segments"]
        assert [s["token_end"] for s in e["segments"]] == ends(TALK), (e["segments"], ends(TALK))
        assert e["segments"][-1]["token_end"] == prompt and e["prefix_tokens"] == ends(TALK)[0], e
        assert modeld["breaker"] is None, modeld
        # a completion has none
        status, got = server.post(COMPLETION, {"prompt": "Rules.", **ENDS})
        assert status == 200 and explain(server, got["modeld"])["segments"] == [], got


@case
def a_first_message_is_whose_conversation_it_is():
    """Without a name the first user message decides (policy/identity.h): the same system text is not enough."""
    with Server(["x"]) as server:
        system = ("system", "Rules. " * 40)
        first = ask(server, chat([system, ("user", "one" * 20)]))[0]["session"]
        other = ask(server, chat([system, ("user", "two" * 20)]))[0]["session"]
        assert first != other
        got = ask(server, chat([system, ("user", "one" * 20), ("assistant", "?"), ("user", "and")]))[0]
        assert got["session"] == first, got


@case
def classes_and_hints_reach_explain():
    segments = [{"message": 1, "kind": "repo_map"},
                {"message": 2, "kind": "terminal", "invalidation": "ON_turn"},
                {"message": 3, "kind": "my own word", "cache_class": " Task_Pinned ", "invalidation": None}]
    with Server(["x"], block=16) as server:
        modeld = ask(server, chat(TALK, segments))[0]
        e = explain(server, modeld)
        got = [(s["kind"], s["class"], s["stable"], s["invalidation"]) for s in e["segments"]]
        assert got == [("system", "task_pinned", True, "none"), ("repo_map", "repo_map", False, "none"),
                       ("terminal", "volatile", False, "on_turn"), ("my own word", "task_pinned", False, "none"),
                       ("user", "volatile", False, "none")], got
        assert [s["token_end"] for s in e["segments"]] == ends(TALK), e["segments"]
        # each block is as dear as the dearest segment it has a token of (policy/segment.h)
        start, end = ends(TALK)[0], ends(TALK)[1]
        inside = e["map"]["class"][start // 16 + 1:end // 16]
        assert inside and set(inside) == {"r"} and e["map"]["class"][0] == "t", e["map"]


@case
def what_is_stable_is_given_or_inferred():
    talk = [("system", "now"), ("system", "Rules."), ("user", "a"), ("user", "b")]
    rows = [
        # a clock that says it is volatile: nothing behind it is stable, its class stays
        ([{"message": 0, "kind": "now", "stable": False}],
         [("now", "volatile", False), ("system", "task_pinned", False), ("user", "volatile", False), ("user", "volatile", False)]),
        # left out: as its role and place have it
        ([{"message": 0, "kind": "now"}, {"message": 1, "kind": "repo_rules"}],
         [("now", "task_pinned", True), ("repo_rules", "task_pinned", True), ("user", "volatile", False),
          ("user", "volatile", False)]),
        ([{"message": 2, "kind": "repo_map", "stable": True}],
         [("system", "task_pinned", True), ("system", "task_pinned", True), ("repo_map", "repo_map", True),
          ("user", "volatile", False)]),
        ([], [("system", "task_pinned", True), ("system", "task_pinned", True), ("user", "volatile", False),
              ("user", "volatile", False)]),
    ]
    with Server(["x"]) as server:
        for segments, want in rows:
            e = explain(server, ask(server, chat(talk, segments))[0])
            got = [(s["kind"], s["class"], s["stable"]) for s in e["segments"]]
            assert got == want, (segments, got)
            stable = [s["token_end"] for s in e["segments"] if s["stable"]]
            assert e["prefix_tokens"] == (stable[-1] if stable else 0), e


@case
def b044_the_clock_first_and_last():
    """Segments `now` (09:14:03), system (1500 tokens), history; two requests, only the clock differs."""
    rest = [("system", "r" * 1500), ("user", "h" * 300)]
    clocks = [("user", "09:14:03"), ("user", "09:14:07")]
    with Server(["x"]) as server:
        # first: reuse ends in the clock (nothing of a segment behind it, the case's "0": a token is a byte here, and those
        # of the hour stay), and the reply names it; nothing is put in another order
        now = [{"message": 0, "kind": "now", "stable": False}]
        session = ask(server, chat([clocks[0]] + rest, now))[0]["session"]
        modeld, prompt, cached = ask(server, chat([clocks[1]] + rest, now, session))
        assert cached == len("user: 09:14:0"), (cached, modeld)
        assert modeld["breaker"] == {"segment": 0, "kind": "now"}, modeld
        assert [s["kind"] for s in explain(server, modeld)["segments"]] == ["now", "system", "user"]
        # last: all the rest is found again
        now = [{"message": 2, "kind": "now"}]
        session = ask(server, chat(rest + [clocks[0]], now))[0]["session"]
        modeld, prompt, cached = ask(server, chat(rest + [clocks[1]], now))
        assert modeld["session"] == session, "the first message is the same: the same conversation"
        assert cached == prompt - len("7\nassistant: "), (cached, prompt)
        assert modeld["breaker"] == {"segment": 2, "kind": "now"}, modeld
        # what goes on breaks nothing, in a stream neither
        ask(server, chat(rest + [clocks[1]], now, max_tokens=0))
        events, _ = server.stream(CHAT, chat(rest + [clocks[1], ("assistant", "xxxx"), ("user", "and")], now))
        assert [e["modeld"]["breaker"] for e in events if "modeld" in e] == [None], events[-1]


@case
def b050_an_answer_that_is_spelled_in_other_tokens():
    """The answer's tokens are pieces, the history that comes back has a token for each byte: they part where it begins."""
    talk = [("system", "s"), ("user", "u" * 50)]
    with Server(["hel", "lo"]) as server:
        modeld, prompt, _ = ask(server, chat(talk, max_tokens=2))
        more = talk + [("assistant", "hello"), ("user", "and")]
        again, _, cached = ask(server, chat(more))
        assert again["session"] == modeld["session"] and cached == prompt, (again, cached, prompt)
        assert again["breaker"] == {"segment": 2, "kind": "assistant"}, again
        status, fresh = server.post(CHAT, chat(more, session=server.call("POST", "/api/sessions", {})[1]["id"]))
        status, got = server.post(CHAT, chat(more))
        assert got["choices"][0]["message"] == fresh["choices"][0]["message"], (got, fresh)


@case
def on_turn_is_over_with_the_answer():
    """The KV of such a segment goes when the answer is there, with all behind it; the text can be sent again."""
    talk = [("user", "a" * 200), ("user", "out " * 50), ("user", "q")]
    for hint in ("none", "on_turn"):
        segments = [{"message": 1, "kind": "terminal", "invalidation": hint}]
        with Server(["x"], block=16) as server:
            modeld, prompt, _ = ask(server, chat(talk, segments))
            e = explain(server, modeld)
            start = ends(talk)[0]
            assert e["tape_tokens"] == (start if hint == "on_turn" else prompt + 3), (hint, e["tape_tokens"])
            _, _, cached = ask(server, chat(talk, segments))
            assert cached == (start if hint == "on_turn" else prompt - 1), (hint, cached, prompt)


@case
def on_edit_drops_the_file_from_its_start():
    """An edit leaves the common prefix and keeps the old branch; with the hint neither."""
    def talk(middle):
        return [("user", "a" * 200), ("user", "f" * 100 + middle + "g" * 200), ("user", "q")]
    for hint in ("none", "on_edit"):
        segments = [{"message": 1, "kind": "file", "invalidation": hint}]
        with Server(["x"], block=16) as server:
            ask(server, chat(talk("old"), segments))
            modeld, prompt, cached = ask(server, chat(talk("new"), segments))
            start, common = ends(talk("old"))[0], ends(talk("old"))[0] + len("\nuser: ") + 100
            assert cached == (start if hint == "on_edit" else common), (hint, cached, start, common)
            assert modeld["breaker"] == {"segment": 1, "kind": "file"}, modeld
            # back to the old text: its KV went cold, or it is gone
            modeld, prompt, cached = ask(server, chat(talk("old"), segments))
            assert (modeld["restored_tokens"] > 0) == (hint == "none"), (hint, modeld)
            assert cached >= prompt - 1 - 16 if hint == "none" else cached == start, (hint, cached, prompt)


@case
def bad_manifests_are_refused_by_field():
    talk = [("system", "s"), ("user", "a"), ("user", "b")]
    one = {"message": 1, "kind": "diff"}
    s0, s1 = "modeld.manifest.segments[0]", "modeld.manifest.segments[1]"
    rows = [
        ([1], "modeld.manifest", ["object"]),
        ("x", "modeld.manifest", ["object"]),
        ({}, "modeld.manifest.segments", ["array"]),
        ({"segments": None}, "modeld.manifest.segments", ["array"]),
        ({"segments": {}}, "modeld.manifest.segments", ["array"]),
        ({"segments": [], "digest": "x"}, "modeld.manifest.digest", ["digest"]),
        ({"segments": [one] * 4097}, "modeld.manifest.segments", ["4097", "4096"]),
        ({"segments": [7]}, s0, ["object"]),
        ({"segments": [{"kind": "diff"}]}, s0 + ".message", ["missing"]),
        ({"segments": [{"message": None, "kind": "diff"}]}, s0 + ".message", ["missing"]),
        ({"segments": [dict(one, message="1")]}, s0 + ".message", ["whole number"]),
        ({"segments": [dict(one, message=1.5)]}, s0 + ".message", ["whole number"]),
        ({"segments": [dict(one, message=-1)]}, s0 + ".message", ["-1"]),
        ({"segments": [dict(one, message=3)]}, s0 + ".message", ["3", "between 0 and 2"]),
        ({"segments": [dict(one, message=1e300)]}, s0 + ".message", ["between 0 and 2"]),
        ({"segments": [one, one]}, s1 + ".message", ["once"]),
        ({"segments": [one, dict(one, message=0)]}, s1 + ".message", ["order"]),
        ({"segments": [{"message": 1}]}, s0 + ".kind", ["string"]),
        ({"segments": [dict(one, kind=3)]}, s0 + ".kind", ["string"]),
        ({"segments": [dict(one, kind="")]}, s0 + ".kind", ["0 bytes"]),
        ({"segments": [dict(one, kind="k" * 32)]}, s0 + ".kind", ["31", "32 bytes"]),
        ({"segments": [dict(one, kind="a\0b")]}, s0 + ".kind", ["NUL"]),
        ({"segments": [one, dict(one, message=2, stable="yes")]}, s1 + ".stable", ["true or false"]),
        ({"segments": [dict(one, message=2, stable=True)]}, s0 + ".stable", ["volatile"]),
        ({"segments": [dict(one, message=0, stable=False), dict(one, stable=True)]}, s1 + ".stable", ["stable ones come first"]),
        ({"segments": [dict(one, cache_class="hot")]}, s0 + ".cache_class", ["task_pinned", "hot"]),
        ({"segments": [dict(one, cache_class="")]}, s0 + ".cache_class", ["task_pinned"]),
        ({"segments": [dict(one, cache_class=1)]}, s0 + ".cache_class", ["string"]),
        ({"segments": [one, dict(one, message=2, invalidation="on_save")]}, s1 + ".invalidation", ["on_edit", "on_save"]),
        ({"segments": [dict(one, invalidation=True)]}, s0 + ".invalidation", ["string"]),
        ({"segments": [dict(one, byte_start=0)]}, s0 + ".byte_start", ["not known"]),
    ]
    with Server(["x"]) as server:
        for manifest, param, says in rows:
            check_error(server.post(CHAT, dict(chat(talk), modeld={"manifest": manifest})), 400, param, says=says)
        text = b'{"messages":[{"role":"user","content":"a"}],"modeld":{"manifest":%s}}'
        for body, param in ((b'{"segments":[],"segments":[]}', "modeld.manifest.segments"),
                            (b'{"segments":[{"message":0,"message":0,"kind":"x"}]}', s0 + ".message"),
                            (b'{"segments":[]},"manifest":{"segments":[]}', "modeld.manifest"),
                            (b'null,"manifest":{"segments":[]}', "modeld.manifest"),
                            (b'{"segments":null,"segments":[]}', "modeld.manifest.segments")):
            check_error(server.post(CHAT, text % body), 400, param, says=["twice"])
        check_error(server.post(COMPLETION, {"prompt": "a", "modeld": {"manifest": {"segments": []}}}), 400, "modeld.manifest",
                    says=["completion"])
        assert server.sessions() == [], "nothing was opened for any of them"
        # the most there may be, and one that stands before the messages it speaks of
        many = [("user", "a")] * 300
        assert ask(server, {"modeld": {"manifest": {"segments": [{"message": i, "kind": "a"} for i in range(300)]}},
                            "max_tokens": 1, "messages": chat(many)["messages"]})[1] == 300 * len("user: a\n") + len("assistant: ")
        # null is as if it were not there
        assert ask(server, dict(chat(talk), modeld={"manifest": None, "session": None}))[0]["session"] > 0


main()
