"""Bodies: broken, hostile and odd JSON; every parameter at its edges; what is not supported is named."""
import json

from libwire import CHAT, COMPLETION, JSON, Server, case, check_error, joined, main, seconds, user


def healthy(server):
    status, body = server.post(CHAT, user("hi"))
    assert status == 200 and body["choices"][0]["message"]["content"] == "alpha", (status, body)


def small(**options):
    return Server(["al", "pha"], **options)


@case
def b084_bytes_that_are_no_json():
    with small() as server:
        table = [b'{"model":"\xff\xfe"}', '{"messages":"\u4f60\u597d"}'.encode("gbk"), b'{"model":"\xc3\x28"}', b"",
                 b"null", b"[]", b"1", b"{", b'"x"', b"{}x", b'\xef\xbb\xbf{"prompt":"x"}', b"\x00", b'{"prompt":"x\x00y"}']
        for body in table:
            for path in (CHAT, COMPLETION):
                error = check_error(server.post(path, body), 400)
                assert "\ufffd" not in error["message"], "client bytes are not copied raw"
        status, _, _ = server.request("POST", CHAT, json.dumps(user("hi")).encode(),
                                      dict(JSON, Authorization="Bearer \xff"))
        assert status == 200, "no key is asked for, so any is let pass"
        healthy(server)


@case
def b085_odd_strings():
    """Lone surrogates become U+FFFD, NUL is a character, a key given twice in one object is refused.

    The scripted tokenizer gives a token for each byte, so prompt_tokens tells what arrived."""
    frame = len("user: \nassistant: ")
    table = [("lone high", r"\ud83d", 3), ("lone low between", r"x \ude00 y", 4 + 3), ("high and a pair", r"\ud83d\ud83d\ude00", 3 + 4),
             ("nul", r"a\u0000b", 3), ("a pair", r"\ud83e\udd80", 4), ("escaped BOM", r"\ufeff", 3), ("raw BOM", "\ufeff", 3),
             ("two backslashes and letters", r"\\ud83d", 6), ("lone at the end", r"x\udbff", 4), ("upper case", r"\uD83E\uDD80", 4)]
    with small() as server:
        for label, text, want in table:
            body = ('{"messages":[{"role":"user","content":"%s"}]}' % text).encode()
            status, got = server.post(CHAT, body)
            assert status == 200, (label, got)
            assert got["usage"]["prompt_tokens"] == frame + want, (label, got["usage"])
        for twice in ('"model":"scripted","model":"alias"', '"max_tokens":1,"max_tokens":2', '"messages":[]'):
            key = twice.split('"')[1]
            check_error(server.post(CHAT, ('{"messages":[{"role":"user","content":"x"}],%s}' % twice).encode()), 400, key,
                        says=["twice"])
        tool = '{"type":"function","function":{"name":"f","name":"x y"}}'  # the second is no name
        for body, param in (('"model":null,"model":"scripted"', "model"), ('"x":1,"x":1', "x"),
                            ('"stream_options":{"include_usage":null,"include_usage":5}', "stream_options.include_usage"),
                            ('"tools":[%s]' % tool, "tools[0].function.name"), ('"a":[[{"b":{"":1,"":2}}]]', "a[0][0].b."),
                            (r'"\u006dodel":"scripted","model":"scripted"', "model"),
                            ('"response_format":{"type":"text","type":"grammar"}', "response_format.type"),
                            ('"y":{%s,"k7":0}' % ",".join('"k%d":0' % i for i in range(1000)), "y.k7")):
            check_error(server.post(CHAT, ('{"messages":[{"role":"user","content":"x"}],%s}' % body).encode()), 400, param,
                        says=[param + " is given twice"])
        check_error(server.post(CHAT, b'{"messages":[{"role":"user","content":"x","role":"system"}]}'), 400, "messages[0].role",
                    says=["twice"])
        def many(count):
            return ('{"messages":[{"role":"user","content":"hi"}],"x":[{%s}]}' % ",".join('"k%d":0' % i for i in range(count))).encode()
        assert server.post(CHAT, many(4096))[0] == 200, "keys that differ, as many as may be"
        check_error(server.post(CHAT, many(4097)), 400, "x[0]", says=["4097 keys", "4096 are allowed"])
        check_error(server.post(CHAT, json.dumps(user("x"))[:-1].encode() + b',"logit_bias":{"1":1,"01":2}}'), 400, "logit_bias",
                    says=["twice"])
        healthy(server)


