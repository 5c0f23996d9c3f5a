/* test_sizing.c - from options and a machine to the sizes a model is opened with, on machines that are not here: the
 * engine is a table whose answers stand in this file (B131 among them).
 *
 * The host's memory is the real one, so a model on the host is only asked for what any machine has; accelerators
 * are as large as a test says.  How much of it is usable is test_capacity.c's; figures here lead back to it. */
#include "commands/sizing.h"
#include "commands/speeds.h"
#include "support/run_suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const int64_t MIB = 1 << 20, GIB = 1 << 30;

/* ---- the table engine ---- */

static struct md_model_facts facts;
static struct md_open_cost cost;
static struct md_machine machine;
static enum md_status answer_probe, answer_cost, answer_machine;
static enum md_status answer_cost_of_device; /* instead, where a device is named */
static struct {                              /* what it was asked */
    char path[64];
    struct md_open_params open;
    int32_t seq_count;
} asked;

static enum md_status answer(enum md_status s, const char *what, struct md_err *err)
{
    return s == MD_OK ? MD_OK : md_fail(err, s, "%s says no", what);
}

static enum md_status table_probe(const char *path, struct md_model_facts *ret, struct md_err *err)
{
    strncpy(asked.path, path, sizeof asked.path - 1);
    *ret = facts;
    return answer(answer_probe, "probe", err);
}

static enum md_status table_cost(const struct md_model_facts *f, const struct md_open_params *p,
                                 int32_t seq_count, struct md_open_cost *ret, struct md_err *err)
{
    ck_assert_str_eq(f->architecture, facts.architecture);
    asked.open = *p;
    asked.seq_count = seq_count;
    *ret = cost;
    if (p->device != NULL && answer_cost_of_device != MD_OK)
        return answer(answer_cost_of_device, p->device, err);
    return answer(answer_cost, "cost", err);
}

static enum md_status table_machine(struct md_machine *ret, struct md_err *err)
{
    *ret = machine;
    return answer(answer_machine, "machine", err);
}

static const struct md_backend backends[] = {
    { .name = "table", .probe = table_probe, .cost = table_cost, .machine = table_machine }, { .name = NULL }
};

/* ---- what each test begins with ---- */

static struct md_options o;
static struct md_sizing s;
static struct md_err err;

/* `layers` equal ones: 8 KV heads of 128, so 2,048 bytes of f16 keys, and as many of values, a token. */
enum { TENSOR_PER_TOKEN = 2048, LAYER_PER_TOKEN = 2 * TENSOR_PER_TOKEN };

static void set_model(int32_t layers, int32_t trained)
{
    facts = (struct md_model_facts){
        .architecture = "tiny", .trained_tokens = trained, .file_bytes = 5000, .loadable = true
    };
    facts.shape.layer_count = layers;
    for (int32_t i = 0; i < layers; i++)
        facts.shape.layers[i] = (struct md_kv_layer){ .kv_heads = 8, .key_length = 128, .value_length = 128 };
}

static struct md_device *add_device(const char *kind, int64_t total, int64_t free_bytes)
{
    struct md_device *d = &machine.devices[machine.device_count++];
    *d = (struct md_device){ .total_bytes = total, .free_bytes = free_bytes };
    strncpy(d->kind, kind, sizeof d->kind - 1);
    strncpy(d->id, "dev0", sizeof d->id - 1);
    return d;
}

static void begin(void)
{
    static char words[][20] = { "serve", "-m", "/models/tiny.gguf", "--engine", "table" };
    char *argv[] = { words[0], words[1], words[2], words[3], words[4] };
    ck_assert_msg(md_options_parse(5, argv, MD_CMD_SERVE, &o, &err) == MD_OK, "%s", err.text);
    set_model(4, 8192);
    cost = (struct md_open_cost){
        .mode = { .type_k = MD_KV_F16, .type_v = MD_KV_F16, .seq_count = 1, .ubatch_tokens = 512 },
        .cold_store = true
    };
    machine = (struct md_machine){ 0 };
    answer_probe = answer_cost = answer_machine = answer_cost_of_device = MD_OK;
    memset(&asked, 0, sizeof asked);
}

static void resolve(void)
{
    ck_assert_msg(md_sizing_resolve(&o, backends, NULL, &s, &err) == MD_OK, "%s", err.text);
}

static void ck_opens(void)
{
    resolve();
    ck_assert_msg(md_sizing_check(&o, &s, &err) == MD_OK, "%s", err.text);
}

