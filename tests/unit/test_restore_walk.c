/* test_restore_walk.c - restores at random, that end at random: into new and live conversations, of files that the store
 * has or not, in stores with and without room, over a disk or none, past the trained window or not, by the calls of the
 * worker.
 *
 * What is right: a restore that ends early has changed nothing that can be seen, on the disk either; one that succeeds is
 * what the file says, and the next call computes nothing that it said is there.  See session/snapshot.h. */
#include "session/worker_run.h"
#include "support/rng.h"
#include "support/run_suite.h"
#include "support/store_rig.h"
#include "support/temp_folder.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

enum {
    WINDOW = 700,
    TRAINED = 256,
    TEXT = 1400,
    FILES = 4,
    SESSIONS = 4,
    STEPS = 60,
    ROOM = 64 << 20,
    LITTLE = 96 << 10,
    DISK = 64 << 20,
    LITTLE_DISK = 1 << 20
};

static char folder[4096];

static const struct {
    int32_t hot;
    size_t cold;
    int64_t disk;
    bool past;
} ways[] = {
    { WINDOW, ROOM, 0, false },
    { 160, ROOM, 0, false },
    { 160, LITTLE, 0, false },
    { 160, ROOM, DISK, false },
    { 160, LITTLE, DISK, false },
    { 160, LITTLE, LITTLE_DISK, false },
    { WINDOW, LITTLE, LITTLE_DISK, false },
    { 160, ROOM, 0, true },
    { 160, LITTLE, DISK, true },
    { 160, 128 << 10, LITTLE_DISK, true },
};
enum { WAYS = sizeof ways / sizeof ways[0] };

struct walk {
    struct rig r;
    struct md_disk *disk;
    struct rng rng;
    struct md_snapshot files[FILES]; /* bytes 0: not written yet */
    md_token said[FILES][WINDOW];
    int cancelled, restored, made_way;
};

static struct md_sections_place place_of(int i)
{
    static const char *const names[FILES] = { "a", "b", "c", "d" };
    return (struct md_sections_place){ folder, names[i] };
}

/* All that can be seen. */
struct seen {
    struct md_session_status s[SESSIONS + 1];
    struct md_block_view maps[SESSIONS + 1][WINDOW / 16 + 1];
    uint64_t contexts[SESSIONS + 1];
    struct md_pool_status pool;
    struct sr_files files;
    int count;
};

static void look(const struct walk *w, struct seen *ret)
{
    memset(ret, 0, sizeof *ret);
    for (struct md_session *s = md_pool_next(w->r.pool, NULL); s != NULL; s = md_pool_next(w->r.pool, s)) {
        int32_t count;
        const md_token *tokens = md_session_context(s, &count);
        ck_assert_int_lt(ret->count, SESSIONS + 1);
        ret->s[ret->count] = md_session_status(s);
        ret->s[ret->count].changes = 0;
        md_session_map(s, ret->maps[ret->count], WINDOW / 16 + 1);
        for (int32_t i = 0; i < count; i++)
            ret->contexts[ret->count] = ret->contexts[ret->count] * 31 + (uint64_t)tokens[i];
        ret->count++;
    }
    ret->pool = md_pool_status(w->r.pool);
    if (w->disk != NULL)
        ret->files = sr_files();
}

static void check_same(const struct walk *w, const struct seen *before)
{
    static struct seen now;
    look(w, &now);
    ck_assert_int_eq(now.count, before->count);
    for (int i = 0; i < now.count; i++) {
        ck_assert_mem_eq(&now.s[i], &before->s[i], sizeof now.s[i]);
        ck_assert_mem_eq(now.maps[i], before->maps[i], sizeof now.maps[i]);
    }
    ck_assert_mem_eq(now.contexts, before->contexts, sizeof now.contexts);
    ck_assert_int_eq(now.pool.hot_cells, before->pool.hot_cells);
    ck_assert_uint_eq(now.pool.cold.used_bytes, before->pool.cold.used_bytes);
    ck_assert_uint_eq(now.pool.cold.held_bytes, before->pool.cold.held_bytes);
    ck_assert_int_eq(now.pool.cold.entry_count, before->pool.cold.entry_count);
    ck_assert_int_eq(now.pool.cold.dropped, before->pool.cold.dropped);
    ck_assert_uint_eq(now.pool.disk.used_bytes, before->pool.disk.used_bytes);
    ck_assert_uint_eq(now.pool.disk.reserved_bytes, before->pool.disk.reserved_bytes);
    ck_assert_int_eq(now.pool.disk.entry_count, before->pool.disk.entry_count);
    ck_assert_int_eq(now.pool.disk.dropped, before->pool.disk.dropped);
    ck_assert_int_eq(now.files.blocks, before->files.blocks);
    ck_assert_int_eq(now.files.records, before->files.records);
    ck_assert_int_eq(now.files.temporary, 0);
}

