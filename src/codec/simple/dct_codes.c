/* SPDX-License-Identifier: Apache-2.0 */
/* The greatest magnitude of each channel. A maximum is exact in any order, so workers share out the values freely. */
#include "codec/simple/dct_codes.h"

enum { VALUES_A_CHANNEL = 16 }; /* a worker has at least so many: its table of maxima stays small beside them */

typedef struct maxima_work {
    codec_view view;
    const codec_maps *maps;
    int64_t count;
    uint32_t *tables; /* one of maps->channels patterns for each worker */
    unsigned workers;
} maxima_work;

static unsigned maxima_workers(const codec_maps *maps, int64_t count, unsigned threads) {
    int64_t enough = count / maps->channels / VALUES_A_CHANNEL;
    if (enough < 1)
        return 1;
    return enough < (int64_t)threads ? (unsigned)enough : threads;
}

size_t comet_dct_maxima_workspace(const codec_maps *maps, int64_t count, unsigned threads) {
    return (size_t)maxima_workers(maps, count, threads) * (size_t)maps->channels * sizeof(uint32_t);
}

COMET_INLINE uint32_t greatest(const float *x, int64_t n, uint32_t most) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t magnitude = comet_dct_magnitude(x[i]);
        most = magnitude > most ? magnitude : most;
    }
    return most;
}

COMET_INLINE void greatest_across(const float *x, int64_t n, uint32_t *most) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t magnitude = comet_dct_magnitude(x[i]);
        most[i] = magnitude > most[i] ? magnitude : most[i];
    }
}

COMET_INLINE void maxima_share(const maxima_work *w, unsigned worker) {
    float buffer[DCT_RUN];
    uint32_t *table = w->tables + (int64_t)worker * w->maps->channels;
    memset(table, 0, (size_t)w->maps->channels * sizeof *table);
    int64_t first, end;
    comet_share(w->count, w->workers, worker, &first, &end);
    while (first < end) {
        dct_run run = comet_dct_run(w->maps, first, end);
        const float *x = comet_view_read(&w->view, first, run.count, buffer);
        if (run.across)
            greatest_across(x, run.count, table + run.channel);
        else
            table[run.channel] = greatest(x, run.count, table[run.channel]);
        first += run.count;
    }
}

static void maxima_any(void *context, unsigned worker) {
    maxima_share(context, worker);
}

COMET_FOR_AVX2 static void maxima_avx2(void *context, unsigned worker) {
    maxima_share(context, worker);
}

void comet_dct_maxima(const codec_view *view, const codec_maps *maps, int64_t count, comet_threads *threads,
                      comet_isa isa, void *workspace, uint8_t *maxima) {
    maxima_work w = {.view = *view, .maps = maps, .count = count, .tables = workspace};
    w.workers = maxima_workers(maps, count, comet_threads_count(threads));
    comet_parallel(threads, w.workers, isa >= COMET_ISA_AVX2 ? maxima_avx2 : maxima_any, &w);
    for (int64_t c = 0; c < maps->channels; c++) {
        uint32_t most = 0;
        for (unsigned i = 0; i < w.workers; i++) {
            uint32_t of_worker = w.tables[(int64_t)i * maps->channels + c];
            most = of_worker > most ? of_worker : most;
        }
        comet_write_u32(maxima + 4 * c, most);
    }
}
