/* SPDX-License-Identifier: Apache-2.0 */
/* Options, device stores, and what is known of each place in the network whose tensors are held. */
#ifndef LIBCOMET_SESSION_H
#define LIBCOMET_SESSION_H

#include "torch/torch_api.h"

/* What a saved tensor is used for in backward, which decides how it may be held. */
typedef enum role {
    ROLE_NONE,     /* exact: kept as it is */
    ROLE_VALUE,    /* input of a convolution or linear layer */
    ROLE_RELU,     /* result of a ReLU: which values are zero must stay */
    ROLE_CURVE,    /* input of a SiLU or GELU */
    ROLE_NORM,     /* input of a batch norm */
    ROLE_ROW_NORM, /* input of a layer or group norm */
    ROLE_SCALED,   /* what is multiplied by factors, of which each is for many values */
    ROLE_SHAPE,    /* input of a pooling: backward reads its shape alone */
    ROLE_INDICES,  /* where a max-pool found its values */
    ROLE_BITS,     /* a mask of a dropout */
    ROLE_NOISE,    /* the same as numbers: 0, and one other */
    ROLES
} role;

/* How tensors are held: the session's own way is form 0, modules may have others. */
typedef struct form {
    enum { FORM_CODEC, FORM_LOSSLESS, FORM_UNTOUCHED } kind;
    comet_codec_params codec;
    double bounds[ROLES]; /* relative, by use */
} form;

enum { FORMS = 64, FORM_OF_BLOCKS = 2 }; /* the numbers of options.py: 0 is the session's own, 1 leaves all as it is */

/* Where a site's tensors are between forward and backward: the numbers are budget.py's too. */
typedef enum place { PLACE_DEVICE, PLACE_HOST, PLACE_AS_IT_IS } place;

/* One place in the network: an operation's tensor, of one shape, in every step. */
typedef struct site {
    struct {
        const void *owner; /* the weight of the last operation that has one */
        uint32_t use;      /* how many tensors were held since then */
        uint32_t role, dtype;
        int64_t count;
    } key;
    PyObject *name;
    size_t raw_bytes;
    size_t bytes;         /* of its last stream; 0: unknown */
    size_t read_bytes;    /* the same of the last one that was read, which does not depend on timing; 0: none was */
    double margin;        /* how much more is set aside: 0.06 is 6 % */
    double rms;           /* of the non-zeros, when they were last looked at; 0: unknown */
    double set_bound;     /* by a controller: relative to rms, or to a channel's deviation; 0: the session's */
    double used_bound;    /* as it was last used */
    uint32_t number, kin; /* kin: the first site that differs in its count alone */
    int32_t tensor;       /* of a controller (control.h), and 1 more; 0: none */
    uint64_t seen_saves;  /* that the controller knows of */
    uint64_t saves, aliases, loads, misfits;
    uint64_t referenced;            /* loads whose tensor was still somebody's: compressing it saved nothing */
    uint64_t kept, heads;           /* as they were: for want of memory, because backward begins with them */
    double raw_total, stored_total; /* over all saves whose size is known */
    /* Of the last forward pass that went through here: */
    size_t streams_before; /* bytes of the streams of earlier sites */
    size_t raw_after;      /* of its own tensor and of later ones */
    struct site *follower; /* NULL: it was the last */
    int was_passed;
    uint32_t order;    /* in that pass */
    double footprint;  /* footprint.h; 0: not measured the last time */
    size_t free_bytes; /* below the peak, as it was measured */
    int is_measured;
    /* Under a budget (budget.h): */
    place place;
    size_t lead;
    int is_planned, was_measured;
    int is_part;                        /* of a block that was done again, in its last pass */
    int can_stay;                       /* it can be kept as it is, without anything else being held instead */
    double forward_need, backward_need; /* PyTorch's bytes without ours, when it was saved, and when it was read */
    struct site *next;                  /* in the order in which they were found */
} site;

typedef struct entry entry;
struct collect;

/* Why a tensor is kept as it is: the numbers are report_data.py's too. */
typedef enum reason {
    REASON_FUNCTION, /* no known function saves it */
    REASON_WEIGHT,
    REASON_SMALL,
    REASON_EXCLUDED, /* by include, exclude or forms */
    REASON_USERS,    /* made by nobody: an input of the user's own */
    REASON_EXACT,    /* of a known function, whose backward pass needs it exactly */
    REASON_OTHER,    /* a subclass, a device of another kind */
    REASONS
} reason;

/* Who looks at what is stored (control/collect.h). */
typedef struct stored_watch {
    int (*stored)(entry *e, const float *gamma, int relu); /* its tensor is still there. -1: exception */
    void (*was_read)(entry *e);
} stored_watch;

typedef struct kept_count {
    uint64_t tensors;
    double bytes;
} kept_count;

