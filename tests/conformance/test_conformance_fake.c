/* The suite on the fake engine with a dense model; without the walks (test_conformance_fake_walks.c). */
#include "support/conformance_fake.h"

int main(void)
{
    return md_conformance_fake_dense(MD_PART_STEPS);
}
