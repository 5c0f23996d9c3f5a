/* test_record.c - a conversation written down and read (session/record.h): what is written is what the layout's words make
 * (support/record_spec), reads back as what the session has, and no other bytes read as values that no conversation
 * has. */
#include "session/record.h"
#include "session/session_internal.h"
#include "support/fault_alloc.h"
#include "support/record_spec.h"
#include "support/run_suite.h"
#include "support/session_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = 1024, ANSWER = 8, KEEP_ALL = 64 << 20, LIMIT = 1 << 20 };

static md_token text[TEXT];

static void fill(void)
{
    rig_tokens(text, TEXT, 1);
}

/* What may be taken for so many bytes: record.h says a few times that, and an arena's first piece has 16 KiB. */
static size_t most_for(size_t len)
{
    return 16 * len + (17 << 10);
}

/* ---- round trip ---- */

static void check_block(const struct md_tape_block *is, const struct md_record_block *read)
{
    ck_assert_int_eq(read->cls, is->cls);
    ck_assert_int_eq(read->provenance.kind, is->provenance.kind);
    ck_assert_uint_eq(read->provenance.attended, is->provenance.attended);
    ck_assert_int_eq(read->lost, is->state == MD_STATE_LOST);
    ck_assert_int_eq(read->held_out, is->held_out);
}

static void check_segment(const struct md_segment *is, const struct md_segment *read)
{
    ck_assert_int_eq(read->range.start, is->range.start);
    ck_assert_int_eq(read->range.end, is->range.end);
    ck_assert_int_eq(read->kind, is->kind);
    ck_assert_int_eq(read->cls, is->cls);
    ck_assert_int_eq(read->invalidation, is->invalidation);
    ck_assert_int_eq(read->stable, is->stable);
    ck_assert_str_eq(read->name, is->name);
}

/* Every field of the record against the session it is of. */
static void check_record(const struct md_session *s, const struct md_record *r)
{
    const struct md_tape *t = &s->tape;
    ck_assert_ptr_null(rs_wrong(r));
    ck_assert_int_eq((int)r->id, (int)s->id);
    ck_assert_int_eq((int)r->parent, (int)s->parent);
    ck_assert_int_eq(r->kept, s->kept);
    ck_assert_int_eq(r->bound, s->bound);
    ck_assert_int_eq(r->block_tokens, t->block_tokens);
    ck_assert_int_eq(r->prefix_count, s->prefix_count);
    ck_assert_int_eq(r->context.count, (int)s->context.count);
    ck_assert(s->context.count == 0 ||
              memcmp(r->context.tokens, s->context.ids, s->context.count * sizeof *s->context.ids) == 0);
    ck_assert_int_eq(r->tape_count, t->count);
    ck_assert(t->count == 0 || memcmp(r->tape, t->tokens, (size_t)t->count * sizeof *t->tokens) == 0);
    ck_assert_uint_eq(r->context.segment_count, s->segment_count);
    for (size_t i = 0; i < s->segment_count; i++)
        check_segment(&s->segments[i], &r->context.segments[i]);
    ck_assert_uint_eq(r->block_count, md_tape_block_count(t));
    for (size_t i = 0; i < r->block_count; i++)
        check_block(&t->blocks[i], &r->blocks[i]);
}

/* Written, read, and written again by the other hand. */
static void round_trip(const struct md_session *s, struct md_buf *bytes)
{
    struct md_record r;
    struct md_buf again;
    struct md_err err;
    md_buf_init(bytes, NULL, LIMIT);
    ck_assert_int_eq(md_buf_append(bytes, "before", 6, NULL), MD_OK);
    ck_assert_int_eq(md_record_write(s, bytes, &err), MD_OK);
    ck_assert_mem_eq(bytes->data, "before", 6);
    bytes->len -= 6;
    memmove(bytes->data, bytes->data + 6, bytes->len);
    ck_assert_msg(md_record_read(bytes->data, bytes->len, NULL, &r, &err) == MD_OK, "%s", err.text);
    check_record(s, &r);
    int32_t common = 0;
    while (common < r.tape_count && common < r.context.count && r.tape[common] == r.context.tokens[common])
        common++;
    md_buf_init(&again, NULL, LIMIT);
    rs_write(&r, common, &again);
    ck_assert_uint_eq(again.len, bytes->len);
    ck_assert_mem_eq(again.data, bytes->data, bytes->len);
    md_buf_done(&again);
    md_record_done(&r);
}

