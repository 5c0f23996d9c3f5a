/* test_heads.c - heads are measured when a model is new and nobody waits: on the lookup model, where it is known which heads find
 * things and what each of them pays to whom (support/lookup_model.h, support/words_text.h). */
#include "session/heads.h"
#include "engine/attention.h"
#include "engine/fake.h"
#include "session/calibrator.h"
#include "session/haystack.h"
#include "session/session_internal.h"
#include "session/worker.h"
#include "engine/wrap.h"
#include "support/exact_model.h"
#include "support/fault_alloc.h"
#include "support/lookup_model.h"
#include "support/run_suite.h"
#include "support/scripted.h"
#include "support/temp_folder.h"
#include "support/words_text.h"

#include <check.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WINDOW = 2048, HOT = 1024, BLOCK = 16, COLD = 64 << 20, STEPS_MOST = 400, TALK = 700, ANSWER = 4 };

static char folder[4096], file[4200];

struct stage {
    struct md_fake_model *model;
    struct md_engine *engine;
    struct md_text *text;
    struct md_pool *pool;
    struct md_pool_config config;
};

static struct md_pool_config config(void)
{
    return (struct md_pool_config){ .window_tokens = WINDOW,
                                    .hot_tokens = HOT,
                                    .residency = true,
                                    .block_tokens = BLOCK,
                                    .sink_tokens = BLOCK,
                                    .recent_tokens = 2 * BLOCK,
                                    .cold_bytes = COLD,
                                    .retrieval = MD_RETRIEVAL_AUTO,
                                    .calibrate = MD_CALIBRATE_IDLE,
                                    .heads_file = file };
}

static void open_parts(struct stage *s, bool same, bool attention)
{
    const struct md_fake_options options = { .cell_count = s->config.hot_tokens, .attention = attention };
    struct md_err err = { 0 };
    ck_assert_int_eq(md_lookup_model_open(&s->model, &err), MD_OK);
    ck_assert_msg(md_fake_open(s->model, &options, &s->engine, &err) == MD_OK, "%s", err.text);
    ck_assert_int_eq(md_words_open(same, &s->text, &err), MD_OK);
}

static void stage_open(struct stage *s, struct md_pool_config c, bool same)
{
    struct md_err err = { 0 };
    *s = (struct stage){ .config = c };
    open_parts(s, same, true);
    ck_assert_msg(md_pool_open(&s->config, s->engine, s->text, &s->pool, &err) == MD_OK, "%s", err.text);
}

static void stage_close(struct stage *s)
{
    md_pool_close(s->pool);
    md_engine_close(s->engine);
    md_text_close(s->text);
    md_fake_model_close(s->model);
}

static struct md_heads_status status(const struct stage *s)
{
    return md_pool_status(s->pool).heads;
}

static void run_idle(struct stage *s)
{
    for (int i = 0; md_pool_wants_idle(s->pool); i++) {
        ck_assert_int_lt(i, STEPS_MOST);
        md_pool_idle(s->pool, NULL, NULL);
        ck_assert(md_pool_check(s->pool));
    }
}

/* A question has one word that a needle has, and its needle three that all text has: of that the head of layer 1, the stronger
 * one, makes more than what all text gets, the one of layer 0 does not (what_heads_pay_... has the figures).  Tokens that repeat
 * are found by both. */
static void check_lookup_heads(const struct stage *s, enum md_calibrate_source source)
{
    const struct md_calibrate_set *set = md_attend_heads(s->pool->attend);
    const struct md_heads_status h = status(s);
    const size_t count = source == MD_CALIBRATE_CONTRAST ? 1 : 2;
    ck_assert_int_eq(set->source, source);
    ck_assert_uint_eq(set->count, count);
    ck_assert(set->heads[count - 1].layer == 1 && set->heads[count - 1].head == 0);
    ck_assert(set->heads[0].layer == (count == 2 ? 0 : 1) && set->heads[0].head == 0);
    ck_assert(h.state == MD_HEADS_SETTLED && h.count == (int32_t)count && h.source == source);
}

