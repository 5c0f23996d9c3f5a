/* kill_rig.c - see kill_rig.h.  A child plays a script of calls on the fake engine over a folder and tells each that is over
 * through a pipe; the parent kills it, opens the folder, looks, plays one call more, and the next child goes on there. */
#include "support/kill_rig.h"

#include "support/rng.h"
#include "support/store_rig.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { DISK = 64 << 20, RAM = 64 << 20, ANSWER = 4, TALKS = 2, MOST = 700, WINDOW = KILL_RIG_WINDOW };

enum kind { ASK, EDIT, ENSURE, SUFFIX, DECODE };

/* ASK: the context and `more` tokens; EDIT: the same, without its last `back`. */
static const struct {
    int talk;
    enum kind kind;
    int32_t more, back;
} script[] = {
    { 0, ASK, 100, 0 },  { 0, ASK, 20, 0 },     { 1, ASK, 150, 0 },  { 0, SUFFIX, 30, 0 },
    { 0, DECODE, 0, 0 }, { 1, ASK, 5, 0 },      { 0, EDIT, 25, 40 }, { 0, ASK, 3, 0 },
    { 1, ASK, 60, 0 },   { 0, ENSURE, 10, 0 },  { 0, DECODE, 0, 0 }, { 1, EDIT, 33, 70 },
    { 0, ASK, 90, 0 },   { 1, SUFFIX, 200, 0 }, { 1, DECODE, 0, 0 }, { 0, ASK, 12, 0 },
};
enum { CALLS = sizeof script / sizeof script[0] };

/* After so many calls. */
struct state {
    md_token tokens[TALKS][MOST];
    int32_t count[TALKS];
    char notes[TALKS][100]; /* the front's: of its last whole request, and one word for each answer since */
};
static struct state states[CALLS + 1];
static int32_t prefilled[CALLS]; /* by each call */

/* Of a model with a tail state an edit in the middle of the hot set costs less than one after a restart, which goes back to
 * a checkpoint. */
static bool has_checkpoints;

static struct md_pool_config config_of(int32_t hot)
{
    return rig_config(WINDOW, hot, hot < WINDOW ? 100 << 10 : RAM);
}

/* The conversation of a talk, in the state `at`. */
static struct md_session *talk_of(struct rig *r, const struct state *at, int talk)
{
    struct md_session *c = NULL;
    while ((c = md_pool_next(r->pool, c)) != NULL) {
        int32_t have;
        const md_token *context = md_session_context(c, &have);
        if (have > 0 && at->count[talk] > 0 && context[0] == at->tokens[talk][0])
            return c;
    }
    return rig_new(r);
}

/* Call i; its prompt depends on the state before it alone. */
static enum md_status play(struct rig *r, int i, const struct state *before, int32_t *ret_prefilled)
{
    const int talk = script[i].talk;
    const int32_t keep = before->count[talk] - script[i].back, more = script[i].more;
    enum md_status s;
    md_token prompt[MOST];
    ck_assert(keep >= 0 && keep + more + ANSWER <= MOST);
    memcpy(prompt, before->tokens[talk], (size_t)keep * sizeof *prompt);
    rig_tokens(prompt + keep, more, 100 + (uint32_t)i);
    if (keep == 0)
        prompt[0] = 7 + talk; /* what tells them apart */
    char notes[20];
    snprintf(notes, sizeof notes, "call %d", i);
    r->notes = notes;
    r->adds = " answered";
    r->session = talk_of(r, before, talk);
    switch (script[i].kind) {
    case ENSURE: s = rig_ensure(r, prompt, keep + more); break;
    case SUFFIX: s = rig_suffix(r, prompt + keep, more); break;
    case DECODE: s = rig_decode(r, ANSWER); break;
    default: s = rig_ask(r, prompt, keep + more, ANSWER, false);
    }
    r->notes = NULL;
    const bool answers = script[i].kind != ENSURE && script[i].kind != SUFFIX;
    *ret_prefilled = answers ? r->last.prefilled : r->did.work.prefilled;
    return s;
}

static void note_state(struct rig *r, int i)
{
    const int talk = script[i].talk;
    struct state *after = &states[i + 1];
    *after = states[i];
    const md_token *context = md_session_context(r->session, &after->count[talk]);
    ck_assert_int_le(after->count[talk], MOST);
    memcpy(after->tokens[talk], context, (size_t)after->count[talk] * sizeof *context);
    const struct md_bytes notes = md_session_notes(r->session);
    ck_assert_uint_lt(notes.len, sizeof after->notes[talk]);
    memset(after->notes[talk], 0, sizeof after->notes[talk]);
    if (notes.len > 0)
        memcpy(after->notes[talk], notes.data, notes.len);
}

/* The same calls in one process, in memory.  Where all is attended its answers are those of fresh runs. */
static void play_all(struct md_pool_config c)
{
    struct rig r;
    c.cold_bytes = RAM;
    rig_open(&r, c, 0);
    memset(states, 0, sizeof states);
    for (int i = 0; i < CALLS; i++) {
        md_token want[ANSWER];
        ck_assert_int_eq(play(&r, i, &states[i], &prefilled[i]), MD_OK);
        note_state(&r, i);
        if (c.hot_tokens < WINDOW || script[i].kind == ENSURE || script[i].kind == SUFFIX)
            continue;
        const md_token *now = states[i + 1].tokens[script[i].talk];
        const int32_t prompt = states[i + 1].count[script[i].talk] - ANSWER;
        rig_fresh_answer(now, prompt, ANSWER, want);
        ck_assert_mem_eq(now + prompt, want, sizeof want);
    }
    rig_close(&r);
}

/* ---- the process that is killed ---- */

