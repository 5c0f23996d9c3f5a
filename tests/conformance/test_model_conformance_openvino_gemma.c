/* The suite on OpenVINO with Gemma-3-270M: windows of 512 tokens on 15 of 18 layers, of which all rows are kept: no tail
 * state, so that there are more scenarios than on llama.cpp.  What rounding does is measured as for llama.cpp. */
#include "support/suite_models.h"

enum { CELLS = 1536, CALL = 1024 };

int main(void)
{
    return md_conformance_run_gemma(&md_suite_openvino, "openvino_gemma", MD_PART_ALL, MD_SUITE_DENSE_CAPS,
                                    CELLS, CALL);
}
