/* test_base.c - errors, heap, arenas, buffers. */
#include "base/err.h"
#include "base/mem.h"
#include "support/run_suite.h"
#include "support/fault_alloc.h"

#include <check.h>
#include <stdint.h>
#include <string.h>

START_TEST(fail_fills_and_returns)
{
    struct md_err err = { .status = MD_OK };
    ck_assert_int_eq(md_fail(&err, MD_IO, "open '%s': %d", "x", 7), MD_IO);
    ck_assert(err.status == MD_IO && strcmp(err.text, "open 'x': 7") == 0);
    ck_assert_int_eq(md_fail(NULL, MD_BUSY, "nobody listens %s", "here"), MD_BUSY);
    char longer[2000];
    memset(longer, 'y', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    ck_assert_int_eq(md_fail(&err, MD_CORRUPT, "%s", longer), MD_CORRUPT);
    ck_assert_uint_eq(strlen(err.text), sizeof err.text - 1); /* cut, and ended */
}
END_TEST

START_TEST(status_tables)
{
    static const struct {
        enum md_status status;
        const char *name;
        int http, grpc;
    } rows[] = {
        { MD_OK, "OK", 200, 0 },
        { MD_INVALID, "INVALID", 400, 3 },
        { MD_BUSY, "BUSY", 503, 14 },
        { MD_CANCELLED, "CANCELLED", 499, 1 },
        { MD_CLOSED, "CLOSED", 409, 9 },
        { MD_MANIFEST_MISMATCH, "MANIFEST_MISMATCH", 409, 9 }, /* FAILED_PRECONDITION, as CLOSED */
        { MD_SESSION_FATAL, "SESSION_FATAL", 500, 10 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ck_assert_str_eq(md_status_name(rows[i].status), rows[i].name);
        ck_assert_int_eq(md_status_http(rows[i].status), rows[i].http);
        ck_assert_int_eq(md_status_grpc(rows[i].status), rows[i].grpc);
    }
    for (int s = MD_INVALID; s < MD_STATUS_COUNT; s++)
        ck_assert_msg(md_status_http((enum md_status)s) >= 400 && md_status_grpc((enum md_status)s) > 0, "%s",
                      md_status_name((enum md_status)s));
}
END_TEST

START_TEST(calloc_zeroes_and_does_not_wrap)
{
    struct fault_alloc f;
    fault_alloc_init(&f, 0);
    unsigned char *p = md_calloc(&f.alloc, 10, 10), zero[100] = { 0 };
    ck_assert(p != NULL && memcmp(p, zero, 100) == 0);
    ck_assert(f.live_blocks == 1 && f.live_bytes == 100);
    md_free(&f.alloc, p);
    md_free(&f.alloc, NULL);
    ck_assert_ptr_null(md_calloc(&f.alloc, SIZE_MAX / 2, 3));
    ck_assert_ptr_null(md_calloc(NULL, SIZE_MAX / 2, 3));
    ck_assert_ptr_null(md_calloc(NULL, 0, 3));
    ck_assert(f.live_blocks == 0 && f.live_bytes == 0 && f.calls == 1);
    p = md_realloc(NULL, NULL, 8);
    ck_assert_ptr_nonnull(p);
    ck_assert_ptr_null(md_realloc(NULL, p, 0)); /* freed: ASan would tell */
}
END_TEST

START_TEST(grow_doubles_or_changes_nothing)
{
    struct fault_alloc f;
    fault_alloc_init(&f, 0);
    void *items = NULL;
    size_t cap = 0;
    ck_assert(md_grow(&f.alloc, &items, &cap, 1, 4) && cap == 8);
    ck_assert(md_grow(&f.alloc, &items, &cap, 8, 4) && cap == 8 && f.calls == 1);
    ck_assert(md_grow(&f.alloc, &items, &cap, 9, 4) && cap == 16);
    ck_assert(md_grow(&f.alloc, &items, &cap, 100, 4) && cap == 100);
    void *before = items;
    ck_assert(!md_grow(&f.alloc, &items, &cap, SIZE_MAX / 2, 4));
    fault_alloc_arm(&f, 1);
    ck_assert(!md_grow(&f.alloc, &items, &cap, 101, 4));
    ck_assert(items == before && cap == 100);
    md_free(&f.alloc, items);
    ck_assert_uint_eq(f.live_blocks, 0);
}
END_TEST

START_TEST(arena_limit_and_alignment)
{
    struct fault_alloc f;
    struct md_arena a;
    fault_alloc_init(&f, 0);
    md_arena_init(&a, &f.alloc, 40000);
    ck_assert_int_eq(f.calls, 0);
    unsigned char *p = NULL, zero[1000] = { 0 };
    for (size_t n = 1; n < 100; n++) {
        p = md_arena_get(&a, n, 1);
        ck_assert(p != NULL && (uintptr_t)p % _Alignof(max_align_t) == 0 && memcmp(p, zero, n) == 0);
        memset(p, 0xFF, n);
    }
    unsigned char *large = md_arena_get(&a, 20000, 1); /* more than a chunk */
    ck_assert_ptr_nonnull(large);
    memset(large, 0xFF, 20000);
    ck_assert_ptr_null(md_arena_get(&a, SIZE_MAX / 2, 3));
    ck_assert_ptr_null(md_arena_get(&a, 40001 - a.used_bytes, 1));
    ck_assert_ptr_nonnull(md_arena_get(&a, 40000 - a.used_bytes, 1));
    ck_assert_uint_eq(a.used_bytes, 40000);
    ck_assert_ptr_null(md_arena_get(&a, 1, 1));
    md_arena_done(&a);
    ck_assert_uint_eq(f.live_blocks, 0);
    ck_assert_str_eq(md_arena_strndup(&a, "again and more", 5), "again"); /* usable after done */
    md_arena_done(&a);
    md_arena_done(&(struct md_arena){ 0 });
    ck_assert_uint_eq(f.live_blocks, 0);
}
END_TEST

START_TEST(arena_without_heap)
{
    struct fault_alloc f;
    struct md_arena a;
    fault_alloc_init(&f, 2);
    md_arena_init(&a, &f.alloc, 1 << 20);
    ck_assert_ptr_nonnull(md_arena_get(&a, 1, 1));
    size_t used = a.used_bytes;
    ck_assert_ptr_null(md_arena_get(&a, 100000, 1));
    ck_assert_uint_eq(a.used_bytes, used);
    ck_assert_ptr_nonnull(md_arena_get(&a, 100000, 1));
    md_arena_done(&a);
    ck_assert_uint_eq(f.live_blocks, 0);
}
END_TEST

START_TEST(buffer_limit)
{
    struct fault_alloc f;
    struct md_buf b;
    struct md_err err;
    fault_alloc_init(&f, 0);
    md_buf_init(&b, &f.alloc, 100);
    ck_assert_int_eq(md_buf_append(&b, NULL, 0, NULL), MD_OK);
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(md_buf_append(&b, "x", 1, NULL), MD_OK);
    ck_assert_int_eq(md_buf_append(&b, "y", 1, &err), MD_NO_MEMORY);
    ck_assert_ptr_nonnull(strstr(err.text, "100"));
    ck_assert_int_eq(md_buf_append(&b, "y", SIZE_MAX, NULL), MD_NO_MEMORY);
    ck_assert_int_eq(md_buf_reserve(&b, 1, NULL), MD_NO_MEMORY);
    ck_assert_int_eq(md_buf_reserve(&b, SIZE_MAX, NULL), MD_NO_MEMORY);
    ck_assert(b.len == 100 && b.cap <= 100 && memchr(b.data, 'y', 100) == NULL);
    md_buf_done(&b);
    ck_assert_uint_eq(f.live_blocks, 0);
}
END_TEST

START_TEST(buffer_reserve_is_exact)
{
    struct fault_alloc f;
    struct md_buf b;
    fault_alloc_init(&f, 0);
    md_buf_init(&b, &f.alloc, 1 << 20);
    ck_assert_int_eq(md_buf_reserve(&b, 1000, NULL), MD_OK);
    ck_assert(b.cap == 1000 && b.len == 0 && f.live_bytes == 1000);
    ck_assert_int_eq(md_buf_reserve(&b, 999, NULL), MD_OK);
    ck_assert_int_eq(f.calls, 1);
    b.len = 1000;
    fault_alloc_arm(&f, 1);
    ck_assert_int_eq(md_buf_reserve(&b, 1, NULL), MD_NO_MEMORY);
    ck_assert(b.cap == 1000 && b.len == 1000);
    md_buf_done(&b);
    md_buf_done(&b);
    ck_assert_uint_eq(f.live_blocks, 0);
}
END_TEST

START_TEST(buffer_printf)
{
    struct fault_alloc f;
    struct md_buf b;
    char longer[600];
    memset(longer, 'z', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    fault_alloc_init(&f, 0);
    md_buf_init(&b, &f.alloc, 1000);
    ck_assert_int_eq(md_buf_printf(&b, NULL, "%d-", 5), MD_OK);
    ck_assert_int_eq(md_buf_printf(&b, NULL, "%s", longer), MD_OK);
    ck_assert(b.len == 2 + 599 && b.data[0] == '5' && b.data[1] == '-' && strlen((char *)b.data) == b.len);
    ck_assert_int_eq(md_buf_printf(&b, NULL, "%s", longer), MD_NO_MEMORY);
    ck_assert(b.len == 2 + 599 && strlen((char *)b.data) == b.len);
    md_buf_done(&b);
    ck_assert_uint_eq(f.live_blocks, 0);
}
END_TEST

START_TEST(take_empties_its_variable)
{
    char *p = md_calloc(NULL, 1, 1), *q = MD_TAKE(p);
    ck_assert(p == NULL && q != NULL);
    md_free(NULL, q);
}
END_TEST

static int cleaned;

static void clean(int *p)
{
    cleaned += *p;
}

START_TEST(cleanup_runs_at_the_end_of_the_scope)
{
    {
        int mine MD_CLEANUP(clean) = 5;
        ck_assert_int_eq(cleaned, mine - 5);
    }
    ck_assert_int_eq(cleaned, 5);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("base");
    TCase *t = tcase_create("base");
    tcase_add_test(t, fail_fills_and_returns);
    tcase_add_test(t, status_tables);
    tcase_add_test(t, calloc_zeroes_and_does_not_wrap);
    tcase_add_test(t, grow_doubles_or_changes_nothing);
    tcase_add_test(t, arena_limit_and_alignment);
    tcase_add_test(t, arena_without_heap);
    tcase_add_test(t, buffer_limit);
    tcase_add_test(t, buffer_reserve_is_exact);
    tcase_add_test(t, buffer_printf);
    tcase_add_test(t, take_empties_its_variable);
    tcase_add_test(t, cleanup_runs_at_the_end_of_the_scope);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
