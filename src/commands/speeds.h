/* speeds.h - how fast this machine prefilled a model last time, kept in a small file between runs, so that
 * `plan` can say how long a whole window takes.  No word of any prompt is in it.
 *
 * Threads: one at a time; processes replace the file as a whole (the last writer wins). */
#ifndef MD_COMMANDS_SPEEDS_H
#define MD_COMMANDS_SPEEDS_H

#include "commands/sizing.h"
#include "policy/choice.h"

/* Tokens per second; 0: this model was not measured here yet, or the file cannot be read. */
double md_speeds_find(const char *data_root, const struct md_sizing *s);
/* Remember a measurement.  Less than 256 tokens say nothing and are ignored; so is a file that cannot be
 * written (logged when verbose). */
void md_speeds_note(const char *data_root, const char *key, int64_t tokens, int64_t ns);
/* The short measurement that --engine auto goes by, under a key of its own.  Zeroes: there is none. */
struct md_choice_speed md_speeds_find_short(const char *data_root, const char *key);
void md_speeds_note_short(const char *data_root, const char *key, struct md_choice_speed speed);
/* What a speed belongs to: engine, model file, device, and the share of --xattention, where there is one.  Caller's buffer. */
void md_speeds_key(const struct md_sizing *s, char *out, size_t out_bytes);

#endif