/* ---- what is chosen ---- */

START_TEST(heads_that_look_up_are_chosen)
{
    struct stage s;
    stage_open(&s, config(), false);
    ck_assert_int_eq(status(&s).state, MD_HEADS_WAITING);
    ck_assert_int_eq(status(&s).origin, MD_HEADS_SPREAD);
    ck_assert_int_eq(status(&s).source, MD_CALIBRATE_BAND);
    md_pool_idle(s.pool, NULL, NULL);
    ck_assert_int_eq(status(&s).state, MD_HEADS_RUNNING);
    ck_assert_int_eq(status(&s).source, MD_CALIBRATE_BAND);
    run_idle(&s);
    ck_assert_int_eq(status(&s).origin, MD_HEADS_MEASURED);
    check_lookup_heads(&s, MD_CALIBRATE_CONTRAST);
    ck_assert_int_eq(md_engine_cells_used(s.engine), 0); /* what was read for it is gone */
    ck_assert_int_eq(md_pool_status(s.pool).cold.entry_count, 0);
    ck_assert_int_eq(md_pool_status(s.pool).sessions, 0);
    stage_close(&s);
}
END_TEST

/* Weight before softmax: lookup_model.h. */
static double weight(int layer, int head, md_token q, md_token k, int32_t distance)
{
    static const double strength[] = { 2, 4 };
    const double speed = pow(1e9, -2.0 * (q - MD_EXACT_TOKEN_OF_BYTE_0) / 64);
    return exp(head == 0 && q == k ? strength[layer] * cos(distance * speed) : 0);
}

/* Mean over the rows of a question of what they pay to r, of all that candidates get. */
static double paid(const struct md_haystack *h, const struct md_tokens *question, int layer, int head,
                   struct md_range r)
{
    double sum = 0;
    for (size_t row = 0; row < question->count; row++) {
        double all = 0, own = 0;
        for (int32_t p = BLOCK; p < (int32_t)h->prompt.count; p++) {
            const double w = weight(layer, head, question->ids[row], h->prompt.ids[p],
                                    (int32_t)(h->prompt.count + row) - p);
            all += w;
            own += p >= r.start && p < r.end ? w : 0;
        }
        sum += own / all;
    }
    return sum / (double)question->count;
}

static struct md_calibrate_measure right_measure(const struct stage *s, int layer, int head)
{
    enum { ITEMS = MD_NEEDLES * MD_NEEDLES_KINDS, TOKENS = HOT - MD_HAYSTACK_QUESTION - BLOCK };
    double gold = 0, null = 0, near = 0;
    for (int k = 0; k < MD_NEEDLES_KINDS; k++) {
        struct md_haystack h = { 0 };
        struct md_err err = { 0 };
        ck_assert_msg(md_haystack_build(s->text, (enum md_needles_kind)k, TOKENS, NULL, &h, &err) == MD_OK,
                      "%s", err.text);
        for (int i = 0; i < MD_NEEDLES; i++) {
            gold += paid(&h, &h.questions[i], layer, head, h.gold[i]) / ITEMS;
            near += paid(&h, &h.questions[i], layer, head, h.near[i]) / ITEMS;
            null += paid(&h, &h.questions[MD_NEEDLES], layer, head, h.gold[i]) / ITEMS;
        }
        md_haystack_done(&h);
    }
    return (struct md_calibrate_measure){
        .layer = layer, .head = head, .gold = (float)gold, .null = (float)null, .near = (float)near
    };
}

