"""Tools, formats and thoughts over HTTP: what a scripted model says, read as that of a model with such a template."""
import atexit
import json
import os
import re
import shutil
import tempfile

from libwire import CHAT, COMPLETION, Server, case, check_error, finish, main, user

# tools in the system turn, calls in tags, results in a user turn; thoughts in <think>
TEMPLATE = r"""
{%- if tools %}{{- '<|im_start|>system\n<tools>' }}{%- for t in tools %}{{- '\n' }}{{- t | tojson }}{%- endfor %}
{{- '\n</tools><|im_end|>\n' }}{%- endif %}
{%- for m in messages %}
{%- if m.role == 'tool' %}{{- '<|im_start|>user\n<tool_response>\n' + m.content + '\n</tool_response><|im_end|>\n' }}
{%- else %}{{- '<|im_start|>' + m.role + '\n' }}
{%- if m.reasoning_content and loop.last %}{{- '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}{%- endif %}
{{- m.content }}
{%- for call in m.tool_calls or [] %}{{- '\n<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}{{- '}\n</tool_call>' }}{%- endfor %}{{- '<|im_end|>\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""

with tempfile.NamedTemporaryFile("w", suffix=".jinja", delete=False) as file:
    file.write(TEMPLATE)
    atexit.register(os.unlink, file.name)


def tool(name="weather", **more):
    return dict({"type": "function", "function": {"name": name, "description": "d", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}, **more)


def call_text(arguments, name="weather"):
    return '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>' % (name, arguments)


def pieces(text, size):
    raw = text.encode()
    return [raw[i:i + size] for i in range(0, len(raw), size)]


def saying(text, size=3, **options):
    """A server whose model says this, `size` bytes a token, slowly enough for each to be a delta of its own."""
    return Server(pieces(text, size), template=file.name, **dict({"decode_ms": 2}, **options))


def collect(events):
    """The message that the deltas of a stream make, in the order OpenAI's clients add them up."""
    message = {"content": "", "reasoning_content": "", "tool_calls": []}
    for event in events:
        for choice in event["choices"]:
            delta = choice["delta"]
            for key in ("content", "reasoning_content"):
                message[key] += delta.get(key) or ""
            for call in delta.get("tool_calls", []):
                assert set(call) <= {"index", "id", "type", "function"}, call
                if call["index"] == len(message["tool_calls"]):
                    assert call["type"] == "function" and call["function"]["arguments"] == "", call
                    assert re.fullmatch("call_[0-9a-f]{24}", call["id"]), call
                    message["tool_calls"].append({"id": call["id"], "name": call["function"]["name"], "arguments": "", "parts": 0})
                else:
                    assert call["index"] == len(message["tool_calls"]) - 1, "the calls come one after the other"
                    assert "id" not in call and "name" not in call["function"], "they appear once"
                    message["tool_calls"][-1]["arguments"] += call["function"]["arguments"]
                    message["tool_calls"][-1]["parts"] += 1
    return message


