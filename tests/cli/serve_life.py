"""`modeld serve`: how it starts, where it listens, and how it ends."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time

from libcli import EXACT, FOLDER, MODELD, SLACK, TRAINED, case, environment, main, modeld, write
from libdaemon import Daemon
from libwire import CHAT, COMPLETION, user

# what comes of the exact model's end token is not known: ban it
ENDLESS = {"prompt": "x", "max_tokens": 100000, "logit_bias": {"2": -100}}


def daemon(*args, **more):
    return Daemon(EXACT, "-t", "1", *args, **more)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


@case
def starts_serves_and_says_so():
    with daemon("--hot", "512", "-c", "4096", "--alias", "other") as d:
        status, answer = d.post(CHAT, user("hi", max_tokens=4, temperature=0))
        assert status == 200 and answer["usage"]["completion_tokens"] == 4
        status, models = d.get("/v1/models")
        assert status == 200 and "exact" in json.dumps(models) and "other" in json.dumps(models)
        assert "model 'exact'" in d.log and "window 4096 tokens, hot 512, sinks 64, recent 128" in d.log, d.log
        assert "KV f16/f16" in d.log and re.search("engine capabilities: .*cold_store", d.log), d.log
        code, _ = d.end()
        assert code == 0 and "signal 15: stopping" in d.log, d.log
        assert all(re.match(r"\d{4}-\d\d-\d\dT\S+Z (info|warn) ", line) for line in d.log.splitlines()), d.log


@case
def defaults_are_what_plan_says():
    """Memory enough: the trained window, all hot.  With half of what that needs: a smaller hot set, and the
    cold store carries the rest."""
    for flags in ((), ("--mem-max", "64MiB")):
        plan = json.loads(modeld("plan", EXACT, "--json", *flags).out)
        with daemon(*flags) as d:
            assert "window %d tokens, hot %d," % (TRAINED, plan["hot_tokens"]) in d.log, d.log
            assert '%d' % TRAINED in json.dumps(d.get("/v1/models")[1])
        assert plan["window_tokens"] == plan["planner_effective_context"] == TRAINED, plan
        assert (plan["hot_tokens"] == TRAINED) == (flags == ()), plan
        assert plan["hot_tokens"] >= 4096, plan


@case
def b074_the_capacity_report_is_plans():
    """The same fields, and the same sizes, as `modeld plan --json` has for these flags; what the daemon holds is
    credited, the cold store with it, so that the report is of this model and not of what it leaves."""
    flags = ("-c", "4096", "--hot", "512", "--mem-cold", "64MiB")
    plan = json.loads(modeld("plan", EXACT, "--json", *flags).out)
    with daemon(*flags) as d:
        status, first = d.get("/api/capacity")
        assert status == 200 and set(first) == set(plan), (status, set(first) ^ set(plan))
        d.post(COMPLETION, {"prompt": "A long text, much longer than what is hot. " * 40, "max_tokens": 4})
        cold = d.get("/api/status")[1]["cold"]
        assert 0 < cold["used_bytes"] <= cold["budget_bytes"] == 64 << 20, cold
        second = d.get("/api/capacity")[1]
        same = ("model architecture engine context_tokens window_tokens hot_tokens kv_bytes kv_bytes_per_token type_k limited_by "
                "weights_bytes overhead_bytes required_bytes host_cold_budget_bytes layers unsupported").split()
        for name in same:
            assert plan[name] == first[name] == second[name], (name, plan[name], first[name], second[name])
        assert "refused" not in first and "refused" not in second, (first, second)
        assert plan["credited_bytes"] == 0 < first["credited_bytes"], first
        # the KV of 512 hot tokens and more is anonymous memory; the cold store came on top
        assert first["credited_bytes"] > first["kv_bytes_per_token"] * 512, first
        assert second["credited_bytes"] >= first["credited_bytes"] + cold["used_bytes"] // 2, (first, second, cold)


@case
def flags_are_the_defaults_of_requests():
    with daemon("-n", "3", "--temp", "0") as d:
        _, first = d.post(CHAT, user("hi"))
        _, again = d.post(CHAT, user("hi"))
        _, more = d.post(CHAT, user("hi", max_tokens=5))
        assert first["usage"]["completion_tokens"] == 3 and more["usage"]["completion_tokens"] == 5, (first, more)
        assert first["choices"] == again["choices"], "greedy repeats"


@case
def b047_the_same_completion_three_times():
    """12 tokens, greedy, max_tokens 8, the smallest blocks there are: the same text and the same usage."""
    with daemon("--block-tokens", "8", "--hot", "512", "-c", "1024") as d:
        ask = {"prompt": "twelve-bytes", "max_tokens": 8, "temperature": 0, "logit_bias": {"2": -100}}
        seen = [d.post(COMPLETION, ask)[1] for _ in range(3)]
        texts = [a["choices"][0]["text"] for a in seen]
        assert texts[0] != "" and texts == texts[:1] * 3, texts
        usage = [(a["usage"]["prompt_tokens"], a["usage"]["completion_tokens"]) for a in seen]
        assert usage == [(12, 8)] * 3, usage
        assert [a["usage"]["prompt_tokens_details"]["cached_tokens"] for a in seen] == [0, 11, 11], seen


@case
def answers_as_run_does():
    r = modeld("run", "-m", EXACT, "-p", "hi there", "-n", "12", "--temp", "0", "--hot", "512")
    with daemon("--hot", "512") as d:
        _, answer = d.post(CHAT, user("hi there", max_tokens=12, temperature=0))
        assert answer["choices"][0]["message"]["content"] + "\n" == r.out.decode()


@case
def a_cold_store_too_small_for_the_window_is_said():
    with daemon("--hot", "512", "-c", "4096", "--mem-cold", "100K") as d:
        assert "warn the cold store of 0 MB is smaller than" in d.log, d.log
    with daemon("--hot", "512", "-c", "4096", "--mem-cold", "100M") as d:
        assert "cold store 100 MB" in d.log and "smaller than" not in d.log, d.log


@case
def a_refusal_is_logged_as_one():
    """When all conversations are kept there is no room: 503 with its id, and no error of the daemon's."""
    with daemon("--sessions", "2") as d:
        for _ in range(2):
            assert d.call("POST", "/api/sessions", {})[0] == 200
        assert d.call("POST", "/api/sessions", {})[0] == 503
        assert d.post(CHAT, user("hi"))[0] == d.post(COMPLETION, {"prompt": "x", "stream": True})[0] == 503
        assert d.post(CHAT, user("hi", modeld=5))[0] == 400
        d.end()
    refusals = [line.split(" ", 1)[1] for line in d.log.splitlines() if ": 503: " in line]
    assert len(refusals) == 3, d.log
    for line, kind in zip(refusals, ("call", "chatcmpl", "cmpl")):
        assert re.match(r"info http: %s-[0-9a-f]+-[0-9a-f]+: 503: 2 sessions are open, as many as may be" % kind, line), line
    assert " error " not in d.log and ": 400: " not in d.log, "what a client asks wrongly is its own affair: %s" % d.log


