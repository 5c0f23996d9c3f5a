/* cold.c - see cold.h.  Owns the memory of cold blocks.  Each block is two heap pieces: its record with the
 * tokens behind it, and its KV bytes exactly as the engine exported them.  What the budget is charged is what
 * the heap takes for both and for the index, and it is asked before the heap is. */
#include "session/cold.h"

#include "policy/content.h"

#include <string.h>

enum {
    HEAP_UNIT_BYTES = 16,           /* glibc malloc, 64 bit: a header, and sizes in steps of this */
    HEAP_PAGE_BYTES = 4096,         /* larger pieces are mapped: whole pages */
    HEAP_MAPPED_BYTES = 128 * 1024, /* from here on */
};

struct cold_block {
    struct md_cold_entry entry; /* first: the index hands it back */
    uint8_t *kv;
    size_t kv_len;
    md_token tokens[];
};

struct md_cold {
    const struct md_alloc *alloc;
    struct md_coldstore *index;
};

static struct cold_block *block_of(struct md_cold_entry *e)
{
    return (struct cold_block *)e;
}

static void free_block(struct md_cold *c, struct cold_block *b)
{
    if (b == NULL)
        return;
    md_free(c->alloc, b->kv);
    md_free(c->alloc, b);
}

enum md_status md_cold_open(const struct md_alloc *alloc, size_t budget_bytes, struct md_cold **ret_cold,
                            struct md_err *err)
{
    struct md_cold *c = md_calloc(alloc, 1, sizeof *c);
    if (c == NULL)
        return md_fail(err, MD_NO_MEMORY, "cold store");
    c->alloc = alloc;
    enum md_status s = md_coldstore_open(alloc, budget_bytes, &c->index, err);
    if (s != MD_OK) {
        md_cold_close(c);
        return s;
    }
    *ret_cold = c;
    return MD_OK;
}

void md_cold_close(struct md_cold *c)
{
    if (c == NULL)
        return;
    if (c->index != NULL) {
        struct md_cold_entry *e;
        while ((e = md_coldstore_any(c->index)) != NULL) {
            md_coldstore_remove(c->index, e, false);
            free_block(c, block_of(e));
        }
        md_coldstore_close(c->index);
    }
    md_free(c->alloc, c);
}

/* ---- what a block costs ---- */

/* Bytes the heap takes for a piece; false when that is no number. */
static bool add_heap_bytes(size_t *sum, size_t bytes)
{
    size_t unit = bytes < HEAP_MAPPED_BYTES ? HEAP_UNIT_BYTES : HEAP_PAGE_BYTES;
    if (bytes > SIZE_MAX / 4 || *sum > SIZE_MAX / 4)
        return false;
    *sum += (bytes + HEAP_UNIT_BYTES + unit - 1) / unit * unit;
    return true;
}

static size_t record_bytes(int32_t tokens)
{
    return sizeof(struct cold_block) + (size_t)tokens * sizeof(md_token);
}

/* ---- making a block ---- */

/* Let blocks go until `bytes` fit.  False, and nothing went, when they never will. */
static bool make_room(struct md_cold *c, size_t bytes, enum md_cache_class cls)
{
    if (!md_coldstore_can_fit(c->index, bytes, cls))
        return false;
    struct md_cold_entry *e;
    while ((e = md_coldstore_victim(c->index, bytes, cls)) != NULL) {
        md_coldstore_remove(c->index, e, true);
        free_block(c, block_of(e));
    }
    return true;
}

/* Record and KV room for a block, within the budget; NULL when there is no room or no memory. */
static struct cold_block *new_block(struct md_cold *c, const struct md_engine *e,
                                    const struct md_cold_ref *ref, enum md_cache_class cls,
                                    struct md_provenance provenance, struct md_buf *ret_kv)
{
    int32_t tokens = md_range_len(ref->range);
    int64_t kv_bytes = md_engine_export_bytes(e, tokens);
    size_t cost = MD_COLDSTORE_INDEX_BYTES;
    if (kv_bytes <= 0 || (uint64_t)kv_bytes > SIZE_MAX || !add_heap_bytes(&cost, record_bytes(tokens)) ||
        !add_heap_bytes(&cost, (size_t)kv_bytes) || !make_room(c, cost, cls))
        return NULL;
    struct cold_block *b = md_calloc(c->alloc, 1, record_bytes(tokens));
    md_buf_init(ret_kv, c->alloc, (size_t)kv_bytes);
    if (b == NULL || md_buf_reserve(ret_kv, (size_t)kv_bytes, NULL) != MD_OK) {
        free_block(c, b);
        return NULL;
    }
    memcpy(b->tokens, ref->tokens, (size_t)tokens * sizeof(md_token));
    b->entry = (struct md_cold_entry){ .key = ref->key,
                                       .parent = ref->parent,
                                       .start = ref->range.start,
                                       .tokens = b->tokens,
                                       .token_count = tokens,
                                       .cls = cls,
                                       .provenance = provenance,
                                       .bytes = cost };
    return b;
}

