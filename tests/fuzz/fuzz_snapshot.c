/* fuzz_snapshot.c - any bytes as a snapshot: refused with nothing changed, or a conversation that goes on, and whose own
 * snapshot is restored.  Bytes with wrong hashes and names lead nowhere, so they are tried once as they come and once
 * with right ones.  What the front noted is read as such too.  `make fuzz` runs it under libFuzzer,
 * tests/unit/test_fuzz_corpus.c runs the committed corpus through it. */
#include "support/sections_spec.h"
#include "support/snapshot_spec.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len); /* libFuzzer declares it nowhere */

static void read_notes(const struct sn *n)
{
    struct md_calls *calls = NULL;
    struct md_err err = { 0 };
    enum md_status s = md_calls_open(16, 1 << 20, NULL, &calls, &err);
    assert(s == MD_OK);
    s = md_calls_read(calls, n->text, md_session_notes(n->s), &err);
    assert(s == MD_OK || s == MD_CORRUPT || s == MD_UNSUPPORTED);
    assert(s == MD_OK || (err.status == s && err.text[0] != '\0' && md_calls_stats(calls).entries == 0));
    md_calls_close(calls);
}

/* What was restored is a conversation like another: it answers, is written and comes back. */
static void goes_on(struct sn *n)
{
    static md_token prompt[SN_WINDOW];
    int32_t count;
    struct md_snapshot snap, again;
    struct md_err err = { 0 };
    const struct md_sections_place b = sn_place("b");
    const md_token *context = md_session_context(n->s, &count);
    assert(count <= SN_WINDOW && md_pool_check(n->pool));
    enum md_status s = md_session_snapshot(n->s, &b, NULL, &snap, &err);
    assert(s == MD_OK);
    if (count > 0)
        memcpy(prompt, context, (size_t)count * sizeof *prompt);
    if (count < SN_WINDOW)
        prompt[count++] = 'x';
    s = sn_ask(n, &(struct md_context){ .tokens = prompt, .count = count }, 2, (struct md_bytes){ 0 });
    assert(s == (count < SN_WINDOW ? MD_OK : MD_TOO_LARGE) && md_pool_check(n->pool));
    s = md_session_restore(n->s, &b, NULL, NULL, &again, &err);
    assert(s == MD_OK && again.context_tokens == snap.context_tokens &&
           again.tape_tokens == snap.tape_tokens && md_pool_check(n->pool));
    (void)s;
}

static bool one_way(const uint8_t *data, size_t len, enum sn_kind kind, bool tokens_only)
{
    static const md_token before[] = { 'a', 'b', 'c' };
    const struct md_context prompt = { .tokens = before, .count = 3 };
    const struct md_sections_place a = sn_place("a");
    struct md_err err = { 0 };
    struct md_snapshot snap;
    struct sn n;
    sn_write(&a, data, len);
    sn_open(&n, kind);
    enum md_status s = sn_ask(&n, &prompt, 1, (struct md_bytes){ "note", 4 });
    assert(s == MD_OK);
    const uint64_t changes = md_session_changes(n.s);
    s = tokens_only ? md_session_restore_tokens(n.s, &a, NULL, NULL, &snap, &err)
                    : md_session_restore(n.s, &a, NULL, NULL, &snap, &err);
    if (s == MD_OK) {
        assert(!tokens_only || snap.kv_tokens == 0);
        read_notes(&n);
        goes_on(&n);
    } else {
        assert(s == MD_CORRUPT || s == MD_INVALID || s == MD_UNSUPPORTED || s == MD_TOO_LARGE);
        assert(err.status == s && err.text[0] != '\0' && md_session_changes(n.s) == changes);
        assert(md_bytes_are(md_session_notes(n.s), "note") && md_pool_check(n.pool));
    }
    sn_close(&n);
    return s == MD_OK;
}

/* What is good with its KV is good without; not the other way round, for KV that nobody wants is not looked at. */
static bool one_file(const uint8_t *data, size_t len, enum sn_kind kind)
{
    const bool whole = one_way(data, len, kind, false);
    const bool tokens = one_way(data, len, kind, true);
    assert(tokens || !whole);
    (void)tokens;
    return whole;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    for (int kind = 0; kind < SN_KINDS; kind++) {
        (void)one_file(data, len, (enum sn_kind)kind);
        const size_t whole = len - len % 8;
        if (whole < SS_HEADER_BYTES + SS_END_BYTES)
            continue;
        uint8_t *right = malloc(whole);
        assert(right != NULL);
        memcpy(right, data, whole);
        sn_make_right(right, whole, (enum sn_kind)kind);
        (void)one_file(right, whole, (enum sn_kind)kind);
        free(right);
    }
    return 0;
}
