/* liburcu's QSBR readers: sections cost nothing, and a reader says where it has none. */

#define _LGPL_SOURCE
#include <urcu/urcu-qsbr.h>

#include <stdint.h>

static uint64_t numbers[8];
static uint64_t *pointers[8] = { numbers, numbers + 1, numbers + 2, numbers + 3,
				 numbers + 4, numbers + 5, numbers + 6, numbers + 7 };

static inline void reads(uint64_t each)
{
	urcu_qsbr_read_lock();
	for (uint64_t at = 0; at < each; at++) {
		uint64_t number = *rcu_dereference(pointers[at]);
		__asm__ volatile("" : : "r"(number));
	}
	urcu_qsbr_read_unlock();
}

/* A section, and a word that it is over; the reader stays online. */
void mayfly_bench_qsbr_exits(uint64_t count, uint64_t each)
{
	for (uint64_t i = 0; i < count; i++) {
		reads(each);
		urcu_qsbr_quiescent_state();
	}
}

/* A reader that is offline between its sections: no other thread waits for it meanwhile. */
void mayfly_bench_qsbr_online_exits(uint64_t count, uint64_t each)
{
	for (uint64_t i = 0; i < count; i++) {
		urcu_qsbr_thread_online();
		reads(each);
		urcu_qsbr_thread_offline();
	}
	urcu_qsbr_thread_online();
}
