/* worker_view.c - see worker_view.h. */
#include "session/worker_view.h"

#include <stdlib.h>
#include <string.h>

void md_explain_done(struct md_explain *e)
{
    free(e->blocks);
    free(e->segments);
    *e = (struct md_explain){ 0 };
}

void md_views_done(struct md_views *v)
{
    for (size_t i = 0; i < v->count; i++)
        md_explain_done(&v->items[i]);
    free(v->items);
    *v = (struct md_views){ 0 };
}

/* Room for what the counts of `e` say; false: no memory, and it is empty. */
static bool take_room(struct md_explain *e)
{
    e->blocks = malloc((e->block_count + 1) * sizeof *e->blocks);
    e->segments = malloc((e->segment_count + 1) * sizeof *e->segments);
    if (e->blocks != NULL && e->segments != NULL)
        return true;
    md_explain_done(e);
    return false;
}

/* Fill a view anew; false: no memory, and it is as before. */
static bool fill(struct md_explain *e, const struct md_session *s)
{
    struct md_explain fresh = { .status = md_session_status(s), .block_count = md_session_map(s, NULL, 0) };
    const struct md_segment *segments = md_session_segments(s, &fresh.segment_count);
    if (!take_room(&fresh))
        return false;
    md_session_map(s, fresh.blocks, fresh.block_count);
    if (fresh.segment_count > 0)
        memcpy(fresh.segments, segments, fresh.segment_count * sizeof *segments);
    md_explain_done(e);
    *e = fresh;
    return true;
}

/* Both lists are in the order of opening, so that ids ascend in both. */
void md_views_update(struct md_views *v, struct md_pool *pool)
{
    size_t at = 0;
    for (struct md_session *s = md_pool_next(pool, NULL); s != NULL; s = md_pool_next(pool, s)) {
        int64_t id = md_session_id(s);
        size_t gone = at;
        while (gone < v->count && v->items[gone].status.id < id)
            md_explain_done(&v->items[gone++]);
        if (gone > at)
            memmove(v->items + at, v->items + gone, (v->count - gone) * sizeof *v->items);
        v->count -= gone - at;
        if (at == v->count) {
            void *items = v->items;
            if (!md_grow(NULL, &items, &v->cap, v->count + 1, sizeof *v->items))
                return;
            v->items = items;
            v->items[at] = (struct md_explain){ 0 };
            if (!fill(&v->items[at], s))
                return;
            v->count++;
        } else if (v->items[at].status.changes != md_session_changes(s)) {
            (void)fill(&v->items[at], s);
        }
        at++;
    }
    while (v->count > at)
        md_explain_done(&v->items[--v->count]);
}

const struct md_explain *md_views_find(const struct md_views *v, int64_t session)
{
    for (size_t i = 0; i < v->count; i++)
        if (v->items[i].status.id == session)
            return &v->items[i];
    return NULL;
}

enum md_status md_views_copy(const struct md_views *v, int64_t session, struct md_explain *ret_explain,
                             struct md_err *err)
{
    const struct md_explain *e = md_views_find(v, session);
    if (e == NULL)
        return md_fail(err, MD_NOT_FOUND, "there is no session %lld", (long long)session);
    struct md_explain copy = *e;
    if (!take_room(&copy))
        return md_fail(err, MD_NO_MEMORY, "copy of session %lld", (long long)session);
    memcpy(copy.blocks, e->blocks, e->block_count * sizeof *copy.blocks);
    memcpy(copy.segments, e->segments, e->segment_count * sizeof *copy.segments);
    *ret_explain = copy;
    return MD_OK;
}
