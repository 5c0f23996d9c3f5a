/* test_mirror.c - keys of blocks that are kept to be scored, on the fake engine.  The right keys are those of an export of
 * each block, taken before anything else was done with it; the right sizes are md_mirror_block_bytes. */
#include "engine/attention.h"
#include "engine/fake.h"
#include "policy/prefix.h"
#include "session/mirror.h"
#include "support/fault_alloc.h"
#include "support/fault_engine.h"
#include "support/run_suite.h"
#include "support/session_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 6, BLOCK = 16, KEYS_MAX = 1 << 12, PLENTY = 1 << 22 };
static const int32_t layers[] = { 0, 1 };

static struct fault_alloc heap;
static struct md_fault fault;
static struct md_engine *engine;
static struct md_cold *cold;
static struct md_mirror *mirror;
static md_token text[BLOCKS * BLOCK];
static struct md_cold_ref refs[BLOCKS];
static uint16_t want[BLOCKS][KEYS_MAX];
static size_t key_count, block_bytes;

static void take_keys(int i)
{
    struct md_buf kv;
    md_buf_init(&kv, NULL, PLENTY);
    key_count = md_engine_keys_count(engine, layers, 2, BLOCK);
    ck_assert(key_count > 0 && key_count <= KEYS_MAX);
    ck_assert_int_eq(md_engine_export_range(engine, 0, refs[i].range, &kv, NULL), MD_OK);
    ck_assert_int_eq(md_engine_keys(engine, refs[i].range, (struct md_bytes){ kv.data, kv.len }, layers, 2,
                                    want[i], NULL),
                     MD_OK);
    md_buf_done(&kv);
}

/* All blocks computed and hot; room for so many blocks of keys. */
static void open_all(int budget_blocks)
{
    const struct md_fake_options options = { .cell_count = BLOCKS * BLOCK, .attention = true };
    struct md_engine *fake;
    struct md_key parent = { 0 };
    memset(&fault, 0, sizeof fault);
    fault_alloc_init(&heap, 0);
    ck_assert_int_eq(md_fake_open(NULL, &options, &fake, NULL), MD_OK);
    ck_assert_int_eq(md_fault_open(fake, &fault, &engine, NULL), MD_OK);
    ck_assert_int_eq(md_cold_open(NULL, PLENTY, &cold, NULL), MD_OK);
    rig_tokens(text, BLOCKS * BLOCK, 1);
    ck_assert_int_eq(md_engine_prefill(engine, 0, 0, text, BLOCKS * BLOCK, NULL), MD_OK);
    for (int i = 0; i < BLOCKS; i++) {
        const struct md_key key = md_prefix_chain(parent, text + (ptrdiff_t)i * BLOCK, BLOCK);
        refs[i] = (struct md_cold_ref){ .key = key,
                                        .parent = parent,
                                        .range = { i * BLOCK, (i + 1) * BLOCK },
                                        .tokens = text + (ptrdiff_t)i * BLOCK };
        parent = key;
        take_keys(i);
    }
    block_bytes = md_mirror_block_bytes(md_mirror_token_numbers(engine, layers, 2), BLOCK);
    ck_assert_int_eq(md_mirror_open(&heap.alloc, engine, layers, 2, (size_t)budget_blocks * block_bytes,
                                    &mirror, NULL),
                     MD_OK);
}

static void close_all(void)
{
    md_mirror_close(mirror);
    ck_assert_uint_eq(heap.live_blocks, 0);
    md_cold_close(cold);
    md_engine_close(engine);
}

static void go_cold(int i)
{
    bool stored;
    ck_assert_int_eq(md_cold_copy(cold, engine, 0, &refs[i], MD_CLASS_VOLATILE,
                                  (struct md_provenance){ MD_PROVENANCE_FULL, 0 }, &stored, NULL),
                     MD_OK);
    ck_assert(stored);
    ck_assert_int_eq(md_engine_remove_range(engine, 0, refs[i].range, NULL), MD_OK);
}

static enum md_status ask(int i, int64_t mark, const uint16_t **ret_keys)
{
    const struct md_mirror_source from = { engine, cold, 0, md_engine_is_hot(engine, 0, refs[i].range) };
    struct md_err err = { 0 };
    enum md_status s = md_mirror_keys(mirror, &from, &refs[i], mark, ret_keys, &err);
    const struct md_mirror_stats now = md_mirror_stats(mirror);
    ck_assert_uint_le(now.used_bytes, now.budget_bytes);
    ck_assert_uint_eq(now.used_bytes, (size_t)now.blocks * block_bytes);
    return s;
}

static const uint16_t *must(int i, int64_t mark)
{
    const uint16_t *keys = NULL;
    ck_assert_int_eq(ask(i, mark, &keys), MD_OK);
    ck_assert_ptr_nonnull(keys);
    ck_assert_mem_eq(keys, want[i], key_count * sizeof *keys);
    return keys;
}

static void check_read(int64_t hot, int64_t from_cold)
{
    ck_assert_int_eq(md_mirror_stats(mirror).read_hot, hot);
    ck_assert_int_eq(md_mirror_stats(mirror).read_cold, from_cold);
}

START_TEST(keys_are_those_of_an_export)
{
    open_all(BLOCKS);
    go_cold(1);
    go_cold(3);
    const int64_t mark = md_mirror_mark(mirror);
    for (int i = 0; i < BLOCKS; i++)
        must(i, mark);
    check_read(BLOCKS - 2, 2);
    go_cold(0); /* where it is now does not matter: they are kept */
    for (int i = 0; i < BLOCKS; i++)
        must(i, md_mirror_mark(mirror));
    check_read(BLOCKS - 2, 2);
    close_all();
}
END_TEST

