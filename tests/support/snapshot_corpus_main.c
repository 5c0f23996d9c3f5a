/* snapshot_corpus_main.c - writes what fuzz_snapshot begins with:  snapshot_corpus tests/fuzz/corpus/snapshot
 * Real snapshots of small conversations, and some with one thing wrong in them. */
#include "base/le.h"
#include "support/snapshot_spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 2048, TOKENS = 64 };

static md_token tokens[TOKENS];

struct row {
    const char *name;
    enum sn_kind kind;
    int32_t prompt, answer, segments;
    bool evicts, notes;
    const char
        *section; /* of which four bytes are changed, `at` bytes behind its type, to `value`; NULL: none */
    int32_t at, value;
};

/* Behind a section's type: 20 bytes of its head; of a record version at 20, tape at 56; of a block start at 52, count at
 * 56; of an origin version at 20, length of the engine's name at 24. */
static const struct row rows[] = {
    { "empty", SN_DENSE, 0, 0, 0, false, false, NULL, 0, 0 },
    { "token", SN_DENSE, 1, 0, 0, false, false, NULL, 0, 0 },
    { "block", SN_DENSE, 9, 0, 0, false, false, NULL, 0, 0 },
    { "answered", SN_DENSE, 10, 3, 0, false, false, NULL, 0, 0 },
    { "segments", SN_DENSE, 9, 0, 3, false, false, NULL, 0, 0 },
    { "held-out", SN_DENSE, 11, 2, 0, true, false, NULL, 0, 0 },
    { "notes", SN_DENSE, 5, 0, 0, false, true, NULL, 0, 0 },
    { "notes-and-block", SN_DENSE, 12, 2, 0, false, true, NULL, 0, 0 },
    { "two-blocks", SN_DENSE, 17, 0, 0, false, false, NULL, 0, 0 },
    { "window-token", SN_WINDOWED, 1, 1, 0, false, false, NULL, 0, 0 },
    { "window", SN_WINDOWED, 7, 1, 0, false, false, NULL, 0, 0 },
    { "window-notes", SN_WINDOWED, 2, 1, 0, false, true, NULL, 0, 0 },
    { "version", SN_DENSE, 2, 0, 0, false, false, "CONV", 20, 2 },
    { "long-tape", SN_DENSE, 9, 0, 0, false, false, "CONV", 56, 1 << 20 },
    { "block-start", SN_DENSE, 10, 3, 0, false, false, "BLCK", 52, 8 },
    { "block-count", SN_DENSE, 10, 3, 0, false, false, "BLCK", 56, 7 },
    { "state-count", SN_WINDOWED, 7, 1, 0, false, false, "STAT", 56, 3 },
    { "origin-version", SN_DENSE, 2, 0, 0, false, false, "ORIG", 20, 2 },
    { "origin-length", SN_DENSE, 2, 0, 0, false, false, "ORIG", 24, 10 << 10 },
    { "origin-control", SN_DENSE, 2, 0, 0, false, false, "ORIG", 26, 0x1b },
    { "unknown", SN_DENSE, 5, 0, 0, false, true, "FRNT", 0, 'X' },
};

/* A turn of the front's: the tokens spell its text. */
static struct md_bytes a_turn(struct md_buf *out)
{
    static const md_token ids[] = { '<', 'f', '>' };
    const struct md_chat_call call = { { "i", 1 }, { "f", 1 }, { "{}", 2 } };
    const struct md_calls_turn turn = { .lead = { "a:", 2 },
                                        .raw = { "<f>", 3 },
                                        .tokens = ids,
                                        .token_count = 3,
                                        .content = { "", 0 },
                                        .calls = &call,
                                        .call_count = 1 };
    md_buf_init(out, NULL, FILE_MAX);
    if (md_calls_write_turn(&turn, out, NULL) != MD_OK)
        abort();
    return (struct md_bytes){ out->data, out->len };
}

static void talk(struct sn *n, const struct row *w)
{
    struct md_segment segments[8] = { 0 };
    struct md_buf notes = { 0 };
    int32_t ignored;
    for (int32_t i = 0; i < w->segments; i++)
        segments[i] = (struct md_segment){ .range = { 2 * i, 2 * i + 2 },
                                           .kind = i == 0 ? MD_SEGMENT_SYSTEM : MD_SEGMENT_USER,
                                           .cls = i == 0 ? MD_CLASS_TASK_PINNED : MD_CLASS_VOLATILE,
                                           .stable = i == 0,
                                           .name = "name" };
    const struct md_context prompt = { tokens, w->prompt, segments, (size_t)w->segments };
    struct md_bytes kept = { NULL, 0 };
    if (w->notes)
        kept = a_turn(&notes);
    if (w->prompt > 0 && sn_ask(n, &prompt, w->answer, kept) != MD_OK)
        abort();
    if (w->evicts && md_session_evict_range(n->s, (struct md_range){ 0, 8 }, &ignored, NULL) != MD_OK)
        abort();
    md_buf_done(&notes);
}

static size_t make(const struct row *w, uint8_t bytes[FILE_MAX])
{
    const struct md_sections_place a = sn_place("a");
    struct md_snapshot snap;
    struct sn n;
    sn_open(&n, w->kind);
    talk(&n, w);
    if (md_session_snapshot(n.s, &a, NULL, &snap, NULL) != MD_OK)
        abort();
    sn_close(&n);
    const size_t len = sn_read(&a, bytes, FILE_MAX);
    if (len != (size_t)snap.bytes) {
        fprintf(stderr, "snapshot_corpus: '%s' has %lld bytes\n", w->name, (long long)snap.bytes);
        exit(1);
    }
    if (w->section == NULL)
        return len;
    uint8_t *at = memmem(bytes, len, w->section, 4);
    if (at == NULL)
        abort();
    md_le_store(at + w->at, (uint32_t)w->value, 4);
    sn_make_right(bytes, len, w->kind);
    return len;
}

int main(int argc, char **argv)
{
    static uint8_t bytes[FILE_MAX];
    if (argc != 2) {
        fprintf(stderr, "usage: snapshot_corpus FOLDER\n");
        return 2;
    }
    for (int32_t i = 0; i < TOKENS; i++)
        tokens[i] = 'A' + i * 7 % 57;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char path[4096];
        const size_t len = make(&rows[i], bytes);
        snprintf(path, sizeof path, "%s/%s", argv[1], rows[i].name);
        FILE *out = fopen(path, "wb");
        const bool good = out != NULL && fwrite(bytes, 1, len, out) == len;
        if ((out != NULL && fclose(out) != 0) || !good) {
            fprintf(stderr, "snapshot_corpus: cannot write '%s'\n", path);
            return 1;
        }
    }
    return 0;
}
