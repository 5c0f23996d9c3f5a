/* RoPE settings on llama.cpp and the exact model.  What is right: a file that says the same in its metadata computes the
 * same; the identity of KV tells settings apart, so that nothing kept under one is taken under another; with nothing set
 * it is what it was before there were settings. */
#include "adapters/llama/llama_backend.h"
#include "session/disk.h"
#include "policy/prefix.h"
#include "session/snapshot.h"
#include "support/exact_model.h"
#include "support/gguf_spec.h"
#include "support/run_suite.h"
#include "support/subjects.h"
#include "support/talker.h"
#include "support/temp_folder.h"
#include "support/tiny_models.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CELLS = 512, PROMPT = 400, TRAINED = 512, VOCAB = MD_FAKE_BYTE_VOCAB };

static char folder[160];
static md_token tokens[PROMPT + 64];

/* What the files say.  yarn and linear count the whole window, as files do. */
static const struct {
    const char *name, *keys;
    int32_t trained;
    float base;
} files[] = {
    { "plain", "", TRAINED, 10000 },
    { "yarn",
      "rope.scaling.type=text:yarn rope.scaling.factor=f32:4 rope.scaling.original_context_length=512",
      4 * TRAINED, 10000 },
    { "yarn256",
      "rope.scaling.type=text:yarn rope.scaling.factor=f32:8 rope.scaling.original_context_length=256",
      4 * TRAINED, 10000 },
    { "linear", "rope.scaling.type=text:linear rope.scaling.factor=f32:4", 4 * TRAINED, 10000 },
    { "base", "", TRAINED, 50000 },
    { "short",
      "rope.scaling.type=text:yarn rope.scaling.factor=f32:4 rope.scaling.original_context_length=512",
      TRAINED, 10000 }, /* made longer by hand: the two values count */
};
enum { FILES = sizeof files / sizeof files[0], PLAIN = 0, YARN, YARN256, LINEAR, BASE, SHORT };
static char paths[FILES][200];

static void put_keys(struct gguf_writer *w, void *user)
{
    const int *file = user;
    gw_spec(w, "llama", files[*file].keys);
}

static void setup(void)
{
    md_temp_folder(folder, sizeof folder, "rope");
    for (int i = 0; i < FILES; i++) {
        struct md_fake_dims dims = md_fake_dims_exact();
        struct md_fake_model *model = NULL;
        struct md_err err = { 0 };
        dims.trained_tokens = files[i].trained;
        dims.rope_base = files[i].base;
        snprintf(paths[i], sizeof paths[i], "%s/%s.gguf", folder, files[i].name);
        ck_assert_msg(md_fake_model_open(&dims, 1, NULL, &model, &err) == MD_OK, "%s", err.text);
        ck_assert_msg(md_exact_model_write_with(model, put_keys, &i, paths[i], &err) == MD_OK, "%s",
                      err.text);
        md_fake_model_close(model);
    }
    md_subject_random_tokens(tokens, PROMPT + 64);
}

static void teardown(void)
{
    md_temp_folder_remove(folder);
}

static enum md_status try_open(const char *path, struct md_rope_asked asked, struct md_engine **ret,
                               struct md_text **ret_text, struct md_err *err)
{
    const struct md_open_params p = {
        .model_path = path, .cell_count = CELLS, .threads = 1, .type_k = "f32", .type_v = "f32", .rope = asked
    };
    return md_backend_llama.open(&p, ret, ret_text, err);
}

static struct md_engine *open_engine(int file, struct md_rope_asked asked)
{
    struct md_engine *e = NULL;
    struct md_err err = { 0 };
    ck_assert_msg(try_open(paths[file], asked, &e, NULL, &err) == MD_OK, "%s", err.text);
    return e;
}

/* ---- logits ---- */

struct seen {
    float logits[VOCAB];
    int32_t trained;
};

static struct seen look(int file, struct md_rope_asked asked)
{
    struct seen s;
    const float *logits;
    struct md_engine *e = open_engine(file, asked);
    ck_assert_int_eq(md_engine_prefill(e, 0, 0, tokens, PROMPT, NULL), MD_OK);
    ck_assert_int_eq(md_engine_decode(e, 0, PROMPT, &tokens[PROMPT], 1, &logits, NULL), MD_OK);
    memcpy(s.logits, logits, sizeof s.logits);
    s.trained = md_engine_info(e)->trained_tokens;
    md_engine_close(e);
    return s;
}

static float distance(const struct seen *a, const struct seen *b)
{
    float most = 0;
    for (int i = 0; i < VOCAB; i++)
        most = fmaxf(most, fabsf(a->logits[i] - b->logits[i]));
    return most;
}

