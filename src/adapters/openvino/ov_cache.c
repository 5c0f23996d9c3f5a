/* ov_cache.c - see ov_cache.h. */
#include "adapters/openvino/ov_cache.h"

#include "base/mem.h"

#include <assert.h>
#include <sys/mman.h>

/* ---- life ---- */

static void describe_part(struct md_ov_cache *c, int32_t i, const struct md_ov_layer *l,
                          const struct md_ov_layout *layout)
{
    const size_t block_bytes = (size_t)l->heads * md_ov_layout_head_bytes(layout);
    const size_t before = i > 0 ? c->parts[i - 1].in_block + c->parts[i - 1].block_bytes : 0;
    c->parts[i] = (struct md_ov_part){ .heads = l->heads,
                                       .windowed = l->windowed,
                                       .row_bytes = layout->row_bytes,
                                       .block_bytes = block_bytes,
                                       .in_block = before,
                                       .layout = *layout };
    c->token_bytes += (size_t)l->heads * layout->row_bytes;
}

static void describe(struct md_ov_cache *c, const struct md_ov_facts *facts)
{
    c->key_length = facts->layers[0].key_length;
    for (int32_t i = 0; i < facts->layer_count; i++) {
        const struct md_ov_layer *l = &facts->layers[i];
        describe_part(c, 2 * i, l, &l->keys);
        describe_part(c, 2 * i + 1, l, &l->values);
        if (l->key_length != c->key_length)
            c->key_length = 0;
    }
}

