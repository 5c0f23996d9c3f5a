/* fallback.h - tool calls in a text whose form is not known: <tool_call>{json}</tool_call>, as many models write them.
 *
 * Threads: any. */
#ifndef MD_TEXT_FALLBACK_H
#define MD_TEXT_FALLBACK_H

#include "text/form.h"

/* The calls, and what is around them as content.  A tag whose inside is no call is content.  The name is function.name, name or tool_name, the arguments function.arguments, function.parameters,
 * arguments or parameters: a string as it stands, else JSON; null and nothing are {}.
 *
 * ret is zeroed; the caller frees its arena whatever happens.  MD_NO_MEMORY.
 * Source: the daemon this one stays compatible with. */
MD_MUST_USE enum md_status md_chat_fallback(struct md_bytes text, struct md_chat_parsed *ret,
                                            struct md_err *err);

#endif
