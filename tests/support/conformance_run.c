/* conformance_run.c - see conformance_run.h.  A failed assert leaves the scenario at once; what it had
 * allocated is then lost, which only matters to a run that failed anyway. */
#include "support/conformance_run.h"

#include "engine/attention.h"
#include "support/reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NOTES_MAX = 700, /* entries the reference pass can still do in a second */
    REFERENCE_COUNT_MAX = 480,
    TINY_WINDOW = 32,
};

/* One entry per token computed; entries stay when their KV goes, because later ones saw them. */
static struct {
    struct md_ref_token entry[NOTES_MAX];
    bool hot[NOTES_MAX], gone[NOTES_MAX]; /* neither: parked, or cold with bytes kept */
    bool sees[NOTES_MAX][NOTES_MAX];
    int32_t count;
    bool overflow; /* a scenario that is too long for the reference pass */
} notes;

const struct md_subject *md_conf_subject;

struct md_engine *md_conf_engine(void)
{
    return md_conf_subject->engine;
}

void md_conf_begin(void)
{
    struct md_engine *e = md_conf_engine();
    md_engine_set_interrupt(e, NULL, NULL);
    if (md_engine_caps(e) & MD_CAP_ATTENTION_SCORES)
        MD_CONF_OK(md_engine_watch(e, NULL, 0, err));
    for (md_seq seq = 0; seq < md_engine_info(e)->seq_count; seq++)
        MD_CONF_OK(md_engine_truncate(e, seq, 0, err));
    ck_assert_int_eq(md_engine_cells_used(e), 0);
    notes.count = 0;
    notes.overflow = false;
}

bool md_conf_is_real(void)
{
    return md_conf_subject->model == NULL && !md_conf_subject->small;
}

int32_t md_conf_wider(void)
{
    const int32_t more = md_engine_info(md_conf_engine())->window_tokens - TINY_WINDOW;
    return more > 0 ? (more + TINY_WINDOW - 1) / TINY_WINDOW * TINY_WINDOW : 0;
}

/* ---- notes ---- */

static void note_token(md_token token, int32_t pos)
{
    if (notes.count == NOTES_MAX) {
        notes.overflow = true;
        return;
    }
    int32_t n = notes.count++;
    notes.entry[n] = (struct md_ref_token){ token, pos, pos };
    notes.hot[n] = true;
    notes.gone[n] = false;
    for (int32_t j = 0; j < n; j++)
        notes.sees[n][j] = notes.hot[j] && notes.entry[j].pos < pos;
    notes.sees[n][n] = true;
}

static void note_hot(struct md_range r, bool hot)
{
    for (int32_t i = 0; i < notes.count; i++)
        if (!notes.gone[i] && notes.entry[i].pos >= r.start && notes.entry[i].pos < r.end)
            notes.hot[i] = hot;
}

static void note_gone(struct md_range r)
{
    note_hot(r, false);
    for (int32_t i = 0; i < notes.count; i++)
        if (notes.entry[i].pos >= r.start && notes.entry[i].pos < r.end)
            notes.gone[i] = true;
}

/* ---- steps ---- */

void md_conf_prefill_tokens(int32_t start, const md_token *tokens, int32_t count, int32_t chunk)
{
    const int32_t most = md_engine_info(md_conf_engine())->batch_tokens;
    if (chunk > most)
        chunk = most;
    for (int32_t i = 0; i < count; i += chunk) {
        int32_t n = count - i < chunk ? count - i : chunk;
        MD_CONF_OK(md_engine_prefill(md_conf_engine(), 0, start + i, tokens + i, n, err));
    }
    for (int32_t i = 0; i < count; i++)
        note_token(tokens[i], start + i);
}

void md_conf_prefill(int32_t from, int32_t to, int32_t chunk)
{
    md_conf_prefill_tokens(from, md_conf_subject->tokens + from, to - from, chunk);
}

void md_conf_truncate(int32_t from)
{
    MD_CONF_OK(md_engine_truncate(md_conf_engine(), 0, from, err));
    note_gone((struct md_range){ from, INT32_MAX });
}

