/* test_manifest.c - building a manifest, holding it against its text, identities and token hashes.  Digests
 * are Python's:  H = lambda b: hashlib.sha256(b).hexdigest() */
#include "session/manifest.h"
#include "session/manifest_json.h"
#include "support/fault_alloc.h"
#include "support/run_suite.h"

#include <check.h>
#include <string.h>

static struct md_bytes text(const char *s)
{
    return (struct md_bytes){ s, strlen(s) };
}

static bool equal(struct md_bytes a, const char *b)
{
    return a.len == strlen(b) && (a.len == 0 || memcmp(a.data, b, a.len) == 0);
}

#define SYSTEM "You help.\n"
#define RULES "Rules: a<b & c\n"
#define TURN "what?\n"
static const char stable_text[] = SYSTEM RULES, turn_text[] = TURN;
#define STABLE text(stable_text)
#define TURNS text(turn_text)
enum { S1 = sizeof SYSTEM - 1, S2 = sizeof SYSTEM RULES - 1, ALL = S2 + sizeof TURN - 1 };

#define HASH_STABLE "66efb088c403019c677bdbb04311ff6a1cebaab33c142dddbd8b710d5731fb86" /* H(SYSTEM + RULES) */
#define HASH_SYSTEM "d7cf5e49c5a2fe8772b600f2d89c70d1453541d078266e7d86d195892e75ec7b" /* H(SYSTEM) */
#define HASH_RULES "4d95fed7437c9f3779b4f51803764fe807ec4ae10fe432181eca457a8cd5ffdd"  /* H(RULES) */
#define HASH_TURN "ce2ad1355678b01761963ea83b3845622d874a6e7179d50a3f4977053562f19b"   /* H(TURN) */
#define HASH_NOTHING "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" /* H(b"") */

static struct md_manifest_id identity(void)
{
    return (struct md_manifest_id){ .profile_id = text("p"),
                                    .backend = text("llamacpp"),
                                    .backend_version = text("llamacpp-direct"),
                                    .model_digest = text("d"),
                                    .prompt_format = text("chatml"),
                                    .prompt_template_digest = text("t"),
                                    .runtime_digest = text("r<1>"),
                                    .add_bos = true };
}

static struct md_manifest_segment segment(const char *kind, bool stable, int64_t start, int64_t end)
{
    return (struct md_manifest_segment){ .label = { .name = text(kind), .stable = stable },
                                         .byte_start = start,
                                         .byte_end = end };
}

/* system, a kind of the sender's own with class and hint, a turn */
static void fill(struct md_manifest_segment g[3])
{
    g[0] = segment("system", true, 0, S1);
    g[1] = segment("now", true, S1, S2);
    g[1].cache_class = text("repo_map");
    g[1].invalidation = text("on_edit");
    g[1].byte_hash = text(HASH_RULES);
    g[2] = segment("user", false, S2, ALL);
    g[2].tool_call_id = text("c1");
}

static enum md_status build(const struct md_manifest_segment *g, size_t count, struct md_manifest *m,
                            struct md_err *err)
{
    const struct md_manifest_id id = identity();
    return md_manifest_build(&id, STABLE, TURNS, g, count, NULL, m, err);
}

static void ready(struct md_manifest *m)
{
    struct md_manifest_segment g[3];
    struct md_err err;
    fill(g);
    ck_assert_msg(build(g, 3, m, &err) == MD_OK, "%s", err.text);
}

START_TEST(sha256_of_known_texts)
{
    char hex[MD_SHA256_HEX + 1];
    /* FIPS 180-4's own example, and H(b"") */
    ck_assert_int_eq(md_sha256_hex(text("abc"), hex, NULL), MD_OK);
    ck_assert_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    ck_assert_int_eq(md_sha256_hex((struct md_bytes){ 0 }, hex, NULL), MD_OK);
    ck_assert_str_eq(hex, HASH_NOTHING);
    struct md_sha256 h;
    md_sha256_init(&h);
    md_sha256_update(&h, "a", 1);
    md_sha256_update(&h, NULL, 0);
    md_sha256_update(&h, "bc", 2);
    ck_assert_int_eq(md_sha256_finish(&h, hex, NULL), MD_OK);
    ck_assert_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}
END_TEST