START_TEST(a_new_conversation_is_a_head_alone)
{
    struct rig r;
    struct md_buf bytes;
    rig_open(&r, rig_config(1024, 1024, KEEP_ALL), 0);
    round_trip(r.session, &bytes);
    ck_assert_uint_eq(bytes.len, RS_HEAD_BYTES);
    md_buf_done(&bytes);
    rig_close(&r);
}
END_TEST

/* A branch with segments, a block that is held out, and marks; whose tape is longer than its context. */
static struct md_session *with_everything(struct rig *r)
{
    int32_t tokens;
    struct md_session *branch;
    struct md_segment segments[4] = {
        { .range = { 0, 100 }, .kind = MD_SEGMENT_SYSTEM, .stable = true, .cls = MD_CLASS_TASK_PINNED },
        { .range = { 100, 180 }, .kind = MD_SEGMENT_REPO_MAP, .stable = true, .cls = MD_CLASS_REPO_MAP },
        { .range = { 190, 190 }, .kind = MD_SEGMENT_OTHER, .cls = MD_CLASS_VOLATILE },
        { .range = { 200, 300 },
          .kind = MD_SEGMENT_ASSISTANT_PROMPT,
          .cls = MD_CLASS_VOLATILE,
          .invalidation = MD_INVALIDATION_ON_EDIT },
    };
    snprintf(segments[2].name, sizeof segments[2].name, "%s", "thirty-one bytes is the longest");
    snprintf(segments[3].name, sizeof segments[3].name, "question");
    const struct md_context prompt = { text, 300, segments, 4 };
    ck_assert_int_eq(rig_ask_segments(r, &prompt, ANSWER), MD_OK);
    ck_assert_int_eq(md_session_branch(r->session, -1, &branch, &r->err), MD_OK);
    md_pool_keep(branch);
    md_pool_bind(branch);
    r->session = branch;
    ck_assert_int_eq(rig_suffix(r, text + 500, 40), MD_OK);
    ck_assert_int_eq(rig_decode(r, ANSWER), MD_OK);
    ck_assert_int_eq(md_session_evict_range(branch, (struct md_range){ 112, 144 }, &tokens, &r->err), MD_OK);
    return branch;
}

START_TEST(all_fields_come_back)
{
    struct rig r;
    struct md_buf bytes;
    rig_open(&r, rig_config(1024, 1024, KEEP_ALL), 0);
    struct md_session *s = with_everything(&r);
    ck_assert(s->kept && s->bound && s->parent == 1 && s->segment_count == 4 && s->prefix_count == 180);
    ck_assert(s->tape.blocks[7].held_out);
    for (int marks = 0; marks < 4; marks++) {
        s->kept = marks & 1;
        s->bound = marks & 2;
        round_trip(s, &bytes);
        md_buf_done(&bytes);
    }
    const struct md_context start = { .tokens = s->context.ids, .count = 150 };
    ck_assert_int_eq(rig_ensure(&r, start.tokens, start.count), MD_OK);
    ck_assert_int_eq(s->tape.count, 355); /* what follows the prefix stays on it */
    round_trip(s, &bytes);
    md_buf_done(&bytes);
    rig_close(&r);
}
END_TEST

/* Blocks that were computed over a part of what was before them, and blocks that are lost. */
START_TEST(bounded_and_lost_blocks_come_back)
{
    struct rig r;
    struct md_buf bytes;
    rig_open(&r, rig_config(1024, 128, 0), 0);
    ck_assert_int_eq(rig_ask(&r, text, 400, ANSWER, false), MD_OK);
    const struct md_session_status st = md_session_status(r.session);
    ck_assert(st.lost_tokens > 100 && st.tokens_of[MD_PROVENANCE_BOUNDED] > 0);
    round_trip(r.session, &bytes);
    md_buf_done(&bytes);
    rig_close(&r);
}
END_TEST

START_TEST(without_room_nothing_is_appended)
{
    struct rig r;
    struct md_buf bytes;
    rig_open(&r, rig_config(1024, 1024, KEEP_ALL), 0);
    struct md_session *s = with_everything(&r);
    round_trip(s, &bytes);
    const size_t len = bytes.len;
    md_buf_done(&bytes);
    md_buf_init(&bytes, NULL, len + 2); /* one less than it takes behind three others */
    ck_assert_int_eq(md_buf_append(&bytes, "abc", 3, NULL), MD_OK);
    ck_assert_int_eq(md_record_write(s, &bytes, &r.err), MD_NO_MEMORY);
    ck_assert_uint_eq(bytes.len, 3);
    md_buf_done(&bytes);
    rig_close(&r);
}
END_TEST

