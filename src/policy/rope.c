/* rope.c - see rope.h. */
#include "policy/rope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* llama.cpp's, where neither file nor user says: only their order matters here. */
static const double beta_fast_default = 32, beta_slow_default = 1;

enum { WINDOW_MAX = 1 << 30 }; /* tokens; more is not counted anywhere */

const char *md_rope_scaling_name(enum md_rope_scaling s)
{
    static const char *const names[] = { "", "none", "linear", "yarn", "longrope" };
    return names[s];
}

static double factor_of(const struct md_rope_file *f)
{
    return f->factor > 0 ? f->factor : 1;
}

static bool is_scaled(const struct md_rope_file *f)
{
    return (f->scaling == MD_ROPE_LINEAR || f->scaling == MD_ROPE_YARN) && factor_of(f) != 1;
}

int32_t md_rope_file_window(const struct md_rope_file *f)
{
    const double stretched = f->original_tokens * factor_of(f);
    return f->scaling == MD_ROPE_YARN && stretched > f->context_tokens && stretched <= WINDOW_MAX
               ? (int32_t)lround(stretched)
               : f->context_tokens;
}

/* ---- what is asked ---- */

bool md_rope_is_asked(const struct md_rope_asked *a)
{
    return a->scaling != MD_ROPE_UNSAID || a->scale != 0 || a->freq_scale != 0 || a->freq_base != 0 ||
           a->yarn_orig_ctx != 0 || a->yarn_attn_factor != 0 || a->yarn_beta_fast != 0 ||
           a->yarn_beta_slow != 0 || a->yarn_ext_given;
}

/* The first of YaRN's flags that is there; NULL: none. */
static const char *yarn_flag(const struct md_rope_asked *a)
{
    return a->yarn_orig_ctx != 0      ? "--yarn-orig-ctx"
           : a->yarn_ext_given        ? "--yarn-ext-factor"
           : a->yarn_attn_factor != 0 ? "--yarn-attn-factor"
           : a->yarn_beta_fast != 0   ? "--yarn-beta-fast"
           : a->yarn_beta_slow != 0   ? "--yarn-beta-slow"
                                      : NULL;
}

static enum md_status check_ranges(const struct md_rope_asked *a, struct md_err *err)
{
    const struct {
        const char *flag;
        double value, low, high;
        bool above; /* low itself is not in */
    } all[] = {
        { "--rope-scale", a->scale, 1, MD_ROPE_SCALE_MAX, false },
        { "--rope-freq-scale", a->freq_scale, 1 / MD_ROPE_SCALE_MAX, 1, false },
        { "--rope-freq-base", a->freq_base, 1, MD_ROPE_BASE_MAX, true },
        { "--yarn-orig-ctx", a->yarn_orig_ctx, 1, WINDOW_MAX, false },
        { "--yarn-attn-factor", a->yarn_attn_factor, 0, MD_ROPE_YARN_MAX, true },
        { "--yarn-beta-fast", a->yarn_beta_fast, 0, MD_ROPE_YARN_MAX, true },
        { "--yarn-beta-slow", a->yarn_beta_slow, 0, MD_ROPE_YARN_MAX, true },
        { "--yarn-ext-factor", a->yarn_ext_factor, 0, 1, false },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const double v = all[i].value;
        if (v != 0 && !(v >= all[i].low && v <= all[i].high && !(all[i].above && v == all[i].low)))
            return md_fail(err, MD_INVALID, "%s must be a number %s %g and at most %g, got %g", all[i].flag,
                           all[i].above ? "above" : "from", all[i].low, all[i].high, v);
    }
    return MD_OK;
}

