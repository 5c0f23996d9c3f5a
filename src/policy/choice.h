/* choice.h - which engine does a model's work sooner on this machine.  Pure: speeds in, a number out.
 *
 * The work is a window filled once: one token in eight is written by the model, the others are read.  That is how a
 * conversation with documents looks; where little is read again it leans towards fast decoding.
 *
 * Threads: any; touches nothing but its arguments. */
#ifndef MD_POLICY_CHOICE_H
#define MD_POLICY_CHOICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct md_choice_speed {
    double prefill, decode; /* tokens a second; 0: not measured */
};

struct md_choice_engine {
    bool usable; /* it takes the model, the options and the window */
    struct md_choice_speed speed;
};

enum md_choice_why {
    MD_CHOICE_NONE,       /* no engine is usable: the first one will say why it is not     */
    MD_CHOICE_ONLY,       /* no other one is usable                                        */
    MD_CHOICE_UNMEASURED, /* speeds are missing: the first usable one                      */
    MD_CHOICE_FASTER,     /* by more than MD_CHOICE_MARGIN_PERCENT                         */
    MD_CHOICE_EVEN,       /* no other one is faster by that much than the first usable one */
};

enum { MD_CHOICE_WRITTEN_ONE_IN = 8, MD_CHOICE_MARGIN_PERCENT = 5 };

/* Seconds for a window; 0: not known. */
double md_choice_seconds(struct md_choice_speed speed, int32_t window_tokens);

/* The index of the one to take: the soonest, but the first usable one unless another is sooner by more than the margin,
 * because two measurements of the same thing differ by less.
 *
 * count  1 or more; the first one is what people get who ask for nothing */
size_t md_choice_resolve(const struct md_choice_engine *engines, size_t count, enum md_choice_why *ret_why);

#endif