static struct md_session *any(struct walk *w)
{
    struct md_session *s = md_pool_next(w->r.pool, NULL);
    if (s == NULL)
        return w->r.session = rig_new(&w->r);
    for (uint32_t n = rng_below(&w->rng, SESSIONS); n > 0; n--) {
        struct md_session *next = md_pool_next(w->r.pool, s);
        s = next != NULL ? next : md_pool_next(w->r.pool, NULL);
    }
    return w->r.session = s;
}

static void ask(struct walk *w, const md_token *prompt, int32_t count)
{
    const enum md_status s = rig_ask(&w->r, prompt, count, 1 + (int32_t)rng_below(&w->rng, 20), false);
    ck_assert_msg(s == MD_OK, "%s: %s", md_status_name(s), w->r.err.text);
}

static void say(struct walk *w)
{
    static md_token prompt[TEXT];
    const int32_t from = (int32_t)rng_below(&w->rng, 500);
    rig_tokens(prompt, TEXT, 1);
    rig_tokens(prompt + from, TEXT - from, 1 + rng_below(&w->rng, 6));
    (void)any(w);
    ask(w, prompt, 1 + (int32_t)rng_below(&w->rng, WINDOW - 100));
}

static void write_one(struct walk *w)
{
    const int i = (int)rng_below(&w->rng, FILES);
    struct md_session *s = any(w);
    int32_t count;
    const struct md_sections_place place = place_of(i);
    const md_token *tokens = md_session_context(s, &count);
    ck_assert_int_eq(md_session_snapshot(s, &place, NULL, &w->files[i], &w->r.err), MD_OK);
    memcpy(w->said[i], tokens, (size_t)count * sizeof *tokens);
}

static bool left_at(void *user)
{
    int *polls = user;
    return --*polls <= 0;
}

static bool has_id(const struct seen *s, int64_t id)
{
    for (int i = 0; i < s->count; i++)
        if (s->s[i].id == id)
            return true;
    return false;
}

/* What is restored is all there, and the next call uses it. */
static void check_restored(struct walk *w, struct md_session *s, int i, const struct md_snapshot *got)
{
    static md_token prompt[WINDOW];
    int32_t count;
    const md_token *tokens = md_session_context(s, &count);
    const struct md_session_status st = md_session_status(s);
    ck_assert_int_eq(count, w->files[i].context_tokens);
    ck_assert_int_eq(st.tape_tokens, w->files[i].tape_tokens);
    ck_assert_int_eq(st.hot_tokens, 0);
    ck_assert_int_ge(st.cold_tokens, got->kv_tokens);
    if (count > 0)
        ck_assert_mem_eq(tokens, w->said[i], (size_t)count * sizeof *tokens);
    if (count >= WINDOW - 30 || count < st.tape_tokens || rng_below(&w->rng, 2) == 0)
        return;
    memcpy(prompt, w->said[i], (size_t)count * sizeof *prompt);
    rig_tokens(prompt + count, 5, 77);
    w->r.session = s;
    ask(w, prompt, count + 5);
    if (w->r.config.cold_bytes == ROOM) /* else what others had hot may need its room by now */
        ck_assert_int_ge(w->r.last.cached, got->kv_tokens);
}

