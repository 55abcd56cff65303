/* A plugin of QEMU's TCG that counts the instructions executed between two marks, by address of their block.
 *
 * The plugin runs outside the guest and does not change the guest's count of instructions. A mark does nothing, and no
 * compiler makes it: on x86 a NOP of seven bytes, 0f 1f 80 ee ff c0 NN, nopl 0xNNc0ffee(%rax), where NN is 01 where a span
 * begins and 02 where it ends; on arm64 movz xzr, #0xfee1 and #0xfee2. Each span is written to the file `out` when it ends: a line "span", a line "ADDRESS COUNT"
 * for each block, "end". With the option `doorway` a line "contexts COUNT…" follows "span" (contexts.h). With the option `caches` a line goes on with the numbers of `struct misses` (caches.h).
 *
 * A block is counted whole when it is entered. A block that an exception leaves early counts too much, by some
 * hundredths of a percent.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__has_include) && __has_include(<qemu-plugin.h>)
#include <qemu-plugin.h>
#define QEMU_PLUGIN_IS_INCLUDED
#else
/* Version 1 of the interface, for QEMU 4.2 to 8.1; distributions with a newer QEMU package its header. */
#define QEMU_PLUGIN_VERSION 1
typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_info_t;
typedef struct qemu_info_t qemu_info_t;
enum { QEMU_PLUGIN_CB_NO_REGS };
enum { QEMU_PLUGIN_INLINE_ADD_U64 };
extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
extern const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
extern size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
extern void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int, void *, uint64_t);
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, void (*)(unsigned, void *), int, void *);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned, void *), int, void *);
#define QEMU_PLUGIN_EXPORT __attribute__((visibility("default")))
#endif

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

/* Blocks by address and length; a block that is translated again uses the same entry. */
struct block {
    uint64_t address;
    uint64_t length;
    uint64_t count;
};

#define BLOCKS (1u << 22)
static struct block *blocks;
static FILE *out;

/* Copies the first bytes of an instruction; their number. */
static size_t bytes_of(const struct qemu_plugin_insn *insn, unsigned char *bytes, size_t most)
{
    size_t size = qemu_plugin_insn_size(insn);
    if (size > most)
        size = most;
#if QEMU_PLUGIN_VERSION > 3
    return qemu_plugin_insn_data(insn, bytes, size);
#else
    memcpy(bytes, qemu_plugin_insn_data(insn), size);
    return size;
#endif
}

#include "caches.h"
#include "contexts.h"

static struct block *find(uint64_t address, uint64_t length)
{
    uint32_t at = (uint32_t)((address * 0x9e3779b97f4a7c15ull + length) >> 42);
    for (;; at++) {
        struct block *block = blocks + (at & (BLOCKS - 1));
        if (!block->length) {
            block->address = address;
            block->length = length;
            return block;
        }
        if (block->address == address && block->length == length)
            return block;
    }
}

static void begin(unsigned cpu, void *data)
{
    (void)cpu;
    (void)data;
    for (uint32_t at = 0; at < BLOCKS; at++) {
        if (has_caches && blocks[at].count)
            memset(&missed[at], 0, sizeof missed[at]);
        blocks[at].count = 0;
    }
    account();
    memset(of_context, 0, sizeof of_context);
}

static void end(unsigned cpu, void *data)
{
    (void)cpu;
    (void)data;
    fprintf(out, "span\n");
    account();
    if (doorways_known)
        fprintf(out, "contexts %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", of_context[TASK] + of_context[SOFTIRQS],
                of_context[DEFERRED], of_context[NET_RX], of_context[HARDIRQ]);
    for (uint32_t at = 0; at < BLOCKS; at++) {
        if (!blocks[at].count)
            continue;
        fprintf(out, "%" PRIx64 " %" PRIu64, blocks[at].address, blocks[at].count);
        for (size_t n = 0; has_caches && n < MISSES_NUMBERS; n++)
            fprintf(out, " %" PRIu64, ((uint64_t *)&missed[at])[n]);
        fprintf(out, "\n");
    }
    fprintf(out, "end\n");
    fflush(out);
}

#if QEMU_PLUGIN_VERSION > 1
/* Later versions have another interface for inline counting; a call for each block works in all of them. */
static void executed(unsigned cpu, void *data)
{
    struct block *block = data;
    (void)cpu;
    block->count += block->length;
}
#endif

/* 1 for the mark where a span begins, 2 where it ends, 0 for other instructions. */
static int mark_of(const unsigned char *bytes, size_t known, size_t size)
{
    static const unsigned char x86[6] = { 0x0f, 0x1f, 0x80, 0xee, 0xff, 0xc0 };
    if (size == 7 && known == 7 && !memcmp(bytes, x86, sizeof x86))
        return bytes[6] == 1 || bytes[6] == 2 ? bytes[6] : 0;
    if (size == 4 && known == 4 && bytes[1] == 0xdc && bytes[2] == 0x9f && bytes[3] == 0xd2)
        return bytes[0] == 0x3f ? 1 : bytes[0] == 0x5f ? 2 : 0;
    return 0;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
    size_t length = qemu_plugin_tb_n_insns(tb);
    struct block *block = find(qemu_plugin_tb_vaddr(tb), length);
    (void)id;
    if (doorways_known)
        count_contexts(tb);
#if QEMU_PLUGIN_VERSION > 1
    qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, QEMU_PLUGIN_CB_NO_REGS, block);
#else
    qemu_plugin_register_vcpu_tb_exec_inline(tb, QEMU_PLUGIN_INLINE_ADD_U64, &block->count, length);
#endif
    if (has_caches)
        count_misses(tb, &missed[block - blocks]);
    for (size_t at = 0; at < length; at++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, at);
        unsigned char bytes[7];
        int mark = mark_of(bytes, bytes_of(insn, bytes, sizeof bytes), qemu_plugin_insn_size(insn));
        if (mark)
            qemu_plugin_register_vcpu_insn_exec_cb(insn, mark == 1 ? begin : end, QEMU_PLUGIN_CB_NO_REGS, NULL);
    }
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
    const char *path = NULL;
    (void)info;
    for (int at = 0; at < argc; at++) {
        if (!strncmp(argv[at], "out=", 4))
            path = argv[at] + 4;
        if (!strncmp(argv[at], "doorway=", 8) && !make_doorway(argv[at] + 8))
            return 1;
        if (!strncmp(argv[at], "thunk=", 6))
            thunk = strtoull(argv[at] + 6, NULL, 16);
        if (!strncmp(argv[at], "caches=", 7) && !make_caches(argv[at] + 7))
            return 1;
    }
    out = path ? fopen(path, "w") : NULL;
    blocks = calloc(BLOCKS, sizeof *blocks);
    if (!out || !blocks)
        return 1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    return 0;
}
