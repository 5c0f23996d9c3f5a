/* parser.h - an answer as it comes: content, reasoning and tool calls as deltas.
 *
 * Text goes in as the session gives it out.  Content that cannot be anything else comes out at once; where a tool
 * call or a thought may have begun, the form takes the whole text apart again, and what is new comes out.  That costs
 * time in the length of the text each time, so all of it together is bounded: the form reads at most
 * MD_PARSER_TIMES bytes for each byte of the answer, and MD_PARSER_FREE_BYTES once.
 *
 * Nothing is swallowed: a whole text that the form does not know is looked through for
 * <tool_call>{json}</tool_call> where tools were offered, and what remains is content.  Deltas only ever add; joined
 * they are what md_chat_parser_content and its like give at the end.
 *
 * Threads: one at a time, any. */
#ifndef MD_TEXT_PARSER_H
#define MD_TEXT_PARSER_H

#include "text/form.h"

struct md_chat_parser;

enum { MD_PARSER_TIMES = 32, MD_PARSER_FREE_BYTES = 256 << 10, MD_PARSER_BYTES_MAX = 64 << 20 };

enum md_delta_kind { MD_DELTA_CONTENT, MD_DELTA_REASONING, MD_DELTA_CALL, MD_DELTA_ARGUMENTS };
struct md_chat_delta {
    enum md_delta_kind kind;
    size_t index;             /* of the call */
    struct md_bytes id, name; /* MD_DELTA_CALL: once for each call, before its arguments */
    struct md_bytes text;     /* the others: never empty */
};
/* Anything but MD_OK ends the push and is what it returns. */
typedef enum md_status md_chat_delta_fn(void *user, const struct md_chat_delta *delta, struct md_err *err);

/* form may be NULL: all is content.  It takes a reference of its own. */
MD_MUST_USE enum md_status md_chat_parser_open(struct md_chat_form *form, md_chat_delta_fn *on_delta,
                                               void *user, struct md_chat_parser **ret_parser,
                                               struct md_err *err);
/* More of the text, whole characters.  MD_NO_MEMORY: the answer must be given up. */
MD_MUST_USE enum md_status md_chat_parser_push(struct md_chat_parser *p, struct md_bytes text,
                                               struct md_err *err);
/* The text is whole: what was held back comes out.  Once. */
MD_MUST_USE enum md_status md_chat_parser_finish(struct md_chat_parser *p, struct md_err *err);
/* What has come out so far; borrowed until the next call. */
struct md_bytes md_chat_parser_content(const struct md_chat_parser *p);
struct md_bytes md_chat_parser_reasoning(const struct md_chat_parser *p);
size_t md_chat_parser_call_count(const struct md_chat_parser *p);
struct md_chat_call md_chat_parser_call(const struct md_chat_parser *p, size_t index);
/* Bytes that the form was given to read so far, for tests. */
size_t md_chat_parser_read_bytes(const struct md_chat_parser *p);
void md_chat_parser_close(struct md_chat_parser *p); /* accepts NULL */

/* Names for tool calls that no others have, "call_" and 24 hexadecimal digits: those of one answer are counted on from
 * the first, so that who reads an answer twice gives the same. */
enum { MD_CALL_ID_BYTES = 30, MD_CALL_SEED_BYTES = 12 };
struct md_call_ids {
    unsigned char seed[MD_CALL_SEED_BYTES];
};
struct md_call_ids md_call_ids_new(void);
void md_call_ids_name(const struct md_call_ids *ids, size_t index, char id[MD_CALL_ID_BYTES]);
/* Those of a parser; and let another one give the same, before its first text. */
struct md_call_ids md_chat_parser_ids(const struct md_chat_parser *p);
void md_chat_parser_set_ids(struct md_chat_parser *p, struct md_call_ids ids);

#endif
