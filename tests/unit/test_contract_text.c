/* test_contract_text.c - the calls of the session protocol in text, through the worker, on the scripted model: a token
 * is a byte, a chat prompt is "role: content\n" for each message and "assistant: ".  Figures: the protocol's rules
 * for its in-memory service and for llama (EnsurePrefix reuses the common tokens). */
#include "session/contract.h"
#include "session/manifest_json.h"
#include "support/contract_rig.h"
#include "support/fault_alloc.h"
#include "support/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

enum { WINDOW = 400 };

#define HELLO PARTS(STABLE("repo_map", "hello"))

static struct md_bytes text(const char *s)
{
    return (struct md_bytes){ s, strlen(s) };
}

/* ---- the protocol's memory service ---- */

START_TEST(cold_then_warm)
{
    struct contract_rig r;
    struct contract_texts t;
    char digest[MD_SHA256_HEX + 1];
    contract_rig_open(&r, WINDOW, NULL, 0);
    ck_assert_int_eq(contract_ensure(&r, &contract_llama, HELLO), MD_OK);
    contract_check_prefix(&r, 0, 5, 0, 5);
    ck_assert_int_eq(r.prefix.available, WINDOW - 5);
    /* sha256sum of "hello"; of its five bytes as 8 byte little-endian numbers */
    ck_assert_str_eq(r.prefix.stable_byte_hash,
                     "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
    ck_assert_str_eq(r.prefix.stable_token_hash,
                     "14bbcfd08763e9afcd688a42c92aeb33402817568113182722a2fa16ddf5a85d");
    struct md_manifest m = contract_rig_manifest(&contract_llama, HELLO, &t);
    ck_assert_int_eq(md_manifest_digest(&m, NULL, digest, NULL), MD_OK);
    md_manifest_done(&m);
    ck_assert_str_eq(r.prefix.manifest_digest, digest);
    ck_assert_int_eq(contract_ensure(&r, &contract_llama, HELLO), MD_OK);
    contract_check_prefix(&r, 5, 0, 0, 5);
    /* only the volatile part is another: warm */
    ck_assert_int_eq(contract_ensure(&r, &contract_llama,
                                     PARTS(STABLE("repo_map", "hello"), VOLATILE("diff", "x"))),
                     MD_OK);
    contract_check_prefix(&r, 5, 0, 0, 5);
    ck_assert_str_ne(r.prefix.manifest_digest, digest);
    /* another stable text: cold, the old one is dropped */
    ck_assert_int_eq(contract_ensure(&r, &contract_llama, PARTS(STABLE("repo_map", "other!"))), MD_OK);
    contract_check_prefix(&r, 0, 6, 5, 6);
    /* the same text for another template: cold */
    ck_assert_int_eq(contract_ensure(&r, &contract_other_template, PARTS(STABLE("repo_map", "other!"))),
                     MD_OK);
    contract_check_prefix(&r, 0, 6, 6, 6);
    ck_assert_int_eq(contract_ensure(&r, &contract_other_template, PARTS(STABLE("repo_map", "other!"))),
                     MD_OK);
    contract_check_prefix(&r, 6, 0, 0, 6);
    contract_rig_context(&r, "other!");
    contract_rig_close(&r);
}
END_TEST

/* Cold means computed again: the counters of the session say so too. */
START_TEST(another_runtime_computes_again)
{
    struct contract_rig r;
    contract_rig_open(&r, WINDOW, NULL, 0);
    const struct contract_part *parts =
        PARTS(STABLE("repo_map", "a text of some forty tokens, or more of them"));
    struct md_session_status st;
    int64_t before = 0;
    const struct md_manifest_id *ids[] = { &contract_llama, &contract_llama, &contract_other_template };
    const int64_t want[] = { 43, 43, 86 }; /* 44 bytes, and the last is Decode's */
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(contract_ensure(&r, ids[i], parts), MD_OK);
        ck_assert_uint_eq(md_worker_sessions(r.worker, &st, 1), 1);
        ck_assert_int_eq(st.prefilled_tokens, want[i]);
        ck_assert(st.prefilled_tokens >= before);
        before = st.prefilled_tokens;
    }
    contract_rig_close(&r);
}
END_TEST

