/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/train/train_place.h"

#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/common/parse.h"

enum { MOST_DEVICES = 1024 };

static int read_device(const char *text, comet_device *device) {
    int64_t index = 0;
    *device = (comet_device){COMET_CPU, 0};
    if (!text || strcmp(text, "cpu") == 0)
        return DONE;
    if (strncmp(text, "cuda", 4) != 0 || (text[4] && text[4] != ':'))
        return misuse("--device: '%.40s' is not one of cpu, cuda, cuda:N", text);
    if (text[4] && parse_integer("--device cuda:", text + 5, 0, MOST_DEVICES, &index) != DONE)
        return MISUSED;
    *device = (comet_device){COMET_CUDA, (int32_t)index};
    return DONE;
}

static int read_numbers(const char *text, comet_place *place) {
    static const struct {
        const char *name;
        comet_dtype dtype;
        int exact;
    } numbers[] = {{"tf32", COMET_F32, 0}, {"fp32", COMET_F32, 1}, {"bf16", COMET_BF16, 0}, {"fp16", COMET_F16, 0}};
    const int on_gpu = place->device.kind == COMET_CUDA;
    for (size_t i = 0; text && i < sizeof numbers / sizeof *numbers; i++) {
        if (strcmp(text, numbers[i].name) != 0)
            continue;
        if (!on_gpu && strcmp(text, "fp32") != 0)
            return misuse("--dtype %s is for --device cuda: a CPU computes in fp32", text);
        place->dtype = numbers[i].dtype;
        place->exact_products = on_gpu && numbers[i].exact;
        return DONE;
    }
    return text ? misuse("--dtype: '%.40s' is not one of fp32, tf32, bf16, fp16", text) : DONE;
}

int place_read(const place_texts *texts, comet_place *place) {
    *place = (comet_place){.dtype = COMET_F32};
    int answer = read_device(texts->device, &place->device);
    if (answer == DONE)
        answer = read_numbers(texts->dtype, place);
    if (answer == DONE && texts->deterministic && place->device.kind == COMET_CPU)
        answer = misuse("--deterministic is for --device cuda: on a CPU results are the same in every run");
    place->deterministic = texts->deterministic;
    place->unrecorded = texts->no_graphs;
    return answer;
}
