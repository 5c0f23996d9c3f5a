/* test_contract_snapshot.c - Snapshot and Restore of the session protocol, in text, through the worker, on the scripted model
 * (contract_rig.h: a token is a byte).  What is right: the context that was written, and the counters of the calls that
 * follow; the errors are the protocol's. */
#include "support/contract_rig.h"
#include "support/run_suite.h"
#include "support/temp_folder.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WINDOW = 400, FILE_MAX = 1 << 18 };

static char folder[4096], path[4200];
static const struct md_sections_place place = { folder, "k" }, nowhere = { folder, "" };
static const struct md_contract_decode two = { .max_tokens = 2 };

static void make_folder(void)
{
    md_temp_folder(folder, sizeof folder, "contract");
    snprintf(path, sizeof path, "%s/k", folder);
}

#define PREFIX PARTS(STABLE("repo_map", "hello, "))
#define TURN PARTS(STABLE("repo_map", "hello, "), VOLATILE("diff", "you"))
#define CONTEXT "hello, you**"

/* A conversation of a prefix, a suffix and an answer. */
static void talk(struct contract_rig *r)
{
    contract_rig_open(r, WINDOW, NULL, 0);
    ck_assert_int_eq(contract_ensure(r, &contract_llama, PREFIX), MD_OK);
    ck_assert_int_eq(contract_suffix(r, &contract_llama, TURN), MD_OK);
    ck_assert_int_eq(contract_decode(r, &two), MD_OK);
    contract_rig_context(r, CONTEXT);
}

static void ok(struct contract_rig *r, enum md_status s)
{
    ck_assert_msg(s == MD_OK, "%s: %s", md_status_name(s), r->err.text);
}

static int64_t prefilled(struct contract_rig *r)
{
    struct md_session_status st[4];
    const size_t n = md_worker_sessions(r->worker, st, 4);
    for (size_t i = 0; i < n; i++)
        if (st[i].id == r->session)
            return st[i].prefilled_tokens;
    return -1;
}

/* ---- there and back ---- */

START_TEST(in_the_same_session)
{
    struct contract_rig r;
    struct contract_snapshot s;
    talk(&r);
    ok(&r, contract_snapshot(&r, &place, &s));
    ck_assert_int_eq(s.resident, 12);
    ck_assert_int_eq(s.prefix, 7);
    ck_assert_int_eq(s.window, WINDOW);
    ck_assert_uint_eq(s.token_count, 12);
    ck_assert_int_eq(s.tokens[0], 'h');
    ck_assert_str_eq(s.text, "hello, ");
    ck_assert_ptr_nonnull(strstr(s.manifest, "llamacpp"));
    contract_rig_context(&r, CONTEXT); /* which is as it was */
    ok(&r, contract_suffix_raw(&r, "!"));
    ok(&r, contract_ensure(&r, &contract_llama, PARTS(STABLE("repo_map", "something else"))));
    ok(&r, contract_restore(&r, &place, &s));
    contract_rig_context(&r, CONTEXT);
    ok(&r, contract_suffix_raw(&r, "?"));
    contract_check_suffix(&r, 1, 7, 13);
    contract_rig_context(&r, CONTEXT "?");
    ok(&r, contract_restore(&r, &place, &s)); /* once more */
    contract_rig_context(&r, CONTEXT);
    ok(&r, contract_ensure(&r, &contract_llama, PREFIX)); /* its manifest is that of the text */
    contract_check_prefix(&r, 7, 0, 5, 7);
    contract_rig_close(&r);
}
END_TEST

/* In another process: nothing of it is computed again but the last token, for its logits. */
START_TEST(in_another_process)
{
    struct contract_rig r;
    struct contract_snapshot s, again;
    talk(&r);
    ok(&r, contract_snapshot(&r, &place, &s));
    contract_rig_close(&r);
    contract_rig_open(&r, WINDOW, NULL, 0);
    ok(&r, contract_restore(&r, &place, &s));
    contract_rig_context(&r, CONTEXT);
    ok(&r, contract_suffix(&r, &contract_llama,
                           PARTS(STABLE("repo_map", "hello, "), VOLATILE("diff", " and on"))));
    contract_check_suffix(&r, 7, 7, 19);
    ck_assert_int_eq(prefilled(&r), 7); /* the last token sampled and the suffix, but for its last one */
    ok(&r, contract_decode(&r, &two));
    contract_rig_context(&r, CONTEXT " and on**");
    ok(&r, contract_snapshot(&r, &place, &again)); /* in its own place */
    ok(&r, contract_restore(&r, &place, &again));
    ck_assert_int_eq(contract_restore(&r, &place, &s), MD_MANIFEST_MISMATCH); /* which is another one now */
    contract_rig_context(&r, CONTEXT " and on**");
    contract_rig_close(&r);
}
END_TEST

