/* exact_model_main.c - writes the exact model where scripts want it:  exact_model FILE.gguf */
#include "support/exact_model.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    struct md_err err = { 0 };
    struct md_fake_model *m = NULL;
    if (argc != 2) {
        fprintf(stderr, "usage: exact_model FILE.gguf\n");
        return 2;
    }
    enum md_status s = md_exact_model_open(&m, &err);
    if (s == MD_OK)
        s = md_exact_model_write(m, argv[1], &err);
    md_fake_model_close(m);
    if (s != MD_OK)
        fprintf(stderr, "exact_model: %s\n", err.text);
    return s == MD_OK ? 0 : 1;
}
