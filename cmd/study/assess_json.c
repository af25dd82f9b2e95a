/* SPDX-License-Identifier: Apache-2.0 */
/* An assessment as JSON. */
#include <stdio.h>
#include <stdlib.h>

#include "cmd/common/command.h"
#include "cmd/common/json.h"
#include "cmd/study/assess.h"

static void put_row(json *j, const char *bound, const comet_assess_row *r) {
    json_open(j, NULL, '{', 1);
    json_string(j, "name", r->tensor);
    json_string(j, "use", r->use);
    json_string(j, "gradient", r->gradient);
    json_string(j, "bound", bound);
    json_number(j, "error_rel", r->error_rel);
    json_number(j, "sigma_predicted", r->predicted);
    json_number(j, "sigma_measured", r->measured);
    json_number(j, "ratio", r->ratio);
    json_number(j, "joint_sigma_predicted", r->joint_predicted);
    json_number(j, "joint_sigma_measured", r->joint_measured);
    json_number(j, "joint_ratio", r->joint_ratio);
    json_number(j, "factor", r->factor);
    json_integer(j, "factor_measured", r->measured_times);
    json_number(j, "joint_factor", r->joint_factor);
    json_number(j, "ratio_with_factor", r->ratio_with_factor);
    json_number(j, "joint_ratio_with_factor", r->joint_ratio_with_factor);
    json_number(j, "gradient_rms", r->gradient_rms);
    json_integer(j, "values", r->values);
    json_number(j, "mean_over_sigma", comet_histogram_mean(r->errors));
    json_number(j, "within_sigma", comet_histogram_within_one(r->errors));
    json_number(j, "excess_kurtosis", comet_histogram_kurtosis(r->errors));
    json_number(j, "distance_normal", comet_histogram_distance(r->errors, comet_normal_distribution));
    json_close(j, '}');
}

static void put_tensor(json *j, const char *bound, const comet_assess_tensor *t) {
    json_open(j, NULL, '{', 1);
    json_string(j, "name", t->name);
    json_string(j, "bound", bound);
    json_number(j, "error_rel", t->error_rel);
    json_number(j, "rms", t->rms);
    json_number(j, "values", t->values);
    json_number(j, "zeros", t->zeros);
    json_number(j, "exact", t->exact);
    json_number(j, "variance_ratio", assess_variance(t));
    json_number(j, "mean_over_bound", comet_histogram_mean(t->errors));
    json_number(j, "distance_uniform", comet_histogram_distance(t->errors, comet_uniform_distribution));
    json_number(j, "largest_over_bound", t->largest);
    json_close(j, '}');
}

static void put_layers(json *j, const assess_case *c) {
    json_open(j, "layers", '[', 0);
    for (int b = 0; b < c->bounds.count; b++)
        for (int i = 0; i < comet_assess_rows(c->assess); i++) {
            comet_assess_row row;
            comet_assess_get_row(c->assess, b, i, &row);
            put_row(j, c->bounds.items[b], &row);
        }
    json_close(j, ']');
    json_open(j, "tensors", '[', 0);
    for (int b = 0; b < c->bounds.count; b++)
        for (int i = 0; i < comet_assess_tensors(c->assess); i++) {
            comet_assess_tensor tensor;
            comet_assess_get_tensor(c->assess, b, i, &tensor);
            put_tensor(j, c->bounds.items[b], &tensor);
        }
    json_close(j, ']');
}

static void put_joint(json *j, const assess_case *c) {
    json_open(j, "joint", '[', 0);
    for (int b = 0; b < c->bounds.count; b++) {
        comet_assess_joint joint;
        comet_assess_get_joint(c->assess, b, &joint);
        json_open(j, NULL, '{', 1);
        json_string(j, "bound", c->bounds.items[b]);
        json_integer(j, "layers", joint.layers);
        json_number(j, "measured", joint.measured);
        json_number(j, "predicted", joint.predicted);
        json_number(j, "with_factor", joint.with_factor);
        json_number(j, "largest", joint.largest);
        json_string(j, "largest_of", joint.largest_of);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void put_spread(json *j, const char *key, const assess_spread *s) {
    json_open(j, key, '{', 1);
    json_number(j, "median", s->median);
    json_number(j, "p10", s->low);
    json_number(j, "p90", s->high);
    json_close(j, '}');
}

static void put_summary(json *j, const assess_case *c, const assess_use_summary *list, int count) {
    json_open(j, "summary", '{', 0);
    json_open(j, "uses", '[', 0);
    for (int i = 0; i < count; i++) {
        json_open(j, NULL, '{', 1);
        json_string(j, "use", list[i].use);
        json_string(j, "bound", c->bounds.items[list[i].bound]);
        json_integer(j, "count", list[i].ratio.count);
        put_spread(j, "ratio", &list[i].ratio);
        put_spread(j, "joint_ratio", &list[i].joint_ratio);
        put_spread(j, "ratio_with_factor", &list[i].ratio_with_factor);
        put_spread(j, "joint_ratio_with_factor", &list[i].joint_ratio_with_factor);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_open(j, "tensors", '[', 0);
    for (int b = 0; b < c->bounds.count; b++) {
        const assess_tensor_summary s = assess_summarise_tensors(c, b);
        json_open(j, NULL, '{', 1);
        json_string(j, "bound", c->bounds.items[b]);
        json_integer(j, "count", s.variance.count);
        put_spread(j, "variance_ratio", &s.variance);
        put_spread(j, "distance_uniform", &s.distance);
        json_close(j, '}');
    }
    json_close(j, ']');
    put_joint(j, c);
    json_close(j, '}');
}

int assess_print_json(const assess_case *c) {
    json j = {.file = stdout};
    int count;
    assess_use_summary *list = assess_summarise(c, &count);
    if (!list)
        return FAILED;
    json_open(&j, NULL, '{', 0);
    json_string(&j, "model", c->run->trainer.model);
    json_string(&j, "data", comet_dataset_get_info(c->run->data)->name);
    json_integers(&j, "image", 3, (int64_t[]){c->height, c->width, c->channels});
    json_integer(&j, "batch", c->run->trainer.batch);
    json_integer(&j, "batches", c->batches);
    json_integer(&j, "factors", c->factors);
    json_integer(&j, "steps", c->steps);
    json_integer(&j, "seed", (int64_t)c->run->trainer.seed);
    json_string(&j, "control", c->run->trainer.control);
    put_layers(&j, c);
    put_summary(&j, c, list, count);
    json_close(&j, '}');
    free(list);
    return DONE;
}
