/* Engines around engines: trace and injected faults. */
#include "base/log.h"
#include "engine/attention.h"
#include "engine/fake.h"
#include "engine/trace.h"
#include "engine/wrap.h"
#include "support/run_suite.h"
#include "support/fault_engine.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const md_token tokens[16] = { 3, 40, 50, 60, 70, 80, 90, 100, 110, 120, 130, 140, 150, 160, 170, 180 };

static struct md_engine *open_inner(void)
{
    struct md_engine *e = NULL;
    const struct md_fake_options o = { .cell_count = 64 };
    ck_assert_int_eq(md_fake_open(NULL, &o, &e, NULL), MD_OK);
    return e;
}

/* One call of each operation, on 12 tokens; kv holds [4, 8) from EXPORT on. */
static enum md_status call(struct md_engine *e, enum md_engine_op op, struct md_buf *kv, struct md_err *err)
{
    const float *logits;
    const struct md_range r = { 4, 8 };
    switch (op) {
    case MD_OP_PREFILL: return md_engine_prefill(e, 0, 0, tokens, 11, err);
    case MD_OP_DECODE: return md_engine_decode(e, 0, 11, &tokens[11], 1, &logits, err);
    case MD_OP_PARK: return md_engine_park(e, 0, r, err);
    case MD_OP_UNPARK: return md_engine_unpark(e, 0, r, err);
    case MD_OP_EXPORT: return md_engine_export_range(e, 0, r, kv, err);
    case MD_OP_REMOVE: return md_engine_remove_range(e, 0, r, err);
    case MD_OP_ADMIT: return md_engine_admit_range(e, 0, r, (struct md_bytes){ kv->data, kv->len }, err);
    case MD_OP_ADMIT_MOVED:
        return md_engine_admit_moved(e, 2, (struct md_range){ 16, 20 }, 4,
                                     (struct md_bytes){ kv->data, kv->len }, err);
    case MD_OP_SHARE: return md_engine_share(e, 0, 1, r, err);
    case MD_OP_RECOMPUTE:
        if (md_engine_is_hot(e, 0, r))
            ck_assert_int_eq(md_engine_evict_range(e, 0, r, NULL, NULL), MD_OK);
        return md_engine_recompute_range(e, 0, r, tokens + 4, (struct md_bytes){ 0 }, err);
    default: return md_engine_truncate(e, 0, 6, err);
    }
}

/* An engine with a tail state lacks others, and attention must be asked for: they have tests of their own. */
enum { OPS = MD_OP_COUNT - 5 };
static const enum md_engine_op order[OPS] = { MD_OP_PREFILL,   MD_OP_DECODE,      MD_OP_PARK,
                                              MD_OP_UNPARK,    MD_OP_EXPORT,      MD_OP_REMOVE,
                                              MD_OP_ADMIT,     MD_OP_ADMIT_MOVED, MD_OP_SHARE,
                                              MD_OP_RECOMPUTE, MD_OP_TRUNCATE };

START_TEST(a_fault_fails_its_call_and_nothing_else)
{
    for (int failing = 0; failing < OPS; failing++) {
        struct md_fault f = { .op = order[failing], .nth = 1, .status = MD_INTERNAL };
        struct md_engine *e = NULL;
        struct md_buf kv;
        md_buf_init(&kv, NULL, 1 << 20);
        ck_assert_int_eq(md_fault_open(open_inner(), &f, &e, NULL), MD_OK);
        for (int i = 0; i < OPS; i++) {
            struct md_err err = { 0 };
            if (i == failing) {
                int32_t end = md_engine_end(e, 0), used = md_engine_cells_used(e);
                ck_assert_int_eq(call(e, order[i], &kv, &err), MD_INTERNAL);
                ck_assert_ptr_nonnull(strstr(err.text, md_engine_op_name(order[i])));
                ck_assert_int_eq(md_engine_end(e, 0), end);
                if (order[i] != MD_OP_RECOMPUTE) /* removes first */
                    ck_assert_int_eq(md_engine_cells_used(e), used);
            }
            enum md_status s = call(e, order[i], &kv, &err); /* works, or works now */
            ck_assert_msg(s == MD_OK, "%s: %s", md_engine_op_name(order[i]), err.text);
        }
        ck_assert_int_eq(f.failed, 1);
        ck_assert_int_eq(f.calls[order[failing]], order[failing] == MD_OP_REMOVE ? 3 : 2);
        ck_assert_int_eq(md_engine_end(e, 0), 6);
        md_engine_close(e);
        md_buf_done(&kv);
    }
}
END_TEST

