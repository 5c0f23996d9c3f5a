/* fake_internal.h - what the files of the fake engine share: cells and timelines (fake.c), the forward pass
 * (fake_pass.c), the tail state (fake_tail.c), what it tells of its attention (fake_attention.c). */
#ifndef MD_ENGINE_FAKE_INTERNAL_H
#define MD_ENGINE_FAKE_INTERNAL_H

#include "engine/engine_ops.h"
#include "engine/fake.h"

enum { MD_FAKE_KV_VERSION = 1 };

/* What stands before exported rows and saved states.  Never on disk as such: it has the byte order of the machine. */
struct md_fake_head {
    uint32_t magic, version;
    int32_t start, end;
    uint32_t row_floats, state_floats;
    uint64_t model; /* fingerprint */
    uint64_t check; /* of what follows */
};

struct md_fake_cell {
    int32_t pos;
    int32_t holders; /* timelines it stands in; 0: free */
};

struct md_fake_entry {
    int32_t cell;
    bool hot; /* false: parked */
};

struct md_fake_timeline {
    struct md_fake_entry *at; /* by ascending position; room for cell_count */
    int32_t count;
};

/* What the layers that are not global keep of one sequence, apart from all cells.  Windows: the rows of [start, end),
 * that of a position at its number modulo the slots; never a gap.  Recurrences: one state, that of `end`. */
struct md_fake_tail {
    int32_t start, end; /* equal: nothing */
    float *rows, *state;
};

enum md_fake_layer_kind { MD_FAKE_GLOBAL, MD_FAKE_WINDOWED, MD_FAKE_RECURRENT };

struct md_fake_layer_at {
    enum md_fake_layer_kind kind;
    size_t at; /* floats before its own in a cell's row, a row of the tail, or the state */
};

struct md_fake {
    struct md_engine base;
    const struct md_alloc *alloc;
    const struct md_fake_model *model;
    struct md_fake_model *own_model; /* NULL: borrowed */
    struct md_fake_layer_at layers[MD_FAKE_LAYERS_MAX];
    size_t row_floats; /* of a cell: of each global layer its keys, then its values */
    float *rows;
    struct md_fake_cell *cells;
    int32_t *free_cells, free_count;
    struct md_fake_timeline *seqs;
    struct md_fake_entry *entries; /* memory of all timelines */

    size_t tail_floats, state_floats; /* of a row of the windowed layers; of the recurrent state */
    int32_t slots;                    /* rows in a tail: a window and what one call may add and take back */
    struct md_fake_tail *tails;       /* one per sequence, and one to put aside */
    float *tail_memory, *undo_state;  /* of all tails; the state before the call that runs */

    /* work memory of the pass */
    float *x, *normed, *q, *kv, *mixed, *gate,
        *up;     /* residual, its norm, queries, keys and values of a recurrent
                                                     * layer, attention output, SwiGLU */
    float *turn; /* cos and sin of each rotary pair */
    float *scores, *logits;
    const float **seen, **near; /* rows of the visible cells; of the window */
};

struct md_fake *md_fake_of(struct md_engine *e);

/* ---- fake.c ---- */

/* Index of the first entry at or behind pos. */
int32_t md_fake_find(const struct md_fake *f, const struct md_fake_timeline *t, int32_t pos);
float *md_fake_row(const struct md_fake *f, int32_t cell);
/* A hot cell for pos at index `at` of the timeline; the caller made sure that one is free. */
int32_t md_fake_add(struct md_fake *f, struct md_fake_timeline *t, int32_t at, int32_t pos);
void md_fake_remove(struct md_fake *f, struct md_fake_timeline *t, struct md_range r);
/* Everything about foreign bytes, before any is used: they are an export of r. */
MD_MUST_USE enum md_status md_fake_check_kv(const struct md_fake *f, struct md_range r, struct md_bytes kv,
                                            struct md_err *err);

/* ---- fake_pass.c ---- */

/* Compute tokens at start, start + 1, ...: at the end of a timeline or in a gap of it, where the tail is that of
 * `start`.  On an error the cells are as before; the tail as well, where count is at most batch_tokens. */
MD_MUST_USE enum md_status md_fake_run(struct md_fake *f, md_seq seq, int32_t start, const md_token *tokens,
                                       int32_t count, struct md_err *err);
/* What follows the token that was run last. */
const float *md_fake_logits(struct md_fake *f);
/* Turn the keys of a row by `distance` positions. */
void md_fake_turn(struct md_fake *f, float *row, int32_t distance);

/* ---- fake_tail.c ---- */

/* The row of pos, which follows the tail's end (or begins it). */
float *md_fake_tail_push(const struct md_fake *f, struct md_fake_tail *t, int32_t pos);
/* Rows of the window of position t->end - 1, oldest first, into f->near; how many. */
int32_t md_fake_tail_near(const struct md_fake *f, const struct md_fake_tail *t);
void md_fake_tail_clear(const struct md_fake *f, struct md_fake_tail *t);
/* Back to `end` from what was pushed since. */
void md_fake_tail_undo(struct md_fake_tail *t, int32_t end);

int32_t md_fake_cut_point(const struct md_engine *e, md_seq seq, int32_t from);
enum md_status md_fake_truncate(struct md_engine *e, md_seq seq, int32_t from, struct md_err *err);
int64_t md_fake_checkpoint_bytes(const struct md_engine *e);
enum md_status md_fake_checkpoint(struct md_engine *e, md_seq seq, struct md_buf *ret_state,
                                  struct md_err *err);
enum md_status md_fake_rewind(struct md_engine *e, md_seq seq, int32_t at, struct md_bytes state,
                              struct md_err *err);
enum md_status md_fake_recompute(struct md_engine *e, md_seq seq, struct md_range r, const md_token *tokens,
                                 struct md_bytes state, struct md_err *err);

/* ---- fake_attention.c ---- */

/* Say what can be had of each layer. */
MD_MUST_USE enum md_status md_fake_attention(struct md_fake *f, struct md_err *err);
/* Keep the queries of a layer, which the pass has just turned, as those of row `row` of the call. */
void md_fake_keep_queries(const struct md_fake *f, int32_t layer, int32_t row);
enum md_status md_fake_keys(const struct md_engine *e, struct md_range r, struct md_bytes kv,
                            const int32_t *layers, int32_t count, uint16_t *ret_keys, struct md_err *err);

#endif
