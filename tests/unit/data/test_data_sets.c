/* SPDX-License-Identifier: Apache-2.0 */
/* Every kind of data set: what is read is what was written; what is wrong is said in one line; nothing is lost. */
#include "test_data_files.h"

#include "data/sets/dataset_impl.h"
#include "support/counting_allocator.h"

static comet_message message;
static uint8_t pixels[64 * 64 * 4];

static comet_dataset *open_set(const char *spec) {
    comet_dataset *set = NULL;
    message.text[0] = '\0';
    if (comet_dataset_open(spec, NULL, &set, &message) != COMET_OK)
        fail_msg("%s", message.text);
    return set;
}

static const char *spec_of(const char *kind, const char *folder) {
    static char spec[600];
    snprintf(spec, sizeof spec, "%s:%s", kind, in_folder(folder));
    return spec;
}

static void refuse(const char *spec, comet_status status, const char *part) {
    comet_dataset *set = NULL;
    assert_refused(comet_dataset_open(spec, NULL, &set, &message), status, message, part);
    assert_null(set);
    assert_null(strchr(message.text, '\n'));
}

/* Opens with each allocation failing once; returns how many there are. */
static long fail_each_allocation(const char *spec) {
    for (long n = 1;; n++) {
        counting_allocator a;
        comet_dataset *set = NULL;
        counting_allocator_init(&a);
        a.fail_at = n;
        comet_status status = comet_dataset_open(spec, &a.allocator, &set, &message);
        if (a.calls < n) {
            assert_ok(status);
            assert_true(a.live_bytes >= comet_dataset_get_info(set)->memory_bytes);
            assert_true(a.live_bytes <= comet_dataset_get_info(set)->memory_bytes + 64 * (size_t)a.live_blocks);
            comet_dataset_free(set);
        } else
            assert_refused(status, COMET_ERROR_MEMORY, message, "");
        assert_int_equal(a.live_blocks, 0);
        assert_int_equal(a.wrong_sizes, 0);
        if (status == COMET_OK)
            return n - 1;
    }
}

/* ---- names ---- */

static void test_names(void **state) {
    (void)state;
    refuse("", COMET_ERROR_ARGUMENT, "unknown data set");
    refuse("imagenet", COMET_ERROR_ARGUMENT, "unknown data set 'imagenet'");
    refuse("cifar100:x", COMET_ERROR_ARGUMENT, "unknown data set");
    refuse("cifar10", COMET_ERROR_ARGUMENT, "write cifar10:DIR");
    refuse("folder:", COMET_ERROR_ARGUMENT, "write folder:DIR");
    refuse("fashion-mnist:", COMET_ERROR_ARGUMENT, "nothing follows");
    refuse("generated:x", COMET_ERROR_ARGUMENT, "number of images");
    refuse("generated:9", COMET_ERROR_ARGUMENT, "number of images");
    refuse("generated:99999999999999999999", COMET_ERROR_ARGUMENT, "number of images");
    refuse("generated\n", COMET_ERROR_ARGUMENT, "'generated?'");
}

/* ---- Fashion-MNIST ---- */

enum { TRAIN = 12, TEST = 5, TALL = 6, WIDE = 7 };

static const char *const fashion_files[4] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                             "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

static uint8_t fashion_value(int split, int image, int value) {
    return (uint8_t)(split * 100 + image * 13 + value * 3);
}

static const char *fashion_path(const char *folder, int file, const char *ending) {
    char name[128];
    snprintf(name, sizeof name, "%s/%s%s", folder, fashion_files[file], ending);
    return in_new_folder(name);
}