@case
def what_a_client_sends_makes_no_line_of_the_log():
    with daemon("-v") as d:
        assert d.post(CHAT, user("hi", model="x\n2026-01-01T00:00:00.000Z error forged\x1b[2J\u009b"))[0] == 404
        d.end()
    (line,) = [line for line in d.log.splitlines() if "forged" in line]
    assert " debug http: chatcmpl-" in line and ": 404: " in line and "\x1b" not in line and "\u009b" not in line, line


@case
def b107_port_in_use():
    with socket.create_server(("127.0.0.1", 0)) as foreign, daemon() as d:
        for port in (d.port, foreign.getsockname()[1]):
            started = time.monotonic()
            r = modeld("serve", "-m", "/no/such/model.gguf", "--port", port)
            took = time.monotonic() - started
            assert r.code == 1 and str(port) in r.err and "in use" in r.err, r
            assert len(r.err.splitlines()) == 1 and "loading" not in r.err and "model.gguf" not in r.err, r
            assert took < 1 * SLACK, took
        assert d.get("/health")[0] == 200


@case
def b107_a_port_just_left_can_be_taken():
    port = free_port()
    for _ in range(2):
        with daemon(port=port) as d:
            assert d.port == port
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            c.request("GET", "/health")
            assert c.getresponse().status == 200  # kept open: the daemon closes first and is left in TIME_WAIT
            assert d.end()[0] == 0
            c.close()


@case
def b108_ends_when_idle():
    for number in (signal.SIGTERM, signal.SIGINT):
        with daemon() as d:
            code, took = d.end(number)
            assert code == 0 and took < 5 * SLACK, (code, took)


@case
def b108_hangup_ends_nothing():
    with daemon() as d:
        d.process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        assert d.get("/health")[0] == 200
        d.process.send_signal(signal.SIGHUP)
        code, _ = d.end()
        assert code == 0, "and it does not make the next signal the second one: %d" % code


