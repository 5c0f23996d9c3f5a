/* xattention_openvino_llama_main.c - what XAttention saves of a prefill: real text in one step, with it and without, in turn.
 *
 * usage: xattention_openvino_llama MODEL TEXT [TOKENS,... [SHARE [THREADS [ROUNDS]]]]   (2048,4096 0.9 2 3)
 *
 * Times are of the processor, all threads together, so that what else runs on the machine is left out as far as it can be;
 * the best of the rounds, and the worst beside it.  The third way is as by default: plain, in steps of 512. */
#include "adapters/llama/llama_backend.h"
#include "adapters/openvino/ov_backend.h"
#include "text/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    PLAIN,
    SPARSE,
    STEPS,
    WAYS,
    STEP_DEFAULT = 512,
    ROUNDS_MAX = 16,
    LENGTHS_MAX = 8,
    TEXT_BYTES = 1 << 20
};

static void check(enum md_status s, const struct md_err *err)
{
    if (s == MD_OK)
        return;
    fprintf(stderr, "xattention: %s\n", err->text);
    exit(1);
}

static struct md_tokens read_tokens(const char *model, const char *path)
{
    static char bytes[TEXT_BYTES];
    struct md_text *text = NULL;
    struct md_tokens tokens = { 0 };
    struct md_err err = { 0 };
    FILE *f = fopen(path, "r");
    const size_t count = f != NULL ? fread(bytes, 1, sizeof bytes, f) : 0;
    if (f != NULL)
        fclose(f);
    check(md_llama_text_open(model, &text, &err), &err);
    check(md_text_tokenize(text, (struct md_bytes){ bytes, count }, false, false, &tokens, &err), &err);
    md_text_close(text);
    return tokens;
}

static struct md_engine *open_engine(const char *model, int32_t cells, int32_t step, double share,
                                     int32_t threads)
{
    const struct md_open_params p = { .model_path = model,
                                      .cell_count = cells,
                                      .batch_tokens = step,
                                      .ubatch_tokens = step,
                                      .threads = threads,
                                      .flash_attn = -1,
                                      .xattention = share };
    struct md_engine *e = NULL;
    struct md_err err = { 0 };
    check(md_openvino_open(&p, &e, &err), &err);
    return e;
}

/* Seconds of the processor for the first `count` tokens in such steps; their last logits stay with the engine. */
static double prefill(struct md_engine *e, const md_token *tokens, int32_t count, int32_t step,
                      const float **ret_logits)
{
    struct md_err err = { 0 };
    check(md_engine_truncate(e, 0, 0, &err), &err);
    const clock_t start = clock();
    for (int32_t at = 0, n; at < count; at += n) {
        n = count - at < step ? count - at : step;
        check(md_engine_decode(e, 0, at, tokens + at, n, ret_logits, &err), &err);
    }
    return (double)(clock() - start) / CLOCKS_PER_SEC;
}

static int32_t best_of(const float *logits, int32_t count)
{
    int32_t best = 0;
    for (int32_t i = 1; i < count; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static void measure(struct md_engine *plain, struct md_engine *sparse, const md_token *tokens, int32_t count,
                    int rounds)
{
    static const char *const names[WAYS] = { "plain, one step", "XAttention", "plain, steps of 512" };
    double best[WAYS] = { 0 }, worst[WAYS] = { 0 }, apart = 0, largest = 0;
    const int32_t vocab = md_engine_info(plain)->vocab_count;
    bool same = false;
    for (int round = 0; round < rounds; round++) {
        const float *logits[WAYS];
        for (int way = 0; way < WAYS; way++) {
            const double s = prefill(way == SPARSE ? sparse : plain, tokens, count,
                                     way == STEPS ? STEP_DEFAULT : count, &logits[way]);
            best[way] = round == 0 || s < best[way] ? s : best[way];
            worst[way] = s > worst[way] ? s : worst[way];
            for (int32_t i = 0; way == SPARSE && i < vocab; i++) { /* before plain computes again */
                apart = fmax(apart, fabs((double)logits[PLAIN][i] - (double)logits[SPARSE][i]));
                largest = fmax(largest, fabs((double)logits[PLAIN][i]));
            }
            same = way == SPARSE ? best_of(logits[PLAIN], vocab) == best_of(logits[SPARSE], vocab) : same;
        }
    }
    printf("%d tokens; processor seconds, best and worst of %d; how much sooner than plain in one step\n",
           count, rounds);
    for (int way = 0; way < WAYS; way++)
        printf("  %-20s %7.2f %7.2f   %5.2f\n", names[way], best[way], worst[way], best[PLAIN] / best[way]);
    printf("  logits: %.2f of %.1f apart, the best token is %s\n", apart, largest,
           same ? "the same" : "another");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *lengths = argc > 3 ? argv[3] : "2048,4096";
    const double share = argc > 4 ? atof(argv[4]) : 0.9;
    const int threads = argc > 5 ? atoi(argv[5]) : 2, rounds = argc > 6 ? atoi(argv[6]) : 3;
    int32_t counts[LENGTHS_MAX], length_count = 0, most = 0;
    for (const char *at = lengths; at != NULL && length_count < LENGTHS_MAX; length_count++) {
        counts[length_count] = atoi(at);
        most = counts[length_count] > most ? counts[length_count] : most;
        at = strchr(at, ',');
        at = at != NULL ? at + 1 : NULL;
    }
    if (argc < 3 || most < 1 || rounds < 1 || rounds > ROUNDS_MAX) {
        fputs("usage: xattention_openvino_llama MODEL TEXT [TOKENS,... [SHARE [THREADS [ROUNDS]]]]\n",
              stderr);
        return 2;
    }
    struct md_tokens tokens = read_tokens(argv[1], argv[2]);
    if (tokens.count < (size_t)most) {
        fprintf(stderr, "xattention: the text has %zu tokens, not %d: give a longer one\n", tokens.count,
                most);
        return 1;
    }
    struct md_engine *plain = open_engine(argv[1], most, most, 0, threads),
                     *sparse = open_engine(argv[1], most, most, share, threads);
    printf("share %g, %d threads\n", share, threads);
    for (int32_t i = 0; i < length_count; i++)
        measure(plain, sparse, tokens.ids, counts[i], rounds);
    md_engine_close(plain);
    md_engine_close(sparse);
    md_tokens_done(&tokens);
    return 0;
}
