/* scripted.h - a model that says what it is told: a text and an engine for tests of fronts.
 *
 * Tokens 0..255 are the bytes, 256 is the end, 257 + i is piece i of the script.  Any prompt tokenizes to
 * its bytes ("<|end|>" to the end token where special text is parsed).  After a prompt the engine wants
 * piece 0, after piece i piece i + 1, after the last the end; whoever bans the end gets piece 0 again, whoever
 * bans a piece gets the end.  A chat prompt is a line "role: content" per message and "assistant: ".
 * Sampling is greedy with logit_bias; the other parameters are ignored.
 *
 * The KV behind it is that of a real (fake) engine, with all its operations. */
#ifndef MD_TESTS_SCRIPTED_H
#define MD_TESTS_SCRIPTED_H

#include "engine/engine.h"
#include "text/text.h"

enum { MD_SCRIPTED_END = 256, MD_SCRIPTED_FIRST = 257 };

typedef enum md_status md_scripted_render_fn(void *user, const struct md_chat_input *in,
                                             struct md_buf *ret_prompt, struct md_chat_form **ret_form,
                                             struct md_err *err);
typedef enum md_status md_scripted_constrain_fn(struct md_bytes json_schema, struct md_bytes grammar,
                                                struct md_chat_form **ret_form, struct md_err *err);

struct md_script {
    const struct md_bytes *pieces; /* copied; a piece may hold any bytes, also half a character */
    size_t count;
    int32_t cell_count;            /* 0: 4096 */
    int32_t batch_tokens;          /* 0: 512 */
    md_token control_from;         /* this token and those after it are control tokens; 0: none */
    unsigned caps_off;             /* as in md_fake_options */
    const char *engine;            /* its name there */
    int decode_delay_ms;           /* each decode step takes this long; the interrupt is polled meanwhile */
    int prefill_delay_ms;          /* per token of a prefill or recompute, likewise */
    int export_delay_ms;           /* each export takes this long */
    md_scripted_render_fn *render; /* chats are rendered by it; NULL: as above, and tools are refused */
    md_scripted_constrain_fn *constrain; /* NULL: anything binds, and nothing is bound */
    void *render_user;
};

/* Either of ret_engine and ret_text may be NULL; they are closed on their own, in any order. */
MD_MUST_USE enum md_status md_scripted_open(const struct md_script *script, struct md_engine **ret_engine,
                                            struct md_text **ret_text, struct md_err *err);

#endif