static void ck_refused(enum md_status status, const char *text)
{
    resolve();
    err = (struct md_err){ 0 };
    ck_assert_int_eq(md_sizing_check(&o, &s, &err), status);
    ck_assert_msg(strstr(err.text, text) != NULL, "'%s' is not in '%s'", text, err.text);
}

/* ---- what the engine is asked ---- */

START_TEST(the_engine_is_asked_for_what_the_options_say)
{
    begin();
    o.seq_max = 5;
    o.batch = 1024;
    o.ubatch = 256;
    o.type_k = "q8_0";
    o.swa_full = true;
    o.gpu_layers = 7;
    o.flash_attn = "off";
    o.xattention = 0.9;
    resolve();
    ck_assert(asked.open.xattention == 0.9);
    ck_assert_str_eq(asked.path, "/models/tiny.gguf");
    ck_assert_str_eq(s.model_name, "tiny");
    ck_assert_int_eq(asked.seq_count, 5);
    ck_assert_int_eq(asked.open.batch_tokens, 1024);
    ck_assert_int_eq(asked.open.ubatch_tokens, 256);
    ck_assert_int_eq(asked.open.gpu_layers, 7);
    ck_assert_int_eq(asked.open.flash_attn, 0);
    ck_assert_str_eq(asked.open.type_k, "q8_0");
    ck_assert(asked.open.type_v == NULL && asked.open.window_full);
    o.flash_attn = "on";
    resolve();
    ck_assert_int_eq(asked.open.flash_attn, 1);
    o.flash_attn = "auto";
    resolve();
    ck_assert_int_eq(asked.open.flash_attn, -1);
}
END_TEST

START_TEST(its_refusals_and_bad_names_are_passed_on)
{
    begin();
    enum md_status *const answers[] = { &answer_probe, &answer_cost, &answer_machine };
    static const char *const texts[] = { "probe says no", "cost says no", "machine says no" };
    for (int i = 0; i < 3; i++) {
        *answers[i] = MD_UNSUPPORTED;
        ck_assert_int_eq(md_sizing_resolve(&o, backends, NULL, &s, &err), MD_UNSUPPORTED);
        ck_assert_str_eq(err.text, texts[i]);
        *answers[i] = MD_OK;
    }
    o.flash_attn = "perhaps";
    ck_assert_int_eq(md_sizing_resolve(&o, backends, NULL, &s, &err), MD_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "--flash-attn"));
    o.engine = "steam";
    ck_assert_int_eq(md_sizing_resolve(&o, backends, NULL, &s, &err), MD_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "unknown engine 'steam': this build has 'table'"));
    begin();
    o.model = "no-such-name";
    ck_assert_int_eq(md_sizing_resolve(&o, backends, NULL, &s, &err), MD_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(err.text, "no-such-name"));
}
END_TEST

START_TEST(a_model_that_cannot_run_is_refused_with_the_code)
{
    begin();
    facts.loadable = false;
    facts.unsupported[0] = "embedding_model";
    ck_refused(MD_UNSUPPORTED, "cannot run the architecture 'tiny' of model 'tiny' (embedding_model)");
    ck_assert_int_eq(md_sizing_check_model(&s, &err), MD_UNSUPPORTED);
}
END_TEST

/* ---- which device ---- */

START_TEST(without_layers_for_the_gpu_the_host_takes_all)
{
    begin();
    resolve();
    ck_assert_ptr_null(s.device); /* none is there */
    add_device("gpu", 6 * GIB, 6 * GIB);
    o.gpu_layers = 0;
    ck_opens();
    ck_assert_ptr_null(s.device);
    ck_assert_int_eq(s.params.device.free_bytes, s.host.available_bytes);
    ck_assert(!s.params.device.accelerator);
    ck_assert_int_eq(s.params.policy.min_free_bytes, 0);
    ck_assert_int_eq(s.params.weights_bytes, 5000);
    o.gpu_layers = -1;
    resolve();
    ck_assert_ptr_eq(s.device, &s.machine.devices[0]);
}
END_TEST

/* What a device refuses, its cost must say: it is told the device that will be opened. */
START_TEST(the_cost_is_that_of_the_device)
{
    begin();
    add_device("gpu", 6 * GIB, 6 * GIB);
    o.device = "GPU";
    resolve();
    ck_assert_str_eq(asked.open.device, "dev0");
    answer_cost_of_device = MD_UNSUPPORTED;
    ck_assert_int_eq(md_sizing_resolve(&o, backends, NULL, &s, &err), MD_UNSUPPORTED);
    ck_assert_str_eq(err.text, "dev0 says no");
    o.device = "CPU";
    resolve();
    ck_assert_ptr_null(asked.open.device);
    ck_assert_int_eq(asked.open.gpu_layers, 0);
    ck_assert_str_eq(s.device_why, "");
}
END_TEST

