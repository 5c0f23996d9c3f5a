/* past_llama MODEL TEXT [TOKENS [THREADS]] - what going past the trained window does to a real model: perplexity of the last
 * 512 of TOKENS tokens (16,384) of a text, in a conversation that came all the way, and of the same tokens behind the same
 * first ones and as many last ones as are hot, at positions inside the window.  Exit status 1: more than a tenth apart.
 *
 * The two see the same text.  What differs is positions, and what the KV was computed over: the first had more of the text
 * before it, through a window; the second had nothing between. */
#include "adapters/llama/llama_backend.h"
#include "base/clock.h"
#include "session/session_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HOT = 2048, SINKS = 128, RECENT = 1024, AHEAD = 512, COLD = 1 << 30, TEXT_BYTES = 4 << 20 };

static struct md_engine *engine;
static struct md_text *text;
static struct md_err err;

static void need(enum md_status s, const char *what)
{
    if (s == MD_OK)
        return;
    fprintf(stderr, "past_llama: %s: %s\n", what, err.text);
    exit(2);
}

/* -log p(token), from the logits. */
static double loss_of(const float *logits, md_token token)
{
    const int32_t vocab = md_engine_info(engine)->vocab_count;
    double top = logits[0], sum = 0;
    for (int32_t i = 1; i < vocab; i++)
        top = logits[i] > top ? logits[i] : top;
    for (int32_t i = 0; i < vocab; i++)
        sum += exp(logits[i] - top);
    return top + log(sum) - logits[token];
}

/* One token at the end of the tape, as an answer evaluates it. */
static const float *evaluate(struct md_session *s, md_token token)
{
    const float *logits;
    int32_t lost_from;
    need(md_tape_reserve(&s->tape, s->tape.count + 1, &err), "reserve");
    if (md_engine_cells_used(engine) + 1 > s->pool->hot.limit_tokens || !md_drive_reaches(&s->drive, 1))
        need(md_drive_make_room(&s->drive, s->tape.block_tokens, &lost_from, &err), "make room");
    need(md_engine_decode(engine, s->drive.seq, s->tape.count, &token, 1, &logits, &err), "decode");
    need(md_drive_append_computed(&s->drive, &token, 1, &err), "append");
    return logits;
}

/* Mean loss of the last AHEAD of the tokens, the others being there. */
static double loss_behind(const md_token *tokens, int32_t count, bool past, int32_t window)
{
    const struct md_pool_config config = { .window_tokens = window,
                                           .past_window = past,
                                           .hot_tokens = HOT,
                                           .residency = true,
                                           .block_tokens = MD_BLOCK_TOKENS_DEFAULT,
                                           .sink_tokens = SINKS,
                                           .recent_tokens = RECENT,
                                           .cold_bytes = COLD };
    const struct md_context before = { .tokens = tokens, .count = count - AHEAD };
    struct md_pool *pool;
    struct md_session *s;
    struct md_prefill_status did;
    double sum = 0;
    int64_t t0 = md_clock_mono_ns();
    need(md_pool_open(&config, engine, text, &pool, &err), "open");
    need(md_pool_new(pool, &s, &err), "session");
    need(md_session_ensure_prefix(s, &before, false, NULL, &did, &err), "prefill");
    const double prefill_s = (double)(md_clock_mono_ns() - t0) / 1e9;
    t0 = md_clock_mono_ns();
    for (int32_t i = count - AHEAD - 1; i + 1 < count; i++)
        sum += loss_of(evaluate(s, tokens[i]), tokens[i + 1]);
    const double decode_s = (double)(md_clock_mono_ns() - t0) / 1e9;
    const struct md_session_status st = md_session_status(s);
    printf("  %d tokens: prefill %.0f tokens/s, then %.1f tokens/s; %d hot, %d of them moved nearer, %lld "
           "moves; "
           "perplexity of the last %d: %.3f\n",
           count, before.count / prefill_s, AHEAD / decode_s, st.hot_tokens, st.rebased_tokens,
           (long long)st.rebased_blocks, AHEAD, exp(sum / AHEAD));
    md_pool_close(pool);
    return sum / AHEAD;
}

static struct md_tokens read_text(const char *path)
{
    struct md_tokens tokens = { 0 };
    char *bytes = malloc(TEXT_BYTES);
    FILE *f = fopen(path, "rb");
    if (f == NULL || bytes == NULL) {
        fprintf(stderr, "past_llama: cannot read '%s'\n", path);
        exit(2);
    }
    const size_t n = fread(bytes, 1, TEXT_BYTES, f);
    fclose(f);
    need(md_text_tokenize(text, (struct md_bytes){ bytes, n }, false, false, &tokens, &err), "tokenize");
    free(bytes);
    return tokens;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: past_llama MODEL TEXT [TOKENS [THREADS]]\n");
        return 2;
    }
    const int32_t count = argc > 3 ? (int32_t)strtol(argv[3], NULL, 10) : 16384;
    const struct md_open_params params = { .model_path = argv[1],
                                           .cell_count = HOT,
                                           .seq_count = 1,
                                           .threads = argc > 4 ? (int32_t)strtol(argv[4], NULL, 10) : 0,
                                           .flash_attn = -1 };
    need(md_backend_llama.open(&params, &engine, &text, &err), "model");
    struct md_tokens all = read_text(argv[2]);
    const int32_t trained = md_engine_info(engine)->trained_tokens;
    if (count < HOT + AHEAD || (size_t)count > all.count || trained < HOT + AHEAD) {
        fprintf(stderr, "past_llama: %d tokens wanted, the text has %zu; the window is %d\n", count,
                all.count, trained);
        return 2;
    }
    printf("past the trained window of %d tokens, %d of them hot:\n", trained, HOT);
    const double far = loss_behind(all.ids, count, true, count + 1);
    const int32_t last = HOT - SINKS + AHEAD;
    memmove(all.ids + SINKS, all.ids + count - last, (size_t)last * sizeof *all.ids);
    const double near = loss_behind(all.ids, SINKS + last, false, trained);
    const double ratio = exp(far - near);
    printf("  perplexity %.3f past it, %.3f inside it: %.3f times\n", exp(far), exp(near), ratio);
    md_tokens_done(&all);
    md_engine_close(engine);
    md_text_close(text);
    return ratio > 1.1 || ratio < 1 / 1.1;
}