START_TEST(suffix_and_resident_add_up)
{
    struct contract_rig r;
    contract_rig_open(&r, WINDOW, NULL, 0);
    ck_assert_int_eq(contract_ensure_raw(&r, "he"), MD_OK);
    contract_check_prefix(&r, 0, 2, 0, 2);
    ck_assert(r.prefix.stable_byte_hash[0] == '\0' && r.prefix.manifest_digest[0] == '\0');
    ck_assert_ptr_null(md_contract_manifest(r.c));
    ck_assert_int_eq(contract_suffix_raw(&r, "llo"), MD_OK);
    contract_check_suffix(&r, 3, 2, 5);
    ck_assert_int_eq(r.suffix.available, WINDOW - 5);
    ck_assert_int_eq(contract_suffix_raw(&r, " you"), MD_OK); /* another one: the first stays */
    contract_check_suffix(&r, 4, 2, 9);
    ck_assert_int_eq(contract_suffix_raw(&r, ""), MD_OK);
    contract_check_suffix(&r, 0, 2, 9);
    ck_assert_int_eq(contract_decode(&r, &(struct md_contract_decode){ .max_tokens = 2 }), MD_OK);
    contract_rig_context(&r, "hello you**");
    ck_assert_int_eq(contract_suffix_raw(&r, "!"), MD_OK);
    contract_check_suffix(&r, 1, 2, 12);
    ck_assert_int_eq(contract_ensure_raw(&r, "he"), MD_OK); /* the turn is over */
    contract_check_prefix(&r, 2, 0, 10, 2);
    contract_rig_close(&r);
}
END_TEST

START_TEST(what_does_not_fit_says_how_much)
{
    struct contract_rig r;
    contract_rig_open(&r, 4, NULL, 0);
    ck_assert_int_eq(contract_ensure_raw(&r, "ab"), MD_OK);
    ck_assert_int_eq(contract_ensure_raw(&r, "abcde"), MD_TOO_LARGE);
    contract_check_over(&r, "prefix", 2, 5, 4);
    ck_assert_str_eq(r.err.text, "prefix: 5 tokens besides 2 do not fit the context window of 4");
    contract_rig_context(&r, "ab");
    ck_assert_int_eq(contract_suffix_raw(&r, "cde"), MD_TOO_LARGE);
    contract_check_over(&r, "suffix", 2, 3, 4);
    ck_assert_int_eq(contract_suffix_raw(&r, "c"), MD_OK);
    contract_check_suffix(&r, 1, 2, 3);
    ck_assert_int_eq(contract_suffix_raw(&r, "de"), MD_TOO_LARGE);
    contract_check_over(&r, "suffix", 3, 2, 4);
    ck_assert_str_eq(r.err.text, "suffix: 2 tokens besides 3 do not fit the context window of 4");
    ck_assert_int_eq(contract_decode(&r, &(struct md_contract_decode){ .max_tokens = 100 }), MD_OK);
    contract_rig_context(&r, "abc*"); /* as far as the window goes */
    ck_assert_int_eq(contract_decode(&r, &(struct md_contract_decode){ .max_tokens = 1 }), MD_TOO_LARGE);
    contract_check_over(&r, "decode", 4, 1, 4);
    /* so long that it is not tokenized: a token has at most seven bytes here ("<|end|>") */
    char huge[200];
    memset(huge, 'x', sizeof huge - 1);
    huge[sizeof huge - 1] = '\0';
    ck_assert_int_eq(contract_ensure_raw(&r, huge), MD_TOO_LARGE);
    contract_check_over(&r, "prefix", 4, 199 / 7, 4);
    /* another failure says nothing of that */
    struct md_manifest none = { 0 };
    ck_assert_int_eq(contract_ensure_with(&r, "ab", &none, "[]"), MD_INVALID);
    ck_assert_ptr_null(r.over.stage);
    ck_assert_int_eq(contract_ensure_raw(&r, "abcd"), MD_OK); /* the window may be filled */
    contract_rig_close(&r);
}
END_TEST

START_TEST(a_closed_session)
{
    struct contract_rig r;
    contract_rig_open(&r, WINDOW, NULL, 0);
    ck_assert_int_eq(contract_ensure(&r, &contract_llama, HELLO), MD_OK);
    contract_rig_wait(&r, &(struct md_job_request){ .kind = MD_JOB_CLOSE, .session = r.session });
    ck_assert_int_eq(contract_suffix_raw(&r, "x"), MD_CLOSED);
    const struct md_contract_decode d = { 0 };
    struct md_contract_call *call = NULL;
    ck_assert_int_eq(md_contract_prepare_decode(r.c, &d, &call, &r.over, &r.err), MD_CLOSED);
    ck_assert_str_eq(r.err.text, "session 1 is closed");
    contract_rig_close(&r);
}
END_TEST