START_TEST(faults_of_the_tail_state)
{
    struct md_fake_dims dims = md_fake_dims_default();
    const struct md_fake_options o = { .cell_count = 64 };
    struct md_fault f = { .op = MD_OP_CHECKPOINT, .nth = 1, .status = MD_INTERNAL };
    struct md_fake_model *model = NULL;
    struct md_engine *e = NULL;
    struct md_buf state;
    dims.tail_period = 2;
    dims.window_tokens = 4;
    md_buf_init(&state, NULL, 1 << 20);
    ck_assert_int_eq(md_fake_model_open(&dims, 1, NULL, &model, NULL), MD_OK);
    ck_assert_int_eq(md_fake_open(model, &o, &e, NULL), MD_OK);
    ck_assert_int_eq(md_fault_open(e, &f, &e, NULL), MD_OK);
    ck_assert_int_eq(md_engine_prefill(e, 0, 0, tokens, 8, NULL), MD_OK);
    ck_assert_int_eq(md_engine_checkpoint(e, 0, &state, NULL), MD_INTERNAL);
    ck_assert_uint_eq(state.len, 0);
    ck_assert_int_eq(md_engine_checkpoint(e, 0, &state, NULL), MD_OK);
    ck_assert_int_eq((int64_t)state.len, md_engine_checkpoint_bytes(e));
    ck_assert_int_eq(md_engine_prefill(e, 0, 8, tokens + 8, 4, NULL), MD_OK);
    f.op = MD_OP_REWIND, f.nth = 1;
    const struct md_bytes bytes = { state.data, state.len };
    ck_assert_int_eq(md_engine_rewind(e, 0, 8, bytes, NULL), MD_INTERNAL);
    ck_assert(md_engine_end(e, 0) == 12 && md_engine_is_ready(e, 0));
    ck_assert_int_eq(md_engine_rewind(e, 0, 8, bytes, NULL), MD_OK);
    ck_assert(md_engine_end(e, 0) == 8 && md_engine_cells_used(e) == 8);
    ck_assert(f.calls[MD_OP_CHECKPOINT] == 2 && f.calls[MD_OP_REWIND] == 2);
    md_engine_close(e);
    md_fake_model_close(model);
    md_buf_done(&state);
}
END_TEST

/* Queries are those of the inner engine, unless a call that the wrapper failed came between. */
START_TEST(faults_of_attention)
{
    static const int32_t layer = 1;
    const struct md_fake_options o = { .cell_count = 64, .attention = true };
    const struct md_range r = { 0, 8 };
    struct md_fault f = { .op = MD_OP_WATCH, .nth = 1, .status = MD_INTERNAL };
    struct md_engine *e = NULL, *plain = NULL;
    struct md_queries q, right;
    struct md_buf kv;
    md_buf_init(&kv, NULL, 1 << 20);
    ck_assert_int_eq(md_fake_open(NULL, &o, &plain, NULL), MD_OK);
    ck_assert_int_eq(md_fake_open(NULL, &o, &e, NULL), MD_OK);
    ck_assert_int_eq(md_fault_open(e, &f, &e, NULL), MD_OK);
    ck_assert(md_engine_caps(e) == md_engine_caps(plain));
    ck_assert_int_eq(md_engine_watch(plain, &layer, 1, NULL), MD_OK);
    ck_assert_int_eq(md_engine_watch(e, &layer, 1, NULL), MD_INTERNAL);
    ck_assert_int_eq(md_engine_queries(e, layer, &q, NULL), MD_INVALID);
    ck_assert_int_eq(md_engine_watch(e, &layer, 1, NULL), MD_OK);
    ck_assert_int_eq(md_engine_prefill(e, 0, 0, tokens, 8, NULL), MD_OK);
    ck_assert_int_eq(md_engine_prefill(plain, 0, 0, tokens, 8, NULL), MD_OK);
    ck_assert_int_eq(md_engine_queries(plain, layer, &right, NULL), MD_OK);
    f.op = MD_OP_QUERIES, f.nth = 1;
    ck_assert_int_eq(md_engine_queries(e, layer, &q, NULL), MD_INTERNAL);
    ck_assert_int_eq(md_engine_queries(e, layer, &q, NULL), MD_OK);
    ck_assert(q.start == 0 && q.rows == 8 && q.heads == right.heads && q.length == right.length);
    ck_assert_mem_eq(q.at, right.at, (size_t)(q.rows * q.heads * q.length) * sizeof *q.at);

    ck_assert_int_eq(md_engine_export_range(e, 0, r, &kv, NULL), MD_OK);
    const size_t count = md_engine_keys_count(e, &layer, 1, 8);
    uint16_t *keys = calloc(2 * count, sizeof *keys);
    const struct md_bytes bytes = { kv.data, kv.len };
    ck_assert(keys != NULL && count > 0);
    f.op = MD_OP_KEYS, f.nth = 1;
    ck_assert_int_eq(md_engine_keys(e, r, bytes, &layer, 1, keys, NULL), MD_INTERNAL);
    ck_assert_int_eq(md_engine_keys(e, r, bytes, &layer, 1, keys, NULL), MD_OK);
    ck_assert_int_eq(md_engine_keys(plain, r, bytes, &layer, 1, keys + count, NULL), MD_OK);
    ck_assert_mem_eq(keys, keys + count, count * sizeof *keys);

    f.op = MD_OP_PREFILL, f.nth = 1;
    ck_assert_int_eq(md_engine_prefill(e, 0, 8, tokens + 8, 4, NULL), MD_INTERNAL);
    ck_assert_int_eq(md_engine_queries(e, layer, &q, NULL), MD_INVALID);
    ck_assert(f.calls[MD_OP_WATCH] == 2 && f.calls[MD_OP_QUERIES] == 2 && f.calls[MD_OP_KEYS] == 2);
    free(keys);
    md_engine_close(e);
    md_engine_close(plain);
    md_buf_done(&kv);
}
END_TEST

