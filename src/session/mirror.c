/* mirror.c - see mirror.h. */
#include "session/mirror.h"

#include "engine/attention.h"

#include <string.h>

struct mirror_block {
    struct md_cold_entry entry; /* first: the index hands it back */
    uint16_t *keys;
    md_token tokens[];
};

struct md_mirror {
    const struct md_alloc *alloc;
    struct md_coldstore *index;
    int32_t *layers, count;
    int64_t token_numbers;
    int64_t read_hot, read_cold;
};

static struct mirror_block *block_of(struct md_cold_entry *e)
{
    return (struct mirror_block *)e;
}

static void free_block(struct md_mirror *m, struct mirror_block *b)
{
    if (b == NULL)
        return;
    md_free(m->alloc, b->keys);
    md_free(m->alloc, b);
}

int64_t md_mirror_token_numbers(const struct md_engine *engine, const int32_t *layers, int32_t count)
{
    int32_t known;
    int64_t sum = 0;
    const struct md_attention_layer *of = md_engine_attention(engine, &known);
    for (int32_t i = 0; i < count; i++)
        if (layers[i] >= 0 && layers[i] < known)
            sum += (int64_t)of[layers[i]].key_heads * of[layers[i]].length;
    return sum;
}

size_t md_mirror_block_bytes(int64_t token_numbers, int32_t tokens)
{
    return md_cold_block_bytes(token_numbers * tokens * (int64_t)sizeof(uint16_t), tokens);
}

size_t md_mirror_budget(int64_t token_numbers, int32_t block_tokens, int32_t window_tokens, size_t cold_bytes)
{
    enum { PART = 4 };
    const size_t block = md_mirror_block_bytes(token_numbers, block_tokens);
    const size_t blocks = (size_t)(window_tokens / block_tokens) + 1;
    return blocks > cold_bytes / PART / block ? cold_bytes / PART : blocks * block;
}

static enum md_status check_layers(const struct md_engine *engine, const int32_t *layers, int32_t count,
                                   struct md_err *err)
{
    int32_t known;
    const struct md_attention_layer *of = md_engine_attention(engine, &known);
    for (int32_t i = 0; i < count; i++)
        if (layers[i] < 0 || layers[i] >= known || of[layers[i]].length == 0 ||
            (i > 0 && layers[i] <= layers[i - 1]))
            return md_fail(err, MD_INVALID, "layer %d cannot be scored", layers[i]);
    return count > 0 ? MD_OK : md_fail(err, MD_INVALID, "no layer is to be scored");
}

enum md_status md_mirror_open(const struct md_alloc *alloc, const struct md_engine *engine,
                              const int32_t *layers, int32_t count, size_t budget_bytes,
                              struct md_mirror **ret_mirror, struct md_err *err)
{
    enum md_status s = check_layers(engine, layers, count, err);
    if (s != MD_OK)
        return s;
    struct md_mirror *m = md_calloc(alloc, 1, sizeof *m);
    if (m == NULL)
        return md_fail(err, MD_NO_MEMORY, "mirror of keys");
    m->alloc = alloc;
    m->token_numbers = md_mirror_token_numbers(engine, layers, count);
    m->layers = md_calloc(alloc, (size_t)count, sizeof *m->layers);
    s = m->layers == NULL ? md_fail(err, MD_NO_MEMORY, "mirror of keys")
                          : md_coldstore_open(alloc, budget_bytes, &m->index, err);
    if (s != MD_OK) {
        md_mirror_close(m);
        return s;
    }
    memcpy(m->layers, layers, (size_t)count * sizeof *layers);
    m->count = count;
    *ret_mirror = m;
    return MD_OK;
}

void md_mirror_close(struct md_mirror *m)
{
    if (m == NULL)
        return;
    struct md_cold_entry *e;
    while (m->index != NULL && (e = md_coldstore_any(m->index)) != NULL) {
        md_coldstore_remove(m->index, e, false);
        free_block(m, block_of(e));
    }
    if (m->index != NULL)
        md_coldstore_close(m->index);
    md_free(m->alloc, m->layers);
    md_free(m->alloc, m);
}

int64_t md_mirror_mark(struct md_mirror *m)
{
    return md_coldstore_clock(m->index);
}

