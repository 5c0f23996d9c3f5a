/* talk.h - a conversation of messages over a session, in this process: for run and chat.
 *
 * Threads: one at a time; md_talk_interrupt from a signal handler. */
#ifndef MD_COMMANDS_TALK_H
#define MD_COMMANDS_TALK_H

#include "base/mem.h"
#include "commands/options.h"
#include "commands/stack.h"

struct md_talk {
    struct md_stack *stack;     /* borrowed */
    struct md_session *session; /* of the stack's pool */
    struct md_arena memory;     /* the text of all messages */
    struct md_chat_message *messages;
    size_t count, cap;
    const char *system; /* first message of every conversation; NULL: none; borrowed */
    struct md_sample_params sampling;
    int32_t max_tokens;
    bool show_text;     /* write the answer to standard output as it comes */
    bool show_progress; /* prefill progress on standard error (a terminal only) */
};

/* Errors of md_pool_new. */
MD_MUST_USE enum md_status md_talk_open(struct md_talk *t, struct md_stack *stack, const struct md_options *o,
                                        struct md_err *err);
void md_talk_close(struct md_talk *t);

/* Begin: forget all messages but the system message.  The session keeps its KV for what comes back. */
MD_MUST_USE enum md_status md_talk_start(struct md_talk *t, struct md_err *err);
/* Add a message (copied) to the history. */
MD_MUST_USE enum md_status md_talk_add(struct md_talk *t, const char *role, struct md_bytes content,
                                       struct md_err *err);
/* Answer the history: render, run, and add the answer to it.  On MD_CANCELLED the part that came, if any, is
 * added.
 *
 * ret_text    the answer, owned by the talk
 * ret_result  zeroed by the caller; filled on MD_OK and MD_CANCELLED; md_result_done
 * MD_IO       the answer could not be written to standard output */
MD_MUST_USE enum md_status md_talk_answer(struct md_talk *t, struct md_bytes *ret_text,
                                          struct md_result *ret_result, struct md_err *err);
/* Continue a raw prompt without the chat template; nothing is kept of it. */
MD_MUST_USE enum md_status md_talk_complete(struct md_talk *t, struct md_bytes prompt,
                                            struct md_bytes *ret_text, struct md_result *ret_result,
                                            struct md_err *err);
/* Stop the running answer; async-signal-safe. */
void md_talk_interrupt(void);

#endif