/* Exported and then not removed is not evicted: neither half stays. */
START_TEST(evict_is_all_or_nothing)
{
    static const enum md_engine_op failing[] = { MD_OP_EXPORT, MD_OP_REMOVE };
    const struct md_range r = { 4, 8 };
    for (int i = 0; i < 2; i++) {
        struct md_fault f = { .op = failing[i], .nth = 1, .status = MD_INTERNAL };
        struct md_engine *e = NULL;
        struct md_buf kv;
        md_buf_init(&kv, NULL, 1 << 20);
        ck_assert_int_eq(md_fault_open(open_inner(), &f, &e, NULL), MD_OK);
        ck_assert_int_eq(md_engine_prefill(e, 0, 0, tokens, 12, NULL), MD_OK);
        ck_assert_int_eq(md_buf_append(&kv, "before", 6, NULL), MD_OK);
        ck_assert_int_eq(md_engine_evict_range(e, 0, r, &kv, NULL), MD_INTERNAL);
        ck_assert(kv.len == 6 && md_engine_is_hot(e, 0, r) && md_engine_cells_used(e) == 12);
        ck_assert_int_eq(md_engine_evict_range(e, 0, r, &kv, NULL), MD_OK);
        ck_assert_int_eq((int64_t)kv.len, 6 + md_engine_export_bytes(e, 4));
        ck_assert_int_eq(md_engine_cells_used(e), 8);
        md_engine_close(e);
        md_buf_done(&kv);
    }
}
END_TEST

START_TEST(the_nth_call_and_all_after_it)
{
    struct md_fault f = { .op = MD_OP_COUNT, .nth = 3, .status = MD_NO_MEMORY, .from_then_on = true };
    struct md_engine *e = NULL;
    ck_assert_int_eq(md_fault_open(open_inner(), &f, &e, NULL), MD_OK);
    ck_assert_int_eq(md_engine_prefill(e, 0, 0, tokens, 4, NULL), MD_OK);
    ck_assert_int_eq(md_engine_truncate(e, 0, 2, NULL), MD_OK);
    ck_assert_int_eq(md_engine_prefill(e, 0, 2, tokens, 4, NULL), MD_NO_MEMORY);
    ck_assert_int_eq(md_engine_truncate(e, 0, 0, NULL), MD_NO_MEMORY);
    ck_assert_int_eq(f.failed, 2);
    f.nth = 0;
    ck_assert_int_eq(md_engine_truncate(e, 0, 0, NULL), MD_OK);
    md_engine_close(e);
}
END_TEST

START_TEST(an_engine_with_kv_cannot_be_wrapped)
{
    struct md_engine *inner = open_inner(), *e = NULL;
    struct md_err err = { 0 };
    ck_assert_int_eq(md_engine_prefill(inner, 0, 0, tokens, 4, NULL), MD_OK);
    ck_assert_int_eq(md_trace_open(inner, &e, &err), MD_INVALID); /* and closes it: ASan sees */
    ck_assert_ptr_null(e);
    ck_assert_ptr_nonnull(strstr(err.text, "already holds KV"));
}
END_TEST

static bool always(void *user)
{
    ++*(int *)user;
    return true;
}

START_TEST(the_interrupt_reaches_the_inner_engine)
{
    struct md_engine *e = NULL;
    int polls = 0;
    ck_assert_int_eq(md_trace_open(open_inner(), &e, NULL), MD_OK);
    md_engine_set_interrupt(e, always, &polls);
    ck_assert_int_eq(md_engine_prefill(e, 0, 0, tokens, 4, NULL), MD_CANCELLED);
    ck_assert_int_eq(polls, 1);
    md_engine_set_interrupt(e, NULL, NULL); /* and is taken back there */
    ck_assert_int_eq(md_engine_prefill(e, 0, 0, tokens, 4, NULL), MD_OK);
    md_engine_close(e);
}
END_TEST