/* ---- other bytes ---- */

/* Read bytes that may be anything; true: accepted, and then all is in range and this is its one spelling. */
static bool try_read(const uint8_t *bytes, size_t len, const char *what, size_t at)
{
    struct fault_alloc f;
    struct md_record r;
    struct md_err err = { 0 };
    struct md_buf again;
    uint8_t *exact = malloc(len + 1); /* a read behind the end shows under ASan */
    memcpy(exact, bytes, len);
    exact = realloc(exact, len > 0 ? len : 1);
    fault_alloc_init(&f, 0);
    const enum md_status s = md_record_read(exact, len, &f.alloc, &r, &err);
    ck_assert_msg(f.peak_bytes <= most_for(len), "%s at %zu took %zu bytes", what, at, f.peak_bytes);
    ck_assert_msg(s == MD_OK || s == MD_CORRUPT || s == MD_UNSUPPORTED, "%s at %zu: %s", what, at,
                  md_status_name(s));
    if (s == MD_OK) {
        ck_assert_msg(rs_wrong(&r) == NULL, "%s at %zu: %s", what, at, rs_wrong(&r));
        md_buf_init(&again, NULL, LIMIT);
        rs_write(&r, rs_get(bytes, RS_COMMON), &again);
        ck_assert_uint_eq(again.len, len);
        ck_assert_msg(memcmp(again.data, bytes, len) == 0, "%s at %zu is not seen", what, at);
        md_buf_done(&again);
        md_record_done(&r);
    } else {
        ck_assert_msg(err.status == s && strncmp(err.text, "conversation record", 19) == 0, "%s", err.text);
    }
    ck_assert_msg(f.live_blocks == 0, "%s at %zu: %zu blocks leaked", what, at, f.live_blocks);
    free(exact);
    return s == MD_OK;
}

/* What with_everything() leaves, for the tests that damage it. */
static void everything(struct md_buf *bytes)
{
    struct rig r;
    rig_open(&r, rig_config(1024, 1024, KEEP_ALL), 0);
    round_trip(with_everything(&r), bytes);
    rig_close(&r);
}

START_TEST(every_byte_flipped)
{
    static const uint8_t flips[] = { 0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xff, 0x7f };
    struct md_buf bytes;
    int accepted = 0;
    everything(&bytes);
    for (size_t at = 0; at < bytes.len; at++)
        for (size_t i = 0; i < sizeof flips; i++) {
            bytes.data[at] ^= flips[i];
            accepted += try_read(bytes.data, bytes.len, "flip", at);
            bytes.data[at] ^= flips[i];
        }
    ck_assert(try_read(bytes.data, bytes.len, "none", 0));
    ck_assert_int_gt(accepted, 1000); /* tokens may be anything */
    md_buf_done(&bytes);
}
END_TEST

START_TEST(every_length)
{
    struct md_buf bytes;
    everything(&bytes);
    for (size_t len = 0; len < bytes.len; len++)
        ck_assert_msg(!try_read(bytes.data, len, "cut", len), "accepted, cut to %zu", len);
    ck_assert_int_eq(md_buf_append(&bytes, "\0\0\0\0", 4, NULL), MD_OK);
    for (size_t more = 1; more <= 4; more++)
        ck_assert_msg(!try_read(bytes.data, bytes.len - 4 + more, "longer", more), "%zu bytes more", more);
    md_buf_done(&bytes);
    struct md_record r;
    ck_assert_int_eq(md_record_read(NULL, 0, NULL, &r, NULL), MD_CORRUPT);
}
END_TEST

