/* calibrate.h - which query heads find things.  Pure: no engine, clock, lock or I/O.
 *
 * Someone runs needles through a model and measures, for each head, what its question rows give to the text that
 * answers (gold), to the same text when a null question is asked, and to a near-duplicate of it.  A head is worth
 *
 *     gold - null - near
 *
 * and the best are kept.  Where nothing was measured with text, copying heads serve: what they gave, in random
 * tokens that repeat, to the same token before (echo) or to the one behind it (induction).  Where nothing was
 * measured at all, heads are spread over the layers from 30 to 75 % of the depth.  Which of the three was used is
 * in the result; none follows another by itself.
 *
 * Threads: any; touches nothing but its arguments.
 * Sources: gold less null, 16 heads: 2506.09944 (QRHead); less distractor: 2510.02219 (CoRe); echo and induction:
 * 2407.15891 (RazorAttention); the band: the lists of princeton-pli/QRHead configs and nightdessert/Retrieval_Head
 * head_score.  The prior's weight is this project's. */
#ifndef MD_POLICY_CALIBRATE_H
#define MD_POLICY_CALIBRATE_H

#include "base/err.h"
#include "base/mem.h"
#include "base/sha256.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MD_CALIBRATE_HEADS_MOST = 512,   /* of a chosen set */
    MD_CALIBRATE_LAYERS_MOST = 1024, /* of a model */
    MD_CALIBRATE_WIDTH_MOST = 1024,  /* query heads of a layer */
    MD_CALIBRATE_TEXT_BYTES = 16384, /* of a set as text */
};

enum md_calibrate_source { MD_CALIBRATE_CONTRAST, MD_CALIBRATE_COPY, MD_CALIBRATE_BAND };
const char *md_calibrate_source_name(enum md_calibrate_source source); /* "contrast", "copy", "band" */

/* One head; means over the items, of masses of one question row: 0..1. */
struct md_calibrate_measure {
    int32_t layer, head;    /* head: within its layer */
    float gold, null, near; /* for CONTRAST; near 0 where there were no near-duplicates */
    float echo, induction;  /* for COPY */
};

struct md_calibrate_params {
    enum md_calibrate_source source;
    size_t heads;               /* wanted; 16, and 32 for large models */
    float band_start, band_end; /* of the depth: layers l with start <= l / layers < end */
    float outside_frac;         /* what a measured head outside the band counts: 1 no prior, 0 never taken */
};

/* CONTRAST, 16, 0.30, 0.75, 0.5 */
struct md_calibrate_params md_calibrate_defaults(void);

struct md_calibrate_head {
    int32_t layer, head;
    float score; /* 0 in a set by band */
};

struct md_calibrate_set {
    enum md_calibrate_source source;
    size_t count;
    struct md_calibrate_head heads[MD_CALIBRATE_HEADS_MOST]; /* by layer, then head */
};

/* gold - null - near, or the larger one of echo and induction; times outside_frac where that applies and it is above 0. */
float md_calibrate_score(const struct md_calibrate_measure *m, int32_t layers,
                         const struct md_calibrate_params *params);

/* Choose.
 *
 * measures  each head of the model that can be captured, once, in any order; by BAND only layer and head are read
 * layers    of the model
 *
 * Only heads with a score above 0 are taken, so there may be fewer than wanted.  Ties go to the lower layer, then
 * head.
 *
 * MD_INVALID    a parameter is outside its range; layer or head is, or stands there twice; a measure is no finite
 *               number
 * MD_NOT_FOUND  no head scores above 0, or none is in the band: choose another source
 * MD_NO_MEMORY  the arena is full: 12 bytes a measure
 * State: ret_set untouched on failure. */
MD_MUST_USE enum md_status md_calibrate_choose(const struct md_calibrate_measure *measures, size_t count,
                                               int32_t layers, const struct md_calibrate_params *params,
                                               struct md_arena *arena, struct md_calibrate_set *ret_set,
                                               struct md_err *err);

/* ---- as text, to be kept beside a model ---- */

/* What a set was made for; a set for anything else is of no use. */
struct md_calibrate_key {
    char model[MD_SHA256_HEX + 1]; /* digest of what names the model's file by its bytes, lower-case hex */
    uint32_t calibration;          /* version of the haystacks and questions */
};

/* Lines, each ended by \n:
 *
 *     modeld heads 1
 *     model DIGEST
 *     calibration N
 *     source contrast|copy|band
 *     heads N
 *     LAYER HEAD SCORE      N times, ascending; SCORE: the 8 hex digits of its f32, so that nothing is rounded
 *     end
 *
 * MD_NO_MEMORY  the buffer's limit: some of it may have been appended.  MD_INVALID: the digest is not one */
MD_MUST_USE enum md_status md_calibrate_print(const struct md_calibrate_set *set,
                                              const struct md_calibrate_key *key, struct md_buf *buf,
                                              struct md_err *err);

/* Read what md_calibrate_print wrote; the text need not end in NUL, and nobody is trusted.
 *
 * MD_CORRUPT      it is longer than MD_CALIBRATE_TEXT_BYTES, or not of this form to the byte (the text names the
 *                 line)
 * MD_UNSUPPORTED  another version of the form
 * MD_NOT_FOUND    it was made for another model or calibration
 * State: ret_set undefined on failure. */
MD_MUST_USE enum md_status md_calibrate_parse(struct md_bytes text, const struct md_calibrate_key *key,
                                              struct md_calibrate_set *ret_set, struct md_err *err);

#endif