/* What all operations write to standard error at a log level. */
static size_t log_of_all(enum md_log_level level, char *out, size_t out_bytes)
{
    FILE *file = tmpfile();
    ck_assert_ptr_nonnull(file);
    const int saved = dup(STDERR_FILENO);
    struct md_engine *e = NULL;
    struct md_buf kv;
    md_buf_init(&kv, NULL, 1 << 20);
    ck_assert_int_eq(md_trace_open(open_inner(), &e, NULL), MD_OK);
    dup2(fileno(file), STDERR_FILENO);
    md_log_set_level(level);
    for (int i = 0; i < OPS; i++)
        call(e, order[i], &kv, NULL);
    md_log_set_level(MD_LOG_WARN);
    dup2(saved, STDERR_FILENO);
    close(saved);
    md_engine_close(e);
    md_buf_done(&kv);
    rewind(file);
    size_t n = fread(out, 1, out_bytes - 1, file);
    out[n] = '\0';
    fclose(file);
    return n;
}

START_TEST(trace_logs_each_operation_at_debug)
{
    char text[8192];
    ck_assert_uint_eq(log_of_all(MD_LOG_INFO, text, sizeof text), 0);
    ck_assert_uint_gt(log_of_all(MD_LOG_DEBUG, text, sizeof text), 0);
    int lines = 0;
    for (const char *p = text; (p = strstr(p, "debug engine ")) != NULL; p++)
        lines++;
    ck_assert_int_eq(lines, OPS + 1); /* recompute removes first */
    for (int i = 0; i < OPS; i++)
        ck_assert_msg(strstr(text, md_engine_op_name(order[i])) != NULL, "%s is missing",
                      md_engine_op_name(order[i]));
    ck_assert_ptr_nonnull(strstr(text, "truncate seq 0 [6, 12)"));
}
END_TEST

START_TEST(trace_line)
{
    char line[256];
    const struct md_engine_call c = { .op = MD_OP_ADMIT, .seq = 2, .r = { 64, 128 }, .bytes = 4096 };
    md_trace_line(&c, MD_CORRUPT, 2000000, line, sizeof line);
    ck_assert_str_eq(line, "engine admit_range seq 2 [64, 128) 4096 bytes 2.000 ms, 32000 tokens/s: CORRUPT");
    md_trace_line(&c, MD_OK, 0, line, sizeof line); /* a clock that did not move */
    ck_assert_ptr_nonnull(strstr(line, ", 0 tokens/s: OK"));
    const struct md_engine_call moved = {
        .op = MD_OP_ADMIT_MOVED, .seq = 2, .r = { 64, 128 }, .bytes = 4096, .from_start = 7
    };
    md_trace_line(&moved, MD_OK, 2000000, line, sizeof line);
    ck_assert_str_eq(line,
                     "engine admit_moved seq 2 [64, 128) from 7 4096 bytes 2.000 ms, 32000 tokens/s: OK");
    const struct md_engine_call shared = { .op = MD_OP_SHARE, .seq = 2, .r = { 0, 32 }, .to = 5 };
    md_trace_line(&shared, MD_OK, 1000000, line, sizeof line);
    ck_assert_str_eq(line, "engine share seq 2 [0, 32) to seq 5 1.000 ms, 32000 tokens/s: OK");
    const struct md_engine_call back = { .op = MD_OP_REWIND, .seq = 2, .r = { 64, 128 }, .bytes = 512 };
    md_trace_line(&back, MD_OK, 1000000, line, sizeof line);
    ck_assert_str_eq(line, "engine rewind seq 2 [64, 128) 512 bytes 1.000 ms, 64000 tokens/s: OK");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("wrap");
    TCase *t = tcase_create("wrap");
    suite_add_tcase(s, t);
    tcase_add_test(t, a_fault_fails_its_call_and_nothing_else);
    tcase_add_test(t, faults_of_the_tail_state);
    tcase_add_test(t, faults_of_attention);
    tcase_add_test(t, evict_is_all_or_nothing);
    tcase_add_test(t, the_nth_call_and_all_after_it);
    tcase_add_test(t, an_engine_with_kv_cannot_be_wrapped);
    tcase_add_test(t, the_interrupt_reaches_the_inner_engine);
    tcase_add_test(t, trace_logs_each_operation_at_debug);
    tcase_add_test(t, trace_line);
    return md_run_suite(s);
}