/* Let what was not asked for since `mark` go until `bytes` fit. */
static bool make_room(struct md_mirror *m, size_t bytes, int64_t mark)
{
    struct md_cold_entry *e;
    if (!md_coldstore_can_fit(m->index, bytes, MD_CLASS_VOLATILE))
        return false;
    while ((e = md_coldstore_victim(m->index, bytes, MD_CLASS_VOLATILE)) != NULL) {
        if (e->last_used > mark)
            return false;
        md_coldstore_remove(m->index, e, true);
        free_block(m, block_of(e));
    }
    return true;
}

/* The KV of a block: from the engine, where it stands at its own place, else from the store. */
static enum md_status read_kv(struct md_mirror *m, const struct md_mirror_source *from,
                              const struct md_cold_ref *ref, struct md_buf *kv, struct md_err *err)
{
    struct md_provenance ignored;
    enum md_status s;
    md_buf_init(kv, m->alloc, SIZE_MAX / 2);
    if (from->hot)
        s = md_engine_export_range(from->engine, from->seq, ref->range, kv, err);
    else
        s = md_cold_read(from->cold, ref, MD_PROVENANCE_APPROXIMATE, kv, &ignored, err);
    m->read_hot += s == MD_OK && from->hot;
    m->read_cold += s == MD_OK && !from->hot;
    return s;
}

static enum md_status make_block(struct md_mirror *m, const struct md_mirror_source *from,
                                 const struct md_cold_ref *ref, struct mirror_block **ret_block,
                                 struct md_err *err)
{
    struct md_buf kv MD_CLEANUP(md_buf_done) = { 0 };
    const int32_t tokens = md_range_len(ref->range);
    struct mirror_block *b = md_calloc(m->alloc, 1, sizeof *b + (size_t)tokens * sizeof(md_token));
    if (b != NULL)
        b->keys = md_calloc(m->alloc, md_engine_keys_count(from->engine, m->layers, m->count, tokens),
                            sizeof *b->keys);
    enum md_status s = b == NULL || b->keys == NULL ? md_fail(err, MD_NO_MEMORY, "keys of a block")
                                                    : read_kv(m, from, ref, &kv, err);
    if (s == MD_OK)
        s = md_engine_keys(from->engine, ref->range, (struct md_bytes){ kv.data, kv.len }, m->layers,
                           m->count, b->keys, err);
    if (s != MD_OK) {
        free_block(m, b);
        return s;
    }
    memcpy(b->tokens, ref->tokens, (size_t)tokens * sizeof(md_token));
    b->entry = (struct md_cold_entry){ .key = ref->key,
                                       .parent = ref->parent,
                                       .start = ref->range.start,
                                       .tokens = b->tokens,
                                       .token_count = tokens,
                                       .cls = MD_CLASS_VOLATILE,
                                       .bytes = md_mirror_block_bytes(m->token_numbers, tokens) };
    *ret_block = b;
    return MD_OK;
}

enum md_status md_mirror_keys(struct md_mirror *m, const struct md_mirror_source *from,
                              const struct md_cold_ref *ref, int64_t mark, const uint16_t **ret_keys,
                              struct md_err *err)
{
    struct md_cold_entry *e = md_coldstore_peek(m->index, ref->key, ref->parent, ref->range.start,
                                                ref->tokens, md_range_len(ref->range));
    struct mirror_block *b = e != NULL ? block_of(e) : NULL;
    *ret_keys = NULL;
    if (b != NULL) {
        md_coldstore_touch(m->index, e, MD_CLASS_VOLATILE);
    } else if (make_room(m, md_mirror_block_bytes(m->token_numbers, md_range_len(ref->range)), mark)) {
        enum md_status s = make_block(m, from, ref, &b, err);
        if (s != MD_OK)
            return s;
        s = md_coldstore_put(m->index, &b->entry, err);
        if (s != MD_OK) {
            free_block(m, b);
            return s;
        }
    }
    if (b != NULL)
        *ret_keys = b->keys;
    return MD_OK;
}

struct md_mirror_stats md_mirror_stats(const struct md_mirror *m)
{
    const struct md_coldstore_stats s = md_coldstore_stats(m->index);
    return (struct md_mirror_stats){ .budget_bytes = s.budget_bytes,
                                     .used_bytes = s.used_bytes,
                                     .blocks = s.entry_count,
                                     .read_hot = m->read_hot,
                                     .read_cold = m->read_cold };
}