static void child(struct md_pool_config c, int from, int pipe_fd)
{
    struct store_rig s;
    int32_t ignored;
    sr_start(&s, c, DISK);
    for (int i = from; i < CALLS; i++) {
        if (play(&s.r, i, &states[i], &ignored) != MD_OK || write(pipe_fd, "", 1) != 1)
            _exit(1);
    }
    _exit(0);
}

static void sleep_us(long us)
{
    struct timespec t = { us / 1000000, us % 1000000 * 1000 };
    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        ;
}

static int read_byte(int fd)
{
    char c;
    const ssize_t n = TEMP_FAILURE_RETRY(read(fd, &c, 1));
    ck_assert_int_ge((int)n, 0);
    return (int)n;
}

/* Play from call `from` on, kill when `after` calls were told and `us` have passed.  Returns how many were told in all. */
static int run_and_kill(struct md_pool_config c, int from, int after, long us)
{
    int fds[2], told = 0, status;
    ck_assert_int_eq(pipe(fds), 0);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        close(fds[0]);
        child(c, from, fds[1]);
    }
    close(fds[1]);
    while (told < after && read_byte(fds[0]) == 1)
        told++;
    sleep_us(us);
    kill(pid, SIGKILL);
    while (read_byte(fds[0]) == 1)
        told++;
    close(fds[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFSIGNALED(status) || WEXITSTATUS(status) == 0, "the child failed by itself");
    return told;
}

/* ---- the process after it ---- */

static bool is_state(const struct store_rig *s, const struct state *at)
{
    int used = 0;
    for (int talk = 0; talk < TALKS; talk++) {
        used += at->count[talk] > 0;
        if (at->count[talk] == 0)
            continue;
        const struct md_session *c = sr_find(s, at->tokens[talk], at->count[talk]);
        if (c == NULL || !md_bytes_are(md_session_notes(c), at->notes[talk])) /* both, and of one call */
            return false;
    }
    return sr_used(s) == used;
}

static void check_all_cold(const struct store_rig *s)
{
    struct md_session *c = NULL;
    while ((c = md_pool_next(s->r.pool, c)) != NULL) {
        const struct md_session_status st = md_session_status(c);
        ck_assert_int_eq(st.cold_tokens, st.tape_tokens);
        ck_assert_int_eq(st.durable_tokens, st.tape_tokens);
    }
}

/* Play call `at`, which the killed process may have begun.  What it had written of it is found and not computed again, so
 * that the rest may be computed over another hot set than without a kill: the answer is the same where all is attended,
 * and where nothing was found. */
static bool play_on(struct store_rig *s, int at)
{
    int32_t cost;
    ck_assert_msg(play(&s->r, at, &states[at], &cost) == MD_OK, "call %d: %s", at, s->r.err.text);
    const bool goes_back = has_checkpoints && script[at].back > 0;
    const int32_t most = prefilled[at] + (goes_back ? s->r.config.checkpoint_tokens : 0);
    ck_assert_msg(cost <= most, "call %d prefilled %d, without a kill %d", at, cost, prefilled[at]);
    const struct md_session_status st = md_session_status(s->r.session);
    ck_assert_int_eq(st.durable_tokens, st.tape_tokens);
    const bool exact = (cost == prefilled[at] && !has_checkpoints) || s->r.config.hot_tokens == WINDOW;
    ck_assert_msg(!exact || is_state(s, &states[at + 1]), "call %d behind a kill answers something else", at);
    return exact;
}

/* Look at what is there when `told` calls were told; play one more.  Returns how many are played then; -1: it goes on in
 * another way. */
static int look(struct md_pool_config c, int told, int *ret_ahead)
{
    struct store_rig s;
    sr_start(&s, c, DISK);
    ck_assert_int_eq(sr_files().temporary, 0);
    const bool ahead = !is_state(&s, &states[told]);
    ck_assert_msg(!ahead || (told < CALLS && is_state(&s, &states[told + 1])),
                  "what is there is neither what %d calls made nor what %d did", told, told + 1);
    const int at = told + ahead;
    ck_assert(md_pool_check(s.r.pool));
    check_all_cold(&s);
    *ret_ahead += ahead;
    const bool same = at == CALLS || play_on(&s, at);
    sr_stop(&s);
    return same ? at + 1 : -1;
}

static long call_us(struct md_pool_config c)
{
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    ck_assert_int_eq(run_and_kill(c, 0, CALLS, 0), CALLS);
    clock_gettime(CLOCK_MONOTONIC, &b);
    sr_empty();
    return ((b.tv_sec - a.tv_sec) * 1000000L + (b.tv_nsec - a.tv_nsec) / 1000) / CALLS;
}

void kill_often(const char *name, enum rig_model model, int32_t hot, int kills)
{
    struct rng rng = rng_open(name);
    const struct md_pool_config c = config_of(hot);
    int at = 0, ahead = 0, early = 0, other = 0;
    rig_use_model(model);
    has_checkpoints = model != RIG_DENSE;
    play_all(c);
    const long us = call_us(c);
    for (int i = 0; i < kills; i++) {
        if (at < 0 || at >= CALLS) { /* from the beginning, which is not where most kills shall be */
            sr_empty();
            at = 0;
        }
        const int after = (int)rng_below(&rng, at == 0 ? CALLS - 4 : 3);
        const int told = run_and_kill(c, at, after, (long)rng_below(&rng, (uint32_t)us * 2 + 1));
        early += at + told < CALLS;
        at = look(c, at + told, &ahead);
        other += at < 0;
    }
    printf("%s: %ld us for a call, %d of %d killed before the end, %d between writing and telling, %d went "
           "on in another "
           "way\n",
           name, us, early, kills, ahead, other);
    ck_assert_int_ge(early, kills / 2);
}