static enum md_status take_memory(struct md_ov_cache *c, size_t rows, struct md_err *err)
{
    c->memory_bytes = c->token_bytes * rows;
    void *memory = mmap(NULL, c->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return md_fail(err, MD_NO_MEMORY,
                       "the KV cache of %zu rows takes %zu bytes, which the system does not give", rows,
                       c->memory_bytes);
    c->memory = memory;
    uint8_t *next = memory;
    for (int32_t i = 0; i < c->part_count; i++) {
        c->parts[i].at = next;
        next += (size_t)c->block_count * c->parts[i].block_bytes;
    }
    return MD_OK;
}

static enum md_status make_stage(struct md_ov_cache *c, const struct md_ov_pool_ops *pool, struct md_err *err)
{
    const size_t block_bytes = c->token_bytes * (size_t)c->block_rows;
    c->stage = md_calloc(NULL, 1, sizeof *c->stage);
    if (c->stage == NULL)
        return md_fail(err, MD_NO_MEMORY, "the KV cache");
    c->stage->pool = *pool;
    for (int i = 0; i < 2; i++) {
        c->stage->at_hand[i] = (struct md_ov_staged){ .block = -1, .bytes = md_calloc(NULL, 1, block_bytes) };
        if (c->stage->at_hand[i].bytes == NULL)
            return md_fail(err, MD_NO_MEMORY, "two blocks of KV of %zu bytes", block_bytes);
    }
    return MD_OK;
}

enum md_status md_ov_cache_init(struct md_ov_cache *c, const struct md_ov_facts *facts, enum md_ov_type type,
                                int32_t block_count, const struct md_ov_pool_ops *pool, struct md_err *err)
{
    const size_t rows = (size_t)block_count * (size_t)facts->block_rows;
    *c = (struct md_ov_cache){ .type = type,
                               .block_count = block_count,
                               .part_count = 2 * facts->layer_count,
                               .block_rows = facts->block_rows };
    c->parts = md_calloc(NULL, (size_t)c->part_count, sizeof *c->parts);
    if (c->parts == NULL)
        return md_fail(err, MD_NO_MEMORY, "the KV cache");
    describe(c, facts);
    enum md_status s = MD_OK;
    c->spare = md_calloc(NULL, 2, c->token_bytes);
    if (c->spare == NULL || c->token_bytes > SIZE_MAX / rows)
        s = md_fail(err, MD_NO_MEMORY, "the KV cache of %zu rows", rows);
    if (s == MD_OK)
        s = pool != NULL ? make_stage(c, pool, err) : take_memory(c, rows, err);
    if (s != MD_OK)
        md_ov_cache_done(c);
    return s;
}

void md_ov_cache_done(struct md_ov_cache *c)
{
    if (c->memory != NULL)
        munmap(c->memory, c->memory_bytes);
    for (int i = 0; c->stage != NULL && i < 2; i++)
        md_free(NULL, c->stage->at_hand[i].bytes);
    md_free(NULL, c->stage);
    md_free(NULL, c->spare);
    md_free(NULL, c->parts);
    *c = (struct md_ov_cache){ 0 };
}

/* ---- blocks of a pool ---- */

/* The first failure counts; behind it nothing is asked of the pool any more. */
static void note(struct md_ov_stage *s, enum md_status status)
{
    if (status != MD_OK)
        s->failed.status = status;
}

static void write_back(struct md_ov_stage *s, struct md_ov_staged *b)
{
    if (b->changed && s->failed.status == MD_OK)
        note(s, s->pool.put(s->pool.user, b->block, b->bytes, &s->failed));
    b->changed = false;
}

/* The block at hand, all parts of it.
 * over  all of it will be written: what the pool has is not wanted */
static struct md_ov_staged *take_in_hand(struct md_ov_stage *s, int32_t block, bool over)
{
    struct md_ov_staged *const hand = s->at_hand;
    if (hand[0].block != block) { /* the second one, or its place */
        const struct md_ov_staged first = hand[0];
        hand[0] = hand[1];
        hand[1] = first;
    }
    if (hand[0].block == block)
        return hand;
    write_back(s, hand);
    hand->block = block;
    if (!over && s->failed.status == MD_OK)
        note(s, s->pool.get(s->pool.user, block, hand->bytes, &s->failed));
    return hand;
}

enum md_status md_ov_cache_settle(struct md_ov_cache *c, struct md_err *err)
{
    struct md_ov_stage *s = c->stage;
    if (s == NULL)
        return MD_OK;
    for (int i = 0; i < 2; i++)
        write_back(s, &s->at_hand[i]);
    return s->failed.status == MD_OK
               ? MD_OK
               : md_fail(err, MD_SESSION_FATAL, "the KV on the device is lost: %.400s", s->failed.text);
}

void md_ov_cache_forget(struct md_ov_cache *c)
{
    for (int i = 0; c->stage != NULL && i < 2; i++) {
        assert(!c->stage->at_hand[i].changed);
        c->stage->at_hand[i].block = -1;
    }
}

/* ---- rows ---- */

/* Where a part of a block lies.
 * over  all parts of the whole block will be written */
static uint8_t *block_to_write(struct md_ov_cache *c, int32_t part, int32_t block, bool over)
{
    const struct md_ov_part *p = &c->parts[part];
    if (c->stage == NULL)
        return p->at + (size_t)block * p->block_bytes;
    struct md_ov_staged *b = take_in_hand(c->stage, block, over);
    b->changed = true;
    return b->bytes + p->in_block;
}

static const uint8_t *block_to_read(const struct md_ov_cache *c, int32_t part, int32_t block)
{
    const struct md_ov_part *p = &c->parts[part];
    if (c->stage == NULL)
        return p->at + (size_t)block * p->block_bytes;
    return take_in_hand(c->stage, block, false)->bytes + p->in_block;
}

void md_ov_cache_move(void *cache, int32_t from, int32_t to)
{
    struct md_ov_cache *c = cache;
    md_ov_cache_read(c, (struct md_ov_run){ from, 1 }, c->spare, 0, 1);
    md_ov_cache_write(c, (struct md_ov_run){ to, 1 }, c->spare, 0, 1);
}

void md_ov_cache_swap(void *cache, int32_t a, int32_t b)
{
    struct md_ov_cache *c = cache;
    uint8_t *second = c->spare + c->token_bytes;
    md_ov_cache_read(c, (struct md_ov_run){ a, 1 }, c->spare, 0, 1);
    md_ov_cache_read(c, (struct md_ov_run){ b, 1 }, second, 0, 1);
    md_ov_cache_write(c, (struct md_ov_run){ a, 1 }, second, 0, 1);
    md_ov_cache_write(c, (struct md_ov_run){ b, 1 }, c->spare, 0, 1);
}

static void check_run(const struct md_ov_cache *c, struct md_ov_run run, int32_t index, int32_t count)
{
    assert(run.row >= 0 && run.count > 0 && run.row / c->block_rows < c->block_count);
    assert(run.row % c->block_rows + run.count <= c->block_rows);
    assert(index >= 0 && run.count <= count - index);
}

void md_ov_cache_read(const struct md_ov_cache *c, struct md_ov_run run, uint8_t *bytes, int32_t index,
                      int32_t count)
{
    const int32_t block = run.row / c->block_rows, first = run.row % c->block_rows;
    check_run(c, run, index, count);
    for (int32_t i = 0; i < c->part_count; i++) {
        const struct md_ov_part *p = &c->parts[i];
        const uint8_t *head = block_to_read(c, i, block);
        for (int32_t h = 0; h < p->heads; h++, bytes += (size_t)count * p->row_bytes) {
            md_ov_layout_gather(&p->layout, head, first, run.count, bytes + (size_t)index * p->row_bytes);
            head += md_ov_layout_head_bytes(&p->layout);
        }
    }
}

void md_ov_cache_write(struct md_ov_cache *c, struct md_ov_run run, const uint8_t *bytes, int32_t index,
                       int32_t count)
{
    const int32_t block = run.row / c->block_rows, first = run.row % c->block_rows;
    check_run(c, run, index, count);
    for (int32_t i = 0; i < c->part_count; i++) {
        const struct md_ov_part *p = &c->parts[i];
        uint8_t *head = block_to_write(c, i, block, run.count == c->block_rows);
        for (int32_t h = 0; h < p->heads; h++, bytes += (size_t)count * p->row_bytes) {
            md_ov_layout_scatter(&p->layout, head, first, run.count, bytes + (size_t)index * p->row_bytes);
            head += md_ov_layout_head_bytes(&p->layout);
        }
    }
}
