/* SPDX-License-Identifier: Apache-2.0 */
/* The accounts as a text: a table for people, JSON for programs. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "store/host/store.h"

/* Text that may be longer than its place: `bytes` counts on. */
typedef struct report {
    char *text;
    size_t capacity, bytes;
} report;

__attribute__((format(printf, 2, 3))) static void put(report *r, const char *format, ...) {
    size_t room = r->bytes < r->capacity ? r->capacity - r->bytes : 0;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(room ? r->text + r->bytes : NULL, room, format, arguments);
    va_end(arguments);
    r->bytes += length > 0 ? (size_t)length : 0;
}

/* ---- the table ---- */

static void put_sizes(report *r, const comet_store_bytes *b) {
    put(r, " %14" PRIu64 " %14" PRIu64 " %14" PRIu64 " %14" PRIu64, b->raw, b->stored, b->resident, b->spilled);
}

static void put_row(report *r, const char *name, const char *form, uint64_t entries, const comet_store_bytes *live,
                    const comet_store_bytes *at_peak) {
    put(r, "%-24s %-12s %7" PRIu64, name, form, entries);
    put_sizes(r, live);
    put(r, " |");
    put_sizes(r, at_peak);
    put(r, "\n");
}

static void put_head(report *r) {
    put(r, "%-24s %-12s %7s %-59s | %s\n", "bytes", "", "", " now", " at the peak");
    put(r, "%-24s %-12s %7s", "name", "form", "entries");
    for (int i = 0; i < 2; i++)
        put(r, "%s %14s %14s %14s %14s", i ? " |" : "", "raw", "stored", "resident", "spilled");
    put(r, "\n");
}

static void put_table_locked(const comet_store *s, report *r) {
    const comet_store_stats *t = &s->stats;
    put_head(r);
    for (size_t i = 0; i < s->account_count; i++) {
        const comet_store_account *a = &s->accounts[i]->figures;
        put_row(r, a->name, a->form, a->entries, &a->live, &a->at_peak);
    }
    put_row(r, "total", "", t->entries, &t->live, &t->at_peak);
    put(r, "peak %" PRIu64 " bytes in use, of these %" PRIu64 " scratch; ", t->peak_used_bytes,
        t->peak_used_bytes - t->at_peak.resident);
    if (s->limit == SIZE_MAX)
        put(r, "no limit; ");
    else
        put(r, "limit %zu; ", s->limit);
    put(r, "overhead %" PRIu64 "; file %" PRIu64 ", at most %" PRIu64 "\n", t->overhead_bytes, s->spill.end,
        s->spill.peak_end);
    put(r,
        "%" PRIu64 " saves, %" PRIu64 " aliases, %" PRIu64 " loads (%" PRIu64 " computed again), %" PRIu64
        " spilled (%" PRIu64 " for want of room), %" PRIu64 " refused\n",
        t->saves, t->aliases, t->loads, t->recomputes, t->spills, t->overflows, t->refused);
}

/* ---- JSON ---- */

/* A byte that is not printable ASCII becomes a question mark: names are cut anywhere. */
static void put_string(report *r, const char *text) {
    put(r, "\"");
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            put(r, "\\");
        put(r, "%c", *text >= ' ' && *text <= '~' ? *text : '?');
    }
    put(r, "\"");
}

static void put_number(report *r, const char *key, uint64_t value) {
    put(r, "\"%s\": %" PRIu64 ", ", key, value);
}

static void put_bytes(report *r, const char *key, const comet_store_bytes *b, const char *after) {
    put(r,
        "\"%s\": {\"raw\": %" PRIu64 ", \"stored\": %" PRIu64 ", \"resident\": %" PRIu64 ", \"spilled\": %" PRIu64
        "}%s",
        key, b->raw, b->stored, b->resident, b->spilled, after);
}

static void put_account(report *r, const comet_store_account *a) {
    put(r, "    {\"name\": ");
    put_string(r, a->name);
    put(r, ", \"form\": ");
    put_string(r, a->form);
    put(r, ", ");
    put_number(r, "entries", a->entries);
    put_number(r, "saves", a->saves);
    put_number(r, "aliases", a->aliases);
    put_number(r, "loads", a->loads);
    put_number(r, "spills", a->spills);
    put_bytes(r, "live", &a->live, ", ");
    put_bytes(r, "peak", &a->peak, ", ");
    put_bytes(r, "at_peak", &a->at_peak, ", ");
    put_bytes(r, "last", &a->last, "}");
}

static void put_totals_locked(const comet_store *s, report *r) {
    const comet_store_stats *t = &s->stats;
    put(r, "  \"totals\": {");
    put_number(r, "limit_bytes", s->limit == SIZE_MAX ? 0 : s->limit);
    put_number(r, "entries", t->entries);
    put_number(r, "peak_entries", t->peak_entries);
    put_number(r, "scratch_bytes", t->scratch_bytes);
    put_number(r, "reserved_bytes", s->held - t->live.resident);
    put_number(r, "peak_used_bytes", t->peak_used_bytes);
    put_number(r, "overhead_bytes", t->overhead_bytes);
    put_number(r, "file_bytes", s->spill.end);
    put_number(r, "peak_file_bytes", s->spill.peak_end);
    put_number(r, "saves", t->saves);
    put_number(r, "aliases", t->aliases);
    put_number(r, "loads", t->loads);
    put_number(r, "recomputes", t->recomputes);
    put_number(r, "spills", t->spills);
    put_number(r, "overflows", t->overflows);
    put_number(r, "refused", t->refused);
    put_number(r, "missing_bytes", t->missing_bytes);
    put_number(r, "prefetched", t->prefetched);
    put_number(r, "prefetched_used", t->prefetched_used);
    put_bytes(r, "live", &t->live, ", ");
    put_bytes(r, "peak", &t->peak, ", ");
    put_bytes(r, "at_peak", &t->at_peak, "},\n");
}

static void put_json_locked(const comet_store *s, report *r) {
    put(r, "{\n");
    put_totals_locked(s, r);
    put(r, "  \"accounts\": [");
    for (size_t i = 0; i < s->account_count; i++) {
        put(r, "%s\n", i ? "," : "");
        put_account(r, &s->accounts[i]->figures);
    }
    put(r, "%s]\n}\n", s->account_count ? "\n  " : "");
}

comet_status comet_store_write_report(comet_store *store, comet_store_report kind, char *text, size_t capacity,
                                      size_t *bytes) {
    comet_begin();
    COMET_REQUIRE_POINTER(store);
    COMET_REQUIRE_POINTER(bytes);
    COMET_REQUIRE(text || !capacity, "text is NULL, and capacity is not 0");
    COMET_REQUIRE(kind >= COMET_REPORT_TABLE && kind <= COMET_REPORT_JSON, "kind is %d, which is none", (int)kind);
    report r = {text, capacity, 0};
    pthread_mutex_lock(&store->lock);
    for (size_t i = 0; i < store->account_count; i++)
        comet_store_account_sync_locked(store, store->accounts[i]);
    if (kind == COMET_REPORT_JSON)
        put_json_locked(store, &r);
    else
        put_table_locked(store, &r);
    pthread_mutex_unlock(&store->lock);
    *bytes = r.bytes;
    if (r.bytes >= capacity)
        return comet_fail(COMET_ERROR_CAPACITY, "capacity is %zu: it must be more than %zu", capacity, r.bytes);
    return COMET_OK;
}
