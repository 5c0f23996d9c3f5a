/* conformance_tails.h - tiny models in f32 that have a tail state as subjects of the suite (conformance.h): windows beside
 * attention that sees everything, recurrent layers beside it and beside windows, and recurrent layers alone.  What they
 * compute is compared with runs that did nothing else. */
#ifndef MD_TESTS_CONFORMANCE_TAILS_H
#define MD_TESTS_CONFORMANCE_TAILS_H

#include "engine/backend.h"
#include "support/conformance.h"

enum md_conformance_models { MD_MODELS_ALL, MD_MODELS_WINDOWED, MD_MODELS_OTHERS };

/* Returns 0, or 1 when a scenario failed. */
int md_conformance_tails(const struct md_backend *backend, enum md_conformance_models which,
                         enum md_conformance_part part);

#endif
