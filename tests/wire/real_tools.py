"""Tool calls of a real model: one that is required, and the history that carries it back."""
# slow
import json
import os
import tempfile

from libdaemon import Daemon
from libwire import CHAT, case, finish, main, user

MODEL = os.path.abspath(".deps/models/qwen2.5-coder-0.5b.gguf")
GREEDY = {"temperature": 0, "seed": 1}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["C", "F"]}},
    "required": ["city", "unit"], "additionalProperties": False}}}


@case
def a_required_call_and_its_history():
    with Daemon(MODEL, "-t", "1", "-c", "1024", "--hot", "1024") as d:
        question = {"role": "user", "content": "What is the weather in Paris?"}
        ask = dict({"messages": [question], "tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False,
                    "max_tokens": 100}, **GREEDY)
        status, got = d.post(CHAT, ask, timeout=200)
        assert status == 200, got
        message, usage = got["choices"][0]["message"], got["usage"]
        assert got["choices"][0]["finish_reason"] == "tool_calls" and message["content"] is None, got
        calls = message["tool_calls"]
        assert len(calls) == 1 and calls[0]["function"]["name"] == "get_weather", calls
        arguments = json.loads(calls[0]["function"]["arguments"])
        assert set(arguments) == {"city", "unit"} and arguments["unit"] in ("C", "F"), arguments
        # sent back as another program would write it
        calls[0]["function"]["arguments"] = json.dumps(dict(sorted(arguments.items(), reverse=True)), indent=2)
        history = [question, message, {"role": "tool", "tool_call_id": calls[0]["id"], "content": "21 degrees"}]
        status, got = d.post(CHAT, dict({"messages": history, "tools": [TOOL], "max_tokens": 4}, **GREEDY), timeout=200)
        assert status == 200, got
        sampled = usage["prompt_tokens"] + usage["completion_tokens"]
        assert got["usage"]["prompt_tokens_details"]["cached_tokens"] >= sampled - 1, (usage, got["usage"])
        # and streamed: the same call
        events, _ = d.stream(CHAT, ask)
        deltas = [c for e in events for c in e["choices"][0]["delta"].get("tool_calls", [])]
        assert json.loads("".join(c["function"]["arguments"] for c in deltas)) == arguments, deltas
        assert len([c for c in deltas if "id" in c]) == 1 and finish(events) == "tool_calls", deltas
        # the answer as JSON of a schema
        schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"], "additionalProperties": False}
        status, got = d.post(CHAT, user("How old is the sun?", max_tokens=40, response_format={
            "type": "json_schema", "json_schema": {"name": "a", "schema": schema}}, **GREEDY), timeout=200)
        assert status == 200 and isinstance(json.loads(got["choices"][0]["message"]["content"])["age"], int), got


@case
def the_exact_call_outlives_a_kill():
    """The model's own tokens, which its tokenizer might spell otherwise, come back from the disk: what is new is computed."""
    question = {"role": "user", "content": "What is the weather in Paris?"}
    ask = dict({"messages": [question], "tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False,
                "max_tokens": 100}, **GREEDY)
    with tempfile.TemporaryDirectory() as folder:
        args = ("-t", "1", "-c", "1024", "--hot", "1024", "--kv-dir", folder, "--kv-disk", "200MiB")
        with Daemon(MODEL, *args) as d:
            status, got = d.post(CHAT, ask, timeout=200)
            assert status == 200 and got["choices"][0]["finish_reason"] == "tool_calls", got
            d.process.kill()
            d.process.communicate()
        message, usage = got["choices"][0]["message"], got["usage"]
        function = message["tool_calls"][0]["function"]
        function["arguments"] = json.dumps(dict(sorted(json.loads(function["arguments"]).items(), reverse=True)), indent=2)
        history = [question, message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "21 degrees"}]
        with Daemon(MODEL, *args) as d:
            status, got = d.post(CHAT, dict({"messages": history, "tools": [TOOL], "max_tokens": 4}, **GREEDY), timeout=200)
            assert status == 200, got
            sampled = usage["prompt_tokens"] + usage["completion_tokens"]
            assert got["usage"]["prompt_tokens_details"]["cached_tokens"] >= sampled - 1, (usage, got["usage"])
            assert got["modeld"]["recomputed_tokens"] == got["modeld"]["lost_tokens"] == 0, got["modeld"]


main()
