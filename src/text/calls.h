/* calls.h - the exact text of turns that made tool calls, so that a history that comes back carries it again.
 *
 * A client keeps a tool call as JSON and sends it back written in its own way: other key order, other white space.
 * Rendered from that, the prompt would differ from what was sampled, and the KV behind it would be lost.  So the raw
 * text and the tokens of each such turn are remembered under the ids of its calls; a message that brings these calls
 * unchanged (JSON-equal arguments, the same content) is rendered with that text in their place, and the text becomes
 * those tokens: a grammar often makes a model spell what the tokenizer would write otherwise.  A message that was
 * edited is rendered as it was sent.
 *
 * Bounded by bytes and entries; what was not used for longest goes first.  It lives in memory: what shall outlive the
 * process is written into bytes (calls_bytes.c) that somebody keeps with the conversation.
 * Threads: any. */
#ifndef MD_TEXT_CALLS_H
#define MD_TEXT_CALLS_H

#include "text/form.h"

struct md_calls;

enum { MD_CALLS_ENTRIES = 4096, MD_CALLS_BYTES = 32 << 20 };
enum { MD_CALLS_TURN_BYTES = 16 << 20, MD_CALLS_PER_TURN = 64 }; /* of a turn that is written */

/* limits: 0 refuses everything.  alloc NULL: the C heap.  MD_NO_MEMORY. */
MD_MUST_USE enum md_status md_calls_open(size_t limit_entries, size_t limit_bytes,
                                         const struct md_alloc *alloc, struct md_calls **ret_calls,
                                         struct md_err *err);
void md_calls_close(struct md_calls *c); /* accepts NULL */

/* A turn of the assistant that made at least one call. */
struct md_calls_turn {
    struct md_bytes lead;   /* see struct md_chat_form */
    struct md_bytes raw;    /* as sampled, without the end token */
    const md_token *tokens; /* of raw */
    size_t token_count;
    struct md_bytes content;
    const struct md_chat_call *calls;
    size_t call_count;
};
/* Copies the turn; one that is larger than the limit is not kept.  MD_NO_MEMORY: not kept. */
MD_MUST_USE enum md_status md_calls_remember(struct md_calls *c, const struct md_calls_turn *turn,
                                             struct md_err *err);
/* Parts of a prompt whose tokens are known, in order. */
struct md_calls_span {
    size_t offset, len; /* bytes of the prompt */
    const md_token *tokens;
    size_t token_count;
};
struct md_calls_spans {
    struct md_arena arena;
    /* The messages as they were rendered, as many as there are: the input's own where nothing stands in for one.
     * Borrowed from the input and the arena. */
    const struct md_chat_message *messages;
    struct md_calls_span *items;
    size_t count;
};
void md_calls_spans_done(struct md_calls_spans *s); /* accepts a zeroed struct */

/* As md_text_render_chat into an empty buffer, with what is remembered in the place of the calls it was read from.
 * Where the template does not carry that text through unchanged, the messages are rendered as they are.
 *
 * ret_spans  zeroed before; md_calls_spans_done whatever happens */
MD_MUST_USE enum md_status md_calls_render(struct md_calls *c, const struct md_text *t,
                                           const struct md_chat_input *in, struct md_buf *ret_prompt,
                                           struct md_calls_spans *ret_spans, struct md_chat_form **ret_form,
                                           struct md_err *err);
/* md_text_tokenize of a rendered prompt, control tokens parsed, with the tokens of the spans as they are. */
MD_MUST_USE enum md_status md_calls_tokenize(const struct md_text *t, struct md_bytes prompt,
                                             const struct md_calls_spans *spans, bool add_special,
                                             struct md_tokens *ret_tokens, struct md_err *err);

/* ---- turns as bytes, for who keeps them with a conversation ----
 *
 * Each turn is a piece of its own, so that one may be appended to others.  The bytes name their own version. */

/* Append one.  A turn of more than MD_CALLS_TURN_BYTES, or without calls, appends nothing.
 * MD_NO_MEMORY, or over the limit of out: out is as before. */
MD_MUST_USE enum md_status md_calls_write_turn(const struct md_calls_turn *turn, struct md_buf *out,
                                               struct md_err *err);
/* Append those that md_calls_render would put in the place of these messages, in their order; where they are more than
 * limit_bytes, the last of them that are not.  MD_NO_MEMORY: out is as before. */
MD_MUST_USE enum md_status md_calls_write(struct md_calls *c, const struct md_chat_message *messages,
                                          size_t count, size_t limit_bytes, struct md_buf *out,
                                          struct md_err *err);
/* Remember what was written, whoever wrote it: of a turn the tokens must be ones of the vocabulary, and spell the text.
 *
 * MD_CORRUPT      they are no turns, or not ones of this vocabulary: the text says what is wrong, and where
 * MD_UNSUPPORTED  of another version
 * MD_NO_MEMORY; nothing is remembered on the first two */
MD_MUST_USE enum md_status md_calls_read(struct md_calls *c, const struct md_text *t, struct md_bytes bytes,
                                         struct md_err *err);

struct md_calls_stats {
    size_t entries, bytes;
};
struct md_calls_stats md_calls_stats(struct md_calls *c);

/* Equal as JSON values: not by order of keys, white space, escapes or the way a number is written.  Texts that are
 * no JSON are equal when their bytes are. */
bool md_json_same(struct md_bytes a, struct md_bytes b);

#endif
