/* liburcu's readers as a C program has them that may inline them: LGPL-compatible, and not position-independent. */

#define _LGPL_SOURCE
#include <urcu/urcu-memb.h>

#include <stdint.h>
#include <stdlib.h>

void mayfly_bench_liburcu_sections(uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		urcu_memb_read_lock();
		urcu_memb_read_unlock();
	}
}

int mayfly_bench_liburcu_uses_membarrier(void)
{
	return urcu_memb_has_sys_membarrier;
}

struct word {
	struct rcu_head head;
	uint64_t value;
};

static void free_word(struct rcu_head *head)
{
	free(caa_container_of(head, struct word, head));
}

/* The thread that frees is liburcu's own. By default it would be on this thread's processor. */
void mayfly_bench_liburcu_call_on(int processor)
{
	struct call_rcu_data *data = urcu_memb_create_call_rcu_data(0, processor);

	if (!data)
		abort();
	urcu_memb_set_thread_call_rcu_data(data);
}

void mayfly_bench_liburcu_calls(uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		struct word *word = malloc(sizeof(*word));

		if (!word)
			abort();
		word->value = 1;
		urcu_memb_call_rcu(&word->head, free_word);
	}
}