START_TEST(cancelled_calls)
{
    struct contract_rig r;
    contract_rig_open(&r, WINDOW, NULL, 10); /* so long for a token; an interrupt is seen at once */
    const struct md_contract_decode d = { .max_tokens = 2 };
    ck_assert_int_eq(contract_ensure_raw(&r, "hello"), MD_OK);
    r.cancels = true;
    ck_assert_int_eq(contract_decode(&r, &d), MD_CANCELLED);
    contract_rig_context(&r, "hello");
    ck_assert_int_eq(contract_decode(&r, &d), MD_OK); /* it goes on */
    contract_rig_context(&r, "hello**");
    r.cancels = true;
    ck_assert_int_eq(contract_suffix_raw(&r, "a suffix"), MD_CANCELLED);
    ck_assert_int_eq(contract_suffix_raw(&r, "!"), MD_OK);
    contract_rig_context(&r, "hello**!");
    contract_rig_close(&r);
}
END_TEST

/* An EnsurePrefix that is cancelled when it has begun. */
static void cancel_under_way(struct contract_rig *r, const char *prefix, struct md_manifest *m)
{
    const struct md_contract_prefix in = { .text = text(prefix), .manifest = m };
    struct md_contract_call *call;
    struct md_job *job;
    struct md_event e;
    ck_assert_int_eq(md_contract_prepare_prefix(r->c, &in, &call, &r->over, &r->err), MD_OK);
    struct md_job_request *q = md_contract_call_job(call);
    q->want_progress = true;
    ck_assert_int_eq(md_worker_submit(r->worker, q, &job, NULL), MD_OK);
    do {
        md_job_wait(job, 20000, &e);
        if (e.kind == MD_EVENT_PROGRESS && e.progress.processed > 0)
            md_job_cancel(job); /* a chunk of it is computed */
    } while (e.kind != MD_EVENT_DONE);
    md_job_release(job);
    ck_assert_int_eq(md_contract_finish_prefix(r->c, call, &e, &r->prefix, &r->over, &r->err), MD_CANCELLED);
    md_contract_call_close(call);
}

/* A conversation that was given up says why to every call, whichever it was given up in. */
START_TEST(a_prefix_that_was_fatal)
{
    struct contract_rig r;
    struct md_manifest none = { 0 };
    struct md_contract_call *call;
    const struct md_contract_prefix in = { .text = text("hello"), .manifest = &none };
    contract_rig_open(&r, WINDOW, NULL, 2);
    ck_assert_int_eq(md_contract_prepare_prefix(r.c, &in, &call, &r.over, &r.err), MD_OK);
    struct md_event e = { .kind = MD_EVENT_DONE, .session = 1 };
    e.status = md_fail(&e.err, MD_SESSION_FATAL, "decode failed: %d", -3);
    ck_assert_int_eq(md_contract_finish_prefix(r.c, call, &e, &r.prefix, &r.over, &r.err), MD_SESSION_FATAL);
    ck_assert_str_eq(r.err.text, "decode failed: -3");
    md_contract_call_close(call);
    const struct md_contract_suffix more = { .text = text("x"), .manifest = &none };
    const struct md_contract_decode decode = { 0 };
    ck_assert_int_eq(md_contract_prepare_suffix(r.c, &more, &call, &r.over, &r.err), MD_SESSION_FATAL);
    ck_assert_str_eq(r.err.text, "decode failed: -3");
    ck_assert_int_eq(md_contract_prepare_prefix(r.c, &in, &call, &r.over, &r.err), MD_SESSION_FATAL);
    ck_assert_int_eq(md_contract_prepare_decode(r.c, &decode, &call, &r.over, &r.err), MD_SESSION_FATAL);
    ck_assert_str_eq(r.err.text, "decode failed: -3");
    contract_rig_close(&r);
}
END_TEST

/* A prefix that was cancelled when a part of it was computed: nobody knows which. */
START_TEST(a_prefix_that_failed_on_its_way)
{
    struct contract_rig r;
    struct md_manifest none = { 0 };
    contract_rig_open(&r, WINDOW, NULL, 2);
    ck_assert_int_eq(contract_ensure_raw(&r, "hello"), MD_OK);
    const char *longer = "hellish things take their time to compute, two milliseconds each of them";
    cancel_under_way(&r, longer, &none);
    ck_assert_int_eq(contract_suffix_raw(&r, "x"), MD_INVALID);
    ck_assert_str_eq(r.err.text, "the last EnsurePrefix failed on its way: call it again first");
    ck_assert_int_eq(contract_ensure_raw(&r, longer), MD_OK);
    ck_assert_int_eq(r.prefix.prefix, (int)strlen(longer));
    ck_assert_int_eq(contract_suffix_raw(&r, "x"), MD_OK);

    /* one that was for another runtime: what is there now may be of either */
    ck_assert_int_eq(contract_ensure(&r, &contract_llama, HELLO), MD_OK);
    struct contract_texts t;
    const struct contract_part *parts = PARTS(STABLE("repo_map", "hello, hello, hello, hello, hello"));
    none = contract_rig_manifest(&contract_other_template, parts, &t);
    cancel_under_way(&r, t.stable, &none);
    ck_assert_int_eq(contract_ensure(&r, &contract_llama, HELLO), MD_OK);
    contract_check_prefix(&r, 0, 5, r.prefix.dropped, 5);
    contract_rig_close(&r);
}
END_TEST

