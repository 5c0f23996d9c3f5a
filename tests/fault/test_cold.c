/* test_cold.c - blocks on their way between engine and cold store, and what goes wrong on it: B066, B070,
 * B072, B073, copies, provenance. */
#include "session/cold.h"
#include "support/run_suite.h"
#include "support/cold_blocks.h"
#include "support/fault_alloc.h"
#include "support/rng.h"

#include <check.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define UNDER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define UNDER_ASAN 1
#endif
#endif
#ifndef UNDER_ASAN
#define UNDER_ASAN 0
#endif

enum { MIB = 1 << 20 };

static const struct md_provenance full = { MD_PROVENANCE_FULL, 0 }, bounded = { MD_PROVENANCE_BOUNDED, 77 };

static struct fault_alloc heap;
static struct cold_blocks blocks;
static struct md_cold *cold;

static void open_all(size_t budget, int count, int32_t tokens, size_t bytes_per_token)
{
    fault_alloc_init(&heap, 0);
    cold_blocks_init(&blocks, COLD_CAPS, count, tokens, bytes_per_token);
    ck_assert_int_eq(md_cold_open(&heap.alloc, budget, &cold, NULL), MD_OK);
    for (int i = 0; i < count; i++)
        cold_blocks_compute(&blocks, i);
}

static void close_all(void)
{
    md_cold_close(cold);
    ck_assert_uint_eq(heap.live_blocks, 0);
    ck_assert_uint_eq(heap.live_bytes, 0);
    cold_blocks_done(&blocks);
}

static enum md_status evict(int i, bool *stored)
{
    struct md_cold_ref ref = cold_blocks_ref(&blocks, i);
    return cold_blocks_evict(cold, &blocks.engine->base, i, &ref, MD_CLASS_VOLATILE, full, stored, NULL);
}

static enum md_status admit(int i)
{
    struct md_cold_admitted p;
    struct md_cold_ref ref = cold_blocks_ref(&blocks, i);
    return md_cold_admit(cold, &blocks.engine->base, i, &ref, ref.range.start, MD_PROVENANCE_APPROXIMATE,
                         false, &p, NULL);
}

static bool is_cold(int i)
{
    struct md_cold_ref ref = cold_blocks_ref(&blocks, i);
    return md_cold_has(cold, &ref, MD_PROVENANCE_APPROXIMATE);
}

/* A held copy is neither dropped, replaced nor taken out with what it is admitted; and it comes in at another place. */
START_TEST(held)
{
    struct md_cold_admitted got;
    bool stored = false;
    open_all(MIB, 3, 8, 64);
    struct md_engine *e = &blocks.engine->base;
    ck_assert(evict(0, &stored) == MD_OK && stored);
    const struct md_cold_ref ref = cold_blocks_ref(&blocks, 0);
    ck_assert(!md_cold_is_held(cold, &ref));
    ck_assert(md_cold_hold(cold, &ref, MD_PROVENANCE_FULL));
    ck_assert(md_cold_is_held(cold, &ref));
    md_cold_drop(cold, &ref);
    ck_assert(is_cold(0));
    ck_assert_int_eq(md_cold_admit(cold, e, 0, &ref, ref.range.start, MD_PROVENANCE_APPROXIMATE, false, &got,
                                   NULL),
                     MD_OK);
    ck_assert(is_cold(0) && cold_blocks_intact(&blocks, 0));
    ck_assert_int_eq(md_cold_copy(cold, e, 0, &ref, MD_CLASS_VOLATILE, full, &stored, NULL), MD_OK);
    ck_assert(stored && md_cold_is_held(cold, &ref));
    md_cold_release(cold, &ref);
    ck_assert(!md_cold_is_held(cold, &ref));
    md_cold_release(cold, &ref); /* of what nobody holds: nothing */
    md_cold_drop(cold, &ref);
    ck_assert(!is_cold(0));
    ck_assert(!md_cold_hold(cold, &ref, MD_PROVENANCE_APPROXIMATE)); /* it is not there */
    close_all();
}
END_TEST

