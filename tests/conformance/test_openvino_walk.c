/* After 1,000 random evictions, admissions, parkings and re-bases of the whole text the logits are within 1e-3 of the dense
 * run (f32), on a llama-like model and on one with windows.
 *
 * The right logits are those of the same tokens fed once, at position 0, on the engine before the walk: rotary positions
 * count by distance alone, so they hold wherever the text has gone. */
#include "adapters/openvino/ov_backend.h"
#include "support/exact_model.h"
#include "support/rng.h"
#include "support/run_suite.h"
#include "support/subjects.h"
#include "support/tiny_models.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    OPERATIONS = 1000,
    BLOCK = 37, /* tokens: borders are not those of the engine's blocks of 32 */
    BLOCKS = 14,
    TEXT = BLOCK * BLOCKS,
    ANSWER = 8,
    OTHER = 200, /* tokens of a second sequence, which takes rows between ours */
    BASE_MAX = 900,
    KINDS = 5,
    CELLS = 1024,
    KV_LIMIT_BYTES = 64 << 20
};
static const float tolerance = 1e-3f;

enum place { HOT, PARKED, COLD };

static struct walk {
    struct md_engine *e;
    struct rng random;
    unsigned long long seed;
    int step, done[KINDS];
    int32_t base; /* where the text begins now */
    enum place place[BLOCKS];
    struct md_buf kv[BLOCKS]; /* of a cold one, as it was at from[] */
    int32_t from[BLOCKS];
} w;
static md_token tokens[TEXT + 64];

#define OK(call)                                                                                 \
    do {                                                                                         \
        struct md_err err_ = { 0 };                                                              \
        struct md_err *err = &err_;                                                              \
        enum md_status status_ = (call);                                                         \
        ck_assert_msg(status_ == MD_OK, "seed %llu, step %d: %s: %s: %s", w.seed, w.step, #call, \
                      md_status_name(status_), err->text);                                       \
    } while (0)

static int32_t pick(int32_t below)
{
    return (int32_t)rng_below(&w.random, (uint32_t)below);
}

static struct md_range range_of(int32_t block)
{
    return (struct md_range){ w.base + block * BLOCK, w.base + (block + 1) * BLOCK };
}

/* ---- operations; each does nothing where the block is in another place ---- */

static bool evict(int32_t block)
{
    if (w.place[block] != HOT)
        return false;
    md_buf_init(&w.kv[block], NULL, KV_LIMIT_BYTES);
    OK(md_engine_evict_range(w.e, 0, range_of(block), &w.kv[block], err));
    w.from[block] = range_of(block).start;
    w.place[block] = COLD;
    return true;
}

static bool admit(int32_t block)
{
    const struct md_range r = range_of(block);
    const struct md_bytes kv = { w.kv[block].data, w.kv[block].len };
    if (w.place[block] != COLD)
        return false;
    if (w.from[block] == r.start)
        OK(md_engine_admit_range(w.e, 0, r, kv, err));
    else
        OK(md_engine_admit_moved(w.e, 0, r, w.from[block], kv, err));
    md_buf_done(&w.kv[block]);
    w.place[block] = HOT;
    return true;
}

static bool park(int32_t block, bool back)
{
    if (w.place[block] != (back ? PARKED : HOT))
        return false;
    if (back)
        OK(md_engine_unpark(w.e, 0, range_of(block), err));
    else
        OK(md_engine_park(w.e, 0, range_of(block), err));
    w.place[block] = back ? HOT : PARKED;
    return true;
}

/* What is hot or parked leaves and comes back elsewhere, in any order; what is cold will follow when it is admitted. */
static bool rebase(void)
{
    bool here[BLOCKS];
    for (int32_t b = 0; b < BLOCKS; b++) {
        here[b] = w.place[b] != COLD;
        park(b, true);
        evict(b);
    }
    w.base = pick(BASE_MAX);
    for (int32_t i = 0, b = pick(BLOCKS); i < BLOCKS;
         i++, b = (b + 5) % BLOCKS) /* 5 and 14 have no divisor */
        if (here[b])
            admit(b);
    return true;
}

static bool operate(int kind)
{
    const int32_t block = pick(BLOCKS);
    switch (kind) {
    case 0: return evict(block);
    case 1: return admit(block);
    case 2: return park(block, false);
    case 3: return park(block, true);
    default: return pick(8) == 0 && rebase();
    }
}

/* The other sequence grows by a few tokens, shares some of ours, or begins again: is not counted. */
static void disturb(void)
{
    const int32_t end = md_engine_end(w.e, 1), count = 1 + pick(20);
    const int32_t block = pick(BLOCKS);
    if (end > OTHER || pick(6) == 0) {
        OK(md_engine_truncate(w.e, 1, 0, err));
        if (w.place[block] == HOT)
            OK(md_engine_share(w.e, 0, 1, range_of(block), err));
    } else {
        OK(md_engine_prefill(w.e, 1, end, tokens + pick(TEXT), count, err));
    }
}

/* ---- looking ---- */

