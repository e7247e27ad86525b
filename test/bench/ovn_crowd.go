// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"coelan.io/coelan/internal/backend/ovn/compile"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/backend/ovn/northbound"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
	"coelan.io/coelan/test/lab"
)

// The cluster that the controller writes rows of.
const (
	ovnNodes     = 400
	ovnPorts     = 20_000
	ovnServices  = 2000
	ovnEndpoints = 10 // of each Service
	ovnPolicies  = 200
	ovnMore      = 50 // pods that come and go
)

// Bars, in milliseconds and MB.
const (
	ovnPodBar, ovnPodAim       = 20, 5
	ovnMemoryBar, ovnMemoryAim = 300, 200
	ovnStartBar, ovnStartAim   = 10_000, 5000
)

// ovnCluster is the intent of a large cluster, where each Port has one of the policies.
func ovnCluster() intent.Objects {
	o := intent.Objects{
		Local:   intent.Local{PolicyMode: intent.EnforcedPolicies},
		Routers: []intent.Router{{Name: intent.DefaultRouterName, ID: 1}}, Networks: []intent.Network{{
			Name: intent.DefaultNetworkName, Router: intent.DefaultRouterName,
		}},
		ServiceRanges: []intent.ServiceRange{{Prefix: netip.MustParsePrefix("10.96.0.0/16")}},
	}
	for i := range ovnPolicies {
		o.Rules = append(o.Rules, ovnRule(i))
		for j := range 10 {
			o.Peers = append(o.Peers, ovnPeer(i, ovnPort(i, j)))
		}
	}
	for i := range ovnNodes {
		p := netip.PrefixFrom(nth(netip.MustParseAddr("10.128.0.0"), i*256), 24)
		o.Nodes = append(o.Nodes, intent.Node{
			Name: fmt.Sprint("n", i), MTU: 1400,
			Subnets: []intent.Subnet{{Network: intent.DefaultNetworkName, Prefix: p, Gateway: p.Addr().Next()}},
		})
	}
	for i := range ovnPorts {
		p := ovnPort(i%ovnNodes, i/ovnNodes)
		o.Ports, o.Subjects = append(o.Ports, p), append(o.Subjects, ovnSubject(p, i%ovnPolicies))
	}
	for i := range ovnServices {
		o.Services = append(o.Services, ovnService(i, ovnEndpoints))
	}
	return o
}

// ovnRule is the only rule of a policy, and lets peers of one group in.
func ovnRule(policy int) intent.Rule {
	ref := intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: fmt.Sprint("crowd-", policy), Name: "web"}
	return intent.Rule{
		ID: "NetworkPolicy/" + ref.Namespace + "/web/ingress/1", Policy: ref, Number: 1, Direction: intent.Ingress,
		Tier: intent.NetworkPolicyTier, Action: intent.Allow, Groups: []string{ref.Namespace + "-clients"},
	}
}

// ovnPeer is a Port as a peer of a policy.
func ovnPeer(policy int, p intent.Port) intent.Peer {
	return intent.Peer{Space: intent.DefaultRouterName, Address: p.Addresses[0], Groups: ovnRule(policy).Groups}
}

// ovnSubject has a Port have a policy.
func ovnSubject(p intent.Port, policy int) intent.Subject {
	r := ovnRule(policy)
	return intent.Subject{Key: p.SubjectKey(), Rules: []string{r.ID}, IngressIsolation: []intent.PolicyRef{r.Policy}}
}

// ovnPort is a Port of a pod by its number on its node.
func ovnPort(node, number int) intent.Port {
	name := fmt.Sprintf("p-%d-%d", node, number)
	a := nth(netip.MustParseAddr("10.128.0.0"), node*256+number+2)
	return intent.Port{
		ID: "crowd/" + name, Namespace: "crowd", Pod: name, UID: name, Object: name, Interface: "eth0",
		Network: intent.DefaultNetworkName, Node: fmt.Sprint("n", node),
		Addresses: []netip.Addr{a}, MAC: reserved.PodMAC(a),
	}
}

func ovnService(number, endpoints int) intent.Service {
	port := intent.ServicePort{
		Name: "http", Protocol: intent.TCP, Port: 80, ClusterIP: nth(netip.MustParseAddr("10.96.1.0"), number),
	}
	for i := range endpoints {
		p := ovnPort((number+i)%ovnNodes, i)
		port.Endpoints = append(port.Endpoints, intent.ServiceEndpoint{Address: p.Addresses[0], Port: 8080})
	}
	return intent.Service{
		Namespace: "crowd", Name: fmt.Sprint("web-", number), Router: intent.DefaultRouterName,
		Ports: []intent.ServicePort{port},
	}
}

