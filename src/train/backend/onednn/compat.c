/* SPDX-License-Identifier: Apache-2.0 */
#include "train/backend/onednn/compat.h"

#include <stddef.h>

#if DNNL_VERSION_MAJOR >= 3

dnnl_status_t comet_dnnl_md_make(comet_dnnl_own_md *own, int ndims, const dnnl_dims_t dims, dnnl_format_tag_t tag) {
    return dnnl_memory_desc_create_with_tag(own, ndims, dims, dnnl_f32, tag);
}

comet_dnnl_md comet_dnnl_md_read(const comet_dnnl_own_md *own) {
    return *own;
}

void comet_dnnl_md_destroy(comet_dnnl_own_md *own) {
    if (*own)
        dnnl_memory_desc_destroy(*own);
    *own = NULL;
}

dnnl_status_t comet_dnnl_conv_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, comet_dnnl_pass pass,
                                 const comet_dnnl_conv *c, dnnl_primitive_desc_t hint,
                                 const_dnnl_primitive_attr_t attr) {
    const dnnl_dims_t dilates = {0, 0};
    switch (pass) {
    case COMET_DNNL_FORWARD:
        return dnnl_convolution_forward_primitive_desc_create(
            pd, engine, c->training ? dnnl_forward_training : dnnl_forward_inference, dnnl_convolution_direct, c->src,
            c->weights, c->bias, c->dst, c->strides, dilates, c->padding, c->padding, attr);
    case COMET_DNNL_BACKWARD_DATA:
        return dnnl_convolution_backward_data_primitive_desc_create(pd, engine, dnnl_convolution_direct, c->src,
                                                                    c->weights, c->dst, c->strides, dilates, c->padding,
                                                                    c->padding, hint, attr);
    default:
        return dnnl_convolution_backward_weights_primitive_desc_create(pd, engine, dnnl_convolution_direct, c->src,
                                                                       c->weights, c->bias, c->dst, c->strides, dilates,
                                                                       c->padding, c->padding, hint, attr);
    }
}

#else

dnnl_status_t comet_dnnl_md_make(comet_dnnl_own_md *own, int ndims, const dnnl_dims_t dims, dnnl_format_tag_t tag) {
    return dnnl_memory_desc_init_by_tag(own, ndims, dims, dnnl_f32, tag);
}

comet_dnnl_md comet_dnnl_md_read(const comet_dnnl_own_md *own) {
    return own;
}

void comet_dnnl_md_destroy(comet_dnnl_own_md *own) {
    (void)own;
}

static dnnl_status_t describe(dnnl_convolution_desc_t *desc, comet_dnnl_pass pass, const comet_dnnl_conv *c) {
    switch (pass) {
    case COMET_DNNL_FORWARD:
        return dnnl_convolution_forward_desc_init(desc, c->training ? dnnl_forward_training : dnnl_forward_inference,
                                                  dnnl_convolution_direct, c->src, c->weights, c->bias, c->dst,
                                                  c->strides, c->padding, c->padding);
    case COMET_DNNL_BACKWARD_DATA:
        return dnnl_convolution_backward_data_desc_init(desc, dnnl_convolution_direct, c->src, c->weights, c->dst,
                                                        c->strides, c->padding, c->padding);
    default:
        return dnnl_convolution_backward_weights_desc_init(desc, dnnl_convolution_direct, c->src, c->weights, c->bias,
                                                           c->dst, c->strides, c->padding, c->padding);
    }
}

dnnl_status_t comet_dnnl_conv_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, comet_dnnl_pass pass,
                                 const comet_dnnl_conv *c, dnnl_primitive_desc_t hint,
                                 const_dnnl_primitive_attr_t attr) {
    dnnl_convolution_desc_t desc;
    dnnl_status_t status = describe(&desc, pass, c);
    return status == dnnl_success ? dnnl_primitive_desc_create(pd, &desc, attr, engine, hint) : status;
}

#endif