@case
def b086_deep_and_long():
    deep = "[" * 100000 + "0" + "]" * 100000
    objects = '{"a":' * 200000 + "0" + "}" * 200000
    with small() as server:
        for body in ('{"x":%s}' % deep, '{"tools":%s}' % deep, '{"messages":[{"role":"user","content":%s}]}' % deep,
                     objects, "[" * 200000, '{"messages":[{"role":"user","content":"hi"}],"x":%s}' % objects):
            took = seconds(lambda: check_error(server.post(CHAT, body.encode()), 400, says=["deeper than 100"]))
            assert took < 0.1, took
        number = '{"messages":[{"role":"user","content":"hi"}],"x":%s}' % ("1" * 100000)
        check_error(server.post(CHAT, number.encode()), 400, says=["number", "512"])
        body = ('{"x":"%s"}' % ("\\\\" * 524288)).encode()
        took = seconds(lambda: check_error(server.post(CHAT, body), 400, "messages"))
        assert took < 0.1, took
        just = '{"messages":[{"role":"user","content":"hi"}],"x":%s}' % ("[" * 99 + "]" * 99)
        assert server.post(CHAT, just.encode())[0] == 200, "100 levels are allowed"
        over = '{"messages":[{"role":"user","content":"hi"}],"x":%s}' % ("[" * 100 + "]" * 100)
        check_error(server.post(CHAT, over.encode()), 400)
        inside = json.dumps(user("[" * 5000))[:-1] + "}"
        assert server.post(CHAT, inside.encode())[0] == 400, "5000 tokens do not fit"
        assert server.post(CHAT, user("[" * 500))[0] == 200, "brackets in a string are no nesting"
        healthy(server)


@case
def b088_parameters():
    bad = {"temperature": ["-1", "NaN", "1e999", "999999", "-Infinity"], "top_p": ["-1", "0", "2"],
           "top_k": ["-1", "1.5", "1e12"], "min_p": ["2", "-0.1"], "repeat_penalty": ["0", "-1"],
           "presence_penalty": ["5", "-3"], "frequency_penalty": ["2.5"], "seed": ["-2", "9223372036854775808", "1.5"],
           "n": ["0", "-1", "2", "1000000"], "max_tokens": ["-2", "1.5"], "max_completion_tokens": ["-2", "0.5"]}
    with small() as server:
        for name, values in bad.items():
            for value in values + ['"1"', "true", "[]", "{}"]:
                body = '{"messages":[{"role":"user","content":"hi"}],"%s":%s}' % (name, value)
                check_error(server.post(CHAT, body.encode()), 400, name, says=[name])
        good = {"temperature": ["0", "1e-6", "2", "100"], "top_p": ["1", "0.5"], "top_k": ["0", "1000000000", "40.0"],
                "min_p": ["0", "1"], "repeat_penalty": ["1.1"], "presence_penalty": ["-2"], "seed": ["-1", "0", "4294967295"],
                "n": ["1"]}
        for name, values in good.items():
            for value in values + ["null"]:
                body = '{"messages":[{"role":"user","content":"hi"}],"%s":%s}' % (name, value)
                status, got = server.post(CHAT, body.encode())
                assert status == 200 and got["choices"][0]["message"]["content"] == "alpha", (name, value, got)
        for name in ("stream", "return_progress"):
            check_error(server.post(CHAT, user("hi", **{name: 1})), 400, name)
        check_error(server.post(CHAT, user("hi", stream_options=[])), 400, "stream_options")
        check_error(server.post(CHAT, user("hi", stream_options={"include_usage": "yes"})), 400, "stream_options.include_usage")
        healthy(server)


