/* test_options.c - sizes, the flags of the commands that plan, the names of contenox, modeld.json. */
#include "commands/config.h"
#include "commands/options.h"
#include "host/memory.h"
#include "host/paths.h"
#include "support/run_suite.h"
#include "support/temp_folder.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[256];

static void setup(void)
{
    md_temp_folder(folder, sizeof folder, "options");
    clearenv(); /* whatever the caller's shell sets */
}

static void teardown(void)
{
    md_temp_folder_remove(folder);
}

/* ---- sizes ---- */

START_TEST(size_units)
{
    static const struct {
        const char *text;
        int64_t bytes;
    } rows[] = {
        { "0", 0 },
        { "1024", 1024 },
        { "1b", 1 },
        { "7B", 7 },
        { "1k", 1000 },
        { "1KB", 1000 },
        { "1ki", 1024 },
        { "1KiB", 1024 },
        { "3m", 3000000 },
        { "3mB", 3000000 },
        { "3Mi", 3145728 },
        { "3MIB", 3145728 },
        { "8G", 8000000000 },
        { "2GB", 2000000000 }, /* contenox's test of ParseBytes has this one and the two below */
        { "1.5GiB", 1610612736 },
        { "8gi", 8589934592 },
        { "1t", 1000000000000 },
        { "2TB", 2000000000000 },
        { "1Ti", 1099511627776 },
        { "1tib", 1099511627776 },
        { " 8GiB\t", 8589934592 },
        { "0.5k", 500 },
        { "25%", 250 }, /* of 1000 */
        { "0%", 0 },
        { "100%", 1000 },
        { "12.5 ", 12 },
        { "8589934593", 8589934593 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t got = -7;
        struct md_err err = { .text = "" };
        ck_assert_msg(md_parse_size(rows[i].text, 1000, &got, &err) == MD_OK, "'%s': %s", rows[i].text,
                      err.text);
        ck_assert_msg(got == rows[i].bytes, "'%s': %" PRId64, rows[i].text, got);
    }
}
END_TEST

START_TEST(size_refusals)
{
    static const char *const texts[] = {
        "",
        " ",
        "-1",
        "+1",
        "-0",
        "0x10",
        "1e3",
        "inf",
        "nan",
        "G",
        "GiB",
        "1 GiB",
        "8Q",
        "8GG",
        "8iB",
        "8gibi",
        "1.2.3",
        ".5",
        "5%%",
        "101%",
        "-5%",
        "1%B",
        "99999999999T",
        "0.4",
        "0.0001k",
        "1,5G",
        "8G iB",
        "1_000",
        "1e3%",
        "0x1p3",
        "infinity",
        "00000000000000000000000000000000000000000000000000000000000000000000001",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        int64_t got = -7;
        struct md_err err = { .text = "" };
        ck_assert_msg(md_parse_size(texts[i], 1000, &got, &err) == MD_INVALID, "'%s': %" PRId64, texts[i],
                      got);
        ck_assert_msg(got == -7 && err.text[0] == '\'', "'%s': '%s'", texts[i], err.text);
    }
    int64_t bytes;
    ck_assert_int_eq(md_parse_size("many", 1, &bytes, NULL), MD_INVALID);
}
END_TEST

/* ---- the command line ---- */

/* `words` are separated by single blanks; "_" stands for an empty one. */
static enum md_status parse(enum md_command_bit command, const char *words, struct md_options *o,
                            struct md_err *err)
{
    static char text[1024]; /* the options borrow from it */
    static char *argv[32];
    int argc = 1;
    argv[0] = (char *)"verb";
    snprintf(text, sizeof text, "%s", words);
    for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " "))
        argv[argc++] = strcmp(word, "_") == 0 ? word + 1 : word;
    return md_options_parse(argc, argv, command, o, err);
}

static struct md_options parse_ok(enum md_command_bit command, const char *words)
{
    struct md_options o;
    struct md_err err;
    ck_assert_msg(parse(command, words, &o, &err) == MD_OK, "%s: %s", words, err.text);
    return o;
}

static void assert_refused(enum md_command_bit command, const char *words, const char *says)
{
    struct md_options o;
    struct md_err err;
    ck_assert_msg(parse(command, words, &o, &err) == MD_INVALID, "%s", words);
    ck_assert_msg(strstr(err.text, says) != NULL, "%s: '%s' lacks '%s'", words, err.text, says);
}

