// SPDX-License-Identifier: Apache-2.0

package ovs

import "testing"

func TestWithoutHandlers(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want bool
	}{
		"healthy":               {"handlers:2 idl-cells-Open_vSwitch:517 ports:8 revalidators:1 rules:135 udpif keys:87\n", false},
		"trapped":               {"idl-cells-Open_vSwitch:517 ports:8 revalidators:1 rules:135\n", true},
		"trapped, newer output": {"handlers:0 ports:8 revalidators:1\n", true},
		"no datapath yet":       {"idl-cells-Open_vSwitch:12\n", false},
		"nothing yet":           {"", false},
	} {
		if got := withoutHandlers(tc.text); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
