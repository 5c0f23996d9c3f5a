/* test_rope.c - what a model file and the options come to: windows, factors, refusals.
 *
 * Right values: llama.cpp's context (a scale of N is a frequency scale of 1/N, a window of N times as many tokens), and
 * files as models have them: Qwen2.5 (32,768, YaRN 4 to 131,072), gpt-oss (4,096, YaRN 32 to 131,072), Gemma 3 (linear 8,
 * 131,072 declared). */
#include "policy/rope.h"
#include "support/run_suite.h"

#include <check.h>
#include <math.h>
#include <string.h>

static const struct md_rope_file plain = { .base = 10000, .context_tokens = 8192 };
static const struct md_rope_file gpt_oss = {
    .scaling = MD_ROPE_YARN, .factor = 32, .base = 150000, .context_tokens = 131072, .original_tokens = 4096
};
static const struct md_rope_file gemma3 = {
    .scaling = MD_ROPE_LINEAR, .factor = 8, .base = 1000000, .context_tokens = 131072
};
static const struct md_rope_file phi3 = {
    .scaling = MD_ROPE_LONGROPE, .base = 10000, .context_tokens = 131072, .original_tokens = 4096
};
static const struct md_rope_file none = { .absent = true, .context_tokens = 4096 };

/* ---- windows ---- */

static const struct {
    const char *label;
    const struct md_rope_file *file;
    struct md_rope_asked asked;
    const char *text; /* md_rope_text */
    int32_t trained, orig;
    double factor;
    bool changed;
} windows_rows[] = {
    { "nothing asked", &plain, { 0 }, "", 8192, 0, 1, false },
    { "yarn 4",
      &plain,
      { .scaling = MD_ROPE_YARN, .scale = 4 },
      "yarn x4 of 8192 tokens",
      32768,
      8192,
      4,
      true },
    { "yarn, other window",
      &plain,
      { .scaling = MD_ROPE_YARN, .scale = 4, .yarn_orig_ctx = 2048 },
      "yarn x4 of 2048 tokens",
      8192,
      2048,
      4,
      true },
    { "linear 2", &plain, { .scaling = MD_ROPE_LINEAR, .scale = 2 }, "linear x2", 16384, 0, 2, true },
    { "frequency scale",
      &plain,
      { .scaling = MD_ROPE_LINEAR, .freq_scale = 0.25 },
      "linear x4",
      32768,
      0,
      4,
      true },
    { "linear 1", &plain, { .scaling = MD_ROPE_LINEAR, .scale = 1 }, "", 8192, 0, 1, false },
    { "a base", &plain, { .freq_base = 1e6 }, "base 1000000", 8192, 0, 1, true },
    { "the file's base", &plain, { .freq_base = 10000 }, "", 8192, 0, 1, false },
    { "none, of nothing", &plain, { .scaling = MD_ROPE_NONE }, "", 8192, 0, 1, false },
    { "a file with yarn", &gpt_oss, { 0 }, "yarn x32 of 4096 tokens", 131072, 4096, 32, false },
    { "the same, asked",
      &gpt_oss,
      { .scaling = MD_ROPE_YARN, .scale = 32, .yarn_orig_ctx = 4096 },
      "yarn x32 of 4096 tokens",
      131072,
      4096,
      32,
      false },
    { "the file's factor",
      &gpt_oss,
      { .scaling = MD_ROPE_YARN },
      "yarn x32 of 4096 tokens",
      131072,
      4096,
      32,
      false },
    { "another factor",
      &gpt_oss,
      { .scaling = MD_ROPE_YARN, .scale = 8 },
      "yarn x8 of 4096 tokens",
      32768,
      4096,
      8,
      true },
    { "another window",
      &gpt_oss,
      { .yarn_orig_ctx = 2048 },
      "yarn x32 of 2048 tokens",
      65536,
      2048,
      32,
      true },
    { "yarn made linear",
      &gpt_oss,
      { .scaling = MD_ROPE_LINEAR, .scale = 4 },
      "linear x4",
      16384,
      0,
      4,
      true },
    { "yarn made linear, its factor",
      &gpt_oss,
      { .scaling = MD_ROPE_LINEAR },
      "linear x32",
      131072,
      0,
      32,
      true },
    { "yarn off", &gpt_oss, { .scaling = MD_ROPE_NONE }, "not scaled", 4096, 0, 1, true },
    { "yarn off, a base",
      &gpt_oss,
      { .scaling = MD_ROPE_NONE, .freq_base = 1e7 },
      "not scaled, base 10000000",
      4096,
      0,
      1,
      true },
    { "values of yarn",
      &gpt_oss,
      { .yarn_ext_given = true, .yarn_attn_factor = 1.5, .yarn_beta_fast = 16, .yarn_beta_slow = 2 },
      "yarn x32 of 4096 tokens, ext 0, attn 1.5, fast 16, slow 2",
      131072,
      4096,
      32,
      true },
    { "linear off", &gemma3, { .scaling = MD_ROPE_NONE }, "not scaled", 16384, 0, 1, true },
    { "linear further",
      &gemma3,
      { .scaling = MD_ROPE_LINEAR, .scale = 16 },
      "linear x16",
      262144,
      0,
      16,
      true },
    { "longrope", &phi3, { 0 }, "longrope", 131072, 0, 1, false },
    { "longrope, a base", &phi3, { .freq_base = 20000 }, "longrope, base 20000", 131072, 0, 1, true },
    { "no positions", &none, { 0 }, "", 4096, 0, 1, false },
};

