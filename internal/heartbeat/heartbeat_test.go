// SPDX-License-Identifier: Apache-2.0

package heartbeat

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Bound)
		first, second := m.Loop("first"), m.Loop("second")
		check := func(want ...string) {
			t.Helper()
			err := m.Check()
			if (err != nil) != (len(want) > 0) {
				t.Fatalf("%v, want %q", err, want)
			}
			for _, name := range want {
				if !strings.Contains(err.Error(), "loop "+name+":") {
					t.Errorf("%v, want %q", err, want)
				}
			}
		}
		check() // they wait for events
		time.Sleep(24 * time.Hour)
		check()
		done := first.Step()
		time.Sleep(Bound)
		check() // not longer than the bound
		time.Sleep(time.Second)
		check("first")
		secondDone := second.Step()
		time.Sleep(Bound + time.Second)
		check("first", "second")
		done()
		check("second")
		done = first.Step() // steps do not add up
		time.Sleep(Bound)
		done()
		first.Step()
		time.Sleep(Bound)
		check("second")

		// Of several workers one is stuck, whatever the others do.
		for range 3 {
			second.Step()()
		}
		check("second")
		secondDone()
		check()
	})
}
