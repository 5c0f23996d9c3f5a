/* eval_tasks.h - what `modeld eval` hides and asks: needles, their questions, their values; and what counts as found.
 *
 *   needle  a sentence, "The password of the build server is heron-4417."; several are about different things, or, when they
 *           are near-duplicates, are the same sentence but for one word, their key, and the value
 *   keys    a line "KEY: VALUE" among others of the same form
 *   vt      a chain of assignments, VAR A = 48213, VAR B = VAR A, ...; the last one's value is asked for
 *   code    a constant in source code; the question says what it is for, in words that the code does not have
 *
 * Pure.  Threads: any; touches nothing but its arguments. */
#ifndef MD_COMMANDS_EVAL_TASKS_H
#define MD_COMMANDS_EVAL_TASKS_H

#include "base/err.h"
#include "base/mem.h"
#include "commands/eval_text.h"

#include <stdbool.h>
#include <stdint.h>

enum md_eval_task { MD_EVAL_NEEDLE, MD_EVAL_KEYS, MD_EVAL_VT, MD_EVAL_CODE_NEEDLE, MD_EVAL_TASK_COUNT };
const char *md_eval_task_name(enum md_eval_task task);       /* "needle", "keys", "vt", "code" */
enum md_eval_text md_eval_task_text(enum md_eval_task task); /* what it is hidden in by default */
enum { MD_EVAL_PARTS_MAX = 4, MD_EVAL_NEEDLES_MAX = 64, MD_EVAL_SPREAD = -1 };
/* Most needles of one case: as many as there are different ones. */
int md_eval_task_most(enum md_eval_task task, bool near_duplicates);

/* A needle: one line of text, or as many as a chain has, first link first. */
struct md_eval_needle {
    const char *parts[MD_EVAL_PARTS_MAX]; /* without the end of the line */
    double depths[MD_EVAL_PARTS_MAX];     /* of each, 0 .. 1 of the text that is not needles */
    int part_count;
    int depth;       /* of the needle, percent, for reports; MD_EVAL_SPREAD: a chain, which is everywhere */
    const char *key; /* what tells it from its like, as it stands in its last part */
    const char *value, *question;
};

struct md_eval_spec {
    enum md_eval_task task;
    bool near_duplicates; /* of MD_EVAL_NEEDLE */
    int count;            /* 1 .. md_eval_task_most */
    int depth;            /* percent, of a single needle; MD_EVAL_SPREAD: needle i of n at (i + 1/2) / n */
    uint64_t seed;
};

/* Make spec->count needles.  The same spec and text give the same needles; depth changes nothing but where they stand.
 *
 * hay          the text they will stand in: no value and no key of a pair or a chain occurs in it
 * arena        owns the strings
 * ret_needles  spec->count of them
 * MD_INVALID   the text has the values of all words that were tried;  MD_NO_MEMORY */
MD_MUST_USE enum md_status md_eval_needles(const struct md_eval_spec *spec, struct md_bytes hay,
                                           struct md_arena *arena, struct md_eval_needle *ret_needles,
                                           struct md_err *err);

/* Is the value in the answer?  Upper and lower case are one, as any white space between words is; it must stand alone: no
 * letter or digit touches it.  What else the answer says does not matter. */
bool md_eval_found(struct md_bytes answer, const char *value);

/* Wilson's 95 % interval of a share of k in n: (p + z^2/2n -+ z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n), z = 1.959964.
 * 0 .. 1 when n is 0.  Source: E. B. Wilson, J. Am. Stat. Assoc. 22 (1927) 209. */
struct md_eval_interval {
    double low, high;
};
struct md_eval_interval md_eval_wilson(int found, int total);

#endif