def both(server, ask):
    """(whole message, streamed message, the stream's finish_reason), having checked that they say the same."""
    status, got = server.post(CHAT, ask)
    assert status == 200, got
    choice = got["choices"][0]
    message = choice["message"]
    events, _ = server.stream(CHAT, ask)
    streamed = collect(events)
    assert streamed["content"] == (message["content"] or ""), (streamed, message)
    assert streamed["reasoning_content"] == message.get("reasoning_content", ""), (streamed, message)
    calls = [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls", [])]
    assert [(c["name"], c["arguments"]) for c in streamed["tool_calls"]] == calls, (streamed, message)
    assert finish(events) == choice["finish_reason"], (finish(events), choice)
    return message, streamed, choice["finish_reason"]


def calls_of(message):
    return [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls", [])]


@case
def b093_calls_however_they_are_split():
    table = [("inside a key", '{"city": "Paris"}', 1), ("inside an escape", r'{"city": "\u00e9"}', 4),
             ("between backslash and n", r'{"city": "a\\n"}', 1), ("without arguments", "{}", 5),
             ("characters of four bytes", '{"city": "\U0001f980\u20ac"}', 1)]
    for label, arguments, size in table:
        with saying("Well: " + call_text(arguments), size) as server:
            message, streamed, reason = both(server, user("hi", tools=[tool()]))
            assert calls_of(message) == [("weather", arguments)], (label, message)
            assert message["content"] == "Well: " and reason == "tool_calls", (label, message)
            assert size > 1 or streamed["tool_calls"][0]["parts"] > 3, "arguments are streamed"


@case
def b093_two_calls_and_none():
    with saying(call_text('{"city": "A"}') + "\n" + call_text('{"city": "B"}'), 7) as server:
        message, streamed, reason = both(server, user("hi", tools=[tool()]))
        assert message["content"] is None and reason == "tool_calls", message
        assert calls_of(message) == [("weather", '{"city": "A"}'), ("weather", '{"city": "B"}')], message
        ids = [c["id"] for c in message["tool_calls"] + streamed["tool_calls"]]
        assert len(set(ids)) == 4, "an id is never given twice"
    with saying("a < b, <tools> and {braces}", 2) as server:
        message, _, reason = both(server, user("hi", tools=[tool()]))
        assert message["content"] == "a < b, <tools> and {braces}" and reason == "stop", message
        assert "tool_calls" not in message


@case
def b093_cut_by_max_tokens():
    text = call_text('{"city": "Paris and more"}')
    with saying(text, 3) as server:
        for count in range(1, len(text) // 3 + 1, 3):
            message, _, reason = both(server, user("hi", tools=[tool()], max_tokens=count))
            assert reason == "length", (count, reason)
        assert calls_of(message)[0][1].startswith('{"city": "Par'), message
        assert server.post(CHAT, user("hi", tools=[tool()]))[1]["choices"][0]["finish_reason"] == "tool_calls"


@case
def b091_stop_strings_with_tools():
    with saying("alpha STOP" + call_text("{}"), 2) as server:
        message, _, reason = both(server, user("hi", tools=[tool()], stop=["STOP"]))
        assert message["content"] == "alpha " and reason == "stop" and "tool_calls" not in message, message
    with saying(call_text('{"city": "a"}') + " STOP more", 2) as server:
        message, _, reason = both(server, user("hi", tools=[tool()], stop="STOP"))
        assert calls_of(message) == [("weather", '{"city": "a"}')] and reason == "tool_calls", message


@case
def nothing_sampled_is_lost():
    table = [('<tool_call>{"name": "weather", "arguments": {"city": "x"}}</tool_call>', [("weather", '{"city":"x"}')], None),
             ("<tool_call>\n{broken\n</tool_call>", [], "<tool_call>\n{broken\n</tool_call>"),
             ("<tool_call> is a tag", [], "<tool_call> is a tag")]
    for text, calls, content in table:
        with saying(text) as server:
            message, _, _ = both(server, user("hi", tools=[tool()]))
            assert calls_of(message) == calls and message["content"] == content, (text, message)
            message, _, _ = both(server, user("hi"))
            assert message["content"] == text and "tool_calls" not in message, "no tools were offered"
            message, _, _ = both(server, user("hi", tools=[tool()], tool_choice="none"))
            assert message["content"] == text, message


@case
def thoughts_are_apart():
    with saying("<think>\nhm < h\n</think>\n\nSo <b>", 2) as server:
        message, _, reason = both(server, user("hi"))
        assert message["reasoning_content"] == "hm < h\n" and message["content"] == "So <b>" and reason == "stop", message
        history = {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y", "reasoning_content": "z"}]}
        with_it = server.post(CHAT, history)[1]["usage"]["prompt_tokens"]
        del history["messages"][1]["reasoning_content"]
        assert with_it > server.post(CHAT, history)[1]["usage"]["prompt_tokens"], "the template is told"


@case
def plain_text_is_streamed_at_once():
    with saying("one two three four five six", 4, decode_ms=30) as server:
        events, _ = server.stream(CHAT, user("hi", tools=[tool()]))
        deltas = [e["choices"][0]["delta"]["content"] for e in events if e["choices"][0]["delta"].get("content")]
        assert len(deltas) == 7, deltas


@case
def a_history_carries_the_exact_turn():
    with saying("I see. " + call_text('{"city":  "Paris",   "n": 1}'), 5, cold=0) as server:
        def ask(message, **more):
            messages = [{"role": "user", "content": "weather?"}, message,
                        {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "21"}]
            status, got = server.post(CHAT, dict({"messages": messages, "tools": [tool()], "max_tokens": 1}, **more))
            assert status == 200, got
            return got["usage"]
        def first():
            got = server.post(CHAT, user("weather?", tools=[tool()]))[1]
            return got["choices"][0]["message"], got["usage"]
        message, usage = first()
        sampled = usage["prompt_tokens"] + usage["completion_tokens"]
        function = message["tool_calls"][0]["function"]
        assert function["arguments"] == '{"city":  "Paris",   "n": 1}', function
        function["arguments"] = json.dumps({"n": 1.0, "city": "Paris"}, indent=4)
        # all that was evaluated: the last token sampled is not
        assert ask(message)["prompt_tokens_details"]["cached_tokens"] >= sampled - 1, (usage, ask(message))
        for edit in ({"n": 2, "city": "Paris"}, {"city": "Paris"}):
            message, usage = first()
            message["tool_calls"][0]["function"]["arguments"] = json.dumps(edit)
            assert ask(message)["prompt_tokens_details"]["cached_tokens"] < sampled - 10, "it was edited"
        message, usage = first()
        message["tool_calls"][0]["id"] = "call_of_somebody_else"
        assert ask(message)["prompt_tokens_details"]["cached_tokens"] < sampled - 10


def asked(server, messages, **more):
    """What the prompt costs: tokens that had to be computed."""
    status, got = server.post(CHAT, dict({"messages": messages, "tools": [tool()], "max_tokens": 1}, **more))
    assert status == 200, got
    return got["usage"]["prompt_tokens"] - got["usage"]["prompt_tokens_details"]["cached_tokens"]


def rewritten(message):
    """The calls as another program would write them."""
    for call in message["tool_calls"]:
        arguments = json.loads(call["function"]["arguments"])
        call["function"]["arguments"] = json.dumps(dict(sorted(arguments.items(), reverse=True)), indent=4)
    return message


def talk(server, turns=2):
    """A conversation of so many turns that make two calls each, with their results; and the last figures."""
    messages = [{"role": "user", "content": "weather?"}]
    for turn in range(turns):
        status, got = server.post(CHAT, {"messages": messages, "tools": [tool()]})
        assert status == 200 and got["choices"][0]["finish_reason"] == "tool_calls", got
        message = rewritten(got["choices"][0]["message"])
        messages += [message] + [{"role": "tool", "tool_call_id": c["id"], "content": "%d" % turn} for c in message["tool_calls"]]
    return messages, got


TWO = "See: " + call_text('{"city":  "Paris",   "n": 1}') + "\n" + call_text('{"n":2,  "city": "\\u00e9"}')
NEW = 2 * len("<|im_start|>user\n<tool_response>\n1\n</tool_response><|im_end|>\n") + \
    len("<|im_end|>\n") + len("<|im_start|>assistant\n")  # what is new behind a turn of TWO, a token a byte


def kill(server):
    server.process.kill()
    server.process.wait()


@case
def the_exact_turns_outlive_a_kill():
    """With a folder for KV: the history that comes back in other words is known to the next process, to the last token."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"kv_dir": folder, "window": 8192, "hot": 8192}
        server = saying(TWO, 5, **options).__enter__()
        messages, _ = talk(server)
        kill(server)
        with saying(TWO, 5, **options) as server:
            (session,) = server.sessions()
            cost = asked(server, messages)
            assert cost == NEW, (cost, NEW)
            assert [s["id"] for s in server.sessions()] == [session["id"]]
        # and the process after that, which never had them from a model; the turn of a request that only passed them on
        with saying(TWO, 5, **options) as server:
            assert asked(server, messages) < NEW
        # an older turn alone: what follows is dropped
        with saying(TWO, 5, **options) as server:
            assert asked(server, messages[:4]) <= NEW
            edited = json.loads(json.dumps(messages))
            edited[1]["tool_calls"][0]["function"]["arguments"] = '{"city": "Rome", "n": 1}'
            assert asked(server, edited) > 2 * NEW, "it was edited"


@case
def the_exact_turns_are_in_a_snapshot():
    with tempfile.TemporaryDirectory() as folder:
        options = {"snapshots": folder, "window": 8192, "hot": 8192}
        with saying(TWO, 5, **options) as server:
            messages, got = talk(server)
            status, written = server.post("/api/snapshots", {"session": got["modeld"]["session"], "name": "x"})
            assert status == 200, written
        with saying(TWO, 5, **options) as server:
            status, restored = server.post("/api/snapshots/restore", {"name": "x"})
            assert status == 200, restored
            cost = asked(server, messages, modeld={"session": restored["id"]})
            assert cost == NEW, (cost, NEW)
        # damaged in the middle of what was kept: refused whole
        path = os.path.join(folder, "x")
        data = bytearray(open(path, "rb").read())
        data[data.index(b"TCL1") + 40] ^= 1
        open(path, "wb").write(data)
        with saying(TWO, 5, **options) as server:
            status, restored = server.post("/api/snapshots/restore", {"name": "x"})
            assert status == 500, restored


@case
def kept_turns_that_are_damaged_are_lost_alone():
    """Bytes of the record's last section flipped: the conversation is there, and answers as if nothing had been kept."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"kv_dir": folder, "window": 8192, "hot": 8192}
        server = saying(TWO, 5, **options).__enter__()
        messages, got = talk(server)
        kill(server)
        (path,) = [os.path.join(top, name) for top, _, names in os.walk(folder) for name in names if name.endswith(".session")]
        good = open(path, "rb").read()
        assert good.count(b"TCL1") == 2, "both turns"
        for at in (good.index(b"FRNT"), good.index(b"TCL1"), good.index(b"TCL1") + 100, good.rindex(b"TCL1") + 50):
            bad = bytearray(good)
            bad[at] ^= 1
            with tempfile.TemporaryDirectory() as copy:  # nothing of what the one before computed is there
                shutil.copytree(folder, copy, dirs_exist_ok=True)
                open(path.replace(folder, copy), "wb").write(bad)
                with saying(TWO, 5, **dict(options, kv_dir=copy)) as server:
                    (session,) = server.sessions()
                    usage = got["usage"]
                    assert session["tape_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"], session
                    assert asked(server, messages) > 2 * NEW, at


@case
def tools_that_the_template_ignores_are_refused():
    with Server(["x"]) as server:
        check_error(server.post(CHAT, user("hi", tools=[tool()])), 400, "tools")
        check_error(server.post(CHAT, user("hi", tools=[tool()], stream=True)), 400, "tools")
        assert server.post(CHAT, user("hi", tools=[]))[0] == 200


@case
def bad_tools():
    function = {"name": "f", "parameters": {}}
    bad = [("tools", {}), ("tools", "x"), ("tools", 5), ("tools", True), ("tools", [tool("f%d" % i) for i in range(513)]),
           ("tools[0]", ["x"]), ("tools[0]", [None]), ("tools[0].type", [{"function": function}]),
           ("tools[0].type", [tool(type="retrieval")]), ("tools[0].type", [tool(type=1)]),
           ("tools[0].function", [{"type": "function"}]), ("tools[0].function", [{"type": "function", "function": "f"}]),
           ("tools[1].function.name", [tool("a"), tool("a")]),
           ("tools[0].function.description", [{"type": "function", "function": dict(function, description=1)}]),
           ("tools[0].function.parameters", [{"type": "function", "function": dict(function, parameters="x")}]),
           ("tools[0].function.parameters", [{"type": "function", "function": dict(function, parameters=[])}])]
    bad += [("tools[0].function.name", [tool(name)]) for name in (None, 1, "", "x" * 65, "a b", "a.b", "\u00e9", "a\u0000")]
    with saying("fine") as server:
        for param, value in bad:
            check_error(server.post(CHAT, user("hi", tools=value)), 400, param)
        for param, value in (("tool_choice", "any"), ("tool_choice", 1), ("tool_choice", []), ("tool_choice.type", {}),
                             ("tool_choice.type", {"type": "allowed_tools"}), ("tool_choice.function.name", {"type": "function"}),
                             ("tool_choice.function.name", {"type": "function", "function": {"name": 1}}),
                             ("tool_choice.function.name", {"type": "function", "function": {"name": "other"}})):
            for stream in (False, True):
                check_error(server.post(CHAT, user("hi", tools=[tool()], tool_choice=value, stream=stream)), 400, param)
        check_error(server.post(CHAT, user("hi", tool_choice="required")), 400, "tool_choice")
        check_error(server.post(CHAT, user("hi", tools=[], tool_choice={"type": "function", "function": {"name": "f"}})), 400,
                    "tool_choice")
        check_error(server.post(CHAT, user("hi", tools=[tool()], parallel_tool_calls="yes")), 400, "parallel_tool_calls")
        broken = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "x"}}}}}
        check_error(server.post(CHAT, user("hi", tools=[broken])), 400, "tools", says=["schema"])
        for choice in ("auto", "none", "required", {"type": "function", "function": {"name": "weather"}}):
            status, got = server.post(CHAT, user("hi", tools=[tool(), tool("b")], tool_choice=choice))
            assert status == 200, (choice, got)
        many = [{"type": "function", "function": {"name": "f%d" % i}} for i in range(512)]
        check_error(server.post(CHAT, user("hi", tools=many)), 400, code="context_length_exceeded")


