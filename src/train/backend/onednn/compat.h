/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What differs between oneDNN 2.6 and 3.x: a memory descriptor is a struct in one and a handle in the other, and
 * primitive descriptors are made in two calls or in one. Everything else the two share. The other files here call only
 * this and what has one form in both.
 */
#ifndef COMET_TRAIN_ONEDNN_COMPAT_H
#define COMET_TRAIN_ONEDNN_COMPAT_H

#include <oneapi/dnnl/dnnl.h>

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t comet_dnnl_md; /* to be read */
typedef dnnl_memory_desc_t comet_dnnl_own_md;   /* to be destroyed */
#else
typedef const dnnl_memory_desc_t *comet_dnnl_md;
typedef dnnl_memory_desc_t comet_dnnl_own_md;
#endif

/* The descriptor of an fp32 tensor, the same as what is read; and its end. */
dnnl_status_t comet_dnnl_md_make(comet_dnnl_own_md *own, int ndims, const dnnl_dims_t dims, dnnl_format_tag_t tag);
comet_dnnl_md comet_dnnl_md_read(const comet_dnnl_own_md *own);
void comet_dnnl_md_destroy(comet_dnnl_own_md *own);

typedef enum comet_dnnl_pass {
    COMET_DNNL_FORWARD,
    COMET_DNNL_BACKWARD_DATA,
    COMET_DNNL_BACKWARD_WEIGHTS
} comet_dnnl_pass;

/* A 2-D convolution; bias NULL: none. Gradients stand in the place of what they are the gradient of. */
typedef struct comet_dnnl_conv {
    comet_dnnl_md src, weights, bias, dst;
    dnnl_dims_t strides, padding;
    int training;
} comet_dnnl_conv;

/* `hint` is the forward's descriptor, NULL for the forward itself. */
dnnl_status_t comet_dnnl_conv_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, comet_dnnl_pass pass,
                                 const comet_dnnl_conv *conv, dnnl_primitive_desc_t hint,
                                 const_dnnl_primitive_attr_t attr);

#endif
