/* The suite on llama.cpp with SmolLM2, a 4-bit model: what a real model adds is rounding, so that a batch
 * boundary alone moves the logits; what must be identical still is. */
#include "adapters/llama/llama_backend.h"
#include "support/suite_models.h"

int main(void)
{
    return md_conformance_run_smollm(&(struct md_suite_engine){ .backend = &md_backend_llama },
                                     "llama_smollm", MD_SUITE_DENSE_CAPS);
}
