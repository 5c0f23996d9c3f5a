/* retrieve_check.c - see retrieve_check.h. */
#include "support/retrieve_check.h"

#include "session/pool.h"
#include "session/retrieve.h"
#include "support/exact_model.h"
#include "support/scripted.h"

#include <check.h>
#include <stdio.h>

enum {
    BLOCK = 16,
    BLOCKS = 50,
    FROM = BLOCKS * BLOCK,
    QUESTION = 16,
    COUNT = FROM + QUESTION,
    WINDOW = 1000,
    SINK = 16,
    RECENT = 32,
    FIRST = SINK / BLOCK, /* blocks that may be chosen */
    END = (COUNT - RECENT) / BLOCK,
    NEEDLE = 30,
    OTHER = 29,
    COMMON = 9 /* bytes */
};

/* Blocks of bytes 8 to 23, always the same; in those that have a needle, of 24 to 27. */
static void make_text(md_token *text, int32_t needle_at, int32_t other_at)
{
    for (int32_t i = 0; i < FROM; i++) {
        const int32_t block = i / BLOCK;
        const bool apart = block == needle_at || block == other_at;
        int32_t byte = apart ? 24 + i % 4 : 8 + (i * 7 + block) % 16;
        if (apart && i % BLOCK == 5)
            byte = block == needle_at ? NEEDLE : OTHER;
        text[i] = MD_EXACT_TOKEN_OF_BYTE_0 + byte;
    }
}

static void put_question(md_token *text, int32_t first, int32_t second)
{
    for (int32_t i = 0; i < QUESTION; i++)
        text[FROM + i] = MD_EXACT_TOKEN_OF_BYTE_0 + (i < QUESTION / 2 ? first : second);
}

/* Ask in a conversation of its own.  in: of each block before the question. */
static void ask(struct md_pool *pool, const md_token *text, bool in[BLOCKS])
{
    static const struct md_segment question = { .range = { FROM, COUNT },
                                                .kind = MD_SEGMENT_USER,
                                                .cls = MD_CLASS_VOLATILE };
    struct md_request q = { .prompt = { text, COUNT, &question, 1 },
                            .decode = { .max_tokens = 1, .sample = md_sample_defaults() } };
    struct md_block_view map[BLOCKS + 2];
    struct md_result result = { 0 };
    struct md_session *s;
    struct md_err err = { 0 };
    q.decode.sample.temperature = 0;
    ck_assert_msg(md_pool_new(pool, &s, &err) == MD_OK, "%s", err.text);
    ck_assert_msg(md_session_run(s, &q, NULL, &result, &err) == MD_OK, "%s", err.text);
    ck_assert_int_eq(result.retrieval.question, QUESTION);
    ck_assert_int_eq(result.retrieval.scored, BLOCKS);
    ck_assert_uint_le(md_session_map(s, map, BLOCKS + 2), BLOCKS + 2);
    for (int32_t i = 0; i < BLOCKS; i++) {
        in[i] = map[i].retrieved;
        ck_assert(!in[i] || map[i].state == MD_STATE_HOT);
    }
    md_result_done(&result);
    md_session_close(s);
}

static void check_set(const char *name, const bool in[BLOCKS], int32_t one, int32_t other)
{
    for (int32_t i = 0; i < BLOCKS; i++)
        ck_assert_msg(in[i] == (i == one || i == other), "%s, needles in %d and %d: block %d is %s", name,
                      one, other, i, in[i] ? "in" : "out");
}

/* Scores are then the masses of the best tokens, and blocks that are far below the best stay out. */
static struct md_retrieve_params plain_params(void)
{
    struct md_retrieve_params p = md_retrieve_defaults();
    p.score.reduce = MD_SCORE_REDUCE_MAX;
    p.select.neighbour_tokens = 0;
    p.select.stop_frac = 0.5f;
    p.shares.retrieval = 1;
    p.shares.recency = 0;
    return p;
}

static struct md_pool *open_pool(struct md_engine *e, struct md_text *text,
                                 const struct md_retrieve_params *params)
{
    const struct md_pool_config c = { .window_tokens = WINDOW,
                                      .hot_tokens = MD_RETRIEVE_CHECK_CELLS,
                                      .residency = true,
                                      .block_tokens = BLOCK,
                                      .sink_tokens = SINK,
                                      .recent_tokens = RECENT,
                                      .cold_bytes = 64 << 20,
                                      .retrieval = MD_RETRIEVAL_AUTO,
                                      .retrieve = params };
    struct md_pool *pool;
    struct md_err err = { 0 };
    ck_assert_msg(md_pool_open(&c, e, text, &pool, &err) == MD_OK, "%s", err.text);
    const char *why = md_pool_status(pool).no_retrieval;
    ck_assert_msg(why == NULL, "%s", why);
    return pool;
}

void md_retrieve_check(struct md_engine *e, const char *name)
{
    static const struct md_bytes two[] = { { "", 0 }, { "", 0 } };
    const struct md_script script = { .pieces = two, .count = 2 };
    const struct md_retrieve_params params = plain_params();
    md_token text[COUNT];
    bool in[BLOCKS];
    struct md_text *scripted;
    int asked = 0;
    ck_assert_int_eq(md_scripted_open(&script, NULL, &scripted, NULL), MD_OK);
    struct md_pool *pool = open_pool(e, scripted, &params);
    for (int32_t at = FIRST; at < END; at += 3, asked++) {
        const int32_t other = at + 1 < END - 5 ? at + 5 : FIRST + (at + 5) % (END - FIRST);
        make_text(text, at, -1);
        put_question(text, NEEDLE, NEEDLE);
        ask(pool, text, in);
        check_set(name, in, at, at);
        put_question(text, COMMON, COMMON);
        ask(pool, text, in);
        ck_assert_msg(!in[at], "%s: block %d came without being asked for", name, at);
        make_text(text, at, other);
        put_question(text, NEEDLE, OTHER);
        ask(pool, text, in);
        check_set(name, in, at, other);
        put_question(text, OTHER, NEEDLE);
        ask(pool, text, in);
        check_set(name, in, at, other);
    }
    printf("%s: %d places of %d blocks\n", name, asked, END - FIRST);
    md_pool_close(pool);
    md_text_close(scripted);
}
