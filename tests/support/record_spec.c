/* record_spec.c - see record_spec.h. */
#include "support/record_spec.h"

#include <assert.h>
#include <string.h>

void rs_put(uint8_t *bytes, size_t at, int64_t value, int count)
{
    for (int i = 0; i < count; i++)
        bytes[at + (size_t)i] = (uint8_t)((uint64_t)value >> (8 * i));
}

int32_t rs_get(const uint8_t *bytes, size_t at)
{
    uint32_t v = 0;
    for (int i = 3; i >= 0; i--)
        v = v << 8 | bytes[at + (size_t)i];
    return (int32_t)v;
}

static void add(struct md_buf *b, int64_t value, int count)
{
    uint8_t bytes[8];
    rs_put(bytes, 0, value, count);
    enum md_status s = md_buf_append(b, bytes, (size_t)count, NULL);
    assert(s == MD_OK);
    (void)s;
}

static void add_segment(struct md_buf *b, const struct md_segment *g)
{
    add(b, g->range.start, 4);
    add(b, g->range.end, 4);
    add(b, g->kind, 1);
    add(b, g->cls, 1);
    add(b, g->invalidation, 1);
    add(b, g->stable, 1);
    enum md_status s = md_buf_append(b, g->name, MD_SEGMENT_NAME_BYTES, NULL);
    assert(s == MD_OK);
    (void)s;
}

static void add_block(struct md_buf *b, const struct md_record_block *k)
{
    add(b, k->cls, 1);
    add(b, k->provenance.kind, 1);
    add(b, (k->lost ? 1 : 0) + (k->held_out ? 2 : 0), 1);
    add(b, 0, 1);
    add(b, (int64_t)k->provenance.attended, 8);
}

void rs_write(const struct md_record *r, int32_t common, struct md_buf *out)
{
    const struct md_context *c = &r->context;
    add(out, 1, 4);
    add(out, (r->kept ? 1 : 0) + (r->bound ? 2 : 0), 4);
    add(out, r->id, 8);
    add(out, r->parent, 8);
    add(out, r->block_tokens, 4);
    add(out, r->prefix_count, 4);
    add(out, c->count, 4);
    add(out, r->tape_count, 4);
    add(out, common, 4);
    add(out, (int64_t)c->segment_count, 4);
    for (int32_t i = 0; i < c->count; i++)
        add(out, c->tokens[i], 4);
    for (int32_t i = common; i < r->tape_count; i++)
        add(out, r->tape[i], 4);
    for (size_t i = 0; i < c->segment_count; i++)
        add_segment(out, &c->segments[i]);
    for (size_t i = 0; i < r->block_count; i++)
        add_block(out, &r->blocks[i]);
}

static const char *wrong_segment(const struct md_segment *g, int32_t after, int32_t count)
{
    if (g->range.start < after || g->range.end < g->range.start || g->range.end > count)
        return "segments are out of order, or reach past the context";
    if ((unsigned)g->kind >= MD_SEGMENT_KIND_COUNT || (unsigned)g->cls >= MD_CLASS_COUNT ||
        (unsigned)g->invalidation > MD_INVALIDATION_ON_TURN)
        return "kind, class or hint of a segment";
    return memchr(g->name, 0, sizeof g->name) == NULL ? "a name without an end" : NULL;
}

static const char *wrong_block(const struct md_record_block *k)
{
    if ((unsigned)k->cls >= MD_CLASS_COUNT || (unsigned)k->provenance.kind >= MD_PROVENANCE_COUNT)
        return "class or provenance of a block";
    return (k->provenance.kind == MD_PROVENANCE_FULL) != (k->provenance.attended == 0)
               ? "a digest where everything was attended, or none where it was not"
               : NULL;
}

const char *rs_wrong(const struct md_record *r)
{
    const struct md_context *c = &r->context;
    const char *wrong = NULL;
    if (r->id < 0 || r->parent < 0)
        return "an id below 0";
    if (r->block_tokens < MD_BLOCK_TOKENS_MIN || r->block_tokens > MD_BLOCK_TOKENS_MAX)
        return "block size";
    if (c->count < 0 || r->prefix_count < 0 || r->prefix_count > c->count || r->tape_count < 0)
        return "counts";
    if (r->block_count * (size_t)r->block_tokens < (size_t)r->tape_count ||
        r->block_count * (size_t)r->block_tokens >= (size_t)r->tape_count + (size_t)r->block_tokens)
        return "not as many blocks as the tape has";
    if (c->segment_count > MD_SEGMENTS_MAX)
        return "too many segments";
    for (size_t i = 0; i < c->segment_count && wrong == NULL; i++)
        wrong = wrong_segment(&c->segments[i], i == 0 ? 0 : c->segments[i - 1].range.end, c->count);
    for (size_t i = 0; i < r->block_count && wrong == NULL; i++)
        wrong = wrong_block(&r->blocks[i]);
    return wrong;
}