static void write_fashion(const char *folder, const char *ending) {
    for (int split = 0; split < 2; split++) {
        uint8_t values[TRAIN * TALL * WIDE], labels[TRAIN];
        int count = split ? TEST : TRAIN;
        for (int i = 0; i < count; i++) {
            labels[i] = (uint8_t)((i * 7 + split) % 10);
            for (int v = 0; v < TALL * WIDE; v++)
                values[i * TALL * WIDE + v] = fashion_value(split, i, v);
        }
        write_idx(fashion_path(folder, 2 * split, ending), 3, (int[]){count, TALL, WIDE}, values,
                  (size_t)(count * TALL * WIDE));
        write_idx(fashion_path(folder, 2 * split + 1, ending), 1, (int[]){count}, labels, (size_t)count);
    }
}

static void check_fashion(const comet_dataset *set) {
    const comet_dataset_info *info = comet_dataset_get_info(set);
    assert_string_equal(info->name, "fashion-mnist");
    assert_null(info->note);
    assert_int_equal(info->classes, 10);
    assert_int_equal(info->channels, 1);
    assert_int_equal(info->height, TALL);
    assert_int_equal(info->width, WIDE);
    assert_int_equal(info->count[COMET_SPLIT_TRAIN], TRAIN);
    assert_int_equal(info->count[COMET_SPLIT_EVALUATE], TEST);
    assert_false(comet_dataset_is_decoded(set));
    for (int split = 0; split < 2; split++)
        for (int i = 0; i < (split ? TEST : TRAIN); i++) {
            comet_image image;
            assert_ok(comet_dataset_read(set, (comet_split)split, i, NULL, &image, &message));
            assert_int_equal(comet_dataset_label(set, (comet_split)split, i), (i * 7 + split) % 10);
            for (int v = 0; v < TALL * WIDE; v++)
                assert_int_equal(image.pixels[v], fashion_value(split, i, v));
        }
    assert_string_equal(comet_dataset_class_name(set, 9), "ankle boot");
}

static void test_fashion(void **state) {
    (void)state;
    static const char *const endings[] = {".gz", ""};
    for (int i = 0; i < 2; i++) {
        const char *folder = i ? "plain" : "packed";
        write_fashion(folder, endings[i]);
        comet_dataset *set = open_set(spec_of("fashion-mnist", folder));
        check_fashion(set);
        comet_dataset_free(set);
        assert_true(fail_each_allocation(spec_of("fashion-mnist", folder)) >= 5);
    }
}

static void test_fashion_measures(void **state) {
    (void)state;
    comet_normalisation n;
    static const uint8_t two[] = {0, 10, 255, 10};
    comet_dataset_measure(two, 2, 2, &n);
    assert_float_equal(n.mean[0], 0.5, 1e-6);
    assert_float_equal(n.deviation[0], 0.5, 1e-6);
    assert_float_equal(n.mean[1], 10.0 / 255, 1e-6);
    assert_float_equal(n.deviation[1], 1.0, 0); /* constant: nothing to divide by */
}

/* Another set takes its place only where none was named, and it says so. */
static void test_fashion_missing(void **state) {
    (void)state;
    comet_dataset *set = NULL;
    const char *nowhere[] = {in_folder("nowhere"), NULL};
    assert_ok(comet_fashion_open(NULL, nowhere, NULL, &set, &message));
    assert_string_equal(comet_dataset_get_info(set)->name, "generated");
    assert_non_null(strstr(comet_dataset_get_info(set)->note, "dataset-fashion-mnist"));
    comet_dataset_free(set);
    refuse(spec_of("fashion-mnist", "nowhere"), COMET_ERROR_IO, "apt-get install dataset-fashion-mnist");
    write_fashion("default", ".gz");
    const char *somewhere[] = {in_folder("nowhere"), in_folder("default"), NULL};
    assert_ok(comet_fashion_open(NULL, somewhere, NULL, &set, &message));
    check_fashion(set);
    comet_dataset_free(set);
    cut_file(in_folder("default/train-images-idx3-ubyte.gz"), 0.5); /* there, but broken: not silently another one */
    assert_refused(comet_fashion_open(NULL, somewhere, NULL, &set, &message), COMET_ERROR_CORRUPT, message,
                   "cut short");
}