/* An engine that puts a model on one device whole: where that one refuses it, AUTO is the processor, and says why. */
START_TEST(auto_is_the_processor_where_the_card_refuses)
{
    begin();
    add_device("gpu", 6 * GIB, 6 * GIB);
    machine.one_device = true;
    resolve();
    ck_assert_ptr_eq(s.device, &s.machine.devices[0]);
    ck_assert_str_eq(s.open.device, "dev0");
    ck_assert_str_eq(s.device_why, "");
    answer_cost_of_device = MD_UNSUPPORTED;
    ck_opens();
    ck_assert(s.device == NULL && s.open.device == NULL && asked.open.device == NULL);
    ck_assert_int_eq(s.params.device.free_bytes, s.host.available_bytes);
    ck_assert_str_eq(s.device_why, "'dev0' cannot: dev0 says no");
    answer_cost = MD_UNSUPPORTED; /* neither */
    ck_assert_int_eq(md_sizing_resolve(&o, backends, NULL, &s, &err), MD_UNSUPPORTED);
    ck_assert_str_eq(err.text, "cost says no");
    answer_cost = MD_OK;
    o.gpu_layers = 3; /* asked of the card */
    ck_assert_int_eq(md_sizing_resolve(&o, backends, NULL, &s, &err), MD_UNSUPPORTED);
    ck_assert_str_eq(err.text, "dev0 says no");
    o.gpu_layers = -1;
    answer_cost_of_device = MD_INVALID; /* wrong on any device */
    ck_assert_int_eq(md_sizing_resolve(&o, backends, NULL, &s, &err), MD_INVALID);
}
END_TEST

/* A sparse prefill is another speed; who does not ask for it finds what was kept before there was one. */
START_TEST(a_speed_belongs_to_the_share)
{
    char key[512];
    begin();
    resolve();
    md_speeds_key(&s, key, sizeof key);
    ck_assert_str_eq(key, "table/tiny/5000/cpu");
    o.xattention = 0.9;
    resolve();
    md_speeds_key(&s, key, sizeof key);
    ck_assert_str_eq(key, "table/tiny/5000/cpu/xattention 0.9");
}
END_TEST

/* ggml calls what only speeds up the processor (BLAS, AMX) "accel"; weights and KV stay in host memory. */
START_TEST(a_helper_of_the_processor_holds_nothing)
{
    begin();
    add_device("accel", 0, 0);
    ck_opens();
    ck_assert_ptr_null(s.device);
    ck_assert_int_eq(s.params.device.free_bytes, s.host.available_bytes);
    o.gpu_layers = 3;
    ck_refused(MD_UNSUPPORTED, "--gpu-layers 3: engine 'table' sees no GPU");
    add_device("gpu", 6 * GIB, 6 * GIB);
    ck_opens();
    ck_assert_ptr_eq(s.device, &s.machine.devices[1]);
}
END_TEST

/* A 6 GiB card, all free: a tenth is left alone (test_capacity.c: policy_accelerator_reserve), eight tenths may be
 * taken, of which a tenth is headroom: 6,442,450,944 x 0.8 x 0.9. */
START_TEST(an_accelerator_keeps_its_reserve)
{
    begin();
    add_device("gpu", 6 * GIB, 6 * GIB);
    ck_opens();
    ck_assert(s.params.device.accelerator);
    ck_assert_int_eq(s.params.policy.min_free_bytes, 644245094);
    ck_assert_int_eq(s.params.policy.max_resident_bytes, INT64_C(5153960755));
    ck_assert_int_eq(s.capacity.usable_bytes, INT64_C(4638564679));
    /* the cold store is a quarter of the host's, not of the card's */
    ck_assert_int_eq(s.params.policy.host_cold_bytes, s.host.available_bytes / 4);
    o.mem_reserve = 5 * GIB;
    resolve(); /* 1 GiB less a tenth */
    ck_assert_int_eq(s.capacity.usable_bytes, GIB / 10 * 9 + 3);
    machine.devices[0].free_bytes = 5 * GIB;
    resolve();
    ck_assert_int_eq(s.capacity.reason, MD_CLAMP_RESERVE);
    ck_assert_int_eq(s.hot_tokens, 0);
    ck_assert_int_eq(s.window_tokens, 0);
    ck_refused(MD_NO_MEMORY, "device_free_memory_below_reserve");
}
END_TEST