START_TEST(built_whole)
{
    struct md_manifest m;
    char digest[MD_SHA256_HEX + 1];
    ready(&m);
    ck_assert(m.stable_bytes == S2 && m.total_bytes == ALL && m.segment_count == 3);
    ck_assert(equal(m.stable_byte_hash, HASH_STABLE));
    ck_assert(m.stable_token_hash.len == 0 && m.volatile_token_hash.len == 0);
    ck_assert(equal(m.segments[0].byte_hash, HASH_SYSTEM) && equal(m.segments[0].cache_class, "task_pinned"));
    ck_assert(equal(m.segments[1].byte_hash, HASH_RULES) && equal(m.segments[1].cache_class, "repo_map"));
    ck_assert(equal(m.segments[2].byte_hash, HASH_TURN) && equal(m.segments[2].cache_class, "volatile"));
    ck_assert(m.segments[1].label.kind == MD_SEGMENT_OTHER && equal(m.segments[1].label.name, "now"));
    ck_assert(m.segments[1].label.cls == MD_CLASS_REPO_MAP &&
              m.segments[1].label.invalidation == MD_INVALIDATION_ON_EDIT);
    /* The object in the protocol's order, fields left out as there, as Python writes it:
     *   H(json.dumps(o, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
     *      .replace(">", "\\u003e").replace("&", "\\u0026").encode()) */
    ck_assert_int_eq(md_manifest_digest(&m, NULL, digest, NULL), MD_OK);
    ck_assert_str_eq(digest, "032c9c907967280ffb7d153e5f4b794c2ba14b86bcec219de23b85a0301ab6dc");
    md_manifest_done(&m);
    ck_assert(md_manifest_is_zero(&m));

    /* a class in other letters stays as it is given, and means the same */
    struct md_manifest_segment given[3];
    fill(given);
    given[0].cache_class = text(" Repo_Map");
    ck_assert_int_eq(build(given, 3, &m, NULL), MD_OK);
    ck_assert(equal(m.segments[0].cache_class, " Repo_Map") && m.segments[0].label.cls == MD_CLASS_REPO_MAP);
    md_manifest_done(&m);

    /* nothing is borrowed */
    char volatile_copy[] = TURN, kind[] = "user";
    struct md_manifest_segment g[3];
    const struct md_manifest_id id = identity();
    fill(g);
    g[2].label.name = text(kind);
    ck_assert_int_eq(md_manifest_build(&id, STABLE, text(volatile_copy), g, 3, NULL, &m, NULL), MD_OK);
    memset(kind, 'x', sizeof kind - 1);
    memset(volatile_copy, 'x', sizeof volatile_copy - 1);
    memset(g, 0, sizeof g);
    ck_assert_int_eq(md_manifest_digest(&m, NULL, digest, NULL), MD_OK);
    ck_assert_str_eq(digest, "032c9c907967280ffb7d153e5f4b794c2ba14b86bcec219de23b85a0301ab6dc");
    md_manifest_done(&m);
}
END_TEST

START_TEST(without_segments_or_text)
{
    struct md_manifest m;
    const struct md_manifest_id none = { 0 };
    const struct md_bytes nothing = { 0 };
    ck_assert_int_eq(build(NULL, 0, &m, NULL), MD_OK);
    ck_assert(m.segment_count == 0 && m.total_bytes == ALL && equal(m.stable_byte_hash, HASH_STABLE));
    md_manifest_done(&m);
    ck_assert_int_eq(md_manifest_build(&none, nothing, nothing, NULL, 0, NULL, &m, NULL), MD_OK);
    ck_assert(m.total_bytes == 0 && equal(m.stable_byte_hash, HASH_NOTHING) && !md_manifest_is_zero(&m));
    md_manifest_done(&m);
    const struct md_manifest_segment g[] = { segment("system", true, 0, 0), segment("user", false, 0, 0) };
    ck_assert_int_eq(md_manifest_build(&none, nothing, nothing, g, 2, NULL, &m, NULL), MD_OK);
    ck_assert(equal(m.segments[1].byte_hash, HASH_NOTHING));
    md_manifest_done(&m);
}
END_TEST

