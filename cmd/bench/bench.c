/* SPDX-License-Identifier: Apache-2.0 */
/* comet bench: ratio, error and speed of the codecs and of peers. */
#include "cmd/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/bench/bench_cuda.h"
#include "cmd/bench/bench_norm.h"
#include "cmd/bench/example.h"
#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/common/options.h"
#include "cmd/common/parse.h"
#include "cmd/common/workers.h"
#include "comet/comet.h"

static const char help[] =
    "Usage: comet bench codec [OPTION...]\n"
    "       comet bench norm --device cuda [OPTION...]\n"
    "       comet bench step|loader [OPTION...]     (each has --help)\n"
    "\n"
    "Measures each codec on each tensor: ratio (raw bytes / bytes of the whole stream), the worst error against the\n"
    "bound, zeros that did not stay zero, and the speed of compressing and decompressing beside memcpy of the same\n"
    "tensor. For speed, tensors are repeated to at least 64 MiB and the absolute bound is given (finding the rms first "
    "is\n"
    "a pass of its own); ratio and errors are those of the tensor itself. Errors are found by comparing input and "
    "output.\n"
    "The exit code is 1 if a codec of Comet broke what it promises.\n"
    "\n"
    "  --data FILE...        .npy and .npz files; built-in activations of a small network if not given\n"
    "  --tensors LIST        only tensors whose name contains one of these texts\n"
    "  --codec LIST          of eb, zvc, mask, pool:K, group:B, dct:T, raw (eb)\n"
    "  --error-rel LIST      bounds for eb and zfp, in units of the rms of the non-zeros (0.1,0.3)\n"
    "  --mode LIST           of eb (training on a GPU, else nearest): nearest; keep: non-zeros stay non-zero, sign "
    "included;\n"
    "                        grid: as behind a batch norm with a ReLU, the values normalised per channel and on a grid "
    "whose\n"
    "                        steps end at the ReLU's threshold; training: keep where at least 5 % are 0 and none is\n"
    "                        negative, else grid\n"
    "  --keep-mask           --mode keep\n"
    "  --layout LIST         nchw, nhwc, flat: tensors are transposed to it first (as they are; on a GPU nchw,nhwc)\n"
    "  --dtype LIST          f32, f16, bf16: tensors are converted to it first (as they are; on a GPU f32,bf16)\n"
    "  --device cpu|cuda|cuda:N\n"
    "                        where to run: the CPU, or the first or N-th GPU, counted from 0 (cpu)\n"
    "  --threads N           for the columns of all threads; 0 is one for each core (0)\n"
    "  --runs N              medians of so many (5; on a GPU 25)\n"
    "  --quick               no repetition, one run: for trying things out (on a GPU 1 and 100 MiB, 5 runs)\n"
    "  --json                one JSON object on standard output instead of tables\n"
    "  --quiet               no progress on standard error\n"
    "\n"
    "Only on the CPU:\n"
    "  --peers LIST          zfp (fixed accuracy, the same bound) and zstd (lossless, level 1) beside them\n"
    "  --isa auto|avx512|avx2|reference\n"
    "                        which instructions Comet uses (auto)\n"
    "\n"
    "Only on a GPU:\n"
    "  --sizes LIST          MiB; 0 is the tensor as it is (1,4,16,100,400)\n"
    "  --stats               gather the statistics of eb and zvc, too: training asks for them now and then\n"
    "\n"
    "On a GPU each tensor is cut or repeated along its first dimension to each of --sizes (at least one sample), with\n"
    "the bound of the whole tensor, and timed beside a device-to-device copy; the three take turns. Calls go round "
    "over\n"
    "buffers that together are four times the L2 cache (256 at most). From 48 MiB on each call is timed; of smaller\n"
    "tensors a CUDA graph of one call for each buffer is replayed and the time divided. A stream of each case is "
    "decoded,\n"
    "copied back and checked in full; up to 24 MiB it is also compared with the CPU's, byte by byte. On a grid, "
    "decoding\n"
    "to the output of the batch norm and the ReLU is timed, too.\n"
    "Without a GPU that can be used it says why and ends with exit code 1.\n"
    "\n"
    "norm: batch normalisation with a ReLU, forward and backward, with x kept and with the stream of the normalised\n"
    "values in its place, timed in the same way; --error-rel is in units of their rms, which is 1. --codec and\n"
    "--mode do not matter.\n"
    "\n"
    "Examples:\n"
    "  comet bench codec\n"
    "  comet bench codec --data resnet18.npz resnet50.npz --error-rel 0.1,0.3 --peers zfp,zstd\n"
    "  comet bench codec --data acts.npz --codec eb,zvc,group:4,pool:2,dct:1 --layout nchw,nhwc --dtype f32,bf16\n"
    "  comet bench codec --quick --json > result.json\n"
    "  comet bench codec --device cuda --data resnet18.npz --sizes 100 --tensors sparse\n"
    "  comet bench codec --device cuda --mode nearest,keep,grid --dtype f32 --sizes 0\n"
    "  comet bench norm --device cuda --sizes 100 --json\n";