/* The last N of 4 layers and the output, which is one more: 5 parts of 1,000 bytes.
 * Source: llama-model.cpp (i_gpu_start = n_layer + 1 - n_gpu_layers). */
START_TEST(explicit_layers_split_weights_and_kv)
{
    static const struct {
        int64_t layers;
        int64_t weights, kv_per_token;
        int32_t first;
    } rows[] = {
        { 1, 1000, 0, 4 },
        { 2, 2000, LAYER_PER_TOKEN, 3 },
        { 4, 4000, 3 * LAYER_PER_TOKEN, 1 },
        { 5, 5003, 4 * LAYER_PER_TOKEN, 0 },
        { 99, 5003, 4 * LAYER_PER_TOKEN, 0 },
        { -1, 5003, 4 * LAYER_PER_TOKEN, 0 },
    };
    begin();
    facts.file_bytes = 5003;
    facts.shape.layers[2].state_bytes = 64;
    add_device("gpu", 6 * GIB, 6 * GIB);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        o.gpu_layers = rows[i].layers;
        ck_opens();
        ck_assert_int_eq(s.params.weights_bytes, rows[i].weights);
        ck_assert_int_eq(s.capacity.kv_bytes_per_token, rows[i].kv_per_token);
        for (int32_t l = 0; l < 4; l++) {
            ck_assert_int_eq(s.device_shape.layers[l].kv_heads, l < rows[i].first ? 0 : 8);
            ck_assert_int_eq(s.device_shape.layers[l].state_bytes, l < rows[i].first || l != 2 ? 0 : 64);
        }
        ck_assert_int_eq(s.hot_tokens, 8192);
        ck_assert_int_eq(s.facts.shape.layers[0].kv_heads, 8); /* the model's own are as they were */
    }
}
END_TEST

/* What a driver calls free may be more than this process may take. */
START_TEST(unified_memory_is_within_the_hosts)
{
    begin();
    struct md_device *d = add_device("igpu", 64 * 1024 * GIB, 64 * 1024 * GIB);
    d->shares_host = true;
    resolve();
    ck_assert_ptr_nonnull(s.device);
    ck_assert_int_eq(s.params.device.free_bytes, s.host.available_bytes);
    d->free_bytes = 0; /* unknown */
    resolve();
    ck_assert_int_eq(s.params.device.free_bytes, s.host.available_bytes);
    d->free_bytes = 64 * MIB;
    resolve();
    ck_assert_int_eq(s.params.device.free_bytes, 64 * MIB);
    d->free_bytes = 64 * 1024 * GIB;
    d->shares_host = false; /* a card of its own has what it has */
    resolve();
    ck_assert_int_eq(s.params.device.free_bytes, 64 * 1024 * GIB);
}
END_TEST

/* A card that takes one slot of five leaves four fifths of a petabyte to the host, which no host has. */
START_TEST(the_hosts_share_must_fit_too)
{
    begin();
    facts.file_bytes = (int64_t)1 << 50;
    add_device("gpu", (int64_t)1 << 54, (int64_t)1 << 54);
    ck_opens();
    o.gpu_layers = 1;
    resolve();
    ck_assert_int_eq(md_sizing_check(&o, &s, &err), MD_NO_MEMORY);
    ck_assert_ptr_nonnull(strstr(err.text, "stay on the host"));
    ck_assert_ptr_nonnull(strstr(err.text, "-ngl"));
    facts.file_bytes = 5000; /* the KV alone: 3 of 4 layers of 2^30 tokens, 12 TiB */
    set_model(4, 1 << 30);
    o.ctx_size = 1 << 30;
    resolve();
    ck_assert_int_eq(md_sizing_check(&o, &s, &err), MD_NO_MEMORY);
    ck_assert_ptr_nonnull(strstr(err.text, "stay on the host"));
}
END_TEST

/* Two cards of 8 and 16 GiB hold what one of 24 does; what is integrated, or helps the processor, adds nothing. */
START_TEST(several_cards_count_together)
{
    begin();
    add_device("igpu", 32 * GIB, 32 * GIB);
    add_device("gpu", 8 * GIB, 7 * GIB)->max_allocation_bytes = 4 * GIB;
    add_device("accel", 64 * GIB, 64 * GIB);
    add_device("gpu", 16 * GIB, 15 * GIB)->max_allocation_bytes = 2 * GIB;
    resolve();
    ck_assert_ptr_eq(s.device, &s.machine.devices[1]);
    ck_assert_int_eq(s.params.device.total_bytes, 24 * GIB);
    ck_assert_int_eq(s.params.device.free_bytes, 22 * GIB);
    ck_assert_int_eq(s.params.device.max_allocation_bytes, 2 * GIB);
    ck_assert_int_eq(s.params.policy.min_free_bytes, (int64_t)(24 * 0.10 * (double)GIB));
    begin();
    for (int i = 0; i < 2; i++) /* both of them are the host's memory: it counts once */
        add_device("igpu", 32 * MIB, 32 * MIB)->shares_host = true;
    resolve();
    ck_assert_int_eq(s.params.device.free_bytes, 32 * MIB);
}
END_TEST

