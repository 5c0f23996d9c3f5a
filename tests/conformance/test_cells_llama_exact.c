/* test_cells_llama_exact.c - KV that passes its checksum and is nobody's export: whoever can write a snapshot can write its
 * hashes too.  The engine refuses what its library would not survive, and goes on.
 *
 * Layout: state_write_meta of llama-kv-cache.cpp and llama-memory-recurrent.cpp, as llama_keys.c tells it. */
#include "adapters/llama/llama_backend.h"
#include "engine/engine.h"
#include "engine/kv_blob.h"
#include "support/run_suite.h"
#include "support/subjects.h"
#include "support/tiny_models.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOKENS = 40, KV_LIMIT_BYTES = 64 << 20, IDENTITY_AT = 24 };
static const struct md_range r = { 8, 24 };
static const struct md_tiny_model *const models[] = { &md_tiny_qwen3,        &md_tiny_windowed,
                                                      &md_tiny_hybrid,       &md_tiny_hybrid_windowed,
                                                      &md_tiny_hybrid_mrope, &md_tiny_recurrent };
enum { MODELS = sizeof models / sizeof models[0] };
static char path[512];
static md_token tokens[TOKENS];
static struct md_engine *e;
static struct md_err err;

static void setup(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/modeld-cells-%ld.gguf", tmp != NULL ? tmp : "/tmp", (long)getpid());
    md_subject_random_tokens(tokens, TOKENS);
}

static void teardown(void)
{
    unlink(path);
}

static void open_with_tokens(const struct md_tiny_model *m)
{
    const struct md_open_params p = {
        .model_path = path, .cell_count = 256, .threads = 1, .type_k = "f32", .type_v = "f32"
    };
    ck_assert_msg(md_tiny_model_write(m, path, &err) == MD_OK, "%s: %s", m->name, err.text);
    ck_assert_msg(md_backend_llama.open(&p, &e, NULL, &err) == MD_OK, "%s: %s", m->name, err.text);
    ck_assert_msg(md_engine_prefill(e, 0, 0, tokens, TOKENS, &err) == MD_OK, "%s: %s", m->name, err.text);
}

/* A copy with one number of 4 bytes changed, `back` from its end or at `at`, and right again. */
static struct md_buf changed(const struct md_buf *kv, enum md_kv_blob kind, struct md_range of, size_t at,
                             uint32_t value)
{
    struct md_buf b;
    uint64_t identity;
    md_buf_init(&b, NULL, KV_LIMIT_BYTES);
    ck_assert_int_eq(md_buf_append(&b, kv->data, kv->len, NULL), MD_OK);
    memcpy(&identity, b.data + IDENTITY_AT, sizeof identity);
    memcpy(b.data + MD_KV_BLOB_HEADER_BYTES + at, &value, sizeof value);
    md_kv_blob_seal(b.data, kind, b.len - MD_KV_BLOB_HEADER_BYTES, of, identity);
    return b;
}

/* Numbers of streams, of cells; the first cell's position, and how many have it. */
static const struct {
    size_t at;
    uint32_t value;
} cells[] = {
    { 8, 2 },           { 12, 0 },          { 12, 15 },          { 12, 17 }, { 12, INT32_MAX },
    { 12, UINT32_MAX }, { 16, UINT32_MAX }, { 16, 0x80000000u }, { 16, 7 },  { 16, 24 },
    { 16, INT32_MAX },  { 20, 0 },          { 20, 1u << 30 },
};

START_TEST(ranges)
{
    const struct md_tiny_model *m = models[_i];
    struct md_buf kv;
    open_with_tokens(m);
    if (!(md_engine_caps(e) & MD_CAP_COLD_STORE)) {
        md_engine_close(e);
        return;
    }
    md_buf_init(&kv, NULL, KV_LIMIT_BYTES);
    ck_assert_msg(md_engine_export_range(e, 0, r, &kv, &err) == MD_OK, "%s", err.text);
    ck_assert_msg(md_engine_remove_range(e, 0, r, &err) == MD_OK, "%s", err.text);
    for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++) {
        struct md_buf bad = changed(&kv, MD_KV_BLOB_RANGE, r, cells[i].at, cells[i].value);
        const enum md_status s = md_engine_admit_range(e, 0, r, (struct md_bytes){ bad.data, bad.len }, &err);
        ck_assert_msg(s == MD_CORRUPT, "%s: %u at %zu: %s", m->name, cells[i].value, cells[i].at,
                      s == MD_OK ? "taken" : err.text);
        md_buf_done(&bad);
    }
    if (md_engine_caps(e) & MD_CAP_CHECKPOINT) { /* a state behind the cells */
        const size_t last = kv.len - MD_KV_BLOB_HEADER_BYTES - sizeof(uint32_t);
        struct md_buf bad = changed(&kv, MD_KV_BLOB_RANGE, r, last, INT32_MAX);
        ck_assert_int_eq(md_engine_admit_range(e, 0, r, (struct md_bytes){ bad.data, bad.len }, &err),
                         MD_CORRUPT);
        md_buf_done(&bad);
    }
    ck_assert_msg(md_engine_admit_range(e, 0, r, (struct md_bytes){ kv.data, kv.len }, &err) == MD_OK,
                  "%s: %s", m->name, err.text);
    md_buf_done(&kv);
    md_engine_close(e);
}
END_TEST

START_TEST(states)
{
    static const uint32_t counts[] = { 1000, INT32_MAX, UINT32_MAX };
    const struct md_tiny_model *m = models[_i];
    const struct md_range at = { TOKENS, TOKENS };
    struct md_buf state;
    open_with_tokens(m);
    if (!(md_engine_caps(e) & MD_CAP_CHECKPOINT)) {
        md_engine_close(e);
        return;
    }
    md_buf_init(&state, NULL, KV_LIMIT_BYTES);
    ck_assert_msg(md_engine_checkpoint(e, 0, &state, &err) == MD_OK, "%s", err.text);
    const bool windows = strstr(m->name, "windows") != NULL;
    const size_t count_at = windows ? 12 : 8;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct md_buf bad = changed(&state, MD_KV_BLOB_STATE, at, count_at, counts[i]);
        const enum md_status s = md_engine_rewind(e, 0, TOKENS, (struct md_bytes){ bad.data, bad.len }, &err);
        ck_assert_msg(s == MD_CORRUPT || (s != MD_OK && counts[i] == 1000), "%s: %u cells: %s", m->name,
                      counts[i], md_status_name(s));
        md_buf_done(&bad);
    }
    for (uint32_t position = TOKENS; windows && position != 1;
         position = position == TOKENS ? UINT32_MAX : 1) {
        struct md_buf bad = changed(&state, MD_KV_BLOB_STATE, at, 16, position);
        ck_assert_int_eq(md_engine_rewind(e, 0, TOKENS, (struct md_bytes){ bad.data, bad.len }, &err),
                         MD_CORRUPT);
        md_buf_done(&bad);
    }
    ck_assert_msg(md_engine_rewind(e, 0, TOKENS, (struct md_bytes){ state.data, state.len }, &err) == MD_OK,
                  "%s: %s", m->name, err.text);
    md_buf_done(&state);
    md_engine_close(e);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cells");
    TCase *t = tcase_create("cells");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, ranges, 0, MODELS);
    tcase_add_loop_test(t, states, 0, MODELS);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