START_TEST(there_and_back)
{
    open_all(1 << 20, 3, 8, 64);
    bool stored = false;
    for (int i = 0; i < 3; i++) {
        ck_assert(evict(i, &stored) == MD_OK && stored && is_cold(i) && !cold_blocks_hot(&blocks, i));
    }
    ck_assert_int_eq(md_engine_cells_used(&blocks.engine->base), 0);
    struct md_coldstore_stats s = md_cold_stats(cold);
    ck_assert(s.entry_count == 3 && s.token_count == 24 && s.stored == 3 && s.refused == 0 && s.dropped == 0);
    for (int i = 2; i >= 0; i--)
        ck_assert(admit(i) == MD_OK && !is_cold(i) && cold_blocks_intact(&blocks, i));
    ck_assert_int_eq(admit(0), MD_NOT_FOUND);
    s = md_cold_stats(cold);
    ck_assert(s.used_bytes == 0 && s.entry_count == 0 && s.hits == 3 && s.misses == 1);
    ck_assert_int_eq(evict(0, &stored), MD_OK);
    close_all(); /* with one block inside */
    md_cold_close(NULL);
}
END_TEST

/* Which of the two allocations of the third write fails, or the size that the engine promised. */
START_TEST(b066_failed_write_is_a_miss)
{
    static const struct {
        const char *label;
        long fail_at;
        int64_t bound_off;
    } rows[] = { { "record", 1, 0 }, { "bytes", 2, 0 }, { "size at the end", 0, -8 } };
    open_all(1 << 20, 5, 8, 64);
    for (int i = 0; i < 5; i++) {
        bool stored = i == 2;
        if (i == 2) {
            fault_alloc_arm(&heap, rows[_i].fail_at);
            blocks.engine->bound_off = rows[_i].bound_off;
        }
        ck_assert_int_eq(evict(i, &stored), MD_OK);
        blocks.engine->bound_off = 0;
        ck_assert_msg(stored == (i != 2), "%s: block %d", rows[_i].label, i);
        ck_assert(!cold_blocks_hot(&blocks, i)); /* the cells are free whatever happens */
    }
    struct md_coldstore_stats s = md_cold_stats(cold);
    ck_assert(s.stored == 4 && s.refused == 1 && s.dropped == 0 && s.entry_count == 4);
    for (int i = 0; i < 5; i++) {
        ck_assert_msg(is_cold(i) == (i != 2), "%s: block %d", rows[_i].label, i);
        ck_assert_int_eq(admit(i), i == 2 ? MD_NOT_FOUND : MD_OK);
        if (i == 2)
            cold_blocks_compute(&blocks, i);
        ck_assert(cold_blocks_intact(&blocks, i));
    }
    ck_assert_int_eq(md_cold_stats(cold).misses, 1);
    ck_assert_uint_eq(md_cold_stats(cold).used_bytes, 0);
    close_all();
}
END_TEST

START_TEST(b066_failed_export_leaves_the_block_hot)
{
    open_all(1 << 20, 2, 8, 64);
    bool stored = false;
    blocks.engine->fail_export = MD_INTERNAL;
    ck_assert_int_eq(evict(0, &stored), MD_INTERNAL);
    ck_assert(!stored && !is_cold(0) && cold_blocks_intact(&blocks, 0));
    ck_assert_uint_eq(md_cold_stats(cold).used_bytes, 0);
    ck_assert(evict(0, &stored) == MD_OK && stored);
    ck_assert_int_eq(evict(0, &stored), MD_INVALID); /* it is not hot any more */
    ck_assert(is_cold(0));
    close_all();
}
END_TEST

START_TEST(a_bad_range_is_refused)
{
    static const struct md_range bad[] = { { 0, 0 }, { 8, 0 }, { -8, 0 }, { INT32_MIN, INT32_MAX } };
    open_all(1 << 20, 2, 8, 64);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        bool flag = true;
        struct md_cold_admitted p;
        struct md_cold_ref ref = cold_blocks_ref(&blocks, 0);
        ref.range = bad[i];
        struct md_engine *e = &blocks.engine->base;
        ck_assert_int_eq(cold_blocks_evict(cold, e, 0, &ref, MD_CLASS_VOLATILE, full, &flag, NULL),
                         MD_INVALID);
        ck_assert_int_eq(md_cold_copy(cold, e, 0, &ref, MD_CLASS_VOLATILE, full, &flag, NULL), MD_INVALID);
        ck_assert_int_eq(md_cold_admit(cold, e, 0, &ref, ref.range.start, MD_PROVENANCE_APPROXIMATE, false,
                                       &p, NULL),
                         MD_INVALID);
        ck_assert(cold_blocks_intact(&blocks, 0));
    }
    close_all();
}
END_TEST

