/* record.c - see record.h.  Layout, in this order, little-endian:
 *
 *   u32 version   u32 flags (1 kept, 2 bound, 4 bare)   i64 id   i64 parent
 *   i32 block_tokens, prefix, context, tape, common (tokens that context and tape begin with)   u32 segments
 *   i32 context tokens; i32 tape tokens from `common` on
 *   segments: i32 start, end; u8 kind, class, invalidation, stable; 32 bytes name
 *   blocks:   u8 class, provenance, flags (1 lost, 2 held out), 0; u64 attended */
#include "session/record.h"

#include "base/le.h"
#include "policy/prefix.h"
#include "session/session_internal.h"

#include <string.h>

enum {
    VERSION = 1,
    KEPT = 1,
    BOUND = 2,
    BARE = 4,
    LOST = 1,
    HELD_OUT = 2,
    SEGMENT_BYTES = 12 + MD_SEGMENT_NAME_BYTES,
    BLOCK_BYTES = 12,
};

/* ---- writing ---- */

/* Into room that is there already. */
static void put(struct md_buf *b, uint64_t v, int bytes)
{
    md_le_store(b->data + b->len, v, bytes);
    b->len += (size_t)bytes;
}

static void put_tokens(struct md_buf *b, const md_token *tokens, size_t count)
{
    for (size_t i = 0; i < count; i++)
        put(b, (uint32_t)tokens[i], 4);
}

static void put_segment(struct md_buf *b, const struct md_segment *g)
{
    put(b, (uint32_t)g->range.start, 4);
    put(b, (uint32_t)g->range.end, 4);
    put(b, (uint64_t)g->kind, 1);
    put(b, (uint64_t)g->cls, 1);
    put(b, (uint64_t)g->invalidation, 1);
    put(b, g->stable, 1);
    memset(b->data + b->len, 0, MD_SEGMENT_NAME_BYTES);
    memcpy(b->data + b->len, g->name, strnlen(g->name, MD_SEGMENT_NAME_BYTES - 1));
    b->len += MD_SEGMENT_NAME_BYTES;
}

enum md_status md_record_write(const struct md_session *s, struct md_buf *b, struct md_err *err)
{
    const struct md_tape *t = &s->tape;
    const size_t blocks = md_tape_block_count(t);
    const size_t common = md_prefix_common(s->context.ids, s->context.count, t->tokens, (size_t)t->count);
    const size_t bytes = 48 + 4 * (s->context.count + (size_t)t->count - common) +
                         s->segment_count * SEGMENT_BYTES + blocks * BLOCK_BYTES;
    enum md_status st = md_buf_reserve(b, bytes, err);
    if (st != MD_OK)
        return st;
    put(b, VERSION, 4);
    put(b, (s->kept ? KEPT : 0) | (s->bound ? BOUND : 0) | (s->bare ? BARE : 0), 4);
    put(b, (uint64_t)s->id, 8);
    put(b, (uint64_t)s->parent, 8);
    put(b, (uint32_t)t->block_tokens, 4);
    put(b, (uint32_t)s->prefix_count, 4);
    put(b, s->context.count, 4);
    put(b, (uint32_t)t->count, 4);
    put(b, common, 4);
    put(b, s->segment_count, 4);
    put_tokens(b, s->context.ids, s->context.count);
    put_tokens(b, t->tokens + common, (size_t)t->count - common);
    for (size_t i = 0; i < s->segment_count; i++)
        put_segment(b, &s->segments[i]);
    for (size_t i = 0; i < blocks; i++) {
        const struct md_tape_block *k = &t->blocks[i];
        put(b, (uint64_t)k->cls, 1);
        put(b, (uint64_t)k->provenance.kind, 1);
        put(b, (k->state == MD_STATE_LOST ? LOST : 0) | (k->held_out ? HELD_OUT : 0), 1);
        put(b, 0, 1);
        put(b, k->provenance.attended, 8);
    }
    return MD_OK;
}

/* ---- reading ---- */

struct reader {
    const uint8_t *at, *end;
    const uint8_t *begin;
    struct md_err *err;
    enum md_status status; /* the first failure */
};

static void fail(struct reader *r, const char *what)
{
    if (r->status == MD_OK)
        r->status =
            md_fail(r->err, MD_CORRUPT, "conversation record: %s at byte %td", what, r->at - r->begin);
}

static uint64_t get(struct reader *r, int bytes)
{
    if (r->end - r->at < bytes) {
        fail(r, "it ends");
        r->at = r->end;
        return 0;
    }
    r->at += bytes;
    return md_le_load(r->at - bytes, bytes);
}

static int32_t get_count(struct reader *r, int64_t least, int64_t most, const char *what)
{
    int64_t v = (int32_t)(uint32_t)get(r, 4);
    if (r->status == MD_OK && (v < least || v > most))
        fail(r, what);
    return r->status == MD_OK ? (int32_t)v : (int32_t)least;
}

static int get_value(struct reader *r, int count, const char *what)
{
    uint64_t v = get(r, 1);
    if (v >= (uint64_t)count)
        fail(r, what);
    return r->status == MD_OK ? (int)v : 0;
}

static void *get_room(struct reader *r, struct md_record *out, size_t count, size_t size)
{
    void *p = md_arena_get(&out->arena, count + 1, size);
    if (p == NULL && r->status == MD_OK)
        r->status =
            md_fail(r->err, MD_NO_MEMORY, "conversation record of %zu bytes", (size_t)(r->end - r->begin));
    return p;
}

static void get_tokens(struct reader *r, md_token *out, int32_t count)
{
    for (int32_t i = 0; i < count && r->status == MD_OK; i++)
        out[i] = (md_token)(uint32_t)get(r, 4);
}