@case
def bad_formats():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    bad = [("response_format", "json"), ("response_format", []), ("response_format.type", {}), ("response_format.type", {"type": "xml"}),
           ("response_format.type", {"type": 1}), ("response_format.json_schema", {"type": "json_schema"}),
           ("response_format.json_schema", {"type": "json_schema", "json_schema": "x"}),
           ("response_format.json_schema.schema", {"type": "json_schema", "json_schema": {"name": "x"}}),
           ("response_format.json_schema.schema", {"type": "json_schema", "json_schema": {"schema": "x"}}),
           ("response_format.schema", {"type": "json_object", "schema": "x"})]
    worse = [{"type": "nonsense"}, {"$ref": "#/nowhere"}, {"$ref": "http://example.invalid/x"}, {"pattern": "^(" * 100, "type": "string"}]
    with saying("{}") as server:
        for param, value in bad:
            for path, ask in ((CHAT, user("hi")), (COMPLETION, {"prompt": "x"})):
                check_error(server.post(path, dict(ask, response_format=value)), 400, param)
        for value in worse:
            wrapped = {"type": "json_schema", "json_schema": {"name": "x", "schema": value}}
            for path, ask in ((CHAT, user("hi")), (COMPLETION, {"prompt": "x"})):
                check_error(server.post(path, dict(ask, response_format=wrapped)), 400, "response_format", says=["schema"])
                check_error(server.post(path, dict(ask, json_schema=value)), 400, "json_schema", says=["schema"])
        check_error(server.post(CHAT, user("hi", json_schema="x")), 400, "json_schema")
        check_error(server.post(CHAT, user("hi", grammar=1)), 400, "grammar")
        check_error(server.post(CHAT, user("hi", grammar="(" * 1000)), 400, "grammar")
        check_error(server.post(CHAT, user("hi", grammar="x" * 70000)), 400, "grammar")
        check_error(server.post(CHAT, user("hi", grammar="root ::= \"a\"", json_schema=schema)), 400, says=["together"])
        check_error(server.post(CHAT, user("hi", tools=[tool()], response_format={"type": "json_object"})), 400, "response_format",
                    says=["together"])
        for value in ({"type": "text"}, {"type": "json_object"}, {"type": "json_object", "schema": schema},
                      {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": schema}}):
            status, got = server.post(CHAT, user("hi", response_format=value))
            assert status == 200 and got["choices"][0]["message"]["content"] == "{}", (value, got)
            assert server.post(COMPLETION, {"prompt": "x", "response_format": value})[0] == 200, value


@case
def grammars_that_never_end_are_refused():
    """llama.cpp (2026-11) parses neither to an end: 2 - 5 is unsigned there, and its search for left recursion takes
    2^40 ways.  A rule of many ways that begins with a character has one."""
    chain = "root ::= r0\n" + "".join("r%d ::= r%d | r%d\n" % (i, i + 1, i + 1) for i in range(40)) + 'r40 ::= "a"'
    groups = "root ::= r0\n" + "".join("r%d ::= r%d? (r%d)* \"x\"\n" % (i, i + 1, i + 1) for i in range(40)) + 'r40 ::= "a"'
    wide = "root ::= " + " | # {9,1}\n".join('"a%d" [^\\]"{5,2}#]' % i for i in range(500))
    turned = {"type": "string", "pattern": "^a{5,2}$"}
    with saying("{}") as server:
        for path, ask in ((CHAT, user("hi")), (COMPLETION, {"prompt": "x"})):
            for grammar, word in (('root ::= "a"{5,2}', "{5,2}"), ('root ::= ("a" [b]{2,1})*', "{2,1}"), (chain, "million"),
                                  (groups, "million")):
                check_error(server.post(path, dict(ask, grammar=grammar)), 400, "grammar", says=[word])
            check_error(server.post(path, dict(ask, json_schema=turned)), 400, "json_schema", says=["{5,2}"])
            for grammar in (wide, 'root ::= "a"{2,5} "{5,2}"', 'root ::= "a"{2} b{0,} c{3,3}\nb ::= "b"\nc ::= "c"'):
                assert server.post(path, dict(ask, grammar=grammar))[0] == 200, grammar


@case
def bad_messages_with_tools():
    good = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}

    def assistant(calls):
        return {"role": "assistant", "content": None, "tool_calls": calls}
    bad = [("messages[1].tool_calls", assistant({"a": 1})), ("messages[1].tool_calls", assistant("x")),
           ("messages[1].tool_calls", assistant(["x"])), ("messages[1].tool_calls", assistant([{}])),
           ("messages[1].tool_calls", assistant([dict(good, id=5)])), ("messages[1].tool_calls", assistant([dict(good, type="x")])),
           ("messages[1].tool_calls", assistant([dict(good, function={"name": "f"})])),
           ("messages[1].tool_calls", assistant([dict(good, function={"name": "f", "arguments": 1})])),
           ("messages[1].tool_calls", assistant([dict(good, function={"arguments": "{}"})])),
           ("messages", assistant([dict(good, function={"name": "f", "arguments": "{oops"})])),
           ("messages[1]", {"role": "user", "content": "x", "tool_calls": [good]}),
           ("messages[1].tool_call_id", {"role": "tool", "content": "x"}),
           ("messages[1].tool_call_id", {"role": "tool", "content": "x", "tool_call_id": 5}),
           ("messages[1].content", {"role": "tool", "tool_call_id": "c"}),
           ("messages[1].name", {"role": "tool", "content": "x", "tool_call_id": "c", "name": 1}),
           ("messages[1].reasoning_content", {"role": "assistant", "content": "x", "reasoning_content": 1})]
    with saying("fine") as server:
        for param, message in bad:
            check_error(server.post(CHAT, {"messages": [{"role": "user", "content": "x"}, message]}), 400, param)
        deep = assistant([dict(good, function={"name": "f", "arguments": '{"a":' * 50000 + "1" + "}" * 50000})])
        check_error(server.post(CHAT, {"messages": [{"role": "user", "content": "x"}, deep]}), 400, "messages", says=["500 levels"])
        flat = dict(good, function={"name": "f", "arguments": json.dumps({"text": "[{" * 400 + '"'})})
        for message in (assistant([good]), {"role": "assistant", "tool_calls": [good]}, assistant([flat]),
                        assistant([dict(good, function={"name": "f", "arguments": {"a": 1}})]), assistant(None) | {"content": "x"},
                        {"role": "tool", "content": "x", "tool_call_id": "of nobody"}):
            status, got = server.post(CHAT, {"messages": [{"role": "user", "content": "x"}, message]})
            assert status == 200, (message, got)


@case
def variables_of_the_template():
    with saying("fine") as server:
        for param, name, value in (("chat_template_kwargs", "chat_template_kwargs", []), ("chat_template_kwargs", "chat_template_kwargs", "x"),
                                   ("chat_template_kwargs", "chat_template_kwargs", {"messages": []}),
                                   ("chat_template_kwargs.enable_thinking", "chat_template_kwargs", {"enable_thinking": "no"}),
                                   ("reasoning_effort", "reasoning_effort", 1), ("reasoning_effort", "reasoning_effort", ""),
                                   ("reasoning_effort", "reasoning_effort", "x" * 17), ("reasoning_effort", "reasoning_effort", "a b")):
            check_error(server.post(CHAT, user("hi", **{name: value})), 400, param)
        for name, value in (("chat_template_kwargs", {}), ("chat_template_kwargs", {"enable_thinking": False, "x": {"y": [1]}}),
                            ("reasoning_effort", "none"), ("reasoning_effort", "high")):
            assert server.post(CHAT, user("hi", **{name: value}))[0] == 200, (name, value)


main()