/* What a case does to the three good segments. */
static const struct {
    const char *label;
    size_t index;
    int64_t start, end; /* -1: as they are */
    const char *kind, *cls, *hint, *hash;
    int stable; /* -1: as it is */
    enum md_status want;
    const char *part;
} wrong[] = {
    { "gap", 1, S1 + 1, -1, 0, 0, 0, "", -1, MD_MANIFEST_MISMATCH, "segments[1] starts at byte 11, the one" },
    { "late start", 0, 1, -1, 0, 0, 0, "", -1, MD_MANIFEST_MISMATCH,
      "segments[0] starts at byte 1, the one" },
    { "overlap", 1, S1 - 1, -1, 0, 0, 0, "", -1, MD_MANIFEST_MISMATCH,
      "segments[1].byte_start is 9, inside" },
    { "backwards", 0, 5, 4, 0, 0, 0, "", -1, MD_MANIFEST_MISMATCH, "segments[0].byte_end is 4, before its" },
    { "negative", 0, -7, -1, 0, 0, 0, "", -1, MD_MANIFEST_MISMATCH, "segments[0].byte_start is -7, below 0" },
    { "beyond", 2, -1, ALL + 1, 0, 0, 0, "", -1, MD_MANIFEST_MISMATCH,
      "segments[2].byte_end is 32, more than 31" },
    { "early end", 2, -1, ALL - 1, 0, 0, 0, "", -1, MD_MANIFEST_MISMATCH,
      "the segments end at byte 30, the text" },
    { "volatile in stable", 1, -1, -1, 0, 0, 0, "", 0, MD_MANIFEST_MISMATCH,
      "segments[1] is volatile and has" },
    { "stable in volatile", 2, -1, -1, 0, 0, 0, "", 1, MD_MANIFEST_MISMATCH,
      "segments[2] is stable and has bytes 25" },
    { "hash", 1, -1, -1, 0, 0, 0, HASH_SYSTEM, -1, MD_MANIFEST_MISMATCH, "segments[1].byte_hash is 'd7cf5e" },
    { "no hash", 2, -1, -1, 0, 0, 0, "x", -1, MD_MANIFEST_MISMATCH,
      "segments[2].byte_hash is 'x', the text has 'ce2ad" },
    { "no kind", 1, -1, -1, "", 0, 0, "", -1, MD_INVALID, "segments[1].kind is missing" },
    { "class", 1, -1, -1, 0, "hot", 0, "", -1, MD_INVALID, "segments[1].cache_class must be" },
    { "hint", 1, -1, -1, 0, 0, "often", "", -1, MD_INVALID, "segments[1].invalidation must be" },
};

START_TEST(violations)
{
    struct md_manifest_segment g[3];
    struct md_manifest m = { .stable_bytes = 77 };
    struct md_err err = { 0 };
    fill(g);
    struct md_manifest_segment *x = &g[wrong[_i].index];
    if (wrong[_i].start != -1)
        x->byte_start = wrong[_i].start;
    if (wrong[_i].end != -1)
        x->byte_end = wrong[_i].end;
    if (wrong[_i].kind != NULL)
        x->label.name = text(wrong[_i].kind);
    if (wrong[_i].cls != NULL)
        x->cache_class = text(wrong[_i].cls);
    if (wrong[_i].hint != NULL)
        x->invalidation = text(wrong[_i].hint);
    x->byte_hash = text(wrong[_i].hash);
    if (wrong[_i].stable != -1)
        x->label.stable = wrong[_i].stable;
    ck_assert_msg(build(g, 3, &m, &err) == wrong[_i].want, "%s: %s", wrong[_i].label, err.text);
    ck_assert_msg(strstr(err.text, wrong[_i].part) != NULL, "%s: '%s'", wrong[_i].label, err.text);
    ck_assert_int_eq(m.stable_bytes, 77);
}
END_TEST