typedef struct request {
    const char *codecs, *modes, *errors, *layouts, *dtypes, *peers, *isa, *threads, *runs, *device, *sizes, *tensors;
    int keep_mask, stats, quick, json, quiet, help;
    text_array data, operands;
} request;

static int is_norm(const request *r) {
    return r->operands.count > 0 && strcmp(r->operands.items[0], "norm") == 0;
}

static int read_request(request *r, int argc, char **argv) {
    const option table[] = {{"--data", OPTION_MANY, &r->data},
                            {"--codec", OPTION_TEXT, &r->codecs},
                            {"--error-rel", OPTION_TEXT, &r->errors},
                            {"--mode", OPTION_TEXT, &r->modes},
                            {"--keep-mask", OPTION_FLAG, &r->keep_mask},
                            {"--stats", OPTION_FLAG, &r->stats},
                            {"--layout", OPTION_TEXT, &r->layouts},
                            {"--dtype", OPTION_TEXT, &r->dtypes},
                            {"--peers", OPTION_TEXT, &r->peers},
                            {"--isa", OPTION_TEXT, &r->isa},
                            {"--threads", OPTION_TEXT, &r->threads},
                            {"--runs", OPTION_TEXT, &r->runs},
                            {"--device", OPTION_TEXT, &r->device},
                            {"--sizes", OPTION_TEXT, &r->sizes},
                            {"--tensors", OPTION_TEXT, &r->tensors},
                            {"--quick", OPTION_FLAG, &r->quick},
                            {"--json", OPTION_FLAG, &r->json},
                            {"--quiet", OPTION_FLAG, &r->quiet},
                            {"--help", OPTION_FLAG, &r->help},
                            {"-h", OPTION_FLAG, &r->help},
                            {NULL, OPTION_FLAG, NULL}};
    int answer = options_parse(table, argc, argv, &r->operands);
    if (answer != DONE || r->help)
        return answer;
    if (r->operands.count == 0 || (strcmp(r->operands.items[0], "codec") != 0 && !is_norm(r)))
        return misuse("say what to measure: 'comet bench codec', 'norm' or 'step'");
    if (r->operands.count > 1)
        return misuse("unexpected '%s'; files go behind --data", r->operands.items[1]);
    return DONE;
}

static int read_modes(const request *r, int on_gpu, coder_mode *modes, int *count) {
    text_list list;
    const char *text = r->modes ? r->modes : r->keep_mask ? "keep" : on_gpu ? "training" : "nearest";
    if (r->modes && r->keep_mask)
        return misuse("--keep-mask is --mode keep: give one of them");
    if (parse_list("--mode", text, &list) != DONE)
        return MISUSED;
    for (int i = 0; i < list.count; i++)
        if (coder_mode_parse(list.items[i], &modes[i]) != DONE)
            return MISUSED;
    *count = list.count;
    return DONE;
}

static int new_coder(bench_plan *plan, coder_spec **spec) {
    if (plan->coder_count == BENCH_MAX)
        return misuse("more than %d codecs, with their modes, and peers", BENCH_MAX);
    *spec = &plan->coders[plan->coder_count++];
    return DONE;
}

/* One coder for each codec, of eb one for each mode. */
static int read_codecs(const request *r, bench_plan *plan) {
    text_list list;
    coder_mode modes[LIST_MAX];
    int mode_count = 0;
    if (read_modes(r, plan->device.kind == COMET_CUDA, modes, &mode_count) != DONE)
        return MISUSED;
    if (parse_list("--codec", r->codecs ? r->codecs : "eb", &list) != DONE)
        return MISUSED;
    for (int i = 0; i < list.count; i++)
        for (int m = 0; m < mode_count; m++) {
            coder_spec *spec = NULL;
            if (new_coder(plan, &spec) != DONE || coder_spec_parse(list.items[i], modes[m], spec) != DONE)
                return MISUSED;
            if (spec->params.codec != COMET_CODEC_EB)
                break;
        }
    return DONE;
}

