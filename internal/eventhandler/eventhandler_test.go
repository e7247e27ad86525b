// SPDX-License-Identifier: Apache-2.0

package eventhandler

import "testing"

func TestOnChange(t *testing.T) {
	n := 0
	count := func() { n++ }
	all, some := OnChange(count, nil), OnChange(count, func(old, now any) bool { return old != now })
	for _, tc := range []struct {
		what string
		do   func()
		want int
	}{
		{"add", func() { all.OnAdd(1, false); some.OnAdd(1, false) }, 2},
		{"update without a difference", func() { all.OnUpdate(1, 1); some.OnUpdate(1, 1) }, 1},
		{"update", func() { all.OnUpdate(1, 2); some.OnUpdate(1, 2) }, 2},
		{"delete", func() { all.OnDelete(2); some.OnDelete(2) }, 2},
	} {
		n = 0
		if tc.do(); n != tc.want {
			t.Errorf("%s: %d calls, want %d", tc.what, n, tc.want)
		}
	}
}
