// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"coelan.io/coelan/internal/apiaccess"
	"coelan.io/coelan/internal/eventhandler"
	"coelan.io/coelan/internal/policystream/certs"
	"coelan.io/coelan/internal/policystream/wire"
	"coelan.io/coelan/internal/trigger"
)

// Controllers has the addresses of the controllers and the CA of their certificates.
type Controllers interface {
	// Current are the addresses, ADDRESS:PORT, and the authorities, nil as long as
	// they are not known.
	Current() (addresses []string, roots *x509.CertPool)
	// Changed has an element after Current has changed. Its capacity is one, and it
	// is for one reader.
	Changed() <-chan struct{}
}

// Fixed are controllers that never change.
func Fixed(roots *x509.CertPool, addresses ...string) Controllers { return fixed{roots, addresses} }

type fixed struct {
	roots     *x509.CertPool
	addresses []string
}

func (f fixed) Current() ([]string, *x509.CertPool) { return f.addresses, f.roots }
func (f fixed) Changed() <-chan struct{}            { return nil }

// watched are the controllers that the Kubernetes API knows.
type watched struct {
	log     *slog.Logger
	changed trigger.Trigger

	mu        sync.Mutex
	addresses []string
	roots     *x509.CertPool
	text      string // of the roots
}

// Watch follows the EndpointSlices of the controllers' Service and the ConfigMap with their
// authorities until ctx ends. It does not wait for the API server.
func Watch(ctx context.Context, api kubernetes.Interface, namespace string, log *slog.Logger) Controllers {
	w := &watched{log: log, changed: trigger.New()}
	slices := informers.NewSharedInformerFactoryWithOptions(api, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector = discoveryv1.LabelServiceName + "=" + wire.Service
		})).Discovery().V1().EndpointSlices().Informer()
	maps := informers.NewSharedInformerFactoryWithOptions(api, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, wire.ConfigMap).String()
		})).Core().V1().ConfigMaps().Informer()
	run(ctx, log, slices, func() { w.setAddresses(addressesOf(slices.GetStore().List())) })
	run(ctx, log, maps, func() { w.setRoots(maps.GetStore().List()) })
	return w
}

// run starts an informer, and calls changed after each of its events.
func run(ctx context.Context, log *slog.Logger, informer cache.SharedIndexInformer, changed func()) {
	_, err := informer.AddEventHandler(eventhandler.OnChange(changed, nil))
	if err == nil {
		err = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
			if ctx.Err() == nil {
				log.Warn("cannot watch the controllers' endpoints, retrying", "err", err)
			}
		})
	}
	if err != nil {
		// Never of an informer that has not been started.
		log.Error("cannot watch the controllers' endpoints", "err", err)
		return
	}
	go informer.RunWithContext(apiaccess.WaitForConnection(ctx))
}

// addressesOf are those of the port of policies, sorted: the ready ones, or all if there are none.
func addressesOf(objects []any) []string {
	var ready, others []string
	for _, o := range objects {
		slice, ok := o.(*discoveryv1.EndpointSlice)
		if !ok || slice.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		for _, p := range slice.Ports {
			if p.Port == nil || p.Name == nil || *p.Name != wire.PortName {
				continue
			}
			for _, e := range slice.Endpoints {
				list := &others
				if e.Conditions.Ready == nil || *e.Conditions.Ready {
					list = &ready
				}
				for _, a := range e.Addresses {
					*list = append(*list, net.JoinHostPort(a, strconv.Itoa(int(*p.Port))))
				}
			}
		}
	}
	if len(ready) == 0 {
		ready = others
	}
	slices.Sort(ready)
	return slices.Compact(ready)
}

// Current implements Controllers.
func (w *watched) Current() ([]string, *x509.CertPool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.addresses, w.roots
}

// Changed implements Controllers.
func (w *watched) Changed() <-chan struct{} { return w.changed }

func (w *watched) setAddresses(list []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Equal(list, w.addresses) {
		return
	}
	w.addresses = list
	w.changed.Fire()
}

// setRoots keeps those that are known if there are none any more, or none that can be read.
func (w *watched) setRoots(objects []any) {
	for _, o := range objects {
		m, ok := o.(*corev1.ConfigMap)
		if !ok || m.Name != wire.ConfigMap {
			continue
		}
		text := m.Data[wire.RootsKey]
		pool, err := certs.Pool([]byte(text))
		if err != nil {
			w.log.Error("the ConfigMap with the controllers' CA certificate is invalid",
				"configMap", wire.ConfigMap, "err", err)
			continue
		}
		w.mu.Lock()
		if text != w.text {
			w.roots, w.text = pool, text
			w.changed.Fire()
		}
		w.mu.Unlock()
	}
}
