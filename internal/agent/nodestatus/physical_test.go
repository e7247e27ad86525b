// SPDX-License-Identifier: Apache-2.0

package nodestatus

import "testing"

// A node says what it is connected to. What it cannot know yet, it goes on to say.
func TestPhysicalNetworks(t *testing.T) {
	all := []string{"office", "lab"}
	for _, tc := range []struct {
		name         string
		all          []string
		known        map[string]bool
		before, want string
	}{
		{"none", nil, map[string]bool{}, "", ""},
		{"none any more", nil, map[string]bool{}, "lab,office", ""},
		{"no longer configured", []string{"lab"}, map[string]bool{"lab": true}, "lab,office", "lab"},
		{"connected to all", all, map[string]bool{"lab": true, "office": true}, "", "lab,office"},
		{"a bridge is missing", all, map[string]bool{"lab": true, "office": false}, "lab,office", "lab"},
		{"all bridges are missing", all, map[string]bool{"lab": false, "office": false}, "lab,office", ""},
		{"nothing is known", all, map[string]bool{}, "lab,office", "lab,office"},
		{"nothing is known, nor was", all, map[string]bool{}, "", ""},
		{"one is known", all, map[string]bool{"lab": false}, "lab,office", "office"},
		{"a name within another", []string{"off"}, map[string]bool{}, "office", ""},
	} {
		if got := physicalNetworks(tc.all, tc.known, tc.before); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
