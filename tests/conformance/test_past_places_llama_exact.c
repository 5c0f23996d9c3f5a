/* What a conversation past the trained window answers after a restart or a restore, on llama.cpp with the exact model: f32
 * weights and KV, no flash attention.  It has its places anew, and they are those of one that ran on (policy/rebase.h): the
 * answer is the same, and logits differ only by the order of sums over cells that lie elsewhere.
 *
 * What is right is told by the process that ran on. */
#include "adapters/llama/llama_backend.h"
#include "session/disk.h"
#include "session/session_internal.h"
#include "session/snapshot.h"
#include "support/exact_model.h"
#include "support/run_suite.h"
#include "support/subjects.h"
#include "support/talker.h"
#include "support/temp_folder.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    TRAINED = 256,
    HOT = 160,
    BLOCK = 16,
    WINDOW = 4000,
    BATCH = 64,
    TURNS = 9,
    NEW = 83, /* tokens of a turn: no multiple of anything */
    ANSWER = 8,
    SHORT =
        3, /* new tokens and answer of the first turn that is compared: less than the step, so that whoever ran on */
    BRIEF = 6, /* would have left everything where it was */
    LAST = 40, /* tokens of the second answer: over block borders, where the hot set is planned anew */
    VOCAB = MD_FAKE_BYTE_VOCAB,
    DISK = 64 << 20
};

static char folder[160], path[200];
static md_token fresh[(TURNS + 2) * NEW];

static void setup(void)
{
    struct md_fake_dims dims = md_fake_dims_exact();
    struct md_fake_model *model;
    md_temp_folder(folder, sizeof folder, "places");
    snprintf(path, sizeof path, "%s/exact.gguf", folder);
    dims.trained_tokens = TRAINED;
    ck_assert_int_eq(md_fake_model_open(&dims, 1, NULL, &model, NULL), MD_OK);
    ck_assert_int_eq(md_exact_model_write(model, path, NULL), MD_OK);
    md_fake_model_close(model);
    md_subject_random_tokens(fresh, (TURNS + 2) * NEW);
}

static void teardown(void)
{
    md_temp_folder_remove(folder);
}

/* ---- processes ---- */

struct process {
    struct talker t;
    struct md_engine *engine;
    struct md_text *text;
    struct md_disk *disk;
};

/* kv: its folder under ours; NULL: without a disk. */
static void begin(struct process *p, const char *kv)
{
    const struct md_open_params params = { .model_path = path,
                                           .cell_count = HOT,
                                           .seq_count = 1,
                                           .batch_tokens = BATCH,
                                           .ubatch_tokens = BATCH,
                                           .threads = 1,
                                           .type_k = "f32",
                                           .type_v = "f32" };
    struct md_pool_config config = { .window_tokens = WINDOW,
                                     .past_window = true,
                                     .hot_tokens = HOT,
                                     .residency = true,
                                     .block_tokens = BLOCK,
                                     .sink_tokens = -1,
                                     .recent_tokens = -1,
                                     .cold_bytes = 64 << 20 };
    struct md_err err = { 0 };
    char at[200];
    memset(p, 0, sizeof *p);
    ck_assert_msg(md_backend_llama.open(&params, &p->engine, &p->text, &err) == MD_OK, "%s", err.text);
    talker_watch(&p->t, &p->engine);
    if (kv != NULL) {
        snprintf(at, sizeof at, "%s/%s", folder, kv);
        const struct md_disk_config d = { .folder = at,
                                          .identity = md_engine_info(p->engine)->identity,
                                          .budget_bytes = DISK };
        ck_assert_msg(md_disk_open(&d, &p->disk, &err) == MD_OK, "%s", err.text);
        config.disk = p->disk;
    }
    p->t.banned[0] = MD_EXACT_TOKEN_END;
    p->t.banned_count = 1;
    talker_open(&p->t, p->engine, p->text, config);
}

static void end(struct process *p)
{
    talker_close(&p->t);
    md_disk_close(p->disk);
    md_engine_close(p->engine);
    md_text_close(p->text);
}

/* ---- talking ---- */

struct talk {
    md_token tokens[WINDOW];
    int32_t count, turns;
};

/* A turn: so many new tokens, and the answer, which joins the talk. */
static void say(struct process *p, struct talk *k, int32_t new_tokens, int32_t answer)
{
    memcpy(k->tokens + k->count, fresh + k->turns++ * NEW, (size_t)new_tokens * sizeof *fresh);
    k->count += new_tokens;
    ck_assert_msg(talker_ask(&p->t, k->tokens, k->count, answer) == MD_OK, "%s", p->t.err.text);
    ck_assert_int_eq(p->t.last.lost, 0);
    memcpy(k->tokens + k->count, p->t.last.tokens.ids, (size_t)answer * sizeof *fresh);
    k->count += answer;
}