/* ---- B131: 8 GiB free and shared, at most 1 GiB in one piece, 1.2 GiB of keys in each layer ---- */

enum { ASKED_131 = 629248, FITS_131 = 524288 }; /* x 2,048 bytes: 1.2 GiB in whole cells, and 1 GiB */

static void begin_131(bool cold_store)
{
    begin();
    set_model(2, ASKED_131); /* 4 tensors of 1.2 GiB: together they would fit */
    struct md_device *d = add_device("igpu", 16 * GIB, 8 * GIB);
    d->max_allocation_bytes = GIB;
    cost.cold_store = cold_store;
    o.mem_cold = GIB;
    resolve();
    d->shares_host = s.host.available_bytes > 8 * GIB; /* or it would be a smaller machine's test */
}

START_TEST(b131_each_tensor_fits_in_one_piece)
{
    begin_131(false);
    ck_opens();
    ck_assert_int_eq(s.params.device.free_bytes, 8 * GIB);
    ck_assert_int_eq(s.capacity.effective_tokens, FITS_131);
    ck_assert_int_eq(s.hot_tokens, FITS_131);
    ck_assert_int_eq(s.window_tokens, FITS_131);
    ck_assert_int_eq(s.capacity.reason, MD_CLAMP_ALLOCATION);
    ck_assert_int_eq(md_kv_largest_tensor(&s.device_shape, &s.cost.mode, s.hot_tokens), GIB);
    ck_assert_int_gt(md_kv_largest_tensor(&s.device_shape, &s.cost.mode, ASKED_131), GIB / 5 * 6);
    machine.devices[0].max_allocation_bytes = 0; /* it is this limit and no other */
    ck_opens();
    ck_assert_int_eq(s.hot_tokens, ASKED_131);
}
END_TEST

START_TEST(b131_an_explicit_one_is_refused)
{
    begin_131(false);
    o.ctx_size = ASKED_131;
    ck_refused(MD_NO_MEMORY, "at most 1.00 GiB in one piece, which is enough for 524288 tokens");
    ck_assert_ptr_nonnull(strstr(err.text, "(single_allocation)"));
    o.ctx_size = FITS_131;
    ck_opens();
    o.ctx_size = 0;
    o.hot = ASKED_131;
    ck_refused(MD_NO_MEMORY, "(single_allocation)");
}
END_TEST

/* 1 GiB of cold store holds 131,072 tokens of 8,192 bytes: more than the 104,960 that are not hot. */
START_TEST(b131_the_cold_store_may_carry_the_rest)
{
    begin_131(true);
    o.ctx_size = ASKED_131;
    ck_opens();
    ck_assert_int_eq(s.hot_tokens, FITS_131);
    ck_assert_int_eq(s.window_tokens, ASKED_131);
    ck_assert_int_eq(s.capacity.reason, MD_CLAMP_ALLOCATION);
    o.mem_cold = 512 * MIB;
    ck_refused(MD_NO_MEMORY, "(single_allocation)");
}
END_TEST

/* ---- budgets ---- */

/* 4 layers of 4,096 bytes: 16,384 a token.  1,000 tokens of bytes are 768 in whole cells. */
START_TEST(a_budget_for_kv_is_all_that_counts)
{
    begin();
    facts.file_bytes = 1024 * GIB;
    cost.compute_bytes = 1024 * GIB;
    cost.compute_bytes_per_cell = 1 << 20;
    o.mem_reserve = 1024 * GIB;
    o.min_hot_context = 0;
    o.budget = 1000 * 16384;
    ck_opens();
    ck_assert_int_eq(s.hot_tokens, 768);
    o.budget = 4 * GIB;
    ck_opens();
    ck_assert_int_eq(s.hot_tokens, 8192);
    ck_assert_int_eq(s.capacity.reason, MD_CLAMP_NONE);
}
END_TEST

