/* snapshot_spec.c - see snapshot_spec.h. */
#include "support/snapshot_spec.h"

#include "base/le.h"
#include "base/log.h"
#include "engine/fake.h"
#include "engine/fake_model.h"
#include "policy/prefix.h"
#include "session/block_meta.h"
#include "session/record.h"
#include "session/state.h"
#include "session/tape.h"
#include "support/scripted.h"
#include "support/sections_spec.h"
#include "support/temp_folder.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- engines ---- */

static struct md_fake_dims dims_of(enum sn_kind kind)
{
    struct md_fake_dims d = md_fake_dims_default();
    d.layers = kind == SN_WINDOWED ? 2 : 1;
    d.width = 4;
    d.heads = d.kv_heads = 1;
    d.head_dim = 2;
    d.ffn = 4;
    d.tail_period = kind == SN_WINDOWED ? 2 : 0;
    d.window_tokens = kind == SN_WINDOWED ? 4 : 0;
    return d;
}

static struct md_engine *engine_of(enum sn_kind kind)
{
    static struct md_engine *engines[SN_KINDS]; /* as long as the process lasts */
    static struct md_fake_model *models[SN_KINDS];
    if (engines[kind] != NULL)
        return engines[kind];
    const struct md_fake_options options = { .cell_count = SN_HOT,
                                             .seq_count = kind == SN_WINDOWED ? 1 : 2,
                                             .batch_tokens = 32 };
    const struct md_fake_dims dims = dims_of(kind);
    enum md_status s = md_fake_model_open(&dims, 1, NULL, &models[kind], NULL);
    if (s == MD_OK)
        s = md_fake_open(models[kind], &options, &engines[kind], NULL);
    assert(s == MD_OK);
    return engines[kind];
}

static struct md_text *text_of(void)
{
    static const struct md_bytes two[] = { { "", 0 }, { "", 0 } };
    static struct md_text *text;
    const struct md_script script = { .pieces = two, .count = 2 };
    if (text == NULL && md_scripted_open(&script, NULL, &text, NULL) != MD_OK)
        abort();
    return text;
}

void sn_open(struct sn *n, enum sn_kind kind)
{
    const struct md_pool_config c = { .window_tokens = SN_WINDOW,
                                      .hot_tokens = SN_HOT,
                                      .residency = true,
                                      .block_tokens = SN_BLOCK,
                                      .sink_tokens = 8,
                                      .recent_tokens = 16,
                                      .cold_bytes = 1 << 20 };
    struct md_err err;
    md_log_set_level(MD_LOG_ERROR); /* what is damaged is told often enough */
    n->text = text_of();
    enum md_status s = md_pool_open(&c, engine_of(kind), n->text, &n->pool, &err);
    if (s == MD_OK)
        s = md_pool_new(n->pool, &n->s, &err);
    if (s != MD_OK)
        fprintf(stderr, "snapshot_spec: %s\n", err.text);
    assert(s == MD_OK);
}

void sn_close(struct sn *n)
{
    md_pool_close(n->pool);
}

enum md_status sn_ask(struct sn *n, const struct md_context *prompt, int32_t answer, struct md_bytes notes)
{
    static const struct md_logit_bias no_end = { .token = MD_SCRIPTED_END, .bias = -1e9f };
    struct md_request q = { .prompt = *prompt,
                            .decode = { .max_tokens = answer, .sample = md_sample_defaults() },
                            .notes = notes };
    struct md_result result = { 0 };
    struct md_err err;
    q.decode.sample.temperature = 0;
    q.decode.sample.bias = &no_end;
    q.decode.sample.bias_count = 1;
    const enum md_status s = md_session_run(n->s, &q, NULL, &result, &err);
    md_result_done(&result);
    return s;
}

/* ---- files ---- */

static char folder[200];

