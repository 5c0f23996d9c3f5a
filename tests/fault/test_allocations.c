/* test_allocations.c - the Nth allocation fails, N = 1, 2, 3 ... until a run meets none: whatever fails, the
 * state stays valid, nothing is claimed that is not so, and nothing leaks. */
#include "policy/coldstore.h"
#include "policy/residency.h"
#include "session/cold.h"
#include "support/run_suite.h"
#include "support/cold_blocks.h"
#include "support/fault_alloc.h"
#include "text/stream.h"

#include <check.h>
#include <string.h>

START_TEST(planner)
{
    enum { N = 2000 }; /* more than one chunk of the arena */
    static struct md_block blocks[N];
    struct fault_alloc f;
    enum md_status s = MD_NO_MEMORY;
    int runs = 0;
    for (long nth = 1; s != MD_OK; nth++, runs++) {
        for (int i = 0; i < N; i++)
            blocks[i] = (struct md_block){ .range = { i, i + 1 }, .cls = MD_CLASS_VOLATILE };
        struct md_arena a;
        struct md_plan plan = { .hot_tokens = 77 };
        fault_alloc_init(&f, nth);
        md_arena_init(&a, &f.alloc, 1 << 20);
        s = md_residency_plan(blocks, N, NULL, 50, (struct md_stream_policy){ 1, 1 },
                              (struct md_residency_gate){ .remove_middle = true }, &a, &plan, NULL);
        ck_assert(f.failed == (s == MD_NO_MEMORY));
        ck_assert_int_eq(plan.hot_tokens, s == MD_OK ? 50 : 77);
        md_arena_done(&a);
        ck_assert_uint_eq(f.live_blocks, 0);
    }
    ck_assert_int_ge(runs, 3);

    /* the arena's own limit */
    struct md_arena a;
    struct md_plan plan = { .hot_tokens = 77 };
    fault_alloc_init(&f, 0);
    md_arena_init(&a, &f.alloc, 100);
    ck_assert_int_eq(md_residency_plan(blocks, N, NULL, 50, (struct md_stream_policy){ 1, 1 },
                                       (struct md_residency_gate){ .remove_middle = true }, &a, &plan, NULL),
                     MD_NO_MEMORY);
    ck_assert_int_eq(plan.hot_tokens, 77);
    md_arena_done(&a);
    ck_assert_uint_eq(f.live_blocks, 0);
}
END_TEST

START_TEST(coldstore_index)
{
    enum { N = 300 }; /* the table grows three times */
    static struct md_cold_entry entries[N];
    static md_token tokens[N];
    bool failed = true;
    int runs = 0;
    for (long nth = 1; failed; nth++, runs++) {
        struct fault_alloc f;
        struct md_coldstore *c = NULL;
        fault_alloc_init(&f, nth);
        enum md_status s = md_coldstore_open(&f.alloc, 1 << 20, &c, NULL);
        ck_assert(s == MD_OK || (s == MD_NO_MEMORY && c == NULL));
        int refused = 0;
        for (int i = 0; i < N && s == MD_OK; i++) {
            tokens[i] = i;
            entries[i] = (struct md_cold_entry){ .key = { 1, (uint64_t)i },
                                                 .start = i,
                                                 .tokens = &tokens[i],
                                                 .token_count = 1,
                                                 .cls = MD_CLASS_VOLATILE,
                                                 .bytes = 10 };
            enum md_status put = md_coldstore_put(c, &entries[i], NULL);
            ck_assert(put == MD_OK || put == MD_NO_MEMORY);
            refused += put != MD_OK;
            ck_assert(md_coldstore_check(c));
            ck_assert(md_coldstore_has(c, entries[i].key, entries[i].parent, i, &tokens[i], 1) ==
                      (put == MD_OK));
        }
        if (s == MD_OK) {
            ck_assert_int_eq(refused, f.failed);
            ck_assert_int_eq(md_coldstore_stats(c).refused, refused);
            ck_assert_int_eq(md_coldstore_stats(c).entry_count, N - refused);
            while (md_coldstore_any(c) != NULL)
                md_coldstore_remove(c, md_coldstore_any(c), false);
        }
        md_coldstore_close(c);
        ck_assert_uint_eq(f.live_blocks, 0);
        failed = f.failed;
    }
    ck_assert_int_ge(runs, 5);
}
END_TEST