static void test_fashion_wrong(void **state) {
    (void)state;
    static uint8_t values[TRAIN * TALL * WIDE + 1];
    const char *spec = spec_of("fashion-mnist", "wrong");
    for (int file = 0; file < 4; file++) {
        write_fashion("wrong", ".gz");
        cut_file(fashion_path("wrong", file, ".gz"), 0.7);
        refuse(spec, COMET_ERROR_CORRUPT, fashion_files[file]);
        remove(fashion_path("wrong", file, ".gz"));
        refuse(spec, COMET_ERROR_IO, fashion_files[file]);
        write_bytes(fashion_path("wrong", file, ".gz"), "", 0);
        refuse(spec, COMET_ERROR_CORRUPT, "cut short");
    }
    write_fashion("wrong", ".gz");
    const char *images = fashion_path("wrong", 0, ".gz"), *labels = fashion_path("wrong", 1, ".gz");
    static const struct {
        int extents[3];
        size_t count;
        const char *part;
    } bad[] = {{{TRAIN, TALL, WIDE}, TRAIN * TALL * WIDE - 1, "cut short"},
               {{TRAIN, TALL, WIDE}, TRAIN * TALL * WIDE + 1, "longer than its header"},
               {{0, TALL, WIDE}, 0, "empty"},
               {{TRAIN, 0, WIDE}, 0, "empty"},
               {{TRAIN, TALL, -1}, 100, "damaged"},
               {{60000000, 4000, 4000}, 100, "cut short"},
               {{1, 5000, 1}, 300, "at most"},
               {{TRAIN - 1, TALL, WIDE}, (TRAIN - 1) * TALL * WIDE, "labels for"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_idx(images, 3, bad[i].extents, values, bad[i].count);
        refuse(spec, COMET_ERROR_CORRUPT, bad[i].part);
    }
    write_fashion("wrong", ".gz");
    values[3] = 10;
    write_idx(labels, 1, (int[]){TRAIN}, values, TRAIN);
    refuse(spec, COMET_ERROR_CORRUPT, "label 10 at image 3; labels are 0 to 9");
    write_idx(labels, 3, (int[]){TRAIN, 1, 1}, values, TRAIN);
    refuse(spec, COMET_ERROR_CORRUPT, "not an IDX file");
}

/* A bit flipped inside a compressed file is found by its checksum. */
static void test_fashion_damaged(void **state) {
    (void)state;
    static uint8_t file[4096];
    write_fashion("damaged", ".gz");
    const char *path = fashion_path("damaged", 0, ".gz"), *spec = spec_of("fashion-mnist", "damaged");
    size_t bytes = read_bytes(path, file, sizeof file);
    for (size_t at = 12; at < bytes; at += 5) {
        comet_dataset *set = NULL;
        file[at] ^= 0x10;
        write_bytes(path, file, bytes);
        file[at] ^= 0x10;
        assert_status(comet_dataset_open(spec, NULL, &set, &message), COMET_ERROR_CORRUPT);
    }
}

/* ---- CIFAR-10 ---- */

static void cifar_record(uint8_t *record, int file, int i) {
    record[0] = (uint8_t)((file + i) % 10);
    for (int v = 0; v < 3072; v++)
        record[1 + v] = (uint8_t)(v / 1024 * 50 + v % 1024 * 3 + file * 7 + i);
}

static void write_cifar(const char *folder) {
    static const char *const names[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                        "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};
    static uint8_t records[3][3073];
    for (int file = 0; file < 6; file++) {
        char name[128];
        for (int i = 0; i < 3; i++)
            cifar_record(records[i], file, i);
        snprintf(name, sizeof name, "%s/%s", folder, names[file]);
        write_bytes(in_new_folder(name), records, file == 2 ? 3073 * 2 : sizeof records);
    }
}

static void test_cifar(void **state) {
    (void)state;
    static const char *const folders[] = {"cifar", "outer/cifar-10-batches-bin"};
    for (int i = 0; i < 2; i++) {
        write_cifar(folders[i]);
        comet_dataset *set = open_set(spec_of("cifar10", i ? "outer" : "cifar"));
        const comet_dataset_info *info = comet_dataset_get_info(set);
        assert_int_equal(info->count[COMET_SPLIT_TRAIN], 14);
        assert_int_equal(info->count[COMET_SPLIT_EVALUATE], 3);
        uint8_t record[3073];
        comet_image image;
        cifar_record(record, 3, 1); /* behind 3 + 3 + 2 + 1 */
        assert_ok(comet_dataset_read(set, COMET_SPLIT_TRAIN, 9, NULL, &image, &message));
        assert_int_equal(comet_dataset_label(set, COMET_SPLIT_TRAIN, 9), record[0]);
        assert_int_equal(image.channels, 3);
        for (int v = 0; v < 3072; v++)
            assert_int_equal(image.pixels[v], record[1 + v % 3 * 1024 + v / 3]);
        assert_string_equal(comet_dataset_class_name(set, 0), "airplane");
        comet_dataset_free(set);
    }
    assert_true(fail_each_allocation(spec_of("cifar10", "cifar")) >= 5);
}

static void test_cifar_wrong(void **state) {
    (void)state;
    const char *spec = spec_of("cifar10", "bad-cifar"), *file = in_folder("bad-cifar/data_batch_4.bin");
    refuse(spec, COMET_ERROR_IO, "unpack cifar-10-binary.tar.gz");
    write_cifar("bad-cifar");
    cut_file(file, 0.9);
    refuse(spec, COMET_ERROR_CORRUPT, "not a multiple of 3073");
    write_bytes(file, "", 0);
    refuse(spec, COMET_ERROR_CORRUPT, "0 bytes");
    uint8_t record[3073] = {10};
    write_bytes(file, record, sizeof record);
    refuse(spec, COMET_ERROR_CORRUPT, "label 10 at image 0");
    remove(file);
    refuse(spec, COMET_ERROR_IO, "data_batch_4.bin");
    mkdir(file, 0777);
    refuse(spec, COMET_ERROR_IO, "not a regular file");
}

/* ---- folders ---- */

static void put_image(const char *name, int seed) {
    paint(pixels, 10 + seed, 20, 3, seed);
    write_png(in_new_folder(name), pixels, 10 + seed, 20, PNG_COLOR_TYPE_RGB, 8, 0);
}

static void write_folder(const char *root, const char *evaluation) {
    static const char *const train[] = {"b/2.png", "b/1.PNG", "a/x.jpeg", "a/deep/er/y.Jpg", "a-b/z.png"};
    char name[256];
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "%s/train/%s", root, train[i]);
        put_image(name, i);
    }
    snprintf(name, sizeof name, "%s/%s/b/only.png", root, evaluation);
    put_image(name, 7);
    snprintf(name, sizeof name, "%s/train/b/notes.txt", root);
    write_bytes(in_new_folder(name), "x", 1);
    snprintf(name, sizeof name, "%s/train/b/.hidden.png", root);
    write_bytes(in_new_folder(name), "x", 1);
    snprintf(name, sizeof name, "%s/train/loose.png", root);
    write_bytes(in_new_folder(name), "x", 1);
}