enum md_status md_rope_check(const struct md_rope_asked *a, struct md_err *err)
{
    enum md_status s = check_ranges(a, err);
    const char *scale = a->scale != 0 ? "--rope-scale" : a->freq_scale != 0 ? "--rope-freq-scale" : NULL;
    const char *yarn = yarn_flag(a);
    const double fast = a->yarn_beta_fast != 0 ? a->yarn_beta_fast : beta_fast_default;
    const double slow = a->yarn_beta_slow != 0 ? a->yarn_beta_slow : beta_slow_default;
    if (s != MD_OK)
        return s;
    if (a->scaling == MD_ROPE_LONGROPE)
        return md_fail(err, MD_INVALID, "--rope-scaling must be none, linear or yarn");
    if (a->scale != 0 && a->freq_scale != 0)
        return md_fail(err, MD_INVALID,
                       "--rope-scale and --rope-freq-scale say the same, one as 1 / the other: give one");
    if (scale != NULL && a->scaling == MD_ROPE_UNSAID)
        return md_fail(err, MD_INVALID, "%s needs --rope-scaling linear or --rope-scaling yarn", scale);
    if (scale != NULL && a->scaling == MD_ROPE_NONE)
        return md_fail(err, MD_INVALID, "--rope-scaling none leaves nothing to scale: leave out %s", scale);
    if (yarn != NULL && a->scaling != MD_ROPE_UNSAID && a->scaling != MD_ROPE_YARN)
        return md_fail(err, MD_INVALID, "%s needs --rope-scaling yarn, not %s", yarn,
                       md_rope_scaling_name(a->scaling));
    if (a->yarn_attn_factor != 0 && !(a->yarn_ext_given && a->yarn_ext_factor == 0))
        return md_fail(err, MD_INVALID,
                       "--yarn-attn-factor has no effect while YaRN mixes, it is derived then: give "
                       "--yarn-ext-factor 0 as well, or leave it out");
    if (fast < slow)
        return md_fail(
            err, MD_INVALID,
            "--yarn-beta-fast %g is less than --yarn-beta-slow %g: give both, the larger one as fast", fast,
            slow);
    return MD_OK;
}

/* ---- both together ---- */

/* The window before any scaling. */
static double unscaled_window(const struct md_rope_file *f)
{
    return f->original_tokens > 0 ? f->original_tokens
           : is_scaled(f)         ? f->context_tokens / factor_of(f)
                                  : f->context_tokens;
}

static struct md_rope as_the_file(const struct md_rope_file *f)
{
    struct md_rope r = { .scaling = MD_ROPE_NONE, .factor = 1, .trained_tokens = md_rope_file_window(f) };
    if (f->scaling == MD_ROPE_LONGROPE || is_scaled(f)) {
        r.scaling = f->scaling;
        r.factor = factor_of(f);
    }
    if (r.scaling == MD_ROPE_YARN) /* load_hparams takes the declared window where no other is said */
        r.orig_tokens = f->original_tokens > 0 ? f->original_tokens : f->context_tokens;
    return r;
}

static enum md_status set_scaling(const struct md_rope_file *f, const struct md_rope_asked *a,
                                  struct md_rope *r, struct md_err *err)
{
    const char *name = md_rope_scaling_name(a->scaling);
    const double given = a->scale != 0 ? a->scale : a->freq_scale != 0 ? 1 / a->freq_scale : factor_of(f);
    double window = unscaled_window(f);
    if (a->scaling == MD_ROPE_NONE) {
        *r = (struct md_rope){ .scaling = MD_ROPE_NONE, .factor = 1, .trained_tokens = (int32_t)window };
        return MD_OK;
    }
    if (a->scale == 0 && a->freq_scale == 0 && !is_scaled(f))
        return md_fail(err, MD_INVALID,
                       "--rope-scaling %s needs --rope-scale N: the model file says no factor", name);
    if (a->scaling == MD_ROPE_YARN && a->yarn_orig_ctx > 0)
        window = a->yarn_orig_ctx;
    if (a->scaling == MD_ROPE_YARN && window < 1)
        return md_fail(
            err, MD_INVALID,
            "--rope-scaling yarn needs --yarn-orig-ctx N, the window before scaling: the model file "
            "does not say it");
    if (window * given > WINDOW_MAX)
        return md_fail(err, MD_INVALID, "--rope-scaling %s: %.0f tokens times %g are more than %d", name,
                       window, given, WINDOW_MAX);
    *r = (struct md_rope){ .scaling = given == 1 && a->scaling == MD_ROPE_LINEAR ? MD_ROPE_NONE : a->scaling,
                           .factor = given,
                           .trained_tokens = (int32_t)lround(window * given) };
    if (a->scaling == MD_ROPE_YARN)
        r->orig_tokens = (int32_t)window;
    return MD_OK;
}

