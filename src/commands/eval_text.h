/* eval_text.h - text to hide needles in, made from a seed, and the chance that everything of `modeld eval` is drawn by.
 *
 * Prose, code, a chat log or pairs of keys and values: ordinary words in ordinary sentences, so that a model meets nothing
 * strange but the needle.  No sentence, function name or key comes twice.  The text of a seed is the same on every machine, and
 * what is asked for with fewer bytes is the beginning of what is asked for with more.
 *
 * Pure.  Threads: any; touches nothing but its arguments. */
#ifndef MD_COMMANDS_EVAL_TEXT_H
#define MD_COMMANDS_EVAL_TEXT_H

#include "base/err.h"
#include "base/mem.h"

#include <stdint.h>

/* SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014): any state is a good start. */
struct md_eval_rng {
    uint64_t state;
};
/* Of a seed and two numbers that say what for: streams that have nothing to do with each other. */
struct md_eval_rng md_eval_rng(uint64_t seed, uint64_t what, uint64_t which);
uint64_t md_eval_next(struct md_eval_rng *r);
/* 0 .. n - 1; n is 1 or more. */
uint32_t md_eval_below(struct md_eval_rng *r, uint32_t n);

/* 64 bits of bytes (FNV-1a): for sets and for tests, not against anybody who wants them equal. */
uint64_t md_eval_hash(struct md_bytes text);

enum md_eval_text { MD_EVAL_PROSE, MD_EVAL_CODE, MD_EVAL_CHAT, MD_EVAL_PAIRS, MD_EVAL_TEXT_COUNT };
const char *md_eval_text_name(enum md_eval_text kind); /* "prose", "code", "chat", "pairs" */

/* A key of a pair, "onyx-elder-879565", and a value, 10000 .. 99999: those that are hidden are drawn as the others. */
enum { MD_EVAL_KEY_BYTES = 32 };
void md_eval_pair_key(struct md_eval_rng *r, char out[MD_EVAL_KEY_BYTES]);
uint32_t md_eval_pair_value(struct md_eval_rng *r);

enum { MD_EVAL_TEXT_BYTES_MAX = 16 << 20 }; /* many fewer sentences than there are */

/* Append whole pieces of text (a paragraph, a function, a line) to out until it has at least `least_bytes` more.
 *
 * Paragraphs and functions end with an empty line, lines of a chat log and pairs with the end of the line.
 * MD_INVALID    more than MD_EVAL_TEXT_BYTES_MAX
 * MD_NO_MEMORY  also: out's limit.  What was appended until then stays */
MD_MUST_USE enum md_status md_eval_text_write(enum md_eval_text kind, uint64_t seed, size_t least_bytes,
                                              struct md_buf *out, struct md_err *err);

#endif