START_TEST(a_projector_takes_its_room)
{
    begin();
    char path[] = "/tmp/modeld-test-XXXXXX";
    const int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, 1000), 0);
    close(fd);
    add_device("gpu", 6 * GIB, 6 * GIB);
    resolve();
    const int64_t budget = s.capacity.budget_bytes;
    o.mmproj = path;
    resolve();
    ck_assert_int_eq(s.params.mmproj_bytes, 1000 + 320 * MIB); /* the encoder's reserve: sizing.c */
    ck_assert_int_eq(s.capacity.budget_bytes, budget - 1000 - 320 * MIB);
    unlink(path);
    ck_assert_int_eq(md_sizing_resolve(&o, backends, NULL, &s, &err), MD_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(err.text, path));
    o.mmproj = "/tmp";
    ck_assert_int_eq(md_sizing_resolve(&o, backends, NULL, &s, &err), MD_INVALID);
}
END_TEST

/* ---- window and hot ---- */

/* A card that is left with 100 MiB for all: 6,400 tokens of 16,384 bytes, less what the weights take. */
static void begin_small(void)
{
    begin();
    add_device("gpu", GIB, 100 * MIB);
    o.mem_max = 1024 * GIB;
    o.mem_reserve = 1;
    o.mem_headroom = 1e-6;
    o.mem_cold = 16 * MIB; /* 1,024 tokens */
    facts.file_bytes = 0;
}

START_TEST(hot_and_cold_make_the_window)
{
    begin_small();
    ck_opens();
    ck_assert_int_eq(s.hot_tokens, 6144); /* 6,400 would need the byte that is reserved */
    ck_assert_int_eq(s.window_tokens, 6144 + 1024);
    o.ctx_size = 7168;
    ck_opens();
    ck_assert_int_eq(s.hot_tokens, 6144);
    ck_assert_int_eq(s.window_tokens, 7168);
    o.ctx_size = 7169;
    ck_refused(MD_NO_MEMORY, "a context of 7169 tokens does not fit");
    o.ctx_size = 1000; /* all of it fits */
    ck_opens();
    ck_assert_int_eq(s.hot_tokens, 1000);
    ck_assert_int_eq(s.window_tokens, 1000);
    o.ctx_size = 8193;
    ck_refused(MD_TOO_LARGE, "--ctx-size 8193 is more than the 8192 tokens");
}
END_TEST

/* What positions are scaled to is what counts as trained, here and for the engine. */
START_TEST(rope_makes_the_window)
{
    begin_small();
    cost.cold_store = false;
    facts.rope = (struct md_rope_file){ .context_tokens = 8192, .base = 10000 };
    resolve();
    ck_assert(!s.rope.changed && s.facts.trained_tokens == 8192);
    ck_assert(!md_rope_is_asked(&asked.open.rope));
    strcpy(o.rope_scaling, "yarn");
    o.rope_scale = 4;
    o.yarn_orig_ctx = 4096;
    o.yarn_ext_factor = 0;
    o.yarn_attn_factor = 1.5;
    resolve();
    ck_assert_int_eq(s.facts.trained_tokens, 16384);
    ck_assert_int_eq(s.params.model_max_tokens, 16384);
    ck_assert(asked.open.rope.scaling == MD_ROPE_YARN && asked.open.rope.scale == 4);
    ck_assert(asked.open.rope.yarn_orig_ctx == 4096 && asked.open.rope.yarn_attn_factor == 1.5);
    ck_assert(asked.open.rope.yarn_ext_given && asked.open.rope.yarn_ext_factor == 0);
    o.ctx_size = 16385;
    ck_refused(MD_TOO_LARGE, "16385 is more than the 16384 tokens the model was trained for, with --rope-*");
    o = (struct md_options){ .model = o.model, .engine = o.engine, .flash_attn = "auto", .residency = true };
    o.yarn_ext_factor = -1;
    strcpy(o.rope_scaling, "linear");
    o.rope_freq_scale = 0.5;
    resolve();
    ck_assert_int_eq(s.facts.trained_tokens, 16384);
    facts.rope.absent = true;
    ck_assert_int_eq(md_sizing_resolve(&o, backends, NULL, &s, &err), MD_UNSUPPORTED);
    ck_assert_msg(strstr(err.text, "no rotary positions") != NULL, "%s", err.text);
    answer_probe = MD_NOT_FOUND; /* what needs no file is said without one */
    strcpy(o.rope_scaling, "ntk");
    ck_assert_int_eq(md_sizing_resolve(&o, backends, NULL, &s, &err), MD_INVALID);
    ck_assert_msg(strstr(err.text, "must be none, linear or yarn, got 'ntk'") != NULL, "%s", err.text);
    o.rope_scaling[0] = '\0';
    ck_assert_int_eq(md_sizing_resolve(&o, backends, NULL, &s, &err), MD_INVALID);
    ck_assert_msg(strstr(err.text, "--rope-freq-scale needs --rope-scaling") != NULL, "%s", err.text);
}
END_TEST

