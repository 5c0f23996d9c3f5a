"""`modeld eval` on SmolLM2: a needle that is hot is found, one that was evicted is not.

The right values come from what the model must do: it reads 1,000 tokens with ease, and nobody can know a random name that it
does not see."""
# slow
import json
import os

from libcli import FOLDER, SMOLLM, case, main, modeld


@case
def what_is_hot_is_found_and_what_is_cold_is_not():
    path = os.path.join(FOLDER, "smollm.jsonl")
    r = modeld("eval", "needle", "-m", SMOLLM, "--hot", "384", "--length", "1000", "--depths", "50", "--json", "--resume",
               path, timeout=400)
    assert r.code == 0, r
    dense, t1 = (json.loads(line) for line in r.out.decode().splitlines())
    assert (dense["policy"], dense["recall"], dense["found"], dense["total"]) == ("dense", 1, 1, 1), dense
    assert (t1["policy"], t1["recall"], t1["found"], t1["total"]) == ("t1", 0, 0, 1), t1
    with open(path) as f:
        items = [json.loads(line)["items"][0] for line in f.read().splitlines()[1:]]
    assert items[0]["attended"] == items[0]["prompt"] > 1000 and items[1]["attended"] <= 384, items
    # a thousand tokens of text, a template and a question around them
    assert items[0]["prompt"] < 1150 and 400 < items[0]["spans"][0][0] < 620, items


main()
