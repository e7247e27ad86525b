// SPDX-License-Identifier: Apache-2.0

// Package timers has many timers for one goroutine, which sleeps until the next one is due. It is
// for state that a lock guards: nothing fires by itself.
package timers

import (
	"container/heap"
	"time"
)

// idle is the index of a Timer that is not in the queue.
const idle = -1

// Timer calls what it was made with when it is due, once, unless it is set again. New makes it.
type Timer struct {
	at    time.Time
	index int
	fire  func(now time.Time)
}

// New makes a Timer that is not pending.
func New(fire func(now time.Time)) Timer { return Timer{index: idle, fire: fire} }

// Pending reports whether the Timer is to fire.
func (t *Timer) Pending() bool { return t.index != idle }

// Queue is pending Timers. The zero value has none.
type Queue struct{ queue queue }

// Set makes t due at that time, instead of at another one.
func (q *Queue) Set(t *Timer, at time.Time) {
	t.at = at
	if t.Pending() {
		heap.Fix(&q.queue, t.index)
		return
	}
	heap.Push(&q.queue, t)
}

// Stop has t not fire.
func (q *Queue) Stop(t *Timer) {
	if t.Pending() {
		heap.Remove(&q.queue, t.index)
	}
}

// Expire fires what is due by now. What fires may set Timers for later.
func (q *Queue) Expire(now time.Time) {
	for len(q.queue) > 0 && !q.queue[0].at.After(now) {
		heap.Pop(&q.queue).(*Timer).fire(now)
	}
}

// Next is when the next Timer is due; false if none is.
func (q *Queue) Next() (time.Time, bool) {
	if len(q.queue) == 0 {
		return time.Time{}, false
	}
	return q.queue[0].at, true
}

// queue is a heap, the Timer that is due first in front.
type queue []*Timer

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *queue) Push(x any) {
	t := x.(*Timer)
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

// At returns a channel that delivers at a time. For the zero time it is nil, from which a select
// never receives.
func At(t time.Time) <-chan time.Time {
	if t.IsZero() {
		return nil
	}
	return time.After(time.Until(t))
}