static int read_coders(const request *r, bench_plan *plan) {
    text_list list;
    if (read_codecs(r, plan) != DONE)
        return MISUSED;
    if (!r->peers)
        return DONE;
    if (parse_list("--peers", r->peers, &list) != DONE)
        return MISUSED;
    for (int i = 0; i < list.count; i++) {
        coder_spec *spec = NULL;
        if (new_coder(plan, &spec) != DONE)
            return MISUSED;
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
    const char *dtypes = r->dtypes ? r->dtypes : plan->device.kind == COMET_CUDA ? "f32,bf16" : NULL;
    if (dtypes && parse_list("--dtype", dtypes, &list) != DONE)
        return MISUSED;
    for (int i = 0; dtypes && i < list.count; i++)
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

static int read_device(const request *r, bench_plan *plan) {
    int64_t index = 0;
    if ((!r->device || strcmp(r->device, "cpu") == 0) && is_norm(r))
        return misuse("'comet bench norm' is for --device cuda");
    if (!r->device || strcmp(r->device, "cpu") == 0)
        return r->sizes ? misuse("--sizes is for --device cuda") : DONE;
    if (strncmp(r->device, "cuda", 4) != 0 || (r->device[4] && r->device[4] != ':'))
        return misuse("--device: '%s' is not one of cpu, cuda, cuda:N", r->device);
    if (r->device[4] && parse_integer("--device", r->device + 5, 0, 255, &index) != DONE)
        return MISUSED;
    if (r->peers || r->isa)
        return misuse("%s is for the CPU, not for --device cuda", r->peers ? "--peers" : "--isa");
    plan->device = (comet_device){COMET_CUDA, (int32_t)index};
    return DONE;
}

static int read_sizes(const request *r, bench_plan *plan) {
    const double most = 65536;
    text_list list;
    if (parse_list("--sizes", r->sizes ? r->sizes : r->quick ? "1,100" : "1,4,16,100,400", &list) != DONE)
        return MISUSED;
    for (int i = 0; i < list.count; i++) {
        double *size = &plan->sizes[plan->size_count++];
        if (parse_number("--sizes", list.items[i], size) != DONE)
            return MISUSED;
        if (*size > most)
            return misuse("--sizes: %s MiB is more than %g", list.items[i], most);
    }
    return DONE;
}

static int read_runs(const request *r, bench_plan *plan) {
    int on_gpu = plan->device.kind == COMET_CUDA;
    int64_t runs = !on_gpu ? 5 : r->quick ? 5 : 25;
    if (r->runs && parse_integer("--runs", r->runs, 1, 101, &runs) != DONE)
        return MISUSED;
    plan->runs = r->quick && !on_gpu ? 1 : (int)runs;
    plan->timed_bytes = r->quick ? 0 : (size_t)64 << 20;
    plan->warm_up = !r->quick;
    plan->quiet = r->quiet;
    plan->stats = r->stats;
    return DONE;
}

static int has_one_of(const char *name, const text_list *texts) {
    for (int i = 0; i < texts->count; i++)
        if (strstr(name, texts->items[i]))
            return 1;
    return 0;
}

static int load_data(const request *r, const text_list *filter, bench_plan *plan) {
    for (int i = 0; i < r->data.count; i++)
        if (tensors_load(&plan->data, r->data.items[i]) != DONE)
            return FAILED;
    if (r->data.count == 0 && example_add(&plan->data) != DONE)
        return FAILED;
    for (size_t i = plan->data.count; r->tensors && i-- > 0;)
        if (!has_one_of(plan->data.items[i].name, filter))
            tensors_remove(&plan->data, i);
    if (r->tensors && plan->data.count == 0)
        return fail("no tensor has a name with '%s' in it", r->tensors);
    return DONE;
}

static int make_plan(const request *r, bench_plan *plan) {
    text_list filter = {.count = 0};
    int answer = read_device(r, plan);
    if (answer == DONE)
        answer = read_coders(r, plan);
    if (answer == DONE)
        answer = read_lists(r, plan);
    if (answer == DONE)
        answer = read_sizes(r, plan);
    if (answer == DONE && r->tensors)
        answer = parse_list("--tensors", r->tensors, &filter);
    if (answer == DONE)
        answer = read_runs(r, plan);
    if (answer == DONE)
        answer = read_isa(r, plan);
    if (answer == DONE)
        answer = workers_new(r->threads, &plan->threads);
    if (answer == DONE && plan->device.kind == COMET_CUDA)
        answer = bench_cuda_check(plan); /* before files are read: that takes a while */
    return answer == DONE ? load_data(r, &filter, plan) : answer;
}

static int judge(const bench_results *results) {
    int64_t broken = 0;
    for (size_t i = 0; i < results->count; i++)
        broken += bench_broken(&results->items[i]);
    return broken ? fail("%lld values are not what the codec promises", (long long)broken) : DONE;
}

static int run_on_cpu(const request *r, const bench_plan *plan) {
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
    if (answer == DONE)
        answer = judge(&results);
    bench_summary_free(&summary);
    bench_results_free(&results);
    return answer;
}

int bench_tensors(int argc, char **argv) {
    request r = {0};
    bench_plan *plan = calloc(1, sizeof *plan);
    int answer = plan ? read_request(&r, argc, argv) : fail_memory();
    if (answer == DONE && r.help) {
        fputs(help, stdout);
    } else if (answer == DONE) {
        answer = make_plan(&r, plan);
        if (answer == DONE)
            answer = is_norm(&r)                       ? bench_norm(plan, r.json)
                     : plan->device.kind == COMET_CUDA ? bench_cuda(plan, r.json)
                                                       : run_on_cpu(&r, plan);
        tensors_free(&plan->data);
        comet_threads_free(plan->threads);
    }
    free(plan);
    text_array_free(&r.data);
    text_array_free(&r.operands);
    return answer;
}
