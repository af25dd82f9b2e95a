/* SPDX-License-Identifier: Apache-2.0 */
/* comet bench: ratio, error and speed of the codecs and of peers. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comet/comet.h"
#include "command.h"
#include "example.h"
#include "message.h"
#include "options.h"
#include "parse.h"
#include "workers.h"

static const char help[] =
    "Usage: comet bench codec [OPTION...]\n"
    "\n"
    "Measures each codec on each tensor: ratio (raw bytes / bytes of the whole stream), the worst error against the\n"
    "bound, zeros that did not stay zero, and the speed of compressing and decompressing beside memcpy of the same\n"
    "tensor. For speed, tensors are repeated to at least 64 MiB and the absolute bound is given (finding the rms first "
    "is\n"
    "a pass of its own); ratio and errors are those of the tensor itself. Errors are found by comparing input and "
    "output.\n"
    "\n"
    "  --data FILE...        .npy and .npz files; built-in activations of a small network if not given\n"
    "  --codec LIST          of eb, zvc, mask, pool:K, group:B, dct:T, raw (eb)\n"
    "  --error-rel LIST      bounds for eb and zfp, in units of the rms of the non-zeros (0.1,0.3)\n"
    "  --keep-mask           eb also keeps non-zeros non-zero and their sign\n"
    "  --layout LIST         nchw, nhwc, flat: tensors are transposed to it first (as they are)\n"
    "  --dtype LIST          f32, f16, bf16: tensors are converted to it first (as they are)\n"
    "  --peers LIST          zfp (fixed accuracy, the same bound) and zstd (lossless, level 1) beside them\n"
    "  --isa auto|avx512|avx2|reference\n"
    "                        which instructions Comet uses (auto)\n"
    "  --threads N           for the columns of all threads; 0 is one for each core (0)\n"
    "  --runs N              medians of so many (5)\n"
    "  --quick               no repetition, one run: for trying things out\n"
    "  --json                one JSON object on standard output instead of tables\n"
    "  --quiet               no progress on standard error\n"
    "\n"
    "Examples:\n"
    "  comet bench codec\n"
    "  comet bench codec --data resnet18.npz resnet50.npz --error-rel 0.1,0.3 --peers zfp,zstd\n"
    "  comet bench codec --data acts.npz --codec eb,zvc,group:4,pool:2,dct:1 --layout nchw,nhwc --dtype f32,bf16\n"
    "  comet bench codec --quick --json > result.json\n";

typedef struct request {
    const char *codecs, *errors, *layouts, *dtypes, *peers, *isa, *threads, *runs;
    int keep_mask, quick, json, quiet, help;
    text_array data, operands;
} request;

static int read_request(request *r, int argc, char **argv) {
    const option table[] = {{"--data", OPTION_MANY, &r->data},
                            {"--codec", OPTION_TEXT, &r->codecs},
                            {"--error-rel", OPTION_TEXT, &r->errors},
                            {"--keep-mask", OPTION_FLAG, &r->keep_mask},
                            {"--layout", OPTION_TEXT, &r->layouts},
                            {"--dtype", OPTION_TEXT, &r->dtypes},
                            {"--peers", OPTION_TEXT, &r->peers},
                            {"--isa", OPTION_TEXT, &r->isa},
                            {"--threads", OPTION_TEXT, &r->threads},
                            {"--runs", OPTION_TEXT, &r->runs},
                            {"--quick", OPTION_FLAG, &r->quick},
                            {"--json", OPTION_FLAG, &r->json},
                            {"--quiet", OPTION_FLAG, &r->quiet},
                            {"--help", OPTION_FLAG, &r->help},
                            {"-h", OPTION_FLAG, &r->help},
                            {NULL, OPTION_FLAG, NULL}};
    int answer = options_parse(table, argc, argv, &r->operands);
    if (answer != DONE || r->help)
        return answer;
    if (r->operands.count == 0 || strcmp(r->operands.items[0], "codec") != 0)
        return misuse("say what to measure: 'comet bench codec'");
    if (r->operands.count > 1)
        return misuse("unexpected '%s'; files go behind --data", r->operands.items[1]);
    return DONE;
}

static int read_coders(const request *r, bench_plan *plan) {
    text_list list;
    if (parse_list("--codec", r->codecs ? r->codecs : "eb", &list) != DONE)
        return MISUSED;
    for (int i = 0; i < list.count; i++)
        if (coder_spec_parse(list.items[i], r->keep_mask, &plan->coders[plan->coder_count++]) != DONE)
            return MISUSED;
    if (!r->peers)
        return DONE;
    if (parse_list("--peers", r->peers, &list) != DONE)
        return MISUSED;
    for (int i = 0; i < list.count; i++) {
        if (plan->coder_count == BENCH_MAX)
            return misuse("more than %d codecs and peers", BENCH_MAX);
        coder_spec *spec = &plan->coders[plan->coder_count++];
        if (coder_spec_parse_peer(list.items[i], spec) != DONE)
            return MISUSED;
        if (!spec->kind)
            return fail("%s was not there when comet was built; install lib%s-dev and build again", spec->label,
                        spec->label);
    }
    return DONE;
}

static int read_lists(const request *r, bench_plan *plan) {
    text_list list;
    if (parse_list("--error-rel", r->errors ? r->errors : "0.1,0.3", &list) != DONE)
        return MISUSED;
    for (int i = 0; i < list.count; i++)
        if (parse_number("--error-rel", list.items[i], &plan->errors[plan->error_count++]) != DONE)
            return MISUSED;
    if (r->layouts && parse_list("--layout", r->layouts, &list) != DONE)
        return MISUSED;
    for (int i = 0; r->layouts && i < list.count; i++)
        if (parse_layout("--layout", list.items[i], &plan->layouts[plan->layout_count++]) != DONE)
            return MISUSED;
    if (r->dtypes && parse_list("--dtype", r->dtypes, &list) != DONE)
        return MISUSED;
    for (int i = 0; r->dtypes && i < list.count; i++)
        if (parse_dtype("--dtype", list.items[i], &plan->dtypes[plan->dtype_count++]) != DONE)
            return MISUSED;
    return DONE;
}

static int read_isa(const request *r, bench_plan *plan) {
    if (!r->isa)
        return DONE;
    if (parse_isa("--isa", r->isa, &plan->isa) != DONE)
        return MISUSED;
    return comet_isa_supported(plan->isa) ? DONE : fail("this machine has no %s", r->isa);
}

static int read_runs(const request *r, bench_plan *plan) {
    int64_t runs = 5;
    if (r->runs && parse_integer("--runs", r->runs, 1, 101, &runs) != DONE)
        return MISUSED;
    plan->runs = r->quick ? 1 : (int)runs;
    plan->timed_bytes = r->quick ? 0 : (size_t)64 << 20;
    plan->warm_up = !r->quick;
    plan->quiet = r->quiet;
    return DONE;
}

static int load_data(const request *r, bench_plan *plan) {
    for (int i = 0; i < r->data.count; i++)
        if (tensors_load(&plan->data, r->data.items[i]) != DONE)
            return FAILED;
    return r->data.count ? DONE : example_add(&plan->data);
}

static int make_plan(const request *r, bench_plan *plan) {
    int answer = read_coders(r, plan);
    if (answer == DONE)
        answer = read_lists(r, plan);
    if (answer == DONE)
        answer = read_runs(r, plan);
    if (answer == DONE)
        answer = read_isa(r, plan);
    if (answer == DONE)
        answer = workers_new(r->threads, &plan->threads);
    return answer == DONE ? load_data(r, plan) : answer;
}

static int run(const request *r, const bench_plan *plan) {
    bench_results results = {0};
    bench_summary summary = {0};
    if (!r->json)
        bench_print_head();
    int answer = bench_run(plan, r->json ? NULL : bench_print_result, &results);
    if (answer == DONE)
        answer = bench_summarise(&results, &summary);
    if (answer == DONE && r->json)
        bench_print_json(plan, &results, &summary);
    else if (answer == DONE)
        bench_print_summary(&summary);
    if (answer == DONE && r->quick && !r->json)
        printf("With --quick nothing is repeated: the speeds say little.\n");
    if (answer == DONE && results.left_out)
        note("%zu combinations left out: the codec does not take such tensors", results.left_out);
    bench_summary_free(&summary);
    bench_results_free(&results);
    return answer;
}

int command_bench(int argc, char **argv) {
    request r = {0};
    bench_plan *plan = calloc(1, sizeof *plan);
    int answer = plan ? read_request(&r, argc, argv) : fail_memory();
    if (answer == DONE && r.help) {
        fputs(help, stdout);
    } else if (answer == DONE) {
        answer = make_plan(&r, plan);
        if (answer == DONE)
            answer = run(&r, plan);
        tensors_free(&plan->data);
        comet_threads_free(plan->threads);
    }
    free(plan);
    text_array_free(&r.data);
    text_array_free(&r.operands);
    return answer;
}
