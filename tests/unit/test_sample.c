/* test_sample.c - sampling parameters (B088), token lists, and the checks of text.c before an adapter is asked. */
#include "support/run_suite.h"
#include "support/fault_alloc.h"
#include "text/text.h"

#include <check.h>
#include <math.h>
#include <string.h>

enum { VOCAB = 100 };

enum field { TEMPERATURE, TOP_K, TOP_P, MIN_P, REPEAT_PENALTY, REPEAT_LAST_N, FREQUENCY, PRESENCE, SEED };

static void set(struct md_sample_params *p, enum field f, double v)
{
    switch (f) {
    case TEMPERATURE: p->temperature = (float)v; break;
    case TOP_K: p->top_k = (int32_t)v; break;
    case TOP_P: p->top_p = (float)v; break;
    case MIN_P: p->min_p = (float)v; break;
    case REPEAT_PENALTY: p->repeat_penalty = (float)v; break;
    case REPEAT_LAST_N: p->repeat_last_n = (int32_t)v; break;
    case FREQUENCY: p->frequency_penalty = (float)v; break;
    case PRESENCE: p->presence_penalty = (float)v; break;
    case SEED: p->seed = (int64_t)v; break;
    }
}

START_TEST(b088_ranges)
{
    static const struct {
        enum field field;
        double value;
        const char *says; /* NULL: allowed */
    } rows[] = {
        { TEMPERATURE, -1, "temperature must be between 0 and 100, got -1" },
        { TEMPERATURE, NAN, "temperature must be between 0 and 100, got nan" },
        { TEMPERATURE, -NAN, "temperature" },
        { TEMPERATURE, INFINITY, "temperature must be between 0 and 100, got inf" }, /* 1e999 */
        { TEMPERATURE, 999999, "temperature must be between 0 and 100, got 999999" },
        { TEMPERATURE, 100.5, "temperature" },
        { TEMPERATURE, 100, NULL },
        { TEMPERATURE, 1e-6, NULL },
        { TEMPERATURE, 0, NULL },
        { TOP_P, -1, "top_p must be above 0 and at most 1, got -1" },
        { TOP_P, 0, "top_p must be above 0 and at most 1, got 0" },
        { TOP_P, 2, "top_p" },
        { TOP_P, NAN, "top_p" },
        { TOP_P, 1e-6, NULL },
        { TOP_P, 1, NULL },
        { TOP_K, -1, "top_k must be between 0 and 2147483647, got -1" },
        { TOP_K, 0, NULL },
        { TOP_K, 1e9, NULL },
        { MIN_P, 2, "min_p must be between 0 and 1, got 2" },
        { MIN_P, -0.1, "min_p" },
        { MIN_P, 0, NULL },
        { MIN_P, 1, NULL },
        { REPEAT_PENALTY, 0, "repeat_penalty must be above 0 and at most 10, got 0" },
        { REPEAT_PENALTY, 10.5, "repeat_penalty" },
        { REPEAT_PENALTY, 10, NULL },
        { REPEAT_LAST_N, -1, "repeat_last_n must be between 0 and 32768, got -1" },
        { REPEAT_LAST_N, 32769, "repeat_last_n" },
        { REPEAT_LAST_N, 32768, NULL },
        { PRESENCE, 5, "presence_penalty must be between -2 and 2, got 5" },
        { PRESENCE, -2, NULL },
        { FREQUENCY, -2.1, "frequency_penalty" },
        { FREQUENCY, 2, NULL },
        { SEED, -1, NULL },
        { SEED, -2, "seed must be between -1 and 4294967295, got -2" },
        { SEED, 4294967295.0, NULL },
        { SEED, 4294967296.0, "seed" },
        { SEED, 9.2e18, "seed" },
    };
    struct md_sample_params defaults = md_sample_defaults();
    ck_assert_int_eq(md_sample_check(&defaults, VOCAB, NULL), MD_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_sample_params p = defaults;
        struct md_err err = { 0 };
        set(&p, rows[i].field, rows[i].value);
        enum md_status s = md_sample_check(&p, VOCAB, &err);
        ck_assert_msg(s == (rows[i].says == NULL ? MD_OK : MD_INVALID), "row %zu: %s", i, err.text);
        ck_assert_msg(rows[i].says == NULL || strncmp(err.text, rows[i].says, strlen(rows[i].says)) == 0,
                      "row %zu: %s", i, err.text);
    }
}
END_TEST