void md_conf_evict(struct md_range r, struct md_buf *kv)
{
    size_t before = kv == NULL ? 0 : kv->len;
    MD_CONF_OK(md_engine_evict_range(md_conf_engine(), 0, r, kv, err));
    if (kv == NULL) {
        note_gone(r);
        return;
    }
    note_hot(r, false);
    ck_assert_int_le((int64_t)(kv->len - before), md_engine_export_bytes(md_conf_engine(), md_range_len(r)));
    ck_assert_int_ge((int64_t)(kv->len - before),
                     md_engine_info(md_conf_engine())->kv_bytes_per_token * md_range_len(r));
}

void md_conf_admit(struct md_range r, struct md_bytes kv)
{
    MD_CONF_OK(md_engine_admit_range(md_conf_engine(), 0, r, kv, err));
    note_hot(r, true);
}

void md_conf_park(struct md_range r)
{
    MD_CONF_OK(md_engine_park(md_conf_engine(), 0, r, err));
    note_hot(r, false);
}

void md_conf_unpark(struct md_range r)
{
    MD_CONF_OK(md_engine_unpark(md_conf_engine(), 0, r, err));
    note_hot(r, true);
}

void md_conf_recompute(struct md_range r)
{
    md_conf_recompute_from(r, (struct md_bytes){ 0 });
}

void md_conf_recompute_from(struct md_range r, struct md_bytes state)
{
    MD_CONF_OK(
        md_engine_recompute_range(md_conf_engine(), 0, r, md_conf_subject->tokens + r.start, state, err));
    note_gone(r);
    for (int32_t pos = r.start; pos < r.end; pos++)
        note_token(md_conf_subject->tokens[pos], pos);
}

/* ---- coming back ---- */

struct md_conf_mark md_conf_mark(md_seq seq)
{
    struct md_engine *e = md_conf_engine();
    struct md_conf_mark m = { .seq = seq, .at = md_engine_end(e, seq) };
    md_buf_init(&m.state, NULL, (size_t)md_engine_checkpoint_bytes(e));
    if ((md_engine_caps(e) & MD_CAP_CHECKPOINT) && m.at > 0)
        MD_CONF_OK(md_engine_checkpoint(e, seq, &m.state, err));
    return m;
}

void md_conf_return(struct md_conf_mark *m)
{
    struct md_engine *e = md_conf_engine();
    if (m->state.len > 0)
        MD_CONF_OK(md_engine_rewind(e, m->seq, m->at, (struct md_bytes){ m->state.data, m->state.len }, err));
    else
        MD_CONF_OK(md_engine_truncate(e, m->seq, m->at, err));
    ck_assert_int_eq(md_engine_end(e, m->seq), m->at);
    ck_assert(md_engine_is_ready(e, m->seq));
}

void md_conf_mark_done(struct md_conf_mark *m)
{
    md_buf_done(&m->state);
}

void md_conf_settle(void)
{
    if (md_conf_subject->moved_tolerance >= 0)
        return;
    struct md_conf_mark m = md_conf_mark(0);
    md_conf_return(&m);
    md_conf_mark_done(&m);
}

/* ---- looking ---- */

static float *copy_logits(const float *logits)
{
    const int32_t vocab = md_engine_info(md_conf_engine())->vocab_count;
    float *copy = malloc((size_t)vocab * sizeof *copy);
    ck_assert_ptr_nonnull(copy);
    for (int32_t i = 0; i < vocab; i++) {
        ck_assert_msg(isfinite(logits[i]), "logit %d is %f", i, (double)logits[i]);
        copy[i] = logits[i];
    }
    return copy;
}

float *md_conf_probe_of(md_seq seq)
{
    struct md_engine *e = md_conf_engine();
    const int32_t end = md_engine_end(e, seq);
    const float *logits = NULL;
    struct md_conf_mark before = md_conf_mark(seq);
    MD_CONF_OK(md_engine_decode(e, seq, end, &md_conf_subject->tokens[end], 1, &logits, err));
    float *copy = copy_logits(logits);
    md_conf_return(&before);
    md_conf_mark_done(&before);
    return copy;
}

float *md_conf_probe(void)
{
    return md_conf_probe_of(0);
}