/* ---- gates ---- */

START_TEST(bad_manifests)
{
    struct contract_rig r;
    struct contract_texts t;
    struct md_manifest m;
    struct md_contract_call *call = NULL;
    const struct contract_part *both = PARTS(STABLE("repo_map", "hello"), VOLATILE("diff", "x"));
    contract_rig_open(&r, WINDOW, NULL, 0);
    ck_assert_int_eq(contract_ensure(&r, &contract_llama, HELLO), MD_OK);

    m = contract_rig_manifest(&contract_llama, HELLO, &t);
    ck_assert_int_eq(contract_ensure_with(&r, "hallo", &m, NULL), MD_MANIFEST_MISMATCH);
    ck_assert_ptr_nonnull(strstr(r.err.text, "stable_byte_hash"));
    m = contract_rig_manifest(&contract_llama, both, &t);
    ck_assert_int_eq(contract_suffix_with(&r, "y", &m), MD_MANIFEST_MISMATCH);
    ck_assert_ptr_nonnull(strstr(r.err.text, "segments[1].byte_hash"));
    m = contract_rig_manifest(&contract_llama, both, &t);
    ck_assert_int_eq(contract_suffix_with(&r, "xy", &m), MD_MANIFEST_MISMATCH);
    ck_assert_ptr_nonnull(strstr(r.err.text, "2 bytes, the manifest says 1"));
    ck_assert_int_eq(contract_suffix(&r, &contract_other_template, both), MD_MANIFEST_MISMATCH);
    ck_assert_str_eq(r.err.text, "prompt_template_digest changed");
    ck_assert_int_eq(contract_suffix(&r, &contract_llama,
                                     PARTS(STABLE("repo_map", "hell"), VOLATILE("diff", "x"))),
                     MD_MANIFEST_MISMATCH);
    ck_assert_str_eq(r.err.text, "stable prefix changed between EnsurePrefix and PrefillSuffix");
    ck_assert_int_eq(contract_ensure(&r, &contract_llama,
                                     PARTS(STABLE("system", "S"), STABLE("repo_map", "m"),
                                           STABLE("user", "u"))),
                     MD_INVALID);
    ck_assert_str_eq(r.err.text,
                     "segments[1] is 'repo_map', between messages: a template has no place for it");

    struct md_manifest none = { 0 };
    const struct md_contract_prefix images = { .text = text("x"), .manifest = &none, .image_count = 1 };
    ck_assert_int_eq(md_contract_prepare_prefix(r.c, &images, &call, &r.over, &r.err), MD_UNSUPPORTED);
    const struct md_contract_suffix more = { .text = text("x"), .manifest = &none, .image_count = 2 };
    ck_assert_int_eq(md_contract_prepare_suffix(r.c, &more, &call, &r.over, &r.err), MD_UNSUPPORTED);
    ck_assert_ptr_null(call);

    contract_rig_context(&r, "hello"); /* after all of them as before */
    ck_assert_int_eq(contract_suffix(&r, &contract_llama, both), MD_OK);
    contract_rig_context(&r, "hellox");
    contract_rig_close(&r);
}
END_TEST

/* ---- templates ---- */

#define SYSTEM STABLE("system", "S")

/* Its digest with these tokens for its segments. */
static void check_digest(const struct contract_rig *r, const struct contract_part *parts,
                         const struct md_range *ranges, const char *tokens)
{
    struct contract_texts t;
    struct md_manifest m = contract_rig_manifest(&contract_llama, parts, &t);
    char digest[MD_SHA256_HEX + 1];
    md_token ids[1000];
    for (size_t i = 0; i < strlen(tokens); i++)
        ids[i] = (md_token)tokens[i];
    ck_assert_int_eq(md_manifest_set_tokens(&m, ranges, ids, strlen(tokens), NULL), MD_OK);
    ck_assert_int_eq(md_manifest_digest(&m, NULL, digest, NULL), MD_OK);
    md_manifest_done(&m);
    ck_assert_str_eq(r->suffix.manifest_digest, digest);
}

