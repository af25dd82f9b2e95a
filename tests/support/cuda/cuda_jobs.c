/* SPDX-License-Identifier: Apache-2.0 */
#include "support/cuda/cuda_jobs.h"

#include <stdlib.h>
#include <string.h>

static void must(comet_status status) {
    if (status != COMET_OK)
        abort();
}

static void run_on_cpu(cuda_job *j) {
    comet_codec_exec exec = trip_exec(COMET_ISA_AUTO, NULL);
    rng r = rng_seed(1);
    failure f;
    trip_stream_free(&j->reference);
    free(j->expected);
    if (!trip_compress(&j->t, &exec, &j->reference, &f) ||
        !trip_decompress(&j->t, &j->reference, &exec, &r, STRIDES_CONTIGUOUS, &j->expected, &f))
        abort();
}

void cuda_job_new(cuda_job *j, rng *r, const trip_spec *spec) {
    void *host;
    memset(j, 0, sizeof *j);
    trip_new(&j->t, r, spec);
    cuda_params_new(&j->params, &j->t.params);
    j->in = cuda_block_new(cuda_view_bytes(&spec->shape, spec->dtype), j->t.patterns);
    j->out = cuda_block_new(trip_output_bytes(&j->t), NULL);
    j->result = cuda_block_new(sizeof(comet_cuda_result), NULL);
    j->bound = cuda_block_new(sizeof(float), NULL);
    j->params.p.device_bound = j->bound.data;
    j->params.p.bound = 7.0; /* is not read */
    comet_tensor in = cuda_view(&spec->shape, spec->dtype, j->in.data);
    j->workspace = cuda_workspace_new(&in, &j->params.p, NULL);
    cuda_must(cudaMallocHost(&host, sizeof *j->host));
    j->host = host;
    cuda_job_refill(j, r, spec->values, (float)spec->bound);
}

void cuda_job_free(cuda_job *j) {
    cuda_must(cudaFreeHost(j->host));
    cuda_workspace_free(&j->workspace);
    cuda_block_free(&j->bound);
    cuda_block_free(&j->result);
    cuda_block_free(&j->out);
    cuda_block_free(&j->in);
    cuda_params_free(&j->params);
    trip_stream_free(&j->reference);
    free(j->expected);
    trip_free(&j->t);
}

void cuda_job_refill(cuda_job *j, rng *r, value_kind values, float bound) {
    trip *t = &j->t;
    void *poison = malloc(j->out.bytes + 1);
    if (!poison)
        abort();
    memset(poison, CUDA_POISON, j->out.bytes);
    t->spec.bound = t->params.bound = (double)bound;
    values_fill(r, values, t->spec.dtype, t->spec.scale, t->spec.bound, t->patterns, t->count);
    test_tensor_write(&t->input, t->patterns);
    run_on_cpu(j);
    cuda_block_write(&j->in, t->patterns);
    cuda_block_write(&j->bound, &bound);
    cuda_block_write(&j->out, poison);
    free(poison);
    cuda_must(cudaDeviceSynchronize());
}

size_t cuda_job_bytes(const cuda_job *j) {
    size_t bytes;
    comet_tensor view = cuda_view(&j->t.spec.shape, j->t.spec.dtype, j->in.data);
    must(comet_cuda_max_bytes(&view, &j->params.p, &bytes));
    return (bytes + CUDA_ALIGNMENT - 1) / CUDA_ALIGNMENT * CUDA_ALIGNMENT;
}

comet_cuda_slot cuda_job_slot(const cuda_job *j, const cuda_block *memory, const uint64_t *start) {
    return (comet_cuda_slot){memory->data, memory->bytes, start, j->result.data};
}

comet_status cuda_job_compress(cuda_job *j, const comet_cuda_slot *slot, cudaStream_t queue) {
    comet_tensor view = cuda_view(&j->t.spec.shape, j->t.spec.dtype, j->in.data);
    comet_codec_exec exec = cuda_exec(&j->workspace, queue);
    return comet_cuda_compress(&view, &j->params.p, &exec, slot, j->host);
}

comet_status cuda_job_decompress(cuda_job *j, const comet_cuda_slot *slot, int32_t *word, cudaStream_t queue) {
    comet_tensor view = cuda_view(&j->t.spec.shape, trip_output_dtype(&j->t), j->out.data);
    comet_codec_exec exec = cuda_exec(&j->workspace, queue);
    return comet_cuda_decompress(slot, &j->params.p, NULL, &exec, &view, word);
}

const uint64_t *cuda_job_end(const cuda_job *j) {
    return &((const comet_cuda_result *)j->result.data)->end;
}

static int stream_is_right(const cuda_job *j, const unsigned char *memory, const comet_cuda_result *r, failure *f) {
    unsigned char *bytes = malloc(r->codec.bytes + 1);
    size_t size = 0;
    if (!bytes)
        abort();
    comet_status status = comet_codec_serialise(memory + r->start, r->codec.bytes, 0, bytes, r->codec.bytes, &size);
    int same = status == COMET_OK && size == j->reference.result.bytes && memcmp(bytes, j->reference.bytes, size) == 0;
    free(bytes);
    return same ? 1 : failure_set(f, "not the CPU's stream (%s)", comet_status_string(status));
}

int cuda_job_check(const cuda_job *j, const unsigned char *memory, failure *f) {
    comet_cuda_result *r = cuda_block_read(&j->result);
    void *out = cuda_block_read(&j->out);
    const comet_codec_record *c = &j->reference.result;
    int good = 1;
    if (memcmp(r, j->host, sizeof *r) != 0)
        good = failure_set(f, "the host's result is not the device's");
    else if (r->status != COMET_OK)
        good = failure_set(f, "%s", comet_status_string((comet_status)r->status));
    else if (memcmp(&r->codec.stats, &c->stats, sizeof c->stats) != 0 || r->codec.bound != c->bound ||
             r->codec.tiles != c->tiles || r->codec.tiles_exact != c->tiles_exact ||
             r->codec.tiles_wide != c->tiles_wide)
        good = failure_set(f, "not the CPU's result");
    else if (!stream_is_right(j, memory, r, f))
        good = 0;
    else if (memcmp(out, j->expected, j->out.bytes) != 0)
        good = failure_set(f, "not the CPU's values");
    free(out);
    free(r);
    return good ? 1 : trip_describe(&j->t, f);
}
