/* Sends and receives on internet sockets of the processes in `followed`, by whichever system call: write and read are
 * among them. Not splice out of a socket. What sendfile and splice send is counted a second time, as by reference.
 * calls.rs reads the cells. */
#include "core.h"
#include "calls.layout.h"

#define AF_INET 2
#define AF_INET6 10

struct sock___calls {
	struct {
		u16 skc_family;
	} CORE __sk_common;
} CORE;

/* Registers of user space, with the number of the system call: of x86-64, and of arm64. */
struct pt_regs___x86 {
	u64 orig_ax;
} CORE;

struct pt_regs___arm64 {
	s32 syscallno;
} CORE;

static void *(*bpf_task_pt_regs)(struct task_struct *task) = (void *)175;

/* That of `exact`. */
#define BPF_MAP_TYPE_HASH 1
struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u32);
} followed SEC(".maps");

struct Cell cells[MAX_CPUS] = {};

/* The system call of the task that runs passes pages by reference. io_uring's number is its own, whatever it does. */
static inline int is_by_reference(void)
{
	void *registers = bpf_task_pt_regs(bpf_get_current_task_btf());

	if (HAS(pt_regs___x86, orig_ax)) {
		u64 number = ((struct pt_regs___x86 *)registers)->orig_ax;

		return number == 40 || number == 275; /* sendfile, splice: asm/unistd_64.h */
	}
	if (HAS(pt_regs___arm64, syscallno)) {
		s32 number = ((struct pt_regs___arm64 *)registers)->syscallno;

		return number == 71 || number == 76; /* asm-generic/unistd.h */
	}
	return 0;
}

static inline void add(u32 cpu, u32 place, s32 bytes)
{
	__sync_fetch_and_add(&cells[cpu].counts[place], 1);
	/* An error is negative. */
	if (bytes > 0)
		__sync_fetch_and_add(&cells[cpu].counts[place + 1], bytes);
}

static inline int count(u64 *ctx, u32 place)
{
	struct sock___calls *sk = (void *)ctx[0];
	u32 tgid = bpf_get_current_pid_tgid() >> 32, cpu = bpf_get_smp_processor_id();
	u16 family = sk->__sk_common.skc_family;

	if (cpu >= MAX_CPUS || (family != AF_INET && family != AF_INET6) || !bpf_map_lookup_elem(&followed, &tgid))
		return 0;
	add(cpu, place, ctx[1]);
	if (place == SENDS && is_by_reference())
		add(cpu, REFERENCE_SENDS, ctx[1]);
	return 0;
}

SEC("tp_btf/sock_send_length")
int called_send(u64 *ctx)
{
	return count(ctx, SENDS);
}

SEC("tp_btf/sock_recv_length")
int called_receive(u64 *ctx)
{
	return count(ctx, RECEIVES);
}