START_TEST(two_suffixes_in_a_row)
{
    struct contract_rig r;
    contract_rig_open(&r, WINDOW, NULL, 0);
    ck_assert_int_eq(contract_ensure(&r, &contract_llama, PARTS(SYSTEM, STABLE("assistant_prompt", ""))),
                     MD_OK);
    contract_check_prefix(&r, 0, 10, 0, 10);
    contract_rig_context(&r, "system: S\n");
    const struct contract_part *first = PARTS(SYSTEM, STABLE("assistant_prompt", ""), VOLATILE("user", "Hi"));
    ck_assert_int_eq(contract_suffix(&r, &contract_llama, first), MD_OK);
    contract_check_suffix(&r, 20, 10, 30);
    contract_rig_context(&r, "system: S\nuser: Hi\nassistant: ");
    /* a segment ends with its content, the last one takes the rest (session/prompt.h) */
    check_digest(&r, first, (const struct md_range[]){ { 0, 9 }, { 9, 9 }, { 9, 30 } },
                 "system: S\nuser: Hi\nassistant: ");
    ck_assert_ptr_nonnull(md_contract_manifest(r.c));
    ck_assert_int_eq(md_contract_manifest(r.c)->segments[2].tokens.end, 30);
    ck_assert_int_eq(contract_suffix(&r, &contract_llama,
                                     PARTS(SYSTEM, VOLATILE("user", "Ho"), VOLATILE("assistant", "A"),
                                           VOLATILE("user", "U"))),
                     MD_OK);
    contract_rig_context(&r, "system: S\nuser: Hi\nassistant: user: Ho\nassistant: A\nuser: U\nassistant: ");
    contract_check_suffix(&r, 9 + 13 + 8 + 11, 10, 30 + 9 + 13 + 8 + 11);
    /* the session has what they are */
    struct md_explain e;
    static const char *const kinds[] = { "system", "user", "user", "assistant", "user" };
    ck_assert_int_eq(md_worker_explain(r.worker, r.session, &e, NULL), MD_OK);
    ck_assert_uint_eq(e.segment_count, 5);
    for (size_t i = 0; i < 5; i++) {
        ck_assert_str_eq(e.segments[i].name, kinds[i]);
        ck_assert(e.segments[i].stable == (i == 0));
    }
    ck_assert(e.segments[0].range.end == 10 && e.segments[1].range.start == 10 &&
              e.segments[1].range.end == 30 && e.segments[2].range.start == 30);
    ck_assert_int_eq(e.status.prefix_tokens, 10);
    md_explain_done(&e);
    /* nothing behind the prefix: only the prompt for an answer */
    ck_assert_int_eq(contract_ensure(&r, &contract_llama, PARTS(SYSTEM)), MD_OK);
    ck_assert_int_eq(contract_suffix(&r, &contract_llama, PARTS(SYSTEM)), MD_OK);
    contract_rig_context(&r, "system: S\nassistant: ");
    contract_rig_close(&r);
}
END_TEST

/* Text that no template touches: its segments lie where the manifest's bytes are. */
START_TEST(segments_of_raw_text)
{
    struct contract_rig r;
    struct md_explain e;
    const struct contract_part *parts = PARTS(STABLE("repo_rules", "ab"), STABLE("my own", "cde"),
                                              VOLATILE("diff", "fg"), VOLATILE("user", "h"));
    static const struct md_range want[] = { { 0, 2 }, { 2, 5 }, { 5, 7 }, { 7, 8 } };
    contract_rig_open(&r, WINDOW, NULL, 0);
    ck_assert_int_eq(contract_ensure(&r, &contract_llama, parts), MD_OK);
    ck_assert_int_eq(contract_suffix(&r, &contract_llama, parts), MD_OK);
    contract_rig_context(&r, "abcdefgh");
    check_digest(&r, parts, want, "abcdefgh");
    ck_assert_int_eq(md_worker_explain(r.worker, r.session, &e, NULL), MD_OK);
    ck_assert_uint_eq(e.segment_count, 4);
    for (size_t i = 0; i < 4; i++)
        ck_assert(strcmp(e.segments[i].name, parts[i].kind) == 0 &&
                  e.segments[i].range.start == want[i].start && e.segments[i].range.end == want[i].end);
    ck_assert(e.segments[0].cls == MD_CLASS_TASK_PINNED && e.segments[2].cls == MD_CLASS_VOLATILE);
    md_explain_done(&e);
    contract_rig_close(&r);
}
END_TEST

