/* conformance_fake.h - the fake engine as a subject of the suite (conformance.h), in all the ways it can be opened: exact to
 * the last bit whatever moved.
 *
 * Together they take a minute of a busy machine, so they are told apart. */
#ifndef MD_TESTS_CONFORMANCE_FAKE_H
#define MD_TESTS_CONFORMANCE_FAKE_H

#include "support/conformance.h"

/* A small dense model, with all capabilities and with some; one of the exact model's size; those with a tail state.
 * Return 0, or 1 when a scenario failed. */
int md_conformance_fake_dense(enum md_conformance_part part);
int md_conformance_fake_exact(enum md_conformance_part part);
int md_conformance_fake_tails(enum md_conformance_part part);

#endif