static struct md_segment get_segment(struct reader *r, int32_t after, int32_t context)
{
    struct md_segment g = { 0 };
    g.range.start = get_count(r, after, context, "a segment begins out of order");
    g.range.end = get_count(r, g.range.start, context, "a segment ends out of order");
    g.kind = (enum md_segment_kind)get_value(r, MD_SEGMENT_KIND_COUNT, "no such kind");
    g.cls = (enum md_cache_class)get_value(r, MD_CLASS_COUNT, "no such class");
    g.invalidation = (enum md_invalidation)get_value(r, MD_INVALIDATION_ON_TURN + 1, "no such hint");
    g.stable = get_value(r, 2, "stable is 0 or 1") != 0;
    if (r->end - r->at < MD_SEGMENT_NAME_BYTES) {
        fail(r, "it ends");
        return g;
    }
    memcpy(g.name, r->at, MD_SEGMENT_NAME_BYTES);
    if (memchr(g.name, 0, MD_SEGMENT_NAME_BYTES) == NULL)
        fail(r, "a name has no end");
    r->at += MD_SEGMENT_NAME_BYTES;
    return g;
}

static struct md_record_block get_block(struct reader *r)
{
    struct md_record_block b = { 0 };
    b.cls = (enum md_cache_class)get_value(r, MD_CLASS_COUNT, "no such class");
    b.provenance.kind = (enum md_provenance_kind)get_value(r, MD_PROVENANCE_COUNT, "no such provenance");
    const int flags = get_value(r, (LOST | HELD_OUT) + 1, "no such flags of a block");
    b.lost = (flags & LOST) != 0;
    b.held_out = (flags & HELD_OUT) != 0;
    get_value(r, 1, "a byte that is 0");
    b.provenance.attended = get(r, 8);
    if ((b.provenance.kind == MD_PROVENANCE_FULL) != (b.provenance.attended == 0))
        fail(r, "only what attended everything has no digest");
    return b;
}

/* Counts are held against the bytes that are there, before anything is allocated by them. */
static void get_all(struct reader *r, struct md_record *out)
{
    const int flags = (int)get(r, 4);
    if (flags & ~(KEPT | BOUND | BARE))
        fail(r, "no such flags");
    out->kept = (flags & KEPT) != 0;
    out->bound = (flags & BOUND) != 0;
    out->bare = (flags & BARE) != 0;
    out->id = (int64_t)get(r, 8);
    out->parent = (int64_t)get(r, 8);
    if (out->id < 0 || out->parent < 0)
        fail(r, "an id below 0");
    const int64_t left = r->end - r->at;
    out->block_tokens = get_count(r, MD_BLOCK_TOKENS_MIN, MD_BLOCK_TOKENS_MAX, "no such block size");
    out->prefix_count = get_count(r, 0, left / 4, "a prefix longer than the bytes");
    out->context.count = get_count(r, out->prefix_count, left / 4, "a context longer than the bytes");
    out->tape_count = get_count(r, 0, left / 4, "a tape longer than the bytes");
    const int32_t most = out->tape_count < out->context.count ? out->tape_count : out->context.count;
    const int32_t common = get_count(r, 0, most, "more in common than there is");
    const int32_t segments = get_count(r, 0, MD_SEGMENTS_MAX, "too many segments");
    const int64_t blocks = ((int64_t)out->tape_count + out->block_tokens - 1) / out->block_tokens;
    const int64_t need = 4 * ((int64_t)out->context.count + out->tape_count - common) +
                         (int64_t)segments * SEGMENT_BYTES + blocks * BLOCK_BYTES;
    if (need != r->end - r->at)
        fail(r, "not as many bytes as its counts ask for");
    if (r->status != MD_OK)
        return;
    md_token *context = get_room(r, out, (size_t)out->context.count, sizeof *context);
    md_token *tape = get_room(r, out, (size_t)out->tape_count, sizeof *tape);
    struct md_segment *list = get_room(r, out, (size_t)segments, sizeof *list);
    struct md_record_block *block = get_room(r, out, (size_t)blocks, sizeof *block);
    if (r->status != MD_OK)
        return;
    get_tokens(r, context, out->context.count);
    memcpy(tape, context, (size_t)common * sizeof *tape);
    get_tokens(r, tape + common, out->tape_count - common);
    for (int32_t i = 0, after = 0; i < segments && r->status == MD_OK; i++, after = list[i - 1].range.end)
        list[i] = get_segment(r, after, out->context.count);
    for (int64_t i = 0; i < blocks && r->status == MD_OK; i++) {
        block[i] = get_block(r);
        if (out->bare && !block[i].lost)
            fail(r, "tokens alone, and a block with KV");
    }
    out->context.tokens = context;
    out->context.segments = list;
    out->context.segment_count = (size_t)segments;
    out->tape = tape;
    out->blocks = block;
    out->block_count = (size_t)blocks;
}

enum md_status md_record_read(const void *bytes, size_t len, const struct md_alloc *alloc,
                              struct md_record *ret, struct md_err *err)
{
    struct reader r = { .at = bytes, .begin = bytes, .end = bytes, .err = err };
    if (len > 0) /* nothing may be NULL */
        r.end += len;
    *ret = (struct md_record){ 0 };
    const uint64_t version = get(&r, 4);
    if (r.status == MD_OK && version != VERSION)
        return md_fail(err, MD_UNSUPPORTED, "conversation record of version %llu, this program reads %d",
                       (unsigned long long)version, VERSION);
    md_arena_init(&ret->arena, alloc, 16 * len + 4096);
    get_all(&r, ret);
    if (r.status != MD_OK) {
        md_record_done(ret);
        return r.status;
    }
    return MD_OK;
}

void md_record_done(struct md_record *r)
{
    md_arena_done(&r->arena);
    *r = (struct md_record){ 0 };
}