/* A call that makes no sense costs nothing: no copy gives way to a block that is not there to be stored. */
START_TEST(a_block_that_is_not_hot_displaces_nothing)
{
    open_all(1 << 20, 2, 8, 64);
    bool stored = false;
    struct md_engine *e = &blocks.engine->base;
    struct md_cold_ref ref = cold_blocks_ref(&blocks, 0);
    ck_assert_int_eq(cold_blocks_evict(cold, e, 0, &ref, MD_CLASS_VOLATILE, bounded, &stored, NULL), MD_OK);
    size_t one = md_cold_stats(cold).used_bytes;
    ck_assert_int_eq(cold_blocks_evict(cold, e, 0, &ref, MD_CLASS_VOLATILE, full, &stored, NULL), MD_INVALID);
    ck_assert_int_eq(md_cold_copy(cold, e, 0, &ref, MD_CLASS_VOLATILE, full, &stored, NULL), MD_INVALID);
    ck_assert(is_cold(0) && admit(0) == MD_OK && cold_blocks_intact(&blocks, 0));
    close_all();

    open_all(one, 2, 8, 64); /* room for one: the other, which is nowhere, must not push it out */
    ck_assert(evict(0, &stored) == MD_OK && stored);
    ck_assert_int_eq(md_engine_truncate(&blocks.engine->base, 1, 0, NULL), MD_OK);
    ck_assert_int_eq(evict(1, &stored), MD_INVALID);
    ck_assert(is_cold(0) && md_cold_stats(cold).dropped == 0);
    close_all();
}
END_TEST

static size_t resident_bytes(void)
{
    long total = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fscanf(f, "%ld %ld", &total, &resident), 2);
    fclose(f);
    return (size_t)resident * (size_t)sysconf(_SC_PAGESIZE);
}

START_TEST(b070_ten_thousand_rounds)
{
    enum { N = 64, ROUNDS = 10000 };
    struct rng r = rng_open("b070");
    open_all(1 << 20, N, 8, 64);
    bool stored;
    ck_assert_int_eq(evict(0, &stored), MD_OK);
    size_t one = md_cold_stats(cold).used_bytes, budget = 32 * one;
    close_all();
    open_all(budget, N, 8, 64);

    size_t base = heap.live_bytes, resident = 0;
    int restores = 0, hits[4] = { 0 }, asks[4] = { 0 };
    for (int round = 0; round < ROUNDS; round++) {
        int i = (int)rng_below(&r, N), quarter = round * 4 / ROUNDS;
        if (cold_blocks_hot(&blocks, i)) {
            ck_assert(evict(i, &stored) == MD_OK && stored);
        } else {
            bool was_cold = is_cold(i);
            restores++;
            enum md_status fail = restores % 7 == 0 ? MD_CANCELLED : restores % 11 == 0 ? MD_INTERNAL : MD_OK;
            blocks.engine->fail_admit = fail;
            enum md_status s = admit(i);
            blocks.engine->fail_admit = MD_OK;
            ck_assert_int_eq(s, !was_cold ? MD_NOT_FOUND : fail);
            if (was_cold && fail != MD_OK)
                ck_assert(is_cold(i) && !cold_blocks_hot(&blocks, i)); /* nothing is half moved */
            if (!was_cold)
                cold_blocks_compute(&blocks, i);
            if (cold_blocks_hot(&blocks, i))
                ck_assert(cold_blocks_intact(&blocks, i) && !is_cold(i));
            asks[quarter]++;
            hits[quarter] += was_cold;
        }
        struct md_coldstore_stats s = md_cold_stats(cold);
        ck_assert(s.used_bytes <= budget && s.used_bytes == (size_t)s.entry_count * one);
        if (round == ROUNDS / 10)
            resident = resident_bytes();
    }
    if (!UNDER_ASAN)                                             /* which keeps freed memory for a while */
        ck_assert_uint_le(resident_bytes(), resident + MIB / 4); /* 9000 rounds of a block would be 8 MiB */
    struct md_coldstore_stats s = md_cold_stats(cold);
    ck_assert(s.peak_bytes <= budget && s.dropped > 0 && s.refused == 0);
    ck_assert_uint_le(heap.peak_bytes - base, budget);
    for (int q = 1; q < 4; q++)
        ck_assert_msg(abs(hits[q] * 100 / asks[q] - hits[1] * 100 / asks[1]) <= 10, "hit rate of quarter %d",
                      q);
    for (int i = 0; i < N; i++)
        if (is_cold(i))
            ck_assert(admit(i) == MD_OK && cold_blocks_intact(&blocks, i));
    ck_assert_uint_eq(md_cold_stats(cold).used_bytes, 0);
    ck_assert_uint_eq(heap.live_bytes, base);
    close_all();
}
END_TEST