static const struct md_provenance full = { MD_PROVENANCE_FULL, 0 }, bounded = { MD_PROVENANCE_BOUNDED, 77 };

/* One life of a cold store: all blocks out, the odd ones back, copies of those, and all back in the end. */
static void cold_life(struct md_cold *cold, struct cold_blocks *b, int *ret_refused)
{
    struct md_cold_admitted p;
    bool stored[COLD_BLOCKS_MAX];
    struct md_engine *e = &b->engine->base;
    for (int i = 0; i < b->count; i++) {
        struct md_cold_ref ref = cold_blocks_ref(b, i);
        stored[i] = false;
        ck_assert_int_eq(cold_blocks_evict(cold, e, i, &ref, MD_CLASS_VOLATILE, i % 2 == 0 ? full : bounded,
                                           &stored[i], NULL),
                         MD_OK);
        ck_assert(!cold_blocks_hot(b, i) && md_cold_has(cold, &ref, MD_PROVENANCE_APPROXIMATE) == stored[i]);
        *ret_refused += !stored[i];
    }
    for (int i = 1; i < b->count; i += 2) {
        struct md_cold_ref ref = cold_blocks_ref(b, i);
        bool kept = false;
        if (stored[i])
            ck_assert_int_eq(md_cold_admit(cold, e, i, &ref, ref.range.start, MD_PROVENANCE_APPROXIMATE,
                                           i % 4 == 1, &p, NULL),
                             MD_OK);
        else
            cold_blocks_compute(b, i);
        ck_assert(cold_blocks_intact(b, i));
        ck_assert_int_eq(md_cold_copy(cold, e, i, &ref, MD_CLASS_REPO_MAP, full, &kept, NULL), MD_OK);
        ck_assert(cold_blocks_intact(b, i) && md_cold_has(cold, &ref, MD_PROVENANCE_APPROXIMATE) == kept);
        *ret_refused += !kept;
    }
    for (int i = 0; i < b->count; i++) {
        struct md_cold_ref ref = cold_blocks_ref(b, i);
        if (cold_blocks_hot(b, i))
            ck_assert_int_eq(md_engine_evict_range(e, i, ref.range, NULL, NULL), MD_OK);
        if (!md_cold_has(cold, &ref, MD_PROVENANCE_APPROXIMATE)) {
            ck_assert_int_eq(md_cold_admit(cold, e, i, &ref, ref.range.start, MD_PROVENANCE_APPROXIMATE,
                                           false, &p, NULL),
                             MD_NOT_FOUND);
            cold_blocks_compute(b, i);
        } else {
            ck_assert_int_eq(md_cold_admit(cold, e, i, &ref, ref.range.start, MD_PROVENANCE_APPROXIMATE,
                                           false, &p, NULL),
                             MD_OK);
        }
        ck_assert(cold_blocks_intact(b, i));
    }
    ck_assert_uint_eq(md_cold_stats(cold).used_bytes, 0);
}

