// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"coelan.io/coelan/internal/ipam"
)

// Whatever the order of allocations, releases, restarts and failures of the disk: nothing
// is handed out twice, nothing that was acknowledged is lost, nothing else is there.
func TestStoreAgainstAMap(t *testing.T) {
	small := ranges("10.0.0.0/28", "fd00:1::/125") // 13 and 6 addresses
	dir, runs := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		path := filepath.Join(dir, fmt.Sprintf("state-%d.db", runs))
		s, err := open(path, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { s.Close() }()
		model := map[Key]Attachment{}
		id := rapid.Custom(func(t *rapid.T) string { return fmt.Sprintf("c%d", rapid.IntRange(0, 9).Draw(t, "id")) })
		t.Repeat(map[string]func(*rapid.T){
			"allocate": func(t *rapid.T) {
				r := request(id.Draw(t, "container"))
				r.Ranges = small
				a, err := s.Allocate(r)
				_, exists := model[r.Key]
				var exhausted *ipam.ExhaustedError
				switch {
				case exists != errors.Is(err, ErrExists):
					t.Fatalf("allocate %s: %v; exists: %v", r.Key, err, exists)
				case exists:
				case errors.As(err, &exhausted):
					if len(model) < 6 {
						t.Fatalf("%v with %d attachments", err, len(model))
					}
				case err != nil:
					t.Fatal(err)
				default:
					model[r.Key] = a
				}
			},
			"release": func(t *rapid.T) {
				k := Key{id.Draw(t, "container"), "eth0"}
				_, exists := model[k]
				if ok, err := s.Release(k); ok != exists || err != nil {
					t.Fatalf("release %s: %v, %v; exists: %v", k, ok, err, exists)
				}
				delete(model, k)
			},
			"restart": func(t *rapid.T) {
				s.Close()
				if s, err = open(path, 0); err != nil {
					t.Fatal(err)
				}
			},
			"the disk failed": func(*rapid.T) { s.journal.unsure = true },
			"the file grew":   func(*rapid.T) { s.journal.size += replaceAbove },
			"": func(t *rapid.T) {
				seen := map[any]Key{}
				for _, a := range s.List() {
					if fmt.Sprint(model[a.Key]) != fmt.Sprint(a) {
						t.Fatalf("the store has %v, want %v", a, model[a.Key])
					}
					for _, thing := range []any{a.Addresses[0], a.Addresses[1], a.MAC, a.OFPort, a.HostInterface} {
						if other, twice := seen[thing]; twice {
							t.Fatalf("%s and %s both have %v", other, a.Key, thing)
						}
						seen[thing] = a.Key
					}
				}
				if n := len(s.List()); n != len(model) {
					t.Fatalf("%d attachments, want %d", n, len(model))
				}
				if len(s.ports) != len(model) || len(s.addresses) != 2*len(model) || len(s.macs) != len(model) || len(s.pending) != 0 {
					t.Fatalf("held: %d ports, %d addresses, %d MACs, %d pending, want those of %d attachments",
						len(s.ports), len(s.addresses), len(s.macs), len(s.pending), len(model))
				}
			},
		})
	})
}
