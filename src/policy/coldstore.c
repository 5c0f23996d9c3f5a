/* coldstore.c - see coldstore.h.  Entries hang in three structures at once: two chained hash tables, by key and
 * by the key of their parent, for finding, and one list per class from the longest unused to the newest, for
 * choosing what goes.  All are intrusive, so adding and dropping an entry takes no memory but the tables' own
 * growth. */
#include "policy/coldstore.h"

#include "policy/prefix.h"

#include <assert.h>
#include <string.h>

enum { FIRST_BUCKETS = 64 }; /* a power of two, as every later size */

struct class_list {
    struct md_cold_entry *oldest, *newest;
    size_t bytes;
};

struct md_coldstore {
    const struct md_alloc *alloc;
    struct md_cold_entry **by_key; /* by_parent follows in the same piece */
    size_t bucket_count;           /* of each of the two */
    struct class_list classes[MD_CLASS_COUNT];
    int64_t clock; /* counts uses: the time of last_used */
    struct md_coldstore_stats stats;
};

enum md_status md_coldstore_open(const struct md_alloc *alloc, size_t budget_bytes,
                                 struct md_coldstore **ret_store, struct md_err *err)
{
    struct md_coldstore *c = md_calloc(alloc, 1, sizeof *c);
    if (c == NULL)
        return md_fail(err, MD_NO_MEMORY, "cold store");
    c->alloc = alloc;
    c->stats.budget_bytes = budget_bytes;
    c->bucket_count = FIRST_BUCKETS;
    c->by_key = md_calloc(alloc, 2 * c->bucket_count, sizeof(struct md_cold_entry *));
    if (c->by_key == NULL) {
        md_coldstore_close(c);
        return md_fail(err, MD_NO_MEMORY, "cold store index");
    }
    *ret_store = c;
    return MD_OK;
}

void md_coldstore_close(struct md_coldstore *c)
{
    if (c == NULL)
        return;
    assert(c->stats.entry_count == 0);
    md_free(c->alloc, c->by_key);
    md_free(c->alloc, c);
}

/* ---- the tables ---- */

static struct md_cold_entry **bucket_of(struct md_cold_entry **buckets, size_t bucket_count,
                                        struct md_key key)
{
    return &buckets[(key.hi ^ key.lo) & (bucket_count - 1)];
}

static void hang(struct md_cold_entry **by_key, size_t bucket_count, struct md_cold_entry *e)
{
    struct md_cold_entry **k = bucket_of(by_key, bucket_count, e->key);
    struct md_cold_entry **p = bucket_of(by_key + bucket_count, bucket_count, e->parent);
    e->next_by_key = *k;
    *k = e;
    e->next_by_parent = *p;
    *p = e;
}

static void unhang(struct md_coldstore *c, struct md_cold_entry *e)
{
    struct md_cold_entry **k = bucket_of(c->by_key, c->bucket_count, e->key);
    struct md_cold_entry **p = bucket_of(c->by_key + c->bucket_count, c->bucket_count, e->parent);
    for (; *k != e; k = &(*k)->next_by_key)
        assert(*k != NULL); /* it must be in the index */
    for (; *p != e; p = &(*p)->next_by_parent)
        assert(*p != NULL);
    *k = e->next_by_key;
    *p = e->next_by_parent;
    e->next_by_key = e->next_by_parent = NULL;
}

/* Twice the buckets; the entries are hung over, which cannot fail. */
static bool grow_table(struct md_coldstore *c)
{
    size_t count = c->bucket_count * 2;
    struct md_cold_entry **by_key = md_calloc(c->alloc, 2 * count, sizeof(struct md_cold_entry *));
    if (by_key == NULL)
        return false;
    for (size_t i = 0; i < c->bucket_count; i++) {
        for (struct md_cold_entry *e = c->by_key[i], *next; e != NULL; e = next) {
            next = e->next_by_key;
            hang(by_key, count, e);
        }
    }
    md_free(c->alloc, c->by_key);
    c->by_key = by_key;
    c->bucket_count = count;
    return true;
}

/* What a block is asked by.  Only the key is hashed; the rest is the proof. */
struct wanted {
    struct md_key key, parent;
    int32_t start;
    const md_token *tokens;
    int32_t token_count;
};

static bool is_the_block(const struct md_cold_entry *e, const struct wanted *w)
{
    return md_key_equal(e->key, w->key) && md_key_equal(e->parent, w->parent) && e->start == w->start &&
           e->token_count == w->token_count &&
           memcmp(e->tokens, w->tokens, (size_t)w->token_count * sizeof *w->tokens) == 0;
}