START_TEST(b088_logit_bias)
{
    static const struct {
        md_token token;
        float bias;
        bool ok;
    } rows[] = {
        { 0, 0, true },         { VOCAB - 1, -100, true }, { 5, 100, true },
        { -1, 1, false },       { VOCAB, 1, false },       { 5, NAN, false },
        { 5, INFINITY, false }, { 5, -INFINITY, false },   { INT32_MIN, 1, false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_logit_bias bias[2] = { { 1, 1 }, { rows[i].token, rows[i].bias } };
        struct md_sample_params p = md_sample_defaults();
        struct md_err err = { 0 };
        p.bias = bias;
        p.bias_count = 2;
        ck_assert_msg((md_sample_check(&p, VOCAB, &err) == MD_OK) == rows[i].ok, "row %zu: %s", i, err.text);
        ck_assert(rows[i].ok || strstr(err.text, "logit_bias") != NULL);
    }
}
END_TEST

START_TEST(token_list)
{
    struct fault_alloc f;
    fault_alloc_init(&f, 0);
    struct md_tokens t = { .alloc = &f.alloc };
    md_token ids[20];
    for (int i = 0; i < 20; i++)
        ids[i] = i;
    ck_assert_int_eq(md_tokens_append(&t, NULL, 0, NULL), MD_OK);
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(md_tokens_append(&t, ids, 20, NULL), MD_OK);
    ck_assert_uint_eq(t.count, 100);
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(t.ids[i], i % 20);
    fault_alloc_arm(&f, 1);
    size_t room = t.cap - t.count;
    while (room-- > 0)
        ck_assert_int_eq(md_tokens_append(&t, ids, 1, NULL), MD_OK);
    size_t count = t.count;
    ck_assert_int_eq(md_tokens_append(&t, ids, 1, NULL), MD_NO_MEMORY);
    ck_assert(t.count == count && t.ids[99] == 19);
    ck_assert_int_eq(md_tokens_append(&t, ids, SIZE_MAX - 5, NULL), MD_NO_MEMORY); /* the sum wraps */
    ck_assert_uint_eq(t.count, count);
    md_tokens_done(&t);
    md_tokens_done(&t);
    ck_assert_uint_eq(f.live_blocks, 0);
}
END_TEST

/* ---- a text that notes what it is asked ---- */

static int asked;

static void note_close(struct md_text *t)
{
    (void)t;
    asked++;
}

/* Appends two tokens and fails: what it appended must not stay. */
static enum md_status bad_tokenize(const struct md_text *t, struct md_bytes text, bool add_special,
                                   bool parse_special, struct md_tokens *ret_tokens, struct md_err *err)
{
    (void)t, (void)text, (void)add_special, (void)parse_special;
    static const md_token two[] = { 7, 8 };
    asked++;
    enum md_status s = md_tokens_append(ret_tokens, two, 2, err);
    return s != MD_OK ? s : md_fail(err, MD_NO_MEMORY, "on purpose");
}

static enum md_status note_piece(const struct md_text *t, md_token token, bool special,
                                 struct md_buf *ret_bytes, struct md_err *err)
{
    (void)t, (void)special;
    asked++;
    return md_buf_printf(ret_bytes, err, "<%d>", token);
}

static bool note_is_end(const struct md_text *t, md_token token)
{
    (void)t, (void)token;
    asked++;
    return true;
}

static enum md_status note_render(const struct md_text *t, const struct md_chat_input *in,
                                  struct md_buf *ret_prompt, struct md_chat_form **ret_form,
                                  struct md_err *err)
{
    (void)t, (void)ret_form;
    asked++;
    return md_buf_printf(ret_prompt, err, "%zu messages", in->count);
}

static enum md_status note_sampler(const struct md_text *t, const struct md_sample_params *params,
                                   struct md_sampler **ret_sampler, struct md_err *err)
{
    (void)t, (void)params, (void)err;
    asked++;
    *ret_sampler = NULL;
    return MD_OK;
}

static const struct md_text_ops note_ops = {
    .name = "note",
    .close = note_close,
    .tokenize = bad_tokenize,
    .piece = note_piece,
    .is_end = note_is_end,
    .render_chat = note_render,
    .sampler_open = note_sampler,
};

START_TEST(the_adapter_is_asked_only_what_makes_sense)
{
    struct md_text t = { .ops = &note_ops, .info = { .vocab_count = VOCAB, .has_chat_template = true } };
    struct md_text plain = { .ops = &note_ops, .info = { .vocab_count = VOCAB } };
    const struct md_chat_message message = { 0 };
    const struct md_chat_input none = { .messages = &message }, one = { .messages = &message, .count = 1 };
    struct md_chat_form *form = NULL;
    struct md_sampler *sampler = NULL;
    struct md_sample_params params = md_sample_defaults();
    struct md_buf buf;
    md_buf_init(&buf, NULL, 1000);

    asked = 0;
    ck_assert_int_eq(md_text_piece(&t, -1, true, &buf, NULL), MD_INVALID);
    ck_assert_int_eq(md_text_piece(&t, VOCAB, true, &buf, NULL), MD_INVALID);
    ck_assert(!md_text_is_end(&t, -1) && !md_text_is_end(&t, VOCAB));
    ck_assert_int_eq(md_text_render_chat(&t, &none, &buf, &form, NULL), MD_INVALID);
    ck_assert_int_eq(md_text_render_chat(&plain, &one, &buf, &form, NULL), MD_UNSUPPORTED);
    ck_assert_int_eq(md_text_constrain(&t, (struct md_bytes){ "{}", 2 }, (struct md_bytes){ NULL, 0 }, &form,
                                       NULL),
                     MD_UNSUPPORTED);
    params.temperature = -1;
    ck_assert_int_eq(md_sampler_open(&t, &params, &sampler, NULL), MD_INVALID);
    md_text_close(NULL);
    md_sampler_close(NULL);
    ck_assert_int_eq(asked, 0);

    ck_assert_int_eq(md_text_piece(&t, 0, true, &buf, NULL), MD_OK);
    ck_assert_int_eq(md_text_piece(&t, VOCAB - 1, true, &buf, NULL), MD_OK);
    ck_assert(md_text_is_end(&t, VOCAB - 1));
    ck_assert_int_eq(md_text_render_chat(&t, &one, &buf, &form, NULL), MD_OK);
    ck_assert_str_eq((const char *)buf.data, "<0><99>1 messages");
    params.temperature = 1;
    ck_assert_int_eq(md_sampler_open(&t, &params, &sampler, NULL), MD_OK);
    md_text_close(&t);
    ck_assert_int_eq(asked, 6);
    md_buf_done(&buf);
}
END_TEST

START_TEST(failed_tokenize_leaves_the_list)
{
    struct md_text t = { .ops = &note_ops };
    struct md_tokens list = { 0 };
    md_token one = 1;
    ck_assert_int_eq(md_tokens_append(&list, &one, 1, NULL), MD_OK);
    ck_assert_int_eq(md_text_tokenize(&t, (struct md_bytes){ "x", 1 }, true, true, &list, NULL),
                     MD_NO_MEMORY);
    ck_assert(list.count == 1 && list.ids[0] == 1);
    md_tokens_done(&list);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sample");
    TCase *t = tcase_create("sample");
    tcase_add_test(t, b088_ranges);
    tcase_add_test(t, b088_logit_bias);
    tcase_add_test(t, token_list);
    tcase_add_test(t, the_adapter_is_asked_only_what_makes_sense);
    tcase_add_test(t, failed_tokenize_leaves_the_list);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