static void set_yarn(const struct md_rope_asked *a, struct md_rope *r)
{
    if (a->yarn_orig_ctx > 0) {
        r->orig_tokens = a->yarn_orig_ctx;
        r->trained_tokens = (int32_t)lround(a->yarn_orig_ctx * r->factor);
    }
    r->ext_given = a->yarn_ext_given;
    r->ext_factor = a->yarn_ext_factor;
    r->attn_factor = a->yarn_attn_factor;
    r->beta_fast = a->yarn_beta_fast;
    r->beta_slow = a->yarn_beta_slow;
}

static bool differs(const struct md_rope *a, const struct md_rope *b)
{
    return a->scaling != b->scaling || a->factor != b->factor || a->orig_tokens != b->orig_tokens ||
           a->base != b->base || a->ext_given || a->attn_factor != 0 || a->beta_fast != 0 ||
           a->beta_slow != 0;
}

enum md_status md_rope_resolve(const struct md_rope_file *f, const struct md_rope_asked *a,
                               struct md_rope *ret, struct md_err *err)
{
    const struct md_rope file = as_the_file(f);
    struct md_rope r = file;
    const char *yarn = yarn_flag(a);
    enum md_status s = md_rope_check(a, err);
    if (s != MD_OK)
        return s;
    if (md_rope_is_asked(a) && f->absent)
        return md_fail(err, MD_UNSUPPORTED,
                       "this model has no rotary positions: leave out --rope-* and --yarn-*");
    if (f->scaling == MD_ROPE_LONGROPE && (a->scaling != MD_ROPE_UNSAID || yarn != NULL))
        return md_fail(
            err, MD_UNSUPPORTED,
            "this model scales its positions by LongRoPE, factors of its own that nothing can replace: "
            "leave out --rope-scaling and --yarn-*");
    const bool again = a->scaling == file.scaling && a->scale == 0 && a->freq_scale == 0;
    if (a->scaling != MD_ROPE_UNSAID && !again)
        s = set_scaling(f, a, &r, err);
    if (s == MD_OK && yarn != NULL && r.scaling != MD_ROPE_YARN)
        s = md_fail(err, MD_INVALID, "%s needs --rope-scaling yarn: the model file does not scale by it",
                    yarn);
    if (s == MD_OK && yarn != NULL && a->yarn_orig_ctx * r.factor > WINDOW_MAX)
        s = md_fail(err, MD_INVALID, "--yarn-orig-ctx %d times %g is more than %d tokens", a->yarn_orig_ctx,
                    r.factor, WINDOW_MAX);
    if (s != MD_OK)
        return s;
    if (yarn != NULL)
        set_yarn(a, &r);
    if (a->freq_base != f->base)
        r.base = a->freq_base;
    r.changed = differs(&r, &file);
    r.unscaled = r.scaling == MD_ROPE_NONE && file.scaling != MD_ROPE_NONE;
    *ret = r;
    return MD_OK;
}

/* ---- in words ---- */

void md_rope_text(const struct md_rope *r, char out[MD_ROPE_TEXT_BYTES])
{
    int at = 0;
    const size_t most = MD_ROPE_TEXT_BYTES;
    out[0] = '\0';
#define ADD(...) at += snprintf(out + at, (size_t)at < most ? most - (size_t)at : 0, __VA_ARGS__)
    if (r->unscaled)
        ADD("not scaled");
    else if (r->scaling == MD_ROPE_LONGROPE)
        ADD("longrope");
    else if (r->scaling != MD_ROPE_NONE)
        ADD("%s x%.9g", md_rope_scaling_name(r->scaling), r->factor);
    if (r->scaling == MD_ROPE_YARN)
        ADD(" of %d tokens", r->orig_tokens);
    if (r->ext_given)
        ADD(", ext %.9g", r->ext_factor);
    if (r->attn_factor != 0)
        ADD(", attn %.9g", r->attn_factor);
    if (r->beta_fast != 0)
        ADD(", fast %.9g", r->beta_fast);
    if (r->beta_slow != 0)
        ADD(", slow %.9g", r->beta_slow);
    if (r->base != 0)
        ADD("%sbase %.9g", at > 0 ? ", " : "", r->base);
#undef ADD
}
