/* past_far.h - a conversation far past the trained window on a real engine, with the exact model: f32 weights and KV.
 *
 * What is right is told by another engine of the same file: blocks as they were exported at their own places, moved once.
 * All of it fails the running test.  Threads: one at a time. */
#ifndef MD_TESTS_PAST_FAR_H
#define MD_TESTS_PAST_FAR_H

#include "engine/backend.h"

/* The exact model, trained for so many tokens, as TMPDIR/modeld-NAME-PID.gguf; the caller removes it. */
void past_far_write(char *out, size_t out_bytes, const char *name, int32_t trained);
/* Random bytes, always the same; the caller frees them. */
md_token *past_far_tokens(int32_t count);

struct past_far {
    const struct md_backend *backend;
    const char *path;
    int flash_attn;            /* as in struct md_open_params */
    int32_t hot, batch, block; /* tokens; turns of a batch; one block of sinks */
    int32_t total;             /* tokens of the conversation */
    int32_t moves;             /* at least as often the first block must move */
    bool speed;                /* the last tenth may not take longer than thrice the second */
    bool logits;               /* compare those behind the end, too */
};
void past_far_run(const struct past_far *f);

#endif
