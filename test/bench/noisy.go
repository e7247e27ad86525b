// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

const (
	noisyRounds = 9
	noisyTime   = time.Second
	// noisyRate is how many frames a second a noisy pod sends: few enough that making them takes
	// little of the processor that all share, and many times what a pod sends of these kinds.
	noisyRate = 20_000
	// noisyBar is which part of its connections a tenant must be left with.
	noisyBar, noisyAim = 0.8, 0.95
)

// measureNoisyNeighbour compares how many connections a second a tenant's pods open while a pod of
// another tenant on the node sends noise of one kind, and while it does not.
func measureNoisyNeighbour(ctx context.Context) ([]Result, error) {
	l, err := lab.Start(ctx, lab.Options{
		Nodes: 1, Families: lab.Dual, Policies: true,
		Configure: func(c *config.Config) { c.Services.Mode = config.NativeServices },
	})
	defer l.Close()
	if err != nil {
		return nil, err
	}
	pods, err := tenantPods(ctx, l, "red", "blue")
	if err != nil {
		return nil, err
	}
	server := pods["blue/server"]
	to := netip.AddrPortFrom(server.Own("eth0", lab.IPv4), serverPort)
	serving, err := probe.Serve(server.Host, to, probe.Answer)
	if err != nil {
		return nil, err
	}
	defer serving.Close()
	noise := func(f lab.Family, subnet v1alpha1.Subnet) probe.Noise {
		return probe.Noise{
			MAC: pods["red/client"].MAC, Router: datapath.RouterMAC.HardwareAddr(),
			Address: pods["red/client"].Own("eth0", f), Peer: pods["red/server"].Own("eth0", f),
			Subnet: netip.MustParsePrefix(subnet.CIDR),
		}
	}
	v4, v6 := noise(lab.IPv4, tenantSubnets[0]), noise(lab.IPv6, tenantSubnets[1])
	var results []Result
	for _, kind := range []struct {
		name string
		next func(int) probe.Frame
	}{
		{"connections", v4.Connections}, {"scan", v4.Scan}, {"arp", v4.Questions}, {"nd", v6.Questions},
	} {
		r, err := besideNoise(ctx, pods, to, kind.next)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind.name, err)
		}
		r.Name += "-" + kind.name
		results = append(results, r)
	}
	return results, nil
}

// besideNoise has blue connect with noise from red, and without, in turn.
func besideNoise(
	ctx context.Context, pods map[string]*lab.Pod, to netip.AddrPort, next func(int) probe.Frame,
) (Result, error) {
	client := pods["blue/client"].Host
	var loud, quiet []float64
	for range noisyRounds {
		rate, err := connectManyTimes(ctx, client, to, probe.Extent{Time: noisyTime})
		if err != nil {
			return Result{}, err
		}
		quiet = append(quiet, rate)
		flood, err := probe.StartFlood(pods["red/client"].Host, "eth0", noisyRate, next)
		if err != nil {
			return Result{}, err
		}
		rate, err = connectManyTimes(ctx, client, to, probe.Extent{Time: noisyTime})
		if _, ended := flood.Stop(); err != nil || ended != nil {
			return Result{}, errors.Join(err, ended)
		}
		loud = append(loud, rate)
	}
	return paired("noisy-neighbour", "1/s", loud, quiet).atLeast(noisyBar, noisyAim), nil
}

// tenantPods makes a client and a server of each tenant, on a Network and a private Router of its
// own, to which policies say nothing.
func tenantPods(ctx context.Context, l *lab.Lab, tenants ...string) (map[string]*lab.Pod, error) {
	n, pods, view := l.Nodes[0], map[string]*lab.Pod{}, lab.PolicyView{}
	for _, tenant := range tenants {
		labels := map[string]string{"tenant": tenant}
		l.API.AddNamespace(tenant, labels)
		l.API.AddNetwork(tenant, v1alpha1.NetworkSpec{
			Role: v1alpha1.Primary, Subnets: tenantSubnets,
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: labels},
		})
		if err := awaitNetwork(ctx, n, tenant); err != nil {
			return nil, err
		}
		for _, name := range []string{"client", "server"} {
			p, err := n.AddPodAs(ctx, lab.PodSpec{Namespace: tenant, Name: name})
			if err != nil {
				return nil, err
			}
			pods[tenant+"/"+name] = p
			view.Subjects = append(view.Subjects, intent.Subject{Key: intent.PodSubject(p.UID)})
		}
	}
	return pods, l.Policies.Publish(ctx, map[string]lab.PolicyView{n.Name: view})
}

// awaitNetwork waits until the node's agent knows a Network: a pod that starts before is on Network
// default.
func awaitNetwork(ctx context.Context, n *lab.Node, name string) error {
	for {
		var known []agentapi.NetworkInfo
		if err := n.Query(ctx, "/v1/networks", &known); err != nil {
			return err
		}
		if slices.ContainsFunc(known, func(i agentapi.NetworkInfo) bool { return i.Name == name }) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("Network %s: %w", name, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