START_TEST(settings_compute_as_files_that_say_the_same)
{
    static const struct {
        const char *label;
        int set, says; /* which file is opened with the settings, and which says them */
        struct md_rope_asked asked;
        int32_t trained;
    } rows[] = {
        { "yarn", PLAIN, YARN, { .scaling = MD_ROPE_YARN, .scale = 4 }, 2048 },
        { "yarn of 256",
          PLAIN,
          YARN256,
          { .scaling = MD_ROPE_YARN, .scale = 8, .yarn_orig_ctx = 256 },
          2048 },
        { "linear", PLAIN, LINEAR, { .scaling = MD_ROPE_LINEAR, .scale = 4 }, 2048 },
        { "frequency scale", PLAIN, LINEAR, { .scaling = MD_ROPE_LINEAR, .freq_scale = 0.25 }, 2048 },
        { "base", PLAIN, BASE, { .freq_base = 50000 }, 512 },
        { "yarn off", YARN, PLAIN, { .scaling = MD_ROPE_NONE }, 512 },
        { "linear off", LINEAR, PLAIN, { .scaling = MD_ROPE_NONE }, 512 },
        { "yarn for linear", LINEAR, YARN, { .scaling = MD_ROPE_YARN, .scale = 4 }, 2048 },
        { "linear for yarn", YARN, LINEAR, { .scaling = MD_ROPE_LINEAR }, 2048 },
        { "another yarn",
          YARN,
          YARN256,
          { .scaling = MD_ROPE_YARN, .scale = 8, .yarn_orig_ctx = 256 },
          2048 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct seen before = look(rows[i].set, (struct md_rope_asked){ 0 });
        const struct seen set = look(rows[i].set, rows[i].asked);
        const struct seen says = look(rows[i].says, (struct md_rope_asked){ 0 });
        ck_assert_msg(distance(&set, &says) < 1e-4f, "%s: %g", rows[i].label, (double)distance(&set, &says));
        ck_assert_msg(distance(&set, &before) > 1e-2f, "%s: %g", rows[i].label,
                      (double)distance(&set, &before));
        ck_assert_msg(set.trained == rows[i].trained, "%s: %d", rows[i].label, set.trained);
    }
}
END_TEST

/* No key of this architecture says them: each must do something, and the library's own defaults nothing. */
START_TEST(the_values_of_yarn_reach_the_library)
{
    static const struct md_rope_asked all[] = {
        { .yarn_ext_given = true },
        { .yarn_ext_given = true, .yarn_ext_factor = 0.5 },
        { .yarn_ext_given = true, .yarn_attn_factor = 1.3 },
        { .yarn_beta_fast = 4 },
        { .yarn_beta_slow = 8 },
    };
    struct seen seen[1 + sizeof all / sizeof all[0]];
    enum { COUNT = sizeof seen / sizeof seen[0] };
    seen[0] = look(YARN, (struct md_rope_asked){ 0 });
    for (int i = 1; i < COUNT; i++) {
        seen[i] = look(YARN, all[i - 1]);
        for (int n = 0; n < i; n++)
            ck_assert_msg(distance(&seen[i], &seen[n]) > 1e-3f, "%d and %d: %g", n, i,
                          (double)distance(&seen[i], &seen[n]));
    }
    const struct seen same =
        look(YARN,
             (struct md_rope_asked){
                 .yarn_ext_given = true, .yarn_ext_factor = 1, .yarn_beta_fast = 32, .yarn_beta_slow = 1 });
    ck_assert_msg(distance(&same, &seen[0]) < 1e-6f, "%g", (double)distance(&same, &seen[0]));
}
END_TEST

START_TEST(windows_of_files)
{
    for (int i = 0; i < FILES; i++) {
        struct md_model_facts facts;
        struct md_engine *e = open_engine(i, (struct md_rope_asked){ 0 });
        ck_assert_int_eq(md_backend_llama.probe(paths[i], &facts, NULL), MD_OK);
        ck_assert_int_eq(facts.trained_tokens, i == SHORT ? 4 * TRAINED : files[i].trained);
        ck_assert_int_eq(md_engine_info(e)->trained_tokens, facts.trained_tokens);
        md_engine_close(e);
    }
}
END_TEST

/* ---- identity ---- */

static void identity_of(int file, struct md_rope_asked asked, char out[512])
{
    struct md_engine *e = open_engine(file, asked);
    snprintf(out, 512, "%s", md_engine_info(e)->identity);
    md_engine_close(e);
}

/* The words that stores on disk have from before there were settings. */
START_TEST(nothing_set_is_the_identity_there_was)
{
    char a[512], b[512];
    identity_of(PLAIN, (struct md_rope_asked){ 0 }, a);
    ck_assert_msg(strstr(a, "|f32/f32|fa0|rope 10000.000000 - -|llama ") != NULL, "%s", a);
    identity_of(PLAIN, (struct md_rope_asked){ .freq_base = 10000, .scaling = MD_ROPE_NONE }, b);
    ck_assert_str_eq(a, b); /* it says what the file says */
    identity_of(YARN, (struct md_rope_asked){ 0 }, a);
    ck_assert_msg(strstr(a, "|rope 10000.000000 yarn 4.000000|llama ") != NULL, "%s", a);
    identity_of(YARN, (struct md_rope_asked){ .scaling = MD_ROPE_YARN, .scale = 4, .yarn_orig_ctx = 512 }, b);
    ck_assert_str_eq(a, b);
    identity_of(YARN, (struct md_rope_asked){ .scaling = MD_ROPE_YARN, .scale = 8 }, b);
    ck_assert_msg(strstr(b, "|rope 10000.000000 yarn 4.000000 set to yarn x8 of 512 tokens|llama ") != NULL,
                  "%s", b);
    identity_of(YARN, (struct md_rope_asked){ .scaling = MD_ROPE_NONE }, b); /* nothing of YaRN is in it */
    ck_assert_msg(strstr(b, "|rope 10000.000000 yarn 4.000000 set to not scaled|llama ") != NULL, "%s", b);
}
END_TEST

/* ---- what was kept ---- */

enum { KEPT = 300, ANSWER = 8, DISK = 64 << 20 };

static struct talker t;
static struct md_engine *engine;
static struct md_text *words;
static struct md_disk *disk;

/* A process on the plain file with these settings, over the one folder; its pool is made by talker_open. */
static void begin(struct md_rope_asked asked)
{
    struct md_pool_config config = { .window_tokens = 512,
                                     .hot_tokens = 512,
                                     .residency = true,
                                     .block_tokens = 16,
                                     .sink_tokens = -1,
                                     .recent_tokens = -1,
                                     .cold_bytes = 16 << 20 };
    struct md_err err = { 0 };
    char kv[200];
    snprintf(kv, sizeof kv, "%s/kv", folder);
    ck_assert_msg(try_open(paths[PLAIN], asked, &engine, &words, &err) == MD_OK, "%s", err.text);
    const struct md_disk_config c = { .folder = kv,
                                      .identity = md_engine_info(engine)->identity,
                                      .budget_bytes = DISK };
    ck_assert_msg(md_disk_open(&c, &disk, &err) == MD_OK, "%s", err.text);
    config.disk = disk;
    t.banned[0] = MD_EXACT_TOKEN_END;
    t.banned_count = 1;
    talker_open(&t, engine, words, config);
}

static void end(void)
{
    talker_close(&t);
    md_disk_close(disk);
    md_engine_close(engine);
    md_text_close(words);
}

/* The prompt once more, of which `cached` tokens are still there. */
static void ask(int32_t cached)
{
    ck_assert_msg(talker_ask(&t, tokens, KEPT, ANSWER) == MD_OK, "%s", t.err.text);
    ck_assert_int_eq(t.last.cached, cached);
}

START_TEST(what_was_kept_under_other_settings_is_foreign)
{
    static const struct md_rope_asked set = { .scaling = MD_ROPE_YARN, .scale = 4 };
    const struct md_sections_place place = { folder, "snapshot" };
    struct md_snapshot snap;
    struct md_err err = { 0 };
    begin((struct md_rope_asked){ 0 });
    ask(0);
    ck_assert_int_eq(md_session_snapshot(t.session, &place, NULL, &snap, &err), MD_OK);
    const struct md_key root = md_prefix_root(md_engine_info(engine)->identity);
    end();

    begin(set); /* chain keys, disk and snapshots of the other */
    ck_assert(!md_key_equal(md_prefix_root(md_engine_info(engine)->identity), root));
    ck_assert_uint_eq(md_disk_record_count(disk), 0);
    ck_assert_int_eq(md_coldstore_stats(md_disk_index(disk)).entry_count, 0);
    ck_assert_int_eq(md_session_restore(t.session, &place, NULL, NULL, &snap, &err), MD_INVALID);
    ck_assert_msg(strstr(err.text, "KV, this daemon has llama ") != NULL &&
                      strstr(err.text, " KV, RoPE yarn x4 of 512 tokens: restore it with its tokens only") !=
                          NULL,
                  "%s", err.text);
    ask(0);
    ck_assert_int_eq(md_session_snapshot(t.session, &place, NULL, &snap, &err), MD_OK);
    end();

    begin((struct md_rope_asked){ 0 }); /* what it left is still there, and the other's is not its own */
    ck_assert_uint_eq(md_disk_record_count(disk), 1);
    ck_assert_int_eq(md_session_restore(t.session, &place, NULL, NULL, &snap, &err), MD_INVALID);
    ck_assert_msg(strstr(err.text, " KV, RoPE yarn x4 of 512 tokens, this daemon has llama ") != NULL, "%s",
                  err.text);
    ask(KEPT - 1);
    end();

    begin(set);
    ck_assert_uint_eq(md_disk_record_count(disk), 1);
    ck_assert_msg(md_session_restore(t.session, &place, NULL, NULL, &snap, &err) == MD_OK, "%s", err.text);
    ask(KEPT - 1);
    end();
}
END_TEST

/* ---- refusals ---- */

START_TEST(models_without_positions_are_refused)
{
    const struct md_tiny_model *const all[] = { &md_tiny_recurrent, &md_tiny_state_space };
    char path[200];
    snprintf(path, sizeof path, "%s/recurrent.gguf", folder);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct md_engine *e = NULL;
        struct md_err err = { 0 };
        ck_assert_int_eq(md_tiny_model_write(all[i], path, &err), MD_OK);
        ck_assert_int_eq(try_open(path, (struct md_rope_asked){ .freq_base = 1e6 }, &e, NULL, &err),
                         MD_UNSUPPORTED);
        ck_assert_msg(strstr(err.text, "no rotary positions") != NULL, "%s", err.text);
        ck_assert_int_eq(try_open(path, (struct md_rope_asked){ 0 }, &e, NULL, &err), MD_OK);
        md_engine_close(e);
    }
    struct md_engine *e = NULL;
    struct md_err err = { 0 };
    ck_assert_int_eq(try_open(paths[PLAIN], (struct md_rope_asked){ .scale = 2 }, &e, NULL, &err),
                     MD_INVALID);
    ck_assert_ptr_null(e);
}
END_TEST

