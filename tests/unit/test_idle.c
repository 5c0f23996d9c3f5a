/* test_idle.c - who makes way for the live conversation: rows, and a machine room where sessions share cells. */
#include "policy/idle.h"
#include "support/run_suite.h"
#include "support/rng.h"

#include <check.h>
#include <string.h>

#define T MD_CLASS_TASK_PINNED
#define R MD_CLASS_REPO_MAP
#define V MD_CLASS_VOLATILE

/* Take victims until none is left; their numbers in order, as letters. */
static const char *order(struct md_idle_block *blocks, size_t count)
{
    static char text[27];
    size_t n = 0, left = count, index[26];
    for (size_t i = 0; i < count; i++)
        index[i] = i;
    while (left > 0) {
        size_t v = md_idle_victim(blocks, left);
        ck_assert_uint_lt(v, left);
        text[n++] = (char)('a' + index[v]);
        left--;
        memmove(&blocks[v], &blocks[v + 1], (left - v) * sizeof *blocks);
        memmove(&index[v], &index[v + 1], (left - v) * sizeof *index);
    }
    ck_assert_uint_eq(md_idle_victim(blocks, 0), 0);
    text[n] = '\0';
    return text;
}

START_TEST(b077_order_of_leaving)
{
    static const struct {
        const char *label, *want;
        size_t count;
        struct md_idle_block blocks[4];
    } rows[] = {
        { "none", "", 0, { { 0 } } },
        { "from the end backwards",
          "cba",
          3,
          { { 0, 5, V, { 0, 8 }, 8 }, { 0, 5, V, { 8, 16 }, 8 }, { 0, 5, V, { 16, 20 }, 4 } } },
        { "the session longest unused",
          "badc",
          4,
          { { 7, 5, V, { 0, 8 }, 8 },
            { 7, 5, V, { 8, 16 }, 8 },
            { 1, 6, V, { 0, 8 }, 8 },
            { 1, 6, V, { 8, 16 }, 8 } } },
        { "used at the same time: one after the other",
          "acdb",
          4,
          { { 1, 5, V, { 8, 16 }, 8 },
            { 2, 5, V, { 16, 24 }, 8 },
            { 1, 5, V, { 0, 8 }, 8 },
            { 2, 5, V, { 24, 32 }, 8 } } },
        { "class before place",
          "bdac",
          4,
          { { 0, 5, R, { 24, 32 }, 8 },
            { 0, 5, V, { 8, 16 }, 8 },
            { 0, 5, T, { 16, 24 }, 8 },
            { 0, 5, V, { 0, 8 }, 8 } } },
        { "age before class", "ab", 2, { { 0, 4, T, { 0, 8 }, 8 }, { 1, 5, V, { 0, 8 }, 8 } } },
        { "shared ones after all others",
          "cdba",
          4,
          { { 0, 4, V, { 0, 8 }, 0 },
            { 0, 4, V, { 8, 16 }, 0 },
            { 1, 5, T, { 8, 16 }, 1 },
            { 1, 5, T, { 0, 8 }, 8 } } },
        { "times below 0", "ba", 2, { { 0, 0, V, { 0, 8 }, 8 }, { 1, INT64_MIN, V, { 0, 8 }, 8 } } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_idle_block blocks[4];
        memcpy(blocks, rows[i].blocks, sizeof blocks);
        const char *got = order(blocks, rows[i].count);
        ck_assert_msg(strcmp(got, rows[i].want) == 0, "%s: %s", rows[i].label, got);
    }
}
END_TEST

/* ---- sessions that share ---- */

enum { SESSIONS = 5, PLACES = 6, BLOCK = 8 };

/* Sessions are branches: each names the piece of cells that its block at a place lies in. */
struct room {
    int piece[SESSIONS][PLACES]; /* -1: no block */
    enum md_cache_class cls[SESSIONS][PLACES];
    int64_t used[SESSIONS];
};

static int sharers(const struct room *m, int piece)
{
    int n = 0;
    for (int s = 0; s < SESSIONS; s++)
        for (int p = 0; p < PLACES; p++)
            n += m->piece[s][p] == piece;
    return n;
}

static int pieces(const struct room *m)
{
    int n = 0;
    for (int id = 0; id < SESSIONS * PLACES; id++)
        n += sharers(m, id) > 0;
    return n;
}

static size_t list(const struct room *m, struct md_idle_block *ret)
{
    size_t n = 0;
    for (int s = 0; s < SESSIONS; s++)
        for (int p = 0; p < PLACES; p++)
            if (m->piece[s][p] >= 0)
                ret[n++] = (struct md_idle_block){ .session = (size_t)s,
                                                   .session_last_used = m->used[s],
                                                   .cls = m->cls[s][p],
                                                   .range = { p * BLOCK, (p + 1) * BLOCK },
                                                   .own_cells = sharers(m, m->piece[s][p]) == 1 ? BLOCK : 0 };
    return n;
}

/* Asked one at a time with counts made anew, any need that can be met is met, what was promised is freed, and a block
 * that others share goes only when nothing else frees a cell. */
START_TEST(walk_of_sessions_that_share)
{
    struct rng r = rng_open("idle");
    int shared_left = 0;
    for (int round = 0; round < 3000; round++) {
        struct room m;
        for (int s = 0; s < SESSIONS; s++) {
            int from = (int)rng_below(&r, SESSIONS), fork = from < s ? (int)rng_below(&r, PLACES + 1) : 0;
            m.used[s] = rng_below(&r, 4);
            for (int p = 0; p < PLACES; p++) {
                m.piece[s][p] = p < fork ? m.piece[from][p] : rng_below(&r, 4) ? s * PLACES + p : -1;
                m.cls[s][p] = rng_below(&r, MD_CLASS_COUNT);
            }
        }
        int have = pieces(&m), need = have > 0 ? (int)rng_below(&r, (uint32_t)have + 1) : 0;
        for (int freed = 0; freed < need;) {
            struct md_idle_block blocks[SESSIONS * PLACES];
            size_t n = list(&m, blocks), v = md_idle_victim(blocks, n);
            ck_assert_uint_lt(v, n);
            if (blocks[v].own_cells == 0) {
                shared_left++;
                for (size_t i = 0; i < n; i++)
                    ck_assert_int_eq(blocks[i].own_cells, 0);
            }
            int before = pieces(&m);
            m.piece[blocks[v].session][blocks[v].range.start / BLOCK] = -1;
            ck_assert_int_eq(before - pieces(&m), blocks[v].own_cells / BLOCK);
            freed += blocks[v].own_cells / BLOCK;
        }
    }
    ck_assert_int_gt(shared_left, 100);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("idle");
    TCase *t = tcase_create("idle");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, b077_order_of_leaving);
    tcase_add_test(t, walk_of_sessions_that_share);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
