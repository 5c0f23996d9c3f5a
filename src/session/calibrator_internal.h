/* calibrator_internal.h - what the files of the calibrator share. */
#ifndef MD_SESSION_CALIBRATOR_INTERNAL_H
#define MD_SESSION_CALIBRATOR_INTERNAL_H

#include "session/calibrator.h"
#include "session/drive.h"
#include "session/haystack.h"
#include "session/mirror.h"

enum { CALIBRATOR_STAGES = MD_NEEDLES_KINDS + 1 }; /* the last one is of tokens that repeat */

/* Layers [first, end) of those that can be watched: what is watched at once. */
struct md_calibrator_group {
    int32_t first, end;
};

struct md_calibrator {
    struct md_hot *hot;
    const struct md_text *text;
    struct md_tape tape;
    struct md_drive drive;
    int32_t tokens; /* of a prompt, at most */

    int32_t *layers, layer_count; /* that can be watched */
    size_t *first_measure;        /* of each of them: its first head in `measures` */
    struct md_calibrator_group *groups;
    int32_t group_count;
    struct md_calibrate_measure *measures; /* sums over the items until the end */
    size_t measure_count;
    int items; /* needles asked for so far, in whole stages */

    int stage;     /* kind of haystack; MD_NEEDLES_KINDS: tokens that repeat */
    bool prepared; /* its texts are tokens */
    struct md_haystack haystack;
    int32_t period; /* of tokens that repeat */
    struct md_mirror *mirror;
    int32_t group; /* what is asked next */
    int question;
    int losses; /* how often something of this stage was lost */
    bool done;
    struct md_calibrate_set set;
};

/* The queries of `rows` tokens from the end of the prompt on, over the keys in `keys` of each of the prompt's blocks: add what the heads of
 * the group give to the sums.  Errors of md_engine_queries and md_attention_score. */
MD_MUST_USE enum md_status md_calibrator_measure(struct md_calibrator *c, const uint16_t *const *keys,
                                                 size_t block_count, int32_t rows, struct md_err *err);

#endif
