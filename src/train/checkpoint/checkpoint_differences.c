/* SPDX-License-Identifier: Apache-2.0 */
/* What two runs differ in, in the words of who started them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/image/augment.h"
#include "train/checkpoint/checkpoint_impl.h"
#include "train/optimiser/schedule.h"

/* Keys in the order in which options are written, and what the command calls them. */
enum { ERROR_REL = 1, CONTROL, KEYS = 19 };
static const struct {
    const char *key, *option;
} keys[KEYS] = {{"codec", "--codec"},
                {"error", "--error-rel"},
                {"control", "--control"},
                {"calibration", "--calibration"},
                {"batch", "--batch"},
                {"accumulate", "--accumulate"},
                {"seed", "--seed"},
                {"rate", "--lr"},
                {"schedule", "--schedule"},
                {"warmup", "--warmup"},
                {"momentum", "--momentum"},
                {"nesterov", "--nesterov"},
                {"decay", "--weight-decay"},
                {"betas", "betas"},
                {"smoothing", "--label-smoothing"},
                {"augment", "--no-augment"},
                {"forms", "--forms"},
                {"inject", "--inject-error"},
                {"freeze", "--freeze"}};

/* ---- taking texts apart ---- */

typedef struct value {
    const char *text; /* NULL: it is not there */
    size_t length;
} value;

/* Where `key`= begins a word of the text; NULL: nowhere. */
static const char *find_key(const char *text, const char *from, const char *key) {
    const size_t length = strlen(key);
    for (const char *at = strstr(from, key); at; at = strstr(at + 1, key))
        if ((at == text || at[-1] == ' ') && at[length] == '=')
            return at;
    return NULL;
}

/* A value ends where the next key begins: it may have spaces. 0: there is no key. */
static int take_apart(const char *text, value values[KEYS]) {
    const char *from = text;
    value *last = NULL;
    for (int i = 0; i < KEYS; i++) {
        const char *at = find_key(text, from, keys[i].key);
        values[i] = (value){0};
        if (!at)
            continue;
        if (last)
            last->length = (size_t)(at - last->text) - 1;
        values[i].text = from = at + strlen(keys[i].key) + 1;
        values[i].length = strlen(from);
        last = &values[i];
    }
    return last != NULL;
}

static int same(value a, value b) {
    return a.length == b.length && !a.text == !b.text && (!a.text || memcmp(a.text, b.text, a.length) == 0);
}

/* ---- as it would be typed ---- */

enum { SHOWN = 100 };

static void show_flag(int given, char shown[SHOWN]) {
    snprintf(shown, SHOWN, "%s", given ? "given" : "not given");
}

static void show(const value values[KEYS], int index, char shown[SHOWN]) {
    const char *key = keys[index].key;
    const value v = values[index];
    const int number = v.text ? atoi(v.text) : 0;
    snprintf(shown, SHOWN, "%.*s", (int)(v.length < SHOWN ? v.length : SHOWN - 1), v.text ? v.text : "");
    if (strcmp(key, "nesterov") == 0)
        show_flag(number, shown);
    else if (strcmp(key, "augment") == 0)
        show_flag(number == COMET_AUGMENT_NONE, shown);
    else if (strcmp(key, "schedule") == 0 && comet_schedule_name((comet_schedule_kind)number))
        snprintf(shown, SHOWN, "%s", comet_schedule_name((comet_schedule_kind)number));
    else if (strcmp(key, "decay") == 0)
        shown[strcspn(shown, "/")] = '\0'; /* behind it: of what, which no option says */
    else if (v.length == 0 || (strcmp(key, "calibration") == 0 && strcmp(shown, "0") == 0) ||
             (index == ERROR_REL && values[CONTROL].length > 0))
        show_flag(0, shown);
}

static void add(comet_message *list, const char *what, const char *was, const char *now) {
    const size_t used = strlen(list->text);
    snprintf(list->text + used, sizeof list->text - used, "%s%s was %s, now %s", used ? "; " : "", what, was, now);
}

static void add_options(comet_message *list, const char *its, const char *ours) {
    value a[KEYS], b[KEYS];
    if (!take_apart(its, a) || !take_apart(ours, b))
        return;
    for (int i = 0; i < KEYS; i++) {
        char was[SHOWN], now[SHOWN];
        show(a, i, was);
        show(b, i, now);
        if (!same(a[i], b[i]) && strcmp(was, now) != 0)
            add(list, keys[i].option, was, now);
    }
}

/* "resnet18 classes=10 image=32x32x3" */
typedef struct network {
    char name[64], classes[16], image[16], channels[16];
} network;

static int read_network(const char *text, network *n) {
    int width;
    if (sscanf(text, "%63s classes=%15[0-9] image=%15[0-9]x%dx%15[0-9]", n->name, n->classes, n->image, &width,
               n->channels) != 5)
        return 0;
    return width == atoi(n->image);
}

static void add_network(comet_message *list, const char *its, const char *ours) {
    network a, b;
    if (!read_network(its, &a) || !read_network(ours, &b))
        return;
    const struct {
        const char *what, *was, *now;
    } parts[] = {{"--model", a.name, b.name},
                 {"the number of classes", a.classes, b.classes},
                 {"--image", a.image, b.image},
                 {"--channels", a.channels, b.channels}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcmp(parts[i].was, parts[i].now) != 0)
            add(list, parts[i].what, parts[i].was, parts[i].now);
}

/* "sgd 1": the number of arrays follows from the kind and the momentum. */
static void add_optimiser(comet_message *list, const char *its, const char *ours) {
    char was[SHOWN], now[SHOWN];
    snprintf(was, sizeof was, "%.*s", (int)strcspn(its, " "), its);
    snprintf(now, sizeof now, "%.*s", (int)strcspn(ours, " "), ours);
    if (strcmp(was, now) != 0)
        add(list, "--optimiser", was, now);
}

int comet_checkpoint_differences(const comet_checkpoint_texts *its, const comet_checkpoint_texts *ours,
                                 comet_message *list) {
    const int any_options = !ours->options || !*ours->options;
    list->text[0] = '\0';
    if (strcmp(its->model, ours->model) == 0 && strcmp(its->optimiser, ours->optimiser) == 0 &&
        (any_options || strcmp(its->options, ours->options) == 0))
        return 0;
    add_network(list, its->model, ours->model);
    add_optimiser(list, its->optimiser, ours->optimiser);
    if (!any_options)
        add_options(list, its->options, ours->options);
    if (!list->text[0]) /* not in words that are known here */
        snprintf(list->text, sizeof list->text, "it was '%.90s, %.20s, %.90s', now '%.90s, %.20s, %.90s'", its->model,
                 its->optimiser, its->options, ours->model, ours->optimiser, any_options ? "" : ours->options);
    return 1;
}
