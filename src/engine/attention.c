/* attention.c - the checked front of what engines tell of their attention, and the room that queries are kept in.
 *
 * An adapter that computes puts rows there while prefill and decode run (md_attention_room); one that wraps an engine
 * hands on what that one keeps.  Whether there is anything to be had is decided here for both. */
#include "engine/attention.h"

#include "engine/engine_ops.h"

#include <assert.h>

/* ---- for engine.c and adapters ---- */

static void free_rooms(float **rooms, int32_t layer_count)
{
    for (int32_t i = 0; rooms != NULL && i < layer_count; i++)
        md_free(NULL, rooms[i]);
    md_free(NULL, rooms);
}

enum md_status md_attention_init(struct md_attention *a, int32_t layer_count, struct md_err *err)
{
    assert(layer_count > 0 && a->layers == NULL);
    a->layers = md_calloc(NULL, (size_t)layer_count, sizeof *a->layers);
    a->watched = md_calloc(NULL, (size_t)layer_count, sizeof *a->watched);
    if (a->layers == NULL || a->watched == NULL) {
        md_attention_done(a);
        return md_fail(err, MD_NO_MEMORY, "the attention of %d layers", layer_count);
    }
    a->layer_count = layer_count;
    return MD_OK;
}

void md_attention_done(struct md_attention *a)
{
    free_rooms(a->rooms, a->layer_count);
    md_free(NULL, a->layers);
    md_free(NULL, a->watched);
    *a = (struct md_attention){ 0 };
}

bool md_attention_any(const struct md_attention *a)
{
    for (int32_t i = 0; i < a->layer_count; i++)
        if (a->layers[i].length > 0)
            return true;
    return false;
}

void md_attention_begin(struct md_attention *a, int32_t start)
{
    a->start = start;
    a->rows = 0;
    a->open = true;
    a->lost = false;
}

void md_attention_lose(struct md_attention *a)
{
    a->lost = true;
}

void md_attention_end(struct md_attention *a, int32_t rows)
{
    a->open = false;
    a->rows = a->lost ? 0 : rows;
}

float *md_attention_room(const struct md_engine *e, int32_t layer, int32_t row)
{
    const struct md_attention *a = &e->attention;
    if (!a->open || a->rooms == NULL || layer < 0 || layer >= a->layer_count || a->rooms[layer] == NULL)
        return NULL;
    assert(row >= 0 && row < e->info.batch_tokens);
    return a->rooms[layer] +
           (size_t)row * (size_t)a->layers[layer].query_heads * (size_t)a->layers[layer].length;
}

/* ---- the calls ---- */

static enum md_status check_there(const struct md_engine *e, struct md_err *err)
{
    if (e->caps & MD_CAP_ATTENTION_SCORES)
        return MD_OK;
    return md_fail(err, MD_UNSUPPORTED, "engine '%s' cannot tell what this model attends to", e->info.engine);
}

static enum md_status check_layer(const struct md_attention *a, int32_t layer, struct md_err *err)
{
    if (layer < 0 || layer >= a->layer_count)
        return md_fail(err, MD_INVALID, "layer %d is not in [0, %d)", layer, a->layer_count);
    if (a->layers[layer].length == 0)
        return md_fail(err, MD_INVALID, "what layer %d attends to cannot be had", layer);
    return MD_OK;
}

const struct md_attention_layer *md_engine_attention(const struct md_engine *e, int32_t *ret_count)
{
    const bool there = (e->caps & MD_CAP_ATTENTION_SCORES) != 0;
    *ret_count = there ? e->attention.layer_count : 0;
    return there ? e->attention.layers : NULL;
}

