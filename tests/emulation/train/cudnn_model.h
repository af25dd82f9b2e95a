// SPDX-License-Identifier: Apache-2.0
// The stand-in's descriptors. It takes what cuDNN's header and documentation say and nothing else: an attribute of
// another type or count, one that a kind of descriptor does not have, one that is missing, a descriptor that is not
// finalised where a finalised one is needed, or the other way round, are errors, as are tensors that do not belong
// together. What it computes are convolutions of two dimensions, channels last, one to a graph.
#ifndef COMET_EMULATION_CUDNN_MODEL_H
#define COMET_EMULATION_CUDNN_MODEL_H

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cudnn_graph.h"
#include "stand_in.h"

struct cudnn_descriptor;
using cudnn_reference = std::shared_ptr<cudnn_descriptor>;

// An attribute as it was set: bytes, or other descriptors.
struct cudnn_attribute {
    int64_t count;
    std::vector<unsigned char> bytes;
    std::vector<cudnn_reference> references;
};

struct cudnn_knob_range {
    cudnnBackendKnobType_t type;
    int64_t least, most;
};

struct cudnn_engine {
    int64_t index;
    std::vector<cudnnBackendNumericalNote_t> notes;
    std::vector<cudnnBackendBehaviorNote_t> behaviour;
    std::vector<cudnn_knob_range> knobs;
    int64_t workspace;
    bool refuses;
};

// A configuration that the heuristics offer.
struct cudnn_offer {
    int64_t engine;
    std::vector<int64_t> knobs; // in the order of the engine's
};

// What a graph computes. Tensors: x, filter, y, in every direction; extents n, c, h, w.
struct cudnn_convolution {
    cudnnBackendDescriptorType_t direction;
    cudnnDataType_t type;
    int64_t names[3], extents[3][4], strides[3][4], alignments[3];
    int64_t pads[2], stride[2], dilation[2], groups;
    float alpha, beta;
    int result() const {
        return direction == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR         ? 2
               : direction == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? 0
                                                                                           : 1;
    }
    int64_t values(int tensor) const {
        return extents[tensor][0] * extents[tensor][1] * extents[tensor][2] * extents[tensor][3];
    }
};

struct cudnn_descriptor {
    explicit cudnn_descriptor(cudnnBackendDescriptorType_t t);
    ~cudnn_descriptor();
    cudnn_descriptor(const cudnn_descriptor &) = delete;
    cudnn_descriptor &operator=(const cudnn_descriptor &) = delete;

    cudnnBackendDescriptorType_t type;
    bool finalized = false;
    std::map<int, cudnn_attribute> attributes;
    cudnn_convolution convolution{}; // an operation's and a graph's
    std::vector<cudnn_offer> offers; // of heuristics

    bool has(int name) const {
        return attributes.count(name) != 0;
    }
    template <class T> T value(int name, size_t at = 0) const {
        return ((const T *)attributes.at(name).bytes.data())[at];
    }
    const cudnn_reference &reference(int name, size_t at = 0) const {
        return attributes.at(name).references[at];
    }
};

// The error as cuDNN keeps it for the thread; returns the status.
cudnnStatus_t cudnn_error(cudnnStatus_t status, const char *format, ...) __attribute__((format(printf, 2, 3)));

// What a user holds is a pointer to a reference, so that what others refer to outlives it. NULL: it is none of ours.
cudnn_reference cudnn_find(cudnnBackendDescriptor_t descriptor);
cudnnBackendDescriptor_t cudnn_hold(const cudnn_reference &descriptor);

// Fills one that a user made with what is read into it.
cudnnStatus_t cudnn_fill(cudnnBackendDescriptor_t descriptor, cudnnBackendDescriptorType_t type,
                         const cudnn_reference &with);

bool cudnn_is_handle(cudnnHandle_t handle);
cudaStream_t cudnn_stream(cudnnHandle_t handle);

// cudnn_attributes.cc
cudnnStatus_t cudnn_set(const cudnn_reference &d, int name, cudnnBackendAttributeType_t type, int64_t count,
                        const void *values);
cudnnStatus_t cudnn_get(const cudnn_reference &d, int name, cudnnBackendAttributeType_t type, int64_t room,
                        int64_t *count, void *values);
// The name of the first attribute that is missing; -1: none.
int cudnn_missing(const cudnn_descriptor &d);
void cudnn_put(cudnn_descriptor &d, int name, int64_t count, const void *values, size_t bytes);
void cudnn_put(cudnn_descriptor &d, int name, std::vector<cudnn_reference> references);

// cudnn_finalize.cc
cudnnStatus_t cudnn_finalize(const cudnn_reference &d);

// cudnn_engines.cc
const cudnn_engine *cudnn_engine_at(int64_t index);
cudnnStatus_t cudnn_offers(const cudnn_convolution &c, cudnnBackendHeurMode_t mode, std::vector<cudnn_offer> &offers);
cudnn_reference cudnn_config_of(const cudnn_reference &graph, const cudnn_offer &offer);
bool cudnn_refuses(int64_t engine);
cudnnStatus_t cudnn_run(cudnnHandle_t handle, const cudnn_descriptor &plan, const cudnn_descriptor &pack);

// cudnn_compute.cc: what a run needs of all that, by value.
struct cudnn_job {
    cudnn_convolution convolution;
    void *tensors[3], *workspace;
    int64_t engine, workspace_bytes;
    bool rounds;          // fp32 to TF32
    uint32_t disturbance; // of results, in their last bits
    double milliseconds;  // that it takes longer
};
void cudnn_compute(const cudnn_job &job);

#endif