@case
def b088_logit_bias():
    with small() as server:
        for value in ([], "x", {"x": 1}, {"-1": 1}, {"": 1}, {"99999": 1}, {"12345678901": 1}, {"1": "1"}, {"1": 101},
                      {"1": -101}, {str(i): 0 for i in range(1025)}):
            check_error(server.post(CHAT, user("hi", logit_bias=value)), 400, "logit_bias")
        status, got = server.post(COMPLETION, {"prompt": "x", "max_tokens": 1, "logit_bias": {"65": 100}})
        assert status == 200 and got["choices"][0]["text"] == "A", got


@case
def b090_max_tokens():
    with Server(["x"], window=512, hot=512) as server:
        endless = {"256": -100}
        prompt = 100
        table = [({"max_tokens": 0}, 0), ({"max_tokens": 1}, 1), ({"max_tokens": 7}, 7), ({"max_tokens": 100000000}, 412),
                 ({"max_tokens": 1e30}, 412), ({"max_tokens": -1}, 412), ({"max_tokens": None}, 412), ({}, 412),
                 ({"max_tokens": 411}, 411)]
        for extra, want in table:
            ask = dict({"prompt": [120] * prompt, "logit_bias": endless}, **extra)
            status, got = server.post(COMPLETION, ask)
            assert status == 200, (extra, got)
            made = got["usage"]["completion_tokens"]
            assert abs(made - want) <= (1 if want == 412 else 0), (extra, made)
            assert got["usage"]["total_tokens"] <= 512
            assert got["choices"][0]["finish_reason"] == "length", (extra, got)
            assert len(got["choices"][0]["text"]) == made
        for extra, want in (({"max_completion_tokens": 2}, 2), ({"max_tokens": 9, "max_completion_tokens": 2}, 2),
                            ({"max_completion_tokens": 2, "max_tokens": 9}, 2)):
            status, got = server.post(CHAT, dict(user("hi", logit_bias=endless), **extra))
            assert status == 200 and got["usage"]["completion_tokens"] == want, (extra, got)
        events, _ = server.stream(COMPLETION, {"prompt": "x", "max_tokens": 0})
        assert joined(events) == "" and events[-1]["choices"][0]["finish_reason"] == "length"


@case
def b095_templates():
    with small() as server:
        def ask(*messages):
            return server.post(CHAT, {"messages": list(messages)})
        check_error(ask({"role": "developer", "content": "x"}), 400, "messages", says=["unknown role"])
        check_error(ask(), 400, "messages", says=["empty"])
        check_error(ask({"role": "", "content": "x"}), 400, "messages")
        for role in (1, None, []):
            check_error(ask({"role": role, "content": "x"}), 400, "messages[0]", says=["role"])
        check_error(ask({"content": "x"}), 400, "messages[0]", says=["role"])
        check_error(ask({"role": "user"}), 400, "messages[0].content")
        check_error(ask({"role": "user", "content": None}), 400, "messages[0].content")
        check_error(ask({"role": "user", "content": 5}), 400, "messages[0].content")
        check_error(ask("hi"), 400, "messages[0]")
        check_error(server.post(CHAT, {"messages": {"role": "user"}}), 400, "messages")
        check_error(server.post(CHAT, {}), 400, "messages")
        check_error(server.post(COMPLETION, {}), 400, "prompt")
        status, got = ask({"role": "user", "content": "x"}, {"role": "assistant", "content": "y"})
        want = len("user: x\nassistant: y\nassistant: ")
        assert status == 200 and got["usage"]["prompt_tokens"] == want, "nothing is merged or dropped"
        status, got = server.post(CHAT, {"messages": [{"role": "user", "content": "x"}], "add_generation_prompt": False})
        assert got["usage"]["prompt_tokens"] == len("user: x\n"), got


@case
def an_assistant_message_may_be_empty():
    with Server(["x"]) as server:
        messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None}, {"role": "user", "content": "so"}]
        assert server.post(CHAT, {"messages": messages})[0] == 200
        messages[0]["content"] = None
        check_error(server.post(CHAT, {"messages": messages}), 400, says=["messages[0].content"])