void md_conf_check_reference(const char *label)
{
    float *got = md_conf_probe();
    if (md_conf_subject->model != NULL) {
        ck_assert_msg(!notes.overflow && notes.count < REFERENCE_COUNT_MAX, "%s: too long for the reference",
                      label);
        const int32_t end = md_engine_end(md_conf_engine(), 0), n = notes.count + 1;
        note_token(md_conf_subject->tokens[end], end);
        bool *sees = calloc((size_t)n * (size_t)n, sizeof *sees);
        float *want = calloc((size_t)md_conf_subject->model->dims.vocab, sizeof *want);
        ck_assert(sees != NULL && want != NULL);
        for (int32_t i = 0; i < n; i++)
            memcpy(sees + (size_t)i * (size_t)n, notes.sees[i], (size_t)n * sizeof *sees);
        ck_assert(md_reference_logits(md_conf_subject->model, notes.entry, sees, n, want));
        notes.count--; /* the probe is gone again */
        const float d = md_conf_distance(got, want);
        ck_assert_msg(d <= md_conf_subject->reference_tolerance, "%s: differs from the reference pass by %g",
                      label, (double)d);
        free(sees);
        free(want);
    }
    free(got);
}

void md_conf_check_probe_of(md_seq seq, const float *want, float tolerance, const char *label)
{
    float *got = md_conf_probe_of(seq);
    const float d = md_conf_distance(want, got);
    ck_assert_msg(d <= tolerance, "%s: logits differ by %g, allowed %g", label, (double)d, (double)tolerance);
    free(got);
}

float md_conf_distance(const float *a, const float *b)
{
    float most = 0;
    for (int32_t i = 0; i < md_engine_info(md_conf_engine())->vocab_count; i++)
        most = fmaxf(most, fabsf(a[i] - b[i]));
    return most;
}

void md_conf_check_matters(const float *a, const float *b, const char *what)
{
    const float d = md_conf_distance(a, b);
    const float least = md_conf_subject->least_move != 0 ? md_conf_subject->least_move : 0.4f;
    ck_assert_msg(d > least, "%s moves the logits by %g only: nothing is tested", what, (double)d);
}

static md_token best_two(const float *logits, md_token *ret_second)
{
    const int32_t vocab = md_engine_info(md_conf_engine())->vocab_count;
    md_token best = logits[0] >= logits[1] ? 0 : 1, second = 1 - best;
    for (int32_t i = 2; i < vocab; i++)
        if (logits[i] > logits[best]) {
            second = best;
            best = i;
        } else if (logits[i] > logits[second]) {
            second = i;
        }
    *ret_second = second;
    return best;
}

md_token md_conf_best(const float *logits, float *ret_gap)
{
    md_token second;
    const md_token best = best_two(logits, &second);
    *ret_gap = logits[best] - logits[second];
    return best;
}

/* other NULL: feed what is chosen. */
static struct md_conf_answer answer(int32_t count, const struct md_conf_answer *other)
{
    struct md_engine *e = md_conf_engine();
    const int32_t end = md_engine_end(e, 0);
    struct md_conf_mark before = md_conf_mark(0);
    struct md_conf_answer a = { .count = count };
    md_token token = md_conf_subject->tokens[end];
    for (int32_t i = 0; i < count; i++) {
        const float *logits = NULL;
        MD_CONF_OK(md_engine_decode(e, 0, end + i, &token, 1, &logits, err));
        a.tokens[i] = best_two(logits, &a.seconds[i]);
        const struct md_conf_answer *of = other != NULL ? other : &a;
        a.gaps[i] = logits[of->tokens[i]] - logits[of->seconds[i]];
        token = of->tokens[i];
    }
    md_conf_return(&before);
    md_conf_mark_done(&before);
    return a;
}

struct md_conf_answer md_conf_greedy(int32_t count)
{
    return answer(count, NULL);
}

struct md_conf_answer md_conf_follow(const struct md_conf_answer *other)
{
    return answer(other->count, other);
}

float md_conf_gap_moved(const struct md_conf_answer *a, const struct md_conf_answer *b)
{
    float most = 0;
    for (int32_t i = 0; i < a->count; i++)
        most = fmaxf(most, fabsf(a->gaps[i] - b->gaps[i]));
    return most;
}