/* Everything back, and `ANSWER` tokens behind it. */
static void answer(float *ret_logits)
{
    const int32_t vocab = md_engine_info(w.e)->vocab_count;
    const float *logits = NULL;
    for (int32_t b = 0; b < BLOCKS; b++) {
        park(b, true);
        admit(b);
    }
    for (int32_t i = 0; i < ANSWER; i++) {
        OK(md_engine_decode(w.e, 0, w.base + TEXT + i, &tokens[TEXT + i], 1, &logits, err));
        memcpy(ret_logits + (size_t)i * (size_t)vocab, logits, (size_t)vocab * sizeof *logits);
    }
    OK(md_engine_truncate(w.e, 0, w.base + TEXT, err));
}

static float distance(const float *a, const float *b)
{
    float most = 0;
    for (int32_t i = 0; i < ANSWER * md_engine_info(w.e)->vocab_count; i++)
        most = fmaxf(most, isfinite(a[i]) && isfinite(b[i]) ? fabsf(a[i] - b[i]) : INFINITY);
    return most;
}

/* One cold block, of those that a windowed layer does not see, must make a difference: else nothing is compared. */
static void check_matters(const float *dense, float *got)
{
    const int32_t vocab = md_engine_info(w.e)->vocab_count;
    const float *logits = NULL;
    float most = 0;
    evict(BLOCKS / 2);
    OK(md_engine_decode(w.e, 0, TEXT, &tokens[TEXT], 1, &logits, err));
    for (int32_t i = 0; i < vocab; i++)
        most = fmaxf(most, fabsf(logits[i] - dense[i]));
    ck_assert_msg(most > 5 * tolerance, "a cold block moves the logits by %g only", (double)most);
    OK(md_engine_truncate(w.e, 0, TEXT, err));
    answer(got);
    ck_assert_msg(distance(dense, got) <= tolerance, "one block out and in: %g",
                  (double)distance(dense, got));
}

static void walk_on(const char *path)
{
    const struct md_open_params p = { .model_path = path,
                                      .cell_count = CELLS,
                                      .ubatch_tokens = 64,
                                      .threads = 1, /* the model is too small for more */
                                      .flash_attn = -1,
                                      .type_k = "f32",
                                      .type_v = "f32" };
    memset(&w, 0, sizeof w);
    OK(md_openvino_open(&p, &w.e, err));
    const size_t numbers = (size_t)ANSWER * (size_t)md_engine_info(w.e)->vocab_count;
    float *dense = calloc(numbers, sizeof *dense), *got = calloc(numbers, sizeof *got);
    ck_assert(dense != NULL && got != NULL);
    md_subject_random_tokens(tokens, sizeof tokens / sizeof tokens[0]);
    w.random = rng_open("evict, admit, park, re-base");
    w.seed = w.random.state;
    OK(md_engine_prefill(w.e, 0, 0, tokens, TEXT > 512 ? 512 : TEXT, err));
    if (TEXT > 512)
        OK(md_engine_prefill(w.e, 0, 512, tokens + 512, TEXT - 512, err));
    answer(dense);
    check_matters(dense, got);
    while (w.step < OPERATIONS) {
        const int kind = pick(KINDS);
        if (!operate(kind))
            continue;
        w.done[kind]++;
        w.step++;
        if (pick(4) == 0)
            disturb();
        if (w.step % 250 == 0) {
            answer(got);
            const float d = distance(dense, got);
            printf("# seed %llu: after %d operations the logits are %g from those of the dense run\n", w.seed,
                   w.step, (double)d);
            ck_assert_msg(d <= tolerance, "seed %llu, step %d: %g from the dense run", w.seed, w.step,
                          (double)d);
        }
    }
    int all = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        all += w.done[kind];
        ck_assert_msg(w.done[kind] > 25, "operation %d was done %d times", kind, w.done[kind]);
    }
    ck_assert_int_ge(all, 1000);
    free(dense);
    free(got);
    md_engine_close(w.e);
}

static void path_for(char *out, size_t out_bytes)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(out, out_bytes, "%s/modeld-ov-walk-%ld.gguf", tmp != NULL ? tmp : "/tmp", (long)getpid());
}

START_TEST(thousand_operations_then_within_1e_3_of_the_dense_run)
{
    char path[512];
    struct md_fake_model *model = NULL;
    path_for(path, sizeof path);
    OK(md_exact_model_open(&model, err));
    OK(md_exact_model_write(model, path, err));
    md_fake_model_close(model);
    walk_on(path);
    unlink(path);
}
END_TEST

START_TEST(thousand_operations_then_within_1e_3_of_the_dense_run_with_windows)
{
    char path[512];
    path_for(path, sizeof path);
    OK(md_tiny_model_write(&md_tiny_windowed, path, err));
    walk_on(path);
    unlink(path);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("openvino_walk");
    TCase *c = tcase_create("1,000 operations");
    tcase_set_timeout(c, 300);
    tcase_add_test(c, thousand_operations_then_within_1e_3_of_the_dense_run);
    tcase_add_test(c, thousand_operations_then_within_1e_3_of_the_dense_run_with_windows);
    suite_add_tcase(suite, c);
    return md_run_suite_here(suite);
}
