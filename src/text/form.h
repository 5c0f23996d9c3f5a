/* form.h - how the text of an answer is taken apart: for those who make forms and for text/parser.c.
 *
 * A form is made with the prompt it belongs to and never changes, so any thread may use it.  It must not outlive the
 * md_text it came from. */
#ifndef MD_TEXT_FORM_H
#define MD_TEXT_FORM_H

#include "text/text.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct md_chat_call {
    struct md_bytes id; /* empty where the text brings none */
    struct md_bytes name, arguments;
};

/* A text taken apart.  All lies in the arena. */
struct md_chat_parsed {
    struct md_arena arena;
    struct md_bytes content, reasoning;
    struct md_chat_call *calls;
    size_t call_count;
};

struct md_chat_form_ops {
    void (*close)(struct md_chat_form *f);
    /* Take apart what has come so far, or the whole (which may have been cut off); ret is zeroed, and the caller
     * frees its arena whatever happens.  MD_INVALID: the text is not of this form; MD_NO_MEMORY. */
    enum md_status (*parse)(const struct md_chat_form *f, struct md_bytes text, bool whole,
                            struct md_chat_parsed *ret, struct md_err *err);
};

struct md_chat_form {
    const struct md_chat_form_ops *ops;
    int refs;   /* through md_chat_form_ref and _unref only */
    bool tools; /* calls may come */
    /* Texts that begin or end what is not content.  Only when they are all known may content that holds none of
     * them pass without being parsed. */
    const struct md_bytes *markers;
    size_t marker_count;
    bool markers_known;
    const struct md_bytes *stops; /* more stop strings, at most MD_FORM_STOPS_MAX */
    size_t stop_count;
    const md_token *kept; /* control tokens that are part of the text */
    size_t kept_count;
    struct md_bytes lead; /* what the prompt ends with: the beginning of the assistant's turn */
};

enum { MD_FORM_STOPS_MAX = 4 };

#ifdef __cplusplus
}
#endif
#endif