START_TEST(b072_no_budget_drops)
{
    open_all(_i == 0 ? 0 : 8 * 64, 4, 8, 64); /* nothing; the KV alone, without its record */
    for (int i = 0; i < 4; i++) {
        bool stored = true;
        long calls = heap.calls;
        ck_assert_int_eq(evict(i, &stored), MD_OK);
        ck_assert(!stored && !is_cold(i) && !cold_blocks_hot(&blocks, i));
        ck_assert_int_eq(heap.calls, calls); /* refused before any memory was taken */
        ck_assert_int_eq(admit(i), MD_NOT_FOUND);
        cold_blocks_compute(&blocks, i);
    }
    struct md_coldstore_stats s = md_cold_stats(cold);
    ck_assert(s.refused == 4 && s.stored == 0 && s.peak_bytes == 0 && s.entry_count == 0);
    close_all();
}
END_TEST

START_TEST(engine_without_export_drops)
{
    fault_alloc_init(&heap, 0);
    cold_blocks_init(&blocks, MD_CAP_REMOVE_TAIL | MD_CAP_REMOVE_MIDDLE, 1, 8, 64);
    ck_assert_int_eq(md_cold_open(&heap.alloc, 1 << 20, &cold, NULL), MD_OK);
    cold_blocks_compute(&blocks, 0);
    bool stored = true;
    ck_assert_int_eq(evict(0, &stored), MD_OK);
    ck_assert(!stored && !is_cold(0) && md_cold_stats(cold).refused == 1);
    close_all();
}
END_TEST

/* ---- real memory ---- */

START_TEST(b073_real_memory_stays_below_the_budget)
{
    const size_t budget = (size_t)64 * MIB;
    open_all(budget, 1, 64, (size_t)80 * MIB / 64);
    bool stored = true;
    size_t base = heap.live_bytes;
    ck_assert_int_eq(evict(0, &stored), MD_OK);
    ck_assert(!stored);
    ck_assert_uint_eq(heap.peak_bytes, base); /* not even for a moment */
    close_all();

    open_all(budget, 10, 64, (size_t)20 * MIB / 64);
    base = heap.live_bytes;
    size_t resident = resident_bytes();
    for (int i = 0; i < 10; i++) {
        ck_assert(evict(i, &stored) == MD_OK && stored);
        struct md_coldstore_stats s = md_cold_stats(cold);
        ck_assert_int_eq(s.entry_count, i < 3 ? i + 1 : 3);
        ck_assert(s.used_bytes <= budget && s.peak_bytes <= budget);
        ck_assert_uint_ge(s.used_bytes, heap.live_bytes - base); /* no less is charged than is taken */
        ck_assert_uint_le(heap.peak_bytes - base, budget);
        if (!UNDER_ASAN) /* which keeps freed memory for a while */
            ck_assert_uint_le(resident_bytes(), resident + budget + MIB);
    }
    ck_assert_int_eq(md_cold_stats(cold).dropped, 7);
    for (int i = 7; i < 10; i++)
        ck_assert(admit(i) == MD_OK && cold_blocks_intact(&blocks, i));
    close_all();
}
END_TEST

/* The C heap, adding up what glibc really takes: its header and its rounding included. */
static size_t heap_takes;

static size_t chunk_bytes(void *p)
{
    size_t usable = p == NULL ? 0 : malloc_usable_size(p);
    return p == NULL ? 0 : usable + (usable < 128 * 1024 ? 8 : 16);
}

