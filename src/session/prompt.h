/* prompt.h - a prompt as tokens, and which of them belong to which segment.
 *
 * The prompt is rendered and tokenized once and whole, never in pieces, so it is the same with and without
 * segments.  Where segments end is found afterwards and never changes it:
 *
 *   1. In bytes.  The messages are rendered a second time, each content followed by a marker that stands nowhere
 *      else.  If that, without its markers, is the first rendering byte for byte, the markers stand where
 *      contents end.  If it is not (a template that looks at how a content begins or ends), the first
 *      MD_PROMPT_PREFIX_RENDERS messages are rendered as ever longer prefixes: where such a rendering begins the
 *      prompt, a message ends.  Messages whose end is not found go into one segment with the next.
 *   2. In tokens, by laying the tokens' bytes along the prompt.  Spaces and first tokens that a tokenizer puts
 *      in, U+2581 for a space, blanks it drops and unknown tokens are allowed for; a tokenizer that changes the
 *      text otherwise gives one segment.
 *
 * A segment runs from the end of the content before it to the end of its own, so what a template writes
 * between two contents belongs to the second; the last one takes what remains.  A token belongs to the segment
 * in which it begins.  Segments tile [0, count) in order; one may be empty.  `diagnostic` says when they are
 * coarser than asked.
 *
 * Work: two renderings, three with a tools section, or those and MD_PROMPT_PREFIX_RENDERS more (and those that
 * md_calls_render makes); all else is linear in bytes, messages and tokens.
 *
 * Threads: any; nothing but the arguments is touched. */
#ifndef MD_SESSION_PROMPT_H
#define MD_SESSION_PROMPT_H

#include "base/err.h"
#include "base/mem.h"
#include "base/types.h"
#include "policy/segment.h"
#include "session/session.h"
#include "text/calls.h"

enum { MD_PROMPT_PREFIX_RENDERS = 32 };
#define MD_PROMPT_BYTES_MAX ((size_t)256 << 20) /* of a rendered prompt */

struct md_prompt_segment {
    struct md_segment_label label; /* name: owned by the prompt */
    struct md_range tokens;
    int32_t first_message, message_count; /* 0 messages: the tools section */
    int32_t body_tokens; /* up to the end of its content; fewer than all only in the last one */
    struct md_key hash;  /* of the body's tokens; for this process only */
};

struct md_prompt {
    struct md_tokens tokens;   /* may be taken over, as the form may: copy it and zero it here */
    struct md_chat_form *form; /* how the answer is read and bound; NULL: plain text */
    size_t bytes;              /* of the text */
    struct md_prompt_segment *segments;
    size_t segment_count;
    const char *diagnostic; /* static text, or NULL: every message has its segment */
    struct md_arena arena;  /* of segments and names */
};
void md_prompt_done(struct md_prompt *p); /* accepts a zeroed struct */

struct md_prompt_request {
    const struct md_text *text;
    struct md_chat_input input;            /* with tools: their section becomes a segment of kind tools */
    struct md_calls *calls;                /* turns that made tool calls; NULL: none is remembered */
    const struct md_segment_label *labels; /* one per message, or NULL: md_prompt_labels */
    bool add_special;                      /* as in md_text_tokenize */
    size_t bytes_max;                      /* more are not tokenized; 0: MD_PROMPT_BYTES_MAX */
};

/* How many bytes a prompt of fewer than `window` tokens can have at most, so that one that cannot fit is not
 * tokenized, for that may cost time squared in its length. */
size_t md_prompt_bytes_max(const struct md_text *text, int32_t window_tokens);

/* Labels of messages by their roles, for a request without a manifest: the system and developer messages it
 * begins with are system, stable; all others are volatile and of the kind their role names.  So are
 * the system messages among them: of a client that repeats a reminder at every turn, none would ever leave
 * the hot set.  Names are borrowed from the messages or static. */
void md_prompt_labels(const struct md_chat_message *messages, size_t count,
                      struct md_segment_label *ret_labels);

/* The prompt of chat messages.
 *
 * MD_INVALID     no messages
 * MD_TOO_LARGE   more than bytes_max bytes, which ret->bytes then tells; or more than INT32_MAX tokens
 * MD_NO_MEMORY   the heap, or more than MD_PROMPT_BYTES_MAX while it was rendered
 * and what the first rendering and the tokenizer fail with; a later rendering that fails makes segments coarser
 * State: ret untouched on failure, but for ret->bytes. */
MD_MUST_USE enum md_status md_prompt_render(const struct md_prompt_request *request,
                                            const struct md_alloc *alloc, struct md_prompt *ret,
                                            struct md_err *err);

struct md_prompt_raw_request {
    const struct md_text *text;
    struct md_bytes prompt;
    bool add_special;
    size_t bytes_max;
    const struct md_segment_label *labels; /* labels[i] ends at byte_ends[i] */
    const size_t *byte_ends;               /* ascending; the last one is prompt.len */
    size_t count;                          /* 0: nothing is known of it, and it has no segments */
};

/* The prompt of a text that no template touches, control tokens parsed; segments by the manifest's bytes.
 * MD_INVALID: byte_ends; else as md_prompt_render. */
MD_MUST_USE enum md_status md_prompt_raw(const struct md_prompt_raw_request *request,
                                         const struct md_alloc *alloc, struct md_prompt *ret,
                                         struct md_err *err);

/* Its segments as a context has them.
 *
 * ret  room for p->segment_count.  A name that has no room in one is replaced by that of its kind: who reads
 *      names that must be kept refuses longer ones. */
void md_prompt_segments(const struct md_prompt *p, struct md_segment *ret);

#endif
