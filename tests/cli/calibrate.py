"""`modeld calibrate`, and the heads that `status` tells of: what is refused, and that a daemon whose model cannot be measured says
so and serves.  (What is measured, and the file: unit/test_heads.c; that of real models: src/policy/heads_table.inc.)

The exact model has a token for each byte and three for a blank: the needles alone are more than half of a haystack."""
import json
import os
import time

from libcli import EXACT, FOLDER, case, main, modeld, refused
from libdaemon import Daemon
from libwire import COMPLETION

NEEDS = "there is room for 1536 tokens"


@case
def what_cannot_be_measured_is_refused():
    refused(modeld("calibrate"), 2, "no model", "-m FILE")
    refused(modeld("calibrate", "-m", EXACT, "--data-root", FOLDER), 1, NEEDS, "are needed")
    refused(modeld("calibrate", "-m", EXACT, "--print"), 1, NEEDS)
    refused(modeld("calibrate", "-m", EXACT, "--hot", "64"), 2, "--hot")
    refused(modeld("run", "-m", EXACT, "-p", "x", "--calibrate", "off"), 2, "--calibrate")
    assert not os.path.exists(os.path.join(FOLDER, "heads")), "nothing is kept of what failed"


def heads(d):
    status, body = d.get("/api/status")
    assert status == 200, body
    return body["retrieval"]["heads"]


@case
def a_daemon_says_how_it_went_and_serves():
    with Daemon(EXACT, "-t", "1", "--retrieval", "auto", "--hot", "2048", "-c", "8192") as d:
        assert heads(d)["calibration"] in ("waiting", "running", "failed"), heads(d)
        d.wait_log("could not be measured", 60)
        while heads(d)["calibration"] != "failed":  # it is published just after it is logged
            time.sleep(0.05)
        h = heads(d)
        assert (h["source"], h["from"], h["calibration"]) == ("band", "band", "failed") and NEEDS in h["reason"], h
        status, _ = d.post(COMPLETION, {"prompt": "x", "max_tokens": 2})
        assert status == 200
        r = modeld("status", "--connect", "http://127.0.0.1:%d" % d.port)
        assert "by band: they are not calibrated; the calibration failed" in r.out.decode(), r


@case
def off_is_off():
    with Daemon(EXACT, "-t", "1", "--retrieval", "auto", "--hot", "2048", "-c", "8192", "--calibrate", "off") as d:
        h = heads(d)
        assert (h["source"], h["calibration"], h["reason"]) == ("band", "settled", None) and h["count"] > 0, h
    with Daemon(EXACT, "-t", "1", "--hot", "2048", "-c", "8192") as d:
        assert heads(d) == {"source": None, "from": None, "count": 0, "calibration": "none", "percent": 0, "reason": None}, json.dumps(heads(d))


main()