START_TEST(windows)
{
    for (size_t i = 0; i < sizeof windows_rows / sizeof windows_rows[0]; i++) {
        struct md_rope r;
        struct md_err err = { .text = "" };
        char text[MD_ROPE_TEXT_BYTES];
        ck_assert_msg(md_rope_resolve(windows_rows[i].file, &windows_rows[i].asked, &r, &err) == MD_OK,
                      "%s: %s", windows_rows[i].label, err.text);
        md_rope_text(&r, text);
        ck_assert_msg(strcmp(text, windows_rows[i].text) == 0, "%s: '%s'", windows_rows[i].label, text);
        ck_assert_msg(r.trained_tokens == windows_rows[i].trained, "%s: %d", windows_rows[i].label,
                      r.trained_tokens);
        ck_assert_msg(r.orig_tokens == windows_rows[i].orig, "%s: %d", windows_rows[i].label, r.orig_tokens);
        ck_assert_msg(fabs(r.factor - windows_rows[i].factor) < 1e-12, "%s: %g", windows_rows[i].label,
                      r.factor);
        ck_assert_msg(r.changed == windows_rows[i].changed, "%s", windows_rows[i].label);
    }
}
END_TEST

/* The declared window counts, but where YaRN's own two values say more: a file made longer by hand, as Qwen2.5's page
 * tells how. */
START_TEST(windows_of_files)
{
    struct md_rope_file f = gpt_oss;
    ck_assert_int_eq(md_rope_file_window(&f), 131072);
    f.context_tokens = 4096;
    ck_assert_int_eq(md_rope_file_window(&f), 131072);
    f.context_tokens = 163840;
    ck_assert_int_eq(md_rope_file_window(&f), 163840);
    f.original_tokens = 0;
    ck_assert_int_eq(md_rope_file_window(&f), 163840);
    f = gpt_oss;
    f.scaling = MD_ROPE_LINEAR; /* linear files declare the whole */
    f.context_tokens = 4096;
    ck_assert_int_eq(md_rope_file_window(&f), 4096);
    f = gpt_oss;
    f.factor = 1e9; /* no window that anybody counts */
    ck_assert_int_eq(md_rope_file_window(&f), 131072);
}
END_TEST

/* ---- refusals ---- */