static struct md_cold_entry *peek(const struct md_cold *c, const struct md_cold_ref *ref)
{
    return md_coldstore_peek(c->index, ref->key, ref->parent, ref->range.start, ref->tokens,
                             md_range_len(ref->range));
}

/* ---- moving blocks ---- */

static enum md_status check_ref(const struct md_cold_ref *ref, struct md_err *err)
{
    if (ref->range.start < 0 || ref->range.end <= ref->range.start)
        return md_fail(err, MD_INVALID, "no such block: [%d, %d)", ref->range.start, ref->range.end);
    return MD_OK;
}

/* Asked before anything here makes way for the block. */
static enum md_status check_hot(const struct md_engine *e, md_seq seq, const struct md_cold_ref *ref,
                                struct md_err *err)
{
    enum md_status s = check_ref(ref, err);
    if (s == MD_OK && !md_engine_is_hot(e, seq, ref->range))
        s = md_fail(err, MD_INVALID, "block at %d is not hot", ref->range.start);
    return s;
}

/* Does the copy that is here stay, though one of `provenance` comes?  It does when it is better, or full, which
 * nothing is better than.  Another gives way, for its place is needed by the newer copy, which is still safe in
 * the engine. */
static bool keeps_copy(struct md_cold *c, const struct md_cold_ref *ref, enum md_cache_class cls,
                       struct md_provenance provenance)
{
    struct md_cold_entry *here = peek(c, ref);
    if (here == NULL)
        return false;
    enum md_provenance_kind kind = here->provenance.kind;
    if (kind == MD_PROVENANCE_FULL || kind < provenance.kind) {
        md_coldstore_touch(c->index, here, cls);
        return true;
    }
    md_coldstore_remove(c->index, here, false);
    free_block(c, block_of(here));
    return false;
}

unsigned md_session_caps(const struct md_engine *e)
{
    const unsigned caps = md_engine_caps(e);
    return caps & MD_CAP_CHECKPOINT ? caps & MD_CAP_REMOVE_TAIL : caps; /* UNTIL SESSIONS TAKE CHECKPOINTS */
}

/* Export a hot block into memory of its own, not yet in the index.  *ret_block NULL: no room or no memory. */
static enum md_status export_block(struct md_cold *c, struct md_engine *e, md_seq seq,
                                   const struct md_cold_ref *ref, enum md_cache_class cls,
                                   struct md_provenance provenance, struct cold_block **ret_block,
                                   struct md_err *err)
{
    struct md_buf kv = { 0 };
    struct cold_block *b = NULL;
    if (md_session_caps(e) & MD_CAP_COLD_STORE)
        b = new_block(c, e, ref, cls, provenance, &kv);
    *ret_block = b;
    if (b == NULL)
        return MD_OK;
    enum md_status s = md_engine_export_range(e, seq, ref->range, &kv, err);
    b->kv = kv.data;
    b->kv_len = kv.len;
    if (s == MD_OK)
        return MD_OK;
    free_block(c, b);
    *ret_block = NULL;
    return s == MD_NO_MEMORY ? MD_OK : s;
}

enum md_status md_cold_copy(struct md_cold *c, struct md_engine *e, md_seq seq, const struct md_cold_ref *ref,
                            enum md_cache_class cls, struct md_provenance provenance, bool *ret_stored,
                            struct md_err *err)
{
    struct cold_block *b = NULL;
    enum md_status s = check_hot(e, seq, ref, err);
    if (s != MD_OK)
        return s;
    bool kept = keeps_copy(c, ref, cls, provenance);
    if (!kept)
        s = export_block(c, e, seq, ref, cls, provenance, &b, err);
    if (s != MD_OK)
        return s;
    if (b != NULL) {
        kept = md_coldstore_put(c->index, &b->entry, NULL) == MD_OK; /* a refusal is counted there */
        if (!kept)
            free_block(c, b);
    } else if (!kept) {
        md_coldstore_count_refused(c->index);
    }
    *ret_stored = kept;
    return MD_OK;
}

