/* engine_map.h - what each position of each sequence is, and in which cell: the memory of engine.c, for it alone.
 *
 * It takes memory for the positions from the first to the last one that is there, not for those before: a sequence at
 * position 200,000 that holds the last 2,000 tokens costs as much as one at 2,000.
 *
 * Cells have numbers of our own: which of them positions share is all that matters here, not where an adapter
 * keeps them.  Beside its positions a sequence has one mark: whether it holds the tail state of its end. */
#ifndef MD_ENGINE_ENGINE_MAP_H
#define MD_ENGINE_ENGINE_MAP_H

#include "engine/engine_ops.h"

enum md_pos_state { MD_POS_ABSENT, MD_POS_HOT, MD_POS_PARKED };

struct md_place {
    int32_t cell; /* number of its cell, unless absent */
    enum md_pos_state state;
};

struct md_seq_map {
    struct md_place *at; /* positions [from, from + cap) */
    size_t cap;
    int32_t from;   /* all before it are absent */
    int32_t end;    /* last position that is not absent, + 1 */
    bool lost_tail; /* not ready; never set when end is 0 */
};

struct md_engine_map {
    int32_t *holders;                /* of each cell: how many sequences hold it */
    int32_t *free_cells, free_count; /* numbers that nobody holds */
    int32_t seq_count;
    struct md_seq_map seqs[];
};

/* MD_NO_MEMORY: what is made so far is md_map_close's. */
MD_MUST_USE enum md_status md_map_open(struct md_engine *e, struct md_err *err);
void md_map_close(struct md_engine_map *map); /* accepts NULL */

struct md_seq_map *md_map_of(const struct md_engine *e, md_seq seq); /* NULL: there is no such sequence */
/* Positions outside the array are absent. */
enum md_pos_state md_map_state(const struct md_seq_map *m, int32_t pos);
bool md_map_all(const struct md_seq_map *m, struct md_range r, enum md_pos_state state);
/* Memory for the positions of r, so that setting cannot fail. */
MD_MUST_USE enum md_status md_map_reserve(struct md_seq_map *m, struct md_range r, struct md_err *err);
/* The only two that change positions. */
void md_map_set(struct md_engine *e, struct md_seq_map *m, struct md_range r, enum md_pos_state state);
void md_map_share(struct md_engine *e, const struct md_seq_map *from, struct md_seq_map *to,
                  struct md_range r);

#endif
