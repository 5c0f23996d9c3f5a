/* choose.h - --engine auto: which engine opens this model.  What decides is policy/choice.h; here the engines are asked
 * whether they take model, options and window, and how fast they are.
 *
 * Threads: the main thread, before anything is open. */
#ifndef MD_COMMANDS_CHOOSE_H
#define MD_COMMANDS_CHOOSE_H

#include "commands/options.h"
#include "engine/backend.h"

/* Put the engine's name into o->engine and why it is taken into o->engine_choice, where "auto" is asked for; else do
 * nothing.  Of engines that take the model each is measured once, 256 tokens read and 8 written, unless that was done
 * before (speeds.h); which means that each opens the model for a moment, one after the other.  One that fails then is not
 * taken.  The choice is logged.
 *
 * A measurement holds for a file by its name, size and time of change, not by its content (md_gguf_fingerprint): that
 * reads the whole file, and `plan` asks here too and shall load nothing.  Who writes other weights of the same size into
 * a file and sets its time back gets the speed of the old ones: the choice may be the slower one then, and nothing else
 * depends on it.  What tells KV apart goes by content.
 *
 * measure  false: only by what was measured before; it loads nothing
 *          where no engine takes it and nothing can be planned the other's reason is logged all the same
 * Errors: none of its own: where no engine takes the model the first one will say why, when it is opened; why the other
 * does not is in the choice. */
MD_MUST_USE enum md_status md_choose_engine(struct md_options *o, const struct md_backend *backends,
                                            bool measure, struct md_err *err);

#endif