enum md_status md_cold_admit(struct md_cold *c, struct md_engine *e, md_seq seq,
                             const struct md_cold_ref *ref, enum md_provenance_kind floor, bool keep,
                             struct md_provenance *ret_provenance, struct md_err *err)
{
    enum md_status s = check_ref(ref, err);
    if (s != MD_OK)
        return s;
    struct md_cold_entry *entry = md_coldstore_find(c->index, ref->key, ref->parent, ref->range.start,
                                                    ref->tokens, md_range_len(ref->range), floor);
    if (entry == NULL)
        return md_fail(err, MD_NOT_FOUND, "block at %d is not in the cold store", ref->range.start);
    struct cold_block *b = block_of(entry);
    s = md_engine_admit_range(e, seq, ref->range, (struct md_bytes){ b->kv, b->kv_len }, err);
    if (s != MD_OK)
        return s;
    *ret_provenance = entry->provenance;
    if (keep) {
        md_coldstore_touch(c->index, entry, entry->cls);
    } else {
        md_coldstore_remove(c->index, entry, false);
        free_block(c, b);
    }
    return MD_OK;
}

enum md_status md_cold_admit_moved(struct md_cold *c, struct md_engine *e, md_seq seq, struct md_range r,
                                   const md_token *tokens, int32_t known_start, enum md_provenance_kind floor,
                                   struct md_err *err)
{
    int32_t count = md_range_len(r);
    struct md_cold_entry *entry = md_coldstore_by_content(c->index, md_content_key(tokens, (size_t)count),
                                                          tokens, count, known_start, floor);
    if (entry == NULL)
        return md_fail(err, MD_NOT_FOUND, "text of the block at %d is not in the cold store", r.start);
    const struct cold_block *b = block_of(entry);
    enum md_status s =
        md_engine_admit_moved(e, seq, r, entry->start, (struct md_bytes){ b->kv, b->kv_len }, err);
    if (s == MD_OK)
        md_coldstore_touch(c->index, entry, entry->cls);
    return s;
}

const int32_t *md_cold_find_content(struct md_cold *c, uint64_t content, const md_token *tokens,
                                    int32_t count, int32_t prefer_start, enum md_provenance_kind floor)
{
    const struct md_cold_entry *e =
        md_coldstore_by_content(c->index, content, tokens, count, prefer_start, floor);
    return e == NULL ? NULL : &e->start;
}

struct md_cold_match md_cold_best(const struct md_cold *c, struct md_key parent, int32_t start,
                                  const md_token *tokens, int32_t count, enum md_provenance_kind floor)
{
    struct md_cold_match m = { 0 };
    const struct md_cold_entry *e =
        md_coldstore_best(c->index, parent, start, tokens, count, floor, &m.common);
    if (e != NULL) {
        m.tokens = e->tokens;
        m.count = e->token_count;
        m.provenance = e->provenance;
    }
    return m;
}

void md_cold_drop(struct md_cold *c, const struct md_cold_ref *ref)
{
    struct md_cold_entry *e = peek(c, ref);
    if (e == NULL)
        return;
    md_coldstore_remove(c->index, e, true);
    free_block(c, block_of(e));
}

bool md_cold_has(const struct md_cold *c, const struct md_cold_ref *ref, enum md_provenance_kind floor)
{
    return md_cold_kind(c, ref) <= floor;
}

enum md_provenance_kind md_cold_kind(const struct md_cold *c, const struct md_cold_ref *ref)
{
    const struct md_cold_entry *e = peek(c, ref);
    return e == NULL ? MD_PROVENANCE_COUNT : e->provenance.kind;
}

void md_cold_touch(struct md_cold *c, const struct md_cold_ref *ref, enum md_cache_class cls)
{
    struct md_cold_entry *e = peek(c, ref);
    if (e != NULL)
        md_coldstore_touch(c->index, e, cls);
}

struct md_coldstore_stats md_cold_stats(const struct md_cold *c)
{
    return md_coldstore_stats(c->index);
}
