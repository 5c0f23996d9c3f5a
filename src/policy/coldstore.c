/* coldstore.c - see coldstore.h.  Entries hang in four structures at once: three chained hash tables, by key, by the
 * key of their parent and by content, for finding, and one list per class from the longest unused to the newest,
 * for choosing what goes.  All are intrusive, so adding and dropping an entry takes no memory but the tables' own
 * growth. */
#include "policy/coldstore.h"

#include "policy/content.h"
#include "policy/prefix.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    FIRST_BUCKETS = 64,    /* a power of two, as every later size */
    HELD = MD_CLASS_COUNT, /* the list of those that are held, whatever their class */
    LISTS
};

struct class_list {
    struct md_cold_entry *oldest, *newest;
    size_t bytes;
};

struct md_coldstore {
    const struct md_alloc *alloc;
    struct md_cold_entry **buckets; /* of all tables, one after the other */
    size_t bucket_count;            /* of each */
    struct class_list classes[LISTS];
    int64_t clock; /* counts uses: the time of last_used */
    struct md_coldstore_stats stats;
};

static struct md_cold_entry **new_buckets(const struct md_alloc *alloc, size_t bucket_count)
{
    return md_calloc(alloc, MD_COLDSTORE_TABLES * bucket_count, sizeof(struct md_cold_entry *));
}

