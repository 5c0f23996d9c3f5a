/* fault_alloc.c - see fault_alloc.h.  Each block carries its size in front of it. */
#include "support/fault_alloc.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct block {
    size_t bytes;
    _Alignas(max_align_t) unsigned char data[];
};

static struct block *block_of(void *data)
{
    return (struct block *)((unsigned char *)data - offsetof(struct block, data));
}

static void *fault_realloc(void *user, void *old, size_t new_bytes)
{
    struct fault_alloc *f = user;
    struct block *b = old == NULL ? NULL : block_of(old);
    size_t old_bytes = b == NULL ? 0 : b->bytes;
    if (new_bytes == 0) {
        f->live_blocks -= b != NULL;
        f->live_bytes -= old_bytes;
        free(b);
        return NULL;
    }
    if (++f->calls == f->fail_at) {
        f->failed = true;
        return NULL;
    }
    /* Always to another place, so that a pointer kept too long shows under ASan. */
    struct block *n = malloc(sizeof *n + new_bytes);
    assert(n != NULL);
    n->bytes = new_bytes;
    memset(n->data, 0xA5, new_bytes); /* nobody may count on zeroes */
    if (b != NULL)
        memcpy(n->data, b->data, old_bytes < new_bytes ? old_bytes : new_bytes);
    free(b);
    f->live_blocks += b == NULL;
    f->live_bytes += new_bytes - old_bytes;
    if (f->live_bytes > f->peak_bytes)
        f->peak_bytes = f->live_bytes;
    return n->data;
}

void fault_alloc_init(struct fault_alloc *f, long fail_at)
{
    *f = (struct fault_alloc){ .alloc = { fault_realloc, f }, .fail_at = fail_at };
}

void fault_alloc_arm(struct fault_alloc *f, long fail_at)
{
    f->fail_at = fail_at == 0 ? 0 : f->calls + fail_at;
    f->failed = false;
    f->peak_bytes = f->live_bytes;
}
