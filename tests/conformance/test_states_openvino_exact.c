/* test_states_openvino_exact.c - the suite of conversations (support/states_suite.h) on OpenVINO, which has no tail state and
 * can go back anywhere: with the exact model, and with a tiny one whose windows have 32 tokens; f32 weights and KV. */
#include "support/suite_models.h"

int main(void)
{
    static const struct md_tiny_model *const windowed = &md_tiny_windowed;
    const int exact = md_states_run_exact(&md_suite_openvino, "states_openvino_exact", -1);
    return md_states_run_tiny(&md_suite_openvino_tiny, &windowed, 1) | exact;
}
