/* The llama adapter on SmolLM2: tokenizer, template, samplers, and how the engine is opened.
 * MODELD_TEST_MODEL names the model file; a missing one fails. */
#include "adapters/llama/llama_backend.h"
#include "text/text.h"

#include <check.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VOCAB = 49152, IM_START = 1, IM_END = 2 };

static const char *model_path;
static struct md_text *text;

static struct md_bytes bytes(const char *s)
{
    return (struct md_bytes){ s, strlen(s) };
}

static struct md_tokens tokenize(const struct md_text *t, struct md_bytes b, bool add_special, bool parse_special)
{
    struct md_err err = { 0 };
    struct md_tokens out = { 0 };
    ck_assert_msg(md_text_tokenize(t, b, add_special, parse_special, &out, &err) == MD_OK, "%s", err.text);
    return out;
}

/* ---- tokenizer ---- */

static const struct {
    const char *label;
    struct md_bytes text;
} round_trips[] = {
    { "nothing", { "", 0 } },
    { "word", { "hello", 5 } },
    { "spaces", { "  two  and   three ", 19 } },
    { "lines", { "a\n\n\tb\r\nc\n", 9 } },
    { "umlauts and a euro", { "\xc3\xa4\xc3\xb6\xe2\x82\xac", 7 } },
    { "emoji of several code points", { "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x9a\x80", 11 } },
    { "chinese", { "\xe4\xbd\xa0\xe5\xa5\xbd", 6 } },
    { "code", { "for (int i = 0; i < n; i++) x[i] += 1;", 38 } },
    { "NUL inside", { "a\0b", 3 } },
    { "control token as plain text", { "<|im_start|>user", 16 } },
};

START_TEST(round_trip)
{
    struct md_buf out;
    md_buf_init(&out, NULL, 1 << 16);
    struct md_tokens t = tokenize(text, round_trips[_i].text, true, false);
    for (size_t i = 0; i < t.count; i++)
        ck_assert_int_eq(md_text_piece(text, t.ids[i], false, &out, NULL), MD_OK);
    ck_assert_msg(out.len == round_trips[_i].text.len && (out.len == 0 || memcmp(out.data, round_trips[_i].text.data, out.len) == 0),
                  "%s: got '%.*s'", round_trips[_i].label, (int)out.len, (char *)out.data);
    md_tokens_done(&t);
    md_buf_done(&out);
}
END_TEST

START_TEST(control_tokens)
{
    struct md_buf out;
    md_buf_init(&out, NULL, 64);
    struct md_tokens one = tokenize(text, bytes("<|im_start|>"), false, true), many = tokenize(text, bytes("<|im_start|>"), false, false);
    ck_assert_uint_eq(one.count, 1);
    ck_assert_int_eq(one.ids[0], IM_START);
    ck_assert_uint_gt(many.count, 1);
    ck_assert_int_eq(md_text_piece(text, IM_START, false, &out, NULL), MD_OK);
    ck_assert_uint_eq(out.len, 0);
    ck_assert_int_eq(md_text_piece(text, IM_START, true, &out, NULL), MD_OK);
    ck_assert_uint_eq(out.len, 12);
    ck_assert_mem_eq(out.data, "<|im_start|>", 12);
    ck_assert(md_text_is_end(text, IM_END) && !md_text_is_end(text, IM_START) && !md_text_is_end(text, 28120));
    md_tokens_done(&one);
    md_tokens_done(&many);
    md_buf_done(&out);
}
END_TEST

START_TEST(tokens_that_do_not_exist)
{
    static const md_token wrong[] = { -1, VOCAB, INT32_MAX, INT32_MIN };
    struct md_buf out;
    md_buf_init(&out, NULL, 64);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ck_assert_int_eq(md_text_piece(text, wrong[i], true, &out, NULL), MD_INVALID);
        ck_assert(!md_text_is_end(text, wrong[i]));
    }
    ck_assert_uint_eq(out.len, 0);
}
END_TEST

START_TEST(appending_keeps_what_is_there)
{
    struct md_tokens t = tokenize(text, bytes("hello"), true, false);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(md_text_tokenize(text, bytes("hello"), true, false, &t, NULL), MD_OK);
    ck_assert_uint_eq(t.count, 4);
    for (size_t i = 0; i < t.count; i++)
        ck_assert_int_eq(t.ids[i], 28120);
    md_tokens_done(&t);
}
END_TEST