@case
def b108_ends_while_loading():
    with daemon(ready=False) as d:
        code, took = d.end()
        assert code == 0 and took < 5 * SLACK and "stopping" in d.log, (code, took, d.log)


@case
def b108_ends_in_a_load_that_hangs():
    source = write("hang.c", "#include <unistd.h>\nvoid *gguf_init_from_file(void) { for (;;) sleep(60); }\n")
    library = os.path.join(FOLDER, "hang.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    for number in (signal.SIGTERM, signal.SIGINT):
        with daemon(ready=False, env={"LD_PRELOAD": library, "ASAN_OPTIONS": "verify_asan_link_order=0"}) as d:
            status, answer = d.get("/health")
            assert status == 503, answer
            code, took = d.end(number)
            assert code == 0 and took < 5 * SLACK and "stopping" in d.log and "ready" not in d.log, (code, took, d.log)


@case
def b108_ends_during_prefill():
    with daemon("--hot", "16384", "-b", "512") as d:
        s = d.raw_post(COMPLETION, {"prompt": [100] * 200000, "max_tokens": 1})
        d.wait_status(lambda st: st["state"] == "busy", 20)
        time.sleep(0.2)
        code, took = d.end()
        assert code == 0 and took < 5 * SLACK, (code, took)
        s.close()


@case
def b108_ends_during_decode():
    with daemon("--hot", "1024") as d:
        s = d.raw_post(COMPLETION, dict(ENDLESS, stream=True))
        got = s.recv(65536)
        while b"data: " not in got:
            got += s.recv(65536)
        code, took = d.end()
        assert code == 0 and took < 5 * SLACK, (code, took)
        while True:
            more = s.recv(65536)
            if not more:
                break
            got += more
        assert b'"error"' in got and got.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"), "an error event and the end: %r" % got[-300:]
        assert b'"finish_reason":"' not in got, "who asks for a reason sees that it was cut off"
        assert re.search(r" info http: cmpl-\S+: 503: the server is shutting down\n", d.log), d.log


@case
def b108_second_signal_forces():
    """The first one cannot be obeyed: the library hangs when it is to let go."""
    source = write("stuck.c", "#include <unistd.h>\nvoid llama_free(void) { for (;;) sleep(60); }\n")
    library = os.path.join(FOLDER, "stuck.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    with daemon(env={"LD_PRELOAD": library, "ASAN_OPTIONS": "verify_asan_link_order=0"}) as d:
        d.process.send_signal(signal.SIGTERM)
        d.wait_log("stopping")
        time.sleep(0.3)
        assert d.process.poll() is None, "it was to hang"
        code, took = d.end(signal.SIGINT)
        assert code == 128 + signal.SIGINT and took < 1 * SLACK, (code, took)


@case
def unix_socket():
    path = os.path.join(FOLDER, "d.sock")
    p = subprocess.Popen([MODELD, "serve", "-m", EXACT, "--host", path], stdin=subprocess.DEVNULL,
                         stderr=subprocess.PIPE, env=environment())
    try:
        log = b""
        while b"ready at unix:" not in log:
            more = os.read(p.stderr.fileno(), 65536)
            assert more, log
            log += more
        s = socket.socket(socket.AF_UNIX)
        s.connect(path)
        s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b" 200 " in s.recv(4096).splitlines()[0]
        s.close()
    finally:
        p.send_signal(signal.SIGTERM)
        code = p.wait(10)
    assert code == 0 and not os.path.exists(path), (code, os.listdir(FOLDER))


@case
def a_failed_load_frees_the_port():
    port = free_port()
    r = modeld("serve", "-m", "/no/such.gguf", "--port", port)
    assert r.code == 1 and r.out == b"", r
    socket.create_server(("127.0.0.1", port)).close()


@case
def log_lines_do_not_reach_a_connection():
    """With standard error closed, the next socket must not become file 2."""
    port = free_port()
    p = subprocess.Popen(["sh", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "sh", MODELD, "serve", "-m", EXACT, "--port",
                          str(port)], env=environment())
    try:
        for _ in range(200):
            try:
                c = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                c.request("GET", "/health")
                r = c.getresponse()
                body = r.read()
                if r.status == 200:
                    break
            except OSError:
                pass
            time.sleep(0.05)
        assert r.status == 200 and json.loads(body)["status"] == "ok"
        links = [os.readlink("/proc/%d/fd/%d" % (p.pid, fd)) for fd in range(3)]
        assert links == ["/dev/null"] * 3, links
    finally:
        p.send_signal(signal.SIGTERM)
        assert p.wait(10) == 0


main()