START_TEST(hot_by_hand)
{
    begin_small();
    o.hot = 4096;
    ck_opens();
    ck_assert(s.manual_hot);
    ck_assert_int_eq(s.hot_tokens, 4096);
    ck_assert_int_eq(s.window_tokens, 4096 + 1024);
    o.ctx_size = 8192; /* more than the cold store holds: asked for by name */
    ck_opens();
    ck_assert_int_eq(s.window_tokens, 8192);
    o.hot = 6400;
    ck_refused(MD_NO_MEMORY, "a context of 6400 tokens does not fit");
    o.ctx_size = 1000;
    o.hot = 2000;
    ck_opens(); /* two conversations of that length are hot at once */
    ck_assert_int_eq(s.hot_tokens, 2000);
    ck_assert_int_eq(s.window_tokens, 1000);
}
END_TEST

/* A model on the host shares its memory with the cold store and with what --mem-reserve leaves alone. */
START_TEST(the_cold_store_fits_beside_the_model)
{
    begin();
    resolve();
    const int64_t available = s.host.available_bytes;
    ck_assert_int_le(s.cold_bytes, available / 4 + 1);
    o.mem_reserve = available / 10 * 9; /* a quarter is not there any more: derived, it gets what is left */
    ck_opens();
    ck_assert_int_lt(s.cold_bytes, available / 5);
    ck_assert_int_le(s.cold_bytes, s.host.available_bytes - o.mem_reserve - s.capacity.required_bytes);
    o.mem_cold = available / 5; /* asked for, it is refused */
    ck_refused(MD_NO_MEMORY, "lower --mem-cold or --mem-reserve");
    o.mem_reserve = 0;
    ck_opens();
    o.mem_cold = 2 * available;
    ck_refused(MD_NO_MEMORY, "a cold store of");
    add_device("gpu", 64 * GIB, 64 * GIB); /* the store is in RAM all the same */
    ck_refused(MD_NO_MEMORY, "a cold store of");
    cost.cold_store = false; /* nothing will go there */
    ck_opens();
    ck_assert_int_eq(s.cold_bytes, 0);
    cost.checkpoints =
        true; /* states do, of a model of recurrent layers alone: they add no tokens to the window */
    ck_refused(MD_NO_MEMORY, "a cold store of");
    o.mem_cold = available / 5;
    ck_opens();
    ck_assert_int_eq(s.cold_bytes, available / 5);
    ck_assert_int_eq(s.capacity.host_cold_bytes, 0);
    o.residency = false;
    ck_opens();
    ck_assert_int_eq(s.cold_bytes, 0);
}
END_TEST

START_TEST(below_the_floor)
{
    begin_small();
    machine.devices[0].free_bytes = 32 * MIB; /* 2,048 tokens */
    ck_refused(MD_NO_MEMORY, "a context of 4096 tokens does not fit");
    ck_assert(s.capacity.below_floor);
    /* the cold store does not make up for it, also not for an explicit window */
    o.ctx_size = 2500;
    ck_refused(MD_NO_MEMORY, "of 2500 tokens only 1792 fit the memory at once, fewer than the 4096");
    o.hot = 1792; /* as the refusal says */
    ck_opens();
    o.hot = 0;
    o.min_hot_context = 0;
    ck_opens();
    ck_assert_int_eq(s.hot_tokens, 1792);
    o.ctx_size = 0;
    ck_opens();
    ck_assert_int_eq(s.window_tokens, 1792 + 1024);
}
END_TEST

START_TEST(without_residency_nothing_goes_cold)
{
    begin_small();
    o.residency = false;
    ck_opens();
    ck_assert_int_eq(s.capacity.host_cold_bytes, 0);
    ck_assert_int_eq(s.hot_tokens, 6144);
    ck_assert_int_eq(s.window_tokens, 6144);
    o.ctx_size = 7168;
    ck_refused(MD_NO_MEMORY, "a context of 7168 tokens does not fit");
    o.ctx_size = 5000;
    o.hot = 4096;
    ck_refused(MD_INVALID, "--hot 4096 needs --residency on: without it all 5000 tokens are hot");
    o.hot = 5000;
    ck_opens();
}
END_TEST