START_TEST(limits)
{
    static struct md_manifest_segment many[MD_MANIFEST_SEGMENTS_MAX + 1];
    static char word[MD_MANIFEST_WORD_MAX + 2];
    struct md_manifest m;
    struct md_err err;
    struct md_manifest_id id = identity();
    for (size_t i = 0; i < sizeof many / sizeof many[0]; i++)
        many[i] = segment("diff", false, 0, 0);
    ck_assert_int_eq(md_manifest_build(&id, text(""), text(""), many, MD_MANIFEST_SEGMENTS_MAX, NULL, &m,
                                       NULL),
                     MD_OK);
    ck_assert_uint_eq(m.segment_count, MD_MANIFEST_SEGMENTS_MAX);
    md_manifest_done(&m);
    ck_assert_int_eq(md_manifest_build(&id, text(""), text(""), many, MD_MANIFEST_SEGMENTS_MAX + 1, NULL, &m,
                                       &err),
                     MD_INVALID);
    ck_assert_str_eq(err.text, "segments: 4097 are more than 4096");

    memset(word, 'w', sizeof word - 1);
    id.model_digest = (struct md_bytes){ word, MD_MANIFEST_WORD_MAX };
    ck_assert_int_eq(md_manifest_build(&id, text(""), text(""), NULL, 0, NULL, &m, NULL), MD_OK);
    md_manifest_done(&m);
    id.model_digest.len++;
    ck_assert_int_eq(md_manifest_build(&id, text(""), text(""), NULL, 0, NULL, &m, &err), MD_INVALID);
    ck_assert_str_eq(err.text, "model_digest has 4097 bytes, more than 4096");
    id = identity();
    many[0].tool_calls_json = (struct md_bytes){ word, MD_MANIFEST_WORD_MAX + 1 }; /* these may be long */
    ck_assert_int_eq(md_manifest_build(&id, text(""), text(""), many, 1, NULL, &m, NULL), MD_OK);
    md_manifest_done(&m);
}
END_TEST

START_TEST(held_against_a_text)
{
    struct md_manifest m;
    struct md_err err;
    const struct md_bytes stable = STABLE, turns = TURNS, other = text("who??\n"), shorter = text("what?"),
                          other_stable = text("You help!\n" RULES);
    ready(&m);
    ck_assert_int_eq(md_manifest_check_text(&m, &stable, &turns, NULL), MD_OK);
    ck_assert_int_eq(md_manifest_check_text(&m, &stable, NULL, NULL), MD_OK);
    ck_assert_int_eq(md_manifest_check_text(&m, NULL, &turns, NULL), MD_OK);
    ck_assert_int_eq(md_manifest_check_text(&m, NULL, NULL, NULL), MD_OK);
    ck_assert_int_eq(md_manifest_check_text(&m, &stable, &other, &err), MD_MANIFEST_MISMATCH);
    ck_assert_ptr_nonnull(strstr(err.text, "segments[2].byte_hash is 'ce2ad"));
    ck_assert_int_eq(md_manifest_check_text(&m, NULL, &shorter, &err), MD_MANIFEST_MISMATCH);
    ck_assert_str_eq(err.text, "the volatile text has 5 bytes, the manifest says 6");
    ck_assert_int_eq(md_manifest_check_text(&m, &turns, NULL, &err), MD_MANIFEST_MISMATCH);
    ck_assert_str_eq(err.text, "the stable text has 6 bytes, the manifest says 25");
    ck_assert_int_eq(md_manifest_check_text(&m, &other_stable, &turns, &err), MD_MANIFEST_MISMATCH);
    ck_assert_ptr_nonnull(strstr(err.text, "stable_byte_hash is '66efb"));
    m.stable_byte_hash = (struct md_bytes){ 0 }; /* not given: the segment's still is */
    ck_assert_int_eq(md_manifest_check_text(&m, &other_stable, &turns, &err), MD_MANIFEST_MISMATCH);
    ck_assert_ptr_nonnull(strstr(err.text, "segments[0].byte_hash is 'd7cf5"));
    md_manifest_done(&m);
}
END_TEST

