/* Instructions by context. A kernel function begins each context but that of tasks: `doorway=CONTEXT:START:END`, a number of `enum
 * context` and the addresses of the function in hexadecimal. The context ends where the function returns. With `thunk=ADDRESS` a jump
 * there is a return, too: kernels with mitigations have no other (__x86_return_thunk).
 *
 * SOFTIRQS is the loop that calls the softirqs, which counts as a task's, as by the tracepoints softirq_entry and softirq_exit.
 * There is one CPU, and softirqs and interrupts do not sleep, so contexts form a stack, whatever tasks are switched below it.
 */
enum context { TASK, SOFTIRQS, DEFERRED, NET_RX, HARDIRQ, CONTEXTS };

struct doorway {
    enum context context;
    uint64_t start;
    uint64_t end;
};

#define DOORWAYS 32
static struct doorway doorways[DOORWAYS];
static size_t doorways_known;
static uint64_t thunk;

/* Instructions executed so far, and up to the last change of the context. */
static uint64_t executed_in_all, accounted;
static uint64_t of_context[CONTEXTS];
static enum context stack[CONTEXTS];
static size_t depth;

static int make_doorway(const char *text)
{
    struct doorway *doorway = doorways + doorways_known;
    unsigned context;
    if (doorways_known == DOORWAYS
        || sscanf(text, "%u:%" SCNx64 ":%" SCNx64, &context, &doorway->start, &doorway->end) != 3 || context >= CONTEXTS)
        return 0;
    doorway->context = context;
    doorways_known++;
    return 1;
}

static void account(void)
{
    of_context[depth ? stack[depth - 1] : TASK] += executed_in_all - accounted;
    accounted = executed_in_all;
}

/* A context interrupts lower ones alone, so an equal or higher one has ended, even if its return was not seen. */
static void unwind(enum context to)
{
    while (depth && stack[depth - 1] >= to)
        depth--;
}

static void enter(unsigned cpu, void *data)
{
    const struct doorway *doorway = data;
    (void)cpu;
    account();
    unwind(doorway->context);
    stack[depth++] = doorway->context;
}

static void leave(unsigned cpu, void *data)
{
    const struct doorway *doorway = data;
    (void)cpu;
    account();
    unwind(doorway->context);
}

/* True if an instruction returns from its function. */
static int returns(const struct qemu_plugin_insn *insn)
{
    static const unsigned char arm64[2][4] = { { 0xc0, 0x03, 0x5f, 0xd6 }, { 0xff, 0x0b, 0x5f, 0xd6 } };
    unsigned char bytes[5];
    size_t known = bytes_of(insn, bytes, sizeof bytes), size = qemu_plugin_insn_size(insn);
    int32_t distance;
    if (known == 1 && bytes[0] == 0xc3)
        return 1;
    if (thunk && known == 5 && bytes[0] == 0xe9) {
        memcpy(&distance, bytes + 1, sizeof distance);
        return qemu_plugin_insn_vaddr(insn) + size + (uint64_t)(int64_t)distance == thunk;
    }
    return known == 4 && size == 4 && (!memcmp(bytes, arm64[0], 4) || !memcmp(bytes, arm64[1], 4));
}

#if QEMU_PLUGIN_VERSION > 1
static void executed_block(unsigned cpu, void *data)
{
    (void)cpu;
    executed_in_all += (uintptr_t)data;
}
#endif

/* Counts a block to the context in which it is executed; to that which it begins, but to that which it ends. */
static void count_contexts(struct qemu_plugin_tb *tb)
{
    uint64_t address = qemu_plugin_tb_vaddr(tb);
    size_t length = qemu_plugin_tb_n_insns(tb);
    struct qemu_plugin_insn *last = qemu_plugin_tb_get_insn(tb, length - 1);
    struct doorway *doorway = doorways;
    while (doorway < doorways + doorways_known && !(doorway->start <= address && address < doorway->end))
        doorway++;
    int is_in_one = doorway < doorways + doorways_known;
    if (is_in_one && address == doorway->start)
        qemu_plugin_register_vcpu_tb_exec_cb(tb, enter, QEMU_PLUGIN_CB_NO_REGS, doorway);
#if QEMU_PLUGIN_VERSION > 1
    qemu_plugin_register_vcpu_tb_exec_cb(tb, executed_block, QEMU_PLUGIN_CB_NO_REGS, (void *)(uintptr_t)length);
#else
    qemu_plugin_register_vcpu_tb_exec_inline(tb, QEMU_PLUGIN_INLINE_ADD_U64, &executed_in_all, length);
#endif
    if (is_in_one && returns(last))
        qemu_plugin_register_vcpu_insn_exec_cb(last, leave, QEMU_PLUGIN_CB_NO_REGS, doorway);
}
