// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"fmt"
	"path/filepath"
	"testing"
)

// A pod gets a slot that one of its kind has had, of several that of the most similar name, of
// equal ones that which has been free for longest; else one that none has had.
func TestSlotsOfAKind(t *testing.T) {
	for _, tc := range []struct {
		name   string
		had    []string // namespace/name of pods that came, and went thereafter
		comes  string
		wanted int // its address ends with
	}{
		{"none was there", nil, "shop/web-5d-x", 2},
		{"a pod of its Deployment", []string{"shop/db-0", "shop/web-5d-x", "shop/cache-7f-y"}, "shop/web-5d-z", 3},
		{"of another revision", []string{"shop/db-0", "shop/web-5d-x"}, "shop/web-6e-z", 3},
		{"the same of a StatefulSet", []string{"shop/db-0", "shop/db-1", "shop/db-2"}, "shop/db-1", 3},
		{"another of the StatefulSet", []string{"shop/web-5d-x", "shop/db-1"}, "shop/db-7", 3},
		{"one of a longer name", []string{"shop/web-admin-5d-x", "shop/web-7f-y"}, "shop/web-6e-z", 3},
		{"two of its kind", []string{"shop/web-5d-x", "shop/web-5d-y"}, "shop/web-5d-z", 2},
		{"of another namespace", []string{"shop/web-5d-x"}, "bank/web-5d-z", 3},
		{"of another kind", []string{"shop/web-5d-x", "shop/db-0"}, "shop/cache-5d-z", 4},
		{"all were of others", []string{"shop/a-0", "shop/b-0", "shop/c-0", "shop/d-0", "shop/e-0", "shop/f-0"}, "shop/z-0", 2},
		{"one farther away", []string{"shop/a-0", "shop/b-0", "shop/c-0", "shop/d-0", "shop/e-0", "shop/f-0", "shop/g-0", "shop/h-0"},
			"shop/h-0", 9},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := openTest(t, filepath.Join(t.TempDir(), "state.db"))
			s.InSlots(4, 2, 8)
			allocate := func(id, pod string) Attachment {
				t.Helper()
				p := request(id)
				p.PodNamespace, p.PodName = pod[:4], pod[5:]
				a, err := s.Allocate(p)
				if err != nil {
					t.Fatal(err)
				}
				return a
			}
			var keys []Key
			for i, pod := range tc.had {
				keys = append(keys, allocate(fmt.Sprint("c", i), pod).Key)
			}
			for _, k := range keys {
				if _, err := s.Release(k); err != nil {
					t.Fatal(err)
				}
			}
			want := fmt.Sprintf("10.0.0.%d fd00:1::%x", tc.wanted, tc.wanted)
			a := allocate("next", tc.comes)
			if got := fmt.Sprint(a.Addresses[0].Addr(), " ", a.Addresses[1].Addr()); got != want {
				t.Errorf("%s has %s, want %s", tc.comes, got, want)
			}
		})
	}
}

// Blocks of a Network are handed out by slots, too: both families at the same distance, and to pods
// of a kind what one of them had, in each Network by itself.
func TestSlotsOfBlocks(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "state.db"))
	s.InSlots(4, 2, 8)
	ranges := append(blocks(t, "10.9.0.0/24", "10.9.0.32/28", "10.9.0.16/28"), blocks(t, "fd09::/64", "fd09::40/124")...)
	allocate := func(id, network, pod string) Attachment {
		t.Helper()
		p := on(network, id, "net1", ranges)
		p.PodNamespace, p.PodName = "shop", pod
		a, err := s.Allocate(p)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	var had []Attachment
	for i, pod := range []string{"web-0", "db-0"} {
		for _, network := range []string{"red", "blue"} {
			had = append(had, allocate(fmt.Sprint(pod, network), network, pod))
			want := fmt.Sprintf("[10.9.0.%d/24 fd09::4%x/64]", 16+i, i)
			if got := fmt.Sprint(had[len(had)-1].Addresses); got != want {
				t.Errorf("%s on %s has %s, want %s", pod, network, got, want)
			}
		}
	}
	for _, a := range had {
		if _, err := s.Release(a.Key); err != nil {
			t.Fatal(err)
		}
	}
	for _, network := range []string{"blue", "red"} {
		if got := fmt.Sprint(allocate("next"+network, network, "db-1").Addresses); got != "[10.9.0.17/24 fd09::41/64]" {
			t.Errorf("db-1 on %s has %s, which db-0 did not have", network, got)
		}
	}
	if got := fmt.Sprint(allocate("third", "red", "cache-0").Addresses); got != "[10.9.0.18/24 fd09::42/64]" {
		t.Errorf("cache-0 has %s, which others had", got)
	}
}