START_TEST(b030_every_count_on_the_command_line)
{
    static const struct {
        enum md_command_bit command;
        const char *flag, *name;
    } rows[] = {
        { MD_CMD_PLAN, "-c", "--ctx-size" },
        { MD_CMD_PLAN, "--hot", "--hot" },
        { MD_CMD_PLAN, "-b", "--batch-size" },
        { MD_CMD_PLAN, "-ub", "--ubatch-size" },
        { MD_CMD_PLAN, "-ngl", "--gpu-layers" },
        { MD_CMD_PLAN, "--seq-max", "--seq-max" },
        { MD_CMD_PLAN, "--min-hot-context", "--min-hot-context" },
        { MD_CMD_RUN, "-c", "--ctx-size" },
        { MD_CMD_RUN, "-t", "--threads" },
        { MD_CMD_SERVE, "--min-hot-context", "--min-hot-context" },
    };
    /* the case's own values */
    static const char *const bad[] = { "-1",  "4294967296", "9223372036854775808", "4096abc", "_",
                                       "1e3", "0x100" };
    char words[128];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (size_t n = 0; n < sizeof bad / sizeof bad[0]; n++) {
            snprintf(words, sizeof words, "%s %s", rows[i].flag, bad[n]);
            assert_refused(rows[i].command, words, rows[i].name);
        }
        snprintf(words, sizeof words, "%s 0", rows[i].flag);
        parse_ok(rows[i].command, words);
        snprintf(words, sizeof words, "%s 1", rows[i].flag);
        parse_ok(rows[i].command, words);
    }
    ck_assert_int_eq(parse_ok(MD_CMD_PLAN, "-c 2147483647").ctx_size, INT32_MAX);
    assert_refused(MD_CMD_PLAN, "-c 2147483648", "2147483647");
    ck_assert_int_eq(parse_ok(MD_CMD_PLAN, "--seq-max 256").seq_max, 256);
    assert_refused(MD_CMD_PLAN, "--seq-max 257", "256");
}
END_TEST

START_TEST(defaults_derive)
{
    struct md_options o = parse_ok(MD_CMD_PLAN, "");
    ck_assert(o.mem_max == 0 && o.mem_reserve == 0 && o.mem_cold == -1 && o.min_hot_context == -1);
    ck_assert(o.mem_headroom <= 0 && o.seq_max == 0 && o.budget == 0 && !o.swa_full && o.mmproj == NULL);
    ck_assert(o.model == NULL && o.ctx_size == 0);
    for (size_t i = 0; i < MD_OPTION_ROWS_MAX; i++)
        ck_assert(!o.given[i]);
    ck_assert_int_eq(parse_ok(MD_CMD_PLAN, "--min-hot-context 0").min_hot_context, 0);
}
END_TEST

START_TEST(memory_flags)
{
    struct md_options o =
        parse_ok(MD_CMD_PLAN, "--mem-max 8GiB --mem-reserve=2GB --mem-cold 0 --mem-headroom 0.25 "
                              "--budget 23040000 --swa-full on --mmproj p.gguf --json m.gguf");
    ck_assert(o.mem_max == 8589934592 && o.mem_reserve == 2000000000 && o.mem_cold == 0);
    ck_assert(o.mem_headroom > 0.2499 && o.mem_headroom < 0.2501);
    ck_assert(o.budget == 23040000 && o.swa_full && o.json);
    ck_assert_str_eq(o.mmproj, "p.gguf");
    ck_assert_str_eq(o.model, "m.gguf");
    static const char *const shares[] = { "0", "1", "-0.1", "1.5", "nan", "_", "10%", ".5x", "inf" };
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        char words[64];
        snprintf(words, sizeof words, "--mem-headroom %s", shares[i]);
        assert_refused(MD_CMD_DOCTOR, words, "--mem-headroom must be a number from");
    }
    assert_refused(MD_CMD_SERVE, "--mem-max 8GG", "--mem-max: '8GG' is not a size");
    assert_refused(MD_CMD_SERVE, "--mem-reserve -1", "--mem-reserve: '-1' is not a size");
    assert_refused(MD_CMD_SERVE, "--swa-full", "--swa-full needs a value");
    assert_refused(MD_CMD_SERVE, "--swa-full perhaps", "--swa-full must be on or off");
    struct md_host_memory memory; /* "%" is of what is available, which changes while this runs */
    ck_assert_int_eq(md_host_memory(NULL, &memory, NULL), MD_OK);
    o = parse_ok(MD_CMD_DOCTOR, "--mem-max 50%");
    ck_assert(o.mem_max > memory.available_bytes / 4 && o.mem_max < memory.total_bytes);
}
END_TEST

/* The same words on the command line and in the environment, for switches with a value and without. */
START_TEST(switches)
{
    static const char *const words[][2] = { { "on", "off" }, { "1", "0" },    { "true", "false" },
                                            { "yes", "no" }, { "ON", "Off" }, { "True", "FALSE" } };
    static const char *const bad[] = { "2", "01", "y", "onn", "enabled", "-1", " on" };
    char line[64];
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        for (int off = 0; off < 2; off++) {
            snprintf(line, sizeof line, "--past-window=%s --swa-full %s", words[i][off], words[i][off]);
            struct md_options o = parse_ok(MD_CMD_SERVE, line);
            ck_assert(o.past_window == !off && o.swa_full == !off);
            setenv("MODELD_PAST_WINDOW", words[i][off], 1);
            setenv("MODELD_RESIDENCY", words[i][off], 1);
            o = parse_ok(MD_CMD_SERVE, "");
            ck_assert(o.past_window == !off && o.residency == !off);
        }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        setenv("MODELD_PAST_WINDOW", bad[i], 1);
        assert_refused(MD_CMD_SERVE, "", "MODELD_PAST_WINDOW: --past-window must be on or off");
    }
    unsetenv("MODELD_PAST_WINDOW");
    unsetenv("MODELD_RESIDENCY");
}
END_TEST

