// SPDX-License-Identifier: Apache-2.0

package ctflush

import (
	"context"
	"errors"
	"fmt"
	"time"

	"coelan.io/coelan/internal/retry"
	"coelan.io/coelan/openflow"
)

// Table is the conntrack that ovs-vswitchd searches in its main thread, which does nothing else
// meanwhile.
//
// The search of the userspace datapath follows a hash table that other threads change, and that the
// search itself makes smaller by what it removes. When the table is rebuilt with another size, the
// search goes on where it was in the old one, and misses entries: of 60,000 connections of an
// address among 61,000, one search leaves 15,400 (Open vSwitch 3.1). So it is repeated.
type Table struct {
	// Conn is the connection to the switch.
	Conn func(context.Context) (*openflow.Conn, error)
	// Count returns how many connections there are. It is nil where a search misses none: the
	// kernel's table keeps its size.
	Count func(context.Context) (int, error)
}

const (
	// longSearch is how long ovs-vswitchd may be busy without a pause afterward.
	longSearch = 10 * time.Millisecond
	// maxPasses bounds the repetitions. Each pass that misses something halves the table at least.
	maxPasses = 40
)

// Forget forgets all connections that one of the messages matches.
func (t Table) Forget(ctx context.Context, messages []*openflow.CTFlush) error {
	pass := func() error {
		for _, m := range messages {
			if err := t.search(ctx, m); err != nil {
				return err
			}
		}
		return nil
	}
	if t.Count == nil {
		return pass()
	}
	return untilComplete(func() (int, error) { return t.Count(ctx) }, pass)
}

// search has ovs-vswitchd go through the table once, and then gives it a pause if that took long.
func (t Table) search(ctx context.Context, m *openflow.CTFlush) error {
	conn, err := t.Conn(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := conn.Do(ctx, []openflow.Message{m}); err != nil {
		if refused := new(openflow.Error); errors.As(err, &refused) && refused.Unknown() {
			return ErrUnsupported
		}
		return fmt.Errorf("forget connections: %w", err)
	}
	took := time.Since(start)
	if took <= longSearch {
		return nil
	}
	if !retry.Sleep(ctx, took) {
		return ctx.Err()
	}
	return nil
}

// untilComplete repeats a pass until one of them has seen the whole table.
//
// The table becomes smaller when it is filled to a fifth, and larger when it is filled to 85 %;
// then it is filled to two fifths. So it is rebuilt at most once while the number of connections
// stays within a quarter, and of two passes in a row during which it does, one was not disturbed.
// Other connections may come and go meanwhile.
func untilComplete(count func() (int, error), pass func() error) error {
	first, err := count()
	if err != nil {
		return err
	}
	counts := []int{first}
	for range maxPasses {
		if err := pass(); err != nil {
			return err
		}
		n, err := count()
		if err != nil {
			return err
		}
		counts = append(counts, n)
		if len(counts) < 3 {
			continue
		}
		last := counts[len(counts)-3:]
		if near(last[0], last[1]) && near(last[0], last[2]) {
			return nil
		}
	}
	return fmt.Errorf("connections may be left after %d searches: their number still changes much, last from %d to %d",
		maxPasses, counts[len(counts)-2], counts[len(counts)-1])
}

// near reports whether two numbers of connections differ by at most a quarter of the first.
func near(before, after int) bool { return max(before-after, after-before) <= before/4 }
