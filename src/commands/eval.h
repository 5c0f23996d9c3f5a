/* eval.h - `modeld eval`: questions about a long text under a hot budget; what is asked, in what order, and what came of it.
 *
 * A *unit* is one haystack under one policy: it is prefilled once, in a conversation of its own, and all its questions follow.
 * An *item* is one needle that is asked for.  A *cell* is what reports count together: the items of one policy, length, depth and order.
 * Units do not depend on one another, so that a run that was ended goes on with the units that are missing.
 *
 * eval.c reads the flags, eval_run.c opens and plants, eval_ask.c asks, eval_count.c counts, eval_report.c prints, eval_map.c
 * draws, eval_resume.c remembers.
 *
 * Threads: one at a time. */
#ifndef MD_COMMANDS_EVAL_H
#define MD_COMMANDS_EVAL_H

#include "commands/eval_haystack.h"
#include "commands/stack.h"

#include <stdio.h>

enum { MD_EVAL_LENGTHS_MAX = 16, MD_EVAL_DEPTHS_MAX = 101, MD_EVAL_POLICIES_MAX = 8 };
enum { MD_EVAL_ANSWER_TOKENS = 32 }; /* enough for a value, or a sentence with one */

/* What decides which blocks are hot. */
struct md_eval_policy {
    const char *name;
    bool all_hot;      /* the hot set is the window: --hot does not count */
    unsigned caps;     /* what the engine must claim: bits of enum md_cap */
    const char *needs; /* the same in words */
    bool
        by_place; /* sinks and the newest blocks, whatever is asked: so they can also be evicted afterwards */
    bool retrieves;
    /* Sets fields of the pool's configuration that sizes and flags have filled. */
    void (*configure)(struct md_pool_config *config);
    void (*configure_dump)(
        struct md_pool_config *config); /* the same for --dump; NULL: it does not retrieve */
};
extern const struct md_eval_policy md_eval_policies[]; /* ended by one without a name */

/* How several questions about one haystack are asked. */
enum md_eval_asking {
    MD_EVAL_TURNS,    /* one after the other: the next one's context has this one and its answer */
    MD_EVAL_ALONE,    /* each behind the haystack and nothing else */
    MD_EVAL_TOGETHER, /* all in one message, answered at once */
    MD_EVAL_ASKING_COUNT
};
const char *md_eval_asking_name(enum md_eval_asking how); /* "turns", "alone", "together" */

/* What is asked for. */
struct md_eval_settings {
    enum md_eval_task task;
    enum md_eval_asking asking;
    bool near_duplicates, all_orders, dense_prefill;
    int needles, trials;
    const struct md_eval_policy *policies[MD_EVAL_POLICIES_MAX];
    int policy_count;
    int32_t lengths[MD_EVAL_LENGTHS_MAX]; /* tokens */
    int length_count;
    int depths
        [MD_EVAL_DEPTHS_MAX]; /* percent; one MD_EVAL_SPREAD, where there are several needles or a chain */
    int depth_count;
    int32_t hot_tokens; /* 0: only policies that are all hot */
    uint64_t seed;
    enum md_eval_text text;
    const char *file;         /* --haystack FILE; NULL: `text` is written */
    struct md_bytes contents; /* of that file; the caller's */
};

struct md_eval_unit {
    int policy, length, depth; /* indices into the settings */
    int trial;                 /* 0 .. trials - 1 */
};

struct md_eval_item {
    int order, turn, needle;  /* which rotation of the questions, which place in it, what it asks for */
    int depth;                /* of the needle, percent, or MD_EVAL_SPREAD */
    bool recalled;            /* every token of the needle, of each part, was hot when the answer began */
    bool found;               /* md_eval_found */
    int32_t prompt, attended; /* tokens: md_result */
    struct md_range spans[MD_EVAL_PARTS_MAX]; /* of the needle, in the prompt */
    int part_count;
    /* Of what chose (session/retrieve.h), where something did: tokens of the question, evaluations of it, heads
     * that gave anything; evaluations 0: nothing was chosen by attention. */
    int32_t question, evaluations, heads_used;
    int32_t first_rank, rank;    /* md_eval_rank, of the first scoring and of the last; 0: none */
    double seconds;              /* its own, and an equal share of the unit's prefill */
    char value[32], answer[256]; /* what was to be found; what was said, its beginning */
    /* Each block that ends in the haystack, when the answer began: MD_EVAL_COLD_BLOCK, ...; with a NUL behind it, its own.  NULL: none */
    char *blocks;
};