static void remove_folder(void)
{
    for (const char *name = "ab"; *name != '\0'; name++) {
        char path[210];
        snprintf(path, sizeof path, "%s/%c", folder, *name);
        unlink(path);
    }
    rmdir(folder);
}

struct md_sections_place sn_place(const char *name)
{
    if (folder[0] == '\0') {
        md_temp_folder(folder, sizeof folder, "fuzz");
        atexit(remove_folder);
    }
    return (struct md_sections_place){ folder, name };
}

void sn_write(const struct md_sections_place *place, const uint8_t *bytes, size_t len)
{
    char path[500];
    snprintf(path, sizeof path, "%s/%s", place->folder, place->name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const bool good = fd >= 0 && write(fd, bytes, len) == (ssize_t)len;
    assert(good);
    (void)good;
    close(fd);
}

size_t sn_read(const struct md_sections_place *place, uint8_t *out, size_t cap)
{
    char path[500];
    snprintf(path, sizeof path, "%s/%s", place->folder, place->name);
    const int fd = open(path, O_RDONLY);
    const ssize_t n = fd >= 0 ? read(fd, out, cap) : -1;
    assert(n >= 0);
    close(fd);
    return (size_t)n;
}

/* ---- names ---- */

/* A tape with the record's text; false: there is no such record. */
static bool tape_of(const uint8_t *record, size_t len, enum sn_kind kind, struct md_tape *ret)
{
    struct md_record r;
    if (md_record_read(record, len, NULL, &r, NULL) != MD_OK)
        return false;
    md_tape_init(ret, NULL, r.block_tokens, md_prefix_root(md_engine_info(engine_of(kind))->identity));
    enum md_status s = r.tape_count > 0 ? md_tape_reserve(ret, r.tape_count, NULL) : MD_OK;
    assert(s == MD_OK);
    (void)s;
    if (r.tape_count > 0)
        md_tape_append(ret, r.tape, r.tape_count, (struct md_tape_block){ .state = MD_STATE_COLD });
    md_record_done(&r);
    return true;
}

/* The 64 bytes of session/block_meta.h: key, parent, start, token_count. */
static void name_block(uint8_t *meta, bool is_state, struct md_tape *t)
{
    const int64_t start = (int32_t)md_le_load(meta + 32, 4), count = (int32_t)md_le_load(meta + 36, 4);
    if (start < 0 || start % t->block_tokens != 0 || count < 1 || start + count > t->count ||
        count > t->block_tokens)
        return;
    const struct md_cold_ref ref = is_state ? md_state_ref(t, (int32_t)(start + count))
                                            : md_tape_ref(t, (size_t)(start / t->block_tokens));
    md_le_store(meta, ref.key.hi, 8);
    md_le_store(meta + 8, ref.key.lo, 8);
    md_le_store(meta + 16, ref.parent.hi, 8);
    md_le_store(meta + 24, ref.parent.lo, 8);
}

void sn_make_right(uint8_t *file, size_t len, enum sn_kind kind)
{
    struct md_tape t = { 0 };
    bool has_tape = false;
    size_t at = SS_HEADER_BYTES;
    const size_t end_at = len - SS_END_BYTES;
    while (at + SS_HEAD_BYTES <= end_at) {
        uint8_t *head = file + at, *payload = head + SS_HEAD_BYTES;
        const uint64_t bytes = md_le_load(head + 8, 8);
        if (bytes > end_at - at - SS_HEAD_BYTES)
            break;
        if (memcmp(head, "CONV", 4) == 0 && !has_tape)
            has_tape = tape_of(payload, bytes, kind, &t);
        const bool is_state = memcmp(head, "STAT", 4) == 0;
        if ((is_state || memcmp(head, "BLCK", 4) == 0) && has_tape && bytes >= MD_BLOCK_META_BYTES)
            name_block(payload, is_state, &t);
        at += SS_HEAD_BYTES + bytes + (8 - bytes % 8) % 8;
    }
    md_tape_done(&t);
    ss_reseal(file, len);
}
