/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training run: epochs of a data set through a trainer, evaluation, checkpoints. Figures go to an observer as they
 * arise; what is done with them (a progress line, a log, a report) is the observer's.
 */
#ifndef COMET_TRAIN_RUN_H
#define COMET_TRAIN_RUN_H

#include <signal.h>

#include "data/loader/loader.h"
#include "data/sets/dataset.h"
#include "train/optimiser/schedule.h"
#include "train/trainer/trainer.h"

typedef enum comet_run_event_kind {
    COMET_RUN_STARTED,    /* the trainer is made, weights are there, nothing has run */
    COMET_RUN_STEP,       /* an update was made */
    COMET_RUN_EVALUATING, /* so was a batch of the evaluation split; */
    COMET_RUN_EVALUATED,  /* all of it */
    COMET_RUN_CHECKPOINT, /* one was written */
    COMET_RUN_NOTE,       /* a line for people: a broken image, a checkpoint that was damaged */
    COMET_RUN_CONTROL     /* the controller decided something */
} comet_run_event_kind;

typedef struct comet_run_event {
    comet_run_event_kind kind;
    comet_trainer *trainer;
    int64_t step, steps; /* updates done, and in all */
    uint32_t epoch;      /* from 0 */
    double learning_rate;
    comet_trainer_result result;        /* STEP: loss and bytes are means over its batches, top1 and top5 sums */
    int64_t images;                     /* STEP: in its batches */
    double step_ms, images_per_second;  /* STEP: of this one, data included */
    double wait_ms;                     /* STEP: of this time, spent waiting for batches */
    double loss, top1, top5;            /* EVALUATED, EVALUATING: so far; per cent */
    int64_t samples;                    /* of that */
    int64_t evaluated, to_evaluate;     /* images: in all evaluations so far, in those to come */
    size_t planned_peak_bytes;          /* STARTED: comet_run_planned_peak */
    const char *text;                   /* NOTE; CHECKPOINT: its folder */
    const comet_control_event *control; /* CONTROL */
} comet_run_event;

/* What becomes of a checkpoint in the folder. */
typedef enum comet_run_resume {
    COMET_RUN_ANEW, /* it becomes earlier.safetensors, or earlier-2.safetensors, ...: none of these is ever replaced */
    COMET_RUN_RESUME,     /* the run goes on from it; refused where there is none */
    COMET_RUN_RESUME_AUTO /* goes on from it if there is one; if not, begins anew and says so */
} comet_run_resume;

typedef struct comet_run_options {
    /*
     * control_log: the run's own; classes, normalisation, reserved_bytes: set from the data; height, width or channels
     * 0: the data's, and the model's own size where images differ
     */
    comet_trainer_options trainer;
    const comet_dataset *data;
    comet_augment augment;
    unsigned loader_threads; /* 0: what suits the data */
    int epochs;
    int64_t steps; /* updates in all; 0: what the epochs make */
    comet_schedule_kind schedule;
    double rate;
    double warmup_epochs;
    int evaluate_every;       /* epochs; 0: at the end only */
    int patience;             /* evaluations without a better accuracy after which the run ends; 0: it goes on */
    int64_t evaluate_most;    /* images, of all classes; 0: all */
    const char *weights;      /* to start from, or NULL */
    const char *weights_out;  /* where they go at the end, or NULL */
    const char *folder;       /* of checkpoints, one run's at a time; NULL: none are written */
    int64_t checkpoint_every; /* updates; 0: every epoch */
    comet_run_resume resume;
    const char *data_name; /* what checkpoints say of the data, for people: "folder:/home/me/pets"; NULL: nothing */
    /*
     * Once the folder is this run's alone, before anything in it is changed or anybody is told of the run: a failure,
     * with its line, is the run's. NULL: none.
     */
    comet_status (*prepare)(void *context, comet_message *message);
    /*
     * After the last update, in place of the evaluation: a study of the network as it is then, with batches that follow
     * those trained on. With one, `steps` and `epochs` may both be 0: nothing is trained. NULL: none.
     */
    comet_status (*study)(void *context, comet_trainer *trainer, comet_loader *batches, comet_message *message);
    const volatile sig_atomic_t *stop; /* not 0: write a checkpoint after this update, return; NULL: never */
    void (*observe)(void *context, const comet_run_event *event);
    void *context; /* of all three */
} comet_run_options;

typedef struct comet_run_result {
    int64_t step;             /* updates done, skipped ones included */
    int64_t skipped;          /* of these: they were not finite */
    int ended_early;          /* 1: by options.patience */
    int stopped;              /* 1: by *stop, before the last evaluation was made */
    double train_loss;        /* mean of the last epoch, or of what was run of it */
    double loss, top1, top5;  /* of the last evaluation, per cent */
    double best_accuracy;     /* of the best evaluation, per cent; */
    int64_t best_step;        /* after it; -1: there was none */
    double ms_per_step;       /* median over updates, data included */
    double images_per_second; /* of such an update */
    /* Of an update without what it waited for batches: what the network would do with a loader that is never late. */
    double network_images_per_second;
    /* Parts of the updates' time: the trainer waited for batches; the loader's threads waited, all being ready. */
    double data_wait, loader_wait;
    uint64_t saved_raw_bytes, saved_stored_bytes; /* a step's: means over the run */
    comet_trainer_bytes bytes;
    size_t loader_bytes[COMET_SPLITS]; /* beside the trainer's, one at a time; of a GPU's memory: 0 */
} comet_run_result;

/*
 * All that the options ask for. A failure ends the run; its message says what to do, and which checkpoint there is to
 * go on from. COMET_ERROR_DIVERGED: values became infinite or NaN; checkpoints and weights that are there hold none.
 * *result is what was reached, after a failure too.
 */
comet_status comet_run(const comet_run_options *options, const comet_allocator *allocator, comet_run_result *result,
                       comet_message *message);

/* The trainer's options as comet_run completes them: sizes, classes, normalisation, and what data and loaders hold. */
comet_status comet_run_trainer_options(const comet_run_options *options, comet_trainer_options *trainer,
                                       size_t loader_bytes[COMET_SPLITS], comet_message *message);

/*
 * The most that trainer, its backend's library and loaders are planned to hold. While the network is evaluated its
 * loader takes the place of the training's, and nothing is saved for backward. The data set's own bytes are not in it.
 */
size_t comet_run_planned_peak(const comet_run_result *result);

/*
 * The largest batch up to `most` with which there is a plan within trainer.memory_bytes, data and loaders counted; 0:
 * none. What does not fit may be spilled and computed again.
 */
comet_status comet_run_largest_within(const comet_run_options *options, int most, const comet_allocator *allocator,
                                      int *batch, comet_message *message);

/*
 * The largest batch up to `most` with which trainer, data and loaders fit trainer.memory_bytes, every tensor being held
 * in the form that the options say: nothing else spilled or computed again. COMET_ERROR_CAPACITY: not even one of 1;
 * the message says what that takes.
 */
comet_status comet_run_largest_batch(const comet_run_options *options, int most, const comet_allocator *allocator,
                                     int *batch, comet_message *message);

#endif