/* chosen: attention to the question chose it */
enum { MD_EVAL_COLD_BLOCK = '.', MD_EVAL_HOT_BLOCK = 'h', MD_EVAL_CHOSEN_BLOCK = 'c' };

struct md_eval_result {
    struct md_eval_unit unit;
    struct md_eval_item *items; /* the caller's to free with md_eval_result_done */
    int count;
};
void md_eval_result_done(struct md_eval_result *r);

/* ---- the order of things ---- */

int md_eval_unit_count(const struct md_eval_settings *s);
/* Policies first, then lengths, trials, depths. */
struct md_eval_unit md_eval_unit_at(const struct md_eval_settings *s, int i);
/* Items of a unit: as many as needles, or their square in all orders. */
int md_eval_item_count(const struct md_eval_settings *s);
/* What is asked as number `turn` of rotation `order`. */
int md_eval_asked(const struct md_eval_settings *s, int order, int turn);

/* ---- eval_run.c ---- */

struct md_eval_dump; /* eval_dump.h */

/* One policy, open. */
struct md_eval_bench {
    const struct md_eval_settings *settings;
    struct md_stack stack;
    int policy;         /* of settings->policies; -1: none is open */
    int filler_trial;   /* whose text `filler` is; -1: none */
    struct md_buf text; /* the same as bytes, when it was written */
    struct md_eval_filler filler;
    struct md_eval_dump *dump; /* borrowed; NULL: none */
};

/* Before a model is read: do the flags suit all policies?
 *
 * MD_TOO_LARGE  the window that the longest haystack and its questions need is more than the model was trained for
 * others        of md_stack_check */
MD_MUST_USE enum md_status md_eval_check(const struct md_options *o, const struct md_backend *backends,
                                         const struct md_eval_settings *settings, struct md_err *err);
/* Open the model for one policy, its window as large as the longest haystack and its questions need.
 *
 * dump  borrowed, NULL: none; only for a policy that retrieves.  With it all heads that can be are scored
 * MD_UNSUPPORTED  the engine does not claim what the policy needs: before any work
 * MD_TOO_LARGE    that window is more than the model was trained for; errors of md_stack_open */
MD_MUST_USE enum md_status md_eval_open(const struct md_options *o, const struct md_backend *backends,
                                        const struct md_eval_settings *settings, int policy,
                                        struct md_eval_dump *dump, struct md_eval_bench *ret,
                                        struct md_err *err);
void md_eval_close(struct md_eval_bench *b); /* accepts a zeroed one */
/* Make a haystack of each length and ask nothing, so that what does not fit is told before the work.  MD_INVALID, MD_TOO_LARGE
 * and others as md_eval_run */
MD_MUST_USE enum md_status md_eval_rehearse(struct md_eval_bench *b, struct md_err *err);
/* MD_INVALID as md_eval_needles and md_eval_haystack_build; MD_TOO_LARGE: the questions do not fit behind the haystack;
 * others of the session */
MD_MUST_USE enum md_status md_eval_run(struct md_eval_bench *b, struct md_eval_unit unit,
                                       struct md_eval_result *ret, struct md_err *err);

/* ---- eval_resume.c: units that are done, one JSON object a line ---- */

struct md_eval_resume {
    int fd; /* -1: nothing is remembered */
    char path[4096];
    struct md_eval_result *done;
    size_t count, cap;
};
/* Read the file, or begin it.  Its first line says what was asked of which model; a line that was cut when the process was
 * killed is cut off.
 *
 * path         NULL: nothing is remembered
 * flags        all of `eval` that an answer may depend on
 * engine       whose identity and version stand in the first line
 * heads        text of those that score (md_pool_print_heads), a digest of which does; empty: nothing is scored
 * MD_INVALID   of other settings, another model, other heads or another build of this program, or no such file at all: it is left as it is
 * MD_BUSY      another process writes it;  MD_IO, MD_NO_MEMORY */
