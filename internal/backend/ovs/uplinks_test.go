// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/attachment"
)

// The port of a physical network stays when others come and go, also over restarts.
func TestUplinkNumbersStay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	number := func(networks ...string) map[string]uint32 {
		t.Helper()
		store, err := attachment.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = store.Close() }()
		mappings := map[string]string{}
		for _, n := range networks {
			mappings[n] = "br-" + n
		}
		numbers, err := numberUplinks(store, mappings)
		if err != nil {
			t.Fatal(err)
		}
		return numbers
	}
	for i, tc := range []struct {
		networks []string
		want     map[string]uint32
	}{
		{[]string{"b", "c"}, map[string]uint32{"b": 3, "c": 4}},
		{[]string{"a", "b", "c"}, map[string]uint32{"a": 5, "b": 3, "c": 4}},
		{[]string{"a", "c"}, map[string]uint32{"a": 5, "c": 4}},
		{[]string{"a", "c", "d"}, map[string]uint32{"a": 5, "c": 4, "d": 3}},
	} {
		if diff := cmp.Diff(tc.want, number(tc.networks...)); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
	store, err := attachment.Open(filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	many := map[string]string{}
	for _, c := range "abcdefghijklmn" {
		many[string(c)] = string(c)
	}
	if _, err := numberUplinks(store, many); err == nil {
		t.Error("14 physical networks have numbers")
	}
}