START_TEST(cold_blocks_move)
{
    bool failed = true;
    int runs = 0;
    for (long nth = 1; failed; nth++, runs++) {
        struct fault_alloc f;
        struct md_cold *cold = NULL;
        struct cold_blocks b;
        int refused = 0;
        fault_alloc_init(&f, nth);
        cold_blocks_init(&b, COLD_CAPS, 70, 4, 16); /* more blocks than the first table holds */
        for (int i = 0; i < b.count; i++)
            cold_blocks_compute(&b, i);
        enum md_status s = md_cold_open(&f.alloc, 1 << 20, &cold, NULL);
        ck_assert(s == MD_OK || (s == MD_NO_MEMORY && cold == NULL));
        if (s == MD_OK) {
            cold_life(cold, &b, &refused);
            ck_assert_int_eq(refused, f.failed); /* one allocation failed: one block, no more, was lost */
            ck_assert_int_eq(md_cold_stats(cold).refused, refused);
        }
        md_cold_close(cold);
        cold_blocks_done(&b);
        ck_assert_uint_eq(f.live_blocks, 0);
        failed = f.failed;
    }
    ck_assert_int_ge(runs, 2 * 70);
}
END_TEST

START_TEST(stream)
{
    static const char *const pieces[] = {
        "al",
        "pha \xC3",
        "\xA9 ST",
        "O\xF0\x9F",
        "P plain text that is longer, ",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "ST",
        "OP!",
        "never"
    };
    static const char want[] = "alpha \xC3\xA9 STO\xEF\xBF\xBDP plain text that is longer, "
                               "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    static const char text_stop[] = "STOP";
    struct md_bytes stop = { text_stop, 4 };
    bool failed = true;
    int runs = 0;
    for (long nth = 1; failed; nth++, runs++) {
        struct fault_alloc f;
        struct md_stream s;
        struct md_buf out;
        fault_alloc_init(&f, nth);
        md_buf_init(&out, &f.alloc, 4096);
        ck_assert_int_eq(md_stream_init(&s, &f.alloc, &stop, 1, NULL), MD_OK);
        for (size_t i = 0; i <= sizeof pieces / sizeof pieces[0]; i++) {
            bool end = i == sizeof pieces / sizeof pieces[0];
            enum md_status st;
            do { /* what failed changed nothing, so the same call again goes on as if nothing had been */
                size_t len = out.len;
                st = end ? md_stream_finish(&s, &out, NULL)
                         : md_stream_push(&s, pieces[i], strlen(pieces[i]), &out, NULL);
                ck_assert(st == MD_OK || (st == MD_NO_MEMORY && out.len == len));
            } while (st != MD_OK);
        }
        ck_assert_msg(out.len == sizeof want - 1 && memcmp(out.data, want, out.len) == 0, "nth %ld: '%.*s'",
                      nth, (int)out.len, (const char *)out.data);
        ck_assert(s.stopped);
        md_stream_done(&s);
        md_buf_done(&out);
        ck_assert_uint_eq(f.live_blocks, 0);
        failed = f.failed;
    }
    ck_assert_int_ge(runs, 4);
}
END_TEST

/* The reader's buffer is full: the call fails whole, and works once there is room. */
START_TEST(stream_into_a_full_buffer)
{
    struct md_bytes stop = { "STOP", 4 };
    struct md_stream s;
    struct md_buf out;
    md_buf_init(&out, NULL, 6);
    ck_assert_int_eq(md_stream_init(&s, NULL, &stop, 1, NULL), MD_OK);
    ck_assert_int_eq(md_stream_push(&s, "abcS\xC3", 5, &out, NULL), MD_OK);
    ck_assert_uint_eq(out.len, 3); /* S may begin a stop, C3 begins a character */
    ck_assert_int_eq(md_stream_push(&s, "\xA9x", 2, &out, NULL), MD_NO_MEMORY);
    ck_assert(out.len == 3 && s.part_len == 1 && s.held.len == 1);
    out.len = 0;
    ck_assert_int_eq(md_stream_push(&s, "\xA9x", 2, &out, NULL), MD_OK);
    ck_assert(out.len == 4 && memcmp(out.data, "S\xC3\xA9x", 4) == 0);
    md_stream_done(&s);
    md_buf_done(&out);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("allocations");
    TCase *t = tcase_create("allocations");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, planner);
    tcase_add_test(t, coldstore_index);
    tcase_add_test(t, cold_blocks_move);
    tcase_add_test(t, stream);
    tcase_add_test(t, stream_into_a_full_buffer);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