static void *measuring_realloc(void *user, void *old, size_t bytes)
{
    (void)user;
    heap_takes -= chunk_bytes(old);
    if (bytes == 0) {
        free(old);
        return NULL;
    }
    void *p = realloc(old, bytes);
    heap_takes += chunk_bytes(p == NULL ? old : p);
    return p;
}

START_TEST(b073_budget_counts_headers_and_padding)
{
    static const size_t per_token[] = { 8, 16, 24, 1000, 16376, 16384, 16392, 40000, 400000 };
    const struct md_alloc measuring = { measuring_realloc, NULL };
    for (size_t i = 0; i < sizeof per_token / sizeof per_token[0]; i++) {
        for (int32_t tokens = 1; tokens <= 8; tokens++) {
            cold_blocks_init(&blocks, COLD_CAPS, 1, tokens, per_token[i]);
            cold_blocks_compute(&blocks, 0);
            ck_assert_int_eq(md_cold_open(&measuring, (size_t)64 * MIB, &cold, NULL), MD_OK);
            size_t before = heap_takes;
            bool stored = false;
            ck_assert(evict(0, &stored) == MD_OK && stored);
            size_t used = md_cold_stats(cold).used_bytes, takes = heap_takes - before;
            ck_assert_msg(used >= takes && used <= takes + 2 * 4096, "%zu x %d: %zu charged, %zu taken",
                          per_token[i], tokens, used, takes);
            /* its share of the index, and two pieces that were rounded up; ASan's heap rounds nothing */
            if (takes < 100000 && !UNDER_ASAN)
                ck_assert_msg(used <= takes + MD_COLDSTORE_INDEX_BYTES + 32,
                              "%zu x %d: %zu charged, %zu taken", per_token[i], tokens, used, takes);
            md_cold_close(cold);
            cold_blocks_done(&blocks);
        }
    }
    ck_assert_uint_eq(heap_takes, 0);
}
END_TEST

/* What was reserved is what is charged, though the engine exported less. */
START_TEST(b073_charges_what_was_reserved)
{
    open_all(1 << 20, 2, 8, 64);
    bool stored;
    ck_assert_int_eq(evict(0, &stored), MD_OK);
    size_t exact = md_cold_stats(cold).used_bytes;
    blocks.engine->bound_off = 4096;
    ck_assert_int_eq(evict(1, &stored), MD_OK);
    ck_assert(stored);
    ck_assert_uint_eq(md_cold_stats(cold).used_bytes, 2 * exact + 4096);
    ck_assert(admit(1) == MD_OK && cold_blocks_intact(&blocks, 1));
    close_all();
}
END_TEST

/* ---- copies ---- */

static enum md_status copy(int i, bool *stored)
{
    struct md_cold_ref ref = cold_blocks_ref(&blocks, i);
    return md_cold_copy(cold, &blocks.engine->base, i, &ref, MD_CLASS_VOLATILE, full, stored, NULL);
}

START_TEST(copy_and_keep)
{
    open_all(1 << 20, 2, 8, 64);
    bool stored = false;
    struct md_cold_admitted p = { .provenance = bounded };
    ck_assert(copy(0, &stored) == MD_OK && stored);
    ck_assert(is_cold(0) && cold_blocks_intact(&blocks, 0));
    ck_assert(copy(0, &stored) == MD_OK && stored); /* again: it is there */
    ck_assert_int_eq(md_cold_stats(cold).stored, 1);
    ck_assert(evict(0, &stored) == MD_OK && stored && !cold_blocks_hot(&blocks, 0));
    ck_assert_int_eq(md_cold_stats(cold).entry_count, 1);

    struct md_cold_ref ref = cold_blocks_ref(&blocks, 0);
    ck_assert_int_eq(md_cold_admit(cold, &blocks.engine->base, 0, &ref, ref.range.start,
                                   MD_PROVENANCE_APPROXIMATE, true, &p, NULL),
                     MD_OK);
    ck_assert(p.provenance.kind == MD_PROVENANCE_FULL && is_cold(0) && cold_blocks_intact(&blocks, 0));
    ck_assert(evict(0, &stored) == MD_OK && stored);
    ck_assert_int_eq(copy(0, &stored), MD_INVALID); /* not hot */
    ck_assert(admit(0) == MD_OK && !is_cold(0) && cold_blocks_intact(&blocks, 0));
    close_all();
}
END_TEST

