/* conformance.c - the table of scenarios and the run over it. */
#include "support/conformance_run.h"
#include "support/run_suite.h"

#include <stdio.h>
#include <string.h>

enum { ANY = 0, KNOWN = 1, PLAIN = 2, KNOWN_PLAIN = KNOWN | PLAIN, NARROW = 4 };

static const struct {
    TTest test;
    unsigned caps;
    int which;
} scenarios[] = {
#define X(name, caps, which) { { #name, md_scenario_##name, __FILE__, __LINE__ }, (unsigned)(caps), which },
    MD_SCENARIO_LIST(X)
#undef X
};

/* A real model takes minutes: say what it is at. */
static void after_scenario(void)
{
    if (md_conf_subject->model == NULL)
        md_run_timed_end();
}

static bool is_in(enum md_conformance_part part, const char *name)
{
    const bool walk = strstr(name, "walk") != NULL, chunks = strstr(name, "b120") != NULL;
    switch (part) {
    case MD_PART_ALL: return true;
    case MD_PART_WALKS: return walk;
    case MD_PART_CHUNKS: return chunks;
    case MD_PART_BUT_CHUNKS: return !chunks;
    default: return !walk;
    }
}

int md_conformance_run(const struct md_subject *subject)
{
    const struct md_engine_info *info = md_engine_info(subject->engine);
    char caps[160];
    md_engine_caps_text(md_engine_caps(subject->engine), caps, sizeof caps);
    printf("# %s: %s; %d cells, %d sequences, batches of %d; %s\n", subject->name, info->model,
           info->cell_count, info->seq_count, info->batch_tokens, caps);
    md_conf_subject = subject;
    md_conf_forget_measured();

    Suite *suite = suite_create(subject->name);
    for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) {
        const unsigned missing = scenarios[i].caps & ~md_engine_caps(subject->engine);
        if (!is_in(subject->part, scenarios[i].test.name))
            continue;
        if ((scenarios[i].which & KNOWN) && subject->model == NULL) {
            printf("# %s: left out, what is right is only known of exact models\n", scenarios[i].test.name);
            continue;
        }
        if ((scenarios[i].which & NARROW) && md_conf_is_real() && md_conf_wider() > 0) {
            printf("# %s: left out, models with narrow windows show it\n", scenarios[i].test.name);
            continue;
        }
        if ((scenarios[i].which & PLAIN) && (md_engine_caps(subject->engine) & MD_CAP_CHECKPOINT))
            continue;
        if (missing != 0) {
            md_engine_caps_text(missing, caps, sizeof caps);
            printf("# %s: left out, the engine lacks %s\n", scenarios[i].test.name, caps);
            continue;
        }
        TCase *tcase = tcase_create(scenarios[i].test.name); /* so that CK_RUN_CASE=NAME runs one */
        suite_add_tcase(suite, tcase);
        tcase_add_checked_fixture(tcase, md_run_timed_begin, after_scenario);
        _tcase_add_test(tcase, &scenarios[i].test, 0, 0, 0, 1);
    }
    return md_run_suite_here(suite);
}