START_TEST(b050_pieces_join_to_a_word_of_another_token)
{
    struct md_buf out;
    md_buf_init(&out, NULL, 64);
    ck_assert_int_eq(md_text_piece(text, 2797, false, &out, NULL), MD_OK);
    ck_assert_int_eq(md_text_piece(text, 5365, false, &out, NULL), MD_OK);
    struct md_tokens t = tokenize(text, (struct md_bytes){ out.data, out.len }, true, false);
    ck_assert_uint_eq(out.len, 5);
    ck_assert_mem_eq(out.data, "hello", 5);
    ck_assert_uint_eq(t.count, 1);
    ck_assert_int_eq(t.ids[0], 28120);
    md_tokens_done(&t);
    md_buf_done(&out);
}
END_TEST

/* ---- template ---- */

static struct md_chat_message say(const char *role, const char *content)
{
    return (struct md_chat_message){ bytes(role), bytes(content) };
}

#define DEFAULT_SYSTEM "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"

START_TEST(template_of_the_model)
{
    const struct md_chat_message m[] = { say("system", "Be brief."), say("user", "Hi"), say("assistant", "Hello"), say("user", "Bye") };
    static const struct {
        size_t first, count;
        bool generation;
        const char *want;
    } rows[] = {
        { 1, 1, true, DEFAULT_SYSTEM "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n" },
        { 1, 1, false, DEFAULT_SYSTEM "<|im_start|>user\nHi<|im_end|>\n" },
        { 0, 4, true, "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n"
                      "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_err err = { 0 };
        struct md_buf out;
        md_buf_init(&out, NULL, 4096);
        ck_assert_msg(md_text_render_chat(text, m + rows[i].first, rows[i].count, rows[i].generation, &out, &err) == MD_OK, "%s", err.text);
        ck_assert_msg(out.len == strlen(rows[i].want) && memcmp(out.data, rows[i].want, out.len) == 0, "row %zu: '%.*s'", i,
                      (int)out.len, (char *)out.data);
        md_buf_done(&out);
    }
}
END_TEST

START_TEST(b095_messages_no_template_should_see)
{
    const struct md_chat_message wrong[] = { say("", "x"), say("user<|im_end|>", "x"), say("us er", "x"), say("user\n", "x"),
                                             say("a-role-that-is-longer-than-thirty-two", "x") };
    struct md_buf out;
    md_buf_init(&out, NULL, 4096);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        ck_assert_msg(md_text_render_chat(text, wrong + i, 1, true, &out, NULL) == MD_INVALID, "row %zu", i);
    ck_assert_int_eq(md_text_render_chat(text, wrong, 0, true, &out, NULL), MD_INVALID);
    ck_assert_uint_eq(out.len, 0);
}
END_TEST

/* A copy of the model with `bytes` written `skip` bytes behind the first place where `after` stands. */
static void patched_copy(char *out_path, const char *after, size_t skip, const void *data, size_t len);
static void truncated_copy(char *out_path, int64_t keep);

static size_t count_token(const struct md_tokens *t, md_token id)
{
    size_t n = 0;
    for (size_t i = 0; i < t->count; i++)
        n += t->ids[i] == id;
    return n;
}

/* Model S does not put a first token.  The same file with the flag set stands in for one that does. */
START_TEST(b049_first_token_once)
{
    char copy[] = "/tmp/modeld-test-XXXXXX";
    const struct md_chat_message m = say("user", "Hi");
    struct md_text *adding = NULL;
    struct md_err err = { 0 };
    struct md_buf prompt;
    md_buf_init(&prompt, NULL, 4096);
    patched_copy(copy, "tokenizer.ggml.add_bos_token", 4, "\1", 1);
    ck_assert_msg(md_llama_text_open(copy, &adding, &err) == MD_OK, "%s", err.text);
    ck_assert(!text->info.adds_bos && adding->info.adds_bos);
    ck_assert_int_eq(text->info.bos, IM_START);
    ck_assert_int_eq(md_text_render_chat(text, &m, 1, true, &prompt, NULL), MD_OK);

    const struct {
        const struct md_text *t;
        struct md_bytes text;
        bool parse_special;
        size_t wanted; /* times the first token stands in it */
        bool leads;
    } rows[] = {
        { text, bytes("Hi"), false, 0, false },
        { text, { prompt.data, prompt.len }, true, 3, true }, /* one per message and one for the answer */
        { adding, bytes("Hi"), false, 1, true },
        { adding, bytes(""), false, 1, true },
        { adding, bytes("<|im_start|>Hi"), true, 1, true },
        { adding, { prompt.data, prompt.len }, true, 3, true },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_tokens t = tokenize(rows[i].t, rows[i].text, true, rows[i].parse_special);
        ck_assert_msg(count_token(&t, IM_START) == rows[i].wanted, "row %zu: %zu times", i, count_token(&t, IM_START));
        ck_assert_msg((t.count > 0 && t.ids[0] == IM_START) == rows[i].leads, "row %zu", i);
        md_tokens_done(&t);
        t = tokenize(rows[i].t, rows[i].text, false, rows[i].parse_special);
        ck_assert_msg(count_token(&t, IM_START) == rows[i].wanted - (rows[i].t == adding && rows[i].wanted == 1 && !rows[i].parse_special),
                      "row %zu without asking", i);
        md_tokens_done(&t);
    }
    md_text_close(adding);
    md_buf_done(&prompt);
    unlink(copy);
}
END_TEST

/* ---- samplers, on logits made up here ---- */

static float logits[VOCAB];

/* Token 1000 leads, 1001 and 1002 follow; all others lie far below. */
static void three_peaks(float a, float b, float c)
{
    for (int i = 0; i < VOCAB; i++)
        logits[i] = -20;
    logits[1000] = a;
    logits[1001] = b;
    logits[1002] = c;
}

static md_token sample_once(const struct md_sample_params *p, const md_token *seen, size_t seen_count)
{
    struct md_sampler *s;
    struct md_err err = { 0 };
    md_token got = -1;
    ck_assert_msg(md_sampler_open(text, p, &s, &err) == MD_OK, "%s", err.text);
    for (size_t i = 0; i < seen_count; i++)
        md_sampler_accept(s, seen[i]);
    ck_assert_msg(md_sampler_sample(s, logits, VOCAB, &got, &err) == MD_OK, "%s", err.text);
    md_sampler_close(s);
    return got;
}

static struct md_sample_params greedy(void)
{
    struct md_sample_params p = md_sample_defaults();
    p.temperature = 0;
    p.repeat_penalty = 1;
    return p;
}

START_TEST(greedy_after_bias_and_penalties)
{
    const struct md_logit_bias ban = { 1000, -100 }, lift = { 1002, 100 }, nudge = { 1001, 2 }, far = { 40000, 100 };
    const md_token seen[] = { 1000 };
    struct md_sample_params p = greedy();
    three_peaks(5, 4, 3);
    ck_assert_int_eq(sample_once(&p, NULL, 0), 1000);
    p.temperature = 0.0009f;
    ck_assert_int_eq(sample_once(&p, NULL, 0), 1000);
    p.bias_count = 1;
    p.bias = &ban;
    ck_assert_int_eq(sample_once(&p, NULL, 0), 1001);
    p.bias = &lift;
    ck_assert_int_eq(sample_once(&p, NULL, 0), 1002);
    p.bias = &nudge;
    ck_assert_int_eq(sample_once(&p, NULL, 0), 1001);
    p.bias = &far;
    ck_assert_int_eq(sample_once(&p, NULL, 0), 40000);

    static const struct {
        float repeat, frequency, presence;
        int32_t last_n;
        md_token want;
    } rows[] = {
        { 1, 0, 0, 64, 1000 }, { 1.5f, 0, 0, 64, 1001 }, { 1, 1.5f, 0, 64, 1001 },
        { 1, 0, 1.5f, 64, 1001 }, { 1, 0, 0.5f, 64, 1000 }, { 2, 2, 2, 0, 1000 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        p = greedy();
        p.repeat_penalty = rows[i].repeat;
        p.frequency_penalty = rows[i].frequency;
        p.presence_penalty = rows[i].presence;
        p.repeat_last_n = rows[i].last_n;
        ck_assert_msg(sample_once(&p, seen, 1) == rows[i].want, "row %zu", i);
    }
}
END_TEST

START_TEST(own_choices_are_penalised_too)
{
    struct md_sample_params p = greedy();
    struct md_sampler *s;
    md_token got[3];
    p.presence_penalty = 2;
    three_peaks(5, 4, 2.5f);
    ck_assert_int_eq(md_sampler_open(text, &p, &s, NULL), MD_OK);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(md_sampler_sample(s, logits, VOCAB, &got[i], NULL), MD_OK);
    ck_assert_int_eq(got[0], 1000);
    ck_assert_int_eq(got[1], 1001);
    ck_assert_int_eq(got[2], 1000); /* 3 against 2 against 2.5 */
    md_sampler_close(s);
}
END_TEST

START_TEST(cut_offs_leave_only_what_they_should)
{
    static const struct {
        const char *label;
        int32_t top_k;
        float top_p, min_p;
        bool second, third; /* may these be drawn */
    } rows[] = {
        { "everything", 0, 1, 0, true, true }, { "top_k 1", 1, 1, 0, false, false },
        { "top_k 2", 2, 1, 0, true, false },   { "top_p below the first", 0, 0.3f, 0, false, false },
        { "top_p of two", 0, 0.7f, 0, true, false },
        { "min_p 1", 0, 1, 1, false, false },  { "min_p between", 0, 1, 0.7f, true, false },
    };
    three_peaks(logf(0.45f), logf(0.35f), logf(0.2f));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_sample_params p = greedy();
        p.temperature = 1;
        p.seed = 1;
        p.top_k = rows[i].top_k;
        p.top_p = rows[i].top_p;
        p.min_p = rows[i].min_p;
        struct md_sampler *s;
        int seen[4] = { 0 };
        ck_assert_int_eq(md_sampler_open(text, &p, &s, NULL), MD_OK);
        for (int n = 0; n < 100; n++) {
            md_token got;
            ck_assert_int_eq(md_sampler_sample(s, logits, VOCAB, &got, NULL), MD_OK);
            seen[got >= 1000 && got <= 1002 ? got - 1000 : 3]++;
        }
        ck_assert_msg(seen[0] > 0 && (seen[1] > 0) == rows[i].second && (seen[2] > 0) == rows[i].third && seen[3] == 0,
                      "%s: %d %d %d %d", rows[i].label, seen[0], seen[1], seen[2], seen[3]);
        md_sampler_close(s);
    }
}
END_TEST

/* 32 draws of 16 equal tokens, as one number. */
static uint64_t draws(int64_t seed)
{
    struct md_sample_params p = greedy();
    struct md_sampler *s;
    uint64_t h = 0;
    p.temperature = 1;
    p.top_k = 16;
    p.seed = seed;
    for (int i = 0; i < VOCAB; i++)
        logits[i] = i >= 100 && i < 116 ? 1 : -20;
    ck_assert_int_eq(md_sampler_open(text, &p, &s, NULL), MD_OK);
    for (int i = 0; i < 16; i++) {
        md_token got;
        ck_assert_int_eq(md_sampler_sample(s, logits, VOCAB, &got, NULL), MD_OK);
        ck_assert(got >= 100 && got < 116);
        h = h << 4 | (uint64_t)(got - 100);
    }
    md_sampler_close(s);
    return h;
}

START_TEST(seeds_repeat)
{
    ck_assert_uint_eq(draws(7), draws(7));
    ck_assert_uint_eq(draws(UINT32_MAX), draws(UINT32_MAX)); /* the library's own mark for a random seed */
    ck_assert_uint_ne(draws(7), draws(8));
    ck_assert_uint_ne(draws(-1), draws(-1));
}
END_TEST

START_TEST(broken_logits_are_an_error)
{
    static const float bad[] = { NAN, INFINITY };
    struct md_sample_params p = greedy();
    struct md_sampler *s;
    struct md_err err = { 0 };
    md_token got = -1;
    for (int hot = 0; hot < 2; hot++) {
        p.temperature = (float)hot;
        ck_assert_int_eq(md_sampler_open(text, &p, &s, NULL), MD_OK);
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
            three_peaks(5, 4, 3);
            logits[VOCAB - 1] = bad[i];
            ck_assert_int_eq(md_sampler_sample(s, logits, VOCAB, &got, &err), MD_INTERNAL);
        }
        for (int i = 0; i < VOCAB; i++)
            logits[i] = -INFINITY;
        ck_assert_int_eq(md_sampler_sample(s, logits, VOCAB, &got, &err), MD_INTERNAL);
        ck_assert_str_eq(err.text, "every token is banned");
        logits[77] = -3; /* one is enough */
        ck_assert_int_eq(md_sampler_sample(s, logits, VOCAB, &got, &err), MD_OK);
        ck_assert_int_eq(got, 77);
        ck_assert_int_eq(md_sampler_sample(s, logits, VOCAB - 1, &got, &err), MD_INVALID);
        md_sampler_close(s);
    }
}
END_TEST

