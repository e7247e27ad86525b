// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/internal/backend/neutron/cloud"
	"coelan.io/coelan/internal/backend/neutron/octavia"
)

// errPending says that Octavia is working on a load balancer.
var errPending = errors.New("Octavia is still changing it")

// errFailed says that Octavia could not do what it began.
var errFailed = errors.New("its provisioning status is ERROR: see Octavia's log, and have it failed over or delete it")

// errKept says that a load balancer has another address than the one that is asked for.
var errKept = errors.New("it keeps its address: for another one delete the Service and make it again")

// patience is how many attempts without progress find a load balancer busy before the Service says
// so.
const patience = 8

// next brings one Service to what is wanted; false: there is no more to do ever.
func (b *Balancers) next(ctx context.Context) bool {
	key, stop := b.queue.Get()
	if stop {
		return false
	}
	defer b.queue.Done(key)
	b.mu.Lock()
	wait := time.Until(b.quiet)
	b.mu.Unlock()
	if wait > 0 {
		b.queue.AddAfter(key, wait)
		return true
	}
	progress, err := b.bring(ctx, key)
	if ctx.Err() != nil {
		return true
	}
	after := cloud.RetryAfter(err)
	b.mu.Lock()
	if b.problems[key].Reason != reasonFailed && progress || err == nil || errors.Is(err, errKept) {
		b.queue.Forget(key)
	}
	if problem, met := b.problemOf(err, b.queue.NumRequeues(key)); met {
		b.problems[key] = problem
	} else if err == nil {
		delete(b.problems, key)
	}
	if after > 0 {
		b.quiet = time.Now().Add(after)
	}
	b.mu.Unlock()
	b.report()
	switch {
	case after > 0:
		b.queue.AddAfter(key, after)
	case err != nil && !errors.Is(err, errKept):
		b.queue.AddRateLimited(key)
	}
	return true
}

// The reasons of what Octavia does not do.
const (
	reasonAway    = "OctaviaUnreachable"
	reasonFailed  = "OctaviaFailed"
	reasonBusy    = "OctaviaBusy"
	reasonAddress = "AddressUnsupported"
	// reasonNotConfigured is that of all while there is no subnet for their addresses.
	reasonNotConfigured = "OctaviaNotConfigured"
)

// problemOf is what an attempt has met that its Service says, after some without progress; false:
// nothing new.
func (*Balancers) problemOf(err error, attempts int) (octavia.Problem, bool) {
	if err == nil {
		return octavia.Problem{}, false
	}
	p := octavia.Problem{Reason: reasonFailed, Message: "load balancer of Octavia: " + err.Error()}
	reason, text, refused := cloud.Refused(err)
	switch {
	case errors.Is(err, errPending), cloud.Busy(err):
		p.Reason = reasonBusy
		return p, attempts >= patience
	case errors.Is(err, errKept):
		p.Reason = reasonAddress
	case refused:
		p = octavia.Problem{Reason: reason, Message: "load balancer of Octavia: " + text}
	case cloud.Away(err):
		p = away(err)
	}
	return p, true
}

func away(err error) octavia.Problem {
	return octavia.Problem{Reason: reasonAway, Message: "Octavia cannot be used: " + err.Error()}
}

// bring makes the calls that a Service's load balancer needs, and writes the Service's status.
// Progress says that it has made calls.
func (b *Balancers) bring(ctx context.Context, key string) (progress bool, err error) {
	for ; ; progress = true {
		b.mu.Lock()
		api, want := b.client, b.wanted[key]
		b.mu.Unlock()
		if api == nil || want != nil && want.Subnet == "" {
			return progress, nil // it comes again when more is known
		}
		have, several, err := api.Read(ctx, key)
		if err != nil {
			return progress, err
		}
		if several > 1 {
			want = nil // this one goes, the others stay
		}
		switch {
		case have == nil || have.Status == octavia.Active:
		case have.Status != octavia.Error:
			return progress, errPending
		case want != nil:
			return progress, errFailed
		}
		if want == nil && several <= 1 {
			if err := b.withdraw(ctx, api, key, have); err != nil {
				return progress, err
			}
		}
		tag, failed := octavia.Tag(b.Cluster, key), ""
		if want != nil && have != nil {
			failed = have.Failed(tag)
		}
		call, more := octavia.Next(want, have, tag, api.Project())
		if !more && want != nil {
			return progress, b.publish(ctx, api, want, have)
		}
		if !more {
			return progress, nil
		}
		if err := api.Make(ctx, call); err != nil {
			return progress, err
		}
		if failed != "" {
			return progress, fmt.Errorf("its %s is in the provisioning status ERROR and is made again: see Octavia's log", failed)
		}
	}
}

// withdraw takes the addresses of a load balancer that goes out of the status of its Service, and
// then gives its floating IP back.
func (b *Balancers) withdraw(ctx context.Context, api *cloud.Octavia, key string, have *octavia.Actual) error {
	addresses, err := api.FloatingIPs(ctx, key)
	if err != nil {
		return err
	}
	if have != nil {
		addresses = append(addresses, have.Address)
	}
	s := &corev1.Service{}
	if err := b.Access.Get(ctx, objectKey(key), s); client.IgnoreNotFound(err) != nil {
		return err
	}
	ours := slices.ContainsFunc(s.Status.LoadBalancer.Ingress, func(i corev1.LoadBalancerIngress) bool {
		return slices.Contains(addresses, i.IP)
	})
	if ours && !chosen(s) {
		if err := b.write(ctx, s, nil); err != nil {
			return err
		}
	}
	return api.DeleteFloatingIPs(ctx, key)
}

// publish writes the address of a load balancer into the status of its Service.
func (b *Balancers) publish(
	ctx context.Context, api *cloud.Octavia, want *octavia.Balancer, have *octavia.Actual,
) error {
	key := want.Key
	address, err := api.EnsureFloatingIP(ctx, key, want.External, have.Port, want.Floating, b.claimed)
	if err != nil {
		return err
	}
	if address == "" {
		address = have.Address
	}
	s := &corev1.Service{}
	if err := b.Access.Get(ctx, objectKey(key), s); err != nil || !chosen(s) {
		return client.IgnoreNotFound(err)
	}
	// Clients in the cluster take the way by Octavia, too.
	mode := corev1.LoadBalancerIPModeProxy
	if err := b.write(ctx, s, []corev1.LoadBalancerIngress{{IP: address, IPMode: &mode}}); err != nil {
		return err
	}
	if at, err := netip.ParseAddr(have.Address); want.Address.IsValid() && (err != nil || at != want.Address) {
		return errKept
	}
	return nil
}

// write writes the addresses of a Service. That the Service is gone is no error.
func (b *Balancers) write(ctx context.Context, s *corev1.Service, ingress []corev1.LoadBalancerIngress) error {
	same := func(x, y corev1.LoadBalancerIngress) bool {
		return x.IP == y.IP && x.IPMode != nil && y.IPMode != nil && *x.IPMode == *y.IPMode
	}
	if slices.EqualFunc(s.Status.LoadBalancer.Ingress, ingress, same) {
		return nil
	}
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": s.UID},
		"status":   map[string]any{"loadBalancer": map[string]any{"ingress": ingress}},
	})
	if err != nil {
		return err
	}
	patch := client.RawPatch(types.MergePatchType, data)
	return client.IgnoreNotFound(b.Access.Status().Patch(ctx, s.DeepCopy(), patch))
}

func objectKey(key string) client.ObjectKey {
	namespace, name, _ := strings.Cut(key, "/")
	return client.ObjectKey{Namespace: namespace, Name: name}
}