START_TEST(refusals)
{
    static const struct md_rope_file unknown = { .base = 10000 };
    static const struct {
        const struct md_rope_file *file;
        struct md_rope_asked asked;
        enum md_status status;
        const char *says;
    } rows[] = {
        { &plain, { .scale = 4 }, MD_INVALID, "--rope-scale needs --rope-scaling linear or" },
        { &plain, { .freq_scale = 0.5 }, MD_INVALID, "--rope-freq-scale needs --rope-scaling linear or" },
        { &plain, { .scaling = MD_ROPE_NONE, .scale = 4 }, MD_INVALID, "leave out --rope-scale" },
        { &plain, { .scaling = MD_ROPE_LINEAR, .scale = 4, .freq_scale = 0.25 }, MD_INVALID, "give one" },
        { &plain, { .scaling = MD_ROPE_LINEAR }, MD_INVALID, "--rope-scaling linear needs --rope-scale N" },
        { &plain, { .scaling = MD_ROPE_YARN }, MD_INVALID, "--rope-scaling yarn needs --rope-scale N" },
        { &plain, { .scaling = MD_ROPE_LONGROPE, .scale = 2 }, MD_INVALID, "must be none, linear or yarn" },
        { &plain, { .yarn_orig_ctx = 4096 }, MD_INVALID, "--yarn-orig-ctx needs --rope-scaling yarn" },
        { &plain, { .yarn_ext_given = true }, MD_INVALID, "--yarn-ext-factor needs --rope-scaling yarn" },
        { &gemma3, { .yarn_beta_slow = 2 }, MD_INVALID, "--yarn-beta-slow needs --rope-scaling yarn" },
        { &gpt_oss, { .scaling = MD_ROPE_LINEAR, .yarn_beta_fast = 2 }, MD_INVALID, "yarn, not linear" },
        { &gpt_oss, { .yarn_attn_factor = 2 }, MD_INVALID, "give --yarn-ext-factor 0 as well" },
        { &gpt_oss,
          { .yarn_attn_factor = 2, .yarn_ext_given = true, .yarn_ext_factor = 0.5 },
          MD_INVALID,
          "give --yarn-ext-factor 0 as well" },
        { &gpt_oss, { .yarn_beta_slow = 33 }, MD_INVALID, "--yarn-beta-fast 32 is less than" },
        { &gpt_oss, { .yarn_beta_fast = 0.5 }, MD_INVALID, "is less than --yarn-beta-slow 1" },
        { &plain,
          { .scaling = MD_ROPE_LINEAR, .scale = 0.99 },
          MD_INVALID,
          "--rope-scale must be a number from 1" },
        { &plain, { .scaling = MD_ROPE_LINEAR, .scale = 1025 }, MD_INVALID, "at most 1024" },
        { &plain, { .scaling = MD_ROPE_LINEAR, .scale = NAN }, MD_INVALID, "--rope-scale must be" },
        { &plain, { .scaling = MD_ROPE_LINEAR, .scale = INFINITY }, MD_INVALID, "--rope-scale must be" },
        { &plain,
          { .scaling = MD_ROPE_LINEAR, .freq_scale = 1.01 },
          MD_INVALID,
          "--rope-freq-scale must be" },
        { &plain,
          { .scaling = MD_ROPE_LINEAR, .freq_scale = -0.5 },
          MD_INVALID,
          "--rope-freq-scale must be" },
        { &plain, { .freq_base = 1 }, MD_INVALID, "--rope-freq-base must be a number above 1" },
        { &plain, { .freq_base = -1 }, MD_INVALID, "--rope-freq-base must be" },
        { &plain, { .freq_base = 1.1e12 }, MD_INVALID, "--rope-freq-base must be" },
        { &gpt_oss, { .yarn_orig_ctx = -1 }, MD_INVALID, "--yarn-orig-ctx must be" },
        { &gpt_oss,
          { .yarn_ext_given = true, .yarn_ext_factor = 1.01 },
          MD_INVALID,
          "--yarn-ext-factor must" },
        { &gpt_oss, { .yarn_beta_fast = NAN }, MD_INVALID, "--yarn-beta-fast must be" },
        { &unknown, { .scaling = MD_ROPE_YARN, .scale = 2 }, MD_INVALID, "needs --yarn-orig-ctx N" },
        { &plain,
          { .scaling = MD_ROPE_YARN, .scale = 1024, .yarn_orig_ctx = 1 << 21 },
          MD_INVALID,
          "more than 1073741824" },
        { &gpt_oss, { .yarn_orig_ctx = 1 << 26 }, MD_INVALID, "more than 1073741824" },
        { &phi3, { .scaling = MD_ROPE_YARN, .scale = 2 }, MD_UNSUPPORTED, "LongRoPE" },
        { &phi3, { .yarn_orig_ctx = 4096 }, MD_UNSUPPORTED, "LongRoPE" },
        { &none, { .scaling = MD_ROPE_YARN, .scale = 2 }, MD_UNSUPPORTED, "no rotary positions" },
        { &none, { .scaling = MD_ROPE_NONE }, MD_UNSUPPORTED, "no rotary positions" },
        { &none, { .freq_base = 1e6 }, MD_UNSUPPORTED, "no rotary positions" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_rope r = { .trained_tokens = -7 };
        struct md_err err = { .text = "" };
        const enum md_status s = md_rope_resolve(rows[i].file, &rows[i].asked, &r, &err);
        ck_assert_msg(s == rows[i].status, "row %zu: %s: %s", i, md_status_name(s), err.text);
        ck_assert_msg(strstr(err.text, rows[i].says) != NULL, "row %zu: '%s'", i, err.text);
        ck_assert_int_eq(r.trained_tokens, -7); /* nothing is written */
    }
}
END_TEST

/* A file says what it says: what would be refused of a flag opens as the library takes it. */
START_TEST(a_file_is_not_judged)
{
    static const struct md_rope_file odd = {
        .scaling = MD_ROPE_YARN, .factor = 0.5, .context_tokens = 4096, .original_tokens = 8192
    };
    struct md_rope r;
    ck_assert_int_eq(md_rope_resolve(&odd, &(struct md_rope_asked){ 0 }, &r, NULL), MD_OK);
    ck_assert_int_eq(r.trained_tokens, 4096);
    ck_assert(!r.changed);
}
END_TEST

/* Different settings have different texts: they go into the identity of KV. */
START_TEST(texts_tell_settings_apart)
{
    static const struct md_rope_asked all[] = {
        { .scaling = MD_ROPE_YARN, .scale = 4 },
        { .scaling = MD_ROPE_YARN, .scale = 4.00001 },
        { .scaling = MD_ROPE_LINEAR, .scale = 4 },
        { .scaling = MD_ROPE_YARN, .scale = 4, .yarn_orig_ctx = 8191 },
        { .scaling = MD_ROPE_YARN, .scale = 4, .freq_base = 20000 },
        { .scaling = MD_ROPE_YARN, .scale = 4, .freq_base = 20000.01 },
        { .scaling = MD_ROPE_YARN, .scale = 4, .yarn_ext_given = true },
        { .scaling = MD_ROPE_YARN, .scale = 4, .yarn_ext_given = true, .yarn_ext_factor = 0.5 },
        { .scaling = MD_ROPE_YARN, .scale = 4, .yarn_ext_given = true, .yarn_attn_factor = 0.5 },
        { .scaling = MD_ROPE_YARN, .scale = 4, .yarn_beta_fast = 16 },
        { .scaling = MD_ROPE_YARN, .scale = 4, .yarn_beta_slow = 16 },
        { .freq_base = 20000 },
        { 0 },
    };
    enum { COUNT = sizeof all / sizeof all[0] };
    char texts[COUNT][MD_ROPE_TEXT_BYTES];
    for (size_t i = 0; i < COUNT; i++) {
        struct md_rope r;
        ck_assert_int_eq(md_rope_resolve(&plain, &all[i], &r, NULL), MD_OK);
        md_rope_text(&r, texts[i]);
        ck_assert_int_lt((int)strlen(texts[i]), MD_ROPE_TEXT_BYTES - 1);
        for (size_t n = 0; n < i; n++)
            ck_assert_msg(strcmp(texts[i], texts[n]) != 0, "%zu and %zu: '%s'", n, i, texts[i]);
    }
    /* the longest there can be */
    struct md_rope r = { .changed = true,
                         .unscaled = true,
                         .scaling = MD_ROPE_YARN,
                         .factor = 1e3 / 7,
                         .base = 1e12 / 7,
                         .orig_tokens = 1 << 30,
                         .ext_given = true,
                         .ext_factor = 1e-5 / 7,
                         .attn_factor = 1e-5 / 7,
                         .beta_fast = 1 / 7.,
                         .beta_slow = 1e-5 / 7 };
    md_rope_text(&r, texts[0]);
    ck_assert_ptr_nonnull(strstr(texts[0], "base 1.42857143e+11"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("rope");
    TCase *c = tcase_create("rope");
    tcase_add_test(c, windows);
    tcase_add_test(c, windows_of_files);
    tcase_add_test(c, refusals);
    tcase_add_test(c, a_file_is_not_judged);
    tcase_add_test(c, texts_tell_settings_apart);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
