// SPDX-License-Identifier: Apache-2.0

package ctflush

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/ipam"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// datapath is a fake that remembers what happened, in order.
type datapath struct {
	mu      sync.Mutex
	did     []string
	settles error
	flushes error
}

func (d *datapath) Settled(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.did = append(d.did, "settled")
	return d.settles
}

func (d *datapath) Flush(_ context.Context, a attachment.ReleasedAddress) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.did = append(d.did, a.Address.String())
	return d.flushes
}

func (d *datapath) set(settles, flushes error) (did []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settles, d.flushes = settles, flushes
	did, d.did = d.did, nil
	return did
}

// node is a store with pods of which the first is gone, and a Flusher that runs.
func node(t *testing.T, d *datapath) (*attachment.Store, *Flusher, netip.Prefix) {
	s, err := attachment.Open(filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	s.KeepReleased(func(a attachment.Attachment) []attachment.ReleasedAddress {
		return []attachment.ReleasedAddress{{Address: a.Addresses[0].Addr()}}
	})
	f := New(slog.New(slog.DiscardHandler), s, d)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.Close()
	})
	a, err := s.Allocate(request(t, "a"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Release(a.Key); err != nil {
		t.Fatal(err)
	}
	return s, f, a.Addresses[0]
}

func request(t *testing.T, id string) attachment.Plan {
	r, err := ipam.Parse([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")})
	if err != nil {
		t.Fatal(err)
	}
	return attachment.Plan{Spec: attachment.Spec{Key: attachment.Key{ContainerID: id, IfName: "eth0"}, PodNamespace: "x", PodName: id}, Ranges: r}
}

func TestFlushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &datapath{}
		s, f, had := node(t, d)
		r := request(t, "b")
		r.Ranges, r.Addresses = nil, []netip.Addr{had.Addr()}
		if _, err := s.AllocateAllWhenFree(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if did := d.set(nil, nil); !slices.Equal(did, []string{"settled", had.Addr().String()}) {
			t.Errorf("before the address was free: %v", did)
		}
		if waiting, err := f.Status(); waiting != 0 || err != nil {
			t.Errorf("waiting: %d, %v", waiting, err)
		}
	})
}

// TestKept has addresses be kept as long as their connections cannot be forgotten.
func TestKept(t *testing.T) {
	broken := errors.New("broken")
	for _, tc := range []struct {
		name             string
		settles, flushes error
		kept             bool
	}{
		{"the datapath does not settle", broken, nil, true},
		{"the flush fails", nil, broken, true},
		{"an old Open vSwitch", nil, ErrUnsupported, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &datapath{settles: tc.settles, flushes: tc.flushes}
				s, f, had := node(t, d)
				r := request(t, "b")
				r.Ranges, r.Addresses = nil, []netip.Addr{had.Addr()}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if _, err := s.AllocateAllWhenFree(ctx, r); (err != nil) != tc.kept {
					t.Fatalf("the next pod with the address: %v", err)
				}
				if waiting, err := f.Status(); tc.kept != (waiting == 1) || tc.kept != (errors.Is(err, broken)) {
					t.Errorf("waiting: %d, %v", waiting, err)
				}
				d.set(nil, nil)
				if tc.kept {
					if _, err := s.AllocateAllWhenFree(t.Context(), r); err != nil {
						t.Errorf("when the cause is gone: %v", err)
					}
				}
			})
		})
	}
}
