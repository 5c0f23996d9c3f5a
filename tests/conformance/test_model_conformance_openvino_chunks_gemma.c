/* Case B120 on OpenVINO with Gemma-3-270M: a prompt of 1001 tokens, twice its window, in calls of 1001 to one. */
#include "support/suite_models.h"

enum { CELLS = 1792, BATCH = 1024 };

int main(void)
{
    return md_conformance_run_gemma(&md_suite_openvino, "openvino_gemma_chunks", MD_PART_CHUNKS,
                                    MD_SUITE_DENSE_CAPS, CELLS, BATCH);
}
