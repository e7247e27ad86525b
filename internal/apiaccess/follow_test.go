// SPDX-License-Identifier: Apache-2.0

package apiaccess

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

func TestEmptySlicesChangeNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "api-server", "endpoints.json")
	a := New(quiet(Options{File: file}))
	a.learn([]any{slice("https", "192.0.2.1", "192.0.2.2")})
	a.learn([]any{slice("https", "192.0.2.2")})
	for _, objects := range [][]any{nil, {slice("https")}, {slice("metrics", "192.0.2.7")}} {
		a.learn(objects)
	}
	again := New(quiet(Options{File: file}))
	for name, e := range map[string]endpoints{"now": a.known, "after a restart": again.known} {
		want := endpoints{Current: []string{"192.0.2.2:6443"}, Former: []string{"192.0.2.1:6443"}}
		if diff := cmp.Diff(want, e); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v, %v: a controller of the node could not read it", info.Mode(), err)
	}
	for i := range 100 {
		again.know("192.0.2.2:" + []string{"1", "2", "3"}[i%3])
		again.know("[2001:db8::" + strings.Repeat("1", i%4+1) + "]:" + []string{"6443", "443"}[i%2])
	}
	if n := len(again.known.Former); n > maxFormer {
		t.Errorf("%d former endpoints are kept", n)
	}
}

func TestAddressesOfSlices(t *testing.T) {
	many := slice("https")
	for i := range 300 {
		many.Endpoints = append(many.Endpoints, discoveryv1.Endpoint{Addresses: []string{
			net.IPv4(10, 0, byte(i>>8), byte(i)).String(),
		}})
	}
	no := false
	notReady := slice("https", "192.0.2.1")
	notReady.Endpoints[0].Conditions.Ready = &no
	for name, tc := range map[string]struct {
		objects []any
		want    []string
	}{
		"none":          {},
		"both families": {[]any{slice("https", "2001:db8::1"), slice("https", "192.0.2.1")}, []string{"192.0.2.1:6443", "[2001:db8::1]:6443"}},
		"twice":         {[]any{slice("https", "192.0.2.1"), slice("https", "192.0.2.1")}, []string{"192.0.2.1:6443"}},
		"not ready":     {[]any{notReady}, []string{"192.0.2.1:6443"}},
		"no addresses":  {[]any{slice("https", "api.example.org", "", "0.0.0.0", "::", "ff02::1", "fe80::1%eth0")}, nil},
	} {
		if diff := cmp.Diff(tc.want, addressesOf(tc.objects)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if n := len(addressesOf([]any{many})); n != maxCurrent {
		t.Errorf("%d of 300 endpoints", n)
	}
}

// TestFollow watches slices of an API that is a fake.
func TestFollow(t *testing.T) {
	api := fake.NewSimpleClientset()
	watches := watch.NewFake()
	api.PrependReactor("list", "endpointslices", func(a k8stesting.Action) (bool, runtime.Object, error) {
		l := a.(k8stesting.ListAction)
		if l.GetNamespace() != "default" || l.GetListRestrictions().Labels.String() != "kubernetes.io/service-name=kubernetes" {
			t.Errorf("slices of %s %s are listed", l.GetNamespace(), l.GetListRestrictions().Labels)
		}
		return true, &discoveryv1.EndpointSliceList{Items: []discoveryv1.EndpointSlice{*slice("https", "192.0.2.1")}}, nil
	})
	api.PrependWatchReactor("endpointslices", k8stesting.DefaultWatchReactor(watches, nil))
	file := filepath.Join(t.TempDir(), "endpoints.json")
	a := New(quiet(Options{File: file}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Follow(ctx, api) }()
	await := func(want ...string) {
		t.Helper()
		for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			e, err := load(file)
			if err == nil && slices.Equal(e.Current, want) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%+v, %v, want %v", e, err, want)
			}
		}
	}
	await("192.0.2.1:6443")
	watches.Modify(slice("https", "192.0.2.2", "192.0.2.3"))
	await("192.0.2.2:6443", "192.0.2.3:6443")
	watches.Modify(slice("https"))
	watches.Modify(slice("https", "192.0.2.4"))
	await("192.0.2.4:6443")
	watches.Delete(slice("https"))
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := a.addresses()[0]; got != "192.0.2.4:6443" {
		t.Errorf("after the slice is gone, %s is dialed first", got)
	}
}
