/* Control tokens that a form keeps are text of the answer; others print as nothing. */
#include "session/pool.h"
#include "support/run_suite.h"
#include "support/scripted.h"
#include "text/form.h"

#include <check.h>
#include <string.h>

static char said[100];

static bool on_text(void *user, struct md_bytes text)
{
    (void)user;
    strncat(said, text.data, text.len);
    return true;
}

START_TEST(kept_control_tokens_are_text)
{
    const struct md_bytes pieces[] = { { "a", 1 }, { "<call>", 6 }, { "b", 1 }, { "<other>", 7 } };
    const struct md_script script = { .pieces = pieces, .count = 4, .control_from = MD_SCRIPTED_FIRST + 1 };
    const md_token kept[] = { MD_SCRIPTED_FIRST + 1, MD_SCRIPTED_FIRST + 2 };
    struct md_chat_form form = { .refs = 1, .kept = kept, .kept_count = 2 };
    const struct md_pool_config config = { .window_tokens = 64, .hot_tokens = 64, .block_tokens = 8 };
    struct md_engine *engine = NULL;
    struct md_text *text = NULL;
    struct md_pool *pool = NULL;
    struct md_session *session = NULL;
    const md_token prompt[] = { 'x', 'y' };
    struct md_request q = {
        .prompt = { .tokens = prompt, .count = 2 },
        .decode = { .max_tokens = -1, .sample = md_sample_defaults() },
    };
    const struct md_sink sink = { .text = on_text };
    struct md_result result;
    ck_assert_int_eq(md_scripted_open(&script, &engine, &text, NULL), MD_OK);
    ck_assert_int_eq(md_pool_open(&config, engine, text, &pool, NULL), MD_OK);
    ck_assert_int_eq(md_pool_new(pool, &session, NULL), MD_OK);
    for (int with = 0; with < 2; with++) {
        said[0] = '\0';
        q.decode.sample.form = with ? &form : NULL;
        ck_assert_int_eq(md_session_run(session, &q, &sink, &result, NULL), MD_OK);
        ck_assert_str_eq(said, with ? "a<call>b" : "a");
        md_result_done(&result);
    }
    md_pool_close(pool);
    md_engine_close(engine);
    md_text_close(text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("session_form");
    TCase *c = tcase_create("all");
    tcase_add_test(c, kept_control_tokens_are_text);
    suite_add_tcase(suite, c);
    return md_run_suite(suite);
}