/* What is compared of a turn. */
struct seen {
    float logits[LAST][VOCAB];
    md_token answer[LAST];
    int32_t steps, computed, place[WINDOW / BLOCK];
    size_t blocks;
};

static void look(struct process *p, struct talk *k, int32_t new_tokens, int32_t answer, struct seen *ret)
{
    const struct md_tape *tape = &p->t.session->tape;
    memset(ret, 0, sizeof *ret);
    p->t.logits = &ret->logits[0][0];
    p->t.logits_steps = LAST;
    say(p, k, new_tokens, answer);
    p->t.logits = NULL;
    ck_assert_int_eq(p->t.steps, answer);
    memcpy(ret->answer, k->tokens + k->count - answer, (size_t)answer * sizeof *fresh);
    ret->steps = answer;
    ret->computed = p->t.last.prefilled;
    ret->blocks = md_tape_block_count(tape);
    for (size_t i = 0; i < ret->blocks; i++)
        ret->place[i] = tape->blocks[i].state == MD_STATE_HOT ? md_tape_place(tape, i).start : -1;
    ck_assert_int_gt(md_tape_moved_tokens(tape), 0);
}

/* The two turns that are compared. */
static void last_turns(struct process *p, const struct talk *so_far, struct seen ret[2])
{
    static struct talk k;
    k = *so_far;
    look(p, &k, SHORT, BRIEF, &ret[0]);
    look(p, &k, NEW, LAST, &ret[1]);
}

static void compare(const char *label, const struct seen *got, const struct seen *want)
{
    float most = 0;
    for (int i = 0; i < want->steps; i++)
        for (int v = 0; v < VOCAB; v++)
            most = fmaxf(most, fabsf(got->logits[i][v] - want->logits[i][v]));
    printf("%s: logits of %d steps differ by %g at most; the first block at %d and at %d\n", label,
           want->steps, (double)most, got->place[0], want->place[0]);
    ck_assert_int_eq(got->steps, want->steps);
    ck_assert_msg(most <= 1e-3f, "%s: logits differ by %g", label, (double)most);
    ck_assert_msg(memcmp(got->answer, want->answer, sizeof got->answer) == 0, "%s: another answer", label);
    ck_assert_int_eq(got->computed, want->computed);
    ck_assert_uint_eq(got->blocks, want->blocks);
    for (size_t i = 0; i < got->blocks; i++)
        ck_assert_msg(got->place[i] == want->place[i], "%s: block %zu stands at %d, wanted %d", label, i,
                      got->place[i], want->place[i]);
}

static void compare_both(const char *label, const struct seen got[2], const struct seen want[2])
{
    for (int i = 0; i < 2; i++)
        compare(label, &got[i], &want[i]);
}

static struct md_session *kept(struct md_pool *pool, const struct talk *k)
{
    struct md_session *s = NULL;
    while ((s = md_pool_next(pool, s)) != NULL) {
        int32_t count;
        const md_token *context = md_session_context(s, &count);
        if (count == k->count && memcmp(context, k->tokens, (size_t)count * sizeof *context) == 0)
            return s;
    }
    return NULL;
}

START_TEST(restarted_and_restored_it_answers_as_one_that_ran_on)
{
    static struct seen ran_on[2], got[2];
    static struct talk k, again;
    static struct process p;
    const struct md_sections_place place = { folder, "snapshot" };
    struct md_snapshot snap;
    struct md_err err = { 0 };
    k = again = (struct talk){ 0 };
    begin(&p, NULL);
    for (int i = 0; i < TURNS; i++)
        say(&p, &k, NEW, ANSWER);
    ck_assert_int_gt(k.count, 3 * TRAINED);
    ck_assert_int_eq(md_session_snapshot(p.t.session, &place, NULL, &snap, &err), MD_OK);
    last_turns(&p, &k, ran_on);
    end(&p);

    begin(&p, NULL);
    ck_assert_msg(md_session_restore(p.t.session, &place, NULL, NULL, &snap, &err) == MD_OK, "%s", err.text);
    last_turns(&p, &k, got);
    compare_both("restored", got, ran_on);
    end(&p);

    begin(&p, "kv");
    for (int i = 0; i < TURNS; i++)
        say(&p, &again, NEW, ANSWER);
    ck_assert(memcmp(again.tokens, k.tokens, sizeof k.tokens) == 0);
    end(&p);
    begin(&p, "kv");
    p.t.session = kept(p.t.pool, &k);
    ck_assert_ptr_nonnull(p.t.session);
    last_turns(&p, &k, got);
    compare_both("restarted", got, ran_on);
    end(&p);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("past_places_llama_exact");
    TCase *c = tcase_create("places");
    tcase_set_timeout(c, 300);
    tcase_add_unchecked_fixture(c, setup, teardown);
    tcase_add_test(c, restarted_and_restored_it_answers_as_one_that_ran_on);
    suite_add_tcase(s, c);
    return md_run_suite_here(s);
}
