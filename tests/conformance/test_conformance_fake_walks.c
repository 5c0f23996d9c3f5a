/* The random walks of the suite on the fake engine, with all its models. */
#include "support/conformance_fake.h"

int main(void)
{
    int failed = md_conformance_fake_dense(MD_PART_WALKS);
    failed |= md_conformance_fake_exact(MD_PART_WALKS);
    failed |= md_conformance_fake_tails(MD_PART_WALKS);
    return failed;
}
