// SPDX-License-Identifier: Apache-2.0

package wake

import "testing"

func TestKicksAreOne(t *testing.T) {
	w := New()
	w.Kick()
	w.Kick()
	<-w
	select {
	case <-w:
		t.Error("two kicks are two looks")
	default:
	}
	w.Kick()
	<-w
}

func TestOnEvents(t *testing.T) {
	n := 0
	count := func() { n++ }
	all, some := OnEvents(count, nil), OnEvents(count, func(old, now any) bool { return old != now })
	for _, tc := range []struct {
		what string
		do   func()
		want int
	}{
		{"new", func() { all.OnAdd(1, false); some.OnAdd(1, false) }, 2},
		{"the same", func() { all.OnUpdate(1, 1); some.OnUpdate(1, 1) }, 1},
		{"changed", func() { all.OnUpdate(1, 2); some.OnUpdate(1, 2) }, 2},
		{"gone", func() { all.OnDelete(2); some.OnDelete(2) }, 2},
	} {
		n = 0
		if tc.do(); n != tc.want {
			t.Errorf("%s: %d calls, want %d", tc.what, n, tc.want)
		}
	}
}
