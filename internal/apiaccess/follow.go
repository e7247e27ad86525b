// SPDX-License-Identifier: Apache-2.0

package apiaccess

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"coelan.io/coelan/internal/eventhandler"
)

// The Service of the API servers, which they write the EndpointSlices of themselves, and its port.
const (
	service  = "kubernetes"
	portName = "https"
)

// Follow keeps the endpoints as the EndpointSlices of default/kubernetes have them, until ctx ends.
func (a *Access) Follow(ctx context.Context, api kubernetes.Interface) error {
	factory := informers.NewSharedInformerFactoryWithOptions(api, 0,
		informers.WithNamespace(corev1.NamespaceDefault),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector = discoveryv1.LabelServiceName + "=" + service
		}))
	informer := factory.Discovery().V1().EndpointSlices().Informer()
	changed := func() { a.learn(informer.GetStore().List()) }
	_, err := informer.AddEventHandler(eventhandler.OnChange(changed, nil))
	if err != nil {
		return err
	}
	failed := func(ctx context.Context, _ *cache.Reflector, err error) {
		if ctx.Err() == nil {
			a.Log.Warn("cannot watch the API servers' endpoints, retrying", "err", err)
		}
	}
	err = informer.SetWatchErrorHandlerWithContext(failed)
	if err != nil {
		return err
	}
	informer.RunWithContext(WaitForConnection(ctx))
	return nil
}

// learn takes the EndpointSlices that there are now.
func (a *Access) learn(objects []any) {
	current := addressesOf(objects)
	a.update(func(e endpoints) endpoints { return e.with(current) })
}

// addressesOf are the addresses of the API servers, sorted. Whether they are ready does not matter:
// they are tried.
func addressesOf(objects []any) []string {
	var list []string
	for _, o := range objects {
		slice, ok := o.(*discoveryv1.EndpointSlice)
		if !ok {
			continue
		}
		for _, p := range slice.Ports {
			if p.Port == nil || p.Name == nil || *p.Name != portName {
				continue
			}
			for _, e := range slice.Endpoints {
				for _, text := range e.Addresses {
					address := net.JoinHostPort(text, strconv.Itoa(int(*p.Port)))
					// Names of slices of the type FQDN are left out: DNS may depend on Services.
					ip, err := netip.ParseAddr(text)
					if err == nil && ip.Zone() == "" && validAddress(address) {
						list = append(list, address)
					}
				}
			}
		}
	}
	slices.Sort(list)
	list = slices.Compact(list)
	return list[:min(len(list), maxCurrent)]
}