/* A chat without a system text has an empty prefix, and is written by the template all the same. */
START_TEST(no_stable_message)
{
    struct contract_rig r;
    contract_rig_open(&r, WINDOW, NULL, 0);
    const struct contract_part *parts = PARTS(VOLATILE("user", "Hi"));
    ck_assert_int_eq(contract_ensure(&r, &contract_llama, parts), MD_OK);
    contract_check_prefix(&r, 0, 0, 0, 0);
    ck_assert_int_eq(contract_suffix(&r, &contract_llama, parts), MD_OK);
    contract_check_suffix(&r, 20, 0, 20);
    contract_rig_context(&r, "user: Hi\nassistant: ");
    ck_assert_int_eq(contract_decode(&r, &(struct md_contract_decode){ .max_tokens = 1 }), MD_OK);
    /* and without EnsurePrefix at all */
    struct contract_rig q;
    contract_rig_open(&q, WINDOW, NULL, 0);
    ck_assert_int_eq(contract_suffix(&q, &contract_llama, parts), MD_OK);
    contract_rig_context(&q, "user: Hi\nassistant: ");
    contract_rig_close(&q);
    contract_rig_close(&r);
}
END_TEST

/* Writes how long the conversation is behind the system text, and its tools; "?" for an answer, "!" where thinking is
 * off, and the word for the effort. */
static enum md_status counting(void *user, const struct md_chat_input *in, struct md_buf *out,
                               struct md_chat_form **ret_form, struct md_err *err)
{
    (void)user, (void)ret_form;
    enum md_status s = MD_OK;
    for (size_t i = 0; i < in->count && s == MD_OK; i++) {
        const struct md_chat_message *m = &in->messages[i];
        s = md_buf_printf(out, err, "<%.*s%s%.*s%s%.*s>", (int)m->content.len, (const char *)m->content.data,
                          m->tool_calls.len > 0 ? "+" : "", (int)m->tool_calls.len,
                          m->tool_calls.len > 0 ? (const char *)m->tool_calls.data : "",
                          m->tool_call_id.len > 0 ? "@" : "", (int)m->tool_call_id.len,
                          m->tool_call_id.len > 0 ? (const char *)m->tool_call_id.data : "");
        if (s == MD_OK && i == 0 && in->tools.len > 0)
            s = md_buf_printf(out, err, "%.*s", (int)in->tools.len, (const char *)in->tools.data);
        if (s == MD_OK && i == 0)
            s = md_buf_printf(out, err, "=%zu=", in->count);
    }
    if (s == MD_OK && in->add_generation_prompt)
        s = md_buf_printf(out, err, "%s%.*s", in->thinking == MD_THINKING_OFF ? "!" : "?",
                          (int)in->reasoning_effort.len, (const char *)in->reasoning_effort.data);
    return s;
}

START_TEST(a_template_that_is_not_additive)
{
    struct contract_rig r;
    contract_rig_open(&r, WINDOW, counting, 0);
    ck_assert_int_eq(contract_ensure(&r, &contract_llama, PARTS(STABLE("system", "S"))), MD_OK);
    contract_rig_context(&r, "<S>=1=");
    contract_check_prefix(&r, 0, 6, 0, 6);
    const struct contract_part *one = PARTS(STABLE("system", "S"), VOLATILE("user", "Hi"));
    ck_assert_int_eq(contract_suffix(&r, &contract_llama, one), MD_OK);
    contract_rig_context(&r, "<S>=2=<Hi>?"); /* as the template writes the whole */
    contract_check_suffix(&r, 7, 4, 11);     /* "<S>=" stays */
    check_digest(&r, one, (const struct md_range[]){ { 0, 2 }, { 2, 11 } }, "<S>=2=<Hi>?");
    /* what stayed is the prefix now: as much as that is shared by the next one too */
    ck_assert_int_eq(contract_suffix(&r, &contract_llama, one), MD_OK);
    contract_rig_context(&r, "<S>=2=<Hi>?2=<Hi>?");
    contract_check_suffix(&r, 7, 4, 18);
    ck_assert_int_eq(contract_suffix(&r, &contract_llama, PARTS(SYSTEM)),
                     MD_OK); /* though the first prefix had "1=" */
    contract_rig_context(&r, "<S>=2=<Hi>?2=<Hi>?1=?");
    contract_rig_close(&r);
}
END_TEST