static void restore(struct walk *w, int64_t *last_new)
{
    static struct seen before;
    const int i = (int)rng_below(&w->rng, FILES);
    const bool is_new = rng_below(&w->rng, 2) == 0;
    int polls = rng_below(&w->rng, 3) == 0 ? 1 << 20 : 1 + (int)rng_below(&w->rng, 240);
    const struct md_sink sink = { .user = &polls, .cancelled = left_at };
    struct md_event end = { 0 };
    struct md_session *s = NULL;
    struct md_job_request q = { .kind = MD_JOB_RESTORE, .place = place_of(i) };
    if (!is_new)
        q.session = md_session_id(any(w));
    look(w, &before);
    enum md_status st = md_worker_find(w->r.pool, &q, &s, &w->r.err);
    if (st == MD_BUSY) { /* all are kept, for they were restored */
        check_same(w, &before);
        md_session_close(any(w));
        return;
    }
    ck_assert_int_eq(st, MD_OK);
    end.session = md_session_id(s);
    const int64_t id = end.session;
    st = md_worker_run(&q, s, &sink, &end, &w->r.err);
    ck_assert(md_pool_check(w->r.pool));
    if (st != MD_OK) {
        ck_assert_int_eq(st, w->files[i].bytes == 0 ? MD_NOT_FOUND : MD_CANCELLED);
        ck_assert_int_eq(end.session, is_new ? 0 : q.session);
        check_same(w, &before);
        w->cancelled++;
        return;
    }
    w->restored++;
    s = md_pool_find(w->r.pool, id);
    ck_assert_ptr_nonnull(s);
    if (is_new) {
        ck_assert(!has_id(&before, id) && id > *last_new);
        *last_new = id;
        w->made_way += before.count == SESSIONS;
    }
    md_buf_done(&end.notes);
    check_restored(w, s, i, &end.snapshot);
    if (is_new && rng_below(&w->rng, 2) == 0)
        md_session_close(s); /* they are kept: somebody has to go */
}

static void by_hand(struct walk *w)
{
    struct md_session *s = any(w);
    const int32_t tape = md_session_status(s).tape_tokens;
    int32_t tokens;
    if (tape <= 32)
        return;
    const int32_t start = (int32_t)rng_below(&w->rng, (uint32_t)(tape / 16 - 1)) * 16;
    const struct md_range range = { start, start + 16 };
    const enum md_status st = rng_below(&w->rng, 2) == 0
                                  ? md_session_evict_range(s, range, &tokens, &w->r.err)
                                  : md_session_admit_range(s, range, &tokens, &w->r.err);
    ck_assert_msg(st == MD_OK, "%s: %s", md_status_name(st), w->r.err.text);
}

START_TEST(restores_at_random)
{
    static struct walk w;
    struct md_err err;
    int64_t last_new = 0;
    memset(&w, 0, sizeof w);
    w.rng = rng_open("restores");
    struct md_pool_config c = rig_config(WINDOW, ways[_i].hot, ways[_i].cold);
    c.session_limit = SESSIONS;
    c.past_window = ways[_i].past;
    if (ways[_i].disk > 0) {
        const struct md_disk_config d = { .folder = sr_folder,
                                          .identity = "fake",
                                          .budget_bytes = ways[_i].disk };
        ck_assert_msg(md_disk_open(&d, &w.disk, &err) == MD_OK, "%s", err.text);
        c.disk = w.disk;
    }
    ck_assert_msg(rig_try_open_trained(&w.r, c, 0, 4, ways[_i].past ? TRAINED : RIG_TOKENS_MAX) == MD_OK,
                  "%s", w.r.err.text);
    for (int step = 0; step < STEPS; step++) {
        switch (rng_below(&w.rng, 8)) {
        case 0:
        case 1: say(&w); break;
        case 2: write_one(&w); break;
        case 3: by_hand(&w); break;
        case 4:
            if (rng_below(&w.rng, 4) == 0)
                md_session_close(any(&w));
            break;
        default: restore(&w, &last_new);
        }
        ck_assert(md_pool_check(w.r.pool));
    }
    printf("way %d: %d cancelled, %d restored, %d made way\n", _i, w.cancelled, w.restored, w.made_way);
    ck_assert_int_gt(w.cancelled, 0);
    ck_assert_int_gt(w.restored, 0);
    rig_close(&w.r);
    md_disk_close(w.disk);
}
END_TEST

static void setup(void)
{
    md_temp_folder(folder, sizeof folder, "restores");
    sr_setup();
}

static void teardown(void)
{
    md_temp_folder_remove(folder);
    sr_teardown();
}

int main(void)
{
    Suite *s = suite_create("restores at random");
    TCase *c = tcase_create("walk");
    tcase_set_timeout(c, 300);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, restores_at_random, 0, WAYS);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