MD_MUST_USE enum md_status md_eval_resume_open(const char *path, const struct md_eval_settings *s,
                                               const struct md_options *flags,
                                               const struct md_engine_info *engine, struct md_bytes heads,
                                               struct md_eval_resume *ret, struct md_err *err);
void md_eval_resume_close(struct md_eval_resume *r);
/* The result of that unit, the file's; NULL: it is not there. */
const struct md_eval_result *md_eval_resume_find(const struct md_eval_resume *r,
                                                 const struct md_eval_unit *unit);
/* Write one more: it outlives the process when this returns.  MD_IO, MD_NO_MEMORY */
MD_MUST_USE enum md_status md_eval_resume_add(struct md_eval_resume *r, const struct md_eval_settings *s,
                                              const struct md_eval_result *result, struct md_err *err);

/* ---- eval_count.c ---- */

enum { MD_EVAL_ANY = -2 }; /* of a cell's depth and order: all of them together */
struct md_eval_cell {
    int policy, length; /* indices */
    int depth;          /* percent, MD_EVAL_SPREAD or MD_EVAL_ANY */
    int order;          /* or MD_EVAL_ANY */
    int recalled, found, total;
    double seconds;
};
/* All items of that policy, length, depth and order; total 0: there are none. */
struct md_eval_cell md_eval_count(const struct md_eval_result *results, size_t count, int policy, int length,
                                  int depth, int order);
/* The same items' ranks, of those that have one; count 0: none has. */
struct md_eval_ranks {
    int count;
    double mean;
    int32_t p90; /* the least rank that nine tenths of them do not exceed */
};
struct md_eval_ranks md_eval_rank_count(const struct md_eval_result *results, size_t count,
                                        const struct md_eval_cell *cell, bool first);
/* Of one policy and length, asked in several orders: does the order matter?
 *
 * pairs       of rotations in which the same needle of a haystack was asked for
 * jaccard     of the sets of blocks that were chosen for it in both, or, where attention chose nothing in either, that were hot:
 *             |both| / |one or the other|, 1 where both are empty; the mean of all pairs, and the least
 * found_*     the least and the largest share of exact answers of an order, and the same of recall */
struct md_eval_rotations {
    int orders, pairs;
    double jaccard_mean, jaccard_least;
    double found_least, found_most, recall_least, recall_most;
};
struct md_eval_rotations md_eval_rotation_count(const struct md_eval_result *results, size_t count,
                                                int policy, int length, int orders);
/* The depths that occur, ascending, MD_EVAL_SPREAD alone or not at all; returns how many, at most MD_EVAL_DEPTHS_MAX. */
int md_eval_depths(const struct md_eval_result *results, size_t count, int out[MD_EVAL_DEPTHS_MAX]);

/* ---- eval_report.c, eval_map.c ---- */

void md_eval_print_table(const struct md_eval_settings *s, const struct md_engine_info *engine,
                         const struct md_eval_result *results, size_t count);
/* One object a line.  MD_IO, MD_NO_MEMORY */
MD_MUST_USE enum md_status md_eval_print_json(const struct md_eval_settings *s,
                                              const struct md_engine_info *engine,
                                              const struct md_eval_result *results, size_t count,
                                              struct md_err *err);

/* A picture of depth and length for each policy, all orders together: the number and the shade are exact answers, the frame
 * is drawn where every needle was hot.  SVG 1.1 without script, font or link.  MD_IO, MD_NO_MEMORY */
MD_MUST_USE enum md_status md_eval_map_write(FILE *f, const struct md_eval_settings *s,
                                             const struct md_engine_info *engine,
                                             const struct md_eval_result *results, size_t count,
                                             struct md_err *err);

#endif
