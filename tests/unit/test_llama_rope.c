/* What becomes of RoPE settings in the library's own parameters.  What is right is what llama-context.cpp makes of values that
 * nobody set: without YaRN an extrapolation of 0 and an attention factor of 1, whatever the file says of YaRN; nothing set
 * leaves the parameters as they are. */
#include "adapters/llama/llama_internal.h"
#include "policy/rope.h"
#include "support/run_suite.h"

#include <check.h>
#include <string.h>

static const struct md_rope_file plain = { .base = 10000, .context_tokens = 8192 };
static const struct md_rope_file yarn = {
    .scaling = MD_ROPE_YARN, .factor = 4, .base = 10000, .context_tokens = 32768, .original_tokens = 8192
};

static struct llama_context_params set(const struct md_rope_file *file, struct md_rope_asked asked)
{
    struct llama_context_params c = llama_context_default_params();
    struct md_rope r;
    struct md_err err = { 0 };
    ck_assert_msg(md_rope_resolve(file, &asked, &r, &err) == MD_OK, "%s", err.text);
    md_llama_set_rope(&r, &c);
    return c;
}

START_TEST(nothing_set_is_left_to_the_file)
{
    const struct llama_context_params untouched = llama_context_default_params();
    const struct md_rope_file *const files[] = { &plain, &yarn };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        const struct llama_context_params c = set(files[i], (struct md_rope_asked){ 0 });
        ck_assert_int_eq(c.rope_scaling_type, untouched.rope_scaling_type);
        ck_assert(c.rope_freq_base == untouched.rope_freq_base);
        ck_assert(c.rope_freq_scale == untouched.rope_freq_scale);
        ck_assert(c.yarn_ext_factor == untouched.yarn_ext_factor);
        ck_assert(c.yarn_attn_factor == untouched.yarn_attn_factor);
        ck_assert(c.yarn_beta_fast == untouched.yarn_beta_fast);
        ck_assert(c.yarn_beta_slow == untouched.yarn_beta_slow);
        ck_assert_uint_eq(c.yarn_orig_ctx, untouched.yarn_orig_ctx);
    }
    ck_assert(untouched.yarn_ext_factor < 0); /* below 0: as the file has it */
}
END_TEST

START_TEST(without_yarn_nothing_of_it_stays)
{
    static const struct {
        const struct md_rope_file *file;
        struct md_rope_asked asked;
        float freq_scale;
    } rows[] = {
        { &yarn, { .scaling = MD_ROPE_NONE }, 1 },
        { &yarn, { .scaling = MD_ROPE_LINEAR, .scale = 2 }, 0.5f },
        { &plain, { .scaling = MD_ROPE_LINEAR, .scale = 2 }, 0.5f },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct llama_context_params c = set(rows[i].file, rows[i].asked);
        ck_assert(c.rope_scaling_type != LLAMA_ROPE_SCALING_TYPE_YARN);
        ck_assert(c.rope_scaling_type != LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED);
        ck_assert_msg(c.yarn_ext_factor == 0, "row %zu: %g", i, (double)c.yarn_ext_factor);
        ck_assert_msg(c.yarn_attn_factor == 1, "row %zu: %g", i, (double)c.yarn_attn_factor);
        ck_assert(c.rope_freq_scale == rows[i].freq_scale);
    }
}
END_TEST

/* With YaRN 0 is a value of its own; without, it would change nothing, and is refused as the other values are. */
START_TEST(an_extrapolation_of_0)
{
    const struct md_rope_asked zero = { .yarn_ext_given = true };
    const struct md_rope_asked off = { .scaling = MD_ROPE_NONE, .yarn_ext_given = true };
    struct md_rope r;
    struct md_err err = { 0 };
    ck_assert(set(&yarn, zero).yarn_ext_factor == 0);
    ck_assert(set(&yarn, (struct md_rope_asked){ .yarn_beta_fast = 16 }).yarn_ext_factor < 0);
    ck_assert_int_eq(md_rope_resolve(&plain, &zero, &r, &err), MD_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "the model file does not scale by it"));
    ck_assert_int_eq(md_rope_resolve(&yarn, &off, &r, &err), MD_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "--yarn-ext-factor needs --rope-scaling yarn, not none"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("llama rope");
    TCase *c = tcase_create("rope");
    tcase_add_test(c, nothing_set_is_left_to_the_file);
    tcase_add_test(c, without_yarn_nothing_of_it_stays);
    tcase_add_test(c, an_extrapolation_of_0);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
