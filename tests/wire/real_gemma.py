"""One daemon on Gemma-3-270M, whose tokenizer puts a first token, and what clients see of it."""
# slow
import os

from libdaemon import Daemon
from libwire import CHAT, COMPLETION, case, check_error, main, user

MODEL = os.path.abspath(".deps/models/gemma3-270m.gguf")
GREEDY = {"temperature": 0, "seed": 1, "max_tokens": 1}


@case
def b049_first_tokens():
    """Raw `<bos>Hi` and `Hi` are the same two tokens, and a chat's text counts its first token once, whoever writes it.
    (Which tokens, and a template: test_model_llama_prompt.c; this file brings none, so that there is no chat route.)"""
    with Daemon(MODEL, "-t", "1", "-c", "512", "--hot", "512") as d:
        def tokens(prompt):
            status, got = d.post(COMPLETION, dict(GREEDY, prompt=prompt))
            assert status == 200, got
            return got["usage"]["prompt_tokens"]
        assert tokens("<bos>Hi") == tokens("Hi") == 2
        # <bos>, two <start_of_turn>, <end_of_turn>, user, Hi, model, and three ends of lines
        turns = "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"
        assert tokens(turns) == tokens("<bos>" + turns) == 10, tokens(turns)
        check_error(d.post(CHAT, user("Hi")), 501, code="unsupported", says=["no chat template"])


main()
