/* exact_model_main.c - writes the exact model where scripts want it:  exact_model FILE.gguf [TOKENS [KEYS]]
 *
 * TOKENS  the window it says it was trained for; KEYS  more of them, as gw_spec takes them */
#include "support/exact_model.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    struct md_err err = { 0 };
    struct md_fake_model *m = NULL;
    if (argc < 2 || argc > 4) {
        fprintf(stderr, "usage: exact_model FILE.gguf [TOKENS [KEYS]]\n");
        return 2;
    }
    struct md_fake_dims dims = md_fake_dims_exact();
    if (argc > 2)
        dims.trained_tokens = atoi(argv[2]);
    enum md_status s = md_fake_model_open(&dims, 1, NULL, &m, &err);
    if (s == MD_OK)
        s = md_exact_model_write_with(m, argc > 3 ? argv[3] : "", argv[1], &err);
    md_fake_model_close(m);
    if (s != MD_OK)
        fprintf(stderr, "exact_model: %s\n", err.text);
    return s == MD_OK ? 0 : 1;
}
