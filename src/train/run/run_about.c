/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of a run as files that say what they are of, and which of its evaluations was the best. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/file/exclusive_file.h"
#include "base/memory.h"
#include "train/checkpoint/about.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/weights.h"
#include "train/run/run_impl.h"

comet_status comet_run_write_weights(comet_run_session *s, const char *path) {
    comet_graph *graph = comet_trainer_graph(s->trainer);
    comet_run_identity id;
    char *images, accuracy[32], step[32];
    size_t bytes;
    comet_status status = comet_run_identity_init(&id, s);
    if (status != COMET_OK)
        return status;
    status = comet_about_text(s->options->data, &s->trainer_options.normalisation, s->trainer_options.channels,
                              s->allocator, &images, &bytes, s->message);
    if (status == COMET_OK) {
        snprintf(step, sizeof step, "%" PRId64, s->step);
        snprintf(accuracy, sizeof accuracy, "%.17g", s->result->top1);
        const comet_safetensors_text texts[] = {
            {"comet.model", id.model},
            {"comet." COMET_ABOUT_IMAGES, images},
            {"comet." COMET_ABOUT_DATA, s->options->data_name ? s->options->data_name : ""},
            {"comet.step", step},
            {"comet.accuracy", accuracy}};
        const size_t count = s->evaluated_step == s->step ? 5 : 4;
        status = comet_weights_write_about(path, comet_graph_parameter(graph, 0), comet_graph_parameters(graph),
                                           *comet_trainer_batches(s->trainer), texts, count, s->allocator, s->message);
        comet_memory_give(s->allocator, images, bytes);
    }
    comet_run_identity_destroy(&id, s);
    return status;
}

/* ---- the best evaluation ---- */

static void best_path(const comet_run_session *s, char path[COMET_ABOUT_PATH]) {
    snprintf(path, COMET_ABOUT_PATH, "%.1000s/" COMET_BEST_FILE, s->options->folder);
}

/* Evaluations up to a step, that of the step included. */
static int64_t evaluations_until(const comet_run_session *s, int64_t step) {
    const int every = s->options->evaluate_every;
    return every && s->epoch_batches ? step * s->accumulate / s->epoch_batches / every : 0;
}

int64_t comet_run_evaluations_since_best(const comet_run_session *s) {
    return s->best_step < 0 ? 0 : evaluations_until(s, s->step) - evaluations_until(s, s->best_step);
}

comet_status comet_run_keep_best(comet_run_session *s) {
    char path[COMET_ABOUT_PATH];
    if (s->best_step >= 0 && s->result->top1 <= s->best_accuracy)
        return COMET_OK;
    s->best_step = s->step;
    s->best_accuracy = s->result->top1;
    if (!s->options->folder)
        return COMET_OK;
    best_path(s, path);
    return comet_run_write_weights(s, path);
}

/* What is damaged, or is of a step that this run has yet to make, is written anew. */
comet_status comet_run_recall_best(comet_run_session *s) {
    char path[COMET_ABOUT_PATH];
    comet_safetensors *file;
    comet_about about;
    comet_message unread;
    best_path(s, path);
    comet_status status = comet_safetensors_open(path, s->allocator, &file, &unread);
    if (status != COMET_OK)
        return status == COMET_ERROR_MEMORY ? comet_message_memory(s->message) : COMET_OK;
    status = comet_about_read(file, s->allocator, &about);
    comet_safetensors_close(file);
    if (status != COMET_OK)
        return comet_message_memory(s->message);
    if (about.accuracy >= 0 && about.step >= 0 && about.step <= s->step) {
        s->best_step = about.step;
        s->best_accuracy = about.accuracy;
    }
    comet_about_free(&about);
    return COMET_OK;
}

comet_status comet_run_put_best_aside(comet_run_session *s) {
    char path[COMET_ABOUT_PATH], stem[COMET_ABOUT_PATH], to[COMET_ABOUT_PATH + 64];
    best_path(s, path);
    snprintf(stem, sizeof stem, "%.1000s/earlier-best", s->options->folder);
    if (access(path, F_OK) == 0 && comet_put_aside(path, stem, ".safetensors", to, sizeof to) != 0)
        return comet_message_set(s->message, COMET_ERROR_IO, "cannot put aside '%.400s'", path);
    return COMET_OK;
}
