/* The fake engine and its model beyond what the conformance suite asks of every engine. */
#include "engine/fake.h"
#include "support/run_suite.h"
#include "support/fault_alloc.h"
#include "support/reference.h"
#include "support/rng.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 40 };

static struct md_fake_dims dims_with(int32_t layers, int32_t heads, int32_t kv_heads, int32_t head_dim)
{
    struct md_fake_dims d = md_fake_dims_default();
    d.layers = layers;
    d.heads = heads;
    d.kv_heads = kv_heads;
    d.head_dim = head_dim;
    return d;
}

static struct md_fake_dims dims_with_tail(int32_t layers, int32_t tail_period, int32_t window_tokens)
{
    struct md_fake_dims d = md_fake_dims_default();
    d.layers = layers;
    d.tail_period = tail_period;
    d.window_tokens = window_tokens;
    return d;
}

static struct md_engine *open_default(const struct md_fake_model *model, unsigned caps_off)
{
    struct md_engine *e = NULL;
    const struct md_fake_options o = { .cell_count = 64, .caps_off = caps_off };
    ck_assert_int_eq(md_fake_open(model, &o, &e, NULL), MD_OK);
    return e;
}

static void some_tokens(md_token *tokens, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        tokens[i] = 3 + i * 37 % 256;
}