/* Room for the queries of the largest call; the system gives memory as it is first written. */
static enum md_status make_rooms(const struct md_engine *e, const int32_t *layers, int32_t count,
                                 float ***ret_rooms, struct md_err *err)
{
    const struct md_attention *a = &e->attention;
    float **rooms = md_calloc(NULL, (size_t)a->layer_count, sizeof *rooms);
    bool enough = rooms != NULL;
    for (int32_t i = 0; i < count && enough; i++) {
        const struct md_attention_layer *l = &a->layers[layers[i]];
        rooms[layers[i]] = md_calloc(NULL, (size_t)e->info.batch_tokens,
                                     (size_t)l->query_heads * (size_t)l->length * sizeof(float));
        enough = rooms[layers[i]] != NULL;
    }
    if (!enough) {
        free_rooms(rooms, a->layer_count);
        return md_fail(err, MD_NO_MEMORY, "the queries of %d tokens in %d layers", e->info.batch_tokens,
                       count);
    }
    *ret_rooms = rooms;
    return MD_OK;
}

enum md_status md_engine_watch(struct md_engine *e, const int32_t *layers, int32_t count, struct md_err *err)
{
    struct md_attention *a = &e->attention;
    enum md_status s = check_there(e, err);
    if (s == MD_OK && (count < 0 || (count > 0 && layers == NULL)))
        s = md_fail(err, MD_INVALID, "%d layers to watch", count);
    for (int32_t i = 0; i < count && s == MD_OK; i++) {
        s = check_layer(a, layers[i], err);
        if (s == MD_OK && i > 0 && layers[i] <= layers[i - 1])
            s = md_fail(err, MD_INVALID, "layers to watch must be in rising order, layer %d follows %d",
                        layers[i], layers[i - 1]);
    }
    if (s != MD_OK)
        return s;
    float **rooms = NULL;
    if (e->ops->watch != NULL)
        s = e->ops->watch(e, layers, count, err);
    else if (count > 0)
        s = make_rooms(e, layers, count, &rooms, err);
    if (s != MD_OK)
        return s;
    free_rooms(a->rooms, a->layer_count);
    a->rooms = rooms;
    a->rows = 0;
    memset(a->watched, 0, (size_t)a->layer_count * sizeof *a->watched);
    for (int32_t i = 0; i < count; i++)
        a->watched[layers[i]] = true;
    return MD_OK;
}

enum md_status md_engine_queries(struct md_engine *e, int32_t layer, struct md_queries *ret_queries,
                                 struct md_err *err)
{
    const struct md_attention *a = &e->attention;
    enum md_status s = check_there(e, err);
    if (s == MD_OK)
        s = check_layer(a, layer, err);
    if (s == MD_OK && !a->watched[layer])
        s = md_fail(err, MD_INVALID, "layer %d is not watched", layer);
    if (s == MD_OK && a->rows == 0)
        s = md_fail(err, MD_INVALID, "there are no queries: no prefill or decode came to its end since");
    if (s != MD_OK)
        return s;
    if (e->ops->queries != NULL)
        return e->ops->queries(e, layer, ret_queries, err);
    *ret_queries = (struct md_queries){ .at = a->rooms[layer],
                                        .start = a->start,
                                        .rows = a->rows,
                                        .heads = a->layers[layer].query_heads,
                                        .length = a->layers[layer].length };
    return MD_OK;
}

size_t md_engine_keys_count(const struct md_engine *e, const int32_t *layers, int32_t count, int32_t tokens)
{
    const struct md_attention *a = &e->attention;
    size_t sum = 0;
    for (int32_t i = 0; i < count; i++) {
        assert(layers[i] >= 0 && layers[i] < a->layer_count);
        sum += (size_t)a->layers[layers[i]].key_heads * (size_t)a->layers[layers[i]].length;
    }
    return sum * (size_t)tokens;
}

enum md_status md_engine_keys(const struct md_engine *e, struct md_range r, struct md_bytes kv,
                              const int32_t *layers, int32_t count, uint16_t *ret_keys, struct md_err *err)
{
    enum md_status s = check_there(e, err);
    if (s == MD_OK && (r.start < 0 || r.end <= r.start))
        s = md_fail(err, MD_INVALID, "range [%d, %d) is empty or negative", r.start, r.end);
    if (s == MD_OK && count < 1)
        s = md_fail(err, MD_INVALID, "keys of %d layers", count);
    for (int32_t i = 0; i < count && s == MD_OK; i++)
        s = check_layer(&e->attention, layers[i], err);
    return s == MD_OK ? e->ops->keys(e, r, kv, layers, count, ret_keys, err) : s;
}