START_TEST(copy_that_fails)
{
    open_all(1 << 20, 2, 8, 64);
    bool stored = true;
    for (long nth = 1; nth <= 2; nth++) { /* no memory: hot as before */
        fault_alloc_arm(&heap, nth);
        ck_assert_int_eq(copy(0, &stored), MD_OK);
        ck_assert(!stored && !is_cold(0) && cold_blocks_intact(&blocks, 0));
        ck_assert_int_eq(md_cold_stats(cold).refused, nth);
    }
    blocks.engine->fail_export = MD_INTERNAL;
    ck_assert_int_eq(copy(0, &stored), MD_INTERNAL);
    ck_assert(!is_cold(0) && cold_blocks_intact(&blocks, 0));
    blocks.engine->fail_admit = MD_INTERNAL; /* nothing has to come back */
    ck_assert(copy(0, &stored) == MD_OK && stored && cold_blocks_intact(&blocks, 0));
    blocks.engine->fail_admit = MD_OK;
    close_all();

    open_all(0, 1, 8, 64);
    stored = true;
    ck_assert(copy(0, &stored) == MD_OK && !stored && cold_blocks_intact(&blocks, 0));
    ck_assert_int_eq(md_cold_stats(cold).refused, 1);
    close_all();
}
END_TEST

/* Short names for tables. */
#define F MD_PROVENANCE_FULL
#define B MD_PROVENANCE_BOUNDED
#define A MD_PROVENANCE_APPROXIMATE

/* Of two copies of a block, in the order they came. */
START_TEST(the_better_provenance_is_kept)
{
    static const struct {
        enum md_provenance_kind first, second;
        bool want_second;
    } rows[] = {
        { F, F, false }, { F, B, false }, { F, A, false }, /* full is exact: nothing is better */
        { B, F, true },  { B, B, true },  { B, A, false }, /* as good: the newer */
        { A, F, true },  { A, B, true },  { A, A, true },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        open_all(1 << 20, 1, 8, 64);
        bool stored = false;
        struct md_cold_admitted p = { .provenance.kind = MD_PROVENANCE_COUNT };
        const struct md_provenance first = { rows[i].first, 11 }, second = { rows[i].second, 22 };
        struct md_engine *e = &blocks.engine->base;
        struct md_cold_ref ref = cold_blocks_ref(&blocks, 0);
        ck_assert_int_eq(cold_blocks_evict(cold, e, 0, &ref, MD_CLASS_VOLATILE, first, &stored, NULL), MD_OK);
        uint64_t first_kv = blocks.kv[0];
        cold_blocks_compute(&blocks, 0); /* computed again while the old bytes are cold */
        uint64_t second_kv = blocks.kv[0];
        ck_assert_int_eq(cold_blocks_evict(cold, e, 0, &ref, MD_CLASS_VOLATILE, second, &stored, NULL),
                         MD_OK);
        ck_assert(stored && md_cold_stats(cold).entry_count == 1);
        ck_assert_int_eq(md_cold_admit(cold, e, 0, &ref, ref.range.start, MD_PROVENANCE_APPROXIMATE, false,
                                       &p, NULL),
                         MD_OK);
        ck_assert_msg(p.provenance.kind == (rows[i].want_second ? second : first).kind &&
                          p.provenance.attended == (rows[i].want_second ? 22 : 11),
                      "row %zu", i);
        ck_assert_msg(double_engine_kv(blocks.engine, 0, 0) == (rows[i].want_second ? second_kv : first_kv),
                      "row %zu", i);
        close_all();
    }
}
END_TEST

