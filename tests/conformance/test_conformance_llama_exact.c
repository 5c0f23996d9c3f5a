/* The suite on llama.cpp with the exact model: f32 weights and KV, the reference pass knows the answer.
 *
 * With flash attention the library rounds keys and values to f16 while it reads them, whatever the cache holds:
 * the logits are then off by 0.01 to 0.06, though always by the same amount while nothing moves.  So the
 * proof is the run without, and the run with flash attention (the default of the product) has wider bounds,
 * still far below what a wrong set of tokens makes (0.4 at least). */
#include "adapters/llama/llama_backend.h"
#include "support/exact_model.h"
#include "support/on_device.h"
#include "support/suite_models.h"

#include <unistd.h>

static int run(const struct md_fake_model *model, const char *path, const char *name, int flash_attn,
               int32_t seq_count, float tolerance)
{
    const struct md_suite_engine llama = { .backend = &md_backend_llama,
                                           .same_tolerance = md_test_bound(1e-3f) };
    const struct md_open_params params = { .model_path = path,
                                           .gpu_layers = md_test_gpu_layers(),
                                           .seq_count = seq_count,
                                           .flash_attn = flash_attn,
                                           .type_k = "f32",
                                           .type_v = "f32" };
    const struct md_subject subject = { .name = name,
                                        .model = model,
                                        .reference_tolerance = tolerance,
                                        .turned_tolerance = tolerance,
                                        .moved_tolerance = tolerance };
    return md_conformance_run_exact(&llama, params, subject);
}

int main(void)
{
    char path[512];
    struct md_fake_model *model;
    if (!md_exact_model_file("exact", &model, path, sizeof path))
        return 1;
    int failed = run(model, path, "llama_exact", 0, 0, md_test_bound(1e-3f));
    failed |= run(model, path, "llama_exact_flash_attention", 1, 127, 0.1f); /* as many as there can be */
    unlink(path);
    md_fake_model_close(model);
    return failed;
}
