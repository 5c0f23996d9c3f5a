/* eval_chat.h - the conversation in which `modeld eval` asks, as tokens and segments.
 *
 * The haystack is the first message of a user, acknowledged by the model, and every question a message of its own: so what
 * retrieves reads the last message, which is the question and nothing else.  The model's chat template makes a prompt of
 * them; a model without one continues
 *
 *     <haystack> \n\n Question: ... \n Answer: ...
 *
 * which is divided in the same way.  The haystack comes as tokens and is never tokenized again, so that its needles stay
 * where they are in every prompt.
 *
 * Threads: one at a time. */
#ifndef MD_COMMANDS_EVAL_CHAT_H
#define MD_COMMANDS_EVAL_CHAT_H

#include "commands/eval_tasks.h"
#include "session/session.h"
#include "text/text.h"

enum { MD_EVAL_MESSAGES_MAX = 2 + 2 * MD_EVAL_NEEDLES_MAX };

/* Zero it before use. */
struct md_eval_chat {
    const struct md_text *text; /* borrowed, as the next two are */
    const char *model;          /* its name, for errors */
    const struct md_tokens *haystack;
    struct md_arena arena; /* of what was said */
    struct md_chat_message messages[MD_EVAL_MESSAGES_MAX];
    size_t count;
    /* of md_eval_chat_render: */
    struct md_tokens prompt;
    int32_t haystack_at;                              /* where the haystack begins in every prompt */
    struct md_segment segments[MD_EVAL_MESSAGES_MAX]; /* one a message, in their order */
    size_t segment_count;
};
void md_eval_chat_init(struct md_eval_chat *c, const struct md_text *text, const char *model,
                       const struct md_tokens *haystack);
void md_eval_chat_done(struct md_eval_chat *c); /* accepts a zeroed one */

/* Forget what was said, but for the haystack.  MD_NO_MEMORY */
MD_MUST_USE enum md_status md_eval_chat_begin(struct md_eval_chat *c, struct md_err *err);
/* Add a message, copied: "user" and "assistant" take turns.  MD_NO_MEMORY */
MD_MUST_USE enum md_status md_eval_chat_say(struct md_eval_chat *c, const char *role, struct md_bytes text,
                                            struct md_err *err);
/* Make the prompt of what was said, which ends where the model is to answer.
 *
 * MD_UNSUPPORTED  the template or the tokenizer changes what was said, so that the question cannot be told from the rest
 * MD_NO_MEMORY, errors of md_text_render_chat and md_prompt_raw; then prompt and segments are of no use */
MD_MUST_USE enum md_status md_eval_chat_render(struct md_eval_chat *c, struct md_err *err);

/* The prompt, and the part of it that ends with the haystack; borrowed until the next one is made. */
struct md_context md_eval_chat_context(const struct md_eval_chat *c);
struct md_context md_eval_chat_prefix(const struct md_eval_chat *c);

#endif
