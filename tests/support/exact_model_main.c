/* exact_model_main.c - writes the exact model where scripts want it:  exact_model FILE.gguf [TOKENS [FACTOR ORIGINAL]]
 *
 * TOKENS            the window it says it was trained for
 * FACTOR, ORIGINAL  it says that it scales by YaRN: so many times, of so many tokens */
#include "support/exact_model.h"

#include <stdio.h>
#include <stdlib.h>

struct yarn {
    double factor;
    int original;
};

static void put_yarn(struct gguf_writer *w, void *user)
{
    const struct yarn *y = user;
    if (y->factor <= 0)
        return;
    gw_string(w, "llama.rope.scaling.type", "yarn");
    gw_f32(w, "llama.rope.scaling.factor", (float)y->factor);
    gw_u32(w, "llama.rope.scaling.original_context_length", (uint32_t)y->original);
}

int main(int argc, char **argv)
{
    struct md_err err = { 0 };
    struct md_fake_model *m = NULL;
    if (argc != 2 && argc != 3 && argc != 5) {
        fprintf(stderr, "usage: exact_model FILE.gguf [TOKENS [FACTOR ORIGINAL]]\n");
        return 2;
    }
    struct md_fake_dims dims = md_fake_dims_exact();
    struct yarn yarn = { argc > 3 ? atof(argv[3]) : 0, argc > 4 ? atoi(argv[4]) : 0 };
    if (argc > 2)
        dims.trained_tokens = atoi(argv[2]);
    enum md_status s = md_fake_model_open(&dims, 1, NULL, &m, &err);
    if (s == MD_OK)
        s = md_exact_model_write_with(m, put_yarn, &yarn, argv[1], &err);
    md_fake_model_close(m);
    if (s != MD_OK)
        fprintf(stderr, "exact_model: %s\n", err.text);
    return s == MD_OK ? 0 : 1;
}
