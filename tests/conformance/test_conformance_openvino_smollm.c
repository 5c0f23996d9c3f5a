/* The suite on OpenVINO with SmolLM2, with f32 KV (why: support/suite_openvino.c).  Its weights have 4 bits, all else is
 * computed in f32: what other batchings do is measured, as for llama.cpp, and is some 5e-5. */
#include "support/suite_models.h"

int main(void)
{
    return md_conformance_run_smollm(&md_suite_openvino, "openvino_smollm", MD_SUITE_DENSE_CAPS);
}