START_TEST(a_share_or_off)
{
    static const char *const bad[] = { "0",  "1.5",  "-0.1", "nan",  "inf",
                                       "on", "0.9x", " 0.9", "1e-9", "0x1p-1" };
    static const enum md_command_bit commands[] = { MD_CMD_SERVE, MD_CMD_RUN,  MD_CMD_CHAT,
                                                    MD_CMD_BENCH, MD_CMD_PLAN, MD_CMD_EVAL };
    char line[64];
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        ck_assert(parse_ok(commands[i], "").xattention == 0);
        ck_assert(parse_ok(commands[i], "--xattention 0.9").xattention == 0.9);
        ck_assert(parse_ok(commands[i], "--xattention 1").xattention == 1);
        ck_assert(parse_ok(commands[i], "--xattention 0.9 --xattention OFF").xattention == 0);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        setenv("MODELD_XATTENTION", bad[i], 1);
        assert_refused(MD_CMD_RUN, "", "MODELD_XATTENTION: --xattention must be off, or a share above 0");
        unsetenv("MODELD_XATTENTION");
        snprintf(line, sizeof line, "--xattention=%s", bad[i]);
        if (strchr(bad[i], ' ') == NULL) /* the line is cut at blanks */
            assert_refused(MD_CMD_RUN, line,
                           "--xattention must be off, or a share above 0 and up to 1, got '");
    }
    assert_refused(MD_CMD_RUN, "--xattention=", "got ''");
    assert_refused(MD_CMD_SHOW, "--xattention 0.9", "not a flag of this command");
    setenv("MODELD_XATTENTION", "0.9", 1);
    ck_assert(parse_ok(MD_CMD_RUN, "").xattention == 0.9);
    ck_assert(parse_ok(MD_CMD_RUN, "--xattention off").xattention == 0);
    unsetenv("MODELD_XATTENTION");
}
END_TEST

START_TEST(rope_flags)
{
    struct md_options o = parse_ok(MD_CMD_SERVE, "");
    ck_assert(o.rope_scaling[0] == '\0' && o.rope_scale == 0 && o.rope_freq_base == 0 &&
              o.rope_freq_scale == 0);
    ck_assert(o.yarn_orig_ctx == 0 && o.yarn_ext_factor < 0 && o.yarn_attn_factor == 0);
    ck_assert(o.yarn_beta_fast == 0 && o.yarn_beta_slow == 0);
    static const enum md_command_bit commands[] = { MD_CMD_SERVE, MD_CMD_RUN, MD_CMD_CHAT, MD_CMD_BENCH,
                                                    MD_CMD_PLAN };
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        o = parse_ok(commands[i], "--rope-scaling yarn --rope-scale 4 --rope-freq-base 1e6 "
                                  "--yarn-orig-ctx 8192 --yarn-ext-factor 0 --yarn-attn-factor 1.5 "
                                  "--yarn-beta-fast 16 --yarn-beta-slow 2");
        ck_assert_str_eq(o.rope_scaling, "yarn");
        ck_assert(o.rope_scale == 4 && o.rope_freq_base == 1e6 && o.yarn_orig_ctx == 8192);
        ck_assert(o.yarn_ext_factor == 0 && o.yarn_attn_factor == 1.5);
        ck_assert(o.yarn_beta_fast == 16 && o.yarn_beta_slow == 2);
    }
    ck_assert(parse_ok(MD_CMD_PLAN, "--rope-freq-scale 0.25").rope_freq_scale == 0.25);
    assert_refused(MD_CMD_SHOW, "--rope-scale 2", "--rope-scale is not a flag of this command");
    static const char *const bad[][2] = {
        { "--rope-scale", "0.5" },      { "--rope-scale", "1025" },     { "--rope-scale", "nan" },
        { "--rope-scale", "inf" },      { "--rope-scale", "-2" },       { "--rope-scale", "4x" },
        { "--rope-freq-scale", "0" },   { "--rope-freq-scale", "1.5" }, { "--rope-freq-base", "-10000" },
        { "--rope-freq-base", "1e13" }, { "--yarn-orig-ctx", "0" },     { "--yarn-orig-ctx", "1e3" },
        { "--yarn-ext-factor", "-1" },  { "--yarn-ext-factor", "1.1" }, { "--yarn-attn-factor", "0" },
        { "--yarn-beta-fast", "-1" },   { "--yarn-beta-slow", "1001" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char words[64];
        snprintf(words, sizeof words, "%s %s", bad[i][0], bad[i][1]);
        assert_refused(MD_CMD_PLAN, words, bad[i][0]);
    }
}
END_TEST

