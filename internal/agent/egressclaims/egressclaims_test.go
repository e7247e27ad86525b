// SPDX-License-Identifier: Apache-2.0

package egressclaims

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/backend"
)

// api notes what is written, and fails as the test wants.
type api struct {
	mu      sync.Mutex
	written []string
	fails   []error
}

// ClaimBlock implements API.
func (a *api) ClaimBlock(_ context.Context, name, version, node string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.written = append(a.written, name+" "+version+" "+node)
	if len(a.fails) == 0 {
		return nil
	}
	err := a.fails[0]
	a.fails = a.fails[1:]
	return err
}

func (a *api) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := a.written
	a.written = nil
	return list
}

type disk struct{}

func (disk) Objects(string) map[string][]byte                        { return nil }
func (disk) ChangeObjects(string, map[string][]byte, []string) error { return nil }

func TestClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view, err := apicache.New(slog.New(slog.DiscardHandler), disk{})
		if err != nil {
			t.Fatal(err)
		}
		show := func(version, active string) {
			b := &v1alpha1.AddressBlock{ObjectMeta: metav1.ObjectMeta{Name: "office-192-0-2-30-32", ResourceVersion: version}}
			b.Status.ActiveNode = active
			view.Updates(func() {}).Blocks(kube.Whole([]*v1alpha1.AddressBlock{b}))
		}
		show("1", "n2")
		a := &api{}
		c := New(slog.New(slog.DiscardHandler), "n1", a, view)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = c.Run(ctx) }()
		expect := func(when string, want ...string) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := a.take(); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
		}
		claim := []backend.ExternalAddress{{Network: "office", Address: netip.MustParseAddr("192.0.2.30")}}
		expect("without claims")
		c.Set(claim)
		expect("a claim", "office-192-0-2-30-32 1 n1")
		c.Set(claim)
		expect("the same claim")

		conflict := apierrors.NewConflict(schema.GroupResource{}, "", errors.New("newer"))
		for name, fails := range map[string][]error{"conflict": {conflict}, "API away": {errors.New("no route"), errors.New("no route")}} {
			c.Set(nil)
			synctest.Wait()
			a.fails = fails
			c.Set(claim)
			want := slices.Repeat([]string{"office-192-0-2-30-32 1 n1"}, len(fails)+1)
			expect(name, want...)
		}
		c.Set(nil)
		synctest.Wait()
		a.fails = []error{apierrors.NewNotFound(schema.GroupResource{}, "")}
		c.Set(claim)
		expect("a block that is gone", "office-192-0-2-30-32 1 n1")

		c.Set(nil)
		synctest.Wait()
		show("2", "n1")
		c.Set(claim)
		expect("the API shows it already")
		c.Set([]backend.ExternalAddress{{Network: "office", Address: netip.MustParseAddr("192.0.2.31")}})
		expect("a block that is not seen yet")
	})
}