/* Without its KV: the context is there, and the next call computes all of it. */
START_TEST(tokens_alone)
{
    struct contract_rig r;
    struct contract_snapshot s;
    talk(&r);
    ok(&r, contract_snapshot(&r, &place, &s));
    contract_rig_close(&r);
    contract_rig_open(&r, WINDOW, NULL, 0);
    s.tokens_only = true;
    ok(&r, contract_restore(&r, &place, &s));
    contract_rig_context(&r, CONTEXT);
    ok(&r, contract_ensure(&r, &contract_llama, PREFIX)); /* the manifest came with it */
    contract_check_prefix(&r, 7, 0, 5, 7);
    ck_assert_int_eq(prefilled(&r), 6); /* which is resident in truth, but for its last token */
    ok(&r, contract_restore(&r, &place, &s));
    ok(&r, contract_suffix(&r, &contract_llama,
                           PARTS(STABLE("repo_map", "hello, "), VOLATILE("diff", " and on"))));
    contract_check_suffix(&r, 7, 7, 19);
    ok(&r, contract_decode(&r, &two));
    contract_rig_context(&r, CONTEXT " and on**");
    s.prefix++; /* what is expected is looked for all the same */
    ck_assert_int_eq(contract_restore(&r, &place, &s), MD_MANIFEST_MISMATCH);
    contract_rig_context(&r, CONTEXT " and on**");
    contract_rig_close(&r);
}
END_TEST

/* Without the tokens, which the protocol lets a client leave out, and without a manifest. */
START_TEST(with_less_to_go_by)
{
    struct contract_rig r;
    struct contract_snapshot s;
    contract_rig_open(&r, WINDOW, NULL, 0);
    ok(&r, contract_ensure_raw(&r, "hello"));
    ok(&r, contract_suffix_raw(&r, " you"));
    ok(&r, contract_snapshot(&r, &place, &s));
    ck_assert_str_eq(s.manifest, "");
    s.token_count = 0;
    s.window = 0;
    ok(&r, contract_suffix_raw(&r, "!"));
    ok(&r, contract_restore(&r, &place, &s));
    contract_rig_context(&r, "hello you");
    strcpy(s.text, "jello");
    ck_assert_int_eq(contract_restore(&r, &place, &s), MD_MANIFEST_MISMATCH);
    ck_assert_msg(strstr(r.err.text, "token 0") != NULL, "%s", r.err.text);
    contract_rig_close(&r);
}
END_TEST

static enum md_status counting(void *user, const struct md_chat_input *in, struct md_buf *out,
                               struct md_chat_form **ret_form, struct md_err *err)
{
    enum md_status s = MD_OK;
    (void)user, (void)ret_form;
    for (size_t i = 0; i < in->count && s == MD_OK; i++) {
        s = md_buf_printf(out, err, "<%.*s>", (int)in->messages[i].content.len,
                          (const char *)in->messages[i].content.data);
        if (s == MD_OK && i == 0)
            s = md_buf_printf(out, err, "%.*s=%zu=", (int)in->tools.len, (const char *)in->tools.data,
                              in->count);
    }
    return s == MD_OK && in->add_generation_prompt ? md_buf_printf(out, err, "?") : s;
}