/* ---- files that are no models ---- */

static void copy_file(const char *out_path)
{
    int in = open(model_path, O_RDONLY), out = open(out_path, O_WRONLY | O_TRUNC);
    struct stat st;
    ck_assert(in >= 0 && out >= 0 && fstat(in, &st) == 0);
    static char buf[1 << 20];
    ssize_t n;
    while ((n = read(in, buf, sizeof buf)) > 0)
        ck_assert_int_eq(write(out, buf, (size_t)n), n);
    close(in);
    close(out);
}

static void patched_copy(char *out_path, const char *after, size_t skip, const void *data, size_t len)
{
    enum { HEAD = 8 << 20 }; /* the metadata of this model ends before */
    int fd = mkstemp(out_path);
    char *head = malloc(HEAD);
    ck_assert(fd >= 0 && head != NULL);
    copy_file(out_path);
    ck_assert_int_eq(pread(fd, head, HEAD, 0), HEAD);
    char *at = memmem(head, HEAD, after, strlen(after));
    ck_assert_msg(at != NULL, "'%s' is not in the file", after);
    ck_assert_int_eq(pwrite(fd, data, len, at - head + (off_t)(strlen(after) + skip)), (ssize_t)len);
    free(head);
    close(fd);
}

static void truncated_copy(char *out_path, int64_t keep)
{
    int fd = mkstemp(out_path);
    ck_assert(fd >= 0);
    copy_file(out_path);
    ck_assert_int_eq(ftruncate(fd, keep), 0);
    close(fd);
}

