/* SPDX-License-Identifier: Apache-2.0 */
/* Forms: what a user says, what is chosen for each tensor, and what is said of it. */
#include "test_train_case.h"

#include "train/plan/forms.h"

static comet_forms *forms_of(const char *codec, const char *overrides) {
    comet_forms *f = NULL;
    comet_message message;
    assert_done(comet_forms_new(codec, 0.3, overrides, NULL, &f, &message), message);
    return f;
}

/* The text of what is chosen for an entry. */
static const char *chosen(const char *codec, const char *overrides, comet_plan_entry entry) {
    static char text[COMET_FORM_TEXT];
    comet_forms *f = forms_of(codec, overrides);
    entry.form.codec = (comet_codec_params)COMET_CODEC_PARAMS_INIT;
    comet_forms_choose(f, &entry);
    comet_form_format(&entry, text);
    comet_forms_free(f);
    return text;
}

static const comet_plan_entry conv_input = {.name = "layer1.0.bn1", .uses = 1, .uses_conv = 1};
static const comet_plan_entry norm_input = {.name = "layer1.0.conv1", .uses = 1};
static const comet_plan_entry norm = {.name = "layer1.0.bn1", .kind = COMET_SAVED_NORM, .uses = 1};

static void test_words(void **state) {
    (void)state;
    assert_string_equal(chosen(NULL, NULL, conv_input), "keep");
    assert_string_equal(chosen("none", NULL, conv_input), "keep");
    assert_string_equal(chosen("eb", NULL, conv_input), "eb:0.3");
    assert_string_equal(chosen("eb:0.05", NULL, conv_input), "eb:0.05");
    assert_string_equal(chosen("eb:0+offload", NULL, conv_input), "eb:0+offload");
    assert_string_equal(chosen("pool:3", NULL, conv_input), "pool:3");
    assert_string_equal(chosen("pool", NULL, conv_input), "pool:2");
    assert_string_equal(chosen("group:8", NULL, conv_input), "group:8");
    assert_string_equal(chosen("dct", NULL, conv_input), "dct");
    assert_string_equal(chosen("zvc+offload", NULL, conv_input), "zvc+offload");
    assert_string_equal(chosen("offload", NULL, conv_input), "offload");
    assert_string_equal(chosen("none+offload", NULL, conv_input), "offload");
    assert_string_equal(chosen("recompute", NULL, conv_input), "recompute");
}

/* Averages, groups and cosines are for the inputs of convolutions; what else needs a value sees it as it was. */
static void test_suits(void **state) {
    (void)state;
    const char *codecs[] = {"pool:2", "group:4", "dct"};
    comet_plan_entry both = conv_input;
    both.uses = 2;
    for (int i = 0; i < 3; i++) {
        assert_string_equal(chosen(codecs[i], NULL, conv_input), codecs[i]);
        assert_string_equal(chosen(codecs[i], NULL, norm_input), "keep");
        assert_string_equal(chosen(codecs[i], NULL, norm), "keep");
        assert_string_equal(chosen(codecs[i], NULL, both), "keep");
    }
    assert_string_equal(chosen("zvc", NULL, both), "zvc");
    assert_string_equal(chosen("zvc", NULL, norm_input), "keep");
    assert_string_equal(chosen("pool:2+offload", NULL, norm_input), "offload");
    assert_string_equal(chosen("eb", NULL, norm), "eb:0.3");
}

/* What a squeeze-excite makes is made again from what it is made of. */
static void test_scale(void **state) {
    (void)state;
    comet_plan_entry e = conv_input;
    e.op = COMET_OP_SCALE;
    assert_string_equal(chosen("eb", NULL, e), "recompute");
    assert_string_equal(chosen("none", NULL, e), "keep");
    assert_string_equal(chosen("pool:2", NULL, e), "pool:2");
}