/* A template whose second rendering cut the prefix: what stayed of it is the prefix. */
START_TEST(a_prefix_that_was_cut)
{
    struct contract_rig r;
    struct contract_snapshot s;
    struct contract_texts t;
    const struct contract_part *parts = PARTS(STABLE("system", "S"), VOLATILE("user", "Hi"));
    contract_rig_open(&r, WINDOW, counting, 0);
    struct md_manifest m = contract_rig_manifest(&contract_llama, PARTS(STABLE("system", "S")), &t);
    ok(&r, contract_ensure_with(&r, t.stable, &m, "[1]"));
    ok(&r, contract_suffix(&r, &contract_llama, parts));
    contract_rig_context(&r, "<S>[1]=2=<Hi>?");
    ok(&r, contract_snapshot(&r, &place, &s));
    ck_assert_int_eq(s.prefix, 7); /* "<S>[1]=" */
    ck_assert_str_eq(s.tools, "[1]");
    contract_rig_close(&r);
    contract_rig_open(&r, WINDOW, counting, 0);
    ok(&r, contract_restore(&r, &place, &s));
    contract_rig_context(&r, "<S>[1]=2=<Hi>?");
    ok(&r, contract_snapshot(&r, &place, &s));
    ck_assert_int_eq(s.prefix, 7);
    ok(&r, contract_restore(&r, &place, &s));            /* what was written of what came back is the same */
    ok(&r, contract_suffix(&r, &contract_llama, parts)); /* written behind the messages of the prefix */
    contract_rig_context(&r, "<S>[1]=2=<Hi>?2=<Hi>?");
    contract_check_suffix(&r, 7, 7, 21);
    strcpy(s.tools, "[2]");
    ck_assert_int_eq(contract_restore(&r, &place, &s), MD_MANIFEST_MISMATCH);
    contract_rig_close(&r);
}
END_TEST

/* Two go on from one file, each on its own. */
START_TEST(branches)
{
    struct contract_rig r;
    struct contract_snapshot s;
    talk(&r);
    ok(&r, contract_snapshot(&r, &place, &s));
    struct md_contract *first = r.c;
    const int64_t session = r.session;
    contract_rig_another(&r);
    ok(&r, contract_restore(&r, &place, &s));
    ok(&r, contract_suffix_raw(&r, " right"));
    contract_rig_context(&r, CONTEXT " right");
    ck_assert_int_eq(prefilled(&r), 6); /* the token that the first one had not evaluated, and " righ" */
    md_contract_close(r.c);
    r.c = first;
    r.session = session;
    ok(&r, contract_suffix_raw(&r, " left"));
    contract_rig_context(&r, CONTEXT " left");
    contract_rig_close(&r);
}
END_TEST

/* ---- sessions in other states ---- */

START_TEST(of_an_empty_session)
{
    struct contract_rig r;
    struct contract_snapshot s;
    contract_rig_open(&r, WINDOW, NULL, 0);
    ok(&r, contract_snapshot(&r, &place, &s));
    ck_assert_int_eq(s.resident + s.prefix + (int)s.token_count, 0);
    for (int without = 0; without < 2; without++) { /* the protocol wants a state for tokens alone */
        ok(&r, contract_ensure(&r, &contract_llama, PREFIX));
        ok(&r, contract_restore(&r, without ? &nowhere : &place, &s));
        contract_rig_context(&r, "");
        ok(&r, contract_suffix_raw(&r, "x"));
        contract_rig_context(&r, "x");
        ck_assert_int_eq(r.suffix.prefix, 0);
    }
    s.resident = 1;
    ck_assert_int_eq(contract_restore(&r, &nowhere, &s), MD_INVALID);
    contract_rig_close(&r);
}
END_TEST

/* What a cancelled call leaves is what is written. */
START_TEST(of_a_cancelled_session)
{
    struct contract_rig r;
    struct contract_snapshot s;
    contract_rig_open(&r, WINDOW, NULL, 10);
    ok(&r, contract_ensure_raw(&r, "hello"));
    r.cancels = true;
    ck_assert_int_eq(contract_suffix_raw(&r, "a suffix"), MD_CANCELLED);
    ok(&r, contract_snapshot(&r, &place, &s));
    ck_assert_int_eq(s.resident, 5);
    contract_rig_close(&r);
    contract_rig_open(&r, WINDOW, NULL, 0);
    ok(&r, contract_restore(&r, &place, &s));
    contract_rig_context(&r, "hello");
    ok(&r, contract_suffix_raw(&r, "!"));
    contract_rig_close(&r);
}
END_TEST

/* A Snapshot and a Restore whose client leaves when they have begun change nothing. */
START_TEST(that_is_cancelled)
{
    struct contract_rig r;
    struct contract_snapshot s, ignored;
    char other[4200];
    snprintf(other, sizeof other, "%s/other", folder);
    talk(&r);
    ok(&r, contract_snapshot(&r, &place, &s));
    ok(&r, contract_suffix_raw(&r, "!"));
    r.cancels_inside = true;
    ck_assert_int_eq(contract_snapshot(&r, &(struct md_sections_place){ folder, "other" }, &ignored),
                     MD_CANCELLED);
    ck_assert_int_eq(access(other, F_OK), -1);
    r.cancels_inside = true;
    ck_assert_int_eq(contract_restore(&r, &place, &s), MD_CANCELLED);
    contract_rig_context(&r, CONTEXT "!");
    ok(&r, contract_suffix_raw(&r, "?")); /* and of the same prefix */
    contract_check_suffix(&r, 1, 7, 14);
    ok(&r, contract_restore(&r, &place, &s));
    contract_rig_context(&r, CONTEXT);
    contract_rig_close(&r);
}
END_TEST

