// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"container/heap"
	"time"
)

// idle is the index of a timer that is not in the queue.
const idle = -1

// timer calls fire when it is due, once, unless it is set again.
type timer struct {
	at    time.Time
	index int
	fire  func(now time.Time)
}

func (t *timer) pending() bool { return t.index != idle }

// timers are pending timers, the one that is due first in front.
type timers struct{ queue queue }

// set makes t due at that time, instead of at another one.
func (ts *timers) set(t *timer, at time.Time) {
	t.at = at
	if t.pending() {
		heap.Fix(&ts.queue, t.index)
		return
	}
	heap.Push(&ts.queue, t)
}

func (ts *timers) stop(t *timer) {
	if t.pending() {
		heap.Remove(&ts.queue, t.index)
	}
}

// expire fires what is due by now. What fires may set timers for later.
func (ts *timers) expire(now time.Time) {
	for len(ts.queue) > 0 && !ts.queue[0].at.After(now) {
		heap.Pop(&ts.queue).(*timer).fire(now)
	}
}

// next is when the next timer is due; false if none is.
func (ts *timers) next() (time.Time, bool) {
	if len(ts.queue) == 0 {
		return time.Time{}, false
	}
	return ts.queue[0].at, true
}

// queue is a heap.
type queue []*timer

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *queue) Push(x any) {
	t := x.(*timer)
	t.index = len(*q)
	*q = append(*q, t)
}

func (q *queue) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	t.index = idle
	return t
}