START_TEST(what_heads_pay_is_what_the_model_computes)
{
    struct stage s;
    struct md_calibrator *c;
    struct md_err err = { 0 };
    bool done = false;
    stage_open(&s, config(), false);
    ck_assert_int_eq(md_calibrator_open(&s.pool->hot, s.text, BLOCK, &c, &err), MD_OK);
    int last = 0;
    while (!done) {
        ck_assert_msg(md_calibrator_step(c, NULL, NULL, &done, &err) == MD_OK, "%s", err.text);
        ck_assert_int_ge(md_calibrator_percent(c), last);
        last = md_calibrator_percent(c);
    }
    ck_assert_int_eq(last, 100);
    size_t count;
    const struct md_calibrate_measure *m = md_calibrator_measures(c, &count);
    ck_assert_uint_eq(count, 4);
    for (size_t i = 0; i < count; i++) {
        const struct md_calibrate_measure right = right_measure(&s, m[i].layer, m[i].head);
        printf("head %d %d: gold %.5f null %.5f near %.5f\n", m[i].layer, m[i].head, (double)m[i].gold,
               (double)m[i].null, (double)m[i].near);
        ck_assert_float_eq_tol(m[i].gold, right.gold, 2e-4F); /* keys are f16 where they are scored */
        ck_assert_float_eq_tol(m[i].null, right.null, 2e-4F);
        ck_assert_float_eq_tol(m[i].near, right.near, 2e-4F);
    }
    ck_assert_float_gt(m[2].gold, 0.03F);
    ck_assert_float_gt(m[2].gold - m[2].null - m[2].near, 0);
    ck_assert_float_lt(m[0].gold - m[0].null - m[0].near, 0); /* and so (0, 0) is not chosen */
    md_calibrator_close(c);
    stage_close(&s);
}
END_TEST

START_TEST(copying_heads_are_chosen_where_no_head_tells_needles_apart)
{
    struct stage s;
    stage_open(&s, config(), true);
    run_idle(&s);
    check_lookup_heads(&s, MD_CALIBRATE_COPY);
    stage_close(&s);
}
END_TEST

/* What the engine tells of itself, changed before anybody asks. */
static void stage_open_changed(struct stage *s, bool windowed, int32_t sparse_from)
{
    struct md_err err = { 0 };
    int32_t layers;
    *s = (struct stage){ .config = config() };
    open_parts(s, true, true);
    ((struct md_attention_layer *)(uintptr_t)md_engine_attention(s->engine, &layers))[0].windowed = windowed;
    ((struct md_engine_info *)(uintptr_t)md_engine_info(s->engine))->sparse_from_tokens = sparse_from;
    ck_assert_msg(md_pool_open(&s->config, s->engine, s->text, &s->pool, &err) == MD_OK, "%s", err.text);
}

/* Both layers copy (see the test before): of a windowed one no head may be chosen, or the whole set is refused. */
START_TEST(windowed_layers_are_not_measured)
{
    struct stage s;
    stage_open_changed(&s, true, 0);
    run_idle(&s);
    ck_assert_msg(status(&s).state == MD_HEADS_SETTLED, "%s", status(&s).why);
    ck_assert_int_eq(status(&s).origin, MD_HEADS_MEASURED);
    const struct md_calibrate_set *set = md_attend_heads(s.pool->attend);
    ck_assert_uint_eq(set->count, 1);
    ck_assert(set->heads[0].layer == 1 && set->heads[0].head == 0);
    stage_close(&s);
}
END_TEST

/* Over KV of sparse attention it would be something else that is measured. */
START_TEST(an_engine_that_attends_in_parts_is_not_waited_for)
{
    struct stage s;
    stage_open_changed(&s, false, 1);
    ck_assert(!md_pool_wants_idle(s.pool));
    ck_assert_int_eq(status(&s).state, MD_HEADS_FAILED);
    ck_assert_int_eq(status(&s).source, MD_CALIBRATE_BAND);
    ck_assert_ptr_nonnull(strstr(status(&s).why, "--xattention"));
    stage_close(&s);
}
END_TEST

/* 32 words twice are one block of 64, the first, in which nothing may be found. */
START_TEST(a_block_as_long_as_what_repeats_is_told)
{
    struct md_pool_config c = config();
    struct stage s;
    c.block_tokens = c.sink_tokens = 64;
    c.recent_tokens = 128;
    stage_open(&s, c, true);
    run_idle(&s);
    ck_assert_int_eq(status(&s).state, MD_HEADS_FAILED);
    ck_assert_msg(strstr(status(&s).why, "64 tokens that heads are measured with lie in the first block"),
                  "%s", status(&s).why);
    stage_close(&s);
}
END_TEST