/* Bytes that a hand made, each wrong in one thing only. */
static const struct {
    const char *label;
    size_t at;
    int count;
    int64_t value;
    enum md_status want;
} rows[] = {
    { "as it was", RS_VERSION, 4, 1, MD_OK },
    { "version 0", RS_VERSION, 4, 0, MD_UNSUPPORTED },
    { "version 2", RS_VERSION, 4, 2, MD_UNSUPPORTED },
    { "both flags", RS_FLAGS, 4, 3, MD_OK },
    { "tokens alone, and KV", RS_FLAGS, 4, 4, MD_CORRUPT },
    { "a fourth flag", RS_FLAGS, 4, 8, MD_CORRUPT },
    { "the last flag", RS_FLAGS, 4, INT32_MIN, MD_CORRUPT },
    { "largest id", RS_ID, 8, INT64_MAX, MD_OK },
    { "id below 0", RS_ID, 8, -1, MD_CORRUPT },
    { "parent below 0", RS_PARENT, 8, INT64_MIN, MD_CORRUPT },
    { "blocks of 7", RS_BLOCK_TOKENS, 4, 7, MD_CORRUPT },
    { "blocks of 0", RS_BLOCK_TOKENS, 4, 0, MD_CORRUPT },
    { "blocks of 4097", RS_BLOCK_TOKENS, 4, 4097, MD_CORRUPT },
    { "prefix below 0", RS_PREFIX, 4, -1, MD_CORRUPT },
    { "all is prefix", RS_PREFIX, 4, 20, MD_OK },
    { "prefix past the context", RS_PREFIX, 4, 21, MD_CORRUPT },
    { "context below 0", RS_CONTEXT, 4, -1, MD_CORRUPT },
    { "context of 21", RS_CONTEXT, 4, 21, MD_CORRUPT },
    { "context of 2^31-1", RS_CONTEXT, 4, INT32_MAX, MD_CORRUPT },
    { "tape of 18", RS_TAPE, 4, 18, MD_CORRUPT },
    { "tape of 2^31-1", RS_TAPE, 4, INT32_MAX, MD_CORRUPT },
    { "tape below 0", RS_TAPE, 4, INT32_MIN, MD_CORRUPT },
    { "less in common", RS_COMMON, 4, 18, MD_CORRUPT },
    { "more in common than the tape", RS_COMMON, 4, 20, MD_CORRUPT },
    { "in common below 0", RS_COMMON, 4, -1, MD_CORRUPT },
    { "three segments", RS_SEGMENTS, 4, 3, MD_CORRUPT },
    { "65537 segments", RS_SEGMENTS, 4, MD_SEGMENTS_MAX + 1, MD_CORRUPT },
    { "2^32-1 segments", RS_SEGMENTS, 4, -1, MD_CORRUPT },
    /* the segments are [0, 8) and [8, 20), from byte 128 on */
    { "a gap before it", 172, 4, 9, MD_OK },
    { "one over the other", 172, 4, 7, MD_CORRUPT },
    { "it ends before it begins", 176, 4, 7, MD_CORRUPT },
    { "empty", 176, 4, 8, MD_OK },
    { "past the context", 176, 4, 21, MD_CORRUPT },
    { "last kind", 136, 1, MD_SEGMENT_KIND_COUNT - 1, MD_OK },
    { "no kind", 136, 1, MD_SEGMENT_KIND_COUNT, MD_CORRUPT },
    { "last class", 137, 1, MD_CLASS_COUNT - 1, MD_OK },
    { "no class", 137, 1, MD_CLASS_COUNT, MD_CORRUPT },
    { "last hint", 138, 1, MD_INVALIDATION_ON_TURN, MD_OK },
    { "no hint", 138, 1, MD_INVALIDATION_ON_TURN + 1, MD_CORRUPT },
    { "not stable", 139, 1, 0, MD_OK },
    { "stable is 2", 139, 1, 2, MD_CORRUPT },
    { "last byte of a name", 171, 1, 'x', MD_CORRUPT },
    /* the blocks, from byte 216 on: 8 full, 8 bounded, 3 full */
    { "no class of a block", 216, 1, MD_CLASS_COUNT, MD_CORRUPT },
    { "approximate", 229, 1, MD_PROVENANCE_APPROXIMATE, MD_OK },
    { "no provenance", 229, 1, MD_PROVENANCE_COUNT, MD_CORRUPT },
    { "full with a digest", 229, 1, MD_PROVENANCE_FULL, MD_CORRUPT },
    { "bounded without one", 217, 1, MD_PROVENANCE_BOUNDED, MD_CORRUPT },
    { "lost and held out", 218, 1, 3, MD_OK },
    { "no flags of a block", 218, 1, 4, MD_CORRUPT },
    { "a byte that is 0", 219, 1, 1, MD_CORRUPT },
};

