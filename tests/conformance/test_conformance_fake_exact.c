/* The suite on the fake engine with a model of the exact one's size; without the walks (test_conformance_fake_walks.c). */
#include "support/conformance_fake.h"

int main(void)
{
    return md_conformance_fake_exact(MD_PART_STEPS);
}