static enum md_status nothing(const struct md_text *t, struct md_bytes text, bool start, bool special,
                              struct md_tokens *ret, struct md_err *err)
{
    (void)t, (void)start;
    return special && text.len > 0 ? md_tokens_append(ret, &(md_token){ 0 }, 1, err) : MD_OK;
}

START_TEST(a_tokenizer_that_makes_nothing_of_letters_is_told)
{
    static const struct md_text_ops ops = { .name = "nothing", .tokenize = nothing };
    const struct md_text text = { .ops = &ops, .info.vocab_count = 8 };
    struct md_haystack h;
    struct md_err err = { 0 };
    ck_assert_int_eq(md_haystack_build(&text, MD_NEEDLES_PROSE, 1024, NULL, &h, &err), MD_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.text, "tokenizer"));
}
END_TEST

START_TEST(a_hot_set_too_small_is_told)
{
    struct md_pool_config c = config();
    struct stage s;
    c.hot_tokens = MD_HAYSTACK_LEAST + MD_HAYSTACK_QUESTION + BLOCK - 1;
    stage_open(&s, c, false);
    run_idle(&s);
    ck_assert_int_eq(status(&s).state, MD_HEADS_FAILED);
    ck_assert_int_eq(status(&s).source, MD_CALIBRATE_BAND);
    ck_assert_ptr_nonnull(strstr(status(&s).why, "655 tokens may be hot, and 656 are needed"));
    ck_assert_int_ne(access(file, F_OK), 0);
    stage_close(&s);
}
END_TEST

START_TEST(nothing_happens_where_nothing_is_scored)
{
    struct md_err err = { 0 };
    struct stage s = { .config = config() };
    open_parts(&s, false, false);
    ck_assert_int_eq(md_pool_open(&s.config, s.engine, s.text, &s.pool, &err), MD_OK);
    ck_assert(!md_pool_wants_idle(s.pool));
    md_pool_idle(s.pool, NULL, NULL);
    ck_assert_int_eq(status(&s).state, MD_HEADS_NONE);
    ck_assert_int_eq(status(&s).count, 0);
    ck_assert_ptr_nonnull(md_pool_status(s.pool).no_retrieval);
    stage_close(&s);
}
END_TEST

START_TEST(whoever_gives_parameters_has_said_which_heads)
{
    struct md_pool_config c = config();
    const struct md_retrieve_params params = md_retrieve_defaults();
    struct stage s;
    c.retrieve = &params;
    stage_open(&s, c, false);
    ck_assert(!md_pool_wants_idle(s.pool));
    ck_assert_int_eq(status(&s).state, MD_HEADS_SETTLED);
    ck_assert_int_eq(status(&s).source, MD_CALIBRATE_BAND);
    stage_close(&s);
}
END_TEST

/* ---- the file ---- */

static size_t read_file(char *out, size_t out_bytes)
{
    FILE *f = fopen(file, "rb");
    ck_assert_ptr_nonnull(f);
    const size_t n = fread(out, 1, out_bytes, f);
    fclose(f);
    return n;
}

static void write_file(const char *bytes, size_t count)
{
    FILE *f = fopen(file, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, count, f), count);
    ck_assert_int_eq(fclose(f), 0);
}