/* Room for three: a fourth finds none in the same round, and in the next one takes that of the longest unused. */
START_TEST(what_was_asked_for_stays)
{
    const uint16_t *keys, *first;
    open_all(3);
    int64_t mark = md_mirror_mark(mirror);
    first = must(0, mark);
    must(1, mark);
    must(2, mark);
    ck_assert_int_eq(ask(3, mark, &keys), MD_OK);
    ck_assert_ptr_null(keys);
    ck_assert_mem_eq(first, want[0], key_count * sizeof *first);
    ck_assert_ptr_eq(must(0, mark), first);
    check_read(3, 0);
    mark = md_mirror_mark(mirror);
    must(3, mark); /* 1 was asked for before 2 and 0 */
    must(0, mark);
    must(2, mark);
    check_read(4, 0);
    ck_assert_int_eq(ask(1, mark, &keys), MD_OK);
    ck_assert_ptr_null(keys);
    must(1, md_mirror_mark(mirror));
    check_read(5, 0);
    ck_assert_int_eq(md_mirror_stats(mirror).blocks, 3);
    close_all();
}
END_TEST

START_TEST(no_room_for_one)
{
    const uint16_t *keys = want[0];
    open_all(0);
    ck_assert_int_eq(ask(0, md_mirror_mark(mirror), &keys), MD_OK);
    ck_assert_ptr_null(keys);
    check_read(0, 0);
    close_all();
}
END_TEST

START_TEST(what_is_nowhere_is_not_found)
{
    const uint16_t *keys = want[0];
    open_all(BLOCKS);
    ck_assert_int_eq(md_engine_remove_range(engine, 0, refs[2].range, NULL), MD_OK);
    ck_assert_int_eq(ask(2, md_mirror_mark(mirror), &keys), MD_NOT_FOUND);
    ck_assert_ptr_null(keys);
    ck_assert_int_eq(md_mirror_stats(mirror).blocks, 0);
    check_read(0, 0);
    close_all();
}
END_TEST

START_TEST(an_export_that_fails)
{
    const uint16_t *keys = want[0];
    open_all(BLOCKS);
    const int64_t mark = md_mirror_mark(mirror);
    must(0, mark);
    fault = (struct md_fault){ .op = MD_OP_EXPORT, .nth = 1, .status = MD_INTERNAL };
    ck_assert_int_eq(ask(1, mark, &keys), MD_INTERNAL);
    ck_assert_ptr_null(keys);
    ck_assert_int_eq(md_mirror_stats(mirror).blocks, 1);
    check_read(1, 0);
    must(1, mark);
    must(0, mark);
    check_read(2, 0);
    close_all();
}
END_TEST

START_TEST(each_allocation_fails_once)
{
    open_all(BLOCKS);
    go_cold(1);
    must(0, md_mirror_mark(mirror));
    for (int i = 1; i < 3; i++) {
        enum md_status s = MD_NO_MEMORY;
        int nth = 1;
        for (; s != MD_OK; nth++) {
            const uint16_t *keys = want[0];
            const size_t live = heap.live_bytes;
            fault_alloc_arm(&heap, nth);
            s = ask(i, md_mirror_mark(mirror), &keys);
            ck_assert_int_eq(s, heap.failed ? MD_NO_MEMORY : MD_OK);
            fault_alloc_arm(&heap, 0);
            ck_assert(s == MD_OK || (keys == NULL && heap.live_bytes == live));
            ck_assert_int_eq(md_mirror_stats(mirror).blocks, i + (s == MD_OK));
            must(0, md_mirror_mark(mirror));
        }
        ck_assert_int_gt(nth, 3); /* it has memory of its own, the keys and what they are read from */
        must(i, md_mirror_mark(mirror));
    }
    close_all();
}
END_TEST

START_TEST(opening)
{
    static const int32_t none[] = { 1, 0 }, twice[] = { 1, 1 }, far[] = { 0, 2 }, low[] = { -1, 0 };
    static const int32_t *const bad[] = { none, twice, far, low };
    struct md_mirror *other = NULL;
    open_all(BLOCKS);
    const size_t live = heap.live_bytes;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_int_eq(md_mirror_open(&heap.alloc, engine, bad[i], 2, PLENTY, &other, NULL), MD_INVALID);
    ck_assert_int_eq(md_mirror_open(&heap.alloc, engine, layers, 0, PLENTY, &other, NULL), MD_INVALID);
    enum md_status s = MD_NO_MEMORY;
    for (int nth = 1; s != MD_OK; nth++) {
        fault_alloc_arm(&heap, nth);
        s = md_mirror_open(&heap.alloc, engine, layers, 2, PLENTY, &other, NULL);
        ck_assert(s == MD_OK || (s == MD_NO_MEMORY && heap.live_bytes == live));
    }
    md_mirror_close(other);
    md_mirror_close(NULL);
    ck_assert_uint_eq(heap.live_bytes, live);
    close_all();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("mirror");
    TCase *c = tcase_create("keys");
    tcase_add_test(c, keys_are_those_of_an_export);
    tcase_add_test(c, what_was_asked_for_stays);
    tcase_add_test(c, no_room_for_one);
    tcase_add_test(c, what_is_nowhere_is_not_found);
    tcase_add_test(c, an_export_that_fails);
    tcase_add_test(c, each_allocation_fails_once);
    tcase_add_test(c, opening);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