/* Into a new session: there is none when it is cancelled, or its file is not there, and the next one gets its id. */
START_TEST(a_new_session_that_was_not_restored)
{
    struct contract_rig r;
    struct contract_snapshot s;
    const struct md_sections_place missing = { folder, "missing" };
    talk(&r);
    ok(&r, contract_snapshot(&r, &place, &s));
    for (int how = 0; how < 3; how++) {
        r.cancels_inside = how == 1; /* the session's own */
        const struct md_event e =
            contract_rig_wait(&r, &(struct md_job_request){ .kind = MD_JOB_RESTORE,
                                                            .place = how == 0 ? missing : place });
        ck_assert_int_eq(e.status, how == 0 ? MD_NOT_FOUND : how == 1 ? MD_CANCELLED : MD_OK);
        ck_assert_int_eq(e.session, how == 2 ? r.session + 1 : 0);
        ck_assert_uint_eq(md_worker_sessions(r.worker, NULL, 0), how == 2 ? 2 : 1);
    }
    contract_rig_close(&r);
}
END_TEST

/* The last event of an EnsurePrefix that failed when it had begun. */
static void fail_prefix(struct contract_rig *r, enum md_status status)
{
    struct md_manifest none = { 0 };
    struct md_contract_call *call;
    const struct md_contract_prefix in = { .text = { "hello", 5 }, .manifest = &none };
    struct md_event e = { .kind = MD_EVENT_DONE, .session = r->session, .context = 3 };
    ok(r, md_contract_prepare_prefix(r->c, &in, &call, &r->over, &r->err));
    e.status = md_fail(&e.err, status, "broken");
    ck_assert_int_eq(md_contract_finish_prefix(r->c, call, &e, &r->prefix, &r->over, &r->err), status);
    md_contract_call_close(call);
}

START_TEST(of_a_session_that_failed)
{
    struct contract_rig r;
    struct contract_snapshot s, ignored;
    talk(&r);
    ok(&r, contract_snapshot(&r, &place, &s));
    fail_prefix(&r, MD_CANCELLED);
    ck_assert_int_eq(contract_snapshot(&r, &place, &ignored), MD_INVALID); /* nobody knows of what */
    ok(&r, contract_restore(&r, &place, &s));                              /* now one does */
    contract_rig_context(&r, CONTEXT);
    ok(&r, contract_suffix_raw(&r, "!"));
    fail_prefix(&r, MD_SESSION_FATAL);
    ck_assert_int_eq(contract_snapshot(&r, &place, &ignored), MD_SESSION_FATAL);
    ck_assert_int_eq(contract_restore(&r, &place, &s), MD_SESSION_FATAL);
    ck_assert_str_eq(r.err.text, "broken");
    struct md_contract *given_up = r.c;
    contract_rig_another(&r);
    ok(&r, contract_restore(&r, &place, &s));
    contract_rig_context(&r, CONTEXT);
    contract_rig_wait(&r, &(struct md_job_request){ .kind = MD_JOB_CLOSE, .session = r.session });
    ck_assert_int_eq(contract_snapshot(&r, &place, &ignored), MD_CLOSED); /* the job finds none */
    ck_assert_int_eq(contract_restore(&r, &place, &s), MD_CLOSED);        /* and it is known from then on */
    md_contract_close(given_up);
    contract_rig_close(&r);
}
END_TEST

/* ---- what is refused, before anything changes ---- */

static void is_refused(struct contract_rig *r, const struct md_sections_place *at,
                       const struct contract_snapshot *s, enum md_status want, const char *says)
{
    const enum md_status got = contract_restore(r, at, s);
    ck_assert_msg(got == want && strstr(r->err.text, says) != NULL, "%s: %s, not %s '%s'",
                  md_status_name(got), r->err.text, md_status_name(want), says);
    contract_rig_context(r, "hello, all");
    ok(r, contract_suffix(r, &contract_llama, TURN)); /* and of the same prefix */
    contract_rig_context(r, "hello, allyou");
    ok(r, contract_ensure(r, &contract_llama, PREFIX));
    contract_check_prefix(r, 7, 0, 6, 7);
    ok(r, contract_suffix_raw(r, "all"));
}

