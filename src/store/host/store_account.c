/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is counted. At a peak nothing is done for the accounts: one that changes later notes first what it held, if
 * there was a peak since it changed last.
 */
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/sized.h"
#include "store/host/store.h"

static void add(comet_store_bytes *sum, const comet_store_bytes *now, const comet_store_bytes *before) {
    sum->raw += now->raw - before->raw;
    sum->stored += now->stored - before->stored;
    sum->resident += now->resident - before->resident;
    sum->spilled += now->spilled - before->spilled;
}

static uint64_t greater(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static void raise(comet_store_bytes *peak, const comet_store_bytes *live) {
    peak->raw = greater(peak->raw, live->raw);
    peak->stored = greater(peak->stored, live->stored);
    peak->resident = greater(peak->resident, live->resident);
    peak->spilled = greater(peak->spilled, live->spilled);
}

void comet_store_account_sync_locked(const comet_store *s, store_account *account) {
    if (account->seen != s->peaks)
        account->figures.at_peak = account->figures.live;
    account->seen = s->peaks;
}

void comet_store_peak_locked(comet_store *s) {
    comet_store_stats *t = &s->stats;
    uint64_t used = t->live.resident + t->scratch_bytes;
    if (used <= t->peak_used_bytes)
        return;
    t->peak_used_bytes = used;
    t->at_peak = t->live;
    s->peaks++;
}

void comet_store_count_locked(comet_store *s, store_entry *entry, comet_store_bytes bytes) {
    comet_store_account *a = &entry->account->figures;
    comet_store_account_sync_locked(s, entry->account);
    add(&a->live, &bytes, &entry->bytes);
    add(&s->stats.live, &bytes, &entry->bytes);
    entry->bytes = bytes;
    raise(&a->peak, &a->live);
    raise(&s->stats.peak, &s->stats.live);
    comet_store_peak_locked(s);
}

void comet_store_number_locked(comet_store *s, store_entry *entry, int counted) {
    uint64_t change = (uint64_t)(int64_t)(counted - entry->counted); /* 1, 0 or -1 modulo 2^64 */
    entry->counted = counted;
    entry->account->figures.entries += change;
    s->stats.entries += change;
    s->stats.peak_entries = greater(s->stats.peak_entries, s->stats.entries);
}

/* ---- accounts ---- */

static int grow_locked(comet_store *s) {
    size_t room = s->account_room ? 2 * s->account_room : 32;
    store_account **accounts = comet_store_take_locked(s, room * sizeof *accounts);
    if (!accounts)
        return 0;
    if (s->account_count)
        memcpy(accounts, s->accounts, s->account_count * sizeof *accounts);
    comet_store_give_locked(s, s->accounts, s->account_room * sizeof *accounts);
    s->accounts = accounts;
    s->account_room = room;
    return 1;
}

store_account *comet_store_account_locked(comet_store *s, const char *name) {
    char key[STORE_NAME_BYTES] = {0};
    if (name)
        memcpy(key, name, strnlen(name, STORE_NAME_BYTES - 1));
    for (size_t i = 0; i < s->account_count; i++)
        if (strcmp(s->accounts[i]->figures.name, key) == 0)
            return s->accounts[i];
    if (s->account_count == s->account_room && !grow_locked(s))
        return NULL;
    store_account *account = comet_store_take_locked(s, sizeof *account);
    if (!account)
        return NULL;
    *account = (store_account){.seen = s->peaks};
    memcpy(account->figures.name, key, sizeof key);
    return s->accounts[s->account_count++] = account;
}

void comet_store_accounts_free_locked(comet_store *s) {
    for (size_t i = 0; i < s->account_count; i++)
        comet_store_give_locked(s, s->accounts[i], sizeof *s->accounts[i]);
    comet_store_give_locked(s, s->accounts, s->account_room * sizeof *s->accounts);
    s->account_count = s->account_room = 0;
}

void comet_store_form_name(const store_entry *entry, char name[32]) {
    static const char *const names[] = {"keep", "codec", "recompute"};
    const char *form = entry->form == COMET_FORM_CODEC ? comet_codec_name(entry->codec.codec) : names[entry->form];
    snprintf(name, 32, "%s%s", form, entry->offload ? "+offload" : "");
}

/* ---- the public side ---- */

comet_status comet_store_get_stats(comet_store *store, comet_store_stats *stats) {
    comet_begin();
    COMET_REQUIRE_POINTER(store);
    COMET_TRY(comet_sized_check(stats, "stats"));
    pthread_mutex_lock(&store->lock);
    comet_store_stats now = store->stats;
    now.limit_bytes = store->limit == SIZE_MAX ? 0 : store->limit;
    now.reserved_bytes = store->held - now.live.resident;
    now.file_bytes = store->spill.end;
    now.peak_file_bytes = store->spill.peak_end;
    pthread_mutex_unlock(&store->lock);
    comet_sized_write(stats, &now, sizeof now);
    return COMET_OK;
}

size_t comet_store_accounts(comet_store *store) {
    if (!store)
        return 0;
    pthread_mutex_lock(&store->lock);
    size_t count = store->account_count;
    pthread_mutex_unlock(&store->lock);
    return count;
}

comet_status comet_store_get_account(comet_store *store, size_t index, comet_store_account *account) {
    comet_begin();
    COMET_REQUIRE_POINTER(store);
    COMET_TRY(comet_sized_check(account, "account"));
    comet_store_account now;
    pthread_mutex_lock(&store->lock);
    size_t count = store->account_count;
    if (index < count) {
        comet_store_account_sync_locked(store, store->accounts[index]);
        now = store->accounts[index]->figures;
    }
    pthread_mutex_unlock(&store->lock);
    COMET_REQUIRE(index < count, "index is %zu: there are %zu accounts", index, count);
    comet_sized_write(account, &now, sizeof now);
    return COMET_OK;
}

comet_status comet_store_get_info(comet_store *store, comet_store_handle handle, comet_store_info *info) {
    comet_begin();
    COMET_REQUIRE_POINTER(store);
    COMET_TRY(comet_sized_check(info, "info"));
    comet_store_info now;
    pthread_mutex_lock(&store->lock);
    store_entry *entry = comet_store_find_locked(store, handle);
    if (entry)
        comet_store_fill_info(entry, &now);
    pthread_mutex_unlock(&store->lock);
    if (!entry)
        return comet_store_unknown();
    comet_sized_write(info, &now, sizeof now);
    return COMET_OK;
}

/* What is live stays, what was counted goes. */
static void account_reset(store_account *account, uint64_t peaks) {
    comet_store_account *a = &account->figures;
    a->peak = a->at_peak = a->live;
    a->saves = a->aliases = a->loads = a->spills = 0;
    account->seen = peaks;
}

void comet_store_reset(comet_store *store) {
    if (!store)
        return;
    pthread_mutex_lock(&store->lock);
    comet_store_stats *t = &store->stats;
    *t = (comet_store_stats){.entries = t->entries,
                             .peak_entries = t->entries,
                             .live = t->live,
                             .peak = t->live,
                             .at_peak = t->live,
                             .scratch_bytes = t->scratch_bytes,
                             .overhead_bytes = t->overhead_bytes,
                             .peak_used_bytes = t->live.resident + t->scratch_bytes};
    store->spill.peak_end = store->spill.end;
    size_t kept = 0;
    for (size_t i = 0; i < store->account_count; i++) {
        store_account *account = store->accounts[i];
        if (account->users) {
            account_reset(account, store->peaks);
            store->accounts[kept++] = account;
        } else {
            comet_store_give_locked(store, account, sizeof *account);
        }
    }
    store->account_count = kept;
    pthread_mutex_unlock(&store->lock);
}