static void expect_refusal(const char *label, const char *path, enum md_status want, const char *part)
{
    struct md_engine *e = NULL;
    struct md_text *t = NULL;
    struct md_model_facts facts;
    struct md_err err = { 0 };
    const struct md_open_params p = { .model_path = path, .cell_count = 256, .threads = 1 };
    for (int way = 0; way < 3; way++) {
        err = (struct md_err){ 0 };
        enum md_status s = way == 0   ? md_backend_llama.open(&p, &e, &t, &err)
                           : way == 1 ? md_backend_llama.probe(path, &facts, &err)
                                      : md_llama_text_open(path, &t, &err);
        ck_assert_msg(s == want, "%s, way %d: %s '%s'", label, way, md_status_name(s), err.text);
        ck_assert_msg(strstr(err.text, part) != NULL, "%s, way %d: '%s'", label, way, err.text);
        ck_assert_msg(strchr(err.text, '\n') == NULL && e == NULL && t == NULL, "%s, way %d", label, way);
    }
}

START_TEST(b008_cut_files)
{
    struct stat st;
    ck_assert_int_eq(stat(model_path, &st), 0);
    const struct {
        const char *label;
        int64_t keep;
        const char *part;
    } rows[] = {
        { "by one byte", st.st_size - 1, "is cut: the file has 98362431 bytes, tensor '" },
        { "by a page", st.st_size - 4096, "is cut: the file has 98358336 bytes, tensor '" },
        { "to half", st.st_size / 2, "is cut: the file has 49181216 bytes, tensor '" },
        { "inside the header", 100, "broken or cut GGUF file of 100 bytes" },
        { "to the mark alone", 4, "broken or cut GGUF file of 4 bytes" },
        { "to nothing", 0, "is not a GGUF file (0 bytes)" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char copy[] = "/tmp/modeld-test-XXXXXX";
        truncated_copy(copy, rows[i].keep);
        expect_refusal(rows[i].label, copy, MD_INVALID, rows[i].part);
        unlink(copy);
    }
    char copy[] = "/tmp/modeld-test-XXXXXX";
    /* name, u32 dimensions (2), 2 u64 sizes, u32 type, u64 offset: byte 5 of the offset is 2^40 */
    patched_copy(copy, "blk.3.attn_k.weight", 4 + 16 + 4 + 5, "\1", 1);
    expect_refusal("offset raised by 2^40", copy, MD_INVALID, "broken or cut GGUF file");
    unlink(copy);
}
END_TEST

START_TEST(files_that_are_no_models)
{
    char copy[] = "/tmp/modeld-test-XXXXXX";
    expect_refusal("missing", "/nowhere/model.gguf", MD_NOT_FOUND, "open model '/nowhere/model.gguf': No such file");
    expect_refusal("no name", "", MD_INVALID, "no model file");
    expect_refusal("directory", "/tmp", MD_INVALID, "'/tmp' is a directory");
    expect_refusal("device", "/dev/zero", MD_INVALID, "not a regular file");
    int fd = mkstemp(copy);
    ck_assert(fd >= 0 && write(fd, "just some text, no model", 24) == 24);
    close(fd);
    expect_refusal("text", copy, MD_INVALID, "is not a GGUF file (24 bytes)");
    unlink(copy);
    memcpy(copy + sizeof copy - 7, "XXXXXX", 6);
    patched_copy(copy, "general.architecture", 4 + 8, "nomad", 5);
    expect_refusal("architecture", copy, MD_UNSUPPORTED, "unknown model architecture: 'nomad'");
    unlink(copy);
}
END_TEST

/* ---- how the engine is opened ---- */

static struct {
    int n_ctx, cells, lines;
    double buffer_mib;
} seen_log;

static void on_line(void *user, const char *line)
{
    (void)user;
    const char *p;
    int n;
    double mib;
    seen_log.lines++;
    if ((p = strstr(line, "n_ctx ")) != NULL && sscanf(p, "n_ctx = %d", &n) == 1)
        seen_log.n_ctx = n;
    if ((p = strstr(line, "KV buffer size")) != NULL && sscanf(p, "KV buffer size = %lf MiB", &mib) == 1)
        seen_log.buffer_mib += mib;
    if (strstr(line, "cells") != NULL && (p = strchr(line, '(')) != NULL && sscanf(p, "( %d cells", &n) == 1)
        seen_log.cells = n;
}

static struct md_engine *open_engine(struct md_open_params p)
{
    struct md_err err = { 0 };
    struct md_engine *e = NULL;
    p.model_path = model_path;
    ck_assert_msg(md_backend_llama.open(&p, &e, NULL, &err) == MD_OK, "%s", err.text);
    return e;
}

START_TEST(cells_asked_are_cells_taken)
{
    static const struct {
        int32_t asked, taken;
    } rows[] = { { 512, 512 }, { 257, 512 }, { 256, 256 }, { 1, 256 } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        memset(&seen_log, 0, sizeof seen_log);
        md_llama_log_hook(on_line, NULL);
        struct md_engine *e = open_engine((struct md_open_params){ .cell_count = rows[i].asked });
        md_llama_log_hook(NULL, NULL);
        const struct md_engine_info *info = md_engine_info(e);
        ck_assert_int_eq(info->cell_count, rows[i].taken);
        ck_assert_int_eq(info->kv_bytes_per_token, 23040);
        ck_assert_int_eq(info->trained_tokens, 8192);
        ck_assert_int_eq(info->vocab_count, VOCAB);
        ck_assert_int_ge(info->seq_count, 2);
        ck_assert_int_le(info->batch_tokens, rows[i].taken);
        ck_assert(!info->lossy_kv);
        ck_assert_int_eq(seen_log.n_ctx, rows[i].taken);
        ck_assert_int_eq(seen_log.cells, rows[i].taken);
        ck_assert_double_eq_tol(seen_log.buffer_mib, rows[i].taken * 23040.0 / (1 << 20), 0.005);
        md_engine_close(e);
    }
}
END_TEST

START_TEST(nothing_is_printed)
{
    char path[] = "/tmp/modeld-test-XXXXXX";
    int fd = mkstemp(path), out = dup(STDOUT_FILENO), errors = dup(STDERR_FILENO);
    struct stat st;
    struct md_text *t = NULL;
    fflush(NULL);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    struct md_engine *e = open_engine((struct md_open_params){ .cell_count = 256 });
    enum md_status s = md_llama_text_open("/etc/passwd", &t, NULL);
    md_engine_close(e);
    fflush(NULL);
    dup2(out, STDOUT_FILENO);
    dup2(errors, STDERR_FILENO);
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_int_eq(st.st_size, 0);
    ck_assert_int_eq(s, MD_INVALID);
    close(fd);
    unlink(path);
}
END_TEST

START_TEST(kv_types)
{
    static const struct {
        const char *type;
        int64_t bytes;
        bool lossy;
    } rows[] = { /* values per token: 2 x 30 layers x 3 heads x 64; a block of 32 takes so many bytes */
        { "f32", 11520 * 4, false }, { "f16", 11520 * 2, false },      { "bf16", 11520 * 2, false },
        { "q8_0", 360 * 34, true },  { "q5_1", 360 * 24, true },       { "q5_0", 360 * 22, true },
        { "q4_1", 360 * 20, true },  { "q4_0", 360 * 18, true },       { "iq4_nl", 360 * 18, true },
    };
    char names[128] = "";
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_engine *e = open_engine((struct md_open_params){ .cell_count = 256, .flash_attn = 1, .type_k = rows[i].type, .type_v = rows[i].type });
        const struct md_engine_info *info = md_engine_info(e);
        ck_assert_msg(info->kv_bytes_per_token == rows[i].bytes, "%s: %lld", rows[i].type, (long long)info->kv_bytes_per_token);
        ck_assert_str_eq(info->type_k, rows[i].type);
        ck_assert_str_eq(info->type_v, rows[i].type);
        ck_assert_msg(info->lossy_kv == rows[i].lossy, "%s", rows[i].type);
        ck_assert_msg(strstr(info->identity, rows[i].type) != NULL, "%s", info->identity);
        ck_assert_msg(md_engine_caps(e) & MD_CAP_COLD_STORE, "%s", rows[i].type);
        md_engine_close(e);
        strcat(strcat(names, i > 0 ? " " : ""), rows[i].type);
    }
    ck_assert_str_eq(md_llama_kv_type_names(), names);
}
END_TEST

