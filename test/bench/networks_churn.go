// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/translate"
	"coelan.io/coelan/test/lab"
)

// How often one of the Networks changes, and for how long.
const (
	networkPause   = 100 * time.Millisecond
	networkChanges = 200
)

// changeTimeout bounds the wait for the last change to be in effect.
const changeTimeout = 30 * time.Second

// measureNetworksChurn looks at what an agent spends while one of very many Networks changes at a
// time, and compares the translation of one change with one of all objects.
func measureNetworksChurn(ctx context.Context) ([]Result, error) {
	l, err := lab.Start(ctx, lab.Options{Nodes: 1, PodCIDRs: wide})
	defer l.Close()
	if err != nil {
		return nil, err
	}
	s := &scale{Lab: l, node: l.Nodes[0]}
	for s.networks < allNetworks {
		s.addNetwork()
	}
	last, err := s.podOn(ctx, s.node, s.networks-1)
	if err != nil {
		return nil, err
	}
	if err := last.Delete(ctx); err != nil {
		return nil, err
	}
	share, err := s.churn(ctx)
	if err != nil {
		return nil, err
	}
	ours, reference := translations()
	return []Result{
		absolute("networks-churn-1000", "% of a core", share).atMost(5, 2.5),
		beside("networks-churn-translate-1000", "µs", ours, reference),
	}, nil
}

// churn gives one Network after the other another gateway, and returns the processor time of the
// agent as a share of the time by the clock, in percent.
func (s *scale) churn(ctx context.Context) (float64, error) {
	before, err := processTime(s.node.AgentPID())
	if err != nil {
		return 0, err
	}
	start := time.Now()
	tick := time.NewTicker(networkPause)
	defer tick.Stop()
	for i := range networkChanges {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-tick.C:
		}
		if err := s.API.ChangeNetwork(networkName(i), func(spec *v1alpha1.NetworkSpec) {
			spec.Subnets = movedGateway(i)
		}); err != nil {
			return 0, err
		}
	}
	took := time.Since(start)
	after, err := processTime(s.node.AgentPID())
	if err != nil {
		return 0, err
	}
	return 100 * float64(after-before) / float64(took), s.awaitGateway(ctx, networkChanges-1)
}

// movedGateway are the subnets of all Networks with a gateway that only the Network of that number
// has.
func movedGateway(i int) []v1alpha1.Subnet {
	return []v1alpha1.Subnet{{CIDR: tenantSubnets[0].CIDR, Gateway: gatewayOf(i)}, tenantSubnets[1]}
}

func gatewayOf(i int) string { return fmt.Sprintf("10.10.%d.%d", 200+i/200, 1+i%200) }

// awaitGateway waits until the node's bridge answers a pod of a Network for its gateway.
func (s *scale) awaitGateway(ctx context.Context, i int) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	if _, err := s.podOn(ctx, s.node, i); err != nil {
		return err
	}
	for {
		out, err := s.node.OVS.Ofctl(ctx, "dump-flows", "br-int", "arp,arp_tpa="+gatewayOf(i))
		switch {
		case err != nil:
			return err
		case strings.Contains(out, "arp_tpa="+gatewayOf(i)):
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the last change of a Network, to gateway %s, is not in effect", gatewayOf(i))
		case <-time.After(networkPause):
		}
	}
}

// translations are the microseconds, at the median, in which a change of one of the Networks is
// intent, and in which all objects are translated for it. Each Network has a Router of its own and
// two blocks of it.
func translations() (ours, reference float64) {
	set := translate.NewNetworkSet(translate.NetworkView{Node: "n1", Connected: func(string) bool { return false }})
	var (
		routers  []*v1alpha1.Router
		networks []*v1alpha1.Network
		blocks   []*v1alpha1.AddressBlock
	)
	for i := range allNetworks {
		name, id := networkName(i), int32(2+i) //nolint:gosec // small
		r := &v1alpha1.Router{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.RouterStatus{ID: id, VNI: id}}
		n := &v1alpha1.Network{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NetworkSpec{Subnets: tenantSubnets},
			Status: v1alpha1.NetworkStatus{ID: id, VNI: id, Router: name},
		}
		routers, networks = append(routers, r), append(networks, n)
		set.SetRouter(name, r)
		set.SetNetwork(name, n)
		for j, cidr := range []string{"10.10.0.0/26", "10.10.0.64/26"} {
			b := &v1alpha1.AddressBlock{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(name, "-", j)}}
			b.Spec.Network, b.Spec.CIDR, b.Spec.Node = name, cidr, fmt.Sprint("n", 1+j)
			blocks = append(blocks, b)
			set.SetBlock(b.Name, b)
		}
	}
	full, incremental := intent.NewStore(), intent.NewStore()
	first := set.Changes()
	update(incremental, func(tx *intent.Tx) {
		tx.ReplaceNetworks(first.Routers.Set, first.Networks.Set, first.Blocks.Set)
	})
	update(full, func(tx *intent.Tx) { tx.ReplaceNetworks(first.Routers.Set, first.Networks.Set, first.Blocks.Set) })
	var one, all []float64
	for i := range networkChanges {
		changed := networks[i].DeepCopy()
		changed.Spec.Subnets = movedGateway(i)
		networks[i] = changed
		start := time.Now()
		set.SetNetwork(changed.Name, changed)
		c := set.Changes()
		update(incremental, func(tx *intent.Tx) {
			for _, n := range c.Networks.Set {
				tx.SetNetwork(n)
			}
			for _, b := range c.Blocks.Set {
				tx.SetBlock(b)
			}
		})
		then := time.Now()
		r, n, _ := translate.Networks(routers, networks)
		b, _ := translate.Blocks(blocks, n, networks)
		update(full, func(tx *intent.Tx) { tx.ReplaceNetworks(r, n, b) })
		one, all = append(one, microseconds(then.Sub(start))), append(all, microseconds(time.Since(then)))
	}
	return percentile(one, 0.5), percentile(all, 0.5)
}

func update(s *intent.Store, change func(*intent.Tx)) {
	_, _ = s.Update(func(tx *intent.Tx) error { change(tx); return nil }) // which returns no error
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
