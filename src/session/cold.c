/* cold.c - see cold.h.  Owns the memory of cold blocks, and asks the disk (session/disk.h) for what it has not.  Each block is two heap pieces: its record with the
 * tokens behind it, and its KV bytes exactly as the engine exported them.  What the budget is charged is what
 * the heap takes for both and for the index, and it is asked before the heap is. */
#include "session/cold.h"

#include "base/log.h"
#include "policy/content.h"
#include "session/disk.h"

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
    struct md_disk *disk; /* borrowed; NULL: none */
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

void md_cold_set_disk(struct md_cold *c, struct md_disk *disk)
{
    if (c != NULL)
        c->disk = disk;
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

/* A block that leaves the memory goes to the disk, where there is one.  False: it is gone. */
static bool spill(struct md_cold *c, const struct cold_block *b)
{
    const struct md_cold_entry *e = &b->entry;
    const struct md_cold_ref ref = {
        e->key, e->parent, { e->start, e->start + e->token_count }, e->tokens, e->is_state
    };
    struct md_err err;
    bool stored = false;
    if (c->disk == NULL)
        return false;
    if (md_disk_put(c->disk, &ref, e->cls, e->provenance, (struct md_bytes){ b->kv, b->kv_len }, true,
                    &stored, &err) != MD_OK)
        md_log(MD_LOG_WARN, "the block at %d is lost: %s", e->start, err.text);
    return stored;
}

/* Let blocks go until `bytes` fit.  False, and nothing went, when they never will. */
static bool make_room(struct md_cold *c, size_t bytes, enum md_cache_class cls)
{
    if (!md_coldstore_can_fit(c->index, bytes, cls))
        return false;
    struct md_cold_entry *e;
    while ((e = md_coldstore_victim(c->index, bytes, cls)) != NULL) {
        md_coldstore_remove(c->index, e, !spill(c, block_of(e)));
        free_block(c, block_of(e));
    }
    return true;
}

size_t md_cold_block_bytes(int64_t kv_bytes, int32_t tokens)
{
    size_t cost = MD_COLDSTORE_INDEX_BYTES;
    if (kv_bytes <= 0 || (uint64_t)kv_bytes > SIZE_MAX || !add_heap_bytes(&cost, record_bytes(tokens)) ||
        !add_heap_bytes(&cost, (size_t)kv_bytes))
        return 0;
    return cost;
}

/* Record and KV room for a block, within the budget; NULL when there is no room or no memory. */
static struct cold_block *new_block(struct md_cold *c, int64_t kv_bytes, const struct md_cold_ref *ref,
                                    enum md_cache_class cls, struct md_provenance provenance,
                                    struct md_buf *ret_kv)
{
    int32_t tokens = md_range_len(ref->range);
    const size_t cost = md_cold_block_bytes(kv_bytes, tokens);
    if (cost == 0 || !make_room(c, cost, cls))
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
                                       .is_state = ref->is_state,
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
 * nothing is better than, or held: it is what stands re-based in the engine. */
static bool stays(const struct md_cold_entry *here, struct md_provenance provenance)
{
    const enum md_provenance_kind kind = here->provenance.kind;
    return kind == MD_PROVENANCE_FULL || kind < provenance.kind || here->holds > 0;
}

/* A copy that does not stay gives way, for its place is needed by the newer copy, which is still safe in the engine. */
static bool keeps_copy(struct md_cold *c, const struct md_cold_ref *ref, enum md_cache_class cls,
                       struct md_provenance provenance)
{
    struct md_cold_entry *here = peek(c, ref);
    if (here == NULL)
        return false;
    if (stays(here, provenance)) {
        md_coldstore_touch(c->index, here, cls);
        return true;
    }
    md_coldstore_remove(c->index, here, false);
    free_block(c, block_of(here));
    return false;
}

/* Export a hot block into memory of its own, not yet in the index.  *ret_block NULL: no room or no memory. */
static enum md_status export_block(struct md_cold *c, struct md_engine *e, md_seq seq,
                                   const struct md_cold_ref *ref, enum md_cache_class cls,
                                   struct md_provenance provenance, struct cold_block **ret_block,
                                   struct md_err *err)
{
    struct md_buf kv = { 0 };
    struct cold_block *b = NULL;
    if (md_engine_caps(e) & MD_CAP_COLD_STORE)
        b = new_block(c, md_engine_export_bytes(e, md_range_len(ref->range)), ref, cls, provenance, &kv);
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

/* From the engine to the disk, by way of memory that goes at once. */
static enum md_status export_to_disk(struct md_cold *c, struct md_engine *e, md_seq seq,
                                     const struct md_cold_ref *ref, enum md_cache_class cls,
                                     struct md_provenance provenance, bool displace, bool *ret_stored,
                                     struct md_err *err)
{
    struct md_buf kv MD_CLEANUP(md_buf_done) = { 0 };
    *ret_stored = false;
    if (!(md_engine_caps(e) & MD_CAP_COLD_STORE))
        return MD_OK;
    md_buf_init(&kv, c->alloc, (size_t)md_engine_export_bytes(e, md_range_len(ref->range)));
    enum md_status s = md_engine_export_range(e, seq, ref->range, &kv, err);
    if (s == MD_OK)
        s = md_disk_put(c->disk, ref, cls, provenance, (struct md_bytes){ kv.data, kv.len }, displace,
                        ret_stored, err);
    return s;
}

static struct md_cold_entry *peek_disk(const struct md_cold *c, const struct md_cold_ref *ref)
{
    return c->disk == NULL ? NULL
                           : md_coldstore_peek(md_disk_index(c->disk), ref->key, ref->parent,
                                               ref->range.start, ref->tokens, md_range_len(ref->range));
}

enum md_status md_cold_save(struct md_cold *c, struct md_engine *e, md_seq seq, const struct md_cold_ref *ref,
                            enum md_cache_class cls, struct md_provenance provenance, bool hot, bool displace,
                            bool *ret_saved, struct md_err *err)
{
    const struct md_cold_entry *there = peek_disk(c, ref);
    struct md_cold_entry *here = peek(c, ref);
    *ret_saved = false;
    if (c->disk == NULL)
        return MD_OK;
    if (there != NULL && (!hot || there->provenance.kind <= provenance.kind) &&
        (here == NULL || there->provenance.kind <= here->provenance.kind)) {
        *ret_saved = true;
        return MD_OK;
    }
    if (here != NULL && (!hot || here->provenance.kind <= provenance.kind)) {
        const struct cold_block *b = block_of(here);
        return md_disk_put(c->disk, ref, cls, here->provenance, (struct md_bytes){ b->kv, b->kv_len },
                           displace, ret_saved, err);
    }
    return hot ? export_to_disk(c, e, seq, ref, cls, provenance, displace, ret_saved, err) : MD_OK;
}

/* As in spill(): a disk that is full, or a folder that was taken away (MD_NOT_FOUND), fails no turn. */
static enum md_status forgive_disk(const struct md_cold_ref *ref, enum md_status s, bool *ret_stored,
                                   const struct md_err *err)
{
    if (s != MD_IO && s != MD_NO_MEMORY && s != MD_NOT_FOUND)
        return s;
    md_log(MD_LOG_WARN, "the block at %d has no place: %s", ref->range.start, err->text);
    *ret_stored = false;
    return MD_OK;
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
    } else if (!kept && c->disk != NULL) { /* the memory is full of dearer ones */
        s = export_to_disk(c, e, seq, ref, cls, provenance, true, &kept, err);
        s = forgive_disk(ref, s, &kept, err);
    } else if (!kept) {
        md_coldstore_count_refused(c->index);
    }
    *ret_stored = kept;
    return s;
}

/* A block of bytes that somebody has; NULL: no room or no memory. */
static struct cold_block *copy_bytes(struct md_cold *c, const struct md_cold_ref *ref,
                                     enum md_cache_class cls, struct md_provenance provenance,
                                     struct md_bytes bytes)
{
    struct md_buf kv = { 0 };
    struct cold_block *b = new_block(c, (int64_t)bytes.len, ref, cls, provenance, &kv);
    if (b == NULL)
        return NULL;
    memcpy(kv.data, bytes.data, bytes.len);
    b->kv = kv.data;
    b->kv_len = bytes.len;
    return b;
}

enum md_status md_cold_put(struct md_cold *c, const struct md_cold_ref *ref, enum md_cache_class cls,
                           struct md_provenance provenance, struct md_bytes bytes, bool *ret_stored,
                           struct md_err *err)
{
    enum md_status s = check_ref(ref, err);
    *ret_stored = s == MD_OK && keeps_copy(c, ref, cls, provenance);
    if (s != MD_OK || *ret_stored)
        return s;
    struct cold_block *b = copy_bytes(c, ref, cls, provenance, bytes);
    if (b == NULL && c->disk != NULL) {
        s = md_disk_put(c->disk, ref, cls, provenance, bytes, true, ret_stored, err);
        return forgive_disk(ref, s, ret_stored, err);
    }
    if (b == NULL) {
        md_coldstore_count_refused(c->index);
        return MD_OK;
    }
    *ret_stored = md_coldstore_put(c->index, &b->entry, NULL) == MD_OK;
    if (!*ret_stored)
        free_block(c, b);
    return MD_OK;
}

enum md_cold_added md_cold_add(struct md_cold *c, const struct md_cold_ref *ref, enum md_cache_class cls,
                               struct md_provenance provenance, struct md_bytes kv)
{
    const struct md_cold_entry *here = peek(c, ref);
    const size_t cost = md_cold_block_bytes((int64_t)kv.len, md_range_len(ref->range));
    if (here != NULL)
        return stays(here, provenance) ? MD_COLD_IS_HERE : MD_COLD_NEEDS_ROOM;
    if (cost == 0 || !md_coldstore_can_fit(c->index, cost, cls) ||
        md_coldstore_victim(c->index, cost, cls) != NULL)
        return MD_COLD_NEEDS_ROOM;
    struct cold_block *b = copy_bytes(c, ref, cls, provenance, kv);
    if (b != NULL && md_coldstore_put(c->index, &b->entry, NULL) == MD_OK)
        return MD_COLD_ADDED;
    free_block(c, b);
    return MD_COLD_NEEDS_ROOM;
}

void md_cold_take_back(struct md_cold *c, const struct md_cold_ref *ref)
{
    struct md_cold_entry *e = peek(c, ref);
    if (e == NULL || e->holds > 0)
        return;
    md_coldstore_remove(c->index, e, false);
    free_block(c, block_of(e));
}

/* The bytes of a block for the engine: in memory, or read into `buf`. */
struct fetched {
    struct md_bytes kv;
    struct md_provenance provenance;
    struct md_cold_entry *entry; /* NULL: it came from the disk */
    struct md_buf buf;
};

static enum md_status fetch(struct md_cold *c, const struct md_cold_ref *ref, enum md_provenance_kind floor,
                            struct fetched *f, struct md_err *err)
{
    *f = (struct fetched){ .entry = md_coldstore_find(c->index, ref->key, ref->parent, ref->range.start,
                                                      ref->tokens, md_range_len(ref->range), floor) };
    if (f->entry != NULL) {
        const struct cold_block *b = block_of(f->entry);
        f->kv = (struct md_bytes){ b->kv, b->kv_len };
        f->provenance = f->entry->provenance;
        return MD_OK;
    }
    if (c->disk == NULL)
        return md_fail(err, MD_NOT_FOUND, "block at %d is not in the cold store", ref->range.start);
    md_buf_init(&f->buf, c->alloc, SIZE_MAX / 2);
    enum md_status s = md_disk_get(c->disk, ref, floor, &f->buf, &f->provenance, err);
    if (s ==
        MD_IO) { /* its tokens are known: computing it again is better than to fail whatever comes this way */
        md_log(MD_LOG_WARN, "the block at %d is not read: %s", ref->range.start, err->text);
        s = md_fail(err, MD_NOT_FOUND, "block at %d cannot be read from the disk", ref->range.start);
    }
    f->kv = (struct md_bytes){ f->buf.data, f->buf.len };
    return s;
}

enum md_status md_cold_read(struct md_cold *c, const struct md_cold_ref *ref, enum md_provenance_kind floor,
                            struct md_buf *ret_kv, struct md_provenance *ret_provenance, struct md_err *err)
{
    struct fetched f = { 0 };
    enum md_status s = fetch(c, ref, floor, &f, err);
    if (s == MD_OK)
        s = md_buf_append(ret_kv, f.kv.data, f.kv.len, err);
    if (s == MD_OK)
        *ret_provenance = f.provenance;
    md_buf_done(&f.buf);
    return s;
}

enum md_status md_cold_admit(struct md_cold *c, struct md_engine *e, md_seq seq,
                             const struct md_cold_ref *ref, int32_t at, enum md_provenance_kind floor,
                             bool keep, struct md_cold_admitted *ret, struct md_err *err)
{
    struct fetched f = { 0 };
    enum md_status s = check_ref(ref, err);
    if (s != MD_OK)
        return s;
    const bool moves = at != ref->range.start;
    const struct md_range to = { at, at + md_range_len(ref->range) };
    s = fetch(c, ref, floor, &f, err);
    if (s == MD_OK)
        s = moves ? md_engine_admit_moved(e, seq, to, ref->range.start, f.kv, err)
                  : md_engine_admit_range(e, seq, to, f.kv, err);
    const struct md_cold_admitted got = { f.provenance, f.entry == NULL ? MD_TIER_DISK : MD_TIER_HOST };
    if (s == MD_OK && f.entry != NULL && (keep || moves || f.entry->holds > 0)) {
        md_coldstore_touch(c->index, f.entry, f.entry->cls);
    } else if (s == MD_OK && f.entry != NULL) {
        md_coldstore_remove(c->index, f.entry, false);
        free_block(c, block_of(f.entry));
    }
    md_buf_done(&f.buf);
    if (s == MD_OK)
        *ret = got;
    return s;
}

/* ---- holding ---- */

bool md_cold_hold(struct md_cold *c, const struct md_cold_ref *ref, enum md_provenance_kind floor)
{
    struct md_cold_entry *e = peek(c, ref), *on_disk = peek_disk(c, ref);
    if (e != NULL && md_provenance_accepted(e->provenance, floor))
        md_coldstore_hold(c->index, e);
    else if (on_disk != NULL && md_provenance_accepted(on_disk->provenance, floor))
        md_coldstore_hold(md_disk_index(c->disk), on_disk);
    else
        return false;
    return true;
}

void md_cold_release(struct md_cold *c, const struct md_cold_ref *ref)
{
    struct md_cold_entry *e = peek(c, ref), *on_disk = peek_disk(c, ref);
    if (e != NULL && e->holds > 0)
        md_coldstore_release(c->index, e);
    else if (on_disk != NULL && on_disk->holds > 0)
        md_coldstore_release(md_disk_index(c->disk), on_disk);
}

bool md_cold_is_held(const struct md_cold *c, const struct md_cold_ref *ref)
{
    const struct md_cold_entry *e = peek(c, ref), *on_disk = peek_disk(c, ref);
    return (e != NULL && e->holds > 0) || (on_disk != NULL && on_disk->holds > 0);
}

enum md_status md_cold_admit_moved(struct md_cold *c, struct md_engine *e, md_seq seq, struct md_range r,
                                   const md_token *tokens, int32_t known_start, enum md_provenance_kind floor,
                                   struct md_err *err)
{
    const int32_t count = md_range_len(r);
    const uint64_t content = md_content_key(tokens, (size_t)count);
    struct md_cold_entry *entry =
        md_coldstore_by_content(c->index, content, tokens, count, known_start, floor);
    if (entry == NULL && c->disk != NULL)
        entry = md_coldstore_by_content(md_disk_index(c->disk), content, tokens, count, known_start, floor);
    if (entry == NULL)
        return md_fail(err, MD_NOT_FOUND, "text of the block at %d is not in the cold store", r.start);
    const int32_t from = entry->start;
    const struct md_cold_ref ref = {
        entry->key, entry->parent, { from, from + count }, entry->tokens, false
    };
    struct fetched f;
    enum md_status s = fetch(c, &ref, floor, &f, err);
    if (s == MD_CORRUPT) /* it is gone from the disk */
        s = md_fail(err, MD_NOT_FOUND, "text of the block at %d is damaged on disk", r.start);
    if (s == MD_OK)
        s = md_engine_admit_moved(e, seq, r, from, f.kv, err);
    if (s == MD_OK && f.entry != NULL)
        md_coldstore_touch(c->index, f.entry, f.entry->cls);
    md_buf_done(&f.buf);
    return s;
}

const int32_t *md_cold_find_content(struct md_cold *c, uint64_t content, const md_token *tokens,
                                    int32_t count, int32_t prefer_start, enum md_provenance_kind floor)
{
    const struct md_cold_entry *e =
        md_coldstore_by_content(c->index, content, tokens, count, prefer_start, floor);
    if (e == NULL && c->disk != NULL)
        e = md_coldstore_by_content(md_disk_index(c->disk), content, tokens, count, prefer_start, floor);
    return e == NULL ? NULL : &e->start;
}

struct md_cold_match md_cold_best(const struct md_cold *c, struct md_key parent, int32_t start,
                                  const md_token *tokens, int32_t count, enum md_provenance_kind floor)
{
    int32_t common, common_disk = 0;
    enum md_restore_tier tier = MD_TIER_HOST;
    const struct md_cold_entry *e = md_coldstore_best(c->index, parent, start, tokens, count, floor, &common);
    const struct md_cold_entry *on_disk = NULL;
    if (c->disk != NULL)
        on_disk =
            md_coldstore_best(md_disk_index(c->disk), parent, start, tokens, count, floor, &common_disk);
    if (on_disk != NULL && common_disk > common) {
        e = on_disk;
        common = common_disk;
        tier = MD_TIER_DISK;
    }
    if (e == NULL)
        return (struct md_cold_match){ 0 };
    return (struct md_cold_match){ e->tokens, e->token_count, common, e->provenance, tier };
}

int32_t md_cold_within(const struct md_cold *c, struct md_key parent, int32_t start, const md_token *tokens,
                       int32_t count, enum md_provenance_kind floor)
{
    const struct md_cold_entry *e = md_coldstore_within(c->index, parent, start, tokens, count, floor);
    const struct md_cold_entry *on_disk =
        c->disk == NULL ? NULL
                        : md_coldstore_within(md_disk_index(c->disk), parent, start, tokens, count, floor);
    const int32_t here = e == NULL ? 0 : e->token_count, there = on_disk == NULL ? 0 : on_disk->token_count;
    return here > there ? here : there;
}

void md_cold_drop(struct md_cold *c, const struct md_cold_ref *ref)
{
    struct md_cold_entry *e = peek(c, ref), *on_disk = peek_disk(c, ref);
    if (e != NULL && e->holds == 0) {
        md_coldstore_remove(c->index, e, true);
        free_block(c, block_of(e));
    }
    if (on_disk != NULL && on_disk->holds == 0)
        md_disk_drop(c->disk, ref);
}

bool md_cold_has(const struct md_cold *c, const struct md_cold_ref *ref, enum md_provenance_kind floor)
{
    return md_cold_kind(c, ref) <= floor;
}

enum md_provenance_kind md_cold_kind(const struct md_cold *c, const struct md_cold_ref *ref)
{
    const struct md_cold_entry *e = peek(c, ref), *on_disk = peek_disk(c, ref);
    const enum md_provenance_kind here = e == NULL ? MD_PROVENANCE_COUNT : e->provenance.kind;
    return on_disk == NULL || here < on_disk->provenance.kind ? here : on_disk->provenance.kind;
}

bool md_cold_is_durable(const struct md_cold *c, const struct md_cold_ref *ref)
{
    return peek_disk(c, ref) != NULL;
}

void md_cold_touch(struct md_cold *c, const struct md_cold_ref *ref, enum md_cache_class cls)
{
    struct md_cold_entry *e = peek(c, ref), *on_disk = peek_disk(c, ref);
    if (e != NULL)
        md_coldstore_touch(c->index, e, cls);
    if (on_disk != NULL)
        md_coldstore_touch(md_disk_index(c->disk), on_disk, cls);
}

struct md_coldstore_stats md_cold_stats(const struct md_cold *c)
{
    return md_coldstore_stats(c->index);
}

struct md_coldstore_stats md_cold_disk_stats(const struct md_cold *c)
{
    return c->disk == NULL ? (struct md_coldstore_stats){ 0 } : md_coldstore_stats(md_disk_index(c->disk));
}