START_TEST(parameters_that_are_refused)
{
    static const struct {
        struct md_open_params p;
        enum md_status want;
        const char *part;
    } rows[] = {
        { { .cell_count = 256, .type_k = "q9" }, MD_INVALID, "unknown KV type 'q9' for keys: one of f32 f16 bf16 q8_0" },
        { { .cell_count = 256, .type_v = "" }, MD_INVALID, "unknown KV type '' for values" },
        { { .cell_count = 256, .type_v = "q8_0", .flash_attn = 0 }, MD_INVALID, "'q8_0' for values needs flash attention" },
        { { .cell_count = 256, .gpu_layers = 1 }, MD_UNSUPPORTED, "this build sees none" },
        { { .cell_count = 256, .gpu_layers = -2 }, MD_INVALID, "GPU layers" },
        { { .cell_count = 0 }, MD_INVALID, "KV cells" },
        { { .cell_count = INT32_MAX }, MD_INVALID, "KV cells" },
        { { .cell_count = 256, .batch_tokens = -1 }, MD_INVALID, "batch sizes" },
        { { .cell_count = 256, .threads = 513 }, MD_INVALID, "threads" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_open_params p = rows[i].p;
        struct md_err err = { 0 };
        struct md_engine *e = NULL;
        struct md_text *t = NULL;
        p.model_path = model_path;
        ck_assert_msg(md_backend_llama.open(&p, &e, &t, &err) == rows[i].want, "row %zu: '%s'", i, err.text);
        ck_assert_msg(strstr(err.text, rows[i].part) != NULL, "row %zu: '%s'", i, err.text);
        ck_assert(e == NULL && t == NULL);
    }
}
END_TEST

START_TEST(bytes_of_another_kv_type_are_refused)
{
    const md_token tokens[40] = { 28120, 28120, 28120 };
    const struct md_range r = { 8, 24 };
    struct md_err err = { 0 };
    struct md_buf kv;
    md_buf_init(&kv, NULL, 1 << 20);
    struct md_engine *f16 = open_engine((struct md_open_params){ .cell_count = 256 });
    struct md_engine *bf16 = open_engine((struct md_open_params){ .cell_count = 256, .type_k = "bf16", .type_v = "bf16" });
    ck_assert_int_eq(md_engine_prefill(f16, 0, 0, tokens, 40, NULL), MD_OK);
    ck_assert_int_eq(md_engine_prefill(bf16, 0, 0, tokens, 40, NULL), MD_OK);
    ck_assert_int_eq(md_engine_evict_range(f16, 0, r, &kv, NULL), MD_OK);
    ck_assert_int_eq(md_engine_evict_range(bf16, 0, r, NULL, NULL), MD_OK);
    ck_assert_int_eq(md_engine_admit_range(bf16, 0, r, (struct md_bytes){ kv.data, kv.len }, &err), MD_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "another model, KV type or engine"));
    ck_assert(!md_engine_is_hot(bf16, 0, r));
    ck_assert_int_eq(md_engine_admit_range(f16, 0, r, (struct md_bytes){ kv.data, kv.len }, &err), MD_OK);
    md_engine_close(f16);
    md_engine_close(bf16);
    md_buf_done(&kv);
}
END_TEST

