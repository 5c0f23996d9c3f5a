/* The suite on the fake engine with models that have a tail state; without the walks (test_conformance_fake_walks.c). */
#include "support/conformance_fake.h"

int main(void)
{
    return md_conformance_fake_tails(MD_PART_STEPS);
}