/* What is not good enough is a miss, stays, and comes for whoever takes it. */
START_TEST(below_the_floor_is_a_miss)
{
    open_all(1 << 20, 1, 8, 64);
    bool stored = false;
    struct md_cold_admitted p = { .provenance = full };
    struct md_engine *e = &blocks.engine->base;
    struct md_cold_ref ref = cold_blocks_ref(&blocks, 0);
    ck_assert_int_eq(cold_blocks_evict(cold, e, 0, &ref, MD_CLASS_VOLATILE, bounded, &stored, NULL), MD_OK);
    ck_assert_int_eq(md_cold_admit(cold, e, 0, &ref, ref.range.start, MD_PROVENANCE_FULL, false, &p, NULL),
                     MD_NOT_FOUND);
    ck_assert(is_cold(0) && !cold_blocks_hot(&blocks, 0) && p.provenance.kind == MD_PROVENANCE_FULL);
    ck_assert_int_eq(
        md_cold_best(cold, ref.parent, ref.range.start, ref.tokens, 8, MD_PROVENANCE_FULL).common, 0);
    struct md_cold_match m =
        md_cold_best(cold, ref.parent, ref.range.start, ref.tokens, 8, MD_PROVENANCE_BOUNDED);
    ck_assert(m.common == 8 && m.provenance.kind == MD_PROVENANCE_BOUNDED && m.provenance.attended == 77);
    ck_assert_int_eq(md_cold_admit(cold, e, 0, &ref, ref.range.start, MD_PROVENANCE_BOUNDED, false, &p, NULL),
                     MD_OK);
    ck_assert(p.provenance.kind == MD_PROVENANCE_BOUNDED && p.provenance.attended == 77 &&
              cold_blocks_intact(&blocks, 0));
    ck_assert(md_cold_stats(cold).hits == 1 && md_cold_stats(cold).misses == 1);
    ck_assert_int_eq(md_cold_stats(cold).collisions, 0);
    close_all();
}
END_TEST

START_TEST(touched_blocks_stay)
{
    open_all(1 << 20, 4, 8, 64);
    bool stored;
    ck_assert_int_eq(evict(0, &stored), MD_OK);
    size_t one = md_cold_stats(cold).used_bytes;
    close_all();
    open_all(3 * one, 7, 8, 64);
    for (int i = 0; i < 3; i++)
        ck_assert(evict(i, &stored) == MD_OK && stored);
    struct md_cold_ref ref = cold_blocks_ref(&blocks, 0);
    struct md_coldstore_stats before = md_cold_stats(cold), after;
    md_cold_touch(cold, &ref, MD_CLASS_VOLATILE);
    ref = cold_blocks_ref(&blocks, 3);
    md_cold_touch(cold, &ref, MD_CLASS_VOLATILE); /* not there: nothing */
    after = md_cold_stats(cold);
    ck_assert_mem_eq(&before, &after, sizeof before);
    ck_assert(evict(3, &stored) == MD_OK && stored);
    ck_assert(is_cold(0) && !is_cold(1) && is_cold(2) && is_cold(3));
    ck_assert_int_eq(md_cold_stats(cold).dropped, 1);
    /* the manifest says later that 0, the oldest now, is of a higher class: it outlives younger ones of the lower */
    ref = cold_blocks_ref(&blocks, 0);
    md_cold_touch(cold, &ref, MD_CLASS_REPO_MAP);
    for (int i = 2; i < 4; i++) {
        ref = cold_blocks_ref(&blocks, i);
        md_cold_touch(cold, &ref, MD_CLASS_VOLATILE);
    }
    for (int i = 4; i < 7; i++)
        ck_assert(evict(i, &stored) == MD_OK && stored);
    ck_assert(is_cold(0) && !is_cold(2) && !is_cold(3));
    close_all();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cold");
    TCase *t = tcase_create("cold");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, there_and_back);
    tcase_add_test(t, held);
    tcase_add_loop_test(t, b066_failed_write_is_a_miss, 0, 3);
    tcase_add_test(t, b066_failed_export_leaves_the_block_hot);
    tcase_add_test(t, a_bad_range_is_refused);
    tcase_add_test(t, a_block_that_is_not_hot_displaces_nothing);
    tcase_add_test(t, b070_ten_thousand_rounds);
    tcase_add_loop_test(t, b072_no_budget_drops, 0, 2);
    tcase_add_test(t, engine_without_export_drops);
    tcase_add_test(t, b073_real_memory_stays_below_the_budget);
    tcase_add_test(t, b073_budget_counts_headers_and_padding);
    tcase_add_test(t, b073_charges_what_was_reserved);
    tcase_add_test(t, copy_and_keep);
    tcase_add_test(t, copy_that_fails);
    tcase_add_test(t, the_better_provenance_is_kept);
    tcase_add_test(t, below_the_floor_is_a_miss);
    tcase_add_test(t, touched_blocks_stay);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