START_TEST(engine_and_text_close_in_any_order)
{
    for (int order = 0; order < 2; order++) {
        const struct md_open_params p = { .model_path = model_path, .cell_count = 256 };
        const md_token one = 28120;
        struct md_engine *e = NULL;
        struct md_text *t = NULL;
        ck_assert_int_eq(md_backend_llama.open(&p, &e, &t, NULL), MD_OK);
        if (order == 0) {
            md_text_close(t);
            ck_assert_int_eq(md_engine_prefill(e, 0, 0, &one, 1, NULL), MD_OK);
            md_engine_close(e);
        } else {
            md_engine_close(e);
            struct md_tokens ids = tokenize(t, bytes("hello"), true, false);
            ck_assert_int_eq(ids.ids[0], one);
            md_tokens_done(&ids);
            md_text_close(t);
        }
    }
}
END_TEST

static void setup(void)
{
    struct md_err err = { 0 };
    ck_assert_msg(md_llama_text_open(model_path, &text, &err) == MD_OK, "%s", err.text);
}

static void teardown(void)
{
    md_text_close(text);
}

int main(void)
{
    model_path = getenv("MODELD_TEST_MODEL");
    if (model_path == NULL) {
        fprintf(stderr, "MODELD_TEST_MODEL must name the SmolLM2 file\n");
        return 1;
    }
    Suite *suite = suite_create("model_llama_text_smollm");
    TCase *c = tcase_create("text");
    tcase_set_timeout(c, 60);
    tcase_add_unchecked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, round_trip, 0, (int)(sizeof round_trips / sizeof round_trips[0]));
    tcase_add_test(c, control_tokens);
    tcase_add_test(c, tokens_that_do_not_exist);
    tcase_add_test(c, appending_keeps_what_is_there);
    tcase_add_test(c, b050_pieces_join_to_a_word_of_another_token);
    tcase_add_test(c, template_of_the_model);
    tcase_add_test(c, b095_messages_no_template_should_see);
    tcase_add_test(c, b049_first_token_once);
    tcase_add_test(c, greedy_after_bias_and_penalties);
    tcase_add_test(c, own_choices_are_penalised_too);
    tcase_add_test(c, cut_offs_leave_only_what_they_should);
    tcase_add_test(c, seeds_repeat);
    tcase_add_test(c, broken_logits_are_an_error);
    suite_add_tcase(suite, c);

    c = tcase_create("files_and_opening");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, b008_cut_files);
    tcase_add_test(c, files_that_are_no_models);
    tcase_add_test(c, cells_asked_are_cells_taken);
    tcase_add_test(c, nothing_is_printed);
    tcase_add_test(c, kv_types);
    tcase_add_test(c, parameters_that_are_refused);
    tcase_add_test(c, bytes_of_another_kv_type_are_refused);
    tcase_add_test(c, engine_and_text_close_in_any_order);
    suite_add_tcase(suite, c);

    SRunner *r = srunner_create(suite);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