/* ret_collision (may be NULL): the key was there, but with another block only. */
static struct md_cold_entry *look_up(const struct md_coldstore *c, const struct wanted *w,
                                     bool *ret_collision)
{
    bool key_seen = false;
    struct md_cold_entry *e = *bucket_of(c->by_key, c->bucket_count, w->key);
    while (e != NULL && !is_the_block(e, w)) {
        key_seen = key_seen || md_key_equal(e->key, w->key);
        e = e->next_by_key;
    }
    if (ret_collision != NULL)
        *ret_collision = e == NULL && key_seen;
    return e;
}

struct md_cold_entry *md_coldstore_peek(const struct md_coldstore *c, struct md_key key, struct md_key parent,
                                        int32_t start, const md_token *tokens, int32_t token_count)
{
    assert(tokens != NULL && token_count > 0);
    return look_up(c, &(struct wanted){ key, parent, start, tokens, token_count }, NULL);
}

struct md_cold_entry *md_coldstore_find(struct md_coldstore *c, struct md_key key, struct md_key parent,
                                        int32_t start, const md_token *tokens, int32_t token_count)
{
    assert(tokens != NULL && token_count > 0);
    bool collision;
    struct md_cold_entry *e =
        look_up(c, &(struct wanted){ key, parent, start, tokens, token_count }, &collision);
    c->stats.hits += e != NULL;
    c->stats.misses += e == NULL;
    c->stats.collisions += collision;
    return e;
}

struct md_cold_entry *md_coldstore_best(const struct md_coldstore *c, struct md_key parent, int32_t start,
                                        const md_token *tokens, int32_t token_count, int32_t *ret_common)
{
    struct md_cold_entry *best = NULL;
    size_t most = 0;
    struct md_cold_entry *e = *bucket_of(c->by_key + c->bucket_count, c->bucket_count, parent);
    for (; e != NULL; e = e->next_by_parent) {
        if (!md_key_equal(e->parent, parent) || e->start != start)
            continue;
        size_t common = md_prefix_common(e->tokens, (size_t)e->token_count, tokens, (size_t)token_count);
        /* of two that share as much, the one that has no more than that: nothing of it must be cut off */
        if (common < most || common == 0 || (common == most && e->token_count >= best->token_count))
            continue;
        best = e;
        most = common;
    }
    *ret_common = (int32_t)most;
    return best;
}

bool md_coldstore_has(const struct md_coldstore *c, struct md_key key, struct md_key parent, int32_t start,
                      const md_token *tokens, int32_t token_count)
{
    return md_coldstore_peek(c, key, parent, start, tokens, token_count) != NULL;
}

/* ---- the lists ---- */

static void list_append(struct md_coldstore *c, struct md_cold_entry *e)
{
    struct class_list *list = &c->classes[e->cls];
    e->last_used = ++c->clock;
    e->older = list->newest;
    e->newer = NULL;
    if (list->newest != NULL)
        list->newest->newer = e;
    else
        list->oldest = e;
    list->newest = e;
    list->bytes += e->bytes;
}

static void list_unlink(struct md_coldstore *c, struct md_cold_entry *e)
{
    struct class_list *list = &c->classes[e->cls];
    assert((e->older == NULL) == (list->oldest == e) && (e->newer == NULL) == (list->newest == e));
    if (e->older != NULL)
        e->older->newer = e->newer;
    else
        list->oldest = e->newer;
    if (e->newer != NULL)
        e->newer->older = e->older;
    else
        list->newest = e->older;
    e->older = e->newer = NULL;
    list->bytes -= e->bytes;
}

/* ---- room ---- */

static bool fits_now(const struct md_coldstore *c, size_t bytes)
{
    return bytes <= c->stats.budget_bytes - c->stats.used_bytes; /* used <= budget always */
}

bool md_coldstore_can_fit(const struct md_coldstore *c, size_t bytes, enum md_cache_class cls)
{
    assert((unsigned)cls < MD_CLASS_COUNT);
    size_t stays = 0;
    for (unsigned i = 0; i < (unsigned)cls; i++)
        stays += c->classes[i].bytes;
    return bytes <= c->stats.budget_bytes - stays;
}

struct md_cold_entry *md_coldstore_victim(const struct md_coldstore *c, size_t bytes, enum md_cache_class cls)
{
    assert((unsigned)cls < MD_CLASS_COUNT);
    if (fits_now(c, bytes))
        return NULL;
    for (int i = MD_CLASS_COUNT - 1; i >= (int)cls; i--)
        if (c->classes[i].oldest != NULL)
            return c->classes[i].oldest;
    return NULL;
}

