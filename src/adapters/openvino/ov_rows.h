/* ov_rows.h - in which row of the KV cache each position of each sequence lies, and which blocks a step attends to.
 *
 * A step can only attend to whole blocks, the last one up to a row; a sequence can have anything: pieces, rows that
 * it shares with others, rows that are parked.  So nothing is moved when ranges come, go or change hands, and before
 * a step the rows it attends to are brought together (arrange): those that lie among strange ones change places with
 * these.  Positions are turned into the keys, so the order of rows makes no difference, but for layers with a window:
 * these see the last so many rows, so that the positions of a window stand last and in order.  Where whole blocks come
 * and go, as sessions do it, nothing has to be moved at all.
 *
 * Always: a row is held by as many sequences as have an entry for it, all at the same position; there is one block
 * more than cells, which is what arranging needs.
 *
 * Threads: as engine.h. */
#ifndef MD_ADAPTERS_OPENVINO_OV_ROWS_H
#define MD_ADAPTERS_OPENVINO_OV_ROWS_H

#include "base/err.h"
#include "base/mem.h"
#include "base/types.h"

struct md_ov_entry {
    int32_t pos, row;
    bool hot; /* not parked */
};

struct md_ov_seq {
    struct md_ov_entry *at; /* ascending positions */
    size_t count, cap;
};

/* How the bytes follow. */
struct md_ov_mover {
    void (*move)(void *user, int32_t from, int32_t to); /* what was in `to` is of no use */
    void (*swap)(void *user, int32_t a, int32_t b);
    void *user;
};

struct md_ov_rows {
    int32_t block_rows, block_count, seq_count;
    int32_t
        window; /* positions that a token sees in windowed layers, itself included; 0: there are none.  Set after
                       init */
    struct md_ov_seq *seqs;
    int32_t *holders; /* of each row: sequences that have it; 0: free */
    int32_t *pos;     /* of each row that is held */
    int32_t *used;    /* of each block: rows held */
    struct md_ov_mover mover;

    /* the plan of the last arrange */
    int32_t *table;
    int32_t table_count, past;

    /* work memory of arrange */
    bool *mine;                         /* of each row */
    int32_t *mine_in, *place_of, *wait; /* of each block, of each block, rows */
};

/* cells  that all sequences together may hold; a multiple of block_rows
 * MD_NO_MEMORY: nothing is left of it */
MD_MUST_USE enum md_status md_ov_rows_init(struct md_ov_rows *r, int32_t cells, int32_t block_rows,
                                           int32_t seq_count, struct md_ov_mover mover, struct md_err *err);
void md_ov_rows_done(struct md_ov_rows *r); /* accepts a zeroed struct */

/* The entry of the first position at or behind pos; as many as there are follow it. */
const struct md_ov_entry *md_ov_rows_from(const struct md_ov_rows *r, int32_t seq, int32_t pos);

/* Free rows for the absent positions of `range`, hot.  The caller knows that there are as many.
 * MD_NO_MEMORY: the heap; nothing changed */
MD_MUST_USE enum md_status md_ov_rows_insert(struct md_ov_rows *r, int32_t seq, struct md_range range,
                                             struct md_err *err);
/* Let go of what the sequence has of `range`. */
void md_ov_rows_remove(struct md_ov_rows *r, int32_t seq, struct md_range range);
void md_ov_rows_set_hot(struct md_ov_rows *r, int32_t seq, struct md_range range, bool hot);
/* `to` holds what `from` has of `range` as well.  MD_NO_MEMORY: the heap; nothing changed */
MD_MUST_USE enum md_status md_ov_rows_share(struct md_ov_rows *r, int32_t from, int32_t to,
                                            struct md_range range, struct md_err *err);

/* Of `count` tokens at start, start + 1, ...: how many one step can compute, at least 1, and how many rows each of them
 * sees in windowed layers, itself included.  A step has one such number; where a window has holes it changes from token
 * to token, because what leaves the window was absent, so that there a step may be short. */
int32_t md_ov_rows_step(const struct md_ov_rows *r, int32_t seq, int32_t start, int32_t count,
                        int32_t *ret_window_rows);

/* Make the hot rows of seq before position `limit` stand together at the front of r->table (r->past of them), with
 * room for `count` more behind; those in the window of `limit` last and in order.  Moves rows; what each sequence holds stays the same.
 * MD_NO_MEMORY: the heap; nothing changed.  From here to the matching adopt no other call may come. */
MD_MUST_USE enum md_status md_ov_rows_arrange(struct md_ov_rows *r, int32_t seq, int32_t limit, int32_t count,
                                              struct md_err *err);
/* The rows behind past, which a step has filled, are positions start, start + 1, ... of seq, hot. */
void md_ov_rows_adopt(struct md_ov_rows *r, int32_t seq, int32_t start, int32_t count);

/* Asserts what always holds, for tests. */
void md_ov_rows_check(const struct md_ov_rows *r);

#endif