void md_conf_check_answers(const struct md_conf_answer *want, const struct md_conf_answer *got, float gap,
                           int32_t least, const char *label)
{
    int32_t compared = 0;
    for (int32_t i = 0; i < want->count; i++) {
        if (want->gaps[i] <= gap)
            continue;
        compared++;
        ck_assert_msg(want->tokens[i] == got->tokens[i],
                      "%s: greedy token %d is %d instead of %d, though the best two were %g apart", label, i,
                      got->tokens[i], want->tokens[i], (double)want->gaps[i]);
    }
    ck_assert_msg(compared >= least, "%s: only %d steps could be compared: take another prompt", label,
                  compared);
}

/* What a model that rounds is measured by: the same tokens in calls of so many. */
enum { BATCHINGS = 3 };
static const int32_t batchings[BATCHINGS] = { 256, 100, 37 };
static const float SMALL_SAMPLE = 1.5f; /* a fourth batching was seen at 1.08 times as far as these three */

static int32_t measured_end;
static float spread;

void md_conf_forget_measured(void)
{
    measured_end = 0;
}

float md_conf_moved_tolerance(int32_t end)
{
    if (md_conf_subject->moved_tolerance >= 0) {
        md_conf_begin();
        return md_conf_subject->moved_tolerance;
    }
    if (end <= 300 || md_conf_wider() > 0)
        end =
            256 +
            md_conf_wider(); /* one measurement for all short scenarios, and for models whose windows make all long */
    if (measured_end != end) {
        float *logits[BATCHINGS];
        spread = 0;
        for (int i = 0; i < BATCHINGS; i++) {
            md_conf_begin();
            md_conf_prefill(0, end, batchings[i]);
            logits[i] = md_conf_probe();
            for (int k = 0; k < i; k++) {
                float d = md_conf_distance(logits[i], logits[k]);
                spread = d > spread ? d : spread;
            }
        }
        measured_end = end;
        printf("# %s: batchings of %d tokens differ by up to %g\n", md_conf_subject->name, end,
               (double)spread);
        for (int i = 0; i < BATCHINGS; i++)
            free(logits[i]);
    }
    md_conf_begin();
    return SMALL_SAMPLE * spread;
}

float md_conf_gap_tolerance(int32_t end, const struct md_conf_answer *said)
{
    struct md_conf_answer again[BATCHINGS];
    float most = 0;
    if (md_conf_subject->moved_tolerance >= 0)
        return 2 * md_conf_subject->moved_tolerance;
    for (int i = 0; i < BATCHINGS; i++) {
        md_conf_begin();
        md_conf_prefill(0, end, batchings[i]);
        again[i] = md_conf_follow(said);
        for (int k = 0; k < i; k++)
            most = fmaxf(most, md_conf_gap_moved(&again[i], &again[k]));
    }
    printf("# %s: batchings of %d tokens move the gap between the best two by up to %g\n",
           md_conf_subject->name, end, (double)most);
    return SMALL_SAMPLE * most;
}

static uint64_t hash_of_map(void)
{
    uint64_t h = 0;
    for (int32_t p = 0; p < md_engine_end(md_conf_engine(), 0); p++) {
        uint32_t hot = md_engine_is_hot(md_conf_engine(), 0, (struct md_range){ p, p + 1 });
        h = md_fake_hash(h, &hot, sizeof hot);
    }
    return h;
}

struct md_conf_state md_conf_remember(void)
{
    struct md_engine *e = md_conf_engine();
    return (struct md_conf_state){ md_engine_end(e, 0), md_engine_cells_used(e), hash_of_map(),
                                   md_conf_probe() };
}

void md_conf_check_unchanged(struct md_conf_state *before, const char *label)
{
    struct md_engine *e = md_conf_engine();
    ck_assert_msg(md_engine_end(e, 0) == before->end, "%s: the end moved to %d", label, md_engine_end(e, 0));
    ck_assert_msg(md_engine_cells_used(e) == before->cells_used, "%s: %d cells used instead of %d", label,
                  md_engine_cells_used(e), before->cells_used);
    ck_assert_msg(hash_of_map() == before->map, "%s: other positions are hot", label);
    float *now = md_conf_probe();
    const float d = md_conf_distance(now, before->logits);
    ck_assert_msg(d <= md_conf_subject->same_tolerance, "%s: the logits moved by %g", label, (double)d);
    free(now);
    free(before->logits);
}