/* Windowed and recurrent models: the engine says that no range can be put back. */
START_TEST(what_cannot_be_evicted_is_all_hot)
{
    begin_small();
    cost.cold_store = false;
    facts.shape.layers[0].window = 512;
    facts.shape.layers[0].window_cells = true;
    ck_opens();
    ck_assert_int_eq(s.capacity.host_cold_bytes, 0);
    /* three layers of 4,096 bytes, and 1,024 cells of the windowed one, 4 MiB: 96 MiB hold 8,192 */
    ck_assert_int_eq(s.hot_tokens, 7936);
    ck_assert_int_eq(s.window_tokens, s.hot_tokens);
    o.ctx_size = 8192;
    ck_refused(MD_NO_MEMORY, "a context of 8192 tokens does not fit");
}
END_TEST

START_TEST(a_model_that_does_not_say_its_window)
{
    begin_small();
    set_model(4, 0);
    ck_opens();
    ck_assert_int_eq(s.window_tokens, 4096);
    ck_assert_int_eq(s.hot_tokens, 4096);
    o.ctx_size = 6000;
    ck_opens();
    ck_assert_int_eq(s.window_tokens, 6000);
}
END_TEST

/* What a model that is open holds counts as if it were free: the answer is that of a machine on which it is. */
START_TEST(b074_what_is_held_is_credited)
{
    const int64_t gib = INT64_C(1) << 30;
    struct md_held held = { .host_bytes = INT64_MAX / 2 };
    begin();
    ck_assert_msg(md_sizing_resolve(&o, backends, &held, &s, &err) == MD_OK, "%s", err.text);
    ck_assert_int_eq(s.host.available_bytes, s.host.total_bytes); /* never more than there is */
    ck_assert_int_eq(s.params.device.free_bytes, s.host.total_bytes);
    ck_assert_int_eq(s.params.reclaimable_bytes, 0);

    begin();
    set_model(32, 131072); /* 16 GiB of KV: memory decides */
    add_device("gpu", 8 * gib, 3 * gib);
    resolve();
    const struct md_capacity all = s.capacity;
    ck_assert_int_gt(all.hot_tokens, 0);
    ck_assert_int_lt(all.hot_tokens, 131072);
    machine.device_count = 0;
    add_device("gpu", 8 * gib, 1 * gib);
    held = (struct md_held){ .device_bytes = 2 * gib };
    ck_assert_msg(md_sizing_resolve(&o, backends, &held, &s, &err) == MD_OK, "%s", err.text);
    ck_assert_int_eq(s.capacity.hot_tokens, all.hot_tokens);
    ck_assert_int_eq(s.capacity.usable_bytes, all.usable_bytes);
    resolve();
    ck_assert_int_lt(s.capacity.hot_tokens, all.hot_tokens); /* not credited */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sizing");
    TCase *t = tcase_create("sizing");
    tcase_add_test(t, the_engine_is_asked_for_what_the_options_say);
    tcase_add_test(t, its_refusals_and_bad_names_are_passed_on);
    tcase_add_test(t, a_model_that_cannot_run_is_refused_with_the_code);
    tcase_add_test(t, without_layers_for_the_gpu_the_host_takes_all);
    tcase_add_test(t, the_cost_is_that_of_the_device);
    tcase_add_test(t, auto_is_the_processor_where_the_card_refuses);
    tcase_add_test(t, a_speed_belongs_to_the_share);
    tcase_add_test(t, a_helper_of_the_processor_holds_nothing);
    tcase_add_test(t, an_accelerator_keeps_its_reserve);
    tcase_add_test(t, explicit_layers_split_weights_and_kv);
    tcase_add_test(t, unified_memory_is_within_the_hosts);
    tcase_add_test(t, the_hosts_share_must_fit_too);
    tcase_add_test(t, several_cards_count_together);
    tcase_add_test(t, b131_each_tensor_fits_in_one_piece);
    tcase_add_test(t, b131_an_explicit_one_is_refused);
    tcase_add_test(t, b131_the_cold_store_may_carry_the_rest);
    tcase_add_test(t, a_budget_for_kv_is_all_that_counts);
    tcase_add_test(t, a_projector_takes_its_room);
    tcase_add_test(t, hot_and_cold_make_the_window);
    tcase_add_test(t, rope_makes_the_window);
    tcase_add_test(t, hot_by_hand);
    tcase_add_test(t, the_cold_store_fits_beside_the_model);
    tcase_add_test(t, below_the_floor);
    tcase_add_test(t, without_residency_nothing_goes_cold);
    tcase_add_test(t, what_cannot_be_evicted_is_all_hot);
    tcase_add_test(t, a_model_that_does_not_say_its_window);
    tcase_add_test(t, b074_what_is_held_is_credited);
    suite_add_tcase(suite, t);
    return md_run_suite(suite);
}