START_TEST(tools_and_calls)
{
    struct contract_rig r;
    struct contract_texts t;
    contract_rig_open(&r, WINDOW, counting, 0);
    const struct contract_part *parts = PARTS(STABLE("system", "S"), { "assistant", "A", true, "[{}]", NULL },
                                              { "tool", "42", true, NULL, "id" });
    struct md_manifest m = contract_rig_manifest(&contract_llama, parts, &t);
    ck_assert_int_eq(contract_ensure_with(&r, t.stable, &m, "[1]"), MD_OK);
    contract_rig_context(&r, "<S>[1]=3=<A+[{}]><42@id>");
    struct md_explain e;
    ck_assert_int_eq(md_worker_explain(r.worker, r.session, &e, NULL), MD_OK);
    ck_assert(e.segment_count == 4 && strcmp(e.segments[1].name, "tools") == 0 && e.segments[1].stable);
    md_explain_done(&e);
    /* the suffix has the prefix's tools; what the template is told besides */
    m = contract_rig_manifest(&contract_llama,
                              PARTS(STABLE("system", "S"), { "assistant", "A", true, "[{}]", NULL },
                                    { "tool", "42", true, NULL, "id" }, VOLATILE("user", "U")),
                              &t);
    const struct md_contract_suffix in = {
        .text = text("U"), .manifest = &m, .thinking = MD_THINKING_OFF, .reasoning_effort = text("low")
    };
    struct md_contract_call *call;
    ck_assert_int_eq(md_contract_prepare_suffix(r.c, &in, &call, &r.over, &r.err), MD_OK);
    ck_assert(m.segment_count == 0 && md_manifest_is_zero(&m)); /* taken over */
    const struct md_event end = contract_rig_wait(&r, md_contract_call_job(call));
    ck_assert_int_eq(md_contract_finish_suffix(r.c, call, &end, &r.suffix, &r.over, &r.err), MD_OK);
    md_contract_call_close(call);
    contract_rig_context(&r, "<S>[1]=4=<A+[{}]><42@id><U>!low");
    /* the manifest was replaced by that of the suffix; what the messages had of the first one stays */
    ck_assert_int_eq(contract_suffix_raw(&r, ""), MD_OK);
    contract_rig_context(&r, "<S>[1]=4=<A+[{}]><42@id><U>!low3=<A+[{}]><42@id>?");
    contract_rig_close(&r);
}
END_TEST

/* ---- Decode ---- */

static const struct {
    struct md_contract_decode in;
    enum md_status status;
    const char *says;
} decodes[] = {
    { { .max_tokens = -1 }, MD_INVALID, "max_tokens" },
    { { .has_top_p = true, .top_p = 2 }, MD_INVALID, "top_p" },
    { { .structured_protocol = { "xml", 3 } }, MD_UNSUPPORTED, "'xml'" },
    { { .structured_payload = { "{}", 2 } }, MD_INVALID, "without a protocol" },
    { { .parser_protocols = &(const struct md_bytes){ "mine", 4 }, .parser_protocol_count = 1 },
      MD_UNSUPPORTED,
      "'mine'" },
    { { .parser_protocols = &(const struct md_bytes){ "llama:common_chat_reasoning_parser", 34 },
        .parser_protocol_count = 1 },
      MD_UNSUPPORTED,
      "reasoning format" },
    { { .parser_protocols = &(const struct md_bytes){ "llama:common_chat_reasoning_parser", 34 },
        .parser_protocol_count = 1,
        .reasoning_format = { "auto", 4 } },
      MD_OK,
      NULL },
    { { .parser_protocols = &(const struct md_bytes){ "llama:common_chat_tool_parser", 29 },
        .parser_protocol_count = 1 },
      MD_OK,
      NULL },
    { { .structured_protocol = { "json_schema", 11 }, .structured_payload = { "{}", 2 } }, MD_OK, NULL },
};

START_TEST(decode_configs)
{
    struct contract_rig r;
    contract_rig_open(&r, WINDOW, NULL, 0);
    ck_assert_int_eq(contract_ensure_raw(&r, "hello"), MD_OK);
    ck_assert_msg(contract_decode(&r, &decodes[_i].in) == decodes[_i].status, "%s", r.err.text);
    if (decodes[_i].says != NULL)
        ck_assert_msg(strstr(r.err.text, decodes[_i].says) != NULL, "%s", r.err.text);
    contract_rig_context(&r, decodes[_i].status == MD_OK ? "hello***"
                                                         : "hello"); /* the script has three pieces */
    contract_rig_close(&r);
}
END_TEST