static void open_target(struct contract_rig *r, int32_t window)
{
    contract_rig_open(r, window, NULL, 0);
    ok(r, contract_ensure(r, &contract_llama, PREFIX));
    ok(r, contract_suffix_raw(r, "all"));
}

START_TEST(what_the_client_changed)
{
    struct contract_rig r;
    struct contract_snapshot good, s;
    talk(&r);
    ok(&r, contract_snapshot(&r, &place, &good));
    contract_rig_close(&r);
    open_target(&r, WINDOW);
#define BAD(status, says, ...) \
    s = good;                  \
    __VA_ARGS__;               \
    is_refused(&r, &place, &s, status, says)
    BAD(MD_INVALID, "-1", s.resident = -1);
    BAD(MD_INVALID, "prefix of 13", s.prefix = 13);
    BAD(MD_INVALID, "prefix of -1", s.prefix = -1);
    BAD(MD_INVALID, "names 11", s.token_count = 11);
    BAD(MD_MANIFEST_MISMATCH, "401", s.window = WINDOW + 1);
    BAD(MD_INVALID, "-5", s.window = -5);
    BAD(MD_MANIFEST_MISMATCH, "text has 7", s.prefix = 8);
    BAD(MD_MANIFEST_MISMATCH, "prefix of 7", s.prefix = 6);
    BAD(MD_MANIFEST_MISMATCH, "does not make", s.tokens[3] = 'x');
    BAD(MD_MANIFEST_MISMATCH, "from token 8", s.tokens[8] = 'x');
    BAD(MD_MANIFEST_MISMATCH, "12 tokens", s.resident = 13, s.token_count = 0);
    BAD(MD_MANIFEST_MISMATCH, "", strcpy(s.text, "hello. "));
    BAD(MD_INVALID, "tools", strcpy(s.tools, "[]"));
    BAD(MD_TOO_LARGE, "window", s.resident = WINDOW + 1, s.token_count = 0);
    s = good;
    s.resident = 500;
    s.token_count = 0;
    ck_assert_int_eq(contract_restore(&r, &place, &s), MD_TOO_LARGE);
    contract_check_over(&r, "restore", 500, 0, WINDOW);
    BAD(MD_MANIFEST_MISMATCH, "prompt_template_digest changed", strstr(s.manifest, "\"t1\"")[2] = '2');
    ok(&r, contract_restore(&r, &place, &good));
    contract_rig_context(&r, CONTEXT);
    contract_rig_close(&r);
}
END_TEST

static const char *const bad_names[] = { "../k", "/etc/passwd", "a/b", "a\\b", ".", "..", ".hidden", "a\nb" };

START_TEST(names_that_lead_elsewhere)
{
    struct contract_rig r;
    struct contract_snapshot s, ignored;
    talk(&r);
    ok(&r, contract_snapshot(&r, &place, &s));
    contract_rig_close(&r);
    open_target(&r, WINDOW);
    for (size_t i = 0; i < sizeof bad_names / sizeof bad_names[0]; i++) {
        const struct md_sections_place bad = { folder, bad_names[i] };
        is_refused(&r, &bad, &s, MD_INVALID, "");
        ck_assert_int_eq(contract_snapshot(&r, &bad, &ignored), MD_INVALID);
    }
    is_refused(&r, &(struct md_sections_place){ folder, "gone" }, &s, MD_NOT_FOUND, "gone");
    is_refused(&r, &(struct md_sections_place){ "/nowhere", "k" }, &s, MD_NOT_FOUND, "nowhere");
    ck_assert_int_eq(contract_snapshot(&r, &(struct md_sections_place){ "/nowhere", "k" }, &ignored),
                     MD_NOT_FOUND);
    ck_assert_int_eq(symlink(path, strcat(strcpy(path, folder), "/link")), 0);
    is_refused(&r, &(struct md_sections_place){ folder, "link" }, &s, MD_MANIFEST_MISMATCH, "link");
    contract_rig_close(&r);
}
END_TEST

static uint8_t bytes[FILE_MAX];

static void write_file(size_t len)
{
    const int fd = open(path, O_WRONLY | O_TRUNC);
    ck_assert_int_eq(write(fd, bytes, len), (ssize_t)len);
    close(fd);
}