static void test_mask(void **state) {
    (void)state;
    comet_forms *f = forms_of("eb", NULL);
    comet_plan_entry e = conv_input;
    e.has_relu = 1;
    comet_forms_choose(f, &e);
    assert_int_equal(e.form.codec.keep_mask, 1);
    e = norm;
    e.has_relu = 1;
    comet_forms_choose(f, &e);
    assert_int_equal(e.form.codec.keep_mask, 0); /* the grid does that */
    comet_forms_free(f);
}

static void test_overrides(void **state) {
    (void)state;
    const char *rules = "layer1.*=eb:0.1,layer?.0.conv1=none,*.bn1=zvc";
    comet_plan_entry e = {.name = "layer1.0.conv2", .uses = 1, .uses_conv = 1};
    assert_string_equal(chosen("eb", rules, e), "eb:0.1");
    assert_string_equal(chosen("eb", rules, norm_input), "keep");
    assert_string_equal(chosen("eb", rules, conv_input), "zvc");
    strcpy(e.name, "conv1");
    assert_string_equal(chosen("eb", rules, e), "eb:0.3");
    assert_string_equal(chosen("eb", "*a*b=none", e), "eb:0.3");
    strcpy(e.name, "xaxbxb");
    assert_string_equal(chosen("eb", "*a*b=none", e), "keep");
}

static void check_wrong(const char *codec, const char *overrides, const char *part) {
    comet_forms *f = NULL;
    comet_message message = {{0}};
    assert_int_equal(comet_forms_new(codec, 0.3, overrides, NULL, &f, &message), COMET_ERROR_ARGUMENT);
    assert_null(f);
    if (!strstr(message.text, part))
        fail_msg("'%s' does not say '%s'", message.text, part);
}

static void test_wrong(void **state) {
    (void)state;
    check_wrong("lz4", NULL, "there is no form 'lz4'; there are: none, eb");
    check_wrong("", NULL, "there is no form");
    check_wrong("eb:", NULL, "there is no form 'eb:'");
    check_wrong("eb:x", NULL, "there is no form 'eb:x'");
    check_wrong("eb:-1", NULL, "from 0 to 100");
    check_wrong("eb:nan", NULL, "there is no form");
    check_wrong("pool:0", NULL, "K from 1 to 64");
    check_wrong("pool:2.5", NULL, "K from 1 to 64");
    check_wrong("group:3", NULL, "2, 4 or 8");
    check_wrong("dct:1", NULL, "there is no form");
    check_wrong("+offload", NULL, "there is no form");
    check_wrong("recompute+offload", NULL, "one of the two");
    check_wrong("none", "conv1", "LAYER=FORM");
    check_wrong("none", "=eb", "LAYER=FORM");
    check_wrong("none", "conv1=eb,", "LAYER=FORM");
    check_wrong("none", "conv1=lz4", "there is no form 'lz4'");
}

static void test_check(void **state) {
    (void)state;
    comet_graph *g;
    comet_message message = {{0}};
    assert_ok(comet_graph_new(NULL, &g));
    comet_value x = comet_graph_flatten(g, comet_graph_input(g, 2, 2, 3));
    comet_graph_output(g, comet_graph_linear(g, "fc", x, 4, 1));
    comet_forms *f = forms_of("none", "fc=eb,input=none");
    assert_done(comet_forms_check(f, g, &message), message);
    assert_int_equal(comet_forms_offloads(f), 0);
    comet_forms_free(f);
    f = forms_of("none", "fc=eb+offload,head=none");
    assert_int_equal(comet_forms_offloads(f), 1);
    assert_int_equal(comet_forms_check(f, g, &message), COMET_ERROR_ARGUMENT);
    assert_non_null(strstr(message.text, "no layer is called 'head'"));
    comet_forms_free(f);
    comet_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words), cmocka_unit_test(test_suits),     cmocka_unit_test(test_mask),
        cmocka_unit_test(test_scale), cmocka_unit_test(test_overrides), cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_check),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
