// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/intent"
)

func wanted(t *testing.T, networks ...string) intent.Table[intent.Uplink] {
	t.Helper()
	s, err := intent.NewStore().Update(func(tx *intent.Tx) error { tx.ReplaceUplinks(uplinksTo(networks...)); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return s.Uplinks()
}

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
		numbers, err := numberUplinks(store, wanted(t, networks...))
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
	if _, err := numberUplinks(store, wanted(t, strings.Split("abcdefghijklmn", "")...)); err == nil {
		t.Error("14 physical networks have numbers")
	}
}