START_TEST(the_next_process_reads_what_was_measured)
{
    struct stage s;
    struct stat st;
    stage_open(&s, config(), false);
    run_idle(&s);
    ck_assert(status(&s).kept);
    const struct md_calibrate_set first = *md_attend_heads(s.pool->attend);
    stage_close(&s);
    ck_assert_int_eq(stat(file, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0600);
    stage_open(&s, config(), false);
    const struct md_calibrate_set *again = md_attend_heads(s.pool->attend);
    ck_assert(!md_pool_wants_idle(s.pool));
    ck_assert_int_eq(status(&s).origin, MD_HEADS_FILE);
    check_lookup_heads(&s, MD_CALIBRATE_CONTRAST);
    for (size_t i = 0; i < first.count; i++)
        ck_assert_mem_eq(&again->heads[i], &first.heads[i], sizeof first.heads[i]);
    stage_close(&s);
}
END_TEST

/* One that was changed anywhere is told of and removed, and heads are measured again. */
START_TEST(a_damaged_file_is_never_used)
{
    static char text[MD_CALIBRATE_TEXT_BYTES];
    struct stage s;
    stage_open(&s, config(), false);
    run_idle(&s);
    stage_close(&s);
    const size_t count = read_file(text, sizeof text);
    ck_assert_uint_gt(count, 100);
    char *other_model = strstr(text, "\nmodel ") + 7, *version = strstr(text, "\ncalibration ") + 13;
    struct {
        char *at;
        char to;
        size_t length;
    } damage[] = { { text, 'M', count },
                   { other_model, *other_model == '0' ? '1' : '0', count }, /* a set of another model */
                   { version, '9', count },
                   { text + count - 1, ' ', count },
                   { text, *text, count - 1 },
                   { text, *text, count / 2 },
                   { text, *text, 0 } };
    for (size_t i = 0; i < sizeof damage / sizeof damage[0]; i++) {
        const char was = *damage[i].at;
        *damage[i].at = damage[i].to;
        write_file(text, damage[i].length);
        *damage[i].at = was;
        stage_open(&s, config(), false);
        ck_assert_msg(status(&s).origin == MD_HEADS_SPREAD && md_pool_wants_idle(s.pool), "damage %zu", i);
        ck_assert_ptr_nonnull(strstr(status(&s).why, "was not used"));
        ck_assert_msg(access(file, F_OK) != 0, "damage %zu", i);
        stage_close(&s);
    }
    stage_open(&s, config(), false);
    run_idle(&s);
    ck_assert_str_eq(status(&s).why, "");
    stage_close(&s);
    static char now[MD_CALIBRATE_TEXT_BYTES];
    ck_assert_uint_eq(read_file(now, sizeof now), count);
    ck_assert_mem_eq(now, text, count);
}
END_TEST

/* Another engine, or another KV type, may give that head: the file says whose model it is, and no more. */
START_TEST(a_sound_file_that_this_engine_cannot_use_stays)
{
    static char text[MD_CALIBRATE_TEXT_BYTES];
    struct stage s;
    stage_open(&s, config(), false);
    run_idle(&s);
    stage_close(&s);
    const size_t count = read_file(text, sizeof text);
    strstr(text, "\n1 0 ")[1] = '7'; /* a layer that it does not have */
    write_file(text, count);
    stage_open(&s, config(), false);
    ck_assert(status(&s).origin == MD_HEADS_SPREAD && md_pool_wants_idle(s.pool));
    ck_assert_ptr_nonnull(strstr(status(&s).why, "was not used"));
    ck_assert_int_eq(access(file, F_OK), 0);
    stage_close(&s);
}
END_TEST

START_TEST(a_folder_that_takes_no_file_costs_the_next_process_only)
{
    struct stage s;
    ck_assert_int_eq(mkdir(file, 0700), 0); /* a folder where the file should be */
    stage_open(&s, config(), false);
    run_idle(&s);
    ck_assert_int_eq(status(&s).origin, MD_HEADS_MEASURED);
    ck_assert(!status(&s).kept);
    ck_assert_ptr_nonnull(strstr(status(&s).why, "not kept"));
    stage_close(&s);
    ck_assert_int_eq(rmdir(file), 0);
}
END_TEST

/* ---- beside conversations ---- */

static void say(md_token *out, uint32_t seed)
{
    for (int i = 0; i < TALK; i++) {
        seed = seed * 1664525U + 1013904223U;
        out[i] = MD_EXACT_TOKEN_OF_BYTE_0 + (md_token)((seed >> 16) % MD_LOOKUP_TOKENS);
    }
}

static void ask(const struct stage *s, struct md_session *session, const md_token *tokens, int32_t count,
                md_token answer[ANSWER])
{
    static const struct md_logit_bias no_end = { .token = MD_SCRIPTED_END, .bias = -1e9F };
    struct md_request q = { .prompt = { .tokens = tokens, .count = count },
                            .decode = { .max_tokens = ANSWER, .sample = md_sample_defaults() } };
    struct md_result r = { 0 };
    struct md_err err = { 0 };
    q.decode.sample.temperature = 0;
    q.decode.sample.bias = &no_end;
    q.decode.sample.bias_count = 1;
    ck_assert_msg(md_session_run(session, &q, NULL, &r, &err) == MD_OK, "%s", err.text);
    ck_assert(md_pool_check(s->pool));
    ck_assert_uint_eq(r.tokens.count, ANSWER);
    ck_assert_int_eq(r.dropped, 0);
    memcpy(answer, r.tokens.ids, ANSWER * sizeof *answer);
    md_result_done(&r);
}

/* The right answers are those of a pool that measures nothing; the right set that of one in which nobody talks. */
START_TEST(conversations_and_a_calibration_do_not_change_each_other)
{
    enum { TURNS = 7 };
    md_token talk[2][TALK], right[2][TURNS][ANSWER], answer[ANSWER];
    struct md_pool_config c = config();
    struct stage s;
    struct md_session *of[2];
    struct md_err err;
    for (int pass = 0; pass < 2; pass++) {
        c.calibrate = pass == 0 ? MD_CALIBRATE_OFF : MD_CALIBRATE_IDLE;
        stage_open(&s, c, false);
        for (int i = 0; i < 2; i++) {
            say(talk[i], 7 + (uint32_t)i);
            ck_assert_int_eq(md_pool_new(s.pool, &of[i], &err), MD_OK);
        }
        for (int turn = 0; turn < TURNS; turn++)
            for (int i = 0; i < 2; i++) {
                ask(&s, of[i], talk[i], 100 * (turn + 1), pass == 0 ? right[i][turn] : answer);
                ck_assert(pass == 0 || memcmp(answer, right[i][turn], sizeof answer) == 0);
                if (pass == 1)
                    md_pool_idle(s.pool, NULL, NULL);
                ck_assert(md_pool_check(s.pool));
            }
        if (pass == 1) {
            ck_assert_int_eq(status(&s).state, MD_HEADS_RUNNING); /* it was under way all the time */
            run_idle(&s);
            check_lookup_heads(&s, MD_CALIBRATE_CONTRAST);
            static char with[MD_CALIBRATE_TEXT_BYTES], alone[MD_CALIBRATE_TEXT_BYTES];
            const size_t count = read_file(with, sizeof with);
            stage_close(&s);
            ck_assert_int_eq(remove(file), 0);
            stage_open(&s, c, false);
            run_idle(&s);
            ck_assert_uint_eq(read_file(alone, sizeof alone), count);
            ck_assert_mem_eq(with, alone, count);
        }
        stage_close(&s);
    }
}
END_TEST

struct caller {
    long polls, wanted_at;
};

static bool is_wanted(void *user)
{
    struct caller *c = user;
    return c->polls++ >= c->wanted_at;
}

START_TEST(whoever_waits_ends_a_step_and_it_goes_on_later)
{
    struct stage s;
    long ended = 0;
    stage_open(&s, config(), false);
    for (int i = 0; md_pool_wants_idle(s.pool); i++) {
        struct caller c = { .wanted_at = i % 3 == 0 ? 0 : i % 3 == 1 ? 2 : 1000000 };
        ck_assert_int_lt(i, 3 * STEPS_MOST);
        md_pool_idle(s.pool, is_wanted, &c);
        ended += c.polls > c.wanted_at;
        ck_assert(md_pool_check(s.pool));
    }
    ck_assert_int_gt(ended, 10);
    check_lookup_heads(&s, MD_CALIBRATE_CONTRAST);
    stage_close(&s);
}
END_TEST

/* Every so many-th call for memory fails once: there is a set or it says why not, nothing leaks, and it goes on without. */
START_TEST(without_memory_the_band_stays)
{
    struct fault_alloc heap;
    struct stage s;
    int failed = 0;
    for (long nth = 1, more = 1; more != 0; nth += 1 + nth / 3) {
        struct md_pool_config c = config();
        md_token talk[TALK], answer[ANSWER];
        struct md_session *session;
        struct md_err err;
        fault_alloc_init(&heap, 0);
        c.alloc = &heap.alloc;
        c.heads_file = NULL;
        stage_open(&s, c, false);
        say(talk, 3);
        fault_alloc_arm(&heap, nth);
        while (md_pool_wants_idle(s.pool)) {
            md_pool_idle(s.pool, NULL, NULL);
            ck_assert(md_pool_check(s.pool));
        }
        more = heap.failed;
        fault_alloc_arm(&heap, 0);
        failed += status(&s).state == MD_HEADS_FAILED;
        ck_assert(status(&s).state == MD_HEADS_FAILED || status(&s).state == MD_HEADS_SETTLED);
        ck_assert_int_eq(md_engine_cells_used(s.engine), 0);
        ck_assert_int_eq(md_pool_new(s.pool, &session, &err), MD_OK);
        ask(&s, session, talk, 200, answer);
        stage_close(&s);
        ck_assert_uint_eq(heap.live_blocks, 0);
    }
    ck_assert_int_gt(failed, 5);
}
END_TEST

/* Killed at any moment: what the next process finds is no file, or a whole one. */
START_TEST(a_killed_process_leaves_no_half_file)
{
    struct stage s;
    for (int i = 0; i < 12; i++) {
        const pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0) {
            for (;;) {
                unlink(file);
                stage_open(&s, config(), false);
                while (md_pool_wants_idle(s.pool))
                    md_pool_idle(s.pool, NULL, NULL);
                stage_close(&s);
            }
        }
        nanosleep(&(struct timespec){ .tv_nsec = 20000000L + i * 37000000L }, NULL);
        ck_assert_int_eq(kill(child, SIGKILL), 0);
        ck_assert_int_eq(waitpid(child, NULL, 0), child);
        stage_open(&s, config(), false);
        ck_assert_str_eq(status(&s).why, "");
        ck_assert(status(&s).origin == MD_HEADS_FILE || md_pool_wants_idle(s.pool));
        stage_close(&s);
    }
}
END_TEST

