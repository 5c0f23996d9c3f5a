/* ov_cache.c - see ov_cache.h. */
#include "adapters/openvino/ov_cache.h"

#include "base/mem.h"

#include <assert.h>
#include <sys/mman.h>

/* ---- life ---- */

static size_t part_bytes(const struct md_ov_part *p, int32_t block_count)
{
    return (size_t)block_count * (size_t)p->heads * MD_OV_BLOCK_ROWS * p->row_bytes;
}

static void describe(struct md_ov_cache *c, const struct md_ov_facts *facts)
{
    c->key_length = facts->layers[0].key_length;
    for (int32_t i = 0; i < facts->layer_count; i++) {
        const struct md_ov_layer *l = &facts->layers[i];
        c->parts[2 * i] = (struct md_ov_part){ NULL, l->heads, l->windowed, (size_t)l->key_bytes };
        c->parts[2 * i + 1] = (struct md_ov_part){ NULL, l->heads, l->windowed, (size_t)l->value_bytes };
        c->token_bytes += (size_t)l->heads * (size_t)(l->key_bytes + l->value_bytes);
        if (l->key_length != c->key_length)
            c->key_length = 0;
    }
}

enum md_status md_ov_cache_init(struct md_ov_cache *c, const struct md_ov_facts *facts, enum md_ov_type type,
                                int32_t block_count, struct md_err *err)
{
    const size_t rows = (size_t)block_count * MD_OV_BLOCK_ROWS;
    *c = (struct md_ov_cache){ .type = type,
                               .block_count = block_count,
                               .part_count = 2 * facts->layer_count };
    c->parts = md_calloc(NULL, (size_t)c->part_count, sizeof *c->parts);
    if (c->parts == NULL)
        return md_fail(err, MD_NO_MEMORY, "the KV cache");
    describe(c, facts);
    c->spare = md_calloc(NULL, 1, c->token_bytes);
    if (c->spare == NULL || c->token_bytes > SIZE_MAX / rows) {
        md_ov_cache_done(c);
        return md_fail(err, MD_NO_MEMORY, "the KV cache of %zu rows", rows);
    }
    c->memory_bytes = c->token_bytes * rows;
    void *memory = mmap(NULL, c->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        const size_t bytes = c->memory_bytes;
        md_ov_cache_done(c);
        return md_fail(err, MD_NO_MEMORY,
                       "the KV cache of %zu rows takes %zu bytes, which the system does not give", rows,
                       bytes);
    }
    c->memory = memory;
    uint8_t *next = memory;
    for (int32_t i = 0; i < c->part_count; i++) {
        c->parts[i].at = next;
        next += part_bytes(&c->parts[i], block_count);
    }
    return MD_OK;
}

void md_ov_cache_done(struct md_ov_cache *c)
{
    if (c->memory != NULL)
        munmap(c->memory, c->memory_bytes);
    md_free(NULL, c->spare);
    md_free(NULL, c->parts);
    *c = (struct md_ov_cache){ 0 };
}

/* ---- rows ---- */

static uint8_t *place(const struct md_ov_part *p, int32_t row, int32_t head)
{
    const size_t block = (size_t)(row / MD_OV_BLOCK_ROWS), in_block = (size_t)(row % MD_OV_BLOCK_ROWS);
    return p->at + ((block * (size_t)p->heads + (size_t)head) * MD_OV_BLOCK_ROWS + in_block) * p->row_bytes;
}

void md_ov_cache_move(void *cache, int32_t from, int32_t to)
{
    const struct md_ov_cache *c = cache;
    for (int32_t i = 0; i < c->part_count; i++)
        for (int32_t h = 0; h < c->parts[i].heads; h++)
            memcpy(place(&c->parts[i], to, h), place(&c->parts[i], from, h), c->parts[i].row_bytes);
}

void md_ov_cache_swap(void *cache, int32_t a, int32_t b)
{
    const struct md_ov_cache *c = cache;
    md_ov_cache_read(c, (struct md_ov_run){ a, 1 }, c->spare, 0, 1);
    md_ov_cache_move(cache, b, a);
    md_ov_cache_write(cache, (struct md_ov_run){ b, 1 }, c->spare, 0, 1);
}

static void check_run(const struct md_ov_cache *c, struct md_ov_run run, int32_t index, int32_t count)
{
    assert(run.row >= 0 && run.count > 0 && run.row / MD_OV_BLOCK_ROWS < c->block_count);
    assert(run.row % MD_OV_BLOCK_ROWS + run.count <= MD_OV_BLOCK_ROWS);
    assert(index >= 0 && run.count <= count - index);
}

void md_ov_cache_read(const struct md_ov_cache *c, struct md_ov_run run, uint8_t *bytes, int32_t index,
                      int32_t count)
{
    check_run(c, run, index, count);
    for (int32_t i = 0; i < c->part_count; i++) {
        const struct md_ov_part *p = &c->parts[i];
        for (int32_t h = 0; h < p->heads; h++, bytes += (size_t)count * p->row_bytes)
            memcpy(bytes + (size_t)index * p->row_bytes, place(p, run.row, h),
                   (size_t)run.count * p->row_bytes);
    }
}

void md_ov_cache_write(struct md_ov_cache *c, struct md_ov_run run, const uint8_t *bytes, int32_t index,
                       int32_t count)
{
    check_run(c, run, index, count);
    for (int32_t i = 0; i < c->part_count; i++) {
        const struct md_ov_part *p = &c->parts[i];
        for (int32_t h = 0; h < p->heads; h++, bytes += (size_t)count * p->row_bytes)
            memcpy(place(p, run.row, h), bytes + (size_t)index * p->row_bytes,
                   (size_t)run.count * p->row_bytes);
    }
}
