/* Call chains of whatever runs when a sampling event fires. profile.rs opens the events. */
#include "core.h"

#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_STACK_TRACE 7
#define BPF_F_USER_STACK (1ULL << 8)
#define BPF_F_FAST_STACK_CMP (1ULL << 9)
#define BPF_NOEXIST 1
#define STACKS 16384
#define FRAMES 127 /* PERF_MAX_STACK_DEPTH */

/* Negative stack numbers are errors: no such stack (a kernel thread's user stack), or no room. */
struct key {
	u32 tgid;
	s32 kernel_stack, user_stack;
	char comm[16];
};

struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, STACKS);
	TYPE(key, struct key);
	TYPE(value, u64);
} samples SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_STACK_TRACE);
	NUMBER(max_entries, STACKS);
	NUMBER(key_size, sizeof(u32));
	NUMBER(value_size, FRAMES * sizeof(u64));
} stacks SEC(".maps");

SEC("perf_event")
int sample(void *ctx)
{
	struct key key = {};
	u64 one = 1, *count;

	key.tgid = bpf_get_current_pid_tgid() >> 32;
	bpf_get_current_comm(key.comm, sizeof(key.comm));
	key.kernel_stack = bpf_get_stackid(ctx, &stacks, BPF_F_FAST_STACK_CMP);
	key.user_stack = bpf_get_stackid(ctx, &stacks, BPF_F_FAST_STACK_CMP | BPF_F_USER_STACK);
	count = bpf_map_lookup_elem(&samples, &key);
	if (count)
		__sync_fetch_and_add(count, 1);
	else
		bpf_map_update_elem(&samples, &key, &one, BPF_NOEXIST);
	return 0;
}