/* ---- on the worker ---- */

static enum md_status take_time(void *user, const struct md_engine_call *call, struct md_err *err)
{
    (void)user, (void)err;
    if (call->op == MD_OP_PREFILL || call->op == MD_OP_DECODE)
        nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
    return MD_OK;
}

static void wait_for(struct md_worker *w, enum md_heads_state state)
{
    for (int i = 0; md_worker_status(w).pool.heads.state != state; i++) {
        ck_assert_msg(i < 3000, "after 30 s it is %s",
                      md_heads_state_name(md_worker_status(w).pool.heads.state));
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    }
}

static void take_notes(void *user, int64_t session, struct md_bytes notes)
{
    (void)user, (void)session, (void)notes;
}

START_TEST(a_worker_calibrates_when_it_is_quiet_and_serves_at_once)
{
    const struct md_engine_hooks hooks = { .before = take_time };
    struct stage s = { .config = config() };
    struct md_worker *w;
    struct md_job *job;
    struct md_event e;
    struct md_err err = { 0 };
    md_token talk[TALK];
    open_parts(&s, false, true);
    ck_assert_int_eq(md_engine_wrap(s.engine, &hooks, &s.engine, &err), MD_OK);
    ck_assert_int_eq(md_pool_open(&s.config, s.engine, s.text, &s.pool, &err), MD_OK);
    ck_assert_int_eq(md_worker_open(s.pool, 4, &w, &err), MD_OK);
    wait_for(w, MD_HEADS_RUNNING);
    md_worker_notes(w, take_notes, NULL); /* between two steps: who reads notes does not wait for the end */
    ck_assert_int_eq(md_worker_status(w).pool.heads.state, MD_HEADS_RUNNING);
    say(talk, 5);
    const struct md_job_request q = { .kind = MD_JOB_RUN,
                                      .request = {
                                          .prompt = { .tokens = talk, .count = TALK },
                                          .decode = { .max_tokens = 2, .sample = md_sample_defaults() } } };
    ck_assert_int_eq(md_worker_submit(w, &q, &job, &err), MD_OK);
    do {
        md_job_wait(job, 30000, &e);
        if (e.kind == MD_EVENT_TEXT)
            md_buf_done(&e.text);
    } while (e.kind != MD_EVENT_DONE && e.kind != MD_EVENT_NONE);
    ck_assert(e.kind == MD_EVENT_DONE && e.status == MD_OK);
    md_result_done(&e.result);
    md_job_release(job);
    ck_assert_int_eq(md_worker_status(w).pool.heads.state,
                     MD_HEADS_RUNNING); /* it waits for a quiet moment */
    wait_for(w, MD_HEADS_SETTLED);
    md_worker_close(w);
    check_lookup_heads(&s, MD_CALIBRATE_CONTRAST);
    ck_assert_int_eq(access(file, F_OK), 0);
    stage_close(&s);
}
END_TEST

