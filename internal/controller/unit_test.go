// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"coelan.io/coelan/internal/allocate"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
)

func TestParseRange(t *testing.T) {
	for text, want := range map[string]allocate.Range{
		"70000-16777215": allocate.DefaultVNIs, "2-2": {First: 2, Last: 2}, "2-16777215": {First: 2, Last: 16777215},
	} {
		if got, err := ParseRange(text); err != nil || got != want {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-", "5", "5-", "-5", "1-5", "6-5", "5-16777216", "a-b", "5-6-7", "5 - 6"} {
		if got, err := ParseRange(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestCheckNamespaceSubnets(t *testing.T) {
	pools, services := []string{"10.128.0.0/14", "fd00:128::/48"}, []netip.Prefix{netip.MustParsePrefix("fd00:128:0:5::/112")}
	for _, c := range []struct {
		name, wrong string
		change      func(*Options)
	}{
		{"another mapping", "has no meaning with --mapping flat", func(o *Options) { o.Mapping = config.MapFlat }},
		{"Services of OVN", "the pool fd00:128::/48/64 overlaps fd00:128:0:5::/112", func(o *Options) { o.OVN = &OVN{ServiceCIDRs: services} }},
		{"Services of Neutron", "overlaps fd00:128:0:5::/112", func(o *Options) { o.Neutron = &Neutron{ServiceCIDRs: services} }},
		{"Services elsewhere", "", func(o *Options) {
			o.OVN = &OVN{ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}}
		}},
		{"no part of OpenStack's pools", "is needed with --neutron-subnet-pools", func(o *Options) {
			o.Neutron, o.NamespaceSubnets = &Neutron{SubnetPools: []string{"1"}}, nil
		}},
		{"a part of OpenStack's pools", "", func(o *Options) { o.Neutron = &Neutron{SubnetPools: []string{"1"}} }},
		{"no pools, another mapping", "", func(o *Options) { o.Mapping, o.NamespaceSubnets = config.MapFlat, nil }},
	} {
		o := Options{Mapping: config.MapNamespace}
		for i, p := range pools {
			o.NamespaceSubnets = append(o.NamespaceSubnets, intent.SubnetPool{Prefix: netip.MustParsePrefix(p), Bits: 24 + 40*i})
		}
		c.change(&o)
		err := o.CheckNamespaceSubnets()
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v, want %q", c.name, err, c.wrong)
		}
	}
}

// Without an API server the controller waits, and ends when its context does.
func TestRunWithoutAPI(t *testing.T) {
	asked := make(chan bool, 100)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- true
		http.Error(w, "not now", http.StatusServiceUnavailable)
	}))
	defer api.Close()
	o := DefaultOptions()
	o.REST, o.Log, o.MetricsBindAddress, o.LeaderElect = &rest.Config{Host: api.URL}, slog.New(slog.DiscardHandler), "0", false
	o.PolicyBindAddress, o.Socket = "0", ""
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o) }()
	for range 2 {
		select {
		case <-asked:
		case err := <-ended:
			t.Fatalf("it ends: %v", err)
		case <-time.After(time.Minute):
			t.Fatal("it does not try again")
		}
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
}

func TestParsePrefixes(t *testing.T) {
	got, err := ParsePrefixes("203.0.113.0/24, 2001:db8::/64")
	want := []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8::/64")}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	if got, err := ParsePrefixes(""); err != nil || got != nil {
		t.Errorf("of nothing: %v, %v", got, err)
	}
	for _, text := range []string{"203.0.113.1", "203.0.113.1/24", "all", "::ffff:203.0.113.0/120", "203.0.113.0/24 2001:db8::/64"} {
		if got, err := ParsePrefixes(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

func TestCompleteDefinitions(t *testing.T) {
	served := &metav1.APIResourceList{GroupVersion: "coelan.io/v1alpha1"}
	for _, kind := range []string{"Network", "Router", "Port", "AddressBlock", "LoadBalancerPool", "FloatingIP", "Egress", "NodeNetworkConfig"} {
		served.APIResources = append(served.APIResources, metav1.APIResource{Kind: kind})
	}
	if err := complete(served); err == nil || fmt.Sprint(err) != "coelan.io/v1alpha1: there is no kind SecurityGroup" {
		t.Errorf("error %v", err)
	}
	served.APIResources = append(served.APIResources, metav1.APIResource{Kind: "SecurityGroup"})
	if err := complete(served); err != nil {
		t.Error(err)
	}
}