/* The protocol's defaults; a temperature of 0 and less is greedy, a seed below 0 is none. */
START_TEST(decode_defaults)
{
    struct contract_rig r;
    struct md_contract_call *call;
    contract_rig_open(&r, WINDOW, NULL, 0);
    ck_assert_int_eq(contract_ensure_raw(&r, "hello"), MD_OK);
    ck_assert_int_eq(md_contract_prepare_decode(r.c, &(struct md_contract_decode){ 0 }, &call, &r.over,
                                                &r.err),
                     MD_OK);
    const struct md_decode *d = &md_contract_call_job(call)->request.decode;
    ck_assert(d->max_tokens == 256 && d->sample.top_k == 40 && d->sample.temperature == 0.8f &&
              d->sample.top_p == 0.9f && d->sample.min_p == 0.05f && d->sample.seed == -1);
    ck_assert_ptr_null(md_contract_call_form(call));
    md_contract_call_close(call);
    const struct md_contract_decode given = { .max_tokens = 7,
                                              .has_temperature = true,
                                              .temperature = -1,
                                              .has_top_p = true,
                                              .top_p = 0.5f,
                                              .top_k = 3,
                                              .has_seed = true,
                                              .seed = 11 };
    ck_assert_int_eq(md_contract_prepare_decode(r.c, &given, &call, &r.over, &r.err), MD_OK);
    d = &md_contract_call_job(call)->request.decode;
    ck_assert(d->max_tokens == 7 && d->sample.top_k == 3 && d->sample.temperature == 0 &&
              d->sample.top_p == 0.5f && d->sample.seed == 11);
    md_contract_call_close(call);
    contract_rig_close(&r);
}
END_TEST

/* ---- memory ---- */

START_TEST(allocations_fail)
{
    const struct contract_part *parts = PARTS(STABLE("system", "S"), VOLATILE("user", "Hi"));
    struct contract_rig r;
    struct contract_texts t;
    contract_rig_open(&r, WINDOW, NULL, 0);
    enum md_status s = MD_NO_MEMORY;
    int runs = 0;
    for (long nth = 1; s != MD_OK; nth++, runs++) {
        struct fault_alloc f;
        struct md_contract *c = NULL;
        struct md_contract_call *call = NULL;
        struct md_manifest m = contract_rig_manifest(&contract_llama, parts, &t);
        const struct md_contract_suffix in = { .text = text("Hi"), .manifest = &m };
        const struct md_contract_prefix first = { .text = text("S"), .manifest = &m };
        fault_alloc_init(&f, 0);
        ck_assert_int_eq(md_contract_open(r.text, WINDOW, r.session, &f.alloc, &c, NULL), MD_OK);
        fault_alloc_arm(&f, nth);
        s = md_contract_prepare_prefix(c, &first, &call, &r.over, &r.err);
        if (s == MD_OK) {
            const struct md_event end = contract_rig_wait(&r, md_contract_call_job(call));
            ck_assert_int_eq(md_contract_finish_prefix(c, call, &end, &r.prefix, &r.over, NULL), MD_OK);
            md_contract_call_close(call);
            call = NULL;
            m = contract_rig_manifest(&contract_llama, parts, &t);
            s = md_contract_prepare_suffix(c, &in, &call, &r.over, &r.err);
        }
        ck_assert_msg(s == (f.failed ? MD_NO_MEMORY : MD_OK), "%ld: %s", nth, r.err.text);
        ck_assert_int_eq(call != NULL, s == MD_OK);
        ck_assert_int_eq(m.segment_count == 0, s == MD_OK); /* the caller's until all went well */
        md_contract_call_close(call);
        md_contract_close(c);
        md_manifest_done(&m);
        ck_assert_uint_eq(f.live_blocks, 0);
    }
    ck_assert_int_ge(runs, 20);
    contract_rig_close(&r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("contract_text");
    TCase *t = tcase_create("contract_text");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, cold_then_warm);
    tcase_add_test(t, another_runtime_computes_again);
    tcase_add_test(t, suffix_and_resident_add_up);
    tcase_add_test(t, what_does_not_fit_says_how_much);
    tcase_add_test(t, a_closed_session);
    tcase_add_test(t, cancelled_calls);
    tcase_add_test(t, a_prefix_that_failed_on_its_way);
    tcase_add_test(t, a_prefix_that_was_fatal);
    tcase_add_test(t, bad_manifests);
    tcase_add_test(t, two_suffixes_in_a_row);
    tcase_add_test(t, segments_of_raw_text);
    tcase_add_test(t, no_stable_message);
    tcase_add_test(t, a_template_that_is_not_additive);
    tcase_add_test(t, tools_and_calls);
    tcase_add_loop_test(t, decode_configs, 0, (int)(sizeof decodes / sizeof decodes[0]));
    tcase_add_test(t, decode_defaults);
    tcase_add_test(t, allocations_fail);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