static void test_folder(void **state) {
    (void)state;
    static const int labels[] = {1, 0, 0, 2, 2}, heights[] = {14, 13, 12, 11, 10}; /* a-b/z, a/deep, a/x, b/1, b/2 */
    static void *memory;
    comet_decoder decoder;
    comet_image image;
    memory = aligned_alloc(64, comet_decoder_own_bytes(COMET_DECODE_LEAST_BYTES));
    comet_decoder_init(&decoder, COMET_DECODE_LEAST_BYTES, 0, memory);
    for (int t = 0; t < 2; t++) {
        write_folder(t ? "images-t" : "images-v", t ? "test" : "val");
        comet_dataset *set = open_set(spec_of("folder", t ? "images-t" : "images-v"));
        const comet_dataset_info *info = comet_dataset_get_info(set);
        assert_int_equal(info->classes, 3);
        assert_string_equal(comet_dataset_class_name(set, 0), "a");
        assert_string_equal(comet_dataset_class_name(set, 1), "a-b");
        assert_int_equal(info->count[COMET_SPLIT_TRAIN], 5);
        assert_int_equal(info->count[COMET_SPLIT_EVALUATE], 1);
        assert_true(comet_dataset_is_decoded(set));
        for (int i = 0; i < 5; i++) {
            assert_ok(comet_dataset_read(set, COMET_SPLIT_TRAIN, i, &decoder, &image, &message));
            assert_int_equal(comet_dataset_label(set, COMET_SPLIT_TRAIN, i), labels[i]);
            assert_int_equal(image.height, heights[i]);
        }
        assert_ok(comet_dataset_read(set, COMET_SPLIT_EVALUATE, 0, &decoder, &image, &message));
        assert_int_equal(image.height, 17);
        comet_dataset_free(set);
    }
    assert_true(fail_each_allocation(spec_of("folder", "images-v")) >= 8);
    free(memory);
}

