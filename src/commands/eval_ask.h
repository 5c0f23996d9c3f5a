/* eval_ask.h - one haystack, asked about: prefill, questions, what was hot, what was chosen and what was said.
 *
 * The haystack is prefilled once, in a conversation of its own.  Each rotation of the questions (and each question, where every
 * one is asked alone) begins with a branch of that conversation: the same KV, and nothing of what was asked before, neither its
 * text nor what it made hot.  An engine that cannot share KV between conversations goes back in the one it has, whose hot set
 * and whose incumbents (policy/select.h) are then those of the last question.
 *
 * Threads: one at a time. */
#ifndef MD_COMMANDS_EVAL_ASK_H
#define MD_COMMANDS_EVAL_ASK_H

#include "commands/eval.h"
#include "policy/score.h"

/* Ask all questions of a unit.
 *
 * needles, haystack  of the unit; borrowed
 * out                out->items has room for md_eval_item_count; out->count counts those that are filled, also after a failure
 *
 * MD_TOO_LARGE   the questions do not fit behind the haystack
 * MD_NO_MEMORY   also: the cold store had no room for the haystack, whatever the policy, or for the keys of one that scores
 * errors of md_eval_chat_render and of the session */
MD_MUST_USE enum md_status md_eval_ask(struct md_eval_bench *b, const struct md_eval_needle *needles,
                                       const struct md_eval_haystack *haystack, struct md_eval_result *out,
                                       struct md_err *err);

/* The place of the worst block of `spans` in the order in which scores select (policy/select.h: ties go to the lower index),
 * from 1; of blocks that are hot whatever is chosen none counts.  0: none of theirs was to be chosen. */
int32_t md_eval_rank(const struct md_attention_block *blocks, const struct md_scores *scores,
                     const struct md_range *spans, int span_count);

#endif
