/* stack.h - from options to an open engine, text and session; the same for every command.
 *
 * Threads: one at a time. */
#ifndef MD_COMMANDS_STACK_H
#define MD_COMMANDS_STACK_H

#include "commands/options.h"
#include "engine/backend.h"
#include "session/pool.h"

struct md_stack {
    char model_path[4096];
    char model_name[256]; /* file name without .gguf */
    int32_t trained_tokens, window_tokens, hot_tokens;
    size_t cold_bytes;
    int64_t device_bytes;  /* memory of its own that the model takes on an accelerator; 0: none */
    const char *data_root; /* borrowed from the options */
    char speed_key[512];   /* of speeds.h */
    struct md_engine *engine;
    struct md_text *text;
    struct md_disk *disk; /* NULL: none */
    struct md_pool *pool; /* NULL when opened with md_stack_open_engine */
};

/* Find the model, check the sizes against it, open everything.
 *
 * backends  array ended by an entry with name NULL
 * errors    of backend open and md_pool_open; MD_INVALID names the flag; nothing stays open */
MD_MUST_USE enum md_status md_stack_open(const struct md_options *o, const struct md_backend *backends,
                                         struct md_stack *ret_stack, struct md_err *err);
/* The same, and `configure` (NULL: nothing) may change the pool's configuration when flags and sizes have filled it; its
 * rules are checked afterwards. */
MD_MUST_USE enum md_status md_stack_open_with(const struct md_options *o, const struct md_backend *backends,
                                              void (*configure)(struct md_pool_config *config),
                                              struct md_stack *ret_stack, struct md_err *err);
/* Would md_stack_open_with refuse the sizes?  Nothing is opened: the header of the model is read.  Errors as its own. */
MD_MUST_USE enum md_status md_stack_check(const struct md_options *o, const struct md_backend *backends,
                                          void (*configure)(struct md_pool_config *config),
                                          struct md_err *err);
/* Are the words of --reuse, --cold-policy, --retrieval and --evict known ones?  MD_INVALID. */
MD_MUST_USE enum md_status md_stack_check_words(const struct md_options *o, struct md_err *err);
/* Without a session, with room for `cell_count` tokens: for measuring. */
MD_MUST_USE enum md_status md_stack_open_engine(const struct md_options *o, const struct md_backend *backends,
                                                int32_t cell_count, struct md_stack *ret_stack,
                                                struct md_err *err);
/* Keep how fast `tokens` tokens were prefilled, for `plan`. */
void md_stack_note_speed(const struct md_stack *s, int64_t tokens, int64_t ns);
/* What was prefilled is noted as well. */
void md_stack_close(struct md_stack *s); /* accepts a zeroed one */

/* Sampling parameters of the options, checked by the option table. */
struct md_sample_params md_stack_sampling(const struct md_options *o);

#endif
