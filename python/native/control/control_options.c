/* SPDX-License-Identifier: Apache-2.0 */
/* Options of a controller, by name. */
#include <stddef.h>
#include <string.h>

#include "control/control.h"

typedef struct option {
    const char *name;
    size_t at;
    enum { OPTION_NUMBER, OPTION_INT64, OPTION_INT32 } kind;
} option;

#define NUMBER(field)                                                                                                  \
    { #field, offsetof(comet_control_options, field), OPTION_NUMBER }
#define WHOLE(field)                                                                                                   \
    { #field, offsetof(comet_control_options, field), OPTION_INT64 }

static const option options[] = {
    NUMBER(calibration),
    NUMBER(warmup_bound),
    NUMBER(floor),
    NUMBER(ceiling),
    WHOLE(warmup),
    WHOLE(window),
    WHOLE(every),
    NUMBER(moved),
    NUMBER(spike),
    NUMBER(tighten),
    WHOLE(recover),
    NUMBER(smoothing),
    NUMBER(budget_bytes),
    NUMBER(budget_error),
    NUMBER(acgc_e),
    NUMBER(loosen),
    {"adaptive", offsetof(comet_control_options, adaptive), OPTION_INT32},
    {"measured", offsetof(comet_control_options, measured), OPTION_INT32},
};

static int set_option(comet_control_options *to, const char *name, double value) {
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        char *at = (char *)to + options[i].at;
        if (strcmp(name, options[i].name) != 0)
            continue;
        if (options[i].kind == OPTION_NUMBER)
            memcpy(at, &value, sizeof value);
        else if (options[i].kind == OPTION_INT64)
            memcpy(at, &(int64_t){(int64_t)value}, sizeof(int64_t));
        else
            memcpy(at, &(int32_t){(int32_t)value}, sizeof(int32_t));
        return 0;
    }
    PyErr_Format(PyExc_ValueError, "a controller has no option '%s'", name);
    return -1;
}

int control_read_options(comet_control_options *to, PyObject *dict) {
    Py_ssize_t at = 0;
    PyObject *key, *value;
    while (PyDict_Next(dict, &at, &key, &value)) {
        const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
        const double number = name ? PyFloat_AsDouble(value) : -1;
        if (PyErr_Occurred() || set_option(to, name, number))
            return -1;
    }
    const char *problem = comet_control_check(to);
    if (problem)
        PyErr_Format(PyExc_ValueError, "control: %s", problem);
    return problem ? -1 : 0;
}