START_TEST(zero_and_compatible)
{
    struct md_manifest a, b, zero = { 0 };
    ready(&a);
    ready(&b);
    ck_assert(md_manifest_is_zero(&zero) && !md_manifest_is_zero(&a));
    ck_assert_ptr_null(md_manifest_incompatible(&a, &b));
    b.stable_byte_hash = text("another"); /* has no say */
    ck_assert_ptr_null(md_manifest_incompatible(&a, &b));
    b.id.add_bos = false;
    ck_assert_str_eq(md_manifest_incompatible(&a, &b), "bos policy changed");
    const struct {
        size_t offset;
        const char *reason;
        bool counts; /* alone, it keeps a manifest from being zero */
    } rows[] = {
        { offsetof(struct md_manifest_id, profile_id), "profile_id changed", true },
        { offsetof(struct md_manifest_id, backend), "backend changed", true },
        { offsetof(struct md_manifest_id, backend_version), "backend_version changed", false },
        { offsetof(struct md_manifest_id, model_digest), "model_digest changed", true },
        { offsetof(struct md_manifest_id, prompt_format), "prompt_format changed", true },
        { offsetof(struct md_manifest_id, prompt_template_digest), "prompt_template_digest changed", true },
        { offsetof(struct md_manifest_id, runtime_digest), "runtime_digest changed", true },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        b.id = a.id;
        struct md_bytes *field = (struct md_bytes *)((char *)&b.id + rows[i].offset);
        *field = text("else");
        ck_assert_str_eq(md_manifest_incompatible(&a, &b), rows[i].reason);
        ck_assert_str_eq(md_manifest_incompatible(&b, &a), rows[i].reason);
        *field = (struct md_bytes){ 0 };
        ck_assert_str_eq(md_manifest_incompatible(&a, &b), rows[i].reason);
        struct md_manifest one = { 0 };
        *(struct md_bytes *)((char *)&one.id + rows[i].offset) = text("x");
        ck_assert_int_eq(md_manifest_is_zero(&one), !rows[i].counts);
        ck_assert_int_eq(md_manifest_incompatible(&a, &one) == NULL, !rows[i].counts);
    }
    ck_assert_ptr_null(md_manifest_incompatible(&a, &zero));
    ck_assert_ptr_null(md_manifest_incompatible(&zero, &a));
    zero.stable_byte_hash = text("x");
    zero.id.add_bos = true;
    ck_assert(!md_manifest_is_zero(&zero));
    char digest[MD_SHA256_HEX + 1] = "before";
    zero.stable_byte_hash.len = 0;
    ck_assert_int_eq(md_manifest_digest(&zero, NULL, digest, NULL), MD_OK);
    ck_assert_str_eq(digest, "");
    md_manifest_done(&a);
    md_manifest_done(&b);
}
END_TEST

START_TEST(token_hashes)
{
    /* T = lambda ids: H(b"".join(struct.pack("<Q", i) for i in ids)) */
    md_token ids[203] = { 0, 258, INT32_MAX }, few[] = { 1, 2, 3 };
    char hex[MD_SHA256_HEX + 1];
    for (int i = 0; i < 200; i++)
        ids[3 + i] = i;
    ck_assert_int_eq(md_manifest_token_hash(few, 3, hex, NULL), MD_OK); /* T([1, 2, 3]) */
    ck_assert_str_eq(hex, "e2e2033ae7e19d680599d4eb0a1359a2b48ec5baac75066c317fbf85159c54ef");
    ck_assert_int_eq(md_manifest_token_hash(NULL, 0, hex, NULL), MD_OK); /* T([]) */
    ck_assert_str_eq(hex, HASH_NOTHING);
    ck_assert_int_eq(md_manifest_token_hash(ids, 203, hex, NULL),
                     MD_OK); /* T([0, 258, 2**31 - 1] + [*range(200)]) */
    ck_assert_str_eq(hex, "bf0ad7aa1f9d02b144e3337c8fd89a8c094a9b18f46203f9c64799ef6b8a4635");
}
END_TEST

