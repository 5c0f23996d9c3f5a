/* The suite on OpenVINO with KV in memory of the library's, of which whole blocks are copied out and in: as on a device that
 * is not the processor, with the processor's tensors.  The exact model, f32: the reference pass knows the answer. */
#include "adapters/openvino/ov_engine.h"
#include "support/exact_model.h"
#include "support/suite_models.h"

#include <unistd.h>

static enum md_status open_pooled(const struct md_open_params *params, struct md_engine **ret_engine,
                                  struct md_text **ret_text, struct md_err *err)
{
    if (ret_text != NULL)
        *ret_text = NULL;
    return md_ov_engine_open(params, true, ret_engine, err);
}

int main(void)
{
    static const struct md_backend backend = { .name = "openvino", .open = open_pooled };
    struct md_suite_engine of = md_suite_openvino;
    char path[512];
    struct md_fake_model *model;
    of.backend = &backend;
    if (!md_exact_model_file("pooled", &model, path, sizeof path))
        return 1;
    const struct md_open_params params = {
        .model_path = path, .flash_attn = -1, .type_k = "f32", .type_v = "f32"
    };
    const struct md_subject subject = { .name = "openvino_pooled",
                                        .model = model,
                                        .small = true,
                                        .reference_tolerance = 1e-3f,
                                        .turned_tolerance = 1e-3f,
                                        .moved_tolerance = 1e-3f };
    const int failed = md_conformance_run_exact(&of, params, subject);
    unlink(path);
    md_fake_model_close(model);
    return failed;
}