/* For the GPU's memory; budget.h. */
typedef struct budget {
    size_t bytes;              /* 0: there is none */
    size_t flight;             /* this many may be on their way to the host */
    comet_device_store *store; /* the one whose device it is for */
    PyObject *probe;           /* () -> PyTorch's peak since it was last called */
    int is_frugal, is_measuring;
    site *last;       /* that was noted */
    double last_held; /* bytes of streams then */
    double peak;      /* the greatest that was measured */
    site **sites;     /* of the last forward pass */
    size_t site_count;
    entry *earliest, *latest; /* whose streams belong on the host, in the order in which they were saved */
    entry *waiting;           /* the first of these that is not on its way yet */
} budget;

/* What is allocated in the course of a step: footprint.h. */
typedef struct footprint {
    PyObject *ask;             /* () -> PyTorch's bytes, and the most there were; NULL: not measured */
    comet_device_store *store; /* of the device that it is for */
    int is_measuring;
    uint64_t reads; /* since that began */
    double peak;    /* of these */
    double forward; /* PyTorch's own peak when the first of these came */
    int is_growing; /* more of the room is taken up from pass to pass */
    int shares;     /* of it that are */
    int has_begun;  /* a pass of which nothing has been read yet */
} footprint;

enum { SESSION_DEVICES = 17 }; /* the CPU and 16 GPUs */

/* Memory of a GPU that small tables are cut from. It goes when the last of them does. */
typedef struct table_chunk {
    PyObject *tensor; /* NULL: there is none yet */
    void *queue;
    char *at;
    size_t left;
} table_chunk;

typedef struct session {
    PyObject_HEAD
        /* options */
        form forms[FORMS];
    int form_count;
    size_t least_bytes, lead_bytes, segment_bytes;
    int own_norms;        /* batch norms are computed with libcomet's kernels where that can be */
    long long head_bytes; /* -1: as many as there is room for */
    comet_threads *threads;
    /* state */
    comet_device_store *stores[SESSION_DEVICES];
    site **sites;
    size_t site_count, site_room; /* room: a power of two */
    site *first, **last;
    entry **aliases; /* by address; open addressing */
    size_t alias_count, alias_room;
    entry *redo;                     /* entries to be done again: entry.c */
    size_t expected_peak, head_room; /* session_learn_pass */
    double waited;                   /* for the device, in seconds */
    size_t greatest;                 /* tensor held so far, in bytes */
    PyObject *norms;                 /* a dict: thread -> the batch norm that it unpacked last */
    entry *read;                     /* the last one that was decoded, while another reader of it is to come, */
    PyObject *tensor;                /* and what came out */
    PyObject *no_thresholds[SESSION_DEVICES], *index_status[SESSION_DEVICES];
    int64_t no_threshold_room[SESSION_DEVICES];
    table_chunk tables[SESSION_DEVICES];
    double shape_bytes, index_bytes, index_raw_bytes;
    kept_count kept[REASONS];
    budget budget;
    footprint footprint;
    struct collect *collect;   /* in an iteration of which statistics are wanted, else NULL; the controller's */
    const stored_watch *watch; /* NULL when that is */
} session;

/* Borrowed; NULL with an exception. */
comet_device_store *session_store(session *s, comet_device device);
site *session_site(session *s, const site *key, PyObject *name);

/* A table of NaN, one for each channel: no thresholds. Borrowed; NULL with an exception. */
PyObject *session_no_thresholds(session *s, comet_device device, int64_t channels);

/* Memory for a small table on a GPU, aligned to 16 bytes, which lives as long as *owner: a new reference. NULL with an
 * exception. */
void *session_table(session *s, comet_device device, void *queue, size_t bytes, PyObject **owner);

/* A word that packing indices on a GPU reports into, page-locked: the host may read it, too. NULL with an exception. */
int32_t *session_index_status(session *s, comet_device device);

/* -1 and an exception: indices were packed that are not of their windows, as far as the device has come. */
int session_check_indices(const session *s, comet_device device);

/* Waits, without the interpreter's lock, until it is known whether a stream fitted. Takes a reference and drops it. */
int session_await(session *s, comet_device_store *store, comet_device_entry *held);

/* Settles what has arrived. */
int session_poll_store(session *s, comet_device_store *store);

/* Waits until no more is unsettled than there is room for at this point of the forward pass. */
int session_keep_lead(session *s, comet_device_store *store, site *at);

/* What a forward pass held, in order. From this follows how far the host may be ahead of the device in the next one. */
void session_learn_pass(session *s, site *const *sites, size_t count);

/* Backward begins with this one: while it is needed there is room for it as it is. */
int session_is_head(session *s, site *at, comet_device device);

/* Forgets the tensor that was decoded last. */
void session_drop_read(session *s);

/* The batch norm whose values this thread has asked autograd for (pass/norm.h), noted, and taken once. */
int session_note_norm(session *s, PyObject *norm);
PyObject *session_take_norm(session *s); /* NULL with an exception */

#endif
