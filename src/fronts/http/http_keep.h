/* http_keep.h - tool calls that outlive the process: the exact turns (text/calls.h) go to the session with each request, to
 * be kept with the conversation, and come back from it. */
#ifndef MD_FRONTS_HTTP_HTTP_KEEP_H
#define MD_FRONTS_HTTP_HTTP_KEEP_H

#include "session/worker.h"
#include "text/calls.h"
#include "text/parser.h"

/* The keeper of an answer that may make calls: it reads the answer a second time, on the worker's thread, and adds its
 * turn to what is kept.  Where none may be made, it is empty.
 *
 * parser  that of the reply, which gives the calls their ids; form is its
 * ret     ret->close(ret->user), unless a job has taken it
 * MD_NO_MEMORY */
MD_MUST_USE enum md_status md_http_keep_open(const struct md_text *text, struct md_chat_form *form,
                                             const struct md_chat_parser *parser, struct md_keeper *ret,
                                             struct md_err *err);

/* The turn of an answer that was read, as struct md_calls_turn wants it.
 *
 * raw    empty, filled
 * calls  room for MD_CALLS_PER_TURN; an answer with more, or without any, gives a turn without calls
 * MD_NO_MEMORY, and what md_text_piece fails with */
MD_MUST_USE enum md_status md_http_keep_turn(const struct md_text *text, const struct md_chat_form *form,
                                             const struct md_chat_parser *parser,
                                             const struct md_tokens *answer, struct md_buf *raw,
                                             struct md_chat_call *calls, struct md_calls_turn *ret,
                                             struct md_err *err);

/* Remember what was kept with a conversation.  What cannot be read is told in the log, and is lost. */
void md_http_keep_take(struct md_calls *calls, const struct md_text *text, int64_t session,
                       struct md_bytes notes);

#endif
