/* rope.h - how positions turn keys: what a model file says of it, what the user asks instead, and the window that
 * comes of both.  Pure.
 *
 * Names and meaning are llama.cpp's: a scale of 4 makes four positions of one, which is a frequency scale of 1/4; YaRN
 * does so for slow frequencies only, counted from the window before scaling.  Layers with a sliding window keep what
 * the file says of them.
 *
 * Threads: any; touches nothing but its arguments.
 * Source: llama.cpp's common/arg.cpp (the options), llama-context.cpp (what becomes of them). */
#ifndef MD_POLICY_ROPE_H
#define MD_POLICY_ROPE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum md_rope_scaling {
    MD_ROPE_UNSAID, /* of a file: none; asked for: as the file has it */
    MD_ROPE_NONE,
    MD_ROPE_LINEAR,
    MD_ROPE_YARN,
    MD_ROPE_LONGROPE /* of files only: factors of its own for each frequency */
};

/* What is accepted. */
#define MD_ROPE_SCALE_MAX 1024.0 /* a scale is 1 or more: less would waste positions */
#define MD_ROPE_BASE_MAX 1e12    /* a base is above 1 */
#define MD_ROPE_YARN_MAX 1000.0  /* of attention factor and the two betas, which are above 0 */

/* Of a model file; all zero: a model with rotary positions that are not scaled. */
struct md_rope_file {
    bool absent; /* the model has no rotary positions */
    enum md_rope_scaling scaling;
    double factor;           /* 0: not said, which is 1 */
    double base;             /* 0: not known */
    int32_t context_tokens;  /* as declared: the scaled window; 0: not said */
    int32_t original_tokens; /* the window before scaling; 0: not said */
};

/* Zero: as the file has it. */
struct md_rope_asked {
    enum md_rope_scaling scaling;
    double scale, freq_scale; /* one of them: freq_scale is 1 / scale */
    double freq_base;
    int32_t yarn_orig_ctx; /* tokens */
    double yarn_attn_factor, yarn_beta_fast, yarn_beta_slow;
    bool yarn_ext_given; /* 0 is a value of its own */
    double yarn_ext_factor;
};

/* What the engine is to do.  Members of YaRN are 0 without it, and where they are as the file has them. */
struct md_rope {
    bool changed;  /* not all as the file has it */
    bool unscaled; /* the file has a scaling, which is off */
    enum md_rope_scaling scaling;
    double factor;          /* 1: positions as they are */
    double base;            /* 0: the file's */
    int32_t orig_tokens;    /* YaRN's window before scaling */
    int32_t trained_tokens; /* the window that counts as trained; 0: not known */
    double attn_factor, beta_fast, beta_slow, ext_factor;
    bool ext_given;
};

/* "none", "linear", "yarn", "longrope"; "" for UNSAID. */
const char *md_rope_scaling_name(enum md_rope_scaling s);
/* The window of a file as it is: what it declares, or original window times factor where YaRN makes that more. */
int32_t md_rope_file_window(const struct md_rope_file *file);

/* Is anything asked for? */
bool md_rope_is_asked(const struct md_rope_asked *asked);
/* What can be said without a file: values in range, none that contradicts another or has no effect.  Texts name the
 * flags.
 * MD_INVALID */
MD_MUST_USE enum md_status md_rope_check(const struct md_rope_asked *asked, struct md_err *err);

/* File and wishes together.  With nothing asked that is the file's, whatever it says.
 *
 * MD_INVALID      errors of md_rope_check; a scaling without a factor, YaRN without a window to count from, YaRN's
 *                 values for another scaling; a window beyond 2^30 tokens
 * MD_UNSUPPORTED  the model has no rotary positions, or LongRoPE, of which only the base can be set */
MD_MUST_USE enum md_status md_rope_resolve(const struct md_rope_file *file, const struct md_rope_asked *asked,
                                           struct md_rope *ret, struct md_err *err);

/* All of it in one line, for people and for the identity of KV: "yarn x4 of 8192 tokens, base 500000"; "" when nothing
 * is scaled and the base is the file's.  Equal lines are equal settings to 9 digits, which is what the engine's floats
 * have. */
enum { MD_ROPE_TEXT_BYTES = 160 };
void md_rope_text(const struct md_rope *r, char out[MD_ROPE_TEXT_BYTES]);

#endif