enum md_status md_coldstore_open(const struct md_alloc *alloc, size_t budget_bytes,
                                 struct md_coldstore **ret_store, struct md_err *err)
{
    struct md_coldstore *c = md_calloc(alloc, 1, sizeof *c);
    if (c == NULL)
        return md_fail(err, MD_NO_MEMORY, "cold store");
    c->alloc = alloc;
    c->stats.budget_bytes = budget_bytes;
    c->bucket_count = FIRST_BUCKETS;
    c->buckets = new_buckets(alloc, c->bucket_count);
    if (c->buckets == NULL) {
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
    md_free(c->alloc, c->buckets);
    md_free(c->alloc, c);
}

/* ---- the tables ---- */

static uint64_t folded(struct md_key key)
{
    return key.hi ^ key.lo;
}

static uint64_t hash_of(const struct md_cold_entry *e, enum md_coldstore_table t)
{
    return t == MD_BY_CONTENT ? e->content : folded(t == MD_BY_KEY ? e->key : e->parent);
}

static struct md_cold_entry **bucket_of(struct md_cold_entry **buckets, size_t bucket_count,
                                        enum md_coldstore_table t, uint64_t hash)
{
    return &buckets[(size_t)t * bucket_count + (hash & (bucket_count - 1))];
}

static struct md_cold_entry *first_in(const struct md_coldstore *c, enum md_coldstore_table t, uint64_t hash)
{
    return *bucket_of(c->buckets, c->bucket_count, t, hash);
}

static void hang(struct md_cold_entry **buckets, size_t bucket_count, struct md_cold_entry *e)
{
    for (enum md_coldstore_table t = 0; t < MD_COLDSTORE_TABLES; t++) {
        struct md_cold_entry **b = bucket_of(buckets, bucket_count, t, hash_of(e, t));
        e->next[t] = *b;
        *b = e;
    }
}

static void unhang(struct md_coldstore *c, struct md_cold_entry *e)
{
    for (enum md_coldstore_table t = 0; t < MD_COLDSTORE_TABLES; t++) {
        struct md_cold_entry **b = bucket_of(c->buckets, c->bucket_count, t, hash_of(e, t));
        for (; *b != e; b = &(*b)->next[t])
            assert(*b != NULL); /* it must be in the index */
        *b = e->next[t];
        e->next[t] = NULL;
    }
}

/* Twice the buckets; the entries are hung over, which cannot fail. */
static bool grow_table(struct md_coldstore *c)
{
    size_t count = c->bucket_count * 2;
    struct md_cold_entry **buckets = new_buckets(c->alloc, count);
    if (buckets == NULL)
        return false;
    for (size_t i = 0; i < c->bucket_count; i++) { /* the table by key has them all */
        for (struct md_cold_entry *e = first_in(c, MD_BY_KEY, i), *next; e != NULL; e = next) {
            next = e->next[MD_BY_KEY];
            hang(buckets, count, e);
        }
    }
    md_free(c->alloc, c->buckets);
    c->buckets = buckets;
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
    struct md_cold_entry *e = first_in(c, MD_BY_KEY, folded(w->key));
    while (e != NULL && !is_the_block(e, w)) {
        key_seen = key_seen || md_key_equal(e->key, w->key);
        e = e->next[MD_BY_KEY];
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
                                        int32_t start, const md_token *tokens, int32_t token_count,
                                        enum md_provenance_kind floor)
{
    assert(tokens != NULL && token_count > 0);
    bool collision;
    struct md_cold_entry *e =
        look_up(c, &(struct wanted){ key, parent, start, tokens, token_count }, &collision);
    if (e != NULL && !md_provenance_accepted(e->provenance, floor))
        e = NULL;
    c->stats.hits += e != NULL;
    c->stats.misses += e == NULL;
    c->stats.collisions += collision;
    return e;
}

struct md_cold_entry *md_coldstore_best(const struct md_coldstore *c, struct md_key parent, int32_t start,
                                        const md_token *tokens, int32_t token_count,
                                        enum md_provenance_kind floor, int32_t *ret_common)
{
    struct md_cold_entry *best = NULL;
    size_t most = 0;
    struct md_cold_entry *e = first_in(c, MD_BY_PARENT, folded(parent));
    for (; e != NULL; e = e->next[MD_BY_PARENT]) {
        if (!md_key_equal(e->parent, parent) || e->start != start ||
            !md_provenance_accepted(e->provenance, floor))
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

struct md_cold_entry *md_coldstore_within(const struct md_coldstore *c, struct md_key parent, int32_t start,
                                          const md_token *tokens, int32_t token_count,
                                          enum md_provenance_kind floor)
{
    struct md_cold_entry *longest = NULL;
    struct md_cold_entry *e = first_in(c, MD_BY_PARENT, folded(parent));
    for (; e != NULL; e = e->next[MD_BY_PARENT]) {
        if (!md_key_equal(e->parent, parent) || e->start != start || e->token_count > token_count ||
            !md_provenance_accepted(e->provenance, floor) ||
            (longest != NULL && e->token_count <= longest->token_count))
            continue;
        if (memcmp(e->tokens, tokens, (size_t)e->token_count * sizeof *tokens) == 0)
            longest = e;
    }
    return longest;
}

static int64_t tokens_of(const struct md_cold_entry *e)
{
    return e->is_state ? 0 : e->token_count;
}

/* Of two with the same tokens: see by_content. */
static bool is_better(const struct md_cold_entry *a, const struct md_cold_entry *b, int32_t prefer_start)
{
    if (a->provenance.kind != b->provenance.kind)
        return a->provenance.kind < b->provenance.kind;
    int64_t far_a = llabs((int64_t)a->start - prefer_start), far_b = llabs((int64_t)b->start - prefer_start);
    return far_a != far_b ? far_a < far_b : a->last_used > b->last_used;
}

struct md_cold_entry *md_coldstore_by_content(struct md_coldstore *c, uint64_t content,
                                              const md_token *tokens, int32_t token_count,
                                              int32_t prefer_start, enum md_provenance_kind floor)
{
    struct md_cold_entry *best = NULL;
    bool others = false, known = false;
    assert(tokens != NULL && token_count > 0);
    for (struct md_cold_entry *e = first_in(c, MD_BY_CONTENT, content); e != NULL;
         e = e->next[MD_BY_CONTENT]) {
        if (e->content != content || e->is_state || (best != NULL && !is_better(e, best, prefer_start)))
            continue;
        bool same = e->token_count == token_count &&
                    memcmp(e->tokens, tokens, (size_t)token_count * sizeof *tokens) == 0;
        if (same && md_provenance_accepted(e->provenance, floor))
            best = e;
        known = known || same;
        others = others || !same;
    }
    c->stats.collisions += others && !known;
    return best;
}

bool md_coldstore_has(const struct md_coldstore *c, struct md_key key, struct md_key parent, int32_t start,
                      const md_token *tokens, int32_t token_count)
{
    return md_coldstore_peek(c, key, parent, start, tokens, token_count) != NULL;
}

/* ---- the lists ---- */

static struct class_list *list_of(struct md_coldstore *c, const struct md_cold_entry *e)
{
    return &c->classes[e->holds > 0 ? (int)HELD : (int)e->cls];
}

static void list_append(struct md_coldstore *c, struct md_cold_entry *e)
{
    struct class_list *list = list_of(c, e);
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
    struct class_list *list = list_of(c, e);
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
    return bytes <= c->stats.budget_bytes - c->stats.used_bytes - c->stats.reserved_bytes; /* never below 0 */
}

static void note_peak(struct md_coldstore *c)
{
    const size_t taken = c->stats.used_bytes + c->stats.reserved_bytes;
    c->stats.peak_bytes = taken > c->stats.peak_bytes ? taken : c->stats.peak_bytes;
}

void md_coldstore_reserve(struct md_coldstore *c, size_t bytes)
{
    assert(bytes <= c->stats.budget_bytes - c->stats.used_bytes);
    c->stats.reserved_bytes = bytes;
    note_peak(c);
}

bool md_coldstore_can_fit(const struct md_coldstore *c, size_t bytes, enum md_cache_class cls)
{
    assert((unsigned)cls < MD_CLASS_COUNT);
    size_t stays = c->classes[HELD].bytes;
    for (unsigned i = 0; i < (unsigned)cls; i++)
        stays += c->classes[i].bytes;
    return bytes <= c->stats.budget_bytes - c->stats.reserved_bytes - stays;
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
    assert(entry->holds >= 0);
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
    entry->content = md_content_key(entry->tokens, (size_t)entry->token_count);
    hang(c->buckets, c->bucket_count, entry);
    list_append(c, entry);
    c->stats.used_bytes += entry->bytes;
    note_peak(c);
    c->stats.entry_count++;
    c->stats.token_count += tokens_of(entry);
    c->stats.stored++;
    return MD_OK;
}

void md_coldstore_touch(struct md_coldstore *c, struct md_cold_entry *entry, enum md_cache_class cls)
{
    list_unlink(c, entry);
    entry->cls = cls;
    list_append(c, entry);
}

static void change_holds(struct md_coldstore *c, struct md_cold_entry *entry, int32_t by)
{
    list_unlink(c, entry);
    entry->holds += by;
    list_append(c, entry);
}

void md_coldstore_hold(struct md_coldstore *c, struct md_cold_entry *entry)
{
    change_holds(c, entry, 1);
}

void md_coldstore_release(struct md_coldstore *c, struct md_cold_entry *entry)
{
    assert(entry->holds > 0);
    change_holds(c, entry, -1);
}

void md_coldstore_remove(struct md_coldstore *c, struct md_cold_entry *entry, bool dropped)
{
    unhang(c, entry);
    list_unlink(c, entry);
    assert(c->stats.used_bytes >= entry->bytes);
    c->stats.used_bytes -= entry->bytes;
    c->stats.entry_count--;
    c->stats.token_count -= tokens_of(entry);
    c->stats.dropped += dropped;
}

int64_t md_coldstore_clock(const struct md_coldstore *c)
{
    return c->clock;
}

struct md_cold_entry *md_coldstore_any(const struct md_coldstore *c)
{
    for (int i = LISTS - 1; i >= 0; i--)
        if (c->classes[i].oldest != NULL)
            return c->classes[i].oldest;
    return NULL;
}

/* ---- looking at it ---- */

struct md_coldstore_stats md_coldstore_stats(const struct md_coldstore *c)
{
    struct md_coldstore_stats s = c->stats;
    s.held_bytes = c->classes[HELD].bytes;
    return s;
}

void md_coldstore_count_refused(struct md_coldstore *c)
{
    c->stats.refused++;
}

/* One list: links both ways, class, order of use, its sum; adds up what it holds. */
static bool check_list(const struct md_coldstore *c, int list, size_t *bytes, int64_t *entries,
                       int64_t *tokens)
{
    size_t sum = 0;
    const struct md_cold_entry *before = NULL;
    for (const struct md_cold_entry *e = c->classes[list].oldest; e != NULL; before = e, e = e->newer) {
        if (list_of((struct md_coldstore *)c, e) != &c->classes[list] || e->older != before ||
            e->last_used > c->clock)
            return false;
        if (before != NULL && before->last_used >= e->last_used)
            return false;
        if (look_up(c, &(struct wanted){ e->key, e->parent, e->start, e->tokens, e->token_count }, NULL) != e)
            return false; /* not in its bucket, or there twice */
        sum += e->bytes;
        *tokens += tokens_of(e);
        if (++*entries > c->stats.entry_count)
            return false; /* a ring would never end */
    }
    *bytes += sum;
    return c->classes[list].newest == before && c->classes[list].bytes == sum;
}

/* As many in a table as there are entries. */
static bool check_table(const struct md_coldstore *c, enum md_coldstore_table t)
{
    int64_t hung = 0;
    for (size_t i = 0; i < c->bucket_count; i++)
        for (const struct md_cold_entry *e = first_in(c, t, i); e != NULL; e = e->next[t])
            if (++hung > c->stats.entry_count)
                return false;
    return hung == c->stats.entry_count;
}

bool md_coldstore_check(const struct md_coldstore *c)
{
    size_t bytes = 0;
    int64_t entries = 0, tokens = 0;
    for (int list = 0; list < LISTS; list++)
        if (!check_list(c, list, &bytes, &entries, &tokens))
            return false;
    const struct md_coldstore_stats *s = &c->stats;
    if (s->entry_count != entries || s->token_count != tokens || (size_t)entries > c->bucket_count)
        return false;
    for (enum md_coldstore_table t = 0; t < MD_COLDSTORE_TABLES; t++)
        if (!check_table(c, t))
            return false;
    return s->used_bytes == bytes && s->used_bytes <= s->peak_bytes && s->peak_bytes <= s->budget_bytes &&
           s->reserved_bytes <= s->budget_bytes - s->used_bytes;
}
