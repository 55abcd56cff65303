/* Processes and sockets that a CPU met last, with what the maps have of them: a look into a map costs more than the clock.
 * An entry has the count of changes from before it was read, and holds until the next change. */
#pragma once

#define ID_BITS 22 /* of a process id: include/linux/threads.h, PID_MAX_LIMIT */
#define VALUE_BITS 16

/* After a map has changed. */
static inline void change(struct Changes *changes)
{
	__sync_fetch_and_add(&changes->count, 1);
}

/* What `followed` has of a process or thread, or 0; without a cell, by the map alone. An entry is one word, since a hard
 * interrupt's program may write it in between. */
static inline u32 followed_as(struct Cell *cell, u32 id)
{
	u64 key = ((u64)all.task_changes.count << ID_BITS | id) << VALUE_BITS, entry;
	volatile u64 *recent = cell ? &cell->tasks[id & (RECENT_TASKS - 1)] : 0;
	u32 *known;

	if (recent) {
		entry = *recent;
		if ((entry ^ key) >> VALUE_BITS == 0)
			return entry & ((1 << VALUE_BITS) - 1);
	}
	known = bpf_map_lookup_elem(&followed, &id);
	if (known)
		key |= *known;
	if (recent)
		*recent = key;
	return known ? *known : 0;
}