// measureOVNRows counts what changes of intent write: rows that come or have other data, and
// elements of others' sets.
func measureOVNRows(context.Context) ([]Result, error) {
	store, compiler := intent.NewStore(), compile.New(compile.Options{})
	change := func(change func(*intent.Tx)) (rows, elements float64, err error) {
		s, err := store.Update(func(tx *intent.Tx) error { change(tx); return nil })
		if err != nil {
			return 0, 0, err
		}
		compiler.Update(s)
		for _, c := range compiler.Rows().Changes() {
			if c.Whole {
				rows++
			}
			elements += float64(len(c.Elements))
		}
		return rows, elements, nil
	}
	if _, _, err := change(func(tx *intent.Tx) { tx.Replace(ovnCluster()) }); err != nil {
		return nil, err
	}
	one := ovnPort(7, 200)
	var results []Result
	for _, c := range []struct {
		name   string
		change func(*intent.Tx)
	}{
		{"pod", func(tx *intent.Tx) {
			tx.SetSubject(ovnSubject(one, 7))
			tx.SetPort(one)
		}},
		{"peer", func(tx *intent.Tx) { tx.SetPeer(ovnPeer(7, one)) }},
		{"endpoint", func(tx *intent.Tx) { tx.SetService(ovnService(7, ovnEndpoints+1)) }},
	} {
		rows, elements, err := change(c.change)
		if err != nil {
			return nil, err
		}
		results = append(results, absolute("ovn-rows-"+c.name, "rows", rows).atMost(1, 1),
			absolute("ovn-elements-"+c.name, "elements", elements))
	}
	return results, nil
}

// ovnHalf is the controller's half on a database.
type ovnHalf struct {
	client  *northbound.Client
	reports chan error
	stop    func()
}

// startOVNHalf has a database be as a store says.
func startOVNHalf(ctx context.Context, remote string, store *intent.Store) *ovnHalf {
	h := &ovnHalf{reports: make(chan error, 1)}
	compiler := compile.New(compile.Options{})
	h.client = northbound.New(northbound.Options{
		Remotes: []string{remote},
		Rows: func() *nb.Rows {
			compiler.Update(store.State())
			return compiler.Rows()
		},
		Report: func(err error) {
			select {
			case <-h.reports: //nolint:errcheck // what was reported before is of no interest
			default:
			}
			h.reports <- err
		},
	})
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.client.Run(ctx)
	}()
	h.stop = func() { cancel(); <-done }
	return h
}

// written waits until the database has had as many transactions and is as wanted.
func (h *ovnHalf) written(ctx context.Context, transactions int64) error {
	ctx, cancel := context.WithTimeout(ctx, balanceTimeout)
	defer cancel()
	for {
		select {
		case err := <-h.reports:
			if err == nil && h.client.Transactions() >= transactions {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("the northbound database is not as wanted: %w", ctx.Err())
		}
	}
}

// measureOVNCrowd has the controller's half write the rows of a large cluster, start again, and
// write pods more. The databases are real; no ovn-northd follows, since its time would be in ours.
func measureOVNCrowd(ctx context.Context) ([]Result, error) {
	l, err := lab.Start(ctx, lab.Options{Nodes: 1, NoAgents: true, OVN: true})
	defer l.Close()
	if err != nil {
		return nil, err
	}
	l.OVN.Kill(lab.OVNNorthd)
	runtime.GC()
	peak := watchHeap()
	store := intent.NewStore()
	if _, err := store.Update(func(tx *intent.Tx) error { tx.Replace(ovnCluster()); return nil }); err != nil {
		return nil, err
	}
	began := time.Now()
	h := startOVNHalf(ctx, l.OVN.Remote("nb"), store)
	err = h.written(ctx, 1)
	h.stop()
	if err != nil {
		return nil, err
	}
	results := []Result{absolute("ovn-first-write", "ms", milliseconds(time.Since(began)))}
	began, busy := time.Now(), processorTime()
	h = startOVNHalf(ctx, l.OVN.Remote("nb"), store)
	defer h.stop()
	if err := h.written(ctx, 0); err != nil {
		return nil, err
	}
	started, transactions := milliseconds(time.Since(began)), float64(h.client.Transactions())
	startCPU := milliseconds(processorTime() - busy)
	pods, cpu, err := ovnPodsMore(ctx, h, store)
	most := peak()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	runtime.KeepAlive(store)
	return append(results,
		absolute("ovn-start", "ms", started).atMost(ovnStartBar, ovnStartAim),
		absolute("ovn-start-cpu", "ms", startCPU),
		absolute("ovn-start-transactions", "transactions", transactions).atMost(0, 0),
		absolute("ovn-pod", "ms", percentile(pods, 0.5)).atMost(ovnPodBar, ovnPodAim),
		absolute("ovn-pod-cpu", "ms", cpu),
		absolute("ovn-heap", "MB", float64(m.HeapAlloc)/1e6).atMost(ovnMemoryBar, ovnMemoryAim),
		absolute("ovn-heap-peak", "MB", most),
	), err
}

// ovnPodsMore has pods come and go, and returns the milliseconds until the database had each, the
// server's own time included, and the processor time of ours.
func ovnPodsMore(ctx context.Context, h *ovnHalf, store *intent.Store) (each []float64, cpu float64, err error) {
	busy := processorTime()
	for i := range 2 * ovnMore {
		before, began := h.client.Transactions(), time.Now()
		_, err := store.Update(func(tx *intent.Tx) error {
			if p := ovnPort(i/2, 200); i%2 == 0 {
				tx.SetSubject(ovnSubject(p, i/2))
				tx.SetPort(p)
			} else {
				tx.DeletePort(p.ID)
				tx.DeleteSubject(p.SubjectKey())
			}
			return nil
		})
		if err != nil {
			return nil, 0, err
		}
		h.client.Changed()
		if err := h.written(ctx, before+1); err != nil {
			return nil, 0, err
		}
		if i%2 == 0 {
			each = append(each, milliseconds(time.Since(began)))
		}
	}
	return each, milliseconds(processorTime()-busy) / (2 * ovnMore), nil
}