static void by_hand(struct md_buf *out)
{
    const struct md_segment segments[] = {
        { .range = { 0, 8 },
          .kind = MD_SEGMENT_SYSTEM,
          .stable = true,
          .name = "thirty-one bytes is the longest" },
        { .range = { 8, 20 }, .kind = MD_SEGMENT_USER, .cls = MD_CLASS_VOLATILE },
    };
    const struct md_record_block blocks[] = {
        { .cls = MD_CLASS_TASK_PINNED },
        { .cls = MD_CLASS_VOLATILE, .provenance = { MD_PROVENANCE_BOUNDED, 99 } },
        { .cls = MD_CLASS_VOLATILE, .lost = true },
    };
    const struct md_record r = { .id = 3,
                                 .parent = 2,
                                 .block_tokens = 8,
                                 .prefix_count = 8,
                                 .context = { text, 20, segments, 2 },
                                 .tape = text,
                                 .tape_count = 19,
                                 .blocks = blocks,
                                 .block_count = 3 };
    md_buf_init(out, NULL, LIMIT);
    rs_write(&r, 19, out);
}

START_TEST(one_thing_wrong)
{
    struct md_buf bytes;
    struct md_record r;
    struct md_err err;
    by_hand(&bytes);
    ck_assert_uint_eq(bytes.len, RS_HEAD_BYTES + 20 * 4 + 2 * RS_SEGMENT_BYTES + 3 * RS_BLOCK_BYTES);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t copy[512];
        memcpy(copy, bytes.data, bytes.len);
        rs_put(copy, rows[i].at, rows[i].value, rows[i].count);
        const bool good = try_read(copy, bytes.len, rows[i].label, rows[i].at);
        ck_assert_msg(good == (rows[i].want == MD_OK), "%s: %s", rows[i].label,
                      good ? "accepted" : "refused");
        const enum md_status s = md_record_read(copy, bytes.len, NULL, &r, &err);
        ck_assert_msg(s == rows[i].want, "%s: %s", rows[i].label, md_status_name(s));
        md_record_done(&r);
    }
    md_buf_done(&bytes);
}
END_TEST

/* ---- memory ---- */

/* A head that claims everything, with few bytes behind it: refused before anything is taken. */
START_TEST(counts_without_bytes_take_no_memory)
{
    static const size_t fields[] = { RS_PREFIX, RS_CONTEXT, RS_TAPE, RS_COMMON, RS_SEGMENTS };
    static const int64_t values[] = { 0, 1, MD_SEGMENTS_MAX, INT32_MAX / 4, INT32_MAX, -1 };
    struct md_buf bytes;
    by_hand(&bytes);
    for (int choice = 0; choice < 6 * 6 * 6 * 6 * 6; choice++) {
        struct fault_alloc f;
        struct md_record r;
        uint8_t head[RS_HEAD_BYTES + 17] = { 0 }; /* what follows is of an odd length: no counts fit it */
        int left = choice;
        memcpy(head, bytes.data, RS_HEAD_BYTES);
        for (size_t i = 0; i < 5; i++, left /= 6)
            rs_put(head, fields[i], values[left % 6], 4);
        fault_alloc_init(&f, 0);
        const enum md_status s = md_record_read(head, sizeof head, &f.alloc, &r, NULL);
        ck_assert(s == MD_CORRUPT);
        ck_assert_int_eq(f.calls, 0);
    }
    md_buf_done(&bytes);
}
END_TEST

START_TEST(nth_allocation)
{
    struct md_buf bytes;
    int failures = 0;
    everything(&bytes);
    for (long nth = 1;; nth++) {
        struct fault_alloc f;
        struct md_record r;
        struct md_err err;
        fault_alloc_init(&f, nth);
        const enum md_status s = md_record_read(bytes.data, bytes.len, &f.alloc, &r, &err);
        ck_assert(s == (f.failed ? MD_NO_MEMORY : MD_OK));
        if (s != MD_OK)
            ck_assert_uint_eq(f.live_blocks, 0);
        md_record_done(&r); /* of a failed one, too */
        ck_assert_uint_eq(f.live_blocks, 0);
        failures += f.failed;
        if (!f.failed)
            break;
    }
    ck_assert_int_ge(failures, 1);
    md_buf_done(&bytes);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("record");
    TCase *c = tcase_create("record");
    tcase_set_timeout(c, 60);
    tcase_add_unchecked_fixture(c, fill, NULL);
    tcase_add_test(c, a_new_conversation_is_a_head_alone);
    tcase_add_test(c, all_fields_come_back);
    tcase_add_test(c, bounded_and_lost_blocks_come_back);
    tcase_add_test(c, without_room_nothing_is_appended);
    tcase_add_test(c, every_byte_flipped);
    tcase_add_test(c, every_length);
    tcase_add_test(c, one_thing_wrong);
    tcase_add_test(c, counts_without_bytes_take_no_memory);
    tcase_add_test(c, nth_allocation);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
