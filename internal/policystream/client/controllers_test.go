// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"coelan.io/coelan/internal/policystream/certs"
	"coelan.io/coelan/internal/policystream/client"
	"coelan.io/coelan/internal/policystream/streamtest"
	"coelan.io/coelan/internal/policystream/wire"
)

// slice is one of a Service's, with endpoints that are ready and others.
func slice(name, service string, port string, ready, others []string) *discoveryv1.EndpointSlice {
	number, yes, no := int32(10363), true, false
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: streamtest.Namespace, Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &port, Port: &number}},
	}
	for _, a := range ready {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: &yes}})
	}
	for _, a := range others {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: &no}})
	}
	return s
}

func TestAddressesOfSlices(t *testing.T) {
	of := func(list ...*discoveryv1.EndpointSlice) []any {
		var objects []any
		for _, s := range list {
			objects = append(objects, s)
		}
		return objects
	}
	named := slice("a", wire.Service, wire.PortName, []string{"192.0.2.1"}, nil)
	named.AddressType = discoveryv1.AddressTypeFQDN
	for name, tc := range map[string]struct {
		slices []any
		want   []string
	}{
		"none": {},
		"both families": {
			of(slice("a", wire.Service, wire.PortName, []string{"fd00::1"}, nil), slice("b", wire.Service, wire.PortName, []string{"192.0.2.1"}, nil)),
			[]string{"192.0.2.1:10363", "[fd00::1]:10363"},
		},
		"one that is not ready": {
			of(slice("a", wire.Service, wire.PortName, []string{"192.0.2.1"}, []string{"192.0.2.2"})), []string{"192.0.2.1:10363"},
		},
		"none that is ready": {
			of(slice("a", wire.Service, wire.PortName, nil, []string{"192.0.2.2"})), []string{"192.0.2.2:10363"},
		},
		"twice while it moves": {
			of(slice("a", wire.Service, wire.PortName, []string{"192.0.2.1"}, nil), slice("b", wire.Service, wire.PortName, []string{"192.0.2.1"}, nil)),
			[]string{"192.0.2.1:10363"},
		},
		"another port": {slices: of(slice("a", wire.Service, "metrics", []string{"192.0.2.1"}, nil))},
		"names":        {slices: of(named)},
	} {
		if got := client.AddressesOf(tc.slices); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestWatch(t *testing.T) {
	api := fake.NewClientset()
	// What comes between the list and the watch of the fake is lost.
	watched := make(chan struct{}, 10)
	api.PrependWatchReactor("*", func(action k8stesting.Action) (bool, watch.Interface, error) {
		w, err := api.Tracker().Watch(action.GetResource(), action.GetNamespace())
		watched <- struct{}{}
		return true, w, err
	})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c := client.Watch(ctx, api, streamtest.Namespace, slog.New(slog.DiscardHandler))
	await := func(what string, addresses []string, roots bool) {
		t.Helper()
		deadline := time.After(20 * time.Second)
		for {
			got, pool := c.Current()
			if slices.Equal(got, addresses) && (pool != nil) == roots {
				return
			}
			select {
			case <-c.Changed():
			case <-deadline:
				t.Fatalf("%s: %v, roots %v", what, got, pool != nil)
			}
		}
	}
	await("nothing", nil, false)
	const kinds = 2
	for range kinds {
		<-watched
	}
	if _, err := api.DiscoveryV1().EndpointSlices(streamtest.Namespace).Create(ctx,
		slice("a", wire.Service, wire.PortName, []string{"192.0.2.1"}, nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await("one", []string{"192.0.2.1:10363"}, false)
	b, _, err := certs.Renew(certs.Bundle{}, wire.ServerName(streamtest.Namespace), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	maps := api.CoreV1().ConfigMaps(streamtest.Namespace)
	authority := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: wire.ConfigMap}, Data: map[string]string{wire.RootsKey: string(b.Roots)},
	}
	if _, err := maps.Create(ctx, authority, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await("with authority", []string{"192.0.2.1:10363"}, true)
	// Garbage, and none, leave what is known.
	authority.Data[wire.RootsKey] = "garbage"
	if _, err := maps.Update(ctx, authority, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(ctx, wire.ConfigMap, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := api.DiscoveryV1().EndpointSlices(streamtest.Namespace).Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await("no controller", nil, true)
}