/* And a daemon that is stopped meanwhile does not wait for the rest. */
START_TEST(a_worker_that_closes_ends_a_calibration)
{
    struct stage s;
    struct md_worker *w;
    struct md_err err = { 0 };
    stage_open(&s, config(), false);
    ck_assert_int_eq(md_worker_open(s.pool, 4, &w, &err), MD_OK);
    md_worker_close(w);
    ck_assert(md_pool_check(s.pool) && md_pool_wants_idle(s.pool));
    stage_close(&s);
}
END_TEST

static void setup(void)
{
    md_temp_folder(folder, sizeof folder, "heads");
    snprintf(file, sizeof file, "%s/heads", folder);
}

static void teardown(void)
{
    md_temp_folder_remove(folder);
}

int main(void)
{
    Suite *s = suite_create("heads");
    TCase *t = tcase_create("heads");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, heads_that_look_up_are_chosen);
    tcase_add_test(t, what_heads_pay_is_what_the_model_computes);
    tcase_add_test(t, copying_heads_are_chosen_where_no_head_tells_needles_apart);
    tcase_add_test(t, windowed_layers_are_not_measured);
    tcase_add_test(t, an_engine_that_attends_in_parts_is_not_waited_for);
    tcase_add_test(t, a_block_as_long_as_what_repeats_is_told);
    tcase_add_test(t, a_tokenizer_that_makes_nothing_of_letters_is_told);
    tcase_add_test(t, a_hot_set_too_small_is_told);
    tcase_add_test(t, nothing_happens_where_nothing_is_scored);
    tcase_add_test(t, whoever_gives_parameters_has_said_which_heads);
    tcase_add_test(t, the_next_process_reads_what_was_measured);
    tcase_add_test(t, a_damaged_file_is_never_used);
    tcase_add_test(t, a_sound_file_that_this_engine_cannot_use_stays);
    tcase_add_test(t, a_folder_that_takes_no_file_costs_the_next_process_only);
    tcase_add_test(t, conversations_and_a_calibration_do_not_change_each_other);
    tcase_add_test(t, whoever_waits_ends_a_step_and_it_goes_on_later);
    tcase_add_test(t, without_memory_the_band_stays);
    tcase_add_test(t, a_killed_process_leaves_no_half_file);
    tcase_add_test(t, a_worker_calibrates_when_it_is_quiet_and_serves_at_once);
    tcase_add_test(t, a_worker_that_closes_ends_a_calibration);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