@case
def what_is_not_supported_is_not_tried_again():
    with Server(["x"]) as server:
        body = json.dumps(dict(user("hi"), logprobs=True))
        status, headers, _ = server.request("POST", CHAT, body, {"Content-Type": "application/json"})
        assert status == 501 and headers.get("x-should-retry") == "false", (status, headers)


@case
def content_parts():
    with small() as server:
        parts = [{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}]
        status, got = server.post(CHAT, {"messages": [{"role": "user", "content": parts}]})
        assert status == 200 and got["usage"]["prompt_tokens"] == len("user: abc\nassistant: "), got
        for kind in ("image_url", "input_audio", "file", "\ud83d"):
            part = {"type": kind, kind: {"url": "x"}}
            error = check_error(server.post(CHAT, {"messages": [{"role": "user", "content": parts + [part]}]}), 400,
                                "messages[0].content")
            assert kind in error["message"] or kind == "\ud83d", error
        for part in ({}, {"type": "text"}, {"type": "text", "text": 1}, "x", {"type": 1}):
            check_error(server.post(CHAT, {"messages": [{"role": "user", "content": [part]}]}), 400, "messages[0].content")


@case
def prompts():
    with small() as server:
        for prompt in ([], "", ["a", "b"], [[1, 2]], [1, "a"], [-1], [259], [1.5], {}, 5, [2**40], True):
            check_error(server.post(COMPLETION, {"prompt": prompt}), 400, "prompt")
        assert server.post(COMPLETION, {"prompt": [0, 258]})[0] == 200
        status, got = server.post(COMPLETION, {"prompt": "a<|end|>b"})
        assert got["usage"]["prompt_tokens"] == 3, "a completion's prompt is taken as rendered text"


@case
def b100_model_names():
    with small() as server:
        for name in (None, "scripted", "alias", "default"):
            assert server.post(CHAT, user("x", model=name))[0] == 200, name
        for name in ("../../etc/passwd", "/etc/passwd", "a/../../b", "a%2f..%2fb", "a\u0000.gguf", ".", "", "x" * 5000,
                     "SCRIPTED", "scripted\u0000"):
            check_error(server.post(CHAT, user("x", model=name)), 404, "model", "model_not_found", ["scripted"])
        check_error(server.post(CHAT, user("x", model=5)), 400, "model")


@case
def unsupported_is_named():
    with small() as server:
        for name, value in (("functions", [{"name": "f"}]), ("function_call", {"name": "f"}),
                            ("logprobs", True), ("top_logprobs", 5), ("modalities", ["text", "audio"]), ("audio", {"voice": "x"}),
                            ("mirostat", 2), ("typical_p", 0.5), ("continue_final_message", True), ("chat_template", "x")):
            check_error(server.post(CHAT, user("x", **{name: value})), 501, name, says=[name])
            check_error(server.post(CHAT, user("x", stream=True, **{name: value})), 501, name)
        for name, value in (("logprobs", 3), ("echo", True), ("suffix", "end")):
            check_error(server.post(COMPLETION, {"prompt": "x", name: value}), 501, name, says=[name])
        check_error(server.post(COMPLETION, {"prompt": "x", "best_of": 2}), 400, "best_of")
        check_error(server.post(CHAT, {"messages": [{"role": "user", "content": "x"},
                                                    {"role": "assistant", "content": "", "function_call": {"name": "f"}}]}), 501,
                    "messages[1]", says=["function_call"])
        nothing = {"tools": [], "tool_choice": "none", "functions": [], "response_format": {"type": "text"}, "logprobs": False,
                   "top_logprobs": 0, "modalities": ["text"], "audio": None, "mirostat": 0, "typical_p": 1, "user": "me",
                   "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "parallel_tool_calls": True,
                   "whatever": [1, 2, {"x": None}], "stop": None, "stop_sequences": []}
        status, got = server.post(CHAT, user("x", **nothing))
        assert status == 200, got


main()