START_TEST(which_flag_goes_where)
{
    enum {
        SESSION = MD_CMD_SERVE | MD_CMD_RUN | MD_CMD_CHAT,
        PLAN = MD_CMD_PLAN,
        DOCTOR = MD_CMD_DOCTOR,
        SHOW = MD_CMD_SHOW,
        BENCH = MD_CMD_BENCH
    };
    static const struct {
        const char *words;
        unsigned commands;
    } rows[] = {
        { "-m x", SESSION | BENCH | PLAN | SHOW },
        { "--engine x", SESSION | BENCH | PLAN | SHOW | DOCTOR },
        { "-c 1", SESSION | BENCH | PLAN },
        { "-ub 1", SESSION | BENCH | PLAN },
        { "-b 1", SESSION | BENCH | PLAN },
        { "-fa on", SESSION | BENCH | PLAN },
        { "-ctk f16", SESSION | BENCH | PLAN },
        { "-ctv f16", SESSION | BENCH | PLAN },
        { "-ngl 1", SESSION | BENCH | PLAN },
        { "-t 1", SESSION | BENCH | PLAN },
        { "--device x", SESSION | BENCH | PLAN },
        { "--hot 1", SESSION | PLAN },
        { "--seq-max 1", PLAN },
        { "--budget 1", PLAN },
        { "--mmproj x", PLAN },
        { "--swa-full on", SESSION | PLAN },
        { "--mem-max 1", SESSION | PLAN | DOCTOR },
        { "--mem-reserve 1", SESSION | PLAN | DOCTOR },
        { "--mem-cold 1", SESSION | PLAN | DOCTOR },
        { "--mem-headroom 0.5", SESSION | PLAN | DOCTOR },
        { "--min-hot-context 1", SESSION | PLAN },
        { "--json", MD_CMD_RUN | BENCH | PLAN | SHOW | DOCTOR },
        { "--data-root x", SESSION | BENCH | PLAN | SHOW | DOCTOR },
        { "-v", SESSION | BENCH | PLAN | SHOW | DOCTOR },
        { "-h", SESSION | BENCH | PLAN | SHOW | DOCTOR },
        { "--temp 1", SESSION },
        { "x.gguf", PLAN | SHOW },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (unsigned bit = MD_CMD_SERVE; bit <= MD_CMD_DOCTOR; bit <<= 1) {
            struct md_options o;
            enum md_status s = parse((enum md_command_bit)bit, rows[i].words, &o, NULL);
            ck_assert_msg((s == MD_OK) == ((rows[i].commands & bit) != 0), "%s, command %u", rows[i].words,
                          bit);
        }
}
END_TEST

START_TEST(one_model_once)
{
    ck_assert_str_eq(parse_ok(MD_CMD_SHOW, "a.gguf --json").model, "a.gguf");
    ck_assert_str_eq(parse_ok(MD_CMD_PLAN, "-c 512 a.gguf").model, "a.gguf");
    assert_refused(MD_CMD_PLAN, "a.gguf b.gguf", "two models, 'a.gguf' and 'b.gguf'");
    assert_refused(MD_CMD_PLAN, "a.gguf -m b.gguf", "two models, --model 'b.gguf' and 'a.gguf'");
    assert_refused(MD_CMD_SHOW, "-m b.gguf a.gguf", "two models, --model 'b.gguf' and 'a.gguf'");
    assert_refused(MD_CMD_DOCTOR, "a.gguf", "unexpected argument 'a.gguf'");
    assert_refused(MD_CMD_RUN, "a.gguf", "unexpected argument 'a.gguf'");
    ck_assert_int_eq(setenv("MODELD_MODEL", "env.gguf", 1), 0);
    ck_assert_str_eq(parse_ok(MD_CMD_PLAN, "").model, "env.gguf");
    ck_assert_str_eq(parse_ok(MD_CMD_PLAN, "a.gguf").model, "a.gguf");
    ck_assert_str_eq(parse_ok(MD_CMD_PLAN, "-m b.gguf").model, "b.gguf");
}
END_TEST

/* ---- the environment ---- */

static void set_contenox(void)
{
    static const char *const pairs[][2] = {
        { "CONTENOX_MODELD_MEM_MAX", "8GiB" },      { "CONTENOX_MODELD_MEM_RESERVE", "2GiB" },
        { "CONTENOX_MODELD_MEM_COLD", "16GiB" },    { "CONTENOX_MODELD_MEM_HEADROOM", "0.15" },
        { "CONTENOX_MODELD_MIN_HOT_CONTEXT", "0" }, { "CONTENOX_LLAMA_CTX", "8192" },
        { "CONTENOX_LLAMA_KV_CACHE_TYPE", "q8_0" }, { "CONTENOX_LLAMA_GPU_LAYERS", "7" },
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        ck_assert_int_eq(setenv(pairs[i][0], pairs[i][1], 1), 0);
}

START_TEST(names_of_contenox)
{
    set_contenox();
    struct md_options o = parse_ok(MD_CMD_PLAN, "");
    ck_assert(o.mem_max == 8589934592 && o.mem_reserve == 2147483648 && o.mem_cold == 17179869184);
    ck_assert(o.mem_headroom > 0.1499 && o.mem_headroom < 0.1501 && o.min_hot_context == 0);
    ck_assert(o.ctx_size == 8192 && o.gpu_layers == 7);
    ck_assert_str_eq(o.type_k, "q8_0");
    ck_assert_str_eq(o.type_v, "q8_0");
    o = parse_ok(MD_CMD_SHOW, ""); /* has no flag for any of them */
    ck_assert(o.mem_max == 0 && o.ctx_size == 0 && o.type_k == NULL);
    ck_assert_int_eq(setenv("MODELD_MEM_MAX", "1GiB", 1), 0);
    ck_assert_int_eq(setenv("MODELD_CACHE_TYPE_V", "f16", 1), 0);
    o = parse_ok(MD_CMD_PLAN, "--mem-reserve 3GiB");
    ck_assert(o.mem_max == 1073741824 && o.mem_reserve == 3221225472);
    ck_assert_str_eq(o.type_k, "q8_0");
    ck_assert_str_eq(o.type_v, "f16");
}
END_TEST

START_TEST(bad_values_in_the_environment_are_refused)
{
    static const char *const rows[][3] = {
        { "CONTENOX_MODELD_MEM_MAX", "8Q", "environment variable CONTENOX_MODELD_MEM_MAX: --mem-max: '8Q'" },
        { "CONTENOX_MODELD_MEM_HEADROOM", "1", "environment variable CONTENOX_MODELD_MEM_HEADROOM" },
        { "CONTENOX_MODELD_MIN_HOT_CONTEXT", "-1", "environment variable CONTENOX_MODELD_MIN_HOT_CONTEXT" },
        { "CONTENOX_LLAMA_CTX", "", "environment variable CONTENOX_LLAMA_CTX" },
        { "MODELD_SEQ_MAX", "300", "environment variable MODELD_SEQ_MAX" },
        { "MODELD_SWA_FULL", "2", "environment variable MODELD_SWA_FULL" },
        { "MODELD_MEM_RESERVE", "", "environment variable MODELD_MEM_RESERVE: --mem-reserve: ''" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ck_assert_int_eq(setenv(rows[i][0], rows[i][1], 1), 0);
        assert_refused(MD_CMD_PLAN, "m.gguf", rows[i][2]);
        ck_assert_int_eq(unsetenv(rows[i][0]), 0);
    }
    parse_ok(MD_CMD_PLAN, "m.gguf");
}
END_TEST

START_TEST(a_size_of_zero_in_contenox_names_is_not_given)
{
    ck_assert_int_eq(setenv("CONTENOX_MODELD_MEM_COLD", "0", 1), 0);
    ck_assert_int_eq(parse_ok(MD_CMD_PLAN, "").mem_cold, -1);
    ck_assert_int_eq(setenv("MODELD_MEM_COLD", "0", 1), 0);
    ck_assert_int_eq(parse_ok(MD_CMD_PLAN, "").mem_cold, 0);
}
END_TEST

/* ---- modeld.json ---- */

static void write_config(const char *text, size_t len)
{
    char path[300];
    snprintf(path, sizeof path, "%s/modeld.json", folder);
    FILE *f = fopen(path, "w");
    ck_assert_msg(f != NULL, "%s: %s", path, strerror(errno));
    ck_assert_uint_eq(fwrite(text, 1, len, f), len);
    fclose(f);
}

/* `words` on the command line, `text` in the file. */
static enum md_status read_config(const char *text, enum md_command_bit command, const char *words,
                                  struct md_options *o, struct md_err *err)
{
    char all[512];
    write_config(text, strlen(text));
    snprintf(all, sizeof all, "%s --data-root %s", words, folder);
    *o = parse_ok(command, all);
    return md_options_read_file(command, o, err);
}

static struct md_options config_ok(const char *text, enum md_command_bit command, const char *words)
{
    struct md_options o;
    struct md_err err;
    ck_assert_msg(read_config(text, command, words, &o, &err) == MD_OK, "%s: %s", text, err.text);
    return o;
}

/* every key, with the values of the file's description */
static const char whole[] =
    "{\"memory\":{\"max_resident_bytes\":1,\"min_free_bytes\":2,\"host_cold_budget_bytes\":3,"
    "\"min_hot_context_tokens\":5000,\"max_resident\":\"8GiB\",\"reserve_free\":\"2GiB\","
    "\"host_cold_budget\":\"16GiB\",\"headroom_frac\":0.15},\"idle\":{\"ttl\":\"5m\"}}";

START_TEST(file_texts_win_over_numbers)
{
    struct md_options o = config_ok(whole, MD_CMD_PLAN, "");
    ck_assert(o.mem_max == 8589934592 && o.mem_reserve == 2147483648 && o.mem_cold == 17179869184);
    ck_assert(o.mem_headroom > 0.1499 && o.mem_headroom < 0.1501 && o.min_hot_context == 5000);
    /* whichever stands first */
    o = config_ok("{\"memory\":{\"max_resident\":\"8GiB\",\"max_resident_bytes\":5}}", MD_CMD_PLAN, "");
    ck_assert_int_eq(o.mem_max, 8589934592);
    o = config_ok("{\"memory\":{\"max_resident_bytes\":123456789012,\"max_resident\":\"0\"}}", MD_CMD_PLAN,
                  "");
    ck_assert_int_eq(o.mem_max, 123456789012); /* zero is as if it were not there */
}
END_TEST

START_TEST(file_is_below_environment_and_flags)
{
    ck_assert_int_eq(setenv("CONTENOX_MODELD_MEM_RESERVE", "3GiB", 1), 0);
    ck_assert_int_eq(setenv("MODELD_MIN_HOT_CONTEXT", "0", 1), 0);
    struct md_options o = config_ok(whole, MD_CMD_PLAN, "--mem-max 1GiB --mem-cold=0");
    ck_assert(o.mem_max == 1073741824 && o.mem_reserve == 3221225472 && o.min_hot_context == 0);
    ck_assert(o.mem_headroom > 0.1499);
    ck_assert_int_eq(o.mem_cold, 0);
}
END_TEST

START_TEST(file_sets_only_what_the_command_has)
{
    struct md_options o = config_ok(whole, MD_CMD_DOCTOR, "");
    ck_assert(o.mem_max == 8589934592 && o.min_hot_context == -1);
    o = config_ok(whole, MD_CMD_SHOW, "");
    ck_assert(o.mem_max == 0 && o.mem_cold == -1);
}
END_TEST

START_TEST(file_of_rope)
{
    static const char text[] =
        "{\"rope\":{\"scaling\":\"yarn\",\"scale\":4,\"freq_base\":500000.5,\"yarn_orig_ctx\":8192,"
        "\"yarn_ext_factor\":0,\"yarn_attn_factor\":1.25,\"yarn_beta_fast\":16,\"yarn_beta_slow\":2}}";
    struct md_options o = config_ok(text, MD_CMD_BENCH, "");
    ck_assert_str_eq(o.rope_scaling, "yarn");
    ck_assert(o.rope_scale == 4 && o.rope_freq_base == 500000.5 && o.yarn_orig_ctx == 8192);
    ck_assert(o.yarn_ext_factor == 0 && o.yarn_attn_factor == 1.25);
    ck_assert(o.yarn_beta_fast == 16 && o.yarn_beta_slow == 2);
    o = config_ok(text, MD_CMD_PLAN, "--rope-scaling linear --rope-scale 2");
    ck_assert_str_eq(o.rope_scaling, "linear");
    ck_assert(o.rope_scale == 2 && o.yarn_orig_ctx == 8192);
    ck_assert(config_ok("{\"rope\":{\"freq_scale\":0.25}}", MD_CMD_PLAN, "").rope_freq_scale == 0.25);
    ck_assert_str_eq(config_ok(text, MD_CMD_SHOW, "").rope_scaling, "");
}
END_TEST

START_TEST(file_zero_and_off)
{
    struct md_options o = config_ok("{\"memory\":{\"max_resident_bytes\":0,\"host_cold_budget_bytes\":0,"
                                    "\"host_cold_budget\":\"0GiB\",\"min_hot_context_tokens\":0}}",
                                    MD_CMD_PLAN, "");
    ck_assert(o.mem_max == 0 && o.mem_cold == -1 && o.min_hot_context == 0);
    o = config_ok("{\"memory\":{\"min_hot_context_tokens\":-1}}", MD_CMD_PLAN, "");
    ck_assert_int_eq(o.min_hot_context, 0);
    o = config_ok("{\"memory\":{\"min_hot_context_tokens\":-9223372036854775808}}", MD_CMD_PLAN, "");
    ck_assert_int_eq(o.min_hot_context, 0);
    o = config_ok("{}", MD_CMD_PLAN, "");
    ck_assert_int_eq(o.min_hot_context, -1);
    o = config_ok(" { \"memory\" : { } , \"idle\" : {} }\n", MD_CMD_PLAN, "");
    ck_assert_int_eq(o.mem_max, 0);
}
END_TEST

START_TEST(file_refusals)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        { "", "is empty" },
        { "{", "is not JSON: line 1" },
        { "{\n\"memory\": {,}}", "is not JSON: line 2" },
        { "{\"rope\":{\"scaling\":4}}", "rope.scaling must be a word, found 4" },
        { "{\"rope\":{\"scaling\":\"\"}}", "rope.scaling must be a word" },
        { "{\"rope\":{\"scale\":\"4\"}}", "rope.scale must be a number, found '4'" },
        { "{\"rope\":{\"scale\":0.5}}",
          "rope.scale: --rope-scale must be a number from 1 to 1024, got '0.5'" },
        { "{\"rope\":{\"yarn_orig_ctx\":4096.5}}", "rope.yarn_orig_ctx must be a whole number" },
        { "{\"rope\":{\"base\":1}}", "unknown key 'rope.base'" },
        { "{} x", "is not JSON" },
        { "{\"memory\":{},}", "is not JSON" },
        { "// no\n{}", "is not JSON" },
        { "[]", "must be an object, found array" },
        { "{\"memory\":[]}", "memory must be an object, found array" },
        { "{\"idle\":null}", "idle must be an object, found null" },
        { "{\"Memory\":{}}", "unknown key 'Memory'" },
        { "{\"memory\\u0000x\":{}}", "unknown key 'memory'" },
        { "{\"memory\":{\"max_residents\":1}}", "unknown key 'memory.max_residents'" },
        { "{\"memory\":{\"ttl\":\"5m\"}}", "unknown key 'memory.ttl'" },
        { "{\"memory\":{\"l\":\"5m\"}}", "unknown key 'memory.l'" },
        { "{\"idle\":{\"y.max_resident\":\"1k\"}}", "unknown key 'idle.y.max_resident'" },
        { "{\"idle\":{\"max_resident\":\"5m\"}}", "unknown key 'idle.max_resident'" },
        { "{\"memory\":{},\"memory\":{}}", "memory is there twice" },
        { "{\"memory\":{\"reserve_free\":\"1k\",\"reserve_free\":\"2k\"}}",
          "memory.reserve_free is there twice" },
        { "{\"memory\":{\"max_resident_bytes\":-1}}",
          "memory.max_resident_bytes must be a whole number of bytes, found -1" },
        { "{\"memory\":{\"max_resident_bytes\":1e9}}",
          "memory.max_resident_bytes must be a whole number of bytes, found 1e+09" },
        { "{\"memory\":{\"max_resident_bytes\":\"8GiB\"}}",
          "memory.max_resident_bytes must be a whole number of bytes, found '8GiB'" },
        { "{\"memory\":{\"max_resident_bytes\":9223372036854775808}}", "found 9223372036854775808" },
        { "{\"memory\":{\"max_resident_bytes\":99999999999999999999}}", "found 1e+20" },
        { "{\"memory\":{\"max_resident_bytes\":null,\"max_resident\":\"1k\"}}", "found null" },
        { "{\"memory\":{\"max_resident\":8}}",
          "memory.max_resident must be a size such as \"8GiB\", found 8" },
        { "{\"memory\":{\"max_resident\":\"8GG\"}}", "memory.max_resident: '8GG' is not a size" },
        { "{\"memory\":{\"max_resident\":\"\"}}", "memory.max_resident: '' is not a size" },
        { "{\"memory\":{\"max_resident\":\"8GiB\\u0000\"}}", "memory.max_resident must be a size" },
        { "{\"memory\":{\"host_cold_budget\":\"-1\"}}", "memory.host_cold_budget: '-1' is not a size" },
        { "{\"memory\":{\"headroom_frac\":0}}",
          "memory.headroom_frac must be a number between 0 and 1, found 0" },
        { "{\"memory\":{\"headroom_frac\":1.0}}", "found 1" },
        { "{\"memory\":{\"headroom_frac\":\"0.1\"}}", "found '0.1'" },
        { "{\"memory\":{\"headroom_frac\":1e-9}}", "memory.headroom_frac: --mem-headroom must be" },
        { "{\"memory\":{\"min_hot_context_tokens\":2147483648}}", "found 2147483648" },
        { "{\"memory\":{\"min_hot_context_tokens\":4096.5}}", "found 4096.5" },
        { "{\"memory\":{\"min_hot_context_tokens\":\"off\"}}", "found 'off'" },
        { "{\"idle\":{\"ttl\":300}}", "idle.ttl must be a text, found 300" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_options o;
        struct md_err err = { .text = "" };
        ck_assert_msg(read_config(rows[i].text, MD_CMD_PLAN, "", &o, &err) == MD_INVALID, "%s", rows[i].text);
        ck_assert_msg(strstr(err.text, rows[i].says) != NULL && strstr(err.text, folder) != NULL, "%s: '%s'",
                      rows[i].text, err.text);
        ck_assert(o.mem_max == 0 && o.mem_cold == -1);
    }
    struct md_options o; /* also where the command has no flag for it */
    ck_assert_int_eq(read_config("{\"memory\":{\"max_resident\":\"8GG\"}}", MD_CMD_SHOW, "", &o, NULL),
                     MD_INVALID);
}
END_TEST

START_TEST(what_is_no_file)
{
    struct md_config c = { .count = 7 };
    struct md_err err;
    char path[300];
    snprintf(path, sizeof path, "%s/modeld.json", folder);
    ck_assert(md_config_read(path, &c, &err) == MD_OK && c.count == 0); /* missing */
    write_config("{}", 2);
    strcat(path, "/modeld.json");
    ck_assert(md_config_read(path, &c, &err) == MD_OK && c.count == 0); /* missing, below a file */
    ck_assert_int_eq(md_config_read(folder, &c, &err), MD_IO);
    ck_assert_msg(strstr(err.text, "directory") != NULL, "%s", err.text);
    snprintf(path, sizeof path, "%s/fifo", folder);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_int_eq(md_config_read(path, &c, &err), MD_IO);
    snprintf(path, sizeof path, "%s/loop", folder);
    ck_assert_int_eq(symlink("loop", path), 0);
    ck_assert_int_eq(md_config_read(path, &c, &err), MD_IO);
    ck_assert_msg(strstr(err.text, path) != NULL, "%s", err.text);
}
END_TEST

START_TEST(file_of_1_mib_at_most)
{
    static char text[MD_CONFIG_BYTES_MAX + 1];
    char path[300];
    struct md_config c;
    struct md_err err;
    snprintf(path, sizeof path, "%s/modeld.json", folder);
    memset(text, ' ', sizeof text);
    memcpy(text, "{}", 2);
    write_config(text, MD_CONFIG_BYTES_MAX);
    ck_assert_msg(md_config_read(path, &c, &err) == MD_OK, "%s", err.text);
    write_config(text, sizeof text);
    ck_assert_int_eq(md_config_read(path, &c, &err), MD_INVALID);
    ck_assert_msg(strstr(err.text, "1048577 bytes") != NULL, "%s", err.text);
    memset(text, '[', sizeof text); /* deep */
    write_config(text, MD_CONFIG_BYTES_MAX);
    ck_assert_int_eq(md_config_read(path, &c, &err), MD_INVALID);
}
END_TEST

START_TEST(where_the_file_is)
{
    char path[64], want[64];
    ck_assert_int_eq(setenv("XDG_CONFIG_HOME", "/conf", 1), 0);
    ck_assert_int_eq(setenv("HOME", "/home/u", 1), 0);
    ck_assert_int_eq(md_paths_config_file("/data", path, sizeof path, NULL), MD_OK);
    ck_assert_str_eq(path, "/data/modeld.json");
    ck_assert_int_eq(md_paths_config_file(NULL, path, sizeof path, NULL), MD_OK);
    ck_assert_str_eq(path, "/conf/modeld/modeld.json");
    ck_assert_int_eq(setenv("XDG_CONFIG_HOME", "conf", 1), 0); /* the specification: ignored */
    ck_assert_int_eq(md_paths_config_file(NULL, path, sizeof path, NULL), MD_OK);
    ck_assert_str_eq(path, "/home/u/.config/modeld/modeld.json");
    snprintf(want, sizeof want, "%052d", 0); /* with /modeld.json and the NUL: 65 */
    ck_assert_int_eq(md_paths_config_file(want, path, sizeof path, NULL), MD_INVALID);
    ck_assert_int_eq(md_paths_config_file(want + 1, path, sizeof path, NULL), MD_OK);
}
END_TEST

/* Root may write everywhere, so another user asks. */
START_TEST(a_folder_that_is_not_ours_to_write)
{
    struct md_err err;
    ck_assert_int_eq(md_paths_check_writable(folder, &err), MD_OK);
    ck_assert_int_eq(chmod(folder, 0500), 0);
    const bool root = geteuid() == 0;
    ck_assert(!root || seteuid(65534) == 0);
    ck_assert_int_eq(md_paths_check_writable(folder, &err), MD_IO);
    ck_assert(!root || seteuid(0) == 0);
    ck_assert_msg(strstr(err.text, "Permission denied") != NULL, "%s", err.text);
    ck_assert_int_eq(chmod(folder, 0700), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("options");
    TCase *t = tcase_create("options");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, size_units);
    tcase_add_test(t, size_refusals);
    tcase_add_test(t, b030_every_count_on_the_command_line);
    tcase_add_test(t, defaults_derive);
    tcase_add_test(t, memory_flags);
    tcase_add_test(t, switches);
    tcase_add_test(t, a_share_or_off);
    tcase_add_test(t, rope_flags);
    tcase_add_test(t, a_folder_that_is_not_ours_to_write);
    tcase_add_test(t, which_flag_goes_where);
    tcase_add_test(t, one_model_once);
    tcase_add_test(t, names_of_contenox);
    tcase_add_test(t, bad_values_in_the_environment_are_refused);
    tcase_add_test(t, a_size_of_zero_in_contenox_names_is_not_given);
    tcase_add_test(t, file_texts_win_over_numbers);
    tcase_add_test(t, file_is_below_environment_and_flags);
    tcase_add_test(t, file_sets_only_what_the_command_has);
    tcase_add_test(t, file_of_rope);
    tcase_add_test(t, file_zero_and_off);
    tcase_add_test(t, file_refusals);
    tcase_add_test(t, what_is_no_file);
    tcase_add_test(t, file_of_1_mib_at_most);
    tcase_add_test(t, where_the_file_is);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