static void test_folder_wrong(void **state) {
    (void)state;
    const char *spec = spec_of("folder", "bad");
    refuse(spec, COMET_ERROR_IO, "there is no folder");
    in_new_folder("bad/x");
    refuse(spec, COMET_ERROR_CORRUPT, "or train/ and val/ or test/ with these in them");
    in_new_folder("bad/val/x");
    refuse(spec, COMET_ERROR_IO, "needs a folder train/");
    in_new_folder("bad/train/x");
    refuse(spec, COMET_ERROR_CORRUPT, "0 folders; it needs one for each class");
    put_image("bad/train/cats/1.png", 0);
    refuse(spec, COMET_ERROR_CORRUPT, "1 folder; it needs");
    in_new_folder("bad/train/dogs/x");
    refuse(spec, COMET_ERROR_CORRUPT, "has no JPEG or PNG file; remove it or fill it");
    put_image("bad/train/dogs/1.png", 0);
    refuse(spec, COMET_ERROR_CORRUPT, "/val' has no JPEG or PNG files");
    put_image("bad/val/dogz/1.png", 0);
    refuse(spec, COMET_ERROR_CORRUPT, "/val/dogz' is a class that");
    rename(in_folder("bad/val/dogz"), in_folder("bad/val/dogs"));
    comet_dataset_free(open_set(spec));
    assert_int_equal(symlink("..", in_folder("bad/train/dogs/round")), 0); /* round and round */
    refuse(spec, COMET_ERROR_IO, "does a link lead back?");
}