START_TEST(tokens_are_filled_in)
{
    struct md_manifest m;
    struct md_err err;
    md_token ids[10];
    char digest[MD_SHA256_HEX + 1];
    const struct md_range ranges[] = { { 0, 4 }, { 4, 7 }, { 7, 10 } };
    for (int i = 0; i < 10; i++)
        ids[i] = 100 + i;
    ready(&m);
    ck_assert_msg(md_manifest_set_tokens(&m, ranges, ids, 10, &err) == MD_OK, "%s", err.text);
    /* T([*range(100, 107)]), T([107, 108, 109]) */
    ck_assert(equal(m.stable_token_hash, "114b58589db0494b19723eb869d65ca1e9dc4c9811f0188cd897b10be5cebaed"));
    ck_assert(
        equal(m.volatile_token_hash, "e2c699dcb54f7f951e38b8050ea65fb8cc9c5eced2963f5d1f76ecf2571975d0"));
    ck_assert(
        equal(m.segments[2].token_hash, "e2c699dcb54f7f951e38b8050ea65fb8cc9c5eced2963f5d1f76ecf2571975d0"));
    ck_assert(m.segments[1].tokens.start == 4 && m.segments[1].tokens.end == 7);
    /* as in built_whole, with token_start unless it is 0, token_end, token_hash behind each byte_hash and
     * the two hashes behind stable_byte_hash */
    ck_assert_int_eq(md_manifest_digest(&m, NULL, digest, NULL), MD_OK);
    ck_assert_str_eq(digest, "ad7008e8c9a331a2cceca3c7faf76edf8eb53a74eb3a7bc6f8695f6f9f22c0c1");

    /* a control segment has none; no volatile tokens */
    const struct md_range none[] = { { 0, 4 }, { 4, 4 }, { 4, 4 } };
    ck_assert_int_eq(md_manifest_set_tokens(&m, none, ids, 4, NULL), MD_OK);
    ck_assert(m.segments[1].token_hash.len == 0 && m.volatile_token_hash.len == 0);
    ck_assert(m.segments[1].tokens.start == 4 && m.stable_token_hash.len == MD_SHA256_HEX);

    static const struct {
        struct md_range r[3];
        const char *part;
    } bad[] = {
        { { { 0, 4 }, { 3, 7 }, { 7, 10 } }, "segments[1].token_start is 3, inside the segment before it" },
        { { { -1, 4 }, { 4, 7 }, { 7, 10 } }, "segments[0].token_start is -1, below 0" },
        { { { 0, 4 }, { 7, 5 }, { 7, 10 } }, "segments[1].token_end is 5, before its start at 7" },
        { { { 0, 4 }, { 4, 7 }, { 7, 11 } }, "segments[2].token_end is 11, more than 10" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_int_eq(md_manifest_set_tokens(&m, bad[i].r, ids, 10, &err), MD_INVALID);
        ck_assert_str_eq(err.text, bad[i].part);
        ck_assert(m.segments[1].tokens.start == 4 && m.segments[1].tokens.end == 4);
    }
    md_manifest_done(&m);
}
END_TEST

/* The Nth allocation fails, until none does: nothing leaks, and what failed changed nothing. */
START_TEST(allocations_fail)
{
    struct md_manifest_segment g[3];
    const struct md_manifest_id id = identity();
    static char calls[40000]; /* more than one chunk of the arena */
    const struct md_range ranges[] = { { 0, 1 }, { 1, 2 }, { 2, 3 } };
    const md_token ids[] = { 1, 2, 3 };
    enum md_status s = MD_NO_MEMORY;
    int runs = 0;
    memset(calls, 'c', sizeof calls - 1);
    fill(g);
    g[2].tool_calls_json = text(calls);
    for (long nth = 1; s != MD_OK; nth++, runs++) {
        struct fault_alloc f;
        struct md_manifest m = { .stable_bytes = 77 };
        char digest[MD_SHA256_HEX + 1] = "before";
        fault_alloc_init(&f, nth);
        s = md_manifest_build(&id, STABLE, TURNS, g, 3, &f.alloc, &m, NULL);
        ck_assert(s == MD_OK ? m.stable_bytes == S2 : s == MD_NO_MEMORY && m.stable_bytes == 77);
        if (s != MD_OK) {
            ck_assert_uint_eq(f.live_blocks, 0);
            continue;
        }
        s = md_manifest_set_tokens(&m, ranges, ids, 3, NULL);
        ck_assert(s == MD_OK || (s == MD_NO_MEMORY && m.segments[1].tokens.end == 0));
        if (s == MD_OK)
            s = md_manifest_digest(&m, &f.alloc, digest, NULL);
        ck_assert(s == MD_OK || s == MD_NO_MEMORY);
        ck_assert(s == (f.failed ? MD_NO_MEMORY : MD_OK));
        md_manifest_done(&m);
        ck_assert_uint_eq(f.live_blocks, 0);
    }
    ck_assert_int_ge(runs, 4);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("manifest");
    TCase *t = tcase_create("manifest");
    tcase_add_test(t, sha256_of_known_texts);
    tcase_add_test(t, built_whole);
    tcase_add_test(t, without_segments_or_text);
    tcase_add_loop_test(t, violations, 0, (int)(sizeof wrong / sizeof wrong[0]));
    tcase_add_test(t, limits);
    tcase_add_test(t, held_against_a_text);
    tcase_add_test(t, zero_and_compatible);
    tcase_add_test(t, token_hashes);
    tcase_add_test(t, tokens_are_filled_in);
    tcase_add_test(t, allocations_fail);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