START_TEST(logits_equal_the_reference_pass)
{
    const struct {
        const char *label;
        struct md_fake_dims dims;
        int32_t start; /* position of the first token */
    } rows[] = {
        { "default", md_fake_dims_default(), 0 },
        { "exact model", md_fake_dims_exact(), 0 },
        { "one layer, one head", dims_with(1, 1, 1, 2), 0 },
        { "every head its own", dims_with(2, 4, 4, 8), 0 },
        { "all heads one", dims_with(3, 6, 1, 6), 0 },
        { "width of heads above that of the model", dims_with(2, 8, 2, 16), 0 },
        { "far out", md_fake_dims_default(), 100000 },
        { "windows of 7", dims_with_tail(4, 2, 7), 0 },
        { "windows of 7, far out", dims_with_tail(3, 3, 7), 100000 },
        { "windows of 1", dims_with_tail(2, 2, 1), 0 },
        { "windows longer than the text", dims_with_tail(2, 2, 100), 0 },
        { "windows only", dims_with_tail(2, 3, 7), 0 },
        { "recurrent", dims_with_tail(4, 2, 0), 0 },
        { "recurrent only", dims_with_tail(2, 3, 0), 3 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_fake_model *m = NULL;
        ck_assert_int_eq(md_fake_model_open(&rows[i].dims, 5, NULL, &m, NULL), MD_OK);
        struct md_engine *e = open_default(m, 0);
        md_token tokens[TOKENS];
        struct md_ref_token entries[TOKENS];
        static bool sees[TOKENS * TOKENS];
        const float *logits = NULL;
        float want[MD_FAKE_BYTE_VOCAB];
        some_tokens(tokens, TOKENS);
        for (int32_t t = 0; t < TOKENS; t++) {
            entries[t] = (struct md_ref_token){ tokens[t], rows[i].start + t, rows[i].start + t };
            for (int32_t j = 0; j < TOKENS; j++)
                sees[t * TOKENS + j] = j <= t;
        }
        ck_assert_int_eq(md_engine_prefill(e, 2, rows[i].start, tokens, TOKENS - 1, NULL), MD_OK);
        ck_assert_int_eq(md_engine_decode(e, 2, rows[i].start + TOKENS - 1, &tokens[TOKENS - 1], 1, &logits,
                                          NULL),
                         MD_OK);
        ck_assert(md_reference_logits(m, entries, sees, TOKENS, want));
        for (int32_t v = 0; v < MD_FAKE_BYTE_VOCAB; v++)
            ck_assert_msg(fabsf(want[v] - logits[v]) < 1e-3f, "%s: logit %d is %g, not %g", rows[i].label, v,
                          (double)logits[v], (double)want[v]);
        md_engine_close(e);
        md_fake_model_close(m);
    }
}
END_TEST

/* On each machine the same: a KV file or a figure in a document must not depend on where it was made. */
START_TEST(weights_are_the_same_everywhere)
{
    const struct md_fake_dims d = md_fake_dims_exact();
    struct md_fake_model *a = NULL, *b = NULL;
    ck_assert_int_eq(md_fake_model_open(&d, 1, NULL, &a, NULL), MD_OK);
    ck_assert_int_eq(md_fake_model_open(&d, 2, NULL, &b, NULL), MD_OK);
    ck_assert_uint_eq(a->fingerprint, UINT64_C(7018316585873712094));
    ck_assert_uint_ne(a->fingerprint, b->fingerprint);
    double sum = 0, squares = 0;
    const int32_t n = d.vocab * d.width;
    for (int32_t i = 0; i < n; i++) {
        sum += (double)a->embed[i];
        squares += (double)a->embed[i] * (double)a->embed[i];
    }
    ck_assert_double_lt(fabs(sum / n), 0.05); /* mean 0, deviation 1 */
    ck_assert_double_lt(fabs(squares / n - 1), 0.05);
    md_fake_model_close(a);
    md_fake_model_close(b);
}
END_TEST

START_TEST(bad_dims_and_options_are_refused)
{
    struct md_fake_dims d[13];
    for (int i = 0; i < 13; i++)
        d[i] = md_fake_dims_default();
    d[0].layers = 0;
    d[1].layers = MD_FAKE_LAYERS_MAX + 1;
    d[2].width = -1;
    d[3].kv_heads = 3; /* 4 heads */
    d[4].head_dim = 7;
    d[5].vocab = INT32_MAX;
    d[6].norm_eps = NAN;
    d[7].rope_base = 0;
    d[8].kv_heads = 0;
    d[9].tail_period = 1; /* every layer global */
    d[10].tail_period = -2;
    d[11].window_tokens = 8; /* of no layer */
    d[12].tail_period = 2;
    d[12].window_tokens = -1;
    for (int i = 0; i < 13; i++) {
        struct md_fake_model *m = NULL;
        struct md_err err = { 0 };
        ck_assert_msg(md_fake_model_open(&d[i], 1, NULL, &m, &err) == MD_INVALID, "dims %d", i);
        ck_assert_ptr_null(m);
        ck_assert_msg(strncmp(err.text, "fake model: ", 12) == 0, "%s", err.text);
    }
    const struct md_fake_options o[] = {
        { .cell_count = 0 },
        { .cell_count = -5 },
        { .cell_count = INT32_MAX },
        { .cell_count = 8, .seq_count = -1 },
        { .cell_count = 8, .seq_count = 257 },
        { .cell_count = 8, .batch_tokens = -1 },
    };
    for (size_t i = 0; i < sizeof o / sizeof o[0]; i++) {
        struct md_engine *e = NULL;
        ck_assert_msg(md_fake_open(NULL, &o[i], &e, NULL) == MD_INVALID, "options %zu", i);
        ck_assert_ptr_null(e);
    }
}
END_TEST

START_TEST(capabilities_can_be_switched_off)
{
    const unsigned all = MD_CAP_REMOVE_TAIL | MD_CAP_REMOVE_MIDDLE | MD_CAP_SPARSE_ATTENTION |
                         MD_CAP_COLD_STORE | MD_CAP_RECOMPUTE_RANGE | MD_CAP_POSITION_SHIFT | MD_CAP_SHARE;
    struct md_engine *e = open_default(NULL, 0);
    ck_assert_uint_eq(md_engine_caps(e), all); /* what it can it says */
    md_engine_close(e);
    e = open_default(NULL, all);
    ck_assert_uint_eq(md_engine_caps(e), 0);
    md_token tokens[TOKENS];
    some_tokens(tokens, TOKENS);
    struct md_buf kv;
    md_buf_init(&kv, NULL, 1 << 20);
    const struct md_range r = { 4, 8 };
    const struct md_range out = { 20, 24 };
    ck_assert_int_eq(md_engine_prefill(e, 0, 0, tokens, 20, NULL), MD_OK);
    ck_assert_int_eq(md_engine_evict_range(e, 0, r, &kv, NULL), MD_UNSUPPORTED);
    ck_assert_int_eq(md_engine_evict_range(e, 0, r, NULL, NULL), MD_UNSUPPORTED);
    ck_assert_int_eq(md_engine_export_range(e, 0, r, &kv, NULL), MD_UNSUPPORTED);
    ck_assert_int_eq(md_engine_remove_range(e, 0, r, NULL), MD_UNSUPPORTED);
    ck_assert_int_eq(md_engine_share(e, 0, 1, r, NULL), MD_UNSUPPORTED);
    ck_assert_int_eq(md_engine_admit_range(e, 0, out, (struct md_bytes){ "x", 1 }, NULL), MD_UNSUPPORTED);
    ck_assert_int_eq(md_engine_admit_moved(e, 0, out, 4, (struct md_bytes){ "x", 1 }, NULL), MD_UNSUPPORTED);
    ck_assert_int_eq(md_engine_park(e, 0, r, NULL), MD_UNSUPPORTED);
    ck_assert_int_eq(md_engine_recompute_range(e, 0, out, tokens, (struct md_bytes){ 0 }, NULL),
                     MD_UNSUPPORTED);
    ck_assert_int_eq(md_engine_truncate(e, 0, 10, NULL), MD_UNSUPPORTED);
    ck_assert_int_eq(md_engine_end(e, 0), 20);
    ck_assert_int_eq(md_engine_truncate(e, 0, 0, NULL), MD_OK); /* emptying always works */
    ck_assert_int_eq(md_engine_cells_used(e), 0);
    md_engine_close(e);
    e = open_default(NULL, MD_CAP_COLD_STORE); /* evicts, but exports nothing */
    ck_assert_uint_eq(md_engine_caps(e), all & ~(unsigned)(MD_CAP_COLD_STORE | MD_CAP_POSITION_SHIFT));
    ck_assert_int_eq(md_engine_prefill(e, 0, 0, tokens, 20, NULL), MD_OK);
    ck_assert_int_eq(md_engine_evict_range(e, 0, r, &kv, NULL), MD_UNSUPPORTED);
    ck_assert_int_eq(md_engine_evict_range(e, 0, r, NULL, NULL), MD_OK);
    md_engine_close(e);
    e = open_default(NULL, MD_CAP_REMOVE_MIDDLE); /* exports and cuts tails, but makes no holes */
    ck_assert_int_eq(md_engine_prefill(e, 0, 0, tokens, 20, NULL), MD_OK);
    ck_assert_int_eq(md_engine_evict_range(e, 0, r, &kv, NULL), MD_UNSUPPORTED);
    ck_assert_uint_eq(kv.len, 0);
    ck_assert_int_eq(md_engine_export_range(e, 0, (struct md_range){ 16, 20 }, &kv, NULL), MD_OK);
    ck_assert_int_eq(md_engine_truncate(e, 0, 16, NULL), MD_OK);
    ck_assert_int_eq(md_engine_admit_range(e, 0, (struct md_range){ 16, 20 },
                                           (struct md_bytes){ kv.data, kv.len }, NULL),
                     MD_OK);
    md_buf_done(&kv);
    md_engine_close(e);
}
END_TEST

START_TEST(every_changed_bit_of_exported_kv_is_found)
{
    md_token tokens[TOKENS];
    some_tokens(tokens, TOKENS);
    struct md_engine *e = open_default(NULL, 0);
    struct md_buf kv;
    const struct md_range r = { 8, 16 };
    md_buf_init(&kv, NULL, 1 << 20);
    ck_assert_int_eq(md_engine_prefill(e, 0, 0, tokens, TOKENS, NULL), MD_OK);
    ck_assert_int_eq(md_engine_evict_range(e, 0, r, &kv, NULL), MD_OK);
    ck_assert_int_eq((int64_t)kv.len, md_engine_export_bytes(e, 8));
    for (size_t bit = 0; bit < kv.len * 8; bit += 3) {
        kv.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        enum md_status s = md_engine_admit_range(e, 0, r, (struct md_bytes){ kv.data, kv.len }, NULL);
        ck_assert_msg(s == MD_CORRUPT || s == MD_INVALID, "bit %zu: %s", bit, md_status_name(s));
        ck_assert_int_eq(md_engine_cells_used(e), TOKENS - 8);
        kv.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    const struct md_fake_dims d = md_fake_dims_default();
    struct md_fake_model *other = NULL;
    ck_assert_int_eq(md_fake_model_open(&d, 2, NULL, &other, NULL), MD_OK);
    struct md_engine *f = open_default(other, 0);
    ck_assert_int_eq(md_engine_admit_range(f, 0, r, (struct md_bytes){ kv.data, kv.len }, NULL), MD_INVALID);
    ck_assert_str_ne(md_engine_info(e)->identity, md_engine_info(f)->identity);
    ck_assert_int_eq(md_engine_admit_range(e, 0, r, (struct md_bytes){ kv.data, kv.len }, NULL), MD_OK);
    md_engine_close(e);
    md_engine_close(f);
    md_fake_model_close(other);
    md_buf_done(&kv);
}
END_TEST

START_TEST(open_survives_each_failed_allocation)
{
    enum md_status s = MD_NO_MEMORY;
    long nth = 1;
    for (; s != MD_OK; nth++) {
        struct fault_alloc f;
        fault_alloc_init(&f, nth);
        const struct md_fake_options o = { .cell_count = 16, .alloc = &f.alloc };
        struct md_engine *e = NULL;
        struct md_err err = { 0 };
        s = md_fake_open(NULL, &o, &e, &err);
        if (s != MD_OK) {
            ck_assert_int_eq(s, MD_NO_MEMORY);
            ck_assert(f.failed && e == NULL && err.text[0] != '\0');
        } else {
            md_token tokens[TOKENS];
            some_tokens(tokens, TOKENS);
            const long calls = f.calls;
            ck_assert_int_eq(md_engine_prefill(e, 0, 0, tokens, 16, NULL), MD_OK);
            ck_assert_int_eq(md_engine_evict_range(e, 0, (struct md_range){ 0, 4 }, NULL, NULL), MD_OK);
            ck_assert_int_eq(f.calls, calls); /* nothing is allocated after open */
            md_engine_close(e);
        }
        ck_assert_uint_eq(f.live_blocks, 0);
    }
    ck_assert_int_gt(nth, 10); /* it did meet them */
}
END_TEST

START_TEST(every_changed_bit_of_a_saved_state_is_found)
{
    static const int32_t windows[] = { 7, 0 };
    md_token tokens[TOKENS];
    some_tokens(tokens, TOKENS);
    for (int i = 0; i < 2; i++) {
        const struct md_fake_dims d = dims_with_tail(2, 2, windows[i]);
        struct md_fake_model *m = NULL, *other = NULL;
        struct md_buf state;
        ck_assert_int_eq(md_fake_model_open(&d, 1, NULL, &m, NULL), MD_OK);
        ck_assert_int_eq(md_fake_model_open(&d, 2, NULL, &other, NULL), MD_OK);
        struct md_engine *e = open_default(m, 0), *f = open_default(other, 0);
        md_buf_init(&state, NULL, 1 << 20);
        ck_assert_int_eq(md_engine_prefill(e, 1, 0, tokens, 20, NULL), MD_OK);
        ck_assert_int_eq(md_engine_checkpoint(e, 1, &state, NULL), MD_OK);
        for (size_t bit = 0; bit < state.len * 8; bit += 3) {
            state.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
            enum md_status s = md_engine_rewind(e, 1, 20, (struct md_bytes){ state.data, state.len }, NULL);
            ck_assert_msg(s == MD_CORRUPT || s == MD_INVALID, "bit %zu: %s", bit, md_status_name(s));
            state.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        ck_assert_int_eq(md_engine_prefill(f, 1, 0, tokens, 20, NULL), MD_OK);
        ck_assert_int_eq(md_engine_rewind(f, 1, 20, (struct md_bytes){ state.data, state.len }, NULL),
                         MD_INVALID);
        ck_assert_int_eq(md_engine_rewind(e, 1, 20, (struct md_bytes){ state.data, state.len }, NULL), MD_OK);
        md_engine_close(e);
        md_engine_close(f);
        md_fake_model_close(m);
        md_fake_model_close(other);
        md_buf_done(&state);
    }
}
END_TEST

/* ---- far positions ---- */

enum { FAR = 300000, FAR_CELLS = 64 };

/* A plain list of what is hot, for a sequence that goes on to any position with few cells. */
struct far {
    struct md_engine *e;
    bool hot[FAR + 1000];
    int32_t end, used;
};

static void far_set(struct far *f, struct md_range r, bool hot)
{
    for (int32_t p = r.start; p < r.end; p++) {
        f->used += hot - f->hot[p];
        f->hot[p] = hot;
    }
    f->end = r.end > f->end ? r.end : f->end;
    while (f->end > 0 && !f->hot[f->end - 1])
        f->end--;
}

static bool far_all(const struct far *f, struct md_range r, bool hot)
{
    for (int32_t p = r.start; p < r.end; p++)
        if (f->hot[p] != hot)
            return false;
    return true;
}

/* Out with a piece, and in again somewhere else. */
static void far_move(struct far *f, struct rng *rng)
{
    struct md_buf kv;
    const int32_t back = f->end < 400 ? f->end : 400,
                  from = f->end - 1 - (int32_t)rng_below(rng, (uint32_t)back);
    const struct md_range r = { from, from + 4 };
    const int32_t start = (int32_t)rng_below(rng, rng_below(rng, 20) == 0 ? (uint32_t)f->end : 300);
    const int32_t to = start < f->end - 8 ? f->end - 8 - start : 0;
    const struct md_range at = { to, to + 4 };
    if (from < 0 || r.end >= f->end || !far_all(f, r, true))
        return;
    md_buf_init(&kv, NULL, SIZE_MAX / 2);
    ck_assert_int_eq(md_engine_evict_range(f->e, 0, r, &kv, NULL), MD_OK);
    far_set(f, r, false);
    const enum md_status s =
        md_engine_admit_moved(f->e, 0, at, r.start, (struct md_bytes){ kv.data, kv.len }, NULL);
    ck_assert_int_eq(s, far_all(f, at, false) ? MD_OK : MD_INVALID);
    if (s == MD_OK)
        far_set(f, at, true);
    md_buf_done(&kv);
}

/* The oldest leave, until there is room. */
static void far_forget(struct far *f, int32_t room)
{
    for (int32_t p = 0; p < f->end && FAR_CELLS - f->used < room; p++) {
        const struct md_range one = { p, p + 1 };
        if (!f->hot[p])
            continue;
        ck_assert_int_eq(md_engine_remove_range(f->e, 0, one, NULL), MD_OK);
        far_set(f, one, false);
    }
}

/* Every state, wherever it may be asked for. */
static void far_check(const struct far *f, struct rng *rng)
{
    ck_assert_int_eq(md_engine_end(f->e, 0), f->end);
    ck_assert_int_eq(md_engine_cells_used(f->e), f->used);
    ck_assert_int_eq(md_engine_own_cells(f->e, 0, (struct md_range){ 0, f->end }), f->used);
    for (int i = 0; i < 40; i++) {
        const int32_t p = (int32_t)rng_below(rng, (uint32_t)f->end + 50);
        ck_assert_int_eq(md_engine_is_hot(f->e, 0, (struct md_range){ p, p + 1 }), f->hot[p]);
    }
    for (int32_t p = f->end < 200 ? 0 : f->end - 200; p < f->end + 5; p++)
        ck_assert_int_eq(md_engine_is_hot(f->e, 0, (struct md_range){ p, p + 1 }), f->hot[p]);
}

START_TEST(positions_are_as_large_as_they_like)
{
    static struct far f;
    struct rng rng = rng_open("far positions");
    const md_token tokens[16] = { 0 };
    f.e = open_default(NULL, 0);
    for (int round = 0; round < 400; round++) {
        const int32_t n = 1 + (int32_t)rng_below(&rng, 16);
        int32_t from = f.end; /* where nothing is, anything may be the first */
        far_forget(&f, n);
        if (f.used == 0)
            from = (int32_t)rng_below(&rng, FAR);
        ck_assert_int_eq(md_engine_prefill(f.e, 0, from, tokens, n, NULL), MD_OK);
        far_set(&f, (struct md_range){ from, from + n }, true);
        far_move(&f, &rng);
        far_check(&f, &rng);
        if (rng_below(&rng, 10) == 0) {
            const int32_t back = (int32_t)rng_below(&rng, rng_below(&rng, 3) == 0 ? (uint32_t)f.end + 1 : 30);
            const int32_t cut = back < f.end ? f.end - back : 0;
            ck_assert_int_eq(md_engine_truncate(f.e, 0, cut, NULL), MD_OK);
            far_set(&f, (struct md_range){ cut, f.end }, false);
            far_check(&f, &rng);
        }
    }
    md_engine_close(f.e);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fake");
    TCase *t = tcase_create("fake");
    tcase_set_timeout(t, 60);
    suite_add_tcase(s, t);
    tcase_add_test(t, logits_equal_the_reference_pass);
    tcase_add_test(t, weights_are_the_same_everywhere);
    tcase_add_test(t, bad_dims_and_options_are_refused);
    tcase_add_test(t, capabilities_can_be_switched_off);
    tcase_add_test(t, every_changed_bit_of_exported_kv_is_found);
    tcase_add_test(t, open_survives_each_failed_allocation);
    tcase_add_test(t, every_changed_bit_of_a_saved_state_is_found);
    tcase_add_test(t, positions_are_as_large_as_they_like);
    return md_run_suite(s);
}