START_TEST(files_that_are_damaged)
{
    struct contract_rig r;
    struct contract_snapshot s;
    talk(&r);
    ok(&r, contract_snapshot(&r, &place, &s));
    contract_rig_close(&r);
    const int fd = open(path, O_RDONLY);
    const size_t len = (size_t)read(fd, bytes, FILE_MAX);
    close(fd);
    open_target(&r, WINDOW);
    for (size_t at = 16; at < len; at += at < 1500 ? 61 : 1013) { /* behind version and kind */
        bytes[at] ^= 4;
        write_file(len);
        is_refused(&r, &place, &s, MD_CORRUPT, "");
        bytes[at] ^= 4;
    }
    for (size_t part = 0; part < 10; part++) {
        write_file(len * part / 10);
        is_refused(&r, &place, &s, MD_CORRUPT, "");
    }
    bytes[8]++;
    write_file(len);
    is_refused(&r, &place, &s, MD_UNSUPPORTED, "version");
    bytes[8]--;
    bytes[12]++;
    write_file(len);
    is_refused(&r, &place, &s, MD_MANIFEST_MISMATCH, ""); /* a file of another kind */
    bytes[12]--;
    write_file(len);
    ok(&r, contract_restore(&r, &place, &s));
    contract_rig_context(&r, CONTEXT);
    contract_rig_close(&r);
}
END_TEST

/* A sound file whose first section names another model, or another KV type. */
START_TEST(files_of_another_model)
{
    static const uint32_t iden = MD_SECTION_TYPE('I', 'D', 'E', 'N');
    struct contract_rig r;
    struct contract_snapshot s;
    struct md_sections_writer *w;
    char identity[1000];
    talk(&r);
    ok(&r, contract_snapshot(&r, &place, &s));
    snprintf(identity, sizeof identity, "%s", md_engine_info(r.engine)->identity);
    contract_rig_close(&r);
    open_target(&r, WINDOW);
    for (int what = 0; what < 2; what++) {
        identity[what == 0 ? 0 : strlen(identity) - 1] ^= 1;
        const struct md_bytes part = { identity, strlen(identity) };
        ok(&r, md_sections_create(NULL, &place, MD_SECTION_TYPE('S', 'N', 'A', 'P'), INT64_MAX, &w, &r.err));
        ok(&r, md_sections_put(w, iden, &part, 1, &r.err));
        ok(&r, md_sections_commit(w, false, &r.err));
        is_refused(&r, &place, &s, MD_MANIFEST_MISMATCH, "another model or KV type");
        identity[what == 0 ? 0 : strlen(identity) - 1] ^= 1;
    }
    contract_rig_close(&r);
}
END_TEST

/* The file is of a larger window than what it is restored into. */
START_TEST(a_window_that_is_too_small)
{
    struct contract_rig r;
    struct contract_snapshot s;
    talk(&r);
    ok(&r, contract_snapshot(&r, &place, &s));
    contract_rig_close(&r);
    contract_rig_open(&r, 11, NULL, 0);
    ck_assert_int_eq(contract_restore(&r, &place, &s), MD_MANIFEST_MISMATCH); /* the protocol's rule */
    s.window = 0;
    ck_assert_int_eq(contract_restore(&r, &place, &s), MD_TOO_LARGE);
    contract_check_over(&r, "restore", 12, 0, 11);
    contract_rig_close(&r);
    contract_rig_open(&r, WINDOW + 100, NULL, 0);
    ok(&r, contract_restore(&r, &place, &s)); /* a larger one will do where the client does not say */
    contract_rig_context(&r, CONTEXT);
    contract_rig_close(&r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("contract_snapshot");
    TCase *t = tcase_create("contract_snapshot");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, make_folder, NULL);
    tcase_add_test(t, in_the_same_session);
    tcase_add_test(t, in_another_process);
    tcase_add_test(t, tokens_alone);
    tcase_add_test(t, with_less_to_go_by);
    tcase_add_test(t, a_prefix_that_was_cut);
    tcase_add_test(t, branches);
    tcase_add_test(t, of_an_empty_session);
    tcase_add_test(t, of_a_cancelled_session);
    tcase_add_test(t, that_is_cancelled);
    tcase_add_test(t, a_new_session_that_was_not_restored);
    tcase_add_test(t, of_a_session_that_failed);
    tcase_add_test(t, what_the_client_changed);
    tcase_add_test(t, names_that_lead_elsewhere);
    tcase_add_test(t, files_that_are_damaged);
    tcase_add_test(t, files_of_another_model);
    tcase_add_test(t, a_window_that_is_too_small);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