/* ---- entries ---- */

enum md_status md_coldstore_put(struct md_coldstore *c, struct md_cold_entry *entry, struct md_err *err)
{
    assert((unsigned)entry->cls < MD_CLASS_COUNT && entry->tokens != NULL && entry->token_count > 0);
    if (md_coldstore_has(c, entry->key, entry->parent, entry->start, entry->tokens, entry->token_count))
        return md_fail(err, MD_INVALID, "block at %d is in the cold store already", entry->start);
    if (!fits_now(c, entry->bytes)) {
        c->stats.refused++;
        return md_fail(err, MD_NO_MEMORY, "cold store: %zu bytes do not fit, %zu of %zu are used",
                       entry->bytes, c->stats.used_bytes, c->stats.budget_bytes);
    }
    if ((size_t)c->stats.entry_count >= c->bucket_count && !grow_table(c)) {
        c->stats.refused++;
        return md_fail(err, MD_NO_MEMORY, "cold store index for %zu blocks", c->bucket_count * 2);
    }
    hang(c->by_key, c->bucket_count, entry);
    list_append(c, entry);
    c->stats.used_bytes += entry->bytes;
    if (c->stats.used_bytes > c->stats.peak_bytes)
        c->stats.peak_bytes = c->stats.used_bytes;
    c->stats.entry_count++;
    c->stats.token_count += entry->token_count;
    c->stats.stored++;
    return MD_OK;
}

void md_coldstore_touch(struct md_coldstore *c, struct md_cold_entry *entry)
{
    list_unlink(c, entry);
    list_append(c, entry);
}

void md_coldstore_remove(struct md_coldstore *c, struct md_cold_entry *entry, bool dropped)
{
    unhang(c, entry);
    list_unlink(c, entry);
    assert(c->stats.used_bytes >= entry->bytes);
    c->stats.used_bytes -= entry->bytes;
    c->stats.entry_count--;
    c->stats.token_count -= entry->token_count;
    c->stats.dropped += dropped;
}

struct md_cold_entry *md_coldstore_any(const struct md_coldstore *c)
{
    for (int i = MD_CLASS_COUNT - 1; i >= 0; i--)
        if (c->classes[i].oldest != NULL)
            return c->classes[i].oldest;
    return NULL;
}

/* ---- looking at it ---- */

struct md_coldstore_stats md_coldstore_stats(const struct md_coldstore *c)
{
    return c->stats;
}

void md_coldstore_count_refused(struct md_coldstore *c)
{
    c->stats.refused++;
}

/* One list: links both ways, class, order of use, its sum; adds up what it holds. */
static bool check_list(const struct md_coldstore *c, int cls, size_t *bytes, int64_t *entries,
                       int64_t *tokens)
{
    size_t sum = 0;
    const struct md_cold_entry *before = NULL;
    for (const struct md_cold_entry *e = c->classes[cls].oldest; e != NULL; before = e, e = e->newer) {
        if ((int)e->cls != cls || e->older != before || e->last_used > c->clock)
            return false;
        if (before != NULL && before->last_used >= e->last_used)
            return false;
        if (look_up(c, &(struct wanted){ e->key, e->parent, e->start, e->tokens, e->token_count }, NULL) != e)
            return false; /* not in its bucket, or there twice */
        sum += e->bytes;
        *tokens += e->token_count;
        if (++*entries > c->stats.entry_count)
            return false; /* a ring would never end */
    }
    *bytes += sum;
    return c->classes[cls].newest == before && c->classes[cls].bytes == sum;
}

bool md_coldstore_check(const struct md_coldstore *c)
{
    size_t bytes = 0;
    int64_t entries = 0, tokens = 0, hung = 0;
    for (int cls = 0; cls < MD_CLASS_COUNT; cls++)
        if (!check_list(c, cls, &bytes, &entries, &tokens))
            return false;
    int64_t children = 0;
    for (size_t i = 0; i < c->bucket_count; i++) {
        for (const struct md_cold_entry *e = c->by_key[i]; e != NULL; e = e->next_by_key)
            if (++hung > entries)
                return false;
        for (const struct md_cold_entry *e = c->by_key[c->bucket_count + i]; e != NULL; e = e->next_by_parent)
            if (++children > entries)
                return false;
    }
    const struct md_coldstore_stats *s = &c->stats;
    return hung == entries && children == entries && s->entry_count == entries && s->token_count == tokens &&
           s->used_bytes == bytes && s->used_bytes <= s->peak_bytes && s->peak_bytes <= s->budget_bytes &&
           (size_t)entries <= c->bucket_count;
}