/* ---- moving ---- */

/* Keys are turned with the settings they were computed with: a cell moved and looked at from as far is the same. */
START_TEST(moved_keys_are_turned_as_set)
{
    static const struct md_rope_asked sets[] = { { .scaling = MD_ROPE_LINEAR, .scale = 4 },
                                                 { .freq_base = 50000 },
                                                 { .scaling = MD_ROPE_YARN, .scale = 4 } };
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        enum { LEN = 64, BY = 100 };
        struct md_engine *e = open_engine(PLAIN, sets[i]);
        const float *logits;
        struct seen here, there;
        struct md_buf kv;
        if (!(md_engine_caps(e) & MD_CAP_POSITION_SHIFT)) {
            ck_assert_msg(sets[i].scaling == MD_ROPE_YARN, "set %zu cannot move", i);
            md_engine_close(
                e); /* the library scales keys while it turns them: found out at the start, not claimed */
            continue;
        }
        md_buf_init(&kv, NULL, 1 << 24);
        ck_assert_int_eq(md_engine_prefill(e, 0, 0, tokens, LEN, NULL), MD_OK);
        ck_assert_int_eq(md_engine_evict_range(e, 0, (struct md_range){ 0, LEN }, &kv, NULL), MD_OK);
        ck_assert_int_eq(md_engine_admit_range(e, 0, (struct md_range){ 0, LEN },
                                               (struct md_bytes){ kv.data, kv.len }, NULL),
                         MD_OK);
        ck_assert_int_eq(md_engine_decode(e, 0, LEN, &tokens[LEN], 1, &logits, NULL), MD_OK);
        memcpy(here.logits, logits, sizeof here.logits);
        ck_assert_int_eq(md_engine_truncate(e, 0, 0, NULL), MD_OK);
        ck_assert_int_eq(md_engine_admit_moved(e, 0, (struct md_range){ BY, BY + LEN }, 0,
                                               (struct md_bytes){ kv.data, kv.len }, NULL),
                         MD_OK);
        ck_assert_int_eq(md_engine_decode(e, 0, BY + LEN, &tokens[LEN], 1, &logits, NULL), MD_OK);
        memcpy(there.logits, logits, sizeof there.logits);
        ck_assert_msg(distance(&here, &there) < 1e-3f, "set %zu: %g", i, (double)distance(&here, &there));
        md_buf_done(&kv);
        md_engine_close(e);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rope_llama_exact");
    TCase *c = tcase_create("rope");
    tcase_set_timeout(c, 120);
    tcase_add_unchecked_fixture(c, setup, teardown);
    tcase_add_test(c, settings_compute_as_files_that_say_the_same);
    tcase_add_test(c, the_values_of_yarn_reach_the_library);
    tcase_add_test(c, windows_of_files);
    tcase_add_test(c, nothing_set_is_the_identity_there_was);
    tcase_add_test(c, what_was_kept_under_other_settings_is_foreign);
    tcase_add_test(c, models_without_positions_are_refused);
    tcase_add_test(c, moved_keys_are_turned_as_set);
    suite_add_tcase(suite, c);
    return md_run_suite_here(suite);
}