/* Without val/ or test/ a fifth of each class is kept: always the same names, whatever else there is. */
static void test_folder_split(void **state) {
    (void)state;
    char name[64], kept[40][64];
    int count = 0;
    for (int i = 0; i < 63; i++) {
        snprintf(name, sizeof name, "alone/%s/%d.png", i < 33 ? "x" : i < 61 ? "x y" : "z", i);
        put_image(name, 0);
    }
    comet_dataset *set = open_set(spec_of("folder", "alone"));
    const comet_dataset_info *info = comet_dataset_get_info(set);
    assert_int_equal(info->count[COMET_SPLIT_EVALUATE], 33 / 5 + 28 / 5 + 1);
    assert_int_equal(info->count[COMET_SPLIT_TRAIN], 63 - info->count[COMET_SPLIT_EVALUATE]);
    assert_non_null(strstr(info->note, "has no val/ or test/: 12 of its 63 images"));
    for (; count < info->count[COMET_SPLIT_EVALUATE]; count++) {
        snprintf(kept[count], sizeof kept[0], "%s", comet_dataset_file_name(set, COMET_SPLIT_EVALUATE, count));
        const int32_t label = comet_dataset_label(set, COMET_SPLIT_EVALUATE, count);
        assert_int_equal(
            strncmp(kept[count], comet_dataset_class_name(set, label), strlen(comet_dataset_class_name(set, label))),
            0);
        for (int i = 0; i < info->count[COMET_SPLIT_TRAIN]; i++)
            assert_string_not_equal(comet_dataset_file_name(set, COMET_SPLIT_TRAIN, i), kept[count]);
    }
    comet_dataset_free(set);
    in_new_folder("deep/x");
    rename(in_folder("alone"), in_folder("deep/train"));
    set = open_set(spec_of("folder", "deep"));
    for (int i = 0; i < count; i++)
        assert_string_equal(comet_dataset_file_name(set, COMET_SPLIT_EVALUATE, i), kept[i]);
    comet_dataset_free(set);
    assert_true(fail_each_allocation(spec_of("folder", "deep")) > 5);
    remove(in_folder("deep/train/z/61.png"));
    refuse(spec_of("folder", "deep"), COMET_ERROR_CORRUPT, "the only image of its class");
}

/* What a set is, a digest of names and labels says. */
static void test_folder_digest(void **state) {
    (void)state;
    uint32_t digests[3];
    write_folder("digest", "val");
    for (int i = 0; i < 3; i++) {
        comet_dataset *set = open_set(spec_of("folder", "digest"));
        digests[i] = comet_dataset_get_info(set)->digest[COMET_SPLIT_TRAIN];
        comet_dataset_free(set);
        if (i == 1)
            rename(in_folder("digest/train/b/2.png"), in_folder("digest/train/b/3.png"));
    }
    assert_int_equal(digests[0], digests[1]);
    assert_int_not_equal(digests[1], digests[2]);
}

/* ---- generated ---- */

static void test_generated(void **state) {
    (void)state;
    int counts[10] = {0};
    comet_dataset *set = open_set("generated:1000"), *again = open_set("generated:2000");
    const comet_dataset_info *info = comet_dataset_get_info(set);
    assert_int_equal(info->count[COMET_SPLIT_TRAIN], 1000);
    assert_int_equal(info->count[COMET_SPLIT_EVALUATE], 200);
    uLong crc = 0;
    for (int i = 0; i < 1000; i++) {
        comet_image a, b;
        assert_ok(comet_dataset_read(set, COMET_SPLIT_TRAIN, i, NULL, &a, &message));
        assert_ok(comet_dataset_read(again, COMET_SPLIT_TRAIN, i, NULL, &b, &message));
        assert_memory_equal(a.pixels, b.pixels, 28 * 28);
        counts[comet_dataset_label(set, COMET_SPLIT_TRAIN, i)]++;
        crc = crc32(crc, a.pixels, 28 * 28);
    }
    for (int c = 0; c < 10; c++)
        assert_in_range(counts[c], 60, 140);
    assert_int_equal(crc, 0x706408beu); /* the same on every machine */
    assert_true(info->normalisation.deviation[0] > 0.1f);
    comet_dataset_free(set);
    comet_dataset_free(again);
    assert_int_equal(fail_each_allocation("generated:100"), 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_fashion),
        cmocka_unit_test(test_fashion_measures),
        cmocka_unit_test(test_fashion_missing),
        cmocka_unit_test(test_fashion_wrong),
        cmocka_unit_test(test_fashion_damaged),
        cmocka_unit_test(test_cifar),
        cmocka_unit_test(test_cifar_wrong),
        cmocka_unit_test(test_folder),
        cmocka_unit_test(test_folder_wrong),
        cmocka_unit_test(test_folder_split),
        cmocka_unit_test(test_folder_digest),
        cmocka_unit_test(test_generated),
    };
    return cmocka_run_group_tests(tests, make_temporary_folder, remove_temporary_folder);
}
